"""The value of a policy by importance weights, where the log says how probable each logged action was.

Per-decision weighted importance sampling: each reward is weighted by the product of ratios pi / propensity up to it,
and the weights of each step sum to one over the episodes (Precup, Sutton and Singh 2000).  It needs no features, but
its weights explode with the horizon: the effective number of episodes says what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_floats, check_lengths, in_unit_interval, one_entry_per_row, refuse_rows
from kbrl.data.episodes import block_of, episode_hashes
from kbrl.data.sketch import Hashes
from kbrl.data.transitions import Transitions, as_log
from kbrl.trust.evaluator import chunks_of
from kbrl.trust.policy_answers import DEFERS, as_answers, discount_of, labels_with

ENOUGH_EPISODES = 30.0


@dataclass(frozen=True)
class ImportanceEstimate:
    """A value by importance weights; it is usable if its effective number of episodes is at least 30."""

    value: float
    error: float  # the standard error, by the jackknife over blocks of episodes
    effective_episodes: float  # (sum w)^2 / sum w^2 at the last step that each episode has
    n_episodes: int

    @property
    def is_usable(self) -> bool:
        """Whether enough episodes are left."""
        return self.effective_episodes >= ENOUGH_EPISODES

    def __str__(self) -> str:
        left = f"{self.effective_episodes:.1f} of {self.n_episodes} episodes count"
        if not self.is_usable:
            return f"Importance weights on logged propensities: {left}, fewer than {ENOUGH_EPISODES:g}: not usable."
        found = f"{self.value:.4g} up to where episodes end or are cut (standard error {self.error:.3g}; {left})"
        return f"Importance weights on logged propensities: {found}."


def importance_estimate(
    policy: Any, log: Any, propensities: Any = None, *, discount: float | None = None, n_blocks: int = 20
) -> ImportanceEstimate:
    """Return the value of a policy by per-decision weighted importance sampling.

    log: Transitions with episodes, an opened log, or a list of chunks.
    propensities: the probabilities, (n,), with which current practice chose the logged actions; by default those of the
        log.  Estimated ones must not be passed: with them this estimator called practice better than itself in nearly
        all of our trials.

    >>> import numpy as np
    >>> from kbrl.tasks import PuddleWorld
    >>> from kbrl.trust.importance import importance_estimate
    >>> log = PuddleWorld().collect(6000, random_state=0)
    >>> uniform = lambda states: np.full((len(states), 4), 0.25)
    >>> found = importance_estimate(uniform, log, np.full(6000, 0.25), discount=0.9)
    >>> found.effective_episodes == found.n_episodes
    True
    """
    gamma = in_unit_interval(discount_of(policy, discount), "discount")
    log_ratios, rewards, hashes, ends = _gathered(policy, log, propensities)
    is_other = np.append(True, hashes[1:] != hashes[:-1])
    if is_other.sum() != len(np.unique(hashes)):
        raise ValueError("The rows of an episode must follow each other. Sort the log by episode and step.")
    is_start = is_other | np.append(True, ends[:-1])
    first, places = np.flatnonzero(is_start), np.cumsum(is_start) - 1
    steps, blocks = np.arange(len(hashes)) - first[places], block_of(hashes[first], n_blocks)
    totals, paid, weights = _sums_per_step(log_ratios, rewards, steps, places, blocks)
    kept = np.unique(blocks)
    value, effective = _value(totals.sum(axis=1), paid.sum(axis=1), gamma), _effective(weights)
    if len(kept) < 2:
        return ImportanceEstimate(value, float("inf"), effective, len(first))
    others = [np.arange(totals.shape[1]) != block for block in kept]
    left_out = np.array([_value(totals[:, b].sum(axis=1), paid[:, b].sum(axis=1), gamma) for b in others])
    error = float(np.sqrt((len(kept) - 1) / len(kept) * ((left_out - left_out.mean()) ** 2).sum()))
    return ImportanceEstimate(value, error, effective, len(first))


def _gathered(policy: Any, log: Any, propensities: Any) -> tuple[Floats, Floats, Hashes, Booleans]:
    """Return the logarithms of the ratios, the rewards, the hashes of the episodes, and where they end, (n,) each."""
    chunks = [log] if isinstance(log, Transitions) else chunks_of(log)
    given = None if propensities is None else one_entry_per_row(as_floats(propensities, "propensities"), "propensities")
    found, n = [], 0
    for chunk in map(as_log, chunks):
        chances = chunk.propensities if given is None else given[n : n + len(chunk)]
        if chances is None:
            raise ValueError("The log has no propensities. Name their column (action_prob), or pass propensities=.")
        n += len(chunk)
        if given is None or n <= len(given):
            found.append((_log_ratios(policy, chunk, chances), chunk.rewards, episode_hashes(chunk), chunk.terminals))
    if given is not None:
        check_lengths({"log": n, "propensities": len(given)})
    ratios, rewards, hashes, ends = (np.concatenate(parts) for parts in zip(*found))
    return ratios, rewards, hashes, ends


def _log_ratios(policy: Any, log: Transitions, chances: Floats) -> Floats:
    bad = ~((chances > 0) & (chances <= 1))
    if bad.any():
        refuse_rows(bad, chances, "propensities", "be above 0 and at most 1", "Log the probability of what was done.")
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(_probabilities(policy, log) / chances))


def _probabilities(policy: Any, log: Transitions) -> Floats:
    """Return how probable the logged action of each row is under the policy, (n,)."""
    log = log.with_actions(labels_with(log.action_labels, policy))
    answers = as_answers(policy, log.action_labels, log.source)(log.states)
    same = (answers.actions == log.action_indices[answers.rows]) | (answers.actions == DEFERS)
    return np.asarray(np.bincount(answers.rows[same], answers.weights[same], minlength=len(log)), dtype=np.float64)


def _sums_per_step(
    log_ratios: Floats, rewards: Floats, steps: Integers, places: Integers, blocks: Integers
) -> tuple[Floats, Floats, Floats]:
    """Return sums of weights and of weighted rewards, (n_steps, n_blocks) each, and the last weights, (n_episodes,).

    After its end an episode keeps its weight, and is paid nothing.  Weights of a step are relative to the largest.
    """
    n_blocks, n_steps = int(blocks.max()) + 1, int(steps.max()) + 1
    order = np.argsort(steps, kind="stable")
    bounds = np.searchsorted(steps[order], np.arange(n_steps + 1))
    logs, weights = np.zeros(len(blocks)), np.ones(len(blocks))
    totals, paid = np.zeros((n_steps, n_blocks)), np.zeros((n_steps, n_blocks))
    for step in range(n_steps):
        rows = order[bounds[step] : bounds[step + 1]]
        logs[places[rows]] += log_ratios[rows]
        largest = logs.max()
        weights = np.exp(logs - largest) if np.isfinite(largest) else np.zeros(len(logs))
        totals[step] = np.bincount(blocks, weights, minlength=n_blocks)
        paid[step] = np.bincount(blocks[places[rows]], weights[places[rows]] * rewards[rows], minlength=n_blocks)
    return totals, paid, weights


def _value(totals: Floats, paid: Floats, discount: float) -> float:
    means = np.divide(paid, totals, out=np.zeros_like(totals), where=totals > 0)
    return float(means @ discount ** np.arange(len(means)))


def _effective(weights: Floats) -> float:
    return float(weights.sum() ** 2 / (weights**2).sum()) if weights.any() else 0.0
