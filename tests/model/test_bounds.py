"""The paper's error bounds: none is ever violated, and some are worked out by hand."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import null_space

import naive
from kbrl import Kernel, Transitions
from kbrl.model.bounds import (
    bound_any_norm,
    bound_factorization,
    bound_kbsf,
    bound_mdps,
    bound_online,
    closest_fixed_point,
    largest_distance,
    largest_rep_width,
    stochasticity,
)
from kbrl.model.factorization import aggregate_mdp, averager, lift, reduce_mdp
from kbrl.model.finite_mdp import FiniteMDP
from samples import as_lists, random_log

CLOSE = 1e-9  # relative to the trivial bound: what the solver may be off by


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
    factors = aggregate_mdp(mdp, np.arange(mdp.n_states) // 2)
    bound = bound_factorization(mdp, factors.to_reps, factors.to_states, factors.rep_rewards)
    assert bound.stochasticity == 0.0
    error = np.abs(q_of(mdp).max(axis=1) - lift(factors.to_reps, q_of(factors.reduced))).max()
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


# Proposition 5 ------------------------------------------------------------------------------------------------------


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


def crowd(n_crowd):
    """Two states that want different actions, the average of the two, and a crowd that goes to the average.

    Absorbing states 0 and 1 pay 1 for one action each; the last state averages them.  EP = P and Er = r, so that this
    is a plain averager and v^ = v*.  Discount 1/2.
    """
    n = n_crowd + 3
    e, p, r = np.eye(n), np.zeros((2, n, n)), np.zeros((2, n))
    e[-1], e[-1, :2] = 0.0, 0.5
    p[:, [0, 1], [0, 1]], p[:, -1, :2], p[:, 2:-1, -1] = 1.0, 0.5, 1.0
    r[0, 0] = r[1, 1] = 1.0
    r[:, -1] = 0.5
    mdp = FiniteMDP(p, r, 0.5)
    return e, mdp, mdp, n - 1


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


# Propositions 2, 3 and 4: KBSF against KBRL -------------------------------------------------------------------------


def solved(log, reps, tau, tau_bar, discount):
    """Return KBRL's q at the next states, KBSF's Q-bar and the lists behind them, all by the paper's loops."""
    tried = [samples for samples in as_lists(log) if samples]
    big = optimal(*map(np.array, naive.kbrl_model(tried, tau)), discount)
    rep_q = optimal(*map(np.array, naive.kbsf_model(tried, reps.tolist(), tau, tau_bar)), discount)
    return tried, big, rep_q


CASES = [
    (n_actions, ending, tau, tau_bar)
    for n_actions in (1, 2, 3)
    for ending in (0.0, 0.3, 1.0)
    for tau, tau_bar in ((0.05, 0.01), (0.3, 0.05), (1.0, 1.0))
]


@pytest.mark.parametrize("n_actions, ending, tau, tau_bar", CASES)
def test_kbsf_is_never_farther_from_kbrl_than_its_bounds(n_actions, ending, tau, tau_bar):
    log = random_log(n=24, n_actions=n_actions, ending=ending, seed=n_actions, every_action=False)
    rng, discount = np.random.default_rng(0), 0.9
    reps = rng.random((5, 2)) if tau_bar > 0.01 else log.next_states[::2]
    tried, big, rep_q = solved(log, reps, tau, tau_bar, discount)
    flat = [(state, end) for samples in tried for _, _, state, end in samples]
    lifted = np.array([naive.q_from_reps(state, reps.tolist(), rep_q, tau_bar) for state, _ in flat])
    going = ~np.array([end for _, end in flat])
    kernels = Kernel(tau), Kernel(tau_bar)
    bound = bound_kbsf(log, reps, *kernels, discount)
    error = np.abs(big.max(axis=1) - lifted.max(axis=1))[going].max(initial=0.0)
    assert error <= min(bound.tighter, bound.trivial) + 1e-9
    assert bound.tighter <= bound.value * (1 + CLOSE)

    starts = np.cumsum([len(samples) for samples in tried])[:-1]
    next_values = [np.split(np.where(going, q.max(axis=1), 0.0), starts) for q in (big, lifted)]
    for state in rng.uniform(-1, 2, (10, 2)).tolist():  # proposition 2: anywhere
        q, q_reduced = (np.array(naive.q_from_samples(state, tried, v, tau, discount)) for v in next_values)
        assert np.abs(q - q_reduced).max() <= bound.q_error + 1e-9
        assert np.abs(q - q_reduced).max() <= discount * bound.tighter + 1e-9

    noise = rng.uniform(-0.2, 0.2, rep_q.shape)  # proposition 4: an inexact Q-bar
    inexact = np.array([naive.q_from_reps(state, reps.tolist(), rep_q + noise, tau_bar) for state, _ in flat])
    online = bound_online(log, reps, *kernels, discount, np.abs(noise).max())
    assert np.abs(big - inexact)[going].max(initial=0.0) <= min(online.tighter, online.trivial) + 1e-9
    assert online.tighter <= online.value * (1 + CLOSE)


@pytest.mark.parametrize("ending", [0.0, 0.3])
def test_the_bound_of_kbsf_is_that_of_its_explicit_factors(ending):
    log, reps, (tau, tau_bar, discount) = (
        random_log(n=30, ending=ending),
        np.random.default_rng(1).random((4, 2)),
        (0.3, 0.2, 0.8),
    )
    tried, going = as_lists(log), np.concatenate([~log.terminals[rows] for rows in log.by_action()])
    p, r = map(np.array, naive.kbrl_model(tried, tau))
    d = np.array([naive.kappa(s, reps.tolist(), tau_bar) for samples in tried for _, _, s, _ in samples])
    rows, start = log.by_action(), 0
    k, rep_rewards = np.zeros((2, 4, 30)), np.zeros((2, 4))
    for a, samples in enumerate(tried):
        to_samples = np.array([naive.kappa(rep, [s for s, _, _, _ in samples], tau) for rep in reps.tolist()])
        k[a, :, start : start + len(rows[a])] = to_samples
        rep_rewards[a] = to_samples @ log.rewards[rows[a]]
        start += len(rows[a])
    mdp = FiniteMDP(p[:, going][:, :, going], r[:, going], discount)
    explicit = bound_factorization(mdp, d[going], k[:, :, going], rep_rewards)
    implicit = bound_kbsf(log, reps, Kernel(tau), Kernel(tau_bar), discount)
    for term in ("value", "tighter", "trivial", "q_error", "reward_error", "transition_error", "stochasticity"):
        np.testing.assert_allclose(getattr(implicit, term), getattr(explicit, term), rtol=1e-10)


def test_where_a_terminal_transition_claims_to_lead_does_not_matter():
    log, reps = random_log(n=40, ending=0.3), np.random.default_rng(1).random((5, 2))
    kernels = Kernel(0.3), Kernel(0.01)
    for place in (np.full(2, 1e3), (reps[0] + reps[1]) / 2):  # far away; in doubt between two representative states
        elsewhere = np.where(log.terminals[:, None], place, log.next_states)
        other = Transitions(log.states, log.actions, log.rewards, elsewhere, log.terminals)
        assert bound_kbsf(other, reps, *kernels, 0.9) == bound_kbsf(log, reps, *kernels, 0.9)


def test_denser_representative_states_and_a_smaller_width_bring_the_bound_to_zero():
    """Proposition 3, on a line: at a tiny width each halving of the grid's spacing shrinks the bound."""
    log = random_log(n=60, n_dims=1, ending=0.1)
    grids = [np.linspace(0, 1, 2**k + 1)[:, None] for k in range(1, 9)]
    bounds = [bound_kbsf(log, reps, Kernel(0.5), Kernel(1e-9), 0.9) for reps in grids]
    distances = [largest_distance(log.next_states, reps) for reps in grids]
    values = [bound.value for bound in bounds]
    assert (np.diff(distances) < 0).all()
    assert (np.diff(values) < 0).all()
    assert values[-1] < values[0] / 50
    ever_narrower = [bound_kbsf(log, log.next_states, Kernel(0.5), Kernel(w), 0.9).value for w in (0.1, 1e-3, 1e-5)]
    assert (np.diff(ever_narrower) < 0).all()
    assert bound_kbsf(log, log.next_states, Kernel(0.5), Kernel(1e-9), 0.9).value < 1e-10


def test_a_width_from_lemma_2_keeps_the_stochasticity_below_what_was_asked():
    log, reps, wanted = random_log(n=50), np.random.default_rng(2).random((6, 2)), 0.05
    distances = np.linalg.norm(log.next_states[:, None] - reps, axis=2)
    width = largest_rep_width(distances, 1, wanted / (1 - wanted)).min()
    assert bound_kbsf(log, reps, Kernel(0.5), Kernel(0.999 * width), 0.9).stochasticity < wanted


@pytest.mark.parametrize("neighbors", [None, 3])
def test_the_size_of_the_blocks_changes_nothing(neighbors):
    log, reps = random_log(n=40, n_actions=3), np.random.default_rng(3).random((7, 2))
    kernels = Kernel(0.2, neighbors=neighbors), Kernel(0.1, neighbors=neighbors)
    whole = bound_kbsf(log, reps, *kernels, 0.9)
    for n_block in (1, 7, 36, 1000):
        part = bound_kbsf(log, reps, *kernels, 0.9, n_block=n_block)
        np.testing.assert_allclose(part.value, whole.value, rtol=1e-12)
        np.testing.assert_allclose(part.tighter, whole.tighter, rtol=1e-12)


@pytest.mark.parametrize("sample_neighbors", [None, 40])
@pytest.mark.parametrize("rep_neighbors", [None, 7])
def test_sparse_kernels_that_reach_everything_have_the_dense_bound(sample_neighbors, rep_neighbors):
    log, reps = random_log(n=40), np.random.default_rng(3).random((7, 2))
    dense = bound_kbsf(log, reps, Kernel(0.2), Kernel(0.1), 0.9)
    thin = bound_kbsf(log, reps, Kernel(0.2, neighbors=sample_neighbors), Kernel(0.1, neighbors=rep_neighbors), 0.9)
    np.testing.assert_allclose(thin.value, dense.value, rtol=1e-10)
    np.testing.assert_allclose(thin.tighter, dense.tighter, rtol=1e-10)


def test_nearest_representative_states_only_is_hard_aggregation():
    log, reps = random_log(n=40), np.random.default_rng(3).random((7, 2))
    hard = bound_kbsf(log, reps, Kernel(0.2), Kernel(0.1, neighbors=1), 0.9)
    assert hard.stochasticity == 0.0
    np.testing.assert_allclose(hard.value, bound_kbsf(log, reps, Kernel(0.2), Kernel(1e-12), 0.9).value, rtol=1e-9)


def test_the_online_bound_adds_the_error_of_the_solution_and_never_undercuts_the_batch_one():
    log, reps = random_log(n=40), np.random.default_rng(3).random((7, 2))
    batch = bound_kbsf(log, reps, Kernel(0.2), Kernel(0.1), 0.9)
    exact, inexact = (bound_online(log, reps, Kernel(0.2), Kernel(0.1), 0.9, q_error) for q_error in (0.0, 0.5))
    np.testing.assert_allclose(inexact.value, exact.value + 0.5)
    np.testing.assert_allclose(inexact.trivial, batch.trivial + 0.5)
    gap = 100 * batch.reward_range * 0.45 * 0.1 * batch.transition_error  # gamma (2 - gamma) / 2 against gamma / 2
    np.testing.assert_allclose(exact.value - batch.value, gap)


def test_the_bound_needs_no_matrix_of_all_next_states_by_all_samples():
    log, reps = random_log(n=3000), np.random.default_rng(3).random((20, 2))
    kernels = Kernel(0.2), Kernel(0.1)
    bound_kbsf(log[:10], reps, *kernels, 0.9)  # compile
    tracemalloc.start()
    bound_kbsf(log, reps, *kernels, 0.9, n_block=64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3000 * 3000 * 8 / 8


ONE = FiniteMDP([[[1.0]]], [[0.0]], 0.5)
SOME = FiniteMDP(np.stack([np.eye(2)] * 2), np.zeros((2, 2)), 0.5, [[1, 1], [1, 0]])
LOG = Transitions([[0.0]], ["a"], [0.0], [[1.0]])
REFUSALS = {
    "K": (lambda: bound_factorization(ONE, [[1.0]], [[[0.5]]], [[0.0]]), r"action 0 .* row 0 sums to 0\.5"),
    "sizes": (lambda: bound_factorization(ONE, np.eye(2), [np.eye(2)], [[0.0, 0.0]]), "for 1 actions and 2 states"),
    "offers": (lambda: bound_factorization(SOME, np.eye(2), [np.eye(2)] * 2, np.zeros((2, 2))), "offer the same"),
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
