"""What people did: how the shares of the actions depend on the state, as lines around the representative states.

The sums that the lines of displacements need hold this, too: the indicator of each action is regressed on the state,
over the cases of all actions.  A line can follow a border between two actions that cuts through a cell; the mean shares
of the cell cannot.  The shares of all actions sum to one.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from kbrl.arrays import Floats, Integers
from kbrl.lines.moments import LineSums, packed_size, unpacked
from kbrl.lines.ridge import slopes

_FARTHEST = 0.99  # of the cases lie in cells whose typical distance is not larger


def behaviour_lines(sums: LineSums, order: Integers, distances: Floats, wanted: float) -> Floats:
    """Return lines, (n_actions, n_reps, 1 + n_dims): the share of an action at s is [0] + [1:] @ (s - reps[i]).

    order, distances: the nearest representative states of each, (n_reps, n_near).  Their cells are pooled until they
    hold ``wanted`` cases of any action.
    """
    reps = sums.basis.reps
    n_actions, n_reps = sums.cases.shape
    n_dims = reps.shape[1]
    pooling = pooling_of_cells(sums.cases.sum(axis=0), order, distances, wanted)
    first = sums.outcomes[:, :, [packed_size(1 + k) for k in range(n_dims)]]  # of x, around the own representative
    taken = np.stack([pooling @ sums.cases[a] for a in range(n_actions)])
    moved = np.stack([pooling @ (first[a] + sums.cases[a][:, None] * reps) for a in range(n_actions)])
    second = unpacked(sums.outcomes[:, :, : packed_size(1 + n_dims)].sum(axis=0))
    around = second[:, 1:, 1:] + _outer(reps, second[:, 0, 1:]) + _outer(second[:, 0, 1:], reps)
    around += second[:, 0, 0][:, None, None] * _outer(reps, reps)
    mass = taken.sum(axis=0)
    weight = np.divide(1.0, mass, out=np.zeros(n_reps), where=mass > 0)
    means = moved.sum(axis=0) * weight[:, None]
    of_x = (pooling @ around.reshape(n_reps, -1)).reshape(around.shape) * weight[:, None, None] - _outer(means, means)
    shares = taken * weight
    mixed = moved * weight[:, None] - shares[:, :, None] * means  # (n_actions, n_reps, n_dims)
    variances = (shares * (1.0 - shares)).T
    found = slopes(of_x, mixed.transpose(1, 2, 0), variances, mass, None).transpose(2, 0, 1)
    at_reps = shares + (found * (reps - means)).sum(axis=2)
    return np.concatenate([at_reps[:, :, None], found], axis=2)


def reach_of_cells(sums: LineSums) -> float:
    """Return how far logged states typically are from their representative state, where they are farthest.

    It is the 99th percentile, over cases, of the root mean square distance in the own cell.
    """
    n_dims = sums.basis.reps.shape[1]
    totals = sums.outcomes.sum(axis=0)
    squares = totals[:, [packed_size(1 + k) + 1 + k for k in range(n_dims)]].sum(axis=1)
    cases = totals[:, 0]
    used = np.flatnonzero(cases > 0)
    if len(used) == 0:
        return 0.0
    sizes = np.sqrt(np.maximum(squares[used] / cases[used], 0.0))
    ranked = np.argsort(sizes)
    below = np.cumsum(cases[used][ranked])
    return float(sizes[ranked][np.searchsorted(below, _FARTHEST * below[-1])])


def pooling_of_cells(cases: Floats, order: Integers, distances: Floats, wanted: float) -> sparse.csr_array:
    """Return the weights of the cells that are pooled around each representative state, (n_reps, n_reps)."""
    n_reps, n_near = order.shape
    n_used = np.minimum((np.cumsum(cases[order], axis=1) < wanted).sum(axis=1) + 1, n_near)
    rows = np.arange(n_reps)
    beyond = np.where(n_used < n_near, distances[rows, np.minimum(n_used, n_near - 1)], 1.001 * distances[:, -1])
    ratios = np.divide(distances, beyond[:, None], out=np.zeros_like(distances), where=beyond[:, None] > 0)
    weights = np.where(np.arange(n_near) < n_used[:, None], np.maximum(1.0 - ratios**2, 0.0), 0.0)
    starts = np.arange(0, order.size + 1, n_near)
    shape = (n_reps, len(cases))
    result = sparse.csr_array((weights.ravel(), order.flatten(), starts), shape=shape)  # a copy: zeros are dropped
    result.eliminate_zeros()
    return result


def _outer(one: Floats, other: Floats) -> Floats:
    """Return the outer products of rows, (n, n_dims, n_dims)."""
    return one[:, :, None] * other[:, None, :]
