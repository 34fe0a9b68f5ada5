"""The command init: proposes which column of a log is what."""

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
    """Look at a LOG, propose which column is what, and write a TOML file that check and fit take.

    The first rows are looked at, and of a text file all bytes for the encoding.  Nothing is certain: the file says why
    each column has its role, and what is unsure.  Read it before you fit.

    Example: kbrl init ward.csv, then kbrl check ward.csv --config ward.toml
    """
    from kbrl.cli.fitting import fit
    from kbrl.files import written_beside
    from kbrl.logs.guessed_roles import propose

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
    """Return the name of the file to write, beside nothing else: for ward.csv.gz it is ward."""
    bare = Path(name.partition("?")[0]).name
    return bare.split(".")[0] or "log"
