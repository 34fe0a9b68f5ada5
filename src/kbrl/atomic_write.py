"""Files are written beside and renamed: a crash or a full disk leaves the old file whole.

What a killed process left beside goes when the same file is next written: a file that is being written is locked,
a forgotten one is not.  Where the system has no such locks (Windows), nothing is swept.

A new file can be read by its owner alone: models and reports hold parts of logs.  A file that is replaced keeps its
mode.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from kbrl.interrupts import held

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LONGEST_STEM = 150  # bytes, of a name beside; most file systems allow 255 for all of it
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # some file systems cannot sync a folder


replaced: list[Path] = []  # the files that this process has put in their places, the last one at the end


class NotSyncedError(OSError):
    """The new file is in its place, but the system could not say that it will be there after a loss of power."""


@contextmanager
def written_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path beside the target to write to; on success it replaces the target, on failure it is deleted."""
    target = check_target(path)
    _sweep(target)
    try:
        beside, descriptor = _create_beside(target)
    except OSError as error:  # in the name that the user knows
        raise type(error)(error.errno, error.strerror, str(target)) from None
    try:
        yield beside
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        if fcntl is None:  # Windows renames only what is closed
            os.close(descriptor)
            descriptor = -1
        with held():  # Ctrl-C comes before or after, so that it is known whether the file was replaced
            os.replace(beside, target)
            replaced.append(target)
        _sync_folder(target)
    finally:
        if descriptor >= 0:
            os.close(descriptor)
        beside.unlink(missing_ok=True)


def check_target(path: str | os.PathLike[str]) -> Path:
    """Refuse a path that no file can be written to, before any work is done for it; a link stands for its target."""
    target = Path(path)
    if target.is_symlink():
        target = Path(os.path.realpath(target))
    if target.is_dir():
        raise _refused(IsADirectoryError, errno.EISDIR, f"{target} is a folder. Name a file in it")
    if target.exists() and not target.is_file():  # a device or a pipe would be replaced, not written to
        raise _refused(OSError, errno.EINVAL, f"{target} is a device or a pipe. Name an ordinary file")
    if not target.parent.is_dir():
        raise _refused(FileNotFoundError, errno.ENOENT, f"There is no folder {target.parent}. Make it, or name another")
    return target


def _refused(kind: type[OSError], number: int, message: str) -> OSError:
    error = kind(f"{message}.")
    error.errno = number
    return error


def _create_beside(target: Path) -> tuple[Path, int]:
    """Create a file beside the target and lock it; return its path and the descriptor that holds the lock."""
    while True:
        beside = target.with_name(f".{_stem(target)}.{os.getpid()}-{secrets.token_hex(4)}.part{_suffix(target)}")
        descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            if _is_locked(beside, descriptor, target):
                return beside, descriptor
        except BaseException:  # Ctrl-C: the lock would keep the file from being swept
            os.close(descriptor)
            beside.unlink(missing_ok=True)
            raise
        os.close(descriptor)  # swept by another process before it was locked


def _is_locked(beside: Path, descriptor: int, target: Path) -> bool:
    """Lock a new file and give it the mode of its target; return False if another process has swept it before."""
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks: then nobody else gets one either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    if not beside.exists():
        return False
    with suppress(OSError):  # what only its owner may read stays so
        os.chmod(beside, stat.S_IMODE(target.stat().st_mode))
    return True


def _stem(target: Path) -> str:
    """Return the name of a target without its ending, or a hash of it where a longer name would not be allowed."""
    stem = target.stem
    return stem if len(os.fsencode(stem)) <= _LONGEST_STEM else sha256(os.fsencode(stem)).hexdigest()[:32]


def _suffix(target: Path) -> str:
    """Return the ending of a target, which libraries take for the format; a very long one is none."""
    return target.suffix if len(os.fsencode(target.suffix)) <= 20 else ""


def _sweep(target: Path) -> None:
    """Remove what killed processes left beside this target: files of such a name that nobody holds a lock on."""
    if fcntl is None:
        return
    name = re.compile(rf"\.{re.escape(_stem(target))}\.\d+-[0-9a-f]{{8}}\.part{re.escape(_suffix(target))}")
    with suppress(OSError):
        for leftover in [entry for entry in os.scandir(target.parent) if name.fullmatch(entry.name)]:
            with suppress(OSError):
                _remove_unlocked(leftover.path)


def _remove_unlocked(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(descriptor)


def _sync_folder(target: Path) -> None:
    """Make the rename of a file last through a loss of power."""
    if fcntl is None:
        return
    try:
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            message = f"The new file is in place, but its folder could not be synced ({error.strerror})"
            advice = "After a loss of power, the old file may be back. Check the disk"
            raise NotSyncedError(error.errno, f"{message}. {advice}", str(target)) from None
