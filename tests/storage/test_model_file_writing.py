"""Saving a model: kills, full disks, two writers at once."""

import errno
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from kbrl.storage import model_file
from kbrl.storage.model_file import load_model, save_model
from storage.saved_models import (
    LATER,
    LOG,
    fitted,
    small_file,
)

KILLS = """
import json, os, random, signal, sys, time
import numpy as np
from kbrl import KBSF, Transitions
from kbrl.storage.model_file import load_model, save_model
folder, n_kills = sys.argv[1], int(sys.argv[2])
path, rng = os.path.join(folder, "model.kbrl"), np.random.default_rng(0)
def model(n):
    s = rng.random((n, 2))
    return KBSF(reps=rng.random((400, 2)), n_jobs=1).fit(Transitions(s, np.arange(n) % 2, s[:, 0], rng.random((n, 2))))
old, new = model(50), model(60)
save_model(old, path)
def save_in_child(model):
    child = os.fork()
    if child == 0:
        save_model(model, path)
        os._exit(0)
    return child
start = time.perf_counter()
for _ in range(3):
    os.waitpid(save_in_child(old), 0)
duration = (time.perf_counter() - start) / 3
random.seed(0)
found, litter = {50: 0, 60: 0}, 0
for kill in range(n_kills):
    child = save_in_child((new, old)[kill % 2])
    time.sleep(random.random() * 1.2 * duration)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    litter += len(os.listdir(folder)) > 1
    found[load_model(path).n_samples] += 1
save_model(new, path)
print(json.dumps({"found": sum(found.values()), "old": found[50], "new": found[60], "litter": litter,
                  "left": os.listdir(folder), "last": load_model(path).n_samples, "seconds": duration}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_a_kill_during_a_save_leaves_the_old_or_the_new_file_and_no_litter_after_the_next_save(tmp_path):
    n_kills = int(os.environ.get("KBRL_KILLS", "40"))
    call = [sys.executable, "-W", "ignore", "-c", KILLS, str(tmp_path), str(n_kills)]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    print(result)
    assert result["found"] == n_kills
    assert result["litter"] > 0  # else no kill came during a save
    assert result["left"] == ["model.kbrl"]
    assert result["last"] == 60


def test_a_full_disk_leaves_the_old_file_whole(tmp_path):
    path, raw = small_file(tmp_path)
    code = (
        "import resource, sys\nfrom kbrl.storage.model_file import load_model, save_model\n"
        f"model = load_model({str(path)!r})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"save_model(model, {str(path)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "The model was not saved: File too large. What was there before is unchanged." in done.stderr
    assert path.read_bytes() == raw
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_an_error_at_any_step_of_a_save_leaves_the_old_file_whole(where, tmp_path, monkeypatch):
    path, raw = small_file(tmp_path)

    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((model_file, "write_sealed") if where == "write" else (os, where)), fail)
    with pytest.raises(OSError, match="The model was not saved: No space left") as caught:
        save_model(fitted(), path)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(path)
    assert path.read_bytes() == raw
    assert os.listdir(tmp_path) == [path.name]


def test_a_folder_that_is_missing_or_cannot_be_written_to_is_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"The model was not saved.*nowhere"):
        save_model(fitted(), tmp_path / "nowhere" / "m")
    path, raw = small_file(tmp_path)

    def refuse_to_create(name, flags, *mode, **more):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))

    with monkeypatch.context() as patched:  # tests may run as root, whom no folder refuses
        patched.setattr(os, "open", refuse_to_create)
        with pytest.raises(PermissionError, match="The model was not saved: Permission denied"):
            save_model(fitted(), path)
    assert path.read_bytes() == raw


def test_a_save_sweeps_only_what_a_dead_save_of_the_same_file_left(tmp_path):
    dead, others = ".m.123-0123abcd.part.kbrl", [".m.x.123-0123abcd.part.kbrl", ".m.123.part.kbrl", ".m.kbrl", "notes"]
    for name in [dead, *others]:
        (tmp_path / name).write_bytes(b"?")
    save_model(fitted(), tmp_path / "m.kbrl")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "m.kbrl"])


def test_a_save_does_not_sweep_one_that_is_going_on(tmp_path, monkeypatch):
    path = Path(tmp_path / "m.kbrl")
    write, first, second = model_file.write_sealed, fitted(), fitted(LATER)

    def write_after_another_save(file, *contents):
        monkeypatch.setattr(model_file, "write_sealed", write)
        save_model(second, path)
        assert load_model(path).n_samples == len(LATER)
        write(file, *contents)

    monkeypatch.setattr(model_file, "write_sealed", write_after_another_save)
    save_model(first, path)
    assert load_model(path).n_samples == len(LOG)
    assert os.listdir(tmp_path) == ["m.kbrl"]


def test_saving_twice_gives_the_same_file_and_no_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("one", "two"):
            save_model(fitted(), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
