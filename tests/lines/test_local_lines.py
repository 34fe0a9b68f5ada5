"""Lines around representative states: exact for linear dynamics, least squares with noise, order 0 at last."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbrl import Transitions
from kbrl.data.scaling import Coordinates
from kbrl.lines.local_lines import local_lines
from kbrl.lines.moments import LineSums
from kbrl.model.kernels import Basis, Kernel
from naive_lines import line_at
from samples import random_log


def linear_log(n=400, n_dims=3, n_actions=2, seed=0, offset=0.0):
    """Return a log of linear dynamics, and the lines: s' - s and the reward as functions of s, one per action."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n_actions, n_dims + 1, 1 + n_dims))
    states = rng.normal(size=(n, n_dims)) + offset
    actions = rng.integers(n_actions, size=n)
    moved = np.einsum("nij,nj->ni", truth[actions][:, :, 1:], states) + truth[actions][:, :, 0]
    log = Transitions(states, actions, moved[:, -1], states + moved[:, :-1], action_labels=np.arange(n_actions))
    return log, truth


def lines_of(log, n_reps=20, seed=0, **more):
    rng = np.random.default_rng(seed)
    reps = log.states[rng.permutation(len(log))[:n_reps]]
    basis = Basis(reps, Coordinates.plain(log.n_dims), Kernel(), Kernel(), log.n_actions)
    return local_lines(LineSums(basis).accumulate(log), **more)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4]), st.sampled_from([1, 7, 30]))
@example(4872, 2, 7)  # one representative state far from the others, with too few cases of one action
def test_linear_dynamics_are_learnt_exactly(seed, n_dims, n_reps):
    log, truth = linear_log(300, n_dims=n_dims, seed=seed)
    found = lines_of(log, n_reps, seed)
    enough = has_enough_cases(log, found.reps)
    assert enough.mean() > 0.8
    at_reps = np.einsum("atj,ij->ait", truth[:, :, 1:], found.reps) + truth[:, None, :, 0]
    moves, rewards = found.lines[:, :, :n_dims], found.lines[:, :, n_dims]
    for lines, value, slope in (
        (moves, at_reps[..., :n_dims], truth[:, None, :n_dims, 1:]),
        (rewards[:, :, None], at_reps[..., n_dims:], truth[:, None, n_dims:, 1:]),
    ):
        slopes = np.broadcast_to(slope, lines[..., 1:].shape)
        np.testing.assert_allclose(lines[..., 0][enough], value[enough], atol=1e-9)
        np.testing.assert_allclose(lines[..., 1:][enough], slopes[enough], atol=1e-8)


def has_enough_cases(log, reps):
    """Return where the cases of an action, as they are weighted, outnumber the numbers of a line: else it is flat."""
    enough = np.zeros((log.n_actions, len(reps)), dtype=bool)
    for action, rows in enumerate(log.by_action()):
        part = (log.states[rows], log.next_states[rows], log.rewards[rows], log.terminals[rows])
        for rep in range(len(reps)):
            line = line_at(rep, reps, part, n_cases=10 * (1 + log.n_dims))
            enough[action, rep] = line is not None and line["weights"].sum() > log.n_dims + 1
    return enough


def test_lines_are_weighted_least_squares_where_the_ridge_is_0():
    log = random_log(300, n_dims=2, seed=1, ending=0.2)
    found = lines_of(log, n_reps=12, ridge=0.0, n_cases=40)
    for action, rows in enumerate(log.by_action()):
        part = (log.states[rows], log.next_states[rows], log.rewards[rows], log.terminals[rows])
        for rep in range(12):
            expected = line_at(rep, found.reps, part, n_cases=40)
            np.testing.assert_allclose(found.lines[action, rep, :2], expected["move"], atol=1e-8)
            np.testing.assert_allclose(found.lines[action, rep, 2:], expected["outcome"], atol=1e-8)
            low, high = found.limits[action, rep, :2]
            assert (low, high) == (expected["rewards"].min(), expected["rewards"].max())
            weights = expected["weights"]
            assert found.cases[action, rep] == pytest.approx(weights.sum() ** 2 / (weights**2).sum())


def test_an_infinite_ridge_is_order_0():
    log = random_log(200, seed=2)
    found = lines_of(log, n_reps=6, ridge=np.inf, n_cases=10_000)  # all cells are pooled
    assert (found.lines[..., 1:] == 0).all()
    assert found.lines.shape == (2, 6, 4, 3)


def test_too_few_cases_leave_the_average():
    log = Transitions([[0.0], [1.0]], ["a", "a"], [1.0, 3.0], [[0.5], [2.0]])
    found = lines_of(log, n_reps=1, n_cases=100)
    np.testing.assert_array_equal(found.lines[0, 0, :, 1], 0.0)
    np.testing.assert_allclose(found.lines[0, 0, :, 0], [0.75, 2.0, 0.0])


def test_the_ridge_shrinks_slopes_that_are_noise():
    rng = np.random.default_rng(3)
    states = rng.normal(size=(400, 3))
    noise = rng.normal(size=400)
    log = Transitions(states, np.zeros(400, dtype=int), noise, states)
    shrunk = lines_of(log, n_reps=8).lines[0, :, 3, 1:]
    plain = lines_of(log, n_reps=8, ridge=0.0).lines[0, :, 3, 1:]
    assert np.abs(shrunk).sum() < 0.75 * np.abs(plain).sum()


def test_a_shift_and_a_rescaling_of_the_data_change_nothing():
    log, _ = linear_log(300, seed=4)
    moved = Transitions(
        log.states * 8.0 + 1024.0, log.action_indices, log.rewards, log.next_states * 8.0 + 1024.0, action_labels=[0, 1]
    )
    plain = lines_of(log)
    units = Coordinates(np.full(3, 1024.0), np.full(3, 8.0))
    basis = Basis(plain.reps, units, Kernel(), Kernel(), 2)
    again = local_lines(LineSums(basis).accumulate(moved))
    np.testing.assert_allclose(again.lines, plain.lines, atol=1e-9)


def test_an_action_that_was_never_taken_nearby_is_not_known():
    states = np.linspace(0, 1, 200)[:, None]
    log = Transitions(states, np.zeros(200, dtype=int), np.zeros(200), states, action_labels=[0, 1])
    found = lines_of(log, n_reps=10)
    assert found.known[0].all()
    assert not found.known[1].any()


def test_what_the_lines_leave_unexplained_is_the_noise_of_the_step():
    rng = np.random.default_rng(5)
    states = rng.uniform(-1, 1, size=(4000, 2))
    covariance = np.array([[0.04, 0.01], [0.01, 0.02]])
    noise = rng.multivariate_normal([0, 0], covariance, size=4000)
    log = Transitions(states, np.zeros(4000, dtype=int), np.zeros(4000), 0.5 * states + noise)
    found = lines_of(log, n_reps=3, n_cases=4000)
    np.testing.assert_allclose(found.noise[0].mean(axis=0), covariance, atol=0.003)
