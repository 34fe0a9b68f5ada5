"""SARSA(lambda) with tile coding: what the paper compares incremental KBSF with on the helicopter.

Linear in the active tiles, with replacing traces; it learns only while acting, from each transition once.  ``SARSA`` is
learner and agent in one: give it to an ``OnlineRun``, or call ``act`` and ``observe`` in a loop of your own.
Paper: section 5.2.3; Sutton 1996; the order within a step follows RL-Library's agent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from math import isfinite
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import as_floats, as_generator, as_rows, in_unit_interval, positive, whole
from kbrl.data.scaling import Coordinates
from kbrl.data.transitions import as_flags
from kbrl.learners.exploration import as_actions, as_exploration
from kbrl.learners.learner import Learner
from kbrl.learners.tile_coding import fill_q, fill_tiles
from kbrl.numba_cache import njit


@dataclass(eq=False, repr=False)
class SARSA(Learner):
    """SARSA(lambda) with tile coding, hashed into ``memory`` weights; it learns from each transition once, as it acts.

    actions: the labels of the actions, or their number.
    low, high: bounds of the observations, (n_dims,).  Each tiling divides every variable into ``tiles`` parts between
        them; the tiles continue beyond.
    step_size: alpha; divided by the number of tilings unless ``divide_step`` is False.
    trace_decay: lambda; traces below ``least_trace`` are dropped.
    exploration: the probability of a random action, or an ``Epsilon`` schedule.
    model_interval: an ``OnlineRun`` notes its record every this many transitions.

    ``act(state)`` returns the label of an action for one state, (n_dims,), and ``observe`` learns from one transition.
    ``q_values(states)`` and ``predict(states)`` answer for states, (n_states, n_dims), as KBSF does.

    The step size is 1, so after one transition that ends with a reward of 2 its value is 2.

    >>> from kbrl import SARSA
    >>> agent = SARSA(["left", "right"], low=[0.0], high=[1.0], step_size=1.0, memory=1000, random_state=0)
    >>> agent.observe([0.5], "right", reward=2.0, next_observation=[1.0], terminated=True)
    >>> agent.q_values([[0.5]]).round(6).tolist(), agent.predict([[0.5]]).tolist()
    ([[0.0, 2.0]], ['right'])
    """

    actions: Any
    low: Any
    high: Any
    _: KW_ONLY
    n_tilings: int = 24
    tiles: int = 4
    memory: int = 2**20
    step_size: float = 0.001
    divide_step: bool = True
    trace_decay: float = 0.05
    least_trace: float = 0.01
    discount: float = 0.99
    exploration: Any = 0.1
    model_interval: int = 1000
    random_state: Any = None

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Check the parameters and start with no knowledge: all weights are 0."""
        low, high = as_floats(self.low, "low"), as_floats(self.high, "high")
        if low.ndim != 1 or low.shape != high.shape or not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
            raise ValueError(f"low and high must be finite bounds with low < high, but they are {low} and {high}.")
        self.action_labels_ = as_actions(self.actions)
        self._low, self._widths = low, (high - low) / whole(self.tiles, "tiles")
        self.coordinates_ = Coordinates.plain(len(low))  # each variable has tiles of its own width
        alpha = positive(self.step_size, "step_size")
        self._alpha = alpha / whole(self.n_tilings, "n_tilings") if self.divide_step else alpha
        self._decay = in_unit_interval(self.discount, "discount", closed=True) * in_unit_interval(
            self.trace_decay, "trace_decay", closed=True
        )
        in_unit_interval(self.least_trace, "least_trace")
        self._rule = as_exploration(self.exploration)
        self._rng = as_generator(self.random_state)
        n_actions = len(self.action_labels_)
        n_blocks = whole(self.memory, "memory") // n_actions
        if n_blocks == 0:
            raise ValueError(f"memory must hold a weight for each of {n_actions} actions, but it is {self.memory}.")
        self.weights_: Floats = np.zeros((n_blocks, n_actions))
        self._traces: Floats = np.zeros((n_blocks, n_actions))
        self._active: Integers = np.zeros(self.weights_.size, dtype=np.intp)  # the places with a trace
        self._n_active = 0
        self._tiles = np.zeros(self.n_tilings, dtype=np.intp)
        self._next_tiles = np.zeros(self.n_tilings, dtype=np.intp)
        self._q: Floats = np.zeros(n_actions)
        self._places = {label: place for place, label in enumerate(self.action_labels_.tolist())}
        self._expected: Floats | None = None  # the state for which the next action is already chosen
        self._next_action = 0
        self.n_seen = 0

    def set_params(self, **params: Any) -> SARSA:
        """Change parameters and start again, with all weights 0."""
        super().set_params(**params)
        self._begin()
        return self

    @property
    def learner(self) -> SARSA:
        """Itself: agent and learner are one."""
        return self

    @property
    def action_labels(self) -> Array:
        """The labels of the actions, (n_actions,)."""
        return self.action_labels_

    def act(self, state: Any) -> Any:
        """Return the label of the action to take in one state; a state other than expected begins a new episode."""
        self._meet(self._checked(state, "state"))
        return self.action_labels_[self._next_action]

    def observe(self, observation: Any, action: Any, reward: float, next_observation: Any, terminated: bool) -> None:
        """Learn from one transition, and choose the next action."""
        state, next_state = self._checked(observation, "observation"), self._checked(next_observation, "observation")
        place = self._places.get(action)
        if place is None:
            raise ValueError(f"action must be among {self.action_labels_.tolist()}, but it is {action!r}.")
        if not isfinite(reward):
            raise ValueError(f"reward must be finite, but it is {reward!r}.")
        self._meet(state)
        is_flag = isinstance(terminated, (bool, np.bool_))
        self._learn(
            place, float(reward), next_state, bool(terminated if is_flag else as_flags([terminated], "terminals"))
        )
        self.n_seen += 1

    def _checked(self, state: Any, name: str) -> Floats:
        """Return one state as an array; the full check runs only if something is wrong."""
        row = np.asarray(state, dtype=np.float64)
        if row.shape == self._low.shape and isfinite(row.sum()):
            return row
        return as_rows([state], name, n_dims=len(self._low))[0]

    def _meet(self, state: Floats) -> None:
        """Begin a new episode where the state is not the one that was expected."""
        if self._expected is None or (state != self._expected).any():
            self._begin_episode(state)

    def act_all(self, observations: Floats) -> Array:
        """Return the action for the one episode under way, (1,)."""
        if len(observations) != 1:
            raise ValueError(f"SARSA follows one episode at a time, but it got {len(observations)} states at once.")
        return np.array([self.act(observations[0])])

    def observe_all(
        self, observations: Floats, actions: Array, rewards: Floats, next_observations: Floats, terminals: Booleans
    ) -> None:
        """Learn from the transition of the one episode under way."""
        for row in range(len(rewards)):
            step = (observations[row], actions[row], rewards[row], next_observations[row], terminals[row])
            self.observe(*step)

    def update_model(self) -> None:
        """Do nothing: every transition is learnt from when it is observed."""

    def _q_function(self) -> Callable[[Floats], Floats]:
        weights = self.weights_.copy()  # later learning does not change the answers

        def q(states: Floats) -> Floats:
            result = np.empty((len(states), len(self.action_labels_)))
            tiles = np.zeros_like(self._tiles)
            for row, state in enumerate(states):
                fill_tiles((state - self._low) / self._widths, len(weights), tiles)
                fill_q(weights, tiles, result[row])
            return result

        return q

    def _begin_episode(self, observation: Floats) -> None:
        self._traces.ravel()[self._active[: self._n_active]] = 0.0
        self._n_active = 0
        self._next_action = self._choose(observation, self._tiles)
        self._expected = observation.copy()

    def _choose(self, observation: Floats, tiles: Integers) -> int:
        """Find the active tiles of a state, and choose an action: random or, ties broken at random, the best."""
        chance, place = self._rng.random(2)
        explores = chance < self._rule.epsilon(self.n_seen)
        return choose(observation, self._low, self._widths, self.weights_, tiles, self._q, explores, place)

    def _learn(self, action: int, reward: float, next_observation: Floats, terminated: bool) -> None:
        ahead = 0.0
        if not terminated:
            self._next_action = self._choose(next_observation, self._next_tiles)
            ahead = float(self.discount) * float(self._q[self._next_action])
        arrays = (self.weights_.ravel(), self._traces.ravel(), self._active, self._n_active, self._tiles, len(self._q))
        self._n_active = update(*arrays, action, reward + ahead, self._alpha, self._decay, float(self.least_trace))
        self._tiles, self._next_tiles = self._next_tiles, self._tiles
        self._expected = None if terminated else next_observation.copy()


@njit(cache=True, nogil=True)
def choose(
    observation: Floats,
    low: Floats,
    widths: Floats,
    weights: Floats,
    tiles: Integers,
    q: Floats,
    explores: bool,
    place: float,
) -> int:
    """Fill tiles and q of a state, and return an action: any, or one of the best, as ``place`` in [0, 1) decides."""
    fill_tiles((observation - low) / widths, len(weights), tiles)
    fill_q(weights, tiles, q)
    if explores:
        return int(place * len(q))
    top = q.max()
    n_best = 0
    for action in range(len(q)):
        n_best += q[action] == top
    wanted = int(place * n_best)
    for action in range(len(q)):
        if q[action] == top:
            if wanted == 0:
                return action
            wanted -= 1
    return 0


@njit(cache=True, nogil=True)
def update(
    weights: Floats,
    traces: Floats,
    active: Integers,
    n_active: int,
    tiles: Integers,
    n_actions: int,
    action: int,
    target: float,
    alpha: float,
    decay: float,
    least: float,
) -> int:
    """Decay the traces, renew those of the tiles of the action taken, and move all traced weights towards the target.

    Weights and traces are flat: action a of block b is at b * n_actions + a.  Returns how many places have a trace.
    """
    kept = 0
    for k in range(n_active):
        place = active[k]
        traces[place] *= decay
        if traces[place] <= least:
            traces[place] = 0.0
        else:
            active[kept] = place
            kept += 1
    error = target
    for tiling in range(len(tiles)):
        start = tiles[tiling] * n_actions
        error -= weights[start + action]
        had_trace = traces[start + action] != 0.0
        traces[start : start + n_actions] = 0.0  # the other actions' are cleared
        traces[start + action] = 1.0
        if not had_trace and kept < len(active):
            active[kept] = start + action
            kept += 1
    for k in range(kept):
        weights[active[k]] += alpha * error * traces[active[k]]
    return kept
