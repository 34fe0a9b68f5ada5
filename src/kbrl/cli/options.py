"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from glob import glob
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS = {
    "state": "Columns of the state, as in age,sofa,lactate.",
    "action": "Column of the action.",
    "reward": "Column of the reward.",
    "next-state": "Columns of the next state, in the order of --state.",
    "episode": "Column that tells episodes apart.",
    "step": "Column that orders the rows of an episode: numbers or datetimes.",
    "terminated": "Column that is true where an episode really ended.",
    "truncated": "Column that is true where it was cut.",
}


class FiniteRange(click.FloatRange):
    """A range of numbers that has no NaN, which is in no range but also outside none, and nothing infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or refuse it."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Stride(click.ParamType[str]):
    """A number, a number with a unit of time, or any; a TOML file may hold a number."""

    name = "stride"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the stride as text, or refuse it."""
        from kbrl.logs.sequence import stride_text

        try:
            return stride_text(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


POSITIVE = FiniteRange(0, min_open=True)
SHARE = FiniteRange(0, 1, min_open=True, max_open=True)
FILE = click.Path(path_type=Path, dir_okay=False)

log_argument = click.argument("log", nargs=-1, required=True, type=click.Path())
model_argument = click.argument("model", type=click.Path(exists=True, dir_okay=False))
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program to read.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress.")
seed_option = click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0), help="Decides all randomness."
)


def column_options(command: F, *, state: str = "--state") -> F:
    """Let a command say which column of its log is what: one keyword argument each, None where not given.

    ``state`` is how the option for the columns of the state is written.
    """
    command = click.option(
        "--allow-gaps",
        is_flag=True,
        help="Allow many rows to be left out: over 5 % before gaps, or over half in all.",
    )(command)
    command = click.option(
        "--stride",
        type=Stride(),
        help="By how much the step rises, as in 1 or '1 day': rows before other rises are left out. Or: any.",
    )(command)
    for name, text in reversed(_COLUMNS.items()):
        option = state if name == "state" else f"--{name}"
        command = click.option(option, name.replace("-", "_"), help=text.replace("--state", state))(command)
    return command


log_column_options = partial(column_options, state="--state-columns")  # where --state is no column


def given(options: dict[str, Any]) -> dict[str, Any] | None:
    """Return those of the options that were given, None if none was: what ``columns=`` of a reader takes."""
    found = {name: value for name, value in options.items() if value is not None and value is not False}
    for name, value in found.items():
        if isinstance(value, str) and not value.strip():
            raise click.UsageError(f"The column of the {name.replace('_', ' ')} was named, but by no name: {value!r}.")
    return found or None


def refuse_input_as_output(output: Path | None, *inputs: str | Path) -> None:
    """An output that is also an input, or lies in a folder that is one, would destroy what was read."""
    if output is None:
        return
    for name in inputs:
        files = [Path(name)] if Path(name).exists() else [Path(found) for found in glob(str(name), recursive=True)]
        for file in files:
            is_same = output.exists() and file.exists() and output.samefile(file)
            if is_same or (file.is_dir() and file.resolve() in output.resolve().parents):
                raise click.UsageError(f"--output {output} is, or is in, the input {file}. Name another file.")


def refuse_repeated(log: Sequence[str]) -> None:
    """A file that is named twice would be learnt from twice."""
    named: dict[Path, str] = {}
    for name in log:
        other = named.setdefault(Path(name).resolve(), name)
        if other is not name:
            raise click.UsageError(f"{name} is {other} again, and its rows would count twice. Name each file once.")


def source_of(log: Sequence[str]) -> Any:
    """Return the log named on the command line as readers take it: a path, or a list of them."""
    return log[0] if len(log) == 1 else list(log)
