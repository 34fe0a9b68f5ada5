"""Plans instead of single steps: the reduced MDP whose actions are short open-loop plans.

A plan is a sequence of decisions, each held for some steps.  It is rolled out in the local lines, and only its end is
mapped to the representative states: an interpolation error is paid once per plan, not once per step.  The MDP over
representative states has plans as actions and the discount gamma^k for plans of k steps; its rows sum to at most one.
Acting looks ahead in the same way, from the state at hand, and decides again at the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import sparse

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.scaling import Coordinates
from kbrl.lines import plan_loops, step_loops
from kbrl.lines.local_lines import LocalLines
from kbrl.lines.surface import Surface, surface_of
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.threads import for_each_action

MOST_PLANS, MOST_ALLOWED = 64, 4096  # of automatic plans, and of those that were asked for
NEAR = 10  # representative states that share the value of a plan's end
_ROWS = 64  # representative states that one thread plans for at a time
_NUMBERS = 2**21  # of predicted states that are looked at together


@dataclass(frozen=True, eq=False)
class Plans:
    """All sequences of ``n_decisions`` decisions among ``actions``, each held ``n_held`` steps, in the lines' world.

    ``values`` of the representative states are what plans end with; see `solve`.
    """

    world: step_loops.World
    actions: Integers  # that may be taken
    n_actions: int  # all there are: columns of Q
    n_decisions: int
    n_held: int
    discount: float  # of one step; 1 where the lines hold it, because steps have durations
    n_near: int = NEAR
    is_spread: bool = False
    n_jobs: int = field(default=1)
    allowed: Callable[[Floats], Booleans] | None = None  # scaled states, (n, n_dims), to (n, n_actions); None: all are

    @property
    def n_plans(self) -> int:
        """The number of plans."""
        return int(len(self.actions) ** self.n_decisions)

    @property
    def n_steps(self) -> int:
        """The number of steps of a plan."""
        return self.n_decisions * self.n_held

    def decisions(self, plan: int) -> list[int]:
        """Return the actions of a plan, one per decision."""
        base = len(self.actions)
        return [int(self.actions[plan // base**k % base]) for k in reversed(range(self.n_decisions))]

    @property
    def is_timed(self) -> bool:
        """Whether steps have durations."""
        return self.world.lines.shape[2] > self.world.reps.shape[1] + 2

    def barred(self, states: Floats) -> Booleans:
        """Return which plans have a decision that is not allowed where it is taken, (n, n_plans), (n, 0) if all are.

        A later decision is taken in the state that the plan is predicted to reach.  Where no decision is allowed, all
        of them stay: a maximum must be over something.
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
                length = (n_before, self.n_held, self.discount)
                plan_loops.ends_of_plans(states, self.actions, *length, self.world, here)
            allowed = self.allowed(here.reshape(-1, n_dims))[:, self.actions].reshape(*here.shape[:2], n_actions)
            allowed |= ~allowed.any(axis=2, keepdims=True)
            is_open = (is_open[:, :, None] & allowed).reshape(len(states), -1)
        return ~is_open

    def mdp(self) -> FiniteMDP:
        """Return the MDP over the representative states that has plans as actions."""
        n_reps, n_dims = self.world.reps.shape
        if len(self.actions) == 0:
            nothing = sparse.csr_array((n_reps, n_reps)), np.zeros((1, n_reps)), 0.0
            return FiniteMDP.trusted(*nothing, np.zeros((1, n_reps), dtype=bool))
        n_near = min(self.n_near, self.world.graph.shape[1])
        n_entries = n_near * (2 * n_dims if self.is_spread else 1)
        rewards, ranks = np.empty((self.n_plans, n_reps)), np.empty((self.n_plans, n_reps), dtype=np.intp)
        shares = np.empty((self.n_plans, n_reps, n_entries))
        columns = np.empty((self.n_plans, n_reps, n_entries), dtype=np.intp)
        starts = range(0, n_reps, _ROWS)

        def work(number: int) -> None:
            rows = slice(starts[number], starts[number] + _ROWS)
            parts = [part[:, rows] for part in (rewards, ranks, shares, columns)]
            kept = [np.ascontiguousarray(part) for part in parts]
            length = (self.n_decisions, self.n_held, self.discount)
            barred = self.barred(self.world.reps[rows])
            plan_loops.plan_rows(starts[number], self.actions, *length, n_near, self.world, barred, *kept)
            for part, result in zip(parts, kept):
                part[:] = result

        for_each_action(work, len(starts), self.n_jobs)
        row_starts = np.arange(0, shares.size + 1, n_entries)
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
        for rows in self._blocks(len(states)) if len(self.plans.actions) else ():
            self._fill(np.ascontiguousarray(states[rows]), q[rows], best[rows])
        return q, best

    def _fill(self, states: Floats, q: Floats, best: Integers) -> None:
        plans, n_near = self.plans, self._n_near
        length = (plans.n_decisions, plans.n_held, plans.discount)
        world, barred = plans.world, plans.barred(states)
        plan_loops.look_ahead(
            states, plans.actions, *length, n_near, plans.is_spread, world, barred, self.values, q, best
        )

    def _blocks(self, n_states: int) -> Iterator[slice]:
        """Yield blocks of states: all at once, unless it is asked where decisions are allowed."""
        each = self.plans.n_plans * self.plans.world.reps.shape[1]
        n_rows = max(1, n_states if self.plans.allowed is None else _NUMBERS // each)
        return (slice(start, start + n_rows) for start in range(0, n_states, n_rows))

    @cached_property
    def _n_near(self) -> int:
        return min(self.plans.n_near, self.plans.world.graph.shape[1])


def world_of(
    lines: LocalLines,
    surface: Surface | None = None,
    *,
    is_spread: bool = False,
    inside: float | None = None,
    usual: float | None = None,
) -> step_loops.World:
    """Return the lines, and the surface that states lie on, as the compiled loops need them; None: there is none.

    inside: a plan must end within so many distances that logged states have (`LocalLines.reach`); None: anywhere.
    usual: a plan may begin with actions that were taken at least this share as often as the usual one; None: with all.
    """
    surface = surface_of(Coordinates.plain(lines.reps.shape[1])) if surface is None else surface
    return step_loops.World(
        reps=np.ascontiguousarray(lines.reps),
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
    if n_decisions is None:
        n_decisions = next((n for n in (3, 2) if n_actions**n <= MOST_PLANS), 1)
    elif n_actions**n_decisions > MOST_ALLOWED:
        raise ValueError(
            f"plan.decisions={n_decisions} makes {n_actions}^{n_decisions} plans of {n_actions} actions, and at most "
            f"{MOST_ALLOWED} are allowed. Use fewer decisions, or leave plan.decisions out."
        )
    return n_decisions, n_held or (4 if n_decisions > 1 else 1)
