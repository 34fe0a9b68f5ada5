"""Every name on the page that leads from the paper to the code exists."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import kbrl

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper_map.md").read_text()
NAMES = sorted(set(re.findall(r"`([^`]+)`", PAGE)))
LINKS = re.findall(r"\]\(([^)]+)\)", PAGE)


def resolved(name):
    """Return what a dotted name stands for: below kbrl, or one of its public names."""
    found, rest = kbrl, name.split(".")
    while rest:
        part = rest.pop(0)
        if inspect.ismodule(found) and not hasattr(found, part):
            found = import_module(f"{found.__name__}.{part}")
        elif inspect.isclass(found) and part in inspect.get_annotations(found):  # set by fit
            found = inspect.get_annotations(found)[part]
        else:
            found = getattr(found, part)
    return found


def homes(name):
    """Return the modules in whose words a bare name of a note may be meant: those whose functions the page lists."""
    dotted = [other for other in NAMES if other.endswith(f".{name}")]
    return [resolved(other) for other in dotted]


def exists(name):
    if name.endswith(("/", ".py", ".md")):
        return any((folder / name).exists() for folder in (ROOT, ROOT / "tests"))
    call = re.fullmatch(r"([\w.]+)\((.*)\)", name)
    if call:
        parameters = inspect.signature(resolved(call[1])).parameters
        return all(keyword in parameters for keyword in re.findall(r"(\w+)=", call[2]))
    setting = re.fullmatch(r'(\w+)="[\w-]+"', name)
    if setting:
        return setting[1] in inspect.signature(kbrl.KBSF).parameters
    try:
        return resolved(name) is not None
    except (AttributeError, ImportError):
        return bool(homes(name)) or is_a_word_of_the_functions(name)


def is_a_word_of_the_functions(name):
    """Whether a bare word is a parameter or a field of a function or class that the page names."""
    for other in NAMES:
        if re.fullmatch(r"[\w.]+\.\w+", other) and not other.endswith((".py", ".md")):
            found = resolved(other)
            if callable(found) and name in {
                *inspect.signature(found).parameters,
                *getattr(found, "__annotations__", ()),
            }:
                return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_every_name_on_the_page_exists(name):
    assert exists(name)


@pytest.mark.parametrize(
    "name", ["model.kernels.Kernels", "KBSF(sweep=)", "model/test_kernel.py", "solved", "planning.x"]
)
def test_a_name_that_does_not_exist_is_noticed(name):
    assert not exists(name)


@pytest.mark.parametrize("link", LINKS)
def test_every_link_on_the_page_leads_somewhere(link):
    assert (ROOT / "docs" / link).exists()


def test_every_row_of_a_table_has_three_cells_with_something_in_them():
    for line in PAGE.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) == 3, line
            assert all(cells), line


def test_the_claims_on_the_page_are_those_of_the_study():
    listed = set(re.findall(r"\| ([A-Z]{2}) \|", PAGE))
    claims = set(re.findall(r"^\| ([A-Z]{2})\d", (ROOT / "results" / "CLAIMS.md").read_text(), re.MULTILINE))
    assert listed == claims
