"""The settings of KBSF as options of a command, each under the name that a TOML file has for it, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from kbrl.cli.options import POSITIVE, FiniteRange

F = TypeVar("F", bound=Callable[..., Any])

_count = click.IntRange(1)

# The names of choices are those of the library, which is not loaded for the help.
WAYS = ("k-means", "random", "grid", "farthest", "cover", "mixture")
PROFILES = ("exponential", "gaussian", "uniform")
SOLVERS = ("auto", "modified policy iteration", "value iteration", "policy iteration")

# option: (parameter of KBSF, type, default, help)
LEARNER_OPTIONS: dict[str, tuple[str, Any, Any, str]] = {
    "reps": ("n_reps", _count, None, "Number of representative states; chosen by the size of the data if not given."),
    "choose-reps": ("reps", click.Choice(WAYS), "k-means", "How to choose them among the next states."),
    "sample-width": ("sample_width", POSITIVE, None, "Width of the kernel around samples; chosen if not given."),
    "rep-width": ("rep_width", POSITIVE, None, "Width around representative states; chosen if not given."),
    "sample-neighbors": ("sample_neighbors", _count, None, "Only so many nearest samples count."),
    "rep-neighbors": ("rep_neighbors", _count, None, "Only so many nearest representative states count."),
    "discount": ("discount", FiniteRange(0, 1, max_open=True), 0.99, "What a reward is worth a step later."),
    "scaling": ("scaling", click.Choice(("std", "range", "none")), "std", "What each state variable is divided by."),
    "profile": ("profile", click.Choice(PROFILES), "exponential", "How kernels fall with distance."),
    "norm": ("norm", click.FLOAT, 2.0, "How distances are measured: 1 to 16 or inf; 2 is Euclidean."),
    "terminals": ("terminals", click.Choice(("absorb", "continue")), "absorb", "Whether episodes end where they say."),
    "aggregation": ("aggregation", click.Choice(("soft", "hard")), "soft", "Hard: only the nearest state counts."),
    "neighborhoods": ("neighborhoods", click.Choice(("exact", "per_chunk")), "exact", "Whose nearest samples count."),
    "cover-distance": ("cover_distance", POSITIVE, None, "For --choose-reps cover: how far apart they are."),
    "grow-distance": ("grow_distance", POSITIVE, None, "States farther than this from all become representative."),
    "grow-below": ("grow_below", FiniteRange(0, 1, min_open=True, max_open=True), None,
                   "The same, by the value of the kernel (0.01 in the paper)."),
    "max-reps": ("max_reps", _count, None, "Where growth and covers stop."),
    "min-cases": ("min_cases", _count, 5, "Actions that were taken fewer times than this in all are left out."),
    "solver": ("solver", click.Choice(SOLVERS), "auto", "How the model is solved."),
    "sweeps": ("sweeps", _count, None, "Apply the Bellman operator so many times instead of solving the model."),
    "tolerance": ("tolerance", POSITIVE, 1e-8, "How exactly."),
    "seed": ("random_state", click.IntRange(0), 0, "Decides all randomness."),
}  # fmt: skip


def learner_options(command: F) -> F:
    """Let a command take the settings of KBSF: one keyword argument each, under the option's name."""
    for option, (_, kind, default, text) in reversed(LEARNER_OPTIONS.items()):
        names = ("-m", f"--{option}") if option == "reps" else (f"--{option}",)
        command = click.option(*names, type=kind, default=default, show_default=default is not None, help=text)(command)
    return command


@contextmanager
def settings_as_options() -> Iterator[None]:
    """Say of settings that do not go together which options they are."""
    options = {parameter: f"--{option}" for option, (parameter, *_) in LEARNER_OPTIONS.items()}
    try:
        yield
    except (ValueError, TypeError) as error:
        named = re.sub(r"\b[a-z]+_[a-z_]+\b", lambda word: options.get(word[0], word[0]), str(error))
        raise click.UsageError(named) from None


def learner_parameters(options: dict[str, Any]) -> dict[str, Any]:
    """Take the settings of KBSF out of a command's options; return them under KBSF's names, without those not given."""
    found = {}
    for option, (parameter, *_) in LEARNER_OPTIONS.items():
        value = options.pop(option.replace("-", "_"))
        if parameter == "scaling":
            found[parameter] = None if value == "none" else value
        elif value is not None:
            found[parameter] = value
    return found
