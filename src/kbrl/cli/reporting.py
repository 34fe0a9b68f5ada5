"""The command report: what was learnt from what, as a page."""

from __future__ import annotations

from pathlib import Path

import click

from kbrl.cli.console import row_progress
from kbrl.cli.options import (
    FILE,
    column_options,
    given,
    log_argument,
    model_argument,
    quiet_option,
    refuse_input_as_output,
    source_of,
)


@click.command()
@model_argument
@log_argument
@click.option("-o", "--output", required=True, type=FILE, help="File to write, an HTML page.")
@click.option("--title", help="Heading of the page.")
@column_options
@quiet_option
def report(
    model: str, log: tuple[str, ...], output: Path, title: str | None, quiet: bool, **columns: str | None
) -> None:
    """Write an HTML page about a MODEL and a LOG.

    The page shows the data, logged and recommended actions, where these differ, how well the data cover the states,
    values and policy over pairs of variables, representative states, and settings, with pictures.  The columns of the
    LOG are those that the MODEL was fitted to, unless others are named.  The page is one file and loads nothing else.

    Example: kbrl report model.kbrl log.csv -o report.html
    """
    from kbrl.report import write_page
    from kbrl.report.drawing import need_matplotlib
    from kbrl.report.inputs import open_inputs

    need_matplotlib()
    refuse_input_as_output(output, model, *log)
    with row_progress(quiet) as phase:
        phase("opening the log", 0)
        facts = write_page(open_inputs(model, source_of(log), given(columns)), output, title=title, phase=phase)
    share = 100 * facts.total.n_agreed / facts.n_transitions
    click.echo(f"{output}: {facts.n_transitions} transitions, {share:.1f} % of them as the model recommends.")
