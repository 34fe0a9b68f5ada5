"""Why a value is what it is: the logged cases that weigh most in it.

Every value of a kernel-based model is a weighted mean of what logged cases were worth, r + discount V(s').  An
explanation shows the heaviest ones and says what the others weigh and are worth on average, so that the cases shown
and the rest make up the value again.  `kbrl.insight.case_weights` has the formulas.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats, Integers
from kbrl.checks import KbrlWarning, as_rows, whole
from kbrl.data.episodes import EpisodePart
from kbrl.data.names import row_by_name
from kbrl.data.transitions import Transitions, join
from kbrl.insight.agreement import agreement
from kbrl.insight.case_weights import Outcomes, outcomes, weigher, worths
from kbrl.insight.coverage import coverage
from kbrl.learners.matching_log import Numbered, numbered_chunks, opened
from kbrl.logs.log import Mapped
from kbrl.mdp.dynamic_programming import best_actions
from kbrl.model.model import Model, as_model

_NEGLIGIBLE = 1e-6  # an unexplained part of this size may be the solver's tolerance


@dataclass(frozen=True, eq=False)
class Case:
    """One logged transition, and how much it weighs in a value."""

    weight: float
    reward: float
    next_state: tuple[float, ...]
    ends: bool  # the episode ended here
    worth: float  # reward + discount V(next state)
    row: int | None = None  # of the log, from 0; None where the model only kept the outcome
    episode: Any = None
    state: tuple[float, ...] | None = None


@dataclass(frozen=True, eq=False)
class ActionExplanation:
    """The value of an action in a state as a weighted mean over cases, the heaviest first."""

    action: Any
    value: float  # -inf where the action is not available
    support: float  # the number of logged cases that the value rests on, see kbrl.insight.coverage; NaN: not known
    log_mass: float  # of its kernel sums, see kbrl.insight.coverage
    n_taken: int  # how often it was taken in all
    is_left_out: bool  # it was taken too rarely to be available
    cases: tuple[Case, ...]
    n_cases: int  # that weigh anything, shown or not
    rest_weight: float  # of all cases that are not shown
    rest_worth: float  # their mean worth; 0 where they weigh nothing
    is_allowed: bool = True  # by the rules of the model's recipe
    plan: tuple[Any, ...] = ()  # of order 1: the decisions of the best plan that begins with the action
    cautious_value: float | None = None  # of a model that defers: what is compared with "as now"; None: not offered

    @property
    def shown_weight(self) -> float:
        """The total weight of the cases shown."""
        return float(sum(case.weight for case in self.cases))

    @property
    def total_weight(self) -> float:
        """The total weight of all cases: 1, if they are those that the model was fitted to."""
        return self.shown_weight + self.rest_weight

    @property
    def explained(self) -> float:
        """The value that follows from the cases shown and the rest."""
        return float(sum(case.weight * case.worth for case in self.cases)) + self.rest_weight * self.rest_worth


@dataclass(frozen=True, eq=False)
class Explanation:
    """The values of all actions in a state, the best first, and the cases that they come from."""

    state: tuple[float, ...]
    distance: float  # to the nearest representative state, in units of the model's scale
    source: str  # of the cases: the "log" that was given, the "samples" of the model, or the "outcomes" it kept
    actions: tuple[ActionExplanation, ...]
    answer: Any = None  # what the model recommends
    as_now: float | None = None  # of a model that defers: the value of current practice
    agreement: float | None = None  # the share of resampled logs with the same answer; None: not known

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that JSON can hold; values that are not available are None."""
        facts = asdict(self)
        for found, given in zip(facts["actions"], self.actions):
            found |= {"shown_weight": given.shown_weight, "total_weight": given.total_weight}
            found |= {"explained": given.explained}
            if not np.isfinite(given.support):
                found["support"] = None
            if not np.isfinite(given.value):
                found |= {"value": None, "log_mass": None, "explained": None}
        return facts


def explain(
    model: Any,
    state: Any,
    *,
    log: Any = None,
    n_cases: int = 10,
    step: Callable[[int], None] | None = None,
    columns: Mapped = None,
) -> Explanation:
    """Return the logged cases that the value of each action in a state, (n_dims,), comes from.

    model: a Model, or a learner that has one.
    log: what the model was fitted to: Transitions, a list of them, an opened log, which is read once, chunk by
        chunk, a frame, or the path of a file.  None: the cases come from the model itself.  These are its samples
        (`Variant.q_function`), or the outcomes it kept (sample_neighbors), without rows and states; equal outcomes
        count as one case.
    n_cases: how many cases to show per action, the heaviest first.
    step: called with the number of transitions after each chunk of the log.
    columns: those of a frame or a file that have other names than in the model's log, by role.

    The value is the sum of weight * worth over the cases shown and the rest.  A warning says if it is not, as with
    another log than the model's.  Models of order 1 answer from lines and plans: their cases are those that the lines
    at the state come from, and ``plan`` is the best plan that begins with the action.
    A model that defers is explained by the values
    that it would have if it did not; with each action comes the cautious value that is compared with current practice.

    In state 0, "left" pays 1 and stays there; in state 1, "right" does.  The value of "left" in state 0, 10, comes
    from row 0 alone.

    >>> from kbrl import KBSF, Transitions, explain
    >>> log = Transitions(
    ...     states=[[0.0], [0.0], [1.0], [1.0]],
    ...     actions=["left", "right", "left", "right"],
    ...     rewards=[1.0, 0.0, 0.0, 1.0],
    ...     next_states=[[0.0], [1.0], [0.0], [1.0]],
    ... )
    >>> model = KBSF(n_reps=2, min_cases=1, discount=0.9, random_state=0).fit(log)
    >>> best = explain(model, [0.0], log=log).actions[0]
    >>> best.action, round(best.value, 2)
    ('left', 10.0)
    >>> case = best.cases[0]
    >>> case.row, round(case.weight, 2), case.reward, round(case.worth, 2)
    (0, 1.0, 1.0, 10.0)
    """
    whole(n_cases, "n_cases")
    model = as_model(model)
    given, model = model, replace(model, deferral=None, resamples=None)
    state = as_rows([row_by_name(state, model.source)], "states", n_dims=model.coordinates.n_dims)[0]
    row = model.scaled([state])[0]
    source = "log"
    if log is None and model.samples:
        source, log = "samples", join(model.samples)
    tallies = [_Tally(n_cases) for _ in model.action_labels]
    if log is not None:
        chunks = numbered_chunks(opened(log, columns, policy=model))
        _weigh_log(model, row, chunks, tallies, step or (lambda n_rows: None))
    else:
        source = "outcomes"
        for action, tally in enumerate(tallies):
            tally.add_outcomes(_kept_outcomes(model, row, action))
    result = _explanation(model, state, source, tallies)
    _say_if_unexplained(model, result)
    return _with_answer(given, result)


def _kept_outcomes(model: Model, state: Floats, action: int) -> Outcomes:
    found = outcomes(model, state, action)
    if found is None:
        raise ValueError(
            "This model has kept no cases, only sums over them. Pass the log that it was fitted to (log=, or "
            "--log), or fit with sample_neighbors, which keeps the nearest cases."
        )
    return found


def _weigh_log(
    model: Model, state: Floats, chunks: Iterator[Numbered], tallies: list[_Tally], step: Callable[[int], None]
) -> None:
    weigh = weigher(model, state)
    if model.settings.variant.q_function == "samples":  # these weights are relative to all cases of the log
        numbers, logs = zip(*chunks)
        chunks = iter([(np.concatenate(numbers), join(logs))])
    for row_numbers, chunk in chunks:
        step(len(chunk))
        learnt = _learnt_rows(model, chunk)
        if not len(learnt):
            continue
        row_numbers, chunk = row_numbers[learnt], model.prepared(chunk[learnt])
        weights = weigh(chunk)
        for action, rows in enumerate(chunk.by_action()):
            heavy = rows[weights[rows] > 0]
            if len(heavy):
                tallies[action].add(weights[heavy], chunk[heavy], worths(model, chunk[heavy]), row_numbers[heavy])


def _learnt_rows(model: Model, log: Transitions) -> Integers:
    """Return the rows that a model learnt from: not those of the episodes that were held out to judge it."""
    if model.held_out is None or log.episodes is None:
        return np.arange(len(log))
    return np.flatnonzero(EpisodePart(1.0 - model.held_out).rows(log))


@dataclass(eq=False)
class _Tally:
    """The heaviest cases of one action so far, and the weight and value of the others."""

    n_shown: int
    n_cases: int = 0
    rest_weight: float = 0.0
    rest_sum: float = 0.0  # of weight * worth
    heaviest: list[Case] = field(default_factory=list)

    def add(self, weights: Floats, log: Transitions, worths: Floats, numbers: Integers) -> None:
        """Take transitions of a log into account."""
        for k in self._candidates(weights, worths):
            episode = None if log.episodes is None else log.episodes[k].item()
            outcome = (float(log.rewards[k]), _numbers(log.next_states[k]), bool(log.terminals[k]), float(worths[k]))
            self.heaviest.append(
                Case(float(weights[k]), *outcome, row=int(numbers[k]), episode=episode, state=_numbers(log.states[k]))
            )
        self._cut()

    def add_outcomes(self, found: Outcomes) -> None:
        """Take kept outcomes into account."""
        for k in self._candidates(found.weights, found.worths):
            outcome = (float(found.rewards[k]), _numbers(found.next_states[k]), bool(found.terminals[k]))
            self.heaviest.append(Case(float(found.weights[k]), *outcome, float(found.worths[k])))
        self._cut()

    def _candidates(self, weights: Floats, worths: Floats) -> Integers:
        """Return the places of the heaviest cases; the others belong to the rest."""
        order = np.argsort(-weights, kind="stable")
        others = order[self.n_shown :]
        self.n_cases += len(weights)
        self.rest_weight += float(weights[others].sum())
        self.rest_sum += float(weights[others] @ worths[others])
        return order[: self.n_shown]

    def _cut(self) -> None:
        ordered = sorted(self.heaviest, key=lambda case: -case.weight)
        self.heaviest, others = ordered[: self.n_shown], ordered[self.n_shown :]
        self.rest_weight += sum(case.weight for case in others)
        self.rest_sum += sum(case.weight * case.worth for case in others)


def _numbers(values: Array) -> tuple[float, ...]:
    return tuple(values.tolist())


def _explanation(model: Model, state: Any, source: str, tallies: list[_Tally]) -> Explanation:
    q, covered = model.q_values([state])[0], coverage(model, [state])
    labels = model.action_labels.tolist()
    rows = np.asarray([state], dtype=np.float64)
    allowed = np.ones(len(q)) if model.recipe is None else model.recipe.allowed_in(rows, model.action_labels)[0]
    found, plans = [], _best_plans(model, state)
    best = int(best_actions(q[None])[0])
    for action in sorted(range(len(q)), key=lambda action: (action != best, -q[action])):
        tally = tallies[action]
        rest_worth = tally.rest_sum / tally.rest_weight if tally.rest_weight > 0 else 0.0
        found.append(
            ActionExplanation(
                action=labels[action],
                value=float(q[action]),
                support=float(covered.support[0, action]),
                log_mass=float(covered.log_mass[0, action]),
                n_taken=int(model.sums.counts[action]),
                is_left_out=labels[action] in model.left_out,
                cases=tuple(tally.heaviest),
                n_cases=tally.n_cases,
                rest_weight=tally.rest_weight,
                rest_worth=rest_worth,
                is_allowed=bool(allowed[action]),
                plan=plans[action],
            )
        )
    given = _numbers(np.asarray(state, dtype=np.float64))
    return Explanation(given, float(covered.distances[0]), source, tuple(found))


def _best_plans(model: Model, state: Any) -> list[tuple[Any, ...]]:
    """Return the decisions of the best plan that begins with each action; nothing for models of order 0."""
    if model.look_ahead is None:
        return [()] * len(model.action_labels)
    _, best = model.look_ahead.best(model.scaled([state]))
    labels = model.action_labels.tolist()
    return [tuple(labels[a] for a in model.plans.decisions(plan)) if plan >= 0 else () for plan in best[0].tolist()]


def _with_answer(model: Model, found: Explanation) -> Explanation:
    """Add what the model recommends; one that defers compares cautious values with that of current practice."""
    answer, q = model.predict([found.state]).tolist()[0], model.q_values([found.state])[0]
    if model.resamples is not None:
        found = replace(found, agreement=float(agreement(model, [found.state])[0]))
    if model.deferral is None:
        return replace(found, answer=answer)
    cautious = {label: float(value) for label, value in zip(model.action_labels.tolist(), q) if np.isfinite(value)}
    actions = tuple(replace(each, cautious_value=cautious.get(each.action)) for each in found.actions)
    return replace(found, actions=actions, answer=answer, as_now=float(q[-1]))


def _say_if_unexplained(model: Model, result: Explanation) -> None:
    """Warn if the cases do not add up to the value."""
    largest = float(np.abs(model.mdp.rewards).max()) / (1.0 - model.mdp.discount)
    for found in result.actions:
        off = abs(found.total_weight - 1.0) > _NEGLIGIBLE
        if model.settings.order == 1 and not off:
            continue  # lines and plans are not averages of cases
        if np.isfinite(found.value) and (off or abs(found.explained - found.value) > _NEGLIGIBLE * largest):
            warnings.warn(
                f"The cases do not make up the value of {found.action!r}: they weigh {found.total_weight:.6g} instead "
                f"of 1 and make {found.explained:.6g} instead of {found.value:.6g}. The log is not the one that the "
                f"model was fitted to, or the model has grown, shrunk or forgotten since.",
                KbrlWarning,
                stacklevel=3,
            )
            return
