"""What the command says, and by which status it ends, where the command line is at fault or nobody listens."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from kbrl.cli import main
from kbrl.logs.writing import write_log
from kbrl.tasks import PuddleWorld

FIT = ["fit", "log.csv", "-o", "m.kbrl"]


@pytest.fixture(scope="module")
def log_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("usage") / "log.csv"
    log = PuddleWorld().collect(200, random_state=0)
    write_log(log.replaced(action_labels=np.array(PuddleWorld().actions)), path, names=("x", "y"))
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch, log_file):
    (tmp_path / "log.csv").write_bytes(log_file.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fails(arguments, capsys):
    """Run a command that fails; return its status and the lines of its error."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    return stop.value.code, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "many"])
@pytest.mark.parametrize("option", ["--sample-width", "--discount", "--tolerance", "--seconds", "--grow-below"])
def test_a_number_that_is_none_is_a_usage_error_of_two_lines_that_names_the_option(folder, capsys, option, value):
    status, lines = fails([*FIT, option, value], capsys)
    assert status == 2
    assert len(lines) == 2
    assert option in lines[0]
    assert value in lines[0]
    assert lines[1] == "For help: kbrl fit --help"
    assert not (folder / "m.kbrl").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fly"], "No such command 'fly'"),
        ([*FIT, "--sampel-width", "1"], "--sampel-width"),
        (["fit", "log.csv"], "--output"),
        ([*FIT, "--grow-distance", "1", "--grow-below", "0.1"], "Growth takes --grow-distance or --grow-below"),
        ([*FIT, "--norm", "0.5"], "norm must be a number from 1 to 16, or infinity, but it is 0.5"),
        (["collect", "PuddleWorld", "-o", "l.csv", "--set", "noise=-1"], "noise must be"),
        (["collect", "PoleBalancing", "-o", "l.csv", "--set", "n_poles=nine"], "n_poles must be"),
        (["collect", "PoleBalancing", "-o", "l.csv", "--set", "gravity=left"], "gravity must be"),
        (["collect", "PuddleWorld", "-o", "l.csv", "--set", "colour=red"], "no option colour"),
        (["collect", "Nowhere", "-o", "l.csv"], "There is no task 'Nowhere'"),
    ],
)
def test_what_is_wrong_with_a_command_line_takes_two_lines_at_most_and_ends_with_status_2(
    folder, capsys, arguments, words
):
    status, lines = fails(arguments, capsys)
    assert status == 2
    assert len(lines) <= 2
    assert words in lines[0]


@pytest.mark.parametrize("option, values", [("--state", ["x", "y"]), ("--missing", ["x=median", "y=drop"])])
def test_an_option_of_one_value_that_is_given_twice_is_refused_instead_of_half_heard(folder, capsys, option, values):
    status, lines = fails([*FIT, option, values[0], option, values[1]], capsys)
    assert status == 2
    assert f"{option} is given 2 times" in lines[0]
    assert not (folder / "m.kbrl").exists()


def test_without_a_word_the_command_shows_its_help(capsys):
    status, lines = fails([], capsys)
    assert status == 2
    assert "Commands:" in lines


def started(arguments, folder, **options):
    command = [sys.executable, "-m", "kbrl", *arguments]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, **options)


def test_whoever_stops_reading_ends_the_command_without_a_word(folder):
    main([*FIT, "-m", "10", "--sample-width", "0.2", "--rep-width", "0.2", "-q"])
    with started(["predict", "m.kbrl", *["log.csv"] * 50], folder, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_ctrl_c_while_the_command_is_loaded_shows_no_traceback(folder):
    code = (
        "import sys, signal, os, importlib.abc\n"
        "class Interrupt(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'click': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from kbrl.__main__ import run\n"
        "run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert (done.returncode, done.stderr) == (130, "Stopped.\n")


def test_ctrl_c_at_work_stops_the_command_with_status_130(folder):
    with started(["collect", "HIV", "-n", "100000000", "-o", "l.csv"], folder, start_new_session=True) as process:
        time.sleep(5)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr.read().splitlines() == ["", "Stopped."]
    assert process.returncode == 130
    assert not (folder / "l.csv").exists()


def test_the_summary_says_of_each_number_who_chose_it(folder, capsys):
    main([*FIT, "--sample-width", "0.2", "-m", "1000"])
    captured = capsys.readouterr()
    lines = {line[:22].strip(): line for line in captured.out.splitlines()}
    assert lines["representative states"].endswith("(--reps): 1,000 were asked for")
    assert lines["width of samples"].endswith("0.2 (--sample-width): as asked for")
    assert "(--rep-width): chosen by the errors" in lines["width of states"]
    main([*FIT])
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "as asked for" not in captured.out


def test_one_row_is_one_row(folder, capsys):
    (folder / "one.csv").write_text("observation_x,action,reward,next_observation_x,terminated\n0.5,go,1,0.7,true\n")
    main(["fit", "one.csv", "--min-cases", "1", "-o", "m.kbrl"])
    assert "1 transition of 1 row in 1 episode\n" in capsys.readouterr().out


@pytest.fixture
def model(folder, capsys):
    main([*FIT, "-m", "10", "--sample-width", "0.2", "--rep-width", "0.2"])
    capsys.readouterr()
    return folder / "m.kbrl"


def without(folder, column, **renamed):
    """Write the log again, without a column and with others renamed."""
    head, *rows = [line.split(",") for line in (folder / "log.csv").read_text().splitlines()]
    place = head.index(column)
    names = [renamed.get(name, name) for name in head]
    text = "".join(",".join(cells[:place] + cells[place + 1 :]) + "\n" for cells in (names, *rows))
    (folder / "other.csv").write_text(text)


def test_explain_takes_a_log_with_other_columns_and_warns_of_those_it_lacks(model, folder, capsys):
    main(["explain", "m.kbrl", "--state", "0.5,0.5", "--log", "log.csv", "--json"])
    wanted = capsys.readouterr().out
    without(folder, "truncated", observation_x="east", observation_y="north")
    named = ["--state-columns", "east,north", "--next-state", "next_observation_x,next_observation_y"]
    main(["explain", "m.kbrl", "--state", "0.5,0.5", "--log", "other.csv", "--json", *named])
    captured = capsys.readouterr()
    assert captured.out == wanted
    assert captured.err == "Warning: The log lacks 'truncated', which the model's first log had.\n"
    assert fails(["explain", "m.kbrl", "--state", "0.5,0.5", "--action", "a"], capsys)[0] == 2
    assert fails(["explain", "m.kbrl", "--state", "1e308,-1e308"], capsys)[0] == 2


def test_update_and_report_warn_of_a_column_that_the_first_log_had(model, folder, capsys):
    without(folder, "terminated")
    for command in (
        ["update", "m.kbrl", "other.csv", "--again", "-o", "n.kbrl"],
        ["report", "m.kbrl", "other.csv", "-o", "r.html"],
    ):
        main(command)
        assert "Warning: The log lacks 'terminated'" in capsys.readouterr().err


def test_a_model_of_a_task_acts_by_the_same_names_in_its_gymnasium_environment(model, capsys):
    pytest.importorskip("gymnasium")
    main(["evaluate", "m.kbrl", "--env", "kbrl/PuddleWorld-v0", "--states", "2", "--runs", "1", "--json"])
    assert '"model"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-reps", "3"], "--max-reps limits growth or a cover"),
        (["--neighborhoods", "per_chunk"], "needs --sample-neighbors"),
        (["--cover-distance", "1"], "must be given together"),
        (["./log.csv"], "./log.csv is the same file as log.csv"),
        (["--state", " "], "--state must name a column, but it is empty"),
        (["-o", "."], "is a directory"),
    ],
)
def test_what_would_do_nothing_or_too_much_is_refused(folder, capsys, options, words):
    status, lines = fails([*(FIT[:2] if "-o" in options else FIT), *options], capsys)
    assert status == 2
    assert words in lines[0]


def test_a_copy_of_a_model_is_not_merged_with_it_nor_written_over(model, folder, capsys):
    (folder / "copy.kbrl").write_bytes(model.read_bytes())
    status, lines = fails(["merge", "m.kbrl", "copy.kbrl", "-o", "both.kbrl"], capsys)
    assert status == 1
    assert "copy.kbrl is a copy of m.kbrl" in lines[0]
    main(["update", "m.kbrl", "log.csv", "--alone", "-o", "more.kbrl"])
    assert fails(["merge", "m.kbrl", "more.kbrl", "-o", "more.kbrl"], capsys)[0] == 2


def test_a_file_name_that_the_system_refuses_is_an_error_without_a_number(folder, capsys):
    status, lines = fails(["fit", "log.csv", "-o", "x" * 300], capsys)
    assert status == 1
    assert "File name too long" in lines[0]
    assert "Errno" not in lines[0]


def test_ctrl_c_that_a_library_swallows_stops_the_command_before_the_old_model_is_replaced(folder, model, capsys):
    before = model.read_bytes()
    code = (
        "import os, signal, ctypes, kbrl.choosing.automatic_fit as streamed\n"
        "real = streamed.model_from\n"
        "def interrupted(*given):\n"
        "    call = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "    call()\n"  # Python forgets what is raised in here
        "    return real(*given)\n"
        "streamed.model_from = interrupted\n"
        "from kbrl.cli import main\n"
        "main(['fit', 'log.csv', '-o', 'm.kbrl', '-m', '5'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert "Stopped." in done.stderr
    assert done.returncode == 130
    assert model.read_bytes() == before


def test_variables_that_are_numbers_keep_the_names_of_their_columns(folder, capsys):
    text = (folder / "log.csv").read_text()
    (folder / "log.csv").write_text(
        text.replace("observation_x", "observation_0").replace("observation_y", "observation_1")
    )
    main([*FIT, "-m", "10", "--sample-width", "0.2", "--rep-width", "0.2"])
    main(["explain", "m.kbrl", "--state", "observation_0=0.5,observation_1=0.2", "--log", "log.csv"])
    assert "State observation_0 = 0.5, observation_1 = 0.2;" in capsys.readouterr().out


def test_each_command_has_an_example_in_its_help(capsys):
    for command in ("fit", "update", "merge"):
        main([command, "--help"])
        assert f"Example: kbrl {command}" in " ".join(capsys.readouterr().out.split())
