"""collect and evaluate, as a person at a terminal meets them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import kbrl.cli.simulators as simulators
from kbrl import KBSF, Transitions, load_log, save_model
from kbrl.cli import main
from kbrl.cli.acting import model_policy
from kbrl.storage.model_file import SavedModel
from kbrl.tasks import PoleBalancing, PuddleWorld


def saved(path, log, columns=None, **options):
    model = KBSF(n_reps=60, random_state=0, **options).fit(log)
    save_model(model, path, columns=columns)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models of the puddle world, with its actions by name."""
    folder = tmp_path_factory.mktemp("simulators")
    task = PuddleWorld()
    log = task.collect(3000, random_state=0)
    log = log.replaced(action_labels=np.array(task.actions))
    columns = {"state": ["observation_x", "observation_y"], "action": "action", "reward": "reward"}
    model = saved(folder / "puddle.kbrl", log, columns)
    return SimpleNamespace(path=folder, model=model, log=log)


@pytest.fixture
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.path)
    return folder


def evaluated(capsys, *arguments):
    main(["evaluate", *arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def test_the_file_has_the_transitions_of_the_library_with_the_same_seed(tmp_path, capsys):
    expected = PuddleWorld().collect(200, random_state=3)
    for suffix in (".csv", ".parquet", ".arrow", ".npz"):
        main(["collect", "PuddleWorld", "-n", "200", "--seed", "3", "-o", str(tmp_path / f"log{suffix}")])
        log = load_log(tmp_path / f"log{suffix}")
        np.testing.assert_array_equal(log.states, expected.states)
        np.testing.assert_array_equal(log.rewards, expected.rewards)
        np.testing.assert_array_equal(log.actions, np.array(PuddleWorld.actions)[expected.actions])
        np.testing.assert_array_equal(log.episodes, expected.episodes)
    out, err = capsys.readouterr()
    assert out.count("200 transitions of PuddleWorld") == 4
    assert err == ""


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path, monkeypatch):
    def work(*_, **__):
        raise AssertionError("the work was begun")

    monkeypatch.setattr(PuddleWorld, "collect", work)
    for path in ("x.txt", "x", "missing/x.csv"):
        with pytest.raises(SystemExit):
            main(["collect", "PuddleWorld", "-o", str(tmp_path / path)])


def test_a_model_collects_greedily_and_epsilon_mixes_random_moves_in(in_folder, capsys):
    rates = {}
    for epsilon in ("0", "0.5", "1"):
        options = ["--policy", "puddle.kbrl", "--epsilon", epsilon]
        main(["collect", "PuddleWorld", "-n", "2000", "-o", f"greedy{epsilon}.npz", *options])
        log = load_log(f"greedy{epsilon}.npz")
        rates[epsilon] = np.mean(in_folder.model.predict(log.states) == log.actions)
    assert rates["0"] == 1.0
    assert rates["0.5"] == pytest.approx(0.625, abs=0.05)  # half of the moves, and a quarter of the other half
    assert rates["1"] == pytest.approx(0.25, abs=0.05)


def test_an_environment_of_gymnasium_is_collected_from_and_acted_in(in_folder, capsys):
    main(["collect", "--env", "CartPole-v1", "-n", "1500", "-o", "cart.csv"])
    assert "1,500 transitions of CartPole-v1" in capsys.readouterr().out
    log = load_log("cart.csv")
    assert log.n_dims == 4
    assert log.action_labels.tolist() == [0, 1]
    saved("cart.kbrl", log)
    facts = evaluated(capsys, "cart.kbrl", "--env", "CartPole-v1", "--runs", "2", "--states", "5")
    assert facts["task"] == "CartPole-v1"
    assert facts["episodes_per_run"] == 5
    steps = {name: scores["steps"]["mean"] for name, scores in facts["policies"].items()}
    assert steps["model"] > 2 * steps["random moves"]  # the pole stands for longer


def test_a_model_is_compared_with_random_moves_over_runs(in_folder, capsys):
    facts = evaluated(capsys, "puddle.kbrl", "--task", "puddleworld", "--runs", "3", "--seed", "5")
    assert facts["episodes_per_run"] == 13
    assert facts["discount"] == 0.99
    rngs = [np.random.default_rng([5, run, 0]) for run in range(3)]
    means = [PuddleWorld().evaluate(in_folder.model.predict, "paper", rng).mean for rng in rngs]
    assert facts["policies"]["model"]["return"]["mean"] == pytest.approx(np.mean(means))
    half = 9.924843 * np.std(means, ddof=1) / np.sqrt(3)  # Student's t with 2 degrees of freedom, 99.5 %
    assert facts["policies"]["model"]["return"]["half_width"] == pytest.approx(half, rel=1e-6)
    assert facts["policies"]["random moves"]["return"]["mean"] < 0 < facts["policies"]["model"]["return"]["mean"]
    main(["evaluate", "puddle.kbrl", "--task", "puddleworld", "--runs", "3", "--seed", "5"])
    out, err = capsys.readouterr()
    assert "PuddleWorld: 3 runs of 13 episodes" in out
    assert f"{np.mean(means):.4g} +- {half:.2g}" in out
    assert err == ""


def test_options_of_the_task_and_sets_of_states_count(in_folder, capsys):
    facts = evaluated(capsys, "puddle.kbrl", "--task", "PuddleWorld", "--set", "noise=false", "--states", "grid")
    assert facts["episodes_per_run"] == 9
    assert facts["policies"]["model"]["return"]["half_width"] == pytest.approx(0, abs=1e-12)  # nothing is random
    one = evaluated(capsys, "puddle.kbrl", "--task", "PuddleWorld", "--runs", "1", "--states", "4")
    assert one["policies"]["model"]["return"]["half_width"] is None


def test_a_task_with_successes_shows_their_rate(in_folder, capsys):
    task = PoleBalancing(n_poles=2)
    log = task.collect(800, random_state=0)
    saved("poles.kbrl", log.replaced(action_labels=np.array(task.actions)))
    facts = evaluated(capsys, "poles.kbrl", "--task", "PoleBalancing", "--set", "n_poles=2", "--runs", "2")
    assert 0 <= facts["policies"]["model"]["success"]["mean"] <= 1
    assert facts["policies"]["random moves"]["success"]["mean"] == 0


def test_variables_in_another_order_and_actions_by_place_mean_the_same(folder):
    """The policy of a model with the columns swapped is the policy of the model."""
    log, states = folder.log, np.random.default_rng(0).random((50, 2))
    fields = (log.states[:, ::-1], log.action_indices, log.rewards, log.next_states[:, ::-1], log.terminals)
    swapped = Transitions(*fields, action_labels=range(4))
    model = KBSF(reps=folder.model.reps_[:, ::-1]).fit(swapped)
    policy = model_policy(PuddleWorld(), SavedModel(model.model_, ["y", "x"], ""))
    expected = model.predict(states[:, ::-1])
    np.testing.assert_array_equal(policy(states), expected)
    other = KBSF(reps=folder.model.reps_).fit(log)
    by_name = model_policy(PuddleWorld(), SavedModel(other.model_, ["x", "y"], ""))(states)
    np.testing.assert_array_equal(np.array(PuddleWorld.actions)[by_name], other.predict(states))


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["evaluate", "puddle.kbrl"], 2, "Name either a task, or a Gymnasium environment"),
        (["evaluate", "puddle.kbrl", "--task", "HIV", "--env", "x"], 2, "either a task"),
        (["evaluate", "puddle.kbrl", "--task", "Chess"], 2, "There is no task 'Chess'"),
        (["evaluate", "puddle.kbrl", "--task", "HIV"], 1, "has 2 state variables, but HIV observes 6: log10 T1"),
        (["evaluate", "strange.kbrl", "--task", "PuddleWorld"], 1, "the actions left, stay, but PuddleWorld has up"),
        (["evaluate", "puddle.kbrl", "--task", "PuddleWorld", "--states", "moon"], 2, "its sets are paper, grid, top"),
        (["evaluate", "puddle.kbrl", "--task", "PuddleWorld", "--states", "0"], 2, "no test states '0'"),
        (["evaluate", "puddle.kbrl", "--env", "NoSuch-v0"], 2, "'NoSuch-v0' cannot be made"),
        (["evaluate", "puddle.kbrl", "--env", "MountainCarContinuous-v0"], 1, "Discrete actions"),
        (["evaluate", "no.kbrl", "--task", "PuddleWorld"], 2, "File 'no.kbrl' does not exist"),
        (["collect", "-o", "x.csv"], 2, "Name either a task, or a Gymnasium environment"),
        (["collect", "PuddleWorld", "-o", "x.csv", "--epsilon", "0.1"], 2, "--epsilon needs --policy"),
        (["collect", "HIV", "-o", "x.csv", "--policy", "puddle.kbrl"], 1, "has 2 state variables"),
        (["collect", "PoleBalancing", "-o", "x.csv", "--set", "poles=2"], 2, "Its options are n_poles, gravity"),
        (["collect", "PuddleWorld", "-o", "."], 2, "is a directory"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(in_folder, arguments, status, words, capsys):
    if "strange.kbrl" in arguments:
        log = Transitions([[0.0, 0.0], [1.0, 1.0]], ["left", "stay"], [0, 1], [[0.0, 0.0], [1.0, 1.0]])
        save_model(KBSF(reps=[[0.0, 0.0]]).fit(log), "strange.kbrl")
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    out, err = capsys.readouterr()
    assert stop.value.code == status
    assert words in err
    assert out == ""
    assert not (in_folder.path / "x.csv").exists()


def test_stopping_while_collecting_leaves_no_file(tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(simulators, "counted", lambda policy, count: stop)
    with pytest.raises(SystemExit) as stopped:
        main(["collect", "PuddleWorld", "-o", str(tmp_path / "log.csv")])
    assert stopped.value.code == 130
    assert not list(tmp_path.iterdir())
