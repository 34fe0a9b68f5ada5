"""The bound by residuals: the theorem in finite MDPs, its naive twin, and models of both orders on sampled logs."""

import numpy as np
import pytest

from kbrl import KBSF, Transitions
from kbrl.insight.residual_bound import error_bound, residual_bound
from kbrl.trust.learnt_episodes import LearntError

STATES = np.arange(6.0)[:, None]


def random_chain(rng, discount):
    """A policy's transitions in a finite MDP, some of which end, and values that have nothing to do with it."""
    n = int(rng.integers(1, 9))
    probabilities = rng.dirichlet(np.full(n, 0.3), n) * rng.uniform(0.3, 1.0, (n, 1))
    rewards, values = rng.normal(size=n), rng.normal(scale=rng.choice([0.1, 3.0, 100.0]), size=n)
    truth = np.linalg.solve(np.eye(n) - discount * probabilities, rewards)
    residuals = rewards + discount * probabilities @ values - values
    return probabilities, residuals, np.abs(truth - values)


@pytest.mark.parametrize("discount", [0.1, 0.9, 0.99])
def test_no_error_in_any_of_many_random_mdps_is_above_its_bound(discount):
    rng = np.random.default_rng(0)
    for _ in range(400):
        probabilities, residuals, errors = random_chain(rng, discount)
        bound = error_bound(probabilities, residuals, discount)
        assert (errors <= bound * (1 + 1e-6)).all()
        assert (bound <= np.abs(residuals).max() / (1 - discount) * (1 + 1e-12)).all()  # never worse than the max norm


def test_the_bound_is_the_sum_of_residuals_over_where_the_policy_goes():
    rng = np.random.default_rng(1)
    for _ in range(50):
        probabilities, residuals, _ = random_chain(rng, 0.9)
        sums = np.linalg.solve(np.eye(len(residuals)) - 0.9 * probabilities, np.abs(residuals))
        np.testing.assert_allclose(error_bound(probabilities, residuals, 0.9), sums, rtol=1e-6, atol=1e-12)


def test_errors_where_the_policy_never_goes_do_not_count():
    """State 0 stays there and is right; state 1 is wrong by 5 per step, and leads to state 0."""
    bound = error_bound(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0.0, 5.0]), 0.9)
    np.testing.assert_allclose(bound, [0.0, 5.0], atol=1e-6)


def test_what_is_known_beforehand_tightens_the_bound():
    chain, residuals = np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([0.0, 5.0])
    np.testing.assert_allclose(error_bound(chain, residuals, 0.9, np.array([99.0, 7.0])), [6.3, 7.0])


def sampled(rng, probabilities, rewards, n_rows, first):
    n_actions, n_states, _ = probabilities.shape
    states, actions = rng.integers(0, n_states, n_rows), rng.integers(0, n_actions, n_rows)
    further = (rng.random(n_rows)[:, None] > probabilities[actions, states].cumsum(axis=1)).sum(axis=1)
    noise = 0.3 * rng.normal(size=n_rows)
    episodes = first + np.arange(n_rows) // 10
    return Transitions(
        STATES[states], actions, rewards[actions, states] + noise, STATES[further.clip(0, n_states - 1)],
        episodes=episodes, action_labels=np.arange(n_actions),
    )  # fmt: skip


def case(seed, order, n_held_out=2000):
    """A random MDP with six states, a rough model of it, its error at the states on average, and the bound."""
    rng = np.random.default_rng(seed)
    probabilities, rewards = rng.dirichlet(np.full(6, 0.4), (2, 6)), rng.normal(size=(2, 6))
    learnt, held_out = (sampled(rng, probabilities, rewards, n, first) for n, first in ((400, 0), (n_held_out, 10_000)))
    model = (
        KBSF(reps=STATES, sample_width=0.3, rep_width=0.2, discount=0.9, order=order, scaling=None, random_state=0)
        .fit(learnt)
        .model_
    )
    chosen, here = np.asarray(model.predict(STATES)), np.arange(6)
    truth = np.linalg.solve(np.eye(6) - 0.9 * probabilities[chosen, here], rewards[chosen, here])
    error = abs(float(truth.mean() - model.values(STATES).mean()))
    return model, held_out, float(truth.mean()), error


@pytest.mark.parametrize("order, n_cases", [(0, 20), (1, 4)])
def test_the_error_of_models_of_both_orders_is_within_the_bound_from_held_out_transitions(order, n_cases):
    ratios = []
    for seed in range(n_cases):
        model, held_out, truth, error = case(seed, order)
        found = residual_bound(model, held_out, STATES)
        assert error <= found.upper
        assert found.bound <= found.coarse <= found.trivial
        assert not found.is_vacuous
        assert found.uncovered == 0.0
        assert abs(found.promised + found.correction - truth) < 0.5 * found.trivial
        ratios.append(found.bound / error)
    assert np.median(ratios) < 8.0


def test_cells_without_a_case_of_the_policys_action_count_as_wrong_as_can_be():
    model, held_out, _, error = case(0, 0)
    chosen = np.asarray(model.predict(STATES))[0]
    here = (held_out.states[:, 0] == 0.0) & (held_out.action_indices == chosen)
    found, less = (residual_bound(model, log, STATES) for log in (held_out, held_out[np.flatnonzero(~here)]))
    assert less.bound > found.bound
    assert less.uncovered > 0.0
    assert error <= less.bound <= less.trivial * (1 + 1e-9)


def test_the_naive_sums_give_the_same_bound():
    model, held_out, _, _ = case(3, 0, n_held_out=300)
    chosen = np.asarray(model.predict(STATES))
    values = model.values(STATES)
    steps, sums, counts = np.zeros((6, 6)), np.zeros(6), np.zeros(6)
    for row in range(len(held_out)):
        state, further = int(held_out.states[row, 0]), int(held_out.next_states[row, 0])
        if held_out.action_indices[row] == chosen[state]:
            counts[state] += 1
            steps[state, further] += 1
            sums[state] += held_out.rewards[row] + 0.9 * values[further] - values[state]
    expected = np.linalg.solve(np.eye(6) - 0.9 * steps / counts[:, None], np.abs(sums / counts)).mean()
    assert residual_bound(model, held_out, STATES).bound == pytest.approx(expected, rel=1e-5)


def test_what_was_learnt_from_and_models_that_defer_are_refused():
    model, held_out, _, _ = case(0, 0)
    more = model.extend(held_out)
    with pytest.raises(LearntError):
        residual_bound(more, held_out, STATES)
    with pytest.raises(ValueError, match="this one defers"):
        residual_bound(model.deferring(), held_out, STATES)


def test_starts_are_the_first_states_of_the_held_out_episodes():
    model, held_out, _, _ = case(1, 0)
    first = held_out.states[::10]
    assert residual_bound(model, held_out).promised == pytest.approx(model.values(first).mean())
