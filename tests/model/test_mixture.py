"""Representative states as the means of a Gaussian mixture; scikit-learn is the judge."""

import numpy as np
import pytest

from kbrl.model import representatives
from kbrl.model.representatives import k_means, mixture_means


def generator(seed):
    return np.random.default_rng(seed)


def overlapping_clusters(seed):
    """Points of four Gaussians, some of which overlap, of different sizes and widths."""
    rng = generator(seed)
    centres, widths = np.array([[0, 0], [1.5, 0], [0, 3], [4, 4]]), np.array([0.3, 0.8, 0.5, 1.2])
    labels = rng.choice(4, size=2000, p=[0.4, 0.3, 0.2, 0.1])
    return centres[labels] + widths[labels, None] * rng.normal(size=(2000, 2)) * [1.0, 0.5]


@pytest.mark.parametrize("seed", range(5))
def test_the_means_of_a_mixture_are_those_that_scikit_learn_finds_from_the_same_start(seed, monkeypatch):
    mixture = pytest.importorskip("sklearn.mixture")
    points = overlapping_clusters(seed)
    monkeypatch.setattr(representatives, "_SAMPLE_PER_REP", 2000)  # all of them
    monkeypatch.setattr(representatives, "_LEAST_LIKELIHOOD_GAIN", 1e-12)
    monkeypatch.setattr(representatives, "_EM_STEPS", 5000)
    means = mixture_means(points, 4, generator(seed))
    centre, spread = points.mean(axis=0), points.std(axis=0)
    start = (k_means(points, 4, generator(seed)) - centre) / spread
    judge = mixture.GaussianMixture(4, covariance_type="diag", means_init=start, tol=1e-12, max_iter=5000)
    judge.fit((points - centre) / spread)
    expected = judge.means_ * spread + centre
    nearest = [np.abs(means - mean).max(axis=1).min() for mean in expected]
    assert max(nearest) < 1e-3 * spread.max()


def test_a_mixture_puts_its_means_where_the_points_are_dense_and_k_means_where_they_spread(monkeypatch):
    rng = generator(0)
    monkeypatch.setattr(representatives, "_SAMPLE_PER_REP", 2000)
    monkeypatch.setattr(representatives, "_LEAST_LIKELIHOOD_GAIN", 1e-9)
    monkeypatch.setattr(representatives, "_EM_STEPS", 5000)
    points = np.concatenate(
        [rng.normal(size=(900, 1)) * 0.1, rng.normal(size=(900, 1)) * 3.0]
    )  # one centre, two widths
    means = mixture_means(points, 2, generator(1))
    assert np.abs(means).max() < 0.5  # both components sit at 0: they differ in width
    assert np.abs(k_means(points, 2, generator(1))).max() > 1.0


def test_blocks_of_points_do_not_change_a_mixture(monkeypatch):
    points = overlapping_clusters(0)
    whole = mixture_means(points, 10, generator(0))
    monkeypatch.setattr(representatives, "_EM_ENTRIES", 70)
    np.testing.assert_allclose(mixture_means(points, 10, generator(0)), whole, rtol=1e-6)


def test_a_mixture_is_the_same_for_the_same_seed():
    points = overlapping_clusters(0)
    one, other = (mixture_means(points, 30, generator(7)) for _ in range(2))
    np.testing.assert_array_equal(one, other)
