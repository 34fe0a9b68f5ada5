"""Cells as people write them: marks for missing values, units, dates, titles above the header, merged cells."""

import warnings

import numpy as np
import openpyxl
import pandas
import polars
import pytest

from kbrl import KBSF, load_log, load_model, open_log, read_log, save_model
from kbrl.cli import main
from kbrl.data.written import iso_date
from kbrl.tables.faults import LogError

ROLES = {"state": "x", "action": "dose", "reward": "gain", "terminated": "over", "episode": "who", "step": "at"}
pytestmark = pytest.mark.filterwarnings("ignore:Missing values of", "ignore:.*rows are left out")
TEXT = """Report of the ward;;;;;
made by hand;;;;;
who;at;x;dose;gain;over
a;27.02.2024 09:30;-;5 mg;1;nein
;28.02.2024 9:30;3,5;10 mg;1;nein
;01.03.24 10:00;999;5 mg;2;ja
b;27.02.2024;2;5 mg;1;nein
;28.02.2024 9:30;3,5;10 mg;1;ja
"""
STATED = {"skip": 2, "decimal": ",", "na": ["-", 999], "dates": "day first", "suffix": {"dose": "mg"}}
STATED |= {"fill_down": ["who"], "stride": "any", "missing": "forward"}
TRUTH = {
    "who": list("aaabb"),
    "at": pandas.to_datetime(
        ["2024-02-27 09:30", "2024-02-28 09:30", "2024-03-01 10:00", "2024-02-27 00:00", "2024-02-28 09:30"]
    ),
    "x": [np.nan, 3.5, np.nan, 2.0, 3.5],
    "dose": [5, 10, 5, 5, 10],
    "gain": [1, 1, 2, 1, 1],
    "over": [0, 0, 1, 0, 1],
}


@pytest.fixture
def text(tmp_path):
    (tmp_path / "ward.csv").write_text(TEXT, encoding="utf-8")
    return tmp_path / "ward.csv"


@pytest.fixture
def truth():
    return load_log(pandas.DataFrame(TRUTH), columns=ROLES | {"stride": "any", "missing": "forward"})


@pytest.mark.parametrize("chunk_rows", [1, 2, 100])
def test_a_table_as_people_write_it_gives_the_log_that_they_mean(text, truth, chunk_rows):
    chunks = list(read_log(text, columns=ROLES | STATED, chunk_rows=chunk_rows))
    for name in ("states", "next_states", "rewards", "terminals", "actions"):
        found = np.concatenate([getattr(chunk, name) for chunk in chunks])
        np.testing.assert_array_equal(found, getattr(truth, name), err_msg=name)


def test_an_excel_sheet_with_a_title_and_merged_cells_gives_the_same(tmp_path, truth):
    book = openpyxl.Workbook()
    sheet = book.active
    for line in TEXT.splitlines():
        sheet.append([cell or None for cell in line.split(";")])
    sheet.merge_cells("A4:A6")
    sheet.merge_cells("A7:A8")
    book.save(tmp_path / "ward.xlsx")
    log = load_log(tmp_path / "ward.xlsx", columns=ROLES | STATED)
    np.testing.assert_array_equal(log.states, truth.states)
    np.testing.assert_array_equal(log.rewards, truth.rewards)


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame, dict, "parquet"])
def test_marks_count_in_every_source(tmp_path, make):
    rows = {"who": list("aabb"), "x": [1.0, 999.0, 3.0, 4.0], "sex": ["F", "?", "M", "F"], "drug": list("pqpq")}
    rows |= {"gain": [0.0, 1.0, 0.0, 1.0], "over": [0, 1, 0, 1]}
    source = tmp_path / "log.parquet" if make == "parquet" else make(rows)
    if make == "parquet":
        pandas.DataFrame(rows).to_parquet(source)
    roles = {"state": ["x", "sex"], "action": "drug", "reward": "gain", "terminated": "over", "episode": "who"}
    log = load_log(source, columns=roles | {"na": {"x": 999, "sex": "?"}, "missing": "forward"})
    assert log.states.tolist() == [[1, 1, 0], [1, 1, 0], [3, 0, 1], [4, 1, 0]]


def test_marks_are_kept_in_the_model_for_frames_and_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 200
    who, x = np.arange(n) // 10, rng.normal(size=n).round(2)
    x[rng.random(n) < 0.2] = 999
    frame = pandas.DataFrame({"who": who, "x": x, "drug": rng.choice(["p", "q"], n), "gain": rng.normal(size=n)})
    roles = {
        "state": "x",
        "action": "drug",
        "reward": "gain",
        "episode": "who",
        "na": {"x": ["999"]},
        "missing": "forward",
    }
    model = KBSF(n_reps=5, random_state=0).fit(frame, columns=roles)
    save_model(model, "m.kbrl")
    asked = pandas.DataFrame({"x": [0.1, 999.0], "who": [1, 1]})
    for each in (model, load_model("m.kbrl")):
        q = each.q_values(asked)
        np.testing.assert_array_equal(q[0], q[1])  # the second is the first, carried forward
    frame.to_csv("log.csv", index=False)
    main(["fit", "log.csv", "--state", "x", "--action", "drug", "--reward", "gain", "--episode", "who", "--na", "x=999",
          "--missing", "forward", "-o", "f.kbrl", "--reps", "5", "-q"])  # fmt: skip
    asked.to_csv("asked.csv", index=False)
    main(["predict", "f.kbrl", "asked.csv", "-o", "answers.csv", "-q"])
    answers = pandas.read_csv("answers.csv")
    assert answers["value"].nunique() == 1
    asked[["x"]].to_csv("alone.csv", index=False)
    capsys.readouterr()
    main(["predict", "f.kbrl", "alone.csv", "-q"])
    assert "without an earlier value of the same episode: it is taken as the median" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "order", "right"), [
    ("27.02.2024", "day first", "2024-02-27T00:00:00"),
    ("27/2/24 9:30", "day first", "2024-02-27T09:30:00"),
    ("02/27/2024 9:30 PM", "month first", "2024-02-27T21:30:00"),
    ("2/27/2024 12:05:07 am", "month first", "2024-02-27T00:05:07"),
    ("27.02.2024", "month first", "27.02.2024"),  # there is no month 27: the reader will refuse it
    ("2024-02-27", "day first", "2024-02-27"),
    ("soon", "day first", "soon"),
])  # fmt: skip
def test_dates_by_the_order_of_day_and_month(text, order, right):
    assert iso_date(text, order) == right


BAD = {
    "a mark for a column that is not there": ({"na": {"lactate": 999}}, "name 'lactate', but the columns are"),
    "a unit for no column": ({"suffix": "mg"}, "suffix must be written as name=unit"),
    "another order of dates": ({"dates": "year first"}, "dates must be 'day first' or 'month first'"),
    "rows to skip that are no number": ({"skip": "two"}, "skip must be a number of rows"),
    "a column to fill down that is not there": ({"fill_down": "ward"}, "name 'ward', but the columns are"),
    "the wrong order of dates": ({"dates": "month first"}, r"line 4 of .*ward\.csv: '27\.02\.2024 09:30'"),
    "another unit": ({"suffix": {"dose": "g"}, "bins": {"dose": 2}}, r"'dose' is '5 mg' at line 4"),
    "a mark that is not stated": ({"na": None}, r"the first is line 4 of .*ward\.csv: '-'.*--na \"x=-\""),
    "a unit that is not stated": ({"suffix": None, "bins": {"dose": 2}}, r"'5 mg' at line 4.*--suffix \"dose=mg\""),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_refused_with_its_place_and_the_option_that_helps(text, case):
    change, words = BAD[case]
    with pytest.raises((LogError, ValueError), match=words):
        load_log(text, columns=ROLES | STATED | change)


def test_a_later_log_may_lack_columns_that_something_was_stated_of(text):
    log = open_log(text, columns=ROLES | STATED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = KBSF(n_reps=2, random_state=0, min_cases=1).fit(log.chunks())
    assert len(model.predict({"x": [3.0, 2.0]})) == 2


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame, dict])
def test_answers_to_a_frame_know_units_decimal_commas_and_the_order_of_dates(tmp_path, make):
    rng = np.random.default_rng(0)
    rows = {"who": np.repeat(np.arange(20), 5).tolist(), "weight": rng.uniform(40, 90, 100).round(1).tolist()}
    rows |= {
        "at": [f"2024-0{1 + day // 3}-1{day}" for day in range(5)] * 20,
        "drug": rng.choice(["a", "b"], 100).tolist(),
    }
    rows |= {"gain": [w * (1 if d == "a" else -1) for w, d in zip(rows["weight"], rows["drug"])]}
    as_written = rows | {
        "weight": [f"{w:.1f} kg".replace(".", ",") for w in rows["weight"]],
        "at": [f"{text[8:]}.{text[5:7]}.{text[:4]}" for text in rows["at"]],
    }
    roles = {
        "state": ["weight", "at"],
        "action": "drug",
        "reward": "gain",
        "episode": "who",
        "elapsed": {"at": "1 day"},
    }
    stated = {"suffix": {"weight": "kg"}, "decimal": ",", "dates": "day first"}
    plain = KBSF(n_reps=10, random_state=0).fit(make(rows), columns=roles)
    found = KBSF(n_reps=10, random_state=0).fit(make(as_written), columns=roles | stated)
    np.testing.assert_array_equal(found.q_values(make(as_written)), plain.q_values(make(rows)))
    save_model(found, tmp_path / "m.kbrl")
    loaded = load_model(tmp_path / "m.kbrl")
    assert loaded.recipe == found.model_.recipe
    one = {name: as_written[name][7] for name in ("weight", "at")}
    assert list(loaded.predict(make(as_written))) == list(plain.predict(make(rows)))
    assert loaded.act(one) == plain.act({name: rows[name][7] for name in ("weight", "at")})
    assert not plain.model_.recipe.differences(found.model_.recipe)  # how cells are written is not what they mean
    with pytest.raises(ValueError, match="weight must be a number, but it is '70 lb'"):
        loaded.act(one | {"weight": "70 lb"})
