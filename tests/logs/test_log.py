"""From rows to transitions: next states of the next row, ends and cuts, by hand and against a slow twin."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import KbrlWarning, join
from kbrl.logs.check import check_log
from kbrl.logs.log import load_log, read_log
from kbrl.tables.faults import LogError


def table(**columns):
    fields = {"episode": [0, 0, 0, 1, 1], "obs_x": [1.0, 2.0, 3.0, 4.0, 5.0], "action": list("abbab")}
    fields |= {"reward": [0.0, 1.0, 2.0, 3.0, 4.0], "terminated": [0, 0, 1, 0, 0], "truncated": [0, 0, 0, 0, 1]}
    return {name: np.array(column) for name, column in (fields | columns).items() if column is not None}


def test_next_states_come_from_the_next_row_and_the_last_row_is_closed_or_left_out():
    log = load_log(table())
    np.testing.assert_array_equal(log.states.ravel(), [1, 2, 3, 4])
    np.testing.assert_array_equal(log.next_states.ravel(), [2, 3, 3, 5])  # row 2 ended; row 4 was cut
    np.testing.assert_array_equal(log.terminals, [False, False, True, False])
    assert log.actions.tolist() == ["a", "b", "b", "a"]
    assert log.episodes.tolist() == [0, 0, 0, 1]


def test_next_states_of_the_log_are_kept_as_they_are():
    log = load_log(table(next_obs_x=[9.0, 8.0, 7.0, 6.0, 5.0]))
    np.testing.assert_array_equal(log.next_states.ravel(), [9, 8, 7, 6, 5])
    assert log.terminals.sum() == 1


def test_an_empty_next_state_is_closed_at_an_end_and_left_out_at_a_cut():
    log = load_log(table(next_obs_x=[2.0, 3.0, np.nan, 5.0, np.nan]))
    np.testing.assert_array_equal(log.states.ravel(), [1, 2, 3, 4])
    np.testing.assert_array_equal(log.next_states.ravel(), [2, 3, 3, 5])


def test_without_identifiers_episodes_end_where_the_flags_say():
    log = load_log(table(episode=None))
    np.testing.assert_array_equal(log.next_states.ravel(), [2, 3, 3, 5])
    assert log.episodes.tolist() == [0, 0, 0, 1]


def test_without_identifiers_and_flags_episodes_start_where_the_steps_go_back():
    log = load_log(table(episode=None, terminated=None, truncated=None, step=[0, 1, 2, 0, 1]))
    np.testing.assert_array_equal(log.states.ravel(), [1, 2, 4])
    assert not log.terminals.any()


def test_done_is_an_end_unless_the_row_was_cut():
    log = load_log(table(terminated=None, truncated=None, done=[0, 0, 1, 0, 1], timeouts=[0, 0, 1, 0, 0]))
    np.testing.assert_array_equal(log.states.ravel(), [1, 2, 4, 5])
    assert log.terminals.tolist() == [False, False, False, True]


def test_done_beside_terminated_says_that_the_episode_was_cut():
    columns = table(truncated=None, done=[0, 0, 1, 0, 1])
    report = check_log(columns)
    assert "unfinished_episodes" not in [fault.name for fault in report.faults]
    assert load_log(columns).terminals.sum() == 1


def test_a_row_before_a_missing_step_is_left_out_where_the_stride_is_stated():
    log, stride = table(step=[0, 4, 12, 0, 4], terminated=None, truncated=None), {"stride": 4, "allow_gaps": True}
    with pytest.warns(KbrlWarning, match="3 of 5 rows are left out: 1 before a gap"):
        np.testing.assert_array_equal(load_log(log, columns=stride).states.ravel(), [1, 4])
    with pytest.warns(KbrlWarning, match="After 1 row the step rises by more than 4, its usual rise"):
        np.testing.assert_array_equal(load_log(log).states.ravel(), [1, 2, 4])


def test_times_that_are_no_whole_numbers_only_give_the_order():
    log = load_log(table(step=[0.0, 0.5, 2.25, 0.0, 7.5], terminated=None, truncated=None))
    np.testing.assert_array_equal(log.states.ravel(), [1, 2, 4])


def slow_transitions(rows):
    """What the reader should make of (episode, state, action, reward, terminated, truncated) rows, one by one."""
    made = []
    for row, following in zip(rows, [*rows[1:], None]):
        episode, state, action, reward, terminated, _ = row
        if terminated:
            made.append((state, action, reward, state, True, episode))
        elif following is not None and following[0] == episode:
            made.append((state, action, reward, following[1], False, episode))
    return made


@st.composite
def logs(draw):
    rows = []
    for episode in range(draw(st.integers(1, 5))):
        n_rows = draw(st.integers(1, 6))
        last = draw(st.sampled_from([(True, False), (False, True), (False, False), (True, True)]))
        for step in range(n_rows):
            flags = last if step == n_rows - 1 else (False, False)
            rows.append((episode, float(len(rows)), draw(st.sampled_from("ab")), draw(st.floats(-1, 1)), *flags))
    return rows


@settings(max_examples=60, deadline=None)
@given(rows=logs(), chunk_rows=st.integers(1, 12))
def test_chunks_agree_with_a_slow_twin_and_with_the_count_of_the_check(rows, chunk_rows):
    names = ("episode", "obs_x", "action", "reward", "terminated", "truncated")
    columns = {name: np.array(column) for name, column in zip(names, zip(*rows))}
    expected = slow_transitions(rows)
    allowed = {"allow_gaps": True}  # most rows may be left out
    assert check_log(columns, columns=allowed, chunk_rows=chunk_rows).n_transitions == len(expected)
    if not expected:
        with pytest.raises(LogError, match=r"None of the .* rows has a next state"):
            load_log(columns)
        return
    log = join(list(read_log(columns, columns=allowed, chunk_rows=chunk_rows)))
    fields = (log.states[:, 0], log.actions, log.rewards, log.next_states[:, 0], log.terminals, log.episodes)
    assert list(zip(*(field.tolist() for field in fields))) == expected
