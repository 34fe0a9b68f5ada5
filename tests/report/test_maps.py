"""Maps show what is known and leave empty what is not."""

from dataclasses import replace

import numpy as np

from kbrl import KBSF
from kbrl.report.maps import GROUPS, influences, maps_of
from kbrl.report.recommendations import answers
from samples import random_log


def drawn(log, n_reps=20):
    model = KBSF(n_reps, sample_width=0.3, rep_width=0.3, random_state=0).fit(log)
    found = answers(model, log.states)
    return model, found, list(maps_of(model, log.states, found, influences(log.states, found.q)))


def test_a_variable_that_decides_everything_has_all_influence_and_one_that_does_not_matter_none():
    rng = np.random.default_rng(0)
    states = rng.random((20_000, 2))
    groups = np.searchsorted(np.quantile(states[:, 0], np.arange(1, 10) / 10), states[:, 0])
    q = np.stack([groups, -2.0 * groups], axis=1).astype(float)  # constant within the groups
    decides, does_not = influences(states, q)
    assert decides == 1.0
    assert does_not < 0.01


def test_an_action_that_is_unknown_somewhere_does_not_count_for_influence():
    rng = np.random.default_rng(0)
    states = rng.random((1000, 1))
    q = np.stack([states[:, 0], np.where(states[:, 0] > 0.5, -np.inf, rng.random(1000))], axis=1)
    np.testing.assert_allclose(influences(states, q), influences(states, q[:, :1]))


def test_of_more_than_two_variables_a_point_shows_the_logged_states_around_it():
    log = random_log(400, n_dims=3, n_actions=3, seed=4)
    _, found, maps = drawn(log)
    assert len(maps) == 3
    assert len({drawn.variables for drawn in maps}) == 3
    for shown in maps:
        places = [
            np.clip(np.searchsorted(edges, log.states[:, k], "right") - 1, 0, len(edges) - 2)
            for k, edges in zip(shown.variables, (shown.x_edges, shown.y_edges))
        ]
        sizes = [edges[1] - edges[0] for edges in (shown.x_edges, shown.y_edges)]
        sigmas = [  # Scott's rule, within one and six cells
            min(6.0, max(1.0, log.states[:, k].std() * 400 ** (-1 / 6) / size))
            for k, size in zip(shown.variables, sizes)
        ]
        for row, column in [(10, 20), (36, 36), (60, 5), (0, 0), (71, 71)]:
            gaps = [place - at for place, at in zip(places, (column, row))]  # in cells: states count by their cells
            weights = np.exp(-0.5 * sum((gap / sigma) ** 2 for gap, sigma in zip(gaps, sigmas)))
            weights *= np.all([np.abs(gap) <= int(4 * sigma + 0.5) for gap, sigma in zip(gaps, sigmas)], axis=0)
            value = (weights @ found.values) / weights.sum()
            assert shown.actions[row, column] >= 0
            assert np.isclose(shown.values[row, column], value, rtol=1e-9)
            votes = np.array([weights[found.best == action].sum() for action in range(3)])
            assert votes[shown.actions[row, column]] >= votes.max() - 1e-9


def test_a_map_is_empty_without_states_hatched_with_few_and_never_confetti():
    rng = np.random.default_rng(0)
    log = random_log(2000, n_dims=3, n_actions=2, seed=4)
    states = log.states.copy()
    states[:, :2] = rng.normal(0.3, 0.1, (2000, 2))
    states[:3, :2] = 0.95  # three states by themselves
    log = log.replaced(states=states)
    model, found, _ = drawn(log)
    noisy = replace(found, best=rng.integers(2, size=2000), is_weak=np.zeros(2000, dtype=bool))
    (shown,) = [
        each for each in maps_of(model, states, noisy, np.array([1.0, 0.9, 0.0])) if set(each.variables) == {0, 1}
    ]
    known = shown.actions >= 0
    x, y = (np.searchsorted(edges, [0.3, 0.95, 0.65]) - 1 for edges in (shown.x_edges, shown.y_edges))
    assert known[y[0], x[0]]
    assert not shown.is_weak[y[0], x[0]]
    assert known[y[1], x[1]]
    assert shown.is_weak[y[1], x[1]]  # fewer than five are around
    assert not known[y[2], x[2]]
    changes = (shown.actions[:, 1:] != shown.actions[:, :-1]) & known[:, 1:] & known[:, :-1]
    assert changes.sum() < 0.12 * known.sum()  # coin flips in each cell would change at half of all borders


def test_of_two_variables_the_model_is_asked_where_logged_states_are_near():
    log = random_log(300, n_dims=2, seed=5)
    corner = log.replaced(states=np.where(log.states.sum(axis=1, keepdims=True) > 1, 0.2 * log.states, log.states))
    model, _, (shown,) = drawn(corner)
    x, y = (0.5 * (edges[1:] + edges[:-1]) for edges in (shown.x_edges, shown.y_edges))
    grid = np.stack(np.meshgrid(x, y), axis=-1)
    known = shown.actions >= 0
    np.testing.assert_allclose(shown.values[known], model.values(grid[known]))
    same = model.action_labels_[shown.actions[known]] == model.predict(grid[known])
    assert same.mean() > 0.9  # but for the smoothing of borders and specks
    assert np.isnan(shown.values[~known]).all()
    assert not known[-1, -1]  # the corner beyond the diagonal was never visited
    n_cells = (len(shown.x_edges) - 1) // 4
    reach = 2 * np.array([np.ptp(shown.x_edges), np.ptp(shown.y_edges)]) / n_cells
    for point in grid[known]:  # in the cell or in one next to it: less than two cells away in either direction
        assert (np.abs(corner.states - point) < reach).all(axis=1).any()


def test_variables_of_few_values_have_a_cell_for_each():
    log = random_log(300, n_dims=2, seed=6, levels=3)
    _, _, (shown,) = drawn(log, 5)
    np.testing.assert_allclose(shown.x_edges, [-0.5, 0.5, 1.5, 2.5])
    assert shown.values.shape == (3, 3)


def test_one_variable_gives_a_curve_for_each_action_with_gaps_where_there_are_no_data():
    log = random_log(300, n_dims=1, n_actions=2, seed=7)
    gap = log.replaced(states=np.where(np.abs(log.states - 0.5) < 0.2, 0.1, log.states))
    model, _, (shown,) = drawn(gap)
    middles = 0.5 * (shown.x_edges[1:] + shown.x_edges[:-1])
    known = ~np.isnan(shown.q[:, 0])
    np.testing.assert_allclose(shown.q[known], model.q_values(middles[known, None]))
    assert not known[np.abs(middles - 0.5) < 0.1].any()
    assert known[middles < 0.25].all()


def test_a_variable_that_repeats_another_gives_way_to_one_with_less_influence():
    log = random_log(500, n_dims=4, seed=8)
    states = log.states.copy()
    states[:, 1] = 2 * states[:, 0] + 1
    found = answers(KBSF(20, random_state=0).fit(log.replaced(states=states)), states)
    maps = list(maps_of(None, states, found, np.array([0.9, 0.8, 0.2, 0.1])))
    assert [shown.variables for shown in maps] == [(0, 2), (0, 3), (2, 3)]


def test_outliers_do_not_squeeze_all_others_into_one_cell():
    log = random_log(1000, n_dims=3, seed=9)
    states = log.states.copy()
    states[:3, 0] = 1e6
    _, _, maps = drawn(log.replaced(states=states))
    cut = [shown for shown in maps if 0 in shown.variables]
    assert cut
    assert all(shown.is_cut for shown in cut)
    edges = [shown.x_edges if shown.variables[0] == 0 else shown.y_edges for shown in cut]
    assert all(edge[-1] <= 1 for edge in edges)


def test_of_few_states_no_influence_is_told():
    states, q = np.random.default_rng(0).normal(size=(2 * GROUPS - 1, 2)), np.arange(2.0 * GROUPS - 1)[:, None]
    assert np.isnan(influences(states, q)).all()
    np.testing.assert_array_equal(influences(states, np.ones_like(q)), 0.0)
