"""From estimates to intervals and a verdict: better, worse or cannot tell.

The rules were fixed on simulated logs whose truth is known; docs/trust.md has them, docs/trust_study.md what they cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betaincinv, stdtrit

from kbrl.arrays import Floats
from kbrl.trust.block_sums import FEW
from kbrl.trust.estimates import GAIN, NOW, SELF_CHECK, SMALL_WEIGHT, VALUE, Evidence, Rung
from kbrl.trust.judgement import BETTER, CANNOT_TELL, WORSE, Estimate, Interval, Judgement
from kbrl.trust.rehearsed import Rehearsed

MOST_THIN = 0.10  # the share of the policy's decisions that fewer than five rows may support
MOST_FAR = 0.10  # the share of the policy's decisions in rehearsal that may be far from all logged ones
MOST_MEMORY = 0.3  # a larger correlation of errors means that something that matters is not recorded
SOME_MEMORY = 0.1
MOST_LASTING = 1.5  # of `Evidence.lasting`: a larger ratio means that something lasting is not recorded
SOME_BIAS = 0.2  # standard deviations of the return
SOME_CUT = 0.05
SOME_VARIANCE = 0.25
EPISODES_PER_BLOCK = 2
LEAST_FOLLOWED = 0.5  # the share of rows that end an episode or are followed by another row
OBSERVED, AGAINST_OBSERVED = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, -1.0])  # now and gain in rehearsal


@dataclass(frozen=True)
class Limits:
    """What rewards allow a value to be."""

    low: float
    high: float

    def returns(self, evidence: Evidence) -> tuple[float, float]:
        """Return bounds that fewer than five logged returns are below, and above; what was cut may be anything."""
        smallest, largest = float(evidence.sums.smallest_returns[-1]), float(evidence.sums.largest_returns[-1])
        left_out = float(evidence.sums.left_out[0])
        return smallest + left_out * min(self.low, 0.0), largest + left_out * max(self.high, 0.0)

    @classmethod
    def of(cls, evidence: Evidence) -> Limits:
        """Return the values of the smallest and the largest reward, received once or forever."""
        ever = 1.0 / (1.0 - evidence.discount)
        low, high = float(evidence.sums.smallest_reward[0]), float(evidence.sums.largest_reward[0])
        return cls(min(low, low * ever), max(high, high * ever))


def quantile(level: float, rung: Rung) -> float:
    """Return Student's quantile for as many blocks as there are, or fewer if their sizes differ (Kish)."""
    effective = rung.sizes.sum() ** 2 / (rung.sizes**2).sum()
    return float(stdtrit(max(1.0, effective - 1.0), 0.5 + 0.5 * level))


def excess_of_self_check(rung: Rung, t: float) -> float:
    """Return by how much the method is wrong about the logged policy beyond chance."""
    return max(0.0, abs(rung.of(SELF_CHECK)) - t * rung.error(SELF_CHECK))


def interval(rung: Rung, contrast: Floats, level: float) -> Interval:
    """Return an estimate of VALUE, NOW, GAIN or one of those of a rehearsal, with its interval."""
    t = quantile(level, rung)
    bias = max(rung.bias(c) for c in (VALUE, NOW, GAIN)) if contrast is GAIN else rung.bias(contrast)
    check = 0.0 if contrast is OBSERVED else excess_of_self_check(rung, t)
    parts = (t * rung.error(contrast), bias, check)
    estimate = rung.of(contrast)
    return Interval(estimate, estimate - sum(parts), estimate + sum(parts), *parts)


def unseen_ends(evidence: Evidence, limits: Limits, level: float) -> float:
    """Return what ends that the log hardly shows may cost; 0 where rewards differ, or ends are not rare.

    If all rewards are the same, a value depends only on when episodes end.  If hardly any ends in the log, or none,
    standard errors are near 0: they do not tell how often episodes end.  So as many more are taken to end at once as
    the share of ends may be larger (Clopper and Pearson; without any end, 3 in n episodes at a level of 95 %).
    """
    if not evidence.ends_are_rare:
        return 0.0
    n, n_ends = float(evidence.sums.n_episodes.sum()), evidence.n_ends
    share = float(betaincinv(n_ends + 1, n - n_ends, level)) - n_ends / n
    return share * (limits.high - limits.low)


def sums_count(evidence: Evidence, second: Rehearsed | str) -> bool:
    """Whether the sums count: not if too few rows support them and a rehearsal is possible."""
    return isinstance(second, str) or evidence.thin_share <= MOST_THIN


def judged(
    evidence: Evidence, found: list[Rung], level: float, *, second: Rehearsed | str = ""
) -> tuple[Judgement, Rung | None]:
    """Return the judgement by the rung with the shortest interval of the gain and by rehearsal, and that rung.

    second: what the rehearsal found, or why there is none.
    """
    limits = Limits.of(evidence)
    rung = min(found, key=lambda each: interval(each, GAIN, level).half) if found else None
    first = None if rung is None else Three.of(rung, NOW, GAIN, level)
    other = None if isinstance(second, str) else Three.of(second.rung, OBSERVED, AGAINST_OBSERVED, level)
    weighed = first if sums_count(evidence, second) else None
    if first is None:
        nothing = Interval(0.0, limits.low - limits.high, limits.high - limits.low)
        everything = Interval(evidence.mean_return, limits.low, limits.high)
        three = Three(everything, everything, nothing)
    elif other is None:
        three = first
    else:
        three = other if weighed is None else weighed.mixed(other)
    three = three.widened(unseen_ends(evidence, limits, level))
    impossible = first is None or any(x.low > limits.high or x.high < limits.low for x in (three.now, three.value))
    unbounded = tuple(_unbounded(evidence, second, impossible))
    refusals = (*unbounded, *_refusals(evidence, weighed, other))
    warnings = tuple(_warnings(evidence, rung, None if unbounded else three, limits))
    three = three.opened(evidence, limits) if not unbounded else three.unbounded(limits)
    three = three.clipped(limits)
    verdict = BETTER if three.gain.low > 0 else WORSE if three.gain.high < 0 else CANNOT_TELL
    judgement = Judgement(
        verdict=CANNOT_TELL if refusals else verdict,
        now=three.now,
        value=three.value,
        gain=three.gain,
        observed=evidence.mean_return,
        level=level,
        discount=evidence.discount,
        n_episodes=int(evidence.sums.n_episodes.sum()),
        n_rows=int(evidence.sums.n_rows.sum()),
        thin_share=evidence.thin_share,
        memory=evidence.memory,
        lasting=evidence.lasting[0],
        refusals=refusals,
        warnings=warnings,
        far_share=None if isinstance(second, str) else second.far_share,
        by_sums=None if first is None else first.estimate(limits),
        by_rehearsal=None if other is None else other.estimate(limits),
        not_rehearsed=second if isinstance(second, str) else "",
        is_bounded=not unbounded,
    )
    return judgement, rung


@dataclass(frozen=True)
class Three:
    """The intervals of now, value and gain."""

    now: Interval
    value: Interval
    gain: Interval

    @classmethod
    def of(cls, rung: Rung, now: Floats, gain: Floats, level: float) -> Three:
        """Return the intervals by one method."""
        return cls(interval(rung, now, level), interval(rung, VALUE, level), interval(rung, gain, level))

    def estimate(self, limits: Limits) -> Estimate:
        """Return what one method says, within what rewards allow."""
        within = self.clipped(limits)
        return Estimate(within.value, within.gain)

    def mixed(self, other: Three) -> Three:
        """Return the weighted mean of two methods; it holds the truth if both do.

        Weights are inversely proportional to the square of the half width of the gain.  Where the two do not meet,
        intervals hold both.
        """
        weight = self.gain.weight_beside(other.gain)
        meets = Estimate(self.value, self.gain).meets(Estimate(other.value, other.gain))
        pairs = ((self.now, other.now), (self.value, other.value), (self.gain, other.gain))
        return Three(*(one.mixed(another, weight, spans_both=not meets) for one, another in pairs))

    def widened(self, by: float) -> Three:
        """Return the same with longer intervals; what is added counts as sampling."""
        return Three(*(each.widened(by) for each in (self.now, self.value, self.gain)))

    def opened(self, evidence: Evidence, limits: Limits) -> Three:
        """Return intervals without an upper (lower) end where the value is above (below) nearly all logged returns."""
        smallest, largest = limits.returns(evidence)
        low, high = self.value.estimate < smallest, self.value.estimate > largest
        if not low and not high:
            return self
        value = replace(
            self.value, low=limits.low if low else self.value.low, high=limits.high if high else self.value.high
        )
        gain = replace(
            self.gain,
            low=min(self.gain.low, limits.low - self.now.high) if low else self.gain.low,
            high=max(self.gain.high, limits.high - self.now.low) if high else self.gain.high,
        )
        return Three(self.now, value, gain)

    def unbounded(self, limits: Limits) -> Three:
        """Return estimates with all that rewards allow as their intervals."""
        value = Interval(self.value.estimate, limits.low, limits.high)
        return Three(self.now, value, Interval(self.gain.estimate, limits.low - limits.high, limits.high - limits.low))

    def clipped(self, limits: Limits) -> Three:
        """Return the same within what rewards allow."""
        now, value = (x.clipped(limits.low, limits.high) for x in (self.now, self.value))
        return Three(now, value, self.gain.clipped(limits.low - limits.high, limits.high - limits.low))


def _unbounded(evidence: Evidence, second: Rehearsed | str, impossible: bool) -> Iterator[str]:
    """Yield the reasons for which the data do not bound the value of the policy."""
    if isinstance(second, str) and evidence.thin_share > MOST_THIN:
        yield f"{_thin(evidence)}; at most {100 * MOST_THIN:.0f} % may be."
    if not isinstance(second, str) and second.far_share > MOST_FAR:
        yield (
            f"in rehearsal, {100 * second.far_share:.0f} % of the policy's decisions are far from all logged ones; at "
            f"most {100 * MOST_FAR:.0f} % may be."
        )
    if evidence.memory > MOST_MEMORY:
        yield (
            f"errors of the values at one step and the next are correlated ({evidence.memory:.2f}; at most "
            f"{MOST_MEMORY:g} is allowed): something that matters is not among the state variables."
        )
    ratio, error = evidence.lasting
    if ratio - error > MOST_LASTING:
        yield (
            f"the returns of episodes vary more around their estimated values than chance at single steps explains "
            f"({ratio:.1f} times the variance, with a standard error of {error:.1f}; at most {MOST_LASTING:g} times is "
            f"allowed): something that matters, and lasts through an episode, is not among the state variables."
        )
    if evidence.followed_share < LEAST_FOLLOWED:
        yield (
            f"{100 * (1 - evidence.followed_share):.0f} % of the rows are the last ones before a cut, so that the next "
            f"action is not known; at most {100 * (1 - LEAST_FOLLOWED):.0f} % may be. {_way_out_of_cuts(evidence)}"
        )
    if evidence.kept.sum() < 2:
        yield f"all episodes are in one of {len(evidence.kept)} blocks, and standard errors need at least two blocks."
    elif impossible:
        yield "the estimate lies outside of what the rewards allow, or the equations could not be solved."


def _way_out_of_cuts(evidence: Evidence) -> str:
    if evidence.n_gaps:
        return "Look for rows that are missing, doubled or out of order (kbrl check)."
    return "If episodes really end there, mark these rows as ends."


def _thin(evidence: Evidence) -> str:
    return (
        f"{100 * evidence.thin_share:.0f} % of the policy's decisions are in states where fewer than "
        f"{SMALL_WEIGHT:g} logged rows support the action"
    )


def _refusals(evidence: Evidence, first: Three | None, other: Three | None) -> Iterator[str]:
    sums = evidence.sums
    n, least = int(sums.n_episodes.sum()), EPISODES_PER_BLOCK * len(sums.n_episodes)
    if n < least:
        there = f"there are {n} episodes" if n > 1 else "there is one episode"
        yield f"{there}, and a verdict needs at least {least} ({len(sums.n_episodes)} blocks of two)."
    if (
        first is not None
        and other is not None
        and not Estimate(first.value, first.gain).meets(Estimate(other.value, other.gain))
    ):
        yield "the two methods disagree by more than their intervals; the intervals above cover both."


def _beyond(value: float, smallest: float, largest: float) -> Iterator[str]:
    if value > largest:
        yield (
            f"the policy would earn more than nearly all logged episodes (fewer than {FEW} earned more than "
            f"{largest:.4g}): it reaches states that hardly any logged episode reached, and how much more it earns "
            f"there is not known. The intervals are open above."
        )
    if value < smallest:
        yield (
            f"the policy would earn less than nearly all logged episodes (fewer than {FEW} earned less than "
            f"{smallest:.4g}): it reaches states that hardly any logged episode reached, and how much less it "
            f"earns there is not known. The intervals are open below."
        )


def _warnings(evidence: Evidence, rung: Rung | None, three: Three | None, limits: Limits) -> Iterator[str]:
    sums = evidence.sums
    n = float(sums.n_episodes.sum())
    spread = float(np.sqrt(max(0.0, float(sums.squared_returns.sum()) / n - evidence.mean_return**2)))
    if three is not None:
        yield from _beyond(three.value.estimate, *limits.returns(evidence))
        if evidence.thin_share > MOST_THIN:
            yield f"{_thin(evidence)}. So the sums are ignored, and only the rehearsal counts."
    if three is not None and three.value.smoothing > SOME_BIAS * spread:
        yield (
            f"the value depends on the smoothing, by {three.value.smoothing:.3g} (the returns of episodes have a "
            f"standard deviation of {spread:.3g}): the policy may reach states with few logged rows."
        )
    if rung is not None and abs(rung.of(SELF_CHECK)) > SOME_BIAS * spread:
        yield f"the estimated value of current practice is off by {abs(rung.of(SELF_CHECK)):.3g} from the observed one."
    if SOME_MEMORY < evidence.memory <= MOST_MEMORY:
        yield (
            f"errors of the values at one step and the next are correlated ({evidence.memory:.2f}): the state may lack "
            f"something."
        )
    if evidence.ends_are_rare:
        yield (
            f"all rewards are the same, and {evidence.n_ends} of {n:.0f} episodes ended. So few do not tell how often "
            f"episodes end; the intervals allow for ends that the log does not show."
        )
    if evidence.n_gaps:
        yield (
            f"after {evidence.n_gaps:,} rows, the next row of the same episode starts in another state: rows are "
            f"missing, doubled or out of order. Episodes count as cut there."
        )
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
            yield f"one of {len(changes)} blocks of episodes accounts for {share:.0f} % of the variance of the gain."
    yield "if people acted on something that is not in the log, no judgement can see it."
