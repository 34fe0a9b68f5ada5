"""The scale of the state variables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbrl.data.scaling import state_scale

STATES = np.array([[0.0, 100.0, 5.0], [2.0, 300.0, 5.0]])


def test_the_standard_deviation_and_the_range_are_those_of_each_variable():
    np.testing.assert_allclose(state_scale(STATES, "std"), [1.0, 100.0, 1.0])
    np.testing.assert_allclose(state_scale(STATES, "range"), [2.0, 200.0, 1.0])


def test_none_leaves_states_as_they_are_and_an_array_is_taken():
    np.testing.assert_array_equal(state_scale(STATES, None), [1, 1, 1])
    np.testing.assert_array_equal(state_scale(STATES, [1, 2, 3]), [1, 2, 3])


@pytest.mark.parametrize("scaling", ["std", "range"])
def test_a_variable_that_never_changes_is_left_as_it_is_even_if_rounding_moved_it(scaling):
    constant = np.full((1000, 1), 0.1) + np.random.default_rng(0).choice([0, 1e-17], (1000, 1))
    np.testing.assert_array_equal(state_scale(constant, scaling), [1.0])


@given(size=st.sampled_from([1e-300, 1e-150, 1.0, 1e150, 1e300]), scaling=st.sampled_from(["std", "range"]))
def test_neither_huge_nor_tiny_numbers_overflow(size, scaling):
    scale = state_scale(np.array([[0.25], [0.75]]) * size, scaling)
    expected = 0.25 if scaling == "std" else 0.5
    np.testing.assert_allclose(scale / size, [expected], rtol=1e-12)


@pytest.mark.parametrize("offset", [1e9, -1e10, 1e12])
def test_a_variable_far_from_zero_is_not_constant_while_it_has_levels(offset):
    levels = offset + np.spacing(abs(offset)) * np.arange(0, 500, 5.0)
    scale = state_scale(levels[:, None], "std")[0]
    assert scale == pytest.approx(np.std(levels - offset), rel=1e-9)
    assert state_scale(levels[:, None], "range")[0] == levels[-1] - levels[0]
