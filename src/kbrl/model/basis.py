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
from kbrl.checks import as_generator, as_rows, check_norm
from kbrl.data.names import Source, rows_by_name
from kbrl.data.scaling import Coordinates, Moments, around_centre, scale_of, state_scale
from kbrl.data.transitions import Transitions, refuse_allowed, refuse_durations
from kbrl.lines.circles import NO_CIRCLES, Circles, find_circles
from kbrl.lines.plans import NEAR
from kbrl.model.kernels import Kernel, KernelAt
from kbrl.model.representatives import choose, distinct_rows
from kbrl.settings import Settings

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
        self.check_durations(log)
        return log.terminals if self.discount is None else lost_over_time(log, self.discount)

    def check_durations(self, log: Transitions) -> None:
        """Refuse a log with durations for sums without them, and the other way round."""
        if (log.durations is None) != (self.discount is None):
            held, wanted = ("none", "durations") if log.durations is None else ("durations", "none")
            raise ValueError(
                f"The transitions of a model must all have durations or none of them, but it was fitted to {wanted} "
                f"and these have {held}. State what the discount is per, as in the first log: --discount-per '1 day', "
                f"in Python columns={{'discount_per': '1 day'}} or Transitions(..., durations=...)."
            )

    def by_action(self, log: Transitions) -> list[Samples]:
        """Scale the states and part the transitions by action."""
        states, next_states = self.coordinates.of(log.states), self.coordinates.of(log.next_states)
        if self.hard:
            states = self.reps[self.rep_weights.nearest(states)]
        everything = Samples(states, log.rewards, next_states, self.losses(log))
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
            "discount over time": self.discount == other.discount,
            "circles": self.circles.same_as(other.circles),
        }
        different = [name for name, equal in same.items() if not equal]
        if different:
            raise ValueError(
                f"Statistics add up only if they refer to the same basis, but these differ in: {', '.join(different)}. "
                f"Fit both models with the same representative states, scaling and widths."
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


def basis_for(settings: Settings, log: Transitions, moments: Moments | None = None) -> Basis:
    """Return the basis whose coordinates and representative states come from these transitions.

    The moments of all states are given where these are only a sample.
    """
    units = coordinates_of(settings, log, moments)
    reps = choose_reps(settings, log, units)
    if settings.order == 1:
        return _basis_of_lines(settings, log, units, reps)
    variant = settings.variant
    return Basis(
        reps=reps,
        coordinates=units,
        sample_kernel=Kernel(settings.sample_width, variant.profile, settings.sample_neighbors, variant.norm),
        rep_kernel=Kernel(settings.rep_width, variant.profile, settings.rep_neighbors, variant.norm),
        n_actions=log.n_actions,
        hard=variant.aggregation == "hard",
        discount=None if log.durations is None else float(settings.discount),
    )


def _basis_of_lines(settings: Settings, log: Transitions, units: Coordinates, reps: Floats) -> Basis:
    """Return the basis of order 1, where widths follow the spacing of the representative states."""
    refuse_durations(log, "A model of order 1")
    refuse_allowed(log, "A model of order 1")
    gap = float(np.median(cKDTree(reps).query(reps, k=[2])[0])) if len(reps) > 1 else 1.0
    return Basis(
        reps=reps,
        coordinates=units,
        sample_kernel=Kernel(gap),
        rep_kernel=Kernel(gap, neighbors=settings.rep_neighbors or NEAR),
        n_actions=log.n_actions,
        circles=find_circles(log.states, units),
    )


def coordinates_of(settings: Settings, log: Transitions, moments: Moments | None = None) -> Coordinates:
    """Return centre and scale of the states; the centre of given representative states is theirs.

    So models with the same representative states and scale add up, whatever their data.
    """
    scale = state_scale(log.states, settings.scaling) if moments is None else scale_of(moments, settings.scaling)
    scale = log.source.with_fixed_scales(scale, settings.scaling)
    if not isinstance(settings.reps, str):
        given = given_reps(settings.reps, log.source, log.n_dims)
        return around_centre(scale, Moments(log.n_dims).widen(given))
    return around_centre(scale, moments or Moments(log.n_dims).widen(log.states))


def given_reps(reps: Any, source: Source, n_dims: int | None = None) -> Floats:
    """Return representative states that the user has given, (n_reps, n_dims): a frame is read by name."""
    return as_rows(rows_by_name(reps, source, "reps"), "reps", n_dims=n_dims)


def choose_reps(settings: Settings, log: Transitions, units: Coordinates) -> Floats:
    """Return the representative states, (n_reps, n_dims), in these coordinates: given, or chosen among next states."""
    if not isinstance(settings.reps, str):
        given = given_reps(settings.reps, log.source, log.n_dims)
        return units.of(distinct_rows(given, "reps"))
    growth, is_cover = settings.growth, settings.reps == "cover"
    return choose(
        units.of(log.next_states),
        settings.reps,
        growth.max_reps if is_cover else settings.n_reps,  # a cover is as large as it has to be
        as_generator(settings.random_state),
        cover_distance=growth.cover_distance,
        norm=check_norm(settings.variant.norm),
    )
