"""What KBSF remembers where the sample kernel reaches only the mu nearest samples.

"The mu nearest samples" of the parts do not add up to those of the whole.  So we keep, for each action and
representative state, the mu nearest transitions seen so far with what they need: bounded memory, and merging means
keeping the mu nearest of both.  Samples that are the same are kept once, with a multiplicity; those at the mu-th
distance share the places that are left, each as often as it occurs.  Any split and any order of the data gives the
same model, bit for bit, up to TIES, or mu, different outcomes at the mu-th distance.  Of more, a sample stands for all:
outcomes with small hashes, whose counts are exact for any split, and outcomes that occur often.

Only the transitions that are kept need a row of D.  Paper: appendix B.2, read as decision 6 says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.row_hashes import canonical_order, row_hashes
from kbrl.data.transitions import Transitions
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model.basis import Basis, Samples
from kbrl.model.compiled import FARTHEST
from kbrl.model.kernels import BLOCK_ROWS, blocks, log_profile, log_ratio, nearest_points
from kbrl.model.sample_weights import rounding_of, tied_range
from kbrl.threads import for_each_action

_CHUNK_ROWS = 2**19  # bounds the memory of the search trees without growing many small ones
NEIGHBORS_STAY = (
    "Transitions cannot be taken from statistics of nearest neighbours: those that would take their places were not "
    "kept. Fit again without them, or use dense kernels (sample_neighbors=None)."
)
TIES = (
    256  # different outcomes at the mu-th distance that are kept, or mu if that is more; of a crowd, half in each list
)
_FIELDS = ("distances", "rewards", "terminals", "next_states", "multiplicities")
_BLANKS = (np.inf, 0.0, True, 0.0, 0.0, 0)
_EXACT, _HELD = 0.25, 0.5  # are added to the multiplicities, whole numbers, of outcomes in a list of a sample


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
        self.terminals: Booleans = np.ones(shape, dtype=bool)
        self.multiplicities: Floats = np.zeros(shape)
        self._rounding = rounding_of(basis.reps)
        self._n_jobs = 1  # threads that were last asked for; no result depends on them

    def accumulate(self, log: Transitions, *, n_jobs: int = 1) -> Neighborhoods:
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
        return FiniteMDP.trusted(stacked, rewards, discount, np.isfinite(self.distances[:, :, 0]))

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
                found[action] = _nearest(parts[action], self.basis, self.n_neighbors)

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
            for name, blank, field in zip(_FIELDS, _BLANKS, fields):
                getattr(self, name)[action, closer] = _widened(field, self.n_places, blank)
        self._trim()

    def _merged(self, action: int, candidates: list[Any]) -> tuple[Booleans, list[Any]]:
        """Return at which representative states candidates may be kept, and what is to be kept there."""
        distances, multiplicities = self.distances[action], self.multiplicities[action]
        is_full = multiplicities.sum(axis=1) >= self.n_neighbors
        farthest = np.where(is_full, np.where(np.isfinite(distances), distances, 0.0).max(axis=1), np.inf)
        closer = candidates[0][:, 0] <= tied_range(farthest, self._rounding)[1]
        kept = [getattr(self, name)[action][closer] for name in _FIELDS]
        both = [np.concatenate([old, new[closer]], axis=1) for old, new in zip(kept, candidates)]
        return closer, _nearest_of(both, self.n_neighbors, self._rounding[closer])

    def _widen(self, n_places: int) -> None:
        """Make room for ties."""
        if n_places > self.n_places:
            for name, blank in zip(_FIELDS, _BLANKS):
                field = getattr(self, name)
                wide = np.full((*field.shape[:2], n_places, *field.shape[3:]), blank, dtype=field.dtype)
                wide[:, :, : field.shape[2]] = field
                setattr(self, name, wide)

    def _trim(self) -> None:
        """Give room back that no tie needs any more, so that equal statistics have equal shapes."""
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


def capacity(n_neighbors: int) -> int:
    """Return how many different outcomes at the mu-th distance are kept; of more, a sample.

    No less than mu, so that a tie that is cut has more outcomes than there are places for it.
    """
    return max(TIES, n_neighbors)


def _nearest_of(fields: list[Any], n_neighbors: int, rounding: Floats) -> list[Any]:
    """Return the samples of each row that are kept; most rows have no ties, and need no more than an order."""
    order = np.argsort(fields[0], axis=1, kind="stable")
    distances = np.take_along_axis(fields[0], order, axis=1)
    has_ties = (distances[:, 1:] == distances[:, :-1]) & np.isfinite(distances[:, 1:])
    several = has_ties.any(axis=1) | (fields[4] > 1).any(axis=1) | _goes_on(distances, n_neighbors, rounding)
    nearest = _reordered(fields, order[:, :n_neighbors])
    if several.any():
        some = [field[several] for field in fields]
        some = _settled(some, n_neighbors, rounding[several])
        nearest = [_widened(field, some[0].shape[1], blank) for field, blank in zip(nearest, _BLANKS)]
        for field, settled, blank in zip(nearest, some, _BLANKS):
            field[several] = _widened(settled, field.shape[1], blank)
    return nearest


def _goes_on(distances: Floats, n_neighbors: int, rounding: Floats) -> Booleans:
    """Whether, in each row of rising distances, the one after the mu-th is equal to it but for rounding."""
    if distances.shape[1] <= n_neighbors:
        return np.zeros(len(distances), dtype=bool)
    following = distances[:, n_neighbors]
    return np.isfinite(following) & (following <= tied_range(distances[:, n_neighbors - 1], rounding)[1])


def _canonical_order(distances: Floats, rewards: Floats, terminals: Booleans, next_states: Floats) -> Integers:
    """Order each row by distance; equal distances by a hash of the outcome.  So arrival does not matter."""
    outcome = [*np.moveaxis(next_states, 2, 0), terminals, rewards]
    return np.lexsort([*outcome, row_hashes(outcome), distances], axis=1)


def _reordered(fields: list[Any], order: Integers) -> list[Any]:
    return [np.take_along_axis(f, order if f.ndim == 2 else order[:, :, None], axis=1) for f in fields]


def _settled(fields: list[Any], n_neighbors: int, rounding: Floats) -> list[Any]:
    """Count samples of each row that are the same as one, and leave out those that do not count."""
    fields = _reordered(fields, _canonical_order(*fields[:4]))
    return _that_count(_united([*fields[:4], *_lists(fields[4]), *fields[5:]]), n_neighbors, rounding)


def _lists(multiplicities: Floats) -> tuple[Floats, Floats]:
    """Return how often samples occur, and how often they were seen since they are held; 0 if not in that list."""
    whole = np.floor(multiplicities)
    role = multiplicities - whole
    return np.where(role == _HELD, 0.0, whole), np.where(role == _EXACT, 0.0, whole)


def _same_as_next(distances: Floats, rewards: Floats, terminals: Booleans, next_states: Floats) -> Booleans:
    """Whether each sample of a row, but the last, is the same as the one after it."""
    same = (distances[:, 1:] == distances[:, :-1]) & np.isfinite(distances[:, 1:]) & (rewards[:, 1:] == rewards[:, :-1])
    return same & (terminals[:, 1:] == terminals[:, :-1]) & (next_states[:, 1:] == next_states[:, :-1]).all(axis=2)


def _united(fields: list[Any]) -> list[Any]:
    """Add up both counts of samples that are the same, which stand side by side."""
    distances, rewards, terminals, next_states, exact, held, *others = fields
    same = _same_as_next(distances, rewards, terminals, next_states)
    if not same.any():
        return fields
    starts = np.ones(distances.shape, dtype=bool)
    starts[:, 1:] = ~same
    runs = np.cumsum(starts.ravel()) - 1  # a row's first entry always starts a run
    counts = [np.bincount(runs, weights=count.ravel())[runs].reshape(starts.shape) for count in (exact, held)]
    united = [np.where(starts, count, 0.0) for count in counts]
    fields = [np.where(starts, distances, np.inf), rewards, terminals, next_states, *united, *others]
    return _reordered(fields, np.argsort(fields[0], axis=1, kind="stable"))


def _that_count(fields: list[Any], n_neighbors: int, rounding: Floats) -> list[Any]:
    """Leave out samples beyond the mu nearest, counted as often as they occur, and of a crowd those in neither list."""
    distances, rewards, terminals, next_states, exact, held, *others = fields
    counts, limit = np.maximum(exact, held), capacity(n_neighbors)
    nearer, at_last = _nearer_and_tied(distances, counts, n_neighbors, rounding)
    kept, fields = nearer | at_last, [distances, rewards, terminals, next_states, counts, *others]
    crowded = (at_last.sum(axis=1) > limit) | (at_last & (exact != held)).any(axis=1)
    if crowded.any():
        fields = [np.repeat(field, 2, axis=1) for field in fields]  # first as one of all, then as one that is held
        kept = np.stack([kept, np.zeros_like(kept)], axis=2)
        hashes, ranks = _hashes_and_ranks([rewards[crowded], terminals[crowded], next_states[crowded]], held[crowded])
        first = _smallest(hashes, at_last[crowded] & (exact[crowded] > 0), limit // 2 + 1)
        second = _smallest(ranks, at_last[crowded] & (held[crowded] > 0), limit // 2 + 1)
        kept[crowded] = np.stack([nearer[crowded] | first, second], axis=2)
        both = np.stack([counts, counts], axis=2)
        in_list = np.where(at_last[crowded], exact[crowded] + _EXACT, counts[crowded])
        both[crowded] = np.stack([in_list, held[crowded] + _HELD], axis=2)
        kept, fields[4] = kept.reshape(len(kept), -1), both.reshape(len(both), -1)
    order = np.argsort(~kept, axis=1, kind="stable")[:, : max(n_neighbors, int(kept.sum(axis=1).max(initial=0)))]
    blanked = [
        np.where(kept if field.ndim == 2 else kept[:, :, None], field, blank) for field, blank in zip(fields, _BLANKS)
    ]
    return _reordered(blanked, order)


def _smallest(values: Floats, among: Booleans, n: int) -> Booleans:
    """Return which of some values in each row are the n smallest."""
    values = np.where(among, values, np.inf)
    return among & (values <= np.sort(values, axis=1)[:, min(n, values.shape[1]) - 1, None])


def _nearer_and_tied(
    distances: Floats, multiplicities: Floats, n_neighbors: int, rounding: Floats
) -> tuple[Booleans, Booleans]:
    """Return which samples are nearer than the mu-th and which are as far as it is, but for rounding."""
    last = _last_distance(distances, multiplicities, n_neighbors)
    lower, upper = tied_range(last, rounding)
    is_there, nearer = np.isfinite(distances), distances < lower[..., None]
    return is_there & nearer, is_there & ~nearer & (distances <= upper[..., None])


def _last_distance(distances: Floats, multiplicities: Floats, n_neighbors: int) -> Floats:
    """Return the distance of the mu-th nearest sample of each row, counted as often as they occur; inf for too few."""
    up_to = np.cumsum(multiplicities, axis=-1)
    is_enough = up_to >= n_neighbors
    place = is_enough.argmax(axis=-1)[..., None]
    return np.where(is_enough.any(axis=-1), np.take_along_axis(distances, place, axis=-1)[..., 0], np.inf)


def _hashes_and_ranks(outcomes: Any, held: Floats) -> tuple[Floats, Floats]:
    """Return a random number from 0 to 1 for each outcome, and a rank that is the smaller, the more often it is held.

    Both are made of the outcome alone, by hashes that know nothing of each other.  The rank is an exponential variable
    over a count, as the smallest of so many such variables is: a row is as likely to be among the first as any other.
    """
    rewards, terminals, next_states = outcomes
    columns = [*np.moveaxis(next_states, -1, 0), terminals, rewards]
    hashes, others = ((row_hashes(c).astype(np.float64) + 0.5) / 2.0**64 for c in (columns, [*columns, rewards + 1.0]))
    return hashes, np.divide(-np.log(others), held, out=np.full(held.shape, np.inf), where=held > 0)


def counted(distances: Floats, multiplicities: Floats, outcomes: Any, n_neighbors: int, rounding: Floats) -> Floats:
    """Return how often each sample counts so that the mu nearest count: those at the mu-th distance share what is left.

    Distances rise along the last axis.  ``outcomes`` are rewards, terminals and next states.  ``rounding`` is that of
    distances from the representative states, (n_reps,).
    """
    whole = np.floor(multiplicities)
    nearer, at_last = _nearer_and_tied(distances, whole, n_neighbors, rounding)
    tied = np.where(at_last, whole, 0.0)
    crowded = (at_last & (multiplicities > whole)).any(axis=-1)
    if crowded.any():
        tied[crowded] = _estimated(distances[crowded], [o[crowded] for o in outcomes], multiplicities[crowded])
        tied = np.where(at_last, tied, 0.0)
    left = n_neighbors - np.where(nearer, multiplicities, 0.0).sum(axis=-1, keepdims=True)
    total = tied.sum(axis=-1, keepdims=True)
    share = np.divide(left, total, out=np.zeros_like(total), where=total > 0)
    return np.where(nearer, multiplicities, tied * share)


def _estimated(distances: Floats, outcomes: list[Any], multiplicities: Floats) -> Floats:
    """Return how many of all tied samples each outcome in a list stands for, right on average for any split.

    What was seen of outcomes while they were held counts once.  The others have the rest to tell: they are those with
    hashes below a limit, so that each stands for 1 / limit outcomes, and they know how often they occur, and how much
    of that was held.
    """
    exact, held = _lists(multiplicities)
    in_first = held == 0
    hashes = np.where(in_first & np.isfinite(distances), _hashes_and_ranks(outcomes, held)[0], 0.0)
    limit = hashes.max(axis=1, keepdims=True)
    exact[:, :-1] -= np.where(in_first[:, :-1] & _same_as_next(distances, *outcomes), held[:, 1:], 0.0)
    return np.where(in_first & (hashes < limit), exact / limit, held)


def _nearest(samples: Samples, basis: Basis, n_neighbors: int) -> list[Any]:
    """Return the mu nearest samples to each representative state, (n_reps, k), with all those at the mu-th distance."""
    distances, places, counts = nearest_with_ties(samples, basis, n_neighbors)
    return [distances, samples.rewards[places], samples.terminals[places], samples.next_states[places], counts]


def nearest_with_ties(samples: Samples, basis: Basis, n_neighbors: int) -> tuple[Floats, Integers, Floats]:
    """Find the mu nearest samples to each representative state, with those at the mu-th distance.

    Returns, (n_reps, k) each, their distances, infinite where there are less, their places, and how often each occurs:
    where there are ties, samples that are the same are found once, and of a crowd those in the two lists.
    """
    order, n_samples = basis.search_order, len(samples.rewards)
    reps = basis.reps[order]
    norm = basis.sample_kernel.norm
    distances, places = _search(cKDTree(samples.states), reps, min(n_neighbors + 1, n_samples), norm)
    counts = np.ones(distances.shape)
    if n_samples > n_neighbors:
        tied = _goes_on(distances, n_neighbors, rounding_of(reps))
        if tied.any():
            found = _search_again(samples, reps[tied], n_neighbors, norm)
            blank = (np.inf, 0, 0.0)
            wide = [_widened(f, found[0].shape[1], b) for f, b in zip((distances, places, counts), blank)]
            for field, more, value in zip(wide, found, blank):
                field[tied] = value
                field[tied, : more.shape[1]] = more
            distances, places, counts = wide
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return distances[back], places[back], counts[back]


def _search(tree: cKDTree, points: Floats, n_neighbors: int, norm: float) -> tuple[Floats, Integers]:
    return nearest_points(tree, points, [*range(1, n_neighbors + 1)], norm)


def _widened(field: Any, width: int, value: float) -> Any:
    """Return the field with at least so many columns, the further ones filled with a value."""
    if width <= field.shape[1]:
        return field
    wide = np.full((len(field), width, *field.shape[2:]), value, dtype=field.dtype)
    wide[:, : field.shape[1]] = field
    return wide


def _search_again(samples: Samples, reps: Floats, n_neighbors: int, norm: float) -> tuple[Floats, Integers, Floats]:
    """Search among different samples, until the last neighbour found is farther than the mu-th for every state."""
    rows, multiplicities = _thin_out(samples, capacity(n_neighbors))
    tree, reach, rounding = cKDTree(samples.states[rows]), n_neighbors, rounding_of(reps)
    while True:
        reach = min(2 * reach, len(rows))
        distances, places = _search(tree, reps, reach, norm)
        farthest = tied_range(distances[:, min(n_neighbors, reach) - 1], rounding)[1]
        if reach == len(rows) or (distances[:, -1] > farthest).all():
            break
    places, counts = rows[places], multiplicities[places]
    if (counts % 1).any():
        outcomes = samples.rewards[places], samples.terminals[places], samples.next_states[places]
        distances, _, _, _, counts, places = _settled([distances, *outcomes, counts, places], n_neighbors, rounding)
    return distances, places, counts


def _thin_out(samples: Samples, limit: int) -> tuple[Integers, Floats]:
    """Return the rows of different samples that can matter and how often each occurs; of a crowded state two lists."""
    outcome = [*samples.next_states.T, samples.terminals, samples.rewards]
    order = canonical_order(samples.states, outcome)
    everything = np.column_stack([samples.states, *outcome])[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (everything[1:] != everything[:-1]).any(axis=1)
    multiplicities = np.diff(np.append(np.flatnonzero(is_new), len(order))).astype(np.float64)
    order = order[is_new]
    states = samples.states[order]
    new_state = np.ones(len(order), dtype=bool)
    new_state[1:] = (states[1:] != states[:-1]).any(axis=1)
    of_state = np.cumsum(new_state) - 1
    crowded = (np.bincount(of_state) > limit)[of_state]
    if not crowded.any():
        return order, multiplicities
    outcomes = (samples.rewards[order], samples.terminals[order], samples.next_states[order])
    place = np.arange(len(order)) - np.flatnonzero(new_state)[of_state]
    in_lists = np.zeros((len(order), 2), dtype=bool)
    for number, values in enumerate(_hashes_and_ranks(outcomes, multiplicities)):
        by_value = np.lexsort([values, of_state])  # the states stand in the same order, so their places are the same
        in_lists[by_value[place <= limit // 2], number] = True
    kept = np.where(crowded[:, None], in_lists, [True, False]).ravel()
    coded = (multiplicities[:, None] + np.where(crowded[:, None], [_EXACT, _HELD], 0.0)).ravel()
    return np.repeat(order, 2)[kept], coded[kept]
