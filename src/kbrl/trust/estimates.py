"""From sums per block to values, their standard errors, and how much they depend on smoothing.

For weights of the blocks, X = sum of w_b X_b.  With M = (1 - lambda) S + lambda diag(W) - discount T + ridge,
theta solves M theta = R (around c, the value if all states and actions were alike, to which the ridge pulls what was
never seen), and the value is V = D theta / n.  lambda = 1 is KBSF's averager on the features, lambda = 0 the fixed
point of LSTD-Q.  The standard error is that of the jackknife that leaves out one block at a time (Busing et al. 1999,
for blocks of unequal size).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, lu_factor, lu_solve

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.threads import one_blas_thread
from kbrl.trust.block_sums import FEW, BlockSums
from kbrl.trust.features import Features

RIDGE = 0.01  # rows; less than any row that counts
LADDER = ((0.03, 0.1), (0.1, 0.3))  # (lambda of the estimate, the next one, to which it is compared)
CORRECTIONS = 4  # of a solution without one block, by the factors of all blocks
SETTLED = 0.02  # the last correction, relative to all of them
ROUNDING = 1e-10  # relative to the largest value
SMALL_WEIGHT = 5.0  # pairs with fewer rows around them carry no change


@dataclass(frozen=True, eq=False)
class System:
    """The equations of one policy for some weights of the blocks."""

    square: Floats  # (A, m, m)
    weight: Floats  # (A m,)
    reward: Floats  # (A m,)
    following: Floats  # (A m, A m)
    start: Floats  # (A m,)
    returns: Any  # the sum of those observed
    cut: Floats  # (m,)
    n_episodes: Any

    def level(self, discount: float) -> float:
        """Return c, the value of each state and action if all were alike."""
        lost = self.weight.sum() - discount * self.following.sum()
        return float(_level(self.reward.sum(), lost, self.returns / self.n_episodes))

    def coarser(self, groups: Integers) -> System:
        """Return the equations with the features of a group, (m,), summed up to one."""
        n_actions, m, _ = self.square.shape
        to_groups = (groups == np.arange(groups.max() + 1)[:, None]).astype(float)  # (g, m)
        size = n_actions * len(to_groups)
        rows = to_groups @ self.following.reshape(n_actions, m, -1)  # (A, g, A m)
        following = rows.reshape(size, n_actions, m) @ to_groups.T

        def summed(values: Floats) -> Floats:
            return np.asarray(values.reshape(n_actions, m) @ to_groups.T).ravel()

        return replace(
            self,
            square=to_groups @ self.square @ to_groups.T,
            weight=summed(self.weight),
            reward=summed(self.reward),
            following=following.reshape(size, size),
            start=summed(self.start),
            cut=to_groups @ self.cut,
        )

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
        return self.reward + self.level(discount) * (discount * self.following.sum(axis=1) - self.weight)


@dataclass(frozen=True, eq=False)
class Solved:
    """The solution of a system: theta (A m,), and u (A m,), which says how much each row counts."""

    theta: Floats
    ratios: Floats
    value: float
    leftover: float  # what the ridge adds to the value, over all episodes

    def columns(self, n_features: int) -> Floats:
        """Return theta, u and their products for each action, (m, 3 A): phi times them is what a state adds."""
        theta, ratios = self.theta.reshape(-1, n_features), self.ratios.reshape(-1, n_features)
        return np.concatenate([theta, ratios, ratios * theta]).T


def _level(rewards: Any, lost: Any, otherwise: Any) -> Any:
    """Return rewards over the weight that is lost by discounting and ends; the mean return where there are no rows."""
    return np.where(lost > 0, rewards / np.where(lost > 0, lost, 1.0), otherwise)


def factorized(matrix: Floats) -> Any:
    """Return the LU factors of a matrix; raises LinAlgError where it is singular."""
    factors = lu_factor(matrix, check_finite=False)
    if not np.all(np.diag(factors[0])) or not np.isfinite(factors[0]).all():
        raise LinAlgError("singular")
    return factors


def solve_system(system: System, smoothing: float, discount: float) -> Solved:
    """Return theta, u and the value; raises LinAlgError where the equations have no solution."""
    if not system.n_episodes > 0:  # of a forged file
        raise LinAlgError("there are no episodes")
    factors = factorized(system.matrix(smoothing, discount))
    away = lu_solve(factors, system.target(discount), check_finite=False)
    ratios = lu_solve(factors, system.start, trans=1, check_finite=False)
    theta = system.level(discount) + away
    value = float(system.start @ theta) / float(system.n_episodes)
    return Solved(theta, ratios, value, RIDGE * float(ratios @ away))


def leave_one_out(
    whole: System, blocks: System, factors: Any, theta: Floats, smoothing: float, discount: float
) -> Floats:
    """Return theta without each of the blocks, (n_blocks, A m), given the factors and the solution with all.

    The factors of all blocks solve the equations without one by a few corrections; where these do not settle, the
    equations are solved afresh.
    """
    ones = discount * (whole.following.sum(axis=1) - blocks.following.sum(axis=2)) - (whole.weight - blocks.weight)
    rewards = whole.reward - blocks.reward
    means = (whole.returns - blocks.returns) / (whole.n_episodes - blocks.n_episodes)
    levels = _level(rewards.sum(axis=1), -ones.sum(axis=1), means)[:, None]
    targets = rewards + levels * ones
    matrix, away = whole.matrix(smoothing, discount), theta - levels
    steps = np.zeros(len(levels))
    for _ in range(CORRECTIONS):
        applied = away @ matrix.T - _applied(blocks, away, smoothing, discount)
        change = lu_solve(factors, (targets - applied).T, check_finite=False).T
        away, steps = away + change, np.abs((whole.start - blocks.start) * change).sum(axis=1)
    found = away + levels
    moved = np.abs((whole.start - blocks.start) * (found - theta)).sum(axis=1)
    for block in np.flatnonzero(~(steps <= SETTLED * moved)):
        without = System(*(x - y[block] for x, y in zip(vars(whole).values(), vars(blocks).values())))
        found[block] = solve_system(without, smoothing, discount).theta
    return np.asarray(found)


def _applied(blocks: System, away: Floats, smoothing: float, discount: float) -> Floats:
    """Return M_b x_b of each block without the ridge, (n_blocks, A m)."""
    n_blocks, n_actions, m, _ = blocks.square.shape
    parts = away.reshape(n_blocks, n_actions, m, 1)
    own = (1.0 - smoothing) * (blocks.square @ parts).reshape(away.shape) + smoothing * blocks.weight * away
    return np.asarray(own - discount * (blocks.following @ away[:, :, None])[:, :, 0])


@dataclass(frozen=True, eq=False)
class Evidence:
    """What sums say about the logged policy and one policy beside it."""

    sums: BlockSums
    discount: float
    policy: int = 0
    features: Features | None = None  # for the error of coarse ones; None: not looked at
    known_now: dict[float, tuple[Floats, Floats]] = field(default_factory=dict, repr=False)

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

    def system(self, *, now: bool) -> System:
        """Return the equations of the policy, or of the logged one, over all blocks."""
        return self._now[0] if now else self._policy[0]

    def blocks(self, *, now: bool) -> System:
        """Return the equations of each block with episodes, one more axis in front of each array.

        Those of the logged policy leave out the rows without a next action.
        """
        return self._now[1] if now else self._policy[1]

    @cached_property
    def _policy(self) -> tuple[System, System]:
        return self._system_and_blocks(now=False)

    @cached_property
    def _now(self) -> tuple[System, System]:
        return self._system_and_blocks(now=True)

    def _system_and_blocks(self, *, now: bool) -> tuple[System, System]:
        blocks = self._blocks(now=now)
        return System(*(np.sum(values, axis=0) for values in vars(blocks).values())), blocks

    def _blocks(self, *, now: bool) -> System:
        sums, kinds = self.sums, slice(0, 1) if now else slice(0, 2)
        kept: Any = slice(None) if self.kept.all() else self.kept  # a slice copies nothing
        n_kept, size = int(self.kept.sum()), sums.start_now.shape[1]
        return System(
            square=sums.square[kinds, kept].sum(axis=0),
            weight=sums.weight[kinds, kept].sum(axis=0).reshape(n_kept, size),
            reward=sums.reward[kinds, kept].sum(axis=0).reshape(n_kept, size),
            following=(sums.next_now if now else sums.next_policy[self.policy])[kept],
            start=(sums.start_now if now else sums.start_policy[self.policy])[kept],
            returns=sums.returns[kept],
            cut=sums.cut[kept],
            n_episodes=sums.n_episodes[kept],
        )

    def at(self, smoothing: float) -> tuple[float, float, float]:
        """Return the value of the policy, that of the logged one, and the observed mean.

        Where episodes are cut, the values of the logged policy say what was still to come.
        """
        policy, now = (solve_system(self.system(now=now), smoothing, self.discount) for now in (False, True))
        system = self.system(now=True)
        to_come = float(system.cut @ self.state_values(now.theta))
        return policy.value, now.value, float((system.returns + to_come) / system.n_episodes)

    def with_left_out(self, smoothing: float) -> tuple[Floats, Floats]:
        """Return the three numbers, (3,), and the same without each of the blocks, (n_blocks, 3)."""
        if smoothing not in self.known_now:
            values, thetas = self._solved_without(smoothing, now=True)
            blocks = self.blocks(now=True)
            returns, cut, n = (
                np.append(x.sum(axis=0) - x, [x.sum(axis=0)], axis=0)
                for x in (blocks.returns, blocks.cut, blocks.n_episodes)
            )
            observed = (returns + (cut * self.state_values(thetas)).sum(axis=1)) / n
            self.known_now[smoothing] = (values, observed)
        values, _ = self._solved_without(smoothing, now=False)
        found = np.column_stack([values, *self.known_now[smoothing]])
        return found[-1], found[:-1]

    def _solved_without(self, smoothing: float, *, now: bool) -> tuple[Floats, Floats]:
        """Return values, (n_blocks + 1,), and theta, (n_blocks + 1, A m): without each block, and last with all."""
        whole, blocks = self.system(now=now), self.blocks(now=now)
        factors = factorized(whole.matrix(smoothing, self.discount))
        away = lu_solve(factors, whole.target(self.discount), check_finite=False)
        theta = whole.level(self.discount) + away
        found = leave_one_out(whole, blocks, factors, theta, smoothing, self.discount)
        values = ((whole.start - blocks.start) * found).sum(axis=1) / (whole.n_episodes - blocks.n_episodes)
        return np.append(values, whole.start @ theta / whole.n_episodes), np.vstack([found, theta])

    def coarse_change(self, smoothing: float) -> Floats:
        """Return about how much finer features would change value, now and mean observed return, (3,)."""
        if self.features is None or self.features.is_exact or self.features.n_reps < 2:
            return np.zeros(3)
        values = []
        for now in (False, True):
            system = self.system(now=now)
            coarse = system.coarser(self.features.groups)
            fine, rough = (solve_system(each, smoothing, self.discount).value for each in (system, coarse))
            values.append(self.features.extrapolation * (fine - rough))
        return np.array([*values, 0.0])

    def state_values(self, theta: Floats) -> Floats:
        """Return the value of each representative state under the logged actions: (..., A m) to (..., m)."""
        weight = self.sums.weight.sum(axis=(0, 1))  # (A, m)
        shares = weight / np.maximum(weight.sum(axis=0), np.finfo(float).tiny)
        return np.asarray((shares * theta.reshape(*theta.shape[:-1], *weight.shape)).sum(axis=-2))

    @cached_property
    def visits(self) -> Floats:
        """How often the policy would be where, (A m,), by the averager (lambda = 1): discounted decisions in all."""
        system = self.system(now=False)
        solved = solve_system(system, 1.0, self.discount)
        return np.maximum(solved.ratios * (system.weight + RIDGE), 0.0)

    @cached_property
    def thin_share(self) -> float:
        """The share of the policy's decisions at pairs of state and action with fewer than five rows, or after them.

        Where there is no row, it is not known what follows: all that usually follows a decision is counted, too.
        """
        weight, following = self.system(now=False).weight, self.system(now=False).following
        n_ahead = self.discount * weight.sum() / (weight.sum() - self.discount * following.sum())
        unknown = n_ahead * float(self.visits @ (RIDGE / (weight + RIDGE)))
        thin = float(self.visits[weight < SMALL_WEIGHT].sum())
        return float((thin + unknown) / (self.visits.sum() + unknown))

    @cached_property
    def followed_share(self) -> float:
        """The share of the rows that end an episode or whose next action is known: what was done is valued by them."""
        ended_or_followed, cut = self.sums.weight.sum(axis=(1, 2, 3))
        return float(ended_or_followed / (ended_or_followed + cut))

    @cached_property
    def n_ends(self) -> int:
        """The number of episodes that ended, and were not cut."""
        return round(float(self.sums.weight[0].sum() - self.sums.next_now.sum()))  # features of a state sum to one

    @cached_property
    def n_gaps(self) -> int:
        """The number of rows that another row of the episode comes after, but one that starts in another state."""
        cut = float(self.sums.weight[1].sum())
        return max(0, round(cut - float(self.sums.n_episodes.sum())) + self.n_ends)

    @property
    def ends_are_rare(self) -> bool:
        """Whether values depend on ends alone, as all rewards are the same, and the log hardly shows any."""
        sums = self.sums
        n_known = min(FEW, float(sums.n_episodes.sum()))
        return bool(sums.smallest_reward[0] == sums.largest_reward[0] != 0.0 and self.n_ends < n_known)

    @cached_property
    def memory(self) -> float:
        """The correlation of a TD error of the logged policy with the next one; nan where there are none."""
        n, _, square, next_square, product = self.sums.residuals
        if n < 2 or min(square, next_square) <= n * self._rounding**2:
            return float("nan")
        return float(product / np.sqrt(square * next_square))

    @property
    def _rounding(self) -> float:
        """About what rounding makes of a TD error: with equal rewards and no end, there is nothing else."""
        largest = max(abs(float(self.sums.smallest_reward[0])), abs(float(self.sums.largest_reward[0])))
        return ROUNDING * largest / (1.0 - self.discount)

    @cached_property
    def lasting(self) -> tuple[float, float]:
        """How much more the values of episodes are off than single steps explain, and the standard error of that.

        If the state tells all that matters, discounted TD errors d of an episode are a martingale's steps, and the
        mean of (sum d)^2 is that of sum d^2: their ratio is 1.  What lasts through an episode and is not recorded
        makes it larger.  nan where there are no errors, or where they are those of the ridge alone: with equal rewards
        and hardly any end, there is nothing to be wrong about.
        """
        totals, squares, *products = self.sums.lasting
        if squares <= self.sums.n_episodes.sum() * self._rounding**2 or self.ends_are_rare:
            return float("nan"), float("nan")
        ratio = totals / squares
        variance = products[0] - 2.0 * ratio * products[1] + ratio**2 * products[2]
        return float(ratio), float(np.sqrt(max(variance, 0.0)) / squares)


VALUE, NOW, GAIN, SELF_CHECK = (np.array(c, dtype=float) for c in ([1, 0, 0], [0, 1, 0], [1, -1, 0], [0, 1, -1]))


@dataclass(frozen=True, eq=False)
class Rung:
    """The estimates at one lambda: value of the policy, value of the logged one, mean observed return."""

    smoothing: float
    estimates: Floats  # (3,)
    smoother: Floats  # (3,): at the next lambda
    left_out: Floats  # (n_blocks, 3): without one block each
    sizes: Floats  # (n_blocks,): their numbers of episodes
    coarse: Floats  # (3,): about how much finer features would change them

    def of(self, contrast: Floats) -> float:
        """Return VALUE, NOW, GAIN or SELF_CHECK: a combination of the three."""
        return float(contrast @ self.estimates)

    def error(self, contrast: Floats) -> float:
        """Return its standard error."""
        return jackknife_error(self.of(contrast), self.left_out @ contrast, self.sizes)

    def bias(self, contrast: Floats) -> float:
        """Return by how much it changes with more smoothing or, if that is more, would change with finer features."""
        return max(abs(float(contrast @ (self.estimates - self.smoother))), abs(float(contrast @ self.coarse)))

    @property
    def is_finite(self) -> bool:
        """Whether every part was found."""
        return bool(np.isfinite(self.left_out).all() and np.isfinite([self.estimates, self.smoother]).all())


def rungs(evidence: Evidence, ladder: Sequence[tuple[float, float]] = LADDER) -> list[Rung]:
    """Return the estimates at each lambda of the ladder for which the equations can be solved."""
    found = []
    if evidence.kept.sum() < 2:  # nothing to leave out
        return []
    for smoothing, compared in ladder:
        try:
            with one_blas_thread():  # threads gain nothing on matrices of this size, and lose much on a busy machine
                full, left_out = evidence.with_left_out(smoothing)
                smoother = np.array(evidence.at(compared))
                coarse = evidence.coarse_change(smoothing)
        except LinAlgError:
            continue
        sizes = evidence.sums.n_episodes[evidence.kept]
        found.append(Rung(smoothing, full, smoother, left_out, sizes, coarse))
    return [rung for rung in found if rung.is_finite]


def jackknife_error(whole: float, left_out: Floats, sizes: Floats) -> float:
    """Return the standard error from leave-one-block-out estimates, (n_blocks,), given the episodes per block."""
    ratios = sizes.sum() / sizes  # h_j
    pseudo = ratios * whole - (ratios - 1.0) * left_out
    centre = float(np.sum(whole - (1.0 - sizes / sizes.sum()) * left_out))
    variance = np.mean((pseudo - centre) ** 2 / (ratios - 1.0))
    return float(np.sqrt(variance))
