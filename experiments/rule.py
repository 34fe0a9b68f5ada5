"""The one rule that turns figures into verdicts.

A claim is made of parts.  A part says between which limits a figure lies, and is judged by the figure's 99 % interval
alone: it holds if the whole interval lies between them, does not hold if all of it lies outside on one side, and is
undecided otherwise.  One run has no interval, so it decides nothing.  Only what is counted, not sampled, is ``Exact``.

Returns and times have Student's intervals.  Success rates have bounds, 0 and 1, and often all runs are at one of them,
which leaves Student's interval no width.  Their interval is a bootstrap over runs with one run more, the worst possible
one: the mean of the runs and of that one, with random weights (uniform over all weights that sum to one).  The 0.5 %
quantile with one more failure is the lower end, the 99.5 % quantile with one more success the upper end.  Where runs
only fail or succeed this is the interval of Clopper and Pearson; in general it is Gaffke's (2005).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
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
N_DRAWS = 40_000  # of weights; the ends of intervals are then off by about one per cent of their distance to the mean
RULE = (
    "**The rule.** Each claim says between which limits some figures lie. The part of a claim that one figure decides "
    "*holds* if the figure's whole 99 % interval lies between the limits, *does not hold* if the whole interval lies "
    "outside them on one side, and is *undecided* otherwise. A claim that needs several parts holds if all do, and "
    "does not hold if one does not; where one of several is enough, it is the other way round. A figure of one run has "
    "no interval and decides nothing. Returns and times have Student's intervals. Success rates have a bootstrap over "
    "runs with one run more, the worst possible one for either end. Parts marked *exact* are counted, not sampled: "
    "they need no interval."
)


@dataclass(frozen=True)
class Estimate:
    """A mean over runs with its 99 % interval, which has no ends if there is one run."""

    mean: float
    low: float
    high: float
    n_runs: int

    @property
    def half(self) -> float:
        """The larger distance from the mean to an end."""
        return max(self.high - self.mean, self.mean - self.low) if self.n_runs > 1 else float("inf")

    def __str__(self) -> str:
        if self.n_runs < 2:
            return f"{self.mean:.3g} (one run, no interval)" if self.n_runs else "nothing (no runs)"
        is_even = abs((self.high - self.mean) - (self.mean - self.low)) <= 1e-9 * (1.0 + abs(self.mean) + self.half)
        ends = f"+- {self.half:.3g}" if is_even else f"[{self.low:.3g}, {self.high:.3g}]"
        return f"{self.mean:.3g} {ends} ({self.n_runs} runs)"


def _even(mean: float, half: float, n_runs: int) -> Estimate:
    if n_runs < 2:
        return Estimate(mean, -float("inf"), float("inf"), n_runs)
    return Estimate(mean, mean - half, mean + half, n_runs)


def estimate(values: Iterable[float], bounds: tuple[float, float] | None = None) -> Estimate:
    """Return the mean of one value per run and its interval; without values nothing is known.

    ``bounds`` are the smallest and the largest possible value: 0 and 1 for a success rate, None for Student's interval.
    """
    found = np.array(list(values), dtype=np.float64)
    if len(found) < 2:
        return _even(float(found[0]) if len(found) else float("nan"), float("inf"), len(found))
    if bounds is None:
        return _even(*confidence_interval(found, LEVEL), len(found))
    low, high = (_quantile(_drawn_means(found, worst), end) for worst, end in zip(bounds, (-1, 1)))
    return Estimate(float(found.mean()), max(low, bounds[0]), min(high, bounds[1]), len(found))


def gap(
    first: Mapping[Any, float],
    second: Mapping[Any, float],
    factor: float = 1.0,
    *,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """Estimate the mean of ``first`` less ``factor`` times that of ``second``; both have runs by their seeds.

    Runs with the same seed share their log or their random numbers.  So where both have the same seeds, the differences
    of the pairs are judged; otherwise all runs of both count, by Welch's interval, and none is left out for want of a
    partner.  A ratio of means is above c exactly if ``gap(first, second, c)`` is above 0.  ``bounds`` are of each.
    """
    if first.keys() == second.keys():
        differences = (first[seed] - factor * second[seed] for seed in sorted(first))
        if bounds is None:
            return estimate(differences)
        low, high = bounds
        return estimate(differences, (low - factor * high, high - factor * low))
    parts = np.array(list(first.values())), np.array(list(second.values()))
    if bounds is None or min(map(len, parts)) < 2:
        return _welch(parts[0], factor * parts[1])
    low, high = (
        _quantile(_drawn_means(parts[0], worst) - factor * _drawn_means(parts[1], other, stream=1), end)
        for worst, other, end in zip(bounds, bounds[::-1], (-1, 1))
    )
    return Estimate(float(parts[0].mean() - factor * parts[1].mean()), low, high, min(map(len, parts)))


def _drawn_means(values: Floats, worst: float, stream: int = 0) -> Floats:
    """Return means of the values and of one more, the worst, with random weights."""
    return _weights(len(values) + 1, stream) @ np.append(values, worst)


@lru_cache(maxsize=16)
def _weights(n: int, stream: int) -> Floats:
    """Return weights uniform over all that sum to one, (N_DRAWS, n), always the same."""
    drawn = np.random.default_rng([n, stream]).standard_exponential((N_DRAWS, n))
    weights: Floats = drawn / drawn.sum(axis=1, keepdims=True)
    return weights


def _quantile(drawn: Floats, end: int) -> float:
    return float(np.quantile(drawn, (1 + end * LEVEL) / 2))


def _welch(first: Floats, second: Floats) -> Estimate:
    """Estimate the difference of the means of independent runs with spreads of their own."""
    n_runs = min(len(first), len(second))
    if n_runs < 2:
        return _even(float(first.mean() - second.mean()) if n_runs else float("nan"), float("inf"), n_runs)
    squares = np.array([found.var(ddof=1) / len(found) for found in (first, second)])
    if not squares.any():
        return _even(float(first.mean() - second.mean()), 0.0, n_runs)
    freedom = squares.sum() ** 2 / (squares**2 / [len(first) - 1, len(second) - 1]).sum()
    half = stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(squares.sum())
    return _even(float(first.mean() - second.mean()), float(half), n_runs)


@dataclass(frozen=True)
class Sampled:
    """The part of a claim that says ``low < figure < high``."""

    text: str
    found: Estimate
    low: float = -np.inf
    high: float = np.inf
    paper: float | None = None  # its figure, where it states one

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
        limits = f"between {self.low:.4g} and {self.high:.4g}"
        if self.high == np.inf:
            limits = f"above {self.low:.4g}"
        elif self.low == -np.inf:
            limits = f"below {self.high:.4g}"
        return f"{self.text} is {self.found}, must be {limits}: {self.finding.value}"


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
