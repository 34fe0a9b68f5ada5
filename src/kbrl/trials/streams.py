"""Environments as endless streams of transitions, for learning while acting.

A stream holds the current states of one or more episodes side by side and starts a new episode where one is over.
The transition at the boundary of two episodes is never shown: it did not happen.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from kbrl.arrays import Array, Booleans, Floats
from kbrl.checks import whole
from kbrl.trials.observations import names_of_actions, numbers_of, variables
from kbrl.trials.policies import action_indices
from kbrl.trials.rollouts import Simulator


class Step(NamedTuple):
    """What followed one decision in each of the episodes."""

    rewards: Floats  # (n_parallel,)
    next_observations: Floats  # (n_parallel, n_observed)
    terminals: Booleans  # the episode really ended
    over: Booleans  # ended or cut by a time limit: a new episode starts
    happened: Booleans  # False where an environment only reset itself


class Stream(Protocol):
    """Something to act in, step by step."""

    observations: Floats  # (n_parallel, n_observed), where the next decisions are to be taken
    n_actions: int

    def check_actions(self, labels: Array) -> None:
        """Refuse labels of actions, (n_actions,), that are not those of the environment."""

    def step(self, actions: Array) -> Step:
        """Take one decision in each episode."""


class SimulatorStream:
    """Episodes of a simulator side by side."""

    def __init__(self, simulator: Simulator, n_parallel: int, rng: np.random.Generator) -> None:
        self._simulator, self._rng = simulator, rng
        self.n_actions = len(simulator.actions)
        self._states = simulator.reset(n_parallel, rng)
        self._lengths = np.zeros(n_parallel, dtype=np.intp)
        self.observations = simulator.observe(self._states)

    def check_actions(self, labels: Array) -> None:
        """Refuse labels that are neither places nor names of the simulator's actions."""
        action_indices(labels, len(labels), self._simulator.actions)

    def step(self, actions: Array) -> Step:
        """Take one decision in each episode."""
        simulator = self._simulator
        states, rewards, terminals = simulator.step(self._states, actions, self._rng)
        self._lengths += 1
        next_observations = simulator.observe(states)
        over = terminals | simulator.truncates(states) | (self._lengths >= simulator.max_steps)
        self._states, self.observations = states, next_observations
        if over.any():
            self._states = states.copy()
            self._states[over] = simulator.reset(int(over.sum()), self._rng)
            self._lengths[over] = 0
            self.observations = simulator.observe(self._states)
        return Step(rewards, next_observations, terminals, over, np.ones(len(over), dtype=bool))


class GymnasiumStream:
    """One Gymnasium environment with discrete actions."""

    def __init__(self, env: Any, rng: np.random.Generator) -> None:
        self._env = env
        self._actions = names_of_actions(env.action_space)
        self.n_actions = len(self._actions)
        list(variables(env.observation_space, "x"))  # refuses what is not a fixed number of numbers
        observation, _ = env.reset(seed=int(rng.integers(2**31)))
        self.observations = self._row(observation)

    def check_actions(self, labels: Array) -> None:
        """Refuse labels that are neither places nor names of the environment's actions."""
        action_indices(labels, len(labels), self._actions)

    def step(self, actions: Array) -> Step:
        """Take one decision."""
        place = int(action_indices(actions, 1, self._actions)[0])
        observation, reward, terminated, truncated, _ = self._env.step(int(self._env.action_space.start) + place)
        next_observations = self._row(observation)
        over = bool(terminated or truncated)
        self.observations = self._row(self._env.reset()[0]) if over else next_observations
        flags = (np.array([bool(terminated)]), np.array([over]), np.array([True]))
        return Step(np.array([float(reward)]), next_observations, *flags)

    def _row(self, observation: Any) -> Floats:
        return numbers_of(self._env.observation_space, observation)[None]


class VectorStream:
    """A Gymnasium vector environment, which resets itself in the step after an episode's end, or in the same one."""

    def __init__(self, envs: Any, rng: np.random.Generator) -> None:
        self._envs = envs
        self._actions = names_of_actions(envs.single_action_space)
        self.n_actions = len(self._actions)
        list(variables(envs.single_observation_space, "x"))  # refuses what is not a fixed number of numbers
        mode = envs.metadata.get("autoreset_mode")
        self._mode = str(getattr(mode, "value", mode))
        if self._mode not in ("NextStep", "SameStep"):
            raise ValueError(
                f"A vector environment must reset itself in the next or in the same step, but its mode is {self._mode}."
            )
        observations, _ = envs.reset(seed=int(rng.integers(2**31)))
        self.observations = self._rows(observations)
        self._was_over = np.zeros(len(self.observations), dtype=bool)

    def check_actions(self, labels: Array) -> None:
        """Refuse labels that are neither places nor names of each environment's actions."""
        action_indices(labels, len(labels), self._actions)

    def step(self, actions: Array) -> Step:
        """Take one decision in each environment."""
        chosen = int(self._envs.single_action_space.start) + action_indices(actions, len(actions), self._actions)
        observations, rewards, terminated, truncated, infos = self._envs.step(chosen)
        over = np.asarray(terminated | truncated, dtype=bool)
        self.observations = next_observations = self._rows(observations)
        if self._mode == "SameStep" and over.any():
            next_observations = next_observations.copy()
            for row in np.flatnonzero(over):
                next_observations[row] = numbers_of(self._envs.single_observation_space, infos["final_obs"][row])
        happened = ~self._was_over
        self._was_over = over if self._mode == "NextStep" else np.zeros_like(over)
        flags = (np.asarray(terminated, dtype=bool), over & happened, happened)
        return Step(np.asarray(rewards, dtype=np.float64), next_observations, *flags)

    def _rows(self, observations: Any) -> Floats:
        space = self._envs.single_observation_space
        if isinstance(observations, np.ndarray):
            return np.stack([numbers_of(space, each) for each in observations])
        from gymnasium.vector.utils import iterate

        return np.stack([numbers_of(space, each) for each in iterate(self._envs.observation_space, observations)])


def as_stream(environment: Any, n_parallel: int, rng: np.random.Generator) -> Stream:
    """Return a stream of a task or simulator, of a Gymnasium environment, or of a Gymnasium vector environment."""
    whole(n_parallel, "n_parallel")
    if hasattr(environment, "single_action_space"):
        return VectorStream(environment, rng)
    if hasattr(environment, "action_space"):
        return GymnasiumStream(environment, rng)
    if hasattr(environment, "observe") and hasattr(environment, "reset"):
        return SimulatorStream(environment, n_parallel, rng)
    raise TypeError(
        f"Online learning needs a task, a Gymnasium environment or a vector of them, "
        f"but it got {type(environment).__name__}."
    )
