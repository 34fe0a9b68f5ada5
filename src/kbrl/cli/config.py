"""Options of a command from a TOML file, under the names they have on the command line.

What is given on the command line counts more.  Nothing is guessed: unknown names and values of another kind are
errors that name the file.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from kbrl.cli.options import Stride

F = TypeVar("F", bound=Callable[..., Any])

_LISTS = ("state", "next_state", "actions")  # options that are written a,b,c on the command line
_KINDS: dict[type[click.ParamType[Any]], tuple[str, tuple[type, ...]]] = {
    click.types.IntParamType: ("a whole number", (int,)),
    click.types.FloatParamType: ("a number", (int, float)),
    click.types.BoolParamType: ("true or false", (bool,)),
    Stride: ("a number, or a string such as '1 day'", (int, float, str)),
}


def config_option(command: F, *, also: Callable[[], Iterable[str]] = tuple) -> F:
    """Let a command take its options from a TOML file; ``also`` names what other commands take from the same file."""
    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=lambda context, parameter, path: _read_config(context, parameter, path, also),
        help="TOML file with any of these options, as in: reps = 200. Options given here count more.",
    )(command)


def _read_config(
    context: click.Context, parameter: click.Parameter, path: Path | None, others: Callable[[], Iterable[str]]
) -> None:
    if path is None:
        return
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} is no valid TOML: {error}.", context) from None
    units = found.pop("units", None)
    params = (param for param in context.command.params if isinstance(param, click.Option) and param is not parameter)
    options = {_written(option): option for option in params}
    also = set(others())
    settings: dict[str, Any] = {}
    for key, value in found.items():
        option = options.get(key.replace("_", "-"))
        if option is None and key.replace("_", "-") in also:
            continue
        if option is None:
            raise click.UsageError(f"{path} sets {key!r}, but no option is called so.{_nearest(key, options)}", context)
        if option.name in settings:
            raise click.UsageError(f"{path} sets {_written(option)!r} twice, once with - and once with _.", context)
        settings[str(option.name)] = _checked(value, option, f"{path}: {key}", context)
    if units is not None and "unit" in options:
        settings["units"] = _pairs(units, f"{path}: units", context)
    context.default_map = settings


def _pairs(table: Any, where: str, context: click.Context) -> list[str]:
    """Return a table of words as NAME=WORD, as the command line has them."""
    if not isinstance(table, dict) or not all(isinstance(word, str) for word in table.values()):
        raise click.UsageError(f'{where} must be a table of words, as in age = "years", but it is {table!r}.', context)
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
