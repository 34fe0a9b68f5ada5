"""Ways to solve a finite MDP: modified policy iteration, policy iteration and value iteration.

The MDPs look like KBSF's: states are random points in a square, an action moves them its own way, and the probability
of a next state falls with its distance from where the move ends.  "auto" is what the learners use.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from scipy import sparse

from benchmarks.measure import (
    Report,
    Row,
    Section,
    Tick,
    cpu_times,
    largest_difference,
    require_agreement,
    seconds,
    times,
)
from kbrl import FiniteMDP, Kernel, solve

AUTO, MODIFIED, EXACT, VALUE = "auto", "modified policy iteration", "policy iteration", "value iteration"
TOLERANCE = 1e-6
DISCOUNT = 0.99
WIDTH = 0.03


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield one table an MDP: so many states, actions, and neighbours if it is sparse."""
    cases = [(200, 4, None), (2_000, 4, None), (500, 256, None), (50_000, 4, 32)]
    for n_states, n_actions, neighbors in [(50, 4, None), (300, 4, 8)] if quick else cases:
        tick(f"an MDP of {n_states:,} states")
        yield _compare(_random_mdp(n_states, n_actions, neighbors), tick)


SECTION = Section("solvers", run)


def _compare(mdp: FiniteMDP, tick: Tick) -> Report:
    is_sparse = sparse.issparse(mdp.stacked)
    methods = [AUTO, MODIFIED, VALUE] if is_sparse else [AUTO, MODIFIED, EXACT, VALUE]
    solutions = {}
    for method in methods:
        tick(method)
        solutions[method] = solve(mdp, method, tolerance=TOLERANCE)
        # each may be off by the tolerance times the largest value, in either direction
        difference = largest_difference([solutions[AUTO].values], [solutions[method].values]) * (1 - DISCOUNT)
        require_agreement(method, difference, 2 * TOLERANCE)
    contenders = {method: partial(solve, mdp, method, tolerance=TOLERANCE) for method in methods}
    measured = cpu_times(contenders, rounds=2, tick=tick)
    rows = [
        Row(
            f"{method}, {solutions[method].iterations} improvements",
            seconds(value),
            times(value / measured[AUTO]),
        )
        for method, value in measured.items()
    ]
    form = f"sparse, {mdp.stacked.nnz / mdp.stacked.shape[0]:.0f} entries a row" if is_sparse else "dense"
    notes = (
        ["Policy iteration is left out: the factors of a sparse system may need far more memory than it does."]
        if is_sparse
        else []
    )
    notes.append(f"The values agree; discount {DISCOUNT}, tolerance {TOLERANCE:.0e} of the largest possible value.")
    return Report(
        f"Solvers: {mdp.n_states:,} states, {mdp.n_actions} actions, {form}", rows, notes, compared="ratio to auto"
    )


def _random_mdp(n_states: int, n_actions: int, neighbors: int | None) -> FiniteMDP:
    rng = np.random.default_rng(0)
    points, moves = rng.random((n_states, 2)), rng.uniform(-0.1, 0.1, (n_actions, 2))
    kernel = Kernel(WIDTH, neighbors=neighbors).at(points)
    rows = [kernel.weights(np.clip(points + move, 0.0, 1.0)) for move in moves]
    probabilities = np.stack(rows) if neighbors is None else sparse.vstack(rows, format="csr")
    return FiniteMDP(probabilities, rng.random((n_actions, n_states)), DISCOUNT)
