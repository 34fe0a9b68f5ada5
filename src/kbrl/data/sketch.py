"""A few kilobytes about the rows behind a model, so that no row is learnt twice, and none is forgotten that was never
learnt.

A sketch holds the number of rows, the sum of their hashes modulo 2^64, and the 1024 smallest different hashes with
their counts (bottom-k, or KMV).  Sketches add up: any split and any order of the rows gives the same one, bit for bit.
A hash stands for all that a row holds: state, action label, reward, next state, end, and its episode's identifier.
Listed rows also have a hash of their contents, without the identifier: identifiers of two places may clash.
Batches, the rows of one fit or update, are known by number and sum.  docs/model_file.md describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbrl.arrays import Array, Floats, Integers
from kbrl.data.transitions import Transitions
from kbrl.numba_cache import inner, njit

LISTED = 1024  # different rows
LISTED_EPISODES = 256  # different identifiers: enough to tell how many there are within some 6 %
LISTED_BATCHES = 64
LARGEST_HASH = 2**64 - 1
Hashes = NDArray[np.uint64]
Counts = NDArray[np.int64]
Batch = tuple[int, int]  # the number of its rows, and the sum of their hashes modulo 2^64
_START = 0x9E3779B97F4A7C15
_TABLES, _BUCKET_BITS = 6, 17
_MULTIPLIERS: Hashes = np.array(
    [
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0xD6E8FEB86659FD93,
        0xA0761D6478BD642F,
        0xE7037ED1A0B428DB,
    ],
    dtype=np.uint64,
)


_no_hashes: Callable[[], Hashes] = partial(np.empty, 0, np.uint64)  # type: ignore[assignment]
_no_counts: Callable[[], Counts] = partial(np.empty, 0, np.int64)  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class Sketch:
    """A sketch of the rows behind a model; by default, of no rows."""

    n_rows: int = 0
    total: int = 0  # the sum of the hashes of all rows, modulo 2^64
    hashes: Hashes = field(default_factory=_no_hashes)  # (k,), rising
    counts: Counts = field(default_factory=_no_counts)  # (k,): how many rows have each of them
    largest: int = LARGEST_HASH  # every row with a hash up to this one is listed
    contents: Hashes = field(default_factory=_no_hashes)  # (k,): hashes of the listed rows without their identifiers
    episodes: Hashes = field(default_factory=_no_hashes)  # the smallest different hashes of identifiers, rising
    batches: tuple[Batch, ...] = ()  # the largest ones, falling

    @classmethod
    def of(cls, log: Transitions, *, largest: int = LARGEST_HASH) -> Sketch:
        """Return the sketch of transitions; hashes beyond ``largest`` are not listed, as another list lacks them."""
        hashes, contents, ids = _hashes(log)
        total, episodes = int(hashes.sum(dtype=np.uint64)), _smallest(ids)
        if largest < LARGEST_HASH:
            listed = hashes <= np.uint64(largest)
            hashes, contents = hashes[listed], contents[listed]
        if not len(hashes):
            return cls(len(log.states), total, largest=largest, episodes=episodes)
        different, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        counts = counts.astype(np.int64)
        return cls(len(log.states), total, different, counts, largest, contents[first], episodes).cut_to_size()

    @property
    def lists_all(self) -> bool:
        """Whether every row is listed."""
        return self.largest == LARGEST_HASH

    @property
    def n_episodes(self) -> float:
        """About how many identifiers the rows have; 0 where they have none."""
        if len(self.episodes) < LISTED_EPISODES:
            return float(len(self.episodes))
        return (LISTED_EPISODES - 1) * 2.0**64 / float(self.episodes[-1])

    def __add__(self, other: Sketch) -> Sketch:
        """Return the sketch of both sets of rows."""
        largest = min(self.largest, other.largest)
        total, n_rows = (self.total + other.total) % 2**64, self.n_rows + other.n_rows
        episodes = _smallest(self.episodes, other.episodes)
        batches = _largest({*self.batches, *other.batches}) if other.batches else self.batches
        if not len(other.hashes) and largest == self.largest:  # the usual case: a few rows are added to many
            return replace(self, n_rows=n_rows, total=total, episodes=episodes, batches=batches)
        mine, theirs = self.up_to(largest), other.up_to(largest)
        hashes = np.concatenate([mine.hashes, theirs.hashes])
        different, first, places = np.unique(hashes, return_index=True, return_inverse=True)
        counts = np.zeros(len(different), dtype=np.int64)
        np.add.at(counts, places, np.concatenate([mine.counts, theirs.counts]))
        contents = np.concatenate([mine.contents, theirs.contents])[first]
        return Sketch(n_rows, total, different, counts, largest, contents, episodes, batches).cut_to_size()

    def __sub__(self, other: Sketch) -> Sketch:
        """Return the sketch without rows that are among its own, as far as it can tell; the list is shorter then.

        Which batches are still whole is not known, so none is listed.
        """
        largest = min(self.largest, other.largest)
        mine, theirs = self.up_to(largest), other.up_to(largest)
        counts = mine.counts - theirs.counts_of(mine.hashes)
        left = counts > 0
        return replace(
            mine,
            n_rows=self.n_rows - other.n_rows,
            total=(self.total - other.total) % 2**64,
            hashes=mine.hashes[left],
            counts=counts[left],
            contents=mine.contents[left],
            batches=(),
        )

    def with_batch_since(self, before: Sketch) -> Sketch:
        """Return the same, knowing that all rows that came since an earlier sketch are one batch."""
        batch = (self.n_rows - before.n_rows, (self.total - before.total) % 2**64)
        return replace(self, batches=_largest({*self.batches, batch})) if batch[0] > 0 else self

    def without(self, log: Transitions) -> Sketch:
        """Return the sketch without these transitions; those that were certainly never learnt are refused."""
        taken = Sketch.of(log, largest=self.largest)
        n_unknown = self.never_learnt(taken)
        if n_unknown:
            known = "" if self.lists_all else "at least "
            raise ValueError(
                f"Only transitions that were learnt can be forgotten, but {known}{n_unknown:,} of these {len(log):,} "
                f"were never learnt, or fewer times. Nothing is forgotten. Pass the rows as they were learnt: with "
                f"the same numbers, action labels and episodes."
            )
        return self - taken

    def never_learnt(self, other: Sketch) -> int:
        """Return a lower bound on how many rows of another sketch are not behind this one."""
        theirs = other.up_to(min(self.largest, other.largest))
        n_listed = int(np.maximum(theirs.counts - self.counts_of(theirs.hashes), 0).sum())
        is_all = other.n_rows == self.n_rows and other.total != self.total  # as many, but not the same
        return max(n_listed, int(is_all), other.n_rows - self.n_rows)

    def up_to(self, largest: int) -> Sketch:
        """Return the same sketch with a list that ends at the hash ``largest``."""
        n = int(np.searchsorted(self.hashes, np.uint64(largest), side="right"))
        if n == len(self.hashes) and largest == self.largest:
            return self
        return replace(
            self, hashes=self.hashes[:n], counts=self.counts[:n], contents=self.contents[:n], largest=largest
        )

    def counts_of(self, hashes: Hashes) -> Counts:
        """Return how many rows have each of some hashes; 0 for those that are not listed."""
        if not len(self.hashes):
            return np.zeros(len(hashes), dtype=np.int64)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[places] == hashes, self.counts[places], 0)

    def cut_to_size(self) -> Sketch:
        """Return the same sketch with at most ``LISTED`` different hashes."""
        return self if len(self.hashes) <= LISTED else self.up_to(int(self.hashes[LISTED - 1]))


def transition_hashes(log: Transitions) -> Hashes:
    """Return the hash of each row, (n,): of nothing but what the row holds, whatever the order of the actions."""
    return _hashes(log)[0]


def _hashes(log: Transitions) -> tuple[Hashes, Hashes, Hashes]:
    """Return the hashes of rows, (n,), those without identifiers, (n,), and those of identifiers, if there are any."""
    labels = label_hashes(log.action_labels)[log.action_indices]
    contents: Hashes = np.empty(len(log.states), dtype=np.uint64)
    _hash_rows(log.states, log.rewards, log.next_states, log.terminals, labels, contents)
    if log.durations is not None:
        _hash_with(contents, log.durations.view(np.uint64), contents)
    if log.episodes is None or not log.source.has_episode_ids:
        return contents, contents, _no_hashes()
    ids, lengths = hashes_of_runs(log.episodes)
    hashes: Hashes = np.empty(len(log.states), dtype=np.uint64)
    _hash_with(contents, np.repeat(ids, lengths), hashes)
    return hashes, contents, ids


def _smallest(*hashes: Hashes) -> Hashes:
    """Return the smallest different hashes of identifiers, rising."""
    found = [part for part in hashes if len(part)]
    return np.unique(np.concatenate(found))[:LISTED_EPISODES] if found else _no_hashes()


def _largest(batches: Iterable[Batch]) -> tuple[Batch, ...]:
    return tuple(sorted(batches, reverse=True)[:LISTED_BATCHES])


def hashes_of_runs(labels: Array) -> tuple[Hashes, Integers]:
    """Return the hash of each run of equal labels and its length: rows of one episode mostly follow each other."""
    starts = np.append(0, 1 + np.flatnonzero(labels[1:] != labels[:-1]))
    return label_hashes(labels[starts]), np.diff(np.append(starts, len(labels)))


def label_hashes(labels: Array) -> Hashes:
    """Return the hash of each label's text, (n,): 7, 7.0 and "7" have the same, because files differ in type."""
    if labels.dtype.kind in "fOS":
        labels = np.array([_text(label) for label in labels.tolist()])
    words = np.ascontiguousarray(labels.astype(np.str_))
    width = max(1, words.dtype.itemsize // 4)
    letters = words.astype(f"=U{width}").view(np.uint32).reshape(len(words), width)
    hashes: Hashes = np.empty(len(words), dtype=np.uint64)
    _hash_words(letters, hashes)
    return hashes


def _text(label: Any) -> str:
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)


@inner()
def _scrambled(key: Any) -> Any:
    """The finaliser of splitmix64."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@inner()
def _with_number(key: Any, number: Any) -> Any:
    return _scrambled(key ^ np.float64(number + 0.0).view(np.uint64))  # + 0.0: -0 is 0


@njit(cache=True, nogil=True)
def _hash_rows(states: Any, rewards: Any, next_states: Any, terminals: Any, labels: Any, hashes: Any) -> None:
    for row in range(len(hashes)):
        key = np.uint64(0x9E3779B97F4A7C15)
        for column in range(states.shape[1]):
            key = _with_number(key, states[row, column])
        key = _with_number(key, rewards[row])
        for column in range(states.shape[1]):
            key = _with_number(key, next_states[row, column])
        key = _with_number(key, np.float64(terminals[row]))
        hashes[row] = _scrambled(key ^ labels[row])


@njit(cache=True, nogil=True)
def _hash_with(contents: Any, episodes: Any, hashes: Any) -> None:
    for row in range(len(hashes)):
        hashes[row] = _scrambled(contents[row] ^ episodes[row])


@njit(cache=True, nogil=True)
def _hash_words(letters: Any, hashes: Any) -> None:
    """FNV-1a over the code points of each word, scrambled."""
    for row in range(len(hashes)):
        key = np.uint64(0xCBF29CE484222325)
        for place in range(letters.shape[1]):
            if letters[row, place] == 0:
                break
            key = (key ^ np.uint64(letters[row, place])) * np.uint64(0x100000001B3)
        hashes[row] = _scrambled(key)


def row_hashes(columns: Iterable[Array]) -> Hashes:
    """Return a hash of the numbers at each place of arrays that all have the same shape."""
    hashes: Hashes = np.empty(0, dtype=np.uint64)
    for number, column in enumerate(columns):
        if number == 0:
            hashes = np.full(column.shape, _START, dtype=np.uint64)
        _mix(hashes.reshape(-1), np.asarray(column, dtype=np.float64).reshape(-1))
    return hashes


def canonical_order(states: Floats, outcome: list[Array]) -> Integers:
    """Return an order of samples that depends only on their contents: by state, then by a hash.

    It is that of ``np.lexsort([*outcome, row_hashes(outcome), *states.T])``.  Most samples differ in the key that
    counts first, so the others are looked at only where it is the same.
    """
    first = states[:, -1]
    order = np.argsort(first, kind="stable")
    is_last = np.append(np.diff(first[order]) != 0, True)  # of the samples with the same first key
    shared = np.flatnonzero(~(is_last & np.insert(is_last[:-1], 0, True)))
    if len(shared):
        rows, group = order[shared], np.cumsum(is_last)[shared] - is_last[shared]
        rest = [column[rows] for column in outcome]
        by_rest = np.lexsort([*rest, row_hashes(rest), *states[rows, :-1].T, group])
        order[shared] = rows[by_rest]
    return order


class HashCounts:
    """An upper estimate of how often each hash occurred, in 6 MB for any number of hashes: a count-min sketch.

    A hash has a bucket in each of six tables, and its count is at most the smallest of them; the others in a bucket add
    to it.  Of n hashes it is more than n / 2000 too large with a probability below (2000 / 2^17)^6, some 1e-11.  Counts
    of parts add up, exactly: neither order nor split matters.  Cormode and Muthukrishnan 2005.
    """

    def __init__(self) -> None:
        self._buckets: Integers = np.zeros((_TABLES, 2**_BUCKET_BITS), dtype=np.int64)

    def add(self, hashes: Hashes) -> Integers:
        """Count more hashes; return how often each had occurred by then, itself included, (n,)."""
        return _counted(self._buckets, hashes, 1)

    def of(self, hashes: Hashes) -> Integers:
        """Return how often each of the hashes occurred, (n,)."""
        return _counted(self._buckets, hashes, 0)

    def __add__(self, other: HashCounts) -> HashCounts:
        """Return the counts of both."""
        result = HashCounts()
        np.add(self._buckets, other._buckets, out=result._buckets)
        return result

    def __getstate__(self) -> tuple[Integers, Integers]:
        """Return what other processes are sent: the buckets that are not empty."""
        used = np.flatnonzero(self._buckets)
        return used.astype(np.int32), self._buckets.reshape(-1)[used]

    def __setstate__(self, state: tuple[Integers, Integers]) -> None:
        self.__init__()  # type: ignore[misc]
        self._buckets.reshape(-1)[state[0]] = state[1]


@njit(cache=True, nogil=True)
def _counted(buckets: Any, hashes: Any, step: Any) -> Any:
    """Add a step to the buckets of each hash in turn; return the smallest of its buckets after that, (n,)."""
    counts = np.empty(len(hashes), dtype=np.int64)
    for place in range(len(hashes)):
        key = hashes[place] ^ (hashes[place] >> np.uint64(32))
        least = np.int64(2**63 - 1)
        for table in range(_TABLES):
            bucket = (key * _MULTIPLIERS[table]) >> np.uint64(64 - _BUCKET_BITS)
            buckets[table, bucket] += step
            least = min(least, buckets[table, bucket])
        counts[place] = least
    return counts


@njit(cache=True, nogil=True)
def _mix(hashes: Any, numbers: Any) -> None:
    """Mix further numbers into the hashes."""
    for place in range(len(hashes)):
        hashes[place] = _with_number(hashes[place], numbers[place])
