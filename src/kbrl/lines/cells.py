"""Which representative state is nearest to a state: the cell that the state belongs to.

All distances are computed in single precision, which takes a third of the time.  They leave few points that may be the
nearest, mostly one.  Only these are compared in double precision, so the answer is that of double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbrl.arrays import Floats, Integers
from kbrl.numba_cache import inner, njit

Singles = NDArray[np.float32]

_BLOCK = 64  # points that are looked at, or passed over, together
_ERROR = 2.0**-20  # sixteen rounding errors of single precision: more than one state variable brings
_FARTHEST = 1e15  # coordinates beyond it are compared in double precision alone: squares might overflow
_PADDING = np.float32(1e18)  # coordinates of points that fill up the last block: farther than any other
_TINY = 1e-36  # below it, single precision loses digits


@njit(cache=True, nogil=True)
def nearest_cells(states: Floats, columns: Floats) -> Integers:
    """Return which point is nearest to each state, (n,); points are (n_dims, n_points); of equals the first counts.

    Every distance is summed in the same order, so that an answer never depends on the other states asked about.
    """
    n_dims, n_points = columns.shape
    n_blocks = -(-n_points // _BLOCK)
    coarse, farthest = np.full((n_dims, n_blocks * _BLOCK), _PADDING), 0.0
    for k in range(n_dims):
        for i in range(n_points):
            coarse[k, i] = columns[k, i]
            farthest = max(farthest, abs(columns[k, i]))
    squares, lows = np.zeros(n_blocks * _BLOCK, dtype=np.float32), np.zeros(n_blocks, dtype=np.float32)
    bits, low_bits = squares.view(np.int32), lows.view(np.int32)  # positive numbers are in the order of their bits
    slack = n_dims * _ERROR
    found = np.empty(len(states), dtype=np.intp)
    for t in range(len(states)):
        size, limit = farthest, np.inf
        for k in range(n_dims):
            size = max(size, abs(states[t, k]))
        if size < _FARTHEST:
            _fill_squares(states, t, coarse, squares)
            for b in range(n_blocks):
                low_bits[b] = _least(bits[b * _BLOCK : (b + 1) * _BLOCK])
                limit = min(limit, lows[b])
            limit = ((np.sqrt(limit) + slack * size) * (1.0 + slack)) ** 2 + _TINY
        found[t] = _nearest_within(np.float32(limit), squares, lows, states, t, columns)
    return found


@inner(fastmath={"contract"})
def _fill_squares(states: Floats, t: int, coarse: Singles, squares: Singles) -> None:
    """Fill in the squared distances of a state: two variables at a time, to read and write the sums half as often."""
    n_dims, n_points = coarse.shape
    for i in range(n_points):
        squares[i] = 0.0
    for k in range(0, n_dims - 1, 2):
        one, other = np.float32(states[t, k]), np.float32(states[t, k + 1])
        for i in range(n_points):
            x, y = one - coarse[k, i], other - coarse[k + 1, i]
            squares[i] += x * x + y * y
    if n_dims % 2:
        one = np.float32(states[t, n_dims - 1])
        for i in range(n_points):
            x = one - coarse[n_dims - 1, i]
            squares[i] += x * x


@inner()
def _least(values: NDArray[np.int32]) -> int:
    """Return the smallest whole number: found in vector instructions, unlike that of floats."""
    least = values[0]
    for i in range(len(values)):
        least = min(least, values[i])
    return least


@inner()
def _nearest_within(limit: Any, squares: Singles, lows: Singles, states: Floats, t: int, columns: Floats) -> int:
    """Return the nearest to a state of the points with squares up to the limit."""
    n_dims, n_points = columns.shape
    best, least = 0, np.inf
    for b in range(len(lows)):
        if lows[b] > limit:
            continue
        for i in range(b * _BLOCK, min((b + 1) * _BLOCK, n_points)):
            if squares[i] <= limit:
                square = 0.0
                for k in range(n_dims):
                    away = states[t, k] - columns[k, i]
                    square += away * away
                if square < least:
                    best, least = i, square
    return best
