"""A user's Gymnasium environment as a task.

It runs one episode at a time and cannot be put in a state, so its "states" are the observations it gave, and
``step`` refuses any other.  Observations with parts become rows of named numbers.  Nothing here imports Gymnasium: the
environment brings it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_rows, in_unit_interval, whole
from kbrl.tasks.task import Task
from kbrl.trials.evaluation import Evaluation
from kbrl.trials.observations import names_of_actions, numbers_of, variables
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
        actions = names_of_actions(env.action_space)
        self.env, self._variables = env, list(variables(env.observation_space, "x"))
        self.name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self.discount = in_unit_interval(discount, "discount", closed=True)
        self.max_steps = _time_limit(env, max_steps)
        own = getattr(env.unwrapped, "task", None)  # one of ours, whose names are known
        own = own if isinstance(own, Task) else None
        self.actions = own.actions if own else actions
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
        return as_rows([numbers_of(self.env.observation_space, observation)], f"observations of {self.name}")


def _time_limit(env: Any, max_steps: int | None) -> int:
    limits = (max_steps, getattr(env.spec, "max_episode_steps", None), getattr(env.unwrapped, "max_steps", None))
    for limit in limits:
        if limit is not None:
            return whole(limit, "max_steps")
    raise ValueError("max_steps must be given for an environment without its own time limit. Try max_steps=1000.")
