"""The value of any state and action, from what was learnt at finitely many states.

Two functions, both the paper's.  With the samples: Q(s, a) = sum_i kappa_a(s, s_i) [r_i + discount V(s'_i)].
Without them: Q(s, a) = sum_i kappa-bar(s, rep i) Q-bar(rep i, a).  Where an action is not available, Q is -inf.
Paper: equations (kbrl_q), (kbsf_q) and (ikbsf_q).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import LARGEST_COORDINATE
from kbrl.data.names import UNNAMED, Source, row_by_name, state_rows
from kbrl.data.recipe import Recipe
from kbrl.data.scaling import Coordinates
from kbrl.mdp.dynamic_programming import TIE, best_actions
from kbrl.model import compiled
from kbrl.model.kernels import Kernel, KernelAt, blocks_of
from kbrl.model.sample_weights import SampleWeights

MAJORITY = 0.5  # of the weight of representative states
_FEW_POINTS = 16_000  # among more, the tree finds the nearest sooner


@dataclass(frozen=True, eq=False)
class RepQ:
    """Q from the representative states: a weighted mean of what is known at them."""

    weights: KernelAt
    rep_q: Floats  # (n_reps, n_actions), -inf where unavailable

    @cached_property
    def known(self) -> Booleans:
        """Where something is known, (n_reps, n_actions)."""
        return np.isfinite(self.rep_q)

    @cached_property
    def filled(self) -> Floats:
        """The values, with 0 where nothing is known, (n_reps, n_actions)."""
        return np.where(self.known, self.rep_q, 0.0)

    @cached_property
    def _all_known(self) -> bool:
        return bool(self.known.all())

    def __call__(self, states: Floats) -> Floats:
        """Return Q, (n_states, n_actions), of scaled states."""
        if self._all_known:
            return self.weights.mixed(states, self.filled)
        return np.concatenate([self._where_known(states[rows]) for rows in blocks_of(len(states), len(self.rep_q))])

    def decider(self) -> Callable[[Floats], int] | None:
        """Return the compiled choice of the best action in one scaled state, if the kernel has one.

        Where kernels are dense, it knows actions that are available everywhere or nowhere.
        """
        at, kind = self.weights, self.weights.kind
        if kind is None:
            return None
        if at.kernel.neighbors is not None:
            return _nearest_decider(at, self.rep_q, kind)
        if not (self.known.all(axis=0) | ~self.known.any(axis=0)).all():
            return None
        actions, columns, widths = np.flatnonzero(self.known.any(axis=0)), at.columns, at.inverse_widths
        q = np.ascontiguousarray(self.rep_q.T[actions])
        return lambda state: int(actions[compiled.decide(state, columns, widths, q, kind)])

    def _where_known(self, states: Floats) -> Floats:
        """Share the weight of representative states that know nothing of an action among those that do."""
        weights = self.weights.weights(states)
        mass = weights @ self.known.astype(np.float64)
        total = weights @ self.filled
        return np.divide(total, mass, out=np.full_like(total, -np.inf), where=mass > 0)


def _nearest_decider(at: KernelAt, rep_q: Floats, kind: compiled.Kind) -> Callable[[Floats], int]:
    """Prepare the decision by the points that count: found among all if they are few, else by the tree.

    The tree takes some 15 microseconds for one state, however few the points are.  Points that are equally near are
    left to it, so that a decision does not depend on how it was asked for.  Where each point has a width of
    its own, no tree can tell which have the largest kernel values.
    """
    columns, widths, n_neighbors = at.columns, at.inverse_widths, at.n_neighbors
    if at.widths_differ:
        return lambda state: int(compiled.decide_in_widths(state, columns, n_neighbors, widths, rep_q, kind))

    def by_tree(state: Floats) -> int:
        distances, places = at.nearest_few(state[None], n_neighbors)
        return int(compiled.decide_near(distances[0], places[0], widths, rep_q, kind))

    def by_all(state: Floats) -> int:
        action = int(compiled.decide_nearest(state, columns, n_neighbors, widths, rep_q, kind))
        return action if action >= 0 else by_tree(state)

    return by_all if len(at.points) <= _FEW_POINTS else by_tree


@dataclass(frozen=True, eq=False)
class SampleQ:
    """Q from the samples: for each action the kernel at its states, and what each of its transitions is worth."""

    samples: list[SampleWeights | None]  # one per action; None where it was never tried
    worths: list[Floats]  # r_i + discount V(s'_i)

    @classmethod
    def of(cls, kernel: Kernel, states: Floats, worths: Floats, by_action: list[Integers]) -> SampleQ:
        """Split scaled sample states and their worths by action."""
        at = [SampleWeights(kernel, states[rows]) if len(rows) else None for rows in by_action]
        return cls(at, [worths[rows] for rows in by_action])

    def __call__(self, states: Floats) -> Floats:
        """Return Q, (n_states, n_actions), of scaled states."""
        q = np.full((len(states), len(self.samples)), -np.inf)
        for action, (samples, worths) in enumerate(zip(self.samples, self.worths)):
            if samples is not None:
                for rows in blocks_of(len(states), len(worths)):
                    q[rows, action] = samples.weights(states[rows]) @ worths
        return q


@dataclass(frozen=True, eq=False)
class DeferringQ:
    """Q of a model that defers, (n_states, n_actions + 1): the last column is "as now".

    Where a representative state does not offer an action, it counts as "as now" there: no gain, and no loss.
    An action with less support than ``cases`` in the state itself is not available.  It is below "as now" if
    representative states with half of the weight or more do not prefer it; of equals, "as now" is chosen.
    """

    q: Callable[[Floats], Floats]  # of scaled states, (n_states, n_actions + 1)
    support: Callable[[Floats], Floats]  # of scaled states, (n_states, n_actions)
    cases: float
    votes: Callable[[Floats], Floats] | None = None  # of scaled states: the weight of those that prefer each action

    @classmethod
    def from_reps(
        cls, weights: KernelAt, rep_q: Floats, support: Callable[[Floats], Floats], cases: float
    ) -> DeferringQ:
        """Mix the values of the representative states, (n_reps, n_actions + 1), -inf where not offered."""
        filled = RepQ(weights, np.where(np.isfinite(rep_q), rep_q, rep_q[:, -1:]))
        return cls(filled, support, cases, RepQ(weights, (rep_q[:, :-1] > rep_q[:, -1:]).astype(np.float64)))

    def __call__(self, states: Floats) -> Floats:
        """Return Q, (n_states, n_actions + 1), of scaled states."""
        q = self.q(states)
        actions, now = q[:, :-1], q[:, -1:]
        close = 4 * TIE * np.abs(q, where=np.isfinite(q), out=np.zeros(q.shape)).max(axis=1, keepdims=True)
        is_preferred = actions > now + close
        if self.votes is not None:
            is_preferred &= self.votes(states) > MAJORITY
        actions[:] = np.where(is_preferred, actions, np.minimum(actions, now - close))
        actions[~(self.support(states) >= self.cases)] = -np.inf
        return q


@dataclass(frozen=True, eq=False)
class AllowedAt:
    """Which answers the rules of a recipe allow in which scaled states; "as now" is always allowed."""

    recipe: Recipe
    coordinates: Coordinates
    action_labels: Array
    defers: bool = False  # whether "as now" is one more answer

    def __call__(self, states: Floats) -> Booleans:
        """Return which answers are allowed in scaled states, (n_states, n_answers)."""
        allowed = self.recipe.allowed_in(self.coordinates.back(states), self.action_labels)
        return np.column_stack([allowed, np.ones((len(states), int(self.defers)), dtype=bool)])


@dataclass(frozen=True, eq=False)
class AllowedQ:
    """Q that is -inf where a rule does not allow the action in the state itself."""

    q: Callable[[Floats], Floats]
    allowed: AllowedAt

    def __call__(self, states: Floats) -> Floats:
        """Return Q, (n_states, n_actions), of scaled states."""
        return np.where(self.allowed(states), self.q(states), -np.inf)


def allowed_pairs(available: Booleans, recipe: Recipe, reps: Floats, labels: Array) -> Booleans:
    """Return which actions are available at which representative states, (n_actions, n_reps), where allowed.

    Where none of the available actions is allowed, all of them stay: a maximum must be over something.
    """
    allowed = available & recipe.allowed_in(reps, labels).T
    return np.where(allowed.any(axis=0), allowed, available)


def best_values(q: Callable[[Floats], Floats], states: Floats) -> Floats:
    """Return the largest Q of each scaled state, (n_states,); of all actions where none is allowed."""
    values = q(states).max(axis=1)
    none = np.isneginf(values)
    if isinstance(q, AllowedQ) and none.any():
        values[none] = q.q(states[none]).max(axis=1)
    return np.asarray(values)


class GreedyPolicy:
    """The best action by a Q function of scaled states; faster for one state if the Q function has a decider."""

    def __init__(
        self,
        q: Callable[[Floats], Floats],
        coordinates: Coordinates,
        action_labels: Array,
        source: Source = UNNAMED,
    ) -> None:
        self.q, self.coordinates, self.action_labels, self.source = q, coordinates, action_labels, source

    @cached_property
    def _decide(self) -> Callable[[Floats], int]:
        decide = self.q.decider() if isinstance(self.q, RepQ) else None
        return decide or self._best

    def _best(self, state: Floats) -> int:
        q = self.q(state[None])
        place = int(compiled.first_best(q[0]))
        return place if q[0, place] > -np.inf else int(best_actions(q, where_none=None)[0])  # which refuses

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what other processes are to compile for themselves."""
        return {name: value for name, value in vars(self).items() if name != "_decide"}

    def __call__(self, states: Any) -> Array:
        """Return the label of the best action for each state, (n_states,)."""
        rows = state_rows(states, self.source, self.coordinates.n_dims)
        return self.action_labels[best_actions(self.q(self.coordinates.of(rows)), where_none=None)]

    def act(self, state: Any) -> Any:
        """Return the label of the best action for one state, (n_dims,)."""
        if not isinstance(state, np.ndarray):
            state = row_by_name(state, self.source)
        row = np.asarray(state, dtype=np.float64)
        if row.shape == self.coordinates.scale.shape:
            row = self.coordinates.shifted(row) / self.coordinates.scale
            if np.abs(row).max() <= LARGEST_COORDINATE:  # false for NaN, too
                return self.action_labels[self._decide(row)]
        row = self.coordinates.of(state_rows([state], self.source, self.coordinates.n_dims))[0]  # says what is wrong
        return self.action_labels[self._decide(row)]
