"""States far from zero: what matters is how they differ, not where they lie."""

import numpy as np
import pytest

from kbrl import KBRL, KBSF, LSPI, Transitions, load_model, save_model
from kbrl.data.scaling import coordinates

OFFSETS = [1e9, -1e10, 3e12]


def far_and_near(offset, n=200):
    """Return one log far from zero and the same near it; all its numbers are exact in both."""
    rng = np.random.default_rng(0)
    step = np.spacing(abs(offset))
    states, next_states = (rng.integers(0, 500, (n, 2)) * step for _ in range(2))
    rest = rng.integers(2, size=n), rng.normal(size=n)
    near = Transitions(states, *rest, next_states, rng.random(n) < 0.1)
    far = Transitions(states + offset, *rest, next_states + offset, near.terminals)
    return far, near


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("form", [{}, {"sample_neighbors": 5, "rep_neighbors": 3}, {"scaling": "range"}])
def test_a_model_far_from_zero_is_the_model_near_it(offset, form):
    far, near = far_and_near(offset)
    settings = {"sample_width": 0.3, "rep_width": 0.3} | form
    reps = near.next_states[:20]
    one = KBSF(reps=reps + offset, **settings).fit(far)
    two = KBSF(reps=reps, **settings).fit(near)
    assert abs(one.mdp_.stacked - two.mdp_.stacked).max() < 1e-9
    np.testing.assert_allclose(one.q_values(far.states), two.q_values(near.states), rtol=1e-7)
    np.testing.assert_array_equal(one.reps_, reps + offset)
    assert [one.act(s) for s in far.states[:20]] == [two.act(s) for s in near.states[:20]]


@pytest.mark.parametrize("learner", [KBRL(sample_width=0.3), KBSF(15, random_state=0), LSPI(n_reps=15, random_state=0)])
def test_every_learner_answers_far_from_zero_as_near_it(learner):
    far, near = far_and_near(1e10)
    here = learner.fit(near).q_values(near.states)
    np.testing.assert_allclose(learner.fit(far).q_values(far.states), here, rtol=1e-6, atol=1e-9)


def test_a_model_far_from_zero_comes_back_from_its_file_and_adds_up(tmp_path):
    far, _ = far_and_near(1e10)
    first = KBSF(10, random_state=0).fit(far[:100])
    save_model(first, tmp_path / "m.kbrl")
    loaded = load_model(tmp_path / "m.kbrl")
    assert loaded.q_values(far.states).tolist() == first.q_values(far.states).tolist()
    shared = {"reps": first.reps_, "scaling": first.scale_}
    one, two, both = (KBSF(**shared).fit(log) for log in (far[:100], far[100:], far))
    np.testing.assert_allclose((one + two).rep_q_, both.rep_q_, rtol=1e-9)


def test_ordinary_variables_have_no_centre():
    states = np.random.default_rng(0).normal([10.0, -3e7, 0.0], [1.0, 1e6, 1e-6], size=(100, 3))
    assert coordinates(states, "std").centre.tolist() == [0.0, 0.0, 0.0]


def test_coordinates_there_and_back_are_the_same_states():
    states = np.random.default_rng(0).normal([0.0, 1e6, -1e9], 1.0, size=(100, 3))
    units = coordinates(states, "std")
    np.testing.assert_allclose(units.back(units.of(states)), states, rtol=1e-15)
