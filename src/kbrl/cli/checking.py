"""The command check: what is wrong with a log."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from kbrl.cli.options import column_options, given, json_option, log_argument, source_of
from kbrl.cli.screen import print_table
from kbrl.cli.settings import config_option, option_names

if TYPE_CHECKING:
    from kbrl.data.quality import Report


def _options_of_fit() -> list[str]:
    from kbrl.cli.fitting import fit

    return option_names(fit)


_with_config = partial(config_option, also=_options_of_fit)  # one file serves check and fit


@click.command()
@log_argument
@column_options
@_with_config
@json_option
def check(log: tuple[str, ...], as_json: bool, **columns: str | None) -> None:
    """Find what is wrong with a LOG before learning does: a file, a folder or a glob of Parquet, CSV, Arrow or .npz.

    Exit status 1 if anything stops learning.  Example: kbrl check log.csv --state age,sofa --action dose
    """
    from kbrl.data.quality import check_log

    report = check_log(source_of(log), columns=given(columns))
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        _print_faults(report)
    if report.stops_learning:
        sys.exit(1)


def _print_faults(report: Report) -> None:
    click.echo(f"{report.n_rows} rows, {report.n_episodes} episodes, {report.n_transitions} transitions.")
    if not report.faults:
        click.echo("No faults found.")
        return
    rows = [
        (
            fault.name,
            str(fault.count),
            ", ".join(map(str, fault.rows)),
            "yes" if fault.stops_learning else "no",
            f"{fault.message} {fault.advice}",
        )
        for fault in report.faults
    ]
    print_table(("fault", "count", "first rows", "stops learning", "what is wrong, and what to do"), rows)
