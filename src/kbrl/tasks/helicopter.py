"""Helicopter hovering: keep a helicopter in one place in gusty wind, with four controls.

The model of an XCell Tempest (Abbeel, Ganapathi and Ng 2005) as the RL Competition of 2008 had it: ten Euler steps of
0.01 s per decision, and gusts drawn once per decision.  Axes are north, east, down; those of the body forward, right,
down.

Paper: section 5.2.3 and appendix B.1.
"""

from __future__ import annotations

from itertools import product
from math import cos, radians, sin, sqrt
from typing import Any, Literal

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_floats, as_generator, as_rows, check_finite, flag, one_of, refuse_rows
from kbrl.numba_cache import njit
from kbrl.tasks.flight_picture import draw_flight
from kbrl.tasks.task import Task

DT, N_SUBSTEPS = 0.01, 10
GRAVITY = 9.81
SIDE_THRUST = -0.54  # of the tail rotor; a helicopter at rest is pushed to the left
THRUST = -42.15  # of the main rotor at full collective
DRAG = (-0.18, -0.43, -0.49)  # of the velocity's body components
DAMPING = (-12.78, -10.12, -8.16)  # of the rates
TURNING = (33.04, -33.32, 70.54)  # of the rates, by the first three controls
GUST_SIZES = np.array([0.1941, 0.2975, 0.6058, 0.1508, 0.2492, 0.0734])
GUST_DECAY, GUST_SHARE = 0.8, 0.2 * 2.0  # of the gusts before, and of new ones of these sizes
WIND_SPEED = 5.0

LAST_DECISION = 6000
MAX_SPEED, MAX_DISTANCE, MAX_RATE = 5.0, 20.0, 2 * 3.1415 * 2
MIN_QW = cos(radians(30.0) / 2)  # an attitude 30 degrees from level and north: heading counts as much as tilt
# A crash costs, for each decision that is left, the largest cost of a decision inside the limits.
CRASH_COST = 3 * MAX_DISTANCE**2 + 3 * MAX_RATE**2 + 3 * MAX_SPEED**2 + 1.0 - MIN_QW**2

LEVELS = (-0.25, -0.05, 0.05, 0.25)
N_STATE = 20
VELOCITY, POSITION, RATES, QUATERNION, GUSTS, DECISIONS = 0, 3, 6, 9, 13, 19  # first columns
_SMALL_ANGLE = 1e-4


class Helicopter(Task):
    """Helicopter hovering.

    A state holds velocity and position (north, east, down), rates about the body's axes (p, q, r), attitude (a
    quaternion from body to world, its real part last), six gusts and the number of decisions done.  Learners see
    velocity and position in the body's axes, the rates and the quaternion's vector part, each within its bounds.

    levels: the values of a control, for all four or four lists, one per control: roll, pitch, yaw, collective, in
        this order.  Actions are their combinations with the last control changing fastest.  The model clips
        controls to [-1, 1].
    wind: where a steady wind comes from, (north, east) in units of 5 m/s, each in [-1, 1].
    noise: False draws no new gusts; those in a state still die down.
    start_gusts: episodes start "calm", or with gusts from their stationary law ("blowing").  In the public
        program, only the first episode is calm: gusts outlast the episode.
    limits_altitude: end an episode also where the helicopter is 20 m too high or too low; the public program does
        not, by an oversight.
    renormalize: bring the quaternion back to length one after every Euler step; the public program does not.
    limit: the 6000th decision is an end, with reward 0 ("terminal", the public program), or a cut ("truncation").
    """

    name = "Helicopter"
    source = "Abbeel et al. 2005, RL-Library"
    discount = 0.99
    max_steps = LAST_DECISION
    state_names = (
        *("v_north", "v_east", "v_down", "north", "east", "down", "p", "q", "r", "qx", "qy", "qz", "qw"),
        *("gust_u", "gust_v", "gust_w", "gust_p", "gust_q", "gust_r", "decisions"),
    )
    high = np.repeat([MAX_SPEED, MAX_DISTANCE, MAX_RATE, 1.0], 3)
    low = -high
    test_sets = ("hover",)

    def __init__(
        self,
        *,
        levels: Any = LEVELS,
        wind: Any = (0.0, 0.0),
        noise: bool = True,
        start_gusts: Literal["calm", "blowing"] = "calm",
        limits_altitude: bool = False,
        renormalize: bool = False,
        limit: Literal["terminal", "truncation"] = "terminal",
    ) -> None:
        self.levels = _as_levels(levels)
        self.wind = _as_wind(wind)
        self.noise = flag(noise, "noise")
        self.start_gusts = one_of(start_gusts, ("calm", "blowing"), "start_gusts")
        self.limits_altitude = flag(limits_altitude, "limits_altitude")
        self.renormalize = flag(renormalize, "renormalize")
        self.limit = one_of(limit, ("terminal", "truncation"), "limit")
        self._controls = np.array(list(product(*self.levels)))
        self.actions = tuple(" ".join(f"{level:+.12g}" for level in row) for row in self._controls)

    @property
    def observation_names(self) -> tuple[str, ...]:
        """The names of the observed variables."""
        return ("u", "v", "w", "x", "y", "z", "p", "q", "r", "qx", "qy", "qz")

    @property
    def controls(self) -> Floats:
        """The controls of each action, (n_actions, 4): roll, pitch, yaw, collective."""
        return self._controls.copy()

    def observe(self, states: Floats) -> Floats:
        """Return the twelve numbers that a learner sees, (n, 12)."""
        return _observe(np.ascontiguousarray(states), self.high)

    def truncates(self, states: Floats) -> Booleans:
        """Return where the last decision has been taken, if that is a cut and not an end."""
        return (self.limit == "truncation") & (states[:, DECISIONS] >= LAST_DECISION)

    def fly(self, states: Any, controls: Any, rng: Any = None) -> tuple[Floats, Floats, Booleans]:
        """Do what ``step`` does, with any controls, (n, 4), clipped to [-1, 1], in place of actions."""
        states = as_rows(states, "states of Helicopter", n_dims=N_STATE)
        controls = as_rows(controls, "controls", n_dims=4)
        if len(controls) != len(states):
            raise ValueError(f"controls must have one row per state, {len(states)}, but they have {len(controls)}.")
        return self._fly(np.array(states), controls, as_generator(rng))

    def draw(self, axes: Any, states: Floats, actions: Integers | None = None) -> None:
        """Draw the track from above, the attitude as an artificial horizon, and the altitude over time."""
        seconds = np.arange(len(states), dtype=np.float64) * (N_SUBSTEPS * DT)
        draw_flight(axes, seconds, states[:, POSITION:RATES], states[-1, QUATERNION:GUSTS])

    def _reset(self, n: int, rng: np.random.Generator) -> Floats:
        states = np.zeros((n, N_STATE))
        states[:, QUATERNION + 3] = 1.0
        if self.noise and self.start_gusts == "blowing":
            settled = GUST_SHARE / sqrt(1.0 - GUST_DECAY**2) * GUST_SIZES
            states[:, GUSTS:DECISIONS] = settled * rng.standard_normal((n, 6))
        return states

    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        return self._fly(states, self._controls[actions], rng)

    def _fly(self, states: Floats, controls: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        _check(states)
        shape = (len(states), 6)
        gusts = GUST_SHARE * GUST_SIZES * rng.standard_normal(shape) if self.noise else np.zeros(shape)
        wind = WIND_SPEED * np.array(self.wind)
        is_end = self.limit == "terminal"
        return _fly(states, np.clip(controls, -1.0, 1.0), gusts, wind, self.limits_altitude, self.renormalize, is_end)

    def _test_states(self, name: str) -> Floats:
        return np.eye(1, N_STATE, QUATERNION + 3)  # at rest, level, heading north

    def __repr__(self) -> str:
        options = {key: value for key, value in vars(self).items() if not key.startswith("_") and key != "actions"}
        return f"Helicopter({', '.join(f'{key}={value!r}' for key, value in options.items())})"


def _as_levels(levels: Any) -> tuple[tuple[float, ...], ...]:
    lists = list(levels) if np.iterable(levels) and not isinstance(levels, str) else []
    if lists and not any(np.iterable(level) for level in lists):
        lists = [lists] * 4
    if len(lists) != 4:
        raise ValueError(f"levels must be the levels of all controls, or four lists of them, but they are {levels!r}.")
    return tuple(_as_distinct(level, f"levels of control {i + 1}") for i, level in enumerate(lists))


def _as_distinct(values: Any, name: str) -> tuple[float, ...]:
    array = as_floats(values, name)
    if array.ndim != 1 or len(array) == 0 or len(np.unique(array)) < len(array):
        raise ValueError(f"{name} must be one or more different numbers, but they are {values!r}. Try [-0.1, 0.1].")
    check_finite(array, name)
    return tuple(array.tolist())


def _as_wind(wind: Any) -> tuple[float, float]:
    array = as_floats(wind, "wind")
    if array.shape != (2,) or not (np.abs(array) <= 1.0).all():
        raise ValueError(f"wind must be two numbers in [-1, 1], from north and from east, but it is {wind!r}.")
    return float(array[0]), float(array[1])


def _check(states: Floats) -> None:
    lengths = np.sqrt(np.einsum("ij,ij->i", states[:, QUATERNION:GUSTS], states[:, QUATERNION:GUSTS]))
    bad = (np.abs(lengths - 1.0) > 1e-6) | (states[:, DECISIONS] < 0)
    if bad.any():
        rule = "have a quaternion of length 1 (columns 9 to 12) and a number of decisions not below 0 (column 19)"
        refuse_rows(bad, states, "states of Helicopter", rule, "A level helicopter has the quaternion 0, 0, 0, 1.")


@njit(cache=True, nogil=True)
def _rotate(x: float, y: float, z: float, w: float, a: float, b: float, c: float) -> tuple[float, float, float]:
    """The vector (a, b, c) turned by the quaternion q: q (a, b, c) q*."""
    along = 2.0 * (x * a + y * b + z * c)
    scale = w * w - x * x - y * y - z * z
    return (
        scale * a + along * x + 2.0 * w * (y * c - z * b),
        scale * b + along * y + 2.0 * w * (z * a - x * c),
        scale * c + along * z + 2.0 * w * (x * b - y * a),
    )


@njit(cache=True, nogil=True)
def _turn(s: Floats) -> None:
    """Multiply the quaternion by that of the rotation during one Euler step."""
    a, b, c = DT * s[RATES], DT * s[RATES + 1], DT * s[RATES + 2]
    angle = sqrt(a * a + b * b + c * c)
    share = 0.5 if angle < _SMALL_ANGLE else sin(0.5 * angle) / angle
    a, b, c = share * a, share * b, share * c
    d = sqrt(1.0 - (a * a + b * b + c * c)) if angle < _SMALL_ANGLE else cos(0.5 * angle)
    x, y, z, w = s[QUATERNION], s[QUATERNION + 1], s[QUATERNION + 2], s[QUATERNION + 3]
    s[QUATERNION] = w * a + x * d + y * c - z * b
    s[QUATERNION + 1] = w * b - x * c + y * d + z * a
    s[QUATERNION + 2] = w * c + x * b - y * a + z * d
    s[QUATERNION + 3] = w * d - x * a - y * b - z * c


@njit(cache=True, nogil=True)
def _normalize(s: Floats) -> None:
    length = sqrt(s[9] * s[9] + s[10] * s[10] + s[11] * s[11] + s[12] * s[12])
    for k in range(QUATERNION, GUSTS):
        s[k] /= length


@njit(cache=True, nogil=True)
def _advance(s: Floats, control: Floats, wind: Floats) -> None:
    """Take one Euler step in place; each line uses what those above it have changed."""
    for k in range(3):
        s[POSITION + k] += DT * s[k]
    x, y, z, w = s[QUATERNION], s[QUATERNION + 1], s[QUATERNION + 2], s[QUATERNION + 3]
    forward, right, down = _rotate(-x, -y, -z, w, s[0], s[1], s[2])
    wind_forward, wind_right, _ = _rotate(-x, -y, -z, w, wind[0], wind[1], 0.0)
    ahead = DRAG[0] * (forward + wind_forward) + s[GUSTS]
    aside = DRAG[1] * (right + wind_right) + SIDE_THRUST + s[GUSTS + 1]
    below = DRAG[2] * down + THRUST * control[3] + s[GUSTS + 2]  # the wind does not enter here
    north, east, fall = _rotate(x, y, z, w, ahead, aside, below)
    s[0] += DT * north
    s[1] += DT * east
    s[2] += DT * (fall + GRAVITY)
    _turn(s)
    for k in range(3):
        s[RATES + k] += DT * (DAMPING[k] * s[RATES + k] + TURNING[k] * control[k] + s[GUSTS + 3 + k])


@njit(cache=True, nogil=True)
def _is_outside(s: Floats, limits_altitude: bool) -> bool:
    for k in range(3):
        if abs(s[k]) > MAX_SPEED or abs(s[RATES + k]) > MAX_RATE:
            return True
    if abs(s[POSITION]) > MAX_DISTANCE or abs(s[POSITION + 1]) > MAX_DISTANCE:
        return True
    if limits_altitude and abs(s[POSITION + 2]) > MAX_DISTANCE:
        return True
    return abs(s[QUATERNION + 3]) < MIN_QW


@njit(cache=True, nogil=True)
def _fly(
    states: Floats,
    controls: Floats,
    gusts: Floats,
    wind: Floats,
    limits_altitude: bool,
    renormalize: bool,
    limit_is_end: bool,
) -> tuple[Floats, Floats, Booleans]:
    """Move every state by one decision, in place; new gusts are drawn outside, so that the seed decides alone."""
    n = len(states)
    rewards, terminals = np.empty(n), np.zeros(n, dtype=np.bool_)
    for i in range(n):
        s = states[i]
        for k in range(6):
            s[GUSTS + k] = GUST_DECAY * s[GUSTS + k] + gusts[i, k]
        for _ in range(N_SUBSTEPS):
            _advance(s, controls[i], wind)
            if renormalize:
                _normalize(s)
            terminals[i] |= _is_outside(s, limits_altitude)  # once outside is a crash, whatever follows
        s[DECISIONS] += 1.0
        terminals[i] |= limit_is_end and s[DECISIONS] >= LAST_DECISION
        if terminals[i]:
            rewards[i] = -CRASH_COST * max(LAST_DECISION - s[DECISIONS], 0.0)
        else:
            rewards[i] = -np.sum(s[: QUATERNION + 3] ** 2)
    return states, rewards, terminals


@njit(cache=True, nogil=True)
def _observe(states: Floats, bounds: Floats) -> Floats:
    seen = np.empty((len(states), 12))
    for i in range(len(states)):
        s = states[i]
        x, y, z, w = s[QUATERNION], s[QUATERNION + 1], s[QUATERNION + 2], s[QUATERNION + 3]
        seen[i, 0], seen[i, 1], seen[i, 2] = _rotate(-x, -y, -z, w, s[0], s[1], s[2])
        seen[i, 3], seen[i, 4], seen[i, 5] = _rotate(-x, -y, -z, w, s[3], s[4], s[5])
        for k in range(6, 12):
            seen[i, k] = s[k]
        for k in range(12):
            seen[i, k] = min(max(seen[i, k], -bounds[k]), bounds[k])
    return seen
