"""The same data in every form people keep them in: the same transitions, and the same model, bit for bit."""

import gzip
import json
import sqlite3
import warnings

import duckdb
import numpy as np
import openpyxl
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from kbrl import KBSF
from kbrl.logs.log import load_log, open_log, read_log
from kbrl.logs.state_tables import read_states
from kbrl.tables.formats import open_table
from kbrl.tables.text_files import dialect_in

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
IN_MEMORY = ("pandas", "pandas, other index", "polars", "lazy", "arrow", "reader", "any with a capsule")
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


class OnlyStream:
    """A table of a library that kbrl has never heard of: it only speaks the Arrow PyCapsule interface."""

    def __init__(self, table):
        self.schema, self._table = table.schema, table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


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
    if form in IN_MEMORY:
        makers = {"pandas": frame.copy, "polars": lambda: polars.from_pandas(frame)}
        makers |= {"reader": lambda: pa.Table.from_pandas(frame).to_reader(max_chunksize=17)}
        makers |= {"pandas, other index": lambda: frame.set_axis(np.arange(len(frame)) * 3 + 5)}
        makers |= {"any with a capsule": lambda: OnlyStream(pa.Table.from_pandas(frame))}
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
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
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


MESSY = {
    "state": ["sofa", "unit", "map", "severity", "ventilated", "site"],
    "action": "drug",
    "reward": "where(is_missing(bonus), 0, bonus) - 0.1 * (severity == 'severe')",
    "episode": "patient",
    "step": "day",
    "terminated": "outcome in ('home', 'died')",
    "missing": {"map": "forward", "sofa": "median"},
    "ordinal": {"severity": ["mild", "medium", "severe"]},
    "category": ["site"],
}


def messy_ward():
    """Return a table with categories, missing values of every kind, ISO dates as steps, and identifiers as texts."""
    rng = np.random.default_rng(4)
    n_patients, n_days = 40, 8
    n_rows = n_patients * n_days
    frame = pandas.DataFrame(
        {
            "patient": np.repeat([f"P{k:03d}" for k in range(n_patients)], n_days),
            "day": np.tile([f"2024-02-{27 + k:02d}" if k < 3 else f"2024-03-{k - 2:02d}" for k in range(n_days)], 40),
            "sofa": rng.integers(0, 20, n_rows).astype(float),
            "unit": rng.choice(["icu", "ward", "Überwachung"], n_rows),
            "map": rng.normal(70, 10, n_rows).round(3),
            "severity": rng.choice(["mild", "medium", "severe"], n_rows),
            "ventilated": rng.choice(["yes", "no"], n_rows),
            "site": rng.choice([3, 7, 12], n_rows),
            "drug": rng.choice(["none", "low", "high"], n_rows),
            "bonus": np.where(np.arange(n_rows) % n_days == n_days - 1, rng.normal(size=n_rows).round(3), np.nan),
            "outcome": np.where(np.arange(n_rows) % n_days == n_days - 1, rng.choice(["home", "died"], n_rows), None),
        }
    )
    for name, share in (("sofa", 0.1), ("unit", 0.1), ("map", 0.3), ("ventilated", 0.05)):
        frame[name] = frame[name].astype(object).where(rng.random(n_rows) >= share, None)
    for name in ("sofa", "map"):
        frame[name] = frame[name].astype(float)
    return frame


def learnt_and_answered(frame, folder, form):
    """Return the model of a form, its answers to the same rows (by the reader, and to a frame), and all warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = _learnt_and_answered(frame, folder, form)
    return *found, sorted({str(each.message) for each in said})


def _learnt_and_answered(frame, folder, form):
    source, stated = store(frame, folder, form)
    log = open_log(source, columns=MESSY | stated)
    model = KBSF(n_reps=20, random_state=0).fit(log.chunks())
    again = [store(frame, folder, form)[0] if form in IN_MEMORY else source for _ in range(2)]  # a reader is read once
    table = open_table(again[0], dialect_in(stated))
    rows = list(read_states(table, state=MESSY["state"], recipe=model.model_.source.recipe))
    answers = np.concatenate([model.predict(each.states) for each in rows])
    return model, answers, model.predict(again[1]) if form in IN_MEMORY else answers


@pytest.fixture(scope="module")
def messy_truth(tmp_path_factory):
    return learnt_and_answered(messy_ward(), tmp_path_factory.mktemp("truth"), "csv")


@pytest.mark.parametrize("form", sorted({*FORMS, *IN_MEMORY} - {"decimal comma", "thousands"}))
def test_a_messy_table_gives_the_same_model_and_answers_in_every_form(tmp_path, messy_truth, form):
    model, answers, in_python, said = learnt_and_answered(messy_ward(), tmp_path, form)
    expected, expected_answers, _, expected_said = messy_truth
    assert said == expected_said
    assert model.model_.source.recipe == expected.model_.source.recipe
    assert model.action_labels_.tolist() == expected.action_labels_.tolist()
    for name in ("weight", "reward_sum", "transition_sum", "counts"):
        found, known = (getattr(each.model_.sums, name) for each in (model, expected))
        np.testing.assert_array_equal(found, known, err_msg=name)
    np.testing.assert_array_equal(model.reps_, expected.reps_)
    assert answers.tolist() == expected_answers.tolist() == list(in_python)
    if form.startswith("pandas"):
        assert in_python.index.equals(store(messy_ward(), tmp_path, form)[0].index)


def test_a_table_with_real_dates_is_one_model_as_csv_gz_parquet_excel_sqlite_pandas_and_polars(tmp_path):
    """Files that have a type for times hold times, texts hold ISO dates; the time of the day and the discount count."""
    frame = messy_ward()
    moments = pandas.to_datetime(frame["day"]) + pandas.to_timedelta(np.arange(len(frame)) % 5 * 7, "min")
    frame = frame.assign(day=moments, seen=moments + pandas.Timedelta(hours=2))
    stated = {**MESSY, "state": [*MESSY["state"], "seen"], "elapsed": {"seen": "1 day"}, "discount_per": "1 day"}
    models = {}
    for form in ("csv", "csv.gz", "jsonl", "parquet", "xlsx", "sqlite", "duckdb", "pandas", "polars", "arrow"):
        as_texts = frame.assign(
            day=frame.day.dt.strftime("%Y-%m-%d %H:%M:%S"), seen=frame.seen.dt.strftime("%Y-%m-%dT%H:%M")
        )
        source, _ = store(as_texts if form == "jsonl" else frame, tmp_path, form)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            models[form] = KBSF(n_reps=20, random_state=0).fit(open_log(source, columns=stated).chunks()).model_
    expected = models.pop("csv")
    assert expected.source.recipe.columns[-1].kind == "elapsed"
    assert expected.reps[:, -1].max() > 5.0  # days
    for form, model in models.items():
        assert model.source.recipe == expected.source.recipe, form
        for name in ("weight", "reward_sum", "transition_sum"):
            np.testing.assert_array_equal(getattr(model.sums, name), getattr(expected.sums, name), err_msg=form)


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
