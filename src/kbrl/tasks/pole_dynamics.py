"""The motion of poles on a cart, compiled: Wieland's equations, integrated by Runge and Kutta's method.

They are those of uniform rods hinged to a cart, with friction at the track and the hinges (Wieland 1991; Gomez 2003).
States advance side by side, so that the compiler makes vector instructions of them.  Paper: appendix B.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.arrays import Booleans, Floats
from kbrl.numba_cache import njit

CART_MASS = 1.0  # kg
HALF_LENGTHS = (0.5, 0.05, 0.5)  # m: long, short, long
MASSES = (0.1, 0.01, 0.1)  # kg
GRAVITY = 9.8  # m/s^2
TRACK_FRICTION = 5e-4  # mu_c
HINGE_FRICTION = 2e-6  # mu_p
STEP = 0.01  # s
STEPS_PER_DECISION = 2
TRACK_LIMIT = 2.4  # m
ANGLE_LIMIT = np.deg2rad(36.0)


def advance(
    states: Floats,
    forces: Floats,
    gravity: float = -GRAVITY,
    *,
    track_friction: float = TRACK_FRICTION,
    hinge_friction: float = HINGE_FRICTION,
    step: float = STEP,
    n_steps: int = STEPS_PER_DECISION,
) -> Floats:
    """Move carts and poles (n, 2 + 2 n_poles), each pushed by its force (n,), for some integration steps.

    ``gravity`` has the sign of the equations: negative where poles fall.
    """
    n_poles = states.shape[1] // 2 - 1
    poles = np.array([HALF_LENGTHS[:n_poles], MASSES[:n_poles]])
    return _advance(states, forces, poles, np.array([gravity, track_friction, hinge_friction]), step, n_steps)


_LANES = 32  # states advance side by side in blocks of this size: the compiler makes vector instructions of the lanes
_ROUNDER = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest whole number in the lowest bits


@njit(error_model="numpy")
def _sine_and_cosine(angle: float) -> tuple[float, float]:
    """Return both to 2e-16 for angles up to a million radians; the compiler cannot vectorise calls of math.sin.

    The angle is reduced to a quarter turn by pi / 2 in three parts (Cody and Waite 1980); Taylor series do the rest.
    """
    rounded = angle * 0.6366197723675814 + _ROUNDER
    turns = rounded - _ROUNDER
    r = angle - turns * 1.57079632673412561417 - turns * 6.07710050630396597660e-11 - turns * 2.02226624879595063154e-21
    r = min(max(r, -1.0), 1.0)  # only beyond a million radians is it outside
    z = r * r
    sine, cosine = 1 / 355687428096000, 1 / 20922789888000
    sine = sine * z - 1 / 1307674368000
    cosine = cosine * z - 1 / 87178291200
    sine = sine * z + 1 / 6227020800
    cosine = cosine * z + 1 / 479001600
    sine = sine * z - 1 / 39916800
    cosine = cosine * z - 1 / 3628800
    sine = sine * z + 1 / 362880
    cosine = cosine * z + 1 / 40320
    sine = sine * z - 1 / 5040
    cosine = cosine * z - 1 / 720
    sine = sine * z + 1 / 120
    cosine = cosine * z + 1 / 24
    sine = r + r * z * (sine * z - 1 / 6)
    cosine = 1.0 + z * (cosine * z - 0.5)
    quarter = np.float64(rounded).view(np.int64)
    is_odd = (quarter & 1) != 0
    sine, cosine = (cosine, sine) if is_odd else (sine, cosine)
    return (-sine if quarter & 2 != 0 else sine), (-cosine if (quarter + 1) & 2 != 0 else cosine)


@njit(error_model="numpy")
def _differentiate(states: Any, forces: Any, poles: Any, constants: Any, slopes: Any, scratch: Any) -> None:
    """slopes = d states / dt, both (n_dims, _LANES): Wieland's equations."""
    gravity, track_friction, hinge_friction = constants[0], constants[1], constants[2]
    # Arrays whose rows are written in one loop must not interleave, or the compiler gives up on vectors.
    cosines, torques = scratch[0], scratch[1]
    push, mass = cosines[0], torques[0]
    for j in range(_LANES):
        velocity = states[1, j]
        push[j] = forces[j] - track_friction * ((velocity > 0.0) * 1.0 - (velocity < 0.0) * 1.0)
        mass[j] = CART_MASS
    for i in range(poles.shape[1]):
        half_length, pole_mass = poles[0, i], poles[1, i]
        for j in range(_LANES):
            sine, cosine = _sine_and_cosine(states[2 + 2 * i, j])
            turning = states[3 + 2 * i, j]
            torque = hinge_friction * turning / (pole_mass * half_length) + gravity * sine
            push[j] += pole_mass * (half_length * turning * turning * sine + 0.75 * cosine * torque)  # F_i
            mass[j] += pole_mass * (1.0 - 0.75 * cosine * cosine)  # m_i~
            cosines[1 + i, j], torques[1 + i, j] = cosine, torque
    for j in range(_LANES):
        slopes[0, j], slopes[1, j] = states[1, j], push[j] / mass[j]
    for i in range(poles.shape[1]):
        lever = -0.75 / poles[0, i]
        for j in range(_LANES):
            slopes[2 + 2 * i, j] = states[3 + 2 * i, j]
            slopes[3 + 2 * i, j] = lever * (slopes[1, j] * cosines[1 + i, j] + torques[1 + i, j])


@njit(error_model="numpy")
def _runge_kutta(states: Any, forces: Any, poles: Any, constants: Any, step: float, work: Any, scratch: Any) -> None:
    """Advance a block by one step of the classical method of fourth order, in place."""
    slopes, total, there = work[0], work[1], work[2]
    _differentiate(states, forces, poles, constants, total, scratch)
    for stage in range(3):
        reach = step if stage == 2 else 0.5 * step
        before = total if stage == 0 else slopes
        for k in range(len(states)):
            for j in range(_LANES):
                there[k, j] = states[k, j] + reach * before[k, j]
        _differentiate(there, forces, poles, constants, slopes, scratch)
        weight = 1.0 if stage == 2 else 2.0
        for k in range(len(states)):
            for j in range(_LANES):
                total[k, j] += weight * slopes[k, j]
    for k in range(len(states)):
        for j in range(_LANES):
            states[k, j] += step / 6.0 * total[k, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _advance(states: Floats, forces: Floats, poles: Floats, constants: Floats, step: float, n_steps: int) -> Floats:
    n, n_dims = states.shape
    next_states = np.empty((n, n_dims))
    block, pushes = np.zeros((n_dims, _LANES)), np.zeros(_LANES)  # lanes beyond the last state stay harmless
    work, scratch = np.empty((3, n_dims, _LANES)), np.empty((2, n_dims // 2, _LANES))
    for first in range(0, n, _LANES):
        size = min(_LANES, n - first)
        for j in range(size):
            pushes[j] = forces[first + j]
            for k in range(n_dims):
                block[k, j] = states[first + j, k]
        for _ in range(n_steps):
            _runge_kutta(block, pushes, poles, constants, step, work, scratch)
        for j in range(size):
            for k in range(n_dims):
                next_states[first + j, k] = block[k, j]
    return next_states


@njit(cache=True, nogil=True)
def has_failed(states: Floats) -> Booleans:
    fails = np.empty(len(states), dtype=np.bool_)
    for i in range(len(states)):
        stands = abs(states[i, 0]) <= TRACK_LIMIT
        for k in range(2, states.shape[1], 2):
            stands = stands and abs(states[i, k]) <= ANGLE_LIMIT
        fails[i] = not stands
    return fails
