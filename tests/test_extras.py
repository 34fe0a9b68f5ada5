"""What says how to install something is right: kbrl is not published, so it is installed from a clone."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import kbrl
import kbrl.demo
from kbrl.checks import how_to_install
from kbrl.cli import main

ROOT = Path(kbrl.__file__).parent
PROJECT = Path(__file__).parent.parent
SOURCES = {path: path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}


def test_one_sentence_says_how_and_all_messages_use_it():
    assert how_to_install("plot") == (
        "Install it by: pip install '.[plot]', in the folder of the project (a clone of kbrl)."
    )
    assert [path.name for path, text in SOURCES.items() if "pip install" in text] == ["checks.py"]
    pages = [*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")]
    assert not [page.name for page in pages if re.search(r"pip install '?kbrl", page.read_text(encoding="utf-8"))]


def test_every_extra_that_a_message_names_exists():
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {name for text in SOURCES.values() for name in re.findall(r"how_to_install\([\"'](\w+)[\"']\)", text)}
    assert named == {"plot", "gym", "trees", "files", "minari", "dask"}
    assert named <= set(extras)


def test_the_demonstration_asks_for_matplotlib_before_any_work(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(kbrl.demo, "run", lambda *arguments: pytest.fail("it has started to work"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["demo", "--runs", "1"])
    told = "Error: The demonstration needs matplotlib for its pictures. Install it by: pip install '.[plot]', in the"
    assert capsys.readouterr().err.startswith(told)
    assert not list(tmp_path.iterdir())
