"""A model's answers for many states: values, the best answer, how many logged cases support it, and how stable it is.

The support of an action at a state is the number of logged cases that its value rests on (`kbrl.insight.coverage`).
Where the best action has only a few, its value is an extrapolation.  A model that defers has one more answer, the last:
as now, which rests on the cases of all actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.insight.agreement import agreement
from kbrl.insight.coverage import coverage
from kbrl.mdp.dynamic_programming import best_actions
from kbrl.model.model import Model, as_model
from kbrl.report.rules import LEAST_AGREEMENT, NO_ADVICE
from kbrl.settings import FEW_CASES


@dataclass(frozen=True, eq=False)
class Answers:
    """One row per state."""

    q: Floats  # (n, n_answers); -inf if nothing is known about an action
    best: Integers  # (n,)
    values: Floats  # (n,): of the best answer
    distances: Floats  # (n,): to the nearest representative state, in units of the model's scale
    support: Floats  # (n, n_answers): logged cases that each value rests on; NaN where that is not known
    nearest: Integers  # (n,): the place of the nearest representative state
    is_weak: Booleans  # (n,): the best action has little support; False where it is not known, and for "as now"
    agreement: Floats  # (n,): the share of resampled logs with the same answer; NaN where that is not known
    defers: bool  # whether the last answer is "as now"

    @property
    def best_support(self) -> Floats:
        """The support of the best action, (n,)."""
        return np.take_along_axis(self.support, self.best[:, None], axis=1)[:, 0]

    def value_of(self, actions: Integers) -> Floats:
        """Return the value of the logged action in each state, (n,), -inf if nothing is known about it.

        A model that defers compares with current practice as a whole: then it is the value of "as now".
        """
        if self.defers:
            return self.q[:, -1]
        return np.take_along_axis(self.q, actions[:, None], axis=1)[:, 0]

    @property
    def advice(self) -> Integers:
        """The best answer where it is a change with enough support and agreement, else -1, (n,)."""
        unstable = self.agreement < LEAST_AGREEMENT  # False where it is not known
        as_now = self.best == self.q.shape[1] - 1 if self.defers else np.zeros(len(self.best), dtype=bool)
        return np.where(self.is_weak | unstable | as_now, NO_ADVICE, self.best)


def answers(model: Any, states: Floats) -> Answers:
    """Ask a model about states, (n, n_dims), in the units of the data."""
    model = as_model(model)
    q = model.q_values(states)
    best = best_actions(q, where_none=None)
    covered, defers = coverage(model, states), model.deferral is not None
    support = np.column_stack([covered.support, covered.support.sum(axis=1)]) if defers else covered.support
    is_weak = np.take_along_axis(support, best[:, None], axis=1)[:, 0] < FEW_CASES
    if defers:
        is_weak &= best < q.shape[1] - 1
    values = np.take_along_axis(q, best[:, None], axis=1)[:, 0]
    stable = agreement(model, states)
    return Answers(q, best, values, covered.distances, support, covered.nearest, is_weak, stable, defers)


def reach(model: Model) -> float:
    """Return the largest distance between neighbouring representative states; a state farther from all of them is far
    from the data."""
    reps = model.basis.reps
    return float(cKDTree(reps).query(reps, k=2)[0][:, 1].max()) if len(reps) > 1 else np.inf
