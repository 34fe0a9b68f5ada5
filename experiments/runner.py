"""Runs jobs: those that are not compared in time side by side, then the others, one at a time.

Jobs side by side share processes, because loading and compiling takes longer than many of them.  A job whose time or
memory counts has a process of its own.  Jobs go round by round: the first seeds of all settings, then the second, so
that an interrupted study has about as many runs of each.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import resource
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from importlib import import_module
from time import perf_counter
from typing import Any

from threadpoolctl import threadpool_limits

from experiments.claims import CLAIMS
from experiments.needs import fits, rests_on
from experiments.store import Store
from experiments.study import FigureFile, Job, Row, Settings, n_cores, timing
from kbrl import __version__

TASKS_PER_PROCESS = 50  # after so many jobs, memory that they left behind goes with their process


def figure_file(figure: str) -> FigureFile:
    """Load the file of a figure."""
    module: Any = import_module(f"experiments.{figure}")
    return module


@dataclass(frozen=True)
class Task:
    """A job of a figure that is to be run, and about how long it will take."""

    figure: str
    job: Job
    seconds: float

    def __str__(self) -> str:
        settings = " ".join(str(value) for name, value in self.job.settings.items() if name != "size")
        return f"{self.figure} {settings} seed {self.job.seed}"[:60]


def missing_tasks(
    stores: dict[str, Store],
    scale: str,
    *,
    with_timed: bool = True,
    at_most: float | None = None,
    claims: Collection[str] = (),
    n_runs: int | None = None,
) -> list[Task]:
    """Return what is not done yet, in the order of running: first what runs side by side, round by round.

    ``with_timed``: also what runs alone.  ``at_most``: only what is expected to take at most so many seconds.
    ``claims``: only what one of them rests on.  ``n_runs``: only the first so many runs of each kind.
    """
    found: list[tuple[bool, int, Task]] = []
    for figure, store in stores.items():
        measured, rounds = _measured_seconds(store), defaultdict[str, int](int)
        for job in figure_file(figure).jobs(scale):
            kind = _kind(job.settings)
            rounds[kind] += 1
            task = Task(figure, job, measured.get(kind, job.seconds))
            is_wanted = (
                (with_timed or not job.alone)
                and task.seconds <= (at_most or float("inf"))
                and (not claims or any(CLAIMS[claim].figure == figure and rests_on(claim, job) for claim in claims))
                and rounds[kind] <= (n_runs or float("inf"))
            )
            if is_wanted and not store.has(job):
                found.append((job.alone, rounds[kind], task))
    return [task for _, _, task in sorted(found, key=lambda entry: entry[:2])]


def carry_over(figure: str, laptop: Store, paper: Store) -> int:
    """Add to the paper's rows those of jobs that are the same at the laptop's scale, and return how many jobs they are.

    A figure's file says which are: the same settings, sizes and seeds, so that running them again would give the same
    figures.  Jobs whose time counts are run again.
    """
    same, n_jobs = getattr(figure_file(figure), "SAME_AT_BOTH", ()), 0
    for job in figure_file(figure).jobs("paper"):
        rows = laptop.of(replace(job, settings=job.settings | {"size": "laptop"}))
        if rows and not job.alone and fits(job, same) and not paper.has(job):
            marks = {"size": "paper", "scale": "paper", "alone": False, "carried": True}
            paper.add(job, [row | marks for row in rows])
            n_jobs += 1
    return n_jobs


def runnable(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks that can be run here: those that need recordings are left out where no folder is named."""
    return [task for task in tasks if not task.job.needs or task.job.needs in os.environ]


def _kind(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True)


def _measured_seconds(store: Store) -> dict[str, float]:
    """Return the mean seconds of the jobs that were done, by their settings, as on a machine with nothing else to do.

    A job on one thread takes its CPU seconds there; one on several threads takes less, but not more than it took.
    """
    found: dict[str, list[float]] = {}
    for row in store.rows:
        if row["last"]:
            seconds = min(row["job_seconds"], row.get("job_cpu_seconds", row["job_seconds"]))
            found.setdefault(_kind(json.loads(row["job"])[0]), []).append(seconds)
    return {kind: sum(seconds) / len(seconds) for kind, seconds in found.items()}


def run_tasks(
    tasks: Sequence[Task], scale: str, stores: dict[str, Store], n_workers: int, say: Callable[[str], None]
) -> list[str]:
    """Run tasks and store their rows; ``say`` is told of each and of the time left.  Returns what went wrong."""
    left = _TimeLeft(tasks, n_workers, say)
    beside, alone = [task for task in tasks if not task.job.alone], [task for task in tasks if task.job.alone]
    failures = _run(beside, scale, n_workers, TASKS_PER_PROCESS, stores, left)
    return failures + _run(alone, scale, 1, 1, stores, left)


class _TimeLeft:
    """Says how far the study is, and how long it will take at the pace so far."""

    def __init__(self, tasks: Sequence[Task], n_workers: int, say: Callable[[str], None]) -> None:
        self.n_all, self.n_done, self.say = len(tasks), 0, say
        self.start, self.expected_done = perf_counter(), 0.0
        self.expected_left = sum(task.seconds / (1 if task.job.alone else n_workers) for task in tasks)
        self.n_workers = n_workers

    def done(self, task: Task) -> None:
        """Count a task as done."""
        seconds = task.seconds / (1 if task.job.alone else self.n_workers)
        self.n_done += 1
        self.expected_done += seconds
        self.expected_left -= seconds
        taken = perf_counter() - self.start
        # A busy machine, or expectations that were wrong, show in the pace; the first jobs also load and compile.
        pace = taken / self.expected_done if taken > 60 else max(1.0, taken / self.expected_done)
        self.say(f"{self.n_done} of {self.n_all} done, about {duration(pace * self.expected_left)} left; {task}")


def duration(seconds: float) -> str:
    """Return a time as people say it.

    >>> duration(50), duration(600), duration(20000)
    ('1 min', '10 min', '5 h 33 min')
    """
    minutes = max(0, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _run(
    tasks: Sequence[Task], scale: str, n_workers: int, tasks_per_process: int, stores: dict[str, Store], left: _TimeLeft
) -> list[str]:
    """Run tasks, in new processes after some: a pool that replaces its own may wait for ever (CPython, gh-115634)."""
    n_threads = max(1, n_cores() // n_workers) if tasks_per_process == 1 else 1
    together, failures = n_workers * tasks_per_process, []
    for first in range(0, len(tasks), together):
        failures += _run_in_a_pool(tasks[first : first + together], scale, n_workers, n_threads, stores, left)
    return failures


def _run_in_a_pool(
    tasks: Sequence[Task], scale: str, n_workers: int, n_threads: int, stores: dict[str, Store], left: _TimeLeft
) -> list[str]:
    context = multiprocessing.get_context("spawn")
    failures: list[str] = []
    with ProcessPoolExecutor(n_workers, mp_context=context) as pool:
        running: dict[Future[list[Row]], Task] = {
            pool.submit(work, task.figure, scale, task.job, n_threads): task for task in tasks
        }
        try:
            while running:
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    task = running.pop(done)
                    error = done.exception()
                    if error is None:
                        stores[task.figure].add(task.job, done.result())
                    else:
                        job = f"{task.figure} {task.job.settings} seed {task.job.seed}"
                        failures.append(f"{job}: {type(error).__name__}: {error}")
                    left.done(task)
        except BaseException:
            processes = list((getattr(pool, "_processes", None) or {}).values())  # shutdown forgets them
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
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
        "job_cpu_seconds": round(timer.cpu_seconds, 3),
        "job_peak_mb": round(peak, 1),
        "version": __version__,
        "python": platform.python_version(),
    }
    return [job.settings | row | about for row in rows]
