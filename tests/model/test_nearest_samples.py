"""The nearest transitions that a sparse model keeps: the same bits however the data come, and none that never count."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import Kernel, Transitions
from kbrl.data.scaling import Coordinates
from kbrl.model.kernels import Basis
from kbrl.model.nearest_samples import _FIELDS, Neighborhoods
from samples import random_log


def make_basis(reps, n_actions, mu):
    return Basis(reps, Coordinates.plain(reps.shape[1]), Kernel(1.0, neighbors=mu), Kernel(1.0, neighbors=2), n_actions)


def kept(statistics):
    return {name: getattr(statistics, name) for name in _FIELDS}


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3, None]), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_what_is_kept_is_the_same_bits_for_all_orders_splits_and_threads(seed, levels, mu, n_parts, doubled):
    rng = np.random.default_rng(seed)
    log = random_log(n=int(rng.integers(1, 40)), seed=seed, levels=levels, every_action=False)
    log = log[np.repeat(np.arange(len(log)), 2)] if doubled else log  # with samples that are the same
    reps = rng.integers(0, 4, size=(5, 2)) / rng.choice([1.0, 3.0])
    basis = make_basis(reps, log.n_actions, mu)
    whole = Neighborhoods(basis).accumulate(log)
    shuffled = log[rng.permutation(len(log))]
    owner = rng.integers(n_parts, size=len(log))
    parts = [shuffled[np.flatnonzero(owner == part)] for part in np.unique(owner)]
    total, step_by_step = Neighborhoods(basis), Neighborhoods(basis)
    for part in parts:
        total = total + Neighborhoods(basis).accumulate(part, n_jobs=2)
        step_by_step.accumulate(part)
    for other in (total, step_by_step):
        for name, field in kept(whole).items():
            np.testing.assert_array_equal(getattr(other, name), field, err_msg=name)


def test_a_sample_beyond_the_nearest_counted_as_often_as_they_occur_is_not_kept():
    places = np.array([0.0, 0.0, 0.5, 0.5, 1.0, 2.0])[:, None]
    log = Transitions(places, [0] * 6, 2 * places[:, 0], places + 1, [False] * 6)
    found = Neighborhoods(make_basis(np.zeros((1, 1)), 1, 4)).accumulate(log)
    assert found.distances[0, 0].tolist() == [0.0, 0.5, np.inf, np.inf]
    assert found.multiplicities[0, 0].tolist() == [2, 2, 0, 0]
    assert found.to_mdp(0.9).rewards[0, 0] == pytest.approx(np.exp(-0.5) / (1 + np.exp(-0.5)))
