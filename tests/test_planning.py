"""Judges of dynamic programming: hand calculations, theorems, slow loops and QuantEcon's DiscreteDP."""

import tracemalloc
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantecon.markov import DiscreteDP
from scipy import sparse

from kbrl import planning
from kbrl.model.finite_mdp import FiniteMDP
from kbrl.planning import backup, evaluate_policy, greedy, solve

METHODS = ["auto", "modified policy iteration", "value iteration", "policy iteration"]
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
    process = DiscreteDP(np.array(rewards), rows, mdp.discount, np.array(states), np.array(actions))
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
    monkeypatch.setattr(planning, "PATIENCE", 0)
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


# Stopping


@pytest.mark.parametrize("method", METHODS)
def test_too_few_iterations_are_admitted(method):
    mdp = random_mdp(1, 0.99, holes=False, n_states=10)
    solution = solve(mdp, method, max_iterations=1)
    assert (solution.iterations, solution.converged) == (1, False)
    assert solve(mdp, method).converged


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ends", [False, True])
def test_starting_from_the_solution_takes_one_iteration(ends, method):
    for seed in range(10):
        mdp = random_mdp(seed, 0.99, ends=ends)
        values = solve(mdp, method).values
        again = solve(mdp, method, values=values)
        assert (again.iterations, again.converged) == (1, True)
        np.testing.assert_allclose(again.values, values, rtol=0, atol=2e-8 * scale_of(mdp))


@pytest.mark.parametrize("method", METHODS)
def test_starting_from_the_solution_takes_one_iteration_where_a_state_without_actions_ends_episodes(method):
    # State 0 goes to state 1, where nothing can be done; state 2 pays 1 for ever.
    probabilities = [[[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]
    mdp = make(probabilities, [[0.0, 0.0, 1.0]], 0.99, [[True, False, True]])
    solution = solve(mdp, method)
    np.testing.assert_allclose(solution.values, [0.0, 0.0, 100.0], atol=1e-6)
    assert solve(mdp, method, values=solution.values).iterations == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_start_far_beyond_all_values_does_no_harm(method):
    mdp = random_mdp(4, 0.99, ends=False, n_states=6)
    solution = solve(mdp, method, values=np.array([1e300, -1e300, 1e15, 0.0, 1.0, -1e15]))
    assert solution.converged
    assert np.abs(solution.values - quantecon_values(mdp)).max() <= 1.01e-8 * scale_of(mdp)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_the_zero_at_the_end_of_an_episode_counts_in_the_stopping_rule(method, form):
    # Both states pay 1 and end with probability 1/2: values are 1 / (1 - 0.45).  The first backup changes both by
    # exactly 1, so a span that forgets the end is 0 and would stop there with 1 / (1 - 0.9) = 10.
    mdp = make([[[0.25, 0.25], [0.25, 0.25]]], [[1.0, 1.0]], 0.9, form=form)
    assert np.ptp(backup(mdp, np.zeros(2))) == 0
    np.testing.assert_allclose(solve(mdp, method).values, 1 / (1 - 0.45), rtol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_rows_that_sum_to_a_little_more_than_one_are_taken_as_they_are(method):
    kept = 1 + 9e-10
    solution = solve(make([[[kept]]], [[1.0]], 0.99), method)
    assert solution.values == pytest.approx([1 / (1 - 0.99 * kept)], rel=2e-8)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_huge_rewards_and_a_discount_close_to_one_still_converge(method, form):
    mdp = make(
        [[[0.3, 0.7], [0.6, 0.4]], [[0.5, 0.5], [0.1, 0.9]]], [[1e200, -2e200], [3e199, 1e199]], 1 - 1e-9, form=form
    )
    solution = solve(mdp, method, tolerance=1e-300)
    assert solution.converged
    # Action 0 in state 1 loses.  Without it, a step gains (3 * 0.1 + 1 * 0.5) / 0.6 or (10 * 0.1 + 1 * 0.7) / 0.8 in
    # units of 1e199, as action 1 or 0 is taken in state 0: the stationary distributions are (1, 5) / 6 and (1, 7) / 8.
    np.testing.assert_array_equal(solution.policy, [0, 1])
    np.testing.assert_allclose(solution.values * 1e-9, (10 * 0.1 + 0.7) / 0.8 * 1e199, rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(5))
def test_a_tolerance_out_of_the_reach_of_rounding_does_not_prevent_convergence(seed, method):
    mdp = random_mdp(seed, 0.9999, ends=False, holes=False, n_states=50)
    solution = solve(mdp, method, tolerance=1e-300, max_iterations=1000)
    assert solution.converged
    assert np.abs(solution.values - howard_values(mdp)).max() <= 1e-10 * scale_of(mdp)


# Ties and gaps


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("discount", [0.9, 0.9999])
def test_actions_that_differ_by_rounding_only_do_not_go_around_in_circles(discount, method):
    # Forty copies of one action, each with the rounding of another way to add up the same numbers.
    rng = np.random.default_rng(0)
    base = rng.random((6, 6))
    base /= base.sum(axis=1, keepdims=True)
    probabilities = np.array([base * (1 + rng.integers(-1, 2, (6, 6)) * 1e-16) for _ in range(40)])
    mdp = FiniteMDP(probabilities, np.tile(rng.standard_normal(6), (40, 1)), discount)
    solution = solve(mdp, method)
    assert solution.converged
    assert solution.iterations <= 20
    np.testing.assert_array_equal(solution.policy, 0)  # the first choice, as no other is better
    np.testing.assert_allclose(solution.values, evaluate_policy(mdp, np.zeros(6, dtype=int)), rtol=1e-6, atol=1e-6)


def test_policy_iteration_accepts_no_policy_twice_however_wrong_its_evaluation(monkeypatch):
    def noisy(mdp, policy):
        noise = np.random.default_rng(crc32(policy.tobytes())).standard_normal(mdp.n_states)
        return evaluate_policy(mdp, policy) + noise

    monkeypatch.setattr(planning, "evaluate_policy", noisy)
    for seed in range(20):
        mdp = random_mdp(seed, 0.9, holes=False)
        solution = solve(mdp, "policy iteration", max_iterations=2000)
        assert solution.converged
        assert np.abs(solution.values - howard_values(mdp)).max() <= 1.01e-8 * scale_of(mdp)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_an_unavailable_action_is_never_chosen_however_good_it_looks(method, form):
    available = [[True, True], [False, True]]
    mdp = make([np.eye(2), np.eye(2)], [[-1.0, -1.0], [np.inf, -2.0]], 0.5, available, form)
    solution = solve(mdp, method)
    np.testing.assert_array_equal(solution.policy, [0, 0])
    np.testing.assert_allclose(solution.q, [[-2.0, -np.inf], [-2.0, -3.0]], rtol=1e-7)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_a_state_without_actions_is_worth_nothing_and_ends_the_episode(method, form):
    mdp = make([[[0.0, 1.0], [0.0, 1.0]]], [[-1.0, np.nan]], 0.9, [[True, False]], form)
    solution = solve(mdp, method, values=[3.0, 7.0])
    np.testing.assert_allclose(solution.values, [-1.0, 0.0], rtol=1e-7)
    np.testing.assert_array_equal(solution.policy, [0, -1])
    np.testing.assert_array_equal(solution.q[1], [-np.inf])


def test_where_no_action_is_available_anywhere_all_values_are_zero():
    solution = solve(make([np.eye(2)], [[1.0, 1.0]], 0.9, [[False, False]]))
    np.testing.assert_array_equal(solution.values, [0.0, 0.0])
    np.testing.assert_array_equal(solution.policy, [-1, -1])


# Resources and refusals


def test_modified_policy_iteration_does_not_copy_the_rows_of_a_dense_policy():
    mdp = random_mdp(0, 0.99, holes=False, form="dense", n_states=400)
    solve(mdp, "modified policy iteration")  # compiles
    tracemalloc.start()
    try:
        solve(mdp, "modified policy iteration")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.25 * 8 * 400 * 400


def test_auto_chooses_policy_iteration_for_few_states_the_more_the_more_actions(monkeypatch):
    calls = []
    monkeypatch.setattr(planning, "evaluate_policy", lambda *arguments: calls.append(1) or evaluate_policy(*arguments))
    rng = np.random.default_rng(0)
    for n_states, n_actions, form, exact in [
        (300, 1, "dense", True),
        (301, 1, "dense", False),
        (301, 32, "dense", True),
        (5, 32, "sparse", False),
    ]:
        calls.clear()
        probabilities = rng.dirichlet(np.ones(n_states), (n_actions, n_states))
        solve(make(probabilities, rng.random((n_actions, n_states)), 0.9, form=form))
        assert bool(calls) == exact


CHAIN = make([np.eye(2), np.eye(2)], [[0.0, 1.0], [0.0, 1.0]], 0.5, [[True, True], [True, False]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: solve(CHAIN, "magic"), ValueError, "method must be one of 'auto'.*'policy iteration'.*'magic'"),
        (lambda: solve(CHAIN, tolerance=0.0), ValueError, "tolerance must be a finite number above 0, but it is 0.0"),
        (
            lambda: solve(CHAIN, tolerance=np.nan),
            ValueError,
            "tolerance must be a finite number above 0, but it is nan",
        ),
        (lambda: solve(CHAIN, tolerance="small"), TypeError, "tolerance must be a number, but it is 'small'"),
        (lambda: solve(CHAIN, max_iterations=0), ValueError, "max_iterations must be at least 1, but it is 0"),
        (lambda: solve(CHAIN, max_iterations=2.5), TypeError, "max_iterations must be a whole number, but it is 2.5"),
        (lambda: solve(CHAIN, values=[0.0]), ValueError, r"values must have the shape \(n_states,\) = \(2,\).*\(1,\)"),
        (lambda: solve(CHAIN, values=[[0.0, 1.0]]), ValueError, r"values must have the shape.*\(1, 2\)"),
        (lambda: solve(CHAIN, values=[0.0, np.nan]), ValueError, "values must be finite.*1 of 2.*row 1: nan"),
        (lambda: solve(CHAIN, values=[0.0, np.inf]), ValueError, "values must be finite.*1 of 2.*row 1: inf"),
        (lambda: solve(CHAIN, values=["a", "b"]), TypeError, "values must be real numbers, but row 0 holds 'a'"),
        (lambda: backup(CHAIN, np.zeros(3)), ValueError, r"values must have the shape.*\(3,\)"),
        (lambda: evaluate_policy(CHAIN, [0]), ValueError, r"policy must have the shape.*\(1,\)"),
        (lambda: evaluate_policy(CHAIN, [0.0, 1.0]), TypeError, "policy must be whole numbers.*float64"),
        (lambda: evaluate_policy(CHAIN, [True, False]), TypeError, "policy must be whole numbers.*bool"),
        (lambda: evaluate_policy(CHAIN, [0, 2]), ValueError, "from 0 to 1, or -1 for none.*row 1: 2"),
        (lambda: evaluate_policy(CHAIN, [-2, 0]), ValueError, "from 0 to 1, or -1 for none.*row 0: -2"),
        (lambda: evaluate_policy(CHAIN, [1, 1]), ValueError, "available actions.*1 of 2.*row 1: 1.*mdp.available"),
        (
            lambda: solve(make([[[1.0]]], [[1e305]], 0.999)),
            ValueError,
            "rewards must have finite.*1e.305.*0.999.*Divide",
        ),
    ],
)
def test_bad_input_is_refused_with_its_name_rule_value_and_a_way_out(call, error, message):
    with pytest.raises(error, match=message):
        call()
