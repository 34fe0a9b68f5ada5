"""Transitions keep what they were given, give labels back, and cannot be changed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbrl import KbrlWarning, Transitions, join
from samples import logs, random_log


def small(**changes):
    fields = {
        "states": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]],
        "actions": ["left", "right", "left"],
        "rewards": [1.0, 2.0, 3.0],
        "next_states": [[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]],
        "terminals": [False, False, True],
    }
    return Transitions(**(fields | changes))


def test_labels_come_back_as_they_were_given():
    assert small().actions.tolist() == ["left", "right", "left"]
    assert small(actions=[7, -2, 7]).actions.tolist() == [7, -2, 7]
    assert small(actions=[True, False, True]).actions.tolist() == [True, False, True]
    assert small(actions=[0.5, 2.5, 0.5]).action_labels.tolist() == [0.5, 2.5]


def test_possible_actions_can_be_named_in_any_order_tried_or_not():
    log = small(action_labels=["right", "wait", "left"])
    assert log.action_indices.tolist() == [2, 0, 2]
    assert log.actions.tolist() == ["left", "right", "left"]
    assert [len(rows) for rows in log.by_action()] == [1, 0, 2]


def test_nothing_in_it_can_be_changed():
    log = small()
    with pytest.raises(ValueError, match="read-only"):
        log.states[0, 0] = 9.0
    with pytest.raises(AttributeError):
        log.rewards = np.zeros(3)


def test_later_changes_of_the_users_arrays_do_not_reach_it():
    states, rewards = np.zeros((3, 2)), np.zeros(3)
    log = small(states=states, rewards=rewards)
    states[:], rewards[:] = 1.0, 1.0
    assert log.states.sum() == 0 == log.rewards.sum()
    assert states.flags.writeable


def test_terminals_default_to_none_and_may_be_zeros_and_ones():
    assert not small(terminals=None).terminals.any()
    assert small(terminals=[0, 1, 0]).terminals.tolist() == [False, True, False]


def test_slices_keep_the_set_of_actions():
    log = small()
    assert log[1:].actions.tolist() == ["right", "left"]
    assert log[[0]].action_labels.tolist() == ["left", "right"]
    assert log[log.terminals].rewards.tolist() == [3.0]


@pytest.mark.parametrize("rows", [1, np.int64(1), np.array(1), None, ...], ids=repr)
def test_one_row_is_no_slice(rows):
    with pytest.raises(TypeError, match=r"sliced by a range or an array of rows.* log\[i:i \+ 1\]"):
        small()[rows]


def test_a_missing_label_is_named_whatever_stands_for_it():
    pd = pytest.importorskip("pandas")
    for missing in (None, np.nan, pd.NA, pd.NaT):
        with pytest.raises(ValueError, match="actions must be labels, but 1 of 3 rows are not; the first is row 1"):
            small(actions=np.array(["left", missing, "left"], dtype=object))


def test_joining_unites_the_actions():
    joined = small() + small(actions=["wait", "left", "wait"])
    assert joined.actions.tolist() == ["left", "right", "left", "wait", "left", "wait"]
    assert joined.action_labels.tolist() == ["left", "right", "wait"]


def test_episodes_survive_slicing_and_joining_where_all_have_them():
    log = small(episodes=["a", "a", "b"])
    assert log[1:].episodes.tolist() == ["a", "b"]
    assert (log + log).episodes.tolist() == ["a", "a", "b"] * 2
    assert (log + small()).episodes is None


@given(log=logs(), n_rows=st.integers(1, 40))
def test_chunks_joined_are_the_whole(log, n_rows):
    joined = join(list(log.chunks(n_rows)))
    for name in ("states", "rewards", "next_states", "terminals", "actions"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(log, name))


@given(log=logs())
def test_rows_by_action_are_those_of_the_action_in_order(log):
    for action, rows in enumerate(log.by_action()):
        np.testing.assert_array_equal(rows, np.flatnonzero(log.action_indices == action))


def test_its_representation_says_what_is_in_it():
    assert repr(small()) == "Transitions(3 rows, 2 state variables, 2 actions: left, right; 1 terminal)"
    assert "..." in repr(random_log(n=50, n_actions=9))


def log_of(actions, **more):
    n = len(actions)
    return Transitions(np.zeros((n, 2)), actions, np.zeros(n), np.zeros((n, 2)), **more)


def test_many_different_fractions_for_actions_are_doubted():
    rewards = np.random.default_rng(0).random(101)
    with pytest.warns(KbrlWarning, match=r"101 different labels, .* If these are rewards, check the order"):
        log = log_of(rewards)
    assert log.n_actions == 101
    np.testing.assert_array_equal(log.actions, rewards)


@pytest.mark.parametrize(
    "actions, more",
    [
        (np.repeat([0.5, 1.0, 2.5], 100), {}),  # doses
        (np.arange(20) / 7, {}),
        (np.repeat(np.arange(100), 5) / 7, {}),
        (np.arange(500.0), {}),  # whole numbers, written as others
        (np.arange(500), {}),
        ([f"{i / 7:.3f}" for i in range(500)], {}),
        (np.arange(500) / 7, {"action_labels": np.arange(500) / 7}),  # meant so
    ],
)
def test_labels_that_may_be_actions_are_not_doubted(actions, more):
    assert len(log_of(actions, **more)) == len(actions)


def test_a_masked_array_with_nothing_behind_its_mask_is_an_array():
    log = Transitions(np.ma.array([[0.0], [1.0]]), np.ma.array([0, 1]), [0.0, 1.0], [[1.0], [2.0]])
    np.testing.assert_array_equal(log.states, [[0.0], [1.0]])
    assert type(log.states) is np.ndarray
    assert type(log.actions) is np.ndarray


def test_logs_are_joined_from_any_iterable_of_them():
    log = log_of([0, 1, 1])
    np.testing.assert_array_equal(join(log[i : i + 1] for i in range(3)).actions, log.actions)
    np.testing.assert_array_equal((log + log).actions, [0, 1, 1, 0, 1, 1])
