"""What the README says is true: its Python examples run, and its commands exist."""

import re
import shlex
from pathlib import Path

import pytest

from kbrl.cli import main

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


def test_the_walk_through_goes_from_a_table_to_a_report(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    table, settings, commands = (
        re.search(rf"```{kind}\n(.*?)```", README, flags=re.DOTALL).group(1) for kind in ("csv", "toml", "sh")
    )
    Path("ward.csv").write_text(table)
    Path("ward.toml").write_text(settings)
    for line in commands.splitlines():
        name, *arguments = shlex.split(line, comments=True)
        assert name == "kbrl"
        main(arguments)
    out = capsys.readouterr().out
    assert "low dose: value" in out  # explain
    assert "high dose: left out, as it was taken only 3 times in all" in out
    assert Path("ward.html").read_text().startswith("<!DOCTYPE html>")
    assert Path("more.kbrl").exists()
