"""What people did, as lines: against a regression over all rows, and where it is known by construction."""

import numpy as np
import pytest

from kbrl import Transitions
from kbrl.data.scaling import Coordinates
from kbrl.lines.behaviour import reach_of_cells
from kbrl.lines.local_lines import local_lines
from kbrl.lines.moments import LineSums
from kbrl.model.kernels import Basis, Kernel
from samples import random_log


def sums_of(log, reps):
    basis = Basis(np.asarray(reps, float), Coordinates.plain(log.n_dims), Kernel(), Kernel(), log.n_actions)
    return LineSums(basis).accumulate(log)


def log_of(actions, states):
    return Transitions(states, actions, np.zeros(len(actions)), states, action_labels=[0, 1])


def test_shares_are_those_of_a_ridge_regression_over_all_rows():
    log = random_log(400, n_dims=2, n_actions=3, seed=1)
    reps = log.states[:1]
    found = local_lines(sums_of(log, reps), n_cases=1).behaviour
    x = log.states - reps[0]
    centred, size = x - x.mean(axis=0), len(x)
    for action in range(3):
        taken = (log.action_indices == action).astype(float)
        cov, mixed = centred.T @ centred / size, centred.T @ (taken - taken.mean()) / size
        plain = np.linalg.solve(cov, mixed)
        noise = taken.var() - plain @ mixed
        ridge = 2 * noise / ((size - 3) * plain @ plain)
        slopes = np.linalg.solve(cov + ridge * np.eye(2), mixed)
        np.testing.assert_allclose(found[action, 0, 1:], slopes, rtol=1e-8)
        assert found[action, 0, 0] == pytest.approx(taken.mean() - slopes @ x.mean(axis=0), rel=1e-10)


def test_the_shares_of_all_actions_sum_to_one_at_the_representative_states():
    log = random_log(500, n_dims=2, n_actions=3, seed=2)
    found = local_lines(sums_of(log, log.states[:40])).behaviour
    np.testing.assert_allclose(found[:, :, 0].sum(axis=0), 1.0, atol=0.05)  # each action has a ridge of its own


def test_lines_find_where_people_change_their_minds_inside_a_cell():
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, size=(4000, 1))
    log = log_of((rng.uniform(-1, 1, 4000) < states[:, 0]).astype(int), states)
    found = local_lines(sums_of(log, [[-0.5], [0.5]]), n_cases=4000).behaviour
    np.testing.assert_allclose(found[1, :, 1], 0.5, atol=0.05)  # the share of action 1 is (1 + x) / 2
    np.testing.assert_allclose(found[1, :, 0], [0.25, 0.75], atol=0.05)


def test_the_reach_is_the_typical_distance_in_the_widest_cells_that_count():
    near, far = np.full((990, 1), 0.1), np.full((10, 1), 5.5)
    sums = sums_of(log_of(np.zeros(1000, dtype=int), np.concatenate([near, far])), [[0.0], [5.0]])
    assert reach_of_cells(sums) == pytest.approx(0.1)
    more = sums_of(log_of(np.zeros(1010, dtype=int), np.concatenate([near, far, far])), [[0.0], [5.0]])
    assert reach_of_cells(more) == pytest.approx(0.5)
