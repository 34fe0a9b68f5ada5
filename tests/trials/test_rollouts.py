"""Logs and returns, judged on a corridor whose episodes can be worked out by hand."""

import numpy as np
import pytest

from kbrl.trials import collect, rollout


class Corridor:
    """Cells 0, 1, 2, ...; "on" moves one further, "stay" does not; cell 5 is the end, and entering it pays 1.

    What is observed is twice the cell; each decision costs 0.1.
    """

    actions = ("on", "stay")
    discount = 0.5
    max_steps = 20
    max_parallel = 7

    def __init__(self, cut_at=None):
        self.cut_at = cut_at
        self.largest_batch = 0

    def reset(self, n, rng):
        return rng.integers(0, 3, size=(n, 1)).astype(float)

    def step(self, states, actions, rng):
        self.largest_batch = max(self.largest_batch, len(states))
        next_states = states + (actions == 0)[:, None]
        ends = next_states[:, 0] == 5
        return next_states, ends - 0.1, ends

    def observe(self, states):
        return 2 * states

    def truncates(self, states):
        return states[:, 0] == self.cut_at


def on(observations):
    return np.zeros(len(observations), dtype=int)


def stay(observations):
    return np.ones(len(observations), dtype=int)


def episodes_of(log):
    """Split a log where the episode's number changes."""
    cuts = np.flatnonzero(np.diff(log.episodes)) + 1
    return np.split(np.arange(len(log)), cuts)


@pytest.mark.parametrize("n", [1, 2, 19, 20, 21, 1000])
def test_a_log_has_exactly_the_rows_asked_for(n):
    assert len(collect(Corridor(), n, random_state=0)) == n


def test_the_same_seed_gives_the_same_log():
    one, two, other = (collect(Corridor(), 500, random_state=seed) for seed in (1, 1, 2))
    for field in ("states", "action_indices", "rewards", "next_states", "terminals", "episodes"):
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))
    assert not np.array_equal(one.action_indices, other.action_indices)


def test_a_random_generator_goes_on_where_it_stopped():
    rng = np.random.default_rng(0)
    assert not np.array_equal(collect(Corridor(), 99, None, rng).actions, collect(Corridor(), 99, None, rng).actions)


def test_episodes_follow_each_other_whole_and_in_time_order():
    log = collect(Corridor(), 3000, random_state=0)
    episodes = episodes_of(log)
    np.testing.assert_array_equal([log.episodes[rows[0]] for rows in episodes], np.arange(len(episodes)))
    for rows in episodes[:-1]:
        np.testing.assert_array_equal(log.next_states[rows[:-1]], log.states[rows[1:]])
        assert not log.terminals[rows[:-1]].any()
        assert log.terminals[rows[-1]] or len(rows) == Corridor.max_steps


def test_a_time_limit_cuts_an_episode_without_ending_it():
    log = collect(Corridor(), 100, stay, random_state=0)
    assert [len(rows) for rows in episodes_of(log)] == [20] * 5
    assert not log.terminals.any()
    assert [len(rows) for rows in episodes_of(collect(Corridor(), 100, stay, max_steps=25))] == [25] * 4


def test_a_cut_of_the_simulators_own_is_no_end_either():
    log = collect(Corridor(cut_at=4), 100, on, random_state=0)
    assert not log.terminals.any()
    assert {len(rows) for rows in episodes_of(log)[:-1]} == {2, 3, 4}


def test_a_log_holds_what_is_observed_and_the_places_of_the_actions():
    log = collect(Corridor(), 200, random_state=0)
    np.testing.assert_array_equal(log.next_states - log.states, 2.0 * (log.actions == 0)[:, None])
    np.testing.assert_array_equal(log.action_labels, [0, 1])
    np.testing.assert_allclose(log.rewards, log.terminals - 0.1)


def test_short_episodes_are_as_frequent_as_in_a_log_made_one_after_the_other():
    # Starts are uniform over cells 0, 1, 2, so that episodes last 5, 4 or 3 steps equally often.
    log = collect(Corridor(), 24_000, on, random_state=0)
    lengths = np.array([len(rows) for rows in episodes_of(log)][:-1])
    assert abs(lengths.mean() - 4) < 5 * np.sqrt(2 / 3 / len(lengths))


def test_no_more_episodes_run_side_by_side_than_the_simulator_allows():
    simulator = Corridor()
    collect(simulator, 2000, random_state=0)
    rollout(simulator, on, np.zeros((30, 1)))
    assert simulator.largest_batch == Corridor.max_parallel


def test_returns_lengths_and_ends_are_those_worked_out_by_hand():
    judged = rollout(Corridor(), on, [[4.0], [3.0], [2.0]])
    # -0.1 a decision and 1 in the last, at discount 1/2: 0.9; -0.1 + 0.45; -0.1 - 0.05 + 0.225.
    np.testing.assert_allclose(judged.returns, [0.9, 0.35, 0.075])
    np.testing.assert_array_equal(judged.lengths, [1, 2, 3])
    assert judged.terminated.all()
    assert judged.log is None


def test_a_rollout_that_never_ends_is_cut_and_keeps_its_return_so_far():
    judged = rollout(Corridor(), stay, [[0.0], [4.0]], max_steps=3)
    np.testing.assert_allclose(judged.returns, -0.1 * (1 + 0.5 + 0.25))
    np.testing.assert_array_equal(judged.lengths, [3, 3])
    assert not judged.terminated.any()


def test_a_rollout_can_start_where_the_simulator_starts():
    judged = rollout(Corridor(), on, 25, random_state=0)
    assert set(judged.lengths) <= {3, 4, 5}
    assert len(judged.returns) == 25


def test_recorded_trajectories_belong_to_their_start_states():
    starts = np.random.default_rng(0).integers(0, 5, size=(20, 1)).astype(float)
    judged = rollout(Corridor(), on, starts, record=True)
    np.testing.assert_array_equal(np.bincount(judged.log.episodes), judged.lengths)
    first = [rows[0] for rows in episodes_of(judged.log)]
    np.testing.assert_array_equal(judged.log.states[first], 2 * starts)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: collect(Corridor(), -5), "n must be at least 1, but it is -5"),
        (lambda: collect(Corridor(), 0), "n must be at least 1, but it is 0"),
        (lambda: collect(Corridor(), 2.5), "n must be a whole number, but it is 2.5"),
        (lambda: collect(Corridor(), 5, max_steps=0), "max_steps must be at least 1"),
        (lambda: collect(Corridor(), 5, random_state=-1), "random_state must be"),
        (lambda: collect(Corridor(), 5, lambda seen: [0, 1, 0]), "one action per state"),
        (lambda: collect(Corridor(), 5, lambda seen: seen[:, 0] + 7), "actions must be whole numbers from 0 to 1"),
        (lambda: collect(Corridor(), 5, lambda seen: ["off"] * len(seen)), "the first is row 0: 'off'"),
        (lambda: rollout(Corridor(), on, [[0.0]], max_steps=-1), "max_steps must be at least 1"),
        (lambda: rollout(Corridor(), on, [0.0]), "two dimensions"),
        (lambda: rollout(Corridor(), on, 0), "states must be at least 1"),
        (lambda: rollout(Corridor(), on, [[np.nan]]), "states must be finite"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
