"""The command export: a policy as one Python file."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kbrl.cli.console import say
from kbrl.cli.options import FILE, model_argument, refuse_input_as_output


@click.command()
@model_argument
@click.option("-o", "--output", required=True, type=FILE, help="Python file to write, ending in .py.")
def export(model: str, output: Path) -> None:
    """Write the policy of a MODEL as one Python file.

    The file needs neither kbrl nor any other library, and gives the same answers as kbrl predict: action, values,
    support.  Import it and call decide(state), run it as a program, or let it serve requests; its head says how.  Treat
    it as you treat MODEL: both hold the same parts of the log.

    Example: kbrl export model.kbrl -o policy.py
    """
    from kbrl.serving.export import export_policy
    from kbrl.storage.model_file import read_model

    if output.suffix != ".py":
        raise click.BadParameter(f"the name must end in .py, but it is {output}.", param_hint="--output")
    refuse_input_as_output(output, model)
    export_policy(read_model(model).model, output)
    say(f"{output}: {output.stat().st_size / 1000:,.0f} kB. Try: python {shlex.quote(output.name)} --serve 8000")
