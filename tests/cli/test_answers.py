"""predict and explain, as a person at a terminal meets them."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pyarrow.parquet as parquet
import pytest

import kbrl.cli.asking as answers
from kbrl import KBSF, Solver, Transitions, load_model, save_model
from kbrl.cli import main
from kbrl.insight.coverage import coverage
from kbrl.logs.log import open_log
from kbrl.logs.writing import write_log
from samples import random_log

NAMES = ("age", "dose")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log, a dense model of it and a sparse one; a third action was never tried."""
    folder = tmp_path_factory.mktemp("answers")
    log = random_log(60, n_actions=2)
    labels = np.array(["no", "yes", "never"])
    log = Transitions(log.states, labels[log.actions], log.rewards, log.next_states, log.terminals)
    write_log(log, folder / "log.csv", names=NAMES)
    opened = open_log(folder / "log.csv", actions=labels)
    for name, options in {"dense": {}, "sparse": {"sample_neighbors": 3, "rep_neighbors": 2}}.items():
        model = KBSF(n_reps=8, random_state=0, sample_width=0.5, solver=Solver(tolerance=1e-12), **options).fit(
            opened.chunks()
        )
        save_model(model, folder / f"{name}.kbrl", columns=opened.columns.to_dict())
    return SimpleNamespace(path=folder, model=load_model(folder / "dense.kbrl"), log=log)


@pytest.fixture
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    return folder


def fails(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert out == ""
    return stop.value.code, err


def expected(model, states):
    """The answers, row by row, from the library."""
    q, covered = model.q_values(states), coverage(model, states)
    best = q.argmax(axis=1)
    for row in range(len(states)):
        facts = {"row": row, "action": model.action_labels[best[row]], "value": q[row].max()}
        facts |= {f"q_{label}": q[row, k] for k, label in enumerate(model.action_labels)}
        facts |= {"distance": covered.distances[row], "support": covered.support[row, best[row]]}
        yield facts | {"log_mass": covered.log_mass[row, best[row]], "reason": ""}


def test_every_row_gets_its_answer_as_text_as_json_and_in_files(in_folder, capsys):
    model, states = in_folder.model, in_folder.log.states
    right = [{k: str(v) for k, v in row.items()} for row in expected(model, states)]
    main(["predict", "dense.kbrl", "log.csv", "--digits", "17"])
    out, err = capsys.readouterr()
    assert list(csv.DictReader(out.splitlines())) == right
    main(["predict", "dense.kbrl", "log.csv"])  # to six digits
    for found, row in zip(csv.DictReader(capsys.readouterr().out.splitlines()), right, strict=True):
        assert float(found["value"]) == pytest.approx(float(row["value"]), rel=1e-5)
        assert len(found["value"].lstrip("-").replace(".", "").lstrip("0").split("e")[0]) <= 6
    assert err == ""
    main(["predict", "dense.kbrl", "log.csv", "--json"])
    for line, row in zip(capsys.readouterr().out.splitlines(), right, strict=True):
        found = json.loads(line)
        assert found.pop("q_never") is None
        assert {k: str(v) for k, v in found.items()} == {k: v for k, v in row.items() if k != "q_never"}
    for suffix in (".csv", ".parquet", ".npz"):
        main(["predict", "dense.kbrl", "log.csv", "-o", f"answers{suffix}", "--digits", "17"])
        assert capsys.readouterr().out == f"answers{suffix}: 60 answers.\n"
    with open("answers.csv", newline="") as file:
        assert list(csv.DictReader(file)) == right
    assert [{k: str(v) for k, v in row.items()} for row in parquet.read_table("answers.parquet").to_pylist()] == right
    with np.load("answers.npz") as file:
        np.testing.assert_array_equal(file["q_yes"], [float(row["q_yes"]) for row in right])


@pytest.mark.parametrize("names", ["observation_age,observation_dose", "dose,age", "word,obs_dose,obs_age"])
def test_a_table_of_states_alone_will_do_whatever_the_dialect_and_order(in_folder, names, capsys):
    values = {"age": "0.25", "dose": "0.5", "word": "x"}
    cells = [values[name.split("_")[-1]] for name in names.split(",")]
    (in_folder.path / "states.csv").write_text(f"{names}\n{','.join(cells)}\n")
    main(["predict", "dense.kbrl", "states.csv"])
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert float(row["value"]) == pytest.approx(in_folder.model.values([[0.25, 0.5]])[0], rel=1e-5)


def test_columns_of_other_names_can_be_named(in_folder, capsys):
    (in_folder.path / "other.csv").write_text("b,a\n0.5,0.25\n")
    main(["predict", "dense.kbrl", "other.csv", "--state", "a,b"])
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert float(row["value"]) == pytest.approx(in_folder.model.values([[0.25, 0.5]])[0], rel=1e-5)
    status, err = fails(capsys, "predict", "dense.kbrl", "other.csv")
    assert status == 1
    assert "fitted to the state in 'observation_age', 'observation_dose', but the columns are 'b', 'a'" in err
    assert "--state a,b" in err


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_a_row_that_cannot_be_answered_is_empty_and_says_why_and_the_others_have_their_answers(
    in_folder, suffix, capsys
):
    (in_folder.path / "bad.csv").write_text("patient,age,dose\np7,0.25,0.5\np8,1,\np9,x,2\n")
    main(["predict", "dense.kbrl", "bad.csv", "--keep", "patient", "-o", f"bad_answers{suffix}"])
    out, err = capsys.readouterr()
    assert out == f"bad_answers{suffix}: 3 answers.\n"
    assert err == "2 of 3 rows have no answer; the column reason says why.\n"
    frame = read_answers(f"bad_answers{suffix}")
    assert frame["patient"].tolist() == ["p7", "p8", "p9"]
    assert frame["action"].isna().tolist() == [False, True, True]
    assert frame["value"].isna().tolist() == [False, True, True]
    assert frame["value"][0] == pytest.approx(in_folder.model.values([[0.25, 0.5]])[0], rel=1e-5)
    missing = "dose is missing, which it never was in the log of the model"
    assert frame["reason"].fillna("").tolist() == ["", missing, "age is 'x', which is not a number"]


def read_answers(path):
    if path.endswith(".npz"):
        with np.load(path) as file:
            return pandas.DataFrame({name: file[name] for name in file.files}).replace("", np.nan)
    return pandas.read_csv(path) if path.endswith(".csv") else pandas.read_parquet(path).replace("", np.nan)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["predict", "no.kbrl", "log.csv"], 2, "File 'no.kbrl' does not exist"),
        (["predict", "log.csv", "log.csv"], 1, "log.csv cannot be loaded"),
        (["predict", "dense.kbrl", "no.csv"], 1, "There is no file no.csv"),
        (["predict", "dense.kbrl", "log.csv", "-o", "x.txt"], 2, "written as .csv, .parquet, .arrow or .npz"),
        (["predict", "dense.kbrl", "log.csv", "-o", "no/x.csv"], 1, "There is no folder no."),
        (["predict", "dense.kbrl", "log.csv", "-o", "x.csv", "--json"], 2, "cannot be used with --output"),
        (["predict", "dense.kbrl", "log.csv", "--state", "reward"], 1, "states must have 2 columns"),
        (["explain", "dense.kbrl"], 2, "Missing option '--state'"),
        (["explain", "dense.kbrl", "--state", "1"], 2, "1 values for 2 state variables: age, dose"),
        (
            ["explain", "dense.kbrl", "--state", "1,two"],
            2,
            "dose must be a number of at most 1e+100 in size, but it is 'two'",
        ),
        (["explain", "dense.kbrl", "--state", "age=1"], 2, "There is no value for dose"),
        (["explain", "dense.kbrl", "--state", "age=1,age=2"], 2, "once for each of age, dose"),
        (["explain", "dense.kbrl", "--state", "age=1,sofa=2"], 2, "'sofa=2' must be NAME=VALUE"),
        (["explain", "dense.kbrl", "--state", "1,2"], 1, "has kept no cases"),
        (["explain", "dense.kbrl", "--state", "1,2", "--log", "no.csv"], 1, "There is no file no.csv"),
    ],
)
def test_what_cannot_be_answered_is_said(in_folder, arguments, status, words, capsys):
    found, err = fails(capsys, *arguments)
    assert found == status
    assert words in err


def test_stopping_halfway_leaves_no_file(in_folder, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(answers, "_answers", stop)
    before = sorted(in_folder.path.iterdir())
    status, err = fails(capsys, "predict", "dense.kbrl", "log.csv", "-o", "stopped.csv")
    assert status == 130
    assert err.strip() == "Stopped."
    assert sorted(in_folder.path.iterdir()) == before


def test_answers_can_be_piped_to_one_who_stops_reading(in_folder):
    many = "age,dose\n" + "0.1,0.2\n" * 5000
    (in_folder.path / "many.csv").write_text(many)
    code = "from kbrl.cli import main; main(['predict', 'dense.kbrl', 'many.csv'])"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("row,action,value")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait()


@pytest.mark.parametrize("state", ["0.3,0.7", "age=0.3,dose=0.7", "dose=0.7, observation_age=0.3"])
def test_an_explanation_for_a_program_makes_up_the_value(in_folder, state, capsys):
    main(["explain", "dense.kbrl", "--state", state, "--log", "log.csv", "--cases", "4", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["variables"] == ["age", "dose"]
    assert facts["state"] == [0.3, 0.7]
    q = dict(zip(in_folder.model.action_labels.tolist(), in_folder.model.q_values([[0.3, 0.7]])[0]))
    assert [action["action"] for action in facts["actions"]] == sorted(q, key=q.get, reverse=True)
    for action in facts["actions"][:2]:
        made = sum(case["weight"] * case["worth"] for case in action["cases"])
        assert made + action["rest_weight"] * action["rest_worth"] == pytest.approx(q[action["action"]], abs=1e-9)
        assert sum(case["weight"] for case in action["cases"]) + action["rest_weight"] == pytest.approx(1, abs=1e-9)
        for case in action["cases"]:
            assert case["state"] == in_folder.log.states[case["row"]].tolist()
    assert facts["actions"][2]["value"] is None


def test_an_explanation_by_lines_names_the_plan_and_does_not_call_the_average_the_value(in_folder, capsys):
    asked = ["--order", "1", "--plan-decisions", "2", "--plan-hold", "1", "--reps", "5"]
    main(["fit", "log.csv", "-o", "lines.kbrl", "-q", *asked])
    capsys.readouterr()
    main(["explain", "lines.kbrl", "--state", "0.3,0.7", "--log", "log.csv"])
    out = " ".join(capsys.readouterr().out.split())
    model = load_model("lines.kbrl")
    best = model.q_values([[0.3, 0.7]])[0].max()
    assert "which gives" not in out
    assert f"Lines through these cases give {best:.6g}, for the plan {model.predict([[0.3, 0.7]])[0]}, " in out


def test_an_explanation_for_a_person_shows_rows_weights_and_what_they_make(in_folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")  # as wide as without a terminal
    main(["explain", "dense.kbrl", "--state", "0.3,0.7", "--log", "log.csv", "--cases", "3"])
    out, err = capsys.readouterr()
    assert err == ""
    q = dict(zip(in_folder.model.action_labels.tolist(), in_folder.model.q_values([[0.3, 0.7]])[0]))
    best, second = sorted(("no", "yes"), key=q.get, reverse=True)
    assert "State age = 0.3, dose = 0.7" in out
    assert f"1. {best}: value {q[best]:.6g}" in out
    assert f"2. {second}: value {q[second]:.6g}" in out
    assert f"of all: 1, which gives {q[best]:.6g}." in out
    assert "3. never: not available" in out
    _, head, first, *_ = out.split(f"1. {best}")[1].splitlines()
    assert head.startswith("row (from 0)")
    state = in_folder.log.states[int(first.split()[0])]
    assert f"{state[0]:.4g}, {state[1]:.4g}" in first


def test_a_sparse_model_explains_itself_and_its_log_adds_the_rows(in_folder, capsys):
    found = []
    for more in ([], ["--log", "log.csv"]):
        main(["explain", "sparse.kbrl", "--state", "0.3,0.7", "--cases", "50", "--json", *more])
        found.append(json.loads(capsys.readouterr().out))
    own, with_log = found
    assert (own["source"], with_log["source"]) == ("outcomes", "log")
    for one, other in zip(own["actions"], with_log["actions"]):
        assert [c["weight"] for c in one["cases"]] == pytest.approx([c["weight"] for c in other["cases"]])
        assert all(c["row"] is None for c in one["cases"])
        assert all(c["row"] is not None for c in other["cases"])


@pytest.mark.filterwarnings("default")
def test_support_is_told_as_a_number_of_logged_cases(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    states = [[0.0]] * 12 + [[1.0]] * 4
    log = Transitions(states, ["a"] * 11 + ["b"] + ["a"] * 4, [1.0] * 16, states, action_labels=["a", "b"])
    save_model(KBSF(reps=[[0.0], [1.0]], rep_width=1e-3, min_cases=1).fit(log), "model.kbrl")
    write_log(log, "log.csv", names=["x"])
    told = {}
    for x in ("0", "1", "90"):
        main(["explain", "model.kbrl", "--state", x, "--log", "log.csv"])
        told[x] = [line for line in capsys.readouterr().out.splitlines() if ": value" in line]
    assert [line.partition(", ")[2] for line in sorted(told["0"], key=lambda line: line[3])] == [
        "rests on about 11 logged cases",
        "rests on about 1 logged case",
    ]
    assert sorted(line.partition(", ")[2] for line in told["1"]) == [
        "no logged cases around this state",
        "rests on about 4 logged cases",
    ]
    assert all(line.endswith("no logged cases around this state") for line in told["90"])


def test_support_that_a_file_does_not_tell_is_said_to_be_unknown(in_folder, capsys):
    path, log = Path(__file__).parent.parent / "format_1" / "sums.kbrl", in_folder.path / "visits.csv"
    log.write_text("age,pressure,drug,score,discharged\n0.1,0.2,none,1,1\n0.2,0.3,none,0,1\n")
    main(["explain", str(path), "--state", "0.2,0.3", "--log", str(log)])
    assert "support not known: this model's file does not say how many cases there were" in capsys.readouterr().out


def test_another_log_is_warned_of_on_standard_error(in_folder, capsys):
    write_log(in_folder.log[:30], in_folder.path / "half.csv", names=NAMES)
    main(["explain", "dense.kbrl", "--state", "0.3,0.7", "--log", "half.csv"])
    assert "Warning: The cases do not make up the value" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_the_help_says_from_where_rows_are_counted(command, capsys):
    main([command, "--help"])
    assert "counted from 0 over the whole log, without headers" in " ".join(
        capsys.readouterr().out.replace("LOG", "log").split()
    )


@pytest.mark.parametrize("command", ["predict", "explain", "evaluate", "collect"])
def test_every_command_has_help_with_an_example(command, capsys):
    main([command, "--help"])
    assert f"Example: kbrl {command}" in capsys.readouterr().out
