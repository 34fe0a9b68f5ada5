"""Runs the jobs of a figure: those that are not compared in time side by side, the others one at a time.

Each job has a process of its own, so that its peak memory is its own and a crash takes nothing with it.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import resource
import sys
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib import import_module
from typing import Any

from threadpoolctl import threadpool_limits

from experiments.store import Store
from experiments.study import FigureFile, Job, Row, n_cores, timing
from kbrl import __version__


def figure_file(figure: str) -> FigureFile:
    """Load the file of a figure."""
    module: Any = import_module(f"experiments.{figure}")
    return module


def missing_jobs(figure: str, scale: str, store: Store, with_timed: bool = True) -> list[Job]:
    """Return the jobs that are not done yet, with or without those that run alone."""
    return [job for job in figure_file(figure).jobs(scale) if not store.has(job) and (with_timed or not job.alone)]


def run_figure(figure: str, scale: str, jobs: list[Job], store: Store, step: Callable[[str], None]) -> list[str]:
    """Run jobs and store their rows; ``step`` is told of every job done.  Returns what went wrong."""
    beside, alone = [job for job in jobs if not job.alone], [job for job in jobs if job.alone]
    failures = _run(figure, scale, beside, n_cores(), store, step)
    return failures + _run(figure, scale, alone, 1, store, step)


def _run(
    figure: str, scale: str, jobs: list[Job], n_workers: int, store: Store, step: Callable[[str], None]
) -> list[str]:
    context = multiprocessing.get_context("spawn")
    failures: list[str] = []
    with ProcessPoolExecutor(n_workers, mp_context=context, max_tasks_per_child=1) as pool:
        n_threads = max(1, n_cores() // n_workers)
        running: dict[Future[list[Row]], Job] = {pool.submit(work, figure, scale, job, n_threads): job for job in jobs}
        try:
            while running:
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    job = running.pop(done)
                    error = done.exception()
                    if error is None:
                        store.add(job, done.result())
                    else:
                        failures.append(f"{figure} {job.settings} seed {job.seed}: {type(error).__name__}: {error}")
                    step(f"{figure} {_brief(job)}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(getattr(pool, "_processes", {}).values()):
                process.terminate()
            raise
    return failures


def work(figure: str, scale: str, job: Job, n_threads: int) -> list[Row]:
    """Run one job in this process, BLAS on so many threads, and return its rows with what they were measured by."""
    load = os.getloadavg()[0]
    with threadpool_limits(n_threads), timing() as timer:
        rows = list(figure_file(figure).measure(dict(job.settings), job.seed))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    about = {
        "figure": figure,
        "scale": scale,
        "seed": job.seed,
        "alone": job.alone,
        "load_before": round(load, 2),
        "job_seconds": round(timer.seconds, 3),
        "job_peak_mb": round(peak, 1),
        "version": __version__,
        "python": platform.python_version(),
    }
    return [job.settings | row | about for row in rows]


def _brief(job: Job) -> str:
    settings = " ".join(f"{name}={value}" for name, value in job.settings.items())
    return f"{settings} seed={job.seed}"[:60]
