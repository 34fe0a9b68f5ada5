"""Everything that can be said about columns, through every command: nothing is lost between fit and answer.

For each feature, a model is fitted by the command; then check, predict, explain, report, update and merge take its log,
and the log in parts, as a cluster reads it, gives the same recipe and transitions.
"""

import csv
import json
import warnings
from pathlib import Path

import numpy as np
import pandas
import pytest

from kbrl import open_log
from kbrl.cli import main
from kbrl.data.transitions import join
from kbrl.logs.columns import resolve
from kbrl.on_dask.log_parts import agree, agreed_recipe, look_at, parts_of, values_in
from kbrl.storage.model_file import read_model
from messy_ward import clean_log

ROLES = {"state": ["sofa", "map"], "action": "drug", "reward": "risk", "terminated": "over", "episode": "patient"}
ROLES |= {"step": "day"}
FIT = ["--reps", "15", "--sample-width", "1", "--rep-width", "1", "-q"]
ASKED = {"sofa": 8, "map": 60}


def tables(seed=0, n_patients=40):
    ward = clean_log(n_patients, seed=seed)
    rng, n = np.random.default_rng(seed), len(ward)
    gone = rng.random(n) < 0.2
    gone[ward["day"] == 0] = False
    gone[:2] = [True, False]
    return ward.assign(
        over=(ward["outcome"] != "").astype(int),
        pulse=np.where(gone, np.nan, ward["sofa"].round(1)),
        noise=np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n).round(2)),
        marked=np.where(gone, "?", ward["sofa"].round(1).astype(str)),
        holed=ward["unit"].mask(gone),
        site=ward["patient"] % 3 + 1,
        taken=(pandas.Timestamp("2024-01-01") + pandas.to_timedelta(ward["day"], unit="D")).dt.strftime("%d.%m.%Y"),
        hours=ward["day"] * 24 + rng.integers(0, 12, n),
        dose=np.where(ward["drug"] == "none", 0.0, rng.integers(1, 40, n)),
        pills=[f"{k} mg" for k in np.where(ward["drug"] == "none", 0, rng.integers(1, 40, n))],
        route=rng.choice(["iv", "oral"], n),
        chance=0.5,
    )


FEATURES = {
    "missing, by default": ({"state": ["sofa", "pulse", "noise", "holed"]}, {"pulse": "", "noise": "", "holed": "icu"}),
    "missing: forward": ({"state": ["sofa", "pulse"], "missing": "forward"}, {"pulse": 7}),
    "missing: median": ({"state": ["sofa", "pulse"], "missing": {"pulse": "median"}}, {"pulse": ""}),
    "missing: a constant": ({"state": ["sofa", "pulse"], "missing": {"pulse": 5}}, {"pulse": ""}),
    "missing: a level": ({"state": ["sofa", "holed"], "missing": {"holed": "level"}}, {"holed": ""}),
    "missing: drop": ({"state": ["sofa", "pulse"], "missing": {"pulse": "drop"}}, {"pulse": 7}),
    "marks": ({"state": ["sofa", "marked"], "na": {"marked": ["?"]}}, {"marked": 7}),
    "categories": ({"state": ["sofa", "unit", "site"], "category": ["site"]}, {"unit": "icu", "site": 2}),
    "booleans": ({"state": ["sofa", "ventilated"]}, {"ventilated": "yes"}),
    "ordinals": (
        {"state": ["sofa", "severity"], "ordinal": {"severity": ["mild", "medium", "severe"]}},
        {"severity": "medium"},
    ),
    "dates": (
        {"state": ["sofa", "taken"], "elapsed": {"taken": "1 day"}, "dates": "day first"},
        {"taken": "2024-01-02"},
    ),
    "durations": ({"step": "hours", "discount_per": 24, "stride": "any"}, ASKED),
    "bins": ({"action": "dose", "bins": {"dose": "0+2"}}, ASKED),
    "units": ({"action": "pills", "bins": {"pills": [10]}, "suffix": {"pills": "mg"}}, ASKED),
    "combinations": ({"action": ["drug", "route"]}, ASKED),
    "expressions": ({"reward": "-0.1 * risk + 5 * (outcome == 'home')", "terminated": "outcome != 'none'"}, ASKED),
    "allowed": ({"allowed": {"high": "map < 65", "low": "sofa > 3"}}, ASKED),
    "propensities": ({"action_prob": "chance"}, ASKED),
    "sorting": ({"sort": True}, ASKED),
    "one step": ({"one_step": True, "step": None, "terminated": None, "episode": None}, ASKED),
}


@pytest.fixture
def fitted(request, tmp_path, monkeypatch):
    """Fit a model with one feature; return its roles and the values to ask about."""
    monkeypatch.chdir(tmp_path)
    change, asked = FEATURES[request.param]
    ward = tables()
    (ward.sample(frac=1.0, random_state=0) if request.param == "sorting" else ward).to_csv("ward.csv", index=False)
    tables(seed=1, n_patients=20).assign(patient=lambda rows: rows["patient"] + 1000).to_csv("more.csv", index=False)
    roles = {role: value for role, value in (ROLES | change).items() if value is not None}
    Path("ward.toml").write_text("\n".join(f"{key} = {_toml(value)}" for key, value in roles.items()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(["fit", "ward.csv", "--config", "ward.toml", "-o", "m.kbrl", *FIT])
        yield roles, ({"sofa": 8} | asked)


def _toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {_toml(v)}' for k, v in value.items()) + "}"
    return json.dumps(value)


every = pytest.mark.parametrize("fitted", FEATURES, indirect=True)
quiet = pytest.mark.filterwarnings("ignore")


def states_of(log):
    return join(log.chunks())


@every
@quiet
def test_check_finds_nothing_that_stops_learning(fitted, capsys):
    main(["check", "ward.csv", "--config", "ward.toml"])


@every
@quiet
def test_predict_answers_by_the_same_states_as_were_learnt_from(fitted, capsys):
    roles, _ = fitted
    main(["predict", "m.kbrl", "ward.csv", "-o", "answers.csv", "--digits", "17", "-q"])
    with open("answers.csv", newline="") as file:
        answers = list(csv.DictReader(file))
    model = read_model("m.kbrl").model
    log = open_log("ward.csv", columns=roles)
    numbers, states = zip(*((n, chunk.states) for n, chunk in log.numbered_chunks()))
    rows = np.concatenate(numbers)
    if roles.get("sort"):  # rows of the sorted table are not those of the file
        return
    q = model.q_values(np.concatenate(states))
    best = np.where(np.isfinite(q).any(axis=1), q.max(axis=1), np.nan)
    found = np.array([float(answers[row]["value"] or "nan") for row in rows.tolist()])
    np.testing.assert_allclose(found, best, rtol=1e-12)


@every
@quiet
def test_explain_takes_a_state_as_people_write_it(fitted, capsys):
    _, asked = fitted
    text = ",".join(f"{name}={value}" for name, value in asked.items())
    capsys.readouterr()
    main(["explain", "m.kbrl", "--state", text, "--log", "ward.csv", "--cases", "2", "-q", "--json"])
    found = json.loads(capsys.readouterr().out)
    model = read_model("m.kbrl").model
    assert {action["action"] for action in found["actions"]} == {str(a) for a in model.action_labels.tolist()}
    explained = [a for a in found["actions"] if a["value"] is not None and a.get("explained") is not None]
    assert explained
    for action in explained:
        assert action["explained"] == pytest.approx(action["value"], rel=1e-6)


@every
@quiet
def test_update_and_merge_add_up_to_the_same_model(fitted, capsys):
    main(["update", "m.kbrl", "more.csv", "-o", "both.kbrl", "-q"])
    main(["update", "m.kbrl", "more.csv", "--alone", "-o", "alone.kbrl", "-q"])
    main(["merge", "m.kbrl", "alone.kbrl", "-o", "merged.kbrl"])
    both, merged = (read_model(name).model for name in ("both.kbrl", "merged.kbrl"))
    assert both.recipe == merged.recipe == read_model("m.kbrl").model.recipe
    assert both.n_samples == merged.n_samples > read_model("m.kbrl").model.n_samples
    np.testing.assert_allclose(both.q_values(both.reps), merged.q_values(both.reps), rtol=1e-9)


@every
@quiet
def test_the_report_is_written(fitted, capsys):
    main(["report", "m.kbrl", "ward.csv", "-o", "report.html", "-q"])
    assert "</html>" in Path("report.html").read_text(encoding="utf-8")


@every
@quiet
def test_parts_give_the_recipe_and_the_transitions_of_one_process(fitted, tmp_path):
    roles, _ = fitted
    ward = pandas.read_csv("ward.csv", keep_default_na=False).sort_values(["patient", "day"], kind="stable")
    for part, rows in enumerate((ward[ward["patient"] < 13], ward[ward["patient"] >= 13])):
        rows.to_csv(f"part-{part}.csv", index=False)
    whole = open_log(["part-0.csv", "part-1.csv"], columns=roles)
    parts = parts_of(["part-0.csv", "part-1.csv"], whole_dialect(roles))
    columns = resolve(whole.table.names if not roles.get("sort") else ward.columns.tolist(), roles)
    recipe = agreed_recipe([values_in(part.open(), columns) for part in parts], columns, 2)
    looks = [look_at(part.open(), columns, 2, recipe) for part in parts]
    facts = agree(looks, [part.name for part in parts], None, recipe)
    assert recipe == whole.recipe
    found = join([chunk for part in parts for chunk in facts.chunks(part.open())])
    right = states_of(whole)
    for name in ("states", "next_states", "rewards", "terminals", "durations", "propensities"):
        np.testing.assert_array_equal(getattr(found, name), getattr(right, name), err_msg=name)
    assert found.actions.tolist() == right.actions.tolist()


def whole_dialect(roles):
    from kbrl.tables.text_files import dialect_in

    return dialect_in(roles)
