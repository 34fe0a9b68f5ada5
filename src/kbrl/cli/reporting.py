"""The command report: what was learnt from what, as a page."""

from __future__ import annotations

from pathlib import Path

import click

from kbrl.cli.checking import config_of_fit_option
from kbrl.cli.console import HeadedCommand, row_progress, say
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


def parse_units(texts: tuple[str, ...]) -> dict[str, str]:
    """Read NAME=UNIT pairs."""
    units: dict[str, str] = {}
    for text in texts:
        name, equals, unit = (part.strip() for part in text.rpartition("="))
        if not equals or not name or not unit or name in units:
            raise click.BadParameter(f"{text!r} must be NAME=UNIT, once per name.", param_hint="--unit")
        units[name] = unit
    return units


@click.command(cls=HeadedCommand)
@model_argument
@log_argument
@click.option("-o", "--output", required=True, type=FILE, help="File to write, an HTML page.")
@click.option("--title", help="Heading of the page.")
@click.option(
    "--unit",
    "units",
    multiple=True,
    metavar="NAME=UNIT",
    help="Unit of a state variable, or of value; may be repeated.",
)
@click.option("--with-cases", is_flag=True, help="Show rows of the log. Without it, the page holds none.")
@column_options
@config_of_fit_option
@quiet_option
def report(
    model: str,
    log: tuple[str, ...],
    output: Path,
    title: str | None,
    units: tuple[str, ...],
    with_cases: bool,
    quiet: bool,
    **columns: str | None,
) -> None:
    """Write an HTML page about a MODEL and a LOG.

    The page says first whether the policy is better than what is done now, if MODEL held episodes out (kbrl fit
    --hold-out).  Then come what it would change, as rules, a form to look up cases, data, actions, coverage, maps,
    representative states and settings.  The columns of the LOG are those that the MODEL was fitted to, unless others
    are named.  Units can be given in a TOML file, in a table [units].  The page loads nothing from elsewhere, and holds
    no row of the LOG unless you ask for it (--with-cases).

    Example: kbrl report model.kbrl log.csv -o report.html --unit age=years
    """
    from kbrl.report import write_page
    from kbrl.report.drawing import need_matplotlib
    from kbrl.report.inputs import open_inputs

    need_matplotlib()
    refuse_input_as_output(output, model, *log)
    with row_progress(quiet) as phase:
        phase("opening the log", 0)
        inputs = open_inputs(model, source_of(log), given(columns), units=parse_units(units), with_cases=with_cases)
        facts = write_page(inputs, output, title=title, phase=phase)
    share = 100 * facts.total.n_agreed / facts.n_transitions
    say(f"{output}: {facts.n_transitions:,} transitions, {share:.1f} % of them as the model recommends.")
    if facts.judgement is not None:
        click.echo(facts.judgement.sentence)
