"""Options and arguments: those that several commands share, the settings of KBSF, and all of them from a TOML file.

The settings of KBSF come from `kbrl.settings`, which loads nothing heavy.  In a TOML file, options have the names they
have on the command line, which takes precedence.  Unknown names and values of another kind are errors that name the
file.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from glob import glob
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kbrl.cli.console import HeadedOption
from kbrl.files import check_ordinary, shown
from kbrl.settings import CHOICE, COUNT, FRACTION, NUMBER, ORDER, About, about_settings
from kbrl.settings import POSITIVE as POSITIVE_KIND

F = TypeVar("F", bound=Callable[..., Any])

_LARGEST_CONFIG = 10**6  # bytes
_CONFIG = "kbrl.config"  # where a command's context holds the path of the file with its options
_COLUMNS = {
    "state": "Columns of the state, for example age,sofa,lactate.",
    "action": "Column of the action; several, for example drug,dose, for their combinations.",
    "reward": "Column of the reward, or an expression.",
    "next-state": "Columns of the next state, in the order of --state.",
    "episode": "Column that identifies the episode.",
    "step": "Column that orders the rows of an episode: numbers or datetimes.",
    "terminated": "Column, or expression, that is true where an episode ended.",
    "truncated": "Column, or expression, that is true where an episode was cut off, for example by a time limit.",
    "action-prob": "Column of the probability with which the action was chosen; used to judge.",
    "duration": "Column of the time until the next state, if --step does not give it.",
}
_STRIDES = {
    "discount-per": "Discount by the time that passes: --discount is per this time, as in '1 day', or in units of the "
    "step.",
    "stride": "Usual difference between steps, for example 1 or '1 day'. Rows before another difference are left out. "
    "'any' accepts all.",
}
_SWITCHES = {
    "allow-gaps": "Allow many rows to be left out: more than 5 % because of gaps, or more than half in total.",
    "one-step": "Each row is a decision of its own: nothing follows it (bandit data).",
    "sort": "Sort the rows by episode and step before they are read.",
    "drop-repeats": "Sort, and drop rows that repeat another one of the same episode and step.",
}
_DIALECT = {
    "encoding": "Encoding of a text file, for example latin-1. Default: UTF-8, or what its first bytes say.",
    "delimiter": "What separates the cells of a CSV file, for example ';' or tab. Default: found in the header.",
    "decimal": "Decimal sign of a text file: . or ,",
    "thousands": "What separates thousands in a text file, as in 1.234,5: one of . , ' _ or space.",
    "sheet": "Sheet of an Excel file, if it has several.",
    "split": "Columns of lists to split into one column per entry, for example action becomes action_0, action_1.",
    "skip": "Number of rows above the header of a CSV or Excel file, such as a title; 2+1: also 1 below it (units).",
    "na": "What stands for a missing value: '-; unknown' in all columns, 'age=999' in one.",
    "fill-down": "Columns in which an empty cell means the one above it, as in patient,ward (merged cells of Excel).",
    "suffix": "Units that stand after the numbers of a column, as in 'dose=mg; weight=kg' for 5 mg and 70 kg.",
    "dates": "Order of dates that are not ISO dates: 'day first' for 27.02.2024, 'month first' for 02/27/2024.",
    "query": "For a database: the query that selects the rows, as in 'select * from visits order by id, day'.",
}


class FiniteRange(click.FloatRange):
    """A FloatRange that rejects NaN and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or refuse it."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


if TYPE_CHECKING:
    TextParam = click.ParamType[str]
    AnyParam = click.ParamType[Any]
else:
    TextParam = AnyParam = click.ParamType  # which has no such parameter before click 8.4


class Stride(TextParam):
    """A number, a number with a unit of time, or the word any; a TOML file may contain a number."""

    name = "stride"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the stride as text, or refuse it."""
        from kbrl.logs.sequence import stride_text

        try:
            return stride_text(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ValueRule(AnyParam):
    """What is said about columns: name=value; name=value, or a table in a TOML file."""

    name = "rules"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the rule as it is, once it can be read."""
        from kbrl.data.values import rules_of

        try:
            rules_of({str(param.name if param else ""): value})
        except (TypeError, ValueError) as error:
            self.fail(str(error), param, ctx)
        return value


POSITIVE = FiniteRange(0, min_open=True)
SHARE = FiniteRange(0, 1, min_open=True, max_open=True)
FILE = click.Path(path_type=Path, dir_okay=False)

log_argument = click.argument("log", nargs=-1, required=True, type=click.Path())
model_argument = click.argument("model", type=click.Path(exists=True, dir_okay=False))
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program to read.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
jobs_option = click.option("--jobs", type=click.IntRange(1), help="Number of threads. Default: one per core.")
chunk_option = click.option(
    "--chunk-rows",
    type=click.IntRange(1),
    help="Rows in memory at a time. Default: 16384, or 65536 with --sample-neighbors.",
)
seed_option = click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of all random choices."
)


def _under(heading: str) -> Callable[..., Any]:
    """Return click.option for options that the help lists below a heading."""
    return partial(click.option, cls=HeadedOption, heading=heading)


def column_options(command: F, *, state: str = "--state") -> F:
    """Add the options that name the columns of a log: one keyword argument each, None if not given.

    ``state`` is how the option for the columns of the state is written.
    """
    command = dialect_options(command)
    option = _under("Columns of the log")
    for name, text in reversed(_SWITCHES.items()):
        command = option(f"--{name}", is_flag=True, help=text)(command)
    for name, text in reversed(_STRIDES.items()):
        command = option(f"--{name}", type=Stride(), help=text)(command)
    for name, text in reversed(_COLUMNS.items()):
        written = state if name == "state" else f"--{name}"
        command = option(written, name.replace("-", "_"), help=text.replace("--state", state))(command)
    return command


def dialect_options(command: F) -> F:
    """Let a command say how its log is written: one keyword argument each, None where not given."""
    for name, text in reversed(_DIALECT.items()):
        kind = ValueRule() if name in ("na", "suffix", "skip") else None
        command = _under("How the log is written")(f"--{name}", name.replace("-", "_"), type=kind, help=text)(command)
    return command


_RULES = {
    "missing": "What missing values become: forward for all, or map=forward; lactate=median; age=65; sofa=drop.",
    "category": "Columns whose numbers are names of levels, for example ward,unit.",
    "ordinal": "Levels from low to high, for example severity=low,mid,high.",
    "elapsed": "Use a time as the time since the episode began, for example taken_at=1 hour.",
    "angle": "Angles: their columns, for example theta, if in radians; or a full turn of each, for example wind=360.",
    "bins": "Classes of a numeric action, for example dose=4 (quantiles), dose=0+3 (0 apart) or dose=10,50 (edges).",
    "allowed": "Where an action is allowed, for example high=map < 65; low=true.",
}


def value_options(command: F) -> F:
    """Let a command say what the values of columns mean: one keyword argument each, None where not given."""
    option = _under("What values mean")
    for name, text in reversed(_RULES.items()):
        command = option(f"--{name}", type=ValueRule(), help=text)(command)
    return option("--minimize", help="Column or expression of what should be small, instead of --reward.")(command)


log_column_options = partial(column_options, state="--state-columns")  # where --state is not a column


def given(options: dict[str, Any]) -> dict[str, Any] | None:
    """Return those of the options that were given, None if none was: what ``columns=`` of a reader takes."""
    found = {name: value for name, value in options.items() if value is not None and value is not False}
    for name, value in found.items():
        if isinstance(value, str) and not value.strip() and name.replace("_", "-") not in _DIALECT:
            raise click.UsageError(f"--{name.replace('_', '-')} must name a column, but it is empty: {value!r}.")
    return found or None


def refuse_input_as_output(output: Path | None, *inputs: str | Path | None, option: str = "--output") -> None:
    """Refuse an output that is also an input, or in a folder that is one: it would destroy what was read."""
    if output is None:
        return
    context = click.get_current_context(silent=True)
    config = None if context is None else context.meta.get(_CONFIG)
    for file in (file for name in (*inputs, config) if name is not None for file in _files_named(str(name))):
        is_same = output.exists() and file.exists() and output.samefile(file)
        if is_same or (file.is_dir() and file.resolve() in output.resolve().parents):
            raise click.UsageError(f"{option} {output} is, or is in, the input {file}. Name another file.")


def _files_named(name: str) -> list[Path]:
    """Return the files that an argument names: a path, a glob, or a database with its query."""
    if name.startswith(("sqlite:", "duckdb:")) and not Path(name).exists():
        name = name.partition(":")[2].partition("?")[0]
    return [Path(name)] if Path(name).exists() else [Path(found) for found in glob(name, recursive=True)]


def check_output(path: Path, table: str | None = None) -> None:
    """Refuse a file that cannot be written before any work is done; ``table`` is what it is to hold, if it is one."""
    from kbrl.files import check_target

    if table is not None:
        from kbrl.logs.writing import check_suffix

        try:
            check_suffix(path, table)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    folder = check_target(path).parent
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{path} cannot be written: the folder {folder} is read-only. Name another.")


def refuse_repeated(log: Sequence[str]) -> None:
    """Refuse a file that is named twice: its rows would count twice."""
    named: dict[Path, str] = {}
    for name in log:
        other = named.setdefault(Path(name).resolve(), name)
        if other is not name:
            raise click.UsageError(
                f"{name} is the same file as {other}, so its rows would count twice. Name each file once."
            )


def source_of(log: Sequence[str]) -> Any:
    """Return the log named on the command line as readers take it: a path, or a list of them."""
    return log[0] if len(log) == 1 else list(log)


# Options that are written a,b,c on the command line.
_LISTS = ("state", "next_state", "split", "fill_down", "action", "actions")
_KINDS: dict[type[click.ParamType[Any]], tuple[str, tuple[type, ...]]] = {
    click.types.IntParamType: ("a whole number", (int,)),
    click.types.FloatParamType: ("a number", (int, float)),
    click.types.BoolParamType: ("true or false", (bool,)),
    Stride: ("a number, or a string such as '1 day'", (int, float, str)),
    ValueRule: ("a string, a number, a list or a table", (str, int, float, list, dict)),
}


def config_option(command: F, *, also: Callable[[], Iterable[str]] = tuple) -> F:
    """Add --config, a TOML file with options; ``also`` names options of other commands that the file may have."""
    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=lambda context, parameter, path: _read_config(context, parameter, path, also),
        help="TOML file with any of these options, for example: reps = 200. The command line takes precedence.",
    )(command)


def _read_config(
    context: click.Context, parameter: click.Parameter, path: Path | None, others: Callable[[], Iterable[str]]
) -> None:
    if path is None:
        return
    try:
        check_ordinary(path)
        if path.stat().st_size > _LARGEST_CONFIG:
            raise ValueError(f"it has more than {shown(_LARGEST_CONFIG)}")
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise click.UsageError(f"{path} is not valid TOML: {error}.", context) from None
    except RecursionError:
        raise click.UsageError(f"{path} is not valid TOML: its lists or tables are nested too deep.", context) from None
    context.meta[_CONFIG] = path
    units = found.pop("units", None)  # what the report shows; other commands need none
    params = (param for param in context.command.params if isinstance(param, click.Option) and param is not parameter)
    options = {_written(option): option for option in params}
    also = set(others())
    settings: dict[str, Any] = {}
    for key, value in found.items():
        option = options.get(key.replace("_", "-"))
        if option is None and key.replace("_", "-") in also:
            continue
        if option is None:
            raise click.UsageError(
                f"{path} sets {key!r}, but there is no such option.{_nearest(key, options)}", context
            )
        if option.name in settings:
            raise click.UsageError(f"{path} sets {_written(option)!r} twice, once with - and once with _.", context)
        settings[str(option.name)] = _checked(value, option, f"{path}: {key}", context)
    if units is not None and "unit" in options:
        settings["units"] = _pairs(units, f"{path}: units", context)
    context.default_map = settings


def _pairs(table: Any, where: str, context: click.Context) -> list[str]:
    """Return a table of words as NAME=WORD, as the command line has them."""
    if not isinstance(table, dict) or not all(isinstance(word, str) for word in table.values()):
        raise click.UsageError(f"{where} must be a table of words (age = 'years'), but it is {table!r}.", context)
    return [f"{name}={word}" for name, word in table.items()]


def option_names(command: click.Command) -> list[str]:
    """Return the names of a command's options as they are written, without the dashes."""
    return [_written(option) for option in command.params if isinstance(option, click.Option)]


def _written(option: click.Option) -> str:
    """The name of an option as it is written, without the dashes."""
    return max(option.opts, key=len).lstrip("-")


def _nearest(key: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(key.replace("_", "-"), names, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _checked(value: Any, option: click.Option, where: str, context: click.Context) -> Any:
    """Return a value as the command line would give it; refuse one of another kind."""
    if option.name in _LISTS and isinstance(value, list):
        return _joined(value, where, context)
    kinds = [kind for click_type, kind in _KINDS.items() if isinstance(option.type, click_type)]
    rule, types = kinds[0] if kinds else ("a string", (str,))
    if option.name in _LISTS:
        rule = "a list, or a string with commas"
    if type(value) not in types:
        raise click.UsageError(f"{where} must be {rule}, but it is {value!r}.", context)
    return value


def _joined(values: list[Any], where: str, context: click.Context) -> str:
    wrong = [value for value in values if type(value) not in (str, int, float, bool) or "," in str(value)]
    if wrong or not values:
        raise click.UsageError(f"{where} must be a list of names, without commas, but it is {values!r}.", context)
    return ",".join(map(str, values))


_TYPES: dict[str, Any] = {
    COUNT: click.IntRange(1),
    POSITIVE_KIND: POSITIVE,
    FRACTION: FiniteRange(0, 1, max_open=True),
    NUMBER: click.FLOAT,
    ORDER: click.IntRange(0, 1),
}
_HELP = {  # where the command has other words than Python
    "order": "0: averages, the paper's method. 1: lines, and plans. Default: what rehearses better.",
    "reps": "How representative states are chosen among the next states. Default: k-means, for order 1 spread.",
    "n_reps": "Number of representative states. Default: chosen from the size of the data.",
    "sample_width": "Width of the kernel around samples. Default: chosen from the data.",
    "rep_width": "Width of the kernel around representative states. Default: chosen from the data.",
    "random_state": "Seed of all random choices.",
    "scaling": "What each state variable is divided by: its standard deviation, its range, or nothing.",
    "min_cases": "Leave out actions that were taken fewer times than this in all.",
    "profile": "How kernels fall with distance.",
    "cover_distance": "For --choose-reps cover: how far apart representative states are.",
    "plan_decisions": "Decisions of a plan. Default: three, two or one, so that there are at most 64 plans.",
    "plan_hold": "Steps for which each decision is held. Default: 4, or 1 for plans of one decision.",
    "inside": "How far from the data a plan may end, in typical distances of logged states.",
}


def _type(name: str, about: About) -> Any:
    kind = about.option_kind or about.kind
    if kind == CHOICE:
        return click.Choice(about.choices)
    if name == "random_state":
        return click.IntRange(0)
    return FiniteRange(0, 1, min_open=True, max_open=True) if name == "grow_below" else _TYPES[kind]


# option: (flat name of the setting, type, default, help)
LEARNER_OPTIONS: dict[str, tuple[str, Any, Any, str]] = {
    each.about.option: (
        name,
        _type(name, each.about),
        each.default if each.about.option_default is ... else each.about.option_default,
        _HELP.get(name, each.about.help),
    )
    for name, each in about_settings().items()
    if each.about.option is not None
}


def learner_options(command: F) -> F:
    """Add the settings of KBSF as options: one keyword argument each, under the option's name."""
    settings = about_settings()
    for written, (name, kind, default, text) in reversed(LEARNER_OPTIONS.items()):
        names = ("-m", f"--{written}") if written == "reps" else (f"--{written}",)
        option = _under("Settings of the model" if settings[name].group is None else "Settings that few people change")
        command = option(*names, type=kind, default=default, show_default=default is not None, help=text)(command)
    return command


@contextmanager
def settings_as_options() -> Iterator[None]:
    """Name the options, not the parameters, in errors."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise click.UsageError(named_as_options(str(error))) from None


def named_as_options(text: str) -> str:
    """Return a message with the names of options in place of those of parameters."""
    named = {each.path: each.about.option for each in about_settings().values() if each.about.option is not None}
    options = {path: f"--{option}" for path, option in named.items()}
    return re.sub(r"\b([a-z]+[._][a-z_]+)\b(=(?=\d))?", lambda m: _option(m, options), text)


def _option(match: re.Match[str], options: dict[str, str]) -> str:
    """Return --min-cases 1 for min_cases=1."""
    return f"{options[match[1]]}{' ' if match[2] else ''}" if match[1] in options else match[0]


def learner_parameters(options: dict[str, Any]) -> dict[str, Any]:
    """Take the settings of KBSF out of a command's options; return them by flat names, without those not given."""
    found = {}
    for option, (parameter, *_) in LEARNER_OPTIONS.items():
        value = options.pop(option.replace("-", "_"))
        if parameter == "scaling":
            found[parameter] = None if value == "none" else value
        elif value is not None:
            found[parameter] = value
    return found
