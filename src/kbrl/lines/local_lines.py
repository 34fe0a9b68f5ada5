"""A line instead of an average: how displacement, reward and end depend on the state, around each representative state.

For each action and representative state, the cells around it are pooled until they hold enough cases.  A weighted
ridge regression of (s' - s, reward, end) on s - c gives an intercept and slopes.  The ridge is the one that the noise
of the data asks for (Hoerl, Kennard and Baldwin 1975): 0 where the data lie on a line, so linear dynamics are learnt
exactly.  With too few cases only the average is left, which is order 0.  Rewards and ends stay within what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.lines.behaviour import behaviour_lines, reach_of_cells
from kbrl.lines.moments import LineSums, cases_of_a_line, neighbours, packed_size, unpacked
from kbrl.lines.ridge import slopes
from kbrl.numba_cache import inner, njit

GRAPH = 32  # neighbours of each representative state among which the nearest of a state nearby are looked for
_NOISY = 0.05  # of the gap between representative states: less noise does not change which ones are near
_MOST_SPREAD = 4  # state variables: with more, spreading takes most of the time of a fit


@dataclass(frozen=True, eq=False)
class LocalLines:
    """Lines around the representative states, in scaled coordinates.

    A line gives (s' - s, reward, end) at s as ``lines[a, i, :, 0] + lines[a, i, :, 1:] @ (s - reps[i])``.  Where steps
    have durations, the fade is one more target: how much the next state counts, discount^duration.
    """

    reps: Floats  # (n_reps, n_dims)
    graph: Integers  # (n_reps, n_near): the nearest representative states of each, itself first
    lines: Floats  # (n_actions, n_reps, n_targets, 1 + n_dims)
    limits: Floats  # (n_actions, n_reps, 4 or 6): smallest and largest reward, probability of an end, and fade
    cases: Floats  # (n_actions, n_reps): Kish's effective number of pooled cases; 0: nothing is known
    noise: Floats  # (n_actions, n_reps, n_dims, n_dims): covariance of what the lines of s' - s leave unexplained
    reward_spread: Floats  # (n_actions, n_reps): standard deviation of what the lines of the reward leave unexplained
    behaviour: Floats  # (n_actions, n_reps, 1 + n_dims): lines of the shares of the actions, see `behaviour_lines`
    reach: float  # how far logged states are from their representative state, see `reach_of_cells`
    span: Floats  # (2, n_dims): the range of the states

    @property
    def known(self) -> Booleans:
        """Which actions were taken around which representative states, (n_actions, n_reps)."""
        return self.cases > 0

    @property
    def is_noisy(self) -> bool:
        """Whether steps are so noisy that it matters which representative states are near their ends.

        Not with more than four variables: spreading takes 2 n_dims points per plan.  It changed the returns of an
        inventory by less than 2.5 %, and those of the puddle world and a lander by less than chance.
        Measured: 0.001 to 0.03 of the gap on deterministic tasks (CartPole, mountain car, pendulum), 0.2 on Acrobot,
        where the lines bend, and 0.5 in the noisy puddle world.
        """
        return self.reps.shape[1] <= _MOST_SPREAD and self._is_noise_beyond(_NOISY)

    @property
    def is_noise_beyond_gaps(self) -> bool:
        """Whether the noise of one step is typically larger than the gap between representative states.

        Then interpolating at each step adds less than the noise does, so that plans of several steps save nothing; and
        they lose what deciding again would gain, because where they end is uncertain.
        """
        return self._is_noise_beyond(1.0)

    def _is_noise_beyond(self, share: float) -> bool:
        """Whether the noise of a step is typically larger than this share of the gap between representative states."""
        if len(self.reps) == 1 or not self.known.any():
            return True
        gaps = np.linalg.norm(self.reps - self.reps[self.graph[:, 1]], axis=1)
        noise = np.sqrt(np.maximum(np.trace(self.noise, axis1=2, axis2=3), 0.0))
        return bool(np.median((noise - share * gaps)[self.known]) >= 0)


def local_lines(sums: LineSums, *, n_cases: int | None = None, ridge: float | None = None) -> LocalLines:
    """Fit the lines; each rests on about ``n_cases`` cases, and ``ridge`` replaces the automatic one (inf: order 0)."""
    reps = np.ascontiguousarray(sums.basis.reps)
    n_reps, n_dims = reps.shape
    distances, order = neighbours(reps)
    wanted = cases_of_a_line(sums, n_cases)
    moves, outcomes = np.zeros_like(sums.moves), np.zeros_like(sums.outcomes)
    squares, seen = np.zeros(sums.cases.shape), np.concatenate([sums.rewards, sums.fades], axis=-1)
    ranges = np.empty_like(seen)
    _pool(sums.moves, sums.outcomes, seen, reps, order, distances, wanted, moves, outcomes, squares, ranges)
    moved, noise = regress(unpacked(moves), n_dims, ridge)
    paid, left = regress(unpacked(outcomes), n_dims, ridge)
    lines = np.concatenate([moved[:, :, :n_dims], paid, moved[:, :, n_dims:]], axis=2)
    mass, ends = outcomes[:, :, 0], outcomes[:, :, packed_size(n_dims + 2)]
    end_range = np.stack([(ends >= mass) & (mass > 0), ends > 0], axis=-1)
    fades = np.where(np.isfinite(ranges[:, :, 2:]), ranges[:, :, 2:], 0.0)  # 0 where all episodes end
    limits = np.concatenate([ranges[:, :, :2], end_range, fades], axis=-1)
    cases = np.divide(mass**2, squares, out=np.zeros_like(mass), where=squares > 0)
    behaviour, reach = behaviour_lines(sums, order, distances, wanted), reach_of_cells(sums)
    span = np.where(np.isfinite(sums.span), sums.span, 0.0)
    graph = np.ascontiguousarray(order[:, : min(n_reps, GRAPH)])
    limits = np.where(cases[:, :, None] > 0, limits, 0.0)
    noise, spread = noise[:, :, :n_dims, :n_dims], np.sqrt(np.maximum(left[:, :, 0, 0], 0.0))
    return LocalLines(reps, graph, lines, limits, cases, noise, spread, behaviour, reach, span)


def cell_weights(sums: LineSums, action: int, rep: int, n_cases: int | None = None) -> Floats:
    """Return what one case of an action counts in the line around a representative state, by its cell, (n_reps,).

    Over all cases they sum to 1, or to 0 where nothing is known.
    """
    reps = sums.basis.reps
    distances, order = neighbours(reps, rep)
    near = len(order)
    counts = sums.cases[action][order]
    wanted = cases_of_a_line(sums, n_cases)
    n_used = min(int((np.cumsum(counts) < wanted).sum()) + 1, near)
    reach = distances[n_used] if n_used < near else 1.001 * distances[n_used - 1]
    found = np.zeros(len(reps))
    found[order[:n_used]] = 1.0 - (distances[:n_used] / reach) ** 2 if reach > 0 else 1.0
    mass = float(found @ sums.cases[action])
    return found / mass if mass > 0 else np.zeros(len(reps))


def regress(sums: Floats, n_dims: int, ridge: float | None) -> tuple[Floats, Floats]:
    """Return the lines, (..., n_targets, 1 + n_dims), of weighted sums of products of (1, x, targets), and the rest.

    The rest is what they leave unexplained, a covariance, (..., n_targets, n_targets).
    """
    mass = sums[..., 0, 0]
    share = np.divide(1.0, mass, out=np.zeros_like(mass), where=mass > 0)
    means = sums[..., 0, :] * share[..., None]
    spread = sums * share[..., None, None] - means[..., :, None] * means[..., None, :]
    of_x, mixed, of_z = (
        spread[..., 1 : 1 + n_dims, 1 : 1 + n_dims],
        spread[..., 1 : 1 + n_dims, 1 + n_dims :],
        spread[..., 1 + n_dims :, 1 + n_dims :],
    )
    found = slopes(of_x, mixed, np.maximum(np.einsum("...ii->...i", of_z), 0.0), mass, ridge)
    intercepts = means[..., 1 + n_dims :] - np.einsum("...k,...kt->...t", means[..., 1 : 1 + n_dims], found)
    explained = np.einsum("...kt,...ku->...tu", found, mixed)
    left = of_z - explained - explained.swapaxes(-1, -2) + found.swapaxes(-1, -2) @ of_x @ found
    lines = np.concatenate([intercepts[..., None], found.swapaxes(-1, -2)], axis=-1)
    return lines, left


@njit(cache=True, nogil=True)
def _pool(
    moves: Floats,
    outcomes: Floats,
    ranges: Floats,
    reps: Floats,
    order: Integers,
    distances: Floats,
    wanted: float,
    pooled_moves: Floats,
    pooled_outcomes: Floats,
    squares: Floats,
    pooled_ranges: Floats,
) -> None:
    """Pool the cells around each representative state until they hold enough cases of the action.

    The weight of a cell falls with its distance as 1 - (distance / reach)^2; the reach is where the next cell would be.
    """
    n_actions, n_reps = outcomes.shape[:2]
    shift = np.empty(reps.shape[1])
    for a in range(n_actions):
        for i in range(n_reps):
            n_used, total = 0, 0.0
            while n_used < order.shape[1] and total < wanted:
                total += outcomes[a, order[i, n_used], 0]
                n_used += 1
            reach = distances[i, n_used] if n_used < order.shape[1] else 1.001 * distances[i, n_used - 1]
            for k in range(0, ranges.shape[2], 2):
                pooled_ranges[a, i, k], pooled_ranges[a, i, k + 1] = np.inf, -np.inf
            for near in range(n_used):
                j = order[i, near]
                weight = 1.0 - (distances[i, near] / reach) ** 2 if reach > 0 else 1.0
                if outcomes[a, j, 0] == 0 or weight <= 0:
                    continue
                for k in range(len(shift)):
                    shift[k] = reps[j, k] - reps[i, k]
                _add_shifted(moves[a, j], shift, weight, pooled_moves[a, i])
                _add_shifted(outcomes[a, j], shift, weight, pooled_outcomes[a, i])
                squares[a, i] += weight * weight * outcomes[a, j, 0]
                for k in range(0, ranges.shape[2], 2):
                    pooled_ranges[a, i, k] = min(pooled_ranges[a, i, k], ranges[a, j, k])
                    pooled_ranges[a, i, k + 1] = max(pooled_ranges[a, i, k + 1], ranges[a, j, k + 1])


@inner()
def _add_shifted(sums: Floats, shift: Floats, weight: float, pooled: Floats) -> None:
    """Add packed sums of products of (1, x, ...), moved to another centre: x becomes x + shift."""
    n_dims = len(shift)
    place, row = 0, 0
    while place < len(sums):
        by_row = shift[row - 1] if 1 <= row <= n_dims else 0.0
        of_row = sums[place]  # times 1
        for column in range(row + 1):
            by_column = shift[column - 1] if 1 <= column <= n_dims else 0.0
            of_column = sums[column * (column + 1) // 2]
            total = sums[place + column] + by_row * of_column + by_column * of_row + by_row * by_column * sums[0]
            pooled[place + column] += weight * total
        row += 1
        place += row
