"""A log as people have it: ``kbrl fit`` on 10^7 rows with categories and missing values, beside numbers.

Both files are Parquet with the same rows, and both models have the same state variables.  In one file they are columns
of numbers; in the other they are numbers with holes, words and levels, which a first pass has to find out about.  Each
fit runs in a process of its own (``python -m benchmarks.values FILE FOLDER M``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.files import GROUP, Watch
from benchmarks.measure import Report, Row, Section, Tick, at_least, at_most, seconds, times
from benchmarks.memory import ROOT, megabytes, peak_memory

EPISODE = 50
UNITS = np.array(["icu", "step down", "ward"])
LIMIT = 700e6  # bytes
MESSY = ("age", "map", "lactate", "unit", "ventilated")
CLEAN = ("age", "map", "map_gone", "lactate", "lactate_gone", "icu", "step_down", "ward", "ventilated")


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield the table of the two files."""
    n, m = (100_000, 50) if quick else (10**7, 100)
    with tempfile.TemporaryDirectory() as folder:
        tick(f"writing two logs of {n:,} rows")
        sizes = _write(Path(folder), n)
        found = {}
        for name in sizes:
            tick(name)
            found[name] = _in_a_process_of_its_own(name, folder, m)
    yield _report(found, sizes, n, m)


SECTION = Section("values", run)


def _report(found: dict[str, dict[str, float]], sizes: dict[str, int], n: int, m: int) -> Report:
    clean, messy = found["clean"], found["messy"]
    ratio = messy["cpu"] / clean["cpu"]
    goal = at_least(1 / ratio, 0.7, f"0.7 of the rows a second: {1 / ratio:.2f}")
    rows = [Row(f"numbers, {n / clean['wall']:,.0f} rows a second", seconds(clean["cpu"]), times(1.0), None)]
    rows.append(
        Row(f"words and holes, {n / messy['wall']:,.0f} rows a second", seconds(messy["cpu"]), times(ratio), goal)
    )
    share = f"{messy['peak'] / sizes['messy']:.2f} of the file"
    goal = at_most(messy["peak"], LIMIT, f"below {megabytes(LIMIT)}")
    rows.append(Row("words and holes, peak memory of the process", megabytes(messy["peak"]), share, goal))
    notes = [f"{n:,} rows, {len(CLEAN)} state variables of {len(MESSY)} columns, 2 actions, m = {m}, all cores."]
    notes.append("10 % of two columns are missing: the median, and a variable that marks it. One category of 3 levels.")
    return Report("A model from a messy Parquet file", rows, notes, compared="ratio to numbers")


def _write(folder: Path, n: int) -> dict[str, int]:
    """Write both logs, a group of rows at a time; return the sizes of the files."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rng, writers = np.random.default_rng(0), {}
    for first in range(0, n, GROUP):
        for name, columns in _columns(rng, np.arange(first, min(first + GROUP, n))).items():
            table = pa.table(columns)
            if name not in writers:
                writers[name] = parquet.ParquetWriter(folder / f"{name}.parquet", table.schema)
            writers[name].write_table(table)
    for writer in writers.values():
        writer.close()
    return {name: (folder / f"{name}.parquet").stat().st_size for name in writers}


def _columns(rng: np.random.Generator, numbers: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    n = len(numbers)
    age, pressure, lactate = rng.integers(18, 95, n).astype(float), rng.normal(70, 12, n), rng.lognormal(0.5, 0.6, n)
    unit, ventilated, drug = rng.integers(0, 3, n), rng.random(n) < 0.4, rng.integers(0, 2, n)
    holes = rng.random((2, n)) < 0.1
    ends = numbers % EPISODE == EPISODE - 1
    shared = {"episode_id": numbers // EPISODE, "action": drug, "reward": -lactate + drug, "terminated": ends}
    messy = {"age": age, "map": np.where(holes[0], np.nan, pressure), "lactate": np.where(holes[1], np.nan, lactate)}
    messy |= {"unit": UNITS[unit], "ventilated": np.where(ventilated, "yes", "no")}
    clean = {"age": age, "map": np.where(holes[0], 70.0, pressure), "map_gone": holes[0].astype(float)}
    clean |= {"lactate": np.where(holes[1], 1.65, lactate), "lactate_gone": holes[1].astype(float)}
    clean |= {name: (unit == place).astype(float) for place, name in enumerate(("icu", "step_down", "ward"))}
    clean |= {"ventilated": ventilated.astype(float)}
    return {"clean": clean | shared, "messy": messy | shared}


def _in_a_process_of_its_own(name: str, folder: str, m: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.values", name, folder, str(m)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _main(name: str, folder: str, m: str) -> None:
    import contextlib
    import io

    from kbrl.cli import main

    watch, state = Watch(), ",".join(MESSY if name == "messy" else CLEAN)
    with contextlib.redirect_stdout(io.StringIO()):
        main(["fit", f"{folder}/{name}.parquet", "-o", f"{folder}/{name}.kbrl", "--reps", m, "--state", state, "-q"])
    print(json.dumps(watch.figures() | {"peak": peak_memory()}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
