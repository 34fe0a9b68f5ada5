"""Files that others may have written are read with care, and our own are written whole or not at all.

Written: beside the target, and renamed.  A crash or a full disk leaves the old file whole.  What a killed process left
beside it is removed when the same
file is next written: a file that is being written is locked, a forgotten one is not.  Where
the system has no such locks (Windows), nothing is swept.  A new file can be read by its owner alone: models and reports
hold parts of logs.  A file that is replaced keeps its mode.

Ctrl-C is not lost: Python forgets an exception that is raised while a C library calls back into it, as LLVM does when
kernels are compiled.  So it is also written down, and raised again between parts of the work and before a file is
replaced.

Read: a small file can state a large array, so sizes are checked before memory is taken.  One part of a file may need at
most the limit, 1 GB by default, or twenty times the bytes that the file really has, whichever is more.  The limit is
raised by ``kbrl --memory-limit 8GB``, or by the environment variable KBRL_MEMORY_LIMIT, which workers inherit.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from types import FrameType

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LONGEST_STEM = 150  # bytes, of a name beside; most file systems allow 255 for all of it
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # some file systems cannot sync a folder


replaced: list[Path] = []  # the files that this process has put in their places, the last one at the end

_was_pressed = threading.Event()
_holders: list[int] = []  # one entry for each part of the work that must not be interrupted

VARIABLE = "KBRL_MEMORY_LIMIT"
DEFAULT = 10**9
EXPANSION = 20  # what compression may gain before it looks like an attack
MOST_EXPANSION = 2000  # for data that are read piece by piece, and only cost time; deflate gains 1032 at most
FREE_BYTES = 1 << 20  # which any file may ask for
_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]b|)\s*", re.IGNORECASE)


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
        _refuse_planted(target)
        target = Path(os.path.realpath(target))
    if target.is_dir():
        raise _refused(IsADirectoryError, errno.EISDIR, f"{target} is a folder. Name a file in it")
    if target.exists() and not target.is_file():  # a device or a pipe would be replaced, not written to
        raise _refused(OSError, errno.EINVAL, f"{target} is a device or a pipe. Name an ordinary file")
    if not target.parent.is_dir():
        raise _refused(FileNotFoundError, errno.ENOENT, f"There is no folder {target.parent}. Make it, or name another")
    return target


def _refuse_planted(link: Path) -> None:
    """Refuse a link that another user put into a folder where all may write, such as /tmp; Linux has the same rule."""
    folder, owner = os.stat(link.parent), os.lstat(link).st_uid
    is_shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if is_shared and hasattr(os, "geteuid") and owner not in (os.geteuid(), folder.st_uid):
        message = f"{link} is a link of another user in a folder where all may write. Name another file"
        raise _refused(PermissionError, errno.EACCES, message)


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


@contextmanager
def kept_for_us(path: str | os.PathLike[str]) -> Iterator[Callable[[], None]]:
    """Keep a file that is read, changed and written again from a second such process meanwhile.

    Yields a check to be called before the file is replaced: others may replace it without asking.  Two processes that
    both add to what they have read would lose what one of them has added.
    """
    check_ordinary(path)
    with ExitStack() as stack:
        before = os.stat(path)
        if fcntl is not None:  # Windows cannot replace a file that is open
            file = stack.enter_context(open(path, "rb"))
            _lock_at_once(file.fileno(), path)
            before = os.fstat(file.fileno())

        def check() -> None:
            if not Path(path).exists() or not os.path.samestat(before, os.stat(path)):
                raise _busy(f"{path} was replaced by another process meanwhile")

        check()
        yield check


def _lock_at_once(descriptor: int, path: str | os.PathLike[str]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _busy(f"{path} is being changed by another process") from None
    except OSError:  # a file system without locks
        pass


def _busy(what: str) -> OSError:
    return _refused(OSError, errno.EBUSY, f"{what}. Nothing was written. Repeat the command when it is done")


@contextmanager
def remembered() -> Iterator[None]:
    """Write Ctrl-C down as long as this lasts."""
    _was_pressed.clear()
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    before, hook = signal.signal(signal.SIGINT, _remember), sys.unraisablehook
    sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, KeyboardInterrupt) else hook(lost)
    try:
        yield
    finally:
        _was_pressed.clear()
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, before)


@contextmanager
def held() -> Iterator[None]:
    """Keep Ctrl-C back until this is done; only as long as it is `remembered`, and in the main thread."""
    _holders.append(1)
    try:
        yield
    finally:
        _holders.pop()
    if threading.current_thread() is threading.main_thread() and not _holders:
        stop_if_asked()


def stop_if_asked() -> None:
    """Stop if Ctrl-C was pressed, and nobody noticed."""
    if _was_pressed.is_set():
        raise KeyboardInterrupt


def unseen(name: str, n_rows: int) -> Callable[[int], None]:
    """Start a part of the work, of ``n_rows``, that shows no progress; each step stops if asked."""
    stop_if_asked()
    return lambda n_done: stop_if_asked()


def _remember(number: int, frame: FrameType | None) -> None:
    _was_pressed.set()
    if not _holders:
        raise KeyboardInterrupt


def parse_size(text: str) -> int:
    """Return a number of bytes.

    >>> parse_size("8GB"), parse_size("512 MB"), parse_size("1000")
    (8000000000, 512000000, 1000)
    """
    found = _SIZE.fullmatch(text)
    n_bytes = float(found[1]) * _UNITS[found[2].lower()] if found else 0.0
    if not 0 < n_bytes < float("inf"):
        raise ValueError(f"A size must be a number of bytes above 0, such as 500MB or 8GB, but it is {text!r}.")
    return int(n_bytes)


def memory_limit() -> int:
    """Return how many bytes one part of a file may need, however small the file is."""
    text = os.environ.get(VARIABLE)
    try:
        return DEFAULT if text is None else parse_size(text)
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from None


def allowed_bytes(path: str | os.PathLike[str]) -> int:
    """Return how many bytes of memory one part of this file may need."""
    return max(memory_limit(), EXPANSION * bytes_on_disk(path))


def bytes_on_disk(path: str | os.PathLike[str]) -> int:
    """Return how many bytes a file really has; what a hole stands for takes no room on the disk."""
    found = os.stat(path)
    blocks = getattr(found, "st_blocks", None)  # Windows has none
    if blocks is None:
        return found.st_size
    if blocks < 2 and hasattr(os, "SEEK_DATA"):  # ZFS counts blocks seconds later, and some network drives never do
        return _bytes_outside_holes(path)
    return min(found.st_size, 512 * blocks)


def _bytes_outside_holes(path: str | os.PathLike[str]) -> int:
    """Return how many bytes of a file are not in holes; those of its first thousand parts."""
    n_bytes = end = 0
    with suppress(OSError), open(path, "rb") as file:  # an error tells that no data follow
        for _ in range(1000):
            start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            n_bytes += end - start
    return n_bytes


def too_large(path: str | os.PathLike[str], what: str, n_bytes: int) -> str | None:
    """Return what is wrong with a part of a file that asks for this many bytes; None if it may have them."""
    if n_bytes <= FREE_BYTES or n_bytes <= allowed_bytes(path):
        return None
    return (
        f"{what} asks for {shown(n_bytes)} of memory, but the file has {shown(bytes_on_disk(path))}, and the limit is "
        f"{shown(allowed_bytes(path))}"
    )


def too_empty(path: str | os.PathLike[str], what: str, n_bytes: int, n_stored: int) -> str | None:
    """Return what is wrong with data that state far more bytes than the file stores for them; None if they may."""
    raised = memory_limit() if VARIABLE in os.environ else 0
    if n_bytes <= max(FREE_BYTES, MOST_EXPANSION * n_stored, raised):
        return None
    return f"{what} states {shown(n_bytes)}, but the file stores only {shown(n_stored)} for it"


def raise_the_limit() -> str:
    """Say how to raise the limit."""
    return f"If you trust the file, raise the limit: kbrl --memory-limit 8GB, in Python os.environ[{VARIABLE!r}]."


def shown(n_bytes: float) -> str:
    """Return a number of bytes for people.

    >>> shown(999), shown(4_700_000), shown(9e9)
    ('999 bytes', '4.7 MB', '9 GB')
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:,.3g} TB"


def check_ordinary(path: str | os.PathLike[str]) -> None:
    """Refuse a pipe or a device, from which reading might never end; what is not there is left to whoever opens it."""
    if Path(path).exists() and not stat.S_ISREG(os.stat(path).st_mode) and not Path(path).is_dir():
        raise OSError(f"{os.fspath(path)} is a pipe or a device. Save its contents to an ordinary file first.")
