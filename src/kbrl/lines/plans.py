"""Plans instead of single steps: the reduced MDP whose actions are short open-loop plans.

A plan is a sequence of decisions, each held for some steps.  It is rolled out in the local lines, and only its end is
mapped to the representative states: an interpolation error is paid once per plan, not once per step.  The MDP over
representative states has plans as actions and the discount gamma^k for plans of k steps; its rows sum to at most one.
Acting looks ahead in the same way, from the state at hand, and decides again at the next step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from kbrl.arrays import Floats, Integers
from kbrl.lines import plan_loops, step_loops
from kbrl.lines.local_lines import LocalLines
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.threads import for_each_action

MOST_PLANS, MOST_ALLOWED = 64, 4096  # of automatic plans, and of those that were asked for
NEAR = 10  # representative states that share the value of a plan's end
_ROWS = 64  # representative states that one thread plans for at a time


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
    discount: float  # of one step
    n_near: int = NEAR
    is_spread: bool = False
    n_jobs: int = field(default=1)

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

    def mdp(self) -> FiniteMDP:
        """Return the MDP over the representative states that has plans as actions."""
        n_reps, n_dims = self.world.reps.shape
        if len(self.actions) == 0:
            nothing = sparse.csr_array((n_reps, n_reps)), np.zeros((1, n_reps)), self.discount
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
            plan_loops.plan_rows(starts[number], self.actions, *length, n_near, self.world, *kept)
            for part, result in zip(parts, kept):
                part[:] = result

        for_each_action(work, len(starts), self.n_jobs)
        row_starts = np.arange(0, shares.size + 1, n_entries)
        shape = (self.n_plans * n_reps, n_reps)
        stacked = sparse.csr_array((shares.ravel(), columns.ravel(), row_starts), shape=shape)
        stacked.sum_duplicates()
        return FiniteMDP.trusted(stacked, rewards, self.discount**self.n_steps, ranks == ranks.max(axis=0))

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
        if len(self.plans.actions):
            self._fill(np.ascontiguousarray(states), q, best)
        return q, best

    def _fill(self, states: Floats, q: Floats, best: Integers) -> None:
        plans, n_near = self.plans, self._n_near
        length = (plans.n_decisions, plans.n_held, plans.discount)
        plan_loops.look_ahead(
            states, plans.actions, *length, n_near, plans.is_spread, plans.world, self.values, q, best
        )

    @cached_property
    def _n_near(self) -> int:
        return min(self.plans.n_near, self.plans.world.graph.shape[1])


def world_of(
    lines: LocalLines,
    *,
    circles: Any = None,
    is_spread: bool = False,
    inside: float | None = None,
    usual: float | None = None,
) -> step_loops.World:
    """Return the lines as the compiled loops need them.

    inside: a plan must end within so many distances that logged states have (`LocalLines.reach`); None: anywhere.
    usual: a plan may begin with actions that were taken at least this share as often as the usual one; None: with all.
    """
    nothing = np.zeros((0, 2), dtype=np.intp), np.zeros((0, 5))
    places, shapes = nothing if circles is None else circles
    return step_loops.World(
        reps=np.ascontiguousarray(lines.reps),
        columns=np.ascontiguousarray(lines.reps.T),
        graph=lines.graph,
        lines=np.ascontiguousarray(lines.lines),
        limits=np.ascontiguousarray(lines.limits, dtype=np.float64),
        known=lines.known,
        noise=np.ascontiguousarray(lines.noise) if is_spread else np.zeros((0, 0, 0, 0)),
        span=np.ascontiguousarray(lines.span),
        circles=places,
        circle=shapes,
        behaviour=np.zeros((0, 0, 0)) if usual is None else np.ascontiguousarray(lines.behaviour),
        usual=0.0 if usual is None else usual,
        reach=np.full(len(lines.reps), np.inf if inside is None else inside * lines.reach),
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
