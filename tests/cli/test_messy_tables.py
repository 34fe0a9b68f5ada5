"""A messy table through every command, by options, by TOML and in Python, and every TOML of the page on logs."""

import csv
import json
import re
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pandas
import pytest

from kbrl import KBSF, fit_log, open_log
from kbrl.cli import main
from kbrl.logs.check import check_log
from kbrl.storage.model_file import read_model
from messy_ward import COLUMNS, STATE, clean_log, with_holes

PAGE = Path(__file__).parents[2] / "docs" / "logs.md"
TOML = """
state = ["sofa", "map", "unit", "severity", "ventilated"]
action = "drug"
reward = "-0.1 * risk + 20 * (outcome == 'home') - 20 * (outcome == 'died')"
terminated = "outcome in ('died', 'home')"
episode = "patient"
step = "day"
missing = "forward"
reps = 40
sample_width = 0.5
rep_width = 0.5
seed = 0

[ordinal]
severity = ["mild", "medium", "severe"]

[allowed]
high = "map < 75"
"""
OPTIONS = [
    *("--state", ",".join(STATE), "--action", "drug", "--reward", COLUMNS["reward"], "--episode", "patient"),
    *("--terminated", COLUMNS["terminated"], "--step", "day", "--missing", "forward", "--allowed", "high=map < 75"),
    *("--ordinal", "severity=mild<medium<severe", "--reps", "40", "--sample-width", "0.5", "--rep-width", "0.5"),
    *("--seed", "0"),
]


@pytest.fixture(scope="module")
def frame():
    return with_holes(clean_log(150))


@pytest.fixture
def folder(frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("ward.csv", index=False)
    Path("ward.toml").write_text(TOML)
    return tmp_path


def q_of(path, frame):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_model(path).model.q_values(frame.ffill().bfill()[STATE])


def test_options_toml_and_python_give_the_same_model(folder, frame, capsys):
    main(["fit", "ward.csv", "--config", "ward.toml", "-o", "toml.kbrl", "-q"])
    main(["fit", "ward.csv", *OPTIONS, "-o", "options.kbrl", "-q"])
    log = open_log("ward.csv", columns=COLUMNS | {"missing": "forward", "allowed": {"high": "map < 75"}})
    model = fit_log(KBSF(n_reps=40, sample_width=0.5, rep_width=0.5, random_state=0, min_cases=5), log)
    states = frame.ffill().bfill()[STATE]
    np.testing.assert_array_equal(q_of("toml.kbrl", frame), q_of("options.kbrl", frame))
    np.testing.assert_array_equal(q_of("toml.kbrl", frame), model.q_values(states))
    assert "unit (day clinic, icu, ward; missing: forward)" in capsys.readouterr().out


def test_check_fit_predict_explain_report_update_and_merge_take_the_table(folder, frame, capsys):
    main(["check", "ward.csv", "--config", "ward.toml"])
    main(["fit", "ward.csv", "--config", "ward.toml", "-o", "m.kbrl", "-q"])
    capsys.readouterr()
    main(["predict", "m.kbrl", "ward.csv", "--keep", "patient,day", "-q"])
    answers = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [int(row["patient"]) for row in answers] == frame["patient"].tolist()
    held = frame.groupby("patient")["map"].ffill()
    assert not any(row["action"] == "high" and pressure >= 75 for row, pressure in zip(answers, held))
    assert all(
        row["action"] or "no action is allowed" in row["reason"] or "missing" in row["reason"] for row in answers
    )
    main(
        [
            "explain",
            "m.kbrl",
            "--state",
            "sofa=8,map=60,unit=icu,severity=medium,ventilated=no",
            "--log",
            "ward.csv",
            "-q",
        ]
    )
    out = capsys.readouterr().out
    assert "State sofa = 8, map = 60, unit = icu, severity = medium, ventilated = 0" in out
    main(["explain", "m.kbrl", "--state", "8,90,icu,medium,no", "--log", "ward.csv", "-q", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {action["action"]: action["is_allowed"] for action in found["actions"]} == {
        "high": False,
        "low": True,
        "none": True,
    }
    main(["report", "m.kbrl", "ward.csv", "-o", "report.html"])
    assert "unit=icu" in Path("report.html").read_text()
    more = clean_log(60, seed=5)
    more.to_csv("more.csv", index=False)
    main(["update", "m.kbrl", "more.csv", "-o", "both.kbrl", "-q"])
    main(["update", "m.kbrl", "more.csv", "--alone", "-o", "alone.kbrl", "-q"])
    main(["merge", "m.kbrl", "alone.kbrl", "-o", "merged.kbrl"])
    np.testing.assert_allclose(q_of("merged.kbrl", frame), q_of("both.kbrl", frame), rtol=1e-9)


def test_a_row_without_an_allowed_action_has_an_empty_answer(folder, capsys):
    Path("ward.toml").write_text(TOML + 'low = "map < 75"\nnone = "map < 75"\n')
    main(["fit", "ward.csv", "--config", "ward.toml", "-o", "m.kbrl", "-q"])
    Path("new.csv").write_text(
        "sofa,map,unit,severity,ventilated\n8,60,icu,medium,no\n8,90,icu,medium,no\n,60,icu,medium,no\n"
    )
    capsys.readouterr()
    main(["predict", "m.kbrl", "new.csv", "-q"])
    out, err = capsys.readouterr()
    first, second, third = csv.DictReader(out.splitlines())
    assert first["action"]
    assert not first["reason"]
    assert (second["action"], second["value"]) == ("", "")
    assert "no action is allowed in this state" in second["reason"]
    assert third["reason"] == "sofa is missing, and the table has no earlier value of the same episode"
    assert err == "2 of 3 rows have no answer; the column reason says why.\n"


def test_every_answer_about_classes_of_doses_has_the_dose_that_stands_for_the_class(folder, frame, capsys):
    rng = np.random.default_rng(0)
    doses = np.where(frame["drug"] == "none", 0.0, rng.integers(1, 40, len(frame)))
    frame.assign(dose=doses).to_csv("ward.csv", index=False)
    text = TOML.split("[allowed]")[0].replace('action = "drug"', 'action = "dose"\nbins = {dose = "0+3"}')
    Path("ward.toml").write_text(text)
    main(["fit", "ward.csv", "--config", "ward.toml", "-o", "m.kbrl", "-q"])
    (bins,) = read_model("m.kbrl").model.recipe.bins
    capsys.readouterr()
    main(["predict", "m.kbrl", "ward.csv", "-q"])
    for row in csv.DictReader(capsys.readouterr().out.splitlines()):
        if row["action"]:
            assert float(row["dose_dose"]) == bins.doses[bins.labels.index(row["action"])]
    for label, dose in zip(bins.labels, bins.doses):
        inside = [d for d, found in zip(doses, bins.classes(doses).codes) if bins.labels[found] == label]
        assert dose == sorted(inside)[(len(inside) - 1) // 2]
    main(["explain", "m.kbrl", "--state", "8,60,icu,medium,no", "--log", "ward.csv", "-q"])
    assert f"; typical dose {bins.doses[1]:g}" in capsys.readouterr().out


def test_rules_for_values_cannot_be_changed_by_a_later_log(folder):
    from kbrl.learners.matching_log import open_matching_log

    main(["fit", "ward.csv", "--config", "ward.toml", "-o", "m.kbrl", "-q"])
    model = read_model("m.kbrl").model
    with pytest.raises(ValueError, match=r"but missing would change it\. Leave it out, or fit again"):
        open_matching_log(model, "ward.csv", {"missing": "median"}, stored={"state": STATE})


def everything():
    """A table with every column that the page names."""
    ward = clean_log(60)
    rng, n = np.random.default_rng(0), len(ward)
    return ward.assign(
        lactate=np.where(rng.random(n) < 0.2, np.nan, rng.normal(2, 1, n)),
        site=rng.integers(1, 4, n),
        taken_at=pandas.Timestamp("2024-01-01") + pandas.to_timedelta(24 * ward["day"], unit="h"),
        dose=np.where(ward["drug"] == "none", 0.0, rng.integers(1, 40, n)),
        route=rng.choice(["iv", "oral"], n),
        chance=1 / 3,
        bonus=np.where(ward["outcome"] == "home", 5.0, np.nan),
        theta=rng.uniform(-np.pi, np.pi, n),
        speed=rng.normal(size=n),
        died=ward["patient"].astype(str).str[-1].isin(["1", "2"]),  # of a patient, on every row
    )


def snippets():
    return re.findall(r"```toml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("text", snippets(), ids=range(len(snippets())))
def test_every_toml_of_the_page_is_taken_by_check_and_fit(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    everything().to_csv("ward.csv", index=False)
    said = tomllib.loads(text)
    usual = {"state": ["sofa", "map"], "action": "drug", "reward": "risk"}
    if not said.get("one_step"):
        usual |= {"episode": "patient", "terminated": "outcome != 'none'"}
    if "minimize" in said:
        usual.pop("reward")
    rest = {key: value for key, value in usual.items() if key not in said}
    lines = [f"{key} = {json.dumps(value)}" for key, value in rest.items()]
    Path("ward.toml").write_text("\n".join(lines) + "\nreps = 10\nsample_width = 1.0\nrep_width = 1.0\n" + text)
    assert not check_log("ward.csv", columns=tomllib.loads("\n".join(lines) + "\n" + text)).stops_learning
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(["fit", "ward.csv", "--config", "ward.toml", "-o", "m.kbrl", "-q"])


def test_the_page_has_a_toml_for_each_situation():
    assert len(snippets()) >= 11


def test_variables_left_out_of_distances_are_named_where_columns_become_several(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["pump,day,wear,noise,oil,decision,cost"]
    for pump in range(80):
        wear = rng.uniform(1, 3)
        for day in range(20):
            act = rng.choice(["run", "grease"])
            wear = max(1.0, wear - 0.6) if act == "grease" else wear + rng.uniform(0, 0.5)
            oil = rng.choice(["good", "used", "old"])
            lines.append(f"{pump},{day},{wear:.3f},{rng.normal():.3f},{oil},{act},{wear:.3f}")
    (tmp_path / "pumps.csv").write_text("\n".join(lines))
    columns = ["--state", "wear,noise,oil", "--action", "decision", "--minimize", "cost", "--episode", "pump"]
    main(["fit", "pumps.csv", *columns, "--step", "day", "-o", "pumps.kbrl"])
    told = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("ignored variables"))
    assert "oil=used" in told


def test_the_entries_of_a_vector_are_named_one_by_one_in_a_state(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng, lines = np.random.default_rng(0), []
    for run in range(30):
        for t in range(4):
            obs = {"tag": str(rng.choice(["a", "b"])), "vec": rng.normal(size=2).tolist()}
            act = str(rng.choice(["left", "right"]))
            lines.append(json.dumps({"run": run, "t": t, "obs": obs, "act": act, "reward": 1.0, "end": t == 3}))
    Path("log.jsonl").write_text("\n".join(lines))
    columns = ["--state", "obs_tag,obs_vec", "--action", "act", "--episode", "run", "--terminated", "end"]
    main(["fit", "log.jsonl", *columns, "-o", "model.kbrl", "--order", "0", "--reps", "5", "-q"])
    main(["explain", "model.kbrl", "--log", "log.jsonl", "--state", "obs_tag=a,obs_vec_0=1,obs_vec_1=-2", "-q"])
    assert "obs_vec = [1.0, -2.0]" in capsys.readouterr().out
    for state, said in {
        "obs_tag=a": "obs_vec_0 must be a number",
        "a,1": "2 values for 3 columns: obs_tag, obs_vec_0",
    }.items():
        with pytest.raises(SystemExit):
            main(["explain", "model.kbrl", "--log", "log.jsonl", "--state", state, "-q"])
        assert said in capsys.readouterr().err
