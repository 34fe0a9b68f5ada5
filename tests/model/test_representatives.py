import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl.checks import KbrlWarning
from kbrl.model import representatives
from kbrl.model.representatives import (
    WAYS,
    choose,
    cover,
    distinct_rows,
    farthest_points,
    grid,
    k_means,
    nearest_distances,
    random_points,
)

BY_NUMBER = ("k-means", "random", "farthest", "mixture")


@st.composite
def point_sets(draw, max_points=60, max_dims=4):
    """Points of all sizes, with and without ties, on scales from tiny to huge."""
    n, d = draw(st.integers(1, max_points)), draw(st.integers(1, max_dims))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    levels = draw(st.sampled_from([None, None, 1, 2, 3]))
    points = rng.normal(size=(n, d)) if levels is None else rng.integers(levels, size=(n, d)) - 1.0
    return points * draw(st.sampled_from([1e-100, 1.0, 1e100])) + draw(st.sampled_from([0.0, 0.1, -1e6]))


def generator(seed=0):
    return np.random.default_rng(seed)


def quietly(points, how, n_reps, seed=0, cover_distance=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        return choose(points, how, n_reps, generator(seed), cover_distance=cover_distance)


def distinct(points):
    return {tuple(row) for row in points.tolist()}


def distance(a, b):
    return math.dist(a.tolist(), b.tolist())


def mean_square(points, reps):
    return sum(min(distance(p, r) for r in reps) ** 2 for p in points) / len(points)


def radius(points, reps):
    return max(min(distance(p, r) for r in reps) for p in points)


def naive_lloyd(points, centres):
    """Lloyd steps as the textbook has them, without the care for empty clusters."""
    before = math.inf
    for _ in range(8):
        nearest = [min(range(len(centres)), key=lambda j: distance(p, centres[j])) for p in points]
        if mean_square(points, centres) >= 0.995 * before:
            break
        before = mean_square(points, centres)
        clusters = [[p for p, j in zip(points, nearest) if j == k] for k in range(len(centres))]
        centres = [sum(cluster) / len(cluster) for cluster in clusters]
    return np.array(centres)


def naive_farthest(points, first, n_reps):
    reps, nearest = [first], [distance(p, first) for p in points]
    while len(reps) < n_reps:
        reps.append(points[np.argmax(nearest)])
        nearest = [min(near, distance(p, reps[-1])) for p, near in zip(points, nearest)]
    return np.array(reps)


def naive_cover(points, threshold, start=()):
    reps = list(start)
    for p in points:
        if all(distance(p, r) > threshold for r in reps):
            reps.append(p)
    return np.array(reps)


# --- whatever the way -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WAYS)
@given(points=point_sets(), n_reps=st.integers(1, 70), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_representative_states_are_distinct_and_inside_of_the_bounding_box(how, points, n_reps, seed):
    width = float(np.ptp(points)) / 3 or 1.0
    reps = quietly(points, how, n_reps, seed, cover_distance=width)
    assert reps.ndim == 2
    assert reps.shape[1] == points.shape[1]
    assert 1 <= len(reps) <= n_reps
    assert reps.dtype == np.float64
    assert reps.flags.c_contiguous
    assert np.isfinite(reps).all()
    assert len(distinct(reps)) == len(reps)
    assert (reps >= points.min(axis=0)).all()
    assert (reps <= points.max(axis=0)).all()


@pytest.mark.parametrize("how", BY_NUMBER)
@given(points=point_sets(), n_reps=st.integers(1, 70))
@settings(max_examples=60, deadline=None)
def test_there_are_as_many_as_asked_for_or_all_distinct_points(how, points, n_reps):
    reps = quietly(points, how, n_reps)
    assert len(reps) == min(n_reps, len(distinct(points)))
    if len(reps) == len(distinct(points)) or how not in ("k-means", "mixture"):
        assert distinct(reps) <= distinct(points)


@pytest.mark.parametrize("way", [k_means, random_points, farthest_points])
@given(points=point_sets(), n_reps=st.integers(1, 70))
@settings(max_examples=30, deadline=None)
def test_each_way_alone_copes_with_fewer_points_than_asked_for(way, points, n_reps):
    reps = way(points, n_reps, generator())
    assert len(reps) == len(distinct(reps)) == min(n_reps, len(distinct(points)))


@pytest.mark.parametrize("how", WAYS)
def test_the_same_seed_gives_the_same_representative_states(how):
    points = generator(1).normal(size=(500, 3))
    first, second = (quietly(points, how, 27, seed=5, cover_distance=1.0) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("how", BY_NUMBER)
def test_another_seed_gives_other_representative_states(how):
    points = generator(1).normal(size=(500, 3))
    assert distinct(quietly(points, how, 20, seed=5)) != distinct(quietly(points, how, 20, seed=6))


@pytest.mark.parametrize("how", WAYS)
def test_read_only_points_in_any_memory_order_give_the_same(how):
    points = generator(1).normal(size=(100, 3))
    other = np.asfortranarray(points)
    other.setflags(write=False)
    np.testing.assert_array_equal(quietly(points, how, 8, 0, 1.0), quietly(other, how, 8, 0, 1.0))


@pytest.mark.parametrize("how", BY_NUMBER)
def test_points_too_close_for_their_squared_distances_still_give_as_many_as_asked_for(how):
    points = np.array([[0.0], [1e-200], [2e-200], [3e-200], [1.0]])
    assert len(quietly(points, how, 4)) == 4


# --- k-means ----------------------------------------------------------------------------------------------------------


@given(points=point_sets(), n_reps=st.integers(1, 20), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_lloyd_steps_never_increase_the_mean_squared_distance(points, n_reps, seed):
    start = random_points(points, n_reps, generator(seed))
    assert mean_square(points, representatives._lloyd(points, start)) <= mean_square(points, start) * (1 + 1e-9)


@pytest.mark.parametrize("n_dims", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_lloyd_steps_agree_with_their_slow_twin(n_dims, seed):
    points = generator(seed).normal(size=(80, n_dims))
    start = points[:6]
    np.testing.assert_allclose(representatives._lloyd(points, start), naive_lloyd(points, start), atol=1e-12)


def test_a_centre_that_loses_all_its_points_goes_to_the_point_farthest_from_its_own():
    points = np.array([[0.0], [1.0], [2.0], [9.0]])
    start = np.array([[1.0], [50.0]])  # nobody is nearest to 50; 9 is farthest from 1
    np.testing.assert_allclose(representatives._lloyd(points, start), [[1.0], [9.0]])


@pytest.mark.parametrize("seed", range(10))
def test_k_means_finds_obvious_clusters(seed):
    rng = generator(seed)
    corners = 1000.0 * np.array(list(itertools.product([0, 1, 2], [0, 1, 2])))
    points = np.repeat(corners, 40, axis=0) + rng.uniform(-1, 1, size=(360, 2))
    centres = k_means(rng.permutation(points), 9, rng)
    means = points.reshape(9, 40, 2).mean(axis=1)
    np.testing.assert_allclose(centres[np.lexsort(centres.round(-1).T[::-1])], means, rtol=1e-12, atol=1e-9)


def test_one_centre_is_the_mean():
    points = generator().normal(size=(40, 3))
    np.testing.assert_allclose(k_means(points, 1, generator()), points.mean(axis=0, keepdims=True), atol=1e-14)


def test_k_means_on_a_sample_is_nearly_as_good_as_the_optimum_of_the_line():
    points = generator().random((50_000, 1))
    reps = k_means(points, 4, generator())  # the sample has 200 points
    optimum = (1 / 4) ** 2 / 12  # of the uniform distribution: four intervals of equal length
    assert np.mean(nearest_distances(points, reps) ** 2) <= 1.2 * optimum


def test_k_means_finds_rare_values_that_its_sample_misses():
    points = np.zeros((10_000, 2))
    points[::2000, 0] = np.arange(5)
    points[7_001, 1] = 1.0
    assert distinct(k_means(points, 6, generator())) == distinct(points)


def test_the_start_of_k_means_has_the_distribution_of_k_means_plus_plus():
    points = np.array([[0.0], [1.0], [3.0], [3.5]])
    left_out = np.zeros(4)  # the probability that three draws leave out each of the four points
    for i, j, k in itertools.permutations(range(4), 3):
        one = (points[:, 0] - points[i, 0]) ** 2
        two = np.minimum(one, (points[:, 0] - points[j, 0]) ** 2)
        left_out[6 - i - j - k] += 1 / 4 * one[j] / one.sum() * two[k] / two.sum()
    n, rng, counts = 4000, generator(), np.zeros(4)
    for _ in range(n):
        start = representatives._k_means_start(rng.permutation(points), 3, rng)
        counts[~np.isin(points, start)[:, 0]] += 1
    deviation = np.abs(counts / n - left_out) / np.sqrt(left_out * (1 - left_out) / n)
    assert counts.sum() == n
    assert deviation.max() < 4


def test_k_means_copes_with_points_on_hundreds_of_scales():
    points = 2.0 ** -np.arange(400.0)[:, None]
    assert len(distinct(k_means(points, 300, generator()))) == 300


# --- random points and grids ------------------------------------------------------------------------------------------


def test_every_point_is_equally_likely_to_be_drawn():
    points = np.arange(10.0)[:, None]
    rng, n = generator(), 2000
    counts = sum(np.isin(points[:, 0], random_points(points, 3, rng)) for _ in range(n))
    assert np.abs(counts - 0.3 * n).max() < 4.5 * math.sqrt(n * 0.3 * 0.7)


@given(points=point_sets(), n_reps=st.integers(1, 70), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_a_grid_depends_on_the_bounding_box_alone(points, n_reps, seed):
    box = np.stack([points.min(axis=0), points.max(axis=0)])
    expected = grid(box, n_reps)
    np.testing.assert_array_equal(grid(generator(seed).permutation(points), n_reps), expected)


def test_a_grid_in_two_dimensions_is_the_one_drawn_by_hand():
    points = np.array([[0.0, 10.0], [2.0, 14.0], [1.0, 11.0]])
    expected = [[x, y] for x in (0, 1, 2) for y in (10, 12, 14)]
    np.testing.assert_array_equal(grid(points, 9), expected)
    np.testing.assert_array_equal(grid(points, 15), expected)


def test_a_constant_dimension_does_not_use_up_levels():
    points = np.array([[0.0, 5.0, 1.0], [1.0, 5.0, 3.0]])
    np.testing.assert_array_equal(grid(points, 5), [[0, 5, 1], [0, 5, 3], [1, 5, 1], [1, 5, 3]])


def test_a_grid_too_small_for_two_levels_is_the_centre_of_the_box():
    np.testing.assert_array_equal(grid(np.array([[0.0, 0.0], [2.0, 6.0]]), 3), [[1.0, 3.0]])


def test_a_grid_over_one_value_is_that_value():
    np.testing.assert_array_equal(grid(np.full((4, 2), 0.1), 100), [[0.1, 0.1]])


def test_a_grid_has_no_equal_levels_where_there_are_no_numbers_between():
    points = np.array([[1.0], [np.nextafter(1.0, 2)]])
    np.testing.assert_array_equal(grid(points, 10), points)


@given(k=st.integers(1, 40), degree=st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_roots_of_whole_powers_are_exact(k, degree):
    assert representatives._whole_root(k**degree, degree) == k
    assert representatives._whole_root((k + 1) ** degree - 1, degree) == k


# --- farthest points and covers ---------------------------------------------------------------------------------------


@given(points=point_sets(max_points=9, max_dims=3), n_reps=st.integers(1, 4), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_farthest_points_have_at_most_twice_the_smallest_radius(points, n_reps, seed):
    reps = farthest_points(points, n_reps, generator(seed))
    subsets = itertools.combinations(points, min(n_reps, len(points)))
    assert radius(points, reps) <= 2 * min(radius(points, s) for s in subsets) * (1 + 1e-12)


@pytest.mark.parametrize(("n", "n_dims", "scale"), [(2000, 2, 1.0), (65, 1, 1e100), (200, 5, 1e-100), (64, 3, 1.0)])
def test_farthest_points_agree_with_their_slow_twin(n, n_dims, scale):
    points = scale * generator(n).normal(size=(n, n_dims))
    reps = farthest_points(points, 50, generator())
    np.testing.assert_array_equal(reps, naive_farthest(points, reps[0], 50))


@given(points=point_sets(), fraction=st.floats(0.01, 1.5))
@settings(max_examples=60, deadline=None)
def test_a_cover_leaves_no_point_out_and_its_members_are_apart(points, fraction):
    threshold = fraction * (float(np.ptp(points)) or 1.0)
    reps = cover(points, threshold)
    assert radius(points, reps) <= threshold * (1 + 1e-12)
    assert all(distance(a, b) > threshold * (1 - 1e-12) for a, b in itertools.combinations(reps, 2))


@pytest.mark.parametrize("threshold", [0.05, 0.5, 3.0])
def test_a_cover_agrees_with_its_slow_twin(threshold):
    points = generator().normal(size=(300, 2))
    start = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    np.testing.assert_array_equal(cover(points, threshold), naive_cover(points, threshold))
    np.testing.assert_array_equal(cover(points, threshold, start=start), naive_cover(points, threshold, start))


def test_a_point_at_exactly_the_distance_is_covered():
    np.testing.assert_array_equal(cover(np.arange(6.0)[:, None], 2.0), [[0.0], [3.0]])
    np.testing.assert_array_equal(cover(np.array([[0.0, 0.0], [9.0, 9.0], [3.0, 4.0]]), 5.0), [[0.0, 0.0], [9.0, 9.0]])


def test_a_cover_of_the_parts_in_turn_is_that_of_the_whole():
    points = generator().normal(size=(200, 3))
    start = cover(points[:70], 0.8)
    np.testing.assert_array_equal(cover(points[70:], 0.8, start=start), cover(points, 0.8))


def test_a_cover_stops_at_the_largest_number_and_never_drops_its_start():
    points = np.arange(50.0)[:, None]
    np.testing.assert_array_equal(cover(points, 0.5, max_reps=3), [[0.0], [1.0], [2.0]])
    np.testing.assert_array_equal(cover(points, 0.5, start=points[40:45], max_reps=3), points[40:45])


@given(points=point_sets(), n_reps=st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_nearest_distances_agree_with_their_slow_twin(points, n_reps):
    reps = random_points(points, n_reps, generator())
    expected = [min(distance(p, r) for r in reps) for p in points]
    np.testing.assert_allclose(nearest_distances(points, reps), expected, rtol=1e-12)


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", BY_NUMBER)
def test_too_few_distinct_points_are_said(how):
    points = np.tile(np.arange(7.0)[:, None], (30, 2))
    message = "n_reps=100, but the next states have only 7 distinct values: using 7 representative states."
    with pytest.warns(KbrlWarning, match=f"^{message}$"):
        reps = choose(points, how, 100, generator())
    np.testing.assert_array_equal(reps, points[:7])


@pytest.mark.parametrize("how", BY_NUMBER)
def test_nothing_is_said_when_there_are_as_many_as_asked_for(how):
    points = np.tile(np.arange(7.0)[:, None], (30, 2))
    assert [len(choose(points, how, m, generator())) for m in (1, 6, 7)] == [1, 6, 7]


def test_a_grid_smaller_than_asked_for_is_said():
    points = generator().random((30, 3))
    with pytest.warns(KbrlWarning, match="n_reps=100, but the largest regular grid .* using 64 representative states"):
        assert len(choose(points, "grid", 100, generator())) == 64
    assert len(choose(points, "grid", 125, generator())) == 125  # says nothing


def test_a_cover_cut_short_is_said():
    points = np.arange(10.0)[:, None]
    with pytest.warns(KbrlWarning, match="cover_distance=0.5 needs more than n_reps=4 representative states: using 4"):
        reps = choose(points, "cover", 4, generator(), cover_distance=0.5)
    np.testing.assert_array_equal(reps, points[:4])
    assert len(choose(points, "cover", 10, generator(), cover_distance=0.5)) == 10
    assert len(choose(points, "cover", None, generator(), cover_distance=0.5)) == 10


def test_a_warning_points_to_who_called_the_caller():
    def fit():
        return choose(np.zeros((3, 1)), "k-means", 2, generator())

    with pytest.warns(KbrlWarning) as said:
        fit()
    assert said[0].filename == __file__


def test_rows_of_the_user_keep_their_order_and_dropped_ones_are_said():
    reps = [[3.0, 1.0], [0.0, 2.0], [-0.0, 2.0], [1.0, 1.0], [3.0, 1.0]]
    with pytest.warns(KbrlWarning, match="reps has 5 rows, but 2 of them equal an earlier one: using 3 representative"):
        kept = distinct_rows(np.array(reps), "reps")
    np.testing.assert_array_equal(kept, [[3.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    np.testing.assert_array_equal(distinct_rows(kept, "reps"), kept)  # says nothing


@pytest.mark.parametrize(
    ("how", "n_reps", "cover_distance", "error", "message"),
    [
        ("kmeans", 5, None, ValueError, "reps must be one of 'k-means', .* but it is 'kmeans'"),
        ("k-means", None, None, TypeError, "n_reps must be a whole number, but it is None"),
        ("random", 0, None, ValueError, "n_reps must be at least 1, but it is 0"),
        ("grid", 2.5, None, TypeError, "n_reps must be a whole number, but it is 2.5"),
        ("cover", 5, None, ValueError, "reps='cover' needs cover_distance, but it is None. Pass"),
        ("cover", None, -1.0, ValueError, "cover_distance must be a finite number above 0, but it is -1.0"),
        ("cover", 0, 1.0, ValueError, "n_reps must be at least 1, but it is 0"),
    ],
)
def test_wrong_settings_are_refused_with_a_reason(how, n_reps, cover_distance, error, message):
    with pytest.raises(error, match=message):
        choose(np.zeros((3, 2)), how, n_reps, generator(), cover_distance=cover_distance)
