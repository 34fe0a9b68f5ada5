"""The lower bounds of pyproject.toml are those that `make test-oldest` installs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = {"mypy", "ruff"}  # which look at the source and take no part in the tests
SITE = {"mkdocs", "mkdocs-material", "mkdocstrings"}  # which build the pages, with the newest versions


def test_every_lower_bound_is_the_version_of_the_oldest_environment():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    bounds = dict(
        re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)(?:;.*)?", line).groups() for line in listed if ">=" in line
    )
    oldest = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "oldest.txt").read_text(), re.MULTILINE))

    def numbers(version):
        return [int(part) for part in version.split(".")] + [0] * (3 - version.count(".") - 1)

    for name in bounds.keys() - TOOLS - SITE:
        assert numbers(bounds[name]) == numbers(oldest[name]), name
