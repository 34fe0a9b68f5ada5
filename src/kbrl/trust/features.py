"""What judging averages over: how near a state is to each of some representative states of its own.

phi(s) = kappa-bar(s, .), numbers that sum to one, with a width of half the median gap between neighbouring
representative states.  Where a log has few different states, each is a representative state, and phi is its
indicator: then nothing is smoothed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial import cKDTree

from kbrl.arrays import Floats, Integers
from kbrl.checks import whole
from kbrl.data.scaling import Coordinates, around_centre
from kbrl.data.survey import Survey
from kbrl.model.kernels import Kernel, KernelAt
from kbrl.model.representatives import k_means

MOST_REPS = 200
FEWEST_REPS = 10
WIDTH = 0.3  # of the kernel, in median gaps between neighbouring representative states
COARSER = 4  # features per group
MOST_PAIRS = 400  # of action and representative state: the matrices have the square of this
ROWS_PER_EXACT_PAIR = 5  # where each state is a feature of its own
ROWS_PER_PAIR = 25  # fewer rows than that on average, and most values would be guesses


@dataclass(frozen=True, eq=False)
class Features:
    """Representative states for judging, their coordinates, and the width of the kernel."""

    reps: Floats  # (n_reps, n_dims), scaled
    coordinates: Coordinates
    width: float
    is_exact: bool  # every state of the log is one of them

    @property
    def n_reps(self) -> int:
        """The number of features."""
        return len(self.reps)

    @cached_property
    def _kernel(self) -> KernelAt:
        return Kernel(self.width).at(self.reps)

    def __call__(self, states: Floats) -> Floats:
        """Return phi of states in the units of the data, (n, n_dims) to (n, n_reps); rows sum to one."""
        scaled = self.coordinates.of(states)
        if not self.is_exact:
            return np.asarray(self._kernel.weights(scaled))
        indicators = np.zeros((len(states), self.n_reps))
        indicators[np.arange(len(states)), self._kernel.nearest(scaled)] = 1.0
        return indicators

    @cached_property
    def groups(self) -> Integers:
        """Which of a fourth as many groups of neighbours each feature belongs to, (m,)."""
        if self.n_reps < 2 * COARSER:
            return np.zeros(self.n_reps, dtype=np.intp)
        tree = linkage(self.reps, "ward")
        return np.asarray(fcluster(tree, self.n_reps // COARSER, "maxclust") - 1, dtype=np.intp)

    @property
    def extrapolation(self) -> float:
        """By what to multiply the change of a value from features to groups, to guess what finer features change.

        An error that falls with the square of the gap between features, which falls with their number to the power of
        one by the number of variables (Richardson).  Exact features have no such error.
        """
        return 0.0 if self.is_exact else 1.0 / (COARSER ** (2.0 / self.reps.shape[1]) - 1.0)

    def same_as(self, other: Features) -> bool:
        """Whether two are the same functions."""
        return (
            np.array_equal(self.reps, other.reps)
            and self.coordinates.same_as(other.coordinates)
            and (self.width, self.is_exact) == (other.width, other.is_exact)
        )


def choose_features(seen: Survey, n_reps: Any = None) -> Features:
    """Choose features by a survey of the log: all its states if they are few, else centres of clusters."""
    n_actions, sample = len(seen.action_labels), seen.sample
    limit = number_of_reps(seen.n_rows, n_actions) if n_reps is None else whole(n_reps, "n_reps")
    repeated = seen.n_rows // (ROWS_PER_EXACT_PAIR * n_actions)  # states, if each is to have some rows per action
    most = min(repeated, max(2, MOST_PAIRS // n_actions) if n_reps is None else limit)
    units = around_centre(seen.scale("std"), seen.moments)
    points = units.of(np.concatenate([sample.states, sample.next_states[~sample.terminals]]))
    different = np.unique(points, axis=0)
    if len(different) <= most:
        return Features(different, units, 1.0, is_exact=True)
    points = points[np.lexsort(points.T)]  # the order of a sample depends on rewards, and so on their unit
    reps = k_means(points, min(limit, len(different)), np.random.default_rng(0))
    return Features(reps, units, WIDTH * _median_gap(reps), is_exact=False)


def number_of_reps(n_rows: int, n_actions: int) -> int:
    """Return how many representative states this many rows support, within bounds that limit memory."""
    carried = n_rows // (ROWS_PER_PAIR * n_actions)
    return max(2, min(MOST_REPS, max(FEWEST_REPS, carried), MOST_PAIRS // n_actions))


def _median_gap(reps: Floats) -> float:
    if len(reps) < 2:
        return 1.0
    return float(np.median(cKDTree(reps).query(reps, k=2)[0][:, 1]))
