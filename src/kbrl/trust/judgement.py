"""What a judgement says: now, the policy, the gain, each with its interval; the verdict, and what could be wrong.

Two methods may have a part in it, and both are shown: sums over blocks of episodes, and a rehearsal of the policy.
The half width of an interval has three parts: sampling (the log might have had other episodes), smoothing (the
estimate changes with the smoothing of the method) and self-check (the method gives the logged policy a value that is
not the one observed, by more than chance).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from kbrl.checks import counted, whole
from kbrl.notebooks import html_table

BETTER, WORSE, CANNOT_TELL = "better", "worse", "cannot tell"
_ROUNDING = 1e-9  # of the length of an interval


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval around it, with the parts of its half width."""

    estimate: float
    low: float
    high: float
    sampling: float = 0.0
    smoothing: float = 0.0
    self_check: float = 0.0

    @property
    def half(self) -> float:
        """The half width before it was cut to what rewards allow."""
        return self.sampling + self.smoothing + self.self_check

    @property
    def parts(self) -> str:
        """The parts of the half width, for people."""
        return f"sampling {self.sampling:.3g}, smoothing {self.smoothing:.3g}, self-check {self.self_check:.3g}"

    @property
    def is_open_above(self) -> bool:
        """Whether the upper end is not known: it is farther away than the half width says."""
        return self.high > self.estimate + self.half + _ROUNDING * abs(self.high - self.low)

    @property
    def is_open_below(self) -> bool:
        """Whether the lower end is not known."""
        return self.low < self.estimate - self.half - _ROUNDING * abs(self.high - self.low)

    def widened(self, by: float) -> Interval:
        """Return the same with so much more to both sides, which counts as sampling."""
        return replace(self, low=self.low - by, high=self.high + by, sampling=self.sampling + by)

    def clipped(self, low: float, high: float) -> Interval:
        """Return the same within limits; an interval that lies outside becomes the nearest limit."""
        cut = [float(np.clip(x, low, high)) for x in (self.estimate, self.low, self.high)]
        return replace(self, estimate=cut[0], low=cut[1], high=cut[2])

    def mixed(self, other: Interval, weight: float | None = None, *, spans_both: bool | None = None) -> Interval:
        """Return the weighted mean of two; it holds a number that both hold.

        By default the weights are inversely proportional to the square of the half width.  Where the two do not meet,
        or if ``spans_both``, what is missing counts as smoothing: the estimate depends on the method.
        """
        weight = self.weight_beside(other) if weight is None else weight
        parts = [
            weight * getattr(self, name) + (1.0 - weight) * getattr(other, name)
            for name in ("sampling", "smoothing", "self_check")
        ]
        estimate = weight * self.estimate + (1.0 - weight) * other.estimate
        if not self.overlaps(other) if spans_both is None else spans_both:
            ends = np.array([self.low, self.high, other.low, other.high])
            parts[1] += max(0.0, float(np.abs(ends - estimate).max()) - sum(parts))
        return Interval(estimate, estimate - sum(parts), estimate + sum(parts), *parts)

    def weight_beside(self, other: Interval) -> float:
        """Return the weight of this one in a mean of both: the shorter one has the larger weight."""
        squares = self.half**2, other.half**2
        return squares[1] / sum(squares) if sum(squares) > 0 else 0.5

    def overlaps(self, other: Interval) -> bool:
        """Whether two intervals have a point in common."""
        return self.low <= other.high and other.low <= self.high

    def __str__(self) -> str:
        return f"{self.estimate:.4g} ({self.low:.4g} to {self.high:.4g})"


@dataclass(frozen=True)
class Estimate:
    """What one method says: the value of the policy and its gain over what was done."""

    value: Interval
    gain: Interval

    def meets(self, other: Estimate) -> bool:
        """Whether two methods agree: their intervals have points in common."""
        return self.value.overlaps(other.value) and self.gain.overlaps(other.gain)


@dataclass(frozen=True)
class Influence:
    """An episode, and about how much the gain would change if the log did not have it."""

    episode: Any
    change: float


@dataclass(frozen=True)
class Judgement:
    """Whether a policy is better than what was done, by how much, and how sure that is.

    ``now``, ``value`` and ``gain`` are `Interval`: estimate, low, high, and the parts of the half width.
    ``verdict`` is "better", "worse" or "cannot tell"; ``refusals`` say why it is "cannot tell" whatever the gain;
    ``warnings`` say what to keep in mind.  All values are expected discounted sums of rewards from the starts of the
    logged episodes.
    """

    verdict: str
    now: Interval
    value: Interval
    gain: Interval
    observed: float  # the mean discounted return of the logged episodes
    level: float
    discount: float
    n_episodes: int
    n_rows: int
    thin_share: float  # of the policy's decisions: at states where fewer than five rows show the action
    memory: float  # the correlation of an error of the logged policy's values with the next one
    lasting: float  # the variance of what episodes earn beyond their values, relative to what single steps explain
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    far_share: float | None = None  # of the policy's decisions: far from all logged ones; None: not rehearsed
    by_sums: Estimate | None = None  # the first method
    by_rehearsal: Estimate | None = None  # the second one, where it is possible
    not_rehearsed: str = ""  # why there is no second one
    is_bounded: bool = True  # False: the data do not bound value and gain, whose intervals are what rewards allow
    importance: Any = None  # an estimate from logged propensities
    influences: tuple[Influence, ...] = field(default=(), repr=False)

    def influential(self, n: int = 10) -> tuple[Influence, ...]:
        """Return the episodes that the gain depends on most, the most influential first."""
        return self.influences[: whole(n, "n", at_least=0)]

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, with its numbers."""
        episodes = counted(self.n_episodes, "episode")
        if not self.is_bounded:
            tell = "does" if self.n_episodes == 1 else "do"
            return f"Cannot tell: {episodes} {tell} not tell what the policy gains over what is done now."
        low, high = self.gain.low, self.gain.high
        about = f"judged on {episodes}."
        if self.verdict == WORSE:
            span = f"{100 * self.level:.4g} % interval {-high:.4g} to {-low:.4g}"
            return f"Worse: the policy loses {-self.gain.estimate:.4g} against what is done now ({span}), {about}"
        gain, span = f"{self.gain.estimate:+.4g}", f"{100 * self.level:.4g} % interval {low:+.4g} to {high:+.4g}"
        if self.verdict == BETTER:
            return f"Better: the policy gains {gain} over what is done now ({span}), {about}"
        return f"Cannot tell: the estimated gain over what is done now is {gain} ({span}), {about}"

    @property
    def methods(self) -> dict[str, Estimate]:
        """What each method says by itself, by its name; empty where there is only one."""
        if self.by_sums is None or self.by_rehearsal is None:
            return {}
        return {"sums": self.by_sums, "rehearsal": self.by_rehearsal}

    def __str__(self) -> str:
        lines = [self.sentence, "", f"{'':6}{'estimate':>11}{'low':>11}{'high':>11}  half width from"]
        for name in ("now", "value", "gain"):
            found: Interval = getattr(self, name)
            is_known = self.is_bounded or name == "now"
            parts = found.parts if is_known else "not known: what rewards allow"
            lines.append(f"{name:6} {found.estimate:10.5g} {found.low:10.5g} {found.high:10.5g}  {parts}")
        lines += ["", f"Observed mean return {self.observed:.5g}; discount {self.discount:g}; {self.n_rows:,} rows."]
        lines += [f"Gain by {name}: {found.gain}; value: {found.value}." for name, found in self.methods.items()]
        if self.not_rehearsed:
            lines.append(f"Not rehearsed: {self.not_rehearsed}.")
        if self.importance is not None:
            lines.append(str(self.importance))
        lines += [f"No verdict: {text}" for text in self.refusals]
        lines += [f"Note: {text}" for text in self.warnings]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the judgement as a notebook shows it."""
        rows: list[tuple[str, ...]] = []
        for name in ("now", "value", "gain"):
            found: Interval = getattr(self, name)
            rows.append((name, *(f"{x:.4g}" for x in (found.estimate, found.low, found.high)), found.parts))
        rows += [("no verdict", text) for text in self.refusals] + [("note", text) for text in self.warnings]
        return html_table(self.sentence, rows, head=("", "estimate", "low", "high", "half width from"))

    def to_dict(self) -> dict[str, Any]:
        """Return the judgement as plain values; numbers that are not finite are None."""
        plain: dict[str, Any] = _plain(asdict(self) | {"sentence": self.sentence})
        return plain

    def to_json(self) -> str:
        """Return the judgement as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value
