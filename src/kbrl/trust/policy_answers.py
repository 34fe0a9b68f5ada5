"""What a policy would do, as pairs of a row and an action with a probability.

A policy is a Model, a learner, a committee, or any function from states, (n, n_dims), to labels, (n,), or to
probabilities, (n, n_actions).  The label "as now", or that of a model that defers, stands for what was done: the logged
action of that moment counts.  If the log has an action of that name, it means that action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats, Integers
from kbrl.checks import refuse_rows
from kbrl.data.names import UNNAMED, Source, find_label, unite_labels
from kbrl.mdp.deferral import AS_NOW

DEFERS = -1  # in the place of an action
_SUM_OF_ONE = 1e-6


@dataclass(frozen=True, eq=False)
class Answers:
    """Pairs of a state and an action that has a probability above 0."""

    rows: Integers  # (k,): of the states asked about
    actions: Integers  # (k,): places among the labels, or DEFERS
    weights: Floats  # (k,)

    def are_certain(self, n_states: int) -> bool:
        """Whether each of so many states has one action, with a probability of 1."""
        return len(self.rows) == n_states and bool((self.weights == 1.0).all())

    def at(self, rows: Integers) -> Answers:
        """Return the same answers for states that are some rows of a larger set, (n,)."""
        return replace(self, rows=rows[self.rows])

    def drawn(self, luck: Floats) -> Integers:
        """Return one action per state, drawn by its probability; luck, (n,), is between 0 and 1."""
        if len(self.rows) == len(luck):  # one each
            return self.actions.copy()
        total = np.cumsum(self.weights)
        before = (total - self.weights)[np.searchsorted(self.rows, np.arange(len(luck)))]
        places = np.searchsorted(total, before + luck, side="right")
        last = np.searchsorted(self.rows, np.arange(len(luck)), side="right") - 1
        return np.asarray(self.actions[np.minimum(places, last)])


@dataclass(frozen=True, eq=False)
class PolicyAnswers:
    """A policy whose answers are places among the labels of a log."""

    decide: Callable[[Floats], Any]
    labels: Array  # (n_actions,)
    as_now: str = AS_NOW  # the answer that leaves a decision to people
    places: Integers | None = None  # (n_dims,): of the policy's variables among those of the log; None: the same

    def __call__(self, states: Floats) -> Answers:
        """Return what the policy would do in states in the units of the data, (n, n_dims)."""
        if not len(states):
            return Answers(np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), np.empty(0))
        found = np.asarray(self.decide(states if self.places is None else states[:, self.places]))
        if found.shape == (len(states), len(self.labels)) and found.dtype.kind in "fiub":
            return _of_probabilities(found.astype(np.float64))
        if found.shape != (len(states),):
            raise ValueError(
                f"A policy must return one label per state, shape {(len(states),)}, or one probability per state and "
                f"action, shape {(len(states), len(self.labels))} for the actions {self.labels.tolist()}, but the "
                f"shape of its answer is {found.shape}. If it knows actions that are not in this log, return labels, "
                f"or name all actions in the log: Transitions(..., action_labels=[...])."
            )
        rows = np.arange(len(states))
        return Answers(rows, self._places(found), np.ones(len(states)))

    def _places(self, found: Array) -> Integers:
        different, inverse = _different(found)
        places = {label: place for place, label in enumerate(self.labels.tolist())}
        known = np.array([find_label(label, places) for label in different], dtype=np.intp)
        defers = (known < 0) & np.array([isinstance(label, str) and label == self.as_now for label in different])
        unknown = (known < 0) & ~defers
        if unknown.any():
            refuse_rows(
                unknown[inverse],
                found,
                "answers of the policy",
                f"be among the actions of the log, {self.labels.tolist()}, or {self.as_now!r}",
                "Nothing is known of other actions; name them in the log to have them count as never tried: "
                "Transitions(..., action_labels=[...]).",
            )
        return np.where(defers, DEFERS, known)[inverse].astype(np.intp)


class Remembered:
    """The answers of a policy, to be given once more in the same order: looking ahead takes a millisecond each.

    One or two bytes per state are kept.  Probabilities are not, so a policy that gives them is asked again.
    """

    def __init__(self) -> None:
        self._kept: list[Array | None] = []

    def told(self, policy: PolicyAnswers) -> Callable[[Floats], Answers]:
        """Return the policy, whose answers are kept from now on."""

        def answer(states: Floats) -> Answers:
            answers = policy(states)
            kind = np.int8 if len(policy.labels) <= np.iinfo(np.int8).max else np.int32
            self._kept.append(answers.actions.astype(kind) if answers.are_certain(len(states)) else None)
            return answers

        return answer

    def again(self, policy: PolicyAnswers) -> Callable[[Floats], Answers]:
        """Return a function that gives the answers again, and asks the policy for what was not kept."""
        kept = iter(self._kept)

        def answer(states: Floats) -> Answers:
            actions = next(kept, None)
            if actions is None or len(actions) != len(states):
                return policy(states)
            return Answers(np.arange(len(states)), actions.astype(np.intp), np.ones(len(states)))

        return answer


def _different(found: Array) -> tuple[list[Any], Integers]:
    """Return the different labels, and the place of each answer among them; numbers and words may be mixed."""
    if found.dtype.kind != "O":
        values, inverse = np.unique(found, return_inverse=True)
        return values.tolist(), inverse
    places = {label: place for place, label in enumerate(dict.fromkeys(found.tolist()))}
    return list(places), np.array([places[label] for label in found.tolist()], dtype=np.intp)


def _of_probabilities(table: Floats) -> Answers:
    bad = ~((table >= 0).all(axis=1) & (np.abs(table.sum(axis=1) - 1.0) <= _SUM_OF_ONE))
    if bad.any():
        refuse_rows(bad, table, "probabilities of the policy", "not be below 0 and sum to 1", "Divide by their sum.")
    rows, actions = np.nonzero(table)
    return Answers(rows.astype(np.intp), actions.astype(np.intp), table[rows, actions])


def as_answers(policy: Any, labels: Array, source: Source) -> PolicyAnswers:
    """Return a policy with its answers as places among labels, for states in the order of a source.

    A model whose state variables are others than those of the source is refused.
    """
    decide = getattr(policy, "predict", policy)
    if not callable(decide):
        raise TypeError(
            f"A policy is a Model, a learner that has learnt, or a function from states to labels or probabilities, "
            f"but it is {policy!r}."
        )
    deferral = getattr(getattr(policy, "model_", policy), "deferral", None)
    own = getattr(getattr(policy, "model_", policy), "source", getattr(policy, "source_", UNNAMED))
    places = own.places_in(source) if isinstance(own, Source) else None
    return PolicyAnswers(decide, labels, AS_NOW if deferral is None else deferral.label, places)


def labels_with(labels: Array, policy: Any) -> Array:
    """Return the labels of a log, and those that a policy knows beside them; these count as never tried."""
    known = getattr(policy, "action_labels", getattr(policy, "action_labels_", None))
    if not isinstance(known, np.ndarray) or known.ndim != 1:
        return labels
    return unite_labels([labels, known])


def discount_of(policy: Any, discount: Any) -> Any:
    """Return the discount that was given, or else that of the policy, or of the learner that it is made of."""
    return shared_discount({"policy": policy}, discount)


def shared_discount(policies: Mapping[str, Any], discount: Any) -> Any:
    """Return the discount that was given, not checked, or else the one that policies have; refuse different ones."""
    if discount is not None:
        return discount
    own = {name: _own_discount(policy) for name, policy in policies.items()}
    known = {name: value for name, value in own.items() if value is not None}
    if not known:
        raise ValueError(
            "A discount is needed, and this policy has none of its own. Pass discount=0.99, say: the value of a "
            "reward of 1 one step later."
        )
    if len(set(known.values())) > 1:
        said = ", ".join(f"{name} {value:g}" for name, value in known.items())
        raise ValueError(
            f"Policies are judged with one discount, but these have learnt with different ones: {said}. Pass "
            f"discount=: the one that counts for you."
        )
    return next(iter(known.values()))


def _own_discount(policy: Any) -> float | None:
    sources = (policy, *(getattr(policy, name, None) for name in ("model_", "learner", "model")))
    found: list[Any] = [getattr(source, "discount", None) for source in sources]
    return next((float(value) for value in found if _is_number(value)), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
