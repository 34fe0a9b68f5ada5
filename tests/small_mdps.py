"""Finite MDPs for tests: made by hand or drawn at random, dense or sparse, and what is optimal in them."""

import atexit
from fractions import Fraction
from functools import cache
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
from scipy import sparse

from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.mdp.solvers import SOLVERS

METHODS = ["auto", *SOLVERS]
FORMS = ["dense", "sparse"]


def make(probabilities, rewards, discount, available=None, form="dense"):
    probabilities = np.asarray(probabilities, dtype=float)
    if form == "sparse":
        probabilities = sparse.csr_array(probabilities.reshape(-1, probabilities.shape[2]))
    return FiniteMDP(probabilities, rewards, discount, available)


def random_mdp(seed, discount=None, *, ends=None, holes=None, form=None, n_states=None):
    """Draw an MDP; what is None is drawn too: discount, whether episodes end, whether some pairs are unavailable."""
    rng = np.random.default_rng(seed)
    n_actions, n_states = int(rng.integers(1, 6)), n_states or int(rng.integers(1, 13))
    discount = rng.choice([0.0, 0.3, 0.9, 0.99]) if discount is None else discount
    probabilities = rng.random((n_actions, n_states, n_states)) ** rng.choice([1, 10])
    probabilities *= rng.random(probabilities.shape) < rng.choice([0.3, 1.0])
    probabilities[..., 0] += 1e-3
    probabilities /= probabilities.sum(axis=2, keepdims=True)
    if rng.random() < 0.5 if ends is None else ends:
        probabilities *= np.where(rng.random((n_actions, n_states, 1)) < 0.3, rng.random((n_actions, n_states, 1)), 1.0)
    available = np.ones((n_actions, n_states), dtype=bool)
    if rng.random() < 0.5 if holes is None else holes:
        available = rng.random((n_actions, n_states)) < 0.7
    rewards = np.where(available, rng.standard_normal((n_actions, n_states)), np.nan)
    form = rng.choice(FORMS) if form is None else form
    return make(probabilities, rewards, float(discount), available, form)


def dense_probabilities(mdp):
    stacked = mdp.stacked.toarray() if sparse.issparse(mdp.stacked) else mdp.stacked
    return stacked.reshape(mdp.n_actions, mdp.n_states, mdp.n_states)


def scale_of(mdp):
    return np.abs(mdp.rewards[mdp.available]).max(initial=0.0) / (1 - mdp.discount)


def optimal(probabilities, rewards, discount):
    """Return q, (n_states, n_actions), by policy iteration: an oracle of its own."""
    n_states = rewards.shape[1]
    states, policy = np.arange(n_states), np.full(n_states, -1)
    q = rewards
    for _ in range(100):
        if (q.argmax(axis=0) == policy).all():
            break
        policy = q.argmax(axis=0)
        system = np.eye(n_states) - discount * probabilities[policy, states]
        q = rewards + discount * probabilities @ np.linalg.solve(system, rewards[policy, states])
    return q.T


def q_of(mdp):
    return optimal(mdp.probabilities, mdp.rewards, mdp.discount)


def random_rows(rng, n_rows, n_columns, n_actions, ending):
    rows = rng.dirichlet(np.full(n_columns, rng.choice([0.03, 0.3, 1.0])), (n_actions, n_rows))
    return rows * rng.choice([1.0, 0.99, 0.5, 0.0], (n_actions, n_rows, 1)) if ending else rows


@cache
def quantecon_solver():
    """Import QuantEcon with compiled code of this process alone: a cache that several share was once left damaged."""
    from numba import config

    folder = mkdtemp()
    atexit.register(rmtree, folder, ignore_errors=True)
    before, config.CACHE_DIR = config.CACHE_DIR, folder
    try:
        from quantecon.markov import DiscreteDP
    finally:
        config.CACHE_DIR = before
    return DiscreteDP


def quantecon_values(mdp):
    """Solve with QuantEcon, where the end of an episode is one more state that is never left and pays nothing."""
    probabilities, end = dense_probabilities(mdp), mdp.n_states
    rows, rewards, states, actions = [], [], [], []
    for i in range(end + 1):
        choices = [a for a in range(mdp.n_actions) if i < end and mdp.available[a, i]]
        for a in choices or [0]:
            row = (
                np.append(probabilities[a, i], max(0.0, 1 - probabilities[a, i].sum()))
                if choices
                else np.eye(end + 1)[end]
            )
            rows.append(row)
            rewards.append(mdp.rewards[a, i] if choices else 0.0)
            states.append(i)
            actions.append(a)
    rows = sparse.csr_matrix(np.array(rows)) if sparse.issparse(mdp.stacked) else np.array(rows)
    process = quantecon_solver()(np.array(rewards), rows, mdp.discount, np.array(states), np.array(actions))
    return process.solve(method="policy_iteration", max_iter=1000).v[:end]


def howard_values(mdp):
    """Policy iteration in its plainest form."""
    probabilities, states = dense_probabilities(mdp), np.arange(mdp.n_states)
    policy = np.where(mdp.available, mdp.rewards, -np.inf).argmax(axis=0)
    for _ in range(1000):
        rewards, followed = mdp.rewards[policy, states], probabilities[policy, states]
        values = np.linalg.solve(np.eye(mdp.n_states) - mdp.discount * followed, rewards)
        q = np.where(mdp.available, mdp.rewards + mdp.discount * probabilities @ values, -np.inf)
        better = q.max(axis=0) > q[policy, states] + 1e-13 * np.abs(q[mdp.available]).max()
        if not better.any():
            return values
        policy = np.where(better, q.argmax(axis=0), policy)
    raise AssertionError("the judge itself did not converge")


def exact_values(mdp):
    """Policy iteration in rational numbers: the solution of the MDP as it is stored, without any rounding."""
    probabilities, states = dense_probabilities(mdp), range(mdp.n_states)
    choices = [[a for a in range(mdp.n_actions) if mdp.available[a, i]] for i in states]
    policy = [own[0] if own else None for own in choices]
    while True:
        values = _solved([_equation(mdp, probabilities, i, policy[i]) for i in states])
        better = list(policy)
        for i in states:
            q = {a: -_equation(mdp, probabilities, i, a, values) for a in choices[i]}
            if q and max(q.values()) > q[policy[i]]:
                better[i] = max(q, key=q.get)
        if better == policy:
            return values
        policy = better


def _equation(mdp, probabilities, i, action, values=None):
    """Return the row [I - discount P | r] of a state under an action, or what is left of it at given values."""
    row = [Fraction(int(i == j)) for j in range(mdp.n_states)] + [Fraction(0)]
    if action is not None:
        row = [x - Fraction(mdp.discount) * Fraction(float(p)) for x, p in zip(row, [*probabilities[action, i], 0.0])]
        row[-1] = Fraction(float(mdp.rewards[action, i]))
    return row if values is None else sum(x * v for x, v in zip(row, values)) - row[-1]


def _solved(rows):
    """Solve a linear system, given as rows [A | b], by elimination."""
    for i in range(len(rows)):
        pivot = next(k for k in range(i, len(rows)) if rows[k][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for k in range(len(rows)):
            if k != i and rows[k][i] != 0:
                rows[k] = [x - rows[k][i] * y for x, y in zip(rows[k], rows[i])]
    return [row[-1] for row in rows]
