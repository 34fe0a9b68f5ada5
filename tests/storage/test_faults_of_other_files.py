"""Each step of a command that writes sums, a page or a model fails once: the old file or the new one is there."""

import contextlib
import errno
import os

import pytest

from kbrl.cli import main
from storage.test_faults_at_every_step import HEADER, STEPS, Counter, fail, interrupt

ROWS = [f"{t // 4},{t * 7 % 11},{'ab'[t * t % 3 % 2]},{t % 3},{int(t % 4 == 3)}\n" for t in range(240)]
QUICK = ["--reps", "3", "--sample-width", "1", "--rep-width", "1", "-q"]
FIT = ["fit", "log.csv", "-o", "m.kbrl", "--hold-out", "0.5", *QUICK]
COMMANDS = {
    "judge --sums": (["judge", "m.kbrl", "log.csv", "-q", "--sums", "out.sums"], "out.sums"),
    "judge -o": (["judge", "m.kbrl", "log.csv", "-q", "-o", "out.html"], "out.html"),
    "report -o": (["report", "m.kbrl", "log.csv", "-q", "-o", "out.html"], "out.html"),
    "defer": (["defer", "m.kbrl", "-o", "out.kbrl"], "out.kbrl"),
    "init": (["init", "log.csv", "-o", "out.toml", "--force"], "out.toml"),
    "export": (["export", "m.kbrl", "-o", "out.py"], "out.py"),
}
OLD = b"what was there before"


@pytest.mark.filterwarnings("ignore::kbrl.checks.KbrlWarning")
@pytest.mark.parametrize("command, fault", [*((name, fail) for name in COMMANDS), ("judge --sums", interrupt)])
def test_a_file_is_old_or_new_whichever_step_fails(tmp_path, monkeypatch, capsys, command, fault):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(HEADER + "".join(ROWS))
    main(FIT)
    arguments, name = COMMANDS[command]
    main(arguments)
    new, path = (tmp_path / name).read_bytes(), tmp_path / name
    for fails_at in range(1, 50):
        path.write_bytes(OLD)
        with monkeypatch.context() as patched:
            counter = Counter(fails_at, fault)
            for step in STEPS:
                watched = counter.before(getattr(os, step)) if step != "open" else only_ours(counter)
                patched.setattr(os, step, watched)
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                main(arguments)
        assert path.read_bytes() in (OLD, new)
        if counter.n_steps < fails_at:
            break
    assert fails_at > 4
    assert path.read_bytes() == new
    litter = {entry.name for entry in tmp_path.iterdir()} - {"log.csv", "m.kbrl", name}
    assert not litter


def only_ours(counter, opened=os.open):
    """Count the files that are opened to be written beside."""

    def counting(path, *more, **named):
        if ".part" in os.fspath(path):
            counter.step()
        return opened(path, *more, **named)

    return counting


def test_a_full_disk_is_named_and_leaves_the_old_sums(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(HEADER + "".join(ROWS))
    main(FIT)
    (tmp_path / "out.sums").write_bytes(OLD)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemExit) as stop:
        main(["judge", "m.kbrl", "log.csv", "-q", "--sums", "out.sums"])
    assert stop.value.code == 1
    assert "No space left" in capsys.readouterr().err
    assert (tmp_path / "out.sums").read_bytes() == OLD
