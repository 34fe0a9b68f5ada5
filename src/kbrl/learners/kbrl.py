"""KBRL: kernel-based reinforcement learning, the method that KBSF compresses.

Every sample transition becomes a state of a finite MDP: consistent, but memory grows with n^2.
Paper: section 2.2 (Ormoneit and Sen 2002).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import check_norm, check_profile, in_unit_interval, one_of, positive, whole
from kbrl.data.scaling import coordinates
from kbrl.data.transitions import Transitions, as_log, refuse_allowed, without_ends
from kbrl.learners.learner import Learner, say_if_rare
from kbrl.mdp.dynamic_programming import Solution, solve
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.mdp.solvers import SOLVERS
from kbrl.model.kernels import Kernel, Profile, blocks, lost_over_time
from kbrl.model.q_functions import SampleQ
from kbrl.model.reduced_model import often_taken, say_not_converged
from kbrl.model.sample_weights import SampleWeights
from kbrl.settings import TERMINALS, cases_needed


@dataclass(eq=False, repr=False)
class KBRL(Learner):
    """Kernel-based reinforcement learning: every transition is a state of the model, and nothing is compressed.

    sample_width: the kernel's width tau, in units of ``scaling``.
    sample_neighbors: only this many nearest samples count; those at the last distance share the remaining places.
    discount, scaling, profile, norm, terminals, solver, tolerance: as for KBSF.
    min_cases: as for KBSF: actions that were taken fewer times are left out; None: 5.

    ``fit(log)`` takes `Transitions`.  ``predict(states)`` and ``q_values(states)`` answer for states, (n_states,
    n_dims), as KBSF does.  Memory grows with the square of the number of transitions: unless ``sample_neighbors`` is
    set, 8000 take about 0.8 GB, and twice that while the model is built.  On discrete states ``sample_neighbors`` does
    not bound memory: all samples that tie count, so that n transitions from k equally frequent states of one action
    still take about n * n / k entries.

    In state 0, "left" pays 1 and stays there; in state 1, "right" does.  The discount is 0.9, so paying for ever is
    worth 1 / (1 - 0.9) = 10, and the other action is worth 0.9 * 10 = 9.

    >>> from kbrl import KBRL, Transitions
    >>> log = Transitions(
    ...     states=[[0.0], [0.0], [1.0], [1.0]],
    ...     actions=["left", "right", "left", "right"],
    ...     rewards=[1.0, 0.0, 0.0, 1.0],
    ...     next_states=[[0.0], [1.0], [0.0], [1.0]],
    ... )
    >>> KBRL(discount=0.9, min_cases=1).fit(log).q_values([[0.0], [1.0]]).round(2).tolist()
    [[10.0, 9.0], [9.0, 10.0]]
    """

    sample_width: float = 0.1
    sample_neighbors: int | None = None
    discount: float = 0.99
    scaling: Any = "std"
    _: KW_ONLY
    profile: Profile = "exponential"
    norm: float = 2.0
    terminals: str = "absorb"
    solver: str = "auto"
    tolerance: float = 1e-8
    min_cases: int | None = None
    mdp_: FiniteMDP = field(init=False)  # one state per next state, in the order of the transitions
    solution_: Solution = field(init=False)

    def fit(self, log: Transitions) -> KBRL:
        """Learn from transitions: build the MDP of their next states and solve it."""
        self._check_parameters()
        log = as_log(log) if self.terminals == "absorb" else without_ends(as_log(log))
        refuse_allowed(log, "KBRL")
        fades = None if log.durations is None else 1.0 - lost_over_time(log, float(self.discount))
        kernel = Kernel(self.sample_width, self.profile, self.sample_neighbors, self.norm)
        units = coordinates(log.states, self.scaling, source=log.source)
        states, next_states = units.of(log.states), units.of(log.next_states)
        all_rows = log.by_action()
        counts = np.array([len(rows) for rows in all_rows])
        often = often_taken(counts, cases_needed(self.min_cases))
        by_action = [rows if kept else rows[:0] for rows, kept in zip(all_rows, often)]
        samples = SampleQ.of(kernel, states, log.rewards, by_action)
        mdp = _sample_mdp(samples, next_states, log.terminals, by_action, float(self.discount), fades)
        solution = solve(mdp, self.solver, tolerance=self.tolerance)
        if not solution.converged:
            say_not_converged(solution)
        ahead = (self.discount if fades is None else fades) * solution.values
        worths = log.rewards + np.where(log.terminals, 0.0, ahead)
        self.mdp_, self.solution_ = mdp, solution
        self._samples = SampleQ(samples.samples, [worths[rows] for rows in by_action])
        self.coordinates_ = units
        self.action_labels_ = log.action_labels
        self.source_ = log.source
        say_if_rare(log.action_labels, counts, self.min_cases)
        return self

    def _q_function(self) -> Callable[[Floats], Floats]:
        self._check_fitted()
        return self._samples

    def _check_parameters(self) -> None:
        in_unit_interval(self.discount, "discount")
        one_of(self.terminals, TERMINALS, "terminals")
        check_profile(self.profile)
        check_norm(self.norm)
        one_of(self.solver, ("auto", *SOLVERS), "solver")
        positive(self.tolerance, "tolerance")
        positive(self.sample_width, "sample_width")
        for name in ("sample_neighbors", "min_cases"):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name)


def _sample_mdp(
    samples: SampleQ,
    next_states: Floats,
    ends: Booleans,
    by_action: list[Integers],
    discount: float,
    fades: Floats | None,
) -> FiniteMDP:
    """Return KBRL's MDP: P^a(s'_j | s) = kappa_a(s, s_j), which is zero for the transitions of other actions.

    The columns of transitions that end an episode are left out: nothing follows them.  With durations, column j is
    multiplied by ``fades`` j, discount^duration.
    """
    n = len(next_states)
    rewards = np.zeros((len(by_action), n))
    rows_of_actions = []
    for action, (at, rows) in enumerate(zip(samples.samples, by_action)):
        if at is None:
            rows_of_actions.append(sparse.csr_array((n, n)))
            continue
        fill = _sparse_rows if at.kernel.neighbors is not None else _dense_rows
        matrix, rewards[action] = fill(at, samples.worths[action], next_states, rows, ~ends[rows])
        rows_of_actions.append(matrix)
    available = np.array([[at is not None] * n for at in samples.samples])
    stacked = sparse.vstack(rows_of_actions, format="csr")
    if fades is None:
        return FiniteMDP.trusted(stacked, rewards, discount, available)
    stacked.data *= fades[stacked.indices]
    return FiniteMDP.discounted(stacked, rewards, discount, available)


def _dense_rows(
    at: SampleWeights, rewards: Floats, next_states: Floats, rows: Integers, kept: Booleans
) -> tuple[sparse.csr_array, Floats]:
    """Return P^a, of which every entry is stored, and r^a."""
    n, columns = len(next_states), rows[kept].astype(np.int32)
    values, expected = np.empty((n, len(columns))), np.empty(n)
    for block in blocks(n):
        weights = at.weights(next_states[block])
        values[block] = weights[:, kept]
        expected[block] = weights @ rewards
    largest = n * len(columns)  # indices of 4 bytes, while they suffice, save a third of the memory
    row_starts = np.arange(n + 1, dtype=np.int32 if largest < 2**31 else np.int64) * len(columns)
    return sparse.csr_array((values.ravel(), np.tile(columns, n), row_starts), (n, n)), expected


def _sparse_rows(
    at: SampleWeights, rewards: Floats, next_states: Floats, rows: Integers, kept: Booleans
) -> tuple[sparse.csr_array, Floats]:
    """Return P^a of a truncated kernel, and r^a."""
    weights = at.weights(next_states)
    expected = weights @ rewards
    weights = sparse.csr_array(weights[:, np.flatnonzero(kept)])
    shape = (len(next_states), len(next_states))
    return sparse.csr_array((weights.data, rows[kept][weights.indices], weights.indptr), shape), expected
