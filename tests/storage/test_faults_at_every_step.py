"""Each write, sync and rename of a save and of an update fails once: the old file or the new one is there, whole."""

import builtins
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

from kbrl.cli import main
from kbrl.storage import model_file
from kbrl.storage.model_file import load_model, save_model
from storage.saved_models import LATER, fitted

STEPS = ("open", "fsync", "replace", "chmod")
MOST_STEPS = 200
ROWS = [f"{t // 4},{t % 7},{'ab'[t % 2]},{t % 3},{int(t % 4 == 3)}\n" for t in range(80)]
HEADER = "episode_id,observation_x,action,reward,terminated\n"


class Counter:
    """Counts the steps of a save, and lets one of them fail."""

    def __init__(self, fails_at: int, fault: Callable[[], None]) -> None:
        self.n_steps, self._fails_at, self._fault = 0, fails_at, fault

    def step(self) -> None:
        self.n_steps += 1
        if self.n_steps == self._fails_at:
            self._fault()

    def before(self, function):
        def counted(*arguments, **more):
            self.step()
            return function(*arguments, **more)

        return counted

    def open(self, path, mode="r", *more, **named):
        file = builtins.open(path, mode, *more, **named)  # noqa: SIM115
        return Writing(file, self) if "w" in mode else file


class Writing:
    """A file each of whose writes is a step."""

    def __init__(self, file, counter: Counter) -> None:
        self._file, self._counter = file, counter

    def write(self, data):
        self._counter.step()
        return self._file.write(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()


def watched(monkeypatch, fails_at, fault):
    counter = Counter(fails_at, fault)
    for name in STEPS:
        monkeypatch.setattr(os, name, counter.before(getattr(os, name)))
    monkeypatch.setattr(model_file, "open", counter.open, raising=False)
    return counter


def fail():
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def interrupt():
    raise KeyboardInterrupt


def outcomes(work, path, monkeypatch, fault):
    """Yield what is said and what is in the file after each step of ``work`` has failed once."""
    old = path.read_bytes()
    for fails_at in range(1, MOST_STEPS):
        with monkeypatch.context() as patched:
            counter = watched(patched, fails_at, fault)
            said = ""
            try:
                work()
            except (OSError, KeyboardInterrupt) as error:
                said = str(error)
            n_steps = counter.n_steps
        if n_steps < fails_at:
            return
        yield said, old, path.read_bytes()
        path.write_bytes(old)
    raise AssertionError("the work has more steps than it should")


@pytest.mark.parametrize("fault", [fail, interrupt], ids=["error", "Ctrl-C"])
def test_a_save_leaves_the_old_file_or_the_new_one_and_says_which(tmp_path, monkeypatch, fault):
    path, other = tmp_path / "model.kbrl", tmp_path / "new.kbrl"
    save_model(fitted(), path)
    model = fitted(LATER)
    save_model(model, other)
    n_faults = 0
    for said, old, found in outcomes(lambda: save_model(model, path), path, monkeypatch, fault):
        assert found in (old, other.read_bytes())
        if "unchanged" in said:
            assert found == old
        if "in place" in said:
            assert found == other.read_bytes()
        n_faults += 1
    assert n_faults > 10
    save_model(model, path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model.kbrl", "new.kbrl"]


def test_an_update_leaves_the_old_model_or_the_new_one_and_a_repeat_is_refused_after_the_new_one(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.csv").write_text(HEADER + "".join(ROWS[:40]))
    (tmp_path / "two.csv").write_text(HEADER + "".join(row.replace(",", "9,", 1) for row in ROWS[40:]))
    main(["fit", "one.csv", "-o", "m.kbrl", "--reps", "3", "--sample-width", "1", "--rep-width", "1", "-q"])
    main(["update", "m.kbrl", "two.csv", "-o", "new.kbrl", "-q"])
    new, path = (tmp_path / "new.kbrl").read_bytes(), tmp_path / "m.kbrl"

    def update():
        with suppress(SystemExit):
            main(["update", "m.kbrl", "two.csv", "-q"])

    n_new = 0
    for _, old, found in outcomes(update, path, monkeypatch, fail):
        assert found in (old, new)
        if found == new:
            n_new += 1
            capsys.readouterr()
            update()
            assert path.read_bytes() == new  # nothing counts twice
            assert "They would count twice" in capsys.readouterr().err
    assert n_new > 0


KILLED = """
import os, signal, sys
sys.path[:0] = sys.argv[3:]
from kbrl.storage import model_file
from storage.test_faults_at_every_step import STEPS, Counter
path, fails_at = sys.argv[1], int(sys.argv[2])
model = model_file.load_model(path)
for fails_at in range(1, 100):
    child = os.fork()
    if child == 0:
        counter = Counter(fails_at, lambda: os.kill(os.getpid(), signal.SIGKILL))
        for name in STEPS:
            setattr(os, name, counter.before(getattr(os, name)))
        model_file.open = counter.open
        model_file.save_model(model, path)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    model_file.load_model(path)
    if status == 0:
        print(fails_at - 1)
        break
"""


def test_a_kill_at_any_step_of_a_save_leaves_a_model_that_loads(tmp_path):
    path = tmp_path / "model.kbrl"
    save_model(fitted(), path)
    where = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), os.path.dirname(os.path.dirname(__file__))]
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), "1", *where], capture_output=True, text=True)
    assert int(done.stdout) > 10, done.stderr
    save_model(load_model(path), path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.kbrl"]
