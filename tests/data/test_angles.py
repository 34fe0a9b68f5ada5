"""Angles: a column on a circle inside, the angle itself in tables, rules and answers."""

import json

import numpy as np
import pandas
import pytest

from kbrl import KBSF, Plan, explain, export_policy, load_log, load_model, save_model
from kbrl.cli import main
from kbrl.data.recipe import Recipe
from kbrl.data.state_column import StateColumn
from kbrl.report import write_report

TURN = {"radians": 2 * np.pi, "degrees": 360.0, "hours": 24.0}
COLUMNS = {"state": ["theta", "speed"], "action": "push", "reward": "r", "episode": "run", "step": "t"}


def wheel(n_runs=60, *, turn=360.0, lowest=0.0, seed=0):
    """Return the log of a wheel that is pushed at random; it pays to have the mark at 0."""
    rng, rows = np.random.default_rng(seed), []
    for run in range(n_runs):
        angle, speed = rng.uniform(-np.pi, np.pi), 0.0
        for t in range(20):
            push = rng.choice(["left", "right"])
            shown = lowest + (angle / (2 * np.pi) * turn - lowest) % turn
            rows.append({"run": run, "t": t, "theta": shown, "speed": speed, "push": push, "r": np.cos(angle)})
            speed = np.clip(0.9 * speed + (0.1 if push == "right" else -0.1), -0.5, 0.5)
            angle += speed
    return pandas.DataFrame(rows)


def fitted(log, **more):
    plan = Plan(decisions=2, hold=2)
    return KBSF(40, order=1, reps="spread", discount=0.9, random_state=0, plan=plan, **more).fit(log).model_


@pytest.mark.parametrize(
    ("unit", "lowest"), [("radians", -np.pi), ("degrees", 0.0), ("degrees", -180.0), ("hours", 0.0)]
)
def test_an_angle_becomes_a_point_on_the_unit_circle_and_comes_back(unit, lowest):
    column = StateColumn("theta", "angle", period=TURN[unit], lowest=lowest)
    angles = lowest + TURN[unit] * np.array([0.0, 0.1, 0.25, 0.6, 0.999])
    rows = column.expanded(angles)
    np.testing.assert_allclose(np.hypot(*rows.T), 1.0, atol=1e-12)
    np.testing.assert_allclose(
        np.arctan2(*rows.T) % (2 * np.pi), angles / TURN[unit] * 2 * np.pi % (2 * np.pi), atol=1e-9
    )
    np.testing.assert_allclose(column.cells(rows), angles, atol=1e-9)
    np.testing.assert_allclose(column.expanded(angles + 3 * TURN[unit]), rows, atol=1e-9)


def test_units_and_ranges_do_not_matter():
    """The same wheel in radians around 0, in degrees, and on a clock gives the same values."""
    values = []
    for turn, lowest in ((2 * np.pi, -np.pi), (360.0, 0.0), (24.0, 0.0)):
        log = load_log(wheel(turn=turn, lowest=lowest), columns=COLUMNS | {"angle": {"theta": turn}})
        model = fitted(log)
        assert log.state_names == ("sin theta", "cos theta", "speed")
        frame = pandas.DataFrame({"theta": turn * np.array([0.05, 0.4, 0.95]), "speed": [0.1, 0.0, -0.2]})
        values.append(model.q_values(frame))
    np.testing.assert_allclose(values[1], values[0], atol=1e-6)
    np.testing.assert_allclose(values[2], values[0], atol=1e-6)


def test_a_model_turns_the_short_way_round():
    model = fitted(load_log(wheel(), columns=COLUMNS | {"angle": "theta=360"}))
    frame = pandas.DataFrame({"theta": [320.0, 40.0], "speed": [0.0, 0.0]})
    assert model.predict(frame).tolist() == ["right", "left"]
    assert model.basis.circles.places.tolist() == [[0, 1]]
    assert model.coordinates.scale[0] == model.coordinates.scale[1]
    assert model.source.recipe.described(model.reps[0])["theta"] >= 0


def test_a_short_arc_is_declared_a_circle_where_none_is_found():
    frame = wheel()
    frame["theta"] = 350 + 0.05 * frame["theta"]
    model = fitted(load_log(frame, columns=COLUMNS | {"angle": {"theta": 360}}))
    assert model.basis.circles.places.tolist() == [[0, 1]]
    np.testing.assert_allclose(model.basis.circles.shapes[0, 4], 1.0)


def test_files_merging_rules_missing_values_and_averages_know_angles(tmp_path):
    frame = wheel()
    frame.loc[frame.index % 7 == 0, "theta"] = np.nan
    columns = COLUMNS | {"angle": {"theta": 360}, "missing": "median", "allowed": {"left": "theta < 180"}}
    log = load_log(frame, columns=columns)
    for order in (0, 1):
        model = KBSF(40, order=order, discount=0.9, random_state=0).fit(log).model_
        asked = pandas.DataFrame({"theta": [90.0, 270.0, np.nan], "speed": [0.0, 0.0, 0.0]})
        assert model.predict(asked).tolist()[1:] == ["right", "right"]
        save_model(model, tmp_path / "m.kbrl")
        loaded = load_model(tmp_path / "m.kbrl")
        np.testing.assert_array_equal(loaded.q_values(asked), model.q_values(asked))
        empty = model.without_data()
        both = empty.extend(log[:500]) + empty.extend(log[500:])
        np.testing.assert_allclose(both.q_values(log.states[:50]), model.q_values(log.states[:50]), atol=1e-6)
    assert explain(model, {"theta": 90.0, "speed": 0.0}, log=log).answer in ("left", "right")


def test_the_command_takes_angles_from_toml_and_on_the_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    wheel().to_csv("wheel.csv", index=False)
    wheel(seed=1).assign(run=lambda frame: frame.run + 1000).to_csv("more.csv", index=False)
    roles = [f"--{role}={','.join(name) if isinstance(name, list) else name}" for role, name in COLUMNS.items()]
    fit = ["fit", "wheel.csv", *roles, "--reps", "30", "--order", "1", "--quiet"]
    main([*fit, "--angle", "theta=360", "-o", "line.kbrl"])
    (tmp_path / "wheel.toml").write_text("angle = { theta = 360 }\n")
    main([*fit, "--config", "wheel.toml", "-o", "toml.kbrl"])
    asked = pandas.DataFrame({"theta": [40.0], "speed": [0.0]})
    one, other = load_model("line.kbrl"), load_model("toml.kbrl")
    np.testing.assert_array_equal(one.q_values(asked), other.q_values(asked))
    main(["update", "line.kbrl", "more.csv", "--alone", "-o", "alone.kbrl", "--quiet"])
    main(["merge", "line.kbrl", "alone.kbrl", "-o", "both.kbrl"])
    assert load_model("both.kbrl").n_samples == one.n_samples + load_model("alone.kbrl").n_samples
    capsys.readouterr()
    asked.to_csv("asked.csv", index=False)
    main(["predict", "both.kbrl", "asked.csv"])
    assert "left" in capsys.readouterr().out
    write_report("line.kbrl", "wheel.csv", "page.html")
    assert "sin theta" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_an_exported_policy_knows_angles(tmp_path):
    import runpy

    model = fitted(load_log(wheel(), columns=COLUMNS | {"angle": {"theta": 360}}))
    export_policy(model, tmp_path / "policy.py")
    decide = runpy.run_path(str(tmp_path / "policy.py"))["decide"]
    asked = [{"theta": theta, "speed": 0.1} for theta in (5.0, 100.0, 355.0)]
    assert [decide(each)["action"] for each in asked] == model.predict(pandas.DataFrame(asked)).tolist()


def test_recipes_from_before_there_were_angles_are_read():
    entry = json.loads(json.dumps(Recipe((StateColumn("age"),)).to_dict()))
    for column in entry["columns"]:
        del column["period"], column["lowest"]
    assert Recipe.from_dict(entry).columns == (StateColumn("age"),)


@pytest.mark.parametrize("given", [{"theta": 0}, {"theta": -1}, {"theta": "round"}, {"theta": True}, "theta=x"])
def test_a_turn_that_is_no_number_above_0_is_refused(given):
    with pytest.raises(ValueError, match=r"angle\['theta'\] must be how much a full turn is"):
        load_log(wheel(2), columns=COLUMNS | {"angle": given})


def test_an_angle_in_words_is_refused():
    frame = wheel(4).assign(theta="north")
    with pytest.raises(ValueError, match="An angle must be a number"):
        load_log(frame, columns=COLUMNS | {"angle": ["theta"]})
