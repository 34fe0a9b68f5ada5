"""When dynamic programming stops, what it does about ties and gaps, what it needs, and what it refuses."""

import tracemalloc
from fractions import Fraction
from zlib import crc32

import numpy as np
import pytest

from kbrl.mdp.dynamic_programming import backup, evaluate_policy, solve
from kbrl.mdp.finite_mdp import FiniteMDP
from small_mdps import FORMS, METHODS, howard_values, make, quantecon_values, random_mdp, scale_of

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
def test_huge_rewards_and_a_discount_close_to_one_are_solved_as_far_as_rounding_lets(method, form):
    mdp = make(
        [[[0.3, 0.7], [0.6, 0.4]], [[0.5, 0.5], [0.1, 0.9]]], [[1e200, -2e200], [3e199, 1e199]], 1 - 1e-9, form=form
    )
    solution = solve(mdp, method, tolerance=1e-300)
    assert not solution.converged
    assert solution.iterations <= 100
    # Action 0 in state 1 loses.  Without it, a step gains (3 * 0.1 + 1 * 0.5) / 0.6 or (10 * 0.1 + 1 * 0.7) / 0.8 in
    # units of 1e199, as action 1 or 0 is taken in state 0: the stationary distributions are (1, 5) / 6 and (1, 7) / 8.
    np.testing.assert_array_equal(solution.policy, [0, 1])
    np.testing.assert_allclose(solution.values * 1e-9, (10 * 0.1 + 0.7) / 0.8 * 1e199, rtol=1e-4)
    assert solve(mdp, method, tolerance=1e-6).converged


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(5))
def test_a_tolerance_out_of_the_reach_of_rounding_is_not_claimed_and_not_chased(seed, method):
    mdp = random_mdp(seed, 0.9999, ends=False, holes=False, n_states=50)
    solution = solve(mdp, method, tolerance=1e-300, max_iterations=1000)
    assert not solution.converged
    assert solution.iterations < 1000
    assert np.abs(solution.values - howard_values(mdp)).max() <= 1e-10 * scale_of(mdp)
    assert solution.residual / (1 - 0.9999) <= 1e-10 * scale_of(mdp)


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
    def noisy(operators, policy):
        calls.append(1)
        noise = np.random.default_rng(crc32(policy.tobytes())).standard_normal(mdp.n_states)
        return evaluate_policy(mdp, policy) + noise

    calls = []
    monkeypatch.setattr("kbrl.mdp.dynamic_programming._Operators.exact_values", noisy)
    for seed in range(20):
        mdp = random_mdp(seed, 0.9, holes=False)
        solution = solve(mdp, "policy iteration", max_iterations=2000)
        assert solution.converged
        assert np.abs(solution.values - howard_values(mdp)).max() <= 1.01e-8 * scale_of(mdp)
    assert len(calls) >= 20


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
    exact_values = "kbrl.mdp.dynamic_programming._Operators.exact_values"
    monkeypatch.setattr(exact_values, lambda _, policy: calls.append(1) or evaluate_policy(mdp, policy))
    rng = np.random.default_rng(0)
    for n_states, n_actions, form, exact in [
        (300, 1, "dense", True),
        (301, 1, "dense", False),
        (301, 32, "dense", True),
        (5, 32, "sparse", False),
    ]:
        calls.clear()
        probabilities = rng.dirichlet(np.ones(n_states), (n_actions, n_states))
        mdp = make(probabilities, rng.random((n_actions, n_states)), 0.9, form=form)
        solve(mdp)
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


LEFT, PAID = 2.0**-40, 2.0**-34  # per step


def slow_chain(n_states, discount):
    """Each state is left with a tiny probability and pays little; the last one pays 1, and the episode ends."""
    probabilities = np.zeros((1, n_states, n_states))
    probabilities[0, range(n_states - 1), range(n_states - 1)] = 1 - LEFT
    probabilities[0, range(n_states - 1), range(1, n_states)] = LEFT
    rewards = np.full((1, n_states), PAID)
    rewards[0, -1] = 1.0
    return FiniteMDP(probabilities, rewards, discount)


def exact_values(n_states, discount):
    """v(i) = paid + discount ((1 - left) v(i) + left v(i + 1)), in fractions."""
    discount, left, values = Fraction(discount), Fraction(LEFT), [Fraction(1)]
    for _ in range(n_states - 1):
        values.append((Fraction(PAID) + discount * left * values[-1]) / (1 - discount * (1 - left)))
    return np.array([float(value) for value in values[::-1]])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("short_of_1", [1e-6, 1e-8, 1e-10, 1e-12, 1e-14, 2.0**-53])
def test_near_a_discount_of_1_no_solver_claims_values_that_are_off(method, short_of_1):
    for n_states in (2, 4, 40):
        mdp = slow_chain(n_states, 1.0 - short_of_1)
        solution, exact = solve(mdp, method, max_iterations=300), exact_values(n_states, mdp.discount)
        is_close = np.abs(solution.values - exact).max() <= 0.01 * exact.max()
        assert is_close or not solution.converged
