"""Moments from exact sums."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl.data.scaling import Moments

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)
COLUMNS = st.lists(NUMBERS, min_size=1, max_size=20).map(lambda numbers: np.array(numbers)[:, None])


def exact(numbers):
    """Return mean and variance as fractions."""
    fractions = [Fraction(x) for x in numbers]
    mean = sum(fractions) / len(fractions)
    return mean, sum(x * x for x in fractions) / len(fractions) - mean**2


@settings(max_examples=200, deadline=None)
@given(column=COLUMNS)
def test_the_mean_and_the_standard_deviation_are_those_of_fractions_rounded_once(column):
    moments = Moments(1).accumulate(column)
    mean, variance = exact(column[:, 0].tolist())
    assert moments.mean()[0] == float(mean)
    std = moments.std()[0]
    below, above = (Fraction(np.nextafter(std, side)) for side in (-np.inf, np.inf if std < 1.7e308 else 0))
    assert variance <= ((Fraction(std) + above) / 2) ** 2 or above < std
    assert std == 0 or variance >= ((Fraction(std) + below) / 2) ** 2


@settings(max_examples=100, deadline=None)
@given(column=COLUMNS, data=st.data())
def test_any_split_and_any_order_gives_the_same_bits(column, data):
    order = data.draw(st.permutations(range(len(column))))
    cut = data.draw(st.integers(0, len(column)))
    whole = Moments(1).accumulate(column)
    head, tail = Moments(1).accumulate(column[order][:cut]), Moments(1).accumulate(column[order][cut:])
    for moments in (head + tail, tail + head, Moments(1).accumulate(column[order])):
        assert moments.n_rows == whole.n_rows
        assert moments._sums.tobytes() == whole._sums.tobytes()
        assert moments._squares.tobytes() == whole._squares.tobytes()
        assert moments.smallest.tobytes() == whole.smallest.tobytes()
        assert moments.largest.tobytes() == whole.largest.tobytes()


def test_nothing_is_lost_where_numpy_loses_everything():
    rows = np.array([[1e16], [1.0], [-1e16]])
    assert Moments(1).accumulate(rows).mean()[0] == pytest.approx(1 / 3, rel=1e-15)


def test_columns_are_apart_and_agree_with_numpy():
    rows = np.random.default_rng(0).normal(3.0, [1.0, 1e-3, 1e6], (1000, 3))
    moments = Moments(3).accumulate(rows)
    np.testing.assert_allclose(moments.mean(), rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.std(), rows.std(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(moments.largest_size, np.abs(rows).max(axis=0))


def test_many_equal_rows_carry_over_into_higher_pieces():
    rows = np.full((100_000, 1), np.nextafter(2.0, 0.0))
    moments = Moments(1).accumulate(rows)
    for _ in range(10):
        moments = moments + moments
    assert moments.n_rows == 1024 * 100_000
    assert moments.mean()[0] == np.nextafter(2.0, 0.0)
    assert moments.std()[0] == 0.0
