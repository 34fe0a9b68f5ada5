"""Where states can be: predicted states are put back onto what the data lie on.

Sine and cosine of an angle lie on a circle.  The variables of a category, one per level, are shares that sum to one; a
flag is from 0 to 1.  Between two levels a predicted state has shares of both: the probabilities of the levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kbrl.arrays import Floats, Integers
from kbrl.data.scaling import Coordinates
from kbrl.lines.circles import NO_CIRCLES, Circles


class Surface(NamedTuple):
    """What the states of a log lie on."""

    circles: Circles
    levels: Integers  # (n_groups, 2): the first variable of a category, and the one after its last; or a flag alone
    units: Floats  # (2, n_dims): the centre and the scale of each variable


def surface_of(units: Coordinates, circles: Circles = NO_CIRCLES, levels: Sequence[tuple[int, int]] = ()) -> Surface:
    """Return the surface of states in these coordinates, on which these variables are levels."""
    places = np.array(levels, dtype=np.intp).reshape(-1, 2)
    return Surface(circles, places, np.ascontiguousarray(np.stack([units.centre, units.scale])))


def with_flags(surface: Surface, states: Floats) -> Surface:
    """Return a surface on which variables that are only ever 0 or 1 in these states, (n, n_dims), are flags."""
    known = {place for first, stop in surface.levels.tolist() for place in range(first, stop)}
    is_flag = ((states == 0) | (states == 1)).all(axis=0) & (np.ptp(states, axis=0) > 0)
    found = [(place, place + 1) for place in np.flatnonzero(is_flag).tolist() if place not in known]
    levels = [*map(tuple, surface.levels.tolist()), *found]
    return surface._replace(levels=np.array(levels, dtype=np.intp).reshape(-1, 2))
