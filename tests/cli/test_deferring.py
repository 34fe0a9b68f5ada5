"""kbrl defer, fit --agreement, and the report's options, as a person at a terminal meets them."""

import csv

import numpy as np
import pytest

from kbrl import load_log, load_model, split_episodes, with_agreement
from kbrl.cli import main
from kbrl.logs.writing import write_log
from kbrl.tasks import PuddleWorld


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("defer")
    write_log(PuddleWorld().collect(1500, random_state=0), folder / "log.csv")
    options = ["--discount", "0.95", "--reps", "40", "--sample-width", "0.2", "--rep-width", "0.2", "-q"]
    main(["fit", str(folder / "log.csv"), "-o", str(folder / "m.kbrl"), "--agreement", *options])
    return folder


def run(*arguments):
    main([str(argument) for argument in arguments])


def failed(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        run(*arguments)
    return stop.value.code, capsys.readouterr().err


def test_defer_writes_a_model_that_predict_explain_and_update_take(folder, capsys):
    run("defer", folder / "m.kbrl", "-o", folder / "safe.kbrl", "--cases", "4", "--caution", "0.5")
    assert "answers 'as now' at " in capsys.readouterr().out
    safe = load_model(folder / "safe.kbrl")
    assert (safe.deferral.cases, safe.deferral.caution) == (4.0, 0.5)
    run("predict", folder / "safe.kbrl", folder / "log.csv", "-o", folder / "answers.csv", "-q")
    run("predict", folder / "safe.kbrl", folder / "log.csv", "-o", folder / "answers.parquet", "-q")
    with open(folder / "answers.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {"0", "as now"} <= {row["action"] for row in rows} <= {"0", "1", "2", "3", "as now"}
    assert "q_as now" in rows[0]
    assert all(float(row["support"]) >= 4 for row in rows if row["action"] != "as now")
    capsys.readouterr()
    run("explain", folder / "safe.kbrl", "--state", "0.5,0.5", "--log", folder / "log.csv", "-q")
    assert "Current practice is worth" in capsys.readouterr().out
    write_log(PuddleWorld().collect(200, random_state=1), folder / "more.csv")
    run("update", folder / "safe.kbrl", folder / "more.csv", "-o", folder / "later.kbrl", "-q", "--again")
    assert load_model(folder / "later.kbrl").deferral == safe.deferral


def test_predict_shows_agreement_where_the_model_knows_it(folder):
    run("predict", folder / "m.kbrl", folder / "log.csv", "-o", folder / "a.csv", "-q")
    with open(folder / "a.csv", newline="") as file:
        shares = [float(row["agreement"]) for row in csv.DictReader(file)]
    assert all(0 <= share <= 1 for share in shares)
    assert len(set(shares)) > 3
    run("defer", folder / "m.kbrl", "-o", folder / "safe.kbrl", "--log", folder / "log.csv")
    assert load_model(folder / "safe.kbrl").resamples.shape == (20, 40, 5)


def test_the_agreement_of_a_model_with_held_out_episodes_is_that_of_what_it_learnt_from(folder):
    options = ["--discount", "0.95", "--reps", "20", "--sample-width", "0.2", "--rep-width", "0.2", "-q"]
    write_log(PuddleWorld().collect(1500, random_state=0, max_steps=30), folder / "short.csv")
    run("fit", folder / "short.csv", "-o", folder / "half.kbrl", "--hold-out", "0.5", *options)
    run("defer", folder / "half.kbrl", "-o", folder / "safe.kbrl", "--log", folder / "short.csv")
    learnt, _ = split_episodes(load_log(folder / "short.csv"), 0.5)
    expected = with_agreement(load_model(folder / "half.kbrl").deferring(), learnt)
    np.testing.assert_allclose(load_model(folder / "safe.kbrl").resamples, expected.resamples)


def test_what_is_wrong_is_said(folder, capsys):
    status, err = failed(capsys, "defer", folder / "m.kbrl", "-o", folder / "x.kbrl", "--label", "0")
    assert status == 1
    assert "An action is also called '0'" in err
    assert failed(capsys, "defer", folder / "m.kbrl", "-o", folder / "m.kbrl")[0] == 2
    assert failed(capsys, "defer", folder / "m.kbrl", "-o", folder / "x.kbrl", "--cases", "0")[0] == 2
    assert failed(capsys, "defer", folder / "m.kbrl", "-o", folder / "x.kbrl", "--caution", "nan")[0] == 2
    log, page = folder / "log.csv", folder / "page.html"
    status, err = failed(capsys, "report", folder / "m.kbrl", log, "-o", page, "--unit", "years")
    assert status == 2
    assert "'years' must be NAME=UNIT" in err
    status, err = failed(capsys, "fit", log, "-o", folder / "x.kbrl", "--agreement", "--workers", "2")
    assert status == 2
    assert not (folder / "x.kbrl").exists()


def test_units_come_from_the_command_line_and_from_toml(folder, capsys):
    (folder / "ward.toml").write_text('reps = 40\n[units]\nobservation_0 = "km"\n')
    run("report", folder / "m.kbrl", folder / "log.csv", "-o", folder / "page.html", "--config", folder / "ward.toml")
    assert "observation_0 (km)" in (folder / "page.html").read_text(encoding="utf-8")
    more = ("--unit", "value=points", "--unit", "observation_1=m")
    run("report", folder / "m.kbrl", folder / "log.csv", "-o", folder / "page.html", *more)
    text = (folder / "page.html").read_text(encoding="utf-8")
    assert "observation_1 (m)" in text
    assert "Value (points)" in text
    (folder / "bad.toml").write_text("[units]\nobservation_0 = 3\n")
    status, err = failed(
        capsys, "report", folder / "m.kbrl", folder / "log.csv", "-o", "p.html", "--config", folder / "bad.toml"
    )
    assert status == 2
    assert "units must be a table of words" in err
