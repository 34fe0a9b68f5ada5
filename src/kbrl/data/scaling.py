"""The units of state variables: distances are taken after each variable is centred and scaled.

The paper advises it (section 6.2); its results on poles and puddles depend on it.  Centre and scale belong to the
model: they are taken from the first data seen and frozen.  They come from exact sums: a sum of doubles, or of their
squares, is a whole number times the smallest power of two there is.  `Moments` keeps it in pieces of 32 bits and rounds
once, at the end.  So neither the order of the data nor their split into chunks changes a bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbrl.arrays import Floats
from kbrl.checks import LARGEST_COORDINATE, as_floats, one_of
from kbrl.data.names import UNNAMED, Source
from kbrl.numba_cache import njit

# A variable that moves by no more than this fraction of its size moves by rounding: it is constant.
_ROUNDING = 16 * float(np.finfo(np.float64).eps)
# Variables up to half as many scales away from 0 need no centre: differences of doubles lose 9 of their 52 bits there.
_QUANTUM = 1024.0


Pieces = NDArray[np.int64]  # (n_dims, n_pieces), the lowest first: each in [0, 2^32), but the highest has the sign

# Room for 2^64 numbers: a double has bits from 2^-1074 to 2^1023, its square has twice as many.
_SUM_PIECES, _SQUARE_PIECES = 70, 136
_UNIT = 1074  # a sum counts in units of 2^-1074, a sum of squares in the square of that
_ROWS_BETWEEN_CARRIES = 2**28  # each row adds less than 2^33 to a piece
_LOW = np.uint64(2**32 - 1)
_HALF = np.uint64(32)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """What is subtracted from each state variable (centre), and what it is then divided by (scale)."""

    centre: Floats  # (n_dims,); 0 unless a variable is far from 0
    scale: Floats  # (n_dims,)

    @classmethod
    def plain(cls, n_dims: int) -> Coordinates:
        """Return coordinates that leave states as they are."""
        return cls(np.zeros(n_dims), np.ones(n_dims))

    @property
    def n_dims(self) -> int:
        """The number of state variables."""
        return len(self.scale)

    def of(self, states: Floats) -> Floats:
        """Return states, (n, n_dims), in these coordinates; refuse those whose distances would overflow."""
        rows = np.ascontiguousarray(self.shifted(states) / self.scale)
        if max(rows.max(), -rows.min()) > LARGEST_COORDINATE:
            self._refuse(states, rows)
        return rows

    @cached_property
    def has_centre(self) -> bool:
        """Whether the centre of some variable is not 0."""
        return bool(self.centre.any())

    def shifted(self, states: Floats) -> Floats:
        """Return states minus the centre."""
        return states - self.centre if self.has_centre else states

    def back(self, rows: Floats) -> Floats:
        """Return states in the units of the data."""
        return rows * self.scale + self.centre

    def same_as(self, other: Coordinates) -> bool:
        """Whether two coordinates are the same."""
        return np.array_equal(self.scale, other.scale) and np.array_equal(self.centre, other.centre)

    def _refuse(self, states: Floats, rows: Floats) -> None:
        largest = np.abs(states).max(axis=0)
        column = int(np.argmax(np.abs(rows).max(axis=0)))
        raise ValueError(
            f"States divided by their scale must not exceed {LARGEST_COORDINATE:g}, or distances overflow, but "
            f"variable {column} reaches {largest[column]:g} and its scale is {self.scale[column]:g}. "
            f"Use scaling='std' or other units."
        )


def coordinates(states: Floats, scaling: Any, *, source: Source = UNNAMED) -> Coordinates:
    """Return the coordinates of states, (n, n_dims), by ``scaling``: "std", "range", None, or given by the user.

    ``source`` says which variables are levels of a category.
    """
    scale = source.with_fixed_scales(state_scale(states, scaling), scaling)
    return around_centre(scale, Moments(states.shape[1]).widen(states))


def around_centre(scale: Floats, moments: Moments) -> Coordinates:
    """Return coordinates of this scale around the middle of the states behind the moments.

    The centre is a multiple of many scales, and 0 for most variables, so that logs of one source have the same centre.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        middle = 0.5 * moments.smallest + 0.5 * moments.largest
        centre = np.round(middle / (_QUANTUM * scale)) * (_QUANTUM * scale)
        is_near = (moments.largest - moments.smallest) / scale <= LARGEST_COORDINATE
    return Coordinates(np.where(np.isfinite(centre) & is_near, centre, 0.0) + 0.0, scale)


def state_scale(states: Floats, scaling: Any) -> Floats:
    """Return what each state variable is divided by, (n_dims,): "std", "range", None, or given by the user."""
    moments = Moments(states.shape[1])
    if isinstance(scaling, str) and scaling == "std":
        moments.accumulate(states)
    elif isinstance(scaling, str):
        moments.widen(states)
    return scale_of(moments, scaling)


def scale_of(moments: Moments, scaling: Any) -> Floats:
    """Return what each state variable is divided by, (n_dims,), from the moments of the states."""
    if scaling is None:
        return np.ones(moments.n_dims)
    if isinstance(scaling, str):
        one_of(scaling, ("std", "range"), "scaling")
        return _spread(moments, scaling)
    return _given(scaling, moments.n_dims)


def _spread(moments: Moments, scaling: str) -> Floats:
    """Return each variable's spread, (n_dims,); 1 for a variable that never changes."""
    spread = moments.largest - moments.smallest
    moves = spread > _ROUNDING * moments.largest_size
    return np.where(moves, moments.std() if scaling == "std" else spread, 1.0)


def _given(scaling: Any, n_dims: int) -> Floats:
    scale = as_floats(scaling, "scaling")
    if scale.shape != (n_dims,):
        raise ValueError(
            f"scaling must be 'std', 'range', None or one number for each of the {n_dims} state variables, "
            f"but its shape is {scale.shape}."
        )
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ValueError(f"scaling must be finite numbers above 0, but it is {scale.tolist()}.")
    return scale.copy()


class Moments:
    """The number of rows, and the sum, the sum of squares, the smallest and the largest number of each column."""

    def __init__(self, n_dims: int) -> None:
        self.n_rows = 0
        self.smallest: Floats = np.full(n_dims, np.inf)
        self.largest: Floats = np.full(n_dims, -np.inf)
        self._sums: Pieces = np.zeros((n_dims, _SUM_PIECES), dtype=np.int64)
        self._squares: Pieces = np.zeros((n_dims, _SQUARE_PIECES), dtype=np.int64)

    def accumulate(self, rows: Floats) -> Moments:
        """Add finite rows, (n, n_dims), and return self."""
        for start in range(0, len(rows), _ROWS_BETWEEN_CARRIES):
            _add(rows[start : start + _ROWS_BETWEEN_CARRIES], self._sums, self._squares)
            self._carry()
        self.n_rows += len(rows)
        return self.widen(rows)

    def widen(self, rows: Floats) -> Moments:
        """Update only the smallest and the largest number of each column, and return self."""
        if len(rows):
            self._widen(rows.min(axis=0), rows.max(axis=0))
        return self

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows."""
        result = Moments(self.n_dims)
        result.n_rows = self.n_rows + other.n_rows
        result._sums, result._squares = self._sums + other._sums, self._squares + other._squares
        result._carry()
        for part in (self, other):
            result._widen(part.smallest, part.largest)
        return result

    @property
    def n_dims(self) -> int:
        """The number of columns."""
        return len(self._sums)

    @property
    def largest_size(self) -> Floats:
        """The largest absolute value of each column, (n_dims,)."""
        return np.maximum(self.largest, -self.smallest)

    def mean(self) -> Floats:
        """Return the mean of each column, (n_dims,), correctly rounded."""
        return np.array([_whole(pieces) / (self.n_rows << _UNIT) for pieces in self._sums])

    def mean_square(self) -> Floats:
        """Return the mean square of each column, (n_dims,), correctly rounded."""
        return np.array([_whole(pieces) / (self.n_rows << 2 * _UNIT) for pieces in self._squares])

    def std(self) -> Floats:
        """Return the standard deviation of each column, (n_dims,), correctly rounded."""
        sums = [(_whole(total), _whole(squares)) for total, squares in zip(self._sums, self._squares)]
        return np.array([_root(self.n_rows * squares - total**2, self.n_rows) for total, squares in sums])

    def _widen(self, smallest: Floats, largest: Floats) -> None:
        self.smallest = np.minimum(self.smallest, smallest) + 0.0  # -0 and 0 are the same number: store 0
        self.largest = np.maximum(self.largest, largest) + 0.0

    def _carry(self) -> None:
        _carry(self._sums)
        _carry(self._squares)


def _whole(pieces: Pieces) -> int:
    """Return the whole number that the pieces represent."""
    low = int.from_bytes(pieces[:-1].astype("<u4").tobytes(), "little")
    return low + (int(pieces[-1]) << (32 * (len(pieces) - 1)))


def _root(square: int, n_rows: int) -> float:
    """Return sqrt(square) / n_rows in units of 2^-1074, correctly rounded."""
    shift = max(0, 70 + n_rows.bit_length() - square.bit_length() // 2)  # at least 66 bits of the root
    scaled, rest = divmod(square << (2 * shift), n_rows**2)
    root = isqrt(scaled)
    is_inexact = rest > 0 or root**2 != scaled
    return (2 * root + is_inexact) / (1 << (_UNIT + shift + 1))  # the last bit says on which side of a half it lies


@njit(cache=True, nogil=True)
def _add(rows: Any, sums: Any, squares: Any) -> None:
    for t in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            _add_number(rows[t, k], sums[k], squares[k])


@njit(inline="always")
def _add_number(number: float, total: Any, square: Any) -> None:
    """Add whole * 2^exponent, and its square, to the pieces that they overlap."""
    bits = np.float64(number).view(np.uint64)
    exponent = np.int64((bits >> np.uint64(52)) & np.uint64(0x7FF))
    whole = bits & np.uint64(2**52 - 1)
    if exponent > 0:
        whole |= np.uint64(2**52)
        exponent -= 1
    sign = np.int64(1) - np.int64(2) * np.int64(bits >> np.uint64(63))
    low, high = whole & _LOW, whole >> _HALF
    piece, offset = exponent >> 5, np.uint64(exponent & 31)
    low_moved, high_moved = low << offset, high << offset
    total[piece] += sign * np.int64(low_moved & _LOW)
    total[piece + 1] += sign * np.int64((low_moved >> _HALF) + (high_moved & _LOW))
    total[piece + 2] += sign * np.int64(high_moved >> _HALF)
    # the square: low^2 + 2 low high 2^32 + high^2 2^64, in pieces of 32 bits
    low_square, cross, high_square = low * low, np.uint64(2) * low * high, high * high
    second = (low_square >> _HALF) + (cross & _LOW)
    third = (second >> _HALF) + (cross >> _HALF) + high_square
    piece, offset = (2 * exponent) >> 5, np.uint64((2 * exponent) & 31)
    part_0, part_1 = (low_square & _LOW) << offset, (second & _LOW) << offset
    part_2, part_3 = (third & _LOW) << offset, (third >> _HALF) << offset
    square[piece] += np.int64(part_0 & _LOW)
    square[piece + 1] += np.int64((part_0 >> _HALF) + (part_1 & _LOW))
    square[piece + 2] += np.int64((part_1 >> _HALF) + (part_2 & _LOW))
    square[piece + 3] += np.int64((part_2 >> _HALF) + (part_3 & _LOW))
    square[piece + 4] += np.int64(part_3 >> _HALF)


@njit(cache=True, nogil=True)
def _carry(pieces: Any) -> None:
    """Bring all pieces but the highest to [0, 2^32)."""
    for k in range(pieces.shape[0]):
        carry = np.int64(0)
        for piece in range(pieces.shape[1] - 1):
            whole = pieces[k, piece] + carry
            pieces[k, piece] = whole & np.int64(2**32 - 1)
            carry = whole >> np.int64(32)
        pieces[k, pieces.shape[1] - 1] += carry
