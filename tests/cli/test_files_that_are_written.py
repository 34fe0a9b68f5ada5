"""Whatever a log holds, the files that commands write are private, and what others wrote stays text in them."""

import csv
import os
import sqlite3
import stat
import tomllib

import pytest

from kbrl.cli import main

SCRIPT = "<script>alert(1)</script>"
IMAGE = "'\"><img src=x onerror=alert(1)>"
INJECTED = 'note\noutput = "stolen.kbrl"\n#'
STATE, EPISODE = f"age {IMAGE}", "patient"
COLUMNS = ["--state", STATE, "--action", "drug", "--reward", "score", "--terminated", "done", "--episode", EPISODE]
QUICK = ["--reps", "4", "--sample-width", "1", "--rep-width", "1", "-q"]
FIT = ["fit", "log.csv", "-o", "m.kbrl", "--hold-out", "0.5", *QUICK]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    with open("log.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([EPISODE, STATE, "drug", "score", "done", INJECTED])
        for t in range(240):
            label = f"low {SCRIPT}" if t * t % 3 else f"high {IMAGE}"
            rows.writerow([f"p{t // 4} {SCRIPT}", t * 7 % 11, label, t % 3, int(t % 4 == 3), "x" * (1 + t % 90)])
    yield tmp_path
    os.umask(before)


def test_a_column_cannot_set_options_in_the_file_that_init_writes(folder, capsys):
    """Its name may hold new lines, and stands in comments."""
    main(["init", "log.csv", "-o", "log.toml"])
    found = tomllib.loads((folder / "log.toml").read_text(encoding="utf-8"))
    assert "output" not in found
    assert "note\\noutput" in (folder / "log.toml").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::kbrl.checks.KbrlWarning")
def test_all_files_are_for_their_owner_alone_and_pages_run_nothing_of_a_log(folder, capsys):
    main([*FIT, *COLUMNS])
    for arguments in (
        ["init", "log.csv", "-o", "log.toml"],
        ["judge", "m.kbrl", "log.csv", "-o", "judged.html", "--sums", "north.sums"],
        ["judge", "north.sums", "-o", "sums.html"],
        ["report", "m.kbrl", "log.csv", "-o", "report.html", "--unit", f"{STATE}={SCRIPT}", "--title", SCRIPT],
        ["defer", "m.kbrl", "-o", "d.kbrl", "--label", f"now {SCRIPT}"],
        ["predict", "d.kbrl", "log.csv", "-o", "answers.csv"],
        ["export", "m.kbrl", "-o", "policy.py"],
    ):
        main(arguments)
    written = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.name != "log.csv"}
    assert len(written) == 9
    assert set(written.values()) == {0o600}, written
    for name in ("judged.html", "sums.html", "report.html"):
        page = (folder / name).read_text(encoding="utf-8")
        assert SCRIPT not in page, name
        assert "<img src=x" not in page, name


@pytest.mark.filterwarnings("ignore::kbrl.checks.KbrlWarning")
def test_no_command_writes_over_a_file_that_it_reads(folder, capsys):
    main([*FIT, *COLUMNS])
    for name in ("north", "south"):
        main(["judge", "m.kbrl", "log.csv", "--sums", f"{name}.sums"])
    with sqlite3.connect("log.db") as connection:
        connection.execute("create table log (age, drug, score, done)")
    connection.close()
    (folder / "fit.toml").write_text("reps = 4\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for arguments in (
        ["judge", "north.sums", "south.sums", "--sums", "north.sums"],
        ["judge", "m.kbrl", "log.csv", "--like", "north.sums", "--sums", "north.sums"],
        ["judge", "m.kbrl", "log.csv", "--like", "north.sums", "-o", "north.sums"],
        ["judge", "m.kbrl", "log.csv", "--sums", "both", "-o", "both"],
        ["fit", "log.csv", *COLUMNS, *QUICK, "--config", "fit.toml", "-o", "fit.toml"],
        ["report", "m.kbrl", "log.csv", "--config", "fit.toml", "-o", "fit.toml"],
        ["fit", "sqlite:log.db?select * from log", *QUICK, "-o", "log.db"],
        ["init", "sqlite:log.db?select * from log", "--force", "-o", "log.db"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2, arguments
        assert "Name " in capsys.readouterr().err
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_demonstration_does_not_write_over_a_table_of_the_same_name(folder, capsys):
    (folder / "ward.csv").write_text("patient,age\n1,61\n")
    with pytest.raises(SystemExit):
        main(["demo", "--only", "table", "-o", "."])
    assert "ward.csv exists, and is not the table of kbrl demo" in capsys.readouterr().err
    assert (folder / "ward.csv").read_text() == "patient,age\n1,61\n"
    for _ in range(2):  # its own may be written again
        main(["demo", "--only", "table", "-o", "new"])


def test_a_pipe_in_the_place_of_a_model_is_not_waited_for(folder, capsys):
    os.mkfifo("pipe")
    for command in ("judge", "update", "predict"):
        with pytest.raises(SystemExit):
            main([command, "pipe", "log.csv"])
        assert "pipe is a " in capsys.readouterr().err
