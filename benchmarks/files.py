"""From a file to a model: ``kbrl fit`` on a log of 10^7 rows in Parquet, about 1 GB, in memory that stays flat.

Each contender runs in a process of its own (``python -m benchmarks.files WORK FOLDER N M``): merely reading the log,
the dense build alone, on rows in memory, and the command, which opens the log, looks through it, chooses the
widths, reads it again, learns, solves and saves.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measure import Report, Row, Section, Tick, at_least, at_most, seconds, times
from benchmarks.memory import ROOT, megabytes, peak_memory

N_DIMS, N_ACTIONS, EPISODE = 6, 4, 1000
GROUP = 2**17  # rows written together
BUILT_SHARE = 10  # the build alone is measured on this part of the rows
LIMIT = 500e6  # bytes


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield the table of the three contenders."""
    n, m = (100_000, 50) if quick else (10**7, 500)
    with tempfile.TemporaryDirectory() as folder:
        tick(f"writing a log of {n:,} rows")
        n_bytes = write_wandering(Path(folder) / "log.parquet", n)
        found = {}
        for work in WORKS:
            tick(work)
            found[work] = _in_a_process_of_its_own(work, folder, n, m)
    yield _report(found, n, m, n_bytes)


SECTION = Section("files", run)


def _report(found: dict[str, dict[str, float]], n: int, m: int, n_bytes: int) -> Report:
    apart = found["reading"]["cpu"] + found["building"]["cpu"]
    rows = []
    for work, figures in found.items():
        text = f"{WORKS[work]}, {n / figures['wall']:,.0f} rows a second"
        ratio = figures["cpu"] / apart
        goal = None
        if work == "fitting":
            goal = at_least(1 / ratio, 0.5, f"half the speed of reading and building: {1 / ratio:.2f}")
        rows.append(Row(text, seconds(figures["cpu"]), times(ratio), goal))
    peak = found["fitting"]["peak"]
    goal = at_most(peak, LIMIT, f"below {megabytes(LIMIT)}")
    rows.append(Row("kbrl fit, peak memory of the process", megabytes(peak), f"{peak / n_bytes:.2f} of the file", goal))
    notes = [f"{n:,} rows, {n_bytes / 1e9:.2f} GB, {N_DIMS} state variables, {N_ACTIONS} actions, m = {m}, all cores."]
    notes.append(f"The build alone is that of a {BUILT_SHARE}th of the rows, times {BUILT_SHARE}. Rates by the clock.")
    spent = ", ".join(f"{name} {taken:.1f} s" for name, taken in found["fitting"]["parts"].items())  # type: ignore
    notes.append(f"kbrl fit by the clock: {spent}.")
    return Report("A model from a Parquet file", rows, notes, compared="ratio to both")


def write_wandering(path: Path, n: int) -> int:
    """Write a log of wandering states, a group of rows at a time; return the size of the file."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rng = np.random.default_rng(0)
    writer = None
    for first in range(0, n, GROUP):
        table = pa.table(_columns(rng, np.arange(first, min(first + GROUP, n))))
        writer = writer or parquet.ParquetWriter(path, table.schema, compression="snappy")
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return path.stat().st_size


def _columns(rng: np.random.Generator, numbers: np.ndarray) -> dict[str, np.ndarray]:
    actions = rng.integers(N_ACTIONS, size=len(numbers))
    states = rng.normal(size=(len(numbers), N_DIMS))
    next_states = 0.9 * states + 0.3 * rng.normal(size=states.shape)
    next_states[np.arange(len(numbers)), actions] += 0.3
    ends = numbers % EPISODE == EPISODE - 1
    columns = {"episode_id": numbers // EPISODE, "step": numbers % EPISODE}
    columns |= {f"observation_{k}": states[:, k] for k in range(N_DIMS)}
    columns |= {"action": actions, "reward": -np.square(next_states).sum(axis=1)}
    columns |= {f"next_observation_{k}": next_states[:, k] for k in range(N_DIMS)}
    return columns | {"terminated": ends, "truncated": np.zeros(len(numbers), dtype=bool)}


def _in_a_process_of_its_own(work: str, folder: str, n: int, m: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.files", work, folder, str(n), str(m)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _read(folder: Path, n: int, m: int) -> dict[str, float]:
    from kbrl.logs.log import open_log

    watch = Watch()
    assert sum(len(chunk) for chunk in open_log(folder / "log.parquet").chunks()) == n
    return watch.figures()


def _build(folder: Path, n: int, m: int) -> dict[str, float]:
    from kbrl import KBSF
    from kbrl.logs.log import open_log

    chunk = next(open_log(folder / "log.parquet").chunks())
    model = KBSF(m, sample_width=0.3, rep_width=0.3, random_state=0).fit(chunk[: 2 * m])  # compiles
    n_chunks = max(1, n // BUILT_SHARE // len(chunk))
    watch = Watch()
    for _ in range(n_chunks):
        model.partial_fit(chunk)
    share = n / (n_chunks * len(chunk))
    return {name: share * figure for name, figure in watch.figures().items()}


def _fit(folder: Path, n: int, m: int) -> dict[str, float]:
    from kbrl.cli import main

    watch = Watch()
    main(["fit", str(folder / "log.parquet"), "-o", str(folder / "model.kbrl"), "--reps", str(m), "--json"])
    return watch.figures()


WORKS = {
    "reading": "reading the log once",
    "building": "the dense build alone",
    "fitting": "kbrl fit, all of it",
}


class Watch:
    """CPU seconds of the process, all threads, and seconds by the clock, from when it is made."""

    def __init__(self) -> None:
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def figures(self) -> dict[str, float]:
        return {"cpu": time.process_time() - self.cpu, "wall": time.perf_counter() - self.wall}


def _main(work: str, folder: str, n: str, m: str) -> None:
    import contextlib
    import io

    done = {"reading": _read, "building": _build, "fitting": _fit}[work]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        figures = done(Path(folder), int(n), int(m))
    parts = {"parts": json.loads(said.getvalue())["seconds_of"]} if work == "fitting" else {}
    print(json.dumps(figures | parts | {"peak": peak_memory()}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
