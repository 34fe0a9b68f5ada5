"""How much memory a file may ask for: what somebody else wrote must not fill this machine.

A small file can state a large array.  So sizes are checked before memory is taken: one part of a file may need at most
the limit, 1 GB by default, or twenty times the bytes that the file really has, whichever is more.  The limit is raised
by ``kbrl --memory-limit 8GB``, or by the environment variable KBRL_MEMORY_LIMIT, which workers inherit.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

VARIABLE = "KBRL_MEMORY_LIMIT"
DEFAULT = 10**9
EXPANSION = 20  # what compression may gain before it looks like an attack
MOST_EXPANSION = 2000  # for data that are read piece by piece, and only cost time; deflate gains 1032 at most
FREE_BYTES = 1 << 20  # which any file may ask for
_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]b|)\s*", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return a number of bytes.

    >>> parse_size("8GB"), parse_size("512 MB"), parse_size("1000")
    (8000000000, 512000000, 1000)
    """
    found = _SIZE.fullmatch(text)
    if found is None or float(found[1]) <= 0:
        raise ValueError(f"A size must be a number of bytes above 0, such as 500MB or 8GB, but it is {text!r}.")
    return int(float(found[1]) * _UNITS[found[2].lower()])


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
    return found.st_size if blocks is None else min(found.st_size, 512 * blocks)


def too_large(path: str | os.PathLike[str], what: str, n_bytes: int) -> str | None:
    """Return what is wrong with a part of a file that asks for so many bytes; None if it may have them."""
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
