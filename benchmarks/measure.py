"""How the benchmarks measure, and how they show what they found.

A time is CPU seconds of the process on one thread (BLAS included), the smallest of several rounds; all contenders take
their turn in every round, so that whatever else the machine is doing meets them alike.  Only ratios between
contenders of one run mean something.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from threadpoolctl import threadpool_limits

Work = Callable[[], Any]
Tick = Callable[[str], None]  # told what is about to be measured


@dataclass(frozen=True)
class Goal:
    """What a figure should be, and whether it is; None if that cannot be said."""

    text: str
    met: bool | None


@dataclass(frozen=True)
class Row:
    """One line of a table: who, how long, how that compares, and what was hoped for."""

    contender: str
    time: str
    ratio: str = ""
    goal: Goal | None = None


@dataclass(frozen=True)
class Report:
    """A table and the notes below it."""

    title: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    measured: str = "CPU time"  # the heading of the figures
    compared: str = "ratio to kbrl"


@dataclass(frozen=True)
class Section:
    """A part of the benchmarks; ``run(quick, tick)`` yields its tables as they are ready."""

    name: str
    run: Callable[[bool, Tick], Iterator[Report]]


def cpu_times(contenders: Mapping[str, Work], *, rounds: int, tick: Tick) -> dict[str, float]:
    """Return the smallest CPU seconds of each contender over interleaved rounds."""
    best = dict.fromkeys(contenders, float("inf"))
    for number in range(1, rounds + 1):
        for name, work in contenders.items():
            tick(f"{name}, round {number} of {rounds}")
            best[name] = min(best[name], cpu_time(work))
    return best


def cpu_time(work: Work) -> float:
    """Return the CPU seconds of one run on one thread."""
    gc.collect()
    with threadpool_limits(limits=1):
        start = time.process_time()
        work()
        return time.process_time() - start


def at_most(value: float, limit: float, text: str) -> Goal:
    """Return the goal that a figure does not exceed a limit."""
    return Goal(text, value <= limit)


def at_least(value: float, limit: float, text: str) -> Goal:
    """Return the goal that a figure reaches a limit."""
    return Goal(text, value >= limit)


def largest_difference(ours: Iterable[Any], theirs: Iterable[Any]) -> float:
    """Return the largest absolute difference between two results, array by array."""
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(ours, theirs, strict=True))


def require_agreement(name: str, difference: float, tolerance: float) -> None:
    """Stop where a contender computes something else: its time would mean nothing."""
    if not difference <= tolerance:
        raise RuntimeError(
            f"{name} must compute what kbrl computes, but it differs by {difference:.1e}, more than {tolerance:.0e}."
        )


def seconds(value: float) -> str:
    """Write a time with three digits, in a fitting unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= factor:
            return f"{_three_digits(value / factor)} {unit}"
    return f"{value * 1e9:.0f} ns"


def times(ratio: float) -> str:
    """Write a ratio with three digits, or whole if it is large."""
    return f"{_three_digits(ratio)} x"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def show(report: Report, console: Console, *, judged: bool) -> None:
    """Print a table; goals are for the full sizes, so a quick run does not judge them."""
    table = Table(title=report.title, title_justify="left", title_style="bold")
    table.add_column("contender")
    table.add_column(report.measured, justify="right", no_wrap=True)
    table.add_column(report.compared, justify="right", no_wrap=True)
    has_goals = any(row.goal for row in report.rows)
    if has_goals:
        table.add_column("goal")
        table.add_column("", no_wrap=True)
    for row in report.rows:
        judgement = (row.goal.text if row.goal else "", _mark(row.goal, judged)) if has_goals else ()
        table.add_row(escape(row.contender), row.time, row.ratio, *judgement)
    console.print(table)
    for note in report.notes:
        console.print(f"  {note}", style="dim", highlight=False)
    console.print()


def _mark(goal: Goal | None, judged: bool) -> str:
    if goal is None:
        return ""
    if goal.met is None or not judged:
        return "not judged"
    return "[green]met[/green]" if goal.met else "[bold red]short of the goal[/bold red]"
