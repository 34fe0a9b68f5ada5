"""The settings of KBSF as options of a command, each under the name that a TOML file has for it, too.

They are derived from `kbrl.settings`, which loads nothing heavy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from kbrl.cli.options import POSITIVE, FiniteRange
from kbrl.settings import CHOICE, COUNT, FRACTION, NUMBER, About, about_settings
from kbrl.settings import POSITIVE as POSITIVE_KIND

F = TypeVar("F", bound=Callable[..., Any])

_TYPES: dict[str, Any] = {
    COUNT: click.IntRange(1),
    POSITIVE_KIND: POSITIVE,
    FRACTION: FiniteRange(0, 1, max_open=True),
    NUMBER: click.FLOAT,
}
_CHOSEN = {
    "n_reps": "Number of representative states; chosen by the size of the data if not given.",
    "sample_width": "Width of the kernel around samples; chosen if not given.",
    "rep_width": "Width around representative states; chosen if not given.",
}


def _type(name: str, about: About) -> Any:
    kind = about.option_kind or about.kind
    if kind == CHOICE:
        return click.Choice(about.choices)
    if name == "random_state":
        return click.IntRange(0)
    return FiniteRange(0, 1, min_open=True, max_open=True) if name == "grow_below" else _TYPES[kind]


def _default(default: Any, about: About) -> Any:
    return default if about.option_default is ... else about.option_default


# option: (flat name of the setting, type, default, help)
LEARNER_OPTIONS: dict[str, tuple[str, Any, Any, str]] = {
    each.about.option: (
        name,
        _type(name, each.about),
        _default(each.default, each.about),
        _CHOSEN.get(name, each.about.help),
    )
    for name, each in about_settings().items()
    if each.about.option is not None
}


def learner_options(command: F) -> F:
    """Let a command take the settings of KBSF: one keyword argument each, under the option's name."""
    for option, (_, kind, default, text) in reversed(LEARNER_OPTIONS.items()):
        names = ("-m", f"--{option}") if option == "reps" else (f"--{option}",)
        command = click.option(*names, type=kind, default=default, show_default=default is not None, help=text)(command)
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
