"""Observations of Gymnasium as rows of named numbers, whatever their space, and names of its actions.

Each number of a Box is a state variable.  A number that names one of several cases (Discrete) becomes one variable per
case, of which one is 1, as Gymnasium flattens it: distances between the numbers of cases would mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kbrl.arrays import Floats


class Variable(NamedTuple):
    """One number of an observation."""

    name: str
    low: float
    high: float


def variables(space: Any, name: str) -> Iterator[Variable]:
    """Yield the variables of a space in their order; ``name`` is that of the part of the observation."""
    kind = type(space).__name__
    if kind == "Box":
        bounds = np.asarray(space.low, dtype=np.float64).ravel(), np.asarray(space.high, dtype=np.float64).ravel()
        names = [name] if name != "x" and len(bounds[0]) == 1 else _numbered(name, len(bounds[0]))
        yield from map(Variable, names, *bounds)
    elif kind == "Discrete":
        yield from (Variable(f"{name}={space.start + case}", 0.0, 1.0) for case in range(int(space.n)))
    elif kind == "MultiDiscrete":
        for own, cases, start in zip(_numbered(name, space.nvec.size), space.nvec.flat, space.start.flat):
            yield from (Variable(f"{own}={start + case}", 0.0, 1.0) for case in range(int(cases)))
    elif kind == "MultiBinary":
        yield from (Variable(own, 0.0, 1.0) for own in _numbered(name, int(np.prod(space.shape))))
    elif kind in ("Dict", "Tuple"):
        for key, part in _parts(space):
            yield from variables(part, str(key) if kind == "Dict" and name == "x" else _joined(name, key))
    else:
        raise TypeError(
            f"Observations must be Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple of these, but {name!r} "
            f"is {space}. Wrap the environment with gymnasium.wrappers.TransformObservation."
        )


def numbers_of(space: Any, observation: Any) -> Floats:
    """Return the numbers of an observation in the order of ``variables``, (n_observed,)."""
    return np.concatenate(list(_numbers(space, observation)))


def _numbers(space: Any, observation: Any) -> Iterator[Floats]:
    kind = type(space).__name__
    if kind in ("Dict", "Tuple"):
        for key, part in _parts(space):
            yield from _numbers(part, observation[key])
    elif kind == "Discrete":
        yield (np.arange(space.n) == int(observation) - int(space.start)).astype(np.float64)
    elif kind == "MultiDiscrete":
        for cases, start, value in zip(space.nvec.flat, space.start.flat, np.asarray(observation).flat):
            yield (np.arange(cases) == value - start).astype(np.float64)
    else:
        yield np.asarray(observation, dtype=np.float64).ravel()


def _parts(space: Any) -> list[tuple[Any, Any]]:
    """Return the parts of a Dict or a Tuple, with what an observation is indexed by."""
    return list(space.spaces.items()) if type(space).__name__ == "Dict" else list(enumerate(space.spaces))


def _numbered(name: str, n: int) -> list[str]:
    return [_joined(name, place) for place in range(n)]


def _joined(name: str, key: Any) -> str:
    return f"x{key}" if name == "x" else f"{name}_{key}"


def names_of_actions(space: Any) -> tuple[str, ...]:
    """Return the names of the actions of a Discrete space, which are its numbers; refuse any other space."""
    if type(space).__name__ != "Discrete":
        raise TypeError(
            f"The environment must have Discrete actions, but it has {space}. Wrap it with "
            f"gymnasium.wrappers.TransformAction to discretise them."
        )
    return tuple(str(space.start + place) for place in range(int(space.n)))
