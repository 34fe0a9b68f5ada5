"""Datasets of Minari and D4RL, written here as their libraries lay them out, and read without them."""

import json

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from kbrl.logs.check import check_log
from kbrl.logs.log import load_log
from kbrl.tables.faults import LogError

LENGTHS = (5, 3, 11)  # of the episodes; the second was cut


def episode(number, n_steps):
    rng = np.random.default_rng(number)
    last = np.arange(n_steps) == n_steps - 1
    return {
        "observations": rng.normal(size=(n_steps + 1, 2)).astype(np.float32),
        "actions": rng.integers(2, size=n_steps),
        "rewards": rng.normal(size=n_steps),
        "terminations": last & (number != 1),
        "truncations": last & (number == 1),
    }


EPISODES = [episode(number, n_steps) for number, n_steps in enumerate(LENGTHS)]


def write(folder, form, episodes=EPISODES):
    data = folder / "toy-v0" / "data"
    data.mkdir(parents=True)
    metadata = {"total_episodes": len(episodes), "total_steps": sum(LENGTHS), "data_format": form}
    (data / "metadata.json").write_text(json.dumps(metadata))
    if form == "hdf5":
        with h5py.File(data / "main_data.hdf5", "w") as file:
            for number, fields in enumerate(episodes):
                group = file.create_group(f"episode_{number}")
                for name, values in fields.items():
                    write_item(group, name, values)
        return data.parent
    for number, fields in enumerate(episodes):
        (data / str(number)).mkdir()
        (data / str(number) / "metadata.json").write_text(json.dumps({"id": number}))
        table = pa.table({name: padded(name, values) for name, values in fields.items()})
        if form == "parquet":
            parquet.write_table(table, data / str(number) / "part-0.parquet")
        else:
            with pa.ipc.new_file(str(data / str(number) / "part-0.arrow"), table.schema) as file:
                file.write_table(table)
    return data.parent


def write_item(group, name, values):
    if isinstance(values, dict):
        for part, array in values.items():
            write_item(group.require_group(name), part, array)
    else:
        group[name] = values


def padded(name, values):
    """The last row of every column but the observations means nothing."""
    if isinstance(values, dict):
        return pa.StructArray.from_arrays([padded(name, part) for part in values.values()], names=list(values))
    if name != "observations":
        return pa.array(np.append(values, values[:1] * 0))
    return pa.FixedSizeListArray.from_arrays(values.ravel(), values.shape[1])


@pytest.mark.parametrize("form", ["hdf5", "arrow", "parquet"])
@pytest.mark.parametrize("below", ["", "data"])
def test_every_layout_gives_the_transitions_of_the_episodes(tmp_path, form, below):
    log = load_log(write(tmp_path, form) / below)
    np.testing.assert_array_equal(log.states, np.concatenate([e["observations"][:-1] for e in EPISODES]))
    np.testing.assert_array_equal(log.next_states, np.concatenate([e["observations"][1:] for e in EPISODES]))
    np.testing.assert_array_equal(log.actions, np.concatenate([e["actions"] for e in EPISODES]))
    np.testing.assert_array_equal(log.rewards, np.concatenate([e["rewards"] for e in EPISODES]))
    np.testing.assert_array_equal(log.terminals, np.concatenate([e["terminations"] for e in EPISODES]))
    np.testing.assert_array_equal(log.episodes, np.repeat([0, 1, 2], LENGTHS))


@pytest.mark.parametrize("form", ["hdf5", "arrow", "parquet"])
def test_parts_of_an_observation_become_state_variables(tmp_path, form):
    episodes = [e | {"observations": {"goal": e["observations"][:, :1], "place": e["observations"]}} for e in EPISODES]
    log = load_log(write(tmp_path, form, episodes))
    stacked = np.concatenate([e["observations"][:-1] for e in EPISODES])
    np.testing.assert_array_equal(log.states, np.column_stack([stacked[:, 0], stacked]))


def test_eleven_episodes_come_in_the_order_of_their_numbers(tmp_path):
    log = load_log(write(tmp_path, "hdf5", [episode(number, 2) for number in range(11)]))
    assert log.episodes.tolist() == np.repeat(np.arange(11), 2).tolist()


FAULTS = {
    "a missing last observation": ("hdf5", {"observations": EPISODES[1]["observations"][:-1]}, "uneven_columns"),
    "rewards too short": ("hdf5", {"rewards": EPISODES[1]["rewards"][:-1]}, "uneven_columns"),
    "a NaN observation": ("arrow", {"observations": np.full((4, 2), np.nan, np.float32)}, "missing_state"),
    "an infinite reward": ("parquet", {"rewards": np.array([0.0, np.inf, 0.0])}, "infinite_reward"),
    "a termination in mid-episode": ("hdf5", {"terminations": np.array([1, 0, 0], bool)}, "rows_after_end"),
    "both flags": ("arrow", {"terminations": EPISODES[1]["truncations"]}, "both_flags"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_minari_takes_without_a_word_is_found(tmp_path, case):
    form, fault, name = FAULTS[case]
    source = write(tmp_path, form, [EPISODES[0], EPISODES[1] | fault, EPISODES[2]])
    assert name in [found.name for found in check_log(source).faults]


def test_a_flat_file_of_d4rl_is_a_table(tmp_path):
    names = {"observations": "observations", "actions": "actions", "rewards": "rewards"}
    names |= {"terminals": "terminations", "timeouts": "truncations"}
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        file.create_group("metadata")
        for name, own in names.items():
            pieces = [e[own][: len(e["actions"])] for e in EPISODES]
            file[name] = np.concatenate(pieces)
    log = load_log(tmp_path / "log.hdf5")
    assert len(log) == sum(LENGTHS) - 1  # the cut episode loses its last row
    assert log.terminals.sum() == 2


def test_a_truncated_file_is_refused(tmp_path):
    path = write(tmp_path, "hdf5") / "data" / "main_data.hdf5"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(LogError, match="cannot be read"):
        load_log(path)
