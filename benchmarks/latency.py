"""The latency of one decision: from a state to the action of a learnt policy.

The compiled call is what a program of its own would pay; ``act`` and ``predict`` are what a Python caller pays, checks
of the input included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba import njit

from benchmarks.measure import Report, Row, Section, Tick, at_most, cpu_times, seconds, times
from kbrl import KBSF, Transitions
from kbrl.arrays import Floats, Integers
from kbrl.model import compiled

ROUNDS = 7
LIMIT = 5e-6
COMPILED = "kbrl: inside the compiled call"

Decide = Callable[[], Any]  # the actions of all states, one decision at a time


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield the tables of all ways to ask for one action: by a dense kernel, and by one of four neighbours."""
    n_states = 100 if quick else 2_000
    n_reps, n_dims, n_actions = (20 if quick else 200), 6, 4
    states = np.random.default_rng(1).random((n_states, n_dims))
    for neighbors in (None, 4):
        tick("a model to ask")
        model = _model(n_reps, n_dims, n_actions, neighbors)
        calls = {COMPILED: _compiled_call(model, states)} if neighbors is None else {}
        calls |= {
            "kbrl: model.act(array)": lambda model=model: [model.act(state) for state in states],
            "kbrl: model.act(list)": _over_lists(model, states),
            "kbrl: model.predict([state])": lambda model=model: [model.predict([state])[0] for state in states],
            "NumPy, no checks": _numpy(model, states),
            "kbrl: model.predict(all states at once)": lambda model=model: model.predict(states),
        }
        _require_same(calls, model.predict(states), tick)
        title = f"One decision: m = {n_reps}, {n_actions} actions, d = {n_dims}"
        title += f", {neighbors} neighbours" if neighbors else ""
        yield _report(title, calls, n_states, tick)


def _require_same(calls: dict[str, Decide], expected: Any, tick: Tick) -> None:
    for name, decide in calls.items():
        tick(f"{name}: are the actions the same?")
        if not np.array_equal(decide(), expected):
            raise RuntimeError(f"{name} must choose the actions that predict chooses, but it does not.")


def _report(title: str, calls: dict[str, Decide], n_states: int, tick: Tick) -> Report:
    measured = cpu_times(calls, rounds=ROUNDS, tick=tick)
    each = {name: value / n_states for name, value in measured.items()}
    goals = {COMPILED: at_most(each[COMPILED], LIMIT, "under 5 µs")} if COMPILED in each else {}
    first = next(iter(calls))
    rows = [Row(name, seconds(value), times(value / each[first]), goals.get(name)) for name, value in each.items()]
    notes = [f"Mean over {n_states:,} states; all choose the same actions."]
    return Report(title, rows, notes, measured="CPU time a state", compared="ratio to the first")


SECTION = Section("latency", run)


def _model(n_reps: int, n_dims: int, n_actions: int, neighbors: int | None) -> KBSF:
    rng = np.random.default_rng(0)
    n = 20 * n_reps
    states = rng.random((n, n_dims))
    next_states = np.clip(states + 0.1 * rng.standard_normal((n, n_dims)), 0.0, 1.0)
    log = Transitions(states, np.arange(n) % n_actions, rng.standard_normal(n), next_states)
    options: dict[str, Any] = {"rep_neighbors": neighbors, "scaling": None, "random_state": 0, "n_jobs": 1}
    return KBSF(n_reps, "random", discount=0.9, rep_width=0.3, **options).fit(log)


def _compiled_call(model: KBSF, states: Floats) -> Decide:
    at = model.statistics_.basis.rep_weights
    rep_q, scratch = np.ascontiguousarray(model.rep_q_.T), np.empty(len(at.points))
    return lambda: _decide_all(states, at.columns, at.inverse_widths, rep_q, scratch, at.kind)


@njit  # not cached: numba would not notice that decide has changed
def _decide_all(
    states: Floats, points: Floats, inverse_widths: Floats, rep_q: Floats, scratch: Floats, kind: Any
) -> Integers:
    chosen = np.empty(len(states), np.intp)
    for t in range(len(states)):
        chosen[t] = compiled.decide(states[t], points, inverse_widths, rep_q, kind)
    return chosen


def _over_lists(model: KBSF, states: Floats) -> Decide:
    lists = states.tolist()
    return lambda: [model.act(state) for state in lists]


def _numpy(model: KBSF, states: Floats) -> Decide:
    """Prepare the same decision in NumPy, with everything that can be done beforehand done beforehand."""
    reps, rep_q, inverse_width = model.reps_ / model.scale_, model.rep_q_, 1.0 / model.rep_width
    n_near = model.rep_neighbors

    def decide(state: Floats) -> int:
        difference = reps - state
        z = np.sqrt(np.einsum("ij,ij->i", difference, difference)) * inverse_width
        if n_near is None:
            return int((np.exp(z.min() - z) @ rep_q).argmax())
        near = np.argpartition(z, n_near)[:n_near]
        return int((np.exp(z.min() - z[near]) @ rep_q[near]).argmax())

    return lambda: [decide(state) for state in states]
