"""Files are written beside and renamed: a crash or a full disk leaves the old file whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path beside the target to write to; it takes the target's place when all went well, and goes if not."""
    target = Path(path)
    beside = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
    try:
        yield beside
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
