"""How often each number of a column occurs, to four digits: for medians and quantiles of columns of any length.

Counts of parts add up, so neither the split nor the order of the rows changes a quantile.  Numbers are told apart to
one part in 30,000; a quantile is rounded to four digits, and so is exact for data with no more digits than that.
"""

from __future__ import annotations

import numpy as np

from kbrl.arrays import Array, Floats, Integers

_DROPPED = 8  # bits of the 23 of a float32: 15 are left
_NARROW = 2**18  # keys: eight powers of two
_LARGEST = np.finfo(np.float32).max


class ValueCounts:
    """Counts of the finite numbers seen; NaN is left out.

    >>> counts = ValueCounts().add(np.array([1.0, 2.5, 2.5, 40.0])) + ValueCounts().add(np.array([3.0, np.nan]))
    >>> counts.total, counts.quantile(0.5), counts.quantile(1.0)
    (5, 2.5, 40.0)
    """

    def __init__(self) -> None:
        self._keys: Array = np.empty(0, dtype=np.uint32)  # different, ascending
        self._counts: Integers = np.empty(0, dtype=np.intp)
        self._waiting: list[tuple[Array, Integers]] = []
        self._n_waiting = 0

    def add(self, values: Floats) -> ValueCounts:
        """Count more numbers, (n,), and return self."""
        missing = np.isnan(values)
        kept = values[~missing] if missing.any() else values
        with np.errstate(over="ignore"):
            small = np.clip(kept.astype(np.float32), -_LARGEST, _LARGEST) + np.float32(0)
        if len(small) == 0:
            return self
        keys, counts = _counted(small.view(np.uint32) >> np.uint32(_DROPPED))
        self._waiting.append((keys, counts))
        self._n_waiting += len(keys)
        if self._n_waiting > 2**19 + 2 * len(self._keys):
            self._settle()
        return self

    def __add__(self, other: ValueCounts) -> ValueCounts:
        """Return the counts of both."""
        result = ValueCounts()
        for part in (self, other):
            part._settle()
            result._waiting.append((part._keys, part._counts))
        result._settle()
        return result

    @property
    def total(self) -> int:
        """The number of numbers."""
        self._settle()
        return int(self._counts.sum())

    def quantile(self, share: float) -> float:
        """Return the smallest number that at least this share of the numbers does not exceed; there must be some."""
        values, counts = self.values()
        place = np.searchsorted(np.cumsum(counts), share * counts.sum() - 1e-9)
        return float(values[min(int(place), len(values) - 1)])

    def values(self) -> tuple[Floats, Integers]:
        """Return the numbers, to four digits and ascending, and how often each occurs."""
        self._settle()
        bits = self._keys << np.uint32(_DROPPED)
        centre = np.where(bits << np.uint32(1) == 0, 0, bits + np.uint32(1 << (_DROPPED - 1)))
        numbers = np.array([float(f"{number:.4g}") for number in centre.astype(np.uint32).view(np.float32).tolist()])
        order = np.argsort(numbers, kind="stable")
        return numbers[order], self._counts[order]

    def where(self, low: float, high: float) -> ValueCounts:
        """Return the counts of the numbers above ``low`` up to ``high``."""
        values, counts = self.values()
        picked = (values > low) & (values <= high)
        result = ValueCounts()
        small = values[picked].astype(np.float32)
        result._waiting.append((small.view(np.uint32) >> np.uint32(_DROPPED), counts[picked]))
        result._settle()
        return result

    def _settle(self) -> None:
        if not self._waiting:
            return
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._waiting)])
        counts = np.concatenate([self._counts, *(counts for _, counts in self._waiting)])
        order = np.argsort(keys, kind="stable")
        first = np.flatnonzero(np.append(True, np.diff(keys[order]) != 0)[: len(keys)])
        self._keys = keys[order[first]]
        self._counts = np.add.reduceat(counts[order], first) if len(first) else counts
        self._waiting, self._n_waiting = [], 0


def _counted(keys: Array) -> tuple[Array, Integers]:
    """Return the different keys, ascending, and how often each occurs."""
    low, high = int(keys.min()), int(keys.max())
    if high - low > _NARROW:
        found, counts = np.unique(keys, return_counts=True)
        return found, counts.astype(np.intp)
    counts = np.bincount((keys - np.uint32(low)).view(np.int32), minlength=high - low + 1)  # faster than sorting
    places = np.flatnonzero(counts)
    return (places + low).astype(np.uint32), counts[places]
