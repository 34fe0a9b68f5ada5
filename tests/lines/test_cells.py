"""Which representative state is nearest: against all distances, where single precision cannot tell, or overflows."""

import numpy as np
import pytest

from kbrl.lines.cells import nearest_cells


def slow_cells(states, points):
    return np.array([np.square(state - points).sum(axis=1).argmin() for state in states])


def cells(states, points):
    return nearest_cells(np.ascontiguousarray(states), np.ascontiguousarray(points.T))


def test_the_nearest_cell_of_equally_near_ones_is_the_first():
    points = np.array([[0.0], [2.0], [0.0]])
    assert cells(np.array([[1.0], [0.0], [2.0]]), points).tolist() == [0, 0, 1]


@pytest.mark.parametrize("n_points", [1, 15, 16, 17, 100])
def test_nearest_cells_are_those_of_all_distances(n_points):
    rng = np.random.default_rng(n_points)
    states, points = rng.integers(0, 4, (200, 3)).astype(float), rng.integers(0, 4, (n_points, 3)).astype(float)
    # whole numbers, with many equals: the first counts
    np.testing.assert_array_equal(cells(states, points), slow_cells(states, points))


@pytest.mark.parametrize("n_dims", [1, 2, 5, 40])
@pytest.mark.parametrize("exponent", [-500, -100, -63, 0, 40, 53, 490])
def test_nearest_cells_do_not_depend_on_the_scale(n_dims, exponent):
    rng = np.random.default_rng(n_dims)
    states, points = (rng.integers(-50, 51, (size, n_dims)).astype(float) for size in (100, 60))
    scale = 2.0**exponent  # which changes no digit
    np.testing.assert_array_equal(cells(scale * states, scale * points), slow_cells(states, points))


@pytest.mark.parametrize("n_dims", [1, 2, 7])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e9])
@pytest.mark.parametrize("gap", [1e-3, 1e-7])
def test_points_that_single_precision_cannot_tell_apart_are_told_apart(n_dims, offset, gap):
    rng = np.random.default_rng(7)
    middle = offset + rng.normal(size=(4, n_dims))
    points = np.concatenate([middle + gap * rng.normal(size=middle.shape) for _ in range(20)])
    states = np.concatenate([middle + gap * rng.normal(size=middle.shape) for _ in range(30)])
    np.testing.assert_array_equal(cells(states, points), slow_cells(states, points))


def test_a_cell_does_not_depend_on_the_other_states():
    rng = np.random.default_rng(8)
    states, points = rng.normal(size=(50, 3)), rng.normal(size=(33, 3))
    each = [int(cells(state[None], points)[0]) for state in states]
    assert cells(states, points).tolist() == each
