"""Ensembles of regression trees in plain arrays: grown by scikit-learn, read by compiled loops.

Extra-trees (Geurts, Ernst and Wehenkel 2006): at a node one random cut is drawn for each of K variables, and the one
that reduces the variance of the targets most is made; every tree sees all samples.  In arrays, the leaves that hold
given inputs can be found once and for all, and new targets then only change the means in the leaves.  Paper: appendix
B.2 (FQIT: "the structure of the trees fixed after the 10th" iteration).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from kbrl.arrays import Array, Floats
from kbrl.checks import how_to_install
from kbrl.data.scaling import state_scale
from kbrl.numba_cache import njit

# Where cuts are to be kept, a standard deviation of the targets counts as much as this many of each input.
_TARGETS_FIRST = 1e3
_ROWS_A_THREAD = 1000  # for fewer, threads take longer than they save


class Forest(NamedTuple):
    """Trees one after the other, one entry per node; a node whose ``left`` is -1 is a leaf."""

    roots: Array  # (n_trees,)
    variables: Array  # (n_nodes,): the input that is compared
    cuts: Floats  # (n_nodes,): an input that is not above goes left
    left: Array  # (n_nodes,)
    right: Array  # (n_nodes,)
    values: Floats  # (n_nodes,): the mean of the targets in a leaf

    @classmethod
    def of(cls, trees: list[Any]) -> Forest:
        """Copy the structure of scikit-learn's trees; the values are left to ``renewed``."""
        roots = np.cumsum([0, *(tree.node_count for tree in trees)])
        return cls(
            roots=roots[:-1],
            variables=np.concatenate([tree.feature for tree in trees]).astype(np.int32),
            cuts=np.concatenate([tree.threshold for tree in trees]),
            left=_joined([tree.children_left for tree in trees], roots),
            right=_joined([tree.children_right for tree in trees], roots),
            values=np.zeros(roots[-1]),
        )

    def __call__(self, inputs: Array, n_jobs: int = 1) -> Floats:
        """Return the mean of the trees' values, (n,), at inputs of single precision, (n, n_inputs)."""
        out = np.empty(len(inputs))
        _share(lambda start, stop: _evaluate(self, inputs, start, stop, out), len(inputs), n_jobs)
        return out

    def leaves(self, inputs: Array, n_jobs: int = 1) -> Array:
        """Return the leaf of each tree that holds each of the inputs, (n_trees, n)."""
        out = np.empty((len(self.roots), len(inputs)), dtype=np.int32)
        _share(lambda start, stop: _find_leaves(self, inputs, start, stop, out), len(inputs), n_jobs)
        return out

    def renewed(self, leaves: Array, targets: Floats, n_jobs: int = 1) -> Forest:
        """Return the same trees with the means of the targets, (n,), in the leaves that hold them."""
        sums, counts = np.zeros(len(self.values)), np.zeros(len(self.values))
        _share(lambda start, stop: _add_targets(leaves, start, stop, targets, sums, counts), len(leaves), n_jobs, 1)
        return self._replace(values=sums / np.maximum(counts, 1.0))

    def at_leaves(self, leaves: Array, n_jobs: int = 1) -> Floats:
        """Return the mean of the trees' values, (n,), at inputs whose leaves are known."""
        out = np.empty(leaves.shape[1])
        _share(lambda start, stop: _average(leaves, start, stop, self.values, out), len(out), n_jobs)
        return out


def grow(inputs: Array, targets: Floats, *, for_keeps: bool, n_jobs: int, **settings: Any) -> Forest:
    """Grow extra-trees, and return their structure without values.

    ``for_keeps``: the cuts will serve other targets as well, so a node is cut even if its targets are constant.
    """
    try:
        from sklearn.ensemble import ExtraTreesRegressor
    except ImportError:
        raise ImportError(f"Trees are grown with scikit-learn. {how_to_install('trees')}") from None
    outputs = _with_inputs(targets, inputs) if for_keeps else targets
    n_jobs = n_jobs if len(inputs) >= _ROWS_A_THREAD else 1
    ensemble = ExtraTreesRegressor(n_jobs=n_jobs, **settings).fit(inputs, outputs)
    return Forest.of([tree.tree_ for tree in ensemble.estimators_])


def _with_inputs(targets: Floats, inputs: Array) -> Floats:
    """Return targets and inputs as the outputs of one regression, among which the targets count far more.

    scikit-learn does not cut nodes whose outputs are constant.  With the inputs among the outputs, only nodes with
    constant inputs are left uncut; where only the targets are constant, the cut best separates the inputs.
    """
    outputs = np.column_stack([targets, inputs]).astype(np.float64)
    outputs /= state_scale(outputs, "std")
    outputs -= outputs.mean(axis=0)
    outputs[:, 0] *= _TARGETS_FIRST
    return outputs


def _joined(children: list[Array], roots: Array) -> Array:
    """Number the nodes of all trees consecutively."""
    return np.concatenate([np.where(c < 0, -1, c + root) for c, root in zip(children, roots)]).astype(np.int32)


def _share(work: Callable[[int, int], None], n: int, n_jobs: int, least: int = _ROWS_A_THREAD) -> None:
    """Do work(start, stop) from 0 to n in as many threads as pay off; no two touch the same results."""
    n_threads = min(n_jobs, -(-n // least))
    if n_threads <= 1:
        work(0, n)
        return
    bounds = [n * k // n_threads for k in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))


@njit(cache=True, nogil=True)
def _leaf(forest: Forest, row: Array, node: int) -> int:
    """Return the leaf below a node that holds an input."""
    while forest.left[node] >= 0:
        goes_left = row[forest.variables[node]] <= forest.cuts[node]
        node = forest.left[node] if goes_left else forest.right[node]
    return node


@njit(cache=True, nogil=True)
def _find_leaves(forest: Forest, inputs: Array, start: int, stop: int, out: Array) -> None:
    """out[t, i] = the leaf of tree t that holds input i."""
    for t in range(len(forest.roots)):
        for i in range(start, stop):
            out[t, i] = _leaf(forest, inputs[i], forest.roots[t])


@njit(cache=True, nogil=True)
def _evaluate(forest: Forest, inputs: Array, start: int, stop: int, out: Floats) -> None:
    """out[i] = the mean over trees of the value of the leaf that holds input i."""
    out[start:stop] = 0.0
    for t in range(len(forest.roots)):
        for i in range(start, stop):
            out[i] += forest.values[_leaf(forest, inputs[i], forest.roots[t])]
    out[start:stop] /= len(forest.roots)


@njit(cache=True, nogil=True)
def _add_targets(leaves: Array, start: int, stop: int, targets: Floats, sums: Floats, counts: Floats) -> None:
    """Add the targets, and their number, to the leaves that hold them, for some of the trees."""
    for t in range(start, stop):
        for i in range(len(targets)):
            sums[leaves[t, i]] += targets[i]
            counts[leaves[t, i]] += 1.0


@njit(cache=True, nogil=True)
def _average(leaves: Array, start: int, stop: int, values: Floats, out: Floats) -> None:
    """out[i] = the mean over trees of the value of the leaf that is known to hold input i."""
    out[start:stop] = 0.0
    for t in range(len(leaves)):
        for i in range(start, stop):
            out[i] += values[leaves[t, i]]
    out[start:stop] /= len(leaves)
