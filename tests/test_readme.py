"""What the README says is true: its Python examples run, and its commands exist."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_code_comes_before_line_20():
    first = next(number for number, line in enumerate(README.splitlines(), start=1) if line.startswith("```"))
    assert first < 20


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_examples_run(number, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[number], f"README example {number + 1}", "exec"), {})  # every example stands alone


def test_the_make_targets_that_it_names_exist():
    targets = set(re.findall(r"make (\w+)", README))
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    assert targets
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)
