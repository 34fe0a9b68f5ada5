"""What a model says of many states: values, the best action, and how well the data back it.

The kernel masses of the actions at a state (Algorithm 2's w), divided by their sum, say how often each action was taken
in similar situations.  Where the best action has hardly a share in them, its value is an extrapolation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import logsumexp

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.learners.coverage import coverage
from kbrl.learners.kbsf import KBSF
from kbrl.policy.q_functions import check_some_action

EVEN_SHARES = 0.2  # of an even share among the actions that were tried: less than that is little support


@dataclass(frozen=True, eq=False)
class Answers:
    """One row a state."""

    q: Floats  # (n, n_actions); -inf where nothing is known of an action
    best: Integers  # (n,)
    values: Floats  # (n,): of the best action
    distances: Floats  # (n,): to the nearest representative state, in units of the model's scale
    log_mass: Floats  # (n, n_actions)
    shares: Floats  # (n, n_actions): how often each action was taken in similar situations
    is_weak: Booleans  # (n,): the best action has little support

    @property
    def best_share(self) -> Floats:
        """The share of the best action in what was done in similar situations, (n,)."""
        return np.take_along_axis(self.shares, self.best[:, None], axis=1)[:, 0]

    def value_of(self, actions: Integers) -> Floats:
        """Return the value of one action in each state, (n,); -inf where nothing is known of it."""
        return np.take_along_axis(self.q, actions[:, None], axis=1)[:, 0]


def answers(model: KBSF, states: Floats) -> Answers:
    """Ask a model about states, (n, n_dims), in the units of the data."""
    q = model.q_values(states)
    check_some_action(q)
    best = np.argmax(q, axis=1)
    covered = coverage(model, states)
    shares = _shares(covered.log_mass)
    share_of_best = np.take_along_axis(shares, best[:, None], axis=1)[:, 0]
    is_weak = share_of_best < least_share(model)
    return Answers(q, best, q.max(axis=1), covered.distances, covered.log_mass, shares, is_weak)


def least_share(model: KBSF) -> float:
    """Return the share below which an action has little support: a fifth of an even share."""
    return EVEN_SHARES / max(1, int(np.count_nonzero(model.statistics_.counts)))


def reach(model: KBSF) -> float:
    """Return the largest distance between neighbouring representative states; a state farther from all is far off."""
    reps = model.reps_ / model.scale_
    return float(cKDTree(reps).query(reps, k=2)[0][:, 1].max()) if len(reps) > 1 else np.inf


def _shares(log_mass: Floats) -> Floats:
    total = logsumexp(log_mass, axis=1, keepdims=True)
    return np.exp(log_mass - np.where(np.isfinite(total), total, 0.0))
