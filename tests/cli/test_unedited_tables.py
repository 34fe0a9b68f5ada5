"""Tables of four trades through every command without an edit: roles found by what columns do, not by their names."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from kbrl import load_model
from kbrl.cli import main
from unedited_tables import Fields, Pressure, Pumps, Tutor, logged, score

STATED = {
    Pumps: {
        "encoding": "latin-1",
        "decimal": ",",
        "dates": "day first",
        "episode": "Pump",
        "step": "Datum",
        "terminated": "Failed?",
        "action": "Massnahme",
        "minimize": "Kosten",
        "state": ["Vibration", "Temp"],
    },
    Pressure: {
        "episode": "hadm_id",
        "step": "charttime",
        "sort": True,
        "drop-repeats": True,
        "terminated": "outcome in ('died', 'discharged')",
        "action": "vasopressor",
        "reward": "- (outcome == 'died') + (outcome == 'discharged')",
        "state": ["sex", "MAP", "lactate"],
    },
    Fields: {
        "na": {"Rain": ["-"]},
        "suffix": {"Moisture": "%"},
        "dates": "month first",
        "episode": "Field",
        "step": "Date",
        "action": "Irrigation",
        "reward": "Yield",
        "state": ["Moisture", "Rain"],
    },
    Tutor: {
        "episode": "student",
        "step": "problem_nr",
        "action": "tutor_move",
        "reward": "where(is_missing(posttest), 0, posttest)",
        "terminated": "not is_missing(posttest)",
        "state": ["mastery", "seconds"],
    },
}
FIT = ["--order", "0", "--reps", "60", "-q"]


@pytest.mark.parametrize("domain", [Pumps, Pressure, Fields, Tutor])
@pytest.mark.filterwarnings("ignore::kbrl.checks.KbrlWarning")
def test_a_table_as_a_trade_keeps_it_needs_no_edit_and_gives_the_policy_of_the_clean_one(
    domain, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    truth = logged(domain, 400)
    domain.write(truth, "log.csv")
    truth.to_csv("clean.csv", index=False)
    main(["init", "log.csv"])
    assert tomllib.loads(Path("log.toml").read_text()) == STATED[domain]
    main(["check", "log.csv", "--config", "log.toml"])
    main(["fit", "log.csv", "--config", "log.toml", "-o", "log.kbrl", *FIT])
    columns = ["--state", ",".join(domain.state), "--terminated", "end", "--episode", "episode", "--step", "step"]
    main(["fit", "clean.csv", *columns, "--action", "action", "--reward", "reward", "-o", "clean.kbrl", *FIT])
    found, right = (score(domain, load_model(f"{name}.kbrl").predict) for name in ("log", "clean"))
    rng = np.random.default_rng(0)
    chance = score(domain, lambda states: rng.choice(domain.actions, len(states)))
    assert right > chance
    assert found > right - 0.05 * abs(right)

    capsys.readouterr()
    main(["predict", "log.kbrl", "log.csv", "-o", "answers.csv"])
    main(["explain", "log.kbrl", "--log", "log.csv", "--state", _state(truth, domain), "--cases", "2"])
    main(["report", "log.kbrl", "log.csv", "-o", "report.html"])
    assert len(Path("answers.csv").read_text(encoding="utf-8").splitlines()) > len(truth)
    assert domain.actions[1] in capsys.readouterr().out
    assert "<html" in Path("report.html").read_text(encoding="utf-8")


def _state(truth, domain):
    return ",".join(f"{name}={truth[name].iloc[3]}" for name in domain.state)
