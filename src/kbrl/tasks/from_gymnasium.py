"""A user's Gymnasium environment as a task.

It runs one episode at a time and cannot be put in a state, so its "states" are the observations it gave, and
``step`` refuses any other.  Observations with parts become rows of named numbers.  Nothing here imports Gymnasium: the
environment brings it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_rows, in_unit_interval, whole
from kbrl.tasks.task import Task
from kbrl.trials.evaluation import Evaluation
from kbrl.trials.policies import Policy


def from_gymnasium(env: Any, *, discount: float = 0.99, max_steps: int | None = None) -> GymnasiumTask:
    """Return a task that runs an environment with numbered actions (Discrete).

    Its observations may be Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these.  Each number of a Box
    is a state variable.  A number that names one of several cases (Discrete) becomes one variable per case, of which
    one is 1: ``door=2``.  Parts of a Dict give their names: ``position_0``.

    discount: the value of a reward one step later, from 0 to 1.
    max_steps: the number of decisions after which an episode is cut; None: the environment's own time limit.

    ``collect(n)`` records n transitions; ``evaluate(policy, 10)`` runs ten episodes.

    >>> import gymnasium
    >>> from kbrl.tasks import from_gymnasium
    >>> task = from_gymnasium(gymnasium.make("CartPole-v1"))
    >>> task.actions, task.max_steps
    (('0', '1'), 500)
    >>> task.collect(50, random_state=0).states.shape
    (50, 4)
    """
    return GymnasiumTask(env, discount=discount, max_steps=max_steps)


class GymnasiumTask(Task):
    """An environment behind the interface of a task."""

    max_parallel = 1

    def __init__(self, env: Any, *, discount: float = 0.99, max_steps: int | None = None) -> None:
        seen, actions = env.observation_space, env.action_space
        if type(actions).__name__ != "Discrete":
            raise TypeError(
                f"The environment must have Discrete actions, but it has {actions}. Wrap it with "
                f"gymnasium.wrappers.TransformAction to discretise them."
            )
        self.env, self._variables = env, list(_variables(seen, "x"))
        self.name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self.discount = in_unit_interval(discount, "discount", closed=True)
        self.max_steps = _time_limit(env, max_steps)
        own = getattr(env.unwrapped, "task", None)  # one of ours, whose names are known
        own = own if isinstance(own, Task) else None
        self.actions = own.actions if own else tuple(str(actions.start + i) for i in range(actions.n))
        self.low = np.array([variable.low for variable in self._variables], dtype=np.float64)
        self.high = np.array([variable.high for variable in self._variables], dtype=np.float64)
        self.state_names = own.observation_names if own else tuple(variable.name for variable in self._variables)
        self._current: Floats | None = None  # (1, n_dims): where the environment is
        self._is_cut = False

    def truncates(self, states: Floats) -> Booleans:
        """Return whether the environment has cut the episode."""
        return np.full(len(states), self._is_cut)

    def evaluate(
        self,
        policy: Policy,
        states: Any = 10,
        random_state: Any = None,
        *,
        max_steps: int | None = None,
        record: bool = False,
    ) -> Evaluation:
        """Run that number of episodes; the environment draws their start states."""
        return super().evaluate(policy, whole(states, "states"), random_state, max_steps=max_steps, record=record)

    def _reset(self, n: int, rng: np.random.Generator) -> Floats:
        if n != 1:
            raise ValueError(f"n must be 1: {self.name} runs one episode at a time, but {n} were asked for.")
        observation, _ = self.env.reset(seed=int(rng.integers(2**31)))
        self._is_cut = False
        self._current = self._as_state(observation)
        return self._current

    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        if self._current is None or not np.array_equal(states, self._current):
            raise ValueError(f"{self.name} cannot be put in a state: it steps from where it is, after reset(1).")
        start = int(self.env.action_space.start)
        observation, reward, terminated, self._is_cut, _ = self.env.step(start + int(actions[0]))
        self._current = self._as_state(observation)
        return self._current, np.array([float(reward)]), np.array([bool(terminated)])

    def _as_state(self, observation: Any) -> Floats:
        numbers = _numbers(self.env.observation_space, observation)
        return as_rows(np.concatenate(list(numbers)).reshape(1, -1), f"observations of {self.name}")


class _Variable(NamedTuple):
    """One number of an observation."""

    name: str
    low: float
    high: float


def _variables(space: Any, name: str) -> Iterator[_Variable]:
    """Yield the variables of a space in their order; ``name`` is that of the part of the observation."""
    kind = type(space).__name__
    if kind == "Box":
        bounds = np.asarray(space.low, dtype=np.float64).ravel(), np.asarray(space.high, dtype=np.float64).ravel()
        names = [name] if name != "x" and len(bounds[0]) == 1 else _numbered(name, len(bounds[0]))
        yield from map(_Variable, names, *bounds)
    elif kind == "Discrete":
        yield from (_Variable(f"{name}={space.start + case}", 0.0, 1.0) for case in range(int(space.n)))
    elif kind == "MultiDiscrete":
        for own, cases, start in zip(_numbered(name, space.nvec.size), space.nvec.flat, space.start.flat):
            yield from (_Variable(f"{own}={start + case}", 0.0, 1.0) for case in range(int(cases)))
    elif kind == "MultiBinary":
        yield from (_Variable(own, 0.0, 1.0) for own in _numbered(name, int(np.prod(space.shape))))
    elif kind in ("Dict", "Tuple"):
        for key, part in _parts(space):
            yield from _variables(part, str(key) if kind == "Dict" and name == "x" else _joined(name, key))
    else:
        raise TypeError(
            f"Observations must be Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple of these, but {name!r} "
            f"is {space}. Wrap the environment with gymnasium.wrappers.TransformObservation."
        )


def _numbers(space: Any, observation: Any) -> Iterator[Floats]:
    """Yield the numbers of an observation in the order of ``_variables``."""
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


def _time_limit(env: Any, max_steps: int | None) -> int:
    limits = (max_steps, getattr(env.spec, "max_episode_steps", None), getattr(env.unwrapped, "max_steps", None))
    for limit in limits:
        if limit is not None:
            return whole(limit, "max_steps")
    raise ValueError("max_steps must be given for an environment without its own time limit. Try max_steps=1000.")
