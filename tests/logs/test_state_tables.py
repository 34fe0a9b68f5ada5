"""Tables of states alone, read in chunks."""

import numpy as np
import pytest

from kbrl.logs.state_tables import read_states
from kbrl.tables.faults import LogError
from kbrl.tables.formats import open_table

STATES = np.random.default_rng(0).normal(size=(23, 2))


def read(source, **options):
    return list(read_states(open_table(source), **options))


@pytest.mark.parametrize("names", [("observation_x", "observation_y"), ("obs_x", "obs_y"), ("state_1", "state_2")])
def test_the_columns_of_a_dialect_are_recognised_and_chunks_have_the_size_asked_for(names):
    chunks = read(dict(zip(names, STATES.T)), chunk_rows=5)
    assert [len(chunk.states) for chunk in chunks] == [5, 5, 5, 5, 3]
    np.testing.assert_array_equal(np.concatenate([chunk.states for chunk in chunks]), STATES)


def test_columns_come_in_the_order_asked_for_and_others_do_not_matter(tmp_path):
    lines = ["word,y,x", *(f"none,{y!r},{x!r}" for x, y in STATES.tolist())]
    (tmp_path / "states.csv").write_text("\n".join(lines))
    for asked in ("x,y", ["x", "y"]):
        (rows,) = read(tmp_path / "states.csv", state=asked)
        np.testing.assert_array_equal(rows.states, STATES)


def test_a_column_of_lists_holds_all_variables():
    (rows,) = read({"observation": STATES})
    np.testing.assert_array_equal(rows.states, STATES)


@pytest.mark.parametrize(
    ("column", "row", "reason"),
    [
        ([1.0, np.nan, 2.0], 1, "observation_x is missing, which it never was in the log of the model"),
        ([1.0, 2.0, -np.inf], 2, "observation_x is infinite or too large"),
        (np.array([1.0, 2.0, "three"], dtype=object), 2, "observation_x is 'three', which is not a number"),
    ],
)
@pytest.mark.parametrize("chunk_rows", [1, 2, 100])
def test_a_bad_cell_costs_its_row_alone_and_the_reason_is_said(column, row, reason, chunk_rows):
    chunks = read({"observation_x": column}, chunk_rows=chunk_rows)
    reasons = np.concatenate([chunk.reasons for chunk in chunks]).tolist()
    assert reasons == [reason if place == row else "" for place in range(3)]


def test_a_table_without_rows_is_refused():
    with pytest.raises(LogError, match="no rows"):
        read({"observation_x": []})


def test_other_columns_are_kept_as_they_are():
    (rows,) = read({"observation_x": [1.0, 2.0], "patient": ["a", None]}, keep=["patient", "observation_x"])
    assert {name: column.tolist() for name, column in rows.kept.items()} == {
        "patient": ["a", None],
        "observation_x": [1.0, 2.0],
    }
    with pytest.raises(LogError, match="'visit' is to be kept, but the columns are 'observation_x'"):
        read({"observation_x": [1.0]}, keep=["visit"])


def test_missing_columns_are_said_before_anything_is_read():
    with pytest.raises(LogError, match="must have columns for the state, but has 'a', 'b'"):
        read_states(open_table({"a": [1], "b": [2]}))
    with pytest.raises(LogError, match="'x', but the columns are 'a'"):
        read_states(open_table({"a": [1]}), state=["x"])
