"""The command defer: a model that leaves decisions to people where the data do not carry a change."""

from __future__ import annotations

from pathlib import Path

import click

from kbrl.cli.opening import open_for
from kbrl.cli.options import FILE, POSITIVE, FiniteRange, model_argument, refuse_input_as_output


@click.command()
@model_argument
@click.option("-o", "--output", required=True, type=FILE, help="File to write the deferring model to.")
@click.option("--cases", default=3.0, show_default=True, type=POSITIVE, help="Least support of an action offered.")
@click.option(
    "--caution", default=1.0, show_default=True, type=FiniteRange(0), help="Standard errors that it must be better by."
)
@click.option(
    "--log", multiple=True, type=click.Path(), help="What MODEL was fitted to, to learn how stable the new answers are."
)
@click.option("--label", default="as now", show_default=True, help="The answer that leaves a decision to people.")
def defer(model: str, output: Path, cases: float, caution: float, log: tuple[str, ...], label: str) -> None:
    """Make of MODEL one that answers "as now" where the data do not carry a change of current practice.

    An action is offered only where enough logged cases support it, and only where it is better than current practice,
    with caution.  The new model predicts, explains, reports and learns further like any other.

    Example: kbrl defer model.kbrl -o safe.kbrl --cases 3 --caution 1
    """
    from kbrl.insight.agreement import with_agreement
    from kbrl.storage.model_file import read_model, save_model

    refuse_input_as_output(output, model, *log)
    saved = read_model(model)
    safe = saved.model.deferring(cases, caution, label=label)
    if log:
        safe = safe.with_model(with_agreement(safe, open_for(saved, log, {}).chunks()))
    deferred = safe.deferred(safe.reps_)
    save_model(safe, output, columns=saved.columns)
    share = 100 * float(deferred.mean())
    click.echo(f"{output}: answers {label!r} at {share:.0f} % of its {len(deferred)} representative states.")
