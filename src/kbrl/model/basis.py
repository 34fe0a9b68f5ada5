"""What the statistics of KBSF refer to: the representative states and the two kernels.

Statistics that refer to the same basis add up; others do not.  All states here are already scaled.
Paper: section 4 (S-bar and the kernels), section 6.2 (their choice, and rescaling), and equation (kveton) of section 7
for hard aggregation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.scaling import Coordinates
from kbrl.data.transitions import Transitions
from kbrl.lines.circles import NO_CIRCLES, Circles
from kbrl.model.kernels import Kernel, KernelAt

_LEAST_LOSS = 1e-12  # of the value ahead, in one step: less would be rounded away


class Samples(NamedTuple):
    """The transitions of one action, in scaled coordinates."""

    states: Floats  # (n, n_dims)
    rewards: Floats  # (n,)
    next_states: Floats  # (n, n_dims)
    terminals: Any  # (n,) flags: whether nothing follows; or with durations the share of what follows that is lost

    def part(self, rows: slice) -> Samples:
        """Return a range of the rows, without a copy."""
        return Samples(self.states[rows], self.rewards[rows], self.next_states[rows], self.terminals[rows])

    def take(self, rows: Integers) -> Samples:
        """Return copies of some of the rows."""
        states, next_states = (
            self.states.take(rows, axis=0),
            self.next_states.take(rows, axis=0),
        )  # faster than indexing
        return Samples(states, self.rewards[rows], next_states, self.terminals[rows])


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
    discount: float | None = None  # per unit of time, where steps have durations; None: each step takes one
    circles: Circles = NO_CIRCLES  # of order 1: pairs of variables that lie on a circle

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

    def to_reps(self, next_states: Floats, terminals: Booleans | Floats) -> Any:
        """Return D for these transitions, (n, n_reps), each row times what is not lost: those of ends are zero."""
        weights = self.rep_weights.weights(next_states)
        if not terminals.any():
            return weights
        if sparse.issparse(weights):
            return sparse.csr_array(sparse.diags_array(1.0 - terminals) @ weights)
        fade(weights, terminals)
        return weights

    def losses(self, log: Transitions) -> Booleans | Floats:
        """Return the share of the value of each next state that is lost, (n,): all of it at an end.

        With durations it is 1 - discount^duration otherwise; without, the discount is left to the MDP.
        """
        if (log.durations is None) != (self.discount is None):
            refuse_mixed_durations(log)
        return log.terminals if self.discount is None else lost_over_time(log, self.discount)

    def by_action(self, log: Transitions) -> list[Samples]:
        """Scale the states and part the transitions by action."""
        states, next_states = self.coordinates.of(log.states), self.coordinates.of(log.next_states)
        if self.hard:
            states = self.reps[self.rep_weights.nearest(states)]
        everything = (states, log.rewards, next_states, self.losses(log))
        order = np.argsort(log.action_indices, kind="stable")
        ends = np.cumsum(np.bincount(log.action_indices, minlength=self.n_actions))[:-1]
        return [Samples(*part) for part in zip(*(np.split(field.take(order, axis=0), ends) for field in everything))]

    def check_same(self, other: Basis) -> None:
        """Refuse to add statistics that refer to something else."""
        same = {
            "representative states": np.array_equal(self.reps, other.reps),
            "scaling": self.coordinates.same_as(other.coordinates),
            "sample kernel": self.sample_kernel.same_as(other.sample_kernel),
            "representative kernel": self.rep_kernel.same_as(other.rep_kernel),
            "number of actions": self.n_actions == other.n_actions,
            "kind of aggregation": self.hard == other.hard,
            "discount over time": self.discount == other.discount,
            "circles": self.circles.same_as(other.circles),
        }
        different = [name for name, equal in same.items() if not equal]
        if different:
            raise ValueError(
                f"Statistics add up only if they refer to the same basis, but these differ in: {', '.join(different)}. "
                f"Fit both models with the same representative states, scaling and widths."
            )


def refuse_mixed_durations(log: Transitions) -> None:
    """Refuse a log with durations for sums without them, or the other way round."""
    held, wanted = ("none", "durations") if log.durations is None else ("durations", "none")
    raise ValueError(
        f"The transitions of a model must all have durations or none of them, but it was fitted to {wanted} and these "
        f"have {held}. State what the discount is per, as in the first log: --discount-per '1 day', in Python "
        f"columns={{'discount_per': '1 day'}} or Transitions(..., durations=...)."
    )


def fade(weights: Floats, terminals: Booleans | Floats) -> None:
    """Multiply the rows of D, (n, n_reps), in place by what is not lost of the value ahead."""
    if terminals.dtype == bool:
        weights[terminals] = 0.0
    else:
        weights *= (1.0 - terminals)[:, None]


def lost_over_time(log: Transitions, discount: float) -> Floats:
    """Return 1 - discount^duration for transitions with durations, (n,); 1 at an end."""
    durations = np.asarray(log.durations)
    with np.errstate(divide="ignore"):
        lost = np.where(log.terminals, 1.0, -np.expm1(np.log(discount) * durations))
    if (lost < _LEAST_LOSS).any():
        shortest = float(durations[~log.terminals].min())
        raise ValueError(
            f"Durations must be long enough for the discount to matter, but after the shortest, {shortest:g}, a reward "
            f"counts {discount:g}^{shortest:g} = 1 but for rounding. State a shorter period or a smaller discount."
        )
    return np.asarray(lost, dtype=np.float64)
