"""Fitting on Dask: one worker process against two, memory of a worker, and what a cluster costs for a small log.

Wall time, because processes share the work; it means something only where the cores are free, and the note says
whether they were.  All workers are on this machine and read Parquet files from its disk.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measure import Goal, Report, Row, Section, Tick, at_most, seconds, times
from benchmarks.memory import megabytes, peak_memory, reset_peak_memory

N_DIMS, N_ACTIONS = 6, 4
FREE = 0.1  # of the cores' time that others take, at most, for the cores to count as free
LOOK = 2.0  # seconds of doing nothing, to see what others take
LIMIT = 0.95  # of what two fits at once, which have nothing to do with each other, gain


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield the tables of speed, memory and overhead."""
    large, small, n_reps = ((4, 10_000), (12, 2_000), 50) if quick else ((40, 60_000), (60, 20_000), 300)
    with tempfile.TemporaryDirectory() as few, tempfile.TemporaryDirectory() as many:
        tick("writing the logs")
        paths = write_parts(Path(few), *large)
        for n_parts in (len(paths) // 2, len(paths)):  # fixed costs weigh more in a small log
            yield _speed(paths[:n_parts], n_reps, 1 if quick else 2, tick)
        yield _memory(write_parts(Path(many), *small), tick)
        yield _overhead(paths[:1], n_reps, tick)


SECTION = Section("cluster", run)


def write_parts(folder: Path, n_parts: int, n_rows: int) -> list[Path]:
    """Write random transitions as Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rng, paths = np.random.default_rng(0), []
    for number in range(n_parts):
        states = rng.random((n_rows, N_DIMS))
        following = states + 0.1 * rng.normal(size=states.shape)
        columns = {f"observation_{k}": states[:, k] for k in range(N_DIMS)}
        columns |= {f"next_observation_{k}": following[:, k] for k in range(N_DIMS)}
        columns |= {"action": rng.integers(N_ACTIONS, size=n_rows), "reward": states[:, 0]}
        paths.append(folder / f"part-{number}.parquet")
        parquet.write_table(pa.table(columns | {"terminated": rng.random(n_rows) < 0.01}), paths[-1])
    return paths


def learner(n_reps: int):
    """Return the learner that all contenders fit."""
    from kbrl import KBSF

    return KBSF(n_reps, sample_width=0.3, rep_width=0.3, random_state=0, n_jobs=1)


def fit_seconds(paths: list[Path], n_reps: int, client) -> float:
    """Return the wall time of a fit on a cluster."""
    from kbrl.on_dask.fitting_on_dask import fit_on_dask

    start = time.perf_counter()
    fit_on_dask(learner(n_reps), paths, client=client)
    return time.perf_counter() - start


def busiest_seconds(paths: list[Path], n_reps: int, client) -> float:
    """Return the CPU time of the worker that has the most to do in a fit."""
    before = client.run(time.process_time)
    fit_seconds(paths, n_reps, client)
    return max(spent - before[worker] for worker, spent in client.run(time.process_time).items())


def most_possible(paths: list[Path], n_reps: int, client) -> float:
    """Return how much faster two processes are that have nothing to do with each other, each with half of the log.

    Cores share caches, memory and a budget of heat, so that this is less than two; no cluster can do better.
    """
    halves, workers = (paths[::2], paths[1::2]), list(client.nthreads())

    def spent(n: int) -> float:
        start = time.perf_counter()
        client.gather([client.submit(_fit_here, halves[k], n_reps, workers=workers[k], pure=False) for k in range(n)])
        return time.perf_counter() - start

    return 2 * spent(1) / spent(2)


def _fit_here(paths: list[Path], n_reps: int) -> int:
    from kbrl.choosing.automatic_fit import fit_log
    from kbrl.logs.log import open_log

    return fit_log(learner(n_reps), open_log(paths)).n_samples_


def taken_by_others() -> float:
    """Return the share of the cores' time that is taken while we do nothing.

    The load average would count what this process did in the minutes before.
    """
    import psutil

    return float(psutil.cpu_percent(interval=LOOK)) / 100


def _speed(paths: list[Path], n_reps: int, rounds: int, tick: Tick) -> Report:
    from kbrl.on_dask.clients import local_cluster

    found, busiest = {}, {}
    taken = taken_by_others()
    for n_workers in (1, 2):
        with local_cluster(n_workers) as client:
            tick(f"{n_workers} workers, warming up")
            fit_seconds(paths[: 2 * n_workers], n_reps, client)
            tick(f"{n_workers} workers")
            found[n_workers] = min(fit_seconds(paths, n_reps, client) for _ in range(rounds))
            busiest[n_workers] = busiest_seconds(paths, n_reps, client)
            if n_workers == 2:
                tick("two fits at once")
                most = most_possible(paths, n_reps, client)
    gain = found[1] / found[2]
    free, share = taken <= FREE, gain / most
    text = f"at least {LIMIT} of two fits at once, where both cores are free: {share:.2f}"
    goal = Goal(text, share >= LIMIT if free else None)
    rows = [Row("1 worker", seconds(found[1]), times(1.0)), Row("2 workers", seconds(found[2]), times(gain), goal)]
    state = "free" if free else "not free, so the goal is not judged"
    notes = [f"{os.cpu_count()} cores, of which others took {100 * taken:.0f} % before the start: they were {state}."]
    least = f"{seconds(busiest[1])} and {seconds(busiest[2])}, {busiest[1] / busiest[2]:.2f} x less"
    notes.append(f"CPU time of the busiest worker, whatever else the machine does: {least}.")
    notes.append(f"Two fits of half the log at once, without Dask, against one after the other: {most:.2f} x.")
    title = f"Fit on Dask: {len(paths)} Parquet files, m = {n_reps}, d = {N_DIMS}, {N_ACTIONS} actions"
    return Report(title, rows, notes, "wall time", "gain")


def _memory(paths: list[Path], tick: Tick) -> Report:
    """Measure with a few partitions, which have enough rows for the sample already, and with many."""
    from kbrl.on_dask.clients import local_cluster

    sizes, peaks = (len(paths) // 6, len(paths)), []
    for n_parts in sizes:
        tick(f"memory with {n_parts} partitions")
        with local_cluster(2) as client:
            fit_seconds(paths[:2], 100, client)  # loads and compiles everything
            client.run(reset_peak_memory)
            fit_seconds(paths[:n_parts], 100, client)
            peaks.append(max(client.run(peak_memory).values()))
    change = peaks[1] / peaks[0] - 1
    goal = at_most(change, 0.1, f"flat within 10 %: {100 * change:+.1f} %")
    rows = [
        Row(f"{n_parts} partitions", megabytes(peak), f"{peak / peaks[0]:.3f} x", goal_of)
        for n_parts, peak, goal_of in zip(sizes, peaks, (None, goal))
    ]
    return Report("Peak memory of a worker process, the larger of two, m = 100", rows, [], "memory", "ratio")


def _overhead(paths: list[Path], n_reps: int, tick: Tick) -> Report:
    from kbrl.choosing.automatic_fit import fit_log
    from kbrl.logs.log import open_log
    from kbrl.on_dask.clients import local_cluster

    def alone() -> float:
        start = time.perf_counter()
        fit_log(learner(n_reps), open_log(paths))
        return time.perf_counter() - start

    tick("a small log")
    alone()
    here = min(alone() for _ in range(3))
    start = time.perf_counter()
    with local_cluster(2) as client:
        started = time.perf_counter() - start
        fit_seconds(paths, n_reps, client)
        there = min(fit_seconds(paths, n_reps, client) for _ in range(3))
    rows = [
        Row("in this process", seconds(here), times(1.0)),
        Row("on a cluster that runs", seconds(there), times(there / here)),
        Row("to start two workers", seconds(started), times(started / here)),
    ]
    return Report("Overhead for a small log of one file", rows, [], "wall time", "ratio to in-process")
