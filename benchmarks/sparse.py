"""The sparse build: many representative states, kernels that reach only the nearest neighbours.

kbrl searches rows of D only for the transitions that K touches; the obvious way searches them for all transitions.
Paper: appendix B.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from scipy import sparse
from scipy.spatial import cKDTree

from benchmarks.measure import (
    Report,
    Row,
    Section,
    Tick,
    cpu_time,
    largest_difference,
    require_agreement,
    seconds,
    times,
)
from kbrl import Kernel, Transitions
from kbrl.arrays import Floats
from kbrl.data.scaling import Coordinates
from kbrl.model.kernels import Basis
from kbrl.model.nearest_samples import Neighborhoods

NEIGHBORS = 6  # mu and mu-bar
WIDTH = 0.1
TOLERANCE = 1e-9
NEEDED = 2e9  # bytes


@dataclass
class Stages:
    """Results of the steps of a build, each measured when it is taken."""

    tick: Tick
    spent: dict[str, float]

    def take(self, name: str, work: Callable[[], Any]) -> Any:
        """Do a step and note its CPU seconds."""
        results: list[Any] = []
        self.tick(name)
        self.spent[name] = cpu_time(lambda: results.append(work()))
        return results[0]


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield the table of the sparse build."""
    n, m, d = (20_000, 1_000, 3) if quick else (1_000_000, 50_000, 6)
    title = f"Sparse build, one action: n = {n:,}, m = {m:,}, d = {d}, mu = mu-bar = {NEIGHBORS}"
    free = psutil.virtual_memory().available
    if not quick and free < NEEDED:
        yield Report(
            title, [], [f"Skipped: it needs about {NEEDED / 1e9:.0f} GB of memory, and {free / 1e9:.1f} are free."]
        )
        return
    log, reps = _random_problem(n, m, d)
    basis = Basis(reps, Coordinates.plain(d), Kernel(WIDTH, neighbors=NEIGHBORS), Kernel(WIDTH, neighbors=NEIGHBORS), 1)
    ours, theirs = Stages(tick, {}), Stages(tick, {})
    neighborhoods = ours.take("kbrl: search", lambda: Neighborhoods(basis).accumulate(log, n_jobs=1))
    mdp = ours.take("kbrl: to_mdp", lambda: neighborhoods.to_mdp(0.99))
    probabilities, rewards = _the_obvious_way(log, reps, theirs)
    difference = max(
        largest_difference([mdp.rewards[0]], [rewards]), float(np.abs((mdp.stacked - probabilities).data).max())
    )
    require_agreement("SciPy", difference, TOLERANCE)
    notes = [
        f"Both give the same P-bar and r-bar: largest difference {difference:.0e}, tolerance {TOLERANCE:.0e}.",
        f"{mdp.stacked.nnz / m:.1f} entries a row of P-bar; one run each.",
    ]
    yield Report(title, _rows(ours.spent, theirs.spent, m), notes)


SECTION = Section("sparse", run)


def _rows(ours: dict[str, float], theirs: dict[str, float], m: int) -> list[Row]:
    kbrl = sum(ours.values())
    rows = []
    for total_name, stages in (("kbrl", ours), ("SciPy, D for all transitions", theirs)):
        total = sum(stages.values())
        rows.append(
            Row(f"{total_name}: {seconds(total / m)} a representative state", seconds(total), times(total / kbrl))
        )
        rows += [Row("    " + name.partition(": ")[2], seconds(value)) for name, value in stages.items()]
    return rows


def _random_problem(n: int, m: int, d: int) -> tuple[Transitions, Floats]:
    rng = np.random.default_rng(0)
    states = rng.random((n, d))
    next_states = np.clip(states + 0.05 * rng.standard_normal((n, d)), 0.0, 1.0)
    reps = next_states[rng.choice(n, m, replace=False)]
    return Transitions(states, np.zeros(n, dtype=int), rng.standard_normal(n), next_states), reps


def _the_obvious_way(log: Transitions, reps: Floats, stages: Stages) -> tuple[sparse.csr_array, Floats]:
    """Return P-bar and r-bar from K and D of all transitions."""
    k = stages.take("SciPy: K, with its tree of the samples", lambda: _weights(reps, log.states))
    d = stages.take("SciPy: D of all transitions", lambda: _weights(log.next_states, reps))
    return stages.take("SciPy: the products", lambda: (k @ d, k @ log.rewards))


def _weights(states: Floats, points: Floats) -> sparse.csr_array:
    """Return the kernel over the nearest points, normalised."""
    distances, indices = cKDTree(points).query(states, k=NEIGHBORS)
    values = np.exp((distances[:, :1] - distances) / WIDTH)
    values /= values.sum(axis=1, keepdims=True)
    row_starts = np.arange(0, values.size + 1, NEIGHBORS)
    return sparse.csr_array((values.ravel(), indices.ravel(), row_starts), shape=(len(states), len(points)))
