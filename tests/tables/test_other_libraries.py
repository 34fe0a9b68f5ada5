"""Files of other libraries, written here in their documented layout, give the transitions that they were made from."""

import json

import gymnasium
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from kbrl.logs.check import check_log
from kbrl.logs.log import load_log, read_log
from kbrl.tables.faults import LogError
from kbrl.tables.formats import open_table
from kbrl.tables.text_files import dialect_in

LENGTHS = (6, 4, 9)  # of the episodes; the second was cut


def episodes():
    """Return the truth: for each episode the states it went through, one more than its actions, and the rest."""
    rng = np.random.default_rng(5)
    for number, length in enumerate(LENGTHS):
        states, actions = rng.normal(size=(length + 1, 2)).astype(np.float32), rng.integers(3, size=length)
        yield states, actions, rng.normal(size=length).astype(np.float32), number != 1


def write_d3rlpy(path, tuples=False, **changes):
    """Write what ``ReplayBuffer.dump`` of d3rlpy 2.8 writes: io.py, DATASET_VERSION 2.1."""
    with h5py.File(path, "w") as file:
        file.create_dataset("columns", data=["observations", "actions", "rewards", "terminated"])
        file.create_dataset("num_episodes", data=len(LENGTHS))
        for i, (states, actions, rewards, ended) in enumerate(episodes()):
            if tuples:
                for j in range(2):
                    file.create_dataset(f"observations_{i}_{j}", data=states[:-1, [j]])
            else:
                file.create_dataset(f"observations_{i}", data=states[:-1])
            fields = {"actions": actions[:, None], "rewards": rewards[:, None], "terminated": ended} | changes
            for name, values in fields.items():
                file.create_dataset(f"{name}_{i}", data=values)
        file.create_dataset("version", data="2.1")
    return path


@pytest.mark.parametrize("tuples", [False, True], ids=["arrays", "tuples of arrays"])
def test_a_file_of_d3rlpy_gives_its_transitions(tmp_path, tuples):
    log = load_log(write_d3rlpy(tmp_path / "buffer.h5", tuples=tuples))
    states, following, actions, rewards, ends = [], [], [], [], []
    for observed, taken, paid, ended in episodes():
        n = len(taken) if ended else len(taken) - 1  # d3rlpy: what follows the last row of a cut episode is not known
        states.append(observed[:-1][:n])
        following.append(np.vstack([observed[1:-1], observed[-2:-1]])[:n])
        actions.append(taken[:n])
        rewards.append(paid[:n])
        ends.append((np.arange(n) == n - 1) & ended)
    np.testing.assert_array_equal(log.states, np.concatenate(states))
    np.testing.assert_array_equal(log.next_states, np.concatenate(following))
    np.testing.assert_array_equal(log.actions, np.concatenate(actions))
    np.testing.assert_array_equal(log.rewards, np.concatenate(rewards))
    np.testing.assert_array_equal(log.terminals, np.concatenate(ends))


def test_a_file_of_d3rlpy_whose_fields_differ_in_length_is_refused(tmp_path):
    path = write_d3rlpy(tmp_path / "buffer.h5", actions=np.zeros((2, 1)))
    with pytest.raises(LogError, match=r"Episode 0 must have 6 entries in every field, .* but actions has 2"):
        load_log(path)


def replay_buffer(n_steps=8, n_envs=1, width=3):
    """Return the arrays of a replay buffer of Stable-Baselines3 2.9: common/buffers.py."""
    rng = np.random.default_rng(2)
    done = rng.random((n_steps, n_envs)) < 0.4
    return {
        "observations": rng.normal(size=(n_steps, n_envs, width)).astype(np.float32),
        "next_observations": rng.normal(size=(n_steps, n_envs, width)).astype(np.float32),
        "actions": rng.integers(2, size=(n_steps, n_envs, 1)),
        "rewards": rng.normal(size=(n_steps, n_envs)).astype(np.float32),
        "dones": done.astype(np.float32),
        "timeouts": (done & (rng.random((n_steps, n_envs)) < 0.5)).astype(np.float32),
    }


@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize("form", ["npz", "mapping"])
def test_a_replay_buffer_gives_one_row_per_step_and_environment(tmp_path, form, n_envs):
    buffer = replay_buffer(n_envs=n_envs)
    np.savez(tmp_path / "buffer.npz", **buffer)
    source = buffer if form == "mapping" else tmp_path / "buffer.npz"
    log = load_log(source)
    by_environment = {name: array.swapaxes(0, 1) for name, array in buffer.items()}
    np.testing.assert_array_equal(log.states, by_environment["observations"].reshape(-1, 3))
    np.testing.assert_array_equal(log.next_states, by_environment["next_observations"].reshape(-1, 3))
    np.testing.assert_array_equal(log.actions, by_environment["actions"].ravel())
    ends = by_environment["dones"] * (1 - by_environment["timeouts"])
    np.testing.assert_array_equal(log.terminals, ends.ravel() == 1)
    expected, number = [], -1  # episodes, counted one environment after the other
    for environment in by_environment["dones"]:
        for before in [1.0, *environment[:-1]]:
            number += int(before == 1)
            expected.append(number)
    np.testing.assert_array_equal(log.episodes, expected)
    chunks = list(read_log(source, chunk_rows=5))
    for name in ("states", "episodes"):
        np.testing.assert_array_equal(np.concatenate([getattr(c, name) for c in chunks]), getattr(log, name))


def test_a_buffer_of_several_environments_needs_next_observations(tmp_path):
    buffer = replay_buffer(n_envs=2)
    del buffer["next_observations"]
    np.savez(tmp_path / "buffer.npz", **buffer)
    with pytest.raises(LogError, match="A replay buffer of 2 environments must have next_observations"):
        load_log(tmp_path / "buffer.npz")


def test_a_pictured_observation_becomes_one_row():
    buffer = replay_buffer(width=6)
    for name in ("observations", "next_observations"):
        buffer[name] = buffer[name].reshape(8, 1, 2, 3)
    assert load_log(buffer).states.shape == (8, 6)


def write_minari(folder):
    """Write what Minari 0.5 keeps for one dataset: data/main_data.hdf5 and data/metadata.json."""
    (folder / "data").mkdir(parents=True)
    with h5py.File(folder / "data" / "main_data.hdf5", "w") as file:
        for number, (states, actions, rewards, ended) in enumerate(episodes()):
            group, last = file.create_group(f"episode_{number}"), np.arange(len(actions)) == len(actions) - 1
            group["observations"], group["actions"], group["rewards"] = states, actions, rewards
            group["terminations"], group["truncations"] = last & ended, last & (not ended)
    (folder / "data" / "metadata.json").write_text(json.dumps({"total_episodes": len(LENGTHS)}))


@pytest.mark.parametrize("written", ["ward/simple-v0", "minari:ward/simple-v0"])
def test_a_dataset_of_minari_is_found_by_its_id_in_the_local_cache(tmp_path, monkeypatch, written):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "cache"))
    write_minari(tmp_path / "cache" / "ward" / "simple-v0")
    log = load_log(written)
    np.testing.assert_array_equal(log.states, np.concatenate([states[:-1] for states, *_ in episodes()]))
    np.testing.assert_array_equal(log.next_states, np.concatenate([states[1:] for states, *_ in episodes()]))


@pytest.mark.parametrize("written", ["ward/other-v0", "../cache/ward/simple-v0", "minari:"])
def test_an_id_that_is_not_in_the_cache_or_leads_out_of_it_is_no_file(tmp_path, monkeypatch, written):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "cache"))
    write_minari(tmp_path / "cache" / "ward" / "simple-v0")
    monkeypatch.chdir(tmp_path)
    report = check_log(written if written != "../cache/ward/simple-v0" else "../nowhere/../cache/ward/simple-v0")
    assert report.faults[0].name == "missing_file"


SPACES = {
    "Discrete": gymnasium.spaces.Discrete(5, start=2),
    "MultiDiscrete": gymnasium.spaces.MultiDiscrete([3, 4, 2]),
    "Dict": gymnasium.spaces.Dict({"place": gymnasium.spaces.Box(-1, 1, (2,)), "gear": gymnasium.spaces.Discrete(4)}),
    "Dict in a Dict": gymnasium.spaces.Dict(
        {"arm": gymnasium.spaces.Dict({"angle": gymnasium.spaces.Box(-1, 1, (1,))}), "on": gymnasium.spaces.Discrete(2)}
    ),
    "Tuple": gymnasium.spaces.Tuple([gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Box(0, 1, (1,))]),
}


def numbers_in(observation):
    """Return the numbers of an observation in the order of its parts."""
    if isinstance(observation, dict):
        return np.concatenate([numbers_in(observation[key]) for key in observation])
    if isinstance(observation, tuple):
        return np.concatenate([numbers_in(part) for part in observation])
    return np.ravel(observation).astype(float)


def roll(space, n_steps=7):
    space.seed(0)
    seen = [space.sample() for _ in range(n_steps + 1)]
    return [(seen[k], k % 2, float(k), seen[k + 1], k == n_steps - 1, False) for k in range(n_steps)]


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("form", ["steps", "episode"])
def test_observations_of_every_space_become_numbers_part_by_part(name, form):
    steps = roll(SPACES[name])
    seen = [step[0] for step in steps] + [steps[-1][3]]
    episode = {"observations": seen, "actions": [s[1] for s in steps], "rewards": [s[2] for s in steps]}
    if form == "episode" and name == "Tuple":
        episode["observations"] = tuple(np.array([o[k] for o in seen]) for k in range(2))  # as Minari holds them
    log = load_log(steps if form == "steps" else [episode | {"terminations": [s[4] for s in steps]}])
    np.testing.assert_allclose(log.states, [numbers_in(step[0]) for step in steps])
    np.testing.assert_allclose(log.next_states, [numbers_in(step[3]) for step in steps])


def test_the_parts_of_an_observation_have_names():
    log = load_log(roll(gymnasium.spaces.Dict({"x": gymnasium.spaces.Discrete(3), "y": gymnasium.spaces.Discrete(3)})))
    assert log.state_names == ("observation_x", "observation_y")


def lerobot(n_episodes=6, length=20):
    """Return a table in the layout of LeRobot's dataset v2: lists of numbers for state and action."""
    rng = np.random.default_rng(8)
    n = n_episodes * length
    frame = np.tile(np.arange(length), n_episodes)
    lists = {"observation.state": rng.normal(size=(n, 3)), "action": rng.uniform(-1, 1, size=(n, 2))}
    table = pa.table({name: pa.FixedSizeListArray.from_arrays(v.ravel(), v.shape[1]) for name, v in lists.items()})
    rest = {"episode_index": np.repeat(np.arange(n_episodes), length), "frame_index": frame}
    rest |= {"next.reward": rng.normal(size=n), "next.done": frame == length - 1}
    for name, values in rest.items():
        table = table.append_column(name, pa.array(values))
    return table, lists


def test_the_entries_of_a_vector_become_columns_with_classes_of_their_own(tmp_path):
    table, lists = lerobot()
    parquet.write_table(table, tmp_path / "episode.parquet")
    stated = {"split": "action", "action": ["action_0", "action_1"], "bins": {"action_0": [0.0], "action_1": [0.0]}}
    log = load_log(tmp_path / "episode.parquet", columns=stated)
    np.testing.assert_array_equal(log.states, lists["observation.state"])
    assert log.n_actions == 4
    sign = [tuple(entry >= 0 for entry in action) for action in lists["action"]]
    of_label = {}
    for label, signs in zip(log.actions.tolist(), sign):
        assert of_label.setdefault(label, signs) == signs  # one label per pair of signs
    assert len(set(of_label.values())) == 4


def test_the_entries_of_a_list_stand_where_it_stood():
    table, lists = lerobot()
    parts = open_table(table, dialect_in({"split": ["observation.state"]}))
    assert parts.names[:4] == ("observation.state_0", "observation.state_1", "observation.state_2", "action")
    entry = next(parts.batches({"observation.state_2": "numbers"}, 50))["observation.state_2"].values
    np.testing.assert_array_equal(entry, lists["observation.state"][:50, 2])


@pytest.mark.parametrize(
    ("split", "words"), [("nothing", "should be in 'nothing'"), ("frame_index", "must hold lists of numbers")]
)
def test_what_cannot_be_split_is_refused(split, words):
    with pytest.raises(LogError, match=words):
        load_log(lerobot()[0], columns={"split": split})


def test_a_file_of_d3rlpy_1_says_where_episodes_were_cut(tmp_path):
    """Version 1 keeps flat arrays; ``episode_terminals`` is also true where an episode was only cut."""
    whole = list(episodes())
    is_last = np.concatenate([np.arange(len(actions)) == len(actions) - 1 for _, actions, _, _ in whole])
    ended = np.repeat([ended for *_, ended in whole], LENGTHS)
    with h5py.File(tmp_path / "log.h5", "w") as file:
        file["observations"] = np.concatenate([states[:-1] for states, *_ in whole])
        file["actions"] = np.concatenate([actions for _, actions, _, _ in whole])
        file["rewards"] = np.concatenate([rewards for _, _, rewards, _ in whole])
        file["terminals"], file["episode_terminals"] = is_last & ended, is_last
    with pytest.warns(match="1 at the end of an episode that was cut"):
        log = load_log(tmp_path / "log.h5")
    assert np.unique(log.episodes, return_counts=True)[1].tolist() == [6, 3, 9]
    assert log.terminals.sum() == 2
