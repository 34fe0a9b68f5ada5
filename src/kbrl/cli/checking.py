"""The command check: what is wrong with a log."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbrl.cli.console import HeadedCommand, print_table
from kbrl.cli.options import (
    column_options,
    config_option,
    given,
    json_option,
    log_argument,
    option_names,
    source_of,
    value_options,
)

if TYPE_CHECKING:
    from kbrl.logs.check import Report
    from kbrl.tables.faults import Fault, Place


def _options_of_fit() -> list[str]:
    from kbrl.cli.fitting import fit

    return option_names(fit)


config_of_fit_option = partial(config_option, also=_options_of_fit)  # one file serves check, fit and report


@click.command(cls=HeadedCommand)
@log_argument
@column_options
@value_options
@config_of_fit_option
@json_option
def check(log: tuple[str, ...], as_json: bool, **columns: str | None) -> None:
    """List what is wrong with a LOG: a file, folder, glob or database.

    The exit status is 1 if a fault stops learning.  With --json, rows are counted from 0 over the whole log, without
    headers; places are the same rows as lines of their files, or counted from 1.

    Example: kbrl check log.csv --config log.toml
    """
    from kbrl.logs.check import check_log

    report = check_log(source_of(log), columns=given(columns))
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        _print_faults(report)
    if report.stops_learning:
        sys.exit(1)


def _print_faults(report: Report) -> None:
    click.echo(f"{report.n_rows:,} rows, {report.n_episodes:,} episodes, {report.n_transitions:,} transitions.")
    if report.left_out.total:
        click.echo(report.left_out.say(report.n_rows))
    if not report.faults:
        click.echo("No faults found.")
        return
    print_table(("fault", "what is wrong, and what to do"), [(fault.name, _said(fault)) for fault in report.faults])
    if not report.stops_learning:
        click.echo("None of this stops learning.")
    units = {place.unit for fault in report.faults for place in fault.places}
    if "line" in units:
        click.echo("Lines are counted from 1 in each file, with its header.")
    if "row" in units:
        click.echo("Rows are counted from 1 in each file.")


def _said(fault: Fault) -> str:
    places = f"; first at {_listed(fault.places)}" if fault.places else ""
    stops = "Stops learning. " if fault.stops_learning else ""
    return f"{stops}{fault.message} {fault.advice} ({fault.count:,} {fault.unit}{places}.)"


def _listed(places: tuple[Place, ...]) -> str:
    """Return the places, each file named once: line 2, 5, 9."""
    listed: dict[tuple[str, str], list[str]] = {}
    for place in places:
        listed.setdefault((Path(place.file).name, place.unit), []).append(str(place.number))
    return "; ".join(f"{f'{file} ' if file else ''}{unit} {', '.join(found)}" for (file, unit), found in listed.items())
