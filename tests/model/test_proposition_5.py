"""Proposition 5 of the paper: it holds in the max norm, and fails in others."""

import numpy as np
import pytest
from scipy.linalg import null_space

from experiments.theory_models import crowd
from kbrl.mdp.bounds import bound_any_norm, closest_fixed_point
from kbrl.mdp.factorization import averager, lift, reduce_mdp
from kbrl.mdp.finite_mdp import FiniteMDP
from small_mdps import q_of, random_rows


def exact_order_n(seed):
    """Return E, L^a, r'' with zero columns in E, and the MDP that they factorize exactly."""
    rng = np.random.default_rng(seed)
    n, n_actions = rng.integers(2, 9), rng.integers(1, 4)
    m = rng.integers(1, n + 1)
    e, inner = np.zeros((n, n)), random_rows(rng, n, n, n_actions, False)
    e[:, :m] = rng.dirichlet(np.full(m, rng.choice([0.05, 0.3, 1.0])), n)
    if rng.random() < 0.5:
        e[:m] = np.eye(n)[:m]
    inner_rewards = rng.normal(size=(n_actions, n))
    discount = rng.choice([0.1, 0.5, 0.9])
    return e, FiniteMDP(inner, inner_rewards, discount), FiniteMDP(e @ inner, inner_rewards @ e.T, discount), m


def errors_and_bounds(e, inner, mdp, m, orders):
    """Return |v* - max D Q-bar*| and what proposition 5 says of it, in several norms."""
    d, k = e[:, :m], inner.probabilities[:, :m]
    values, inner_values = q_of(mdp).max(axis=1), q_of(inner).max(axis=1)
    reduced = reduce_mdp(d, k, None, mdp.discount, rep_rewards=inner.rewards[:, :m])
    error = values - lift(d, q_of(reduced))
    u = closest_fixed_point(e, values)
    bounds = [bound_any_norm(values, u, inner_values, mdp.discount, order=order) for order in orders]
    return [np.linalg.norm(error, order) for order in orders], bounds


def test_proposition_5_holds_in_the_max_norm():
    for seed in range(300):
        (error,), (bound,) = errors_and_bounds(*exact_order_n(seed), [np.inf])
        assert error <= bound + 1e-9


def test_proposition_5_fails_in_the_norms_of_order_1_and_2():
    """The averaged state is worth 3/2, its average 2, and each of the crowd is off by 1/4; v* - u is 1/2 once."""
    e, _, mdp, m = crowd(20)
    np.testing.assert_allclose(e @ mdp.probabilities, mdp.probabilities)
    values = q_of(mdp).max(axis=1)
    np.testing.assert_allclose(values, [2.0, 2.0] + [0.75] * 20 + [1.5])
    u = np.append(values[:-1], 2.0)
    np.testing.assert_allclose(e @ u, u)
    error = values - lift(e[:, :m], q_of(averager(mdp, e[:, :m], np.arange(m)).reduced))
    np.testing.assert_allclose(error, [0.0, 0.0] + [-0.25] * 20 + [0.0], atol=1e-12)
    bounds = {order: bound_any_norm(values, u, values, 0.5, order=order) for order in (1, 2, np.inf)}
    assert bounds == {1: pytest.approx(1.0), 2: pytest.approx(1.0), np.inf: pytest.approx(1.0)}
    assert np.linalg.norm(error, 1) == pytest.approx(5.0)  # > 1
    assert np.linalg.norm(error, 2) == pytest.approx(np.sqrt(20) / 4)  # 1.118 > 1
    assert np.linalg.norm(error, np.inf) == pytest.approx(0.25)  # < 1


def test_the_closest_fixed_point_is_fixed_and_none_is_closer():
    for seed in range(30):
        e, _, mdp, _ = exact_order_n(seed)
        values, rng = q_of(mdp).max(axis=1), np.random.default_rng(seed)
        basis = null_space(e - np.eye(len(e)))
        for order in (2, np.inf):
            u = closest_fixed_point(e, values, order=order)
            np.testing.assert_allclose(e @ u, u, atol=1e-9)
            others = u[:, None] + basis @ rng.normal(size=(basis.shape[1], 50)) * rng.choice([1e-3, 0.1], 50)
            rivals = np.linalg.norm(values[:, None] - others, order, axis=0)
            assert np.linalg.norm(values - u, order) <= rivals.min() + 1e-9
