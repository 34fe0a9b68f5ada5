"""Small models for the theory's claims, with the errors and bounds of propositions 1 and 5 on them."""

from __future__ import annotations

import numpy as np

from kbrl.arrays import Floats
from kbrl.mdp.bounds import bound_any_norm, bound_factorization, closest_fixed_point
from kbrl.mdp.dynamic_programming import solve
from kbrl.mdp.factorization import lift, reduce_mdp
from kbrl.mdp.finite_mdp import FiniteMDP

NORMS = {"1": 1, "2": 2, "max": np.inf}
ROUNDING = 1e-9  # of the values: what the solvers may be off by

ExactFactors = tuple[Floats, FiniteMDP, FiniteMDP, int]  # E; the MDP of L and r''; that of E L and E r''; columns of E


def random_errors(rng: np.random.Generator, gamma: float) -> dict[str, float]:
    """Return the error of a random factorization, some of them exact, half of them with ends, and its bound xi_v."""
    n, m, n_actions = int(rng.integers(2, 30)), int(rng.integers(1, 15)), int(rng.integers(1, 4))
    ending = bool(rng.random() < 0.5)
    d = rng.dirichlet(np.full(m, rng.choice([0.01, 0.3, 1.0])), n)
    k, rep_rewards = _random_rows(rng, m, n, n_actions, ending), rng.normal(size=(n_actions, m))
    noise = rng.choice([1.0, 0.1, 0.01, 0.0])
    p = (1 - noise) * d @ k + noise * _random_rows(rng, n, n, n_actions, ending)
    mdp = FiniteMDP(p, rep_rewards @ d.T + noise * rng.normal(size=(n_actions, n)), gamma)
    values = lift(d, _q(reduce_mdp(d, k, None, gamma, rep_rewards=rep_rewards, ends=True)))
    bound = bound_factorization(mdp, d, k, rep_rewards)
    return {"error": largest_error(_q(mdp).max(axis=1), values), "bound": bound.value, "trivial": bound.trivial}


def largest_error(exact: Floats, approximate: Floats, order: float = np.inf) -> float:
    """Return the norm of the difference of values, less what rounding may have put there."""
    rounding = ROUNDING * np.linalg.norm(exact.ravel(), order)
    return max(0.0, float(np.linalg.norm((exact - approximate).ravel(), order) - rounding))


def exact_factors(rng: np.random.Generator, gamma: float) -> ExactFactors:
    """Return a random exact factorization P^a = E L^a, r^a = E r''^a, whose E has columns of zeros."""
    n, n_actions = int(rng.integers(2, 9)), int(rng.integers(1, 4))
    m = int(rng.integers(1, n + 1))
    e = np.zeros((n, n))
    e[:, :m] = rng.dirichlet(np.full(m, rng.choice([0.05, 0.3, 1.0])), n)
    if rng.random() < 0.5:
        e[:m] = np.eye(n)[:m]
    inner, inner_rewards = _random_rows(rng, n, n, n_actions, False), rng.normal(size=(n_actions, n))
    return e, FiniteMDP(inner, inner_rewards, gamma), FiniteMDP(e @ inner, inner_rewards @ e.T, gamma), m


def crowd(n_crowd: int) -> ExactFactors:
    """Two absorbing states pay 1 for opposite actions, a third is their average, and a crowd leads to the third."""
    n = n_crowd + 3
    e, p, r = np.eye(n), np.zeros((2, n, n)), np.zeros((2, n))
    e[-1], e[-1, :2] = 0.0, 0.5
    p[:, [0, 1], [0, 1]], p[:, -1, :2], p[:, 2:-1, -1] = 1.0, 0.5, 1.0
    r[0, 0] = r[1, 1] = 1.0
    r[:, -1] = 0.5
    mdp = FiniteMDP(p, r, 0.5)
    return e, mdp, mdp, n - 1


def norm_ratios(e: Floats, inner: FiniteMDP, mdp: FiniteMDP, m: int) -> dict[str, float]:
    """Return |v* - max D Q-bar| over xi'_v in each norm, with the better of two fixed points u = E u."""
    values, inner_values = _q(mdp).max(axis=1), _q(inner).max(axis=1)
    d, k = e[:, :m], inner.probabilities[:, :m]
    lifted = lift(d, _q(reduce_mdp(d, k, None, mdp.discount, rep_rewards=inner.rewards[:, :m])))
    fixed = [closest_fixed_point(e, values, order=order) for order in (2, np.inf)]
    found = {}
    for name, order in NORMS.items():
        bound = min(bound_any_norm(values, u, inner_values, mdp.discount, order=order) for u in fixed)
        error = largest_error(values, lifted, order)
        found[name] = error / bound if error > 0 else 0.0
    return found


def _random_rows(rng: np.random.Generator, n_rows: int, n_columns: int, n_actions: int, ending: bool) -> Floats:
    rows: Floats = rng.dirichlet(np.full(n_columns, rng.choice([0.03, 0.3, 1.0])), (n_actions, n_rows))
    if ending:
        rows *= rng.choice([1.0, 0.99, 0.5, 0.0], (n_actions, n_rows, 1))
        rows[0, 0] *= 0.9  # at least one does end
    return rows


def _q(mdp: FiniteMDP) -> Floats:
    return solve(mdp, "policy iteration", tolerance=1e-13).q
