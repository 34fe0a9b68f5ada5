"""What a model of order 1 remembers of the transitions it has seen: moments around its representative states.

A transition belongs to the cell of the representative state c nearest to its state s.  With x = s - c, each action and
cell keeps the sums of all products of (1, x, s' - s) over transitions that do not end, and of (1, x, reward, end) over
all of them, beside the smallest and the largest reward.  Where steps have durations, the first products also have what
the next state counts, discount^duration.  These are sums: they add up, and transitions can be taken away.  Moments move
exactly from one centre to another, so cells can be pooled afterwards as widely as the data need.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.scaling import Coordinates
from kbrl.data.transitions import Transitions, stable_order
from kbrl.lines.cells import nearest_cells
from kbrl.lines.ridge import RANK
from kbrl.numba_cache import inner, njit
from kbrl.threads import for_each_action

_POOLED = 128  # representative states around one whose cells may be pooled
_CASES_PER_NUMBER = 10  # pooled cases for each of the 1 + n_dims numbers of a line, unless the user says how many
_BLOCK_ROWS = 2**14  # rows that are added together: they stay in the cache, which halves the time
_TOGETHER = 2**12  # rows whose cells one thread looks for
_AT_ONCE = 4  # rows of one cell that are added at once; see `_add_products`
_MOST_DIMS = 100  # state variables: a fit to 50 representative states took 4 s of one core with 60, 38 s with 100
_MOST_BYTES = 4 * 10**9  # of the sums
_LARGEST_REWARD = 1e100
_NOT_LEARNT = (
    "Only transitions that were learnt can be forgotten, but some of these were not: in {n} cells more would be taken "
    "away than were added. Forget rows of the log that the model was fitted to, unchanged."
)


class Cells(Protocol):
    """What the sums refer to: the basis of a model."""

    @property
    def reps(self) -> Floats:
        """The representative states, (n_reps, n_dims), scaled."""

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates in which states are scaled."""

    @property
    def n_actions(self) -> int:
        """The number of actions."""

    @property
    def discount(self) -> float | None:
        """The discount per unit of time, where steps have durations."""

    def losses(self, log: Transitions) -> Any:
        """Return the share of the value of each next state that is lost, (n,)."""

    def check_same(self, other: Any) -> None:
        """Refuse to add sums that refer to something else."""


class LineSums:
    """The sums of a model of order 1, for each action a and representative state i.

    moves (a, i): the products of (1, x, s' - s), over transitions that do not end an episode, lower triangle, packed;
        where steps have durations, of (1, x, s' - s, fade), where the fade of a step is discount^duration.
    outcomes (a, i): the products of (1, x, reward, end), over all transitions, packed in the same way.
    rewards (a, i): the smallest and the largest reward; after transitions were taken away they are only bounds.
    fades (a, i): the smallest and the largest fade, likewise; no numbers where steps have no durations.
    span: the smallest and the largest value of each scaled state variable, (2, n_dims).
    """

    def __init__(self, basis: Cells) -> None:
        n_reps, n_dims = basis.reps.shape
        pairs, is_timed = (basis.n_actions, n_reps), basis.discount is not None
        self.basis = basis
        self.counts: Integers = np.zeros(basis.n_actions, dtype=np.intp)
        self.moves: Floats = np.zeros((*pairs, packed_size(1 + 2 * n_dims + is_timed)))
        self.outcomes: Floats = np.zeros((*pairs, packed_size(3 + n_dims)))
        self.rewards: Floats = _no_range(pairs)
        self.fades: Floats = _no_range(pairs)[..., : 2 * is_timed]
        self.span: Floats = np.stack([np.full(n_dims, np.inf), np.full(n_dims, -np.inf)])

    @property
    def cases(self) -> Floats:
        """The number of transitions in each cell, (n_actions, n_reps)."""
        return self.outcomes[:, :, 0]

    def effective_cases(self) -> Floats:
        """Return how many of the cases nearest to each representative state are of each action, (n_actions, n_reps).

        Cells are added, the nearest first, until they hold as many cases of any action as a line rests on.  The number
        of cases in a single cell would depend on the number of representative states.
        """
        _, order = neighbours(self.basis.reps)
        return nearby_cases(self, order, cases_of_a_line(self))

    def of_all_actions(self) -> LineSums:
        """Return the sums of all transitions as if there were one action: what was done, whatever it was."""
        result = LineSums(replace(self.basis, n_actions=1))  # type: ignore[type-var]
        result.counts, result.span = self.counts.sum(keepdims=True), self.span.copy()
        result.moves, result.outcomes = self.moves.sum(axis=0, keepdims=True), self.outcomes.sum(axis=0, keepdims=True)
        for action in range(self.basis.n_actions):
            result.rewards = _joined(result.rewards, self.rewards[action : action + 1])
            result.fades = _joined(result.fades, self.fades[action : action + 1])
        return result

    def nearest_distances(self) -> Floats:
        """Return how far the nearest case of each cell is at most, (n_actions, n_reps), inf where there is none.

        It is no farther than the root mean square of the distances.
        """
        n_dims = self.span.shape[1]
        squares = self.outcomes[:, :, [packed_size(1 + k) + 1 + k for k in range(n_dims)]].sum(axis=2)
        means = np.divide(squares, self.cases, out=np.full_like(squares, np.inf), where=self.cases > 0)
        return np.sqrt(np.maximum(means, 0.0))

    def log_mass(self) -> Floats:
        """Return the log of the number of cases in each cell, (n_actions, n_reps)."""
        with np.errstate(divide="ignore"):
            return np.log(self.cases)

    def accumulate(self, log: Transitions, *, n_jobs: int | None = 1) -> LineSums:
        """Add transitions, in memory that does not depend on how many there are, and return self."""
        _check_rewards(log)
        columns = np.ascontiguousarray(self.basis.reps.T)
        for chunk in log.chunks(_BLOCK_ROWS):
            self._add_chunk(chunk, columns, n_jobs)
        return self

    def _add_chunk(self, chunk: Transitions, columns: Floats, n_jobs: int | None) -> None:
        n_actions, n_reps = self.cases.shape
        states, next_states = self.basis.coordinates.of(chunk.states), self.basis.coordinates.of(chunk.next_states)
        losses = np.asarray(self.basis.losses(chunk), dtype=np.float64)
        cells = np.empty(len(chunk), dtype=np.intp)

        def find(number: int) -> None:
            rows = slice(number * _TOGETHER, (number + 1) * _TOGETHER)
            cells[rows] = nearest_cells(states[rows], columns)

        for_each_action(find, -(-len(chunk) // _TOGETHER), n_jobs)
        counts = np.bincount(chunk.action_indices, minlength=n_actions)
        by_cell = stable_order(chunk.action_indices * n_reps + cells, n_actions * n_reps)
        by_action = np.split(by_cell, np.cumsum(counts)[:-1])
        spans = np.repeat(self.span[None], n_actions, axis=0)

        def add(action: int) -> None:
            rows = by_action[action]
            part = (rows, cells, states, next_states, chunk.rewards[rows], chunk.terminals[rows], losses[rows])
            sums = (self.moves[action], self.outcomes[action], self.rewards[action], self.fades[action], spans[action])
            _add(*part, self.basis.reps, *sums)

        for_each_action(add, n_actions, n_jobs)
        self.counts += counts
        self.span = np.stack([spans[:, 0].min(axis=0), spans[:, 1].max(axis=0)])

    def __add__(self, other: LineSums) -> LineSums:
        """Return the sums of both sets of transitions."""
        self.basis.check_same(other.basis)
        result = LineSums(self.basis)
        result.counts = self.counts + other.counts
        result.moves, result.outcomes = self.moves + other.moves, self.outcomes + other.outcomes
        result.rewards, result.fades = _joined(self.rewards, other.rewards), _joined(self.fades, other.fades)
        result.span = _joined(self.span.T, other.span.T).T.copy()
        return result

    def __sub__(self, other: LineSums) -> LineSums:
        """Return the sums without the transitions of ``other``, which must be among those of ``self``."""
        self.basis.check_same(other.basis)
        result = LineSums(self.basis)
        result.counts = self.counts - other.counts
        result.moves, result.outcomes = self.moves - other.moves, self.outcomes - other.outcomes
        missing = (result.outcomes[:, :, 0] < 0) | (result.moves[:, :, 0] < 0)  # counts are whole numbers
        if missing.any():
            raise ValueError(_NOT_LEARNT.format(n=int(missing.sum())))
        result.rewards, result.fades, result.span = self.rewards.copy(), self.fades.copy(), self.span.copy()
        ended = result.moves[:, :, 0] == 0
        result.moves[ended] = 0.0
        gone = result.cases == 0
        result.outcomes[gone] = 0.0
        result.rewards[gone] = [np.inf, -np.inf]
        result.fades[ended] = [np.inf, -np.inf][: result.fades.shape[-1]]
        return result

    def on(self, basis: Cells) -> LineSums:
        """Return the same sums for a basis with further, or no further, representative states; nothing is shared."""
        result = LineSums(basis)
        n_old = len(self.basis.reps)
        result.counts, result.span = self.counts.copy(), self.span.copy()
        for name in ("moves", "outcomes", "rewards", "fades"):
            getattr(result, name)[:, :n_old] = getattr(self, name)
        return result

    def without(self, basis: Cells, kept: Booleans) -> LineSums:
        """Return the sums for the ``kept`` representative states: the nearest takes over the sums of a dropped one."""
        result = LineSums(basis)
        result.counts, result.span = self.counts.copy(), self.span.copy()
        heirs = nearest_cells(self.basis.reps, np.ascontiguousarray(basis.reps.T))
        heirs[kept] = np.arange(int(kept.sum()))
        shifts = self.basis.reps - basis.reps[heirs]
        for old, heir in enumerate(heirs):
            result.moves[:, heir] += shifted(self.moves[:, old], shifts[old])
            result.outcomes[:, heir] += shifted(self.outcomes[:, old], shifts[old])
            for ranges, more in ((result.rewards, self.rewards), (result.fades, self.fades)):
                ranges[:, heir] = _joined(ranges[:, heir], more[:, old])
        return result


def _check_rewards(log: Transitions) -> None:
    largest = float(np.abs(log.rewards).max())
    if largest > _LARGEST_REWARD:
        raise ValueError(
            f"With order=1 rewards must be at most {_LARGEST_REWARD:g} in size, because squares are summed, but one is "
            f"{largest:g}. Divide the rewards by a constant, or use order=0."
        )


def neighbours(reps: Floats, places: Any = slice(None)) -> tuple[Floats, Integers]:
    """Return the distances to the representative states whose cells may be pooled with given ones, and their places."""
    ranks = [*range(1, min(len(reps), _POOLED) + 1)]
    distances, order = cKDTree(reps).query(reps[places], k=ranks)
    return np.ascontiguousarray(distances), np.ascontiguousarray(order, dtype=np.intp)


def cases_of_a_line(sums: LineSums, n_cases: int | None = None) -> float:
    """Return how many cases a line rests on; variables that count for nothing in distances have no slope to learn."""
    widths = np.where(np.isfinite(sums.span).all(axis=0), sums.span[1] - sums.span[0], 0.0)
    n_slopes = int((widths > np.sqrt(RANK) * widths.max(initial=0.0)).sum())
    return float(n_cases or _CASES_PER_NUMBER * (1 + n_slopes))


def nearby_cases(sums: LineSums, order: Integers, wanted: float) -> Floats:
    """Return how often each action was taken among the nearest cases around each representative state.

    order: the nearest representative states of each, (n_reps, n_near).  Their cells are added until they hold
    ``wanted`` cases of any action.  The result is (n_actions, n_reps).
    """
    n_cases = np.cumsum(sums.cases.sum(axis=0)[order], axis=1)
    n_used = np.minimum((n_cases < wanted).sum(axis=1) + 1, order.shape[1])
    return np.asarray((sums.cases[:, order] * (np.arange(order.shape[1]) < n_used[:, None])).sum(axis=2))


def check_sizes(n_dims: int, n_reps: int, n_actions: int) -> None:
    """Refuse sums that would not fit into memory, or lines that would take hours."""
    if n_dims > _MOST_DIMS:
        raise ValueError(
            f"order=1 learns how each state variable changes with each other one, which takes time with the cube of "
            f"their number: there may be at most {_MOST_DIMS}, but there are {n_dims}. Use order=0 (--order 0), or "
            f"name fewer (--state)."
        )
    n_bytes = 8 * n_actions * n_reps * (packed_size(2 + 2 * n_dims) + packed_size(3 + n_dims))
    if n_bytes > _MOST_BYTES:
        raise ValueError(
            f"order=1 would keep {n_bytes / 1e9:.3g} GB of sums for {n_reps:,} representative states, {n_actions} "
            f"actions and {n_dims} state variables, but they may have {_MOST_BYTES / 1e9:g} GB. Ask for fewer "
            f"representative states (n_reps, --reps), or use order=0 (--order 0)."
        )


def packed_size(n: int) -> int:
    """Return how many numbers the lower triangle of an n by n matrix has."""
    return n * (n + 1) // 2


def unpacked(triangles: Floats) -> Floats:
    """Return symmetric matrices, (..., n, n), from their packed lower triangles."""
    size = triangles.shape[-1]
    n = (int(np.sqrt(8 * size + 1)) - 1) // 2
    rows, columns = np.tril_indices(n)
    result = np.empty((*triangles.shape[:-1], n, n))
    result[..., rows, columns] = triangles
    result[..., columns, rows] = triangles
    return result


def shifted(triangles: Floats, shift: Floats) -> Floats:
    """Return packed sums of products of (1, x, ...) as sums of those of (1, x + shift, ...)."""
    matrices = unpacked(triangles)
    change = np.eye(matrices.shape[-1])
    change[1 : 1 + len(shift), 0] = shift
    rows, columns = np.tril_indices(matrices.shape[-1])
    return (change @ matrices @ change.T)[..., rows, columns]


def _no_range(pairs: tuple[int, int]) -> Floats:
    return np.stack([np.full(pairs, np.inf), np.full(pairs, -np.inf)], axis=-1)


def _joined(one: Floats, other: Floats) -> Floats:
    """Return the ranges, (..., 2), or (..., 0) where there are none, that hold both."""
    return np.concatenate(
        [np.minimum(one[..., :1], other[..., :1]), np.maximum(one[..., 1:], other[..., 1:])],
        axis=-1,
    )


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add(
    rows: Integers,
    cells: Integers,
    states: Floats,
    next_states: Floats,
    rewards: Floats,
    ends: Booleans,
    losses: Floats,
    reps: Floats,
    moves: Floats,
    outcomes: Floats,
    ranges: Floats,
    fades: Floats,
    span: Floats,
) -> None:
    """Add the products of some rows, of one action and cell by cell, to the sums of the cells.

    ``cells``, ``states`` and ``next_states`` are those of all rows, ``rewards``, ``ends`` and ``losses`` of these.
    """
    n_dims, is_timed = states.shape[1], fades.shape[1] > 0
    moved, paid = np.empty((_AT_ONCE, 1 + 2 * n_dims + (1 if is_timed else 0))), np.empty((_AT_ONCE, 3 + n_dims))
    last = 0
    while last < len(rows):
        cell, first = cells[rows[last]], last
        for own in range(_AT_ONCE):  # rows of zeros add nothing
            for k in range(moved.shape[1]):
                moved[own, k] = 0.0
            for k in range(n_dims + 3):
                paid[own, k] = 0.0
        while last < len(rows) and last < first + _AT_ONCE and cells[rows[last]] == cell:
            t, own = rows[last], last - first
            paid[own, 0] = 1.0
            for k in range(n_dims):
                paid[own, 1 + k] = states[t, k] - reps[cell, k]
                span[0, k], span[1, k] = min(span[0, k], states[t, k]), max(span[1, k], states[t, k])
            paid[own, 1 + n_dims], paid[own, 2 + n_dims] = rewards[last], 1.0 if ends[last] else 0.0
            if not ends[last]:
                for k in range(n_dims + 1):
                    moved[own, k] = paid[own, k]
                for k in range(n_dims):
                    moved[own, 1 + n_dims + k] = next_states[t, k] - states[t, k]
                    span[0, k], span[1, k] = min(span[0, k], next_states[t, k]), max(span[1, k], next_states[t, k])
                if is_timed:
                    fade = moved[own, 1 + 2 * n_dims] = 1.0 - losses[last]
                    fades[cell, 0], fades[cell, 1] = min(fades[cell, 0], fade), max(fades[cell, 1], fade)
            ranges[cell, 0] = min(ranges[cell, 0], rewards[last])
            ranges[cell, 1] = max(ranges[cell, 1], rewards[last])
            last += 1
        _add_products(moved, moves, cell)
        _add_products(paid, outcomes, cell)


@inner(fastmath={"contract"})
def _add_products(rows: Floats, triangles: Floats, cell: int) -> None:
    """Add the products of some rows, (_AT_ONCE, n), to a packed triangle, in the order of the rows.

    The sums are read and written once for all of them.
    """
    place = 0
    for j in range(rows.shape[1]):
        one, two, three, four = rows[0, j], rows[1, j], rows[2, j], rows[3, j]
        for k in range(j + 1):
            total = triangles[cell, place + k] + one * rows[0, k]
            total += two * rows[1, k]
            total += three * rows[2, k]
            total += four * rows[3, k]
            triangles[cell, place + k] = total
        place += j + 1
