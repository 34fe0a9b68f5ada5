"""The compiled choice in one state, against the values of many."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kbrl.model.q_functions as q_functions
import naive
from kbrl.data.scaling import Coordinates
from kbrl.mdp.dynamic_programming import best_actions
from kbrl.model import compiled
from kbrl.model.kernels import Kernel
from kbrl.model.q_functions import GreedyPolicy, RepQ
from kbrl.profiles import PROFILES


def rep_q_of(seed, *, neighbors, profile="exponential", on_lattice=False, unknown=0.0, widths_differ=True):
    """Return a random Q function of 30 points in the plane, and states to ask about."""
    rng = np.random.default_rng(seed)
    draw = (lambda n: rng.integers(4, size=(n, 2)) / 1.0) if on_lattice else (lambda n: rng.random((n, 2)))
    rep_q = np.where(rng.random((30, 3)) < unknown, -np.inf, rng.integers(3, size=(30, 3)) / 1.0)
    width = rng.uniform(0.2, 2.0, size=30) if widths_differ else 0.5
    kernel = Kernel(width, profile, neighbors)
    return RepQ(kernel.at(draw(30)), rep_q), draw(20)


@pytest.mark.parametrize("few_points", [0, 1000], ids=["by the tree", "by all distances"])
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([None, 1, 2, 5, 30, 40]),
    st.sampled_from([*PROFILES]),
    st.booleans(),
    st.sampled_from([0.0, 0.3, 0.9]),
    st.booleans(),
)
def test_one_state_gets_an_action_that_is_best_among_many(
    few_points, seed, neighbors, profile, on_lattice, unknown, widths_differ
):
    asked = {"profile": profile, "on_lattice": on_lattice, "unknown": unknown, "widths_differ": widths_differ}
    q, states = rep_q_of(seed, neighbors=neighbors, **asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(q_functions, "_FEW_POINTS", few_points)
        decide = q.decider()
    if decide is None:
        assert neighbors is None  # the compiled choice by dense kernels does not know of gaps
        return
    for state, values in zip(states, q(states)):
        chosen = values[decide(state)]
        assert chosen == values.max() or chosen == pytest.approx(values.max(), rel=1e-9)


def test_rounding_does_not_decide_which_points_are_nearest():
    points = np.array([[0.0, 1.0, 0.0, 3.0], [1.0, 0.0, -2.0, 0.0]])  # two of them at distance 1 of the origin
    arguments = (np.ones(4), np.eye(4), compiled.kind_of("exponential"))
    assert compiled.decide_nearest(np.zeros(2), points, 1, *arguments) == -1
    assert compiled.decide_nearest(np.array([0.0, 1e-13]), points, 1, *arguments) == -1
    assert compiled.decide_nearest(np.array([0.0, 0.1]), points, 1, *arguments) == 0
    assert compiled.decide_nearest(np.zeros(2), points, 2, *arguments) in (0, 1)


def test_a_decision_where_widths_differ_is_by_the_largest_kernel_values():
    """Against a loop: sort by kernel value, mix the values of the first few, take the best action."""
    q, states = rep_q_of(3, neighbors=3)
    centres, widths, decide = q.weights.points, q.weights.kernel.width, q.decider()
    nearest_differs = False
    for state in states:
        weights = np.array(naive.kappa(state.tolist(), centres.tolist(), widths.tolist(), neighbors=3))
        values = weights @ q.rep_q
        np.testing.assert_allclose(q(state[None])[0], values, rtol=1e-12)
        assert values[decide(state)] == pytest.approx(values.max())
        by_distance = np.argsort(((centres - state) ** 2).sum(axis=1))[:3]
        nearest_differs |= set(by_distance.tolist()) != set(np.flatnonzero(weights).tolist())
    assert nearest_differs


def test_of_actions_that_are_equal_but_for_rounding_the_first_is_the_best():
    q = np.array([[1.0, 1.0 + 4e-16, 0.0], [-3.0, -3.0 - 1e-9, -2.0], [-np.inf, 5.0, 5.0 + 1e-15], [-np.inf] * 3])
    assert best_actions(q).tolist() == [0, 2, 1, 0]
    assert [compiled.first_best(row) for row in q] == [0, 2, 1, 0]
    assert best_actions(np.array([[1.0, 1.0 + 1e-9]])).tolist() == [1]
    scaled = q[:3] * 1e-200
    assert best_actions(scaled).tolist() == [compiled.first_best(row) for row in scaled] == [0, 2, 1]


@pytest.mark.parametrize("few_points", [0, 1000], ids=["by the tree", "by all distances"])
@pytest.mark.parametrize("neighbors", [None, 1, 5])
@pytest.mark.parametrize("unknown", [0.0, 0.3])
@pytest.mark.parametrize("widths_differ", [False, True])
def test_tied_actions_get_the_same_choice_however_states_are_asked_about(few_points, neighbors, unknown, widths_differ):
    q, _ = rep_q_of(3, neighbors=neighbors, unknown=unknown, widths_differ=widths_differ)
    tied = np.repeat(-np.random.default_rng(0).exponential(size=(30, 1)), 3, axis=1)
    rounding = 1 + 2e-16 * np.random.default_rng(1).integers(-1, 2, size=(30, 3))
    q = RepQ(q.weights, np.where(q.known, tied * rounding, -np.inf) if unknown else tied * rounding)
    states = np.random.default_rng(2).random((300, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(q_functions, "_FEW_POINTS", few_points)
        policy = GreedyPolicy(q, Coordinates.plain(2), np.arange(3))
        chosen = policy(states)
        np.testing.assert_array_equal([policy.act(state) for state in states], chosen)
        np.testing.assert_array_equal([policy(state[None])[0] for state in states], chosen)
