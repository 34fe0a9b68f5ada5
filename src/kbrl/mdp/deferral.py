"""One more action, "as now", for a finite MDP whose data come from people: it leaves the decision to them.

Its value is that of their own mixture of actions, Q_now(i) = sum_a behaviour(a|i) (r + discount P V).  The other
actions lose their doubt, caution * sigma / sqrt(N), and are not offered where too few cases support them; V is the
largest of all.  So V is the value of a policy that changes some decisions and leaves the others to people.
sigma bounds the spread of r + discount V_now(s'), by the sum of the two spreads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from kbrl.arrays import Booleans, Floats
from kbrl.checks import not_negative, positive
from kbrl.mdp.dynamic_programming import evaluate_policy
from kbrl.mdp.finite_mdp import FiniteMDP

AS_NOW = "as now"


@dataclass(frozen=True)
class Deferral:
    """When a model answers "as now".

    >>> Deferral(cases=3, caution=1.0)
    Deferral(cases=3, caution=1.0, label='as now')
    """

    cases: float = 3  # an action with less support is not offered
    caution: float = 1.0  # how many standard errors an action must be better than current practice
    label: str = AS_NOW

    def __post_init__(self) -> None:
        positive(self.cases, "cases")
        not_negative(self.caution, "caution")
        if not isinstance(self.label, str) or not self.label.strip():
            raise ValueError(f"label must be a word for leaving a decision to people, but it is {self.label!r}.")


def with_now(mdp: FiniteMDP, behaviour: Floats, doubt: Floats, offered: Booleans) -> FiniteMDP:
    """Return an MDP with one more action, the last: as now.  All arrays are (n_actions, n_states).

    behaviour: how often each action is taken now; columns sum to one, or to zero where nothing is known.
    doubt: what is taken off the reward of each action; offered: whether it may be chosen.
    """
    now = mixed(mdp, behaviour)
    stacked = [mdp.stacked, now.stacked]
    rewards = np.where(offered, mdp.rewards - np.where(offered, doubt, 0.0), 0.0)
    return FiniteMDP.trusted(
        sparse.csr_array(sparse.vstack(stacked)) if sparse.issparse(mdp.stacked) else np.concatenate(stacked),
        np.concatenate([rewards, now.rewards]),
        mdp.discount,
        np.concatenate([offered & mdp.available, now.available]),
    )


def mixed(mdp: FiniteMDP, behaviour: Floats) -> FiniteMDP:
    """Return the MDP of one action: a mixture of all, (n_actions, n_states), that are taken at random."""
    n_states, rows = mdp.n_states, np.arange(mdp.rewards.size).reshape(mdp.rewards.shape)
    shares = behaviour.ravel()
    chosen = sparse.csr_array((shares, (np.tile(np.arange(n_states), mdp.n_actions), rows.ravel())))
    chosen.resize(n_states, mdp.rewards.size)
    rewards = (behaviour * np.where(mdp.available, mdp.rewards, 0.0)).sum(axis=0)
    return FiniteMDP.trusted(chosen @ mdp.stacked, rewards[None], mdp.discount, behaviour.sum(axis=0)[None] > 0)


def doubts(mdp: FiniteMDP, behaviour: Floats, reward_spread: Floats, cases: Floats, caution: float) -> Floats:
    """Return the doubt of each action, (n_actions, n_states), about what it gains over a mixture of all of them."""
    if caution == 0:
        return np.zeros_like(cases)
    now = mixed(mdp, behaviour)
    values = evaluate_policy(now, np.where(now.available[0], 0, -1))
    return doubts_about(mdp, values, reward_spread, cases, caution)


def doubts_about(mdp: FiniteMDP, values: Floats, reward_spread: Floats, cases: Floats, caution: float) -> Floats:
    """Return caution * sigma / sqrt(cases), (n_actions, n_states), where sigma bounds the spread of r + discount V_now.

    The spread of V_now over the next states of the MDP bounds that over the logged next states, whose values are means
    over states of the MDP; the spread of a sum is at most the sum of the spreads.
    """
    spread = next_spread(mdp, values)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = caution * (reward_spread + mdp.discount * spread) / np.sqrt(cases)
    return np.where(cases > 0, found, np.inf)


def next_spread(mdp: FiniteMDP, values: Floats) -> Floats:
    """Return the standard deviation of the next state's value, (n_actions, n_states); after an end, it is 0."""
    exponent = int(np.frexp(np.abs(values).max(initial=0.0))[1])  # without which squares could overflow
    values = np.ldexp(values, -exponent)
    middle = float(values.mean())
    centred = values - middle  # so that squares lose less to rounding
    kept, first, second = (
        (mdp.stacked @ column).reshape(mdp.rewards.shape) for column in (np.ones_like(values), centred, centred**2)
    )
    ended = np.clip(1.0 - kept, 0.0, 1.0)
    squares = second + ended * middle**2 - (first - ended * middle) ** 2
    return np.asarray(np.ldexp(np.sqrt(np.maximum(squares, 0.0)), exponent))
