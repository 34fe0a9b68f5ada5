"""Rules that turn observations into actions.

A policy is anything that maps observations (n, n_dims) to n actions: a learner's ``predict``, a function of your
own, or one of the exploring rules below.  The paper collects its data with actions uniformly at random, or
epsilon-greedily on the current value function (section 4.3.3 and section 5).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats, Integers
from kbrl.checks import as_generator, in_unit_interval, refuse_rows

Policy = Callable[[Floats], Array]


class UniformRandom:
    """Every action with the same probability, whatever the state."""

    def __init__(self, actions: Sequence[Any] | Array, random_state: Any = None) -> None:
        self.actions = _as_choices(actions)
        self._rng = as_generator(random_state)

    def __call__(self, observations: Floats) -> Array:
        return self.actions.take(self._rng.integers(len(self.actions), size=len(observations)))


class Constant:
    """Always the same action."""

    def __init__(self, action: Any) -> None:
        self.action = action

    def __call__(self, observations: Floats) -> Array:
        return np.full(len(observations), self.action)


class EpsilonGreedy:
    """The actions of a policy, each replaced by a uniformly random one with probability epsilon."""

    def __init__(
        self, policy: Policy, epsilon: float, actions: Sequence[Any] | Array, random_state: Any = None
    ) -> None:
        self.policy = policy
        self.epsilon = in_unit_interval(epsilon, "epsilon", closed=True)
        self._rng = as_generator(random_state)
        self._random = UniformRandom(actions, self._rng)

    def __call__(self, observations: Floats) -> Array:
        choices = np.asarray(self.policy(observations))
        if choices.shape != (len(observations),):
            raise ValueError(_wrong_shape(choices.shape, len(observations)))
        explores = self._rng.random(len(choices)) < self.epsilon
        return np.where(explores, self._random(observations), choices)


def action_indices(choices: Any, n_rows: int, actions: Sequence[str]) -> Integers:
    """Return the places in ``actions`` of n chosen actions, (n_rows,), given as places or as names."""
    array = np.asarray(choices)
    if array.shape != (n_rows,):
        raise ValueError(_wrong_shape(array.shape, n_rows))
    if array.dtype.kind == "O":
        array = np.array(array.tolist())
    if array.dtype.kind == "U":
        places = {name: place for place, name in enumerate(actions)}
        array = np.array([places.get(name, -1) for name in array.tolist()])
    bad = _unknown(array, len(actions))
    if bad.any():
        named = ", ".join(map(repr, actions[:6])) + (", ..." if len(actions) > 6 else "")
        rule = f"be whole numbers from 0 to {len(actions) - 1}, places in ({named}), or these names"
        refuse_rows(bad, np.asarray(choices), "actions", rule, "Learn from a log with the same actions.")
    return array.astype(np.intp, copy=False)


def _unknown(array: Array, n_actions: int) -> Array:
    if array.dtype.kind in "iu":
        if array.min() >= 0 and array.max() < n_actions:  # two passes that allocate no array
            return np.zeros(1, dtype=bool)
        return (array < 0) | (array >= n_actions)
    if array.dtype.kind in "bf":  # 2.0 is the place 2; nan and 0.5 are not places
        return ~np.isin(array, np.arange(n_actions))
    return np.ones(len(array), dtype=bool)


def _wrong_shape(shape: tuple[int, ...], n_rows: int) -> str:
    return f"A policy must return one action per state, shape {(n_rows,)}, but the shape of the actions is {shape}."


def _as_choices(actions: Sequence[Any] | Array) -> Array:
    array = np.asarray(actions)
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"actions must list at least one action, such as range(4), but they are {actions!r}.")
    return array
