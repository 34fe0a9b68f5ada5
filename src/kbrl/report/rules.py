"""Rules that a person can read: a small decision tree that imitates the advice.

The tree is grown on one half of the sampled states (Breiman et al. 1984: Gini's impurity, the best split first), and
its fidelity is measured on the other half: how often a rule says what the model says.  Advice that has too little
support, or that resampled episodes do not agree on, counts as no advice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers

MOST_RULES = 8
DEEPEST = 4
LEAST_SHARE, LEAST_ROWS = 0.01, 5  # share of the states that a rule must be about
MOST_CUTS = 32  # per variable
LEAST_AGREEMENT = 0.8  # of resampled logs, for advice to count
NO_ADVICE = -1


@dataclass(frozen=True)
class Condition:
    """Limits of one variable: low <= x < high."""

    variable: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False)
class Rule:
    """States with the same advice, and how well it holds for states that were not used to find it."""

    conditions: tuple[Condition, ...]
    advice: int  # the place of an answer, or NO_ADVICE
    n_rows: int  # of the other half of the states, that it is about
    n_true: int  # of these, those for which the model says the same
    rows: Booleans  # (n,): of all states, those that it is about

    @property
    def fidelity(self) -> float | None:
        """The share of its states, not used to find it, for which the model says the same."""
        return self.n_true / self.n_rows if self.n_rows else None


@dataclass(frozen=True, eq=False)
class Rules:
    """A partition of the states."""

    rules: tuple[Rule, ...]

    @property
    def fidelity(self) -> float | None:
        """The share of all states not used to grow the tree for which it says what the model says."""
        n_rows = sum(rule.n_rows for rule in self.rules)
        return sum(rule.n_true for rule in self.rules) / n_rows if n_rows else None


def find_rules(states: Floats, advice: Integers) -> Rules:
    """Return rules for the advice, (n,), in states, (n, n_dims)."""
    is_grown = np.arange(len(states)) % 2 == 0  # samples are in no order
    least = max(LEAST_ROWS, int(LEAST_SHARE * is_grown.sum()))
    root = _Node(is_grown, (), 0)
    leaves = [root]
    while len(leaves) < MOST_RULES:
        splits = [(split, leaf) for leaf in leaves if (split := _best_split(states, advice, leaf, least)) is not None]
        if not splits:
            break
        (_, variable, cut), leaf = max(splits, key=lambda found: found[0][0])
        leaves.remove(leaf)
        leaves += leaf.parts(states, variable, cut)
    return Rules(tuple(_rule(states, advice, is_grown, leaf) for leaf in _joined(leaves, advice)))


@dataclass(frozen=True, eq=False)
class _Node:
    rows: Booleans  # of the half that the tree is grown on
    path: tuple[tuple[int, float, bool], ...]  # variable, cut, whether below it
    depth: int

    def parts(self, states: Floats, variable: int, cut: float) -> list[_Node]:
        below = states[:, variable] < cut
        return [
            _Node(self.rows & (below == side), (*self.path, (variable, cut, side)), self.depth + 1)
            for side in (True, False)
        ]


def _best_split(states: Floats, advice: Integers, node: _Node, least: int) -> tuple[float, int, float] | None:
    """Return the gain, the variable and the cut of the best split of a node; None if none gains."""
    if node.depth == DEEPEST or node.rows.sum() < 2 * least:
        return None
    classes, kinds = np.unique(advice[node.rows], return_inverse=True)
    if len(classes) == 1:
        return None
    found = [_best_cut(column, kinds, len(classes), least) for column in states[node.rows].T]
    gain, variable = max((split[0], -place) for place, split in enumerate(found))
    return (gain, -variable, found[-variable][1]) if gain > 1e-9 * len(kinds) else None


def _best_cut(column: Floats, kinds: Integers, n_kinds: int, least: int) -> tuple[float, float]:
    """Return how much the best cut of a column lowers the impurity, times the number of rows, and the cut."""
    cuts = _cuts(column)
    if not len(cuts):
        return -np.inf, np.nan
    bins = np.searchsorted(cuts, column, side="right")
    counts = np.bincount(bins * n_kinds + kinds, minlength=(len(cuts) + 1) * n_kinds).reshape(-1, n_kinds)
    below = np.cumsum(counts, axis=0)[:-1].astype(np.float64)  # (n_cuts, n_kinds)
    total = counts.sum(axis=0)
    gains = _impurity(total[None]) - _impurity(below) - _impurity(total - below)
    n_below = below.sum(axis=1)
    gains[(n_below < least) | (len(column) - n_below < least)] = -np.inf
    best = int(np.argmax(gains))
    return float(gains[best]), float(cuts[best])


def _impurity(counts: Array) -> Floats:
    """Return Gini's impurity times the number of rows, of each row of counts."""
    n = counts.sum(axis=1)
    return n - np.divide((counts.astype(np.float64) ** 2).sum(axis=1), n, out=np.zeros(len(n)), where=n > 0)


def _cuts(column: Floats) -> Floats:
    """Return numbers with few digits at which a column can be cut."""
    levels = np.unique(column)
    if len(levels) > MOST_CUTS:
        levels = np.unique(np.quantile(column, np.linspace(0.0, 1.0, MOST_CUTS + 2)))
    cuts = np.unique([_short(low, high) for low, high in pairwise(levels)])
    return cuts[(cuts > levels[0]) & (cuts <= levels[-1])]


def _short(low: float, high: float) -> float:
    """Return the number of fewest digits above low, up to high, that is nearest to their middle."""
    middle = 0.5 * low + 0.5 * high
    for digits in range(1, 17):
        short = float(f"{middle:.{digits}g}")
        if low < short <= high:
            return short
    return high


def _joined(leaves: list[_Node], advice: Integers) -> Iterator[_Node]:
    """Yield the leaves; two that come from one split and advise the same become one again."""
    found = list(leaves)
    while True:
        pair = next((pair for pair in _siblings(found) if len({_majority(advice, leaf) for leaf in pair}) == 1), None)
        if pair is None:
            break
        one, other = pair
        found = [leaf for leaf in found if leaf not in pair] + [
            _Node(one.rows | other.rows, one.path[:-1], one.depth - 1)
        ]
    yield from found


def _siblings(leaves: list[_Node]) -> Iterator[tuple[_Node, _Node]]:
    by_path = {leaf.path: leaf for leaf in leaves}
    for leaf in leaves:
        if leaf.path and leaf.path[-1][2]:
            variable, cut, _ = leaf.path[-1]
            other = by_path.get((*leaf.path[:-1], (variable, cut, False)))
            if other is not None:
                yield leaf, other


def _majority(advice: Integers, leaf: _Node) -> int:
    classes, counts = np.unique(advice[leaf.rows], return_counts=True)
    return int(classes[np.argmax(counts)])


def _rule(states: Floats, advice: Integers, is_grown: Booleans, leaf: _Node) -> Rule:
    rows = np.ones(len(states), dtype=bool)
    lows: dict[int, float] = {}
    highs: dict[int, float] = {}
    for variable, cut, below in leaf.path:
        rows &= (states[:, variable] < cut) == below
        if below:
            highs[variable] = min(cut, highs.get(variable, np.inf))
        else:
            lows[variable] = max(cut, lows.get(variable, -np.inf))
    said = _majority(advice, leaf)
    judged = rows & ~is_grown
    conditions = tuple(Condition(k, lows.get(k), highs.get(k)) for k in sorted({*lows, *highs}))
    return Rule(conditions, said, int(judged.sum()), int((advice[judged] == said).sum()), rows)
