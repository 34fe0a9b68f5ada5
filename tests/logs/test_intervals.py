"""Rows at irregular intervals: how much time each step took, judged by a loop, by units and by the regular case."""

import json

import numpy as np
import pandas
import pytest

from kbrl import KBSF, Solver, Transitions, load_model
from kbrl.cli import main
from kbrl.logs.check import check_log
from kbrl.logs.log import load_log, read_log
from kbrl.logs.writing import write_log
from kbrl.on_dask.log_parts import Part, agree, find_columns, look_at
from kbrl.tables.faults import LogError

COLUMNS = {"state": "glucose", "action": "insulin", "reward": "in_range", "episode": "person", "step": "minute"}
COLUMNS |= {"terminated": "end"}


def record(n_persons=12, n_rows=9, seed=1):
    """Return a glucose-like record: measured every 5 to 300 minutes, some persons leave at the end."""
    rng = np.random.default_rng(seed)
    n = n_persons * n_rows
    minutes = rng.integers(1, 60, size=(n_persons, n_rows)).cumsum(axis=1).ravel() * 5
    return pandas.DataFrame(
        {
            "person": np.repeat(np.arange(n_persons), n_rows),
            "minute": minutes,
            "glucose": rng.normal(120, 30, n).round(1),
            "insulin": np.array(["none", "some"])[rng.integers(2, size=n)],
            "in_range": rng.integers(2, size=n).astype(float),
            "end": (np.arange(n) % n_rows == n_rows - 1) & (np.arange(n) // n_rows % 2 == 0),
        }
    )


def slow_durations(frame, period):
    """Loop over the rows that become transitions: those with a next row of their person, and ends."""
    rows, found = frame.to_dict("records"), []
    for row, following in zip(rows, [*rows[1:], None]):
        if row["end"]:
            found.append(1.0)
        elif following is not None and following["person"] == row["person"]:
            found.append((following["minute"] - row["minute"]) / period)
    return found


@pytest.mark.parametrize("period", [1440, 60, 7.5])
def test_durations_are_those_of_a_loop_over_the_rows(period):
    log = load_log(record(), columns=COLUMNS | {"discount_per": period})
    np.testing.assert_allclose(log.durations, slow_durations(record(), period), rtol=1e-14)


@pytest.mark.parametrize("chunk_rows", [1, 4, 50])
def test_chunks_of_any_size_have_the_same_durations(chunk_rows):
    chunks = list(read_log(record(), columns=COLUMNS | {"discount_per": 60}, chunk_rows=chunk_rows))
    np.testing.assert_array_equal(np.concatenate([c.durations for c in chunks]), slow_durations(record(), 60))


@pytest.mark.parametrize("form", ["csv", "parquet", "frame"])
def test_datetimes_per_day_are_minutes_per_1440(tmp_path, form):
    numbers = load_log(record(), columns=COLUMNS | {"discount_per": 1440})
    dated = record().assign(minute=lambda f: pandas.Timestamp("2024-02-27") + pandas.to_timedelta(f.minute, unit="min"))
    source = dated if form == "frame" else tmp_path / f"log.{form}"
    if form != "frame":
        getattr(dated, f"to_{form}")(source, index=False)
    log = load_log(source, columns=COLUMNS | {"discount_per": "1 day"})
    np.testing.assert_allclose(log.durations, numbers.durations, rtol=1e-12)


def test_without_a_period_all_steps_are_alike():
    assert load_log(record(), columns=COLUMNS | {"stride": "any"}).durations is None


def test_rows_at_equal_intervals_are_learnt_as_without_them():
    frame = record().assign(minute=lambda f: f.groupby("person").cumcount() * 30)
    settings = {"n_reps": 5, "random_state": 0, "solver": Solver(tolerance=1e-13), "min_cases": 1}
    per_hour = KBSF(discount=0.81, **settings).fit(load_log(frame, columns=COLUMNS | {"discount_per": 60}))
    per_row = KBSF(discount=0.9, **settings).fit(load_log(frame, columns=COLUMNS))
    states = frame[["glucose"]].to_numpy()
    np.testing.assert_allclose(per_hour.q_values(states), per_row.q_values(states), rtol=1e-9)


def own_next():
    """Return a table whose rows have next states of their own, and the hours until then."""
    rng = np.random.default_rng(0)
    return {
        "observation_x": rng.normal(size=8),
        "action": list("abababab"),
        "reward": rng.normal(size=8),
        "next_observation_x": rng.normal(size=8),
        "terminated": [False] * 7 + [True],
        "hours": [*rng.uniform(1, 30, size=7).tolist(), np.nan],
    }


def test_a_column_tells_the_time_to_next_states_of_their_own():
    table = own_next()
    log = load_log(table, columns={"duration": "hours", "discount_per": 24})
    np.testing.assert_allclose(log.durations, [*(hours / 24 for hours in table["hours"][:7]), 1.0])
    assert load_log(table, columns={"duration": "hours"}).durations[0] == table["hours"][0]


def test_durations_come_back_from_a_file(tmp_path):
    log = load_log(own_next(), columns={"duration": "hours"})
    write_log(log, tmp_path / "log.csv")
    np.testing.assert_array_equal(load_log(tmp_path / "log.csv").durations, log.durations)


def test_parts_read_by_workers_have_durations():
    frame = record()
    tables = [frame[frame.person < 5], frame[frame.person >= 5]]
    opened = [Part(f"part {place}").open(table) for place, table in enumerate(tables)]
    columns = find_columns(opened[0], COLUMNS | {"discount_per": 60})
    facts = agree([look_at(item, columns, 2) for item in opened], ["0", "1"], None)
    found = [chunk.durations for item in opened for chunk in facts.chunks(item)]
    np.testing.assert_array_equal(np.concatenate(found), slow_durations(frame, 60))


def with_hours(value):
    return own_next() | {"hours": [value] + [1.0] * 7}


FAULTS = {
    "a unit for numbers": (record(), {"discount_per": "1 day"}, "wrong_stride", "are numbers, which have no unit"),
    "no step": (record().drop(columns="minute"), {"discount_per": 5}, "missing_column", "is the step"),
    "no time until next states": (own_next(), {"discount_per": 5}, "missing_column", "--duration NAME"),
    "a duration of 0": (with_hours(0.0), {"duration": "hours"}, "bad_duration", "row 1 (counting from 1): 0 (dur"),
    "a missing duration": (with_hours(None), {"duration": "hours"}, "bad_duration", "row 1 (counting from 1): nothing"),
    "a duration in words": (with_hours("long"), {"duration": "hours"}, "bad_duration", "'long'"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_is_wrong_with_times_is_said_by_reader_and_check(case):
    source, stated, name, words = FAULTS[case]
    named = {role: column for role, column in COLUMNS.items() if not isinstance(source, dict) and column in source}
    with pytest.raises(LogError) as error:
        load_log(source, columns=named | stated)
    assert error.value.fault.name == name
    assert words in str(error.value)
    assert name in [fault.name for fault in check_log(source, columns=named | stated).faults]


@pytest.mark.parametrize("value", ["any", "soon", 0, -1, ""])
def test_a_period_is_a_number_or_a_time(value):
    with pytest.raises(ValueError, match="discount_per must be a number above 0, or a number with a unit"):
        load_log(record(), columns=COLUMNS | {"discount_per": value})


def test_the_command_discounts_by_time_and_goes_on_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    record(60).to_csv("april.csv", index=False)
    record(40, seed=2).assign(person=lambda f: f.person + 100).to_csv("may.csv", index=False)
    roles = "".join(f'{name} = "{column}"\n' for name, column in COLUMNS.items())
    (tmp_path / "log.toml").write_text(roles + "discount_per = 1440\ndiscount = 0.9\norder = 0\nreps = 8\n")
    main(["check", "april.csv", "--config", "log.toml"])
    main(["fit", "april.csv", "--config", "log.toml", "-o", "model.kbrl", "-q"])
    main(["update", "model.kbrl", "may.csv", "-o", "both.kbrl", "-q"])
    capsys.readouterr()
    main(["explain", "both.kbrl", "--state", "120", "--log", "april.csv", "--log", "may.csv", "--json", "-q"])
    for action in json.loads(capsys.readouterr().out)["actions"]:
        assert action["explained"] == pytest.approx(action["value"], rel=1e-6)
    both = pandas.concat([record(60), record(40, seed=2).assign(person=lambda f: f.person + 100)])
    log = load_log(both, columns=COLUMNS | {"discount_per": 1440})
    assert isinstance(log, Transitions)
    model = load_model("both.kbrl")
    again = model.without_data().extend(log)
    np.testing.assert_allclose(model.q_values([[120.0]]), again.q_values([[120.0]]), rtol=1e-9)
