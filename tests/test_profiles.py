"""A kernel profile is stated once; loops, arrays and the list of names are made of it."""

import numpy as np
import pytest

from kbrl import Kernel
from kbrl.model import compiled
from kbrl.model.kernels import log_profile, log_ratio
from kbrl.profiles import PROFILES
from kbrl.settings import about_settings

Z = np.concatenate([np.linspace(0.0, 3.0, 61), [1 + 1e-13, 1 + 1e-11, 10.0, 1e6]])


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_1_at_distance_0_and_never_rises(name):
    values = [PROFILES[name](z, 0.0) for z in np.sort(Z).tolist()]
    assert values[0] == 0.0
    assert (np.diff(np.exp(values)) <= 0).all()


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("z_ref", [0.0, 0.5, 2.0, 1e5])
def test_arrays_give_what_the_profile_gives_for_each_number(name, z_ref):
    z = z_ref + Z
    expected = [PROFILES[name](each, z_ref) for each in z.tolist()]
    np.testing.assert_array_equal(log_ratio(z, np.array([z_ref]), name), expected)
    if z_ref == 0:
        np.testing.assert_array_equal(log_profile(z, name), expected)


@pytest.mark.parametrize("name", PROFILES)
def test_compiled_loops_give_what_the_profile_gives_for_each_number(name):
    states, points = np.array([[0.0], [7.5]]), Z[:, None]
    distances = np.abs(states - points.T)
    ratios = [[PROFILES[name](z, row.min()) for z in row.tolist()] for row in distances]
    expected = np.exp(ratios) / np.exp(ratios).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(Kernel(1.0, name).weights(states, points), expected, rtol=1e-13)


def test_settings_offer_exactly_the_profiles_that_there_are():
    assert about_settings()["profile"].about.choices == tuple(PROFILES)


def test_code_on_disk_belongs_to_the_present_profiles():
    loops = [compiled.normalize_rows, compiled.sample_values, compiled.decide, compiled.decide_near]
    ends = {loop.py_func.__qualname__.rpartition("_")[2] for loop in loops}
    assert len(ends) == 1
    assert len(ends.pop()) == len("01234567")
