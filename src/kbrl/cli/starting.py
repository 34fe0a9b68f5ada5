"""The command init: proposes a role for each column of a log."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from kbrl.cli.console import HeadedCommand, print_table, say
from kbrl.cli.options import FILE, column_options, given, log_argument, option_names, refuse_input_as_output, source_of


@click.command(cls=HeadedCommand)
@log_argument
@click.option("-o", "--output", type=FILE, help="TOML file to write. Default: LOG with the ending .toml.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@column_options
def init(log: tuple[str, ...], output: Path | None, force: bool, **columns: Any) -> None:
    """Propose a role for each column of a LOG, in a TOML file.

    The file is for kbrl check and kbrl fit.  Only the first rows are read; of a text file all bytes, to find its
    encoding.  Nothing is certain: the file gives the reason for each role, and says what is uncertain.  Read it before
    you fit.

    Example: kbrl init ward.csv, then kbrl check ward.csv --config ward.toml
    """
    from kbrl.cli.fitting import fit
    from kbrl.files import written_beside
    from kbrl.proposing.guessed_roles import propose

    output = Path(f"{_stem(log[0])}.toml") if output is None else output
    if output.exists() and not force:
        raise click.UsageError(f"{output} exists. Name another file: -o NEW.toml, or overwrite it: --force.")
    refuse_input_as_output(output, *log)
    stated = given(columns) or {}
    found = propose(source_of(log), stated, option_names(fit))
    for option, value in stated.items():
        found.state(option, value, "as stated on the command line")
    with written_beside(output) as beside:
        beside.write_text(found.to_toml(log, str(output)), encoding="utf-8", errors="backslashreplace")
    print_table(("column", "role", "why"), [(name, role, why) for name, (role, why) in found.roles.items()])
    for doubt in found.doubts:
        say(f"Unsure: {doubt}.")
    command = shlex.join(["kbrl", "check", *log, "--config", str(output)])
    say(f"{output}: read it, correct it, then: {command}")


def _stem(name: str) -> str:
    """Return the name of a file without its endings: ward for ward.csv.gz."""
    bare = Path(name.partition("?")[0]).name
    return bare.split(".")[0] or "log"
