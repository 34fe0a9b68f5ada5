"""How an agent that learns while it acts tries what it does not know.

``Epsilon`` takes a random action with a probability that may fall over time: the paper lowers it by 30 % every 50 000
transitions on the helicopter.  ``Optimism`` takes every pair that the data say little about to be as good as possible,
in the manner of R-MAX (Brafman and Tennenholtz 2002; Jong and Stone 2009), which the paper names as future work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from kbrl.arrays import Array, Floats
from kbrl.checks import in_unit_interval, positive, whole
from kbrl.learners.kbsf import KBSF
from kbrl.mdp.dynamic_programming import Solution, solve
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model.q_functions import GreedyPolicy, RepQ


class Exploration(Protocol):
    """A rule: which policy to follow after an update, and how often to leave it."""

    def plan(self, learner: Any) -> GreedyPolicy:
        """Return the policy to follow from now on."""

    def epsilon(self, n_seen: int) -> float:
        """Return the probability of a random action after this many transitions."""


@dataclass(frozen=True)
class Epsilon:
    """Take a random action with probability start * factor^(number of transitions // every), at least ``least``.

    All but ``every``, a number of transitions, are numbers from 0 to 1.  The paper's helicopter lowers the probability
    by 30 % every 50 000 transitions:

    >>> from kbrl import Epsilon
    >>> schedule = Epsilon(start=1.0, factor=0.7, every=50_000)
    >>> [round(schedule.epsilon(n), 2) for n in (0, 49_999, 50_000, 100_000)]
    [1.0, 1.0, 0.7, 0.49]
    """

    start: float = 1.0
    factor: float = 1.0
    every: int = 1
    least: float = 0.0

    def __post_init__(self) -> None:
        for name in ("start", "factor", "least"):
            in_unit_interval(getattr(self, name), name, closed=True)
        whole(self.every, "every")

    def plan(self, learner: Any) -> GreedyPolicy:
        """Return the learner's greedy policy."""
        policy: GreedyPolicy = learner.policy()
        return policy

    def epsilon(self, n_seen: int) -> float:
        """Return the probability of a random action after this many transitions."""
        return max(self.least, self.start * self.factor ** (n_seen // self.every))


class Optimism:
    """Follow the greedy policy of an optimistic model, so that the agent tries what it does not know.

    mass: the kernel weight, above 0, of an imaginary transition for each pair of a representative state and an action.
    best_value: its reward; it ends the episode.  Choose the largest value that is possible.

    A pair with few data looks good until it has been tried; a pair with many data looks as the data say.

    "right" pays 1 and was tried; "left" never was.  The greedy policy takes "right"; the optimistic one tries "left".

    >>> from kbrl import KBSF, Optimism, Transitions
    >>> log = Transitions([[0.0]] * 5, ["right"] * 5, [1.0] * 5, [[0.0]] * 5, action_labels=["left", "right"])
    >>> learner = KBSF(n_reps=1, min_cases=1, discount=0.5).fit(log)
    >>> str(learner.act([0.0])), str(Optimism(mass=1.0, best_value=10.0).plan(learner).act([0.0]))
    ('right', 'left')
    """

    def __init__(self, mass: float, best_value: float) -> None:
        self.mass, self.best_value = positive(mass, "mass"), float(best_value)
        self._last: Solution | None = None

    def plan(self, learner: KBSF) -> GreedyPolicy:
        """Solve the optimistic model, starting from the last solution of it."""
        if learner.order == 1:
            raise ValueError("Optimism explores with models of order 0, but the learner has order=1. Use Epsilon.")
        mdp = optimistic(learner.mdp_, learner.statistics_.log_mass(), self.mass, self.best_value)
        start = self._last.values if self._last is not None and len(self._last.values) == mdp.n_states else None
        self._last = solve(mdp, values=start)
        weights = learner.model_.basis.rep_weights
        return GreedyPolicy(RepQ(weights, self._last.q), learner.coordinates_, learner.action_labels_, learner.source_)

    def epsilon(self, n_seen: int) -> float:
        """Return 0: unknown actions are tried because they look good."""
        return 0.0


def optimistic(mdp: FiniteMDP, log_mass: Floats, mass: float, best_value: float) -> FiniteMDP:
    """Mix every pair with an imaginary end worth ``best_value``, weighted against the pair's own kernel mass."""
    with np.errstate(over="ignore"):
        known = 1.0 / (1.0 + mass * np.exp(-np.maximum(log_mass, -700.0)))  # mass of data / (mass of data + mass)
    known = np.where(mdp.available, known, 0.0)
    rewards = known * np.where(mdp.available, mdp.rewards, 0.0) + (1.0 - known) * best_value
    stacked = mdp.stacked
    if sparse.issparse(stacked):
        stacked = sparse.csr_array(sparse.diags_array(known.ravel()) @ stacked)
    else:
        stacked = stacked * known.reshape(-1, 1)
    return FiniteMDP.trusted(stacked, rewards, mdp.discount, np.ones_like(mdp.available))


def as_exploration(exploration: Any) -> Exploration:
    """Return a rule; a number stands for a constant epsilon."""
    if isinstance(exploration, (int, float)) and not isinstance(exploration, bool):
        return Epsilon(float(exploration))
    if hasattr(exploration, "plan") and hasattr(exploration, "epsilon"):
        rule: Exploration = exploration
        return rule
    raise TypeError(
        f"exploration must be a probability, an Epsilon, an Optimism or another rule with plan and epsilon, "
        f"but it is {exploration!r}."
    )


def as_actions(actions: Any) -> Array:
    """Return the labels of actions, given as labels or by their number."""
    if np.ndim(actions) == 0:
        return np.arange(whole(actions, "actions"))
    labels = np.asarray(actions)
    if labels.ndim != 1 or len(labels) == 0 or len(np.unique(labels)) != len(labels):
        raise ValueError(f"actions must be a number or different labels, at least one, but they are {actions!r}.")
    return labels
