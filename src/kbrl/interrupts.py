"""Ctrl-C that is not lost.

Python forgets an exception that is raised while a C library calls back into it, as LLVM does when kernels are
compiled.  So it is also written down, and raised again between parts of the work and before a file is replaced.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_was_pressed = threading.Event()


@contextmanager
def remembered() -> Iterator[None]:
    """Write Ctrl-C down as long as this lasts."""
    _was_pressed.clear()
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(signal.SIGINT, _remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def stop_if_asked() -> None:
    """Stop if Ctrl-C was pressed, and nobody noticed."""
    if _was_pressed.is_set():
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    _was_pressed.set()
    raise KeyboardInterrupt
