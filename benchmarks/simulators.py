"""How fast the tasks move, against the same equations in vectorised NumPy and in plain Python.

The slow contenders are the twins by which the tests judge the compiled ones.  The last table shows what ``collect``
costs, with at most 1000 episodes side by side.  Its Python side is all that is not compiled: neither the simulator's
kernel, nor the drawing of random numbers, nor the writing of the log.  It is also held against two loops written by
hand for a random policy.  Both reset, draw the same actions and noise, step, and drop the episodes that are over; one
keeps nothing, the other keeps its transitions in arrays made beforehand, as they come.  ``collect`` also orders them
by episode and takes any policy.
"""

from __future__ import annotations

import pkgutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

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
from tests.tasks import slow_hiv, slow_poles

SHORT = 10  # decisions of an episode that is cut, so that a batch stays full
KERNELS = {  # what is compiled of a task's step
    "PuddleWorld": ("kbrl.tasks.puddle_world._move", "kbrl.tasks.puddle_world._in_goal"),
    "PoleBalancing": ("kbrl.tasks.pole_balancing.advance", "kbrl.tasks.pole_balancing.has_failed"),
    "HIV": ("kbrl.tasks.hiv._treat",),
}


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

    poles = PoleBalancing(n_poles=2, gravity="up")
    sizes = ((PuddleWorld(), n), (poles, n), (HIV(), max(2000, n // 15)))
    rows = [row for task, size in sizes for row in _collect_rows(task, size, SHORT, tick)]
    rows += [row for task, size in sizes[:2] for row in _collect_rows(task, size, None, tick)]
    notes = [
        f"Episodes cut after {SHORT} decisions keep batches full; below them whole ones, whose batches shrink.",
        "The bare loop keeps nothing and fills no memory, which collect must: how much that costs depends on what the "
        "process has freed before.",
    ]
    return Report("Collecting with at most 1000 episodes side by side", rows, notes, compared="ratio to collect")


def _collect_rows(task, size: int, max_steps: int | None, tick: Tick) -> list[Row]:
    task.max_parallel = 1000
    batches = _batches(task, size, max_steps)
    contenders = {
        "collect": lambda: task.collect(size, random_state=0, max_steps=max_steps),
        "bare loop": lambda: _bare_loop(task, batches),
        "bare loop that keeps": lambda: _bare_loop(task, batches, _Columns(task, size)),
    }
    rounds = 3 if task.name == "HIV" else 9
    found = cpu_times(contenders, rounds=rounds, tick=tick)
    mean_batch = size / sum(n_steps for _, n_steps in batches)
    name = f"{task.name}, {mean_batch:.0f} at a time"
    rows = [Row(f"{name}: collect, a transition", seconds(found["collect"] / size))]
    for loop in ("bare loop", "bare loop that keeps"):
        share = found["collect"] / found[loop] - 1
        text = f"collect {100 * share:.0f} % on top"
        is_judged = max_steps is not None or loop.endswith("keeps")  # the bare loop in full batches only
        goal = at_most(share, 0.2, f"{text}, at most 20") if is_judged else None
        rows.append(Row(f"{name}: {loop} ({text})", seconds(found[loop] / size), times(1 / (1 + share)), goal))
    if max_steps is not None:
        rows.append(_python_side(task, name, size, max_steps, rounds))
    return rows


def _python_side(task, name: str, size: int, max_steps: int, rounds: int) -> Row:
    """Return what collect spends in compiled code, and the rest in terms of that: smallest of the rounds.

    The whole is timed in runs of its own, which no stopwatch slows down.
    """
    whole, compiled = [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        task.collect(size, random_state=0, max_steps=max_steps)
        whole.append(time.perf_counter() - begin)
        watch = _Stopwatch()
        with watch.on(task):
            task.collect(size, random_state=_WatchedGenerator(watch), max_steps=max_steps)
        compiled.append(watch.seconds)
    share = min(whole) / min(compiled) - 1
    goal = at_most(share, 0.2, f"Python {100 * share:.0f} % on top, at most 20")
    return Row(f"{name}: what of collect is compiled", seconds(min(compiled) / size), times(1 / (1 + share)), goal)


class _Stopwatch:
    """Adds up the seconds spent in functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments, **options):
            begin = time.perf_counter()
            answer = function(*arguments, **options)
            self.seconds += time.perf_counter() - begin
            return answer

        return run

    @contextmanager
    def on(self, task) -> Iterator[None]:
        """Time the kernels of a task, and the writing of logs."""
        with ExitStack() as stack:
            for name in (*KERNELS[task.name], "kbrl.trials.recording._write"):
                stack.enter_context(patch(name, self.timed(pkgutil.resolve_name(name))))
            yield


class _WatchedGenerator(np.random.Generator):
    """A generator whose draws are timed."""

    def __init__(self, watch: _Stopwatch) -> None:
        super().__init__(np.random.PCG64(0))
        for name in ("integers", "random", "standard_normal"):
            setattr(self, name, watch.timed(getattr(super(), name)))


class _Columns:
    """Room for all transitions, filled in the order of time."""

    def __init__(self, task, n_rows: int) -> None:
        shape = (n_rows + 100 * task.max_parallel, len(task.low))  # the last batch may have more than is needed
        self.states, self.next_states = np.empty(shape), np.empty(shape)
        self.numbers = np.empty((3, shape[0]))  # actions, rewards, episodes
        self.terminals = np.empty(shape[0], dtype=bool)
        self.n_rows = 0

    def add(self, *step) -> None:
        rows = slice(self.n_rows, self.n_rows + len(step[0]))
        columns = (self.states, *self.numbers, self.next_states, self.terminals)
        for column, values in zip(columns, step):
            column[rows] = values
        self.n_rows = rows.stop


def _bare_loop(task, batches: list[list[int]], columns: _Columns | None = None) -> np.random.Generator:
    """Simulate the same episodes as ``collect`` does: as many at a time, for as many steps."""
    rng = np.random.default_rng(0)
    for n_episodes, n_steps in batches:
        states, numbers = task.reset(n_episodes, rng), np.arange(n_episodes)
        seen = task.observe(states)
        for _ in range(n_steps):
            actions = rng.integers(len(task.actions), size=len(states))
            states, rewards, terminals = task._step(states, actions, rng)
            if columns is not None:
                next_seen = task.observe(states)
                columns.add(seen, actions, rewards, numbers, next_seen, terminals)
                seen = next_seen
            if np.count_nonzero(terminals) > 0:
                going = (~terminals).nonzero()[0]
                states = states.take(going, axis=0)
                if columns is not None:
                    seen, numbers = seen.take(going, axis=0), numbers.take(going)
    return rng


def _batches(task, size: int, max_steps: int | None) -> list[list[int]]:
    """Return how many episodes ``collect`` runs at a time, and for how many steps."""
    reset, step, found = task._reset, task._step, []

    def counted_reset(n: int, rng):
        found.append([n, 0])
        return reset(n, rng)

    def counted_step(*arguments):
        found[-1][1] += 1
        return step(*arguments)

    task._reset, task._step = counted_reset, counted_step
    rng = np.random.default_rng(0)
    try:
        task.collect(size, random_state=rng, max_steps=max_steps)
    finally:
        del task._reset, task._step
    if rng.bit_generator.state != _bare_loop(task, found).bit_generator.state:
        raise RuntimeError(f"The bare loop must draw what collect draws in {task.name}, but it does not.")
    return found
