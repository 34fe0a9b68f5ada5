"""A file is there whole or not at all, who may read it, and what is said if its fate is in doubt."""

import errno
import os
import signal
import stat
from contextlib import nullcontext, suppress

import pytest

from kbrl import KBSF, Transitions, save_model
from kbrl.cli import main
from kbrl.files import held, remembered, written_beside

ROWS = "episode_id,observation_x,action,reward,terminated\n" + "".join(
    f"{t // 4},{t % 7},{'ab'[t % 2]},{t % 3},{int(t % 4 == 3)}\n" for t in range(40)
)
FIT = ["fit", "log.csv", "-o", "model.kbrl", "--reps", "3", "--sample-width", "1", "--rep-width", "1", "-q"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(ROWS)
    return tmp_path


def small_model():
    log = Transitions([[0.0], [1.0]], ["up", "down"], [0.0, 1.0], [[1.0], [0.0]])
    return KBSF(n_reps=2, random_state=0, min_cases=1).fit(log)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_new_files_are_for_their_owner_alone_and_old_ones_keep_their_mode(folder):
    before = os.umask(0o000)
    try:
        main(FIT)
        main(["report", "model.kbrl", "log.csv", "-o", "report.html", "-q"])
        for name in ("answers.csv", "answers.parquet", "answers.npz"):
            main(["predict", "model.kbrl", "log.csv", "-o", name, "-q"])
        made = {path.name: mode(path) for path in folder.iterdir() if path.name != "log.csv"}
        assert made == dict.fromkeys(made, 0o600)
        assert len(made) == 5
        os.chmod("model.kbrl", 0o640)
        main(FIT)
        assert mode("model.kbrl") == 0o640
    finally:
        os.umask(before)


@pytest.mark.parametrize("length", [200, 240, 255])
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path, length):
    path = tmp_path / f"{'m' * (length - 5)}.kbrl"
    save_model(small_model(), path)
    save_model(small_model(), path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_long_name_is_swept_like_a_short_one(tmp_path):
    path = tmp_path / f"{'m' * 240}.kbrl"
    with suppress(ZeroDivisionError), written_beside(path) as beside:
        left = beside.rename(beside.with_name(beside.name.replace(str(os.getpid()), "1")))  # as a killed process does
        raise ZeroDivisionError
    assert left.exists()
    save_model(small_model(), path)
    assert not left.exists()


def test_where_only_the_folder_cannot_be_synced_it_is_said_that_the_new_file_is_there(tmp_path, monkeypatch):
    path, sync = tmp_path / "model.kbrl", os.fsync
    path.write_bytes(b"old")

    def fail_for_folders(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_folders)
    with pytest.raises(OSError, match="The new file is in place") as caught:
        save_model(small_model(), path)
    assert "unchanged" not in str(caught.value)
    assert path.read_bytes() != b"old"


def interrupted(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 130
    return capsys.readouterr().err


def test_ctrl_c_after_the_file_was_replaced_is_told_apart_from_ctrl_c_before(folder, capsys, monkeypatch):
    main(FIT)
    old, replace, sync = (folder / "model.kbrl").read_bytes(), os.replace, os.fsync
    update = ["update", "model.kbrl", "log.csv", "--again", "-q"]

    def press_while_replacing(*arguments):
        replace(*arguments)
        signal.raise_signal(signal.SIGINT)

    def press_before(descriptor):
        signal.raise_signal(signal.SIGINT)
        sync(descriptor)

    capsys.readouterr()
    monkeypatch.setattr(os, "fsync", press_before)
    assert "written" not in interrupted(update, capsys)
    assert (folder / "model.kbrl").read_bytes() == old
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(os, "replace", press_while_replacing)
    assert "model.kbrl had already been written completely: do not repeat the command" in interrupted(update, capsys)
    assert (folder / "model.kbrl").read_bytes() != old
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit):  # and whoever repeats it all the same is refused
        main(["update", "model.kbrl", "log.csv", "-q"])
    assert "They would count twice" in capsys.readouterr().err


def test_ctrl_c_waits_for_what_must_not_be_cut():
    done = []

    def work():
        with remembered():
            with held():
                signal.raise_signal(signal.SIGINT)
                done.append("the rename")
            done.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rename"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can make links of other users")
@pytest.mark.parametrize(
    "folder_mode, link_owner, is_refused", [(0o1777, 4242, True), (0o1777, 0, False), (0o755, 4242, False)]
)
def test_a_link_that_another_user_put_into_a_shared_folder_is_not_followed(folder, folder_mode, link_owner, is_refused):
    shared, mine = folder / "shared", folder / "mine.txt"
    shared.mkdir()
    shared.chmod(folder_mode)
    mine.write_text("mine")
    (shared / "model.kbrl").symlink_to(mine)
    os.chown(shared / "model.kbrl", link_owner, -1, follow_symlinks=False)
    with pytest.raises(PermissionError, match="a link of another user") if is_refused else nullcontext():
        save_model(small_model(), shared / "model.kbrl")
    assert (mine.read_bytes() == b"mine") == is_refused
