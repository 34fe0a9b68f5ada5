"""A few kilobytes about the rows behind a model, so that no row is learnt twice, or forgotten that was never learnt.

A sketch holds the number of rows, the sum of their hashes modulo 2^64, and the 1024 smallest different hashes with
their counts (bottom-k, or KMV).  Sketches add up: any split and any order of the rows gives the same one, bit for bit.
A hash covers everything in a row: state, action label, reward, next state, end, and its episode's identifier.
The hash is part of the model file's format: docs/model_file.md describes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kbrl.arrays import Array
from kbrl.data.row_hashes import Hashes
from kbrl.data.transitions import Transitions

LISTED = 1024  # different rows
LARGEST_HASH = 2**64 - 1
Counts = NDArray[np.int64]


def _no_hashes() -> Hashes:
    return np.empty(0, dtype=np.uint64)


def _no_counts() -> Counts:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Sketch:
    """A sketch of the rows behind a model; by default, of no rows."""

    n_rows: int = 0
    total: int = 0  # the sum of the hashes of all rows, modulo 2^64
    hashes: Hashes = field(default_factory=_no_hashes)  # (k,), rising
    counts: Counts = field(default_factory=_no_counts)  # (k,): how many rows have each of them
    largest: int = LARGEST_HASH  # every row with a hash up to this one is listed

    @classmethod
    def of(cls, log: Transitions, *, largest: int = LARGEST_HASH) -> Sketch:
        """Return the sketch of transitions; hashes above ``largest`` are not listed."""
        hashes = transition_hashes(log)
        total = int(hashes.sum(dtype=np.uint64))
        listed = hashes if largest == LARGEST_HASH else hashes[hashes <= np.uint64(largest)]
        if not len(listed):
            return cls(len(log), total, largest=largest)
        different, counts = np.unique(listed, return_counts=True)
        return cls(len(log), total, different, counts.astype(np.int64), largest).cut_to_size()

    def __add__(self, other: Sketch) -> Sketch:
        """Return the sketch of both sets of rows."""
        largest = min(self.largest, other.largest)
        total, n_rows = (self.total + other.total) % 2**64, self.n_rows + other.n_rows
        if not len(other.hashes) and largest == self.largest:  # as mostly, when few rows come to many
            return replace(self, n_rows=n_rows, total=total)
        mine, theirs = self.up_to(largest), other.up_to(largest)
        different, places = np.unique(np.concatenate([mine.hashes, theirs.hashes]), return_inverse=True)
        counts = np.zeros(len(different), dtype=np.int64)
        np.add.at(counts, places, np.concatenate([mine.counts, theirs.counts]))
        return Sketch(n_rows, total, different, counts, largest).cut_to_size()

    def __sub__(self, other: Sketch) -> Sketch:
        """Return the sketch without rows that it contains; the list becomes shorter."""
        largest = min(self.largest, other.largest)
        mine, theirs = self.up_to(largest), other.up_to(largest)
        counts = mine.counts - theirs.counts_of(mine.hashes)
        total = (self.total - other.total) % 2**64
        left = counts > 0
        return Sketch(self.n_rows - other.n_rows, total, mine.hashes[left], counts[left], largest)

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
        return replace(self, hashes=self.hashes[:n], counts=self.counts[:n], largest=largest)

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
    """Return the hash of each row, (n,), made of the contents of the row alone, not of the order of the labels."""
    ids = log.episodes if log.source.has_episode_ids else None
    labels = _label_hashes(log.action_labels)[log.action_indices]
    episodes = _no_hashes() if ids is None else _hashes_of_runs(ids)
    hashes: Hashes = np.empty(len(log), dtype=np.uint64)
    _hash_rows(log.states, log.rewards, log.next_states, log.terminals, labels, episodes, hashes)
    return hashes


def _hashes_of_runs(labels: Array) -> Hashes:
    """Return the hash of each label, (n,), computed once per run of equal labels."""
    starts = np.append(0, 1 + np.flatnonzero(labels[1:] != labels[:-1]))
    return np.repeat(_label_hashes(labels[starts]), np.diff(np.append(starts, len(labels))))


def _label_hashes(labels: Array) -> Hashes:
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


@njit(cache=True, nogil=True)
def _scrambled(key: Any) -> Any:
    """The finaliser of splitmix64."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@njit(cache=True, nogil=True)
def _with_number(key: Any, number: Any) -> Any:
    return _scrambled(key ^ np.float64(number + 0.0).view(np.uint64))  # + 0.0: -0 is 0


@njit(cache=True, nogil=True)
def _hash_rows(
    states: Any, rewards: Any, next_states: Any, terminals: Any, labels: Any, episodes: Any, hashes: Any
) -> None:
    for row in range(len(hashes)):
        key = np.uint64(0x9E3779B97F4A7C15)
        for column in range(states.shape[1]):
            key = _with_number(key, states[row, column])
        key = _with_number(key, rewards[row])
        for column in range(states.shape[1]):
            key = _with_number(key, next_states[row, column])
        key = _with_number(key, np.float64(terminals[row]))
        key = _scrambled(key ^ labels[row])
        hashes[row] = _scrambled(key ^ episodes[row]) if len(episodes) else key


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
