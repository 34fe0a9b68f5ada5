"""What says how to install something is right: kbrl from a clone, and an extra of the kbrl that is there."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kbrl
import kbrl.demo.puddle_picture
from kbrl.checks import how_to_install
from kbrl.cli import main
from kbrl.logs.writing import write_log
from samples import random_log

ROOT = Path(kbrl.__file__).parent
PROJECT = Path(__file__).parent.parent
SOURCES = {path: path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}


def test_one_sentence_says_how_and_all_messages_use_it():
    assert how_to_install("plot") == "Install it with: pip install 'kbrl[plot]'."
    assert [path.name for path, text in SOURCES.items() if "pip install" in text] == ["checks.py"]
    pages = [*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")]
    assert not [page.name for page in pages if re.search(r"pip install '?kbrl", page.read_text(encoding="utf-8"))]


def test_every_extra_that_a_message_names_exists():
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {name for text in SOURCES.values() for name in re.findall(r"how_to_install\([\"'](\w+)[\"']\)", text)}
    assert named == {"plot", "gym", "trees", "minari", "dask", "excel", "duckdb", "postgres"}
    assert named <= set(extras)


WITHOUT_EXTRAS = """
import sys
for name in ("matplotlib", "gymnasium", "sklearn", "h5py", "dask", "distributed", "pandas", "polars", "openpyxl",
             "duckdb", "adbc_driver_postgresql"):
    sys.modules[name] = None  # importing it fails
from kbrl.cli import main
main(["fit", "log.csv", "-o", "model.kbrl", "--reps", "5"])
"""


def test_a_plain_installation_learns_from_a_text_file(tmp_path):
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert any(needed.startswith("pyarrow>=") for needed in project["dependencies"])
    write_log(random_log(60), tmp_path / "log.csv")
    subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "model.kbrl").exists()


def test_the_demonstration_asks_for_matplotlib_before_any_work(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(kbrl.demo.puddle_picture, "run", lambda *arguments: pytest.fail("it has started to work"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["demo", "--runs", "1"])
    told = "Error: The demonstration needs matplotlib for its pictures. Install it with: pip install 'kbrl[plot]'."
    assert capsys.readouterr().err.startswith(told)
    assert not list(tmp_path.iterdir())
