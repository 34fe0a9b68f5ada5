"""The factorization trick: what swapping keeps, the way back, and the two special cases."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from kbrl.mdp.dynamic_programming import backup, solve
from kbrl.mdp.factorization import (
    averager,
    check_stochastic,
    lift,
    reduce_mdp,
)
from kbrl.mdp.finite_mdp import FiniteMDP

SIZES = {"n": st.integers(1, 8), "m": st.integers(1, 8), "n_actions": st.integers(1, 3), "seed": st.integers(0, 10**6)}


def random_factors(n, m, n_actions, seed):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(m, 0.4), n), rng.dirichlet(np.full(n, 0.4), (n_actions, m)), rng.normal(size=n)


def random_mdp(n=6, n_actions=2, seed=0, *, kept=1.0, discount=0.9):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(n, 0.4), (n_actions, n)) * kept
    return FiniteMDP(probabilities, rng.normal(size=(n_actions, n)), discount)


def values_of(mdp):
    return solve(mdp, "policy iteration", tolerance=1e-14).values


def q_of(mdp):
    return solve(mdp, "policy iteration", tolerance=1e-14).q


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_the_reduced_mdp_has_the_swapped_factors_and_the_rewards_of_where_they_lead(n, m, n_actions, seed):
    d, k, r = random_factors(n, m, n_actions, seed)
    mdp = reduce_mdp(d, k, r, 0.9)
    np.testing.assert_allclose(mdp.probabilities, np.einsum("ahi,ij->ahj", k, d), atol=1e-14)
    np.testing.assert_allclose(mdp.rewards, k @ r, atol=1e-14)
    np.testing.assert_allclose(mdp.probabilities.sum(axis=2), 1.0, atol=1e-12)
    one_each = np.stack([r + a for a in range(n_actions)])
    np.testing.assert_allclose(reduce_mdp(d, k, one_each, 0.9).rewards, mdp.rewards + np.arange(n_actions)[:, None])
    assert (reduce_mdp(d, k, None, 0.9, rep_rewards=mdp.rewards).rewards == mdp.rewards).all()


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_sparse_factors_give_the_same_mdp_as_dense_ones(n, m, n_actions, seed):
    d, k, r = random_factors(n, m, n_actions, seed)
    dense = reduce_mdp(d, k, r, 0.9)
    for swapped in (
        reduce_mdp(sparse.csr_array(d), [sparse.csr_array(x) for x in k], r, 0.9),
        reduce_mdp(d, [sparse.csr_array(x) for x in k], r, 0.9),
        reduce_mdp(sparse.csr_array(d), k, r, 0.9),
    ):
        stacked = swapped.stacked.toarray() if sparse.issparse(swapped.stacked) else swapped.stacked
        np.testing.assert_allclose(stacked, dense.stacked, atol=1e-14)
        np.testing.assert_allclose(swapped.rewards, dense.rewards, atol=1e-14)
    np.testing.assert_allclose(lift(sparse.csr_array(d), q_of(dense)), lift(d, q_of(dense)), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_swapping_keeps_all_eigenvalues_but_zeros(n, m, n_actions, seed):
    d, k, _ = random_factors(n, m, n_actions, seed)
    p, swapped = d @ k[0], reduce_mdp(d, k, np.zeros(n), 0.9).probabilities[0]
    longer = max(n, m)  # characteristic polynomials: x^(n - m) times the smaller one's
    polynomials = [np.pad(np.poly(matrix), (0, longer - len(matrix))) for matrix in (p, swapped)]
    np.testing.assert_allclose(*polynomials, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_the_reduced_chain_gives_the_stationary_distribution_of_the_whole_one(n, m, n_actions, seed):
    d, k, _ = random_factors(n, m, n_actions, seed)
    swapped = reduce_mdp(d, k, np.zeros(n), 0.9).probabilities[0]
    values, vectors = np.linalg.eig(swapped.T)
    reduced = vectors[:, np.argmin(np.abs(values - 1))].real
    whole = reduced / reduced.sum() @ k[0]  # Barreto & Fragoso 2011: pi = pi-bar K
    np.testing.assert_allclose(whole @ d @ k[0], whole, atol=1e-8)
    check_stochastic(whole[None], "pi")


def test_evaluating_a_single_action_is_exact_however_stochastic_the_factors():
    for seed in range(20):
        d, k, r = random_factors(7, 3, 1, seed)
        whole = FiniteMDP((d @ k[0])[None], (d @ k[0] @ r)[None], 0.9)
        np.testing.assert_allclose(lift(d, q_of(reduce_mdp(d, k, r, 0.9))), values_of(whole), atol=1e-10)


def test_an_exact_deterministic_factorization_gives_the_exact_values():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        labels, k = rng.integers(3, size=9), rng.dirichlet(np.ones(9), (2, 3))
        rep_rewards = rng.normal(size=(2, 3))
        d = np.eye(3)[labels]  # hard aggregation: each state belongs to one representative state
        whole = FiniteMDP(d @ k, rep_rewards @ d.T, 0.9)
        reduced = reduce_mdp(d, k, None, 0.9, rep_rewards=rep_rewards)
        np.testing.assert_allclose(lift(d, q_of(reduced)), values_of(whole), atol=1e-10)


def test_lifting_takes_the_best_of_the_averages_not_the_average_of_the_best():
    d, rep_q = [[0.5, 0.5], [1.0, 0.0]], [[1.0, 0.0], [0.0, 3.0]]
    np.testing.assert_array_equal(lift(np.array(d), rep_q), [1.5, 1.0])  # not 2.0 and 1.0


def test_lifting_offers_a_state_only_what_all_its_representatives_offer():
    d = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    np.testing.assert_array_equal(lift(d, [[-np.inf, 1.0], [9.0, 3.0]]), [1.0, 2.0, 9.0])
    np.testing.assert_array_equal(lift(d, [[-np.inf, -np.inf], [9.0, 3.0]]), [0.0, 4.5, 9.0])  # the first is an end
    np.testing.assert_array_equal(lift(d, [[-np.inf, 1.0], [9.0, -np.inf]]), [1.0, 0.0, 9.0])
    np.testing.assert_array_equal(lift(d, [[-np.inf, 2.0], [-np.inf, 4.0]]), [2.0, 3.0, 4.0])  # never tried


def test_an_averager_keeps_the_rows_of_the_picked_states_and_looks_ahead_to_averages():
    """Gordon 1995, theorem 4.1: its values are the fixed point of v <- T (average of v), at the picked states."""
    mdp, picked = random_mdp(n=6, kept=0.9), [4, 0, 2]
    d = np.random.default_rng(1).dirichlet(np.ones(3), 6)
    factors = averager(mdp, d, picked)
    values = np.zeros(3)
    for _ in range(600):
        values = backup(mdp, d @ values).max(axis=1)[picked]
    np.testing.assert_allclose(values_of(factors.reduced), values, atol=1e-10)
    all_states = averager(mdp, np.eye(6), np.arange(6))
    np.testing.assert_allclose(lift(all_states.to_reps, q_of(all_states.reduced)), values_of(mdp), atol=1e-10)


def test_an_averager_keeps_which_actions_are_offered():
    dense = random_mdp(n=3)
    mdp = FiniteMDP(dense.probabilities, dense.rewards, 0.9, available=[[1, 1, 1], [1, 0, 1]])
    np.testing.assert_array_equal(
        averager(mdp, np.full((3, 2), 0.5), [1, 2]).reduced.available, [[True, True], [False, True]]
    )


def test_rows_that_sum_to_less_than_one_are_ends_only_where_they_are_announced():
    d, k = np.eye(2), np.array([[[0.5, 0.5], [0.5, 0.2]]])
    with pytest.raises(ValueError, match=r"sums to 0\.7"):
        reduce_mdp(d, k, [1.0, 1.0], 0.9)
    np.testing.assert_allclose(reduce_mdp(d, k, [1.0, 1.0], 0.9, ends=True).end_probabilities, [[0.0, 0.3]])


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_the_check_of_stochastic_matrices_knows_good_from_bad(form):
    for good in ([[0.5, 0.5], [1.0, 0.0]], [[0.5, 0.5 + 1e-10]]):
        check_stochastic(form(good), "matrix")
    check_stochastic(form([[0.5, 0.2]]), "matrix", ends=True)
    for bad in ([[0.5, 0.2]], [[1.5, -0.5]], [[np.nan, 1.0]], [[np.inf, -np.inf]], [[0.5, 0.5], [0.0, 0.0]]):
        with pytest.raises(ValueError, match="sum to 1, with no entry below 0"):
            check_stochastic(form(bad), "matrix")
    with pytest.raises(ValueError, match="sum to at most 1"):
        check_stochastic(form([[0.8, 0.4]]), "matrix", ends=True)


HALF, EYE = np.full((2, 2), 0.5), np.eye(2)
REFUSALS = {
    "D": (lambda: reduce_mdp([[1.0, 0.0], [0.6, 0.3]], [EYE], [0, 0], 0.9), r"to_reps \(D\) .* row 1 sums to 0\.9 "),
    "K": (
        lambda: reduce_mdp(EYE, [EYE, [[1.5, -0.5], [0, 1]]], [0, 0], 0.9),
        r"to_states \(K\) of action 1 .* row 0 sums to 1 and has the entry -0\.5",
    ),
    "shape": (lambda: reduce_mdp(EYE, [np.ones((3, 1))], [0, 0], 0.9), r"shape \(n_reps, n_states\) = \(2, 2\)"),
    "one K": (lambda: reduce_mdp(EYE, sparse.csr_array(EYE), [0, 0], 0.9), "one matrix per action"),
    "no rewards": (lambda: reduce_mdp(EYE, [EYE], None, 0.9), "either rewards .* or rep_rewards"),
    "both rewards": (lambda: reduce_mdp(EYE, [EYE], [0, 0], 0.9, rep_rewards=[[0, 0]]), "exactly one of them"),
    "rewards' shape": (lambda: reduce_mdp(EYE, [EYE], [0, 0, 0], 0.9), r"shape \(2,\) or \(1, 2\), but it is \(3,\)"),
    "r-bar's shape": (lambda: reduce_mdp(EYE, [EYE], None, 0.9, rep_rewards=[0, 0]), r"\(n_actions, n_reps\)"),
    "nan": (lambda: reduce_mdp(EYE, [EYE], [0, np.nan], 0.9), "rewards must be finite"),
    "discount": (lambda: reduce_mdp(EYE, [EYE], [0, 0], 1.0), r"discount must lie in \[0, 1\)"),
    "rep_q": (lambda: lift(EYE, np.zeros((3, 1))), "one row per representative state, 2"),
    "states": (lambda: averager(random_mdp(2), np.full((3, 2), 0.5), [0, 1]), "has 2 states, but 3"),
    "picked": (lambda: averager(random_mdp(2), HALF, [0, 2]), "between 0 and 1"),
    "picked's number": (lambda: averager(random_mdp(2), HALF, [0]), "must be 2 states"),
    "vector": (lambda: check_stochastic([0.5, 0.5], "to_reps"), "to_reps must be a matrix"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_factors_are_refused_with_the_place_and_the_value(case):
    call, message = REFUSALS[case]
    with pytest.raises(ValueError, match=message):
        call()


def random_factors_of_each(n, m, n_actions, seed):
    rng = np.random.default_rng(seed)
    d = rng.dirichlet(np.full(m, rng.choice([0.05, 0.4, 2.0])), (n_actions, n))
    return d, rng.dirichlet(np.full(n, 0.4), (n_actions, m)), rng.normal(size=(n_actions, m))


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_one_d_per_action_is_swapped_with_its_own_k(n, m, n_actions, seed):
    """Against loops over the entries of the matrices."""
    d, k, r_bar = random_factors_of_each(n, m, n_actions, seed)
    q = np.random.default_rng(seed + 1).normal(size=(m, n_actions))
    swapped = [
        [[sum(k[a][h][i] * d[a][i][j] for i in range(n)) for j in range(m)] for h in range(m)] for a in range(n_actions)
    ]
    lifted = [max(sum(d[a][i][h] * q[h][a] for h in range(m)) for a in range(n_actions)) for i in range(n)]
    for form in (d, list(d), [sparse.csr_array(x) for x in d]):
        mdp = reduce_mdp(form, k, None, 0.9, rep_rewards=r_bar)
        np.testing.assert_allclose(mdp.probabilities, swapped, atol=1e-14)
        np.testing.assert_array_equal(mdp.rewards, r_bar)
        np.testing.assert_allclose(lift(form, q), lifted, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_the_same_d_for_each_action_is_one_d_for_all(n, m, n_actions, seed):
    d, k, r = random_factors(n, m, n_actions, seed)
    one, each = reduce_mdp(d, k, r, 0.9), reduce_mdp([d] * n_actions, k, r, 0.9)
    np.testing.assert_array_equal(each.stacked, one.stacked)
    np.testing.assert_array_equal(lift([d] * n_actions, q_of(one)), lift(d, q_of(one)))


@pytest.mark.parametrize("discount", [0.3, 0.9, 0.99])
def test_one_d_per_action_errs_no_more_than_its_spread_and_its_disagreement_allow(discount):
    errors = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        d, k, r_bar = random_factors_of_each(rng.integers(1, 8), rng.integers(1, 6), rng.integers(1, 4), seed)
        whole = FiniteMDP(d @ k, np.einsum("aih,ah->ai", d, r_bar), discount)
        lifted = lift(d, q_of(reduce_mdp(d, k, None, discount, rep_rewards=r_bar)))
        error = np.abs(values_of(whole) - lifted).max()
        sigma = max(1 - row.max() for matrix in d for row in matrix)
        apart = max(np.abs(x - y).sum(axis=1).max() for x in d for y in d)
        bound = discount / (1 - discount) ** 2 * np.ptp(r_bar) * (sigma + apart / 2)
        assert error <= bound + 1e-9
        errors.append(error)
        if len(d) == 1:
            assert error <= 1e-9
    assert max(errors) > 0.01 * np.ptp(r_bar)  # there is something to bound


def test_actions_that_disagree_on_where_a_state_belongs_can_be_wrong_though_each_is_exact_and_deterministic():
    """State 0 belongs to rep 0 for one action and to rep 1 for the other: its value is judged by both."""
    d = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    k = np.array([[[1.0, 0.0], [0.0, 1.0]]] * 2)
    r_bar = np.array([[0.0, 0.0], [1.0, 0.0]])  # action 1 pays at rep 0, where it takes no state
    whole = FiniteMDP(d @ k, np.einsum("aih,ah->ai", d, r_bar), 0.5)
    np.testing.assert_allclose(values_of(whole), 0.0, atol=1e-12)
    lifted = lift(d, q_of(reduce_mdp(d, k, None, 0.5, rep_rewards=r_bar)))
    np.testing.assert_allclose(lifted, [0.5, 0.0], atol=1e-9)  # by hand: rep 0 is worth 1, one step away


@pytest.mark.parametrize(
    "to_reps, words",
    [
        (np.full((3, 4, 2), 0.5), "to_reps must be one matrix or one per action, 2, but there are 3"),
        ([np.full((4, 2), 0.5), np.full((4, 2), 0.6)], "to_reps (D) of action 1 must sum to 1"),
        (
            [np.full((4, 2), 0.5), np.ones((4, 1))],
            "one shape for all actions, but it is (4, 2) for action 0",
        ),
    ],
)
def test_factors_of_each_action_that_do_not_fit_are_refused(to_reps, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        reduce_mdp(to_reps, np.full((2, 2, 4), 0.25), np.zeros(4), 0.9)
