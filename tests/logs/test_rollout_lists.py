"""Rollouts of Gymnasium as a program holds them: lists of episodes and lists of steps."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from kbrl import KBSF, Transitions
from kbrl.logs.check import check_log
from kbrl.logs.log import load_log, read_log
from kbrl.tables.faults import LogError


@dataclass
class EpisodeData:
    """The fields of minari.EpisodeData."""

    id: int
    observations: Any
    actions: Any
    rewards: Any
    terminations: Any
    truncations: Any
    infos: Any = None


def roll(n_episodes=4, max_steps=12):
    """Play CartPole at random; return the steps as a loop has them, and the same episode by episode."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=max_steps)
    env.action_space.seed(0)
    steps, episodes = [], []
    for number in range(n_episodes):
        observation, _ = env.reset(seed=number)
        episode = {name: [] for name in ("observations", "actions", "rewards", "terminations", "truncations")}
        episode["observations"].append(observation)
        over = False
        while not over:
            action = env.action_space.sample()
            following, reward, terminated, truncated, _ = env.step(action)
            steps.append((observation, action, reward, following, terminated, truncated))
            for name, value in zip(episode, (following, action, reward, terminated, truncated)):
                episode[name].append(value)
            observation, over = following, terminated or truncated
        episodes.append(episode)
    env.close()
    return steps, episodes


STEPS, EPISODES = roll()
LENGTHS = [len(episode["actions"]) for episode in EPISODES]
SECOND = f"row {LENGTHS[0] + 1} (counting from 1)"  # where the second episode starts


def assert_same(log, steps):
    np.testing.assert_array_equal(log.states, np.array([step[0] for step in steps], dtype=np.float64))
    np.testing.assert_array_equal(log.actions, [step[1] for step in steps])
    np.testing.assert_array_equal(log.rewards, [step[2] for step in steps])
    np.testing.assert_array_equal(log.next_states, np.array([step[3] for step in steps], dtype=np.float64))
    np.testing.assert_array_equal(log.terminals, [step[4] for step in steps])


FORMS = {
    "steps": STEPS,
    "steps as a tuple": tuple(STEPS),
    "steps as lists": [list(step) for step in STEPS],
    "plain numbers": [(s.tolist(), int(a), float(r), n.tolist(), bool(e), bool(c)) for s, a, r, n, e, c in STEPS],
    "dicts of lists": EPISODES,
    "dicts of arrays": [{name: np.array(values) for name, values in episode.items()} for episode in EPISODES],
    "Minari's records": [EpisodeData(number, **episode) for number, episode in enumerate(EPISODES)],
    "other objects": [SimpleNamespace(**episode) for episode in EPISODES],
}


@pytest.mark.parametrize("form", FORMS)
def test_rollouts_of_a_real_environment_give_its_transitions(form):
    log = load_log(FORMS[form])
    assert_same(log, STEPS)
    np.testing.assert_array_equal(log.episodes, np.repeat(np.arange(len(LENGTHS)), LENGTHS))
    assert any(log.terminals)
    assert not all(step[4] for step in STEPS if step[5])  # some were cut, and a cut is no end


@pytest.mark.parametrize("form", FORMS)
def test_chunks_do_not_matter_and_a_model_learns_from_them(form):
    chunks = list(read_log(FORMS[form], chunk_rows=5))
    assert max(map(len, chunks)) == 5
    assert sum(map(len, chunks)) == len(STEPS)
    model = KBSF(n_reps=5, random_state=0).fit(read_log(FORMS[form], chunk_rows=5))
    assert model.n_samples_ == len(STEPS)


def test_the_check_reads_them_too():
    report = check_log(EPISODES)
    assert (report.n_rows, report.n_episodes) == (len(STEPS), len(EPISODES))
    assert not report.stops_learning


def test_words_as_actions_and_single_numbers_as_observations_will_do():
    steps = [(0.0, "left", 1.0, 1.0, False, False), (1.0, "right", 0.0, 2.0, True, False)]
    log = load_log(steps)
    assert isinstance(log, Transitions)
    assert log.states.tolist() == [[0.0], [1.0]]
    assert log.actions.tolist() == ["left", "right"]


def test_observations_with_more_dimensions_become_one_row_each():
    pictures = np.arange(24.0).reshape(3, 2, 4)
    log = load_log([{"observations": pictures, "actions": [0, 1], "rewards": [0, 1], "terminations": [0, 1]}])
    assert log.states.tolist() == pictures[:2].reshape(2, 8).tolist()
    steps = [(pictures[0], 0, 0.0, pictures[1], False, False), (pictures[1], 1, 1.0, pictures[2], True, False)]
    assert load_log(steps).next_states.tolist() == pictures[1:].reshape(2, 8).tolist()


def broken(**fields):
    return [EPISODES[0], EPISODES[1] | fields, EPISODES[2]]


def step(**fields):
    names = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
    return [STEPS[0], tuple((dict(zip(names, STEPS[1])) | fields).values()), STEPS[2]]


N = LENGTHS[1]
FAULTS = {
    "no last observation": (broken(observations=EPISODES[1]["observations"][:-1]), "uneven_columns", "Episode 1"),
    "too few rewards": (broken(rewards=[0.0]), "uneven_columns", "rewards has 1"),
    "no rewards": ([{name: EPISODES[0][name] for name in ("observations", "actions")}], "missing_column", "rewards"),
    "no truncations in one": (broken(truncations=None), "missing_column", "Episode 1 of the list lacks 'truncated'"),
    "a NaN in an episode": (broken(observations=[[np.nan] * 4] * (N + 1)), "missing_state", f"{SECOND}: nothing"),
    "parts in an episode": (broken(observations={"a": [1.0]}), "wrong_width", "FlattenObservation"),
    "ragged observations": (broken(observations=[[1.0], [1.0, 2.0]]), "ragged_state", "episode 1"),
    "another width": (broken(observations=np.zeros((N + 1, 3))), "ragged_state", f"{SECOND} has 3"),
    "a NaN in a step": (step(observation=np.full(4, np.nan)), "missing_state", "row 2 (counting from 1): nothing"),
    "an infinite reward": (step(reward=np.inf), "infinite_reward", "row 2 (counting from 1): inf"),
    "a dict in a step": (step(observation={"place": 1.0}), "wrong_width", "that of row 2 (counting from 1) is a dict"),
    "a tuple of arrays": (step(observation=(np.zeros(2), np.zeros(2))), "wrong_width", "a tuple of arrays"),
    "a step of another shape": (step(next_observation=np.zeros(3)), "ragged_state", "row 2 (counting from 1) has (3,)"),
    "a vector as action": (step(action=[0.1, 0.2]), "ragged_state", "action"),
    "words and numbers": (step(action="left"), "mixed_actions", "mixes"),
    "a flag that is none": (step(terminated=0.5), "bad_flag", "row 2 (counting from 1): 0.5"),
    "five entries": ([STEPS[0], STEPS[1][:5]], "uneven_columns", "row 2 (counting from 1) is 5 entries"),
    "no step": ([STEPS[0], None], "uneven_columns", "row 2 (counting from 1) is a NoneType"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAULTS)
def test_what_is_wrong_with_rollouts_is_said(case):
    source, name, words = FAULTS[case]
    with pytest.raises(LogError) as error:
        load_log(source)
    assert error.value.fault.name == name
    assert words in str(error.value)


@pytest.mark.parametrize(("source", "words"), [([3, 4], "list of int"), ([], "list without entries"), (3, "int")])
def test_what_is_no_rollout_is_refused(source, words):
    with pytest.raises(TypeError, match=f"a list of episodes.* or a list of steps .*, but it is {words}"):
        load_log(source)
