"""Pairs of state variables that lie on a circle, such as the sine and the cosine of an angle.

Predicted states would leave the circle by a little at each step, and then be where no data are.  Pairs are found in a
sample of the states; plans put each predicted state back onto the circles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kbrl.arrays import Floats, Integers
from kbrl.data.scaling import Coordinates

_LOOKED_AT = 2000  # states of the sample
_EXACT = 1e-5  # how far a state may be from the circle, in radii: single precision and a few steps of rounding
_LEAST_POINTS = 16  # of different values: any three points lie on a circle
_LARGEST = 1e150  # squares of larger numbers overflow
_LEAST_SPREAD = 0.05  # of both variables, in radii: a short arc is nearly a line


class Circles(NamedTuple):
    """Circles in the plane of two state variables each."""

    places: Integers  # (n_circles, 2): the two variables
    shapes: Floats  # (n_circles, 5): the centre, scaled; the scales of the two variables; the radius, in their units

    def same_as(self, other: Circles) -> bool:
        """Whether two sets of circles are the same."""
        return np.array_equal(self.places, other.places) and np.array_equal(self.shapes, other.shapes)


NO_CIRCLES = Circles(np.zeros((0, 2), dtype=np.intp), np.zeros((0, 5)))


def find_circles(states: Floats, units: Coordinates, angles: Sequence[tuple[int, int]] = ()) -> Circles:
    """Return the pairs of variables of states, (n, n_dims), in the units of the data, that lie on a circle.

    ``angles`` are the places of sines and cosines of angles, which lie on the unit circle whatever the data.
    """
    rows = states[np.linspace(0, len(states) - 1, min(len(states), _LOOKED_AT)).astype(np.intp)]
    places = list(angles)
    shapes = [_unit_circle(units, list(pair)) for pair in angles]
    taken = {place for pair in angles for place in pair}
    for one in range(states.shape[1]):
        for other in range(one + 1, states.shape[1]):
            if taken & {one, other}:
                continue
            found = _circle(rows[:, one], rows[:, other])
            if found is not None:
                x, y, radius = found
                scales = units.scale[[one, other]]
                centre = (np.array([x, y]) - units.centre[[one, other]]) / scales
                places.append((one, other))
                shapes.append((*centre, *scales, radius))
                taken |= {one, other}
    return Circles(np.array(places, dtype=np.intp), np.array(shapes)) if places else NO_CIRCLES


def _unit_circle(units: Coordinates, pair: list[int]) -> tuple[float, ...]:
    centre, scales = -units.centre[pair] / units.scale[pair], units.scale[pair]
    return (*centre.tolist(), *scales.tolist(), 1.0)


def _circle(x: Floats, y: Floats) -> tuple[float, float, float] | None:
    """Return centre and radius if all points lie on one circle: x^2 + y^2 is then linear in x and y."""
    narrow, wide = sorted((float(np.ptp(x)), float(np.ptp(y))))
    if narrow < 0.5 * _LEAST_SPREAD * wide or wide == 0 or wide > _LARGEST:  # a range is at most two radii
        return None
    middle = np.array([x.mean(), y.mean()])
    u, v = x - middle[0], y - middle[1]
    squares = u**2 + v**2
    solution = np.linalg.lstsq(np.column_stack([u, v, np.ones_like(u)]), squares, rcond=None)[0]
    centre = 0.5 * solution[:2]
    radius = float(np.sqrt(max(solution[2] + (centre**2).sum(), 0.0)))
    distances = np.hypot(u - centre[0], v - centre[1])
    if radius == 0 or np.abs(distances - radius).max() > _EXACT * radius:
        return None
    if min(x.std(), y.std()) < _LEAST_SPREAD * radius or len(np.unique(x + 1j * y)) < _LEAST_POINTS:
        return None
    return float(centre[0] + middle[0]), float(centre[1] + middle[1]), radius
