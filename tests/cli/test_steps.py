"""kbrl check, fit and update where steps are irregular: what is left out is said, and too much of it is refused."""

import json
from contextlib import nullcontext

import numpy as np
import pandas
import pytest

from kbrl.cli import main

NAMES = ("--state", "age,sofa", "--action", "dose", "--reward", "gain", "--episode", "patient", "--step", "minutes")
FIT = ("fit", "log.csv", "-o", "m.kbrl", "--reps", "20", "--sample-width", "1", "--rep-width", "1")
N_PATIENTS, N_VISITS = 25, 40
N_ROWS = N_PATIENTS * N_VISITS
LEFT_OUT = (
    f"{N_PATIENTS} of 1,000 rows are left out: {N_PATIENTS} at the end of an episode that was cut, where the next "
    f"state is not known."
)


def visits(rises):
    rng = np.random.default_rng(1)
    minutes = np.cumsum(rises.reshape(N_PATIENTS, N_VISITS), axis=1).ravel()
    columns = {"patient": np.repeat(np.arange(N_PATIENTS), N_VISITS), "minutes": minutes}
    columns |= {name: rng.normal(size=N_ROWS) for name in ("age", "sofa", "gain")}
    return pandas.DataFrame(columns | {"dose": rng.integers(2, size=N_ROWS)})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    visits(np.random.default_rng(0).integers(60, 371, size=N_ROWS)).to_csv("log.csv", index=False)
    return tmp_path


def told(capsys, *arguments, status=0):
    """Run a command; return what it prints and what it says beside."""
    with pytest.raises(SystemExit) if status else nullcontext() as stop:
        main(list(arguments))
    assert status == 0 or stop.value.code == status
    return capsys.readouterr()


@pytest.mark.usefixtures("folder")
def test_irregular_steps_lose_no_row_but_the_last_of_each_episode_and_that_is_said(capsys):
    fit = told(capsys, *FIT, *NAMES, "--json")
    assert json.loads(fit.out)["transitions"] == N_ROWS - N_PATIENTS
    assert fit.err == f"Warning: {LEFT_OUT}\n"
    check = told(capsys, "check", "log.csv", *NAMES)
    assert check.out.startswith(f"1,000 rows, {N_PATIENTS} episodes, 975 transitions.\n{LEFT_OUT}\n")
    update = told(capsys, "update", "m.kbrl", "log.csv", "--again", "-o", "n.kbrl", "--json")
    assert update.err == f"Warning: {LEFT_OUT}\n"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", [(*FIT, "--min-cases", "1"), ("check", "log.csv")])
def test_a_stride_that_most_steps_do_not_have_is_refused_with_the_option_that_allows_it(capsys, command):
    refused = told(capsys, *command, *NAMES, "--stride", "60", status=1)
    text = " ".join((refused.out + refused.err).split())
    for words in ("Gaps may leave out at most 5% of the rows", "State another stride", "--allow-gaps"):
        assert words in text
    allowed = told(capsys, *command, *NAMES, "--stride", "60", "--allow-gaps")
    assert "before a gap, where the step does not rise by the stride" in " ".join((allowed.out + allowed.err).split())


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", [FIT, ("check", "log.csv")])
def test_most_rows_lost_to_a_wrong_column_of_episodes_are_refused_with_two_ways_out(capsys, command):
    visit = np.where(np.arange(N_ROWS) % 10 == 0, np.arange(N_ROWS) + 1, np.arange(N_ROWS))
    pandas.read_csv("log.csv").assign(visit=visit).to_csv("log.csv", index=False)
    wrong = [name if name != "patient" else "visit" for name in NAMES]
    refused = told(capsys, *command, *wrong, status=1)
    text = " ".join((refused.out + refused.err).split())
    for words in ("At most 50% of the rows may be left out, but 900 of 1,000 rows", "--episode NAME", "--allow-gaps"):
        assert words in text
    allowed = told(capsys, *command, *wrong, "--allow-gaps")
    assert "900 of 1,000 rows are left out" in " ".join((allowed.out + allowed.err).split())


def test_the_stride_stands_in_a_config_and_is_kept_in_the_model(folder, capsys):
    rises = np.where(np.arange(N_ROWS) % 100 == 50, 2, 1)
    visits(rises).to_csv("log.csv", index=False)
    n_gaps = 10
    (folder / "log.toml").write_text("stride = 1\nallow_gaps = false\n")
    fit = told(capsys, *FIT, *NAMES, "--config", "log.toml", "--json")
    assert json.loads(fit.out)["transitions"] == N_ROWS - N_PATIENTS - n_gaps
    assert f"{n_gaps + N_PATIENTS} of 1,000 rows are left out: {n_gaps} before a gap" in fit.err
    update = told(capsys, "update", "m.kbrl", "log.csv", "--again", "-o", "n.kbrl", "--json")
    assert json.loads(update.out)["transitions"] == 2 * (N_ROWS - N_PATIENTS - n_gaps)
    without = told(capsys, *FIT, *NAMES, "--json")
    assert json.loads(without.out)["transitions"] == N_ROWS - N_PATIENTS
    assert f"After {n_gaps} rows the step rises by more than 1, its usual rise" in without.err


@pytest.mark.usefixtures("folder")
def test_a_stride_that_is_none_is_refused_as_a_fault_of_the_command_line(capsys):
    assert "stride must be a number above 0" in told(capsys, "check", "log.csv", "--stride", "soon", status=2).err
