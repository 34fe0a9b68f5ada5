"""The examples in docstrings run, and every public name has one."""

import doctest
import inspect
from importlib import import_module

import pytest

import kbrl

NAMES = [name for name in kbrl.__all__ if name != "__version__"]
# Public names are also in these modules, beside those of kbrl.__all__.
FURTHER = ("kbrl.tasks.puddle_world", "kbrl.tasks.from_gymnasium", "kbrl.trials.evaluation", "kbrl.trials.rollouts")
FURTHER += ("kbrl.trust.importance", "kbrl.demo.ward_table")
MODULES = sorted({getattr(kbrl, name).__module__ for name in NAMES} | set(FURTHER))


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_of_a_public_name_has_an_example(name):
    assert doctest.DocTestParser().get_examples(inspect.getdoc(getattr(kbrl, name)) or "")


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_run(module, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # some of them write files
    assert doctest.testmod(import_module(module)).failed == 0
