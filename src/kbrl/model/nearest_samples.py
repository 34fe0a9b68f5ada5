"""What KBSF remembers where the sample kernel reaches only the mu nearest samples.

"The mu nearest samples" of the parts do not add up to those of the whole.  So we keep, for each action and
representative state, the mu nearest transitions seen so far with what they need: bounded memory, and merging means
keeping the mu nearest of both.  Samples that are the same are kept once, with a multiplicity; those at the mu-th
distance share the places that are left, each as often as it occurs.  Any split and any order of the data gives the same
model, bit for bit, up to TIES, or mu, different outcomes at the mu-th distance.  If there are more, a sample stands for
all: outcomes with small hashes, whose counts are exact for any split, and outcomes that occur often.

Only the transitions that are kept need a row of D.  Paper: appendix B.2, read as decision 6 says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.transitions import Transitions
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model.compiled import FARTHEST
from kbrl.model.kernels import BLOCK_ROWS, Basis, Samples, blocks, log_profile, log_ratio
from kbrl.model.sample_weights import rounding_of, tied_range
from kbrl.model.tied_samples import BLANKS, counted, nearest_fields, nearest_of, widened
from kbrl.threads import for_each_action

_CHUNK_ROWS = 2**19  # bounds the memory of the search trees without growing many small ones
NEIGHBORS_STAY = (
    "Transitions cannot be taken from statistics of nearest neighbours: those that would take their places were not "
    "kept. Fit again without them, or use dense kernels (sample_neighbors=None)."
)
_FIELDS = ("distances", "rewards", "terminals", "next_states", "multiplicities")


class Neighborhoods:
    """For each action and representative state, the nearest transitions, in order of distance.

    There are mu places, and more where transitions at the mu-th distance share the last ones.  ``distances`` is
    infinite at places that are not taken.
    """

    def __init__(self, basis: Basis) -> None:
        self.basis = basis
        self.n_neighbors: int = basis.sample_kernel.neighbors or 1
        shape = (basis.n_actions, basis.n_reps, self.n_neighbors)
        self.counts: Integers = np.zeros(basis.n_actions, dtype=np.intp)
        self.distances: Floats = np.full(shape, np.inf)
        self.rewards: Floats = np.zeros(shape)
        self.next_states: Floats = np.zeros((*shape, basis.reps.shape[1]))
        self.terminals: Booleans | Floats = np.ones(shape, dtype=bool if basis.discount is None else np.float64)
        self.multiplicities: Floats = np.zeros(shape)
        self._rounding = rounding_of(basis.reps)
        self._n_jobs: int | None = 1  # threads that were last asked for; no result depends on them

    def accumulate(self, log: Transitions, *, n_jobs: int | None = 1) -> Neighborhoods:
        """Add transitions, in memory that does not depend on how many there are, and return self."""
        self._n_jobs = n_jobs
        for chunk in log.chunks(_CHUNK_ROWS):
            self._add(self.basis.by_action(chunk))
        return self

    def __add__(self, other: Neighborhoods) -> Neighborhoods:
        """Return the statistics of both sets of transitions."""
        self.basis.check_same(other.basis)
        result = Neighborhoods(self.basis)
        result.counts = self.counts + other.counts
        for name in _FIELDS:
            setattr(result, name, getattr(self, name).copy())
        found = [[getattr(other, name)[action] for name in _FIELDS] for action in range(self.basis.n_actions)]
        result._keep(dict(enumerate(found)))
        return result

    def __sub__(self, other: object) -> Neighborhoods:
        raise ValueError(NEIGHBORS_STAY)

    def on(self, basis: Basis) -> Neighborhoods:
        """Return the same for a basis with further, or no further, representative states.

        Nothing is known of further ones yet.  What is returned shares nothing with this that could be changed.
        """
        result = Neighborhoods(basis)
        result.counts = self.counts.copy()
        result._widen(self.n_places)
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

    @property
    def n_places(self) -> int:
        """The number of transitions for which there is room at each representative state: mu, or more for ties."""
        return self.distances.shape[2]

    @property
    def is_sampled(self) -> bool:
        """Whether, at some representative state, more outcomes tie at the mu-th distance than are kept."""
        return bool((self.multiplicities % 1).any())

    def to_mdp(self, discount: float) -> FiniteMDP:
        """Return the reduced MDP of KBSF.  An action that was never taken is unavailable."""
        weights = self.weights()
        rewards = (weights * self.rewards).sum(axis=2)
        found: dict[int, Any] = {}

        def work(action: int) -> None:
            found[action] = self._transition_rows(action, weights[action])

        for_each_action(work, self.basis.n_actions, self._n_jobs)
        rows = [found[action] for action in range(self.basis.n_actions)]
        stacked = sparse.csr_array(sparse.vstack(rows)) if sparse.issparse(rows[0]) else np.concatenate(rows)
        available = np.isfinite(self.distances[:, :, 0])
        if self.basis.discount is not None:  # the rows hold it already
            return FiniteMDP.discounted(stacked, rewards, discount, available)
        return FiniteMDP.trusted(stacked, rewards, discount, available)

    def log_mass(self) -> Floats:
        """Return the log of the sum of k(rep i, s_t), (n_actions, n_reps), over the samples that are kept."""
        nearest = self._scaled_distances()[:, :, 0]
        with np.errstate(divide="ignore"):
            total = np.log(self._values().sum(axis=2))
        return log_profile(nearest, self.basis.sample_kernel.profile) + total

    def effective_cases(self) -> Floats:
        """Return Kish's effective number of cases behind each pair, (n_actions, n_reps), see `insight.coverage`."""
        values = self._values()
        squared = squares_of(values, self.multiplicities).sum(axis=2)
        return effective_number(values.sum(axis=2), squared, self.counts)

    def nearest_distances(self) -> Floats:
        """Return the distance of the nearest sample of each action, (n_actions, n_reps), inf where none is known."""
        return self.distances[:, :, 0]

    def _add(self, parts: list[Samples]) -> None:
        found: dict[int, list[Any]] = {}

        def work(action: int) -> None:
            if len(parts[action].rewards):
                found[action] = nearest_fields(parts[action], self.basis, self.n_neighbors)

        for_each_action(work, self.basis.n_actions, self._n_jobs)
        self._keep(found)
        self.counts += [len(part.rewards) for part in parts]

    def weights(self) -> Floats:
        """Return kappa(rep i, s_t) for the samples that are kept, (n_actions, n_reps, mu); rows sum to one or zero."""
        values = self._values()
        return values / np.maximum(values.sum(axis=2, keepdims=True), 1e-300)

    def _values(self) -> Floats:
        """Return k(rep i, s_t), relative to the nearest, times how often the sample counts among the mu nearest."""
        z = self._scaled_distances()
        values = np.exp(log_ratio(z, z[:, :, :1], self.basis.sample_kernel.profile))
        outcomes = (self.rewards, self.terminals, self.next_states)
        return values * counted(self.distances, self.multiplicities, outcomes, self.n_neighbors, self._rounding)

    def _scaled_distances(self) -> Floats:
        inverse_widths = self.basis.samples_at_reps.inverse_widths
        return np.minimum(self.distances * inverse_widths[:, None], FARTHEST)

    def _transition_rows(self, action: int, weights: Floats) -> Floats | sparse.csr_array:
        """Return K D for one action, (n_reps, n_reps), without the rows of D that K does not touch."""
        order = self.basis.search_order
        places = np.argsort(order)
        if self.basis.rep_weights.kernel.neighbors is not None:
            return sparse.csr_array(self._product(action, order, weights)[places])
        n_block = max(1, BLOCK_ROWS // self.n_places)
        parts = [self._product(action, order[rows], weights) for rows in blocks(self.basis.n_reps, n_block)]
        return np.concatenate(parts)[places]

    def _product(self, action: int, rows: Integers, weights: Floats) -> Floats | sparse.csr_array:
        next_states = self.next_states[action, rows].reshape(-1, self.basis.reps.shape[1])
        to_reps = self.basis.to_reps(next_states, self.terminals[action, rows].ravel())
        k = weights[rows]
        row_starts = np.arange(0, k.size + 1, self.n_places)
        return sparse.csr_array((k.ravel(), np.arange(k.size), row_starts), (len(k), k.size)) @ to_reps

    def _keep(self, found: dict[int, list[Any]]) -> None:
        """Merge transitions of some actions, arrays (n_reps, k) in the order of the fields, into what is kept."""
        merged: dict[int, tuple[Booleans, list[Any]]] = {}

        def work(action: int) -> None:
            if action in found:
                merged[action] = self._merged(action, found[action])

        for_each_action(work, self.basis.n_actions, self._n_jobs)
        self._widen(max((fields[0].shape[1] for _, fields in merged.values()), default=0))
        for action, (closer, fields) in merged.items():
            for name, blank, field in zip(_FIELDS, BLANKS, fields):
                getattr(self, name)[action, closer] = widened(field, self.n_places, blank)
        self._trim()

    def _merged(self, action: int, candidates: list[Any]) -> tuple[Booleans, list[Any]]:
        """Return at which representative states candidates may be kept, and what is to be kept there."""
        distances, multiplicities = self.distances[action], self.multiplicities[action]
        is_full = multiplicities.sum(axis=1) >= self.n_neighbors
        farthest = np.where(is_full, np.where(np.isfinite(distances), distances, 0.0).max(axis=1), np.inf)
        closer = candidates[0][:, 0] <= tied_range(farthest, self._rounding)[1]
        kept = [getattr(self, name)[action][closer] for name in _FIELDS]
        both = [np.concatenate([old, new[closer]], axis=1) for old, new in zip(kept, candidates)]
        return closer, nearest_of(both, self.n_neighbors, self._rounding[closer])

    def _widen(self, n_places: int) -> None:
        """Make room for ties."""
        if n_places > self.n_places:
            for name, blank in zip(_FIELDS, BLANKS):
                field = getattr(self, name)
                wide = np.full((*field.shape[:2], n_places, *field.shape[3:]), blank, dtype=field.dtype)
                wide[:, :, : field.shape[2]] = field
                setattr(self, name, wide)

    def _trim(self) -> None:
        """Drop places that no tie needs any more, so that equal statistics have equal shapes."""
        if self.n_places > self.n_neighbors:
            n_taken = int(np.isfinite(self.distances).sum(axis=2).max(initial=0))
            for name in _FIELDS:
                setattr(self, name, np.ascontiguousarray(getattr(self, name)[:, :, : max(n_taken, self.n_neighbors)]))


def squares_of(values: Floats, multiplicities: Floats) -> Floats:
    """Return the sum of the squared kernel values of samples that are the same and share one sum of them."""
    return np.divide(values**2, multiplicities, out=np.zeros_like(values), where=multiplicities > 0)


def effective_number(total: Floats, squared: Floats, counts: Integers) -> Floats:
    """Return (sum k)^2 / sum k^2, (n_actions, n_reps): 0 where there is nothing, else between 1 and all cases."""
    known = total > 0
    number = np.divide(total**2, squared, out=np.zeros_like(total), where=known & ~(squared == 0))
    return np.where(known, np.clip(number, 1.0, counts[:, None]), 0.0)
