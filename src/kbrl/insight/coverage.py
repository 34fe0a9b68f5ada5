"""How well data cover a state: how far the nearest representative state is, and how many cases of each action are near.

An answer far from everything seen is a guess, whatever its value.  Each value is a weighted mean over logged cases, and
Kish's 1 / sum_t w_t^2 is the number of cases that it rests on: n equal weights make n.  Support is a lower bound of
this number that needs no data.  With n[a, i] = (sum_t k)^2 / sum_t k^2 at representative state i,

    w_t = sum_i kappa-bar_i kappa_a(rep i, s_t), and squares are convex, so
    sum_t w_t^2 <= sum_i kappa-bar_i sum_t kappa_a(rep i, s_t)^2 = sum_i kappa-bar_i / n[a, i].

It falls to 0 outside of the data.  The kernel mass, the paper's w (Algorithm 2), is not a number of cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.special import logsumexp

from kbrl.arrays import Floats, Integers
from kbrl.data.transitions import join
from kbrl.model.basis import Basis
from kbrl.model.kernels import blocks, nearest_points
from kbrl.model.model import Model, as_model
from kbrl.model.sample_weights import SampleWeights

_BLOCK_ENTRIES = 2**21  # of weights, so that memory does not grow with the number of states
_SAFE = 1e-200  # above this, what underflowed cannot matter
_NEAR_REPS = 16  # representative states by which the distance to the nearest case is judged
_ROUNDING = 1e-12  # of distances, and of scaling a state and back, relative to them


@dataclass(frozen=True, eq=False)
class Coverage:
    """How well the data behind a model cover some states, one row per state.

    Distances are Euclidean, in units of the model's scale (a standard deviation of each variable, say), whatever the
    widths.  ``support`` is at most the number of logged cases of the action that its value rests on, 1 / sum_t w_t^2
    with the weights of `explain`, and equal to it where the value comes from one representative state or from samples.
    It falls to 0 where no case of the action is near: at twice the `reach`, or a little beyond where answers come from
    representative states, as distances to cases are then only known roughly.  NaN: not known (files of format 1).
    ``log_mass`` is log sum_i kappa-bar(s, rep i) w[a, i], where w[a, i] is the sum of k(rep i, s_t) over the action's
    transitions (of those kept, where the kernel is truncated); -inf where nothing is known.
    """

    distances: Floats  # (n,): to the nearest representative state
    support: Floats  # (n, n_actions): the number of logged cases that the value of each action rests on
    log_mass: Floats  # (n, n_actions)
    nearest: Integers  # (n,): the place of that representative state in model.reps_


def coverage(model: Any, states: Any) -> Coverage:
    """Return how well the data behind a model cover states, (n, n_dims), in the units of the data.

    ``model`` is a `Model`, or a KBSF that has learnt one.  kappa-bar is as the model uses it: all weight on the nearest
    representative state for hard aggregation, and weights below exp(-707) of the largest are zero.

    Three cases of "wait" and one of "treat" in state 0; none near state 100.

    >>> from kbrl import KBSF, Transitions, coverage
    >>> states = [[0.0], [0.0], [0.0], [0.0], [1.0]]
    >>> log = Transitions(states, ["wait", "wait", "wait", "treat", "treat"], [0.0, 0.0, 0.0, 1.0, 0.0], states)
    >>> model = KBSF(reps=[[0.0], [1.0]], min_cases=1).fit(log)
    >>> coverage(model, [[0.0], [100.0]]).support.round(2).tolist()
    [[1.0, 3.0], [0.0, 0.0]]
    """
    model = as_model(model)
    rows, basis, statistics = model.scaled(states), model.basis, model.sums
    log_mass, cases = statistics.log_mass(), statistics.effective_cases()
    distances, nearest = basis.rep_weights.tree.query(rows)
    masses, numbers = [], []
    for block in blocks(len(rows), max(1, _BLOCK_ENTRIES // basis.n_reps)):
        weights = basis.rep_weights.weights(rows[block])
        masses.append(_log_mean(weights, log_mass))
        numbers.append(_number(weights, cases))
    return Coverage(
        distances=np.asarray(distances, dtype=np.float64),
        support=_support_by_samples(model, rows)
        if model.samples
        else np.concatenate(numbers) * _inside_by_reps(model, rows),
        log_mass=np.concatenate(masses),
        nearest=nearest.astype(np.intp),
    )


def _number(weights: Any, cases: Floats) -> Floats:
    """Return 1 / sum_i weights[t, i] / cases[a, i], (n, n_actions).

    Representative states that know nothing of an action share their weight among the others, as in Q.
    """
    known = cases != 0
    inverse = np.divide(1.0, cases, out=np.zeros_like(cases), where=known)
    mass, total = weights @ known.T.astype(np.float64), weights @ inverse.T
    return np.divide(mass, total, out=np.zeros_like(mass), where=total != 0)


def _inside_by_reps(model: Model, rows: Floats) -> Floats:
    """Return how far scaled states are within the data of each action, (n, n_actions), as the sums tell."""
    basis, near = model.basis, model.sums.nearest_distances()
    distances = np.stack([_distances_by_reps(basis, of_action, rows) for of_action in near], axis=1)
    rounding = _ROUNDING * np.abs(rows).max(axis=1, keepdims=True)
    slack = _usual(near.min(axis=0), reach(basis)) + rounding
    return inside(basis, distances, slack)


def _support_by_samples(model: Model, rows: Floats) -> Floats:
    """Return the support at scaled states, (n, n_actions), where answers come from samples: all weights are known."""
    log, basis = join(model.samples), model.basis
    states, support = basis.coordinates.of(log.states), np.zeros((len(rows), basis.n_actions))
    distances = np.full(support.shape, np.inf)
    for action, of_action in enumerate(log.by_action()):
        if len(of_action):
            samples = SampleWeights(basis.sample_kernel, states[of_action])
            for block in blocks(len(rows), max(1, _BLOCK_ENTRIES // len(samples))):
                weights = samples.weights(rows[block])
                support[block, action] = 1.0 / np.asarray((weights * weights).sum(axis=1))
            tree, norm = cKDTree(samples.states), basis.sample_kernel.norm
            distances[:, action] = nearest_points(tree, rows, [1], norm)[0][:, 0]
    return support * inside(basis, distances)


def _distances_by_reps(basis: Basis, near: Floats, rows: Floats) -> Floats:
    """Return how far the nearest case of an action can be at most from scaled states, (n,); inf where there is none.

    No farther than from any representative state, and on from there: ``near``, (n_reps,), are its distances to them.
    """
    known = np.flatnonzero(np.isfinite(near))
    if not len(known):
        return np.full(len(rows), np.inf)
    tree = basis.rep_weights.tree if len(known) == len(near) else cKDTree(basis.reps[known])
    ranks = [*range(1, min(_NEAR_REPS, len(known)) + 1)]
    distances, places = nearest_points(tree, rows, ranks, basis.sample_kernel.norm)
    return np.asarray((distances + near[known[places]]).min(axis=1))


def _usual(near: Floats, length: float) -> float:
    """Return how far a case usually is from a representative state that has one within a length."""
    within = near[near <= length]
    return float(np.median(within)) if len(within) else 0.0


def inside(basis: Basis, distances: Floats, slack: Any = 0.0) -> Floats:
    """Return how far states are within the data of each action, (n, n_actions), by the distances to their cases.

    A state is within the data if a case of any action is within the `reach`, or a ``slack`` beyond where distances are
    bounds.  The action was taken there if its nearest case is hardly farther: by no more than half the gap between
    representative states, so that it was not only taken at the next one, or by no more than a width.
    """
    to_any = distances.min(axis=1, keepdims=True, initial=np.inf)
    farther = np.subtract(distances, to_any, out=np.full_like(distances, np.inf), where=np.isfinite(distances))
    own = max(float(basis.sample_kernel.width), 0.5 * _gap(basis)) * (1 - _ROUNDING)
    return np.minimum(fade(to_any, reach(basis) + slack), fade(farther, own))


def reach(basis: Basis) -> float:
    """Return how far from all cases a state may be and still be within the data, in scaled units."""
    return max(float(basis.sample_kernel.width), _gap(basis))


def _gap(basis: Basis) -> float:
    """Return the gap between neighbouring representative states: the upper quartile, which no outlier stretches."""
    if basis.n_reps == 1:
        return 0.0
    gaps = nearest_points(basis.rep_weights.tree, basis.reps, [2], basis.sample_kernel.norm)[0]
    return float(np.quantile(gaps, 0.75))


def fade(distances: Floats, length: Any) -> Floats:
    """Return 1 up to a length, and less beyond: 0 from twice of it on."""
    return np.clip(2.0 - distances / length, 0.0, 1.0)


def _log_mean(weights: Any, log_mass: Floats) -> Floats:
    """Return log sum_i weights[t, i] exp(log_mass[a, i]), (n, n_actions), by a product where that cannot underflow."""
    largest = log_mass.max(axis=1)
    reference = np.where(np.isfinite(largest), largest, 0.0)  # an action that was never taken has no mass at all
    means = weights @ np.exp(log_mass - reference[:, None]).T
    with np.errstate(divide="ignore"):
        result = np.log(means) + reference
    for action in range(len(log_mass)):
        tiny = means[:, action] < _SAFE
        if tiny.any() and np.isfinite(largest[action]):
            result[tiny, action] = _log_sum(weights[np.flatnonzero(tiny)], log_mass[action])
    return result


def _log_sum(weights: Any, log_mass: Floats) -> Floats:
    """The same for one action, in the log domain throughout."""
    with np.errstate(divide="ignore"):
        terms = np.log(weights.toarray() if sparse.issparse(weights) else weights) + log_mass
    return np.asarray(logsumexp(terms, axis=1))
