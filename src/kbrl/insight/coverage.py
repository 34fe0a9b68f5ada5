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
from scipy.special import logsumexp

from kbrl.arrays import Floats, Integers
from kbrl.data.transitions import join
from kbrl.model.kernels import blocks
from kbrl.model.model import as_model
from kbrl.model.support import BLOCK_ENTRIES, support_by_reps, support_by_samples

_SAFE = 1e-200  # above this, underflow does not matter


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
    log_mass = statistics.log_mass()
    distances, nearest = basis.rep_weights.tree.query(rows)
    parts = blocks(len(rows), max(1, BLOCK_ENTRIES // basis.n_reps))
    return Coverage(
        distances=np.asarray(distances, dtype=np.float64),
        support=support_by_samples(basis, join(model.samples), rows)
        if model.samples
        else support_by_reps(basis, statistics, rows),
        log_mass=np.concatenate([_log_mean(basis.rep_weights.weights(rows[part]), log_mass) for part in parts]),
        nearest=nearest.astype(np.intp),
    )


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
