"""Logs written down from episodes side by side, judged by a slow twin that keeps a list of rows an episode."""

import numpy as np
import pytest

from kbrl.trials import collect, recording, rollout


class Walk:
    """A walk on the whole numbers in two variables, the step and its square, that ends beyond 4 or is cut at -4."""

    actions = ("down", "up")
    discount = 0.9
    max_steps = 30
    max_parallel = 5

    def __init__(self, in_place=False):
        self.in_place = in_place

    def reset(self, n, rng):
        return rng.integers(-2, 3, size=(n, 1)).astype(float)

    def step(self, states, actions, rng):
        moved = states if self.in_place else states.copy()
        moved += (2 * actions - 1)[:, None] * rng.integers(1, 3, size=(len(states), 1))
        return moved, moved[:, 0] * 0.5, moved[:, 0] > 4

    def observe(self, states):
        return states if self.in_place else np.hstack([states, states**2])

    def truncates(self, states):
        return states[:, 0] < -4


def slow_batch(simulator, policy, n_episodes, rng, max_steps):
    """Run episodes in step, one list of rows each; the draws come in the same order as in ``collect``."""
    states = simulator.reset(n_episodes, rng)
    seen = simulator.observe(states)
    episodes = [[] for _ in range(n_episodes)]
    running = list(range(n_episodes))
    for _ in range(max_steps):
        actions = rng.integers(len(simulator.actions), size=len(running)) if policy is None else policy(seen)
        states, rewards, terminals = simulator.step(states, actions, rng)
        next_seen = simulator.observe(states)
        for i, episode in enumerate(running):
            episodes[episode].append((seen[i], actions[i], rewards[i], next_seen[i], terminals[i]))
        going = [i for i in range(len(running)) if not (terminals[i] or simulator.truncates(states)[i])]
        running, states, seen = [running[i] for i in going], states[going], next_seen[going]
        if not running:
            break
    return episodes


def as_columns(episodes):
    rows = [(*row, number) for number, episode in enumerate(episodes) for row in episode]
    return [np.array(column) for column in zip(*rows)]


def columns_of(log):
    return [log.states, log.action_indices, log.rewards, log.next_states, log.terminals, log.episodes]


def upwards(observations):
    return (observations[:, 0] <= 0).astype(int)


@pytest.mark.parametrize("policy", [None, upwards])
@pytest.mark.parametrize("n_episodes, max_steps", [(1, 1), (1, 30), (5, 3), (5, 30)])
def test_a_recorded_batch_is_that_of_a_list_of_rows_an_episode(policy, n_episodes, max_steps):
    expected = as_columns(slow_batch(Walk(), policy, n_episodes, np.random.default_rng(3), max_steps))
    if policy is None:  # collect asks for n rows, so that it runs the fewest episodes that could have them
        log = collect(Walk(), n_episodes * max_steps, None, 3, max_steps=max_steps)
    else:
        log = rollout(Walk(), policy, n_episodes, 3, max_steps=max_steps, record=True).log
    for ours, theirs in zip(columns_of(log), expected):
        np.testing.assert_array_equal(ours[: len(theirs)], theirs)


def test_a_simulator_may_move_its_states_in_place():
    for n in (1, 40, 300):
        one, other = collect(Walk(), n, upwards, 7), collect(Walk(in_place=True), n, upwards, 7)
        np.testing.assert_array_equal(one.states[:, :1], other.states)
        np.testing.assert_array_equal(one.next_states[:, :1], other.next_states)
    starts = np.array([[0.0], [1.0]])
    rollout(Walk(in_place=True), upwards, starts, 0)
    np.testing.assert_array_equal(starts, [[0.0], [1.0]])


@pytest.mark.parametrize("room", [1, 4, 50])
def test_room_that_grows_does_not_change_a_log(room, monkeypatch):
    usual = collect(Walk(), 200, None, 1)
    monkeypatch.setattr(recording, "FIRST_ROOM", room)
    for ours, theirs in zip(columns_of(collect(Walk(), 200, None, 1)), columns_of(usual)):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_episodes_are_written_as_far_as_there_is_room(n):
    # Episode 0 goes 0, 1, 2 and is cut; episode 1 goes 5, 6 and ends; episode 2 goes 7, 8, 9 and ends.
    recorder = recording.Recorder()
    recorder.start(np.array([[0.0], [5.0], [7.0]]), 2)
    for rows, actions, seen, ends in [
        ([0, 1, 2], [1, 0, 1], [1.0, 6.0, 8.0], [0, 1, 0]),
        ([0, 2], [0, 0], [2.0, 9.0], [0, 1]),
    ]:
        taken = (np.array(actions), np.array(seen) / 10, np.array(seen)[:, None], np.array(ends, dtype=bool))
        recorder.add(recording.Step(np.array(rows), *taken))
    pages = recording.empty_pages(n, 1)
    recorder.write(pages, 0, 40)
    assert recorder.n_rows == 5
    np.testing.assert_array_equal(pages.states[:, 0], [0, 1, 5, 7, 8][:n])
    np.testing.assert_array_equal(pages.next_states[:, 0], [1, 2, 6, 8, 9][:n])
    np.testing.assert_array_equal(pages.actions, [1, 0, 0, 1, 0][:n])
    np.testing.assert_array_equal(pages.rewards, [0.1, 0.2, 0.6, 0.8, 0.9][:n])
    np.testing.assert_array_equal(pages.terminals, [False, False, True, False, True][:n])
    np.testing.assert_array_equal(pages.episodes, [40, 40, 41, 42, 42][:n])
