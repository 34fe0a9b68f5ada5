"""kappa_a(s, s_t): how much each sample of an action counts at a state, (mdp_kbrl_P) and K of KBSF.

With ``neighbors``, the mu nearest samples count.  Those at the mu-th distance share the places that are left, however
many there are, so that neither the order of the rows nor chance nor rounding decides.  KBRL, Q from samples and the
bounds use this;
`kbrl.model.nearest_samples` keeps the same weights while the samples come and go.
Paper: section 2.2, and appendix B.2 for truncated kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from kbrl.arrays import Floats, Integers
from kbrl.model.compiled import CLOSE, FARTHEST
from kbrl.model.kernels import Kernel, KernelAt, nearest_points, normalized

_ROUNDING = 4 * float(np.finfo(np.float64).eps)  # of a difference of coordinates, rounded when written and scaled


def rounding_of(points: Floats) -> Floats:
    """Return how much the rounding of coordinates can change a distance from each point, by any norm, (n_points,).

    It does not shrink with the distance: a lattice far from the origin has larger coordinates, and the same steps.
    """
    return _ROUNDING * np.abs(points).sum(axis=1)


def tied_range(last: Floats, rounding: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and the largest distance that may be equal to ``last`` but for rounding.

    Both rise with ``last``.  So what ties at the mu-th distance of all data ties or is nearer in every part of them.
    """
    return last * (1 - CLOSE) - rounding, last * (1 + CLOSE) + rounding


@dataclass(frozen=True, eq=False)
class SampleWeights:
    """A kernel tied to the sample states of one action."""

    kernel: Kernel  # with one width
    states: Floats  # (n, n_dims), scaled; some may be the same

    def __len__(self) -> int:
        return len(self.states)

    def weights(self, states: Floats) -> Any:
        """Return kappa(state, sample), (n_states, n): rows sum to one; CSR if the kernel has ``neighbors``."""
        if self.kernel.neighbors is None:
            return self._dense.weights(states)
        values, groups = self._neighbor_weights(states, self.kernel.neighbors)
        row_starts = np.arange(0, values.size + 1, values.shape[1])
        by_group = sparse.csr_array((values.ravel(), groups.ravel(), row_starts), (len(states), len(self._counts)))
        by_group.eliminate_zeros()
        return sparse.csr_array(by_group @ self._members)

    @cached_property
    def _dense(self) -> KernelAt:
        return self.kernel.at(self.states)

    @cached_property
    def _groups(self) -> tuple[Floats, Integers, Integers]:
        """The different states, (n_groups, n_dims), the group of each sample, (n,), and the sizes of the groups."""
        return np.unique(self.states, axis=0, return_inverse=True, return_counts=True)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self._groups[0])

    @property
    def _counts(self) -> Integers:
        return self._groups[2]

    @cached_property
    def _members(self) -> sparse.csr_array:
        """Which samples belong to which group, (n_groups, n)."""
        groups = self._groups[1].ravel()
        shape = (len(self._counts), len(groups))
        return sparse.csr_array((np.ones(len(groups)), (groups, np.arange(len(groups)))), shape)

    def _neighbor_weights(self, states: Floats, n_neighbors: int) -> tuple[Floats, Integers]:
        """Return the weight of each single sample of the nearest groups, and the groups, (n_states, k) each."""
        distances, groups = self._nearest_groups(states, n_neighbors)
        counts = self._counts[groups].astype(np.float64)
        up_to = np.cumsum(counts, axis=1)
        place = np.where(up_to[:, -1] >= n_neighbors, (up_to >= n_neighbors).argmax(axis=1), counts.shape[1] - 1)
        last = np.take_along_axis(distances, place[:, None], axis=1)
        lower, upper = tied_range(last, rounding_of(states)[:, None])
        nearer, tied = distances < lower, (distances >= lower) & (distances <= upper)
        n_nearer = np.where(nearer, counts, 0.0).sum(axis=1, keepdims=True)
        n_tied = np.where(tied, counts, 0.0).sum(axis=1, keepdims=True)
        share = np.where(tied, np.minimum(1.0, (n_neighbors - n_nearer) / n_tied), nearer)
        z = np.minimum(distances / self.kernel.width, FARTHEST)
        # normalized() wants weights of the groups: it is told how often each counts.
        of_groups = normalized(z, self.kernel.profile) * counts * share
        total = of_groups.sum(axis=1, keepdims=True)
        return of_groups / total / counts, groups

    def _nearest_groups(self, states: Floats, n_neighbors: int) -> tuple[Floats, Integers]:
        """Return distances and places of the nearest groups, until the last is farther than the mu-th sample."""
        n_groups, reach = len(self._counts), min(n_neighbors + 1, len(self._counts))
        rounding = rounding_of(states)
        while True:
            distances, groups = nearest_points(self._tree, states, [*range(1, reach + 1)], self.kernel.norm)
            up_to = np.cumsum(self._counts[groups], axis=1)
            place = (up_to >= n_neighbors).argmax(axis=1)
            last = np.take_along_axis(distances, place[:, None], axis=1)[:, 0]
            if reach == n_groups or (distances[:, -1] > tied_range(last, rounding)[1]).all():
                return distances, groups
            reach = min(2 * reach, n_groups)
