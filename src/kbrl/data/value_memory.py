"""What was seen of a column in the rows of an episode before the present one, from batch to batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kbrl.arrays import Array, Booleans, Floats
from kbrl.data.expressions import Coded


class Seen(NamedTuple):
    """What each row has seen of its episode, (n,) each; NaN where there is nothing."""

    first: Floats  # the first value up to this row
    last: Floats  # the last value up to this row
    before: Floats  # the last value before this row


class EpisodeStarts:
    """Finds out, from batch to batch, which rows begin an episode."""

    def __init__(self) -> None:
        self._last: Any = None
        self._has_begun = False

    def add(self, episodes: Coded | None, n_rows: int) -> Booleans:
        """Return which of the next rows begin an episode, (n,); without identifiers, each row stands alone."""
        if episodes is None:
            return np.ones(n_rows, dtype=bool)
        codes, values = episodes.codes, episodes.values
        starts = np.append(True, codes[1:] != codes[:-1])
        own, last = (None if code < 0 else values[code] for code in codes[[0, -1]].tolist())
        starts[0] = not self._has_begun or own != self._last
        self._last, self._has_begun = last, True
        return starts


class ValueMemory:
    """Remembers, from batch to batch, the first value of the present episode and its last one."""

    def __init__(self) -> None:
        self._first = self._last = np.nan

    def add(self, values: Floats, starts: Booleans) -> Seen:
        """Return what each of the next rows has seen; ``values`` are NaN where one is missing."""
        began = np.append(True, starts)
        padded = np.append(self._last, values)
        last = padded[_latest(began, ~np.isnan(padded))]
        before = np.where(starts, np.nan, last[:-1])
        padded[0] = self._first
        first = padded[_earliest(began, ~np.isnan(padded))]
        self._first, self._last = float(first[-1]), float(last[-1])
        return Seen(first[1:], last[1:], before)


def _latest(starts: Booleans, known: Booleans) -> Array:
    """Return the place of the latest known value of each row's episode, of its first row if there is none."""
    return np.maximum.accumulate(np.where(starts | known, np.arange(len(starts)), 0))


def _earliest(starts: Booleans, known: Booleans) -> Array:
    """Return the place of the first known value of each row's episode up to the row, of its first row if none."""
    number = np.cumsum(starts) - 1
    begins = np.flatnonzero(starts)
    places = np.arange(len(starts))
    first_known = np.minimum.reduceat(np.where(known, places, len(starts)), begins)[number]
    return np.where(first_known <= places, first_known, begins[number])
