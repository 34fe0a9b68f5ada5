"""The examples in docstrings are true, and the functions that people meet first have one."""

import doctest
from importlib import import_module

import pytest

import kbrl
from kbrl.logs.writing import write_log

MODULES = ["kbrl.data.transitions", "kbrl.logs.columns", "kbrl.logs.log", "kbrl.logs.check", "kbrl.logs.writing"]
SHOWN = [kbrl.load_log, kbrl.open_log, kbrl.read_log, kbrl.check_log, write_log, kbrl.Transitions]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.__name__)
def test_what_people_meet_first_has_an_example(shown):
    assert shown.__module__ in MODULES
    assert ">>> " in shown.__doc__
