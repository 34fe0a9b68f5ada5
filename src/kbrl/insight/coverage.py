"""How well data cover a state: how far the nearest representative state is, and how many cases of each action are near.

An answer far from everything seen is a guess, whatever its value.  The support of an action is a number of logged
cases: those in the cells of the representative states that make up the answer, weighted as the answer weights them.  It
falls to 0 outside of the data.  `model.case_counts` counts.  The kernel mass, the paper's w (Algorithm 2), is no
such number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import logsumexp

from kbrl.arrays import Floats, Integers
from kbrl.model.case_counts import fade
from kbrl.model.kernels import blocks
from kbrl.model.model import as_model

_BLOCK_ENTRIES = 2**21  # of weights, so that memory does not grow with the number of states
_SAFE = 1e-200  # above this, what underflowed cannot matter


@dataclass(frozen=True, eq=False)
class Coverage:
    """How well the data behind a model cover some states, one row a state.

    Distances are Euclidean, in units of the model's scale (a standard deviation of each variable, say), whatever the
    widths.  ``support`` is sum_i kappa-bar(s, rep i) cases[a, i], where cases[a, i] is the number of the action's
    transitions whose state is nearest to representative state i; it is 0 at more than twice the distance from the
    nearest representative state with cases that these have, and NaN where cases were not counted (files of format 1).
    ``log_mass`` is log sum_i kappa-bar(s, rep i) w[a, i], where w[a, i] is the sum of k(rep i, s_t) over the action's
    transitions (of those kept, where the kernel is truncated); -inf where nothing is known.
    """

    distances: Floats  # (n,): to the nearest representative state
    support: Floats  # (n, n_actions): the number of logged cases of each action around the state
    log_mass: Floats  # (n, n_actions)
    nearest: Integers  # (n,): the place of that representative state in model.reps_


def coverage(model: Any, states: Any) -> Coverage:
    """Say how well the data behind a fitted model cover states, (n, n_dims), in the units of the data.

    kappa-bar is as the model uses it: all weight on the nearest representative state for ``aggregation="hard"``, and
    weights below exp(-707) of the largest are zero.
    """
    model = as_model(model)
    rows, basis, statistics = model.scaled(states), model.basis, model.sums
    log_mass, cells = statistics.log_mass(), statistics.cells
    distances, nearest = basis.rep_weights.tree.query(rows)
    masses, cases = [], []
    for block in blocks(len(rows), max(1, _BLOCK_ENTRIES // basis.n_reps)):
        weights = basis.rep_weights.weights(rows[block])
        masses.append(_log_mean(weights, log_mass))
        cases.append(weights @ cells.cases.T.astype(np.float64))
    inside = fade(basis.reps, cells, rows) if cells.is_known else np.full(len(rows), np.nan)
    return Coverage(
        distances=np.asarray(distances, dtype=np.float64),
        support=np.concatenate(cases) * inside[:, None],
        log_mass=np.concatenate(masses),
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
