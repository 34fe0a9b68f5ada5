"""Models of order 1, lines and plans: the build against the dense build of order 0 and against reading, and decisions.

The build has a part that grows with the rows, the sums, and one that does not, the lines that are made from them.
Both are compared with the dense build of order 0 from the same transitions and representative states.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import dense, files
from benchmarks.measure import Goal, Report, Row, Section, Tick, Work, at_most, cpu_times, seconds, times
from kbrl import KBSF, Kernel, Plan, Transitions, open_log
from kbrl.arrays import Floats
from kbrl.data.scaling import Coordinates
from kbrl.lines.local_lines import local_lines
from kbrl.lines.moments import LineSums
from kbrl.model.kernels import Basis

ROUNDS = 5
AHEAD_LIMIT, REPS_LIMIT = 200e-6, 5e-6
READING_LIMIT = 2.0  # times reading, for the sums
DECISIONS, HOLDS = 5, (2, 3)  # of two actions: 32 plans
AHEAD, REPS = "look-ahead: model.act(array)", "Q-bar: the compiled decision, from Python"


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield the tables of building, of building against reading, and of decisions."""
    yield _build(*((5_000, 50, 3) if quick else (100_000, 500, 6)), tick)
    yield _read(*((20_000, 50) if quick else (10**6, 500)), tick)
    yield _decide(50 if quick else 500, 20 if quick else 1_000, tick)


SECTION = Section("lines", run)


def _build(n: int, m: int, d: int, tick: Tick) -> Report:
    problem = dense.Problem.random(n, m, d)
    log = Transitions(problem.states, np.zeros(n, dtype=int), problem.rewards, problem.next_states)
    basis = _basis(problem.reps, n_actions=1)
    sums = LineSums(basis).accumulate(log)
    works = {
        "order 0: the dense build": dense.with_kbrl(problem),
        "order 1: the sums": lambda: LineSums(basis).accumulate(log),
        "order 1: lines from the sums, once": lambda: local_lines(sums),
    }
    tick("compiling")
    for work in works.values():
        work()
    found = cpu_times(works, rounds=ROUNDS, tick=tick)
    first = found["order 0: the dense build"]
    rows = [Row(name, seconds(value), times(value / first)) for name, value in found.items()]
    notes = ["The same transitions and representative states, one thread."]
    title = f"Build of orders 0 and 1: n = {n:,}, m = {m}, d = {d}"
    return Report(title, rows, notes, compared="ratio to order 0")


def _read(n: int, m: int, tick: Tick) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        tick(f"writing a log of {n:,} rows")
        files.write_wandering(path, n)
        log = open_log(path)
        chunks = list(log.chunks())
        rng = np.random.default_rng(0)
        reps = chunks[0].next_states[rng.choice(len(chunks[0]), m, replace=False)]
        basis = _basis(reps, n_actions=files.N_ACTIONS)
        works: dict[str, Work] = {
            "reading the log once": lambda: sum(len(chunk) for chunk in log.chunks()),
            "order 1: the sums": lambda: _accumulate(basis, chunks),
        }
        works["order 1: the sums"]()
        found = cpu_times(works, rounds=3, tick=tick)
    reading, building = found.values()
    goal = at_most(building, READING_LIMIT * reading, "at most twice the time of reading")
    rows = [Row(name, seconds(value), times(value / reading)) for name, value in found.items()]
    rows[1] = replace(rows[1], goal=goal)
    notes = [f"{files.N_DIMS} state variables, {files.N_ACTIONS} actions; the file is Parquet."]
    return Report(f"Sums of order 1 against reading the file: n = {n:,}, m = {m}", rows, notes, compared="to reading")


def _accumulate(basis: Basis, chunks: list[Transitions]) -> LineSums:
    sums = LineSums(basis)
    for chunk in chunks:
        sums.accumulate(chunk)
    return sums


def _basis(reps: Floats, n_actions: int) -> Basis:
    kernel = Kernel(dense.WIDTH)
    return Basis(reps, Coordinates.plain(reps.shape[1]), kernel, kernel, n_actions=n_actions)


def _decide(m: int, n_states: int, tick: Tick) -> Report:
    tick("a model to ask")
    model = _model(m, n_dims=4)
    states = np.random.default_rng(1).random((n_states, 4))
    scaled = model.coordinates.of(states)
    decide = model.rep_q_function.decider()
    assert decide is not None
    works: dict[str, Work] = {REPS: lambda: [decide(state) for state in scaled]}
    for hold in HOLDS:  # twelve steps, those of the goal, lie between
        longer = model.with_settings(plan=Plan(decisions=DECISIONS, hold=hold))
        plans = f"{longer.plans.n_plans} plans of {longer.plans.n_steps} steps"
        works[f"{AHEAD}, {plans}"] = lambda model=longer: [model.act(state) for state in states]
    for work in works.values():
        work()
    each = {name: value / n_states for name, value in cpu_times(works, rounds=ROUNDS, tick=tick).items()}
    rows = [Row(name, seconds(value), times(value / each[REPS]), _goal(name, value)) for name, value in each.items()]
    notes = [f"Mean over {n_states:,} states, two actions. The goal of look-ahead is for 32 plans of 12 steps."]
    return Report(f"One decision of order 1: m = {m}, d = 4", rows, notes, "CPU time a state", "to Q-bar")


def _goal(name: str, value: float) -> Goal:
    return at_most(value, REPS_LIMIT, "under 5 µs") if name == REPS else at_most(value, AHEAD_LIMIT, "under 200 µs")


def _model(m: int, n_dims: int) -> Any:
    """Learn from states that wander, with two actions."""
    rng = np.random.default_rng(0)
    n = 40 * m
    states, actions = rng.random((n, n_dims)), np.arange(n) % 2
    next_states = np.clip(states + 0.03 * rng.standard_normal((n, n_dims)), 0.0, 1.0)
    next_states[:, 0] = np.clip(next_states[:, 0] + 0.03 * (2 * actions - 1), 0.0, 1.0)
    log = Transitions(states, actions, -np.square(next_states - 0.5).sum(axis=1), next_states)
    return KBSF(m, "spread", order=1, rep_width=0.3, random_state=0, n_jobs=1).fit(log).model_
