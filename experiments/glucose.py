"""A glucose record: insulin acts hours after it was given, the sensor is noisy, and the body is only partly seen.

Not a model of any patient: two depots of insulin under the skin, two of food in the gut, and glucose that they lower
and raise, in steps of five minutes.  A learner sees the sensor, its trend, what was given and eaten in the last half
hour, and the time of day.  What is still in the depots, which decides the next hours, is hidden.
"""

from __future__ import annotations

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.tasks.task import Task

DAY = 288  # steps of five minutes
RATES = np.array([0.0, 1.0, 2.0, 3.0, 5.0])  # units of insulin per hour
MEALS = np.array([7.0, 12.5, 19.0])  # hours; each comes up to an hour earlier or later
TARGET = 120.0
LEAST, MOST = 40.0, 400.0  # of glucose
_RECENT = 6  # steps: what was given and eaten in this time is seen
_FADE = np.exp(-1.0 / _RECENT)
_INSULIN, _FOOD = 5.0 / 70.0, 5.0 / 40.0  # shares of a depot that move on in a step
_PER_UNIT, _PER_GRAM, _OWN = 40.0, 4.0, 4.0  # what insulin and food do, and the liver in a step, to glucose
_NOISE, _KEPT = 8.0, 0.7  # of the sensor; what remains of an error a step later


class Glucose(Task):
    """Insulin for a day: every five minutes a rate is chosen; rewards fall with the distance from 120 mg/dl.

    The full state: glucose, the two depots of insulin and of food, the error of the sensor, what it showed before,
    recent insulin and food, the step of the day, and the times of the three meals.
    """

    name = "Glucose"
    actions = tuple(f"{rate:g}" for rate in RATES)
    discount = 1.0
    max_steps = DAY
    state_names = (
        *("glucose", "insulin 1", "insulin 2", "food 1", "food 2", "error", "shown", "given", "eaten", "step"),
        *("breakfast", "lunch", "dinner"),
    )
    low = np.array([0.0, -200.0, 0.0, 0.0, -1.0, -1.0])
    high = np.array([500.0, 200.0, 3.0, 200.0, 1.0, 1.0])

    @property
    def observation_names(self) -> tuple[str, ...]:
        """What is seen."""
        return ("sensor", "trend", "given", "eaten", "sine", "cosine")

    def observe(self, states: Floats) -> Floats:
        """Return the sensor, its change, recent insulin and food, and the time of day as a point on a circle."""
        sensor, day = states[:, 0] + states[:, 5], 2 * np.pi * states[:, 9] / DAY
        return np.column_stack([sensor, sensor - states[:, 6], states[:, 7], states[:, 8], np.sin(day), np.cos(day)])

    def _reset(self, n: int, rng: np.random.Generator) -> Floats:
        states = np.zeros((n, len(self.state_names)))
        states[:, 0] = rng.uniform(90.0, 220.0, n)
        states[:, 1] = states[:, 2] = rng.uniform(0.5, 3.0, n) / 12.0 / _INSULIN
        states[:, 5] = _NOISE * rng.standard_normal(n)
        states[:, 6] = states[:, 0] + states[:, 5]
        states[:, 10:] = np.round((MEALS + rng.uniform(-1.0, 1.0, (n, len(MEALS)))) * 12.0)
        return states

    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        glucose, first, second, stomach, gut, error, _, given, eaten, step = states[:, :10].T
        dose = RATES[actions] / 12.0
        meal = (states[:, 10:] == step[:, None]).any(axis=1) * rng.uniform(30.0, 90.0, len(states))
        lowered = _PER_UNIT * _INSULIN * second
        raised = _OWN + _PER_GRAM * _FOOD * gut
        moved = np.clip(glucose + raised - lowered - 0.01 * (glucose - TARGET), LEAST, MOST)
        noise = _NOISE * np.sqrt(1 - _KEPT**2) * rng.standard_normal(len(states))
        columns = [
            *(moved, first + dose - _INSULIN * first, second + _INSULIN * (first - second)),
            *(stomach + meal - _FOOD * stomach, gut + _FOOD * (stomach - gut)),
            *(_KEPT * error + noise, glucose + error, _FADE * given + dose, _FADE * eaten + meal, step + 1.0),
        ]
        next_states = np.column_stack([*columns, states[:, 10:]])
        return next_states, -np.square(np.log(moved / TARGET) / 0.4), np.zeros(len(states), dtype=bool)


def usual_doses(observations: Floats, rng: np.random.Generator) -> Integers:
    """Return what people do: more insulin for a higher sensor, with little regard for the rest, and often anything."""
    wanted = np.digitize(observations[:, 0], [80.0, 110.0, 160.0, 240.0])
    return np.where(rng.random(len(wanted)) < 0.4, rng.integers(len(RATES), size=len(wanted)), wanted)
