"""What every task has in common.

A task is vectorised: it takes many states, one per row, and moves all of them at once.  ``states`` are the full
states of the simulator; ``observe`` gives what a learner sees of them.  Actions are places in ``task.actions``.

Paper: appendix B.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_generator, as_rows, one_of, whole
from kbrl.data.transitions import Transitions
from kbrl.trials.evaluation import Evaluation
from kbrl.trials.policies import Policy, action_indices
from kbrl.trials.rollouts import collect, rollout


class Task(ABC):
    """A simulator with its actions, discount, time limit and test states.

    To write your own task, define the attributes, ``_reset``, ``_step`` and, for its test sets, ``_test_states``.
    """

    name: str
    source: str = ""  # where the task comes from
    actions: tuple[str, ...]
    discount: float
    max_steps: int  # decisions after which an episode is cut; it has not ended, and there is no reward
    state_names: tuple[str, ...]  # of the full state's variables
    low: Floats  # (n_observed,): bounds of the observations
    high: Floats
    test_sets: tuple[str, ...] = ()  # names for test_states, the default first
    max_parallel: int = 4096  # episodes side by side: beyond this, the batch leaves the processor's cache

    @property
    def observation_names(self) -> tuple[str, ...]:
        """The names of the observed variables, by default those of the state."""
        return self.state_names

    @property
    def test_steps(self) -> int:
        """The decisions after which an episode is cut in ``evaluate``, by default as in ``collect``."""
        return self.max_steps

    def reset(self, n: int, rng: Any = None) -> Floats:
        """Draw n start states, (n, n_dims), with a generator or a seed."""
        return self._reset(whole(n, "n"), as_generator(rng))

    def step(self, states: Any, actions: Any, rng: Any = None) -> tuple[Floats, Floats, Booleans]:
        """Return the next states (n, n_dims), the rewards (n,), and which of the next states are ends (n,)."""
        states = as_rows(states, f"states of {self.name}", n_dims=len(self.state_names))
        indices = action_indices(actions, len(states), self.actions)
        return self.step_trusted(states.copy(), indices, as_generator(rng))  # the caller's array is not changed

    def step_trusted(
        self, states: Floats, indices: Integers, rng: np.random.Generator
    ) -> tuple[Floats, Floats, Booleans]:
        """Do what ``step`` does for states and places of actions known to be good; may overwrite the states."""
        return self._step(states, indices, rng)

    def observe(self, states: Floats) -> Floats:
        """Return what a learner sees of the states, (n, n_observed); by default all of it."""
        return states

    def truncates(self, states: Floats) -> Booleans:
        """Return where an episode is cut for a reason other than the time limit; by default nowhere."""
        return np.zeros(len(states), dtype=bool)

    def test_states(self, name: str | None = None) -> Floats:
        """Return the test states of that name, by default the first set's, (n, n_dims)."""
        if not self.test_sets:
            raise ValueError(f"{self.name} has no test states. Pass states, or a number of start states, to evaluate.")
        return self._test_states(self.test_sets[0] if name is None else one_of(name, self.test_sets, "name"))

    def collect(
        self, n: int, policy: Policy | None = None, random_state: Any = None, *, max_steps: int | None = None
    ) -> Transitions:
        """Return n transitions under the policy, by default with uniformly random actions.

        Actions are labelled by their places in ``task.actions``.  See ``kbrl.trials.collect``.
        """
        return collect(self, n, policy, random_state, max_steps=max_steps)

    def evaluate(
        self,
        policy: Policy,
        states: Any = None,
        random_state: Any = None,
        *,
        max_steps: int | None = None,
        record: bool = False,
    ) -> Evaluation:
        """Run one episode from each test state; ``states`` is their name, an array, or a number of start states."""
        if states is None or isinstance(states, str):
            states = self.test_states(states)
        elif not isinstance(states, (int, np.integer)):
            states = as_rows(states, f"states of {self.name}", n_dims=len(self.state_names))
        limit = self.test_steps if max_steps is None else max_steps
        return rollout(self, policy, states, random_state, max_steps=limit, record=record)

    def draw(self, axes: Any, states: Floats, actions: Integers | None = None) -> None:
        """Draw one episode up to now, its states in order and the actions between them, on matplotlib axes."""
        raise NotImplementedError(f"{self.name} cannot be drawn. Define draw(axes, states, actions) to change that.")

    @abstractmethod
    def _reset(self, n: int, rng: np.random.Generator) -> Floats: ...

    @abstractmethod
    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]: ...

    def _test_states(self, name: str) -> Floats:
        raise NotImplementedError(f"{self.name} names its test sets without defining _test_states.")

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_"))
        return f"{type(self).__name__}({options})"
