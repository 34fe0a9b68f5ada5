"""The command init: proposes a role for each column of a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kbrl.cli.console import print_table
from kbrl.cli.options import FILE, column_options, given, log_argument, option_names, source_of


@click.command()
@log_argument
@click.option("-o", "--output", type=FILE, help="TOML file to write. Default: LOG with the ending .toml.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@column_options
def init(log: tuple[str, ...], output: Path | None, force: bool, **columns: Any) -> None:
    """Look at a LOG, propose a role for each column, and write a TOML file for check and fit.

    Only the first rows are read; of a text file all bytes, to find its encoding.  Nothing is certain: the file gives
    the reason for each role, and says what is uncertain.  Read it before you fit.

    Example: kbrl init ward.csv, then kbrl check ward.csv --config ward.toml
    """
    from kbrl.cli.fitting import fit
    from kbrl.files import written_beside
    from kbrl.proposing.guessed_roles import propose

    output = Path(f"{_stem(log[0])}.toml") if output is None else output
    if output.exists() and not force:
        raise click.UsageError(f"{output} exists. Name another file: -o NEW.toml, or overwrite it: --force.")
    stated = given(columns) or {}
    found = propose(source_of(log), stated, option_names(fit))
    for option, value in stated.items():
        found.state(option, value, "as stated on the command line")
    source = " ".join(log)
    with written_beside(output) as beside:
        beside.write_text(found.to_toml(source, str(output)), encoding="utf-8", errors="backslashreplace")
    print_table(("column", "role", "why"), [(name, role, why) for name, (role, why) in found.roles.items()])
    for doubt in found.doubts:
        click.echo(f"Unsure: {doubt}.")
    click.echo(f"{output}: read it, correct it, then: kbrl check {source} --config {output}")


def _stem(name: str) -> str:
    """Return the name of a file without its endings: ward for ward.csv.gz."""
    bare = Path(name.partition("?")[0]).name
    return bare.split(".")[0] or "log"
