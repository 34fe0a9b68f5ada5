"""Feasibility against replayed controls, a naive enumeration of all sequences, and physics."""

from itertools import product

import numpy as np
import pytest

from experiments.feasibility import _linearize, _merge_twins, _Regulator, all_fail_within, feasibility
from kbrl.tasks.pole_balancing import PoleBalancing
from tasks import slow_poles

LEANING, FALLING = np.deg2rad(18), np.deg2rad(75)


def survives(task, state, plan):
    """Replay a control, one decision after the other."""
    states = np.array([state])
    for action in plan:
        states, _, terminals = task.step(states, [action])
        if terminals[0]:
            return False
    return True


def naive_deadline(task, state, depth):
    """Try all sequences of that length, in pure Python; return when the last has failed, or 0."""
    latest = 0
    for sequence in product(task.forces, repeat=depth):
        current = [float(value) for value in state]
        for t, force in enumerate(sequence, start=1):
            current = slow_poles.python_decision(current, force)
            if abs(current[0]) > 2.4 or max(map(abs, current[2::2])) > np.deg2rad(36):
                latest = max(latest, t)
                break
        else:
            return 0
    return latest


@pytest.mark.parametrize("n_poles, gravity", [(1, "down"), (2, "down"), (3, "down"), (1, "up"), (3, "up")])
def test_the_upright_state_can_be_balanced_for_a_minute(n_poles, gravity):
    task = PoleBalancing(n_poles, gravity=gravity)
    result = feasibility(task, np.zeros((1, 2 + 2 * n_poles)))
    assert result.feasible.all()
    assert result.plans.shape == (1, 3000)
    assert survives(task, np.zeros(2 + 2 * n_poles), result.plans[0])


def test_a_found_control_balances_when_it_is_replayed():
    task = PoleBalancing()
    states = task.test_states()[[1, 36, 40, 44]]  # at least 36 and 44 are beyond the regulator, and need the beam
    assert not _Regulator(task).hold(states[[1, 3]], 3000)[0].any()
    result = feasibility(task, states)
    assert result.feasible.all()
    assert all(survives(task, state, plan) for state, plan in zip(states, result.plans))
    assert not survives(task, states[1], 1 - result.plans[1])


@pytest.mark.parametrize(
    "n_poles, state",
    [
        (1, [0.0, 0.0, np.deg2rad(35), 3.0]),
        (1, [2.3, 2.0, 0.0, 0.0]),
        (2, [0.0, 0.0, LEANING, FALLING, -LEANING, -2 * FALLING]),
    ],
)
def test_a_state_far_beyond_recovery_fails_whatever_is_done_as_a_naive_search_finds(n_poles, state):
    task = PoleBalancing(n_poles)
    result = feasibility(task, [state])
    assert result.infeasible.all()
    assert 0 < result.deadlines[0] == naive_deadline(task, state, int(result.deadlines[0]))
    assert naive_deadline(task, state, int(result.deadlines[0]) - 1) == 0 or result.deadlines[0] == 1
    np.testing.assert_array_equal(result.plans, -1)


def test_two_equal_poles_that_fall_apart_cannot_be_saved():
    # No force acts on the difference of two equal poles, and gravity drives it from zero.
    apart = [0.0, 0.0, LEANING, 0.0, 0.0, 0.0, -LEANING, 0.0]
    result = feasibility(PoleBalancing(3), [apart])
    assert result.infeasible.all()
    assert feasibility(PoleBalancing(3, gravity="up"), [apart]).feasible.all()


def test_more_actions_never_make_a_state_worse():
    state = PoleBalancing(2).test_states()[6]
    two, three = (all_fail_within(PoleBalancing(2, forces=forces), state) for forces in ((-10, 10), (-10, 0, 10)))
    assert 0 < two <= three


def test_what_the_searches_do_not_settle_is_unknown():
    task = PoleBalancing()
    hard = task.test_states()[[0, 40]]
    result = feasibility(task, hard, beam_width=1, beam_depth=0, budget=100)
    np.testing.assert_array_equal(result.unknown, [True, False])
    assert result.ceiling == (0.5, 1.0)
    assert repr(result) == (
        "Feasibility(1 of 2 states can be balanced for 3000 decisions, 0 cannot, 1 unknown: "
        "the best success rate lies in [0.500, 1.000])"
    )


def test_a_few_decisions_can_be_survived_where_a_minute_cannot():
    task, state = PoleBalancing(2), PoleBalancing(2).test_states()[0]
    deadline = all_fail_within(task, state)
    assert deadline > 1
    result = feasibility(task, [state], n_decisions=deadline - 1)
    assert result.feasible.all()
    assert survives(task, state, result.plans[0])
    assert feasibility(task, [state], n_decisions=deadline).infeasible.all()


def test_every_one_pole_state_can_be_balanced_with_gravity_up():
    result = feasibility(PoleBalancing(gravity="up"), "paper")
    assert result.ceiling == (1.0, 1.0)


@pytest.mark.parametrize("n_poles, gravity", [(1, "down"), (2, "down"), (2, "up")])
def test_the_linear_model_has_the_growth_rates_of_the_equations(n_poles, gravity):
    transition, push = _linearize(PoleBalancing(n_poles, gravity=gravity))
    sign = -9.8 if gravity == "down" else 9.8
    # Lagrange's equations for small angles, differentiated by central differences at rest.
    rates = np.zeros((2 + 2 * n_poles, 2 + 2 * n_poles))
    rates[::2, 1::2] = np.eye(1 + n_poles)
    for k, nudge in enumerate(1e-6 * np.eye(2 + 2 * n_poles)):
        there, back = (slow_poles.lagrange_accelerations(s * nudge, 0.0, sign, 0.0) for s in (1, -1))
        rates[1::2, k] = (there - back) / 2e-6
    growth = np.exp(0.02 * np.linalg.eigvals(rates))
    np.testing.assert_allclose(np.sort(np.abs(np.linalg.eigvals(transition))), np.sort(np.abs(growth)), rtol=1e-4)
    assert push[1, 0] > 0 > push[3, 0]  # a push to the right leans the pole to the left


def test_merging_twins_is_undone_where_they_move_as_one():
    merge, spread = _merge_twins(3)
    np.testing.assert_array_equal(merge @ spread, np.eye(6))
    together = np.array([1.0, 2, 3, 4, 5, 6, 3, 4])
    np.testing.assert_array_equal(spread @ merge @ together, together)


@pytest.mark.parametrize(
    "states, options, message",
    [
        ([[0.0, 0.0]], {}, "states of PoleBalancing must have 4 columns"),
        ("corners", {}, "name must be one of 'paper'"),
        ([[0.0, 0.0, np.nan, 0.0]], {}, "must be finite"),
        (None, {"beam_width": 0}, "beam_width must be at least 1"),
        (None, {"budget": -1}, "budget must be at least 0"),
        (None, {"n_decisions": 0}, "n_decisions must be at least 1"),
    ],
)
def test_bad_input_is_refused(states, options, message):
    with pytest.raises(ValueError, match=message):
        feasibility(PoleBalancing(), states, **options)
