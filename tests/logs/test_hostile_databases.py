"""Databases that somebody made to fill the machine, or to read other files, are refused before they can."""

import os
import resource
import sqlite3
import sys

import pytest

from kbrl import load_log
from kbrl.files import VARIABLE
from kbrl.tables.faults import LogError
from refusals import refused

END_OF_ROW = "1 as action, 1 as reward, 0 as done"
SELECTED = "x as obs, x % 2 as action, x as reward, 0 as done"
COUNTED = "with recursive c(x) as (select 1 union all select x + 1 from c {}) select {} from c"


def database(path, view):
    connection = sqlite3.connect(path)
    connection.execute(f"create view log as {view}")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "view, fault, said",
    [
        (COUNTED.format("", SELECTED), "too_large", "what is selected states"),
        (COUNTED.format("limit 9", f"hex(zeroblob(400000000)) as obs, {END_OF_ROW}"), "too_large", "so long"),
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


def test_a_view_of_few_but_slow_steps_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("kbrl.tables.databases._STEPS_PER_SECOND", 10**9)
    path = tmp_path / "log.sqlite"
    database(path, COUNTED.format("limit 10000", f"length(hex(zeroblob(9000000 + x))) as obs, {END_OF_ROW}"))
    assert "or too long" in refused(path, "too_large")


def test_a_view_that_sorts_on_the_disk_cannot_fill_it(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "20MB")
    path = tmp_path / "log.sqlite"
    sorted_texts = "(select x, hex(zeroblob(500000) || x) as b from c order by b desc)"
    counted = "with recursive c(x) as (select 1 union all select x + 1 from c limit 2000)"
    database(path, f"{counted} select length(b) as obs, {END_OF_ROW} from {sorted_texts}")
    assert "or too much disk" in refused(path, "too_large")


def test_a_database_with_a_log_beside_it_is_read_from_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "log.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode=wal")
    connection.execute("create table log (obs, action, reward, done)")
    connection.executemany("insert into log values (?, ?, ?, ?)", [(t, t % 2, t, t % 4 == 3) for t in range(12)])
    connection.commit()
    connection.close()
    monkeypatch.setattr(os, "access", lambda *given, **more: False)
    assert len(load_log(path)) == 12
    assert os.listdir(tmp_path) == ["log.sqlite"]  # nor does SQLite put files beside it there


def test_many_long_texts_in_one_row_are_refused(tmp_path):
    path = tmp_path / "log.sqlite"
    texts = ", ".join(f"hex(zeroblob(5000000)) as x{k}" for k in range(50))
    database(path, f"select {texts}, 1 as obs, {END_OF_ROW}")
    assert "a value is so long" in refused(path, "too_large")


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
    monkeypatch.setattr("kbrl.files.MOST_EXPANSION", 20)  # seven seconds less until the endless one is refused
    path, other = tmp_path / "log.duckdb", tmp_path / "other.txt"
    other.write_text("1")
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"create view log as {view.format(other=other, selected=SELECTED)}")
    assert said in refused(path, fault)


@pytest.mark.parametrize(
    "kind, column",
    [("varchar", "repeat('a', {})"), ("bigint[]", "range(({}) // 7)"), ("varchar[]", "[repeat('a', {})]")],
)
def test_a_column_of_duckdb_that_is_worked_out_is_refused_if_its_values_do_not_fit_into_memory(
    tmp_path, monkeypatch, kind, column
):
    """DuckDB, which works out some thousand values at once, may notice first."""
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setenv(VARIABLE, "100MB")
    path = tmp_path / "log.duckdb"
    with duckdb.connect(str(path)) as connection:
        worked_out = f"obs {kind} generated always as ({column.format('60000 + x::int % 2')})"
        connection.execute(f"create table log(x double, action int, reward int, done bool, {worked_out})")
        connection.execute("insert into log select x, x % 2, 1, false from range(3000) t(x)")
    with pytest.raises(LogError, match=r"does not fit into the limit|do not fit into the limit|Out of Memory"):
        load_log(path)
    read = load_log(path, columns={"state": ["x"]})
    assert read.states[:, 0].tolist() == list(range(2999))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the memory of a part of the work")
def test_a_view_of_duckdb_whose_values_are_worked_out_takes_no_more_memory_than_the_system_is_told(
    tmp_path, monkeypatch
):
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setenv(VARIABLE, "30MB")
    monkeypatch.setattr("kbrl.tables.databases._ROOM", 1 << 26)
    path, before = tmp_path / "log.duckdb", resource.getrlimit(resource.RLIMIT_DATA)
    with duckdb.connect(str(path)) as connection:
        long = "strlen(repeat('a', 1000000 + (x % 2)::int)) as obs"
        connection.execute(f"create view log as select {long}, {END_OF_ROW} from range(3000) t(x)")
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "emory" in refused(path, "unreadable")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start < 500_000  # kB, of 2 GB
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
