"""What a figure's file says, and what its runs leave behind.

A figure's file has, from top to bottom: the paper's settings, ``jobs(scale)`` (what to run, with seeds fixed before the
run), ``measure(settings, seed)`` (one job: yields rows of what it found), ``draw(rows)`` (the picture) and
``verdicts(rows)`` (what the rows say about the paper's claims).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from experiments.rule import Estimate, Finding, Part, estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = ("smoke", "laptop", "paper")  # from small to large
Settings = dict[str, Any]  # plain values only: they go into files
Row = dict[str, Any]  # settings, seed, figures; see the runner for what is added to it
# Success rates: in [0, 1], and often all 0 or all 1. Shares of time, as of seizures, do vary little over long runs.
SUCCESS_RATES = ("rate", "cells", "reached")
BOUNDS = (0.0, 1.0)  # of success rates


@dataclass(frozen=True)
class Job:
    """One run of a figure.

    ``alone``: nothing else runs beside it, in a process of its own, and it may use all cores; for everything whose time
    is compared.  ``seconds``: about how long it takes on one core, where no such job has been measured yet.  ``needs``:
    the environment variable without which it cannot be run.
    """

    settings: Settings
    seed: int
    alone: bool = False
    seconds: float = 10.0
    needs: str = ""


@dataclass(frozen=True)
class Verdict:
    """What our runs say about one claim of the paper."""

    claim: str  # its id
    ours: str  # the figure that we measured, with its interval
    judged: Part | None  # what the one rule is applied to; None: not run at this scale
    note: str = ""  # deviations, readings that were tried

    @property
    def finding(self) -> Finding:
        """What the rule says; nothing else can say it."""
        return Finding.NOT_RUN if self.judged is None else self.judged.finding

    @property
    def n_runs(self) -> int:
        """The runs of the judged figure that has fewest."""
        return 0 if self.judged is None else self.judged.n_runs


def not_run(claim: str, missing: str) -> Verdict:
    """Return the verdict on a claim whose rows are not there."""
    return Verdict(claim, "-", None, missing)


class FigureFile(Protocol):
    """What a figure's file must have; a picture and verdicts are made of rows of one scale."""

    TITLE: str
    jobs: Callable[[str], list[Job]]
    measure: Callable[[Settings, int], Iterator[Row]]
    draw: Callable[[list[Row]], Figure | None]  # None: nothing to be seen yet
    verdicts: Callable[[list[Row]], list[Verdict]]


@dataclass
class Timer:
    """Wall-clock and CPU seconds of a block."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    _start: tuple[float, float] = field(default=(0.0, 0.0), repr=False)


@contextmanager
def timing() -> Iterator[Timer]:
    """Measure a block; joblib's and our own threads count in CPU seconds, other processes do not."""
    timer, wall, cpu = Timer(), perf_counter(), process_time()
    yield timer
    timer.seconds, timer.cpu_seconds = perf_counter() - wall, process_time() - cpu


def generator(seed: int, *streams: int) -> np.random.Generator:
    """Return the generator of one run; further numbers tell apart the streams of one run."""
    return np.random.default_rng([seed, *streams])


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Return the rows with these entries."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    """Return the different values of an entry, in their order."""
    return sorted({row[name] for row in rows if name in row})


def interval(rows: Iterable[Row], name: str) -> tuple[float, float, int]:
    """Return mean, half width of the 99 % interval and number of runs of an entry; NaN without rows."""
    found = measured(rows, name)
    return (found.mean, found.half, found.n_runs) if found.n_runs else (float("nan"), float("nan"), 0)


def measured(rows: Iterable[Row], name: str) -> Estimate:
    """Return the mean of an entry over the runs, one row per run, with its 99 % interval."""
    return estimate((row[name] for row in rows), BOUNDS if name in SUCCESS_RATES else None)


def said(rows: Iterable[Row], name: str, digits: int = 2) -> str:
    """Return the mean of an entry and its interval as text."""
    return with_interval(measured(rows, name), digits)


def by_seed(rows: Iterable[Row], name: str) -> dict[int, float]:
    """Return an entry of each run by its seed."""
    found: dict[int, float] = {}
    for row in rows:
        if row["seed"] in found:
            raise ValueError(f"{name} must have one row per seed, but seed {row['seed']} has several. Select fewer.")
        found[row["seed"]] = row[name]
    return found


def shown(mean: float, half: float, digits: int = 2) -> str:
    """Return ``mean +- half`` as text; one run has no interval."""
    return f"{mean:.{digits}f} +- {half:.{digits}f}" if np.isfinite(half) else f"{mean:.{digits}f} (one run)"


def with_interval(found: Estimate, digits: int = 2) -> str:
    """Return an estimate as ``mean +- half``, or with both ends where these are not equally far."""
    if found.n_runs < 2 or abs(found.high + found.low - 2 * found.mean) < 0.1**digits:
        return shown(found.mean, found.half, digits)
    return f"{found.mean:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def best_over(rows: list[Row], tuned: tuple[str, ...], name: str) -> list[Row]:
    """Return the rows of the combination of tuned settings with the best mean: the paper reports that one."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[setting] for setting in tuned), []).append(row)
    return max(groups.values(), key=lambda group: float(np.mean([row[name] for row in group])), default=[])


def n_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
