"""What KBSF has learnt so far: sums over a basis, and the solution of the MDP they make.

Here is all that changes over time.  The MDP is made and solved when it is asked for and data have come since, from
the last values on.  The basis can grow and shrink; sums of models with the same basis add up and can be taken away.
Paper: section 5, Algorithm 2 and the growth of S-bar.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import KbrlWarning
from kbrl.data.sketch import LARGEST_HASH, Sketch
from kbrl.data.transitions import Transitions
from kbrl.mdp.dynamic_programming import Solution, solve, sweep
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model.basis import Basis
from kbrl.model.representatives import cover
from kbrl.model.sums import Statistics, new_statistics


class ReducedModel:
    """The statistics, the MDP and its solution, for one basis at a time."""

    def __init__(
        self,
        basis: Basis,
        neighborhoods: str,
        discount: float,
        *,
        solver: str = "auto",
        tolerance: float = 1e-8,
        sweeps: int | None = None,
        min_cases: int = 1,
    ) -> None:
        self.basis = basis
        self.statistics: Statistics = new_statistics(basis, neighborhoods)
        self.discount = discount
        self.solver = solver
        self.tolerance = tolerance
        self.sweeps = sweeps
        self.min_cases = min_cases  # an action that was taken fewer times in all is not available
        self._neighborhoods = neighborhoods
        self._sizes: list[tuple[int, int]] = []  # (number of transitions, number of representative states)
        self._mdp: FiniteMDP | None = None
        self._solution: Solution | None = None
        self._start: Floats | None = None  # values to go on from
        self.sketch: Sketch | None = Sketch()  # of what was learnt from; None: not known
        self.has_changed: bool | None = False  # representative states came or went after data had come; None: not known

    @property
    def n_samples(self) -> int:
        """The number of transitions behind the model."""
        return int(self.statistics.counts.sum())

    @property
    def growth(self) -> Integers:
        """The curve m(n): the number of representative states at numbers of transitions, (k, 2)."""
        return np.array(self._sizes, dtype=np.intp).reshape(-1, 2)

    @property
    def mdp(self) -> FiniteMDP:
        """The reduced MDP of the data so far, without the actions that were hardly ever taken."""
        if self._mdp is None:
            mdp = self.statistics.to_mdp(self.discount)
            available = mdp.available & self.often_taken[:, None]
            self._mdp = FiniteMDP._trusted(mdp.stacked, mdp.rewards, mdp.discount, available)
        return self._mdp

    @property
    def often_taken(self) -> Booleans:
        """Which actions were taken often enough to be available, (n_actions,)."""
        return often_taken(self.statistics.counts, self.min_cases)

    @property
    def solution(self) -> Solution:
        """The solution of the reduced MDP of the data so far."""
        if self._solution is None:
            if self.sweeps is None:
                self._solution = solve(self.mdp, self.solver, values=self._start, tolerance=self.tolerance)
                say_if_not_converged(self._solution)
            else:  # no more was asked for
                start = np.zeros(self.basis.n_reps) if self._start is None else self._start
                self._solution = sweep(self.mdp, start, self.sweeps, tolerance=self.tolerance)
            self._start = self._solution.values
        return self._solution

    def add(
        self, log: Transitions, *, grow_distance: float | None = None, max_reps: int | None = None, n_jobs: int = 1
    ) -> None:
        """Learn from transitions; first, where the model grows, make representative states of far next states.

        Nothing is changed until all is computed: what was learnt is not lost to a failure or to Ctrl-C.
        """
        basis = self.basis
        if grow_distance is not None:
            basis = _grown(basis, log.next_states, grow_distance, max_reps)
        statistics = self.statistics.on(basis).accumulate(log, n_jobs=n_jobs)
        sketch = None if self.sketch is None else self.sketch + Sketch.of(log, largest=self.sketch.largest)
        if basis is not self.basis and self._start is not None:
            nearest = self.basis.rep_weights.nearest(basis.reps[self.basis.n_reps :])
            self._start = np.concatenate([self._start, self._start[nearest]])
        if basis is not self.basis and self.n_samples > 0:
            self.has_changed = True
        self.basis, self.statistics, self.sketch = basis, statistics, sketch
        self._sizes.append((self.n_samples, basis.n_reps))
        self._forget_answers()

    def shrink(self, largest_inflow: float) -> float:
        """Drop the representative states that no pair leads to with a larger probability.

        What led to them goes to the others, by similarity.  Returns the largest change of the others' values.
        """
        before = self.solution.values
        kept = _largest_inflow(self.mdp) > largest_inflow
        if kept.all() or not kept.any():
            return 0.0
        kernel = self.basis.rep_kernel
        if np.ndim(kernel.width):
            kernel = replace(kernel, width=np.asarray(kernel.width)[kept])
        self.has_changed = True
        self.basis = replace(self.basis, reps=self.basis.reps[kept], rep_kernel=kernel)
        self.statistics = self.statistics.without(self.basis, kept)
        self._start = before[kept]
        self._sizes.append((self.n_samples, self.basis.n_reps))
        self._forget_answers()
        return float(np.abs(self.solution.values - before[kept]).max())

    def merged(self, other: ReducedModel) -> ReducedModel:
        """Return the model of the data of both."""
        is_known = self.sketch is not None and other.sketch is not None
        sketch = self.sketch + other.sketch if is_known else None  # type: ignore[operator]
        result = self.with_sums(self.statistics + other.statistics, sketch)  # type: ignore[operator]
        result.has_changed = _either(self.has_changed, other.has_changed)
        return result

    def without(self, log: Transitions) -> ReducedModel:
        """Return the model of the data without these transitions, which were added before."""
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
        sketch = self._sketch_without(log)
        taken = new_statistics(self.basis, self._neighborhoods).accumulate(log)
        return self.with_sums(self.statistics - taken, sketch)  # type: ignore[operator]

    def _sketch_without(self, log: Transitions) -> Sketch | None:
        """Return the sketch without these transitions; those that were certainly never learnt are refused."""
        if self.sketch is None:
            return None
        taken = Sketch.of(log, largest=self.sketch.largest)
        n_unknown = self.sketch.never_learnt(taken)
        if n_unknown:
            known = "at least " if self.sketch.largest < LARGEST_HASH else ""
            raise ValueError(
                f"Only transitions that were learnt can be forgotten, but {known}{n_unknown:,} of these {len(log):,} "
                f"were never learnt, or not so often. Nothing is forgotten. Pass the rows as they were learnt: with "
                f"the same numbers, action labels and episodes."
            )
        return self.sketch - taken

    def unlearnt(self) -> ReducedModel:
        """Return a model of no data with the same basis and settings."""
        settings = {name: getattr(self, name) for name in ("solver", "tolerance", "sweeps", "min_cases")}
        return ReducedModel(self.basis, self._neighborhoods, self.discount, **settings)

    def with_sums(self, statistics: Statistics, sketch: Sketch | None) -> ReducedModel:
        """Return the same model of other data."""
        result = self.unlearnt()
        result.statistics, result.sketch = statistics, sketch
        result._start, result.has_changed = self._start, self.has_changed
        result._sizes = [(result.n_samples, result.basis.n_reps)]
        return result

    def _forget_answers(self) -> None:
        self._mdp = self._solution = None


def often_taken(counts: Any, min_cases: int) -> Booleans:
    """Say which actions were taken at least so many times, (n_actions,); where none was, all of them count."""
    often: Booleans = np.asarray(counts) >= min_cases
    return often if often.any() else np.ones_like(often)


def _either(one: bool | None, other: bool | None) -> bool | None:
    """Return whether one of two is true, None where that is not known."""
    if one or other:
        return True
    return None if one is None or other is None else False


def say_if_not_converged(solution: Solution) -> None:
    """Warn where the values of a model are not what they should be."""
    if not solution.converged:
        warnings.warn(
            f"The model was not solved to its tolerance after {solution.iterations} iterations (residual "
            f"{solution.residual:.2g}). Try solver='policy iteration', a larger tolerance or a smaller discount.",
            KbrlWarning,
            stacklevel=4,
        )


def _grown(basis: Basis, states: Floats, distance: float, max_reps: int | None) -> Basis:
    """Add those of the states, given in the data's units, that are farther than ``distance`` from all before."""
    points, norm = basis.coordinates.of(states), basis.rep_kernel.norm
    reps = cover(points, distance, start=basis.reps, max_reps=max_reps, norm=norm)
    return replace(basis, reps=reps) if len(reps) > basis.n_reps else basis


def _largest_inflow(mdp: FiniteMDP) -> Floats:
    """Return the largest probability with which any pair leads to each state, (n_states,)."""
    largest = mdp.stacked.max(axis=0)
    return np.asarray(largest.toarray() if hasattr(largest, "toarray") else largest).ravel()
