"""Scrambled bits of rows of numbers: equal rows have equal bits, and the bits of others are as if drawn at random.

They put samples into an order that favours none and depends neither on files nor on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kbrl.arrays import Array, Floats, Integers

Hashes = NDArray[np.uint64]

_START = 0x9E3779B97F4A7C15


def row_hashes(columns: Iterable[Array]) -> Hashes:
    """Return a hash of the numbers at each place of some arrays of one shape."""
    hashes: Hashes = np.empty(0, dtype=np.uint64)
    for number, column in enumerate(columns):
        if number == 0:
            hashes = np.full(column.shape, _START, dtype=np.uint64)
        _mix(hashes.reshape(-1), np.asarray(column, dtype=np.float64).reshape(-1))
    return hashes


def canonical_order(states: Floats, outcome: list[Array]) -> Integers:
    """Return an order of samples by nothing but what they hold: by state, and those of one state by a hash."""
    return np.lexsort([*outcome, row_hashes(outcome), *states.T])


@njit(cache=True, nogil=True)
def _mix(hashes: Any, numbers: Any) -> None:
    """Take further numbers into the hashes, by the finaliser of splitmix64."""
    for place in range(len(hashes)):
        key = hashes[place] ^ np.float64(numbers[place] + 0.0).view(np.uint64)  # + 0.0: -0 is 0
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes[place] = key ^ (key >> np.uint64(31))
