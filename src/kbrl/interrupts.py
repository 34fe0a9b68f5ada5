"""Ctrl-C that is not lost.

Python forgets an exception that is raised while a C library calls back into it, as LLVM does when kernels are
compiled.  So it is also written down, and raised again between parts of the work and before a file is replaced.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_was_pressed = threading.Event()
_holders: list[int] = []  # one entry for each part of the work that must not be interrupted


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


def _remember(number: int, frame: FrameType | None) -> None:
    _was_pressed.set()
    if not _holders:
        raise KeyboardInterrupt
