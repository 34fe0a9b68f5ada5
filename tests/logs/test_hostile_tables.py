"""Packed texts and sheets that somebody made to fill the machine are refused before they can."""

import contextlib
import gzip
import os
import time
import zipfile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from kbrl import load_log
from kbrl.files import VARIABLE
from kbrl.tables.arrow_files import from_arrow
from kbrl.tables.faults import LogError
from kbrl.tables.formats import open_table
from refusals import refused

N = 6
ROWS = {"obs": np.zeros(N), "action": np.arange(N) % 2, "reward": np.zeros(N), "done": np.arange(N) == N - 1}


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setenv(VARIABLE, "2MB")


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


def test_a_text_of_escaped_quotes_that_nothing_closes_takes_little_time(tmp_path):
    path, start = tmp_path / "log.jsonl", time.process_time()
    path.write_text("[" * 65 + ":" * 60_000 + '"' + '\\"' * 400_000)
    refused(path, "unreadable")
    assert time.process_time() - start < 10


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
        ([row(2, ["a" * 3_000_000, "1", "1", "0"])], "unreadable", "a text longer than Excel allows"),
        ([b'<row r="2" x="' + b"a" * 3_000_000 + b'"/>'], "unreadable", "a text longer than Excel allows"),
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


STRINGS = b'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
OVERRIDE = (
    b'<Override PartName="/%s" '
    b'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"/>'
)


def shared_strings(path, name, raw):
    """Write an Excel file whose shared texts are in a part of this name."""
    sheet(path, START, HEADER, row(2, ["1", "0", "1", "1"]), END)
    with zipfile.ZipFile(path) as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    types = parts["[Content_Types].xml"].replace(b"</Types>", OVERRIDE % name.encode() + b"</Types>")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in (parts | {"[Content_Types].xml": types, name: raw}).items():
            archive.writestr(part, content)


@pytest.mark.parametrize("name", ["xl/texts.dat", "xl/worksheets/texts.xml", "xl/other.xml"])
def test_texts_of_an_excel_file_that_do_not_fit_into_memory_are_refused_in_a_part_of_any_name(
    tmp_path, small_limit, name
):
    path = tmp_path / "log.xlsx"
    for start in (STRINGS, b" " * (1 << 20) + STRINGS, b"<worksheet><a>" + b"<b/>" * (1 << 18) + b"</a>"):
        end = b"</sst>" if b"sst" in start else b"</worksheet>"
        shared_strings(path, name, start + b"<si><t>a</t></si>" * 30_000 + end)
        assert repr(name) in refused(path, "too_large")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be"])
def test_an_excel_file_cannot_define_texts_that_grow(tmp_path, encoding):
    path, raw = tmp_path / "log.xlsx", STRINGS.decode()
    grows = f'<!DOCTYPE sst [<!ENTITY a "{"A" * 1000}"><!ENTITY b "{"&a;" * 50}">]>{raw}<si><t>&b;</t></si></sst>'
    shared_strings(path, "xl/sharedStrings.xml", f'<?xml version="1.0" encoding="{encoding}"?>{grows}'.encode(encoding))
    assert "'xl/sharedStrings.xml' has a text" in refused(path, "unreadable")


LONG = "a" * 20_000


def repeating(column, n=20_000):
    """Return a table in one of whose columns all rows name one long text."""
    columns = {"obs": np.arange(n) % 7, "action": np.arange(n) % 2, "reward": np.ones(n), "done": np.arange(n) % 5 == 4}
    return pa.table(columns | {column: pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), [LONG])})


POOLS = []  # which must outlive what was allocated from them


@contextlib.contextmanager
def arrow_memory():
    """Measure how much memory Arrow takes at most."""
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool.max_memory
    finally:
        pa.set_memory_pool(before)


@pytest.mark.parametrize("column", ["obs", "action", "reward", "done"])
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_long_text_that_many_rows_name_takes_the_memory_of_one(tmp_path, ending, column):
    path, table = tmp_path / f"log.{ending}", repeating(column)
    if ending == "parquet":
        parquet.write_table(table, path, store_schema=False, compression="zstd")  # read as texts, not as a dictionary
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    with arrow_memory() as most:
        if column in ("reward", "done"):
            with pytest.raises(LogError, match="20,000 faulty cells"):
                load_log(path)
        else:
            assert len(load_log(path)) == 20_000
        assert most() < 30e6  # as texts they are 400 MB


def test_the_values_of_a_dictionary_are_those_of_plain_cells():
    times = pa.array(["2026-01-01", None, "2026-01-02", "2026-01-01"] * 5)
    plain = {"obs": pa.array([1.5, None, 2.5, 1.5] * 5), "action": pa.array(["a", "b", "b", "a"] * 5), "step": times,
             "reward": pa.array([1, 2, 3, 2] * 5), "done": pa.array(["yes", "no", "no", None] * 5)}  # fmt: skip
    kinds = {"obs": "numbers", "action": "labels", "step": "steps", "reward": "numbers", "done": "flags"}
    for name, cells in plain.items():
        ours, theirs = (from_arrow(column, kinds[name], name) for column in (cells.dictionary_encode(), cells))
        if name == "action":
            assert [ours.values[k] for k in ours.codes] == cells.to_pylist()
        else:
            np.testing.assert_array_equal(ours.values, theirs.values)
            assert ours.is_time == theirs.is_time


def shared_text(n, length):
    """Return n views of one long text."""
    one = pa.array(["a" * length], pa.string_view())
    buffers = [None, pa.py_buffer(one.buffers()[1].to_pybytes() * n), one.buffers()[2]]
    try:
        return pa.Array.from_buffers(pa.string_view(), n, buffers)
    except ValueError:
        pytest.skip("This pyarrow cannot make views that share a text.")


def shared_list(n, length):
    return pa.ListViewArray.from_arrays(
        pa.array([0] * n, pa.int32()), pa.array([length] * n, pa.int32()), [0.0] * length
    )


def one_run(n, length):
    return pa.RunEndEncodedArray.from_arrays(pa.array([n], pa.int32()), pa.array(["a" * length]))


def named_list(n, length):
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int8), pa.array([[0.0] * length]))


@pytest.mark.parametrize(
    "made, fault, said",
    [
        (shared_text, "too_large", "asks for 20 MB"),
        (shared_list, "unreadable", "has a type that is not read: list_view"),
        (one_run, "unreadable", "has a type that is not read: run_end_encoded"),
        (named_list, "unreadable", "has a type that is not read: list"),
    ],
    ids=lambda made: getattr(made, "__name__", ""),
)
@pytest.mark.parametrize("column", ["obs", "action"])
def test_a_long_value_of_an_arrow_file_that_many_rows_stand_for_is_not_copied_to_each(
    tmp_path, small_limit, column, made, fault, said
):
    path, n = tmp_path / "log.arrow", 1000
    table = pa.table({name: np.zeros(n) for name in ("obs", "action", "reward", "done")} | {column: made(n, 20_000)})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    assert os.path.getsize(path) < 400_000
    with arrow_memory() as most:
        assert said in refused(path, fault)
        assert most() < 4e6


def test_short_texts_of_an_arrow_file_that_are_views_are_read(tmp_path):
    path, n = tmp_path / "log.arrow", 20
    labels = pa.array(["in", None, "a label that is not kept beside its length"] * 10, pa.string_view())[5:25]
    table = pa.table({"obs": labels, "action": labels, "reward": np.ones(n), "done": np.arange(n) % 5 == 4})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    found = open_table(path)
    (batch,) = found.batches({"action": "labels"}, n)
    assert [None if k < 0 else batch["action"].values[k] for k in batch["action"].codes] == labels.to_pylist()


def test_a_long_value_of_parquet_that_has_a_fixed_length_and_that_many_rows_name_is_refused(tmp_path, small_limit):
    path, n, length = tmp_path / "log.parquet", 300, 10_000
    labels = pa.array([b"a" * length] * n, pa.binary(length))
    table = pa.table({"obs": np.zeros(n), "action": labels, "reward": np.zeros(n), "done": np.zeros(n, bool)})
    parquet.write_table(table, path, compression="zstd")
    assert os.path.getsize(path) < 5000
    assert "'action' asks for 3 MB" in refused(path, "too_large")


@pytest.mark.parametrize(
    "field, said",
    [
        (b"\0", "asks for 80 MB"),
        (b"\x01\x33\x02\x02", "asks for 80 MB"),
        (b"\x01\xbb" + b"\x01\xbb" * 30 + b"\0" * 99, "its own sizes is damaged"),
    ],
)
def test_a_field_that_parquet_does_not_know_does_not_hide_the_sizes(tmp_path, small_limit, field, said):
    """pyarrow passes over it: here a map."""
    path, n = tmp_path / "log.parquet", 5_000_000
    wide = pa.ListArray.from_arrays([0, n, 2 * n], pa.array(np.zeros(2 * n)))
    parquet.write_table(pa.table({"obs": wide, "action": [0, 1], "reward": [0.0, 1.0], "done": [False, True]}), path)
    raw = path.read_bytes()
    length = int.from_bytes(raw[-8:-4], "little")
    footer = raw[-8 - length : -9] + b"\x0b\x90\x03" + field + b"\0"  # field 200, a map
    path.write_bytes(raw[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert said in refused(path, "too_large" if "asks" in said else "unreadable")


def zigzag(number, length):
    """Return a number as Parquet's metadata hold it, in some more bytes than it needs."""
    parts = [(number << 1 >> 7 * k) & 0x7F | (0x80 if k < length - 1 else 0) for k in range(length)]
    return bytes(parts)


def test_a_page_of_parquet_that_unpacks_to_more_than_its_column_states_is_refused(tmp_path, small_limit):
    path, n = tmp_path / "log.parquet", 20
    columns = {"obs": ["a" * 200_000] * n, "action": np.arange(n) % 2, "reward": np.zeros(n), "done": np.ones(n, bool)}
    parquet.write_table(pa.table(columns), path, use_dictionary=False, compression="zstd", data_page_size=1 << 30)
    stated = parquet.read_metadata(path).row_group(0).column(0).total_uncompressed_size
    assert stated > 4_000_000
    length = (stated.bit_length() + 7) // 7
    path.write_bytes(path.read_bytes().replace(zigzag(stated, length), zigzag(100, length)))
    assert parquet.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 100
    assert "'obs' asks for" in refused(path, "too_large")


@pytest.mark.parametrize("n_lines", [1, 60_000])
def test_json_with_a_great_many_keys_is_refused(tmp_path, n_lines):
    path = tmp_path / "log.jsonl"
    keys = [f'"k{k}": {k}' for k in range(60_000)]
    path.write_text("{" + ", ".join(keys) + "}" if n_lines == 1 else "\n".join("{" + key + "}" for key in keys))
    assert "at most 50,000 different keys" in refused(path, "unreadable")


def test_json_lines_each_with_keys_of_its_own_are_refused_before_they_become_one_table(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "100MB")
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(f'{{"k{k}\\"": {k}}}' for k in range(10_000)))
    assert "9,999 lines and 9,999 different keys asks for 800 MB" in refused(path, "too_large")
    rows = [f'{{"obs": {k}, "action": "a: {k % 2}", "reward": 1, "done": false}}' for k in range(10_000)]
    path.write_text("\n".join(rows))
    assert len(load_log(path)) == 9_999


def test_many_objects_in_one_line_of_json_are_read_in_a_short_time(tmp_path):
    path, start = tmp_path / "log.jsonl", time.process_time()
    inner = ", ".join(f'"k{k}": {{"x.y": {k}}}' for k in range(10_000))
    path.write_text(f'{{"action": 0, "reward": 1, "done": true, {inner}}}')
    assert open_table(path).names[3] == "k0_x.y"
    assert time.process_time() - start < 12
