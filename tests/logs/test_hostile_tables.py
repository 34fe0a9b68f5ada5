"""Packed texts, sheets and databases that somebody made to fill the machine are refused before they can."""

import gzip
import os
import sqlite3
import zipfile

import h5py
import numpy as np
import pyarrow as pa
import pytest

from kbrl import load_log
from kbrl.files import VARIABLE
from kbrl.tables.faults import LogError

N = 6
END_OF_ROW = "1 as action, 1 as reward, 0 as done"
ROWS = {"obs": np.zeros(N), "action": np.arange(N) % 2, "reward": np.zeros(N), "done": np.arange(N) == N - 1}
SELECTED = "x as obs, x % 2 as action, x as reward, 0 as done"
COUNTED = "with recursive c(x) as (select 1 union all select x + 1 from c {}) select {} from c"


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setenv(VARIABLE, "2MB")


def refused(path, fault, **more):
    with pytest.raises(LogError) as caught:
        load_log(path, **more)
    assert caught.value.fault.name == fault
    assert str(path) in str(caught.value)
    return str(caught.value)


def arrow(path, n, form=pa.ipc.new_file, column=None, packed="zstd"):
    columns = {"obs": np.zeros(n) if column is None else column, "action": np.zeros(n, np.int8),
               "reward": np.zeros(n), "done": np.arange(n) % 5 == 4}  # fmt: skip
    table = pa.table(columns)
    with form(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=packed)) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("packed", ["zstd", "lz4"])
@pytest.mark.parametrize("form", [pa.ipc.new_file, pa.ipc.new_stream], ids=["file", "stream"])
def test_an_arrow_batch_that_does_not_fit_into_memory_is_refused_before_it_is_unpacked(
    tmp_path, small_limit, form, packed
):
    path = tmp_path / "log.arrow"
    arrow(path, 250_000, form, packed=packed)
    before = pa.total_allocated_bytes()
    assert "a record batch asks for 4.28 MB of memory" in refused(path, "too_large")
    assert pa.total_allocated_bytes() == before
    arrow(path, 1000, form, packed=packed)
    assert len(load_log(path)) > 700


def test_an_arrow_dictionary_that_does_not_fit_into_memory_is_refused(tmp_path, small_limit):
    path, n = tmp_path / "log.arrow", 10
    arrow(path, n, column=pa.DictionaryArray.from_arrays(np.zeros(n, np.int8), ["a" * 3_000_000]))
    assert os.path.getsize(path) < 10_000
    refused(path, "too_large")


def test_an_arrow_file_that_only_ends_as_one_is_measured_as_well(tmp_path, small_limit):
    """Its end decides for pyarrow how it is read, so that its start can say anything."""
    path = tmp_path / "log.arrow"
    arrow(path, 250_000)
    raw = path.read_bytes()
    path.write_bytes(b"\0" * 6 + raw[6:])
    refused(path, "too_large")


def test_an_arrow_file_that_states_far_more_rows_than_it_has_bytes_is_refused(tmp_path, monkeypatch):
    path, n = tmp_path / "log.arrow", 5_000_000
    table = pa.table(dict.fromkeys(("obs", "action", "reward", "done"), pa.nulls(n)))
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    assert "states 40 MB" in refused(path, "too_large")


def test_many_hdf5_rows_that_refer_to_one_long_text_are_refused(tmp_path):
    path, n = tmp_path / "log.h5", 4000
    with h5py.File(path, "w") as file:
        file["observations"], file["rewards"], file["terminals"] = np.zeros((n, 1)), np.zeros(n), np.arange(n) % 5 == 4
        actions = file.create_dataset("actions", (n,), dtype=h5py.string_dtype())
        actions[0] = "a" * 300_000
        file.flush()
        place = actions.id.get_offset()
    raw = bytearray(path.read_bytes())
    raw[place : place + 16 * n] = raw[place : place + 16] * n  # a text is stored once, and named by each row
    path.write_bytes(raw)
    assert "'/actions' states" in refused(path, "too_large")


@pytest.mark.parametrize("packed", ["zst", "bz2"])
@pytest.mark.parametrize(
    "name, row", [("log.csv", b"0,a,0,0\n"), ("log.jsonl", b'{"obs":0,"action":"a"}\n')], ids=["csv", "jsonl"]
)
def test_a_text_that_unpacks_to_thousands_of_times_its_size_is_refused(tmp_path, name, row, packed):
    path = tmp_path / f"{name}.{packed}"
    with pa.output_stream(str(path), compression={"zst": "zstd"}.get(packed, packed)) as file:
        file.write(b"obs,action,reward,done\n" if name == "log.csv" else row)
        for _ in range(2):
            file.write(row * (1_000_000 // len(row)))
    assert os.path.getsize(path) < 800
    assert "its text states" in refused(path, "too_large")


def test_a_line_without_an_end_is_refused(tmp_path):
    for name in ("log.csv.gz", "log.jsonl.gz"):
        path = tmp_path / name
        with gzip.open(path, "wb") as file:
            file.write(b"obs,action,reward,done\n0," if "csv" in name else b'{"obs":"')
            for _ in range(20):
                file.write(b"a" * (1 << 20))
        refused(path, "unreadable")


@pytest.mark.parametrize("opened, closed", [('{"a":', "}"), ("[", "]"), ('[{"a":', "}]")])
@pytest.mark.parametrize("before", ["", '{"a": "]]]]]]]]"}\n'], ids=["alone", "after texts with brackets"])
def test_json_that_is_nested_deep_is_refused_and_does_not_end_the_process(tmp_path, opened, closed, before):
    path = tmp_path / "log.jsonl"
    path.write_text(before + '{"obs": ' + opened * 100_000 + "1" + closed * 100_000 + "}\n")
    assert "nested more than 64 deep" in refused(path, "unreadable")


def test_json_with_many_lists_and_brackets_in_texts_is_read(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [
        f'{{"obs": [{k}, 1], "action": "[[[[{k % 2}", "reward": 1, "done": {str(k % 5 == 4).lower()}}}'
        for k in range(500)
    ]
    path.write_text("\n".join(rows))
    assert load_log(path).action_labels.tolist() == ["[[[[0", "[[[[1"]


def sheet(path, *pieces, part="xl/worksheets/sheet1.xml"):
    """Write an Excel file one of whose parts is put together from pieces."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["obs"])
    book.save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in (parts | {part: b"".join(pieces)}).items():
            archive.writestr(name, raw)


START = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
END = b"</sheetData></worksheet>"


def row(number, cells=("0", "1", "2", "0"), last="D"):
    places = [*"ABC", last]
    inner = "".join(f'<c r="{place}{number}"><v>{cell}</v></c>' for place, cell in zip(places, cells))
    return f'<row r="{number}">{inner}</row>'.encode()


HEADER = b"<row>" + b"".join(
    b'<c t="inlineStr"><is><t>%s</t></is></c>' % name for name in (b"obs", b"action", b"reward", b"done")
) + b"</row>"  # fmt: skip


@pytest.mark.parametrize(
    "cells, fault, said",
    [
        ([row(2), row(900_000_000)], "unreadable", "at most 1,048,576 rows"),
        ([row(k, last="XFD") for k in range(2, 2000)], "too_large", "its sheet states"),
        ([row(2), row(3, last="AAAA")], "unreadable", ""),
        ([row(2, ["a" * 3_000_000, "1", "1", "0"])], "unreadable", "a text longer than any of Excel"),
        ([b'<row r="2" x="' + b"a" * 3_000_000 + b'"/>'], "unreadable", "a text longer than any of Excel"),
        ([b"<row><c><is><t><![CDATA[" + b"<" * 3_000_000 + b"]]></t></is></c></row>"], "unreadable", "longer"),
    ],
    ids=["far row", "wide rows", "far column", "long cell", "long attribute", "text that is not parsed"],
)
def test_a_sheet_that_excel_could_not_hold_is_refused(tmp_path, cells, fault, said):
    path = tmp_path / "log.xlsx"
    sheet(path, START, HEADER, *cells, END)
    assert os.path.getsize(path) < 50_000
    assert said in refused(path, fault)


def test_a_sheet_within_the_limits_is_read(tmp_path):
    path = tmp_path / "log.xlsx"
    sheet(path, START, HEADER, *(row(k, [k, k % 2, k, int(k % 5 == 4)]) for k in range(2, 50)), END)
    assert len(load_log(path)) > 40


@pytest.mark.parametrize("part", ["xl/worksheets/sheet1.xml", "xl/styles.xml", "xl/sharedStrings.xml"])
def test_a_part_of_an_excel_file_that_does_not_fit_into_memory_is_refused(tmp_path, small_limit, part):
    path = tmp_path / "log.xlsx"
    sheet(path, START, b"<row/>" * 500_000, END, part=part)
    assert repr(part) in refused(path, "too_large")


def database(path, view):
    connection = sqlite3.connect(path)
    connection.execute(f"create view log as {view}")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "view, fault, said",
    [
        (COUNTED.format("", SELECTED), "too_large", "what is selected states"),
        (COUNTED.format("limit 9", f"hex(zeroblob(400000000)) as obs, {END_OF_ROW}"), "unreadable", ""),
        (COUNTED.format("limit 9", f"printf('%9000000d', x) as obs, {END_OF_ROW}"), "too_large", ""),
        ("select load_extension('other') as obs, 1 as action, 1 as reward, 0 as done", "unreadable", "load_extension"),
    ],
    ids=["endless", "one huge text", "large texts", "an extension"],
)  # fmt: skip
def test_a_view_of_a_database_cannot_fill_the_memory_or_load_code(tmp_path, view, fault, said):
    path = tmp_path / "log.sqlite"
    database(path, view)
    assert said in refused(path, fault)


def test_a_view_that_never_ends_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("kbrl.tables.databases._LEAST_STEPS", 10**7)
    path = tmp_path / "log.sqlite"
    database(path, COUNTED.format("", "count(*) as obs, 1 as action, 1 as reward, 0 as done"))
    assert "far more steps than the file has bytes" in refused(path, "too_large")


def test_a_view_that_counts_a_few_rows_is_read(tmp_path):
    path = tmp_path / "log.sqlite"
    database(path, COUNTED.format("limit 1000", "x as obs, x % 2 as action, x as reward, x % 5 = 0 as done"))
    assert len(load_log(path)) > 700


@pytest.mark.parametrize(
    "view, fault, said",
    [
        ("select {selected} from range(1000000000000) t(x)", "too_large", "states"),
        ("select {selected} from range(1000000000) t(x) order by hash(x)", "unreadable", "Memory"),
        ("select content as obs, 1 as action, 1 as reward, 0 as done from read_text('{other}')", "unreadable", ""),
    ],
    ids=["endless", "sorted", "another file"],
)  # fmt: skip
def test_a_view_of_duckdb_cannot_fill_the_memory_or_read_other_files(tmp_path, monkeypatch, view, fault, said):
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setenv(VARIABLE, "30MB")
    path, other = tmp_path / "log.duckdb", tmp_path / "other.txt"
    other.write_text("1")
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"create view log as {view.format(other=other, selected=SELECTED)}")
    assert said in refused(path, fault)
