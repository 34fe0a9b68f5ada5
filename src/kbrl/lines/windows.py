"""Windows: what an action leads to over many steps, regressed directly, where composed steps would lose it.

Where effects are delayed, or part of the state is hidden, what follows from lines of one step is wrong after a few
steps.  A window begins with a row of the log.  It has the row's state and action, the discounted rewards of the next
steps, and the state after them; what people did in between is part of what follows.  So windows are transitions, and
the sums of order 1 hold them as they hold steps.

The lines of windows have slopes that all actions share, and a level for each action.  One action moves what happens
over many steps only a little; slopes of its own would add more noise than they explain.  An action is compared with
the others in the same states, so an answer to what was seen, such as a dose after a high value, does not look
like its cause.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.transitions import Transitions, join
from kbrl.lines.behaviour import behaviour_lines, pooling_of_cells, reach_of_cells
from kbrl.lines.local_lines import GRAPH, LocalLines, regress
from kbrl.lines.moments import LineSums, cases_of_a_line, neighbours, packed_size, unpacked


class Windows:
    """Makes windows of the chunks of a log, also of rows in one chunk whose window ends in a later one."""

    def __init__(self, length: int, discount: float) -> None:
        self.length, self.discount = length, discount
        self._open: Transitions | None = None  # rows at the end whose windows are not complete

    def of(self, chunk: Transitions) -> Transitions | None:
        """Return the windows that are complete with this chunk; None if there are none."""
        log = chunk if self._open is None else join([self._open, chunk])
        is_complete, last = _complete(log, self.length)
        is_open = ~is_complete & (last == len(log) - 1)
        self._open = log[is_open] if is_open.any() else None
        return windows_at(log, np.flatnonzero(is_complete), self.length, self.discount) if is_complete.any() else None


def complete_windows(log: Transitions, length: int) -> Integers:
    """Return the rows whose window is complete: the log has all of its steps, or the episode ended within it."""
    return np.flatnonzero(_complete(log, length)[0])


def windows_at(log: Transitions, rows: Integers, length: int, discount: float) -> Transitions:
    """Return the windows that begin with some rows, as transitions; their windows must be complete."""
    last = np.minimum(rows + length - 1, _last_rows(log)[rows])
    rewards = np.zeros(len(rows))
    for ahead in range(length):
        lasts = rows + ahead <= last
        rewards[lasts] += discount**ahead * log.rewards[rows[lasts] + ahead]
    ends = {"next_states": log.next_states[last], "terminals": log.terminals[last], "rewards": rewards}
    return log[rows].replaced(**ends, propensities=None)


def _complete(log: Transitions, length: int) -> tuple[Booleans, Integers]:
    """Return which rows have complete windows, and the last row that each one leads to."""
    last = _last_rows(log)
    return (last - np.arange(len(log)) >= length - 1) | log.terminals[last], last


def _last_rows(log: Transitions) -> Integers:
    """Return the last row that follows from each, (n,): a row follows if it starts where the one before it ended."""
    follows = (log.next_states[:-1] == log.states[1:]).all(axis=1) & ~log.terminals[:-1]
    if log.episodes is not None:
        follows &= log.episodes[:-1] == log.episodes[1:]
    breaks = np.append(np.flatnonzero(~follows), len(log) - 1)
    return np.asarray(breaks[np.searchsorted(breaks, np.arange(len(log)))])


def cases_of_a_window_line(sums: LineSums, length: int, n_cases: int | None = None) -> float:
    """Return how many windows a line rests on: more than steps, because windows overlap and are noisy."""
    n_actions = int((sums.counts > 0).sum())
    per_number = cases_of_a_line(sums) / (1 + sums.basis.reps.shape[1])
    return float(n_cases or (cases_of_a_line(sums) + per_number * max(0, n_actions - 1)) * np.sqrt(length))


def window_lines(sums: LineSums, length: int, *, n_cases: int | None = None, ridge: float | None = None) -> LocalLines:
    """Return the lines of windows, with slopes that actions share; arguments as for `local_lines`."""
    reps = np.ascontiguousarray(sums.basis.reps)
    n_reps, n_dims = reps.shape
    n_actions = len(sums.counts)
    distances, order = neighbours(reps)
    all_cases = sums.cases.sum(axis=0)
    pooling = pooling_of_cells(all_cases, order, distances, cases_of_a_window_line(sums, length, n_cases))
    moved, noise = _shared_slopes(sums.moves, reps, pooling, ridge)
    paid, left = _shared_slopes(sums.outcomes, reps, pooling, ridge)
    mass, ends = pooling @ all_cases, pooling @ sums.outcomes[:, :, packed_size(n_dims + 2)].sum(axis=0)
    lowest, highest = _pooled_range(sums.rewards, pooling)
    limits = np.column_stack([lowest, highest, (ends >= mass) & (mass > 0), ends > 0])
    taken = np.stack([pooling @ sums.cases[action] for action in range(n_actions)])
    spread = np.sqrt(np.maximum(left[:, 0, 0], 0.0))
    return LocalLines(
        reps=reps,
        graph=np.ascontiguousarray(order[:, : min(n_reps, GRAPH)]),
        lines=np.ascontiguousarray(np.concatenate([moved, paid], axis=2)),
        limits=np.where(taken[:, :, None] > 0, limits, 0.0),
        cases=taken,
        noise=np.repeat(noise[None], n_actions, axis=0),
        reward_spread=np.repeat(spread[None], n_actions, axis=0),
        behaviour=behaviour_lines(sums, order, distances, cases_of_a_line(sums, n_cases)),
        reach=reach_of_cells(sums),
        span=np.where(np.isfinite(sums.span), sums.span, 0.0),
    )


def _shared_slopes(triangles: Floats, reps: Floats, pooling: Any, ridge: float | None) -> tuple[Floats, Floats]:
    """Return lines of all actions, (n_actions, n_reps, n_targets, 1 + n_dims), and the covariance of the rest.

    triangles: packed sums of products of (1, x, targets), for each action and cell.
    """
    n_actions, n_dims = len(triangles), reps.shape[1]
    pooled = pooling @ _with_actions(triangles, reps).reshape(len(reps), -1)
    size = int(np.sqrt(pooled.shape[1]))
    around = _moved(pooled.reshape(-1, size, size), -reps)
    found, left = regress(around, n_dims + n_actions, ridge)
    lines = np.repeat(found[None, :, :, : 1 + n_dims], n_actions, axis=0)
    lines[:, :, :, 0] += found[:, :, 1 + n_dims :].transpose(2, 0, 1)
    return lines, left


def _with_actions(triangles: Floats, reps: Floats) -> Floats:
    """Return sums of products of (1, s, which action, targets) in each cell, (n_reps, size, size)."""
    n_actions, n_dims = len(triangles), reps.shape[1]
    each = np.stack([_moved(unpacked(triangle), reps) for triangle in triangles])
    size = each.shape[-1] + n_actions
    result = np.zeros((len(reps), size, size))
    rest = np.delete(np.arange(size), np.arange(1 + n_dims, 1 + n_dims + n_actions))
    result[:, rest[:, None], rest] = each.sum(axis=0)
    for action, sums in enumerate(each):
        place = 1 + n_dims + action
        result[:, place, rest] = result[:, rest, place] = sums[:, 0]
        result[:, place, place] = sums[:, 0, 0]
    return result


def _moved(matrices: Floats, shifts: Floats) -> Floats:
    """Return sums of products of (1, x, ...), (n, size, size), as sums of (1, x + shift, ...), each by its shift."""
    change = np.repeat(np.eye(matrices.shape[-1])[None], len(matrices), axis=0)
    change[:, 1 : 1 + shifts.shape[1], 0] = shifts
    return np.asarray(change @ matrices @ change.swapaxes(-1, -2))


def _pooled_range(rewards: Floats, pooling: Any) -> tuple[Floats, Floats]:
    """Return the smallest and the largest reward of all actions in the pooled cells, (n_reps,) each."""
    lowest, highest = rewards[:, :, 0].min(axis=0), rewards[:, :, 1].max(axis=0)
    cells, starts = pooling.indices, pooling.indptr[:-1]
    return np.minimum.reduceat(lowest[cells], starts), np.maximum.reduceat(highest[cells], starts)
