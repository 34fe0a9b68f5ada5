"""All that a report says, as numbers: computed once, so that pages and pictures only have to show it.

Counts, means and the extremes are those of the whole log; medians, quantiles and pictures come from a sample of it
where it is long.  ``mean_value`` of an action is the mean of Q(s, a) over the rows in which it was logged, and an
advantage is Q(s, best action) - Q(s, logged action): what the model expects to gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kbrl.arrays import Floats, Integers
from kbrl.data.exact_sums import Moments
from kbrl.data.transitions import Transitions
from kbrl.learners.kbsf import KBSF
from kbrl.report.maps import Map, influences, maps_of
from kbrl.report.recommendations import Answers, answers, reach
from kbrl.report.subject import Subject
from kbrl.report.tally import Example, Tally

N_DISAGREEMENTS = 12
N_REPS = 12


@dataclass(frozen=True)
class Spread:
    """How the numbers of a column are spread."""

    smallest: float
    median: float
    mean: float
    largest: float
    std: float


@dataclass(frozen=True)
class ActionFacts:
    """What was logged and what is recommended of one action, or of several: they add up."""

    n_logged: int
    n_recommended: int
    n_agreed: int  # logged and recommended
    n_weak: int  # recommended with little support
    n_valued: int  # logged where the model knows a value of the action
    reward_sum: float  # over the rows in which it was logged
    value_sum: float  # of Q(s, a) over the same rows
    advantage_sum: float  # of the recommended action over this one, over the same rows

    def __add__(self, other: ActionFacts) -> ActionFacts:
        mine, theirs = vars(self), vars(other)
        return ActionFacts(**{name: mine[name] + theirs[name] for name in mine})

    @property
    def mean_reward(self) -> float | None:
        """The mean reward of the rows in which it was logged."""
        return self.reward_sum / self.n_logged if self.n_logged else None

    @property
    def mean_value(self) -> float | None:
        """The mean of Q(s, a) over the rows in which it was logged."""
        return self.value_sum / self.n_valued if self.n_valued else None

    @property
    def mean_advantage(self) -> float | None:
        """The mean of what the recommended action is worth more, over the rows in which this one was logged."""
        return self.advantage_sum / self.n_valued if self.n_valued else None


@dataclass(frozen=True)
class Disagreement:
    """A pair of actions: what was logged and what the model recommends in its place."""

    logged: int  # places of actions
    recommended: int
    count: int
    n_weak: int  # of these rows, those where the recommended action has little support
    mean_advantage: float | None


@dataclass(frozen=True)
class Representative:
    """A representative state."""

    place: int
    state: tuple[float, ...]
    value: float
    best: int  # place of an action; -1 where none is available
    n_cases: int  # logged states that are nearest to it


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything that a report shows."""

    subject: Subject
    n_transitions: int
    n_episodes: int | None
    n_ends: int
    variables: tuple[Spread, ...]
    influences: tuple[float, ...]  # share of the variation of Q that each variable accounts for by itself
    rewards: Spread
    actions: tuple[ActionFacts, ...]
    disagreements: tuple[Disagreement, ...]
    examples: tuple[Example, ...]  # of advice with enough support
    n_better: int  # rows in which another action is expected to be better, and has enough support
    n_better_weak: int  # the same, with little support
    backed_gain: float  # sum of what those with enough support are expected to be better
    n_far: int
    reach: float
    sample: Transitions
    sampled: Answers  # at the states of the sample
    maps: tuple[Map, ...]
    reps: tuple[Representative, ...]  # those with the most cases
    rep_cases: Integers  # (n_reps,): logged states that are nearest to each

    @property
    def model(self) -> KBSF:
        """The model."""
        return self.subject.model

    @property
    def labels(self) -> list[str]:
        """The actions as words."""
        return [str(label) for label in self.model.action_labels_.tolist()]

    @property
    def knows_support(self) -> bool:
        """Whether the model knows how many cases its answers rest on; those from files of format 1 may not."""
        return not np.isnan(self.model.statistics_.effective_cases()).any()

    @cached_property
    def total(self) -> ActionFacts:
        """All actions together."""
        return sum(self.actions[1:], start=self.actions[0])

    @property
    def is_sampled(self) -> bool:
        """Whether the sample is a part of the log only."""
        return len(self.sample) < self.n_transitions


def gather(subject: Subject, step: Callable[[int], None] | None = None) -> Facts:
    """Look through the log once and gather all facts; ``step(n_rows)`` is called after each chunk."""
    model = subject.model
    tally = Tally(model, reach(model))
    for rows, chunk in subject.chunks():
        tally.add(rows, chunk)
        if step is not None:
            step(len(chunk))
    sample = tally.survey.sample
    sampled = answers(model, sample.states)
    influence = influences(sample.states, sampled.q)
    rep_cases = tally.rep_counts
    return Facts(
        subject=subject,
        n_transitions=tally.n_rows,
        n_episodes=tally.n_episodes,
        n_ends=tally.n_ends,
        variables=_spreads(tally.survey.moments, sample.states),
        influences=tuple(influence.tolist()),
        rewards=_spreads(tally.rewards, sample.rewards[:, None])[0],
        actions=tuple(_action(tally, place) for place in range(len(model.action_labels_))),
        disagreements=tuple(_disagreements(tally)),
        examples=tuple(tally.examples),
        n_better=tally.n_better[0],
        n_better_weak=tally.n_better[1],
        backed_gain=tally.backed_gain,
        n_far=tally.n_far,
        reach=reach(model),
        sample=sample,
        sampled=sampled,
        maps=tuple(maps_of(model, sample.states, sampled, np.nan_to_num(influence))),
        reps=tuple(_representatives(model, rep_cases)),
        rep_cases=rep_cases,
    )


def _spreads(moments: Moments, sampled: Floats) -> tuple[Spread, ...]:
    columns = (moments.smallest, np.median(sampled, axis=0), moments.mean(), moments.largest, moments.std())
    return tuple(Spread(*map(float, numbers)) for numbers in zip(*columns))


def _action(tally: Tally, place: int) -> ActionFacts:
    return ActionFacts(
        n_logged=int(tally.counts[place].sum()),
        n_recommended=int(tally.counts[:, place].sum()),
        n_agreed=int(tally.counts[place, place]),
        n_weak=int(tally.n_weak[place]),
        n_valued=int(tally.n_valued[place].sum()),
        reward_sum=float(tally.reward_sum[place]),
        value_sum=float(tally.value_sum[place].sum()),
        advantage_sum=float(tally.advantage_sum[place].sum()),
    )


def _disagreements(tally: Tally) -> Iterable[Disagreement]:
    """Yield the most frequent pairs of different actions."""
    counts = tally.counts.copy()
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:N_DISAGREEMENTS]
    for logged, recommended in zip(*np.unravel_index(order, counts.shape)):
        count, n_valued = int(counts[logged, recommended]), int(tally.n_valued[logged, recommended])
        if count:
            advantage = float(tally.advantage_sum[logged, recommended]) / n_valued if n_valued else None
            n_weak = int(tally.weak_counts[logged, recommended])
            yield Disagreement(int(logged), int(recommended), count, n_weak, advantage)


def _representatives(model: KBSF, cases: Integers) -> Iterable[Representative]:
    """Yield the representative states with the most cases."""
    solution = model.solution_
    for place in np.argsort(-cases, kind="stable")[:N_REPS].tolist():
        state, value = tuple(model.reps_[place].tolist()), float(solution.values[place])
        yield Representative(place, state, value, int(solution.policy[place]), int(cases[place]))
