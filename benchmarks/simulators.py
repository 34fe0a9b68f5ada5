"""How fast the tasks move, against the same equations in vectorised NumPy and in plain Python.

The slow contenders are the twins by which the tests judge the compiled ones.  The last table shows what ``collect``
adds to the time of the steps themselves, with at most 1000 episodes side by side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from tests.tasks import slow_hiv, slow_poles

from benchmarks.measure import (
    Report,
    Row,
    Section,
    Tick,
    at_least,
    at_most,
    cpu_times,
    require_agreement,
    seconds,
    times,
)


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield a table a task, then that of ``collect``."""
    yield _poles(1000 if quick else 20_000, tick)
    yield _hiv(32 if quick else 480, tick)
    yield _collect(10_000 if quick else 300_000, tick)


SECTION = Section("simulators", run)


def _poles(n: int, tick: Tick) -> Report:
    from kbrl.tasks import PoleBalancing

    task, rng = PoleBalancing(n_poles=2), np.random.default_rng(0)
    states, actions = rng.normal(scale=0.1, size=(n, 6)), rng.integers(2, size=n)
    forces = np.array([-10.0, 10.0])[actions]
    few = min(n, 500)
    moved = task.step(states, actions, rng)[0]
    require_agreement("NumPy", np.abs(slow_poles.numpy_decision(states, forces) - moved).max(), 1e-12)
    found = cpu_times(
        {
            "kbrl": lambda: task.step(states, actions, rng),
            "vectorised NumPy": lambda: slow_poles.numpy_decision(states, forces),
            "plain Python": lambda: [
                slow_poles.python_decision(s, f) for s, f in zip(states[:few].tolist(), forces.tolist())
            ],
        },
        rounds=5,
        tick=tick,
    )
    each = {"kbrl": found["kbrl"] / n, "vectorised NumPy": found["vectorised NumPy"] / n}
    each["plain Python"] = found["plain Python"] / few
    return _report(f"Two poles: a decision in a batch of {n:,}", each, {"vectorised NumPy": 2.5, "plain Python": 40})


def _hiv(n: int, tick: Tick) -> Report:
    from kbrl.tasks import HIV

    task, rng = HIV(), np.random.default_rng(0)
    states, actions = task.reset(n, rng) * rng.uniform(0.5, 2.0, size=(n, 6)), rng.integers(4, size=n)
    few = 4
    ours, theirs = task.step(states[:few], actions[:few], rng)[0], slow_hiv.step_numpy(states[:few], actions[:few])
    require_agreement("NumPy", np.abs(theirs / ours - 1).max(), 1e-9)
    found = cpu_times(
        {
            "kbrl": lambda: task.step(states, actions, rng),
            "vectorised NumPy": lambda: slow_hiv.step_numpy(states, actions),
            "plain Python": lambda: [slow_hiv.step_python(s, a) for s, a in zip(states[:few], actions)],
        },
        rounds=3,
        tick=tick,
    )
    each = {"kbrl": found["kbrl"] / n, "vectorised NumPy": found["vectorised NumPy"] / n}
    each["plain Python"] = found["plain Python"] / few
    return _report(f"HIV: a decision of 5000 steps, {n} patients", each, {"vectorised NumPy": 6, "plain Python": 80})


def _report(title: str, each: dict[str, float], goals: dict[str, float]) -> Report:
    rows = []
    for name, value in each.items():
        ratio = value / each["kbrl"]
        goal = at_least(ratio, goals[name], f"kbrl at least {goals[name]:g} x faster") if name in goals else None
        rows.append(Row(name, seconds(value), times(ratio), goal))
    return Report(title, rows)


def _collect(n: int, tick: Tick) -> Report:
    from kbrl.tasks import HIV, PoleBalancing, PuddleWorld

    rows = []
    for task, size in ((PuddleWorld(), n), (PoleBalancing(n_poles=2, gravity="up"), n), (HIV(), max(2000, n // 20))):
        tick(f"collect in {task.name}")
        task.max_parallel = 1000
        task.collect(size // 10, random_state=0)
        total, inside = min(_time_collect(task, size) for _ in range(3))
        share = total / inside - 1
        goal = at_most(share, 0.2, f"at most 20 % on top of the steps: {100 * share:.0f} %")
        rows.append(Row(f"{task.name}: collect, a transition", seconds(total / size), seconds(inside / size), goal))
    return Report("What collect adds to the steps: at most 1000 episodes side by side", rows, compared="steps alone")


def _time_collect(task, size: int) -> tuple[float, float]:
    step, spent = task._step, [0.0]

    def timed(*arguments):
        start = time.process_time()
        result = step(*arguments)
        spent[0] += time.process_time() - start
        return result

    task._step = timed
    try:
        start = time.process_time()
        task.collect(size, random_state=0)
        return time.process_time() - start, spent[0]
    finally:
        del task._step
