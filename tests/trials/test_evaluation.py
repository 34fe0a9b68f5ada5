"""Means and confidence intervals."""

import numpy as np
import pytest

from kbrl.trials import Evaluation, confidence_interval


def test_the_interval_is_the_one_worked_out_by_hand():
    # Mean 3, variance 10 / 4 = 2.5; the tables give t = 4.604 for 4 degrees of freedom at 99 %.
    mean, half_width = confidence_interval([1, 2, 3, 4, 5])
    assert mean == 3
    assert half_width == pytest.approx(4.604095 * np.sqrt(2.5 / 5), rel=1e-6)


def test_for_two_values_the_interval_has_a_closed_form():
    # With one degree of freedom the quantile is tan(pi (p - 1/2)), Cauchy's; the standard error is |a - b| / 2.
    mean, half_width = confidence_interval([1.0, 4.0], level=0.9)
    assert mean == 2.5
    assert half_width == pytest.approx(np.tan(np.pi * 0.45) * 1.5)


def test_equal_values_have_an_interval_of_no_width():
    assert confidence_interval([2.0, 2.0, 2.0]) == (2.0, 0.0)


def test_one_value_leaves_the_interval_infinite():
    assert confidence_interval([2.0]) == (2.0, np.inf)
    assert confidence_interval(2.0) == (2.0, np.inf)


def test_an_interval_covers_the_true_mean_as_often_as_its_level_says():
    samples = np.random.default_rng(0).standard_normal((2000, 6)) + 7
    covered = [abs(mean - 7) <= half for mean, half in (confidence_interval(row, 0.9) for row in samples)]
    assert abs(np.mean(covered) - 0.9) < 5 * np.sqrt(0.09 / 2000)


@pytest.mark.parametrize(
    "values, level, message",
    [
        ([], 0.99, "at least one"),
        ([[1, 2]], 0.99, r"shape is \(1, 2\)"),
        ([1.0, np.nan], 0.99, "values must be finite"),
        ([1, 2], 1.0, "level must lie between 0 and 1, but it is 1.0"),
        ([1, 2], 99, "level must lie between 0 and 1, but it is 99"),
    ],
)
def test_bad_values_and_levels_are_refused(values, level, message):
    with pytest.raises(ValueError, match=message):
        confidence_interval(values, level)


def test_an_evaluation_says_what_it_holds():
    evaluation = Evaluation(np.array([1.0, 4.0]), np.array([3, 5]), np.array([True, False]))
    assert evaluation.mean == 2.5
    assert repr(evaluation) == "Evaluation(2 episodes, mean return 2.5, mean length 4.0, 1 terminated)"
