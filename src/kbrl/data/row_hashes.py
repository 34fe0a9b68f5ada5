"""Hashes of rows of numbers: equal rows have equal hashes, and those of different rows look random.

They order samples without favouring any, and independently of files and of the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbrl.arrays import Array, Floats, Integers
from kbrl.numba_cache import njit

Hashes = NDArray[np.uint64]

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


def row_hashes(columns: Iterable[Array]) -> Hashes:
    """Return a hash of the numbers at each place of arrays that all have the same shape."""
    hashes: Hashes = np.empty(0, dtype=np.uint64)
    for number, column in enumerate(columns):
        if number == 0:
            hashes = np.full(column.shape, _START, dtype=np.uint64)
        _mix(hashes.reshape(-1), np.asarray(column, dtype=np.float64).reshape(-1))
    return hashes


def canonical_order(states: Floats, outcome: list[Array]) -> Integers:
    """Return an order of samples that depends only on their contents: by state, then by a hash."""
    return np.lexsort([*outcome, row_hashes(outcome), *states.T])


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
        """What is sent to other processes are the buckets that are not empty."""
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
    """Mix further numbers into the hashes, by the finaliser of splitmix64."""
    for place in range(len(hashes)):
        key = hashes[place] ^ np.float64(numbers[place] + 0.0).view(np.uint64)  # + 0.0: -0 is 0
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes[place] = key ^ (key >> np.uint64(31))
