"""Judges of dynamic programming: hand calculations, theorems, slow loops and QuantEcon's DiscreteDP."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from kbrl.mdp import solvers
from kbrl.mdp.dynamic_programming import backup, evaluate_policy, greedy, solve, sweep
from kbrl.mdp.finite_mdp import FiniteMDP
from small_mdps import FORMS, METHODS, dense_probabilities, howard_values, make, quantecon_values, random_mdp, scale_of


def loop_backup(mdp, values):
    probabilities, q = dense_probabilities(mdp), np.full((mdp.n_states, mdp.n_actions), -np.inf)
    for i in range(mdp.n_states):
        for a in range(mdp.n_actions):
            if mdp.available[a, i]:
                q[i, a] = mdp.rewards[a, i]
                for j in range(mdp.n_states):
                    q[i, a] += mdp.discount * probabilities[a, i, j] * values[j]
    return q


# Hand calculations


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_two_state_chain_has_the_value_worked_out_by_hand(method, form):
    mdp = make([[[0.0, 1.0], [0.0, 1.0]]], [[0.0, 1.0]], 0.5, form=form)
    solution = solve(mdp, method)
    np.testing.assert_allclose(solution.q, [[1.0], [2.0]], atol=2e-8)
    np.testing.assert_allclose(solution.values, [1.0, 2.0], atol=2e-8)
    np.testing.assert_array_equal(solution.policy, [0, 0])
    assert solution.converged


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_walking_to_the_exit_beats_a_small_reward_at_hand(method, form):
    # Corridor 0-1-2: action 0 stays and pays 0.1; action 1 walks on for nothing, and out of state 2 for 1.
    walk = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    mdp = make([np.eye(3), walk], [[0.1, 0.1, 0.1], [0.0, 0.0, 1.0]], 0.8, form=form)
    solution = solve(mdp, method)
    # Staying for ever is worth 0.1 / 0.2 = 0.5; walking is worth 1, 0.8 and 0.64.
    np.testing.assert_allclose(solution.values, [0.64, 0.8, 1.0], atol=1e-7)
    np.testing.assert_allclose(solution.q[:, 0], [0.1 + 0.8 * 0.64, 0.1 + 0.8 * 0.8, 0.1 + 0.8], atol=1e-7)
    np.testing.assert_array_equal(solution.policy, [1, 1, 1])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_one_state_with_one_action_is_a_geometric_series(method, form):
    assert solve(make([[[1.0]]], [[3.0]], 0.75, form=form), method).values == pytest.approx([12.0])
    assert solve(make([[[0.0]]], [[3.0]], 0.75, form=form), method).values == pytest.approx([3.0])


@pytest.mark.parametrize("method", METHODS)
def test_with_discount_zero_the_best_reward_is_the_value_after_one_iteration(method):
    mdp = random_mdp(3, 0.0, holes=False)
    solution = solve(mdp, method)
    np.testing.assert_array_equal(solution.values, mdp.rewards.max(axis=0))
    assert (solution.iterations, solution.converged, solution.residual) == (1, True, 0.0)


@pytest.mark.parametrize("method", METHODS)
def test_without_rewards_nothing_has_value(method):
    solution = solve(make([[[0.5, 0.5], [0.0, 0.3]]], [[0.0, 0.0]], 0.99), method, values=[5.0, -5.0])
    np.testing.assert_array_equal(solution.values, [0.0, 0.0])
    assert solution.converged


@pytest.mark.parametrize("is_sparse", [False, True])
def test_later_changes_of_the_users_arrays_do_not_reach_an_mdp(is_sparse):
    dense, rewards, available = np.array([[[0.0, 1.0], [0.0, 1.0]]]), np.array([[0.0, 1.0]]), np.ones((1, 2), bool)
    given_rows = sparse.csr_array(dense[0]) if is_sparse else dense
    mdp = FiniteMDP(given_rows, rewards, 0.5, available)
    (given_rows.data if is_sparse else given_rows)[:] = 0.0
    rewards[:], available[:] = 7.0, False
    assert solve(mdp).values.round(6).tolist() == [1.0, 2.0]


# The operators


@pytest.mark.parametrize("seed", range(10))
def test_backup_agrees_with_slow_loops(seed):
    mdp = random_mdp(seed)
    values = np.random.default_rng(seed).standard_normal(mdp.n_states)
    np.testing.assert_allclose(backup(mdp, values), loop_backup(mdp, values), rtol=1e-13, atol=1e-13)


def test_greedy_takes_the_first_of_equals_and_minus_one_where_nothing_is_available():
    q = np.array([[1.0, 1.0], [0.0, 2.0], [-np.inf, -np.inf], [-np.inf, -5.0]])
    np.testing.assert_array_equal(greedy(q), [0, 1, -1, 1])


def test_greedy_keeps_the_current_action_on_a_near_tie_and_only_then():
    q = np.array([[1.0 + 1e-15, 1.0], [1.0 + 1e-9, 1.0], [1.0, -np.inf], [3.0, 2.0], [-np.inf, -np.inf]])
    np.testing.assert_array_equal(greedy(q, np.array([1, 1, 1, -1, 0])), [1, 0, 0, 0, -1])


@pytest.mark.parametrize("form", FORMS)
def test_the_value_of_a_policy_is_the_sum_of_its_power_series(form):
    mdp = random_mdp(5, 0.9, holes=False, form=form, n_states=9)
    policy = np.random.default_rng(0).integers(0, mdp.n_actions, 9)
    followed = dense_probabilities(mdp)[policy, np.arange(9)]
    term, total = mdp.rewards[policy, np.arange(9)], np.zeros(9)
    for _ in range(500):
        total, term = total + term, mdp.discount * followed @ term
    np.testing.assert_allclose(evaluate_policy(mdp, policy), total, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_a_policy_that_stops_is_worth_nothing_there(form):
    mdp = make([[[0.0, 1.0], [0.0, 1.0]]], [[1.0, 1.0]], 0.5, form=form)
    np.testing.assert_allclose(evaluate_policy(mdp, np.array([0, -1])), [1.0, 0.0])
    np.testing.assert_allclose(evaluate_policy(mdp, np.array([-1, -1])), [0.0, 0.0])


@pytest.mark.parametrize("seed", range(10))
def test_no_policy_is_worth_more_than_the_solution_and_the_solutions_policy_attains_it(seed):
    mdp = random_mdp(seed, 0.9, holes=False)
    solution, rng = solve(mdp, tolerance=1e-12), np.random.default_rng(seed)
    np.testing.assert_allclose(evaluate_policy(mdp, solution.policy), solution.values, atol=1e-9)
    for _ in range(20):
        values = evaluate_policy(mdp, rng.integers(0, mdp.n_actions, mdp.n_states))
        assert (values <= solution.values + 1e-9).all()


# Agreement with independent solvers


@pytest.mark.parametrize("seed", range(200))
def test_all_methods_agree_with_quantecon(seed):
    mdp = random_mdp(seed)
    expected = quantecon_values(mdp)
    for method in METHODS:
        solution = solve(mdp, method)
        assert solution.converged
        np.testing.assert_allclose(solution.values, expected, rtol=0, atol=1.01e-8 * scale_of(mdp))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("discount", [0.95, 0.99, 0.999])
def test_the_error_is_within_the_promised_tolerance(discount, seed):
    mdp = random_mdp(seed, discount, holes=False)
    expected = howard_values(mdp)
    for tolerance in (1e-3, 1e-5):
        for method in METHODS:
            solution = solve(mdp, method, tolerance=tolerance, max_iterations=100_000)
            assert solution.converged
            assert np.abs(solution.values - expected).max() <= (tolerance + 1e-12) * scale_of(mdp)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_long_corridor_where_values_spread_slowly_is_solved_by_modified_policy_iteration(form, ends):
    # Ten states a step at most: mixing takes hundreds of steps, which is what extrapolation is for.
    rng, n = np.random.default_rng(0), 100
    near = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 5
    probabilities = rng.random((3, n, n)) * near
    probabilities /= probabilities.sum(axis=2, keepdims=True)
    probabilities[:, 0] *= not ends
    mdp = make(probabilities, rng.standard_normal((3, n)), 0.999, form=form)
    solution = solve(mdp, "modified policy iteration")
    assert solution.converged
    assert np.abs(solution.values - howard_values(mdp)).max() <= 1e-8 * scale_of(mdp)


@pytest.mark.parametrize("seed", range(5))
def test_suspending_extrapolation_changes_the_way_and_not_the_result(monkeypatch, seed):
    mdp = random_mdp(seed, 0.95, holes=False, n_states=12)
    extrapolated = solve(mdp, "modified policy iteration")
    monkeypatch.setattr(solvers, "PATIENCE", 0)
    plain = solve(mdp, "modified policy iteration")
    assert extrapolated.converged
    assert plain.converged
    np.testing.assert_allclose(plain.values, extrapolated.values, rtol=0, atol=2e-8 * scale_of(mdp))


# Laws


@given(seed=st.integers(0, 10_000), shift=st.floats(-100, 100), method=st.sampled_from(METHODS))
@settings(max_examples=40, deadline=None)
def test_adding_to_all_rewards_shifts_the_values_where_nothing_ends(seed, shift, method):
    mdp = random_mdp(seed, 0.9, ends=False, holes=False)
    shifted = FiniteMDP(mdp.probabilities, mdp.rewards + shift, 0.9)
    expected = solve(mdp, method, tolerance=1e-11).values + shift / (1 - 0.9)
    np.testing.assert_allclose(solve(shifted, method, tolerance=1e-11).values, expected, rtol=1e-9, atol=1e-8)


@given(seed=st.integers(0, 10_000), exponent=st.integers(-400, 400), method=st.sampled_from(METHODS))
@settings(max_examples=40, deadline=None)
def test_multiplying_the_rewards_multiplies_the_values_and_changes_nothing_else(seed, exponent, method):
    mdp = random_mdp(seed, 0.95, holes=False)
    factor = 2.0**exponent  # exact, so that even the rounding is the same
    scaled = solve(FiniteMDP(mdp.probabilities, mdp.rewards * factor, 0.95), method)
    solution = solve(mdp, method)
    np.testing.assert_allclose(scaled.values, solution.values * factor, rtol=1e-12)
    np.testing.assert_array_equal(scaled.policy, solution.policy)
    assert (scaled.iterations, scaled.converged) == (solution.iterations, solution.converged)


@given(seed=st.integers(0, 10_000), method=st.sampled_from(METHODS))
@settings(max_examples=40, deadline=None)
def test_permuting_the_states_permutes_the_values(seed, method):
    mdp = random_mdp(seed, 0.9, form="dense")
    order = np.random.default_rng(seed).permutation(mdp.n_states)
    probabilities = mdp.probabilities[:, order][:, :, order]
    permuted = FiniteMDP(probabilities, mdp.rewards[:, order], 0.9, mdp.available[:, order])
    expected = solve(mdp, method, tolerance=1e-12).values[order]
    np.testing.assert_allclose(solve(permuted, method, tolerance=1e-12).values, expected, atol=1e-9)


@given(seed=st.integers(0, 10_000), discount=st.floats(0, 0.9999), method=st.sampled_from(METHODS))
@settings(max_examples=60, deadline=None)
def test_values_q_policy_and_residual_belong_together(seed, discount, method):
    mdp = random_mdp(seed, discount)
    solution = solve(mdp, method, max_iterations=30)
    possible = solution.policy >= 0
    np.testing.assert_array_equal(possible, mdp.available.any(axis=0))
    np.testing.assert_array_equal(solution.values[possible], solution.q.max(axis=1)[possible])
    np.testing.assert_array_equal(solution.values[~possible], 0.0)
    np.testing.assert_array_equal(np.isfinite(solution.q), mdp.available.T)
    chosen = solution.q[possible, solution.policy[possible]]
    np.testing.assert_allclose(chosen, solution.values[possible], rtol=0, atol=1e-14 * scale_of(mdp))
    ahead = loop_backup(mdp, solution.values).max(axis=1)
    residual = np.abs(ahead - solution.values)[possible].max(initial=0.0)
    assert solution.residual == pytest.approx(residual, rel=1e-6, abs=1e-14 * scale_of(mdp))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(5))
def test_the_residual_bounds_the_error_even_without_convergence(seed, method):
    mdp = random_mdp(seed, 0.95, holes=False, n_states=8)
    for max_iterations in (1, 2, 3):
        solution = solve(mdp, method, max_iterations=max_iterations)
        error = np.abs(solution.values - howard_values(mdp)).max()
        assert error <= solution.residual / (1 - 0.95) + 1e-12


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6), times=st.integers(1, 30), from_zero=st.booleans())
def test_sweeping_applies_the_operator_so_many_times_and_no_more(seed, times, from_zero):
    mdp = random_mdp(seed)
    start = np.zeros(mdp.n_states) if from_zero else np.random.default_rng(seed).normal(size=mdp.n_states)
    values, q = start.tolist(), []
    for _ in range(times):
        q = loop_backup(mdp, values)
        values = [max(row) if max(row) > -np.inf else 0.0 for row in q.tolist()]
    found = sweep(mdp, start, times)
    np.testing.assert_allclose(found.q, q, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.values, values, rtol=1e-9, atol=1e-12)
    assert found.iterations == times


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), times=st.integers(1, 3000), tolerance=st.sampled_from([1e-2, 1e-6, 1e-12]))
def test_sweeps_have_converged_only_where_the_values_are_within_the_tolerance(seed, times, tolerance):
    mdp = random_mdp(seed)
    found = sweep(mdp, np.zeros(mdp.n_states), times, tolerance=tolerance)
    error = np.abs(found.values - solve(mdp, "policy iteration", tolerance=1e-14).values).max()
    assert error <= found.residual / (1 - mdp.discount) + 1e-10 * scale_of(mdp)
    if found.converged:
        assert error <= tolerance * scale_of(mdp) + 1e-13


def test_one_sweep_of_a_long_horizon_has_not_converged_and_many_have():
    mdp = make([[[0.0, 1.0], [1.0, 0.0]]], [[1.0, 0.0]], 0.9)
    assert not sweep(mdp, np.zeros(2), 1).converged
    assert sweep(mdp, np.zeros(2), 300).converged
    for_ever = sweep(mdp, np.zeros(2), 10**12)  # stops where further sweeps change nothing
    np.testing.assert_array_equal(for_ever.values, sweep(mdp, np.zeros(2), 10_000).values)
    with pytest.raises(ValueError, match="times must be at least 1, but it is 0"):
        sweep(mdp, np.zeros(2), 0)
