"""The number of representative states: by hand, and by laws that it must obey."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import KBSF
from kbrl.choosing.hyperparameters import Rates, Sizes, choose_n_reps, measure
from tests.samples import random_log

SIZES = st.builds(
    Sizes,
    st.integers(1, 10**9),
    st.integers(1, 50),
    st.integers(1, 1000),
    st.one_of(st.none(), st.integers(1, 100)),
    st.one_of(st.none(), st.integers(1, 100)),
)


def test_a_model_is_about_as_large_as_its_data():
    # 10^6 rows of 2 * 2 + 3 numbers, 4 actions: 4 m^2 = 7 * 10^6
    found = choose_n_reps(Sizes(10**6, 2, 4))
    assert found.n_reps == math.isqrt(10**6 * 7 // 4) == 1322
    assert found.reason == "the model is then about as large as its data"


@pytest.mark.parametrize(("n_rows", "n_reps"), [(600, 60), (8000, 800), (20_000, 1000), (200_000, 1000)])
def test_a_smaller_log_has_a_tenth_of_its_rows_or_a_thousand(n_rows, n_reps):
    found = choose_n_reps(Sizes(n_rows, 2, 4))
    assert found.n_reps == n_reps
    assert found.reason.startswith("one per 10 rows up to 1,000")


def test_much_data_are_limited_by_work_and_then_by_seconds():
    # m^2 * 10^7 = 2 * 10^12
    found = choose_n_reps(Sizes(10**7, 6, 4))
    assert found.n_reps == 447
    assert "minute" in found.reason
    # 10^7 (1e-7 + 1e-10 m) + 1e-4 m^2 = 1 + 0.001 m + 0.0001 m^2 = 30 for m = 533.5
    rates = Rates(row=1e-7, rep=1e-10, rep_squared=0.0, solving=1e-4)
    limited = choose_n_reps(Sizes(10**7, 6, 4), seconds=30, rates=rates)
    assert limited.n_reps == 533
    assert "this machine" in limited.reason


def test_megabytes_limit_the_sums_and_their_copies():
    # 32 bytes for each of the 4 m^2 sums: m = 88 takes 0.991 MB
    found = choose_n_reps(Sizes(8000, 2, 4), megabytes=1)
    assert found.n_reps == 88
    assert "1 MB" in found.reason


def test_truncated_kernels_allow_more():
    # 10 neighbours of 3 + 4 numbers, and rows of at most 10 * 5 in the MDP: 4 m (70 + 50) numbers
    assert Sizes(10**6, 3, 4, 10, 5).numbers(1000) == 4 * 1000 * 120
    # without rep_neighbors, rows of the MDP are full
    assert Sizes(10**6, 3, 4, 10).numbers(1000) == 4 * 1000 * (70 + 1000)
    dense, truncated = choose_n_reps(Sizes(10**6, 3, 4)), choose_n_reps(Sizes(10**6, 3, 4, 10, 5))
    assert truncated.n_reps > 10 * dense.n_reps / 2


def test_few_transitions_are_all_there_is():
    assert choose_n_reps(Sizes(7, 2, 3)).n_reps == 7
    assert choose_n_reps(Sizes(300, 2, 3)).n_reps == 50


@settings(max_examples=200, deadline=None)
@given(SIZES, st.floats(0.01, 1e5))
def test_the_number_is_possible_and_within_memory_and_no_larger_one_is(sizes, megabytes):
    found = choose_n_reps(sizes, megabytes=megabytes)
    assert 1 <= found.n_reps <= min(sizes.n_rows, 10_000)
    if found.n_reps > 1:
        assert 32e-6 * sizes.numbers(found.n_reps) <= megabytes
    if "memory" in found.reason:
        assert 32e-6 * sizes.numbers(found.n_reps + 1) > megabytes


@settings(max_examples=100, deadline=None)
@given(SIZES, st.floats(0.01, 1e4), st.floats(1.0, 10.0))
def test_more_memory_never_means_fewer(sizes, megabytes, factor):
    less, more = (choose_n_reps(sizes, megabytes=m).n_reps for m in (megabytes, factor * megabytes))
    assert less <= more


@pytest.mark.parametrize("neighbors", [None, 5])
def test_a_measurement_gives_costs_that_can_be_reckoned_with(neighbors):
    log = random_log(n=500, n_dims=3, n_actions=2)
    learner = KBSF(sample_neighbors=neighbors, rep_neighbors=neighbors, rep_width=np.array([0.1, 0.2]))
    rates = measure(learner, log, row_seconds=1e-6)
    assert rates.row == 1e-6
    assert min(rates.rep, rates.rep_squared) >= 0
    assert rates.seconds(10**6, 200) > rates.seconds(10**6, 100) > rates.seconds(10**5, 100) > 0
    assert measure(learner, log[:1], row_seconds=0.0).seconds(1, 1) > 0


@pytest.mark.parametrize("megabytes", [0, -1.0, float("nan"), "many"])
def test_a_budget_must_be_above_zero(megabytes):
    with pytest.raises((ValueError, TypeError), match="megabytes must be"):
        choose_n_reps(Sizes(100, 2, 2), megabytes=megabytes)
