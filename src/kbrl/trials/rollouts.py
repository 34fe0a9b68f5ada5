"""Episodes of a simulator under a policy: logs to learn from, and returns to judge by.

Many episodes run side by side, so that Python loops over time steps and never over transitions.  An episode ends
with a terminal transition, or is cut by the time limit; a cut is no terminal.

Paper: "a set of n sample transitions using a random exploration policy" and the test states (section 4.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_generator, as_rows, whole
from kbrl.data.transitions import Transitions, join
from kbrl.policy.rules import Policy, UniformRandom, action_indices
from kbrl.trials.evaluation import Evaluation


class Simulator(Protocol):
    """What can be acted in: it steps many states at once and remembers none of them."""

    @property
    def actions(self) -> Sequence[str]:
        """The names of the actions; trials and logs use their places."""

    @property
    def discount(self) -> float:
        """The discount of one decision."""

    @property
    def max_steps(self) -> int:
        """The number of decisions after which an episode is cut."""

    @property
    def max_parallel(self) -> int:
        """The largest number of episodes to run side by side."""

    def reset(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw n start states."""

    def step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        """Return the next states, the rewards, and which of the next states are ends."""

    def observe(self, states: Floats) -> Floats:
        """Return what a policy and a learner see of the states."""

    def truncates(self, states: Floats) -> Booleans:
        """Return where an episode is cut for a reason of the simulator's own, without an end."""


class _Step(NamedTuple):
    """One time step of all episodes that still run."""

    rows: Integers  # which episodes they are
    observations: Floats
    actions: Integers
    rewards: Floats
    next_observations: Floats
    terminals: Booleans


def collect(
    simulator: Simulator,
    n: int,
    policy: Policy | None = None,
    random_state: Any = None,
    *,
    max_steps: int | None = None,
) -> Transitions:
    """Return n transitions of episodes under the policy, by default with uniformly random actions.

    The log is distributed as if its episodes had been run one after the other: they follow each other whole and
    in time order, numbered from 0 in ``episodes``, and only the last one is cut off at row n.
    """
    whole(n, "n")
    limit = simulator.max_steps if max_steps is None else whole(max_steps, "max_steps")
    rng = as_generator(random_state)
    policy = policy if policy is not None else UniformRandom(range(len(simulator.actions)), rng)
    logs: list[Transitions] = []
    n_episodes, n_rows = 0, 0
    while n_rows < n:
        n_steps = min(limit, n - n_rows)
        n_new = _next_episodes(n - n_rows, n_steps, n_episodes, n_rows, simulator.max_parallel)
        steps = list(_play(simulator, policy, simulator.reset(n_new, rng), rng, n_steps))
        log = _to_log(steps, n_episodes, len(simulator.actions))
        logs.append(log[: n - n_rows])
        n_episodes, n_rows = n_episodes + n_new, n_rows + len(log)
    return logs[0] if len(logs) == 1 else join(logs)


def rollout(
    simulator: Simulator,
    policy: Policy,
    states: Any,
    random_state: Any = None,
    *,
    max_steps: int | None = None,
    record: bool = False,
) -> Evaluation:
    """Run one episode from each of the states, (n, n_dims), or from a number of fresh start states.

    ``record=True`` keeps the trajectories as well, in ``Evaluation.log``.
    """
    limit = simulator.max_steps if max_steps is None else whole(max_steps, "max_steps")
    rng = as_generator(random_state)
    is_number = isinstance(states, (int, np.integer))
    starts = None if is_number else as_rows(states, "states")
    n = whole(states, "states") if starts is None else len(starts)
    parts = []
    for first in range(0, n, simulator.max_parallel):
        size = min(simulator.max_parallel, n - first)
        begin = simulator.reset(size, rng) if starts is None else starts[first : first + size]
        parts.append(_judge(simulator, _play(simulator, policy, begin, rng, limit), first, size, record))
    return _merge(parts)


def _play(
    simulator: Simulator, policy: Policy, states: Floats, rng: np.random.Generator, max_steps: int
) -> Iterator[_Step]:
    """Run an episode from each state, all in step, dropping those that are over."""
    if not callable(policy):
        raise TypeError(f"policy must be a function of states, such as model.predict, but it is {policy!r}.")
    rows = np.arange(len(states))
    observations = simulator.observe(states)
    step = getattr(simulator, "step_trusted", simulator.step)  # what is known to be good need not be checked again
    for _ in range(max_steps):
        # A policy gets a copy: one that scales its input in place must not move the simulator.
        actions = action_indices(policy(observations.copy()), len(rows), simulator.actions)
        states, rewards, terminals = step(states, actions, rng)
        next_observations = simulator.observe(states)
        yield _Step(rows, observations, actions, rewards, next_observations, terminals)
        goes_on = ~(terminals | simulator.truncates(states))
        if not goes_on.any():
            return
        observations = next_observations
        if not goes_on.all():
            rows, states, observations = rows[goes_on], states[goes_on], observations[goes_on]


def _next_episodes(missing: int, n_steps: int, n_episodes: int, n_rows: int, max_parallel: int) -> int:
    """Guess how many more episodes are needed: first the fewest possible, then by their mean length so far."""
    if n_episodes == 0:
        return min(-(-missing // n_steps), max_parallel)
    wanted = -(-missing * n_episodes // n_rows)
    return min(wanted, 4 * n_episodes, max_parallel)  # a few short episodes first must not make thousands run


def _to_log(steps: list[_Step], first_episode: int, n_actions: int) -> Transitions:
    """Put the steps of all episodes in order: episode by episode, each in time order."""
    rows = np.concatenate([step.rows for step in steps])
    order = np.argsort(rows, kind="stable")
    fields = [np.concatenate(field)[order] for field in list(zip(*steps))[1:]]
    return Transitions._trusted(*fields, rows[order] + first_episode, np.arange(n_actions))


def _judge(simulator: Simulator, steps: Iterator[_Step], first: int, n: int, record: bool) -> Evaluation:
    returns, lengths, terminated = np.zeros(n), np.zeros(n, dtype=np.intp), np.zeros(n, dtype=bool)
    kept = []
    weight = 1.0
    for step in steps:
        returns[step.rows] += weight * step.rewards
        lengths[step.rows] += 1
        terminated[step.rows] = step.terminals
        weight *= simulator.discount
        if record:
            kept.append(step)
    return Evaluation(returns, lengths, terminated, _to_log(kept, first, len(simulator.actions)) if record else None)


def _merge(parts: list[Evaluation]) -> Evaluation:
    logs = [part.log for part in parts if part.log is not None]
    return Evaluation(
        np.concatenate([part.returns for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.terminated for part in parts]),
        join(logs) if logs else None,
    )
