"""Value and recommended action over a pair of state variables, without a guess where there are no data.

With two variables the model is asked on a fine grid, and cells without a logged state in or next to them stay empty.
With more variables, each point shows the logged states around it: their mean value and the answer that most of them
get, weighted by a Gaussian in the two variables: smooth, thin where few states are around, empty where none is.
No variable is fixed at its median, where perhaps no state has ever been.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.ndimage import binary_dilation, gaussian_filter1d

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.model.model import Model
from kbrl.report.recommendations import Answers, answers
from kbrl.settings import FEW_CASES

MOST_VARIABLES = 3  # all pairs of them are drawn
MOST_CELLS = 36  # per side
FINE = 4  # points per side of a cell, where the model is asked on a grid
FEW_VALUES = 12
SMOOTH_CELLS = 72  # per side of a map of logged states
LEAST_AROUND = 1.0  # logged states, each weighing 1 at most: with fewer around, a point is empty
_ROUNDING = 1e-9  # of the size of values: less variation counts as none
GROUPS = 10  # groups of equal size into which a variable is cut, to measure its influence


@dataclass(frozen=True, eq=False)
class Map:
    """A grid over two variables, or over one (then it has a single row); rows go with the second variable."""

    variables: tuple[int, ...]
    x_edges: Floats  # (n_x + 1,)
    y_edges: Floats  # (n_y + 1,)
    values: Floats  # (n_y, n_x); NaN where there are no data
    actions: Integers  # (n_y, n_x), places of actions; -1 where there are no data
    is_weak: Booleans  # (n_y, n_x): the recommended action has little support, or few logged states are around
    is_cut: bool  # the axes leave out the outermost logged states
    q: Floats | None = None  # (n_x, n_actions), of a map over one variable; NaN where there are no data
    of_cells: bool = False  # shows the logged states around each point; otherwise, the model's answers on a grid


def influences(states: Floats, q: Floats) -> Floats:
    """Return the share of the variation of Q that each state variable accounts for by itself, (n_dims,).

    The states are cut into groups of equal size by the variable: the variance of the groups' means over that of all
    (the correlation ratio), averaged over the actions whose value is known everywhere.  It is NaN if there are too
    few states to tell.
    """
    known = q[:, np.isfinite(q).all(axis=0)]
    known = known if known.shape[1] else q.max(axis=1, keepdims=True)
    known = known[:, known.std(axis=0) > _ROUNDING * np.abs(known).max(axis=0)]
    if len(states) < 2 * GROUPS or known.shape[1] == 0:
        return np.full(states.shape[1], np.nan if known.shape[1] else 0.0)
    return np.array([(_between(_grouped(column), known) / known.var(axis=0)).mean() for column in states.T])


def maps_of(model: Model, states: Floats, found: Answers, influence: Floats) -> Iterator[Map]:
    """Yield a map for each pair of the most influential variables; one map if there is one variable."""
    if states.shape[1] == 1:
        yield _map_of_one(model, states)
    elif states.shape[1] == 2 and not any(_has_few_values(column) for column in states.T):
        yield _map_of_both(model, states)
    else:
        for pair in combinations(_most_telling(states, influence), 2):
            yield _map_of_cells(states, found, pair)


def _most_telling(states: Floats, influence: Floats) -> list[int]:
    """Choose variables of large influence, one after the other, that differ from those chosen before."""
    spread = states.std(axis=0)
    centred = (states - states.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    correlations = centred.T @ centred / len(states)
    news = influence + 1e-9  # so that a variable without any influence comes before one that is chosen
    chosen: list[int] = []
    while len(chosen) < min(MOST_VARIABLES, len(influence)):
        chosen.append(int(np.argmax(news)))
        news = np.minimum(news, influence * (1 - correlations[chosen[-1]] ** 2))
        news[chosen] = -1.0
    return chosen


def _map_of_cells(states: Floats, found: Answers, pair: tuple[int, int]) -> Map:
    """Show around each point the logged states that are near it in two variables."""
    axes = [_edges(states[:, k], SMOOTH_CELLS) for k in pair]
    (x_edges, cut_x), (y_edges, cut_y) = axes
    sigmas = [_bandwidth(states[:, k], edges) for k, (edges, _) in zip(pair, axes)]
    shape = (len(y_edges) - 1, len(x_edges) - 1)
    cells, is_inside = _cells(states[:, pair[0]], states[:, pair[1]], x_edges, y_edges)

    def around(weights: Array) -> Floats:
        """Return the sum of weights of states, each weighing 1 at a point on it and less farther away."""
        sums = np.bincount(cells[is_inside], weights[is_inside], minlength=shape[0] * shape[1])
        return _spread_out(sums.reshape(shape), sigmas)

    counts = around(np.ones(len(states)))
    is_known = counts >= LEAST_AROUND
    share = np.divide(1.0, counts, out=np.zeros(shape), where=is_known)
    values = np.where(is_known, around(found.values) * share, np.nan)
    votes = np.stack([around((found.best == answer).astype(np.float64)) for answer in range(found.q.shape[1])])
    is_weak = is_known & ((around(found.is_weak.astype(np.float64)) > 0.5 * counts) | (counts < FEW_CASES))
    actions = np.where(is_known, votes.argmax(axis=0), -1)
    return Map(pair, x_edges, y_edges, values, actions, is_weak, cut_x or cut_y, of_cells=True)


def _bandwidth(column: Floats, edges: Floats) -> float:
    """Return the standard deviation of the Gaussian along a variable, in cells; 0 for one of few values."""
    if len(edges) - 1 < SMOOTH_CELLS or _has_few_values(column):
        return 0.0
    width = column.std() * len(column) ** (-1 / 6)  # Scott 1992, for two variables
    return float(np.clip(width / (edges[1] - edges[0]), 1.0, SMOOTH_CELLS / 12))


def _spread_out(sums: Array, sigmas: list[float]) -> Floats:
    """Return sums per cell, (n_y, n_x), each spread by a Gaussian whose largest value is 1."""
    spread = sums.astype(np.float64)
    for axis, sigma in ((1, sigmas[0]), (0, sigmas[1])):
        if sigma > 0:
            spread = gaussian_filter1d(spread, sigma, axis=axis, mode="constant") * sigma * np.sqrt(2 * np.pi)
    return spread


def _map_of_both(model: Model, states: Floats) -> Map:
    """Ask the model on a fine grid, where a logged state is in the cell or in one next to it."""
    n_cells = _n_cells(len(states))
    (x_edges, cut_x), (y_edges, cut_y) = (_edges(column, n_cells, whole=False) for column in states.T)
    cells, is_inside = _cells(states[:, 0], states[:, 1], x_edges, y_edges)
    counts = np.bincount(cells[is_inside], minlength=n_cells**2).reshape(n_cells, n_cells)
    is_near = np.kron(binary_dilation(counts > 0, np.ones((3, 3))), np.ones((FINE, FINE))) > 0
    x_fine, y_fine = (np.linspace(edges[0], edges[-1], FINE * n_cells + 1) for edges in (x_edges, y_edges))
    grid = np.stack(np.meshgrid(_middles(x_fine), _middles(y_fine)), axis=-1)
    found = answers(model, grid[is_near])
    values, actions = np.full(is_near.shape, np.nan), np.full(is_near.shape, -1)
    is_weak = np.zeros(is_near.shape, dtype=bool)
    values[is_near], actions[is_near], is_weak[is_near] = found.values, found.best, found.is_weak
    actions, is_weak = _without_confetti(actions, found.q.shape[1]), _without_confetti(is_weak.astype(np.intp), 2) > 0
    return Map((0, 1), x_fine, y_fine, values, actions, is_weak & is_near, cut_x or cut_y)


def _without_confetti(kinds: Integers, n_kinds: int) -> Integers:
    """Return the most frequent answer around each point, (n_y, n_x), within about half a cell; -1 stays."""
    sigmas = [0.5 * FINE, 0.5 * FINE]
    votes = np.stack([_spread_out(kinds == kind, sigmas) for kind in range(n_kinds)])
    return np.where(kinds >= 0, votes.argmax(axis=0), -1)


def _map_of_one(model: Model, states: Floats) -> Map:
    """The same along the only variable, with the values of all actions."""
    n_cells = 3 * _n_cells(len(states))
    edges, is_cut = _edges(states[:, 0], n_cells, whole=False)
    counts = np.histogram(states[:, 0], edges)[0]
    is_near = np.repeat(binary_dilation(counts > 0, np.ones(3)), FINE)
    fine = np.linspace(edges[0], edges[-1], FINE * n_cells + 1)
    found = answers(model, _middles(fine)[:, None])
    q = np.where(is_near[:, None] & np.isfinite(found.q), found.q, np.nan)
    values = np.where(is_near, found.values, np.nan)[None]
    actions = np.where(is_near, found.best, -1)[None]
    return Map((0,), fine, np.array([0.0, 1.0]), values, actions, (found.is_weak & is_near)[None], is_cut, q)


def _has_few_values(column: Floats) -> bool:
    """Whether a variable is a category or a small count, so that nothing lies between its values."""
    return len(np.unique(column)) <= FEW_VALUES


def _n_cells(n_rows: int) -> int:
    """Return the number of cells per side: fewer where there are few states to fill them."""
    return int(np.clip(np.sqrt(n_rows / 6), 8, MOST_CELLS))


def _edges(column: Floats, n_cells: int, *, whole: bool = True) -> tuple[Floats, bool]:
    """Return the edges of cells along a variable, and whether they leave out its outermost states.

    A few far outliers would squeeze all others into one cell.  With ``whole``, a variable with few values has one cell
    per value.
    """
    levels = np.unique(column)
    if whole and 1 < len(levels) <= n_cells:
        middles = _middles(levels)
        return np.concatenate([[2 * levels[0] - middles[0]], middles, [2 * levels[-1] - middles[-1]]]), False
    low, high = levels[0], levels[-1]
    inner_low, inner_high = np.quantile(column, [0.01, 0.99])
    is_cut = bool(inner_high > inner_low and high - low > 3 * (inner_high - inner_low))
    if is_cut:
        low, high = inner_low, inner_high
    if not high > low or not np.isfinite(high - low):
        low, high = low - max(1.0, abs(low)) * 0.5, low + max(1.0, abs(low)) * 0.5
    return np.linspace(low, high, n_cells + 1), is_cut


def _cells(x: Floats, y: Floats, x_edges: Floats, y_edges: Floats) -> tuple[Integers, Booleans]:
    """Return the number of the cell of each point, row by row, and whether the point is in any."""
    is_inside = (x >= x_edges[0]) & (x <= x_edges[-1]) & (y >= y_edges[0]) & (y <= y_edges[-1])
    columns, rows = (
        np.clip(np.searchsorted(e, v, "right") - 1, 0, len(e) - 2) for v, e in ((x, x_edges), (y, y_edges))
    )
    return rows * (len(x_edges) - 1) + columns, is_inside


def _middles(edges: Floats) -> Floats:
    return 0.5 * (edges[1:] + edges[:-1])


def _grouped(column: Floats) -> Integers:
    """Return the group of each entry; equal entries are in one group."""
    return np.unique(np.searchsorted(np.quantile(column, np.arange(1, GROUPS) / GROUPS), column), return_inverse=True)[
        1
    ]


def _between(groups: Integers, q: Floats) -> Floats:
    """Return the variance of the groups' means, each weighing as much as it has members, for each column of q."""
    counts = np.bincount(groups)
    means = np.stack([np.bincount(groups, column) / counts for column in q.T], axis=1)
    return np.average((means - q.mean(axis=0)) ** 2, axis=0, weights=counts)
