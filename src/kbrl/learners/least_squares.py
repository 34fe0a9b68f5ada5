"""The equations of LSPI: sums over transitions, made in blocks, and their solution.

A w = b with A = sum phi(s, a) (phi(s, a) - discount phi(s', pi(s')))^T and b = sum phi(s, a) r.  A transition of action
a only touches the rows of block a, and of these only the columns of blocks a and pi(s'), so every sum is a product of
features of a few thousand states.  What does not depend on the policy is summed once.
Paper: appendix B.2; Lagoudakis and Parr 2003, section 5 (LSTDQ).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import lgmres, lsmr

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.data.names import Source
from kbrl.data.scaling import Coordinates
from kbrl.data.transitions import Transitions, as_log, refuse_durations
from kbrl.model.kernels import Samples, blocks
from kbrl.threads import for_each_action

_PART_ROWS = 2**16  # transitions that are sorted by action together
_BLOCK_ENTRIES = 2**19  # of a block of features, so that it stays in the cache
_LEAST_CONDITION = 1e-10  # reciprocal condition below which A is solved by its singular values
_DENSE_WEIGHTS = 4_000  # up to this many, sparse equations are solved as dense ones
_RESIDUAL = 1e-8  # relative, of sparse equations
MOST_KEPT = 2**25  # entries of features that are kept from iteration to iteration: 256 MB

Features = Callable[[Floats], Any]  # scaled states to (n, n_features), dense or CSR
Place = tuple[int, int, int]  # of a block: its part, its action and its number
Blocks = list[list[Any]]  # [action][action]: (n_features, n_features), dense or CSR; None stands for zeros


@dataclass(frozen=True, eq=False)
class LinearQ:
    """Q(s, a) = phi(s) . w_a, and -inf for actions never tried."""

    features: Features
    weights: Floats  # (n_features, n_actions)
    tried: Booleans  # (n_actions,)

    def __call__(self, states: Floats) -> Floats:
        """Return Q, (n_states, n_actions), of scaled states."""
        n_rows = max(1, _BLOCK_ENTRIES // len(self.weights))
        return np.concatenate([self.of(self.features(states[rows])) for rows in blocks(len(states), n_rows)])

    def of(self, features: Any) -> Floats:
        """Return Q, (n_states, n_actions), of the features of states."""
        return np.where(self.tried, features @ self.weights, -np.inf)


@dataclass(frozen=True, eq=False)
class FeatureData:
    """The transitions, as often as they are needed, and what turns their states into features."""

    chunks: Iterable[Transitions]
    features: Features
    coordinates: Coordinates
    action_labels: Array
    source: Source  # the names of the state variables
    absorb: bool  # whether ends are ends
    n_jobs: int
    n_features: int
    n_entries: int  # stored for one state

    @property
    def n_actions(self) -> int:
        """The number of possible actions."""
        return len(self.action_labels)

    def for_each_block(self, work: Callable[[Place, Callable[[], Samples]], None]) -> None:
        """Go through all transitions in blocks of one action, so small that their features stay in the cache.

        ``work`` is told the place of a block and what gives its transitions.  Actions are done in parallel and share
        nothing, so results do not depend on the number of threads.
        """
        n_rows = max(64, _BLOCK_ENTRIES // self.n_entries)
        for number, part in enumerate(self._parts()):
            by_action = part.by_action()

            def work_on(
                action: int, number: int = number, part: Transitions = part, by_action: list[Integers] = by_action
            ) -> None:
                for block, rows in enumerate(blocks(len(by_action[action]), n_rows)):
                    work((number, action, block), partial(self._samples, part, by_action[action][rows]))

            for_each_action(work_on, self.n_actions, self.n_jobs)

    def _parts(self) -> Iterator[Transitions]:
        n_dims = self.coordinates.n_dims
        for chunk in self.chunks:
            refuse_durations(as_log(chunk), "LSPI")
            if chunk.n_dims != n_dims:
                raise ValueError(f"Transitions must have {n_dims} state variables, but they have {chunk.n_dims}.")
            yield from chunk.in_order_of(self.source).with_actions(self.action_labels).chunks(_PART_ROWS)

    def _samples(self, part: Transitions, rows: Integers) -> Samples:
        states, next_states = (self.coordinates.of(array[rows]) for array in (part.states, part.next_states))
        return Samples(states, part.rewards[rows], next_states, part.terminals[rows] & self.absorb)


def own_sums(data: FeatureData) -> tuple[list[Any], Floats, Integers]:
    """Return what does not depend on the policy: sum phi phi^T of each action (None if never tried), b, and counts."""
    gram: list[Any] = [None] * data.n_actions
    rhs, counts = np.zeros((data.n_actions, data.n_features)), np.zeros(data.n_actions, dtype=np.intp)

    def add(place: Place, samples_of: Callable[[], Samples]) -> None:
        action, samples = place[1], samples_of()
        here = data.features(samples.states)
        gram[action] = _plus(gram[action], here.T @ here)
        rhs[action] += here.T @ samples.rewards
        counts[action] += len(samples.rewards)

    data.for_each_block(add)
    return gram, rhs, counts


class Pairs:
    """Features of states and of what followed, by blocks, kept while there is room: all iterations need the same."""

    def __init__(self, data: FeatureData, most_entries: int) -> None:
        self._data, self._room, self._kept = data, most_entries, dict[Place, tuple[Any, Any]]()

    def at(self, place: Place, samples_of: Callable[[], Samples]) -> tuple[Any, Any] | None:
        """Return phi(s) and phi(s') of the transitions of a block that do not end an episode; None: all do."""
        if place in self._kept:
            return self._kept[place]
        samples = samples_of()
        samples = samples.take(np.flatnonzero(~samples.terminals))
        if len(samples.rewards) == 0:
            return None
        pair = self._data.features(samples.states), self._data.features(samples.next_states)
        self._room -= 2 * self._data.n_entries * len(samples.rewards)
        if self._room >= 0:
            self._kept[place] = pair
        return pair


def successor_sums(data: FeatureData, q: LinearQ, pairs: Pairs) -> Blocks:
    """Return sum phi(s) phi(s')^T for each action taken and each action that is best in s'."""
    sums: Blocks = [[None] * data.n_actions for _ in range(data.n_actions)]

    def add(place: Place, samples_of: Callable[[], Samples]) -> None:
        action, pair = place[1], pairs.at(place, samples_of)
        if pair is None:
            return
        here, there = pair
        best = q.of(there).argmax(axis=1)
        for next_action in np.unique(best):
            rows = np.flatnonzero(best == next_action)
            sums[action][next_action] = _plus(sums[action][next_action], here[rows].T @ there[rows])

    data.for_each_block(add)
    return sums


def _plus(total: Any, part: Any) -> Any:
    if total is None:
        return part
    total += part
    return total


@dataclass(frozen=True, eq=False)
class Equations:
    """A w = b, without the blocks of actions that were never tried."""

    gram: list[Any]  # sum phi(s) phi(s)^T of each action; None if it was never tried
    rhs: Floats  # (n_actions, n_features)
    discount: float
    ridge: float  # added to the diagonal of A

    @property
    def tried(self) -> Booleans:
        """Which actions were tried, (n_actions,)."""
        return np.array([block is not None for block in self.gram])

    def solve(self, successors: Blocks | None, start: Floats) -> Floats:
        """Return the weights, (n_features, n_actions), for the sums of a policy; None: of the rewards alone."""
        tried = np.flatnonzero(self.tried)
        parts: Blocks = [[None] * len(tried) for _ in tried]
        for i, action in enumerate(tried):
            if successors is not None:
                sums = [successors[action][other] for other in tried]
                parts[i] = [None if total is None else -self.discount * total for total in sums]
            parts[i][i] = self.gram[action] if parts[i][i] is None else self.gram[action] + parts[i][i]
        weights = np.zeros_like(start)
        solution = _solution(_joined(parts, self.ridge), self.rhs[tried].ravel(), start[:, tried].T.ravel())
        weights[:, tried] = solution.reshape(len(tried), -1).T
        return weights


def _joined(parts: Blocks, ridge: float) -> Any:
    """Return the blocks as one matrix, dense if they are or if it is small, with ``ridge`` added to its diagonal."""
    size = parts[0][0].shape[0]
    n_weights = size * len(parts)
    if sparse.issparse(parts[0][0]):
        matrix = sparse.csr_array(sparse.block_array(parts)) + ridge * sparse.eye_array(n_weights, format="csr")
        return matrix.toarray() if n_weights <= _DENSE_WEIGHTS else matrix
    zeros = np.zeros((size, size))
    matrix = np.block([[zeros if part is None else part for part in row] for row in parts])
    matrix[np.diag_indices(n_weights)] += ridge
    return matrix


def _solution(matrix: Any, rhs: Floats, start: Floats) -> Floats:
    """Solve A w = b; where A is near singular, take the shortest w that comes nearest."""
    if sparse.issparse(matrix):
        return _sparse_solution(matrix, rhs, start)
    norm = np.abs(matrix).sum(axis=0).max()
    factors, pivots, _ = linalg.lapack.dgetrf(matrix)
    if linalg.lapack.dgecon(factors, norm)[0] > _LEAST_CONDITION:
        return np.asarray(linalg.lapack.dgetrs(factors, pivots, rhs)[0])
    return np.asarray(linalg.lstsq(matrix, rhs, cond=len(matrix) * np.finfo(float).eps)[0])


def _sparse_solution(matrix: Any, rhs: Floats, start: Floats) -> Floats:
    """Solve by LGMRES; where that fails, as for a singular A, by LSMR, which is slower and always comes close."""
    diagonal = matrix.diagonal()
    sizes = np.where(diagonal > 0, diagonal, 1.0)
    even = sparse.csr_array(matrix @ sparse.diags_array(1.0 / sizes))
    solution, failure = lgmres(even, rhs, x0=start * sizes, rtol=_RESIDUAL, atol=0.0, maxiter=100)
    if failure:
        solution = lsmr(even, rhs, atol=_RESIDUAL, btol=_RESIDUAL, conlim=0, x0=solution)[0]
    return np.asarray(solution / sizes)
