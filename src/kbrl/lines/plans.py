"""Plans instead of single steps: the reduced MDP whose actions are short open-loop plans.

A plan is a sequence of decisions, each held for some steps.  It is rolled out in the local lines, and only its end is
mapped to the representative states: an interpolation error is paid once per plan, not once per step.  The MDP over
representative states has plans as actions and the discount gamma^k for plans of k steps; its rows sum to at most one.
Acting looks ahead in the same way, from the state at hand, and decides again at the next step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.scaling import Coordinates
from kbrl.lines import plan_loops
from kbrl.lines.local_lines import LocalLines
from kbrl.lines.plan_loops import Ends, Length
from kbrl.lines.step_loops import blended_values, blends, shares_of_actions
from kbrl.lines.surface import Surface, surface_of
from kbrl.lines.world import Ground, Moves, Near, Rules, World, own_rows
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.threads import for_each_action

MOST_PLANS, MOST_ALLOWED = 64, 4096  # of automatic plans, and of those that were asked for
MOST_STEPS = 10_000  # of a plan
NEAR = 10  # representative states that share the value of a plan's end
_ROWS, _NUMBERS = 64, 2**21  # states that plans are rolled out from at a time, and weights of their ends, at most


@dataclass(frozen=True, eq=False)
class Plans:
    """All sequences of ``n_decisions`` decisions among ``actions``, each held ``n_held`` steps, in the lines' world.

    ``values`` of the representative states are what plans end with; see `solve`.
    """

    world: World
    actions: Integers  # that may be taken
    n_actions: int  # all there are: columns of Q
    n_decisions: int
    n_held: int
    discount: float  # of one step; 1 where the lines hold it, because steps have durations
    n_near: int = NEAR
    is_spread: bool = False
    n_jobs: int = field(default=1)
    allowed: Callable[[Floats], Booleans] | None = None  # scaled states, (n, n_dims), to (n, n_actions); None: all are

    @cached_property
    def n_plans(self) -> int:
        """The number of plans."""
        return int(len(self.actions) ** self.n_decisions)

    @property
    def n_steps(self) -> int:
        """The number of steps of a plan."""
        return self.n_decisions * self.n_held

    @cached_property
    def length(self) -> Length:
        """How long plans are, as the loops need it."""
        return Length(self.n_decisions, self.n_held, float(self.discount))

    def decisions(self, plan: int) -> list[int]:
        """Return the actions of a plan, one per decision."""
        base = len(self.actions)
        return [int(self.actions[plan // base**k % base]) for k in reversed(range(self.n_decisions))]

    @cached_property
    def n_rows(self) -> int:
        """The number of states that plans are rolled out from at a time."""
        n_points = 2 * self.world.reps.shape[1] if self.is_spread else 1
        return min(_ROWS, max(1, _NUMBERS // max(1, self.n_plans * n_points * self.n_near)))

    @property
    def is_timed(self) -> bool:
        """Whether steps have durations."""
        return self.world.lines.shape[2] > self.world.reps.shape[1] + 2

    def barred(self, states: Floats, cells: Integers) -> Booleans:
        """Return which plans have a decision that is not allowed where it is taken, (n, n_plans), (n, 0) if all are.

        A later decision is taken in the state that the plan is predicted to reach.  Where no decision is allowed, all
        of them stay: a maximum needs at least one.
        """
        if self.allowed is None:
            return np.zeros((len(states), 0), dtype=bool)
        n_actions, n_dims = len(self.actions), states.shape[1]
        is_open = np.ones((len(states), 1), dtype=bool)
        for n_before in range(self.n_decisions):
            here = np.empty((len(states), n_actions**n_before, n_dims))
            if n_before == 0:
                here[:, 0] = states
            else:
                here[:] = replace(self, n_decisions=n_before, is_spread=False, allowed=None).ends(states, cells).states
            allowed = self.allowed(here.reshape(-1, n_dims))[:, self.actions].reshape(*here.shape[:2], n_actions)
            allowed |= ~allowed.any(axis=2, keepdims=True)
            is_open = (is_open[:, :, None] & allowed).reshape(len(states), -1)
        return ~is_open

    def ends(self, states: Floats, cells: Integers) -> Ends:
        """Return where all plans from scaled states, (n, n_dims), end; cells: the nearest representative states."""
        world, barred = self.world, self.barred(states, cells)
        usual = np.zeros((len(states), 0), dtype=bool)
        if len(world.behaviour):
            shares = shares_of_actions(states, cells, world)[:, self.actions]
            usual = np.ascontiguousarray(shares >= world.usual * shares.max(axis=1, keepdims=True))
        ends = Ends.room(len(states), self.n_plans, states.shape[1], self.is_spread)
        plan_loops.roll_out(states, cells, self.actions, self.length, *self._parts, usual, barred, ends)
        return ends

    @cached_property
    def _parts(self) -> tuple[Near, Moves, Ground, Rules]:
        return self.world.near, self.world.moves, self.world.ground, self.world.rules

    def points(self, ends: Ends) -> tuple[Floats, Integers]:
        """Return where plans may end, (n_points, n_dims), and cells nearby: several per plan if it is spread."""
        n_dims = ends.states.shape[2]
        states, cells = ends.states.reshape(-1, n_dims), ends.cells.ravel()
        if not self.is_spread:
            return states, cells
        points = np.empty((len(states), 2 * n_dims, n_dims))
        plan_loops.sigma_points(states, ends.spread.reshape(-1, n_dims, n_dims), points)
        return points.reshape(-1, n_dims), np.repeat(cells, 2 * n_dims)

    def values(self, ends: Ends, values: Floats) -> Floats:
        """Return the value of where plans end, (n, n_plans), from those of the representative states, (n_reps,)."""
        points, cells = self.points(ends)
        n_plans = ends.rewards.size
        total = blended_values(points, cells, self.world, self._n_near, self.is_spread, values, n_plans)
        return np.asarray(total / (len(points) // n_plans)).reshape(ends.rewards.shape)

    @property
    def _n_near(self) -> int:
        return min(self.n_near, self.world.graph.shape[1])

    def mdp(self) -> FiniteMDP:
        """Return the MDP over the representative states that has plans as actions."""
        n_reps, n_dims = self.world.reps.shape
        if len(self.actions) == 0:
            nothing = sparse.csr_array((n_reps, n_reps)), np.zeros((1, n_reps)), 0.0
            return FiniteMDP.trusted(*nothing, np.zeros((1, n_reps), dtype=bool))
        n_near, n_points = self._n_near, 2 * n_dims if self.is_spread else 1
        rewards, ranks = np.empty((self.n_plans, n_reps)), np.empty((self.n_plans, n_reps), dtype=np.intp)
        shares = np.empty((self.n_plans, n_reps, n_points, n_near))
        columns = np.empty(shares.shape, dtype=np.int32)
        starts = range(0, n_reps, self.n_rows)

        def work(number: int) -> None:
            rows = slice(starts[number], starts[number] + self.n_rows)
            states = self.world.reps[rows]
            ends = self.ends(states, np.arange(n_reps)[rows])
            places, weights = blends(*self.points(ends), self.world, n_near, self.is_spread)
            weights = weights.reshape(len(states), self.n_plans, n_points, n_near)
            weights *= (ends.alive * ends.fades)[:, :, None, None]
            weights /= n_points
            rewards[:, rows], ranks[:, rows] = ends.rewards.T, ends.ranks.T
            shares[:, rows], columns[:, rows] = weights.swapaxes(0, 1), places.reshape(weights.shape).swapaxes(0, 1)

        for_each_action(work, len(starts), self.n_jobs)
        row_starts = np.arange(
            0, shares.size + 1, n_points * n_near, dtype=np.int32 if shares.size < 2**31 else np.int64
        )
        shape = (self.n_plans * n_reps, n_reps)
        stacked = sparse.csr_array((shares.ravel(), columns.ravel(), row_starts), shape=shape)
        stacked.sum_duplicates()
        available = ranks == ranks.max(axis=0)
        if self.is_timed:
            return FiniteMDP.discounted(stacked, rewards, 0.0, available)
        return FiniteMDP.trusted(stacked, rewards, self.discount**self.n_steps, available)

    def rep_q(self, plan_q: Floats) -> Floats:
        """Return the value of the best plan that begins with each action, (n_reps, n_actions), -inf where none does."""
        result = np.full((len(plan_q), self.n_actions), -np.inf)
        if len(self.actions) == 0:
            return result
        by_first = plan_q.reshape(len(plan_q), len(self.actions), -1)
        result[:, self.actions] = by_first.max(axis=2)
        return result


@dataclass(frozen=True, eq=False)
class PlanQ:
    """Q by looking ahead: the best plan that begins with each action, rolled out from the state itself."""

    plans: Plans
    values: Floats  # (n_reps,)

    def __call__(self, states: Floats) -> Floats:
        """Return Q, (n_states, n_actions), of scaled states; -inf where an action begins no plan."""
        return self.best(states)[0]

    def best(self, states: Floats) -> tuple[Floats, Integers]:
        """Return Q and the best plan that begins with each action, (n_states, n_actions) each."""
        q = np.full((len(states), self.plans.n_actions), -np.inf)
        best = np.full(q.shape, -1, dtype=np.intp)
        states, n_rows = own_rows(states), self.plans.n_rows
        for start in range(0, len(states) if len(self.plans.actions) else 0, n_rows):
            rows = slice(start, start + n_rows)
            self._fill(states[rows], q[rows], best[rows])
        return q, best

    def _fill(self, states: Floats, q: Floats, best: Integers) -> None:
        plans = self.plans
        ends = plans.ends(states, plans.world.cells(states))
        plan_loops.choose(plans.actions, plans.length, ends, plans.values(ends, self.values), q, best)


def world_of(
    lines: LocalLines,
    surface: Surface | None = None,
    *,
    is_spread: bool = False,
    inside: float | None = None,
    usual: float | None = None,
) -> World:
    """Return the lines, and the surface that states lie on, as the compiled loops need them; None: there is none.

    inside: a plan must end within this many typical distances of logged states (`LocalLines.reach`); None: anywhere.
    usual: a plan may begin with actions that were taken at least this share as often as the usual one; None: with all.
    """
    surface = surface_of(Coordinates.plain(lines.reps.shape[1])) if surface is None else surface
    return World(
        reps=np.ascontiguousarray(lines.reps),
        columns=np.ascontiguousarray(lines.reps.T),
        graph=lines.graph,
        around=np.ascontiguousarray(lines.reps[lines.graph].transpose(0, 2, 1)),
        lines=np.ascontiguousarray(lines.lines),
        limits=np.ascontiguousarray(lines.limits, dtype=np.float64),
        known=lines.known,
        noise=np.ascontiguousarray(lines.noise) if is_spread else np.zeros((0, 0, 0, 0)),
        span=np.ascontiguousarray(lines.span),
        circles=surface.circles.places,
        circle=surface.circles.shapes,
        levels=surface.levels,
        units=surface.units,
        behaviour=np.zeros((0, 0, 0)) if usual is None else np.ascontiguousarray(lines.behaviour),
        usual=0.0 if usual is None else usual,
        reach=np.full(len(lines.reps), np.inf if inside is None else inside * lines.reach),
        offered=np.zeros((0, 0), dtype=bool),
        doubts=np.zeros((0, 0)),
    )


def plan_length(n_actions: int, n_decisions: int | None = None, n_held: int | None = None) -> tuple[int, int]:
    """Return (decisions, steps that each is held): three decisions, or fewer where there would be too many plans.

    Decisions are held four steps, those of plans with one decision one step.
    """
    n_steps = (n_decisions or 1) * (n_held or 1)
    if n_steps > MOST_STEPS:
        raise ValueError(
            f"plan.decisions and plan.hold may make plans of at most {MOST_STEPS:,} steps, but they make {n_steps:,}. "
            f"Use fewer decisions, or hold them for fewer steps."
        )
    if n_decisions is None:
        n_decisions = next((n for n in (3, 2) if n_actions**n <= MOST_PLANS), 1)
    elif n_actions**n_decisions > MOST_ALLOWED:
        raise ValueError(
            f"plan.decisions={n_decisions} makes {n_actions}^{n_decisions} plans of {n_actions} actions, and at most "
            f"{MOST_ALLOWED} are allowed. Use fewer decisions, or leave plan.decisions out."
        )
    return n_decisions, n_held or (4 if n_decisions > 1 else 1)
