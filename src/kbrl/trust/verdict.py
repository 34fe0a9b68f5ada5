"""From estimates to intervals and a verdict: better, worse or cannot tell.

The rules were fixed on simulated logs whose truth is known; docs/trust.md has them, and what they cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from kbrl.arrays import Floats
from kbrl.trust.estimates import GAIN, NOW, SELF_CHECK, SMALL_WEIGHT, VALUE, Evidence, Rung
from kbrl.trust.judgement import BETTER, CANNOT_TELL, WORSE, Interval, Judgement

MOST_THIN = 0.10  # the share of the policy's decisions that fewer than five rows may support
MOST_MEMORY = 0.3  # the correlation of errors from which on something that matters is not recorded
SOME_MEMORY = 0.1
SOME_BIAS = 0.2  # standard deviations of the return
SOME_CUT = 0.05
SOME_VARIANCE = 0.25
EPISODES_PER_BLOCK = 2
LEAST_FOLLOWED = 0.5  # the share of rows that end an episode or are followed by another row


@dataclass(frozen=True)
class Limits:
    """What rewards allow a value to be."""

    low: float
    high: float

    @classmethod
    def of(cls, evidence: Evidence) -> Limits:
        """Return the values of the smallest and the largest reward, received once or forever."""
        ever = 1.0 / (1.0 - evidence.discount)
        low, high = float(evidence.sums.smallest_reward[0]), float(evidence.sums.largest_reward[0])
        return cls(min(low, low * ever), max(high, high * ever))


def quantile(level: float, rung: Rung) -> float:
    """Return Student's quantile for as many blocks as there are, or fewer if their sizes differ (Kish)."""
    effective = rung.sizes.sum() ** 2 / (rung.sizes**2).sum()
    return float(student.ppf(0.5 + 0.5 * level, max(1.0, effective - 1.0)))


def excess_of_self_check(rung: Rung, t: float) -> float:
    """Return by how much the method is wrong about the logged policy beyond chance."""
    return max(0.0, abs(rung.of(SELF_CHECK)) - t * rung.error(SELF_CHECK))


def interval(rung: Rung, contrast: Floats, level: float) -> Interval:
    """Return an estimate of VALUE, NOW or GAIN with its interval."""
    t = quantile(level, rung)
    bias = max(rung.bias(c) for c in (VALUE, NOW, GAIN)) if contrast is GAIN else rung.bias(contrast)
    parts = (t * rung.error(contrast), bias, excess_of_self_check(rung, t))
    estimate = rung.of(contrast)
    return Interval(estimate, estimate - sum(parts), estimate + sum(parts), *parts)


def judged(
    evidence: Evidence, found: list[Rung], level: float, *, second: Interval | None = None
) -> tuple[Judgement, Rung | None]:
    """Return the judgement by the rung with the shortest interval of the gain, and that rung."""
    limits = Limits.of(evidence)
    everything = Interval(evidence.mean_return, limits.low, limits.high)
    now, value, gain = everything, everything, Interval(0.0, limits.low - limits.high, limits.high - limits.low)
    impossible, rung = not found, None
    if found:
        rung = min(found, key=lambda each: interval(each, GAIN, level).half)
        now, value, gain = (interval(rung, contrast, level) for contrast in (NOW, VALUE, GAIN))
        impossible = any(x.low > limits.high or x.high < limits.low for x in (now, value))
        now, value = (x.clipped(limits.low, limits.high) for x in (now, value))
        gain = gain.clipped(limits.low - limits.high, limits.high - limits.low)
    refusals = tuple(_refusals(evidence, gain, impossible, second))
    verdict = BETTER if gain.low > 0 else WORSE if gain.high < 0 else CANNOT_TELL
    judgement = Judgement(
        verdict=CANNOT_TELL if refusals else verdict,
        now=now,
        value=value,
        gain=gain,
        observed=evidence.mean_return,
        level=level,
        discount=evidence.discount,
        n_episodes=int(evidence.sums.n_episodes.sum()),
        n_rows=int(evidence.sums.n_rows.sum()),
        thin_share=evidence.thin_share,
        memory=evidence.memory,
        refusals=refusals,
        warnings=tuple(_warnings(evidence, rung)),
        second=second,
    )
    return judgement, rung


def _refusals(evidence: Evidence, gain: Interval, impossible: bool, second: Interval | None) -> Iterator[str]:
    sums = evidence.sums
    n, least = int(sums.n_episodes.sum()), EPISODES_PER_BLOCK * len(sums.n_episodes)
    if n < least:
        yield f"there are {n} episodes, and a verdict needs at least {least} ({len(sums.n_episodes)} blocks of two)."
    if evidence.thin_share > MOST_THIN:
        yield (
            f"{100 * evidence.thin_share:.0f} % of the policy's decisions would be taken where fewer than "
            f"{SMALL_WEIGHT:g} logged rows show the action; at most {100 * MOST_THIN:.0f} % may be."
        )
    if evidence.memory > MOST_MEMORY:
        yield (
            f"errors of the values follow each other (correlation {evidence.memory:.2f}, at most {MOST_MEMORY:g}): "
            f"something that matters is not among the state variables."
        )
    if evidence.followed_share < LEAST_FOLLOWED:
        yield (
            f"after {100 * (1 - evidence.followed_share):.0f} % of the rows the episode is cut, and the next action is "
            f"not known; at most {100 * (1 - LEAST_FOLLOWED):.0f} % may be, or what was done cannot be valued."
        )
    if impossible:
        yield "the estimate lies outside of what the rewards allow, or the equations could not be solved."
    if second is not None and not gain.overlaps(second):
        yield f"a second method gives another gain, {second}; the two intervals do not meet."


def _warnings(evidence: Evidence, rung: Rung | None) -> Iterator[str]:
    sums = evidence.sums
    n = float(sums.n_episodes.sum())
    spread = float(np.sqrt(max(0.0, float(sums.squared_returns.sum()) / n - evidence.mean_return**2)))
    if rung is not None and rung.bias(VALUE) > SOME_BIAS * spread:
        yield (
            f"the value depends on the smoothing, by {rung.bias(VALUE):.3g} (the returns of episodes have a standard "
            f"deviation of {spread:.3g}): the policy may go where few rows are."
        )
    if rung is not None and abs(rung.of(SELF_CHECK)) > SOME_BIAS * spread:
        yield f"the method is off by {abs(rung.of(SELF_CHECK)):.3g} for what was done, which can be checked."
    if SOME_MEMORY < evidence.memory <= MOST_MEMORY:
        yield f"errors of the values follow each other (correlation {evidence.memory:.2f}): the states lack something."
    cut = float(sums.cut.sum()) / n
    if cut > SOME_CUT:
        yield (
            f"{100 * cut:.0f} % of the discounted weight comes after the point where episodes were cut; there, values "
            f"are extrapolated."
        )
    if rung is not None:
        changes = (rung.left_out @ GAIN - rung.of(GAIN)) ** 2
        if changes.sum() > 0 and changes.max() > SOME_VARIANCE * changes.sum():
            share = 100 * changes.max() / changes.sum()
            yield f"one of {len(changes)} blocks of episodes makes {share:.0f} % of the variance of the gain."
    yield "reasons for decisions that were not recorded are not seen."
