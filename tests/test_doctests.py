"""The examples in docstrings run, and every public name has one."""

import doctest
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import kbrl

NAMES = [name for name in kbrl.__all__ if name != "__version__"]
ROOT = Path(kbrl.__file__).parent
WITH_EXAMPLES = sorted(path for path in ROOT.rglob("*.py") if ">>>" in path.read_text(encoding="utf-8"))
MODULES = [".".join(("kbrl", *path.relative_to(ROOT).with_suffix("").parts)) for path in WITH_EXAMPLES]
MODULES = [name.removesuffix(".__init__") for name in MODULES]


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_of_a_public_name_has_an_example(name):
    assert doctest.DocTestParser().get_examples(inspect.getdoc(getattr(kbrl, name)) or "")


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_run(module, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # some of them write files
    assert doctest.testmod(import_module(module)).failed == 0
