"""The command, as a person at a terminal meets it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kbrl.cli import commands, main
from kbrl.cli.console import options_by_heading
from kbrl.files import written_beside

PNG = b"\x89PNG\r\n\x1a\n"


def run(*arguments, **options):
    code = "from kbrl.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, **options)


def test_the_demonstration_prints_its_table_and_draws_its_picture(tmp_path, capsys):
    main(["demo", "--only", "puddles", "-n", "600", "-m", "40", "--runs", "2", "-o", str(tmp_path / "new"), "--quiet"])
    out, err = capsys.readouterr()
    rows = {line.split("  ")[0].strip() for line in out.splitlines()}
    assert {"random moves", "KBRL", "KBSF"} <= rows
    picture = tmp_path / "new" / "puddle_world.png"
    assert str(picture) in out
    assert picture.read_bytes().startswith(PNG)
    assert os.listdir(tmp_path / "new") == ["puddle_world.png"]
    assert err == ""


def test_a_wrong_option_is_a_usage_error_on_standard_error():
    done = run("demo", "--runs", "0")
    assert done.returncode == 2
    assert "Invalid value for '--runs'" in done.stderr
    assert done.stdout == ""


def test_a_folder_that_cannot_be_made_is_one_line_and_no_traceback(tmp_path):
    (tmp_path / "file").write_text("")
    done = run("demo", "-o", str(tmp_path / "file" / "folder"))
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.strip().splitlines()) == 1


def test_help_says_what_it_is_for_and_gives_an_example():
    out = run("--help").stdout
    assert "Learn decision policies from logs" in out
    assert "..." not in out.partition("Commands:")[2]  # each is summed up in a line
    assert "Example: kbrl demo" in run("demo", "--help").stdout


def test_help_lists_each_option_once_below_its_heading():
    fit = commands.get_command(click.Context(commands), "fit")
    found = options_by_heading(fit, click.Context(fit))
    assert list(found) == [
        "Options",
        "Columns of the log",
        "How the log is written",
        "What values mean",
        "Settings of the model",
        "Settings that few people change",
    ]
    names = [name.split()[0].strip(",") for rows in found.values() for name, _ in rows]
    assert len(names) == len(set(names)) == len(fit.get_params(click.Context(fit))) - 1  # the LOG is no option
    assert any(name.startswith("--grow-distance") for name, _ in found["Settings that few people change"])


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    target = tmp_path / "model.bin"
    target.write_bytes(b"old")

    def write_half():
        with written_beside(target) as beside:
            Path(beside).write_bytes(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_half()
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.bin"]


def test_a_good_write_takes_the_place_of_the_old_file(tmp_path):
    target = tmp_path / "model.bin"
    target.write_bytes(b"old")
    with written_beside(target) as beside:
        Path(beside).write_bytes(b"new")
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["model.bin"]


def test_tasks_are_listed_with_their_test_sets(capsys):
    main(["tasks"])
    out = capsys.readouterr().out
    assert "PuddleWorld" in out
    assert "paper (13)" in out


def test_a_log_is_collected_and_the_same_seed_gives_the_same_file(tmp_path, capsys):
    for name in ("one.csv", "two.csv"):
        main(["collect", "puddleworld", "-n", "500", "-o", str(tmp_path / name), "--set", "goal=square"])
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    assert len((tmp_path / "one.csv").read_text().splitlines()) == 501
    assert "goal='square'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["collect", "Chess", "-o", "x.csv"], 2, "There is no task 'Chess'"),
        (["collect", "PuddleWorld", "-n", "0", "-o", "x.csv"], 2, "0 is not in the range"),
        (["collect", "PuddleWorld", "-o", "x.txt"], 2, "written as .csv, .parquet, .arrow or .npz"),
        (["collect", "PuddleWorld", "-o", "x.csv", "--set", "goal=circle"], 2, "goal must be one of"),
        (
            ["collect", "PuddleWorld", "-o", "x.csv", "--set", "gaol=square"],
            2,
            "no option gaol. Its options are noise, goal, overlap",
        ),
        (["collect", "PuddleWorld", "-o", "x.csv", "--set", "goal"], 2, "--set takes NAME=VALUE"),
        (["collect", "PuddleWorld", "-o", "no/such/folder/x.csv"], 1, "There is no folder no/such/folder."),
    ],
)
def test_what_cannot_be_collected_is_said(arguments, status, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == status
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_good_log_is_found_good_and_a_bad_one_is_not(tmp_path, capsys):
    main(["collect", "puddleworld", "-n", "300", "-o", str(tmp_path / "good.csv")])
    main(["check", str(tmp_path / "good.csv")])
    assert "300 rows" in capsys.readouterr().out
    (tmp_path / "bad.csv").write_text("episode_id,step,observation_x,action,reward\n0,0,two,go,1\n0,1,2,go,1\n")
    with pytest.raises(SystemExit) as stop:
        main(["check", str(tmp_path / "bad.csv"), "--json"])
    assert stop.value.code == 1
    faults = {fault["name"] for fault in json.loads(capsys.readouterr().out)["faults"]}
    assert "not_a_number" in faults
