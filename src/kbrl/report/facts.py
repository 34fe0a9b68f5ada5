"""Everything that a report says about a model and a log, as numbers.  The page and the pictures only show it.

Counts and means are those of the whole log; medians, quantiles, rules and pictures come from a sample if the log is
long.  ``mean_value`` of an action is the mean of Q(s, a) over the rows in which it was logged.  An advantage is
Q(s, best answer) - Q(s, logged action), or - Q(s, as now) if the model defers: what the model expects to gain.

To say more: add a field to `Facts`, or a property if it follows from others, and show it in page.html.jinja.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np

from kbrl.arrays import Floats
from kbrl.data.scaling import Moments
from kbrl.data.transitions import Transitions
from kbrl.report.case_form import Field, form_fields
from kbrl.report.evidence import Stability, judged
from kbrl.report.inputs import Inputs
from kbrl.report.lookup import LookUp, look_up
from kbrl.report.maps import Map, influences, maps_of
from kbrl.report.model_facts import ModelFacts, facts_of_model
from kbrl.report.recommendations import Answers, answers, reach
from kbrl.report.rules import LEAST_AGREEMENT, NO_ADVICE, Condition, Rule, Rules, find_rules
from kbrl.report.tally import Example, Tally
from kbrl.settings import FEW_CASES
from kbrl.trust.judgement import Judgement

N_DISAGREEMENTS = 12
N_REPS = 12
MOST_ACTIONS = 40  # rows of a table
MOST_COLUMNS = 7  # state variables in a table that has other columns as well
DISTANCE_LEVELS = (0.5, 0.9, 0.99, 1.0)
SUPPORT_LEVELS = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Spread:
    """How the numbers of a column are spread."""

    smallest: float
    low: float  # 1 % are below
    median: float
    mean: float
    high: float  # 1 % are above
    largest: float
    std: float


@dataclass(frozen=True)
class ActionFacts:
    """How often an action was logged and is recommended, and what it is worth; several actions add up."""

    n_logged: int
    n_recommended: int
    n_agreed: int  # logged and recommended
    n_weak: int  # recommended with little support
    n_valued: int  # logged where the model has a value for the action
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
        """The mean advantage of the recommended action over this one, over the rows in which this one was logged."""
        return self.advantage_sum / self.n_valued if self.n_valued else None


@dataclass(frozen=True)
class Disagreement:
    """A pair of actions: what was logged, and what the model recommends instead."""

    logged: int  # places of actions
    recommended: int
    count: int
    n_weak: int  # of these rows, those where the recommended action has little support
    mean_advantage: float | None


@dataclass(frozen=True)
class ChangeRule:
    """A rule by which the model would act differently."""

    conditions: tuple[str, ...]  # all must hold; none: always
    advice: int  # the place of an answer
    n_rows: int  # sampled rows that it is about
    n_changed: int  # of these, those in which something else was done, and the model's own advice is the rule's
    done_now: tuple[tuple[int, float], ...]  # what is done now: places of actions and their shares, the most frequent
    support: float  # the median
    agreement: float | None  # the mean; None: not known
    advantage: float | None  # the mean over the changed rows
    fidelity: float | None  # on rows that were not used to find it


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

    inputs: Inputs
    model: ModelFacts
    n_transitions: int
    n_episodes: int | None  # None: no column tells episodes apart
    n_ends: int
    variables: tuple[Spread, ...]
    influences: tuple[float, ...]  # share of the variation of Q that each variable accounts for by itself; may be NaN
    rewards: Spread
    actions: tuple[ActionFacts, ...]
    disagreements: tuple[Disagreement, ...]
    examples: tuple[Example, ...]  # of advice with enough support
    n_better: int  # rows in which another action is expected to be better, and has enough support
    n_better_weak: int  # the same, with little support
    backed_gain: float  # sum of the advantages in the rows of n_better
    n_far: int  # rows farther from all representative states than ``reach``
    reach: float  # the largest distance between neighbouring representative states, in units of the scale
    sample: Transitions
    sampled: Answers  # at the states of the sample
    maps: tuple[Map, ...]
    reps: tuple[Representative, ...]  # those with the most cases
    rules: tuple[ChangeRule, ...]  # where it would act differently, the most frequent change first
    fidelity: float | None  # the share of sampled rows, not used to find the rules, for which they say what it says
    n_advised: int  # sampled rows with advice that has enough support and agreement
    lookup: LookUp
    no_agreement: str  # why agreement is not known; empty if it is
    judgement: Judgement | None  # on held-out episodes
    no_judgement: str  # why there is none

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the state variables."""
        return self.inputs.variables

    @property
    def labels(self) -> list[str]:
        """The answers as words: the actions, and perhaps "as now"."""
        return list(self.model.answers)

    @property
    def titles(self) -> tuple[str, ...]:
        """The names of the state variables with their units."""
        return tuple(f"{name} ({self.units[name]})" if name in self.units else name for name in self.names)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of what the state is made of: the columns of the table, or else the state variables."""
        recipe = self.inputs.model.recipe
        return tuple(self.names) if recipe is None else recipe.names

    @property
    def example(self) -> str:
        """A state near the medians, as it is written in a command."""
        if self.inputs.model.recipe is None:
            return ",".join(self.medians)
        cells = self.inputs.model.recipe.described([spread.median for spread in self.variables])
        return ",".join(f"{name}={'' if value is None else value}" for name, value in cells.items())

    @property
    def form(self) -> list[Field]:
        """The fields of the look-up."""
        medians = [spread.median for spread in self.variables]
        return form_fields(self.inputs.model.recipe, self.names, medians, self.units)

    @property
    def units(self) -> Mapping[str, str]:
        """The units of state variables, and of "value"."""
        return self.inputs.units

    @property
    def value_unit(self) -> str:
        """The unit of values, with a space before it; nothing if it was not given."""
        return f" {self.units['value']}" if "value" in self.units else ""

    @property
    def n_small_reps(self) -> int:
        """Representative states that stand for fewer than five rows of the log."""
        return int((self.model.rep_cases < FEW_CASES).sum())

    @property
    def knows_agreement(self) -> bool:
        """Whether resampled logs were solved."""
        return not self.no_agreement

    @cached_property
    def n_unstable(self) -> int:
        """Sampled rows whose answer less than four fifths of the resampled logs agree on."""
        return int((self.sampled.agreement < LEAST_AGREEMENT).sum())

    @cached_property
    def total(self) -> ActionFacts:
        """All actions together."""
        return sum(self.actions[1:], start=self.actions[0])

    @property
    def is_sampled(self) -> bool:
        """Whether the sample is only a part of the log."""
        return len(self.sample) < self.n_transitions

    @property
    def is_same_data(self) -> bool:
        """Whether the log has as many rows of each action as the model was fitted to."""
        logged = [action.n_logged for action in self.actions[: len(self.model.counts)]]
        return logged == list(self.model.counts.values())

    @cached_property
    def shown_actions(self) -> list[int]:
        """The places of the actions that a table has room for: the most frequent, in the order of the labels."""
        weights = np.array([max(action.n_logged, action.n_recommended) for action in self.actions])
        return sorted(np.argsort(-weights, kind="stable")[:MOST_ACTIONS].tolist())

    @cached_property
    def other_actions(self) -> ActionFacts | None:
        """All actions together that a table has no room for; None if it has room for all."""
        others = [action for place, action in enumerate(self.actions) if place not in self.shown_actions]
        return sum(others[1:], start=others[0]) if others else None

    @cached_property
    def shown_variables(self) -> list[int]:
        """The places of the variables that a table has room for: those of largest influence, in their own order."""
        return sorted(np.argsort(-np.array(self.influences), kind="stable")[:MOST_COLUMNS].tolist())

    @property
    def mapped_names(self) -> list[str]:
        """The names of the variables over which there are maps."""
        return [self.names[place] for place in dict.fromkeys(k for drawn in self.maps for k in drawn.variables)]

    @property
    def knows_influences(self) -> bool:
        """Whether there are enough rows to tell the influence of variables."""
        return not np.isnan(self.influences).any()

    @property
    def medians(self) -> list[str]:
        """The medians of the state variables, as they are written in a command."""
        return [f"{spread.median:.6g}" for spread in self.variables]

    @property
    def distance_levels(self) -> dict[float, float]:
        """Within which distance of the nearest representative state a share of the sample lies, by the share."""
        return dict(zip(DISTANCE_LEVELS, np.quantile(self.sampled.distances, DISTANCE_LEVELS).tolist()))

    @cached_property
    def support_levels(self) -> list[list[float]]:
        """The support of each action at the states of the sample: the 5 % quantile, the median, the 95 % quantile."""
        return np.quantile(self.sampled.support, SUPPORT_LEVELS, axis=0).T.tolist()


def gather(inputs: Inputs, step: Callable[[int], None] | None = None) -> Facts:
    """Return all facts, after one pass over the log; ``step(n_rows)`` is called after each chunk."""
    tally, stability = Tally(inputs.model, reach(inputs.model)), Stability(inputs.model)
    for rows, chunk in inputs.chunks():
        tally.add(rows, chunk)
        stability.add(chunk)
        if step is not None:
            step(len(chunk))
    model = stability.finished()
    about = facts_of_model(model, tally.rep_counts)
    sample = tally.survey.sample
    sampled = answers(model, sample.states)
    influence = influences(sample.states, sampled.q)
    found = find_rules(sample.states, sampled.advice)
    judgement, no_judgement = judged(inputs)
    return Facts(
        inputs=inputs,
        model=about,
        n_transitions=tally.n_rows,
        n_episodes=tally.n_episodes,
        n_ends=tally.n_ends,
        variables=_spreads(tally.survey.moments, sample.states),
        influences=tuple(influence.tolist()),
        rewards=_spreads(tally.rewards, sample.rewards[:, None])[0],
        actions=tuple(_action(tally, place) for place in range(len(model.answer_labels))),
        disagreements=tuple(_disagreements(tally)),
        examples=tuple(tally.examples) if inputs.with_cases else (),
        n_better=tally.n_better[0],
        n_better_weak=tally.n_better[1],
        backed_gain=tally.backed_gain,
        n_far=tally.n_far,
        reach=reach(model),
        sample=sample,
        sampled=sampled,
        maps=tuple(maps_of(model, sample.states, sampled, np.nan_to_num(influence))),
        reps=tuple(_representatives(about)),
        rules=tuple(_change_rules(inputs, found, sample, sampled)),
        fidelity=found.fidelity,
        n_advised=int((sampled.advice != NO_ADVICE).sum()),
        lookup=look_up(model, inputs.variables, about.answers, sample if inputs.with_cases else None, sample.states),
        no_agreement=stability.reason,
        judgement=judgement,
        no_judgement=no_judgement,
    )


def _change_rules(inputs: Inputs, found: Rules, sample: Transitions, sampled: Answers) -> list[ChangeRule]:
    """Return the rules that change something, the most frequent change first."""
    rules = [_change_rule(inputs, rule, sample, sampled) for rule in found.rules if rule.advice != NO_ADVICE]
    return sorted((rule for rule in rules if rule.n_changed), key=lambda rule: -rule.n_changed)


def _change_rule(inputs: Inputs, rule: Rule, sample: Transitions, sampled: Answers) -> ChangeRule:
    logged = sample.action_indices
    follows = rule.rows & (sampled.advice == rule.advice)
    changed = follows & (logged != rule.advice)
    gains = (sampled.values - sampled.value_of(logged))[changed]
    gains = gains[np.isfinite(gains)]
    counts = np.bincount(logged[rule.rows], minlength=1)
    common = [place for place in np.argsort(-counts, kind="stable")[:3].tolist() if counts[place]]
    stable = sampled.agreement[follows]
    return ChangeRule(
        conditions=tuple(condition_text(inputs, condition) for condition in rule.conditions),
        advice=rule.advice,
        n_rows=int(rule.rows.sum()),
        n_changed=int(changed.sum()),
        done_now=tuple((place, float(counts[place] / counts.sum())) for place in common),
        support=float(np.median(sampled.best_support[follows])) if follows.any() else 0.0,
        agreement=float(stable.mean()) if len(stable) and np.isfinite(stable).all() else None,
        advantage=float(gains.mean()) if len(gains) else None,
        fidelity=rule.fidelity,
    )


def condition_text(inputs: Inputs, condition: Condition) -> str:
    """Return a condition as people read it, as in "age is 65 years or more"."""
    name = inputs.variables[condition.variable]
    flags = {} if inputs.model.recipe is None else inputs.model.recipe.flags
    if name in flags and (condition.low is None) != (condition.high is None):  # 0 or 1: each side is a statement
        is_true, is_false = flags[name]
        return is_false if condition.low is None else is_true
    levels = {} if inputs.model.recipe is None else inputs.model.recipe.ordered_levels
    if name in levels:
        return _levels_text(name, levels[name], condition)
    unit = f" {inputs.units[name]}" if name in inputs.units else ""
    low, high = (None if limit is None else f"{limit:.10g}" for limit in (condition.low, condition.high))
    if low is None:
        return f"{name} is below {high}{unit}"
    if high is None:
        return f"{name} is {low}{unit} or more"
    return f"{name} is from {low} to below {high}{unit}"


def _levels_text(name: str, levels: Sequence[str], condition: Condition) -> str:
    """Return a condition on an ordinal column, whose levels are 0, 1 and so on."""
    first = 0 if condition.low is None else min(max(ceil(condition.low), 0), len(levels) - 1)
    last = len(levels) - 1 if condition.high is None else min(max(ceil(condition.high) - 1, 0), len(levels) - 1)
    if first >= last:
        return f"{name} is {levels[last]}"
    if condition.low is None:
        return f"{name} is {levels[last]} or lower"
    return (
        f"{name} is {levels[first]} or higher"
        if condition.high is None
        else f"{name} is from {levels[first]} to {levels[last]}"
    )


def _spreads(moments: Moments, sampled: Floats) -> tuple[Spread, ...]:
    low, median, high = np.quantile(sampled, [0.01, 0.5, 0.99], axis=0)
    columns = (moments.smallest, low, median, moments.mean(), high, moments.largest, moments.std())
    return tuple(Spread(*map(float, numbers)) for numbers in zip(*columns))


def _action(tally: Tally, place: int) -> ActionFacts:
    if place == len(tally.counts):  # as now: never logged under this name, and it agrees with all that is done
        n_now = int(tally.counts[:, place].sum())
        return ActionFacts(0, n_now, n_now, 0, 0, 0.0, 0.0, 0.0)
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
    counts[:, len(counts) :] = 0  # "as now" is no disagreement
    order = np.argsort(-counts, axis=None, kind="stable")[:N_DISAGREEMENTS]
    for logged, recommended in zip(*np.unravel_index(order, counts.shape)):
        count, n_valued = int(counts[logged, recommended]), int(tally.n_valued[logged, recommended])
        if count:
            advantage = float(tally.advantage_sum[logged, recommended]) / n_valued if n_valued else None
            n_weak = int(tally.weak_counts[logged, recommended])
            yield Disagreement(int(logged), int(recommended), count, n_weak, advantage)


def _representatives(model: ModelFacts) -> Iterable[Representative]:
    """Yield the representative states with the most cases."""
    for place in np.argsort(-model.rep_cases, kind="stable")[:N_REPS].tolist():
        state, value = tuple(model.reps[place].tolist()), float(model.rep_values[place])
        yield Representative(place, state, value, int(model.rep_policy[place]), int(model.rep_cases[place]))
