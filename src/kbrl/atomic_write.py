"""Files are written beside and renamed: a crash or a full disk leaves the old file whole.

What a killed process left beside goes when the same file is next written: a file that is being written is locked,
a forgotten one is not.  Where the system has no such locks (Windows), nothing is swept.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # some file systems cannot sync a folder


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
        os.replace(beside, target)
        _sync_folder(target.parent)
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
        beside = target.with_name(f".{target.stem}.{os.getpid()}-{secrets.token_hex(4)}.part{target.suffix}")
        descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks: then nobody else gets one either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        if beside.exists():
            with suppress(OSError):  # what only its owner may read stays so
                os.chmod(beside, stat.S_IMODE(target.stat().st_mode))
            return beside, descriptor
        os.close(descriptor)  # swept by another process before it was locked


def _sweep(target: Path) -> None:
    """Remove what killed processes left beside this target: files of such a name that nobody holds a lock on."""
    if fcntl is None:
        return
    name = re.compile(rf"\.{re.escape(target.stem)}\.\d+-[0-9a-f]{{8}}\.part{re.escape(target.suffix)}")
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


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a loss of power."""
    if fcntl is None:
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
