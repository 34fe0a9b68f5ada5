"""An exported policy, which is plain Python, beside the model that it was exported from, and as a web service."""

from __future__ import annotations

import http.client
import json
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Report, Row, Section, Tick, cpu_times, seconds, times
from kbrl import KBSF, Transitions, export_policy
from kbrl.arrays import Floats

ROUNDS = 5


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield one table for each order: a decision in this process, and a request to the service."""
    n_states, n_reps = (10, 30) if quick else (200, 200)
    states = np.random.default_rng(1).random((n_states, 4))
    for order in (0, 1):
        tick(f"a model of order {order}")
        model = _model(n_reps, order)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "policy.py")
            export_policy(model, path)
            yield _report(model, path, states, order, tick)


def _report(model: KBSF, path: Path, states: Floats, order: int, tick: Tick) -> Report:
    decide, rows = runpy.run_path(str(path))["decide"], states.tolist()
    if [decide(row)["action"] for row in rows] != model.predict(states).tolist():
        raise RuntimeError("An exported policy must choose the actions that predict chooses, but it does not.")
    calls: dict[str, Callable[[], Any]] = {
        "kbrl: model.act(array)": lambda: [model.act(state) for state in states],
        "exported file: decide(list), with support": lambda: [decide(row) for row in rows],
    }
    each = {name: value / len(rows) for name, value in cpu_times(calls, rounds=ROUNDS, tick=tick).items()}
    first = next(iter(each.values()))
    table = [Row(name, seconds(value), times(value / first)) for name, value in each.items()]
    tick("requests")
    waited = _waits(path, rows)
    table.append(Row("exported file, --serve: one request, by the clock", seconds(float(np.median(waited)))))
    slow = seconds(float(np.quantile(waited, 0.99)))
    notes = [f"Mean over {len(rows):,} states; the request is a median, 99 of 100 take at most {slow}."]
    title = (
        f"A policy of order {order} in one file of {path.stat().st_size / 1000:,.0f} kB: m = {len(model.reps_)}, d = 4"
    )
    return Report(title, table, notes, measured="time per decision", compared="ratio to the first")


def _waits(path: Path, rows: list[list[float]]) -> list[float]:
    """Return the seconds of each request to the service, over one connection on this machine."""
    command = [sys.executable, "-I", "-S", str(path), "--serve", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            connection = http.client.HTTPConnection("127.0.0.1", int(process.stderr.readline().split()[-1]), timeout=60)
            return [_wait(connection, row) for row in rows]
        finally:
            process.terminate()


def _wait(connection: http.client.HTTPConnection, row: list[float]) -> float:
    start = time.perf_counter()
    connection.request("POST", "/", body=json.dumps(row))
    connection.getresponse().read()
    return time.perf_counter() - start


def _model(n_reps: int, order: int) -> KBSF:
    rng = np.random.default_rng(0)
    states = rng.random((20 * n_reps, 4))
    actions = rng.integers(0, 2, len(states))
    moves = 0.05 * np.where(actions == 1, 1.0, -1.0)[:, None] * [1.0, 0.5, 0.0, 0.0]
    log = Transitions(states, actions, -np.abs(states).sum(axis=1), np.clip(states + moves, 0.0, 1.0))
    return KBSF(n_reps, order=order, discount=0.95, random_state=0, n_jobs=1).fit(log)


SECTION = Section("serving", run)
