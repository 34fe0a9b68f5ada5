"""`Model`: what KBSF has learnt, as one record that never changes.

It holds the representative states and kernels, the sums over all transitions, the settings of the fit, the names of
state variables and the labels of actions.  Operations return a new one.  The reduced MDP is made, and solved, when it
is first asked for, from the values of the model that this one came from.
Paper: Algorithms 1 and 2; section 5 for growth.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import KbrlWarning, NotFittedError, as_rows
from kbrl.data.names import UNNAMED, Source, answered, row_by_name, state_rows
from kbrl.data.overlap import Overlap, overlap
from kbrl.data.recipe import Recipe
from kbrl.data.scaling import Coordinates
from kbrl.data.sketch import Sketch
from kbrl.data.transitions import Transitions, as_log, join
from kbrl.lines.deferring_plans import plans_with_now
from kbrl.lines.local_lines import LocalLines, local_lines
from kbrl.lines.moments import LineSums
from kbrl.lines.plans import NEAR, PlanQ, Plans, plan_length, world_of
from kbrl.lines.surface import Surface, surface_of
from kbrl.mdp.deferral import AS_NOW, Deferral
from kbrl.mdp.dynamic_programming import Solution, best_actions, solve, sweep
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model.kernels import Basis, refuse_mixed_durations
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
from kbrl.model.representatives import cover, growth_distance
from kbrl.model.sums import KernelSums, Statistics, new_statistics
from kbrl.model.support import check_can_defer, deferring_mdp, support_by_reps
from kbrl.notebooks import MOST_LABELS, counted, html_table
from kbrl.settings import Settings, flattened
from kbrl.threads import number_of_jobs

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Model:
    """What KBSF has learnt, as a record that never changes.

    Get one by ``KBSF(...).fit(log).model_`` or ``load_model(path)``.  ``q_values(states)`` and
    ``predict(states)`` answer for states, (n_states, n_dims), in the units of the data.  ``extend(log)`` adds
    transitions, ``model - log`` takes them away, and ``model + other`` joins models of different data that have the
    same representative states.  Each returns a new model.

    In state 0, "left" pays 1 and stays there; in state 1, "right" does.  The discount is 0.9, so paying for ever is
    worth 1 / (1 - 0.9) = 10, and the other action is worth 0.9 * 10 = 9.

    >>> from kbrl import KBSF, Model, Transitions
    >>> log = Transitions(
    ...     states=[[0.0], [0.0], [1.0], [1.0]],
    ...     actions=["left", "right", "left", "right"],
    ...     rewards=[1.0, 0.0, 0.0, 1.0],
    ...     next_states=[[0.0], [1.0], [0.0], [1.0]],
    ... )
    >>> model = KBSF(n_reps=2, min_cases=1, discount=0.9, random_state=0).fit(log).model_
    >>> isinstance(model, Model)
    True
    >>> model.predict([[0.0], [1.0]]).tolist()
    ['left', 'right']
    >>> model.q_values([[0.0]]).round(2).tolist()  # one row per state, one column per action
    [[10.0, 9.0]]
    >>> more = model.extend(Transitions([[0.5]], ["left"], [0.5], [[0.0]]))
    >>> more.n_samples, (more - log).n_samples, (more + model).n_samples
    (5, 1, 9)
    """

    basis: Basis  # representative states, their coordinates, and the two kernels
    sums: Statistics
    settings: Settings  # of the fit
    action_labels: Array  # (n_actions,), in the order of the columns of q_values
    source: Source = UNNAMED  # the names of the state variables
    sketch: Sketch | None = field(default_factory=Sketch)  # of what was learnt; None: not known
    has_changed: bool | None = False  # representative states came or went after data had come; None: not known
    held_out: float | None = None  # the share of the episodes of its log that were kept for judging it
    sizes: tuple[tuple[int, int], ...] = ()  # (number of transitions, of representative states) after each chunk
    samples: tuple[Transitions, ...] = ()  # only where q_function is "samples"
    start: Floats | None = None  # values that solving starts from, (n_reps,)
    solved: Solution | None = None  # the solution, where it is known already
    deferral: Deferral | None = None  # when it answers "as now"; None: never
    resamples: Floats | None = None  # (n_resamples, n_reps, n_answers): Q of resampled logs, see insight.agreement

    def __repr__(self) -> str:
        """Return what the model is, in a few lines; its arrays are not shown."""
        return "\n".join(f"{name + ':':24}{text}" for name, text in self._about())

    def _repr_html_(self) -> str:
        """Return the same as a notebook shows it."""
        return html_table("A model", self._about())

    def _about(self) -> list[tuple[str, str]]:
        recipe, plain = self.recipe, self.source.state_names or ()
        names = list(plain) if recipe is None else [column.name for column in recipe.columns]
        shown = ", ".join(names[:MOST_LABELS]) + (", ..." if len(names) > MOST_LABELS else "")
        kinds = ("averages", "lines and plans")
        facts = [
            ("learnt from", f"{self.n_samples:,} transitions"),
            ("state", shown or f"{self.coordinates.n_dims} variables without names"),
            ("actions", counted(self.action_labels, self.sums.counts)),
            ("order", f"{self.settings.order}: {kinds[self.settings.order]}"),
            ("representative states", f"{self.basis.n_reps:,}"),
            ("discount", f"{self.discount:g}"),
        ]
        facts += [("left out", counted(self.left_out, self.left_out.values()))] if self.left_out else []
        facts += [("held out", f"{100 * self.held_out:g} % of the episodes")] if self.held_out else []
        return facts + ([("defers", f"answers {self.deferral.label!r} at times")] if self.deferral else [])

    @property
    def coordinates(self) -> Coordinates:
        """The centre that is subtracted from each state variable, and the scale that it is divided by."""
        return self.basis.coordinates

    @property
    def reps(self) -> Floats:
        """The representative states, (n_reps, n_dims), in the units of the data."""
        return self.coordinates.back(self.basis.reps)

    @property
    def n_samples(self) -> int:
        """The number of transitions behind the model."""
        return int(self.sums.counts.sum())

    @property
    def growth(self) -> Integers:
        """The curve m(n): (number of transitions, number of representative states) after each chunk, (k, 2)."""
        return np.array(self.sizes, dtype=np.intp).reshape(-1, 2)

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

    @cached_property
    def lines(self) -> LocalLines:
        """The lines around the representative states, of a model of order 1."""
        if not isinstance(self.sums, LineSums):
            raise ValueError(
                "Only a model of order 1 has lines and plans, but this one has order 0. Fit KBSF(order=1)."
            )
        return local_lines(self.sums, n_cases=self.settings.sample_neighbors)

    @cached_property
    def plans(self) -> Plans:
        """The plans of a model of order 1, rolled out in its lines."""
        lines, plan = self.lines, self.settings.plan
        actions = np.flatnonzero(self.often_taken & (self.sums.counts > 0))
        return Plans(
            world_of(lines, self.surface, is_spread=lines.is_noisy, inside=plan.inside, usual=plan.usual),
            actions,
            len(self.action_labels),
            *plan_length(len(actions), plan.decisions, plan.hold),
            self.step_discount,
            n_near=self.basis.rep_kernel.neighbors or NEAR,
            is_spread=lines.is_noisy,
            n_jobs=number_of_jobs(self.settings.n_jobs),
            allowed=self.allowed,
        )

    @property
    def surface(self) -> Surface:
        """What the states of the log lie on: circles, and shares of levels."""
        levels = () if self.recipe is None else self.recipe.level_places()
        return surface_of(self.coordinates, self.basis.circles, levels)

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
        if solver.sweeps is not None:  # no more was asked for
            start = np.zeros(self.basis.n_reps) if self.start is None else self.start
            return sweep(self.mdp, start, solver.sweeps, tolerance=solver.tolerance)
        found = solve(self.mdp, solver.method, values=self.start, tolerance=solver.tolerance)
        _logger.info(
            "solved %d representative states from %d transitions: %d iterations, residual %.2g",
            len(self.basis.reps), self.n_samples, found.iterations, found.residual,
        )  # fmt: skip
        if not found.converged:
            say_not_converged(found)
        return found

    def solve(self) -> Solution:
        """Solve the reduced MDP, if that has not been done, and return the solution."""
        return self.solution

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
    def recipe(self) -> Recipe | None:
        """How columns became state variables; None if each column is one."""
        return self.source.recipe

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
    def look_ahead(self) -> PlanQ | None:
        """Q by plans from the state at hand, of a model of order 1 that acts so; None for all others."""
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

    @cached_property
    def rep_q_function(self) -> RepQ:
        """Q from the representative states."""
        return RepQ(self.basis.rep_weights, self.rep_q)

    @cached_property
    def rep_q(self) -> Floats:
        """Q-bar, (n_reps, n_actions): the value of each action, or of the best plan that begins with it."""
        return self.solution.q if self.settings.order == 0 else self.plans.rep_q(self.solution.q)

    @property
    def answer_q(self) -> Floats:
        """The value of each answer at the representative states, (n_reps, n_answers): with "as now" if it defers."""
        if self.deferral is None:
            return self.rep_q
        found = self.deferring_solution.q
        return found if self.settings.order == 0 else self.deferring_plans.rep_q(found)

    @property
    def rep_policy(self) -> Integers:
        """The best action at each representative state, (n_reps,); -1 where none is available."""
        return best_actions(self.rep_q, where_none=-1)

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

    # Decisions that are left to people.

    def deferring(self, cases: float = 3, caution: float = 1.0, *, label: str = AS_NOW) -> Model:
        """Return a model that answers "as now" where the data do not support a change of current practice.

        cases: an action is offered only where at least so many logged cases support it (`kbrl.coverage`).
        caution: how many standard errors it must be better than current practice.
        label: the answer that leaves the decision to people; no action may be called so.

        "As now" is learnt as an action of its own, whose value is that of the logged mixture of actions: so the values
        are those of following the answers, and of doing as now where they say so.

        "Treat" was tried once in state 0, and went well.  Once is too little to recommend it.

        >>> from kbrl import KBSF, Transitions
        >>> states = [[0.0], [0.0], [0.0], [0.0], [1.0]]
        >>> log = Transitions(states, ["wait", "wait", "wait", "treat", "wait"], [0.0, 0.0, 0.0, 1.0, 0.0], states)
        >>> model = KBSF(reps=[[0.0], [1.0]], discount=0.5, min_cases=1, random_state=0).fit(log).model_
        >>> model.predict([[0.0]]).tolist(), model.deferring(cases=3).predict([[0.0]]).tolist()
        (['treat'], ['as now'])
        """
        deferral = Deferral(cases, caution, label)
        if label in map(str, self.action_labels.tolist()):
            raise ValueError(f"An action is called {label!r}, too. Give leaving decisions to people another label.")
        check_can_defer(self.sums, self.settings, caution)
        return replace(self, deferral=deferral, resamples=None)

    @property
    def answer_labels(self) -> Array:
        """The labels of all answers, in the order of the columns of q_values: the actions, and perhaps "as now"."""
        if self.deferral is None:
            return self.action_labels
        labels = [*self.action_labels.tolist(), self.deferral.label]
        return np.array(labels, dtype=None if self.action_labels.dtype.kind == "U" else object)

    def deferred(self, states: Any) -> Booleans:
        """Return in which states, (n_states, n_dims), the answer is "as now", (n_states,)."""
        best = best_actions(self.q_values(states))
        return np.asarray(best == len(self.action_labels))

    @cached_property
    def deferring_solution(self) -> Solution:
        """The solution of the reduced MDP with one more action, the last: as now; or with plans that may do as now."""
        rule = self._rule
        mdp = self.deferring_plans.mdp() if isinstance(self.sums, LineSums) else self._deferring_averages(rule)
        found = solve(mdp, self.settings.solver.method, tolerance=self.settings.solver.tolerance)
        if not found.converged:
            say_not_converged(found)
        return found

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

    @property
    def _rule(self) -> Deferral:
        if self.deferral is None:
            raise ValueError("This model does not defer. model.deferring() returns one that does.")
        return self.deferral

    @cached_property
    def deferring_q_function(self) -> DeferringQ:
        """Q of a model that defers, by looking ahead or from the representative states."""
        cases = self._rule.cases
        support = partial(support_by_reps, self.basis, self.sums, cases=self.sums.effective_cases())
        if self.look_ahead is not None:
            return DeferringQ(self.look_ahead, support, cases)
        return DeferringQ.from_reps(self.basis.rep_weights, self.answer_q, support, cases)

    def scaled(self, states: Any) -> Floats:
        """Return states, (n, n_dims), by name where they have names, in the model's coordinates."""
        return self.coordinates.of(state_rows(states, self.source, self.basis.reps.shape[1]))

    def as_row(self, state: Any) -> Floats:
        """Return one state, (n_dims,), by name where it has names, in the units of the data."""
        return as_rows([row_by_name(state, self.source)], "states", n_dims=self.coordinates.n_dims)[0]

    # Data that come and go.

    def prepared(self, log: Transitions) -> Transitions:
        """Check and number further transitions as the first ones were, and ignore ends if the settings say so."""
        log, n_dims = as_log(log), self.basis.reps.shape[1]
        if log.n_dims != n_dims:
            raise ValueError(f"Transitions must have {n_dims} state variables, but they have {log.n_dims}.")
        if log.source is not self.source:
            log = log.in_order_of(self.source)
        if log.action_labels is not self.action_labels:
            log = log.with_actions(self.action_labels)
        if (log.durations is None) != (self.basis.discount is None):
            refuse_mixed_durations(log)
        if self.settings.variant.terminals == "absorb":
            return log
        if log.durations is not None and log.terminals.any():
            raise ValueError(
                "terminals='continue' needs steps of one length: the duration of a last step is not known."
            )
        return log.replaced(terminals=np.zeros(len(log), dtype=bool))

    def extend(
        self, log: Transitions | Iterable[Transitions], *, n_jobs: int | None = 1, is_batch: bool = False
    ) -> Model:
        """Return a model that has also learnt these transitions, or chunks of them, one at a time in memory.

        If the settings let the model grow, next states far from all representative states become representative
        states before each chunk is learnt.  A batch is remembered as such, so that it is noticed if it comes again.
        """
        model, is_own = self, False  # whether the sums are ours to change
        for chunk in [log] if isinstance(log, Transitions) else log:
            if model.n_samples == 0 and model.source.state_names is None:  # the sample it started from had no names
                model = replace(model, source=as_log(chunk).source)
            chunk = model.prepared(chunk)
            before, start = model, model.latest_values()
            if model.settings.growth.is_wanted:
                model = model.grow(chunk.next_states)
                start = model.start if model is not before else start
            is_own = is_own or model is not before
            sums = model.sums if is_own else model.sums.on(model.basis)
            sums.accumulate(chunk, n_jobs=n_jobs)
            model, is_own = (
                replace(
                    model,
                    sums=sums,
                    sketch=None
                    if model.sketch is None
                    else model.sketch + Sketch.of(chunk, largest=model.sketch.largest),
                    samples=(*model.samples, chunk) if model.settings.variant.q_function == "samples" else (),
                    sizes=(*model.sizes, (int(sums.counts.sum()), len(model.basis.reps))),
                    start=start,
                    solved=None,
                    resamples=None,
                ),
                True,
            )
        if is_batch and model.sketch is not None and self.sketch is not None:
            return replace(model, sketch=model.sketch.with_batch_since(self.sketch))
        return model

    def grow(self, states: Floats) -> Model:
        """Return the model with further representative states: those of these, (n, n_dims), far from all others.

        The settings say how far, and how many at most.  The new ones have no data yet.
        """
        distance = growth_distance(self.settings)
        if distance is None:
            return self
        points, norm = self.coordinates.of(states), self.basis.rep_kernel.norm
        reps = cover(points, distance, start=self.basis.reps, max_reps=self.settings.growth.max_reps, norm=norm)
        if len(reps) == self.basis.n_reps:
            return self
        basis, start = replace(self.basis, reps=reps), self.latest_values()
        if start is not None:
            start = np.concatenate([start, start[self.basis.rep_weights.nearest(reps[self.basis.n_reps :])]])
        has_changed = True if self.n_samples else self.has_changed
        sums = self.sums.on(basis)
        return replace(self, basis=basis, sums=sums, start=start, has_changed=has_changed, solved=None, resamples=None)

    def rarely_reached(self, largest_inflow: float) -> Booleans:
        """Return which representative states no state-action pair reaches with a higher probability, (n_reps,)."""
        largest = self.mdp.stacked.max(axis=0)
        inflow = np.asarray(largest.toarray() if hasattr(largest, "toarray") else largest).ravel()
        return inflow <= largest_inflow

    def shrink(self, dropped: Booleans) -> Model:
        """Return the model without those of ``dropped``, (n_reps,); what led to them is shared by similar ones."""
        kept, kernel = ~dropped, self.basis.rep_kernel
        if np.ndim(kernel.width):
            kernel = replace(kernel, width=np.asarray(kernel.width)[kept])
        basis = replace(self.basis, reps=self.basis.reps[kept], rep_kernel=kernel)
        sums, start = self.sums.without(basis, kept), self.solution.values[kept]
        sizes = (*self.sizes, (self.n_samples, basis.n_reps))
        return replace(
            self, basis=basis, sums=sums, start=start, sizes=sizes, has_changed=True, solved=None, resamples=None
        )

    def with_settings(self, **changes: Any) -> Model:
        """Return the model of the same sums that is solved, or answers, by other settings of the fit."""
        return replace(self, settings=replace(self.settings, **changes), solved=None, start=None)

    def with_sums(
        self,
        sums: Statistics,
        sketch: Sketch | None,
        *,
        samples: tuple[Transitions, ...] = (),
        sizes: tuple[tuple[int, int], ...] = (),
    ) -> Model:
        """Return the same model for other data, of which these are the sums."""
        sizes = (*sizes, (int(sums.counts.sum()), self.basis.n_reps))
        start = self.latest_values()
        return replace(
            self, sums=sums, sketch=sketch, samples=samples, sizes=sizes, start=start, solved=None, resamples=None
        )

    def with_resamples(self, resamples: Floats) -> Model:
        """Return the same model with the action values of resampled logs, (n_resamples, n_reps, n_answers)."""
        return replace(self, resamples=resamples)

    def without_data(self) -> Model:
        """Return a model without data, with the same basis and settings: the two can be added."""
        sums = new_statistics(self.basis, self.settings.variant.neighborhoods, self.settings.order)
        return Model(self.basis, sums, self.settings, self.action_labels, self.source, deferral=self.deferral)

    def overlap(self, further: Sketch | None) -> Overlap | None:
        """Compare what was learnt with a sketch of further transitions; None where one of the two is not known."""
        return None if self.sketch is None or further is None else overlap(self.sketch, further)

    def __add__(self, other: Model) -> Model:
        """Return the model of the data of both, which must have the same representative states, scaling and kernels."""
        if not isinstance(other, Model):
            return NotImplemented
        self._check_addable(other)
        is_known = self.sketch is not None and other.sketch is not None
        sketch = self.sketch + other.sketch if is_known else None  # type: ignore[operator]
        sums = self.sums + other.sums  # type: ignore[operator]
        result = self.with_sums(sums, sketch, samples=(*self.samples, *other.samples))
        has_changed = _either(self.has_changed, other.has_changed)
        held_out = self.held_out if self.held_out == other.held_out else None
        return replace(result, source=self.source + other.source, has_changed=has_changed, held_out=held_out)

    def _check_addable(self, other: Model) -> None:
        names = ("order", "discount", "terminals", "neighborhoods", "q_function")
        mine, others = flattened(self.settings), flattened(other.settings)
        different = [name for name in names if mine[name] != others[name]]
        different += ["min_cases"] if self.min_cases != other.min_cases else []
        different += ["deferral"] if self.deferral != other.deferral else []
        if different:
            listing = ", ".join(different)
            raise ValueError(f"Models add up only if they were fitted alike, but these differ in: {listing}.")
        if self.action_labels.tolist() != other.action_labels.tolist():
            raise ValueError(
                f"Models add up only if they know the same actions in the same order, but these know "
                f"{self.action_labels.tolist()} and {other.action_labels.tolist()}."
            )
        self.source.check_same_order(other.source)

    def __sub__(self, log: Transitions) -> Model:
        """Return the model without these transitions, which it must have learnt before."""
        self._check_can_forget()
        log = self.prepared(log)
        sketch = None if self.sketch is None else self.sketch.without(log)
        taken = new_statistics(self.basis, self.settings.variant.neighborhoods, self.settings.order).accumulate(log)
        return self.with_sums(self.sums - taken, sketch)  # type: ignore[operator]

    def _check_can_forget(self) -> None:
        if self.samples:
            raise ValueError("A model that keeps its samples (q_function='samples') cannot forget some of them.")
        if self.has_changed is None:
            raise ValueError(
                "This model comes from a file of format 1, which does not say whether representative states came or "
                "went while it learnt; if so, it cannot forget. Fit it again with this version, without these rows."
            )
        if self.has_changed:
            raise ValueError(
                "A model whose representative states came or went while it learnt cannot forget: what a transition "
                "added depends on the states there were at the time. Fit again without it."
            )

    def latest_values(self) -> Floats | None:
        """Return the values of this model if it was solved, else those that solving would start from."""
        solution = self.__dict__.get("solution") or self.solved
        return self.start if solution is None else solution.values


def as_model(source: Any) -> Model:
    """Return a model, or that of a learner that has learnt one."""
    model = source if isinstance(source, Model) else getattr(source, "model_", None)
    if not isinstance(model, Model):
        raise NotFittedError(
            f"This {type(source).__name__} has not learnt anything yet, or does not learn a model. Call fit with "
            f"transitions first: KBSF(...).fit(log)."
        )
    return model


def often_taken(counts: Any, min_cases: int) -> Booleans:
    """Return which actions were taken at least ``min_cases`` times, (n_actions,); if none was, all of them."""
    often: Booleans = np.asarray(counts) >= min_cases
    return often if often.any() else np.ones_like(often)


def say_not_converged(solution: Solution) -> None:
    """Warn that the values of a model are not within the tolerance."""
    warnings.warn(
        f"The model was not solved to its tolerance after {solution.iterations} iterations (residual "
        f"{solution.residual:.2g}). Try the method 'policy iteration', a larger tolerance, or a smaller discount.",
        KbrlWarning,
        stacklevel=5,
    )


def _either(one: bool | None, other: bool | None) -> bool | None:
    """Return whether one of two is true, None where that is not known."""
    if one or other:
        return True
    return None if one is None or other is None else False
