"""What KBSF remembers where the sample kernel reaches only the mu nearest samples.

"The mu nearest samples" of the parts do not add up to those of the whole.  So we keep, for each action and
representative state, the mu nearest transitions seen so far with what they need: bounded memory, and merging means
keeping the mu nearest of both.  Any split and any order of the data gives the same model, bit for bit; samples at
equal distance are told apart by their reward and next state.

Only the transitions that are kept need a row of D.  Paper: appendix B.2, and DESIGN's exact reading of it.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.transitions import Transitions
from kbrl.model.basis import Basis, Samples, for_each_action, nearest_samples
from kbrl.model.compiled import FARTHEST
from kbrl.model.finite_mdp import FiniteMDP
from kbrl.model.kernels import BLOCK_ROWS, blocks, log_profile, log_ratio

_CHUNK_ROWS = 2**19  # bounds the memory of the search trees without growing many small ones
NEIGHBORS_STAY = (
    "Transitions cannot be taken from statistics of nearest neighbours: those that would take their places were not "
    "kept. Fit again without them, or use dense kernels (sample_neighbors=None)."
)
_FIELDS = ("distances", "rewards", "next_states", "terminals")


class Neighborhoods:
    """For each action and representative state, the nearest transitions, in order of distance.

    ``distances`` is infinite where fewer than mu transitions were seen.
    """

    def __init__(self, basis: Basis) -> None:
        self.basis = basis
        self.n_neighbors: int = basis.sample_kernel.neighbors or 1
        shape = (basis.n_actions, basis.n_reps, self.n_neighbors)
        self.counts: Integers = np.zeros(basis.n_actions, dtype=np.intp)
        self.distances: Floats = np.full(shape, np.inf)
        self.rewards: Floats = np.zeros(shape)
        self.next_states: Floats = np.zeros((*shape, basis.reps.shape[1]))
        self.terminals: Booleans = np.ones(shape, dtype=bool)

    def accumulate(self, log: Transitions, *, n_jobs: int = 1) -> Neighborhoods:
        """Add transitions, in memory that does not depend on how many there are, and return self."""
        for chunk in log.chunks(_CHUNK_ROWS):
            self._add(self.basis.by_action(chunk), n_jobs)
        return self

    def __add__(self, other: Neighborhoods) -> Neighborhoods:
        """Return the statistics of both sets of transitions."""
        self.basis.check_same(other.basis)
        result = Neighborhoods(self.basis)
        result.counts = self.counts + other.counts
        for part in (self, other):
            for a in range(self.basis.n_actions):
                kept = (part.distances[a], part.rewards[a], part.terminals[a], part.next_states[a])
                result._keep_nearest(a, *kept)
        return result

    def __sub__(self, other: object) -> Neighborhoods:
        raise ValueError(NEIGHBORS_STAY)

    def on(self, basis: Basis) -> Neighborhoods:
        """Return the same for a basis with further representative states, of which nothing is known yet."""
        result = Neighborhoods(basis)
        result.counts = self.counts.copy()
        for name in _FIELDS:
            getattr(result, name)[:, : self.basis.n_reps] = getattr(self, name)
        return result

    def without(self, basis: Basis, kept: Booleans) -> Neighborhoods:
        """Return the same for the ``kept`` representative states only."""
        result = Neighborhoods(basis)
        result.counts = self.counts.copy()
        for name in _FIELDS:
            setattr(result, name, np.ascontiguousarray(getattr(self, name)[:, kept]))
        return result

    def to_mdp(self, discount: float) -> FiniteMDP:
        """Return the reduced MDP of KBSF.  An action that was never taken is unavailable."""
        weights = self._weights()
        rewards = (weights * self.rewards).sum(axis=2)
        rows = [self._transition_rows(action, weights[action]) for action in range(self.basis.n_actions)]
        stacked = sparse.csr_array(sparse.vstack(rows)) if sparse.issparse(rows[0]) else np.concatenate(rows)
        return FiniteMDP._trusted(stacked, rewards, discount, np.isfinite(self.distances[:, :, 0]))

    def log_mass(self) -> Floats:
        """Return the log of the sum of k(rep i, s_t), (n_actions, n_reps), over the samples that are kept."""
        z = self._scaled_distances()
        profile = self.basis.sample_kernel.profile
        with np.errstate(divide="ignore"):
            total = np.log(np.where(np.isfinite(self.distances), self._relative_values(z), 0.0).sum(axis=2))
        return log_profile(z[:, :, 0], profile) + total

    def _add(self, parts: list[Samples], n_jobs: int) -> None:
        def work(action: int) -> None:
            if len(parts[action].rewards):
                self._keep_nearest(action, *_nearest(parts[action], self.basis, self.n_neighbors))

        for_each_action(work, self.basis.n_actions, n_jobs)
        self.counts += [len(part.rewards) for part in parts]

    def _weights(self) -> Floats:
        """Return kappa(rep i, s_t) for the samples that are kept, (n_actions, n_reps, mu); rows sum to one or zero."""
        values = self._relative_values(self._scaled_distances())
        values[~np.isfinite(self.distances)] = 0.0
        return values / np.maximum(values.sum(axis=2, keepdims=True), 1e-300)

    def _relative_values(self, z: Floats) -> Floats:
        return np.exp(log_ratio(z, z[:, :, :1], self.basis.sample_kernel.profile))

    def _scaled_distances(self) -> Floats:
        inverse_widths = self.basis.samples_at_reps.inverse_widths
        return np.minimum(self.distances * inverse_widths[:, None], FARTHEST)

    def _transition_rows(self, action: int, weights: Floats) -> Floats | sparse.csr_array:
        """Return K D for one action, (n_reps, n_reps), without the rows of D that K does not touch."""
        order = self.basis.search_order
        places = np.argsort(order)
        if self.basis.rep_weights.kernel.neighbors is not None:
            return sparse.csr_array(self._product(action, order, weights)[places])
        n_block = max(1, BLOCK_ROWS // self.n_neighbors)
        parts = [self._product(action, order[rows], weights) for rows in blocks(self.basis.n_reps, n_block)]
        return np.concatenate(parts)[places]

    def _product(self, action: int, rows: Integers, weights: Floats) -> Floats | sparse.csr_array:
        next_states = self.next_states[action, rows].reshape(-1, self.basis.reps.shape[1])
        to_reps = self.basis.to_reps(next_states, self.terminals[action, rows].ravel())
        k = weights[rows]
        row_starts = np.arange(0, k.size + 1, self.n_neighbors)
        return sparse.csr_array((k.ravel(), np.arange(k.size), row_starts), (len(k), k.size)) @ to_reps

    def _keep_nearest(
        self, action: int, distances: Floats, rewards: Floats, terminals: Booleans, next_states: Floats
    ) -> None:
        """Merge candidates, (n_reps, k), into what is kept."""
        closer = distances[:, 0] <= self.distances[action, :, -1]
        kept = (self.distances[action], self.rewards[action], self.terminals[action], self.next_states[action])
        candidates = (distances, rewards, terminals, next_states)
        both = [np.concatenate([old[closer], new[closer]], axis=1) for old, new in zip(kept, candidates)]
        first = _canonical_order(*both)[:, : self.n_neighbors]
        for old, merged in zip(kept, both):
            order = first if merged.ndim == 2 else first[:, :, None]
            old[closer] = np.take_along_axis(merged, order, axis=1)


def _canonical_order(distances: Floats, rewards: Floats, terminals: Booleans, next_states: Floats) -> Integers:
    """Order each row by distance; equal distances by reward, flag and next state, so that arrival does not matter."""
    keys = [*np.moveaxis(next_states, 2, 0), terminals, rewards, distances]
    return np.lexsort(keys, axis=1)


def _nearest(samples: Samples, basis: Basis, n_neighbors: int) -> tuple[Floats, Floats, Booleans, Floats]:
    """Return the mu nearest samples to each representative state, (n_reps, k), with all those at the mu-th distance."""
    n_samples = len(samples.rewards)
    distances, indices = nearest_samples(samples.states, basis, min(n_neighbors + 1, n_samples))
    if n_samples > n_neighbors and (distances[:, n_neighbors] <= distances[:, n_neighbors - 1]).any():
        samples = _thin_out(samples, n_neighbors)
        distances, indices = _with_ties(samples, basis, n_neighbors)
    picked = np.minimum(indices, len(samples.rewards) - 1)  # missing ones have an infinite distance
    return distances, samples.rewards[picked], samples.terminals[picked], samples.next_states[picked]


def _thin_out(samples: Samples, n_neighbors: int) -> Samples:
    """Keep only those of the samples at one and the same state that can matter: the first mu in canonical order."""
    keys = [*samples.next_states.T, samples.terminals, samples.rewards, *samples.states.T]
    order = np.lexsort(keys)
    ordered = samples.states[order]
    new_state = np.ones(len(order), dtype=bool)
    new_state[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    starts = np.flatnonzero(new_state)
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return samples.take(order[rank < n_neighbors])


def _with_ties(samples: Samples, basis: Basis, n_neighbors: int) -> tuple[Floats, Integers]:
    """Search until the last neighbour found is farther than the mu-th, for every representative state."""
    n_samples, reach = len(samples.rewards), n_neighbors
    while True:
        reach = min(2 * reach, n_samples)
        distances, indices = nearest_samples(samples.states, basis, reach)
        tied = distances[:, -1] <= distances[:, min(n_neighbors, reach) - 1]
        if reach == n_samples or not tied.any():
            return distances, indices
