"""The units of state variables: distances are taken after each variable is centred and scaled.

The paper advises it (section 6.2); its results on poles and puddles depend on it.  Centre and scale belong to the
model: they are taken from the first data seen and frozen.  They come from exact sums, so neither the order of the data
nor their split into chunks changes a bit of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kbrl.arrays import Floats
from kbrl.checks import LARGEST_COORDINATE, as_floats, one_of
from kbrl.data.exact_sums import Moments
from kbrl.data.state_names import UNNAMED, Source

# A variable that moves by no more than this fraction of its size moves by rounding: it is constant.
_ROUNDING = 16 * float(np.finfo(np.float64).eps)
# Variables up to half as many scales away from 0 need no centre: differences of doubles lose 9 of their 52 bits there.
_QUANTUM = 1024.0


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

    def shifted(self, states: Floats) -> Floats:
        """Return states minus the centre."""
        return states - self.centre if self.centre.any() else states

    def back(self, rows: Floats) -> Floats:
        """Return states in the units of the data."""
        return rows * self.scale + self.centre

    def same_as(self, other: Coordinates) -> bool:
        """Whether two coordinates are the same."""
        return np.array_equal(self.scale, other.scale) and np.array_equal(self.centre, other.centre)

    def check(self, states: Floats) -> None:
        """Refuse states so large that their distances would overflow."""
        with np.errstate(over="ignore"):
            shifted = self.shifted(states)
            if max(shifted.max(), -shifted.min()) / self.scale.min() > LARGEST_COORDINATE:  # faster than by column
                self.of(states)

    def _refuse(self, states: Floats, rows: Floats) -> None:
        largest = np.abs(states).max(axis=0)
        column = int(np.argmax(np.abs(rows).max(axis=0)))
        raise ValueError(
            f"States divided by their scale must not exceed {LARGEST_COORDINATE:g}, or distances overflow, but "
            f"variable {column} reaches {largest[column]:g} and its scale is {self.scale[column]:g}. "
            f"Use scaling='std' or other units."
        )


def coordinates(states: Floats, scaling: Any, *, around: Floats | None = None, source: Source = UNNAMED) -> Coordinates:
    """Return the coordinates of states, (n, n_dims), by ``scaling``: "std", "range", None, or given by the user.

    ``around`` are other states to take the centre from; ``source`` says which variables are levels of a category.
    """
    scale = source.with_fixed_scales(state_scale(states, scaling), scaling)
    return around_centre(scale, Moments(states.shape[1]).widen(states if around is None else around))


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
