"""What the statistics of KBSF refer to: the representative states and the two kernels.

Statistics that refer to the same basis add up; others do not.  All states here are already scaled.
Paper: section 4, and equation (kveton) of section 7 for hard aggregation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree
from threadpoolctl import ThreadpoolController

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.scaling import Coordinates
from kbrl.data.transitions import Transitions
from kbrl.model.kernels import Kernel, KernelAt


class Samples(NamedTuple):
    """The transitions of one action, in scaled coordinates."""

    states: Floats  # (n, n_dims)
    rewards: Floats  # (n,)
    next_states: Floats  # (n, n_dims)
    terminals: Booleans  # (n,)
    logged: Floats | None = None  # (n, n_dims): the states as they were, where hard aggregation has replaced them

    @property
    def logged_states(self) -> Floats:
        """The states as they were logged, (n, n_dims)."""
        return self.states if self.logged is None else self.logged

    def part(self, rows: slice) -> Samples:
        """Return a range of the rows, without a copy."""
        return Samples(self.states[rows], self.rewards[rows], self.next_states[rows], self.terminals[rows])

    def take(self, rows: Integers) -> Samples:
        """Return copies of some of the rows."""
        states, next_states = (
            self.states.take(rows, axis=0),
            self.next_states.take(rows, axis=0),
        )  # faster than indexing
        logged = None if self.logged is None else self.logged.take(rows, axis=0)
        return Samples(states, self.rewards[rows], next_states, self.terminals[rows], logged)


@dataclass(frozen=True, eq=False)
class Basis:
    """Representative states, coordinates of the state variables, and the kernels k_tau and k_tau-bar.

    ``hard`` is Kveton and Theocharous' variant: every state stands for its nearest representative state.
    """

    reps: Floats  # (n_reps, n_dims), scaled
    coordinates: Coordinates  # in which the states are scaled
    sample_kernel: Kernel
    rep_kernel: Kernel
    n_actions: int
    hard: bool = False

    @property
    def n_reps(self) -> int:
        """The number of representative states."""
        return len(self.reps)

    @cached_property
    def samples_at_reps(self) -> KernelAt:
        """k_tau(., representative state), the kernel of K."""
        return self.sample_kernel.at(self.reps)

    @cached_property
    def search_order(self) -> Integers:
        """The representative states in the order of a tree: neighbours one after the other are found twice as fast."""
        return cKDTree(self.reps).indices

    @cached_property
    def rep_weights(self) -> KernelAt:
        """kappa-bar, the kernel of D."""
        # the one that counts is the nearest, whatever the widths
        kernel = replace(self.rep_kernel, neighbors=1, width=1.0) if self.hard else self.rep_kernel
        return kernel.at(self.reps)

    def to_reps(self, next_states: Floats, terminals: Booleans) -> Any:
        """Return D for these transitions, (n, n_reps); the rows of terminal ones are zero: they lead nowhere."""
        weights = self.rep_weights.weights(next_states)
        if not terminals.any():
            return weights
        if sparse.issparse(weights):
            return sparse.csr_array(sparse.diags_array((~terminals).astype(float)) @ weights)
        weights[terminals] = 0.0
        return weights

    def by_action(self, log: Transitions) -> list[Samples]:
        """Scale the states and part the transitions by action."""
        states, next_states = self.coordinates.of(log.states), self.coordinates.of(log.next_states)
        logged = None
        if self.hard:
            logged, states = states, self.reps[self.rep_weights.nearest(states)]
        everything = Samples(states, log.rewards, next_states, log.terminals, logged)
        return [everything.take(rows) for rows in log.by_action()]

    def check_same(self, other: Basis) -> None:
        """Refuse to add statistics that refer to something else."""
        same = {
            "representative states": np.array_equal(self.reps, other.reps),
            "scaling": self.coordinates.same_as(other.coordinates),
            "sample kernel": self.sample_kernel.same_as(other.sample_kernel),
            "representative kernel": self.rep_kernel.same_as(other.rep_kernel),
            "number of actions": self.n_actions == other.n_actions,
            "kind of aggregation": self.hard == other.hard,
        }
        different = [name for name, equal in same.items() if not equal]
        if different:
            raise ValueError(
                f"Statistics add up only if they refer to the same basis, but these differ in: {', '.join(different)}. "
                f"Fit both models with the same representative states, scaling and widths."
            )


@cache
def _blas() -> ThreadpoolController:
    """Find the BLAS libraries once: looking for them takes a millisecond."""
    return ThreadpoolController()


_limit_lock = Lock()
_limits: list[Any] = []  # the one limit in force, and how many hold it: threads must not restore each other's


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread until the last of those who ask for it is done."""
    with _limit_lock:
        if not _limits:
            _limits[:] = [_blas().limit(limits=1, user_api="blas"), 0]
        _limits[1] += 1
    try:
        yield
    finally:
        with _limit_lock:
            _limits[1] -= 1
            if _limits[1] == 0:
                _limits[0].restore_original_limits()
                _limits.clear()


def for_each_action(work: Callable[[int], None], n_actions: int, n_jobs: int) -> None:
    """Do the work for every action; actions share nothing, so the result does not depend on the number of threads.

    BLAS is held to one thread: its own threads would compete with ours on blocks that are too small for them.
    """
    with one_blas_thread():
        if n_jobs == 1 or n_actions == 1:
            for action in range(n_actions):
                work(action)
        else:
            with ThreadPoolExecutor(max_workers=min(n_jobs, n_actions)) as pool:
                list(pool.map(work, range(n_actions)))
