"""The sums that judging needs, per block of episodes: they add up over chunks, files and sites.

A block is a hash of the episode modulo the number of blocks.  With phi the features of a state, a the action, i and j
features, and pi the policy, a block holds W[a,i] = sum phi_i(s), R = sum phi_i(s) r, S[a,i,j] = sum phi_i(s) phi_j(s),
T[(a,i),(b,j)] = sum phi_i(s) pi(b|s') phi_j(s') over rows that do not end, D[(b,j)] = sum pi(b|s0) phi_j(s0) over
starts, the number of episodes and their discounted returns.  W, R and S serve every policy.  For the logged policy b
is the next logged action; rows without one are kept apart, so that they can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.episodes import block_of
from kbrl.trust.features import Features
from kbrl.trust.policy_answers import DEFERS, Answers
from kbrl.trust.trajectories import Stretch

FEW = 5  # rows or episodes that do not tell much yet


@dataclass(eq=False)
class BlockSums:
    """Sums per block of episodes; K blocks, A actions, m features, P policies."""

    weight: Floats  # (2, K, A, m): W of rows whose next action is known or that end, and of all others
    reward: Floats  # (2, K, A, m): R
    square: Floats  # (2, K, A, m, m): S
    next_now: Floats  # (K, A m, A m): T of the logged policy
    start_now: Floats  # (K, A m): D of the logged policy
    next_policy: Floats  # (P, K, A m, A m): T
    start_policy: Floats  # (P, K, A m): D
    n_episodes: Floats  # (K,)
    returns: Floats  # (K,): the sum of the discounted rewards of each episode up to where it ends or is cut
    squared_returns: Floats  # (K,)
    cut: Floats  # (K, m): what was still to come where episodes are cut: discount^T phi(s_T)
    n_rows: Floats  # (K,)
    smallest_reward: Floats  # (1,)
    largest_reward: Floats  # (1,)
    smallest_returns: Floats  # (5,): of whole episodes, in order; infinite where there are fewer
    largest_returns: Floats  # (5,): the largest first
    left_out: Floats  # (1,): the largest discount of what a cut left out
    residuals: Floats  # (5,): of TD errors d and the next ones e: their number, sums of d, d^2, e^2 and d e
    lasting: (
        Floats  # (5,): of episodes with discounted TD errors d, S = sum d, Q = sum d^2: sums of S^2, Q and products
    )

    @classmethod
    def empty(cls, n_blocks: int, n_actions: int, n_features: int, n_policies: int) -> BlockSums:
        """Return the sums of no rows."""
        zeros = {
            name: np.zeros(shape) for name, shape in cls.shapes(n_blocks, n_actions, n_features, n_policies).items()
        }
        nothing = {"smallest_reward": np.inf, "largest_reward": -np.inf}
        nothing |= {"smallest_returns": np.inf, "largest_returns": -np.inf}
        return cls(**zeros | {name: np.full(zeros[name].shape, value) for name, value in nothing.items()})

    @staticmethod
    def shapes(n_blocks: int, n_actions: int, n_features: int, n_policies: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each sum."""
        k, a, m, p = n_blocks, n_actions, n_features, n_policies
        size = a * m
        return {
            "weight": (2, k, a, m),
            "reward": (2, k, a, m),
            "square": (2, k, a, m, m),
            "next_now": (k, size, size),
            "start_now": (k, size),
            "next_policy": (p, k, size, size),
            "start_policy": (p, k, size),
            "n_episodes": (k,),
            "returns": (k,),
            "squared_returns": (k,),
            "cut": (k, m),
            "n_rows": (k,),
            "smallest_reward": (1,),
            "largest_reward": (1,),
            "smallest_returns": (FEW,),
            "largest_returns": (FEW,),
            "left_out": (1,),
            "residuals": (5,),
            "lasting": (5,),
        }

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The numbers of blocks, actions, features and policies."""
        _, k, a, m = self.weight.shape
        return k, a, m, len(self.next_policy)

    def __add__(self, other: BlockSums) -> BlockSums:
        """Return the sums over both sets of episodes."""
        parts: dict[str, Any] = {
            field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)
        }
        parts["smallest_reward"] = np.minimum(self.smallest_reward, other.smallest_reward)
        parts["largest_reward"] = np.maximum(self.largest_reward, other.largest_reward)
        parts["smallest_returns"] = _smallest([self.smallest_returns, other.smallest_returns])
        parts["largest_returns"] = -_smallest([-self.largest_returns, -other.largest_returns])
        parts["left_out"] = np.maximum(self.left_out, other.left_out)
        return BlockSums(**parts)


@dataclass(frozen=True, eq=False)
class Seen:
    """A stretch with its features: those of its states, and of next states that are not among its states."""

    stretch: Stretch
    phi: Floats  # (n_points, m): the states of the rows come first
    there: Integers  # (n,): the point of the next state of each counted row
    blocks: Integers  # (n,)
    next_actions: Integers  # (n,): the action of the next row; DEFERS where it is not known

    @classmethod
    def of(cls, stretch: Stretch, features: Features, n_blocks: int) -> Seen:
        """Compute the features of each different state once."""
        n, log = stretch.n_counted, stretch.log
        is_apart = ~stretch.is_followed[:n]
        phi = features(np.concatenate([log.states, log.next_states[:n][is_apart]]))
        there = np.arange(1, n + 1)
        there[is_apart] = len(log) + np.arange(int(is_apart.sum()))
        following = np.append(log.action_indices[1:], 0)[:n]
        next_actions = np.where(is_apart, DEFERS, following)
        return cls(stretch, phi, there, block_of(stretch.hashes[:n], n_blocks), next_actions)

    def counted(self, values: Any) -> Any:
        """Return the entries of the rows that are counted."""
        return values[: self.stretch.n_counted]


def accumulate(sums: BlockSums, seen: Seen, policies: Sequence[Callable[[Floats], Answers]], discount: float) -> None:
    """Add the rows of a stretch to the sums, in place."""
    stretch, log = seen.stretch, seen.stretch.log
    actions, rewards = seen.counted(log.action_indices), seen.counted(log.rewards)
    ends, is_cut = seen.counted(log.terminals), seen.counted(stretch.is_cut)
    _add_moments(sums, seen, actions, rewards, is_cut)
    goes_on = np.flatnonzero(~ends & ~is_cut)
    logged = Answers(goes_on, seen.next_actions[goes_on], np.ones(len(goes_on)))
    _add_products(sums.next_now, seen, actions, logged)
    starts = np.flatnonzero(seen.counted(stretch.is_start))
    _add_starts(sums.start_now, seen, Answers(starts, actions[starts], np.ones(len(starts))))
    rows = np.flatnonzero(~ends)
    for number, policy in enumerate(policies):
        answers = policy(log.next_states[rows])
        answers = settled(answers.at(rows), seen.next_actions, actions)
        _add_products(sums.next_policy[number], seen, actions, answers)
        answers = policy(log.states[starts])
        answers = settled(answers.at(starts), actions, actions)
        _add_starts(sums.start_policy[number], seen, answers)
    _add_counts(sums, seen, rewards, is_cut, discount)


def settled(answers: Answers, logged: Integers, actions: Integers) -> Answers:
    """Return answers in which "as now" has become the logged action, or the usual ones where none was logged."""
    defers = answers.actions == DEFERS
    if not defers.any():
        return answers
    known = np.where(defers, logged[answers.rows], answers.actions)
    open_places = np.flatnonzero(known == DEFERS)
    if not len(open_places):
        return replace(answers, actions=known)
    different, counts = np.unique(actions, return_counts=True)
    kept = known != DEFERS
    return Answers(
        np.concatenate([answers.rows[kept], np.repeat(answers.rows[open_places], len(different))]),
        np.concatenate([known[kept], np.tile(different, len(open_places))]),
        np.concatenate([answers.weights[kept], np.outer(answers.weights[open_places], counts / counts.sum()).ravel()]),
    )


def _add_moments(sums: BlockSums, seen: Seen, actions: Integers, rewards: Floats, is_cut: Booleans) -> None:
    """Add W, R and S, one product of matrices per block and action."""
    _, k, a, _ = sums.weight.shape
    keys = (is_cut * k + seen.blocks) * a + actions
    for key, rows in _groups(keys):
        kind, block, action = key // (k * a), key // a % k, key % a
        phi = seen.phi[rows]
        sums.weight[kind, block, action] += phi.sum(axis=0)
        sums.reward[kind, block, action] += rewards[rows] @ phi
        sums.square[kind, block, action] += phi.T @ phi


def _add_products(out: Floats, seen: Seen, actions: Integers, answers: Answers) -> None:
    """Add sum phi(s) weight phi(s')' to the block, action and next action that each answer belongs to."""
    m = seen.phi.shape[1]
    n_actions = out.shape[1] // m
    keys = (seen.blocks[answers.rows] * n_actions + actions[answers.rows]) * n_actions + answers.actions
    is_plain = bool((answers.weights == 1.0).all())
    for key, places in _groups(keys):
        block, action, following = key // n_actions**2, key // n_actions % n_actions, key % n_actions
        rows = answers.rows[places]
        after = seen.phi[seen.there[rows]]
        if not is_plain:
            after = after * answers.weights[places, None]
        square = out[block, action * m : (action + 1) * m, following * m : (following + 1) * m]
        square += seen.phi[rows].T @ after


def _add_starts(out: Floats, seen: Seen, answers: Answers) -> None:
    m = seen.phi.shape[1]
    n_actions = out.shape[1] // m
    for key, places in _groups(seen.blocks[answers.rows] * n_actions + answers.actions):
        block, action = divmod(key, n_actions)
        rows = answers.rows[places]
        out[block, action * m : (action + 1) * m] += answers.weights[places] @ seen.phi[rows]


def _add_counts(sums: BlockSums, seen: Seen, rewards: Floats, is_cut: Booleans, discount: float) -> None:
    """Add numbers of rows and episodes, returns, and what was still to come where episodes are cut."""
    k, stretch = len(sums.n_rows), seen.stretch
    powers = seen.counted(stretch.powers)
    sums.n_rows += np.bincount(seen.blocks, minlength=k)
    sums.n_episodes += np.bincount(seen.blocks, seen.counted(stretch.is_start), minlength=k)
    sums.returns += np.bincount(seen.blocks, powers * rewards, minlength=k)
    closing = seen.counted(~stretch.is_followed & (stretch.powers > 0))
    sums.squared_returns += np.bincount(seen.blocks, closing * seen.counted(stretch.so_far) ** 2, minlength=k)
    sums.smallest_reward[0] = min(sums.smallest_reward[0], rewards.min())
    sums.largest_reward[0] = max(sums.largest_reward[0], rewards.max())
    rows, returns = np.flatnonzero(is_cut & (powers > 0)), seen.counted(stretch.so_far)[closing]
    sums.smallest_returns = _smallest([sums.smallest_returns, returns])
    sums.largest_returns = -_smallest([-sums.largest_returns, -returns])
    np.maximum(sums.left_out, discount * powers[rows].max(initial=0.0), out=sums.left_out)
    for block, places in _groups(seen.blocks[rows]):
        some = rows[places]
        sums.cut[block] += discount * powers[some] @ seen.phi[seen.there[some]]


def add_residuals(sums: BlockSums, seen: Seen, theta: Floats, discount: float) -> None:
    """Add the TD errors of the logged policy and their products with the next ones, for given values of pairs."""
    log, n = seen.stretch.log, seen.stretch.n_counted
    values = seen.phi @ theta.reshape(-1, seen.phi.shape[1]).T  # (n_points, A)
    rows = np.arange(n)
    ends = log.terminals[:n]
    is_known = ends | (seen.next_actions != DEFERS)
    after = np.where(ends, 0.0, values[seen.there, np.maximum(seen.next_actions, 0)])
    errors = log.rewards[:n] + discount * after - values[rows, log.action_indices[:n]]
    pairs = np.flatnonzero(is_known[:-1] & is_known[1:] & seen.stretch.is_followed[: n - 1])
    first, second = errors[pairs], errors[pairs + 1]
    sums.residuals += [len(pairs), first.sum(), first @ first, second @ second, first @ second]
    _add_lasting(sums, seen, np.where(is_known, errors * seen.counted(seen.stretch.powers), 0.0))


def _add_lasting(sums: BlockSums, seen: Seen, errors: Floats) -> None:
    """Add sums of the discounted TD errors of the episodes that begin and close within the stretch."""
    is_start, goes_on = seen.counted(seen.stretch.is_start), bool(seen.counted(seen.stretch.is_followed)[-1])
    episodes = np.cumsum(is_start)  # 0: began before
    total, squares = (np.bincount(episodes, values)[1 : -1 if goes_on else None] for values in (errors, errors**2))
    total_square = total**2
    products = (total_square @ total_square, total_square @ squares, squares @ squares)
    sums.lasting += [total_square.sum(), squares.sum(), *products]


def _smallest(parts: Sequence[Floats]) -> Floats:
    return np.asarray(np.sort(np.concatenate(parts))[:FEW])


def _groups(keys: Integers) -> list[tuple[int, Integers]]:
    """Return each different key with the places that have it."""
    if not len(keys):
        return []
    order = np.argsort(keys, kind="stable")
    starts = np.append(0, 1 + np.flatnonzero(np.diff(keys[order])))
    return [(int(keys[places[0]]), places) for places in np.split(order, starts[1:])]
