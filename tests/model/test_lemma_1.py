"""Lemma 1: kappa(s, s_i) is continuous in s, with the delta that belongs to each epsilon; and which kernels break it.

For phi = exp(-z), moving s by h widths changes each k(s, s_i) by a factor between exp(-h) and exp(h), whatever the
norm, and so each kappa by one between exp(-2 h) and exp(2 h).  As no kappa exceeds 1, it changes by at most
exp(2 h) - 1: the lemma's delta is tau / 2 * log(1 + epsilon), for all s and s_i alike.
For phi = exp(-z^2 / 2), the factors are exp(h (z + h)) with z the distance of s to the farthest point, in widths.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import Kernel

PROBLEMS = {
    "seed": st.integers(0, 2**32 - 1),
    "n": st.integers(1, 30),
    "d": st.integers(1, 4),
    "width": st.sampled_from([1e-3, 0.1, 1.0, 50.0]),
    "norm": st.sampled_from([1, 2, 3.5, np.inf]),
    "epsilon": st.sampled_from([1e-9, 1e-3, 0.1, 1.0]),
}
ROUNDING = 1e-11


def two_states(seed, n, d, norm, distance):
    """Return points, a state near one of them, and another state at this distance of it by the norm."""
    rng = np.random.default_rng(seed)
    points = rng.random((n, d))
    state = points[0] + rng.normal(size=d) * rng.choice([0.0, 1e-3, 1.0])
    step = rng.normal(size=d)
    return points, np.stack([state, state + distance * step / np.linalg.norm(step, norm)])


@settings(max_examples=200, deadline=None)
@given(**PROBLEMS)
def test_the_exponential_kernel_changes_by_less_than_epsilon_within_delta(seed, n, d, width, norm, epsilon):
    delta = width / 2 * np.log1p(epsilon)
    points, states = two_states(seed, n, d, norm, 0.999 * delta)
    one, other = Kernel(width, norm=norm).weights(states, points)
    assert np.abs(one - other).max() <= epsilon + ROUNDING


@settings(max_examples=200, deadline=None)
@given(**PROBLEMS)
def test_one_width_per_point_has_the_delta_of_the_narrowest(seed, n, d, width, norm, epsilon):
    widths = width * np.random.default_rng(seed).uniform(1, 20, size=n)
    delta = widths.min() / 2 * np.log1p(epsilon)
    points, states = two_states(seed, n, d, norm, 0.999 * delta)
    one, other = Kernel(widths, norm=norm).weights(states, points)
    assert np.abs(one - other).max() <= epsilon + ROUNDING


@settings(max_examples=200, deadline=None)
@given(**PROBLEMS)
def test_the_gaussian_kernel_changes_by_less_than_epsilon_within_a_delta_that_falls_with_distance(
    seed, n, d, width, norm, epsilon
):
    points, (state, _) = two_states(seed, n, d, norm, 0.0)
    farthest = max(np.linalg.norm(state - point, norm) for point in points) / width
    half = np.log1p(epsilon) / 2  # h (farthest + h) = half
    h = 2 * half / (farthest + np.sqrt(farthest**2 + 4 * half))
    points, states = two_states(seed, n, d, norm, 0.999 * h * width)
    one, other = Kernel(width, "gaussian", norm=norm).weights(states, points)
    assert np.abs(one - other).max() <= epsilon + ROUNDING


def test_a_step_between_two_points_changes_kappa_as_worked_out_by_hand():
    """Half way between two points: kappa = 1 / (1 + exp(-2 h)) after a step of h, and its slope is 1 / 2."""
    weights = Kernel(1.0).weights(np.array([[0.0], [1e-6]]), np.array([[-1.0], [1.0]]))
    assert weights[1, 1] - weights[0, 1] == pytest.approx(0.5e-6, rel=1e-6)


@pytest.mark.parametrize("kernel", [Kernel(1.0, "uniform"), Kernel(1.0, neighbors=1)], ids=["uniform", "truncated"])
def test_kernels_that_jump_do_not_have_the_property(kernel):
    """So propositions 3 and lemma 1 do not speak of them: the paper asks phi to be continuous."""
    points = np.array([[-1.0], [1.0]])
    states = np.array([[-1e-9], [1e-9]]) if kernel.neighbors else np.array([[0.0], [1e-9]])
    weights = kernel.weights(states, points)
    weights = weights if kernel.neighbors is None else weights.toarray()
    assert np.abs(weights[0] - weights[1]).max() >= 0.5
