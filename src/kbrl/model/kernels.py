"""Kernels: how similar states are, normalised so that similarities are probabilities.

k(s, s') = phi(||s - s'|| / width), and kappa(s, point i) = k(s, point i) / sum_j k(s, point j).  Normalising is
done in the log domain, relative to the nearest point: no width, however small, and no distance, however large,
gives a division by zero.  In the limit all weight goes to the nearest point.

With ``neighbors``, the kernel is zero except for that many of its largest values (the paper's mu and mu-bar), exactly.

The `Basis` is what the sums of KBSF refer to: representative states and the two kernels.  Sums that refer to the same
basis add up; others do not.  All states here are already scaled.
Paper: equations for k_tau and kappa (sections 2.2 and 4), appendix B.2 for phi and sparse kernels, equation (kveton)
of section 7 for hard aggregation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import check_norm, check_profile, check_width, in_unit_interval, profile_values, whole
from kbrl.data.scaling import Coordinates
from kbrl.data.transitions import Transitions
from kbrl.lines.circles import NO_CIRCLES, Circles
from kbrl.model import compiled
from kbrl.model.compiled import CLOSE, FARTHEST

Profile = str | Callable[[Floats], Floats]

BLOCK_ROWS = 1024  # of a block of distances, so that it stays in the cache
_BLOCK_ENTRIES = 2**22  # of distances or weights that are held at a time
_FEW = 100  # states
_TIED = CLOSE / 4  # distances with a smaller relative difference are equal but for rounding: CLOSE is about squares

_LEAST_LOSS = 1e-12  # of the value ahead, in one step: less would be rounded away


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel says how similar two states are: phi(distance / width).

    width: one number above 0, or one per point, (n_points,), in the units of the states.
    profile: phi as a function of z = distance / width.  "exponential", exp(-z), is the paper's; "gaussian" is
        exp(-z^2 / 2); "uniform" is 1 up to z = 1 and 0 beyond; or your own function of an array of z, which is
        positive at 0 and never rises.  Where phi is 0 at every point, only the nearest point counts.
    neighbors: keep only this many points, those with the largest values; the others count as 0.  None: keep all.
    norm: p of the Minkowski norm that measures distances.  2, Euclidean, is the fastest; 1 adds up differences;
        infinity takes the largest.  With other norms, differences below 1e-19 may count as 0.

    ``weights`` divides the values by their sum: here exp(-0) and exp(-1), then exp(-1) and exp(-0).

    >>> import numpy as np
    >>> from kbrl import Kernel
    >>> points = np.array([[0.0], [2.0]])
    >>> Kernel(width=2.0).weights(points, points).round(3).tolist()
    [[0.731, 0.269], [0.269, 0.731]]
    """

    width: float | Floats = 1.0
    profile: Profile = "exponential"
    neighbors: int | None = None
    norm: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_width(self.width, "width"))
        check_profile(self.profile)
        object.__setattr__(self, "norm", check_norm(self.norm))
        if self.neighbors is not None:
            object.__setattr__(self, "neighbors", whole(self.neighbors, "neighbors"))

    def at(self, points: Floats) -> KernelAt:
        """Tie the kernel to points, (n_points, n_dims), for repeated use."""
        return KernelAt(self, points)

    def weights(self, states: Floats, points: Floats) -> Any:
        """Return kappa(state, point), (n_states, n_points): rows sum to one; CSR if the kernel has ``neighbors``."""
        return self.at(points).weights(states)

    def reach(self, value: float) -> float:
        """Return the distance at which the kernel has fallen to this fraction of its value at distance 0."""
        value = in_unit_interval(value, "value")
        if np.ndim(self.width) or value == 0:
            raise ValueError(f"A reach needs one width and a value above 0, but they are {self.width!r} and {value!r}.")

        def drop(z: float) -> float:
            return float(log_ratio(np.array([z]), np.zeros(1), self.profile)[0]) - float(np.log(value))

        low, high = 0.0, 1.0
        while drop(high) > 0:
            if high > FARTHEST:
                raise ValueError(f"The profile {self.profile!r} never falls to {value:g} of its value at 0.")
            low, high = high, 2 * high
        for _ in range(80):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if drop(middle) > 0 else (low, middle)
        return high * float(self.width)

    def same_as(self, other: Kernel) -> bool:
        """Whether two kernels are the same function."""
        return (
            np.array_equal(self.width, other.width)
            and self.profile == other.profile
            and self.neighbors == other.neighbors
            and self.norm == other.norm
        )


@dataclass(frozen=True, eq=False)
class KernelAt:
    """A kernel tied to points: what maps a state to a distribution over the points."""

    kernel: Kernel
    points: Floats  # (n_points, n_dims)
    inverse_widths: Floats = field(init=False)  # (n_points,)

    def __post_init__(self) -> None:
        width = np.asarray(self.kernel.width)
        if width.ndim == 1 and len(width) != len(self.points):
            raise ValueError(
                f"A kernel with one width per point needs as many widths as points, but it has {len(width)} widths "
                f"for {len(self.points)} points. Pass one number, or choose the points yourself."
            )
        with np.errstate(over="ignore"):
            inverse = np.minimum(1.0 / width, FARTHEST)
        object.__setattr__(self, "inverse_widths", np.array(np.broadcast_to(inverse, len(self.points))))

    @cached_property
    def columns(self) -> Floats:
        """The points as (n_dims, n_points), the order in which the compiled loops read them."""
        return np.ascontiguousarray(self.points.T)

    @cached_property
    def tree(self) -> cKDTree:
        """The points, ordered for the search of neighbours."""
        return cKDTree(self.points)

    @cached_property
    def n_neighbors(self) -> int:
        """How many points count for a state."""
        n_points = len(self.points)
        return min(self.kernel.neighbors or n_points, n_points)

    @cached_property
    def kind(self) -> compiled.Kind | None:
        """What the compiled loops are specialised for; None for a user's profile or a norm that is not Euclidean."""
        if not isinstance(self.kernel.profile, str) or self.kernel.norm != 2:
            return None
        return compiled.kind_of(self.kernel.profile)

    @cached_property
    def widths_differ(self) -> bool:
        """Whether the points with the largest kernel values need not be the nearest ones."""
        return bool((self.inverse_widths != self.inverse_widths[0]).any())

    def weights(self, states: Floats) -> Any:
        """Return kappa(state, point), (n_states, n_points): rows sum to one; CSR if the kernel has ``neighbors``."""
        if self.kernel.neighbors is not None:
            return self._sparse_weights(states)
        out = np.empty((len(states), len(self.points)))
        for rows in blocks(len(states)):
            self.fill(states[rows], out[rows])
        return out

    def mixed(self, states: Floats, values: Floats) -> Floats:
        """Return the weighted means of values at the points, (n_points, k), in states: (n_states, k)."""
        return np.concatenate([self._mixed(states[rows], values) for rows in blocks_of(len(states), len(values))])

    def _mixed(self, states: Floats, values: Floats) -> Floats:
        if self.kernel.neighbors is None or len(states) > _FEW:
            return np.asarray(self.weights(states) @ values)
        shares, places = self.neighbor_weights(states)  # a sparse matrix takes longer to make than to use
        return np.asarray(sum(share[:, None] * values[place] for share, place in zip(shares.T, places.T)))

    def fill(self, states: Floats, out: Floats) -> None:
        """Write kappa(state, point) of a dense kernel to ``out``, (n_states, n_points)."""
        if self.kind is not None:
            compiled.normalize_rows(states, self.columns, self.inverse_widths, out, self.kind)
        else:
            out[:] = normalized(self.in_widths(states), self.kernel.profile)

    def in_widths(self, states: Floats) -> Floats:
        """Return the distance of each state to each point in the point's widths, (n_states, n_points)."""
        return np.minimum(distances_between(states, self.points, self.kernel.norm) * self.inverse_widths, FARTHEST)

    def nearest(self, states: Floats) -> Integers:
        """Return the index of the point nearest to each state, whatever the widths; of equals, the first."""
        return self.nearest_few(states, 1)[1][:, 0].astype(np.intp)

    def nearest_few(self, states: Floats, n: int) -> tuple[Floats, Integers]:
        """Return the distances to the n nearest points and their places, (n_states, n), whatever the widths.

        Of points that are equally far but for rounding, the first ones count: neither the tree nor rounding decides.
        """
        reach = min(n + 1, len(self.points))
        distances, places = nearest_points(self.tree, states, [*range(1, reach + 1)], self.kernel.norm)
        if reach > n:
            tied = np.flatnonzero(distances[:, n] <= distances[:, n - 1] * (1 + _TIED))
            distances, places = distances[:, :n], places[:, :n]
            if len(tied):
                distances[tied], places[tied] = self._first_of_tied(states[tied], n)
        return distances, places

    def _first_of_tied(self, states: Floats, n: int) -> tuple[Floats, Integers]:
        reach = n + 1
        while True:
            reach = min(2 * reach, len(self.points))
            distances, places = nearest_points(self.tree, states, [*range(1, reach + 1)], self.kernel.norm)
            last = distances[:, n - 1 : n]
            if reach == len(self.points) or (distances[:, -1:] > last * (1 + _TIED)).all():
                break
        tied = np.where(distances <= last * (1 + _TIED), places, len(self.points))
        order = np.argsort(np.where(distances < last * (1 - _TIED), -1, tied), axis=1, kind="stable")[:, :n]
        order.sort(axis=1)  # the nearest first
        return np.take_along_axis(distances, order, axis=1), np.take_along_axis(places, order, axis=1)

    def neighbor_weights(self, states: Floats) -> tuple[Floats, Integers]:
        """Return the weights of the points that count and their places, (n_states, n_neighbors) each."""
        z, places = self.neighbors_in_widths(states)
        return normalized(z, self.kernel.profile), places

    def neighbors_in_widths(self, states: Floats) -> tuple[Floats, Integers]:
        """Find the points with the largest kernel values, the largest first: distances in widths, and places.

        If all points have one width, these are the nearest, and a tree finds them.  Otherwise all points are compared.
        """
        if not self.widths_differ:
            distances, places = self.nearest_few(states, self.n_neighbors)
            return np.minimum(distances * self.inverse_widths[places], FARTHEST), places
        shape = len(states), self.n_neighbors
        z, places = np.empty(shape), np.zeros(shape, dtype=np.intp)
        if self.kernel.norm == 2:
            compiled.nearest_in_widths(states, self.columns, self.inverse_widths, z, places)
        else:
            for rows in blocks_of(len(states), len(self.points)):
                compiled.smallest_of_rows(self.in_widths(states[rows]), z[rows], places[rows])
        return z, places

    def _sparse_weights(self, states: Floats) -> sparse.csr_array:
        values, indices = self.neighbor_weights(states)
        row_starts = np.arange(0, values.size + 1, values.shape[1])
        return sparse.csr_array((values.ravel(), indices.ravel(), row_starts), shape=(len(states), len(self.points)))


def blocks(n_rows: int, n_block: int = BLOCK_ROWS) -> list[slice]:
    """Return slices that cover the rows, each of a size that stays in the cache."""
    return [slice(start, min(start + n_block, n_rows)) for start in range(0, n_rows, n_block)]


def blocks_of(n_rows: int, n_columns: int) -> list[slice]:
    """Return slices that cover the rows of a large matrix, so that each block of it fits into memory."""
    return blocks(n_rows, max(1, _BLOCK_ENTRIES // n_columns))


def distances_between(states: Floats, points: Floats, norm: float = 2.0) -> Floats:
    """Return the distance of each state to each point by a Minkowski norm, (n_states, n_points)."""
    if norm == 2:
        return np.asarray(cdist(states, points))
    return _finite(np.asarray(cdist(states, points, "minkowski", p=norm)), norm)


def nearest_points(tree: cKDTree, states: Floats, ranks: list[int], norm: float = 2.0) -> tuple[Floats, Integers]:
    """Return the distances to the nearest points of a tree, of these ranks, and their places, (n_states, n_ranks)."""
    distances, places = tree.query(states, k=ranks, p=norm)
    return _finite(distances, norm), places


def _finite(distances: Floats, norm: float) -> Floats:
    if norm != 2 and not np.isfinite(distances).all():
        raise ValueError(
            f"States are so far apart that their distances overflow with norm={norm:g}. Use scaling='std' or norm=2."
        )
    return distances


def log_ratio(z: Floats, z_ref: Floats, profile: Profile) -> Floats:
    """Return log phi(z) - log phi(z_ref) without cancellation; where phi(z_ref) is 0, only z_ref itself counts."""
    if isinstance(profile, str):
        out = np.empty(np.broadcast_shapes(np.shape(z), np.shape(z_ref)))
        z, z_ref = np.broadcast_to(z, out.shape), np.broadcast_to(z_ref, out.shape)
        compiled.fill_log_ratios(z.ravel(), z_ref.ravel(), out.reshape(-1), compiled.kind_of(profile))
        return out
    with np.errstate(divide="ignore", invalid="ignore"):
        log_value, log_ref = np.log(profile_values(profile, z)), np.log(profile_values(profile, z_ref))
        difference = log_value - log_ref
    return np.where(np.isfinite(log_ref), difference, np.where(z <= z_ref, 0.0, -np.inf))


def log_profile(z: Floats, profile: Profile) -> Floats:
    """Return log phi(z)."""
    if isinstance(profile, str):
        return log_ratio(z, np.zeros(1), profile)
    with np.errstate(divide="ignore"):
        return np.log(profile_values(profile, z))


def normalized(z: Floats, profile: Profile) -> Floats:
    """Return the kernel values of each row of scaled distances, divided by their sum."""
    values = np.exp(log_ratio(z, z.min(axis=1, keepdims=True), profile))
    return values / values.sum(axis=1, keepdims=True)


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
        """Scale the states and split the transitions by action."""
        states, next_states = self.coordinates.of(log.states), self.coordinates.of(log.next_states)
        if self.hard:
            states = self.reps[self.rep_weights.nearest(states)]
        order = np.argsort(log.action_indices, kind="stable")
        fields: tuple[Any, ...] = (states, log.rewards, next_states, self.losses(log))
        states, rewards, next_states, losses = (field.take(order, axis=0) for field in fields)
        ends = np.cumsum(np.bincount(log.action_indices, minlength=self.n_actions)).tolist()
        return [Samples(states[a:b], rewards[a:b], next_states[a:b], losses[a:b]) for a, b in pairwise([0, *ends])]

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
