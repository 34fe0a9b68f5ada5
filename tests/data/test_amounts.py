"""Amounts, such as doses, in the place of actions are doubted, wherever they come from."""

import numpy as np
import pytest

from kbrl import Transitions, load_log, read_log
from kbrl.checks import KbrlWarning
from kbrl.cli import main
from kbrl.logs.check import check_log
from kbrl.logs.log import open_log
from kbrl.logs.writing import as_columns, write_log
from kbrl.tables.faults import LogError


def with_actions(actions):
    """A log of these actions, with states that play no part."""
    states = np.random.default_rng(0).random((len(actions), 2))
    return Transitions(states, actions, states[:, 0], states, action_labels=np.unique(actions))


def counted(actions):
    """Different labels, and how many of them occur fewer than five times, by a loop."""
    found = {}
    for action in actions.tolist():
        found[action] = found.get(action, 0) + 1
    return len(found), sum(n < 5 for n in found.values())


AMOUNTS = {
    "doses to two decimals": np.round(np.random.default_rng(1).gamma(2.0, 1.0, 1000), 2),
    "quarters of a tablet": np.random.default_rng(2).integers(0, 100, 200) / 4,
    "many doses, each often": np.tile(np.arange(150) + 0.5, 6),
}
ACTIONS = {
    "thirty buttons": np.random.default_rng(3).integers(0, 30, 900),
    "a few doses": np.random.default_rng(3).choice([0.5, 1.0, 2.5], 60),
    "numbers of drugs": np.arange(500),
    "words": np.array([f"drug {k}" for k in range(60)]),
    "few rows": np.arange(15),
}


@pytest.mark.parametrize("kind", AMOUNTS)
@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_amounts_in_a_file_are_refused_with_their_numbers_and_a_way_out(kind, suffix, tmp_path):
    path, (n_labels, n_few) = tmp_path / f"log.{suffix}", counted(AMOUNTS[kind])
    write_log(with_actions(AMOUNTS[kind]), path)
    said = rf"'action' has {n_labels} different labels, .* {n_few} of them occur fewer than 5 times. Put amounts"
    for read in (open_log, load_log, read_log):
        with pytest.raises(LogError, match=f"{said}.*--bins action=4"):
            read(path)
    assert open_log(path, columns={"bins": {"action": 3}}).action_labels.shape == (3,)
    named = np.unique(AMOUNTS[kind]).tolist()
    assert open_log(path, actions=named).action_labels.tolist() == named  # the user knows; any warning is an error


@pytest.mark.parametrize("kind", AMOUNTS)
def test_the_check_and_transitions_name_the_same_numbers(kind):
    n_labels, n_few = counted(AMOUNTS[kind])
    log = with_actions(AMOUNTS[kind])
    found = {fault.name: fault for fault in check_log(as_columns(log)).faults}["many_actions"]
    assert (found.count, found.unit, found.stops_learning) == (n_labels, "actions", True)
    assert f"{n_few} of them occur fewer than 5 times" in found.message
    assert found.advice == "Put amounts such as doses into a few classes: --bins NAME=4."
    with pytest.warns(KbrlWarning, match=f"actions have {n_labels} different labels, .*; {n_few} of them occur"):
        Transitions(log.states, AMOUNTS[kind], log.rewards, log.next_states)


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_are_not_doubted(kind):
    log = with_actions(ACTIONS[kind])
    assert "many_actions" not in [fault.name for fault in check_log(as_columns(log)).faults]
    assert load_log(as_columns(log)).n_actions == log.n_actions  # any warning is an error
    Transitions(log.states, ACTIONS[kind], log.rewards, log.next_states)


def test_the_command_refuses_amounts_before_it_learns_and_takes_classes_of_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    doses = AMOUNTS["doses to two decimals"]
    write_log(with_actions(doses), "ward.csv")
    n_labels, _ = counted(doses)
    with pytest.raises(SystemExit):
        main(["fit", "ward.csv", "-o", "model.kbrl", "-m", "10", "-q"])
    _, err = capsys.readouterr()
    assert f"'action' has {n_labels} different labels" in err
    assert "Put amounts such as doses into a few classes: --bins action=4" in err
    main(["fit", "ward.csv", "-o", "model.kbrl", "-m", "10", "-q", "--bins", "action=4"])
