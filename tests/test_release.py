"""The version is stated once, and what a release shows is in the tree."""

import tomllib
from pathlib import Path

import kbrl

ROOT = Path(__file__).parents[1]


def test_the_version_is_stated_in_the_package_and_repeated_only_where_it_cannot_be_read():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/kbrl/__init__.py"
    assert f"version: {kbrl.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {kbrl.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
