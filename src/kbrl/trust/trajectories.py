"""Rows of a log as parts of episodes: which row follows which, where an episode starts, ends or is cut.

Chunks may cut episodes anywhere: the last row of a chunk waits for the next one.  A row that is not followed by a row
of its episode was the last: the episode ended there if the row is terminal, else it was cut.  Where the next state of
a row is not the state of the row after it, rows are missing; the episode counts as cut there, and what comes after
the gap still tells about transitions, but not about returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kbrl.arrays import Booleans, Floats
from kbrl.data.episodes import episode_hashes
from kbrl.data.sketch import Hashes
from kbrl.data.transitions import Transitions, join, refuse_durations

_EQUAL_STEPS = "Judge a log with equal steps, or leave the durations out: then every step has the same discount."
_SAME = 1e-5  # next states and states that differ by less, relative to the spread of the variable, are the same


@dataclass(frozen=True, eq=False)
class Stretch:
    """Some consecutive rows of a log; the last one may be there only because it follows a counted one."""

    log: Transitions
    n_counted: int  # the first rows, which are counted now
    hashes: Hashes  # (n,): of the episodes
    powers: Floats  # (n,): the weight of the reward in the return of the episode, discount^t; 0 only after a gap
    so_far: Floats  # (n,): the return of the episode up to the row
    is_start: Booleans  # (n,)
    is_followed: Booleans  # (n,): the next row is the next decision of the same episode

    @property
    def is_cut(self) -> Booleans:
        """Which rows are the last known ones of an episode that did not end there, (n,)."""
        return ~self.is_followed & ~self.log.terminals

    def last_row(self) -> Stretch:
        """Return the last row as a stretch of its own."""
        last = slice(len(self.log) - 1, None)
        return Stretch(
            log=self.log[last],
            n_counted=1,
            hashes=self.hashes[last],
            powers=self.powers[last],
            so_far=self.so_far[last],
            is_start=self.is_start[last],
            is_followed=self.is_followed[last],
        )


class Trajectories:
    """Makes stretches of chunks that follow each other."""

    def __init__(self, scale: Floats, discount: float) -> None:
        self._discount = discount
        self._scale = scale  # (n_dims,): the spread of each state variable
        self._waiting: Stretch | None = None
        self._seen: Hashes = np.empty(0, dtype=np.uint64)  # sorted
        self._last: Hashes = np.empty(0, dtype=np.uint64)  # of the last row, if there was one

    def add(self, chunk: Transitions) -> Iterator[Stretch]:
        """Yield the rows that can be counted now that this chunk has come."""
        refuse_durations(chunk, "Judging", _EQUAL_STEPS)
        before = self._waiting
        log = chunk if before is None else join([before.log, chunk])
        stretch = self._stretch(log, before)
        self._waiting = None
        if not log.terminals[-1]:
            self._waiting = stretch.last_row()
            stretch = replace(stretch, n_counted=len(log) - 1)
        if stretch.n_counted:
            yield stretch

    def finish(self) -> Iterator[Stretch]:
        """Yield the last row, if its episode was cut there by the end of the log."""
        if self._waiting is not None:
            yield self._waiting
        self._waiting = None

    def _stretch(self, log: Transitions, before: Stretch | None) -> Stretch:
        hashes = episode_hashes(log)
        self._refuse_returns(hashes, log)
        same = hashes[1:] == hashes[:-1]
        goes_on = same & ~log.terminals[:-1]
        follows = goes_on & self._is_same_state(log.next_states[:-1], log.states[1:])
        is_start = np.append(before is None or bool(before.is_start[0]), ~goes_on)
        is_gap = np.append(False, goes_on & ~follows)
        carried = (1.0, 0.0) if before is None else (float(before.powers[0]), float(before.so_far[0]))
        powers = _powers(is_start, is_gap, carried[0], self._discount)
        so_far = _running_sums(powers * log.rewards, is_start)
        if before is not None:  # what the episode of the waiting row had before it
            up_to = int(np.argmax(is_start[1:])) + 1 if is_start[1:].any() else len(log)
            so_far[:up_to] += carried[1] - powers[0] * log.rewards[0]
        return Stretch(log, len(log), hashes, powers, so_far, is_start, np.append(follows, False))

    def _is_same_state(self, next_states: Floats, states: Floats) -> Booleans:
        differences = np.abs(next_states - states)
        return np.asarray((differences <= _SAME * self._scale).all(axis=1))

    def _refuse_returns(self, hashes: Hashes, log: Transitions) -> None:
        starts = np.append(0, 1 + np.flatnonzero(hashes[1:] != hashes[:-1]))
        runs = hashes[starts]
        is_old = np.isin(runs, self._seen, kind="sort")  # a table of hashes overflows in NumPy 2.0.0
        is_old[0] &= not (self._last == runs[0]).any()  # goes on, or starts again at once after an end
        order = np.argsort(runs, kind="stable")
        is_old[order[1:]] |= runs[order[1:]] == runs[order[:-1]]
        if is_old.any():
            assert log.episodes is not None
            name = log.episodes[starts[int(np.argmax(is_old))]]
            raise ValueError(
                f"The rows of an episode must follow each other, but episode {name} starts again after others. "
                f"Sort the log by episode and step."
            )
        self._seen, self._last = np.union1d(self._seen, runs), hashes[-1:]


def _powers(is_start: Booleans, is_gap: Booleans, first: float, discount: float) -> Floats:
    """Return discount^t of each row, 0 after a gap; that of the first row is given.

    What is too small to be a number is the smallest one, so that 0 tells of a gap, whatever the discount.
    """
    places = np.arange(len(is_start))
    last_start = np.maximum.accumulate(np.where(is_start, places, -1))
    last_gap = np.maximum.accumulate(np.where(is_gap, places, -1))
    powers: Floats = np.power(float(discount), places - np.maximum(last_start, 0), dtype=np.float64)
    powers[last_start <= 0] *= first
    np.maximum(powers, np.finfo(np.float64).tiny, out=powers)
    powers[last_gap > last_start] = 0.0
    if first == 0.0:  # after a gap in an earlier chunk
        powers[last_start <= 0] = 0.0
    return powers


def _running_sums(values: Floats, is_start: Booleans) -> Floats:
    """Return sums since the last start, (n,)."""
    sums = np.cumsum(values)
    last_start = np.maximum.accumulate(np.where(is_start, np.arange(len(values)), 0))
    return np.asarray(sums - (sums - values)[last_start])
