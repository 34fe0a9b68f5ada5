"""Quantiles of counted values: those of the sorted numbers, whatever the split and the order."""

import numpy as np
import pytest

from kbrl.data.values import ValueCounts

SHARES = (0.0, 0.1, 0.25, 0.5, 0.9, 1.0)


def columns():
    rng = np.random.default_rng(0)
    yield "decimals", np.round(rng.normal(80, 15, 5001), 1)
    yield "whole numbers of both signs", rng.integers(-5000, 9999, 5000).astype(float)
    yield "three decimals", np.round(rng.uniform(0, 9.999, 4001), 3)
    yield "many zeros", np.where(rng.random(999) < 0.7, 0.0, rng.integers(1, 50, 999))
    yield "one number", np.full(3, 7.5)


@pytest.mark.parametrize(("name", "values"), list(columns()), ids=lambda v: v if isinstance(v, str) else "")
def test_a_quantile_is_that_of_the_sorted_numbers(name, values):
    counts = ValueCounts().add(values)
    for share in SHARES:
        assert counts.quantile(share) == np.sort(values)[max(int(np.ceil(share * len(values) - 1e-9)) - 1, 0)]


def test_numbers_with_more_digits_are_right_to_four_of_them():
    values = np.random.default_rng(1).lognormal(3, 2, 20_001)
    for share in SHARES[1:-1]:
        right = np.sort(values)[int(np.ceil(share * len(values))) - 1]
        assert ValueCounts().add(values).quantile(share) == pytest.approx(right, rel=1e-3)


def test_neither_split_nor_order_changes_anything():
    rng = np.random.default_rng(2)
    values = np.append(rng.normal(0, 1e3, 10_000), np.nan)
    whole = ValueCounts().add(values)
    mixed = rng.permutation(values)
    parts = [ValueCounts().add(part) for part in np.split(mixed, [10, 500, 501, 7000])]
    together = sum(parts[1:], parts[0])
    assert whole.total == together.total == 10_000
    for one, other in zip(whole.values(), together.values()):
        np.testing.assert_array_equal(one, other)


def test_missing_and_huge_numbers_do_no_harm():
    counts = ValueCounts().add(np.array([np.nan, 1e300, -1e300, 1.0]))
    assert (counts.total, counts.quantile(0.5)) == (3, 1.0)
