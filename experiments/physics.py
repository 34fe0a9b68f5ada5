"""The equations of Gymnasium's CartPole and Pendulum (version 1), for many states at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.arrays import Booleans, Floats


def push_cart(states: Floats, forces: Floats) -> tuple[Floats, Booleans]:
    """Return the next position, speed, angle and turning of carts with a pole, (n, 4), and which fall or run off."""
    _, speed, angle, turning = states.T
    sine, cosine = np.sin(angle), np.cos(angle)
    push = (forces + 0.05 * turning**2 * sine) / 1.1
    twist = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    pull = push - 0.05 * twist * cosine / 1.1
    changes = np.stack([speed, pull, turning, twist], axis=1)
    moved = states + 0.02 * changes
    return moved, (np.abs(moved[:, 0]) > 2.4) | (np.abs(moved[:, 2]) > np.radians(12.0))


def swing(angle: Any, turning: Any, torque: Any, gusts: Any = 0.0) -> tuple[Floats, Floats, Floats]:
    """Return the next angle and turning of pendulums, (n,), and what the step pays; gusts add to the turning."""
    upright = (angle + np.pi) % (2 * np.pi) - np.pi
    rewards = -(upright**2 + 0.1 * turning**2 + 0.001 * torque**2)
    faster = np.clip(turning + 0.05 * (15.0 * np.sin(angle) + 3.0 * torque) + gusts, -8.0, 8.0)
    return angle + 0.05 * faster, faster, rewards
