"""Where faults are, in lines that an editor shows: judged by looking the cell up in the text, or by counting rows."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from kbrl.cli import main
from kbrl.logs.check import check_log
from kbrl.logs.log import load_log
from kbrl.tables.arrow_files import ParquetTable
from kbrl.tables.faults import LogError, Place, places_of

HEADER = "episode,obs,note,action,reward,terminated"


def write(path, bad, *, column, n=20, blank=False, note='"two\nlines"'):
    """Write a log in which rows have several lines; some cells of a column are bad, as in {row: cell}."""
    place = HEADER.split(",").index(column)
    lines = [HEADER]
    for row in range(n):
        cells = ["0", str(row), note if row % 3 == 0 else "x", "ab"[row % 2], str(row / 7), "0"]
        cells[place] = bad.get(row, cells[place])
        lines += [",".join(cells)] + ([""] if blank and row % 4 == 0 else [])
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize(
    ("column", "fault"), [("obs", "not_a_number"), ("reward", "not_a_number"), ("terminated", "bad_flag")]
)
def test_the_line_of_the_file_is_named_and_that_cell_is_quoted(tmp_path, column, fault, blank):
    path = write(tmp_path / "log.csv", {10: "died", 13: "gone"}, column=column, blank=blank)
    line = 1 + next(k for k, text in enumerate(path.read_text().split("\n")) if "died" in text)
    for chunk_rows in (1, 4, 11, 65536):
        (found,) = [found for found in check_log(path, chunk_rows=chunk_rows).faults if found.name == fault]
        assert found.rows == (10, 13)
        assert found.places[0] == Place("line", line, str(path))
        assert f"'{column}': 2 cells, the first is line {line} of {path}: 'died'." in found.message
    with pytest.raises(LogError, match=f"the first is line {line} of .*log.csv: 'died'") as caught:
        load_log(path)
    assert caught.value.fault.places[0].number == line


def test_an_empty_flag_before_a_wrong_one_is_not_quoted_as_the_wrong_one(tmp_path):
    path = write(tmp_path / "log.csv", {0: "", 10: "died"}, column="terminated", note="y")
    (fault,) = [fault for fault in check_log(path).faults if fault.name == "bad_flag"]
    assert fault.message == f"'terminated': 2 cells, the first is line 2 of {path}: nothing."
    assert [place.number for place in fault.places] == [2, 12]


@pytest.mark.parametrize("chunk_rows", [1, 5, 65536])
def test_each_of_several_files_has_its_own_lines_or_rows(tmp_path, chunk_rows):
    for k, bad in enumerate(({}, {3: "?"}, {7: "?"})):
        write(tmp_path / f"part-{k}.csv", bad, column="reward", note="y")
    (fault,) = [f for f in check_log(tmp_path, chunk_rows=chunk_rows).faults if f.name == "not_a_number"]
    assert fault.rows == (23, 47)
    assert [str(place) for place in fault.places] == [
        f"line 5 of {tmp_path / 'part-1.csv'}",
        f"line 9 of {tmp_path / 'part-2.csv'}",
    ]
    table = {"obs": np.zeros(4), "action": np.zeros(4), "reward": np.array([0, 1, np.nan, 1]), "done": np.zeros(4)}
    for name in ("a.npz", "b.npz"):
        np.savez(tmp_path / name, **(table if name == "b.npz" else table | {"reward": np.ones(4)}))
    with pytest.raises(LogError, match=r"the first is row 3 \(counting from 1\) of .*b\.npz: nothing"):
        load_log([tmp_path / "a.npz", tmp_path / "b.npz"])


def test_a_piece_of_a_parquet_file_names_the_rows_of_the_whole(tmp_path):
    parquet.write_table(pa.table({"x": range(10)}), tmp_path / "log.parquet", row_group_size=3)
    piece = ParquetTable(tmp_path / "log.parquet", (1, 2))
    values = [v for batch in piece.batches({"x": "numbers"}, 10) for v in batch["x"].values]
    assert [place.number for place in places_of(piece, [0, 5])] == [values[0] + 1, values[5] + 1]


def test_the_command_names_lines_and_says_what_they_and_its_rows_count(tmp_path, capsys):
    path = write(tmp_path / "log.csv", {10: "died"}, column="terminated", note="y")
    with pytest.raises(SystemExit):
        main(["check", str(path)])
    out = capsys.readouterr().out
    assert "log.csv line 12" in " ".join(out.split())
    assert "Lines are counted from 1 in each file, with its header." in out
    with pytest.raises(SystemExit):
        main(["check", str(path), "--json"])
    (fault,) = [f for f in json.loads(capsys.readouterr().out)["faults"] if f["name"] == "bad_flag"]
    assert (fault["rows"], fault["places"]) == ([10], [f"line 12 of {path}"])
    main(["check", "--help"])
    assert "rows are counted from 0" in " ".join(capsys.readouterr().out.split())
