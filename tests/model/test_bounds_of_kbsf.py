"""Propositions 2, 3 and 4 of the paper: how far KBSF can be from KBRL."""

import tracemalloc

import numpy as np
import pytest

import naive
from kbrl import Kernel, Transitions
from kbrl.mdp.bounds import bound_factorization
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model.kbsf_bounds import bound_kbsf, bound_online, largest_distance, largest_rep_width
from samples import as_lists, random_log
from small_mdps import optimal

CLOSE = 1e-9  # relative to the trivial bound: what the solver may be off by


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
