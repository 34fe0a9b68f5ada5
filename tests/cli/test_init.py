"""kbrl init: what it proposes for logs as people have them is taken by check and fit, with at most two edits."""

import json
import tomllib
import warnings
from pathlib import Path

import h5py
import numpy as np
import pandas
import pyarrow as pa
import pytest

from kbrl import load_model
from kbrl.cli import main
from kbrl.logs.log import load_log
from kbrl.proposing.guessed_roles import propose
from ward_simulator import DOSES, FIT, as_people_keep_it, clean_table, mean_return

pytestmark = pytest.mark.usefixtures("here")
TOML = Path("log.toml")


def proposed():
    return tomllib.loads(TOML.read_text(encoding="utf-8"))


def written(log):
    main(["init", str(log), "-o", "log.toml", "--force"])
    return proposed()


def through_all_commands(log, state, edits=()):
    """Run init, check, fit, predict, explain and report, after at most two edits of the TOML file."""
    assert len(edits) <= 2
    written(log)
    text = TOML.read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    TOML.write_text(text, encoding="utf-8")
    main(["check", str(log), "--config", "log.toml"])
    main(["fit", str(log), "--config", "log.toml", "-o", "model.kbrl", *FIT])
    main(["predict", "model.kbrl", str(log), "-o", "answers.csv", "-q"])
    main(["explain", "model.kbrl", "--state", state, "--log", str(log), "-q"])
    main(["report", "model.kbrl", str(log), "-o", "report.html", "-q"])
    answers = pandas.read_csv("answers.csv")
    assert answers["action"].notna().all()
    return load_model("model.kbrl"), answers


WARDS = {
    "a byte order mark": {"encoding": "utf-8-sig"},
    "latin-1": {"encoding": "latin-1"},
    "utf-16": {"encoding": "utf-16"},
    "rows in any order": {"shuffled": True},
}


@pytest.mark.parametrize("case", WARDS)
def test_a_messy_ward_is_learnt_as_well_as_the_clean_one(here, case, clean_return, capsys):
    log = as_people_keep_it(clean_table(), here / "ward.csv", **WARDS[case])
    model, _ = through_all_commands(log, "Schwere=3,Laktat=2,Geschlecht=weiblich")
    found = proposed()
    assert found["terminated"] == "outcome in ('died', 'home')"
    assert (found["episode"], found["step"], found["action"], found["reward"]) == ("Patient", "Tag", "Dosis", "Score")
    assert sorted(found["state"]) == ["Geschlecht", "Laktat", "Schwere"]
    assert found.get("encoding") == ("latin-1" if case == "latin-1" else None)
    assert found["decimal"] == ","
    assert found.get("sort", False) == (case == "rows in any order")
    told = capsys.readouterr().out
    assert "Klinik" in told
    assert "it is always Süd" in told
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reached = mean_return(lambda frame: model.predict(frame))
    best_dose = max(mean_return(lambda frame, dose=dose: [dose] * len(frame)) for dose in DOSES)
    assert clean_return > best_dose + 1.0  # there is something to learn
    assert reached >= clean_return - 0.05 * (clean_return - best_dose)


def test_a_packed_ward_is_the_same(here):
    plain, packed = (written(as_people_keep_it(clean_table(30), here / name)) for name in ("ward.csv", "ward.csv.gz"))
    assert plain == packed


def test_a_record_in_minutes_has_persons_minutes_and_doses_in_classes(here):
    rng = np.random.default_rng(3)
    minutes = rng.integers(1, 30, size=(40, 15)).cumsum(axis=1).ravel() * 5
    glucose = rng.normal(130, 40, 600).round(1)
    insulin = np.where(rng.random(600) < 0.4, 0.0, rng.gamma(2.0, 2.0, 600).round(2))
    frame = pandas.DataFrame({"subject_id": np.repeat(np.arange(40), 15), "minute": minutes, "glucose": glucose})
    frame = frame.assign(insulin=insulin, in_range=((glucose > 70) & (glucose < 180)).astype(int))
    frame.to_csv("record.csv", index=False)
    through_all_commands("record.csv", "glucose=130")
    found = proposed()
    assert (found["episode"], found["step"], found["action"]) == ("subject_id", "minute", "insulin")
    assert (found["reward"], found["state"], found["bins"]) == ("in_range", ["glucose"], {"insulin": "0+3"})
    assert "# discount_per = " in TOML.read_text(encoding="utf-8")


def test_an_excel_sheet_among_others(here):
    with pandas.ExcelWriter("ward.xlsx") as writer:
        pandas.DataFrame({"read me": ["made by hand"]}).to_excel(writer, sheet_name="notes", index=False)
        clean_table(60).to_excel(writer, sheet_name="visits", index=False)
    model, _ = through_all_commands("ward.xlsx", "Schwere=3,Laktat=2,Geschlecht=weiblich")
    assert proposed()["sheet"] == "visits"
    assert model.n_samples > 100


def test_a_file_of_d3rlpy(here):
    rng = np.random.default_rng(0)
    with h5py.File("buffer.h5", "w") as file:
        file["columns"], file["num_episodes"], file["version"] = ["observations"], 20, "2.1"
        for i in range(20):
            file[f"observations_{i}"] = rng.normal(size=(10, 2)).astype(np.float32)
            file[f"actions_{i}"], file[f"rewards_{i}"] = rng.integers(2, size=(10, 1)), rng.normal(size=(10, 1))
            file[f"terminated_{i}"] = bool(i % 2)
    model, _ = through_all_commands("buffer.h5", "0,0")
    assert model.n_samples == 190  # the last rows of the ten that were cut are left out


def test_a_replay_buffer(here):
    rng = np.random.default_rng(0)
    shapes = {"observations": (200, 1, 2), "next_observations": (200, 1, 2), "rewards": (200, 1)}
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    ends = {"dones": (rng.random((200, 1)) < 0.1).astype(np.float32), "timeouts": np.zeros((200, 1), np.float32)}
    np.savez("buffer.npz", **arrays, **ends, actions=rng.integers(2, size=(200, 1, 1)))
    model, _ = through_all_commands("buffer.npz", "0,0")
    assert model.n_samples == 200


def test_a_bandit_needs_no_episodes_and_its_policy_is_right(here):
    rng = np.random.default_rng(0)
    age, arm = rng.normal(50, 10, 800).round(1), rng.integers(2, size=800)
    clicked = rng.random(800) < np.where((arm == 0) == (age > 50), 0.8, 0.2)  # arm A is for those above 50
    table = {
        "user_id": np.arange(800) + 10_000,
        "age": age,
        "device": np.array(["ios", "web"])[rng.integers(2, size=800)],
    }
    table |= {
        "arm": np.array(["A", "B"])[arm],
        "clicked": clicked.astype(int),
        "propensity": rng.uniform(0.4, 0.6, 800),
    }
    pandas.DataFrame(table).to_csv("bandit.csv", index=False)
    model, _ = through_all_commands("bandit.csv", "age=60,device=web")
    found = proposed()
    assert (found["one-step"], found["action"], found["reward"]) == (True, "arm", "clicked")
    assert sorted(found["state"]) == ["age", "device"]
    assert found["action_prob"] == "propensity"
    asked = pandas.DataFrame({"age": [35.0, 40.0, 60.0, 65.0], "device": ["ios", "web", "ios", "web"]})
    assert list(model.predict(asked)) == ["B", "B", "A", "A"]


def test_vectors_as_actions_are_split_and_put_into_classes():
    rng = np.random.default_rng(0)
    lists = {"observation.state": rng.normal(size=(200, 3)), "action": rng.normal(size=(200, 2))}
    table = pa.table({name: pa.FixedSizeListArray.from_arrays(v.ravel(), v.shape[1]) for name, v in lists.items()})
    table = table.append_column("episode_index", pa.array(np.arange(200) // 20))
    found = propose(table.append_column("next.reward", pa.array(rng.normal(size=200)))).stated
    assert found["split"] == ["action"]
    assert found["action"] == ["action_0", "action_1"]
    assert found["bins"] == {"action_0": 3, "action_1": 3}


def small(**changes):
    rng = np.random.default_rng(0)
    n = 60
    columns = {
        "patient_id": np.repeat(np.arange(12), 5),
        "visit": np.tile(np.arange(5), 12),
        "sofa": rng.normal(size=n),
        "treatment": np.array(["a", "b"])[rng.integers(2, size=n)],
        "score": rng.normal(size=n),
        "died": np.tile([0, 0, 0, 0, 1], 12),
    }
    return {name: column for name, column in (columns | changes).items() if column is not None}


PROPOSALS = {
    "the plain case": (small(), {"episode": "patient_id", "step": "visit", "action": "treatment"}),
    "a flag of ends": (small(), {"terminated": "died", "reward": "score", "state": ["sofa"]}),
    "names in capitals": ({name.upper(): c for name, c in small().items()}, {"episode": "PATIENT_ID"}),
    "names in camels": (small(patient_id=None, patientId=np.repeat(np.arange(12), 5)), {"episode": "patientId"}),
    "an identifier of rows": (small(row_id=np.arange(60) + 1000), {"state": ["sofa"]}),
    "a note": (small(note=[f"text {k}" for k in range(60)]), {"state": ["sofa"]}),
    "a constant": (small(site=np.ones(60)), {"state": ["sofa"]}),
    "a cost": (small(score=None, cost=np.arange(60.0)), {"minimize": "cost"}),
    "canonical names": ({"episode_id": [0, 0, 1, 1], "observation_x": [1.0, 2.0, 3.0, 4.0], "action": [0, 1, 0, 1],
                         "reward": [0.0, 1.0, 0.0, 2.0]}, {"state": ["observation_x"], "action": "action"}),
    "next states": (small(next_sofa=np.arange(60.0)), {"state": ["sofa"], "next_state": ["next_sofa"]}),
    "a bandit": (small(patient_id=None, visit=None, died=None), {"one-step": True, "action": "treatment"}),
}  # fmt: skip


@pytest.mark.parametrize("case", PROPOSALS)
def test_roles_are_proposed_by_names_and_values(case):
    table, expected = PROPOSALS[case]
    found = propose(table, options=("minimize", "one-step", "missing")).stated
    assert {name: found.get(name) for name in expected} == expected


def test_a_reward_comes_after_the_action_and_was_not_known_before():
    """A tutor's table: what the student had last time is a state; good ends and harms stand in for a reward."""
    rng, n = np.random.default_rng(0), 40
    days, ends = np.tile(np.arange(5), n), np.tile([""] * 4 + ["x"], n)
    table = {"student": np.repeat(np.arange(n), 5).tolist(), "day": days.tolist()}
    table |= {"last score": rng.integers(0, 90, 5 * n).tolist(), "tired": rng.normal(size=5 * n).tolist()}
    table["exercise"] = rng.choice(["easy", "hard"], 5 * n).tolist()
    result = np.where(ends == "", "", rng.choice(["passed", "quit", "moved"], 5 * n)).tolist()
    found = propose(table | {"result": result}, options=["minimize"]).stated
    assert found["reward"] == "(result == 'passed') - (result == 'quit')"
    assert found["state"] == ["last score", "tired"]
    points = rng.normal(size=5 * n).tolist()
    found = propose({"points": points} | table | {"gain": points, "result": result}).stated
    assert found["reward"] == "gain"
    assert "points" in found["state"]


def test_a_column_with_words_on_last_rows_only_says_how_episodes_ended():
    """Nothing in its name says so, but it is empty elsewhere; good and bad ends make the reward."""
    rng, n = np.random.default_rng(0), 40
    table = {"MRN": np.repeat(np.arange(n), 4).tolist(), "hour": np.tile(np.arange(4), n).tolist()}
    table |= {"sofa": rng.normal(size=4 * n).tolist(), "drug": rng.choice(["a", "b"], 4 * n).tolist()}
    ends = rng.choice(["Died", "Discharged home", "Other hospital"], 4 * n)
    table["Disposition"] = np.where(np.tile([0, 0, 0, 1], n) == 1, ends, "").tolist()
    found = propose(table, options=["minimize"]).stated
    assert found["terminated"] == "Disposition in ('Died', 'Discharged home', 'Other hospital')"
    assert found["reward"] == "- (Disposition == 'Died') + (Disposition == 'Discharged home')"
    assert found["state"] == ["sofa"]
    assert load_log(table, columns=found).terminals.sum() == n


@pytest.mark.parametrize(("name", "words"), [("recovered", ("ja", "nein")), ("cured", (1, 0)), ("Failed?", ("Y", "N"))])
def test_a_reward_of_yes_and_no_is_read_as_1_and_0(name, words):
    rng, n = np.random.default_rng(0), 40
    is_end = (np.tile([0, 0, 0, 1], n) == 1) & (rng.random(4 * n) < 0.7)
    table = {"case": np.repeat(np.arange(n), 4).tolist(), "visit": np.tile(np.arange(4), n).tolist()}
    table |= {"bp": rng.normal(size=4 * n).tolist(), "therapy": rng.choice(["a", "b"], 4 * n).tolist()}
    table[name] = [words[0] if ended else words[1] for ended in is_end]
    log = load_log(table, columns=propose(table, options=["minimize"]).stated)
    assert log.rewards.tolist() == ((-1 if name == "Failed?" else 1) * log.terminals).tolist()
    assert log.terminals.sum() == is_end.sum()


def cases(n=60, length=6):
    """Return a table of cases by day, to be spoilt."""
    rng, rows = np.random.default_rng(2), n * length
    table = {"case": np.repeat(range(n), length), "day": np.tile(range(1, length + 1), n)}
    table |= {"x": rng.normal(50, 10, rows).round(1), "act": rng.choice(["go", "stop"], rows)}
    return pandas.DataFrame(table | {"gain": rng.normal(0, 1, rows).round(2)})


def spoilt(kind, path="log.csv"):
    table = cases()
    if kind == "a column that numbers the rows":
        table.to_csv(path)
    elif kind == "rows in any order":
        table.sample(frac=1.0, random_state=0).to_csv(path, index=False)
    elif kind == "percent and prices":
        prices = [f"€ {value:.2f}".replace(".", ",") for value in table.gain]
        table.assign(x=[f"{x:.1f} %".replace(".", ",") for x in table.x], gain=prices).to_csv(
            path, sep=";", index=False
        )
    elif kind == "apostrophes":
        table.assign(x=[f"{1000 * x:,.0f}".replace(",", "'") for x in table.x]).to_csv(path, index=False)
    elif kind == "empty columns":
        lines = [f"{line},," for line in table.to_csv(index=False).splitlines()]
        Path(path).write_text("\r\n".join(["Export 2024", "Confidential", "", *lines]), newline="")
    return table


SPOILT = ["a column that numbers the rows", "rows in any order", "percent and prices", "apostrophes", "empty columns"]


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.filterwarnings("ignore::kbrl.checks.KbrlWarning")
def test_a_spoilt_table_gives_the_transitions_of_the_clean_one(kind):
    clean = load_log(spoilt(kind), columns={"state": "x", "action": "act", "reward": "gain", "episode": "case"})
    found = load_log("log.csv", columns={k.replace("-", "_"): v for k, v in written("log.csv").items()})
    unit = 1000 if kind == "apostrophes" else 1
    assert found.state_names == ("x",)
    rows = [np.column_stack([log.states, log.rewards, log.next_states]) for log in (found, clean)]
    rows = [table[np.lexsort(table.T)] for table in rows]  # episodes may come in another order
    np.testing.assert_allclose(rows[0], rows[1] * [unit, 1, unit], rtol=1e-12)
    main(["fit", "log.csv", "--config", "log.toml", "-o", "model.kbrl", *FIT])
    assert load_model("model.kbrl").n_samples == len(clean)


def test_a_reward_on_last_rows_only_is_0_elsewhere_and_ends_the_episode():
    table = cases()
    table["gain"] = table.gain.where(table.day == 6)
    table.to_csv("log.csv", index=False)
    log = load_log("log.csv", columns=written("log.csv"))
    assert log.terminals.sum() == 60
    assert log.rewards[log.terminals].tolist() == table.gain.dropna().tolist()
    assert not log.rewards[~log.terminals].any()


def test_a_limit_of_a_measurement_is_asked_about(capsys):
    table = cases()
    table.assign(x=["<5" if x < 35 else str(x) for x in table.x]).to_csv("log.csv", index=False)
    assert written("log.csv")["na"] == {"x": ["<5"]}
    assert "'<5' in 'x' should be missing" in capsys.readouterr().out


def test_what_is_unsure_is_said_and_stands_in_the_file(capsys):
    pandas.DataFrame(small(treatment=None, site=list("xyz") * 20)).to_csv("log.csv", index=False)
    main(["init", "log.csv"])
    told = capsys.readouterr().out
    assert "Unsure: whether 'site' is the action: only its few different values suggest it." in told
    assert "whether 'site' is the action" in TOML.read_text(encoding="utf-8")


def test_what_the_user_states_counts(capsys):
    pandas.DataFrame(small(arm=list("xyz") * 20)).to_csv("log.csv", index=False)
    main(["init", "log.csv", "--action", "arm", "--reward", "sofa"])
    found = proposed()
    assert (found["action"], found["reward"]) == ("arm", "sofa")
    assert "arm" not in found["state"]


def test_a_file_that_exists_is_not_written_over(capsys):
    pandas.DataFrame(small()).to_csv("log.csv", index=False)
    main(["init", "log.csv"])
    with pytest.raises(SystemExit):
        main(["init", "log.csv"])
    assert "log.toml exists. Name another file: -o NEW.toml, or overwrite it: --force." in capsys.readouterr().err
    main(["init", "log.csv", "--force"])


def test_names_that_need_quotes_come_back_from_the_file():
    table = {
        'a "b"': small()["sofa"],
        "x, y": small()["score"],
        "drug": small()["treatment"],
        "patient": np.arange(60) // 5,
    }
    pandas.DataFrame(table).to_csv("log.csv", index=False)
    found = written("log.csv")
    assert json.dumps(sorted(found["state"] + [found["reward"]])) == json.dumps(sorted(['a "b"', "x, y"]))


@pytest.mark.parametrize(("name", "words"), [("nothing.csv", "There is no file"), ("log.xls", "unknown ending")])
def test_what_cannot_be_read_is_refused(name, words, capsys):
    if name == "log.xls":
        Path(name).write_text("x")
    with pytest.raises(SystemExit):
        main(["init", name])
    assert words in capsys.readouterr().err


def test_bars_between_cells_and_commas_between_thousands(here):
    rng = np.random.default_rng(0)
    table = {"Session ID": np.repeat(np.arange(20), 10), "round": np.tile(np.arange(10), 20)}
    table |= {
        "Offer": rng.choice(["none", "5%", "10%"], 200),
        "Budget": [f"{x:,.2f}" for x in rng.uniform(500, 9e3, 200)],
    }
    table["Revenue"] = [f"{x:,.2f}" for x in rng.uniform(0, 3000, 200)]
    pandas.DataFrame(table).to_csv("shop.csv", sep="|", index=False)
    found = written("shop.csv")
    assert (found["delimiter"], found["thousands"], found["reward"], found["state"]) == (
        "|",
        ",",
        "Revenue",
        ["Budget"],
    )
    main(["check", "shop.csv", "--config", "log.toml"])
    log = load_log("shop.csv", columns={k: v for k, v in found.items() if k != "stride"})
    np.testing.assert_allclose(log.states[:9, 0], [float(text.replace(",", "")) for text in table["Budget"][:9]])
