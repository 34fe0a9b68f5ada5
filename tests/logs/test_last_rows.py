"""The word last_row: complete episodes without a mark, and how they ended told on all of their rows."""

import numpy as np
import pandas
import pytest

from kbrl.logs.log import load_log, open_log
from kbrl.tables.faults import LogError

FATES = {"a": False, "b": True, "c": False}
TABLE = pandas.DataFrame(
    {
        "stay": list("aaabbc") + ["c"] * 4,
        "hour": [0, 1, 2, 0, 1, 0, 1, 2, 3, 4],
        "sofa": np.arange(10.0),
        "drug": list("xyxyxyxyxy"),
        "died": [FATES[stay] for stay in "aaabbccccc"],
    }
)
COLUMNS = {"state": "sofa", "action": "drug", "episode": "stay", "step": "hour"}
COLUMNS |= {"terminated": "last_row", "reward": "where(last_row, where(died, -1, 1), 0)"}
ENDS = [2, 4, 9]  # rows, worked out by hand


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 100])
@pytest.mark.parametrize("form", ["frame", "csv", "jsonl"])
def test_the_last_row_of_each_episode_ends_it_and_brings_its_reward(tmp_path, form, chunk_rows):
    source = TABLE
    if form == "csv":
        source = tmp_path / "log.csv"
        TABLE.to_csv(source, index=False)
    elif form == "jsonl":
        source = tmp_path / "log.jsonl"
        TABLE.to_json(source, orient="records", lines=True)
    chunks = list(open_log(source, columns=COLUMNS).chunks(chunk_rows))
    rewards, terminals = (np.concatenate([getattr(c, name) for c in chunks]) for name in ("rewards", "terminals"))
    assert np.flatnonzero(terminals).tolist() == ENDS
    assert rewards.tolist() == [0, 0, 1, 0, -1, 0, 0, 0, 0, 1]


def test_rows_are_sorted_before_their_last_one_is_looked_for():
    log = load_log(TABLE.sample(frac=1.0, random_state=1), columns=COLUMNS | {"sort": True})
    assert sorted(log.states[log.terminals, 0].tolist()) == ENDS


def test_an_episode_that_continues_in_the_next_file_does_not_end_with_the_first(tmp_path):
    for part, rows in enumerate((slice(0, 4), slice(4, None))):  # b is cut
        TABLE[rows].to_csv(tmp_path / f"part-{part}.csv", index=False)
    log = load_log(str(tmp_path / "*.csv"), columns=COLUMNS)
    assert np.flatnonzero(log.terminals).tolist() == ENDS


def test_a_cut_by_the_end_of_the_table_is_no_end():
    log = load_log(TABLE, columns=COLUMNS | {"terminated": "last_row and died", "truncated": "last_row and not died"})
    assert log.states[log.terminals, 0].tolist() == [4.0]


def test_a_column_of_this_name_is_a_column():
    log = load_log(TABLE.assign(last_row=TABLE.hour == 0), columns=COLUMNS | {"reward": "2 * hour"})
    assert log.states[log.terminals, 0].tolist() == [0, 3, 5]


@pytest.mark.parametrize(("change", "why"), [
    ({"episode": None}, "no column is named as the episode"),
    ({"next_state": "after"}, "rows have next states of their own"),
])  # fmt: skip
def test_last_row_is_refused_where_nothing_tells_which_row_is_the_last(change, why):
    stated = {role: name for role, name in (COLUMNS | change).items() if name is not None}
    with pytest.raises(LogError, match=f"{why}.*--episode NAME"):
        load_log(TABLE.assign(after=0.0), columns=stated)
