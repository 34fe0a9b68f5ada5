"""Imports point one way, rooms are small, and the page on the architecture names every module."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import kbrl

ROOT = Path(kbrl.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
# From low to high; a module may import its own room and those before it.
LAYERS = ["arrays", "profiles", "checks", "numba_cache", "threads", "files", "notebooks", "data"]
LAYERS += [
    "mdp",
    "lines",
    "settings",
    "model",
    "trials",
    "tasks",
    "tables",
    "logs",
    "proposing",
    "learners",
    "choosing",
    "trust",
]
LAYERS += ["insight", "storage", "serving", "on_dask", "testing", "report", "demo", "cli", "__main__"]
MOST_MODULES = 15  # in a room


def modules():
    return sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem != "__init__")


def layer_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path):
    """Return the modules of kbrl that a module imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{a.name}" for a in node.names]
        yield from (name for name in names if name.startswith("kbrl.") and name != "kbrl.__version__")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_point_to_earlier_rooms(path):
    height = LAYERS.index(layer_of(path))
    for name in imported(path):
        layer = name.split(".")[1]
        assert LAYERS.index(layer) <= height, f"{path.name} imports {layer}, which comes later"


def test_no_modules_import_each_other_in_a_circle_not_even_inside_functions():
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in modules() if path.stem != "__init__"
    }
    edges = {
        name: {other for target in imported(path) for other in (_home(target.removeprefix("kbrl."), names),) if other}
        for name, path in names.items()
    }
    done, under_way = set(), []

    def visit(name):
        assert name not in under_way, f"a circle: {' -> '.join([*under_way[under_way.index(name) :], name])}"
        if name in done:
            return
        under_way.append(name)
        for other in sorted(edges[name] - {name}):
            visit(other)
        under_way.pop()
        done.add(name)

    for name in names:
        visit(name)


def _home(dotted, names):
    """Return the module that a dotted name is, or is in."""
    return next((part for part in (dotted, dotted.rpartition(".")[0]) if part in names), None)


def test_no_room_has_more_modules_than_one_can_take_in():
    rooms = Counter(path.parent.name for path in modules() if path.stem != "__init__" and path.parent != ROOT)
    assert {room: n for room, n in rooms.items() if n > MOST_MODULES} == {}


def test_no_two_modules_have_one_name():
    names = Counter(path.stem for path in modules() if path.stem != "__init__")
    assert [name for name, n in names.items() if n > 1] == []


def test_the_page_on_the_architecture_names_the_modules_of_each_room_and_no_others():
    rooms = PAGE[PAGE.index("## Rooms") : PAGE.index("## Outside the package")].split("\n### ")[1:]
    named = {re.match(r"`?([\w ]+)", room)[1]: set(re.findall(r"`([a-z_]+)`", room)) for room in rooms}
    there = {}
    for path in modules():
        if path.stem not in ("__init__", "__main__"):
            there.setdefault("Top level" if path.parent == ROOT else path.parent.name, set()).add(path.stem)
    assert named == there


def test_importing_kbrl_loads_nothing_heavy():
    heavy = ("numpy", "scipy", "numba", "matplotlib", "gymnasium", "pyarrow", "jinja2")
    code = f"import sys, kbrl; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_had():
    for name in kbrl.__all__:
        assert getattr(kbrl, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'KBFS'"):
        kbrl.KBFS  # noqa: B018
