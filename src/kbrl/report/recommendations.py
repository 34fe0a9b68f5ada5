"""A model's answers for many states: values, the best action, and how many logged cases support it.

The support of an action at a state is the number of logged cases that its value rests on (`kbrl.insight.coverage`).
Where the best action has only a few, its value is an extrapolation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.insight.coverage import coverage
from kbrl.model.model import Model
from kbrl.model.q_functions import best_actions, check_some_action
from kbrl.settings import FEW_CASES


@dataclass(frozen=True, eq=False)
class Answers:
    """One row per state."""

    q: Floats  # (n, n_actions); -inf if nothing is known about an action
    best: Integers  # (n,)
    values: Floats  # (n,): of the best action
    distances: Floats  # (n,): to the nearest representative state, in units of the model's scale
    support: Floats  # (n, n_actions): logged cases that each value rests on; NaN where that is not known
    nearest: Integers  # (n,): the place of the nearest representative state
    is_weak: Booleans  # (n,): the best action has little support; False where it is not known

    @property
    def best_support(self) -> Floats:
        """The support of the best action, (n,)."""
        return np.take_along_axis(self.support, self.best[:, None], axis=1)[:, 0]

    def value_of(self, actions: Integers) -> Floats:
        """Return the value of one action in each state, (n,); -inf if nothing is known about it."""
        return np.take_along_axis(self.q, actions[:, None], axis=1)[:, 0]


def answers(model: Model, states: Floats) -> Answers:
    """Ask a model about states, (n, n_dims), in the units of the data."""
    q = model.q_values(states)
    check_some_action(q)
    best = best_actions(q)
    covered = coverage(model, states)
    support_of_best = np.take_along_axis(covered.support, best[:, None], axis=1)[:, 0]
    values = np.take_along_axis(q, best[:, None], axis=1)[:, 0]
    return Answers(q, best, values, covered.distances, covered.support, covered.nearest, support_of_best < FEW_CASES)


def reach(model: Model) -> float:
    """Return the largest distance between neighbouring representative states; a state farther from all is far off."""
    reps = model.basis.reps
    return float(cKDTree(reps).query(reps, k=2)[0][:, 1].max()) if len(reps) > 1 else np.inf
