"""The puddle world: reach a corner of the unit square around two puddles (Sutton 1996).

The paper's version: +5 on entering the goal, minus ten times the depth where a move ends in a puddle, nothing
otherwise; discount 0.99; episodes are cut after 300 decisions.  A puddle's depth at a point is how far the point
lies inside the capsule of radius 0.1 around the puddle's centre line.

Paper: section 4.3.1 and appendix B.1.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_rows, flag, one_of
from kbrl.numba_cache import njit
from kbrl.tasks.task import Task

STEP = 0.05
NOISE = 0.01  # the standard deviation, in each coordinate
RADIUS = 0.1
CENTRE_LINES = np.array([[0.10, 0.75, 0.45, 0.75], [0.45, 0.40, 0.45, 0.80]])  # from (x, y) to (x, y)
MOVES = np.array([[0.0, STEP], [0.0, -STEP], [STEP, 0.0], [-STEP, 0.0]])
GOAL_REWARD = 5.0
DEPTH_COST = 10.0
TRIANGLE = 1.9  # the goal is x + y at least this,
SQUARE = 0.95  # or x and y at least this

_TEST_STATES = {
    "grid": [[x, y] for x in (0.1, 0.2, 0.3) for y in (0.3, 0.4, 0.5)],
    "top": [[x, y] for x in (0.1, 0.3) for y in (0.9, 1.0)],
}
_TEST_STATES["paper"] = _TEST_STATES["grid"] + _TEST_STATES["top"]


class PuddleWorld(Task):
    """The puddle world: states are (x, y) in the unit square; actions are moves up, down, right and left by 0.05.

    noise: False makes the moves exact; start states stay random.
    goal: the triangle x + y >= 1.9 or the square [0.95, 1]^2; public versions disagree.
    overlap: where the puddles overlap, "add" their depths or take the larger ("max").

    >>> from kbrl.tasks import PuddleWorld
    >>> task = PuddleWorld(noise=False)
    >>> next_states, rewards, ends = task.step([[0.5, 0.2]], ["up"])
    >>> next_states.tolist(), rewards.tolist(), ends.tolist()
    ([[0.5, 0.25]], [0.0], [False])
    >>> log = PuddleWorld().collect(1000, random_state=0)  # random actions
    >>> log.states.shape, PuddleWorld().evaluate(lambda states: ["right"] * len(states)).lengths.shape
    ((1000, 2), (13,))
    """

    name = "PuddleWorld"
    source = "Sutton 1996"
    actions = ("up", "down", "right", "left")
    discount = 0.99
    max_steps = 300
    state_names = ("x", "y")
    low = np.zeros(2)
    high = np.ones(2)
    test_sets = ("paper", "grid", "top")

    def __init__(
        self,
        *,
        noise: bool = True,
        goal: Literal["triangle", "square"] = "triangle",
        overlap: Literal["add", "max"] = "add",
    ) -> None:
        self.noise = flag(noise, "noise")
        self.goal = one_of(goal, ("triangle", "square"), "goal")
        self.overlap = one_of(overlap, ("add", "max"), "overlap")

    def in_goal(self, states: Any) -> Booleans:
        """Return which states lie in the goal, (n,)."""
        return _in_goal(np.array(as_rows(states, "states", n_dims=2)), self.goal == "square")

    def depths(self, states: Any) -> Floats:
        """Return how deep in the puddles the states lie, (n,); 0 outside."""
        return _depths(np.array(as_rows(states, "states", n_dims=2)), self.overlap == "max")

    def draw(self, axes: Any, states: Floats | None = None, actions: Integers | None = None) -> None:
        """Draw the puddles and the goal, and the way through ``states`` with its end marked."""
        from matplotlib.patches import Polygon

        side = np.linspace(0.0, 1.0, 201)
        points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
        depths = self.depths(points).reshape(201, 201)
        axes.contourf(side, side, depths, levels=[1e-9, 0.025, 0.05, 0.075, 0.1, 0.2], cmap="Blues", vmin=-0.05)
        corner = SQUARE if self.goal == "square" else TRIANGLE - 1.0
        third = [[SQUARE, SQUARE]] if self.goal == "square" else []
        axes.add_patch(Polygon([[corner, 1.0], [1.0, 1.0], [1.0, corner], *third], color="tab:green"))
        axes.text(0.97, 0.87, "goal", ha="right", va="top", color="tab:green")
        axes.text(0.06, 0.91, "puddles, darker where deeper", va="bottom", color="tab:blue")
        if states is not None:
            axes.plot(*np.transpose(states), color="tab:orange", linewidth=1.5)
            axes.plot(*states[-1], "o", color="tab:red", markersize=9, markeredgecolor="black", clip_on=False)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="x", ylabel="y")

    def _reset(self, n: int, rng: np.random.Generator) -> Floats:
        states = rng.random((n, 2))
        while (rejected := _in_goal(states, self.goal == "square")).any():
            states[rejected] = rng.random((int(rejected.sum()), 2))
        return states

    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        noise = rng.standard_normal(states.shape) if self.noise else np.zeros(states.shape)
        return _move(states, actions, noise, self.goal == "square", self.overlap == "max")

    def _test_states(self, name: str) -> Floats:
        return np.array(_TEST_STATES[name])


@njit(cache=True, nogil=True)
def _is_goal(x: float, y: float, goal_is_square: bool) -> bool:
    if goal_is_square:
        return x >= SQUARE and y >= SQUARE
    return x + y >= TRIANGLE


@njit(cache=True, nogil=True)
def _depth(x: float, y: float, takes_larger: bool) -> float:
    total = 0.0
    for k in range(len(CENTRE_LINES)):
        from_x, from_y = CENTRE_LINES[k, 0], CENTRE_LINES[k, 1]
        along_x, along_y = CENTRE_LINES[k, 2] - from_x, CENTRE_LINES[k, 3] - from_y
        place = ((x - from_x) * along_x + (y - from_y) * along_y) / (along_x * along_x + along_y * along_y)
        place = min(max(place, 0.0), 1.0)
        distance = np.hypot(x - from_x - place * along_x, y - from_y - place * along_y)
        depth = max(0.0, RADIUS - distance)
        total = max(total, depth) if takes_larger else total + depth
    return total


@njit(cache=True, nogil=True)
def _in_goal(states: Floats, goal_is_square: bool) -> Booleans:
    inside = np.empty(len(states), dtype=np.bool_)
    for i in range(len(states)):
        inside[i] = _is_goal(states[i, 0], states[i, 1], goal_is_square)
    return inside


@njit(cache=True, nogil=True)
def _depths(states: Floats, takes_larger: bool) -> Floats:
    depths = np.empty(len(states))
    for i in range(len(states)):
        depths[i] = _depth(states[i, 0], states[i, 1], takes_larger)
    return depths


@njit(cache=True, nogil=True)
def _move(
    states: Floats, actions: Integers, noise: Floats, goal_is_square: bool, takes_larger: bool
) -> tuple[Floats, Floats, Booleans]:
    """Move every state by its action and NOISE times its noise, drawn outside, so that the seed decides alone."""
    n = len(states)
    next_states, rewards, terminals = np.empty((n, 2)), np.empty(n), np.empty(n, dtype=np.bool_)
    for i in range(n):
        x = min(max(states[i, 0] + MOVES[actions[i], 0] + NOISE * noise[i, 0], 0.0), 1.0)
        y = min(max(states[i, 1] + MOVES[actions[i], 1] + NOISE * noise[i, 1], 0.0), 1.0)
        ends = _is_goal(x, y, goal_is_square)
        next_states[i, 0], next_states[i, 1] = x, y
        terminals[i] = ends
        rewards[i] = (GOAL_REWARD if ends else 0.0) - DEPTH_COST * _depth(x, y, takes_larger)
    return next_states, rewards, terminals
