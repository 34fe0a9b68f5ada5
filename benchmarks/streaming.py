"""Learning from a stream: what splitting the data costs, and that memory stays flat however long it gets.

Puddle world in chunks of t_m = t_v transitions gives the model of one batch (the paper's section 5.2.1).  Transitions
of two poles, made on the fly and discarded after use, go through ``partial_fit``, in a process of its own for each
length (``python -m benchmarks.streaming N FORM``); the paper needed 20 minutes for 10^7 of them (three poles).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Report, Row, Section, Tick, at_most, cpu_times, seconds, times
from benchmarks.memory import ROOT, megabytes, peak_memory, reset_peak_memory

CHUNK = 20_000
FORMS = {
    "dense, m = 200": {"n_reps": 200},
    "sparse, m = 2000": {"n_reps": 2000, "sample_neighbors": 50, "rep_neighbors": 10},
}


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield the table of intervals, then that of lengths."""
    yield _intervals(2000 if quick else 8000, tick)
    yield _lengths((2 * CHUNK, 4 * CHUNK) if quick else (10**5, 10**6, 10**7), tick)


SECTION = Section("streaming", run)


def _intervals(n: int, tick: Tick) -> Report:
    from kbrl import KBSF
    from kbrl.tasks import PuddleWorld

    log = PuddleWorld().collect(n, random_state=0)
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 10)] * 2), axis=-1).reshape(-1, 2)
    # One scaling for all: by itself, a model would take that of its first chunk.
    settings = {"reps": grid, "sample_width": 0.1, "rep_width": 0.1, "n_jobs": 1, "scaling": log.states.std(axis=0)}
    models = {}

    def learn(interval: int) -> None:
        model = KBSF(**settings)
        for chunk in log.chunks(interval):
            model.partial_fit(chunk)
            model.rep_q_  # noqa: B018  t_v = t_m: solve after every chunk
        models[interval] = model

    intervals = [n, n // 2, n // 4, n // 8]
    found = cpu_times({str(i): lambda i=i: learn(i) for i in intervals}, rounds=5, tick=tick)
    batch = models[n].mdp_
    rows = []
    for interval in intervals:
        mdp = models[interval].mdp_
        difference = max(np.abs(mdp.stacked - batch.stacked).max(), np.abs(mdp.rewards - batch.rewards).max())
        goal = at_most(difference, 1e-12, f"same model as batch, within 1e-12: {difference:.0e}")
        ratio = found[str(interval)] / found[str(n)]
        rows.append(Row(f"t_m = t_v = {interval}", seconds(found[str(interval)]), times(ratio), goal))
    title = f"Puddle world in chunks: {n} transitions, 100 representative states, solved after every chunk"
    return Report(title, rows, compared="ratio to batch")


def _lengths(lengths: tuple[int, ...], tick: Tick) -> Report:
    rows = []
    for form in FORMS:
        first = None
        for n in lengths:
            tick(f"{form}, {n:,} transitions")
            found = _in_a_process_of_its_own(n, form)
            first = first or found["peak"]
            change = found["peak"] / first - 1
            goal = None if n == lengths[0] else at_most(abs(change), 0.05, f"flat within 5 %: {100 * change:+.1f} %")
            spent = f"{found['seconds']:.1f} s"
            rows.append(Row(f"{form}, n = {n:,}", megabytes(found["peak"]), spent, goal))
    note = f"Two poles, simulated in chunks of {CHUNK:,}; wall time with simulation, learning and solving, all cores."
    return Report("A stream through partial_fit: peak memory of the process", rows, [note], "peak memory", "wall time")


def _in_a_process_of_its_own(n: int, form: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.streaming", str(n), form]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def _stream(n: int, form: str) -> dict[str, float]:
    from kbrl import KBSF
    from kbrl.tasks import PoleBalancing

    task, rng = PoleBalancing(n_poles=2, gravity="up"), np.random.default_rng(0)
    model = KBSF(sample_width=1.0, rep_width=1.0, random_state=0, **FORMS[form])
    model.partial_fit(task.collect(CHUNK, random_state=rng))  # loads and compiles everything
    model.rep_q_  # noqa: B018
    reset_peak_memory()
    start = time.perf_counter()
    for _ in range(n // CHUNK):
        model.partial_fit(task.collect(CHUNK, random_state=rng))
    model.rep_q_  # noqa: B018
    assert model.n_samples_ == n + CHUNK
    return {"peak": peak_memory(), "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    print(json.dumps(_stream(int(sys.argv[1]), sys.argv[2])))
