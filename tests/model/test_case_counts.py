"""Numbers of logged cases around representative states, against counting in plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import KBSF, Kernel, Transitions
from kbrl.data.scaling import Coordinates
from kbrl.model.basis import Basis
from kbrl.model.case_counts import fade
from kbrl.model.sums import new_statistics

FORMS = {
    "dense": (Kernel(0.3), Kernel(0.3), "exact", False),
    "gaussian": (Kernel(0.3, "gaussian"), Kernel(0.3), "exact", False),
    "a user's profile": (Kernel(0.3, lambda z: 1 / (1 + z)), Kernel(0.3), "exact", False),
    "far too narrow": (Kernel(1e-200), Kernel(0.3), "exact", False),
    "neighbours": (Kernel(0.3, neighbors=3), Kernel(0.3, neighbors=2), "exact", False),
    "neighbours per chunk": (Kernel(0.3, neighbors=3), Kernel(0.3), "per_chunk", False),
    "hard": (Kernel(0.3), Kernel(0.3), "exact", True),
}


def basis_of(reps, form, n_actions=2):
    sample_kernel, rep_kernel, _, hard = FORMS[form]
    return Basis(reps, Coordinates.plain(reps.shape[1]), sample_kernel, rep_kernel, n_actions, hard)


def statistics_of(log, reps, form):
    return new_statistics(basis_of(reps, form), FORMS[form][2]).accumulate(log)


def random_log(n, n_dims, seed):
    rng = np.random.default_rng(seed)
    states, actions = rng.normal(size=(n, n_dims)), rng.integers(2, size=n)
    return Transitions(states, actions, rng.normal(size=n), states + 0.1, action_labels=[0, 1])


def counted(log, reps):
    """Cases and the farthest of them by one loop over transitions and one over representative states."""
    cases, farthest = np.zeros((2, len(reps)), dtype=int), np.zeros((2, len(reps)))
    for state, action in zip(log.states.tolist(), log.action_indices.tolist()):
        distances = [math.dist(state, rep) for rep in reps.tolist()]
        place = distances.index(min(distances))  # the first of equally near ones
        cases[action, place] += 1
        farthest[action, place] = max(farthest[action, place], distances[place])
    return cases, farthest


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_dims", [1, 2, 6])
def test_cases_are_those_of_a_count(form, n_dims):
    log = random_log(300, n_dims, seed=n_dims)
    reps = np.random.default_rng(9).normal(size=(20, n_dims))
    cells = statistics_of(log, reps, form).cells
    cases, farthest = counted(log, reps)
    np.testing.assert_array_equal(cells.cases, cases)
    np.testing.assert_allclose(cells.farthest, farthest, rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_a_state_between_several_representative_states_counts_for_the_first(form):
    reps = np.array([[float(x), float(y)] for x in range(5) for y in range(5)])[::-1].copy()
    middles = np.array([[x + 0.5, y + 0.5] for x in range(4) for y in range(4)])
    log = Transitions(middles, [0] * 8 + [1] * 8, np.zeros(16), middles, action_labels=[0, 1])
    np.testing.assert_array_equal(statistics_of(log, reps, form).cells.cases, counted(log, reps)[0])


@pytest.mark.parametrize("form", ["dense", "neighbours", "hard"])
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 59))
def test_any_split_and_order_gives_the_same_bits(form, seed, cut):
    log, reps = random_log(60, 2, seed), np.random.default_rng(seed).normal(size=(7, 2))
    whole = statistics_of(log, reps, form).cells
    shuffled = log[np.random.default_rng(seed).permutation(60)]
    in_two = statistics_of(shuffled[:cut], reps, form).accumulate(shuffled[cut:]).cells
    merged = (statistics_of(shuffled[cut:], reps, form) + statistics_of(shuffled[:cut], reps, form)).cells
    for other in (in_two, merged):
        assert other.cases.tobytes() == whole.cases.tobytes()
        assert other.farthest.tobytes() == whole.farthest.tobytes()


def test_taking_cases_away_leaves_the_count_of_the_others_and_an_upper_bound_of_their_distance():
    log, reps = random_log(80, 2, seed=3), np.random.default_rng(3).normal(size=(6, 2))
    left = (statistics_of(log, reps, "dense") - statistics_of(log[:50], reps, "dense")).cells
    refit = statistics_of(log[50:], reps, "dense").cells
    np.testing.assert_array_equal(left.cases, refit.cases)
    assert (left.farthest >= refit.farthest).all()
    assert (left.farthest[left.cases == 0] == 0).all()


def test_cases_that_were_never_counted_cannot_be_taken_away():
    reps = np.array([[0.0], [1.0]])
    learnt = Transitions([[0.1], [0.9]], [0, 1], [0.0, 0.0], [[0.0], [0.0]])
    other = Transitions([[0.2], [0.8]], [1, 0], [0.0, 0.0], [[0.0], [0.0]])
    with pytest.raises(ValueError, match="around representative state 1 there are 1 of action number 0 to take from 0"):
        statistics_of(learnt, reps, "dense") - statistics_of(other, reps, "dense")


@pytest.mark.parametrize("form", ["dense", "neighbours"])
def test_further_representative_states_have_no_cases_and_those_of_dropped_ones_go_to_the_nearest(form):
    log, reps = random_log(40, 1, seed=4), np.array([[-1.0], [0.0], [0.2], [1.5]])
    statistics = statistics_of(log, reps, form)
    grown = statistics.on(basis_of(np.vstack([reps, [[9.0]]]), form)).cells
    np.testing.assert_array_equal(grown.cases[:, :4], statistics.cells.cases)
    assert grown.cases[:, 4].tolist() == [0, 0]
    kept = np.array([True, True, False, True])
    fewer = statistics.without(basis_of(reps[kept], form), kept).cells
    expected = statistics.cells.cases[:, kept].copy()
    expected[:, 1] += statistics.cells.cases[:, 2]  # 0.2 is nearer to 0 than to 1.5
    np.testing.assert_array_equal(fewer.cases, expected)
    reach = np.abs(log.states[:, 0, None] - reps[kept][:, 0]).argmin(axis=1)
    truth = [np.abs(log.states[reach == place, 0] - reps[kept][place, 0]).max() for place in range(3)]
    assert (fewer.farthest.max(axis=0)[1:2] >= truth[1:2]).all()


def test_support_fades_between_once_and_twice_the_distance_of_the_farthest_case():
    reps = np.array([[0.0], [10.0]])
    states = [[-2.0], [1.0], [8.0], [12.0]]  # both cells reach 2 far
    log = Transitions(states, [0, 1, 0, 1], [0.0] * 4, states)
    cells = statistics_of(log, reps, "dense").cells
    asked = np.array([[0.0], [1.9], [-2.0], [-3.0], [-4.0], [-9.0], [13.5], [7000.0]])
    np.testing.assert_allclose(fade(reps, cells, asked), [1, 1, 1, 0.5, 0, 0, 0.25, 0])


def test_a_cell_with_one_case_at_its_middle_reaches_as_far_as_the_usual_cell():
    reps = np.array([[0.0], [10.0], [20.0]])
    states = [[1.0], [10.0], [22.0]]  # the cells reach 1, 0 and 2 far; their median is 1
    log = Transitions(states, [0, 0, 0], [0.0] * 3, states, action_labels=[0, 1])
    cells = statistics_of(log, reps, "dense").cells
    np.testing.assert_allclose(fade(reps, cells, np.array([[11.0], [11.5], [12.0]])), [1, 0.5, 0])


def test_where_all_cases_lie_at_representative_states_support_reaches_half_way_to_the_next():
    reps = np.array([[0.0], [1.0], [2.0], [7.0]])
    log = Transitions(reps, [0, 0, 1, 1], [0.0] * 4, reps)
    cells = statistics_of(log, reps, "dense").cells
    np.testing.assert_allclose(fade(reps, cells, np.array([[0.4], [7.5], [7.75], [8.1]])), [1, 1, 0.5, 0])


def test_an_empty_cell_is_judged_by_the_nearest_one_with_cases():
    reps = np.array([[0.0], [1.0], [50.0]])
    states = [[-1.0], [0.4], [1.6]]
    log = Transitions(states, [0, 1, 1], [0.0] * 3, states)
    cells = statistics_of(log, reps, "dense").cells
    assert fade(reps, cells, np.array([[50.0], [1.5]])).tolist() == [0.0, 1.0]


def test_no_cases_support_nothing():
    reps = np.array([[0.0], [1.0]])
    assert fade(reps, new_statistics(basis_of(reps, "dense")).cells, reps).tolist() == [0.0, 0.0]


def test_one_state_seen_many_times_is_supported_itself_and_nothing_else():
    log = Transitions([[3.7, 0.1]] * 9, [0] * 9, [1.0] * 9, [[3.7, 0.1]] * 9)
    model = KBSF(reps=[[3.7, 0.1]], scaling=[1.7, 0.3]).fit(log)
    inside = fade(
        model.statistics_.basis.reps, model.statistics_.cells, np.array([[3.7, 0.1], [3.8, 0.1]]) / [1.7, 0.3]
    )
    assert inside.tolist() == [1.0, 0.0]
