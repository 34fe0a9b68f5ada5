"""Which samples are among the mu nearest to a representative state, and how often each counts.

All samples at the mu-th distance share the places that are left, as often as they occur.  Where more different outcomes
tie than are kept, a sample stands for them: outcomes with small hashes, and outcomes that occur often (decision 6).
Paper: appendix B.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.sketch import canonical_order, row_hashes
from kbrl.model.kernels import Basis, Samples, nearest_points
from kbrl.model.sample_weights import rounding_of, tied_range

TIES = (
    256  # different outcomes at the mu-th distance that are kept, or mu if that is more; of a crowd, half in each list
)
BLANKS = (np.inf, 0.0, True, 0.0, 0.0, 0)
_EXACT, _HELD = 0.25, 0.5  # are added to the multiplicities, whole numbers, of outcomes in a list of a sample


def capacity(n_neighbors: int) -> int:
    """Return how many different outcomes at the mu-th distance are kept; of more, a sample.

    At least mu, so that a tie that is cut has more outcomes than there are places for it.
    """
    return max(TIES, n_neighbors)


def nearest_of(fields: list[Any], n_neighbors: int, rounding: Floats) -> list[Any]:
    """Return the samples of each row that are kept; most rows have no ties, and need no more than an order."""
    order = np.argsort(fields[0], axis=1, kind="stable")
    distances = np.take_along_axis(fields[0], order, axis=1)
    has_ties = (distances[:, 1:] == distances[:, :-1]) & np.isfinite(distances[:, 1:])
    several = has_ties.any(axis=1) | (fields[4] > 1).any(axis=1) | _goes_on(distances, n_neighbors, rounding)
    nearest = _reordered(fields, order[:, :n_neighbors])
    if several.any():
        some = [field[several] for field in fields]
        some = _settled(some, n_neighbors, rounding[several])
        nearest = [widened(field, some[0].shape[1], blank) for field, blank in zip(nearest, BLANKS)]
        for field, settled, blank in zip(nearest, some, BLANKS):
            field[several] = widened(settled, field.shape[1], blank)
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
    """Return how often samples occur, and how often since they entered the list; 0 if not in that list."""
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
        np.where(kept if field.ndim == 2 else kept[:, :, None], field, blank) for field, blank in zip(fields, BLANKS)
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
    """Return a random number from 0 to 1 for each outcome, and a rank, which is smaller the more often it is held.

    Both depend on the outcome alone, by independent hashes.  The rank is an exponential variable
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

    What was seen of outcomes while they were held counts once.  The others estimate the rest: they are those with
    hashes below a limit, so that each stands for 1 / limit outcomes, and they know how often they occur, and how much
    of that was held.
    """
    exact, held = _lists(multiplicities)
    in_first = held == 0
    hashes = np.where(in_first & np.isfinite(distances), _hashes_and_ranks(outcomes, held)[0], 0.0)
    limit = hashes.max(axis=1, keepdims=True)
    exact[:, :-1] -= np.where(in_first[:, :-1] & _same_as_next(distances, *outcomes), held[:, 1:], 0.0)
    return np.where(in_first & (hashes < limit), exact / limit, held)


def nearest_fields(samples: Samples, basis: Basis, n_neighbors: int) -> list[Any]:
    """Return the mu nearest samples to each representative state, (n_reps, k), with all those at the mu-th distance."""
    distances, places, counts = nearest_with_ties(samples, basis, n_neighbors)
    return [distances, samples.rewards[places], samples.terminals[places], samples.next_states[places], counts]


def nearest_with_ties(samples: Samples, basis: Basis, n_neighbors: int) -> tuple[Floats, Integers, Floats]:
    """Find the mu nearest samples to each representative state, with those at the mu-th distance.

    Returns, (n_reps, k) each, their distances, infinite where there are fewer, their places, and how often each occurs:
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
            wide = [widened(f, found[0].shape[1], b) for f, b in zip((distances, places, counts), blank)]
            for field, more, value in zip(wide, found, blank):
                field[tied] = value
                field[tied, : more.shape[1]] = more
            distances, places, counts = wide
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return distances[back], places[back], counts[back]


def _search(tree: cKDTree, points: Floats, n_neighbors: int, norm: float) -> tuple[Floats, Integers]:
    return nearest_points(tree, points, [*range(1, n_neighbors + 1)], norm)


def widened(field: Any, width: int, value: float) -> Any:
    """Return the field with at least this many columns; new ones are filled with a value."""
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
