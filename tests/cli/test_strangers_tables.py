"""Tables that strangers brought: init proposes what the ward of the simulator means, whatever its columns are named."""

import tomllib
from pathlib import Path

import duckdb
import numpy as np
import openpyxl
import pandas
import pyarrow as pa
import pytest

from kbrl.cli import main
from kbrl.cli.fitting import fit
from kbrl.cli.options import option_names
from kbrl.logs.log import load_log
from kbrl.proposing.guessed_roles import propose
from kbrl.tables.faults import LogError
from ward_simulator import clean_table

pytestmark = [pytest.mark.usefixtures("here"), pytest.mark.filterwarnings("ignore::kbrl.checks.KbrlWarning")]


def found_in(source):
    """Return the proposal, and what its TOML file says."""
    proposal = propose(source, {}, option_names(fit))
    return proposal, tomllib.loads(proposal.to_toml("log", "log.toml"))


def ward():
    """Return the clean table of the ward with plain names, and the two flags that its ends give."""
    frame = clean_table(80)
    plain = {"Patient": "patient", "Tag": "day", "Schwere": "severity", "Laktat": "lactate", "Geschlecht": "sex"}
    frame = frame.rename(columns={**plain, "Dosis": "drug", "Score": "score"})
    return frame.assign(died=frame.outcome == "died", home=frame.outcome == "home")


def with_units(path, frame):
    """Write a CSV file or a sheet with a row of units below the header."""
    units = [""] * frame.shape[1]
    units[2:4] = ["points", "mmol/l"]
    if path.endswith("csv"):
        header, *rows = frame.to_csv(index=False).splitlines(keepends=True)
        Path(path).write_text("".join([header, ",".join(units) + "\n", *rows]), encoding="utf-8")
        return
    book = openpyxl.Workbook()
    for row in [list(frame), units, *frame.astype(object).values.tolist()]:
        book.active.append([cell if cell != "" else None for cell in row])
    book.save(path)


@pytest.mark.parametrize("path", ["log.csv", "log.xlsx"])
def test_a_row_of_units_below_the_header_is_found_and_skipped(path):
    frame = clean_table(40)
    with_units(path, frame)
    proposal, found = found_in(path)
    assert found["skip"] == "0+1"
    assert "units" in proposal.reasons["skip"]
    assert "na" not in found
    right = load_log(frame, columns={name: value for name, value in found.items() if name != "skip"})
    log = load_log(path, columns=found)
    np.testing.assert_array_equal(log.states, right.states)
    np.testing.assert_array_equal(log.rewards, right.rewards)


def test_a_fault_below_a_row_of_units_is_named_by_its_line():
    with_units(
        "log.csv", clean_table(40).astype({"Score": object}).assign(Score=lambda f: f.Score.where(f.index != 6, "x"))
    )
    stated = {"state": "Schwere", "action": "Dosis", "reward": "Score", "episode": "Patient", "skip": "0+1"}
    with pytest.raises(LogError, match=r"line 9 of log\.csv: 'x'"):
        load_log("log.csv", columns=stated)


@pytest.mark.parametrize("path", ["log.csv", "log.xlsx"])
def test_a_row_of_data_is_never_skipped_as_one_of_units(path):
    frame = clean_table(5)
    frame.to_csv(path, index=False) if path.endswith("csv") else frame.to_excel(path, index=False)
    with pytest.raises(LogError, match=r"holds a number, '.*': it seems to be data\. If all rows are data: --skip 0"):
        load_log(path, columns={"state": "Schwere", "action": "Dosis", "reward": "Score", "skip": "0+1"})


def test_thousands_with_commas_beside_decimal_points_are_no_decimal_commas():
    frame = ward().assign(platelets=lambda f: [f"{int(v * 1000) + 100_000:,}" for v in f.lactate])
    frame.to_csv("log.csv", index=False)
    _, found = found_in("log.csv")
    assert found["thousands"] == ","
    assert "decimal" not in found


def test_what_is_skipped_and_the_decimal_comma_each_have_their_own_reason():
    text = clean_table(40).to_csv(index=False, sep=";", decimal=",")
    Path("log.csv").write_text(f"Ward 4\n\n{text}", encoding="utf-8")
    proposal, found = found_in("log.csv")
    assert (found["skip"], found["decimal"]) == ("2", ",")
    assert "rows above the header" in proposal.reasons["skip"]
    assert "decimal comma" in proposal.reasons["decimal"]


def test_every_flag_that_is_true_only_on_last_rows_is_an_end_and_no_state():
    frame = ward().drop(columns="outcome").rename(columns={"died": "verstorben", "home": "zuhause"})
    proposal, found = found_in(frame)
    assert found["terminated"] == "verstorben or zuhause"
    assert any("'zuhause' says that an episode ended" in doubt for doubt in proposal.doubts)
    assert sorted(found["state"]) == ["lactate", "severity", "sex"]


def test_a_flag_that_is_true_only_where_another_one_ends_the_episode_adds_nothing():
    frame = ward().drop(columns="outcome").assign(terminated=lambda f: f.died | f.home)
    _, found = found_in(frame.rename(columns={"died": "alarm_rang", "home": "bed_free"}))
    assert found["terminated"] == "terminated"
    assert sorted(found["state"]) == ["lactate", "severity", "sex"]


def test_codes_that_occur_only_on_last_rows_are_ends():
    codes = {"ongoing": 1, "home": 2, "died": 9}
    _, found = found_in(ward().assign(status=lambda f: f.outcome.map(codes)).drop(columns=["outcome", "died", "home"]))
    assert found["terminated"] == "status in (2, 9)"


def test_a_result_with_a_name_that_says_nothing_ends_episodes_if_it_stands_after_the_action():
    frame = ward().drop(columns=["died", "home"]).rename(columns={"outcome": "verbleib"})
    _, found = found_in(frame)
    assert found["terminated"] == "verbleib in ('died', 'home')"


def test_failed_is_an_end_of_a_pump_and_its_cost_is_asked_for():
    frame = (
        ward()
        .rename(columns={"patient": "Asset", "day": "Reading #", "died": "Failed?"})
        .drop(columns=["outcome", "home"])
    )
    proposal, found = found_in(frame.assign(cost=-frame.score).drop(columns="score"))
    assert (found["terminated"], found["minimize"], found["episode"]) == ("Failed?", "cost", "Asset")
    assert any("too cheap an end would be sought" in doubt for doubt in proposal.doubts)


def test_persons_who_occur_once_are_decisions_of_their_own_whatever_dates_there_are():
    rng, n = np.random.default_rng(3), 300
    dates = pandas.Timestamp("2024-05-01") + pandas.to_timedelta(rng.integers(0, 10**6, n), "s")
    frame = pandas.DataFrame({"user_id": [f"u{k}" for k in range(n)], "sent_at": dates, "age": rng.integers(18, 80, n)})
    frame = frame.assign(variant=rng.choice(list("ABC"), n), p_logged=0.25, clicked=rng.integers(0, 2, n))
    frame.loc[frame.variant == "A", "p_logged"] = 0.5
    _, found = found_in(frame)
    assert found["one-step"] is True
    assert "step" not in found
    assert (found["action"], found["reward"], found["action_prob"], found["state"]) == (
        "variant",
        "clicked",
        "p_logged",
        ["age"],
    )


def test_rows_in_any_order_some_of_them_twice_are_ordered_by_an_identifier_and_a_number_of_the_visit():
    frame = ward().drop(columns=["died", "home"])
    frame = frame.assign(
        patient=[f"{int(p[1:]) * 7:05d}" for p in frame.patient], visitno=frame.groupby("patient").cumcount()
    )
    frame = frame.rename(columns={"patient": "ID"}).drop(columns="day")
    frame = pandas.concat([frame, frame.iloc[::30]]).sample(frac=1.0, random_state=2)
    frame.to_csv("log.csv", index=False)
    _, found = found_in("log.csv")
    assert (found["episode"], found["step"], found["sort"], found["drop-repeats"]) == ("ID", "visitno", True, True)
    assert found["terminated"] == "outcome in ('died', 'home')"


def test_amounts_that_are_given_together_are_one_action():
    rng = np.random.default_rng(1)
    frame = ward().drop(columns=["drug", "died", "home"])
    frame.insert(4, "basal_dose", np.where(rng.random(len(frame)) < 0.5, 0.0, rng.uniform(1, 3, len(frame)).round(2)))
    frame.insert(5, "bolus_dose", rng.uniform(4, 9, len(frame)).round(2))
    _, found = found_in(frame)
    assert found["action"] == ["basal_dose", "bolus_dose"]
    assert found["bins"] == {"basal_dose": "0+2", "bolus_dose": 3}
    assert sorted(found["state"]) == ["lactate", "severity", "sex"]


def test_the_name_of_a_result_or_of_what_never_changes_is_not_taken_for_an_action():
    frame = ward().rename(columns={"score": "act_score", "drug": "therapy"}).assign(exercise=1)
    frame.loc[frame.patient < "P0040", "exercise"] = 0
    _, found = found_in(frame)
    assert (found["action"], found["reward"]) == ("therapy", "act_score")
    assert "exercise" in found["state"]


def test_a_step_that_starts_again_tells_which_flags_are_ends():
    frame = ward().assign(step_no=lambda f: f.groupby("patient").cumcount())
    _, found = found_in(
        frame[["step_no", "severity", "lactate", "drug", "score", "died"]].rename(columns={"died": "crashed"})
    )
    assert (found["step"], found["terminated"]) == ("step_no", "crashed")


def test_a_table_with_one_row_per_measurement_is_asked_about():
    frame = ward()[["patient", "day", "severity", "lactate"]].melt(["patient", "day"], value_name="value")
    proposal, _ = found_in(frame.sort_values(["patient", "day"]))
    assert "one row per measurement ('variable' and 'value')" in proposal.doubts[0]


def test_an_enum_of_duckdb_is_a_column_of_texts():
    table = pa.Table.from_pandas(ward().drop(columns=["died", "home"]), preserve_index=False)
    with duckdb.connect("ward.duckdb") as connection:
        connection.register("rows", table)
        connection.execute("create type sexes as enum ('weiblich', 'männlich')")
        connection.execute("create table visits as select * replace (sex::sexes as sex) from rows")
    stated = {"state": "severity,sex", "action": "drug", "reward": "score", "episode": "patient", "step": "day"}
    query = {"query": "select * from visits order by patient, day"}
    log, right = (load_log(source, columns=stated | more) for source, more in (("ward.duckdb", query), (table, {})))
    np.testing.assert_array_equal(log.states, right.states)


def test_a_fate_that_is_told_on_all_rows_is_the_reward_of_the_last_one():
    frame = ward()
    fates = frame.groupby("patient").died.transform("max")
    frame = frame.drop(columns=["outcome", "died", "home", "score"]).assign(
        died_in_hosp=fates.astype(int), mortality_90d=fates
    )
    _, found = found_in(frame)
    assert found["terminated"] == "last_row"
    assert found["reward"] == "where(last_row, where(died_in_hosp, -1, 1), 0)"
    assert sorted(found["state"]) == ["lactate", "severity", "sex"]
    log = load_log(frame, columns=found)
    assert log.rewards[~log.terminals].tolist() == [0.0] * int((~log.terminals).sum())
    assert (log.rewards == -1).sum() == fates.groupby(frame.patient).max().sum()


def test_one_long_run_cannot_be_held_out_in_part_and_a_day_can_tell_episodes_apart(capsys):
    rng, n = np.random.default_rng(2), 240
    frame = pandas.DataFrame({"at": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(np.arange(n), "h")})
    frame = frame.assign(
        day=frame["at"].dt.strftime("%j"), room=rng.normal(size=n), heater=rng.choice(["on", "off"], n)
    )
    frame.assign(comfort=rng.normal(size=n)).to_csv("log.csv", index=False)
    columns = ["--step", "at", "--state", "room", "--action", "heater", "--reward", "comfort"]
    quick = ["-o", "m.kbrl", "--order", "0", "--reps", "5", "-q"]
    with pytest.raises(SystemExit):
        main(["fit", "log.csv", *columns, "--hold-out", "0.5", *quick])
    assert "one long run, a column such as the day" in capsys.readouterr().err
    main(["fit", "log.csv", *columns, "--episode", "day", "--hold-out", "0.5", *quick])
    main(["judge", "m.kbrl", "log.csv"])
    assert "6 episodes" in capsys.readouterr().out
