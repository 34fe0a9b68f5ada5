"""Kernels against the paper's formulas, and their behaviour at the ends of the scale."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

import naive
from kbrl import Kernel
from kbrl.model import compiled
from kbrl.model.compiled import exp_of_nonpositive
from kbrl.model.kernels import log_ratio, normalized
from samples import SCALES, WIDTHS

PROFILES = {"exponential": naive.exponential, "gaussian": naive.gaussian, "uniform": naive.uniform}
NORMS = [1, 1.5, 2, 3, 16, math.inf]


def points(n, d, seed=0):
    return np.random.default_rng(seed).random((n, d))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 5, 16, 33])
def test_compiled_weights_are_the_papers(profile, d, n):
    states, centres = points(7, d), points(n, d, seed=1)
    expected = [naive.kappa(s, centres.tolist(), 0.3, PROFILES[profile]) for s in states.tolist()]
    np.testing.assert_allclose(Kernel(0.3, profile).weights(states, centres), expected, rtol=1e-12)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("neighbors", [1, 3, 10, 99])
def test_truncated_weights_are_the_papers(profile, neighbors):
    states, centres = points(7, 2), points(10, 2, seed=1)
    expected = [naive.kappa(s, centres.tolist(), 0.3, PROFILES[profile], neighbors) for s in states.tolist()]
    weights = Kernel(0.3, profile, neighbors).weights(states, centres)
    np.testing.assert_allclose(weights.toarray(), expected, rtol=1e-12)


def test_a_function_of_the_users_gives_what_the_built_in_profile_gives():
    states, centres = points(7, 3), points(9, 3, seed=1)
    own = Kernel(0.3, lambda z: np.exp(-z)).weights(states, centres)
    np.testing.assert_allclose(own, Kernel(0.3).weights(states, centres), rtol=1e-12)


def test_a_profile_of_finite_support_falls_back_on_the_nearest_point():
    kernel = Kernel(0.1, lambda z: np.maximum(1 - z, 0))
    np.testing.assert_array_equal(kernel.weights(np.array([[10.0]]), np.array([[0.0], [1.0]])), [[0, 1]])


def test_one_width_a_point_gives_what_the_formula_says():
    states, centres, widths = points(6, 2), points(4, 2, seed=1), np.array([0.1, 0.5, 1.0, 3.0])
    for row, state in zip(Kernel(widths).weights(states, centres), states):
        values = [math.exp(-naive.distance(state, c) / w) for c, w in zip(centres, widths)]
        np.testing.assert_allclose(row, np.array(values) / sum(values), rtol=1e-12)


@settings(max_examples=150, deadline=None)
@given(
    width=WIDTHS,
    scale=SCALES,
    profile=st.sampled_from([*PROFILES]),
    neighbors=st.sampled_from([None, 1, 3]),
    n=st.integers(1, 20),
    d=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 1000),
)
def test_rows_are_distributions_whatever_the_width_and_the_distance(width, scale, profile, neighbors, n, d, seed):
    weights = Kernel(width, profile, neighbors).weights(points(5, d, seed) * scale, points(n, d, seed + 1) * scale)
    weights = weights.toarray() if neighbors else weights
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(width=WIDTHS, profile=st.sampled_from([*PROFILES]), seed=st.integers(0, 1000))
def test_compiled_and_numpy_weights_agree(width, profile, seed):
    states, centres = points(6, 3, seed), points(21, 3, seed + 1)
    z = np.sqrt(((states[:, None] - centres) ** 2).sum(axis=2)) / width
    np.testing.assert_allclose(Kernel(width, profile).weights(states, centres), normalized(z, profile), atol=1e-11)


def test_a_tiny_width_gives_all_weight_to_the_nearest_point():
    states, centres = points(20, 2), points(9, 2, seed=1)
    nearest = np.argmin(((states[:, None] - centres) ** 2).sum(axis=2), axis=1)
    np.testing.assert_allclose(Kernel(1e-300).weights(states, centres), np.eye(9)[nearest], atol=1e-300)


def test_a_huge_width_gives_all_points_the_same_weight():
    np.testing.assert_allclose(Kernel(1e300).weights(points(3, 2), points(8, 2, seed=1)), 1 / 8)


def test_the_compiled_exponential_is_as_good_as_the_librarys():
    @njit
    def fill(x, out):
        for i in range(len(x)):
            out[i] = exp_of_nonpositive(x[i])

    x = np.concatenate([-np.random.default_rng(0).exponential(50, 20000), [0.0, -1e-300, -0.34657359, -707.0]])
    x = np.maximum(x, -707.0)
    out = np.empty_like(x)
    fill(x, out)
    np.testing.assert_allclose(out, [math.exp(v) for v in x], rtol=4.5e-16)


@given(z=st.floats(0, 1e8), gap=st.floats(0, 30))
def test_log_ratio_is_the_difference_of_the_logs(z, gap):
    farther = np.array([z + gap])
    np.testing.assert_allclose(log_ratio(farther, np.array([z]), "exponential"), [-(farther[0] - z)], atol=1e-300)
    exact = -(farther[0] - z) * (farther[0] + z) / 2
    np.testing.assert_allclose(log_ratio(farther, np.array([z]), "gaussian"), [exact], rtol=1e-12, atol=1e-300)


def weights_of(kernel, states, centres):
    weights = kernel.weights(states, centres)
    return weights if kernel.neighbors is None else weights.toarray()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("neighbors", [1, 2, 5, 99])
def test_a_truncated_kernel_keeps_its_largest_values_where_widths_differ(profile, neighbors, norm):
    states, centres = points(25, 2), points(12, 2, seed=1)
    widths = np.random.default_rng(2).uniform(0.05, 2.0, size=12)
    expected = [
        naive.kappa(s, centres.tolist(), widths.tolist(), PROFILES[profile], neighbors, norm) for s in states.tolist()
    ]
    kernel = Kernel(widths, profile, neighbors, norm)
    np.testing.assert_allclose(weights_of(kernel, states, centres), expected, rtol=1e-9, atol=1e-15)


def test_the_largest_values_need_not_be_the_nearest_points():
    """By hand: the point at distance 1 has the value exp(-10), that at distance 2 exp(-1)."""
    kernel = Kernel([0.1, 2.0], neighbors=1)
    np.testing.assert_array_equal(kernel.weights(np.zeros((1, 1)), np.array([[1.0], [2.0]])).toarray(), [[0, 1]])


def test_states_asked_one_at_a_time_get_the_weights_they_get_together():
    centres, rng = points(40, 3, seed=1), np.random.default_rng(0)
    for norm in NORMS:
        at = Kernel(rng.choice([0.25, 0.5, 1.0], size=40), neighbors=4, norm=norm).at(np.round(4 * centres))
        states = np.round(4 * points(200, 3))  # on a lattice: many points are equally many widths away
        alone = np.concatenate([at.weights(state[None]).toarray() for state in states])
        np.testing.assert_array_equal(at.weights(states).toarray(), alone)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("neighbors", [1, 2, 5, 11])
def test_of_points_that_are_equally_near_the_first_ones_count(neighbors, norm):
    rng = np.random.default_rng(0)
    lattice = np.array([[x, y, z] for x in range(4) for y in range(4) for z in range(3)]) / 3.0
    centres, states = rng.permutation(lattice)[:30], lattice
    kept = weights_of(Kernel(1.0, "gaussian", neighbors, norm), states, centres) > 0
    for state, row in zip(states, kept):
        distances = [round(naive.distance(state, centre, norm), 9) for centre in centres]
        assert np.flatnonzero(row).tolist() == sorted(sorted(range(30), key=lambda i: (distances[i], i))[:neighbors])


def test_equal_widths_given_one_per_point_are_one_width():
    states, centres = points(30, 2), points(9, 2, seed=1)
    one, many = Kernel(0.3, neighbors=3), Kernel(np.full(9, 0.3), neighbors=3)
    np.testing.assert_array_equal(weights_of(one, states, centres), weights_of(many, states, centres))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("neighbors", [None, 3])
def test_distances_are_by_any_minkowski_norm(profile, neighbors, norm):
    states, centres = points(9, 3), points(11, 3, seed=1)
    expected = [naive.kappa(s, centres.tolist(), 0.4, PROFILES[profile], neighbors, norm) for s in states.tolist()]
    weights = weights_of(Kernel(0.4, profile, neighbors, norm), states, centres)
    np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("norm", NORMS)
def test_the_nearest_point_is_the_nearest_by_the_norm_whatever_the_widths(norm):
    states, centres = points(50, 3), points(20, 3, seed=1)
    at = Kernel(np.random.default_rng(0).uniform(0.1, 3, 20), norm=norm).at(centres)
    nearest = [min(range(20), key=lambda i: naive.distance(s, centres[i], norm)) for s in states]
    assert at.nearest(states).tolist() == nearest


def test_distances_that_overflow_are_refused_and_not_taken_for_equal():
    far, centres = np.array([[1e40, 0.0]]), points(5, 2)
    for neighbors in (None, 2):
        kernel = Kernel(1.0, neighbors=neighbors, norm=10)
        with pytest.raises(ValueError, match=r"so far apart that their distances overflow with norm=10\. Use scaling"):
            kernel.weights(far, centres)


@pytest.mark.parametrize("neighbors", [None, 2])
def test_a_uniform_kernel_counts_all_points_within_its_width_alike_and_else_the_nearest(neighbors):
    kernel = Kernel(1.0, "uniform", neighbors)
    centres = np.array([[0.0], [1.0], [2.5], [4.0]])
    # 0 has the point at 1 just within its reach, 1.7 has two, 6 has none
    expected = [[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1]]
    weights = weights_of(kernel, np.array([[0.0], [1.7], [6.0]]), centres)
    np.testing.assert_array_equal(weights, expected)
    assert kernel.reach(0.5) == pytest.approx(1.0, rel=1e-11)


def test_rounding_does_not_decide_what_is_within_the_radius():
    lattice = np.arange(12)[:, None] * 0.1
    for neighbors in (None, 12):
        within = np.abs(np.arange(12)[:, None] - np.arange(12)) <= 3
        weights = weights_of(Kernel(0.3, "uniform", neighbors), lattice, lattice)
        np.testing.assert_array_equal(weights > 0, within)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("neighbors", [None, 3])
def test_weights_of_very_many_variables_are_the_papers(profile, neighbors):
    for d in (32, 33, 34, 35, 100):
        states, centres = points(4, d), points(9, d, seed=1)
        expected = [naive.kappa(s, centres.tolist(), 2.0, PROFILES[profile], neighbors) for s in states.tolist()]
        found = weights_of(Kernel(2.0, profile, neighbors), states, centres)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-300)


def test_all_numbers_of_variables_share_one_compiled_loop():
    """Code for each number of variables took seconds to compile, and 43 s where there were 1000."""
    weights_of(Kernel(2.0), points(2, 3), points(3, 3))
    compiled_for = list(compiled.normalize_rows.signatures)
    for d in (1, 7, 1000):
        weights_of(Kernel(2.0), points(2, d), points(3, d))
    assert compiled.normalize_rows.signatures == compiled_for
