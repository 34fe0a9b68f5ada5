"""The dense build of one action's model: from n transitions to P-bar and r-bar of m representative states.

kbrl against a C kernel with the same matrix product, NumPy in chunks, NumPy once a transition, and plain Python.  The
last two are measured on fewer transitions and scaled up: their time is proportional to n.
All contenders but kbrl leave out the running log-scale that keeps small widths from underflowing.
"""

from __future__ import annotations

import ctypes
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import yardstick
from benchmarks.measure import (
    Report,
    Row,
    Section,
    Tick,
    at_least,
    at_most,
    cpu_times,
    largest_difference,
    require_agreement,
    seconds,
    times,
)
from kbrl import Kernel, Transitions
from kbrl.arrays import Floats
from kbrl.data.scaling import Coordinates
from kbrl.model.kernels import Basis
from kbrl.model.sums import KernelSums

WIDTH = 0.3
TOLERANCE = 1e-9
ROUNDS = 5
C_CHUNK, NUMPY_CHUNK = 2048, 1024
KBRL, C, NUMPY, EACH, PYTHON = "kbrl", "C kernel", "NumPy in chunks", "NumPy, one call a transition", "plain Python"

Model = tuple[Floats, Floats]  # P-bar (m, m), r-bar (m,)
Build = Callable[[], Model]


@dataclass(frozen=True)
class Problem:
    """Transitions of one action, and representative states."""

    states: Floats  # (n, d)
    rewards: Floats  # (n,)
    next_states: Floats  # (n, d)
    reps: Floats  # (m, d)

    @classmethod
    def random(cls, n: int, m: int, d: int) -> Problem:
        """Draw states uniformly in the unit cube, next states near them, and representatives among those."""
        rng = np.random.default_rng(0)
        states = rng.random((n, d))
        next_states = np.clip(states + 0.1 * rng.standard_normal((n, d)), 0.0, 1.0)
        return cls(states, rng.standard_normal(n), next_states, next_states[rng.choice(n, m, replace=False)])

    def first(self, n: int) -> Problem:
        """Return the problem of the first n transitions."""
        return Problem(self.states[:n], self.rewards[:n], self.next_states[:n], self.reps)


@dataclass(frozen=True)
class Contender:
    """A way to build the model, on so many of the transitions."""

    build: Build
    n: int


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield one table a size."""
    for n, m, d in [(5_000, 50, 3)] if quick else [(100_000, 200, 6), (20_000, 1_000, 8)]:
        with tempfile.TemporaryDirectory() as folder:
            yield _compare(Problem.random(n, m, d), Path(folder), tick)


SECTION = Section("dense", run)


def _compare(problem: Problem, folder: Path, tick: Tick) -> Report:
    n, d = problem.states.shape
    m = len(problem.reps)
    tick("the C compiler")
    library, compiled_how = yardstick.compile_yardstick(d, folder)
    few, very_few = max(40, 200_000 // m), max(4, 8_000 // m)
    contenders = {KBRL: Contender(with_kbrl(problem), n)}
    if library is not None:
        contenders[C] = Contender(lambda: with_c(problem, library), n)
    contenders[NUMPY] = Contender(lambda: with_numpy(problem), n)
    contenders[EACH] = Contender(lambda: transition_by_transition(problem.first(few)), few)
    contenders[PYTHON] = Contender(lambda: with_plain_python(problem.first(very_few)), very_few)
    difference = _check(contenders, problem, tick)
    measured = cpu_times({name: c.build for name, c in contenders.items()}, rounds=ROUNDS, tick=tick)
    full = {name: value * n / contenders[name].n for name, value in measured.items()}
    notes = [
        f"All give the same P-bar and r-bar: largest difference {difference:.0e}, tolerance {TOLERANCE:.0e}.",
        f"C: {compiled_how}; the product by NumPy, in chunks of {C_CHUNK} rows.  NumPy: chunks of {NUMPY_CHUNK} rows.",
        f"Measured on {few} transitions (one call a transition) and {very_few} (plain Python), and scaled up to n.",
    ]
    return Report(f"Dense build, one action: n = {n:,}, m = {m}, d = {d}", _rows(full, m), notes)


def _check(contenders: dict[str, Contender], problem: Problem, tick: Tick) -> float:
    """Return the largest difference of any contender's model from kbrl's on the same transitions."""
    largest = 0.0
    for name, contender in contenders.items():
        tick(f"{name}: is its model the same?")
        ours = with_kbrl(problem.first(contender.n))()
        difference = largest_difference(ours, contender.build())
        require_agreement(name, difference, TOLERANCE)
        largest = max(largest, difference)
    return largest


def _rows(full: dict[str, float], m: int) -> list[Row]:
    ratio = {name: value / full[KBRL] for name, value in full.items()}
    goals = {
        EACH: at_least(ratio[EACH], 20.0, "kbrl at least 20 x faster"),
        PYTHON: at_least(ratio[PYTHON], 500.0, "kbrl at least 500 x faster"),
    }
    if m <= 200:  # with more, the matrix product, which is the same for both, takes most of the time
        goals[NUMPY] = at_least(ratio[NUMPY], 1.5, "kbrl at least 1.5 x faster")
    if C in full:
        goals[C] = at_most(1 / ratio[C], 1.2, f"kbrl at most 1.2 x its time: {times(1 / ratio[C])}")
    return [Row(name, seconds(value), times(ratio[name]), goals.get(name)) for name, value in full.items()]


def with_kbrl(problem: Problem) -> Build:
    """Prepare the log and the basis; building the model is what counts."""
    n, d = problem.states.shape
    log = Transitions(problem.states, np.zeros(n, dtype=int), problem.rewards, problem.next_states)
    basis = Basis(problem.reps, Coordinates.plain(d), Kernel(WIDTH), Kernel(WIDTH), n_actions=1)

    def build() -> Model:
        mdp = KernelSums(basis).accumulate(log, n_jobs=1).to_mdp(0.99)
        return mdp.stacked, mdp.rewards[0]

    return build


def with_c(problem: Problem, library: ctypes.CDLL) -> Model:
    """Fill the two kernel matrices of a chunk in C, and multiply them by NumPy."""
    m = len(problem.reps)
    points = np.ascontiguousarray(problem.reps.T)
    k, d, product = np.empty((C_CHUNK, m)), np.empty((C_CHUNK, m)), np.empty((m, m))
    weight, reward_sum, transition_sum = np.zeros(m), np.zeros(m), np.zeros((m, m))
    for rows in _chunks(len(problem.rewards), C_CHUNK):
        states, rewards, next_states = problem.states[rows], problem.rewards[rows], problem.next_states[rows]
        n = len(rewards)
        sums = (weight, reward_sum)
        yardstick.call(library.fill_samples, n, m, states, points, 1 / WIDTH, rewards, k, *sums)
        yardstick.call(library.fill_reps, n, m, next_states, points, 1 / WIDTH, d)
        transition_sum += np.matmul(k[:n].T, d[:n], out=product)
    return transition_sum / weight[:, None], reward_sum / weight


def with_numpy(problem: Problem) -> Model:
    """Do the same in NumPy, in place, with distances from a matrix product."""
    m = len(problem.reps)
    buffers = np.empty((2, NUMPY_CHUNK, m))
    weight, reward_sum, transition_sum = np.zeros(m), np.zeros(m), np.zeros((m, m))
    squares = (problem.reps**2).sum(axis=1)
    for rows in _chunks(len(problem.rewards), NUMPY_CHUNK):
        rewards = problem.rewards[rows]
        k, d = buffers[:, : len(rewards)]
        _minus_distances(problem.states[rows], problem.reps, squares, k)
        np.exp(k, out=k)
        weight += k.sum(axis=0)
        reward_sum += rewards @ k
        _minus_distances(problem.next_states[rows], problem.reps, squares, d)
        d -= d.max(axis=1, keepdims=True)
        np.exp(d, out=d)
        d /= d.sum(axis=1, keepdims=True)
        transition_sum += k.T @ d
    return transition_sum / weight[:, None], reward_sum / weight


def _minus_distances(states: Floats, reps: Floats, squares: Floats, out: Floats) -> None:
    """Fill in -||s - rep|| / width, by ||s||^2 + ||rep||^2 - 2 s . rep."""
    np.matmul(states, -2.0 * reps.T, out=out)
    out += squares
    out += (states**2).sum(axis=1)[:, None]
    np.maximum(out, 0.0, out=out)
    np.sqrt(out, out=out)
    out *= -1.0 / WIDTH


def transition_by_transition(problem: Problem) -> Model:
    """Do the same with a few NumPy calls for each transition, as its formulas read."""
    m = len(problem.reps)
    weight, reward_sum, transition_sum = np.zeros(m), np.zeros(m), np.zeros((m, m))
    for state, reward, next_state in zip(problem.states, problem.rewards, problem.next_states):
        k = np.exp(-np.sqrt(((problem.reps - state) ** 2).sum(axis=1)) / WIDTH)
        d = np.exp(-np.sqrt(((problem.reps - next_state) ** 2).sum(axis=1)) / WIDTH)
        weight += k
        reward_sum += reward * k
        transition_sum += np.outer(k, d / d.sum())
    return transition_sum / weight[:, None], reward_sum / weight


def with_plain_python(problem: Problem) -> Model:
    """Do the same with lists and loops."""
    reps = problem.reps.tolist()
    m = len(reps)
    weight, reward_sum, transition_sum = [0.0] * m, [0.0] * m, [[0.0] * m for _ in reps]
    columns = (problem.states.tolist(), problem.rewards.tolist(), problem.next_states.tolist())
    for state, reward, next_state in zip(*columns):
        d = [math.exp(-math.dist(next_state, rep) / WIDTH) for rep in reps]
        total = sum(d)
        d = [value / total for value in d]
        for i in range(m):
            k = math.exp(-math.dist(reps[i], state) / WIDTH)
            weight[i] += k
            reward_sum[i] += k * reward
            row = transition_sum[i]
            for j in range(m):
                row[j] += k * d[j]
    share = 1.0 / np.array(weight)
    return np.array(transition_sum) * share[:, None], np.array(reward_sum) * share


def _chunks(n_rows: int, n_chunk: int) -> list[slice]:
    return [slice(start, min(start + n_chunk, n_rows)) for start in range(0, n_rows, n_chunk)]
