"""The paper's error bounds of factorizations and of pairs of MDPs, and the widths of lemma 2."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from kbrl import Kernel, Transitions
from kbrl.mdp.bounds import (
    bound_factorization,
    bound_factorization_by_iterates,
    bound_mdps,
    closest_fixed_point,
    soft_homomorphism_error,
    stochasticity,
)
from kbrl.mdp.factorization import lift, reduce_mdp
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model.kbsf_bounds import bound_kbsf, bound_online, largest_distance, largest_rep_width
from small_mdps import q_of, random_rows

CLOSE = 1e-9  # relative to the trivial bound: what the solver may be off by


def random_problem(seed):
    """Return an MDP and factors: random ones, or ones that were exact before noise was added."""
    rng = np.random.default_rng(seed)
    n, m, n_actions, ending = rng.integers(2, 8), rng.integers(1, 8), rng.integers(1, 4), seed % 2 == 1
    d = rng.dirichlet(np.full(m, rng.choice([0.01, 0.3, 1.0])), n)
    k, rep_rewards = random_rows(rng, m, n, n_actions, ending), rng.normal(size=(n_actions, m)) + rng.choice([0, 5])
    noise = rng.choice([1.0, 0.1, 0.0])
    p = (1 - noise) * d @ k + noise * random_rows(rng, n, n, n_actions, ending)
    rewards = rep_rewards @ d.T + noise * rng.normal(size=(n_actions, n))
    mdp = FiniteMDP(p, rewards, rng.choice([0.0, 0.5, 0.9, 0.99]))
    return mdp, d, k, rep_rewards, rng


def test_the_bounds_of_factorizations_hold_on_a_thousand_random_mdps():
    for seed in range(1000):
        mdp, d, k, rep_rewards, _ = random_problem(seed)
        rep_q = q_of(reduce_mdp(d, k, None, mdp.discount, rep_rewards=rep_rewards, ends=True))
        q, values = q_of(mdp), lift(d, rep_q)
        bound, slack = bound_factorization(mdp, d, k, rep_rewards), CLOSE * np.abs(q).max()
        error = np.abs(q.max(axis=1) - values).max()
        assert error <= bound.tighter + slack
        assert bound.tighter <= bound.value * (1 + CLOSE)
        assert error <= bound.trivial + slack
        ahead = (mdp.rewards + mdp.discount * mdp.probabilities @ values).T
        assert np.abs(q - ahead).max() <= bound.q_error + slack


def test_the_bound_by_iterates_is_never_above_the_papers_nor_below_the_error():
    below = 0
    for seed in range(1000):
        mdp, d, k, rep_rewards, _ = random_problem(seed)
        reduced = reduce_mdp(d, k, None, mdp.discount, rep_rewards=rep_rewards, ends=True)
        error = np.abs(q_of(mdp).max(axis=1) - lift(d, q_of(reduced))).max()
        bound, tighter = (
            bound_factorization(mdp, d, k, rep_rewards),
            bound_factorization_by_iterates(mdp, d, k, rep_rewards),
        )
        slack = CLOSE * np.abs(q_of(mdp)).max()
        assert error <= tighter + slack
        assert tighter <= bound.value + slack
        below += tighter < 0.9 * bound.value
    assert below > 300  # it is tighter, not only as tight


def test_the_error_of_a_soft_homomorphism_is_that_of_a_loop_over_the_iterates():
    for seed in range(24):
        mdp, d, k, rep_rewards, _ = random_problem(seed)
        p, discount = np.einsum("ahi,ij->ahj", k, d), mdp.discount
        values, largest = np.zeros(d.shape[1]), 0.0
        for _ in range(1 + 3000 * (discount > 0)):  # 0.99**3000 is 1e-13
            q = rep_rewards + discount * p @ values
            for row in d:
                largest = max(largest, (1 - row.max()) * np.ptp(q[:, row > 0]) / (1 - discount))
            values = q.max(axis=0)
        reduced = reduce_mdp(d, k, None, discount, rep_rewards=rep_rewards, ends=True)
        for matrix in (d, sparse.csr_array(d)):
            assert soft_homomorphism_error(matrix, reduced) == pytest.approx(largest, rel=1e-8, abs=1e-8)
        few = soft_homomorphism_error(d, reduced, max_iterations=2)  # the tail is bounded
        assert largest <= few + 1e-8


def test_the_bound_of_two_mdps_holds_on_a_thousand_random_pairs():
    for seed in range(1000):
        first, *_, rng = random_problem(seed)
        share = rng.choice([1.0, 0.1, 0.01])
        far = random_rows(rng, first.n_states, first.n_states, first.n_actions, rng.random() < 0.5)
        noise = share * rng.normal(size=first.rewards.shape)
        mixed = (1 - share) * first.probabilities + share * far
        second = FiniteMDP(mixed, first.rewards + noise, first.discount)
        bound = bound_mdps(first, second)
        error = np.abs(q_of(first) - q_of(second)).max()
        assert error <= min(bound.tighter, bound.trivial) + CLOSE * np.abs(q_of(first)).max()
        assert bound.tighter <= bound.value * (1 + CLOSE)
        assert bound_mdps(second, first) == bound


def test_a_bound_worked_out_by_hand_is_attained():
    mdp = FiniteMDP(np.eye(2)[None], [[0.0, 1.0]], 0.5)  # v* = 0 and 2
    bound = bound_factorization(mdp, [[1.0], [1.0]], [[[0.5, 0.5]]], [[0.5]])  # both become 1
    assert (bound.value, bound.tighter, bound.trivial, bound.q_error) == (1.0, 1.0, 2.0, 0.5)
    assert (bound.reward_error, bound.transition_error, bound.stochasticity, bound.reward_range) == (0.5, 1.0, 0.0, 0.0)
    assert not bound.vacuous


def test_a_vacuous_bound_worked_out_by_hand_says_that_it_is():
    mdp = FiniteMDP(np.eye(2)[None], [[0.0, 1.0]], 0.5)
    bound = bound_factorization(mdp, [[0.75, 0.25], [0.0, 1.0]], [np.eye(2)], [[0.0, 1.0]])
    # 2 * 1/4 + 4 * 1 * (1/4 * 1/2 + 1/4) and 2 * (1/4 + 1/4 * 1 * 2 * 1/2) + 4 * 1/2 * 1/4
    assert (bound.value, bound.tighter, bound.trivial) == (2.0, 1.5, 2.0)
    assert bound.vacuous
    assert "vacuous: trivial 2" in repr(bound)


def test_an_end_counts_as_a_state_worth_zero():
    """Going on for ever is worth 2, stopping at once 1; with equal rewards, only the end tells the two apart."""
    goes_on, stops = (FiniteMDP([[[stay]]], [[1.0]], 0.5) for stay in (1.0, 0.0))
    bound = bound_mdps(goes_on, stops)
    assert (bound.transition_error, bound.reward_range, bound.trivial) == (2.0, 1.0, 2.0)
    assert (bound.value, bound.tighter) == (3.0, 2.0)  # (1/2 * 3/2) / (2 * 1/4) * 2; 2 * (1/4 * 2 * 2)
    by_factors = bound_factorization(stops, [[1.0]], [[[1.0]]], [[1.0]])
    assert (by_factors.transition_error, by_factors.reward_range, by_factors.value) == (2.0, 1.0, 2.0)


def test_exact_deterministic_factors_have_the_bound_zero():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        d = np.eye(3)[rng.integers(3, size=7)]
        k, rep_rewards = random_rows(rng, 3, 7, 2, seed % 2), rng.normal(size=(2, 3))
        bound = bound_factorization(FiniteMDP(d @ k, rep_rewards @ d.T, 0.9), d, k, rep_rewards)
        assert bound.value < 1e-12
        assert not bound.vacuous


def test_hard_aggregation_leaves_only_the_errors_of_the_factors():
    mdp = random_problem(seed=4)[0]
    d = np.eye(-(-mdp.n_states // 2))[np.arange(mdp.n_states) // 2]  # each representative state has two members
    mean = d.T / d.sum(axis=0)[:, None]
    k, rep_rewards = mean @ mdp.probabilities, mdp.rewards @ mean.T
    bound = bound_factorization(mdp, d, k, rep_rewards)
    assert bound.stochasticity == 0.0
    reduced = reduce_mdp(d, k, None, mdp.discount, rep_rewards=rep_rewards)
    error = np.abs(q_of(mdp).max(axis=1) - lift(d, q_of(reduced))).max()
    assert 0 < error <= bound.tighter


def test_sparse_and_dense_mdps_have_the_same_bounds():
    mdp, d, k, rep_rewards, _ = random_problem(seed=5)
    thin = FiniteMDP(sparse.csr_array(mdp.stacked), mdp.rewards, mdp.discount)
    dense = bound_factorization(mdp, d, k, rep_rewards)
    for own, to_reps in ((thin, sparse.csr_array(d)), (thin, d), (mdp, sparse.csr_array(d))):
        other = bound_factorization(own, to_reps, [sparse.csr_array(x) for x in k], rep_rewards)
        np.testing.assert_allclose(other.value, dense.value)
        np.testing.assert_allclose(other.tighter, dense.tighter)
    assert bound_mdps(thin, mdp).value < 1e-12


def test_actions_that_nobody_offers_are_left_out_and_states_without_any_are_ends():
    mdp, d, k, rep_rewards, _ = random_problem(seed=8)
    more_p = np.concatenate([mdp.probabilities, np.zeros_like(mdp.probabilities[:1])])
    more_r = np.concatenate([mdp.rewards, np.full_like(mdp.rewards[:1], np.nan)])
    offered = np.arange(mdp.n_actions + 1)[:, None] < np.full(mdp.n_states, mdp.n_actions)
    more = FiniteMDP(more_p, more_r, mdp.discount, offered)
    padded = bound_factorization(more, d, [*k, k[0]], [*rep_rewards, rep_rewards[0] + 100])
    assert padded == bound_factorization(mdp, d, k, rep_rewards)
    assert bound_mdps(more, more).value == 0.0

    stopped = offered & (np.arange(mdp.n_states) > 0)  # the first state offers nothing
    bound = bound_factorization(
        FiniteMDP(more_p, more_r, mdp.discount, stopped), d, [*k, k[0]], [*rep_rewards, k[0, :, 0]]
    )
    p, r = mdp.probabilities.copy(), mdp.rewards.copy()
    p[:, 0], r[:, 0] = 0.0, 0.0
    assert bound == bound_factorization(FiniteMDP(p, r, mdp.discount), d, k, rep_rewards)


def test_stochasticity_is_the_largest_doubt_about_a_state():
    d = np.array([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.2, 0.4, 0.4]])
    assert stochasticity(d) == stochasticity(sparse.csr_array(d)) == 0.6
    assert stochasticity(np.eye(3)) == stochasticity(sparse.eye_array(3, format="csr")) == 0.0


def test_the_largest_distance_is_from_the_worst_served_state():
    assert largest_distance([[0.0, 0.0], [3.0, 4.0], [10.0, 1.0]], [[0.0, 0.0], [10.0, 0.0]]) == 5.0


# Lemma 2 ------------------------------------------------------------------------------------------------------------

WAVES = (lambda z: np.exp(-z) * (1.5 + 0.5 * np.sin(z)), (2.0, 0.0))  # between exp(-z) and 2 exp(-z)
PLATEAU = (lambda z: np.minimum(1.0, 2.0 * np.exp(-z)), (1.0, np.log(2.0)))
PROFILES = {"exponential": ("exponential", (1.0, 0.0)), "waves": WAVES, "plateau": PLATEAU}


def weight_sums(distances, width, w, profile="exponential"):
    """Return the weights of the w nearest representative states and those of the others, summed."""
    kappa = Kernel(width, profile).weights(np.zeros((1, 1)), np.sort(distances)[:, None])[0]
    return kappa[:w].sum(), kappa[w:].sum()


@pytest.mark.parametrize("name", PROFILES)
def test_a_width_below_phi_lets_the_nearest_representative_states_dominate(name):
    (profile, decay), rng = PROFILES[name], np.random.default_rng(0)
    for _ in range(300):
        m = rng.integers(2, 9)
        w, alpha, distances = rng.integers(1, m), 10 ** rng.uniform(-6, 2), rng.gamma(0.5, size=m) + 1e-3
        phi = largest_rep_width(distances, int(w), alpha, decay=decay)
        near, far = weight_sums(distances, min(phi, 1e3) * (1 - 1e-9), w, profile)
        assert far < alpha * near


def test_phi_is_sharp_where_all_near_and_all_far_states_are_equally_far():
    distances, w, alpha = [1.0, 1.0, 3.0, 3.0, 3.0], 2, 0.1
    phi = largest_rep_width(distances, w, alpha)
    np.testing.assert_allclose(phi, 2 / np.log(15))
    near, far = weight_sums(distances, phi * 0.999, w)
    assert far < alpha * near
    assert not near < alpha * far  # what the lemma's text in section 4.2 says instead
    near, far = weight_sums(distances, phi * 1.001, w)
    assert not far < alpha * near


def test_phi_of_many_states_is_that_of_each_and_zero_at_a_tie():
    distances = np.random.default_rng(1).random((20, 5))
    distances[3] = 1.0
    together = largest_rep_width(distances, 2, 0.1, decay=(1.5, 0.7))
    np.testing.assert_array_equal(together, [largest_rep_width(row, 2, 0.1, decay=(1.5, 0.7)) for row in distances])
    assert together[3] == 0.0
    assert largest_rep_width([1.0, 2.0], 1, 5.0) == np.inf


ONE = FiniteMDP([[[1.0]]], [[0.0]], 0.5)
SOME = FiniteMDP(np.stack([np.eye(2)] * 2), np.zeros((2, 2)), 0.5, [[1, 1], [1, 0]])
LOG = Transitions([[0.0]], ["a"], [0.0], [[1.0]])
REFUSALS = {
    "K": (lambda: bound_factorization(ONE, [[1.0]], [[[0.5]]], [[0.0]]), r"action 0 .* row 0 sums to 0\.5"),
    "sizes": (lambda: bound_factorization(ONE, np.eye(2), [np.eye(2)], [[0.0, 0.0]]), "for 1 actions and 2 states"),
    "offers": (lambda: bound_factorization(SOME, np.eye(2), [np.eye(2)] * 2, np.zeros((2, 2))), "the same actions"),
    "states": (lambda: bound_mdps(ONE, SOME), "must have the same states"),
    "discounts": (lambda: bound_mdps(ONE, FiniteMDP([[[1.0]]], [[0.0]], 0.9)), r"it is 0\.5 and 0\.9"),
    "reps": (lambda: bound_kbsf(LOG, [[0.0, 1.0]], Kernel(), Kernel(), 0.9), "reps must have 1 columns"),
    "discount": (lambda: bound_kbsf(LOG, [[0.0]], Kernel(), Kernel(), 1.0), "discount must lie in"),
    "q_error": (lambda: bound_online(LOG, [[0.0]], Kernel(), Kernel(), 0.9, -1.0), "q_error must be a finite number"),
    "w": (lambda: largest_rep_width([1.0, 2.0], 2, 0.1), "w must lie between 1 and .* 1, but it is 2"),
    "alpha": (lambda: largest_rep_width([1.0, 2.0], 1, 0.0), "alpha must be a finite number above 0"),
    "order": (lambda: closest_fixed_point(np.eye(2), [0.0, 1.0], order=1), "order must be 2 or infinity"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_has_no_bound_is_refused(case):
    call, message = REFUSALS[case]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("leak", [9e-13, 3e-14, 0.0])
@pytest.mark.parametrize("rewards", [(10.0, 10.0), (10.0, 11.0)])
def test_rows_that_lack_a_little_are_bounded_too(leak, rewards):
    """Two states that stay: v = r / (1 - discount kept), in exact arithmetic."""
    discount, r = 0.999999, np.array([rewards])
    whole, leaky = (FiniteMDP(np.eye(2)[None] * (1 - lack), r, discount) for lack in (0.0, leak))
    horizons = [1 / (1 - Fraction(discount) * Fraction(kept)) for kept in (1.0, 1 - leak)]
    error = float(Fraction(max(rewards)) * (horizons[0] - horizons[1]))
    bound = bound_mdps(whole, leaky)
    assert error <= bound.tighter
    assert error <= bound.value
    factors = bound_factorization(leaky, np.eye(2), np.eye(2)[None], r)
    assert error <= factors.value
