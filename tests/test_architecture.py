"""Imports point one way: from later stages of the data to earlier ones."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kbrl

ROOT = Path(kbrl.__file__).parent
# From low to high; a module may import its own layer and those before it.
LAYERS = [
    "arrays",
    "settings",
    "checks",
    "threads",
    "interrupts",
    "atomic_write",
    "data",
    "mdp",
    "model",
    "trials",
    "tasks",
]
LAYERS += [
    "learners",
    "logs",
    "choosing",
    "insight",
    "storage",
    "on_dask",
    "testing",
    "report",
    "demo",
    "cli",
    "__main__",
]


def modules():
    return sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem != "__init__")


def layer_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_layers(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{a.name}" for a in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("kbrl.") and name != "kbrl.__version__")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_point_to_earlier_layers(path):
    height = LAYERS.index(layer_of(path))
    for layer in imported_layers(path):
        assert LAYERS.index(layer) <= height, f"{path.name} imports {layer}, which comes later"


def test_importing_kbrl_loads_nothing_heavy():
    heavy = ("numpy", "scipy", "numba", "matplotlib", "gymnasium")
    code = f"import sys, kbrl; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_had():
    for name in kbrl.__all__:
        assert getattr(kbrl, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'KBFS'"):
        kbrl.KBFS  # noqa: B018
