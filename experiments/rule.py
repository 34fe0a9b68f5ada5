"""The one rule that turns figures into verdicts.

A claim is made of parts.  A part says between which limits a figure lies, and is judged by the figure's 99 % interval
alone: it holds if the whole interval lies between them, does not hold if all of it lies outside on one side, and is
undecided otherwise.  One run has no interval, so it decides nothing.  Only what is counted, not sampled, is ``Exact``.

Intervals are Student's, which have no width where all runs give the same value.  So the interval of a success rate is
the wider of Student's and Hoeffding's where its runs spread less than a hundredth: the latter only asks for [0, 1].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from scipy.special import stdtrit

from kbrl.arrays import Floats
from kbrl.trials import confidence_interval


class Finding(Enum):
    """What can be said of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided"
    NOT_RUN = "not run at this scale"


LEVEL = 0.99  # of every interval
ALIKE = 0.01  # runs of a success rate whose spread is smaller tell nothing about it
RULE = (
    "**The rule.** Each claim says between which limits some figures lie; the notes give limits and intervals. The "
    "part of a claim that one figure decides *holds* if the figure's whole 99 % interval lies between the limits, "
    "*does not hold* if the whole interval lies outside them on one side, and is *undecided* otherwise. A claim that "
    "needs several parts holds if all do, and does not hold if one does not; where one of several is enough, it is "
    "the other way round. A figure of one run has no interval and decides nothing. Intervals are Student's. Runs that "
    "give the same value leave them no width, so where the runs of a success rate spread less than "
    "0.01, the interval is the wider of Student's and Hoeffding's, which holds for all figures in [0, 1]. Parts marked "
    "*exact* are counted, not sampled: they need no interval."
)


@dataclass(frozen=True)
class Estimate:
    """A mean over runs with its 99 % interval; the half width of one run is infinite."""

    mean: float
    half: float
    n_runs: int

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.half


def estimate(values: Iterable[float], *, reach: float | None = None) -> Estimate:
    """Return the mean of one value per run and its interval; without values nothing is known.

    ``reach`` is the distance between the smallest and the largest possible value: 1 for a success rate, None where
    the spread of the runs is to be trusted.
    """
    found = list(values)
    if not found:
        return Estimate(float("nan"), float("inf"), 0)
    mean, half = confidence_interval(found, LEVEL)
    if reach is not None and max(found) - min(found) < ALIKE * reach:
        half = max(half, _hoeffding(reach**2 / len(found)))
    return Estimate(mean, half, len(found))


def _hoeffding(squares: float) -> float:
    """Return the half width for independent bounded runs; ``squares`` sums reach^2 / n over their means."""
    return float(np.sqrt(np.log(2 / (1 - LEVEL)) * squares / 2))


def gap(
    first: Mapping[Any, float], second: Mapping[Any, float], factor: float = 1.0, *, reach: float | None = None
) -> Estimate:
    """Estimate the mean of ``first`` less ``factor`` times that of ``second``; both have runs by their seeds.

    Runs with the same seed share their log or their random numbers.  So where both have the same seeds, the differences
    of the pairs are judged; otherwise all runs of both count, by Welch's interval, and none is left out for want of a
    partner.  A ratio of means is above c exactly if ``gap(first, second, c)`` is above 0.  ``reach`` is that of each.
    """
    if first.keys() == second.keys():
        both = None if reach is None else reach * (1 + abs(factor))
        return estimate((first[seed] - factor * second[seed] for seed in sorted(first)), reach=both)
    parts = np.array(list(first.values())), factor * np.array(list(second.values()))
    found = _welch(*parts)
    if reach is None or all(np.ptp(part) >= ALIKE * reach for part in parts if len(part)):
        return found
    squares = sum(scale**2 / max(1, len(part)) for scale, part in zip((reach, factor * reach), parts))
    return replace(found, half=max(found.half, _hoeffding(squares)))


def _welch(first: Floats, second: Floats) -> Estimate:
    """Estimate the difference of the means of independent runs with spreads of their own."""
    n_runs = min(len(first), len(second))
    if n_runs < 2:
        return Estimate(float(first.mean() - second.mean()) if n_runs else float("nan"), float("inf"), n_runs)
    squares = np.array([found.var(ddof=1) / len(found) for found in (first, second)])
    if not squares.any():
        return Estimate(float(first.mean() - second.mean()), 0.0, n_runs)
    freedom = squares.sum() ** 2 / (squares**2 / [len(first) - 1, len(second) - 1]).sum()
    half = stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(squares.sum())
    return Estimate(float(first.mean() - second.mean()), float(half), n_runs)


@dataclass(frozen=True)
class Sampled:
    """The part of a claim that says ``low < figure < high``."""

    text: str
    found: Estimate
    low: float = -np.inf
    high: float = np.inf

    @property
    def finding(self) -> Finding:
        """What the interval says; an end that touches a limit is not beyond it."""
        if self.low < self.found.low and self.found.high < self.high:
            return Finding.HOLDS
        if self.found.high < self.low or self.high < self.found.low:
            return Finding.FAILS
        return Finding.UNDECIDED

    @property
    def n_runs(self) -> int:
        """The runs behind the figure."""
        return self.found.n_runs

    def __str__(self) -> str:
        mean, n_runs = f"{self.found.mean:.3g}", self.found.n_runs
        shown = f"{mean} +- {self.found.half:.3g} ({n_runs} runs)" if n_runs > 1 else f"{mean} (one run, no interval)"
        limits = f"between {self.low:.4g} and {self.high:.4g}"
        if self.high == np.inf:
            limits = f"above {self.low:.4g}"
        elif self.low == -np.inf:
            limits = f"below {self.high:.4g}"
        return f"{self.text} is {shown}, must be {limits}: {self.finding.value}"


@dataclass(frozen=True)
class Exact:
    """The part of a claim that is counted or computed without chance, in so many cases."""

    text: str
    is_true: bool
    n_runs: int

    @property
    def finding(self) -> Finding:
        """True or not: there is nothing to be uncertain about."""
        return Finding.HOLDS if self.is_true else Finding.FAILS

    def __str__(self) -> str:
        return f"{self.text} (exact): {self.finding.value}"


@dataclass(frozen=True)
class All:
    """Parts that must all hold."""

    parts: tuple[Part, ...]

    @property
    def finding(self) -> Finding:
        """One that does not hold refutes all."""
        return _joined(self.parts, decisive=Finding.FAILS, otherwise=Finding.HOLDS)

    @property
    def n_runs(self) -> int:
        """The runs of the figure that has fewest."""
        return min(part.n_runs for part in self.parts)

    def __str__(self) -> str:
        return _listed(self.parts, self.finding)


@dataclass(frozen=True)
class OneOf:
    """Parts of which one is enough."""

    parts: tuple[Part, ...]

    @property
    def finding(self) -> Finding:
        """One that holds is enough; only if none does are all refuted."""
        return _joined(self.parts, decisive=Finding.HOLDS, otherwise=Finding.FAILS)

    @property
    def n_runs(self) -> int:
        """The runs of the figure that has fewest."""
        return min(part.n_runs for part in self.parts)

    def __str__(self) -> str:
        return "one of " + " or ".join(f"[{part}]" for part in self.parts)


Part = Sampled | Exact | All | OneOf
MOST_LISTED = 6


def _joined(parts: tuple[Part, ...], *, decisive: Finding, otherwise: Finding) -> Finding:
    if not parts:
        raise ValueError("A claim must have at least one part to be judged by, but it has none.")
    found = {part.finding for part in parts}
    if decisive in found:
        return decisive
    return Finding.UNDECIDED if Finding.UNDECIDED in found else otherwise


def _listed(parts: tuple[Part, ...], finding: Finding) -> str:
    """List the parts; of many, those that decide, or that keep the claim from being decided."""
    chosen = [str(part) for part in parts if part.finding is finding or len(parts) <= MOST_LISTED]
    rest = [f"and {len(chosen) - MOST_LISTED} more"] if len(chosen) > MOST_LISTED else []
    return "; ".join([*chosen[:MOST_LISTED], *rest])


def leaves(part: Part) -> list[Sampled | Exact]:
    """Return the parts of parts that have none themselves."""
    return [leaf for inner in part.parts for leaf in leaves(inner)] if isinstance(part, All | OneOf) else [part]
