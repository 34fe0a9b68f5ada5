"""One more action, as now: its value is that of the logged mixture, and the others lose their doubt."""

import numpy as np
import pytest
from scipy import sparse

from kbrl import FiniteMDP, solve
from kbrl.mdp.deferral import Deferral, doubts, mixed, next_spread, with_now
from kbrl.mdp.dynamic_programming import evaluate_policy


def random_mdp(seed=0, n_states=6, n_actions=3):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(n_states), (n_actions, n_states)) * rng.uniform(
        0.7, 1.0, (n_actions, n_states, 1)
    )
    mdp = FiniteMDP(probabilities, rng.normal(size=(n_actions, n_states)), 0.9)
    return mdp, rng.dirichlet(np.ones(n_actions), n_states).T


def none_of(mdp):
    return np.zeros(mdp.rewards.shape, dtype=bool)


def test_where_nothing_is_offered_the_values_are_those_of_the_mixture():
    mdp, behaviour = random_mdp()
    found = solve(with_now(mdp, behaviour, np.zeros_like(mdp.rewards), none_of(mdp)))
    transitions = np.einsum("ai,aij->ij", behaviour, mdp.probabilities)  # by the definition
    rewards = (behaviour * mdp.rewards).sum(axis=0)
    exact = np.linalg.solve(np.eye(6) - 0.9 * transitions, rewards)
    np.testing.assert_allclose(found.values, exact, atol=1e-6)
    assert (found.policy == 3).all()


def test_where_all_is_offered_without_doubt_the_values_are_the_optimal_ones():
    mdp, behaviour = random_mdp()
    found = solve(with_now(mdp, behaviour, np.zeros_like(mdp.rewards), ~none_of(mdp)))
    np.testing.assert_allclose(found.values, solve(mdp).values, atol=1e-6)
    assert (found.q[:, 3] <= found.values + 1e-9).all()  # a mixture is never better than its best part


def test_values_are_those_of_the_mixed_policy_when_there_is_no_doubt():
    mdp, behaviour = random_mdp(1)
    offered = np.random.default_rng(1).random(mdp.rewards.shape) < 0.4
    extended = with_now(mdp, behaviour, np.zeros_like(mdp.rewards), offered)
    found = solve(extended)
    followed = np.stack(
        [mixed(mdp, behaviour).probabilities[0] if a == 3 else mdp.probabilities[a] for a in found.policy]
    )
    transitions = followed[np.arange(6), np.arange(6)]
    now = (behaviour * mdp.rewards).sum(axis=0)
    rewards = np.where(found.policy == 3, now, mdp.rewards[np.minimum(found.policy, 2), np.arange(6)])
    np.testing.assert_allclose(found.values, np.linalg.solve(np.eye(6) - 0.9 * transitions, rewards), atol=1e-6)


def test_more_doubt_never_raises_a_value_and_never_lowers_it_below_current_practice():
    mdp, behaviour = random_mdp(2)
    now = evaluate_policy(mixed(mdp, behaviour), np.zeros(6, dtype=np.intp))
    before = np.full(6, np.inf)
    for doubt in (0.0, 0.1, 0.5, 5.0):
        values = solve(with_now(mdp, behaviour, np.full(mdp.rewards.shape, doubt), ~none_of(mdp))).values
        assert (values <= before + 1e-7).all()
        assert (values >= now - 1e-6).all()
        before = values
    np.testing.assert_allclose(values, now, atol=1e-6)


def test_a_sparse_mdp_gives_the_values_of_the_dense_one():
    mdp, behaviour = random_mdp(3)
    thin = FiniteMDP(sparse.csr_array(mdp.stacked), mdp.rewards, 0.9)
    offered, doubt = ~none_of(mdp), np.full(mdp.rewards.shape, 0.2)
    values = [solve(with_now(each, behaviour, doubt, offered)).values for each in (mdp, thin)]
    np.testing.assert_allclose(values[0], values[1], atol=1e-6)


def test_the_spread_of_the_next_value_counts_the_end_as_nothing():
    mdp = FiniteMDP([[[0.0, 0.5], [0.0, 0.0]]], [[0.0, 0.0]], 0.9)  # from 0 half go to 1, half end; 1 ends
    np.testing.assert_allclose(next_spread(mdp, np.array([7.0, 4.0])), [[2.0, 0.0]], atol=1e-12)  # 4 or 0
    for size in (1e-200, 1e200):  # whose squares no float can hold
        np.testing.assert_allclose(
            next_spread(mdp, size * np.array([7.0, 4.0])), [[2.0 * size, 0.0]], atol=1e-12 * size
        )


def test_doubt_is_caution_times_the_spread_over_the_root_of_the_cases():
    mdp = FiniteMDP([[[1.0, 0.0], [0.0, 1.0]]], [[0.0, 0.0]], 0.5)  # nothing happens: the next value has no spread
    cases, spread = np.array([[4.0, 0.0]]), np.array([[3.0, 3.0]])
    found = doubts(mdp, np.ones((1, 2)), spread, cases, caution=2.0)
    assert found.tolist() == [[3.0, np.inf]]  # 2 * 3 / sqrt(4); no case, no end of doubt


def test_doubt_is_at_least_the_standard_error_of_what_the_cases_were_worth():
    rng = np.random.default_rng(0)
    values, rewards = rng.normal(size=5), rng.normal(size=200)
    weights = rng.dirichlet(np.full(5, 0.5), 200)  # of the next state of each of 200 cases over five states
    mdp = FiniteMDP(np.stack([np.tile(weights.mean(axis=0), (5, 1))]), np.full((1, 5), rewards.mean()), 0.9)
    worths = rewards + 0.9 * weights @ values
    bound = rewards.std() + 0.9 * next_spread(mdp, values)[0, 0]
    assert worths.std() <= bound


@pytest.mark.parametrize(
    "rule, message",
    [
        ({"cases": 0}, "cases must be a finite number above 0, but it is 0"),
        ({"caution": -1}, "caution must be a finite number not below 0, but it is -1"),
        ({"caution": float("nan")}, "caution must be a finite number not below 0"),
        ({"label": " "}, "label must be a word"),
    ],
)
def test_rules_without_sense_are_refused(rule, message):
    with pytest.raises(ValueError, match=message):
        Deferral(**rule)
