"""How many logged cases there are around each representative state: whole numbers that add up.

A transition belongs to the cell of the representative state that is nearest to its state s_t, by Euclidean distance in
scaled units, whatever the kernels; of several that are equally near but for rounding, to the first one.  Counts of
cells, unlike sums of kernel values, are numbers of cases.  A growing model counts a transition in the cell that it had
when it came.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.model import compiled
from kbrl.model.basis import Basis
from kbrl.model.compiled import CLOSE

FEW_CASES = 5  # an action with fewer cases, around a state or in all, has little support


class Cells:
    """For each action and representative state: the number of cases, and the largest distance of one.

    After cases were taken away or moved, ``farthest`` is an upper bound.  ``is_known`` is False where earlier cases
    were not counted, as in a model from a file of format 1.
    """

    def __init__(self, basis: Basis) -> None:
        shape = (basis.n_actions, basis.n_reps)
        self.cases: Integers = np.zeros(shape, dtype=np.int64)
        self.farthest: Floats = np.zeros(shape)  # scaled units; 0 where there is no case
        self.is_known = True

    def add(self, action: int, states: Floats, basis: Basis) -> None:
        """Count the scaled states of cases of one action, (n, n_dims)."""
        places = nearest_reps(basis.rep_weights.tree, states)[0]
        compiled.count_cells(states, places, basis.reps, self.cases[action], self.farthest[action])

    def add_measured(self, action: int, states: Floats, basis: Basis, z: Floats) -> None:
        """Do the same where the distances to all representative states are known in widths, (n, n_reps)."""
        places = np.empty(len(z), dtype=np.intp)
        if compiled.nearest_columns(z, z.view(np.int64), places):
            compiled.count_cells(states, places, basis.reps, self.cases[action], self.farthest[action])
        else:  # too many widths away to tell which is the nearest
            self.add(action, states, basis)

    def __add__(self, other: Cells) -> Cells:
        """Return the counts of both sets of cases."""
        return _of(self.cases + other.cases, np.maximum(self.farthest, other.farthest), self.is_known & other.is_known)

    def __sub__(self, other: Cells) -> Cells:
        """Return the counts without the cases of ``other``, which must be among those counted."""
        cases, is_known = self.cases - other.cases, self.is_known & other.is_known
        if is_known and (cases < 0).any():
            action, place = (int(index) for index in np.argwhere(cases < 0)[0])
            raise ValueError(
                f"Only transitions that were added can be taken away, but around representative state {place} there "
                f"are {other.cases[action, place]} of action number {action} to take from "
                f"{self.cases[action, place]}. Take away rows that were learnt from."
            )
        return _of(cases, np.where(cases > 0, self.farthest, 0.0), is_known)

    def on(self, basis: Basis) -> Cells:
        """Return the same counts for a basis with further, or no further, representative states, which have none."""
        n_new = basis.n_reps - self.cases.shape[1]
        further = ((0, 0), (0, n_new))
        return _of(np.pad(self.cases, further), np.pad(self.farthest, further), self.is_known)

    def without(self, old_reps: Floats, kept: Booleans) -> Cells:
        """Return the counts for the ``kept`` representative states; cases of the others go to the nearest of these."""
        result = _of(self.cases[:, kept].copy(), self.farthest[:, kept].copy(), self.is_known)
        moved = np.flatnonzero(~kept)
        places, distances = nearest_reps(cKDTree(old_reps[kept]), old_reps[moved])
        for old, new, distance in zip(moved.tolist(), places.tolist(), distances.tolist()):
            has_cases = self.cases[:, old] > 0
            bound = np.where(has_cases, self.farthest[:, old] + distance, 0.0)
            result.cases[:, new] += self.cases[:, old]
            result.farthest[:, new] = np.maximum(result.farthest[:, new], bound)
        return result


def _of(cases: Integers, farthest: Floats, is_known: bool) -> Cells:
    result = Cells.__new__(Cells)
    result.cases, result.farthest, result.is_known = cases, farthest, bool(is_known)
    return result


def nearest_reps(tree: cKDTree, states: Floats) -> tuple[Integers, Floats]:
    """Return the place of the nearest point of a tree and its distance for each state; the first of equally near ones.

    The tree chooses among those by its own order, so that they are searched for until all of them are found.
    """
    reach = min(2, tree.n)
    distances, places = tree.query(states, k=[*range(1, reach + 1)])
    nearest, found = distances[:, 0], places[:, 0].astype(np.intp)
    rows = np.flatnonzero(distances[:, -1] <= nearest * (1 + CLOSE)) if tree.n > 1 else np.empty(0, dtype=np.intp)
    while len(rows):
        reach = min(4 * reach, tree.n)
        distances, places = tree.query(states[rows], k=[*range(1, reach + 1)])
        is_nearest = distances <= nearest[rows, None] * (1 + CLOSE)
        found[rows] = np.where(is_nearest, places, tree.n).min(axis=1)
        rows = rows[is_nearest[:, -1]] if reach < tree.n else rows[:0]
    return found, nearest


def typical_reach(reps: Floats, cells: Cells) -> tuple[Integers, Floats]:
    """Return which representative states have cases, and how far around each of them the data reach.

    That is the distance of its farthest case, but at least the median of these: a cell with one case says little about
    its size.  Where all cases lie at representative states, it is half the usual gap between those.
    """
    places = np.flatnonzero(cells.cases.sum(axis=0) > 0)
    farthest = cells.farthest.max(axis=0)[places]
    usual = float(np.median(farthest)) if len(places) else 0.0
    if usual == 0.0 and len(places) > 1:
        usual = 0.5 * float(np.median(cKDTree(reps[places]).query(reps[places], k=[2])[0]))
    return places, np.maximum(farthest, usual)


def fade(reps: Floats, cells: Cells, states: Floats) -> Floats:
    """Return how far a state is within the data, (n,): 1 no farther from its cell's middle than the data are.

    It falls to 0 at twice that distance.  The cell is that of the nearest representative state that has cases.
    """
    places, reach = typical_reach(reps, cells)
    if not len(places):
        return np.zeros(len(states))
    found, distances = nearest_reps(cKDTree(reps[places]), states)
    length = reach[found]
    rounding = 1e-12 * np.abs(reps[places[found]]).max(axis=1)  # of scaling a state and back
    outside = np.clip(2.0 - distances / np.maximum(length, np.finfo(float).tiny), 0.0, 1.0)
    return np.where(distances <= length + rounding, 1.0, outside)
