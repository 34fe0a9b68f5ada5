"""Move a state as the nearest row of a recording moved: the generative model of the epilepsy task.

s <- s + (row[nn + 1] - row[nn]) + noise + shift by a pulse, where nn is the row nearest to s.  SciPy builds a k-d
tree of the rows; the compiled walk through it is exact, and of equally near rows it finds the first, so that a
state's move depends on nothing but the state.

Paper: the appendix on tasks, "epilepsy suppression" (Bush and Pineau 2009).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.numba_cache import njit
from kbrl.tasks.recordings import Recordings

MARGIN = 0.1  # states stay within the recordings' range, widened on each side by this part of it
LEAF_SIZE = 16  # points; 16 and 32 were the fastest of 8 to 64


class RowModel(NamedTuple):
    """What the compiled functions need of the recordings, and a k-d tree of the rows that may be neighbours."""

    moves: Floats  # (n, n_dims): from each row to the next, the shift by a recorded pulse taken out
    seizures: Booleans  # (n,)
    shift: Floats  # (n_dims,): by a pulse
    step_sizes: Floats  # (n_dims,): mean absolute difference of successive rows
    low: Floats  # (n_dims,): bounds of the states
    high: Floats
    lower: Integers  # (n_nodes,): a node's first child, or the first of a leaf's points
    upper: Integers  # (n_nodes,): its second child, or the end of a leaf's points
    is_leaf: Booleans  # (n_nodes,)
    box_low: Floats  # (n_nodes, n_dims): the smallest box around a node's points
    box_high: Floats
    points: Floats  # (n_points, n_dims): in the tree's order
    rows: Integers  # (n_points,): which rows they are
    depth: int  # of the tree


def make_row_model(recordings: Recordings, *, across_recordings: bool) -> RowModel:
    """Prepare the recordings; ``across_recordings`` says whether a recording's last row moves on to the next one."""
    features = recordings.features
    shift = recordings.magnitude * recordings.stimulation
    moves = np.roll(features, -1, axis=0) - features  # after the very last row comes the very first
    moves[recordings.pulses] -= shift
    candidates = np.arange(len(features))
    if not across_recordings:
        candidates = np.flatnonzero(recordings.recordings[1:] == recordings.recordings[:-1])
        if len(candidates) == 0:
            raise ValueError("across_recordings=False needs a recording of two rows or more, but each has only one.")
    low, high = features.min(axis=0), features.max(axis=0)
    margin = MARGIN * (high - low)
    step_sizes = np.abs(np.diff(features, axis=0)).mean(axis=0)
    tree = _flatten(features[candidates])
    points, rows = features[candidates[tree.order]], candidates[tree.order]
    return RowModel(
        moves,
        recordings.seizures,
        shift,
        step_sizes,
        low - margin,
        high + margin,
        *tree.nodes,
        points,
        rows,
        tree.depth,
    )


class _Tree(NamedTuple):
    nodes: tuple[Integers, Integers, Booleans, Floats, Floats]  # lower, upper, is_leaf, box_low, box_high
    order: Integers  # (n_points,): the places of the points in the tree's order
    depth: int


def _flatten(points: Floats) -> _Tree:
    """Return SciPy's tree as arrays, the root first."""
    tree = cKDTree(points, leafsize=LEAF_SIZE)
    ends: list[list[int]] = []  # lower and upper of each node
    spans: list[slice] = []
    is_leaf: list[bool] = []
    waiting = [(tree.tree, -1, 0, 1)]  # the node, its parent, which child it is, its level
    depth = 1
    while waiting:
        node, parent, side, level = waiting.pop()
        if parent >= 0:
            ends[parent][side] = len(ends)
        depth = max(depth, level)
        is_leaf.append(node.split_dim < 0)
        spans.append(slice(node.start_idx, node.end_idx))
        if not is_leaf[-1]:
            waiting += [(node.lesser, len(ends), 0, level + 1), (node.greater, len(ends), 1, level + 1)]
        ends.append([node.start_idx, node.end_idx])
    ordered = points[tree.indices]
    boxes = [np.array([bound(ordered[span], axis=0) for span in spans]) for bound in (np.min, np.max)]
    lower, upper = np.array(ends, dtype=np.intp).T.copy()
    return _Tree((lower, upper, np.array(is_leaf), boxes[0], boxes[1]), tree.indices.astype(np.intp), depth)


@njit(cache=True, nogil=True)
def _box_distance(state: Floats, model: RowModel, node: int) -> float:
    """Return the squared distance to a node's box: rounded as a point's is, it never exceeds that of a point inside."""
    distance = 0.0
    for j in range(len(state)):
        outside = max(model.box_low[node, j] - state[j], state[j] - model.box_high[node, j], 0.0)
        distance += outside * outside
    return distance


@njit(cache=True, nogil=True)
def _search(state: Floats, model: RowModel, nodes: Integers, bounds: Floats) -> int:
    """Return the row nearest to the state; ``nodes`` and ``bounds`` are room for the subtrees still to be seen."""
    best, least = model.rows[0], np.inf
    nodes[0], bounds[0] = 0, 0.0
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        if bounds[n_waiting] > least:  # at equality it may hold an equally near row that comes first
            continue
        node = nodes[n_waiting]
        while not model.is_leaf[node]:
            near, far = model.lower[node], model.upper[node]
            near_bound, far_bound = _box_distance(state, model, near), _box_distance(state, model, far)
            if far_bound < near_bound:
                near, far, far_bound = far, near, near_bound
            nodes[n_waiting], bounds[n_waiting] = far, far_bound
            n_waiting += 1
            node = near
        for i in range(model.lower[node], model.upper[node]):
            distance = 0.0
            for j in range(len(state)):
                distance += (state[j] - model.points[i, j]) * (state[j] - model.points[i, j])
            if distance < least or (distance == least and model.rows[i] < best):
                best, least = model.rows[i], distance
    return best


@njit(cache=True, nogil=True)
def nearest_rows(states: Floats, model: RowModel) -> Integers:
    """Return the row nearest to each state, (n,)."""
    found = np.empty(len(states), dtype=np.intp)
    nodes, bounds = np.empty(model.depth, dtype=np.intp), np.empty(model.depth)
    for i in range(len(states)):
        found[i] = _search(states[i], model, nodes, bounds)
    return found


@njit(cache=True, nogil=True)
def move(states: Floats, actions: Integers, noise: Floats, model: RowModel) -> tuple[Floats, Booleans]:
    """Return the next states, and whether they are seizures; the noise is drawn outside, so that the seed decides."""
    n, n_dims = states.shape
    next_states, in_seizure = np.empty((n, n_dims)), np.empty(n, dtype=np.bool_)
    nodes, bounds = np.empty(model.depth, dtype=np.intp), np.empty(model.depth)
    for i in range(n):
        row = _search(states[i], model, nodes, bounds)
        for j in range(n_dims):
            moved = states[i, j] + model.moves[row, j] + noise[i, j] + actions[i] * model.shift[j]
            next_states[i, j] = min(max(moved, model.low[j]), model.high[j])
        in_seizure[i] = model.seizures[_search(next_states[i], model, nodes, bounds)]
    return next_states, in_seizure
