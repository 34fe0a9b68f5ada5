"""Threads of our own, and those of BLAS, which must not compete with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

from kbrl.checks import whole


def number_of_jobs(n_jobs: Any) -> int:
    """Return a number of threads; None stands for one per core."""
    if n_jobs is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return whole(n_jobs, "n_jobs")


@cache
def _blas() -> ThreadpoolController:
    """Find the BLAS libraries once: looking for them takes a millisecond."""
    return ThreadpoolController()


_limit_lock = Lock()
_limits: list[Any] = []  # the one limit in force, and how many hold it: threads must not restore each other's


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread until the last of those who ask for it is done."""
    with _limit_lock:
        if not _limits:
            _limits[:] = [_blas().limit(limits=1, user_api="blas"), 0]
        _limits[1] += 1
    try:
        yield
    finally:
        with _limit_lock:
            _limits[1] -= 1
            if _limits[1] == 0:
                _limits[0].restore_original_limits()
                _limits.clear()


def for_each_action(work: Callable[[int], None], n_actions: int, n_jobs: int | None) -> None:
    """Do the work for every action; actions share nothing, so the result does not depend on the number of threads.

    ``n_jobs`` is as in `number_of_jobs`.  BLAS is held to one thread: its own threads would compete with ours on blocks
    that are too small for them.
    """
    n_jobs = number_of_jobs(n_jobs)
    with one_blas_thread():
        if n_jobs == 1 or n_actions == 1:
            for action in range(n_actions):
                work(action)
        else:
            with ThreadPoolExecutor(max_workers=min(n_jobs, n_actions)) as pool:
                list(pool.map(work, range(n_actions)))
