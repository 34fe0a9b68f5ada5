"""Episodes of a simulator under a policy: logs to learn from, and returns to judge by.

Many episodes run side by side, so that Python loops over time steps and never over transitions.  An episode ends
with a terminal transition, or is cut by the time limit, which is not terminal.

Paper: "a set of n sample transitions using a random exploration policy" and the test states (section 4.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_generator, as_rows, whole
from kbrl.data.transitions import Transitions, join
from kbrl.trials.evaluation import Evaluation
from kbrl.trials.policies import Policy, action_indices
from kbrl.trials.recording import Recorder, Step, empty_pages


class Simulator(Protocol):
    """Anything that policies can act in: it steps many states at once and stores none of them."""

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
        """Return which episodes the simulator cuts for a reason of its own; they have not ended."""


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

    >>> from kbrl.tasks import PuddleWorld
    >>> from kbrl.trials import collect
    >>> log = collect(PuddleWorld(), 100, random_state=0)
    >>> log.states.shape, log.rewards.shape, log.action_labels.tolist()
    ((100, 2), (100,), [0, 1, 2, 3])
    """
    whole(n, "n")
    limit = simulator.max_steps if max_steps is None else whole(max_steps, "max_steps")
    rng = as_generator(random_state)
    recorder, pages = Recorder(), None
    n_episodes, n_rows = 0, 0
    while pages is None or n_rows < n:
        n_steps = min(limit, n - n_rows)
        n_new = _next_episodes(n - n_rows, n_steps, n_episodes, n_rows, simulator.max_parallel)
        for _ in _play(simulator, policy, simulator.reset(n_new, rng), rng, n_steps, recorder):
            pass
        pages = empty_pages(n, recorder.n_dims) if pages is None else pages
        recorder.write(pages, n_rows, n_episodes)
        n_episodes, n_rows = n_episodes + n_new, n_rows + recorder.n_rows
    return pages.to_log(len(simulator.actions))


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

    ``record=True`` also keeps the trajectories, in ``Evaluation.log``.

    >>> from kbrl.tasks import PuddleWorld
    >>> from kbrl.trials import rollout
    >>> result = rollout(PuddleWorld(), lambda states: ["right"] * len(states), [[0.5, 0.1], [0.9, 0.99]], 0)
    >>> result.returns.shape, result.lengths.tolist(), result.terminated.tolist()
    ((2,), [300, 1], [False, True])
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
        recorder = Recorder() if record else None
        part = _judge(simulator, _play(simulator, policy, begin, rng, limit, recorder), size)
        if recorder is not None:
            part = replace(part, log=recorder.to_log(first, len(simulator.actions)))
        parts.append(part)
    return _merge(parts)


def _play(
    simulator: Simulator,
    policy: Policy | None,
    states: Floats,
    rng: np.random.Generator,
    max_steps: int,
    recorder: Recorder | None,
) -> Iterator[Step]:
    """Run an episode from each state, all in step, dropping those that are over; no policy means random actions."""
    if not (policy is None or callable(policy)):
        raise TypeError(f"policy must be a function of states, such as model.predict, but it is {policy!r}.")
    rows, states = np.arange(len(states)), np.array(states)  # a simulator may move the states in place
    observations = simulator.observe(states)
    if recorder is not None:
        recorder.start(observations, max_steps)
    step = getattr(simulator, "step_trusted", simulator.step)  # valid states and actions need no second check
    for _ in range(max_steps):
        if policy is None:
            actions = rng.integers(len(simulator.actions), size=len(rows))
        else:  # it gets a copy: one that scales its input in place must not move the simulator
            actions = action_indices(policy(observations.copy()), len(rows), simulator.actions)
        states, rewards, terminals = step(states, actions, rng)
        observations = simulator.observe(states)
        taken = Step(rows, actions, rewards, observations, terminals)
        if recorder is not None:
            recorder.add(taken)
        yield taken
        over = terminals | simulator.truncates(states)
        n_over = np.count_nonzero(over)
        if n_over == len(rows):
            return
        if n_over > 0:
            continues, sees_all = (~over).nonzero()[0], observations is states
            rows, states = rows.take(continues), states.take(continues, axis=0)  # much faster than states[continues]
            observations = states if sees_all else observations.take(continues, axis=0)


def _next_episodes(missing: int, n_steps: int, n_episodes: int, n_rows: int, max_parallel: int) -> int:
    """Guess how many more episodes are needed: first the fewest possible, then by their mean length so far."""
    if n_episodes == 0:
        return min(-(-missing // n_steps), max_parallel)
    wanted = -(-missing * n_episodes // n_rows)
    return min(wanted, 4 * n_episodes, max_parallel)  # a few short first episodes must not start thousands


def _judge(simulator: Simulator, steps: Iterator[Step], n: int) -> Evaluation:
    returns, lengths, terminated = np.zeros(n), np.zeros(n, dtype=np.intp), np.zeros(n, dtype=bool)
    weight = 1.0
    for step in steps:
        returns[step.rows] += weight * step.rewards
        lengths[step.rows] += 1
        terminated[step.rows] = step.terminals
        weight *= simulator.discount
    return Evaluation(returns, lengths, terminated)


def _merge(parts: list[Evaluation]) -> Evaluation:
    logs = [part.log for part in parts if part.log is not None]
    return Evaluation(
        np.concatenate([part.returns for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.terminated for part in parts]),
        join(logs) if logs else None,
    )
