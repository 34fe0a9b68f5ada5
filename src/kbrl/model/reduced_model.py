"""From the sums to answers: the reduced MDP, its solution, and the value of each action in any state.

Order 0 divides the sums once; order 1 rolls out plans in its lines.  Each step is computed when it is first asked for.
Paper: Algorithms 1 and 2, the part after the sums.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import KbrlWarning
from kbrl.data.names import UNNAMED, Source, answered, state_rows
from kbrl.data.recipe import Recipe
from kbrl.data.scaling import Coordinates
from kbrl.data.transitions import Transitions, join
from kbrl.lines.deferring_plans import plans_with_now
from kbrl.lines.local_lines import LocalLines, local_lines
from kbrl.lines.moments import LineSums
from kbrl.lines.plans import NEAR, PlanQ, Plans, plan_length, world_of
from kbrl.lines.surface import Surface, surface_of
from kbrl.lines.windows import window_lines
from kbrl.mdp.deferral import Deferral
from kbrl.mdp.dynamic_programming import Solution, best_actions, solve, sweep
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model.kernels import Basis
from kbrl.model.q_functions import (
    AllowedAt,
    AllowedQ,
    DeferringQ,
    GreedyPolicy,
    RepQ,
    SampleQ,
    allowed_pairs,
    best_values,
)
from kbrl.model.sums import KernelSums, Statistics
from kbrl.model.support import deferring_mdp, support_by_reps
from kbrl.settings import Settings
from kbrl.threads import number_of_jobs

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ReducedModel:
    """Sums, and all that follows from them; see `Model`."""

    basis: Basis  # representative states, their coordinates, and the two kernels
    sums: Statistics
    settings: Settings  # of the fit
    action_labels: Array  # (n_actions,), in the order of the columns of q_values
    source: Source = UNNAMED  # the names of the state variables
    samples: tuple[Transitions, ...] = ()  # only where q_function is "samples"
    start: Floats | None = None  # values that solving starts from, (n_reps,)
    solved: Solution | None = None  # the solution, where it is known already
    fitted: tuple[Statistics, LocalLines] | None = None  # the lines of these sums, where they are known already
    deferral: Deferral | None = None  # when it answers "as now"; None: never

    @property
    def coordinates(self) -> Coordinates:
        """The centre that is subtracted from each state variable, and the scale that it is divided by."""
        return self.basis.coordinates

    @property
    def reps(self) -> Floats:
        """The representative states, (n_reps, n_dims), in the units of the data."""
        return self.coordinates.back(self.basis.reps)

    def scaled(self, states: Any) -> Floats:
        """Return states, (n, n_dims), by name where they have names, in the model's coordinates."""
        return self.coordinates.of(state_rows(states, self.source, self.basis.reps.shape[1]))

    @property
    def recipe(self) -> Recipe | None:
        """How columns became state variables; None if each column is one."""
        return self.source.recipe

    @property
    def discount(self) -> float:
        """The value of a reward of 1 one step later."""
        return float(self.settings.discount)

    @property
    def step_discount(self) -> float:
        """What remains to be discounted of each step: nothing where the sums hold the discount already."""
        return self.discount if self.basis.discount is None else 1.0

    def fades(self, log: Transitions) -> Floats:
        """Return what the value of each next state counts, (n,): 0 at an end, else discount^duration."""
        return np.asarray(self.step_discount * (1.0 - self.basis.losses(log)), dtype=np.float64)

    @property
    def window(self) -> int | None:
        """The steps of a window of a model of order 1 that has learnt windows; None: it has learnt steps."""
        return self.settings.plan.window if self.settings.order == 1 else None

    @property
    def min_cases(self) -> int:
        """How often an action must have been taken to be available."""
        return 1 if self.settings.min_cases is None else self.settings.min_cases

    @property
    def often_taken(self) -> Booleans:
        """Which actions were taken often enough to be available, (n_actions,)."""
        return often_taken(self.sums.counts, self.min_cases)

    @property
    def left_out(self) -> dict[Any, int]:
        """The actions that were taken, but fewer than ``min_cases`` times, and how often: they have no value."""
        counted = zip(self.action_labels.tolist(), self.sums.counts.tolist(), self.often_taken)
        return {label: n for label, n, kept in counted if n and not kept}

    # The reduced MDP and its solution.

    @cached_property
    def lines(self) -> LocalLines:
        """The lines around the representative states, of a model of order 1."""
        if not isinstance(self.sums, LineSums):
            raise ValueError(
                "Only a model of order 1 has lines and plans, but this one has order 0. Fit KBSF(order=1)."
            )
        if self.fitted is not None and self.fitted[0] is self.sums:
            return self.fitted[1]
        if self.window is not None:
            return window_lines(self.sums, self.window, n_cases=self.settings.sample_neighbors)
        return local_lines(self.sums, n_cases=self.settings.sample_neighbors)

    @property
    def surface(self) -> Surface:
        """What the states of the log lie on: circles, and shares of levels."""
        levels = () if self.recipe is None else self.recipe.level_places()
        return surface_of(self.coordinates, self.basis.circles, levels)

    @cached_property
    def plans(self) -> Plans:
        """The plans of a model of order 1, rolled out in its lines."""
        lines, plan = self.lines, self.settings.plan
        actions = np.flatnonzero(self.often_taken & (self.sums.counts > 0))
        return Plans(
            world_of(lines, self.surface, is_spread=lines.is_noisy, inside=plan.inside, usual=plan.usual),
            actions,
            len(self.action_labels),
            *((1, 1) if self.window else plan_length(len(actions), plan.decisions, plan.hold)),
            self.step_discount ** (self.window or 1),
            n_near=self.basis.rep_kernel.neighbors or NEAR,
            is_spread=lines.is_noisy,
            n_jobs=number_of_jobs(self.settings.n_jobs),
            allowed=self.allowed,
        )

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The reduced MDP, with one state per representative state; the actions of order 1 are plans."""
        if isinstance(self.sums, LineSums):
            return self.plans.mdp()
        often = self.often_taken
        mdp = self.sums.to_mdp(self.discount)
        available = mdp.available & often[:, None]
        if self.source.recipe is not None:
            available = allowed_pairs(available, self.source.recipe, self.reps, self.action_labels)
        return FiniteMDP.trusted(mdp.stacked, mdp.rewards, mdp.discount, available)

    @cached_property
    def solution(self) -> Solution:
        """The solution of the reduced MDP."""
        if self.solved is not None:
            return self.solved
        solver = self.settings.solver
        if solver.sweeps is not None:  # no better solution was asked for
            start = np.zeros(self.basis.n_reps) if self.start is None else self.start
            return sweep(self.mdp, start, solver.sweeps, tolerance=solver.tolerance)
        found = solve(self.mdp, solver.method, values=self.start, tolerance=solver.tolerance)
        _logger.info(
            "solved %d representative states from %d transitions: %d iterations, residual %.2g",
            len(self.basis.reps), self.sums.counts.sum(), found.iterations, found.residual,
        )  # fmt: skip
        if not found.converged:
            say_not_converged(found)
        return found

    def solve(self) -> Solution:
        """Solve the reduced MDP, if that has not been done, and return the solution."""
        return self.solution

    @cached_property
    def rep_q(self) -> Floats:
        """Q-bar, (n_reps, n_actions): the value of each action, or of the best plan that begins with it."""
        return self.solution.q if self.settings.order == 0 else self.plans.rep_q(self.solution.q)

    @property
    def rep_policy(self) -> Integers:
        """The best action at each representative state, (n_reps,); -1 where none is available."""
        return best_actions(self.rep_q, where_none=-1)

    # Answers.

    def q_values(self, states: Any) -> Floats:
        """Return the value of each action in each state, (n_states, n_dims) to (n_states, n_actions).

        An action that was never tried, or is left out, has the value -inf.  A model that defers has one more column,
        the last: the value of "as now"; actions with too little support have the value -inf.
        """
        return self.q_function(self.scaled(states))

    def values(self, states: Any) -> Floats:
        """Return the value of each state, (n_states,): that of its best action."""
        return self.q_values(states).max(axis=1)

    def predict(self, states: Any) -> Any:
        """Return the label of the best action for each state, (n_states,); that of "as now" where the model defers.

        For a frame of pandas or polars, a series with the frame's index; a row without a state has the answer None.
        """
        labels = self.answer_labels

        def best(states: Any) -> Array:
            return labels[best_actions(self.q_values(states), where_none=None)]

        return best(states) if isinstance(states, np.ndarray) else answered(states, self.source, best)

    @property
    def answer_labels(self) -> Array:
        """The labels of all answers, in the order of the columns of q_values: the actions, and perhaps "as now"."""
        if self.deferral is None:
            return self.action_labels
        labels = [*self.action_labels.tolist(), self.deferral.label]
        return np.array(labels, dtype=None if self.action_labels.dtype.kind == "U" else object)

    def act(self, state: Any) -> Any:
        """Return the label of the best action for one state, (n_dims,), as fast as possible."""
        return self.policy.act(state)

    @cached_property
    def policy(self) -> GreedyPolicy:
        """The greedy policy."""
        return GreedyPolicy(self.q_function, self.coordinates, self.answer_labels, self.source)

    @cached_property
    def q_function(self) -> Callable[[Floats], Floats]:
        """Q as a function of scaled states: by looking ahead, from representative states, or from samples."""
        if self.deferral is not None:
            return self.where_allowed(self.deferring_q_function)
        if self.look_ahead is not None:
            return self.where_allowed(self.look_ahead)
        return self.where_allowed(
            self.rep_q_function if self.settings.variant.q_function == "reps" else self.sample_q_function
        )

    @cached_property
    def rep_q_function(self) -> RepQ:
        """Q from the representative states."""
        return RepQ(self.basis.rep_weights, self.rep_q)

    @cached_property
    def sample_q_function(self) -> SampleQ:
        """Q from the samples, which the model must have kept."""
        if not self.samples:
            raise ValueError(
                "Q from samples needs the transitions, and this model has not kept them. "
                "Fit with KBSF(variant=Variant(q_function='samples')), or use q_from_reps."
            )
        log, units = join(self.samples), self.coordinates
        values = best_values(self.where_allowed(self.rep_q_function), units.of(log.next_states))
        worths = log.rewards + self.fades(log) * values
        rows = [found if kept else found[:0] for found, kept in zip(log.by_action(), self.often_taken)]
        return SampleQ.of(self.basis.sample_kernel, units.of(log.states), worths, rows)

    @cached_property
    def look_ahead(self) -> PlanQ | None:
        """Q by plans from the state itself, for a model of order 1 that looks ahead; None for all others."""
        if self.settings.order == 0 or self.settings.plan.acting != "ahead":
            return None
        if self.deferral is not None:
            return PlanQ(self.deferring_plans, self.deferring_solution.values)
        return PlanQ(self.plans, self.solution.values)

    def where_allowed(self, q: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
        """Return a Q function that is -inf where the recipe does not allow an action."""
        return q if self.allowed is None else AllowedQ(q, self.allowed)

    @cached_property
    def allowed(self) -> AllowedAt | None:
        """Where the recipe allows which action, as a function of scaled states; None if all are allowed everywhere."""
        recipe = self.source.recipe
        if recipe is None or not recipe.allowed:
            return None
        return AllowedAt(recipe, self.coordinates, self.action_labels, self.deferral is not None)

    # Decisions that are left to people.

    def deferred(self, states: Any) -> Booleans:
        """Return in which states, (n_states, n_dims), the answer is "as now", (n_states,)."""
        best = best_actions(self.q_values(states))
        return np.asarray(best == len(self.action_labels))

    @property
    def _rule(self) -> Deferral:
        if self.deferral is None:
            raise ValueError("This model does not defer. model.deferring() returns one that does.")
        return self.deferral

    @cached_property
    def deferring_plans(self) -> Plans:
        """The plans of a model of order 1 that defers: "as now" is one more decision."""
        rule, sums = self._rule, self.sums
        assert isinstance(sums, LineSums)
        now = local_lines(sums.of_all_actions(), n_cases=self.settings.sample_neighbors)
        support = support_by_reps(self.basis, sums, self.basis.reps).T
        return plans_with_now(self.plans, self.lines, now, rule, support)

    def _deferring_averages(self, rule: Deferral) -> FiniteMDP:
        assert isinstance(self.sums, KernelSums)
        allowed = None if self.allowed is None else self.allowed(self.basis.reps)[:, :-1].T
        return deferring_mdp(self.basis, self.sums, rule, self.often_taken, self.discount, allowed)

    @cached_property
    def deferring_solution(self) -> Solution:
        """The solution of the reduced MDP with one more action, the last: as now; or with plans that may do as now."""
        rule = self._rule
        mdp = self.deferring_plans.mdp() if isinstance(self.sums, LineSums) else self._deferring_averages(rule)
        found = solve(mdp, self.settings.solver.method, tolerance=self.settings.solver.tolerance)
        if not found.converged:
            say_not_converged(found)
        return found

    @property
    def answer_q(self) -> Floats:
        """The value of each answer at the representative states, (n_reps, n_answers): with "as now" if it defers."""
        if self.deferral is None:
            return self.rep_q
        found = self.deferring_solution.q
        return found if self.settings.order == 0 else self.deferring_plans.rep_q(found)

    @cached_property
    def deferring_q_function(self) -> DeferringQ:
        """Q of a model that defers, by looking ahead or from the representative states."""
        cases = self._rule.cases
        support = partial(support_by_reps, self.basis, self.sums, cases=self.sums.effective_cases())
        if self.look_ahead is not None:
            return DeferringQ(self.look_ahead, support, cases)
        return DeferringQ.from_reps(self.basis.rep_weights, self.answer_q, support, cases)


def say_not_converged(solution: Solution) -> None:
    """Warn that the values of a model are not within the tolerance."""
    warnings.warn(
        f"The model was not solved to its tolerance after {solution.iterations} iterations (residual "
        f"{solution.residual:.2g}). Try the method 'policy iteration', a larger tolerance, or a smaller discount.",
        KbrlWarning,
        stacklevel=5,
    )


def often_taken(counts: Any, min_cases: int) -> Booleans:
    """Return which actions were taken at least ``min_cases`` times, (n_actions,); if none was, all of them."""
    often: Booleans = np.asarray(counts) >= min_cases
    return often if often.any() else np.ones_like(often)
