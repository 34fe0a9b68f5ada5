"""Logs as files: canonical columns, nothing lost."""

import csv

import numpy as np
import pytest

from kbrl import Transitions, load_log
from kbrl.logs.writing import as_columns, write_log
from samples import random_log

LOG = Transitions(
    states=[[0.1, 1e-17], [1 / 3, 2.0], [5.0, 6.0]],
    actions=["go", "wait", "go"],
    rewards=[1.5, -2.0, 0.0],
    next_states=[[1 / 3, 2.0], [9.0, 9.0], [7.0, 8.0]],
    terminals=[False, True, False],
    episodes=[4, 4, 7],
)


def test_csv_has_the_canonical_columns_and_every_digit(tmp_path):
    write_log(LOG, tmp_path / "log.csv", names=["x", "v"])
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "episode_id", "step", "observation_x", "observation_v", "action", "reward",
        "next_observation_x", "next_observation_v", "terminated", "truncated",
    ]  # fmt: skip
    assert [float(row["observation_x"]) for row in rows] == [0.1, 1 / 3, 5.0]
    assert [row["action"] for row in rows] == ["go", "wait", "go"]
    assert [(row["episode_id"], row["step"]) for row in rows] == [("4", "0"), ("4", "1"), ("7", "0")]
    assert [row["terminated"] for row in rows] == ["False", "True", "False"]
    assert [row["truncated"] for row in rows] == ["False", "False", "True"]


def test_npz_has_the_same_columns(tmp_path):
    write_log(LOG, tmp_path / "log.npz")
    with np.load(tmp_path / "log.npz") as file:
        assert set(file) == set(as_columns(LOG))
        np.testing.assert_array_equal(file["next_observation_1"], LOG.next_states[:, 1])


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow", ".npz"])
def test_a_log_comes_back_as_it_was_written(tmp_path, ending):
    rng, log = np.random.default_rng(0), random_log(n=50, n_dims=3, n_actions=3)
    fields = (log.states, log.actions, log.rewards, log.next_states, log.terminals, np.arange(50) // 10)
    lasting = np.where(log.terminals, 1.0, rng.uniform(0.5, 2.0, 50))  # after an end nothing follows
    more = {"durations": lasting, "propensities": rng.uniform(0.1, 1.0, 50)}
    log = Transitions(*fields, state_names=["age", "sofa", "a b"], **more)
    write_log(log, tmp_path / f"log{ending}")
    again = load_log(tmp_path / f"log{ending}")
    assert again.state_names == ("observation_age", "observation_sofa", "observation_a b")
    for name in ("states", "actions", "rewards", "next_states", "terminals", "episodes", *more):
        np.testing.assert_array_equal(getattr(again, name), getattr(log, name))
    assert list(as_columns(again)) == list(as_columns(log))


def test_another_ending_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"written as .csv, .parquet, .arrow or .npz, but the path ends in '.txt'"):
        write_log(random_log(), tmp_path / "log.txt")
    assert not list(tmp_path.iterdir())
