"""What KBSF remembers of the transitions it has seen.

Every entry of the reduced MDP is a ratio of two sums over transitions.  We keep the sums and divide once, at the
end.  Sums over disjoint sets of transitions add up, so batch, incremental and distributed learning are the same
code run on different partitions.

Each sum is kept relative to the kernel value of the nearest sample seen so far, so that no width underflows.
Paper: Algorithms 1 and 2 and the two update rules of section 5.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import one_of
from kbrl.data.transitions import Transitions
from kbrl.lines.moments import LineSums
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model import compiled
from kbrl.model.compiled import FARTHEST
from kbrl.model.kernels import BLOCK_ROWS, Basis, Samples, blocks, fade, log_profile, log_ratio
from kbrl.model.nearest_samples import NEIGHBORS_STAY, Neighborhoods, effective_number, squares_of
from kbrl.model.sample_weights import rounding_of
from kbrl.model.tied_samples import counted, nearest_with_ties
from kbrl.settings import NEIGHBORHOODS
from kbrl.threads import for_each_action

PRECISION = 1e-6  # of what is left when transitions are taken away, relative to it
_ROUNDING = 4 * float(np.finfo(np.float64).eps)  # of a sum of n terms, over its size and the square root of n
_PER_PAIR = ("nearest", "weight", "squared_weight", "reward_sum", "reward_squares", "noise", "reward_noise")


def new_statistics(basis: Basis, neighborhoods: str = "exact", order: int = 0) -> Statistics:
    """Return statistics of no data; those of order 1 are moments around the representative states.

    Where the sample kernel reaches only its mu nearest samples, "exact" means the nearest of all data, however they
    are split; "per_chunk" is how the paper does it: the nearest of each chunk, summed.
    """
    one_of(neighborhoods, NEIGHBORHOODS, "neighborhoods")
    if order == 1:
        return LineSums(basis)
    if basis.sample_kernel.neighbors is not None and neighborhoods == "exact":
        return Neighborhoods(basis)
    return KernelSums(basis)


class KernelSums:
    """The sums, for each action a and representative state i, over the transitions t of that action:

    weight (a, i): k(rep i, s_t);  reward_sum (a, i): k(rep i, s_t) r_t;
    transition_sum a, (i, j): k(rep i, s_t) kappa-bar(s'_t, rep j);
    all divided by k at ``nearest`` (a, i), the distance in widths of the nearest sample.
    reward_squares (a, i): k(rep i, s_t) r_t^2, divided likewise;
    squared_weight (a, i): k(rep i, s_t)^2, divided by the square of that.
    These two are NaN where they are not known, as in models from older files.
    With durations, transition_sum also holds discount^duration of each transition: see Basis.losses.
    noise and reward_noise (a, i): the rounding error that taking transitions away has left in weight and reward_sum.
    """

    def __init__(self, basis: Basis) -> None:
        shape = (basis.n_actions, len(basis.reps))
        self.basis = basis
        self.counts: Integers = np.zeros(basis.n_actions, dtype=np.intp)
        self.nearest: Floats = np.full(shape, np.inf)
        self.weight: Floats = np.zeros(shape)
        self.squared_weight: Floats = np.zeros(shape)
        self.reward_sum: Floats = np.zeros(shape)
        self.reward_squares: Floats = np.zeros(shape)
        self.noise: Floats = np.zeros(shape)
        self.reward_noise: Floats = np.zeros(shape)
        self.largest_reward: Floats = np.zeros(basis.n_actions)  # |r| of those added here; not stored in files
        self.transition_sum: list[Any] = [_empty(basis) for _ in range(basis.n_actions)]

    def accumulate(self, log: Transitions, *, n_jobs: int | None = 1) -> KernelSums:
        """Add transitions, in memory that does not depend on how many there are, and return self."""
        is_truncated = self.basis.sample_kernel.neighbors is not None
        add = self._add_nearest if is_truncated else self._add_dense
        n_rows = BLOCK_ROWS * max(16, 2 * self.basis.n_actions)
        for chunk in [log] if is_truncated or len(log.states) <= n_rows else log.chunks(n_rows):
            parts = self.basis.by_action(chunk)

            def work(action: int, parts: list[Samples] = parts) -> None:
                if len(parts[action].rewards):
                    add(action, parts[action])
                    largest = float(np.abs(parts[action].rewards).max())
                    self.largest_reward[action] = max(self.largest_reward[action], largest)

            for_each_action(work, self.basis.n_actions, n_jobs)
            self.counts += np.bincount(chunk.action_indices, minlength=self.basis.n_actions)
        return self

    def __add__(self, other: KernelSums) -> KernelSums:
        """Return the statistics of both sets of transitions."""
        self.basis.check_same(other.basis)
        result = KernelSums(self.basis)
        result.nearest = np.minimum(self.nearest, other.nearest)
        result.counts = self.counts + other.counts
        result.largest_reward = np.maximum(self.largest_reward, other.largest_reward)
        for part in (self, other):
            factor = _rescale_factor(part.nearest, result.nearest, self.basis)
            result.weight += factor * part.weight
            result.squared_weight += factor**2 * part.squared_weight
            result.reward_sum += factor * part.reward_sum
            result.reward_squares += factor * part.reward_squares
            result.noise += factor * part.noise
            result.reward_noise += factor * part.reward_noise
            for action, block in enumerate(part.transition_sum):
                result.transition_sum[action] = result.transition_sum[action] + _scale_rows(block, factor[action])
        return result

    def __sub__(self, other: KernelSums) -> KernelSums:
        """Return the statistics without the transitions of ``other``, which must be among those of ``self``.

        Refused where rounding would hide what is left: next to a sample that is much nearer to a representative state
        than all others, these count for nothing, so that it cannot be taken away.
        """
        self.basis.check_same(other.basis)
        if self.basis.sample_kernel.neighbors is not None:
            raise ValueError(NEIGHBORS_STAY)
        if (other.counts > self.counts).any():
            raise ValueError(
                f"Only transitions that were added can be taken away, but {other.counts.tolist()} are to be taken "
                f"from {self.counts.tolist()}, action by action."
            )
        result = KernelSums(self.basis)
        result.nearest, result.counts = self.nearest.copy(), self.counts - other.counts
        factor = _rescale_factor(other.nearest, self.nearest, self.basis)
        rounding = _ROUNDING * np.sqrt(self.counts)[:, None] * self.weight
        result.noise = self.noise + factor * other.noise + np.where((other.counts > 0)[:, None], rounding, 0.0)
        result.weight = self.weight - factor * other.weight
        result.squared_weight = self._squares_without(other, factor)
        result.reward_sum = self.reward_sum - factor * other.reward_sum
        result.reward_squares = self._reward_squares_without(other, factor)
        taken = factor * other.weight * other.largest_reward[:, None]  # at least the sum of k |r| of what is taken
        taken *= _ROUNDING * np.sqrt(self.counts)[:, None]
        result.reward_noise = self.reward_noise + factor * other.reward_noise + taken
        for action, block in enumerate(self.transition_sum):
            result.transition_sum[action] = block - _scale_rows(other.transition_sum[action], factor[action])
        result._check_rest(bool((other.nearest < self.nearest).any()))
        result._check_rewards()
        result._clear_rest()
        return result

    def _squares_without(self, other: KernelSums, factor: Floats) -> Floats:
        """Return the sums of squares without others, and all their rounding on top: support is never overstated."""
        left = np.maximum(self.squared_weight - factor**2 * other.squared_weight, 0.0)
        rounding = _ROUNDING * np.sqrt(self.counts)[:, None] * self.squared_weight
        return np.where((other.counts > 0)[:, None], left + rounding, self.squared_weight)

    def _reward_squares_without(self, other: KernelSums, factor: Floats) -> Floats:
        """Return the sums of squared rewards without others, and all their rounding on top, likewise."""
        left = np.maximum(self.reward_squares - factor * other.reward_squares, 0.0)
        rounding = _ROUNDING * np.sqrt(self.counts)[:, None] * self.reward_squares
        return np.where((other.counts > 0)[:, None], left + rounding, self.reward_squares)

    def _check_rest(self, any_nearer: bool) -> None:
        """Refuse what is left of sums if it is not what they would be without the transitions taken away."""
        negative = any((block + noise[:, None] < 0).any() for block, noise in zip(self.transition_sum, self.noise))
        if any_nearer or negative or (self.weight < -self.noise).any():
            raise ValueError(
                "Only transitions that were learnt can be forgotten, but some of these were not: their kernel "
                "values are not in the sums. Forget rows of the log that the model was fitted to, unchanged."
            )
        remains = np.broadcast_to((self.counts > 0)[:, None], self.weight.shape)
        hidden = remains & (PRECISION * self.weight < self.noise)
        if hidden.any():
            raise ValueError(
                f"These transitions cannot be forgotten: at {int(hidden.sum())} of {int(remains.sum())} pairs of an "
                f"action and a representative state nearly all weight is theirs, and rounding hides what would be "
                f"left. Fit again without them; with a larger sample_width than {self.basis.sample_kernel.width:g}, "
                f"forgetting loses less."
            )

    def _check_rewards(self) -> None:
        """Refuse sums of rewards in which the rounding of larger ones that were taken away is not negligible."""
        known = (self.counts > 0)[:, None] & (self.weight > 0)
        means, errors = (
            np.divide(np.abs(sums), self.weight, out=np.zeros_like(sums), where=known)
            for sums in (self.reward_sum, self.reward_noise)
        )
        scale, error = float(means.max(initial=0.0)), float(errors.max(initial=0.0))
        if error > PRECISION * scale:
            raise ValueError(
                f"These transitions cannot be forgotten: their rewards are so large that rounding hides those of the "
                f"others. What is left of mean rewards is at most {scale:.3g} in size, and may be off by {error:.3g}. "
                f"Fit again without them."
            )

    def _clear_rest(self) -> None:
        """Forget actions of which nothing is left, and entries that only rounding has put below 0."""
        for action, block in enumerate(self.transition_sum):
            self.transition_sum[action] = block.clip(0.0) if self.counts[action] else _empty(self.basis)
        gone = self.counts == 0
        self.nearest[gone] = np.inf
        for name in _PER_PAIR[1:]:
            getattr(self, name)[gone] = 0.0

    def on(self, basis: Basis) -> KernelSums:
        """Return the same sums for a basis with further, or no further, representative states.

        Nothing is known of further ones yet.  What is returned shares nothing with this that could be changed.
        """
        result = KernelSums(basis)
        n_old = len(self.basis.reps)
        result.counts, result.largest_reward = self.counts.copy(), self.largest_reward.copy()
        for name in _PER_PAIR:
            getattr(result, name)[:, :n_old] = getattr(self, name)
        for action, block in enumerate(self.transition_sum):
            result.transition_sum[action] = _padded(block, len(basis.reps))
        return result

    def without(self, basis: Basis, kept: Booleans) -> KernelSums:
        """Return the sums for the ``kept`` representative states, which share what led to the others by similarity."""
        result = KernelSums(basis)
        result.counts = self.counts.copy()
        for name in _PER_PAIR:
            setattr(result, name, np.ascontiguousarray(getattr(self, name)[:, kept]))
        stays, goes = np.flatnonzero(kept), np.flatnonzero(~kept)
        shares = basis.rep_weights.weights(self.basis.reps[goes])
        for action, block in enumerate(self.transition_sum):
            rows = block[stays]
            moved = rows[:, stays] + rows[:, goes] @ shares
            result.transition_sum[action] = moved if sparse.issparse(moved) else np.ascontiguousarray(moved)
        return result

    def to_mdp(self, discount: float) -> FiniteMDP:
        """Divide once: the reduced MDP of KBSF.  A pair that no transition speaks of is unavailable."""
        available = self.weight > 0
        share = np.divide(1.0, self.weight, out=np.zeros_like(self.weight), where=available)
        blocks_ = [_scale_rows(block, share[action]) for action, block in enumerate(self.transition_sum)]
        stacked = sparse.csr_array(sparse.vstack(blocks_)) if sparse.issparse(blocks_[0]) else np.concatenate(blocks_)
        rewards = self.reward_sum * share
        if self.basis.discount is not None:  # the sums hold it already
            return FiniteMDP.discounted(stacked, rewards, discount, available)
        return FiniteMDP.trusted(stacked, rewards, discount, available)

    def log_mass(self) -> Floats:
        """Return the log of the sum of k(rep i, s_t), (n_actions, n_reps): how much the data say about each pair."""
        with np.errstate(divide="ignore"):
            return log_profile(np.minimum(self.nearest, FARTHEST), self.basis.sample_kernel.profile) + np.log(
                self.weight
            )

    def effective_cases(self) -> Floats:
        """Return Kish's effective number of cases behind each pair, (n_actions, n_reps), see `insight.coverage`."""
        return effective_number(self.weight, self.squared_weight, self.counts)

    def reward_spread(self) -> Floats:
        """Return the standard deviation of the rewards behind each pair, (n_actions, n_reps); NaN: not known."""
        share = np.divide(1.0, self.weight, out=np.zeros_like(self.weight), where=self.weight > 0)
        return np.sqrt(np.maximum(share * self.reward_squares - (share * self.reward_sum) ** 2, 0.0))

    def behaviour(self) -> Floats:
        """Return how often each action was taken around each representative state, (n_actions, n_reps).

        Columns sum to one: the shares of the kernel mass; or to zero, where nothing is known.
        """
        mass = self.log_mass()
        top = mass.max(axis=0)
        shares = np.exp(mass - np.where(np.isfinite(top), top, 0.0))
        total = shares.sum(axis=0)
        return np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)

    def nearest_distances(self) -> Floats:
        """Return the distance of the nearest sample of each action, (n_actions, n_reps), inf where none is known.

        After samples were taken away it is a bound: the nearest one left counts at least as much as all on average.
        """
        nearest, forgot = self.nearest, self.noise > 0
        if forgot.any():
            squared = self.squared_weight - 2 * self.noise  # whose rounding is less than that of the weight
            mean = self.weight**2 / np.maximum(self.counts, 1)[:, None]
            largest = np.maximum(squared, mean) / (self.weight + self.noise)  # at least, relative to the reference
            nearest = np.where(forgot, self._reached_at(largest), nearest)
        return np.where(nearest < FARTHEST, nearest / self.basis.samples_at_reps.inverse_widths, np.inf)

    def _reached_at(self, values: Floats) -> Floats:
        """Return the distances in widths, (n_actions, n_reps), where the kernel has fallen to values relative to k."""
        reference, profile = np.minimum(self.nearest, FARTHEST), self.basis.sample_kernel.profile
        with np.errstate(divide="ignore"):
            target = np.minimum(np.log(values), 0.0)
        low, high = reference, reference + 1.0
        while (above := (high < FARTHEST) & (log_ratio(high, reference, profile) >= target)).any():
            high = np.where(above, 2 * high, high)
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = log_ratio(middle, reference, profile) >= target
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return high

    def _add_dense(self, action: int, samples: Samples) -> None:
        n_rows, n_reps = min(len(samples.rewards), BLOCK_ROWS), self.basis.n_reps
        all_values, scratch = np.empty((2, n_rows, n_reps)), np.empty((n_reps, n_reps))
        for rows in blocks(len(samples.rewards)):
            part = samples.part(rows)
            values = all_values[0, : len(part.rewards)]
            self._fill_kernel_values(action, part, values)
            if self.basis.rep_weights.kernel.neighbors is not None:
                to_reps = self.basis.to_reps(part.next_states, part.terminals)
                self.transition_sum[action] += (to_reps.T @ values).T
            else:
                to_reps = all_values[1, : len(part.rewards)]
                self.basis.rep_weights.fill(part.next_states, to_reps)
                fade(to_reps, part.terminals)
                self.transition_sum[action] += np.matmul(values.T, to_reps, out=scratch)

    def _fill_kernel_values(self, action: int, samples: Samples, z: Floats) -> None:
        """Write k(rep i, s_t) to z, (n, n_reps), relative to the nearest sample so far; add to weight and rewards."""
        kernel = self.basis.samples_at_reps
        nearest = self.nearest[action].copy()
        weight, reward_sum = self.weight[action], self.reward_sum[action]
        if kernel.kind is not None:
            compiled.scaled_distances(samples.states, kernel.columns, kernel.inverse_widths, z, nearest)
            self._move_reference(action, nearest)
            squared = np.zeros_like(weight)  # the loop cannot handle NaN
            compiled.sample_values(z, nearest, samples.rewards, weight, squared, reward_sum, kernel.kind)
            self.squared_weight[action] += squared
            self._add_reward_squares(action, samples.rewards, z)
            return
        z[:] = kernel.in_widths(samples.states)
        self._move_reference(action, np.minimum(nearest, z.min(axis=0)))
        z[:] = np.exp(log_ratio(z, self.nearest[action], kernel.kernel.profile))
        weight += z.sum(axis=0)
        self.squared_weight[action] += (z**2).sum(axis=0)
        reward_sum += samples.rewards @ z
        self._add_reward_squares(action, samples.rewards, z)

    def _add_reward_squares(self, action: int, rewards: Floats, values: Floats) -> None:
        """Add rewards^2, (n,), weighed by kernel values, (n, n_reps); what overflows is not known."""
        with np.errstate(over="ignore", invalid="ignore"):
            self.reward_squares[action] += rewards**2 @ values

    def _add_nearest(self, action: int, samples: Samples) -> None:
        """Add the mu nearest samples of this chunk to each representative state; those at the mu-th distance share."""
        kernel = self.basis.samples_at_reps
        n_neighbors = kernel.kernel.neighbors or 1
        distances, places, occurrences = nearest_with_ties(samples, self.basis, n_neighbors)
        outcomes = (samples.rewards[places], samples.terminals[places], samples.next_states[places])
        counts = counted(distances, occurrences, outcomes, n_neighbors, rounding_of(self.basis.reps))
        n_used = int(np.flatnonzero(counts.any(axis=0))[-1]) + 1
        distances, places, counts = distances[:, :n_used], places[:, :n_used], counts[:, :n_used]
        z = np.minimum(distances * kernel.inverse_widths[:, None], FARTHEST)
        self._move_reference(action, np.minimum(self.nearest[action], z[:, 0]))
        values = counts * np.exp(log_ratio(z, self.nearest[action][:, None], kernel.kernel.profile))
        self.weight[action] += values.sum(axis=1)
        self.squared_weight[action] += squares_of(values, occurrences[:, :n_used]).sum(axis=1)
        self.reward_sum[action] += (values * samples.rewards[places]).sum(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            self.reward_squares[action] += (values * samples.rewards[places] ** 2).sum(axis=1)
        touched, columns = np.unique(places, return_inverse=True)  # only these need a row of D
        row_starts = np.arange(0, values.size + 1, n_used)
        to_samples = sparse.csr_array((values.ravel(), columns.ravel(), row_starts), (len(values), len(touched)))
        to_reps = self.basis.to_reps(samples.next_states[touched], samples.terminals[touched])
        self.transition_sum[action] = self.transition_sum[action] + to_samples @ to_reps

    def _move_reference(self, action: int, nearest: Floats) -> None:
        """Express this action's sums relative to a nearer sample."""
        if np.array_equal(nearest, self.nearest[action]):  # the usual case: a few rows are added to many
            return
        factor = _rescale_factor(self.nearest[action], nearest, self.basis)
        if (factor != 1).any():
            self.weight[action] *= factor
            self.squared_weight[action] *= factor**2
            self.reward_sum[action] *= factor
            self.reward_squares[action] *= factor
            self.noise[action] *= factor
            self.reward_noise[action] *= factor
            self.transition_sum[action] = _scale_rows(self.transition_sum[action], factor)
        self.nearest[action] = nearest


Statistics = KernelSums | Neighborhoods | LineSums


def _empty(basis: Basis) -> Any:
    """Return zeros, (n_reps, n_reps): sparse if both kernels are."""
    is_sparse = basis.sample_kernel.neighbors is not None and (basis.hard or basis.rep_kernel.neighbors is not None)
    shape = (len(basis.reps), len(basis.reps))
    return sparse.csr_array(shape) if is_sparse else np.zeros(shape)


def _padded(block: Any, n_reps: int) -> Any:
    """Add rows and columns of zeros up to (n_reps, n_reps)."""
    n_new = n_reps - block.shape[0]
    if sparse.issparse(block):
        row_starts = np.concatenate([block.indptr, np.full(n_new, block.indptr[-1], dtype=block.indptr.dtype)])
        return sparse.csr_array((block.data, block.indices, row_starts), (n_reps, n_reps))
    if n_new == 0:
        return block.copy()
    wide = np.zeros((n_reps, n_reps))
    wide[:-n_new, :-n_new] = block  # np.pad takes ten times as long for small blocks
    return wide


def _rescale_factor(old: Floats, new: Floats, basis: Basis) -> Floats:
    """Return k(old) / k(new), at most 1; what has no sample yet holds only zeros."""
    finite = np.minimum(old, FARTHEST)
    factor = np.exp(log_ratio(finite, np.minimum(new, finite), basis.sample_kernel.profile))
    return np.where(np.isfinite(old), factor, 1.0)


def _scale_rows(matrix: Any, factors: Floats) -> Any:
    if sparse.issparse(matrix):
        return sparse.csr_array(
            (matrix.data * np.repeat(factors, np.diff(matrix.indptr)), matrix.indices, matrix.indptr), matrix.shape
        )
    return matrix * factors[:, None]
