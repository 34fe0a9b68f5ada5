"""kbrl fit, update and merge, as a person and as a program meet them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kbrl import Transitions
from kbrl.cli import main
from kbrl.logs.writing import write_log
from kbrl.settings import flattened
from kbrl.storage.model_file import load_model, read_model
from kbrl.tasks import PuddleWorld

N_ROWS = 600
SPARSE = ("--sample-neighbors", "5", "--rep-neighbors", "3")


@pytest.fixture(scope="module")
def log():
    task = PuddleWorld()
    log = task.collect(N_ROWS, random_state=0, max_steps=30)
    return log.replaced(action_labels=np.array(task.actions))


@pytest.fixture
def folder(tmp_path, log, monkeypatch):
    """A folder to work in, with log.csv."""
    write_log(log, tmp_path / "log.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    main([str(argument) for argument in arguments])


def told(capsys, *arguments):
    """Run a command with --json and return what it says."""
    run(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments):
    """Run a command that fails; return its exit status and its message."""
    with pytest.raises(SystemExit) as stop:
        run(*arguments)
    captured = capsys.readouterr()
    assert captured.out == ""
    return stop.value.code, captured.err


def arrays(path):
    """Return all that a model has learnt."""
    model = load_model(path)
    names = ("distances", "rewards", "next_states", "terminals", "multiplicities", "weight", "nearest", "reward_sum")
    found = {name: getattr(model.sums, name) for name in names if hasattr(model.sums, name)}
    found |= {"counts": model.sums.counts, "reps": model.reps, "scale": model.coordinates.scale, "q": model.solution.q}
    stacked = model.mdp.stacked
    return found | {"mdp": stacked if isinstance(stacked, np.ndarray) else stacked.toarray()}


# What fit does.


def test_a_log_with_canonical_names_needs_no_option_and_the_summary_says_what_was_done(folder, capsys):
    run("fit", "log.csv", "-o", "model.kbrl", "--order", 0)
    out, err = capsys.readouterr()
    for words in ("600 transitions of 600 rows in", "episodes", "0.99 (--discount)", "--reps", "smaller than its data",
                  "--sample-width", "--rep-width", "chosen by the errors of", "looking through the log", "model.kbrl",
                  "down (", "observation_0, observation_1"):  # fmt: skip
        assert words in out
    assert err == ""
    saved = read_model("model.kbrl")
    assert saved.model.n_samples == N_ROWS
    assert saved.columns["state"] == ["observation_0", "observation_1"]
    assert set(saved.model.predict([[0.5, 0.5]])) <= {"up", "down", "left", "right"}
    assert sorted(os.listdir()) == ["log.csv", "model.kbrl"]


def test_without_options_candidates_rehearse_and_the_summary_says_how_each_did(folder, capsys):
    run("fit", "log.csv", "-o", "model.kbrl")
    out = capsys.readouterr().out
    for words in ("(--order): ", "chosen by rehearsal", "lines, plans of 3 x 4: ", "averages: ", ", chosen",
                  "logged decisions", "(--reps): "):  # fmt: skip
        assert words in out, words
    facts = told(capsys, "fit", "log.csv", "-o", "model.kbrl")
    assert facts["order"] == load_model("model.kbrl").settings.order
    best = max(facts["rehearsed"], key=lambda each: each["mean"])
    assert len(facts["rehearsed"]) >= 6
    assert facts["now"] < best["mean"]


def test_variables_that_do_not_matter_are_named_and_asking_for_a_scaling_keeps_them(folder, capsys):
    rng = np.random.default_rng(0)
    x, noise, push = rng.normal(size=2000), rng.normal(size=2001), rng.integers(2, size=2000)
    after = 0.7 * x + 0.5 * push + 0.1 * rng.normal(size=2000)
    states, next_states = np.column_stack([x, noise[:-1]]), np.column_stack([after, noise[1:]])
    log = Transitions(states, push, -np.square(x), next_states, episodes=np.arange(2000) // 20)
    write_log(log, "noisy.csv")
    run("fit", "noisy.csv", "-o", "model.kbrl")
    assert "observation_1: not needed to predict rewards" in capsys.readouterr().out
    facts = told(capsys, "fit", "noisy.csv", "-o", "model.kbrl")
    assert facts["variables_ignored"] == ["observation_1"]
    model = load_model("model.kbrl")
    np.testing.assert_allclose(model.q_values([[0.3, 5.0]]), model.q_values([[0.3, -5.0]]), rtol=1e-6)
    assert told(capsys, "fit", "noisy.csv", "-o", "plain.kbrl", "--scaling", "std")["variables_ignored"] == []
    assert load_model("plain.kbrl").coordinates.scale.max() < 10


def test_lines_are_the_same_within_rounding_from_any_files_in_any_order(forms, capsys):
    states = np.random.default_rng(0).uniform(size=(50, 2))
    found = {}
    for name, paths in forms.items():
        run("fit", *paths, "-o", "model.kbrl", "--chunk-rows", 64, "--order", 1)
        found[name] = load_model("model.kbrl").q_values(states)
    for name, q in found.items():
        np.testing.assert_allclose(q, found["csv"], rtol=1e-9, atol=1e-9, err_msg=name)


def test_json_says_the_same_to_programs(folder, capsys, log):
    facts = told(capsys, "fit", "log.csv", "-o", "model.kbrl", "--order", 0)
    model = load_model("model.kbrl")
    counts = dict(zip(*(array.tolist() for array in np.unique(log.actions, return_counts=True))))
    assert {entry["action"]: entry["count"] for entry in facts["actions"]} == counts
    assert (facts["rows"], facts["transitions"], facts["discount"]) == (N_ROWS, N_ROWS, 0.99)
    assert facts["episodes"] == len(set(log.episodes.tolist()))
    assert facts["reps"] == len(model.reps) == 60  # one per 10 rows
    assert (facts["sample_width"], facts["rep_width"]) == (model.settings.sample_width, model.settings.rep_width)
    assert {trial["sample_width"] for trial in facts["widths_tried"]} >= {model.settings.sample_width, None}
    assert facts["model"] == "model.kbrl"


def test_every_setting_reaches_the_model(folder):
    run("fit", "log.csv", "-o", "model.kbrl", "-m", 12, "--choose-reps", "farthest", "--sample-width", 0.2,
        "--rep-width", 0.3, "--discount", 0.9, "--scaling", "none", "--profile", "gaussian", "--terminals", "continue",
        "--solver", "policy iteration", "--tolerance", 1e-6, "--seed", 3, "--jobs", 1, "--grow-distance", 0.4,
        "--max-reps", 40, *SPARSE)  # fmt: skip
    model = load_model("model.kbrl")
    wanted = {"n_reps": 12, "reps": "farthest", "sample_width": 0.2, "rep_width": 0.3, "discount": 0.9}
    wanted |= {"scaling": None, "profile": "gaussian", "terminals": "continue", "solver": "policy iteration"}
    wanted |= {"tolerance": 1e-6, "random_state": 3, "n_jobs": 1, "grow_distance": 0.4, "max_reps": 40}
    wanted |= {"sample_neighbors": 5, "rep_neighbors": 3}
    assert {name: value for name, value in flattened(model.settings).items() if name in wanted} == wanted


def test_columns_with_other_names_and_actions_never_taken(folder, capsys):
    (folder / "mine.csv").write_text("id,age,dose,gain\n1,30,0,1.0\n1,31,2,2.0\n1,32,0,0.5\n2,40,2,1.0\n2,41,0,1.0\n")
    facts = told(capsys, "fit", "mine.csv", "--state", "age", "--action", "dose", "--reward", "gain", "--episode", "id",
                 "--actions", "0,1,2", "--min-cases", "1", "-o", "m.kbrl")  # fmt: skip
    assert [entry["action"] for entry in facts["actions"]] == [0, 1, 2]
    assert [entry["count"] for entry in facts["actions"]] == [1, 0, 2]
    assert facts["columns"]["reward"] == "gain"
    assert load_model("m.kbrl").predict([[30.0]])[0] in (0, 2)


def test_a_log_with_one_action_can_be_learnt_from(folder, capsys):
    (folder / "one.csv").write_text(
        "episode_id,observation_x,action,reward\n" + "".join(f"0,{i},go,1\n" for i in range(9))
    )
    assert told(capsys, "fit", "one.csv", "-o", "m.kbrl")["actions"] == [{"action": "go", "count": 8}]


def test_budgets_limit_the_number_of_states(folder, capsys):
    small = told(capsys, "fit", "log.csv", "-o", "m.kbrl", "--megabytes", 0.05, "--order", 0)
    assert small["reps"] == 19  # 32 * 4 * 19^2 bytes are 0.046 MB
    assert "0.05 MB" in small["reps_reason"]
    timed = told(capsys, "fit", "log.csv", "-o", "m.kbrl", "--seconds", 1000)
    assert timed["reps"] == 60  # one per 10 rows


def test_the_bellman_criterion_and_covers_can_be_asked_for(folder, capsys):
    facts = told(capsys, "fit", "log.csv", "-o", "m.kbrl", "--criterion", "bellman", "-m", 15, "--jobs", 1)
    assert facts["widths_criterion"] == "bellman"
    cover = told(capsys, "fit", "log.csv", "-o", "m.kbrl", "--choose-reps", "cover", "--cover-distance", 0.8)
    assert cover["reps_reason"] is None
    assert cover["reps"] > 3


# The same model from the same data.


@pytest.fixture
def forms(folder, log):
    """The same rows as one CSV file, one Parquet file, and ten files of each in another order."""
    write_log(log, folder / "log.parquet")
    order = np.random.default_rng(1).permutation(10)
    for ending in ("csv", "parquet"):
        for place, part in enumerate(order):
            rows = slice(part * N_ROWS // 10, (part + 1) * N_ROWS // 10)
            write_log(log[rows], folder / f"part-{place}.{ending}")
    parts = {ending: [f"part-{place}.{ending}" for place in range(10)] for ending in ("csv", "parquet")}
    return {"csv": ["log.csv"], "parquet": ["log.parquet"], "ten csv": parts["csv"], "ten parquet": parts["parquet"]}


def test_an_exact_sparse_model_is_the_same_bytes_from_any_files_in_any_order(forms, capsys):
    files = {}
    for name, paths in forms.items():
        run("fit", *paths, "-o", "model.kbrl", *SPARSE, "--chunk-rows", 64)
        files[name] = (arrays("model.kbrl"), Path("model.kbrl").read_bytes())
    first, first_bytes = files["csv"]
    for name, (found, found_bytes) in files.items():
        for field in first:
            np.testing.assert_array_equal(found[field], first[field], err_msg=f"{name}: {field}")
        assert found_bytes == first_bytes, name


def test_a_dense_model_is_the_same_within_rounding_from_any_files_in_any_order(forms, capsys):
    files = {}
    for name, paths in forms.items():
        run("fit", *paths, "-o", "model.kbrl", "--chunk-rows", 64, "--order", 0)
        files[name] = arrays("model.kbrl")
    for name, found in files.items():
        for field in ("reps", "scale", "counts", "nearest"):
            np.testing.assert_array_equal(found[field], files["csv"][field], err_msg=f"{name}: {field}")
        for field in ("mdp", "weight", "reward_sum"):
            np.testing.assert_allclose(found[field], files["csv"][field], rtol=1e-12, atol=1e-12, err_msg=name)


def test_the_same_file_and_options_give_the_same_bytes(folder):
    for name in ("one.kbrl", "two.kbrl"):
        run("fit", "log.csv", "-o", name)
    assert Path("one.kbrl").read_bytes() == Path("two.kbrl").read_bytes()


def test_next_states_from_following_rows_survive_another_order_of_files(folder, log):
    for name, part in (("a", log[: N_ROWS // 2]), ("b", log[N_ROWS // 2 :])):
        write_log(part, folder / "whole.csv")
        lines = [line.split(",") for line in (folder / "whole.csv").read_text().splitlines()]
        kept = [i for i, column in enumerate(lines[0]) if not column.startswith("next_")]
        text = "\n".join(",".join(line[i] for i in kept) for line in lines)
        (folder / f"{name}.csv").write_text(text + "\n")
    for output, paths in (("ab.kbrl", ["a.csv", "b.csv"]), ("ba.kbrl", ["b.csv", "a.csv"])):
        run("fit", *paths, "-o", output, *SPARSE, "--chunk-rows", 50)
    assert Path("ab.kbrl").read_bytes() == Path("ba.kbrl").read_bytes()


# Going on, and adding up.


def test_update_goes_on_with_the_columns_of_the_model(folder, log, capsys):
    write_log(log[:300], folder / "first.csv", names=("x", "y"))
    write_log(log[300:], folder / "second.csv", names=("x", "y"))
    named = ("--state", "observation_x,observation_y")
    run("fit", "first.csv", *named, "-o", "model.kbrl")
    capsys.readouterr()
    facts = told(capsys, "update", "model.kbrl", "second.csv", "-o", "more.kbrl", "--chunk-rows", 70)
    assert (facts["transitions_before"], facts["transitions"]) == (300, 600)
    by_hand = load_model("model.kbrl").extend(log[300:])
    np.testing.assert_allclose(load_model("more.kbrl").mdp.stacked, by_hand.mdp.stacked, atol=1e-12)
    run("update", "model.kbrl", "second.csv")
    out, err = capsys.readouterr()
    assert "600 transitions, 300 of them new" in out
    assert err == ""
    assert read_model("model.kbrl").columns == read_model("more.kbrl").columns
    assert load_model("model.kbrl").n_samples == 600


def test_parts_that_were_learnt_alone_merge_to_the_model_of_all(folder, log, capsys):
    for name, rows in (("a", slice(0, 200)), ("b", slice(200, 400)), ("c", slice(400, 600))):
        write_log(log[rows], folder / f"{name}.csv")
    run("fit", "a.csv", "-o", "a.kbrl", *SPARSE)
    for name in "bc":
        run("update", "a.kbrl", f"{name}.csv", "--alone", "-o", f"{name}.kbrl")
        assert load_model(f"{name}.kbrl").n_samples == 200
    capsys.readouterr()
    assert told(capsys, "merge", "a.kbrl", "b.kbrl", "c.kbrl", "-o", "all.kbrl")["transitions"] == 600
    run("merge", "c.kbrl", "a.kbrl", "b.kbrl", "-o", "other.kbrl")
    run("update", "a.kbrl", "b.csv", "c.csv", "-o", "on.kbrl")
    found, turned, gone_on = (arrays(name) for name in ("all.kbrl", "other.kbrl", "on.kbrl"))
    for field in ("distances", "rewards", "next_states", "counts", "mdp"):
        np.testing.assert_array_equal(found[field], turned[field])
        np.testing.assert_array_equal(found[field], gone_on[field])


def test_words_that_look_like_numbers_stay_words_in_an_update(folder):
    header = "episode_id,observation_x,action,reward\n"
    (folder / "words.csv").write_text(header + "0,1,1,1\n0,2,2,1\n0,3,2+,1\n0,4,1,1\n")
    (folder / "digits.csv").write_text(header + "7,1,1,1\n7,2,2,1\n7,3,1,1\n")
    run("fit", "words.csv", "--min-cases", "1", "-o", "m.kbrl")
    run("update", "m.kbrl", "digits.csv")
    model = load_model("m.kbrl")
    assert model.action_labels.tolist() == ["1", "2", "2+"]
    assert model.sums.counts.tolist() == [2, 2, 1]


# What goes wrong.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has no bytes"),
        ("episode_id,observation_x,action,reward\n", "no row below it"),
        ("episode_id,observation_x,action,reward\n0,1,go,1\n0,two,go,1\n", "line 3 of bad.csv: 'two'"),
        ("episode_id,observation_x,action,reward\n0,1,go,1\n0,2,go,high\n", "not_a_number"),
        ("episode_id,observation_x,action,reward\n0,1,go,1\n1,2,go,1\n", "has a next state"),
        ("observation_x,action,reward\n1,go,1\n2,go,1\n", "no column tells where its episodes end"),
        ("a,b,c\n1,2,3\n", "--state NAME"),
    ],
)
def test_faults_that_stop_learning_are_said_and_point_at_check(folder, capsys, text, words):
    (folder / "bad.csv").write_text(text)
    status, message = refused(capsys, "fit", "bad.csv", "-o", "m.kbrl")
    assert status == 1
    assert words in message
    assert "kbrl check bad.csv" in message
    assert len([line for line in message.splitlines() if "rows are left out" not in line]) == 1
    assert sorted(os.listdir()) == ["bad.csv", "log.csv"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["fit", "log.csv"], 2, "Missing option '-o'"),
        (["fit", "-o", "m.kbrl"], 2, "Missing argument"),
        (["fit", "none.csv", "-o", "m.kbrl"], 1, "no file none.csv"),
        (["fit", "log.csv", "-o", "no/folder/m.kbrl"], 1, "no folder no/folder"),
        (["fit", "log.csv", "-o", "log.csv/m.kbrl"], 1, "no folder log.csv"),
        (["fit", "log.csv", "-o", "."], 2, "is a directory"),
        (["fit", "log.csv", "-o", "m.kbrl", "--sample-width", "-0.1"], 2, "-0.1 is not in the range"),
        (["fit", "log.csv", "-o", "m.kbrl", "--rep-width", "0"], 2, "0.0 is not in the range"),
        (["fit", "log.csv", "-o", "m.kbrl", "--discount", "1"], 2, "1.0 is not in the range"),
        (["fit", "log.csv", "-o", "m.kbrl", "--reps", "0"], 2, "0 is not in the range"),
        (["fit", "log.csv", "-o", "m.kbrl", "--solver", "magic"], 2, "'magic' is not one of"),
        (["fit", "log.csv", "-o", "m.kbrl", "--choose-reps", "cover"], 2, "--cover-distance must be given together"),
        (["fit", "log.csv", "-o", "m.kbrl", "--grow-distance", "1", "--grow-below", "0.1"], 2, "not both"),
        (["fit", "log.csv", "-o", "m.kbrl", "--actions", "up,down"], 1, "Actions must be among ['up', 'down']"),
        (["fit", "log.csv", "-o", "m.kbrl", "--actions", "up,down,left,right,up"], 2, "names must be different"),
        (["fit", "log.csv", "-o", "m.kbrl", "--actions", "up,,down,left,right"], 2, "not empty"),
        (["fit", "log.csv", "-o", "m.kbrl", "--state", "z"], 1, "'z'"),
        (["update", "none.kbrl", "log.csv"], 1, "none.kbrl"),
        (["update", "log.csv", "log.csv"], 1, "does not start as a kbrl model does"),
        (["update", "log.csv", "log.csv", "--alone"], 2, "-o NEW"),
        (["merge", "log.csv", "-o", "m.kbrl"], 2, "at least two models"),
        (["merge", "log.csv", "log.csv", "-o", "m.kbrl"], 2, "merge needs different models"),
        (["merge", "a.kbrl", "b.kbrl", "-o", "no/m.kbrl"], 1, "no folder no"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_at_once_and_nothing_is_written(folder, capsys, arguments, status, words):
    before = sorted(os.listdir())
    found, message = refused(capsys, *arguments)
    assert found == status
    assert words in message
    assert "Traceback" not in message
    assert sorted(os.listdir()) == before


def test_a_folder_that_is_read_only_is_refused_before_the_work(folder, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    status, message = refused(capsys, "fit", "none.csv", "-o", "m.kbrl")
    assert status == 1
    assert "read-only" in message


def test_numbers_are_asked_for_where_actions_are_numbers(folder, capsys):
    (folder / "n.csv").write_text("episode_id,observation_x,action,reward\n0,1,3,1\n0,2,4,1\n0,3,3,1\n")
    status, message = refused(capsys, "fit", "n.csv", "-o", "m.kbrl", "--actions", "3,4,high")
    assert status == 2
    assert "such as 3" in message


def test_an_update_must_fit_the_model(folder, capsys):
    run("fit", "log.csv", "-o", "m.kbrl")
    before = Path("m.kbrl").read_bytes()
    header = "episode_id,observation_0,observation_1,action,reward\n"
    (folder / "new.csv").write_text(header + "0,1,1,jump,1\n0,2,2,up,1\n")
    (folder / "other.csv").write_text("episode_id,temperature,action,reward\n0,1,up,1\n0,2,up,1\n")
    (folder / "nan.csv").write_text(header + "0,1,1,up,1\n0,2,nan,up,1\n")
    capsys.readouterr()
    for name, words in (("new", "also has ['jump']"), ("other", "'observation_0'"), ("nan", "kbrl check nan.csv")):
        status, message = refused(capsys, "update", "m.kbrl", f"{name}.csv")
        assert status == 1
        assert words in message
        assert "Warning: The log lacks 'next_observation_0', 'next_observation_1', 'terminated'" in message
    status, message = refused(capsys, "update", "m.kbrl", "log.csv", "--state", "observation_0")
    assert "must have 2 state variables, but they have 1" in message
    assert Path("m.kbrl").read_bytes() == before


def test_a_damaged_model_is_refused(folder, capsys):
    run("fit", "log.csv", "-o", "m.kbrl")
    capsys.readouterr()
    contents = bytearray(Path("m.kbrl").read_bytes())
    contents[len(contents) // 2] ^= 1
    (folder / "m.kbrl").write_bytes(contents)
    (folder / "n.kbrl").write_bytes(contents)
    for arguments in (["update", "m.kbrl", "log.csv"], ["merge", "m.kbrl", "n.kbrl", "-o", "x.kbrl"]):
        status, message = refused(capsys, *arguments)
        assert status == 1
        assert "m.kbrl cannot be loaded" in message


def test_models_on_different_states_do_not_merge(folder, log, capsys):
    write_log(log, folder / "named.csv", names=("x", "y"))
    run("fit", "log.csv", "-o", "a.kbrl", "-m", 10)
    run("fit", "log.csv", "-o", "b.kbrl", "-m", 12)
    run("fit", "log.csv", "-o", "c.kbrl", "-m", 10, "--discount", 0.5)
    run("fit", "log.csv", "-o", "d.kbrl", "-m", 10, "--actions", "left,right,up,down")
    run("fit", "named.csv", "-o", "e.kbrl", "-m", 10)
    capsys.readouterr()
    for other, words in (("b", "representative states"), ("c", "discount"), ("d", "same actions"), ("e", "columns")):
        status, message = refused(capsys, "merge", "a.kbrl", f"{other}.kbrl", "-o", "x.kbrl")
        assert status == 1
        assert f"{other}.kbrl cannot be added to a.kbrl" in message
        assert words in message
    assert not os.path.exists("x.kbrl")


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from kbrl.model.model import Model
prepared, calls = Model.prepared, []
def interrupted(self, log):
    calls.append(log)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGINT)
    return prepared(self, log)
Model.prepared = interrupted
from kbrl import Transitions
from kbrl.cli import main
main(sys.argv[1:])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_in_the_middle_leaves_the_old_file_and_no_litter(folder):
    run("fit", "log.csv", "-o", "m.kbrl", "-m", 10)
    before = Path("m.kbrl").read_bytes()
    widths = ("--sample-width", "0.1", "--rep-width", "0.1")
    for arguments in (
        ["fit", "log.csv", "-o", "m.kbrl", "--chunk-rows", "50", *widths],
        ["update", "m.kbrl", "log.csv", "--chunk-rows", "50"],
    ):
        done = subprocess.run([sys.executable, "-c", INTERRUPTED, *arguments], capture_output=True, text=True)
        assert done.returncode == 130, done.stderr
        assert done.stderr.strip() == "Stopped."
        assert Path("m.kbrl").read_bytes() == before
        assert sorted(os.listdir()) == ["log.csv", "m.kbrl"]
