"""How much one application of the Bellman operator T changes values, proved: no rounding error is left out.

If |T v - v| <= e everywhere, no value of v is off by more than e / (1 - discount * s), with s the largest row sum of
|P|.  A plain backup knows T v - v only to some n rounding errors of v, which may be more than e itself.  So we carry
the rounding error of every product and sum along, which gives about twice the digits, and bound the rest.
Dekker 1971; Ogita, Rump and Oishi 2005 (their Dot2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from kbrl.arrays import Floats
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.numba_cache import njit

EPSILON = float(np.finfo(np.float64).eps)
LARGEST = float(np.finfo(np.float64).max)
_SPLIT = 2.0**27 + 1
_UNDERFLOW = 2.0**-1068  # more than a product below the range of numbers can be off by


def row_sums(mdp: FiniteMDP) -> Floats:
    """Return the sums of |P| over next states, (n_actions, n_states), off by at most n_states rounding errors."""
    return _row_sums(*_entries(mdp)).reshape(mdp.rewards.shape)


def proved_residual(mdp: FiniteMDP, values: Floats, q: Floats, largest_sum: float) -> float:
    """Return e such that no value is off by more than e / (1 - discount).

    It is max |T values - values| with all rounding, enlarged where rows sum to more than one; the largest number where
    nothing can be proved.  ``q`` is the backup of the values as computed, ``largest_sum`` that of ``row_sums``.
    """
    rewards, reach = mdp.rewards, np.abs(values).max()
    size = np.abs(rewards[mdp.available]).max(initial=0.0) + mdp.discount * largest_sum * reach
    slack = (mdp.n_states + 4) * EPSILON * size  # of a plain backup, twice over
    near = np.isfinite(q) & (q >= q.max(axis=1, keepdims=True) - 2.0 * slack)  # one of these is the best
    states, actions = np.nonzero(near)
    rows, tiny = actions * mdp.n_states + states, _UNDERFLOW * float(reach > 0)
    changes, errors = _changes(*_entries(mdp), rows, values, rewards[actions, states], states, mdp.discount, tiny)
    best = np.full(q.shape, -np.inf)
    best[states, actions] = changes
    change = np.abs(best.max(axis=1)[near.any(axis=1)]).max(initial=0.0) + errors.max(initial=0.0)
    excess = max(0.0, largest_sum * (1.0 + (mdp.n_states + 2) * EPSILON) - 1.0)
    left = (1.0 - mdp.discount) - mdp.discount * excess  # of 1 - discount * s
    return float(change * ((1.0 - mdp.discount) / left) * (1.0 + 8.0 * EPSILON)) if left > 0 else LARGEST


def _entries(mdp: FiniteMDP) -> tuple[Any, Any, Any]:
    """Return probabilities row by row, their columns (none: each row has all) and where each row starts."""
    if sparse.issparse(mdp.stacked):
        return mdp.stacked.data, mdp.stacked.indices, mdp.stacked.indptr.astype(np.int64)
    n_rows, n_columns = mdp.stacked.shape
    starts = np.arange(n_rows + 1, dtype=np.int64) * n_columns
    return np.ascontiguousarray(mdp.stacked).reshape(-1), np.empty(0, dtype=np.int32), starts


# Sums may be reordered, which vectorises them.
@njit(cache=True, nogil=True, fastmath={"reassoc"})
def _row_sums(entries: Any, columns: Any, starts: Any) -> Any:
    sums = np.zeros(len(starts) - 1)
    for row in range(len(sums)):
        total = 0.0
        for entry in entries[starts[row] : starts[row + 1]]:
            total += abs(entry)
        sums[row] = total
    return sums


# None of those below may be compiled with fastmath: rounding errors would be simplified away.
@njit(cache=True, nogil=True)
def _two_sum(a: Any, b: Any) -> Any:
    """Return a + b rounded, and its rounding error, exactly."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@njit(cache=True, nogil=True)
def _two_product(a: Any, b: Any) -> Any:
    """Return a * b rounded, and its rounding error, exactly unless it underflows."""
    product = a * b
    far_a, far_b = _SPLIT * a, _SPLIT * b
    high_a, high_b = far_a - (far_a - a), far_b - (far_b - b)
    low_a, low_b = a - high_a, b - high_b
    return product, low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)


@njit(cache=True, nogil=True)
def _changes(
    entries: Any, columns: Any, starts: Any, rows: Any, values: Any, rewards: Any, states: Any, discount: Any, tiny: Any
) -> Any:
    """Return r + discount P v - v of some rows, and how far each of these may be off."""
    changes, errors = np.empty(len(rows)), np.empty(len(rows))
    for i, row in enumerate(rows):
        own, own_columns = entries[starts[row] : starts[row + 1]], columns[starts[row] : starts[row + 1]]
        total = rest = size = 0.0
        for k in range(len(own)):
            product, lost = _two_product(own[k], values[own_columns[k] if len(columns) else k])
            total, lost_too = _two_sum(total, product)
            rest += lost + lost_too
            size += abs(product)
        high, low = _two_sum(total, rest)
        ahead, ahead_lost = _two_product(discount, high)
        gap, gap_lost = _two_sum(rewards[i], -values[states[i]])
        change, change_lost = _two_sum(gap, ahead)
        changes[i] = change + ((gap_lost + change_lost) + (ahead_lost + discount * low))
        small = abs(gap_lost) + abs(change_lost) + abs(ahead_lost) + abs(discount * low)
        rounding = EPSILON * (abs(changes[i]) + 2.0 * small)
        n = len(own)
        errors[i] = rounding + discount * (((n + 2) * EPSILON) ** 2 * size + (n + 1) * tiny)
    return changes, errors
