"""How much each logged case weighs in a value: kernels all the way, so that every value is a weighted mean of cases.

Without samples, Q(s, a) = sum_i kappa-bar(s, rep i) Q-bar(i, a) and Q-bar(i, a) = sum_t kappa_a(rep i, s_t) worth_t, so
case t weighs sum_i kappa-bar(s, rep i) kappa_a(rep i, s_t), where worth_t = r_t + discount sum_j kappa-bar(s'_t, rep j)
V-bar_j.  With samples it weighs kappa_a(s, s_t), and V(s') is the largest of Q.  The weights of an action sum to one.
Values of order 1 come from lines and plans: there the weights say which cases the lines at the state come from.
Paper: equations (kbsf_q) and (ikbsf_q), with Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.sketch import Hashes, row_hashes
from kbrl.data.transitions import Transitions
from kbrl.lines.cells import nearest_cells
from kbrl.lines.local_lines import cell_weights
from kbrl.lines.moments import LineSums
from kbrl.lines.step_loops import blended
from kbrl.model import compiled
from kbrl.model.compiled import FARTHEST
from kbrl.model.kernels import Basis, blocks, distances_between, log_ratio
from kbrl.model.model import Model
from kbrl.model.nearest_samples import Neighborhoods
from kbrl.model.q_functions import RepQ, best_values
from kbrl.model.sample_weights import SampleWeights
from kbrl.model.sums import KernelSums

Weigh = Callable[[Transitions], Floats]  # the weights of transitions, (n,), each in the value of its own action
_SAME = 1e-12  # relative difference of two ways to compute one distance


class Outcomes(NamedTuple):
    """Kept transitions of one action: a model with truncated kernels knows all of them but their states."""

    weights: Floats  # (n,)
    rewards: Floats  # (n,)
    next_states: Floats  # (n, n_dims), in the units of the data
    terminals: Booleans  # (n,)
    worths: Floats  # (n,)


def weigher(model: Model, state: Floats) -> Weigh:
    """Return a function that weighs the transitions of a log in the values of a scaled state, (n_dims,), by chunks.

    A model that answers from its samples weighs a log as a whole, so it needs the whole log at once.
    """
    statistics = model.sums
    if model.window is not None:
        raise ValueError(
            f"The cases behind an answer are single steps, but this model has learnt windows of {model.window} steps. "
            f"Fit without plan.window (--plan-window) to see cases."
        )
    if isinstance(statistics, LineSums):
        return _LineWeights(model, statistics, state)
    if model.settings.variant.q_function == "samples":
        return lambda log: _sample_weights(model, state, log)
    if isinstance(statistics, Neighborhoods):
        return _NeighborWeights(statistics, _shares(model, state))
    if statistics.basis.sample_kernel.neighbors is not None:
        raise ValueError(
            "Cases cannot be weighed where neighbours were counted in each chunk (neighborhoods='per_chunk'), as the "
            "chunks are forgotten. Fit with Variant(neighborhoods='exact')."
        )
    return _SumWeights(statistics, _shares(model, state))


def worths(model: Model, log: Transitions) -> Floats:
    """Return r + discount V(s') of transitions, (n,), with V as the model's values have it; V is 0 after an end."""
    basis, solution = model.basis, model.solution
    next_states = basis.coordinates.of(log.next_states)
    if model.settings.order == 1:
        return log.rewards + model.fades(log) * best_values(model.q_function, next_states)
    if model.settings.variant.q_function == "samples":
        values = best_values(model.where_allowed(RepQ(basis.rep_weights, solution.q)), next_states)
        return log.rewards + model.fades(log) * values
    return _worths(basis, log.rewards, next_states, basis.losses(log), solution.values, model.step_discount)


def outcomes(model: Model, state: Floats, action: int) -> Outcomes | None:
    """Return the kept transitions that weigh in an action's value at a scaled state; None if the model keeps none.

    Those with the same outcome (reward, next state, end) count as one, as nothing tells them apart.
    """
    statistics = model.sums
    if not isinstance(statistics, Neighborhoods) or model.settings.variant.q_function == "samples":
        return None
    weights = statistics.weights()[action] * _shares(model, state)[action][:, None]
    kept = weights > 0
    everything = np.column_stack(
        [statistics.next_states[action][kept], statistics.terminals[action][kept], statistics.rewards[action][kept]]
    )
    different, places = np.unique(everything, axis=0, return_inverse=True)
    next_states, lost, rewards = different[:, :-2], different[:, -2], different[:, -1]
    found = _worths(statistics.basis, rewards, next_states, lost, model.solution.values, model.step_discount)
    total = np.bincount(places.ravel(), weights=weights[kept], minlength=len(different))
    following = statistics.basis.coordinates.back(next_states)
    return Outcomes(total.astype(np.float64), rewards, following, lost >= 1, found)


def _shares(model: Model, state: Floats) -> Floats:
    """Return how much each representative state counts in Q(s, a), (n_actions, n_reps): rows sum to one or zero."""
    weights = model.basis.rep_weights.weights(state[None])
    row = (weights.toarray() if sparse.issparse(weights) else weights)[0]
    known = np.isfinite(model.rep_q).T * row
    mass = known.sum(axis=1, keepdims=True)
    return np.divide(known, mass, out=np.zeros_like(known), where=mass > 0)


def _worths(
    basis: Basis, rewards: Floats, next_states: Floats, terminals: Booleans | Floats, values: Floats, discount: float
) -> Floats:
    ahead = [basis.to_reps(next_states[rows], terminals[rows]) @ values for rows in blocks(len(rewards))]
    return rewards + discount * np.concatenate([np.zeros(0), *ahead])


def _sample_weights(model: Model, state: Floats, log: Transitions) -> Floats:
    basis = model.basis
    states, result = basis.coordinates.of(log.states), np.zeros(len(log))
    for rows in log.by_action():
        if len(rows):
            weights = SampleWeights(basis.sample_kernel, states[rows]).weights(state[None])
            result[rows] = (weights.toarray() if sparse.issparse(weights) else weights)[0]
    return result


class _LineWeights:
    """Weights of order 1: what a case counts in the lines that are mixed at the state, before their slopes."""

    def __init__(self, model: Model, sums: LineSums, state: Floats) -> None:
        self._model, self._columns = model, np.ascontiguousarray(model.basis.reps.T)
        self._by_cell = np.zeros(sums.cases.shape)
        for action in model.plans.actions:
            for rep, share in zip(*blended(state, int(action), model.plans.world)):
                weights = cell_weights(sums, int(action), int(rep), model.settings.sample_neighbors)
                self._by_cell[action] += share * weights

    def __call__(self, log: Transitions) -> Floats:
        cells = nearest_cells(self._model.coordinates.of(log.states), self._columns)
        return self._by_cell[log.action_indices, cells]


class _SumWeights:
    """Weights from dense sums: they hold the normaliser of every representative state, so that one pass is enough."""

    def __init__(self, statistics: KernelSums, shares: Floats) -> None:
        weight = statistics.weight
        self._basis = statistics.basis
        self._nearest = np.minimum(statistics.nearest, FARTHEST)
        self._factors = np.divide(shares, weight, out=np.zeros_like(shares), where=weight > 0)

    def __call__(self, log: Transitions) -> Floats:
        result = np.zeros(len(log))
        for action, (rows, samples) in enumerate(zip(log.by_action(), self._basis.by_action(log))):
            for block in blocks(len(rows)):
                result[rows[block]] = self._values(samples.states[block], action) @ self._factors[action]
        return result

    def _values(self, states: Floats, action: int) -> Floats:
        """Return k(rep i, s_t) relative to the nearest sample of the sums, (n, n_reps)."""
        kernel = self._basis.samples_at_reps
        if kernel.kind is None:
            z = kernel.in_widths(states)
        else:  # the same bits as when the sums were made
            z, ignored = np.empty((len(states), self._basis.n_reps)), np.full(self._basis.n_reps, np.inf)
            compiled.scaled_distances(states, kernel.columns, kernel.inverse_widths, z, ignored)
        # No sample of the sums is nearer than the nearest; one of another log may be, and must not overflow.
        return np.exp(np.minimum(log_ratio(z, self._nearest[action], kernel.kernel.profile), 0.0))


class _NeighborWeights:
    """Weights from kept neighbours: a row of the log is one of them if its outcome and its distance are the same."""

    def __init__(self, statistics: Neighborhoods, shares: Floats) -> None:
        self._basis = statistics.basis
        weights = statistics.weights() * shares[:, :, None]
        self._kept = [_Kept(statistics, action, weights[action]) for action in range(self._basis.n_actions)]

    def __call__(self, log: Transitions) -> Floats:
        result = np.zeros(len(log))
        for kept, rows, samples in zip(self._kept, log.by_action(), self._basis.by_action(log)):
            hashes = row_hashes([*samples.next_states.T, samples.terminals, samples.rewards])
            found = np.flatnonzero(np.isin(hashes, kept.hashes, kind="sort"))
            if len(found):
                result[rows[found]] = kept.weigh(samples.states[found], hashes[found], self._basis.reps)
        return result


class _Kept:
    """The kept transitions of one action that weigh anything, each with the representative state it is kept for.

    Each is found in a log as often as it was kept, and no more: others with its outcome may be as far away but for
    rounding, and were not kept.
    """

    def __init__(self, statistics: Neighborhoods, action: int, weights: Floats) -> None:
        kept = weights > 0
        self._left = statistics.multiplicities[action][kept].astype(np.intp)  # to be found, of those that are the same
        self._weights = weights[kept] / self._left
        self._distances = statistics.distances[action][kept]
        self._reps = np.nonzero(kept)[0]
        self._norm = statistics.basis.sample_kernel.norm
        outcome = [*statistics.next_states[action][kept].T, statistics.terminals[action][kept]]
        self.hashes = row_hashes([*outcome, statistics.rewards[action][kept]])

    def weigh(self, states: Floats, hashes: Hashes, reps: Floats) -> Floats:
        """Return the weights of scaled states with these outcomes, and mark them as found."""
        result = np.zeros(len(states))
        order = np.argsort(hashes, kind="stable")
        starts, ends = (np.searchsorted(hashes[order], self.hashes, side=side) for side in ("left", "right"))
        for pair in _pairs(self._reps, self.hashes):
            rows = order[starts[pair[0]] : ends[pair[0]]]
            if len(rows):
                distances = distances_between(states[rows], reps[self._reps[pair[:1]]], self._norm)[:, 0]
                for kept in pair:
                    gaps = np.abs(distances - self._distances[kept])
                    same = np.flatnonzero(gaps <= _SAME * self._distances[kept])
                    found = same[np.argsort(gaps[same], kind="stable")][: self._left[kept]]
                    result[rows[found]] += self._weights[kept]
                    self._left[kept] -= len(found)
                    distances[found] = np.inf  # is one of the kept, and no other
        return result


def _pairs(reps: Integers, hashes: Hashes) -> list[Integers]:
    """Return the places of kept transitions in groups with the same representative state and the same outcome."""
    order = np.lexsort([hashes, reps])
    is_new = (np.diff(reps[order]) != 0) | (hashes[order][1:] != hashes[order][:-1])
    return np.split(order, 1 + np.flatnonzero(is_new))
