"""Compiled loops, kept in a cache where one can be written, and compiled anew in each process where none can.

numba keeps compiled code beside the source, or in the user's home.  In a container, often neither can be written, and
numba refuses to compile at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numba

from kbrl.checks import KbrlWarning

F = TypeVar("F", bound=Callable[..., Any])
_told: list[bool] = []


def njit(**options: Any) -> Callable[[F], F]:
    """Return numba's decorator with these options; without ``cache`` where no folder can be written."""

    def compiled(function: F) -> F:
        try:
            return numba.njit(**options)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            _tell()
            return numba.njit(**options | {"cache": False})(function)

    return compiled


def lean(**options: Any) -> Callable[[F], F]:
    """Return the decorator of loops that make no arrays, so they need not count who refers to one.

    Counting would take most of the time of small loops.  Dividing by zero gives what NumPy gives.  Options that are not
    given would be those of the loop that happened to be compiled first of those that call this one.
    """
    given = {"cache": True, "nogil": True, "_nrt": False, "error_model": "numpy", "fastmath": False}
    return njit(**given | {"forceinline": False} | options)


def inner(**options: Any) -> Callable[[F], F]:
    """Return the decorator of lean loops that only other loops call, and that become a part of those.

    No entry from Python is compiled.  Calls would cost small loops as much as their work: each array is five numbers.
    """
    return lean(**{"no_cpython_wrapper": True, "forceinline": True} | options)


def _tell() -> None:
    if not _told:
        _told.append(True)
        warnings.warn(
            "Compiled code cannot be kept, as no folder for it can be written: the first answer takes some seconds "
            "longer in each process. To keep it, set NUMBA_CACHE_DIR to a folder that can be written.",
            KbrlWarning,
            stacklevel=3,
        )
