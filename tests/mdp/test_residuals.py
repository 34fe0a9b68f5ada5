"""What dynamic programming claims of its answers, held against rational arithmetic and linear programs."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from kbrl.mdp.dynamic_programming import LARGEST, backup, row_sums, solve
from kbrl.mdp.finite_mdp import FiniteMDP
from small_mdps import FORMS, METHODS, dense_probabilities, exact_values, make, random_mdp, scale_of

LEAKS = [0.0, 9e-13, 1e-10, -9e-10]  # what rows lack to one; negative: they sum to more
DISCOUNTS = [0.9, 1 - 1e-6, 1 - 1e-7, 1 - 1e-8, 1 - 1e-9]


def exact_error(solution, values):
    return max(abs(Fraction(float(found)) - true) for found, true in zip(solution.values, values))


def assert_true_to_its_word(solution, mdp, values, tolerance):
    """The residual proves what it says, and convergence is claimed only within the tolerance; all exactly."""
    error, left = exact_error(solution, values), 1 - Fraction(mdp.discount)
    assert error <= Fraction(solution.residual) / left
    largest = Fraction(float(np.abs(mdp.rewards[mdp.available]).max(initial=0.0)))
    assert not solution.converged or error <= Fraction(tolerance) * largest / left


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("discount", DISCOUNTS)
@pytest.mark.parametrize("leak", LEAKS)
def test_a_state_that_pays_1_and_lacks_a_little_probability_is_a_geometric_series(leak, discount, method, form):
    mdp = make([[[1 - leak]]], [[1.0]], discount, form=form)
    value = 1 / (1 - Fraction(discount) * Fraction(1 - leak))
    solution = solve(mdp, method)
    assert_true_to_its_word(solution, mdp, [value], 1e-8)
    assert solution.converged or discount > 1 - 1e-7


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    leak=st.sampled_from([*LEAKS, None]),
    discount=st.sampled_from(DISCOUNTS),
    shift=st.sampled_from([0.0, 10.0]),
    method=st.sampled_from(METHODS),
    tolerance=st.sampled_from([1e-5, 1e-8, 1e-11]),
)
def test_residual_and_convergence_are_true_in_rational_arithmetic(seed, leak, discount, shift, method, tolerance):
    rng = np.random.default_rng(seed)
    drawn = random_mdp(seed, 0.5, n_states=int(rng.integers(1, 5)))
    probabilities = dense_probabilities(drawn)
    lacking = rng.choice([*LEAKS, 0.3], probabilities.shape[:2])[..., None] if leak is None else leak
    form = rng.choice(FORMS)
    mdp = make(probabilities * (1 - lacking), drawn.rewards + shift, discount, drawn.available, form)
    solution = solve(mdp, method, tolerance=tolerance, max_iterations=200)
    assert_true_to_its_word(solution, mdp, exact_values(mdp), tolerance)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("leak", LEAKS[:3])
def test_at_discount_0_999999_the_default_tolerance_is_reached_whatever_rows_lack(leak, method):
    for seed in range(8):
        drawn = random_mdp(seed, 0.5, ends=False, holes=False, n_states=12, form="dense")
        mdp = FiniteMDP(drawn.probabilities * (1 - leak), drawn.rewards + 5.0, 1 - 1e-6)
        assert solve(mdp, method).converged


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(20))
def test_a_linear_program_finds_the_same_values(seed, method):
    mdp = random_mdp(seed, 0.95, holes=False)
    probabilities, n = dense_probabilities(mdp), mdp.n_states
    # The least v with v >= r^a + discount P^a v for every action.
    sides = np.concatenate([mdp.discount * p - np.eye(n) for p in probabilities])
    found = linprog(np.ones(n), A_ub=sides, b_ub=-mdp.rewards.ravel(), bounds=(None, None), method="highs-ds")
    solution = solve(mdp, method)
    assert solution.converged
    np.testing.assert_allclose(solution.values, found.x, rtol=0, atol=1e-7 * scale_of(mdp))


@pytest.mark.parametrize("form", FORMS)
def test_a_backup_that_rounds_to_the_same_values_does_not_prove_them(form):
    mdp = make([[[0.1, 0.9], [0.7, 0.3]]], [[0.3, 0.7]], 1 - 1e-9, form=form)
    solution = solve(mdp, "policy iteration", max_iterations=2)
    assert (backup(mdp, solution.values).max(axis=1) == solution.values).all()
    assert 0 < exact_error(solution, exact_values(mdp)) <= Fraction(solution.residual) / (1 - Fraction(mdp.discount))


def test_where_rows_sum_to_more_than_the_discount_makes_up_for_nothing_is_claimed():
    solution = solve(make([[[1 + 9e-10]]], [[1.0]], 1 - 1e-10), max_iterations=50)
    assert not solution.converged
    assert solution.residual == LARGEST


@pytest.mark.parametrize("form", FORMS)
def test_row_sums_are_those_of_rational_arithmetic_but_for_rounding(form):
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(300, 0.1), (2, 300))
    sums = row_sums(make(probabilities, np.zeros((2, 300)), 0.5, form=form))
    exact = [[float(sum(map(Fraction, row))) for row in rows.tolist()] for rows in probabilities]
    np.testing.assert_allclose(sums, exact, rtol=300 * 2.0**-53)
