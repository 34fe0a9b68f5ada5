"""Tables of states alone, read in chunks."""

import numpy as np
import pytest

from kbrl.logs.log import read_states
from kbrl.tables.faults import LogError
from kbrl.tables.formats import open_table

STATES = np.random.default_rng(0).normal(size=(23, 2))


def read(source, **options):
    return list(read_states(open_table(source), **options))


@pytest.mark.parametrize("names", [("observation_x", "observation_y"), ("obs_x", "obs_y"), ("state_1", "state_2")])
def test_the_columns_of_a_dialect_are_recognised_and_chunks_have_the_size_asked_for(names):
    chunks = read(dict(zip(names, STATES.T)), chunk_rows=5)
    assert [len(chunk) for chunk in chunks] == [5, 5, 5, 5, 3]
    np.testing.assert_array_equal(np.concatenate(chunks), STATES)


def test_columns_come_in_the_order_asked_for_and_others_do_not_matter(tmp_path):
    lines = ["word,y,x", *(f"none,{y!r},{x!r}" for x, y in STATES.tolist())]
    (tmp_path / "states.csv").write_text("\n".join(lines))
    for asked in ("x,y", ["x", "y"]):
        (states,) = read(tmp_path / "states.csv", state=asked)
        np.testing.assert_array_equal(states, STATES)


def test_a_column_of_lists_holds_all_variables():
    (states,) = read({"observation": STATES})
    np.testing.assert_array_equal(states, STATES)


@pytest.mark.parametrize(
    ("column", "fault", "words"),
    [
        ([1.0, np.nan, 2.0], "missing_state", r"the first is row 2 \(counting from 1\): nothing"),
        ([1.0, 2.0, -np.inf], "infinite_state", r"the first is row 3 \(counting from 1\): -inf"),
        (
            np.array([1.0, 2.0, "three"], dtype=object),
            "not_a_number",
            r"the first is row 3 \(counting from 1\): 'three'",
        ),
        ([], "empty_log", "no rows"),
    ],
)
def test_bad_cells_are_refused_with_their_row(column, fault, words):
    with pytest.raises(LogError, match=words) as error:
        read({"observation_x": column})
    assert error.value.fault.name == fault


def test_rows_are_counted_over_all_chunks():
    column = np.zeros(10)
    column[7] = np.nan
    with pytest.raises(LogError, match="the first is row 8 "):
        read({"observation_x": column}, chunk_rows=3)


def test_missing_columns_are_said_before_anything_is_read():
    with pytest.raises(LogError, match="must have columns for the state, but has 'a', 'b'"):
        read_states(open_table({"a": [1], "b": [2]}))
    with pytest.raises(LogError, match="'x', but the columns are 'a'"):
        read_states(open_table({"a": [1]}), state=["x"])
