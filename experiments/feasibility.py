"""How many test states of a pole-balancing task can be balanced at all, by anybody.

Two searches, each of which proves one side.  A beam search over sequences of actions, ended by a linear-quadratic
regulator, finds controls that balance for the whole time: such a state can be balanced, and the control is kept to
be replayed.  An exhaustive search follows every sequence of actions until it fails: where all have failed, the
state cannot be balanced by any policy with these forces.  What neither settles stays unknown.

Paper: the ceiling of the success rates in sections 4.3.2 and 5.2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_are

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_rows, whole
from kbrl.tasks.pole_balancing import PoleBalancing
from kbrl.tasks.pole_dynamics import ANGLE_LIMIT, GRAVITY, TRACK_LIMIT, advance

Plan = NDArray[np.int16]

_SPEEDS = (2.0, 2.0, 4.0, 2.0)  # of cart and poles, what the regulator counts as much as a failure limit
_FORCE_COST = 0.01  # of the regulator; tried out: 73 one-pole states are found with it, 67 with 0.0001
_TRY_EVERY = 10  # decisions of the beam between attempts of the regulator
_N_TRIED = 32  # states of the beam that it attempts
_BLOCK = 4096  # states that the exhaustive search follows at once
_DEEPEST = 300  # decisions after which it gives up


@dataclass(frozen=True, eq=False, repr=False)
class Feasibility:
    """What is known of each state; one that is neither feasible nor infeasible is unknown."""

    feasible: Booleans  # (n_states,): there is a control that never fails, in ``plans``
    infeasible: Booleans  # (n_states,): every sequence of actions fails
    deadlines: Integers  # (n_states,): the decisions within which they all have failed; 0 where not infeasible
    plans: Plan  # (n_states, n_decisions): actions that balance; -1 where none are known

    @property
    def unknown(self) -> Booleans:
        """The states that neither search has settled, (n_states,)."""
        return ~(self.feasible | self.infeasible)

    @property
    def ceiling(self) -> tuple[float, float]:
        """Bounds of the highest success rate that a policy can have from these states."""
        return float(self.feasible.mean()), float(1.0 - self.infeasible.mean())

    def __repr__(self) -> str:
        counts = (int(kind.sum()) for kind in (self.feasible, self.infeasible, self.unknown))
        return (
            "Feasibility({} of {} states can be balanced for {} decisions, {} cannot, {} unknown: "
            "the best success rate lies in [{:.3f}, {:.3f}])"
        ).format(next(counts), *self.plans.shape, *counts, *self.ceiling)


def feasibility(
    task: PoleBalancing,
    states: Any = None,
    *,
    n_decisions: int | None = None,
    beam_width: int = 500,
    beam_depth: int = 140,
    budget: int = 2**20,
) -> Feasibility:
    """Find out which states can be balanced for ``n_decisions``, by default the task's time limit.

    states: the name of a test set, None for the default one, or an array (n, n_dims).
    beam_width, beam_depth: sequences that the beam search keeps, and the number of decisions it looks ahead.
    budget: transitions of the exhaustive search for each state that the beam search has not settled; some
        5 million a second.  All sequences of h decisions need up to n_actions^(h + 1) of them, less what fails early.
    """
    if states is None or isinstance(states, str):
        states = task.test_states(states)
    states = as_rows(states, f"states of {task.name}", n_dims=len(task.state_names))
    n_decisions = task.max_steps if n_decisions is None else whole(n_decisions, "n_decisions")
    for value, name in ((beam_width, "beam_width"), (beam_depth, "beam_depth"), (budget, "budget")):
        whole(value, name, at_least=int(name == "beam_width"))
    regulator = _Regulator(task)
    feasible, plans = regulator.hold(states, n_decisions)
    deadlines = np.zeros(len(states), dtype=np.intp)
    for i in np.flatnonzero(~feasible):
        plan = _beam_search(task, regulator, states[i], n_decisions, beam_width, beam_depth)
        if plan is None:
            deadlines[i] = all_fail_within(task, states[i], n_decisions=n_decisions, budget=budget)
        else:
            feasible[i], plans[i] = True, plan
    plans[~feasible] = -1
    return Feasibility(feasible, deadlines > 0, deadlines, plans)


def all_fail_within(task: PoleBalancing, state: Any, *, n_decisions: int = 3000, budget: int = 2**20) -> int:
    """Return the number of decisions within which every sequence of actions from the state (n_dims,) fails.

    0 where none is found: a sequence lasts for ``n_decisions``, or for 300, or the budget of transitions is spent.
    """
    blocks = [(np.zeros(1, dtype=np.intp), as_rows([state], "state", n_dims=len(task.state_names)))]
    deadline, n_left = 0, budget
    while blocks:
        depths, states = _take(blocks)
        deadline = max(deadline, 1 + int(depths.max()))
        n_left -= len(states) * len(task.actions)
        if deadline > min(n_decisions, _DEEPEST) or n_left < 0:
            return 0
        states, parents, _ = _successors(task, states)
        depths = depths[parents] + 1
        blocks += [(depths[i : i + _BLOCK], states[i : i + _BLOCK]) for i in range(0, len(states), _BLOCK)]
    return deadline


def _take(blocks: list[tuple[Integers, Floats]]) -> tuple[Integers, Floats]:
    """Take the latest blocks off the list, which keeps it short, until there is enough to do at once."""
    taken = [blocks.pop()]
    while blocks and sum(len(states) for _, states in taken) < _BLOCK:
        taken.append(blocks.pop())
    return np.concatenate([depths for depths, _ in taken]), np.concatenate([states for _, states in taken])


class _Regulator:
    """Push with the force nearest to that of a linear-quadratic regulator for small angles."""

    def __init__(self, task: PoleBalancing) -> None:
        self.task = task
        transition, push = _linearize(task)
        merge, spread = _merge_twins(task.n_poles)
        transition, push = merge @ transition @ spread, merge @ push
        places = np.full(len(merge) // 2, ANGLE_LIMIT)
        places[0] = TRACK_LIMIT
        scale = np.stack([places, _SPEEDS[: len(places)]], axis=1).ravel()
        cost = solve_discrete_are(transition, push, np.diag(scale**-2), [[_FORCE_COST]])
        gain = push.T @ cost @ transition / (_FORCE_COST + push.T @ cost @ push)
        self.gain = (gain @ merge)[0]  # (n_dims,)
        self.cost = merge.T @ cost @ merge  # (n_dims, n_dims)

    def costs(self, states: Floats) -> Floats:
        """Return what the regulator would pay from the states, were the system linear, (n,)."""
        return np.einsum("ij,ij->i", states @ self.cost, states)

    def hold(self, states: Floats, n_decisions: int) -> tuple[Booleans, Plan]:
        """Return which states it balances, (n,), and its actions, (n, n_decisions), filled up to the failure."""
        plans = np.zeros((len(states), n_decisions), dtype=np.int16)
        rows = np.arange(len(states))
        forces = np.array(self.task.forces)
        for t in range(n_decisions):
            plans[rows, t] = actions = np.abs(forces + (states @ self.gain)[:, None]).argmin(axis=1)
            states, _, fails = self.task.step(states, actions)
            states, rows = states[~fails], rows[~fails]
            if not len(rows):
                break
        return np.isin(np.arange(len(plans)), rows), plans


def _linearize(task: PoleBalancing) -> tuple[Floats, Floats]:
    """Return A (n_dims, n_dims) and B (n_dims, 1) of next_state = A state + B force, near the origin."""
    gravity = -GRAVITY if task.gravity == "down" else GRAVITY
    n_dims = len(task.state_names)
    nudges = 1e-5 * np.vstack([np.eye(n_dims), np.zeros((1, n_dims))])
    forces = np.append(np.zeros(n_dims), 1e-5)
    # Friction of the track jumps where the cart stands, so it is left out.
    there, back = (advance(sign * nudges, sign * forces, gravity, track_friction=0.0) for sign in (1.0, -1.0))
    slopes = (there - back).T / 2e-5
    return slopes[:, :-1], slopes[:, -1:]


def _merge_twins(n_poles: int) -> tuple[Floats, Floats]:
    """Average the two long poles of three: no force can steer their difference.  Return the map, and one back."""
    identity = np.eye(2 + 2 * n_poles)
    if n_poles < 3:
        return identity, identity
    merge, spread = identity[:6].copy(), identity[:, :6].copy()
    merge[2:4, 2:4] = merge[2:4, 6:] = 0.5 * np.eye(2)
    spread[6:, 2:4] = np.eye(2)
    return merge, spread


def _successors(task: PoleBalancing, states: Floats) -> tuple[Floats, Integers, Integers]:
    """Try every action in every state; return the successors that stand, (n, n_dims), their parents and actions."""
    parents = np.repeat(np.arange(len(states)), len(task.actions))
    actions = np.tile(np.arange(len(task.actions)), len(states))
    successors, _, fails = task.step(states[parents], actions)
    return successors[~fails], parents[~fails], actions[~fails]


def _beam_search(
    task: PoleBalancing, regulator: _Regulator, state: Floats, n_decisions: int, width: int, depth: int
) -> Plan | None:
    """Return actions that balance from the state, (n_decisions,): some of the beam's, then the regulator's."""
    states, plans = state[None], np.empty((1, 0), dtype=np.int16)
    for t in range(1, min(depth, n_decisions) + 1):
        states, parents, actions = _successors(task, states)
        if len(states) > width:
            kept = np.argpartition(regulator.costs(states), width)[:width]
            states, parents, actions = states[kept], parents[kept], actions[kept]
        if not len(states):
            return None
        plans = np.column_stack([plans[parents], actions.astype(np.int16)])
        if t % _TRY_EVERY == 0 or t == n_decisions:
            best = np.argsort(regulator.costs(states))[:_N_TRIED]
            holds, ends = regulator.hold(states[best], n_decisions - t)
            if holds.any():
                first = int(np.argmax(holds))
                return np.concatenate([plans[best[first]], ends[first]])
    return None
