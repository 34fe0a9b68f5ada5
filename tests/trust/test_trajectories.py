"""Which row follows which: ends, cuts, gaps, and chunks that cut episodes anywhere."""

import numpy as np
import pytest

from kbrl import Transitions
from kbrl.trust.trajectories import Trajectories

DISCOUNT = 0.5


def log_of(episodes, *, ends=(), gap_after=None):
    """Return rows whose state counts up; those of ``ends`` are terminal, and after a gap the state jumps."""
    n = len(episodes)
    states = np.arange(n, dtype=float)[:, None]
    following = states + 1
    if gap_after is not None:
        following[gap_after] += 0.5
    terminals = np.isin(np.arange(n), ends)
    return Transitions(states, ["a"] * n, np.arange(1.0, n + 1), following, terminals, episodes)


def read(log, chunk_rows):
    trajectories = Trajectories(np.ones(1), DISCOUNT)
    found = [part for chunk in log.chunks(chunk_rows) for part in trajectories.add(chunk)]
    found += trajectories.finish()
    names = ("is_start", "is_followed", "is_cut", "powers", "so_far")
    return {name: np.concatenate([getattr(part, name)[: part.n_counted] for part in found]) for name in names}


def test_the_last_row_of_an_episode_is_an_end_if_it_is_terminal_and_a_cut_otherwise():
    found = read(log_of([7, 7, 7, 8, 8, 9], ends=[2]), 100)
    assert found["is_start"].tolist() == [True, False, False, True, False, True]
    assert found["is_followed"].tolist() == [True, True, False, True, False, False]
    assert found["is_cut"].tolist() == [False, False, False, False, True, True]
    assert found["powers"].tolist() == [1, 0.5, 0.25, 1, 0.5, 1]
    assert found["so_far"].tolist() == [1, 2, 2.75, 4, 6.5, 6]


def test_a_row_whose_next_state_is_not_that_of_the_next_row_is_cut_and_what_follows_has_no_part_in_the_return():
    found = read(log_of([7, 7, 7, 7], ends=[3], gap_after=1), 100)
    assert found["is_cut"].tolist() == [False, True, False, False]
    assert found["powers"].tolist() == [1, 0.5, 0, 0]
    assert found["so_far"][1] == 2
    assert found["is_start"].tolist() == [True, False, False, False]


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 5, 11])
def test_chunks_of_any_size_tell_the_same(chunk_rows):
    log = log_of([1, 1, 1, 2, 3, 3, 3, 3, 4, 4, 4], ends=[2, 3, 10], gap_after=5)
    whole, parts = read(log, 100), read(log, chunk_rows)
    for name, expected in whole.items():
        np.testing.assert_array_equal(parts[name], expected, err_msg=name)


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 4])
def test_an_identifier_may_start_again_at_once_after_an_end_wherever_chunks_are_cut(chunk_rows):
    log = log_of([1, 1, 1, 1, 2, 2], ends=[1, 3])
    whole, parts = read(log, 100), read(log, chunk_rows)
    assert whole["is_start"].tolist() == [True, False, True, False, True, False]
    for name, expected in whole.items():
        np.testing.assert_array_equal(parts[name], expected, err_msg=name)


@pytest.mark.parametrize("chunk_rows", [1, 100])
def test_an_episode_that_comes_back_after_others_is_refused_by_name(chunk_rows):
    with pytest.raises(ValueError, match=r"episode 7 starts again.*Sort the log"):
        read(log_of([7, 7, 8, 7]), chunk_rows)


def test_a_log_that_does_not_tell_episodes_apart_is_refused_with_a_way_out():
    log = Transitions([[0.0]], ["a"], [1.0], [[1.0]])
    with pytest.raises(ValueError, match=r"this log has none.*--episode"):
        read(log, 10)
