"""Whatever a log holds, the files that commands write are private, and what others wrote stays text in them."""

import csv
import os
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
