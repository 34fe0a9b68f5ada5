"""Rows that were not written in the order of their episodes: sorted as pandas sorts them, in memory and by files."""

import warnings

import numpy as np
import pandas
import pytest

from kbrl import load_log, open_log
from kbrl.checks import KbrlWarning
from kbrl.logs.columns import resolve
from kbrl.logs.sorted_table import SortedTable
from kbrl.tables.cell_values import join_columns
from kbrl.tables.faults import LogError
from kbrl.tables.formats import open_table, regrouped
from messy_ward import COLUMNS, clean_log, with_holes


def join_batches(batches):
    return {name: join_columns([batch[name] for batch in batches]) for name in batches[0]}


def shuffled(frame, seed=0):
    return frame.sample(frac=1.0, random_state=seed).reset_index(drop=True)


def by_pandas(frame):
    first = frame.groupby("patient", sort=False).ngroup()
    return frame.assign(first=first).sort_values(["first", "day"], kind="stable").drop(columns="first")


KINDS = {"patient": "labels", "day": "steps", "unit": "labels", "map": "numbers", "drug": "labels"}


@pytest.fixture(scope="module")
def frame():
    return shuffled(with_holes(clean_log(60)))


@pytest.mark.parametrize("stretch", [10, 100, 10**6])
@pytest.mark.parametrize("n_rows", [7, 1000])
def test_rows_come_as_pandas_sorts_them(frame, stretch, n_rows):
    columns = resolve(list(frame.columns), COLUMNS | {"sort": True})
    table = SortedTable(open_table(frame), columns, stretch=stretch)
    whole = join_batches(list(regrouped(table, KINDS, n_rows)))
    right = by_pandas(frame)
    np.testing.assert_array_equal(whole["map"].values, right["map"])
    for name in ("patient", "unit", "drug"):
        labels = np.array([*whole[name].values, None], dtype=object)[whole[name].codes]
        assert [None if label != label else label for label in right[name].tolist()] == labels.tolist()


@pytest.mark.parametrize("stretch", [10, 10**6])
def test_cells_that_are_no_numbers_keep_their_texts_and_places(stretch):
    rows = {
        "who": [1, 1, 2, 2] * 10,
        "t": list(range(40))[::-1],
        "x": np.array([1.0, "?", 2.0, "-"] * 10, dtype=object),
    }
    rows |= {"action": ["a"] * 40, "reward": [1.0] * 40}
    columns = resolve(list(rows), {"state": "x", "episode": "who", "step": "t", "sort": True})
    table = SortedTable(open_table(rows), columns, stretch=stretch)
    whole = join_batches(list(regrouped(table, {"x": "numbers"}, 9)))["x"]
    assert sorted(set(whole.texts)) == ["'-'", "'?'"]
    odd = np.flatnonzero(whole.odd).tolist()
    assert [rows["x"][place.number - 1] for place in table.places(odd)] == [text.strip("'") for text in whole.texts]


def test_a_shuffled_log_gives_the_transitions_of_the_sorted_one_in_csv_too(frame, tmp_path):
    frame.to_csv(tmp_path / "ward.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        with pytest.raises(LogError, match="--sort"):
            load_log(frame, columns=COLUMNS)
        right = load_log(by_pandas(frame), columns=COLUMNS | {"missing": "forward"})
        for source in (frame, tmp_path / "ward.csv"):
            found = load_log(source, columns=COLUMNS | {"missing": "forward", "sort": True})
            for name in ("states", "next_states", "rewards", "terminals", "actions", "episodes"):
                np.testing.assert_array_equal(getattr(found, name), getattr(right, name))


def test_dates_with_zones_order_rows():
    rows = pandas.DataFrame(
        {
            "who": ["a", "a", "a"],
            "when": ["2024-03-01 09:00+01:00", "2024-03-01 08:30+00:00", "2024-02-29"],
            "x": [2.0, 3.0, 1.0],
            "action": ["p", "q", "p"],
            "reward": [0.0, 1.0, 0.0],
            "done": [0, 1, 0],
        }
    )
    log = load_log(rows, columns={"state": "x", "episode": "who", "step": "when", "sort": True})
    assert log.states.ravel().tolist() == [1, 2, 3]


def test_what_cannot_be_sorted_is_refused_with_the_column_and_the_row():
    rows = {"x": [1.0, 2.0], "action": ["a", "b"], "reward": [0, 1]}
    with pytest.raises(LogError, match="Rows can be sorted only by episode and step, but no column is either"):
        open_log(rows, columns={"state": "x", "sort": True})
    with pytest.raises(LogError, match=r"sorted by 't', but it is nothing at row 2 \(counting from 1\)"):
        open_log(rows | {"t": [1.0, None]}, columns={"state": "x", "step": "t", "sort": True})


def test_rows_that_are_there_twice_are_dropped_and_counted(frame, tmp_path):
    right = by_pandas(frame)
    twice = shuffled(pandas.concat([frame, frame[frame["patient"] < 5], frame[::7]]), seed=3)
    n_more = len(twice) - len(frame)
    twice.assign(note=np.arange(len(twice))).to_csv(tmp_path / "twice.csv", index=False)  # a column that is not read
    stated = COLUMNS | {"missing": "forward", "drop_repeats": True}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = load_log(tmp_path / "twice.csv", columns=stated)
        expected = load_log(right, columns=COLUMNS | {"missing": "forward"})
    told = [str(each.message) for each in said if "repeat" in str(each.message)]
    assert told == [
        f"{n_more} of {len(twice)} rows repeat another row of the same episode and step in every column that is read: "
        f"they are dropped."
    ]
    by_row = [np.lexsort((log.rewards, *log.states.T, *log.next_states.T)) for log in (found, expected)]
    for name in ("states", "next_states", "rewards", "terminals", "actions"):
        np.testing.assert_array_equal(getattr(found, name)[by_row[0]], getattr(expected, name)[by_row[1]])


@pytest.mark.parametrize("stretch", [10, 100, 10**6])
def test_repeats_are_dropped_in_memory_and_by_files_alike(frame, stretch):
    twice = pandas.concat([frame, frame[frame["patient"] < 20]]).reset_index(drop=True)  # the first one stays
    columns = resolve(list(frame.columns), COLUMNS | {"drop_repeats": True})
    table = SortedTable(open_table(twice), columns, stretch=stretch)
    whole = join_batches(list(regrouped(table, KINDS, 13)))
    np.testing.assert_array_equal(whole["map"].values, by_pandas(frame)["map"])
    assert table.n_repeats == len(twice) - len(frame)
    alone = SortedTable(open_table(frame), resolve(list(frame.columns), COLUMNS | {"sort": True}))
    assert table.places(range(len(frame))) == alone.places(range(len(frame)))


def test_rows_of_one_step_that_differ_are_refused_and_lists_are_compared():
    rows = {"who": [1, 1, 1], "t": [0, 0, 1], "x": [[1.0, 2.0], [1.0, 3.0], [2.0, 2.0]], "action": list("aba")}
    rows |= {"reward": [1.0, 1.0, 1.0], "terminated": [0, 0, 1]}
    stated = {"state": "x", "episode": "who", "step": "t", "drop_repeats": True}
    with pytest.raises(LogError, match=r"row 2 .* has step 0 after 0\. The two rows differ .*: delete the wrong one"):
        load_log(rows, columns=stated)
    same = rows | {"x": [[1.0, 2.0], [1.0, 2.0], [2.0, 2.0]], "action": list("aab")}
    with pytest.warns(KbrlWarning, match="1 of 3 rows repeat"):
        assert len(load_log(same, columns=stated)) == 2
    with pytest.raises(LogError, match=r"only by the step, but no column is the step.*--step NAME"):
        load_log({k: v for k, v in rows.items() if k != "t"}, columns={k: v for k, v in stated.items() if k != "step"})
