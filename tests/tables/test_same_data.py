"""The same data in every form people keep them in: the same transitions, and the same model, bit for bit."""

import gzip
import json
import sqlite3

import duckdb
import numpy as np
import openpyxl
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from kbrl import KBSF
from kbrl.logs.log import load_log, read_log

N_ROWS = 240
COLUMNS = {
    "state": "age,lactate",
    "action": "drug",
    "reward": "score",
    "episode": "patient",
    "terminated": "discharged",
}
FORMS = ("csv", "csv.gz", "csv.zst", "decimal comma", "thousands", "latin-1", "utf-16", "byte order mark", "jsonl",
         "jsonl.gz", "parquet", "xlsx", "sqlite", "duckdb", "pandas", "polars", "lazy", "arrow")  # fmt: skip
FILES = ("csv", "jsonl", "parquet", "xlsx", "sqlite", "duckdb")


def ward():
    """Return a clean table as a frame: the truth that every form must give back."""
    rng = np.random.default_rng(3)
    patients = np.repeat(np.arange(N_ROWS // 8), 8)
    return pandas.DataFrame(
        {
            "patient": patients,
            "age": rng.integers(20, 90, N_ROWS // 8).repeat(8).astype(float) * 1000,  # thousands to separate
            "lactate": rng.gamma(2.0, 1.5, N_ROWS).round(6),  # Excel files keep 16 digits
            "drug": np.array(["none", "müde", "hoch"])[rng.integers(3, size=N_ROWS)],
            "score": rng.normal(size=N_ROWS).round(6),
            "discharged": np.tile([0, 0, 0, 0, 0, 0, 0, 1], N_ROWS // 8),
        }
    )


def with_commas(frame, thousands=None):
    """Return the frame with numbers written as in 1.234,5, each with all its digits."""

    def written(value):
        whole, _, rest = repr(float(value)).partition(".")
        if "e" in rest or thousands is None:
            return f"{whole},{rest}"
        return f"{int(whole):,}".replace(",", thousands) + ("-" * (whole == "-0"))[:0] + f",{rest}"

    changed = frame.copy()
    for name in ("age", "lactate", "score"):
        texts = [written(value) for value in frame[name]]
        changed[name] = ["-" + t.lstrip("-") if v < 0 else t for t, v in zip(texts, frame[name])]
    return changed


def store(frame, folder, form):
    """Write a frame in a form; return what the reader is given, and what must be stated."""
    text = frame.to_csv(index=False)
    if form in ("pandas", "polars", "lazy", "arrow"):
        makers = {"pandas": frame.copy, "polars": lambda: polars.from_pandas(frame)}
        makers |= {"lazy": lambda: polars.from_pandas(frame).lazy(), "arrow": lambda: pa.Table.from_pandas(frame)}
        return makers[form](), {}
    path = folder / (f"log.{form}" if form.split(".")[0] in FILES else "log.csv")
    if form == "csv":
        path.write_text(text, encoding="utf-8")
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif form == "csv.zst":
        path.write_bytes(pa.compress(text.encode(), codec="zstd", asbytes=True))
    elif form in ("decimal comma", "thousands"):
        thousands = "." if form == "thousands" else None
        with_commas(frame, thousands).to_csv(path, index=False, sep=";")
        return path, {"decimal": ","} | ({"thousands": "."} if thousands else {})
    elif form == "latin-1":
        path.write_text(text, encoding="latin-1")
        return path, {"encoding": "latin-1"}
    elif form in ("utf-16", "byte order mark"):
        path.write_text(text, encoding="utf-16" if form == "utf-16" else "utf-8-sig")
    elif form.startswith("jsonl"):
        lines = "".join(json.dumps(row) + "\n" for row in frame.to_dict("records")).encode()
        path.write_bytes(gzip.compress(lines) if form.endswith("gz") else lines)
    elif form == "parquet":
        parquet.write_table(pa.Table.from_pandas(frame), path)
    elif form == "xlsx":
        frame.to_excel(path, index=False)
    elif form == "sqlite":
        with sqlite3.connect(path) as connection:
            frame.to_sql("visits", connection, index=False)
        connection.close()
    elif form == "duckdb":
        with duckdb.connect(str(path)) as connection:
            connection.register("rows", pa.Table.from_pandas(frame))
            connection.execute("create table visits as select * from rows")
    return path, {}


@pytest.fixture(scope="module")
def truth():
    return load_log(ward().to_dict("list"), columns=COLUMNS)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_transitions_and_the_same_model(tmp_path, truth, form):
    source, stated = store(ward(), tmp_path, form)
    log = load_log(source, columns=COLUMNS | stated)
    for name in ("states", "action_indices", "rewards", "next_states", "terminals", "episodes"):
        np.testing.assert_array_equal(getattr(log, name), getattr(truth, name), err_msg=name)
    assert log.actions.tolist() == truth.actions.tolist()
    one, two = (KBSF(n_reps=12, random_state=0).fit(data) for data in (truth, log))
    np.testing.assert_array_equal(one.model_.sums.weight, two.model_.sums.weight)
    np.testing.assert_array_equal(one.q_values(truth.states[:50]), two.q_values(truth.states[:50]))


@pytest.mark.parametrize("form", ["csv.gz", "jsonl", "xlsx", "sqlite", "duckdb", "lazy", "decimal comma"])
@pytest.mark.parametrize("chunk_rows", [7, 100])
def test_chunks_of_any_size_put_together_are_the_log(tmp_path, truth, form, chunk_rows):
    source, stated = store(ward(), tmp_path, form)
    chunks = list(read_log(source, columns=COLUMNS | stated, chunk_rows=chunk_rows))
    assert len(chunks) > 1
    np.testing.assert_array_equal(np.concatenate([chunk.states for chunk in chunks]), truth.states)


def test_two_packed_files_are_one_log(tmp_path, truth):
    frame = ward()
    for part, rows in enumerate((slice(0, 100), slice(100, None))):
        (tmp_path / f"part-{part}.csv.gz").write_bytes(gzip.compress(frame[rows].to_csv(index=False).encode()))
    for source in (tmp_path, str(tmp_path / "*.csv.gz")):
        np.testing.assert_array_equal(load_log(source, columns=COLUMNS).states, truth.states)


def test_a_sheet_is_named_where_there_are_several(tmp_path, truth):
    with pandas.ExcelWriter(tmp_path / "log.xlsx") as writer:
        pandas.DataFrame({"note": ["read me"]}).to_excel(writer, sheet_name="notes", index=False)
        ward().to_excel(writer, sheet_name="visits", index=False, startrow=3, startcol=2)
    log = load_log(tmp_path / "log.xlsx", columns=COLUMNS | {"sheet": "visits"})
    np.testing.assert_array_equal(log.states, truth.states)


def test_numbers_that_excel_holds_as_text_are_numbers(tmp_path, truth):
    frame = with_commas(ward())
    frame.to_excel(tmp_path / "log.xlsx", index=False)
    book = openpyxl.load_workbook(tmp_path / "log.xlsx")
    assert isinstance(book.active["C2"].value, str)
    log = load_log(tmp_path / "log.xlsx", columns=COLUMNS | {"decimal": ","})
    np.testing.assert_array_equal(log.states, truth.states)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_query_selects_and_orders_the_rows(tmp_path, truth, kind):
    shuffled = ward().assign(visit=np.arange(N_ROWS)).sample(frac=1.0, random_state=1)
    path, _ = store(shuffled, tmp_path, kind)
    query = "select * from visits order by visit"
    for source, stated in ((f"{kind}:{path}?{query}", {}), (path, {"query": query})):
        log = load_log(source, columns=COLUMNS | stated)
        np.testing.assert_array_equal(log.states, truth.states)
        np.testing.assert_array_equal(log.rewards, truth.rewards)


def test_a_key_that_only_some_lines_have_is_a_column(tmp_path):
    lines = [{"obs": {"x": k, "y": {"z": 2.0 * k}}, "action": "ab"[k % 2], "reward": 1.0} for k in range(6)]
    lines[5]["done"] = True
    lines[0]["at"] = "2024-02-27 09:30:00"  # a text that looks like a time, beside lines without it
    text = "".join(json.dumps(line | {"done": line.get("done", False)}) + "\n\n" for line in lines)
    (tmp_path / "log.jsonl").write_text("\ufeff" + text, encoding="utf-8")
    log = load_log(tmp_path / "log.jsonl")
    assert log.state_names == ("obs_x", "obs_y_z")
    np.testing.assert_array_equal(log.states, [[k, 2.0 * k] for k in range(6)])
    assert log.terminals.tolist() == [False] * 5 + [True]


def test_lines_of_json_in_another_encoding_are_read_as_stated(tmp_path, truth):
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ward().to_dict("records"))
    (tmp_path / "log.jsonl").write_text(lines, encoding="latin-1")
    log = load_log(tmp_path / "log.jsonl", columns=COLUMNS | {"encoding": "latin-1"})
    assert log.actions.tolist() == truth.actions.tolist()
