"""Learning while acting: Algorithm 3 of the paper, incremental KBSF.

An ``OnlineAgent`` acts and observes in a loop that you write; an ``OnlineRun`` is that loop for tasks and Gymnasium
environments, with a record of how it went.  Transitions are gathered until the model is next updated, every
``model_interval`` of them, and then discarded; the values and the policy are updated every ``value_interval``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import as_generator, as_rows, check_finite, check_lengths, one_entry_per_row, whole
from kbrl.data.transitions import Transitions, as_flags
from kbrl.learners.exploration import Exploration, as_actions, as_exploration
from kbrl.model.model import models_of
from kbrl.model.q_functions import GreedyPolicy
from kbrl.trials.streams import as_stream


class OnlineAgent:
    """A learner that acts: call ``act``, take that action, call ``observe`` with the result, and repeat.

    learner: one with ``partial_fit``, such as KBSF(...).
    actions: the labels of the possible actions, or their number.
    exploration: the probability of a random action, an ``Epsilon`` schedule, or ``Optimism``.
    model_interval: the model learns from the gathered transitions every this many of them.
    value_interval: the model is solved, and the policy updated, every this many transitions; None: model_interval.

    Before the first update of the values, actions are uniformly random.  Every action that was tried once has a value,
    unless the learner has ``min_cases``: a fit leaves rare actions out, but an agent explores, and has to try an action
    to learn of it.

    In one state, "right" pays 1 and "left" nothing.

    >>> from kbrl import KBSF, OnlineAgent
    >>> agent = OnlineAgent(KBSF(n_reps=1), ["left", "right"], exploration=0.0, model_interval=20, random_state=0)
    >>> for _ in range(20):
    ...     action = agent.act([0.0])
    ...     agent.observe([0.0], action, float(action == "right"), [0.0], terminated=False)
    >>> agent.n_seen, str(agent.act([0.0]))
    (20, 'right')
    """

    def __init__(
        self,
        learner: Any,
        actions: Any,
        *,
        exploration: Any = 0.1,
        model_interval: int = 1000,
        value_interval: int | None = None,
        random_state: Any = None,
    ) -> None:
        if isinstance(learner, type) or not hasattr(learner, "partial_fit"):
            raise TypeError(
                f"An agent needs a learner with partial_fit, such as KBSF(), but it got {learner!r}, which has none."
            )
        if any(model.allowed is not None for model in models_of(learner)):
            raise ValueError(
                "An agent explores with any action, but the model of this learner says where actions are allowed. Let "
                "people or rules act, and learn from their log: learner.partial_fit(log)."
            )
        self.learner = learner
        self.action_labels = as_actions(actions)
        self.exploration: Exploration = as_exploration(exploration)
        self.model_interval = whole(model_interval, "model_interval")
        self.value_interval = whole(model_interval if value_interval is None else value_interval, "value_interval")
        self.n_seen = 0  # transitions
        self._rng = as_generator(random_state)
        self._places = {label: place for place, label in enumerate(self.action_labels.tolist())}
        self._policy: GreedyPolicy | None = None
        self._pending = _Gathered()

    def act(self, observation: Any) -> Any:
        """Return the label of the action to take in one state, (n_dims,)."""
        explores, choices = self._draw(1)
        return choices[0] if self._policy is None or explores[0] else self._policy.act(observation)

    def act_all(self, observations: Floats) -> Array:
        """Return the labels of the actions, (n,), to take in several states, (n, n_dims)."""
        if len(observations) == 1:
            return np.array([self.act(observations[0])])
        explores, choices = self._draw(len(observations))
        return choices if self._policy is None else np.where(explores, choices, self._policy(observations))

    def _draw(self, n: int) -> tuple[Booleans, Array]:
        """Draw whether to explore and how; always both, so that updates do not shift the random numbers to come."""
        chance, place = self._rng.random((2, n))
        choices = self.action_labels[(place * len(self.action_labels)).astype(np.intp)]
        return chance < self.exploration.epsilon(self.n_seen), choices

    def observe(self, observation: Any, action: Any, reward: float, next_observation: Any, terminated: bool) -> None:
        """Gather one transition between states, (n_dims,); at a time limit, ``terminated`` must be False."""
        rows = as_rows([observation, next_observation], "observations")
        rewards = np.array([float(reward)])
        check_finite(rewards, "reward")
        self.observe_all(rows[:1], np.array([action]), rewards, rows[1:], np.array([terminated]))

    def observe_all(
        self, observations: Floats, actions: Array, rewards: Floats, next_observations: Floats, terminals: Booleans
    ) -> None:
        """Gather several transitions at once, one per row; at most as many as an interval has."""
        places = self._places_of(one_entry_per_row(np.asarray(actions), "actions"))
        if len(places) == 0:
            return
        rewards = one_entry_per_row(np.asarray(rewards, dtype=np.float64), "rewards")
        check_finite(rewards, "rewards")
        terminals = as_flags(terminals, "terminals")
        n_dims = self._pending.n_dims
        states, next_states = (as_rows(x, "observations", n_dims=n_dims) for x in (observations, next_observations))
        lengths = {"observations": len(states), "actions": len(places), "rewards": len(rewards)}
        check_lengths(lengths | {"next_observations": len(next_states), "terminals": len(terminals)})
        self._pending.add(states, places, rewards, next_states, terminals)
        before, self.n_seen = self.n_seen, self.n_seen + len(states)
        if before // self.model_interval < self.n_seen // self.model_interval:
            self.update_model()
        if before // self.value_interval < self.n_seen // self.value_interval:
            self.update_values()

    def _places_of(self, actions: Array) -> Integers:
        one_by_one = len(actions) == 1 or actions.dtype == object  # fast, and works for labels that cannot be sorted
        labels, inverse = (actions, slice(None)) if one_by_one else np.unique(actions, return_inverse=True)
        places = [self._places.get(label, -1) for label in labels.tolist()]
        if -1 in places:
            raise ValueError(f"actions must be among {self.action_labels.tolist()}, but they are {actions!r}.")
        return np.array(places, dtype=np.intp)[inverse]

    def update_model(self) -> None:
        """Learn from the transitions gathered since the last update, and discard them."""
        if self._pending.n_rows:
            self.learner.partial_fit(Transitions.trusted(*self._pending.columns(), None, self.action_labels))
            self._pending = _Gathered()

    def update_values(self) -> None:
        """Solve the model, and follow the new policy from now on; without a model yet, do nothing."""
        if hasattr(self.learner, "coordinates_"):
            self._policy = self.exploration.plan(self.learner)


class _Gathered:
    """Transitions gathered for the next update, in columns that grow: one array per transition would be slow."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._columns: list[Array] = []

    @property
    def n_dims(self) -> int | None:
        """The number of observed variables; None before the first transition."""
        return self._columns[0].shape[1] if self._columns else None

    def add(self, observations: Floats, *others: Any) -> None:
        """Copy the columns of some transitions, one per row."""
        end = self.n_rows + len(observations)
        if not self._columns:
            shape = (end, observations.shape[1])
            types = (np.float64, np.intp, np.float64, np.float64, np.bool_)
            self._columns = [np.empty(shape if k in (0, 3) else shape[0], dtype) for k, dtype in enumerate(types)]
        while end > len(self._columns[0]):
            self._columns = [np.concatenate([column, np.empty_like(column)]) for column in self._columns]
        for column, values in zip(self._columns, (observations, *others)):
            column[self.n_rows : end] = values
        self.n_rows = end

    def columns(self) -> list[Array]:
        """Return states, actions, rewards, next states and terminals."""
        return [column[: self.n_rows] for column in self._columns]


@dataclass
class OnlineRecord:
    """The record of a run: one entry per episode, and one per update of the model."""

    returns: list[float] = field(default_factory=list)  # discounted
    lengths: list[int] = field(default_factory=list)
    ended_at: list[int] = field(default_factory=list)  # number of transitions when the episode was over
    updated_at: list[int] = field(default_factory=list)  # number of transitions when the model was updated
    n_reps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # since the update before
    started_at: int = 0  # number of transitions that the agent had seen before
    interrupted: bool = False

    @property
    def seconds_per_step(self) -> Floats:
        """The mean time of a step in each interval between updates, (n_updates,)."""
        return np.array(self.seconds) / np.diff(np.array(self.updated_at), prepend=self.started_at)


class OnlineRun:
    """An agent in an environment: a task, a Gymnasium environment, or a Gymnasium vector environment.

    Observations of Gymnasium become rows of numbers as in `kbrl.tasks.from_gymnasium`: one variable per case of a
    Discrete.  The agent's actions are places or names of the environment's, as in all trials: of Discrete(2, start=1)
    the places are 0 and 1, and the names "1" and "2".
    n_parallel: the number of episodes of a task that run side by side.

    ``steps(n)`` runs n more transitions and returns the record; call it again to continue.  Ctrl-C stops it after the
    current step: what was learnt is kept, ``record.interrupted`` is True, and ``steps`` continues from there.

    >>> from kbrl import KBSF, OnlineAgent, OnlineRun
    >>> from kbrl.tasks import PuddleWorld
    >>> agent = OnlineAgent(KBSF(n_reps=10, random_state=0), actions=4, model_interval=200, random_state=0)
    >>> record = OnlineRun(agent, PuddleWorld(), random_state=0).steps(400)
    >>> record.updated_at, record.n_reps, record.interrupted
    ([200, 400], [10, 10], False)
    """

    def __init__(self, agent: OnlineAgent, environment: Any, *, n_parallel: int = 1, random_state: Any = None) -> None:
        self.agent = agent
        self.record = OnlineRecord(started_at=agent.n_seen)
        self._stream = as_stream(environment, n_parallel, as_generator(random_state))
        if self._stream.n_actions != len(agent.action_labels):
            raise ValueError(
                f"Agent and environment must have the same number of actions, but they have "
                f"{len(agent.action_labels)} and {self._stream.n_actions}."
            )
        self._stream.check_actions(agent.action_labels)
        n = len(self._stream.observations)
        self._returns, self._weights, self._lengths = np.zeros(n), np.ones(n), np.zeros(n, dtype=np.intp)
        self._spent = 0.0

    def steps(self, n_steps: int, *, progress: Callable[[int], None] | None = None) -> OnlineRecord:
        """Run at least this many more transitions; ``progress`` is called with the number of each step."""
        goal = self.agent.n_seen + whole(n_steps, "n_steps")
        with _stop_on_ctrl_c() as stopped:
            while self.agent.n_seen < goal and not stopped.is_set():
                before, start = self.agent.n_seen, perf_counter()
                self._step()
                self._spent += perf_counter() - start
                self._note_update(before)
                if progress is not None:
                    progress(self.agent.n_seen - before)
            self.record.interrupted = stopped.is_set()
        self.agent.update_model()
        return self.record

    def _step(self) -> None:
        stream, agent = self._stream, self.agent
        observations = stream.observations
        actions = agent.act_all(observations)
        step = stream.step(actions)
        self._note_episodes(step.rewards, step.over, step.happened)
        seen = (observations, actions, step.rewards, step.next_observations, step.terminals)
        agent.observe_all(*(seen if step.happened.all() else (column[step.happened] for column in seen)))

    def _note_episodes(self, rewards: Floats, over: Booleans, happened: Booleans) -> None:
        self._returns += np.where(happened, self._weights * rewards, 0.0)
        self._lengths += happened
        self._weights *= float(getattr(self.agent.learner, "discount", 1.0))
        for row in np.flatnonzero(over):
            self.record.returns.append(float(self._returns[row]))
            self.record.lengths.append(int(self._lengths[row]))
            self.record.ended_at.append(self.agent.n_seen + int(happened.sum()))
        starts = over | ~happened
        self._returns[starts], self._weights[starts], self._lengths[starts] = 0.0, 1.0, 0

    def _note_update(self, before: int) -> None:
        interval = self.agent.model_interval
        if before // interval < self.agent.n_seen // interval:
            self.record.updated_at.append(self.agent.n_seen)
            self.record.n_reps.append(len(getattr(self.agent.learner, "reps_", ())))
            self.record.seconds.append(self._spent)
            self._spent = 0.0


@contextmanager
def _stop_on_ctrl_c() -> Iterator[threading.Event]:
    """Note Ctrl-C instead of raising it, so that no update is left half done; only the main thread gets it."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = signal.signal(signal.SIGINT, lambda *_: stopped.set())
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
