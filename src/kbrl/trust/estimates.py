"""From sums per block to values, their standard errors, and how much they depend on smoothing.

For weights of the blocks, X = sum of w_b X_b.  With M = (1 - lambda) S + lambda diag(W) - discount T + ridge,
theta solves M theta = R (around the observed mean c, to which the ridge pulls what was never seen), and the value is
V = D theta / n.  lambda = 1 is KBSF's averager on the features, lambda = 0 the fixed point of LSTD-Q.  The standard
error is that of the jackknife that leaves out one block at a time (Busing et al. 1999, for blocks of unequal size).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, lu_factor, lu_solve

from kbrl.arrays import Booleans, Floats
from kbrl.trust.block_sums import BlockSums

RIDGE = 0.01  # rows; less than any row that counts
LADDER = ((0.03, 0.1), (0.1, 0.3))  # (lambda of the estimate, the next one, to which it is compared)
SMALL_WEIGHT = 3.0  # pairs with fewer rows around them carry no change


@dataclass(frozen=True, eq=False)
class System:
    """The equations of one policy for some weights of the blocks."""

    square: Floats  # (A, m, m)
    weight: Floats  # (A m,)
    reward: Floats  # (A m,)
    following: Floats  # (A m, A m)
    start: Floats  # (A m,)
    returns: float  # the sum of those observed
    cut: Floats  # (m,)
    n_episodes: float

    def __sub__(self, other: System) -> System:
        """Return the equations without those of a part of the blocks."""
        return System(*(mine - theirs for mine, theirs in zip(vars(self).values(), vars(other).values())))

    @property
    def mean(self) -> float:
        """The mean return that was observed: c."""
        return float(self.returns / self.n_episodes)

    def matrix(self, smoothing: float, discount: float) -> Floats:
        """Return M."""
        matrix = -discount * self.following
        n_actions, m, _ = self.square.shape
        for action in range(n_actions):
            part = slice(action * m, (action + 1) * m)
            matrix[part, part] += (1.0 - smoothing) * self.square[action]
        matrix[np.diag_indices_from(matrix)] += smoothing * self.weight + RIDGE
        return matrix

    def target(self, discount: float) -> Floats:
        """Return what M (theta - c) equals: R + c (discount T 1 - W)."""
        return self.reward + self.mean * (discount * self.following.sum(axis=1) - self.weight)


@dataclass(frozen=True, eq=False)
class Solved:
    """The solution of a system: theta (A m,), and u (A m,), which says how much each row counts."""

    theta: Floats
    ratios: Floats
    value: float
    leftover: float  # what the ridge adds to the value, over all episodes


def solve_system(system: System, smoothing: float, discount: float) -> Solved:
    """Return theta, u and the value; raises LinAlgError where the equations have no solution."""
    factors = lu_factor(system.matrix(smoothing, discount), check_finite=False)
    if not np.all(np.diag(factors[0])):
        raise LinAlgError("singular")
    away = lu_solve(factors, system.target(discount), check_finite=False)
    ratios = lu_solve(factors, system.start, trans=1, check_finite=False)
    theta = system.mean + away
    value = float(system.start @ theta) / system.n_episodes
    return Solved(theta, ratios, value, RIDGE * float(ratios @ away))


@dataclass(frozen=True, eq=False)
class Evidence:
    """What sums say about the logged policy and one policy beside it."""

    sums: BlockSums
    discount: float
    policy: int = 0
    known_now: dict[tuple[float, int | None], tuple[float, float]] = field(default_factory=dict, repr=False)

    @cached_property
    def kept(self) -> Booleans:
        """The blocks that have an episode, (K,)."""
        return self.sums.n_episodes > 0

    @cached_property
    def mean_return(self) -> float:
        """The mean of the observed discounted returns, up to where episodes end or are cut."""
        return float(self.sums.returns.sum() / self.sums.n_episodes.sum())

    def of(self, policy: int) -> Evidence:
        """Return what the same sums say about another policy; the solutions for the logged one are shared."""
        return replace(self, policy=policy)

    @cached_property
    def _whole(self) -> tuple[System, System]:
        return self._system(slice(None), now=False), self._system(slice(None), now=True)

    def system(self, *, now: bool, without: int | None = None) -> System:
        """Return the equations of the policy, or of the logged one, over all blocks or all but one."""
        whole = self._whole[now]
        return whole if without is None else whole - self._system(slice(without, without + 1), now=now)

    def _system(self, blocks: slice, *, now: bool) -> System:
        """Return the equations of some blocks; those of the logged policy leave out rows without a next action."""
        sums, kinds = self.sums, slice(0, 1) if now else slice(0, 2)
        following = sums.next_now if now else sums.next_policy[self.policy]
        start = sums.start_now if now else sums.start_policy[self.policy]
        return System(
            square=sums.square[kinds, blocks].sum(axis=(0, 1)),
            weight=sums.weight[kinds, blocks].sum(axis=(0, 1)).ravel(),
            reward=sums.reward[kinds, blocks].sum(axis=(0, 1)).ravel(),
            following=following[blocks].sum(axis=0),
            start=start[blocks].sum(axis=0),
            returns=float(sums.returns[blocks].sum()),
            cut=sums.cut[blocks].sum(axis=0),
            n_episodes=float(sums.n_episodes[blocks].sum()),
        )

    def at(self, smoothing: float, without: int | None = None) -> tuple[float, float, float]:
        """Return the value of the policy, that of the logged one, and the observed mean.

        Where episodes are cut, the values of the logged policy say what was still to come.
        """
        key = (smoothing, without)
        if key not in self.known_now:
            system = self.system(now=True, without=without)
            now = solve_system(system, smoothing, self.discount)
            to_come = float(system.cut @ self.state_values(now.theta))
            self.known_now[key] = (now.value, (system.returns + to_come) / system.n_episodes)
        policy = solve_system(self.system(now=False, without=without), smoothing, self.discount)
        return policy.value, *self.known_now[key]

    def state_values(self, theta: Floats) -> Floats:
        """Return the value of each representative state under the logged actions, (m,)."""
        weight = self.sums.weight.sum(axis=(0, 1))  # (A, m)
        total = np.maximum(weight.sum(axis=0), np.finfo(float).tiny)
        return np.asarray((weight * theta.reshape(weight.shape)).sum(axis=0) / total)

    @cached_property
    def visits(self) -> Floats:
        """Where the policy would be, (A m,), by the averager (lambda = 1): shares of all discounted decisions."""
        system = self.system(now=False)
        solved = solve_system(system, 1.0, self.discount)
        inflow = np.maximum(solved.ratios * (system.weight + RIDGE), 0.0)
        return np.asarray(inflow / inflow.sum())

    @cached_property
    def thin_share(self) -> float:
        """The share of the policy's decisions at pairs of state and action with fewer than three rows."""
        weight = self.sums.weight.sum(axis=(0, 1)).ravel()
        return float(self.visits[weight < SMALL_WEIGHT].sum())

    @cached_property
    def memory(self) -> float:
        """The correlation of a TD error of the logged policy with the next one; nan where there are none."""
        n, _, square, next_square, product = self.sums.residuals
        if n < 2 or square <= 0 or next_square <= 0:
            return float("nan")
        return float(product / np.sqrt(square * next_square))


VALUE, NOW, GAIN, SELF_CHECK = (np.array(c, dtype=float) for c in ([1, 0, 0], [0, 1, 0], [1, -1, 0], [0, 1, -1]))


@dataclass(frozen=True, eq=False)
class Rung:
    """The estimates at one lambda: value of the policy, value of the logged one, mean observed return."""

    smoothing: float
    estimates: Floats  # (3,)
    smoother: Floats  # (3,): at the next lambda
    left_out: Floats  # (n_blocks, 3): without one block each
    sizes: Floats  # (n_blocks,): their numbers of episodes

    def of(self, contrast: Floats) -> float:
        """Return VALUE, NOW, GAIN or SELF_CHECK: a combination of the three."""
        return float(contrast @ self.estimates)

    def error(self, contrast: Floats) -> float:
        """Return its standard error."""
        return jackknife_error(self.of(contrast), self.left_out @ contrast, self.sizes)

    def bias(self, contrast: Floats) -> float:
        """Return by how much it changes with more smoothing."""
        return abs(float(contrast @ (self.estimates - self.smoother)))

    @property
    def is_finite(self) -> bool:
        """Whether all of it was found."""
        return bool(np.isfinite(self.left_out).all() and np.isfinite([self.estimates, self.smoother]).all())


def rungs(evidence: Evidence) -> list[Rung]:
    """Return the estimates at each lambda of the ladder for which the equations can be solved."""
    found, blocks = [], np.flatnonzero(evidence.kept).tolist()
    for smoothing, compared in LADDER:
        try:
            full, smoother = (np.array(evidence.at(point)) for point in (smoothing, compared))
            left_out = np.array([evidence.at(smoothing, block) for block in blocks])
        except LinAlgError:
            continue
        found.append(Rung(smoothing, full, smoother, left_out, evidence.sums.n_episodes[evidence.kept]))
    return [rung for rung in found if rung.is_finite]


def jackknife_error(whole: float, left_out: Floats, sizes: Floats) -> float:
    """Return the standard error from estimates without one block each, (n_blocks,), of so many episodes each."""
    ratios = sizes.sum() / sizes  # h_j
    pseudo = ratios * whole - (ratios - 1.0) * left_out
    centre = float(np.sum(whole - (1.0 - sizes / sizes.sum()) * left_out))
    variance = np.mean((pseudo - centre) ** 2 / (ratios - 1.0))
    return float(np.sqrt(variance))
