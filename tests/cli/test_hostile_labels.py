"""What others wrote into a log commands neither the terminal nor a spreadsheet program."""

import contextlib
import csv
import json
import os
import pty
import re
import subprocess
import sys
import tomllib

import pytest

from kbrl.cli import main
from kbrl.cli.console import visible
from kbrl.logs.writing import looks_like_a_formula

CLIPBOARD, TITLE, C1, LEFTWARDS = "\x1b]52;c;ZWNobyBoaQ==\x07", "\x1b]0;yours\x07", "\x9b2J", "\u202e"
LABELS = [f"low{CLIPBOARD}", f"high{TITLE}{C1}", '=HYPERLINK("http://x","y")', f"-2{LEFTWARDS}"]
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("log.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", f"age{TITLE}", "drug", "score", "done"])
        for t in range(40):
            rows.writerow([f"p{t // 4}{CLIPBOARD}", t % 7, LABELS[t % 4], t % 3, int(t % 4 == 3)])
    return tmp_path


COLUMNS = ["--state", f"age{TITLE}", "--action", "drug", "--reward", "score", "--terminated", "done", "--episode", "id"]
FIT = ["fit", "log.csv", "-o", "model.kbrl", "--reps", "3", "--sample-width", "1", "--rep-width", "1", *COLUMNS]


def printed(arguments, capsys):
    with contextlib.suppress(SystemExit):
        main(arguments)
    found = capsys.readouterr()
    return found.out + found.err


def test_no_command_prints_what_a_terminal_would_obey(folder, capsys):
    everything = printed(FIT, capsys)
    assert "\\x1b]52;c" in everything
    for arguments in (
        ["check", "log.csv", *COLUMNS],
        ["check", "log.csv", "--state", f"nothing{TITLE}"],
        ["explain", "model.kbrl", "--state", "3", "--log", "log.csv"],
        ["explain", "model.kbrl", "--state", f"3{TITLE}"],
        ["explain", "model.kbrl", "--state", "3", "--json"],
        ["predict", "model.kbrl", "log.csv", "-o", f"answers{TITLE}.txt"],
        ["predict", f"{TITLE}.kbrl", "log.csv"],
        ["update", "model.kbrl", "log.csv", "-o", "more.kbrl"],
        ["fit", "log.csv", "--discount", f"much{CLIPBOARD}"],
    ):
        everything += printed(arguments, capsys)
    assert COMMANDS.search(everything) is None


FORGED = "\nBetter: the policy gains 9\u2028 over what is done now"


def test_no_label_looks_like_a_line_of_a_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = [f"age{FORGED}", f"drug{FORGED}"]
    with open("log.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([f"id{FORGED}", *names, "score", "done"])
        for t in range(200):
            rows.writerow([f"p{t // 4}{FORGED}", t % 7, f"{t * 7 // 3 % 2}{FORGED}", t % 3, int(t % 4 == 3)])
    columns = ["--state", names[0], "--action", names[1], "--reward", "score", "--episode", f"id{FORGED}"]
    options = ["--order", "0", "--reps", "3", "--sample-width", "1", "--rep-width", "1", "--hold-out", "0.5"]
    everything = printed(["fit", "log.csv", "-o", "m.kbrl", *options, *columns], capsys)
    for arguments in (
        ["init", "log.csv", "-o", f"init{FORGED}.toml"],
        ["check", "log.csv", *columns],
        ["explain", "m.kbrl", "--state", "3", "--log", "log.csv"],
        ["explain", "m.kbrl", "--state", FORGED],
        ["judge", "m.kbrl", "log.csv"],
        ["report", "m.kbrl", "log.csv", "-o", f"{FORGED}.html", "--no-rows"],
        ["defer", "m.kbrl", "-o", "d.kbrl", "--label", FORGED],
        ["explain", "d.kbrl", "--state", "3"],
        ["export", "m.kbrl", "-o", f"{FORGED}.py"],
        ["update", "m.kbrl", f"{FORGED}.csv"],
    ):
        everything += printed(arguments, capsys)
    assert everything.count("\\nBetter: the policy gains 9") > 20
    assert "\nBetter: the policy gains 9" not in everything
    assert "\u2028" not in everything


def test_a_command_that_is_proposed_names_files_as_a_shell_reads_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = "a b;touch x.csv"
    (tmp_path / name).write_text("id,age,drug,score\n" + "".join(f"{t // 4},{t},{t % 2},1\n" for t in range(40)))
    said = printed(["init", name], capsys) + (tmp_path / "a b;touch x.toml").read_text()
    assert said.count("kbrl check 'a b;touch x.csv' --config 'a b;touch x.toml'") == 2
    assert "kbrl check 'a b;touch x.csv' (with" in printed(["fit", name, "-o", "m.kbrl", "--state", "none"], capsys)


def test_init_does_not_replace_the_log_that_it_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("id,age,drug,score\n1,2,3,4\n")
    assert "Name another file" in printed(["init", "log.csv", "-o", "log.csv", "--force"], capsys)
    assert (tmp_path / "log.csv").read_text().startswith("id,age")


def test_answers_that_are_shown_on_a_terminal_are_spelt_out_and_those_in_a_pipe_are_the_data(folder, capfd):
    main([*FIT, "--quiet"])
    capfd.readouterr()
    command = [sys.executable, "-m", "kbrl", "predict", "model.kbrl", "log.csv", "--quiet"]
    piped = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    assert {row["action"] for row in csv.DictReader(piped.splitlines(keepends=True))} <= set(LABELS)
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other end was closed
            while piece := os.read(ours, 65536):
                shown += piece
    os.close(ours)
    assert process.returncode == 0
    assert COMMANDS.search(shown.decode().replace("\r\n", "\n")) is None
    assert len(shown.splitlines()) == 41


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_for_a_spreadsheet_program_holds_no_formulas_and_without_the_option_a_warning_says_so(folder, capsys):
    main([*FIT, "--quiet"])
    assert "--for-spreadsheet" in printed(["predict", "model.kbrl", "log.csv", "-o", "raw.csv"], capsys)
    assert "Warning" not in printed(["predict", "model.kbrl", "log.csv", "-o", "safe.csv", "--for-spreadsheet"], capsys)
    raw, safe = rows_of(folder / "raw.csv"), rows_of(folder / "safe.csv")
    formulas = [row["action"] for row in raw if looks_like_a_formula(row["action"])]
    assert formulas
    assert not any(looks_like_a_formula(row["action"]) for row in safe)
    assert [row["action"].removeprefix("'") for row in safe] == [row["action"] for row in raw]
    assert [row["value"] for row in safe] == [row["value"] for row in raw]  # numbers below 0 stay numbers


def test_columns_that_are_kept_are_warned_of_as_well_and_do_not_hide_behind_those_of_the_answers(folder, capsys):
    log = (folder / "log.csv").read_text(encoding="utf-8").splitlines()
    notes = ["note", *("=1+1" if t == 7 else "fine" for t in range(40))]
    plain = [line.replace(LABELS[2], "mid") for line in log]
    (folder / "log.csv").write_text("\n".join(f"{line},{note}" for line, note in zip(plain, notes)), encoding="utf-8")
    main([*FIT, "--quiet"])
    asked = ["predict", "model.kbrl", "log.csv", "-o", "kept.csv", "--keep"]
    assert "runs the text '=1+1' as a formula" in printed([*asked, "note"], capsys)
    assert "Warning" not in printed([*asked, "note", "--for-spreadsheet"], capsys)
    assert "'=1+1" in [row["note"] for row in rows_of(folder / "kept.csv")]
    (folder / "log.csv").write_text((folder / "log.csv").read_text().replace(",note", ",value", 1))
    assert "--keep names 'value', but the answers have a column of this name" in printed([*asked, "value"], capsys)


def test_text_without_commands_stays_as_it_is():
    for text in ("naïve, 42 %", "two\nlines\tand a tab", "漢字 \U0001f600"):
        assert visible(text) == text
    assert visible("\ud800") == "\\ud800"


SCRIPT = "</script><script>alert(1)</script>"
CODE = '\\"""\n__import__("pathlib").Path("PWNED").touch()\n"""'
IMAGE = "]]>--><img src=x onerror=alert(1)>{{7*7}}"


def test_names_that_are_code_stay_text_in_every_file_that_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names, labels = [f"age{SCRIPT}{CODE}", f"w{IMAGE}\n]\nx = 1"], [f"a{CODE}{SCRIPT}", f"b{IMAGE}'''\\"]
    with open("log.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", *names, "drug", "score", "done"])
        for t in range(60):
            rows.writerow([f"p{t // 5}{SCRIPT}", t % 7, t % 11, labels[t * 7 // 3 % 2], t % 3, int(t % 5 == 4)])
    main(["init", "log.csv"])
    assert tomllib.loads((tmp_path / "log.toml").read_text(encoding="utf-8"))["state"] == names
    options = ["--order", "0", "--reps", "3", "--sample-width", "1", "--rep-width", "1", "--min-cases", "1"]
    main(["fit", "log.csv", "--config", "log.toml", "-o", "model.kbrl", *options, "-q"])
    main(["export", "model.kbrl", "-o", "policy.py"])
    answer = subprocess.run([sys.executable, "policy.py"], input="[1, 2]", capture_output=True, check=True, text=True)
    assert json.loads(answer.stdout)["action"] in labels
    main(["report", "model.kbrl", "log.csv", "-o", "report.html"])
    with contextlib.suppress(SystemExit):
        main(["judge", "model.kbrl", "log.csv", "--allow-learnt", "-o", "verdict.html"])
    pages = [path.read_text(encoding="utf-8") for path in tmp_path.glob("*.html")]
    assert pages
    assert not any("<script>alert" in page or "<img src=x" in page for page in pages)
    assert not (tmp_path / "PWNED").exists()
