"""One pass over a log before learning: the number of rows, their scale, and a sample of them.

Surveys of parts add up, exactly: any split and any order of the rows gives the same survey, bit for bit.  The sample is
made of the different rows whose contents have the smallest hashes, with their exact multiplicities, and of all rows
that are common, one in ``COMMON`` or more.  Each has its share of the places; the rare rows kept stand for all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import whole
from kbrl.data.names import UNNAMED, Source
from kbrl.data.scaling import Moments, scale_of
from kbrl.data.sketch import HashCounts, Hashes, row_hashes
from kbrl.data.transitions import Transitions

SAMPLE_ROWS = 100_000
LARGEST_HASH = 2**64 - 1
COMMON = 1000  # a row is common if it is at least one in this many
_PIECE_ROWS = 2**16  # rows per piece: memory does not depend on the size of a chunk


class Survey:
    """The number of rows, how often each action was taken, the moments of the states, and a sample of the rows."""

    def __init__(
        self,
        action_labels: Array,
        n_dims: int,
        *,
        sample_rows: int = SAMPLE_ROWS,
        largest_hash: int = LARGEST_HASH,
        has_durations: bool = False,
    ) -> None:
        self.action_labels, self.has_durations = action_labels, has_durations
        self.sample_rows = whole(sample_rows, "sample_rows")
        self.largest_hash = largest_hash  # rows with larger hashes are not needed for the sample
        self.counts: Integers = np.zeros(len(action_labels), dtype=np.intp)
        self.moments = Moments(n_dims)
        self.source: Source = UNNAMED  # of the first rows
        width = 2 * n_dims + 3 + has_durations
        self._kept = _Kept.none(width)
        self._waiting: list[_Kept] = []  # rows that may belong to the sample, to be sorted in later
        self._hash_counts = HashCounts()
        self._frequent = _Kept.none(width)  # among them all rows that are one in 2 COMMON so far

    @property
    def n_rows(self) -> int:
        """The number of rows seen."""
        return self.moments.n_rows

    @property
    def n_dims(self) -> int:
        """The number of state variables."""
        return self.moments.n_dims

    def add(self, chunk: Transitions) -> Survey:
        """Take more transitions into account, and return self."""
        self._check_dims(chunk.n_dims)
        self._check_durations(chunk.durations is not None)
        self.source = chunk.source if self.n_rows == 0 else self.source
        chunk = chunk.with_actions(self.action_labels)
        self.moments.accumulate(chunk.states)
        self.counts += np.bincount(chunk.action_indices, minlength=len(self.counts))
        for piece in chunk.chunks(_PIECE_ROWS):
            hashes = row_hashes(_columns(piece))
            self._look_for_frequent(piece, hashes)
            largest = self._kept.last_hash(self.sample_rows, self.largest_hash)
            self._wait(_Kept.of(piece, hashes, hashes <= np.uint64(largest)))
        return self

    def __add__(self, other: Survey) -> Survey:
        """Return the survey of both sets of transitions."""
        self._check_dims(other.n_dims)
        self._check_durations(other.has_durations)
        if (mine := self.action_labels.tolist()) != (theirs := other.action_labels.tolist()):
            raise ValueError(f"Surveys add up only if they know the same actions, but these know {mine} and {theirs}.")
        if self.sample_rows != other.sample_rows:
            raise ValueError(
                f"Surveys add up only if their samples are of one size, but these take {self.sample_rows} and "
                f"{other.sample_rows} rows."
            )
        limits = {"sample_rows": self.sample_rows, "largest_hash": min(self.largest_hash, other.largest_hash)}
        result = Survey(self.action_labels, self.n_dims, has_durations=self.has_durations, **limits)
        result.source = self.source if self.n_rows else other.source
        result.moments, result.counts = self.moments + other.moments, self.counts + other.counts
        result._kept = _united([self._settled(), other._settled()], self.sample_rows)
        result._hash_counts = self._hash_counts + other._hash_counts
        result._keep_frequent([self._frequent, other._frequent])
        return result

    def scale(self, scaling: Any) -> Floats:
        """Return what each state variable is divided by, (n_dims,): "std", "range", None, or given by the user."""
        return self.source.with_fixed_scales(scale_of(self.moments, scaling), scaling)

    @property
    def is_short(self) -> bool:
        """Whether the sample lacks rows because too few had a hash up to ``largest_hash``."""
        return self.largest_hash < LARGEST_HASH and len(self._settled().hashes) < self.sample_rows

    @property
    def sample(self) -> Transitions:
        """All rows if there are at most ``sample_rows``, else that many of them, in the order of their hashes.

        Each row has its share of the places: exactly if no more than ``sample_rows`` rows are different, and if it is
        common (but for what ``HashCounts`` says).  Rare rows have it on average over logs as long as each comes much
        less often than ``sample_rows`` times.  Those that come more often have too little of it on average, and where
        one of them is kept, too much.

        Episodes are not kept: rows of a sample do not follow each other.
        """
        rows, weights = self._weighted()
        rows = rows[_shares(weights, self.sample_rows, _chance(self._settled().hashes))]
        if len(rows) == 0:
            raise ValueError("A sample needs at least one row, but no transition has been looked at.")
        states, next_states, rest = np.split(rows, [self.n_dims, 2 * self.n_dims], axis=1)
        actions, rewards, terminals, *durations = rest.T.copy()
        fields = (np.ascontiguousarray(states), actions.astype(np.intp), rewards, np.ascontiguousarray(next_states))
        return Transitions.trusted(*fields, terminals == 1, None, self.action_labels, self.source, *durations)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for other processes, after waiting rows are sorted in."""
        self._settled()
        return self.__dict__

    def _wait(self, rows: _Kept) -> None:
        self._waiting.append(rows)
        if sum(len(waiting.hashes) for waiting in self._waiting) >= self.sample_rows / 4:  # or more memory
            self._settled()

    def _settled(self) -> _Kept:
        """Sort in the rows that wait, and return the rows that are kept."""
        if self._waiting:
            self._kept, self._waiting = _united([self._kept, *self._waiting], self.sample_rows), []
        return self._kept

    def _look_for_frequent(self, piece: Transitions, hashes: Hashes) -> None:
        """Count rows, and keep those that have become frequent.

        A row that is frequent in the whole is frequent in what came before or else comes now, and a count is never too
        small: so none is missed, however rows are ordered and surveys added.
        """
        is_new = self._hash_counts.add(hashes) * (2 * COMMON) >= self.n_rows
        is_new[is_new] = ~self._frequent.has(hashes[is_new])
        if is_new.any():
            self._keep_frequent([self._frequent, _Kept.of(piece, hashes, is_new)])

    def _keep_frequent(self, parts: list[_Kept]) -> None:
        rows = _united(parts, sum(len(part.hashes) for part in parts))
        self._frequent = rows.where(self._hash_counts.of(rows.hashes) * (2 * COMMON) >= self.n_rows)

    def _weighted(self) -> tuple[Floats, Array]:
        """Return different rows, in the order of their hashes, and how many rows of the log each stands for."""
        kept = self._settled()
        if kept.multiplicities.sum() == self.n_rows:
            return kept.rows, kept.multiplicities
        others = self._frequent.where(~kept.has(self._frequent.hashes))  # whose hashes are larger
        counts = self._hash_counts.of(others.hashes)
        is_common, others_are_common = (each * COMMON >= self.n_rows for each in (kept.multiplicities, counts))
        rare = int(kept.multiplicities[~is_common].sum())
        common = int(kept.multiplicities[is_common].sum() + counts[others_are_common].sum())
        each = max(self.n_rows - common, rare) / max(rare, 1)  # rare rows that one of those kept stands for
        weights = np.where(is_common, kept.multiplicities, each * kept.multiplicities)
        rows = np.concatenate([kept.rows, others.rows[others_are_common]])
        return rows, np.concatenate([weights, counts[others_are_common]])

    def _check_durations(self, has_durations: bool) -> None:
        if has_durations != self.has_durations:
            raise ValueError("All parts of a log must have durations or none of them, but some have them.")

    def _check_dims(self, n_dims: int) -> None:
        if n_dims != self.n_dims:
            raise ValueError(f"All parts of a log must have {self.n_dims} state variables, but one has {n_dims}.")


def survey(
    chunks: Iterable[Transitions], *, sample_rows: int = SAMPLE_ROWS, largest_hash: int = LARGEST_HASH
) -> Survey:
    """Return the survey of the chunks of a log, which all have the same actions."""
    result: Survey | None = None
    for chunk in chunks:
        if result is None:
            limits = {"sample_rows": sample_rows, "largest_hash": largest_hash}
            timed = chunk.durations is not None
            result = Survey(chunk.action_labels, chunk.n_dims, has_durations=timed, **limits)
        result.add(chunk)
    if result is None:
        raise ValueError("survey needs at least one chunk of transitions, but there is none.")
    return result


def hash_limit(n_rows: int, sample_rows: int) -> int:
    """Return a hash that the sample of this many different rows almost surely does not exceed.

    Parts of a log that keep no row above it share one sample instead of keeping one each.
    """
    enough = sample_rows + 10 * isqrt(sample_rows) + 100  # ten standard deviations
    return LARGEST_HASH if n_rows <= enough else (LARGEST_HASH * enough) // n_rows


class _Kept:
    """Different rows, in the order of their hashes."""

    def __init__(self, hashes: Hashes, rows: Floats, multiplicities: Integers) -> None:
        self.hashes = hashes  # (n,)
        self.rows = rows  # (n, 2 n_dims + 3), or one more for durations
        self.multiplicities = multiplicities  # (n,)

    @classmethod
    def none(cls, width: int) -> _Kept:
        return cls(np.empty(0, dtype=np.uint64), np.empty((0, width)), np.empty(0, dtype=np.intp))

    @classmethod
    def of(cls, chunk: Transitions, hashes: Hashes, picked: Booleans) -> _Kept:
        if not picked.all():
            hashes, columns = hashes[picked], [column[picked] for column in _columns(chunk)]
        else:
            columns = _columns(chunk)
        rows = np.column_stack(columns) + 0.0  # -0 is 0
        return _united([cls(hashes, rows, np.ones(len(rows), dtype=np.intp))], len(rows))

    def where(self, picked: Booleans) -> _Kept:
        """Return the chosen rows."""
        return _Kept(self.hashes[picked], self.rows[picked], self.multiplicities[picked])

    def has(self, hashes: Hashes) -> Booleans:
        """Return which of the hashes belong to one of the rows, (n,)."""
        if len(self.hashes) == 0:
            return np.zeros(len(hashes), dtype=bool)
        places = np.searchsorted(self.hashes, hashes)
        return self.hashes[np.minimum(places, len(self.hashes) - 1)] == hashes

    def last_hash(self, limit: int, largest: int) -> int:
        """Return the largest hash with which a row is kept."""
        return min(largest, int(self.hashes[-1])) if len(self.hashes) == limit else largest


def _columns(chunk: Transitions) -> list[Array]:
    rest = (chunk.action_indices, chunk.rewards, chunk.terminals)
    durations = () if chunk.durations is None else (chunk.durations,)
    return [*chunk.states.T, *chunk.next_states.T, *rest, *durations]


def _united(parts: list[_Kept], limit: int) -> _Kept:
    """Sort rows by their hashes, merge equal ones, and keep the first ``limit`` of them."""
    hashes = np.concatenate([part.hashes for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    multiplicities = np.concatenate([part.multiplicities for part in parts])
    order = np.argsort(hashes, kind="stable")
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = hashes[order[1:]] != hashes[order[:-1]]
    tied = np.flatnonzero(~starts)
    if (rows[order[tied]] != rows[order[tied - 1]]).any():  # different rows with one hash: by their contents
        order = np.lexsort([*rows.T, hashes])
        starts[1:] = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    first = np.flatnonzero(starts)
    totals = np.add.reduceat(multiplicities[order], first) if len(first) else multiplicities
    picked = order[first[:limit]]
    return _Kept(hashes[picked], rows[picked], totals[:limit])


def _chance(hashes: Hashes) -> float:
    """Return a number between 0 and 1 that looks random, made from the smallest hash."""
    return float(row_hashes([hashes[:1]]).sum()) / 2**64


def _shares(weights: Array, n_rows: int, chance: float) -> Integers:
    """Return the places of at most ``n_rows`` rows, each in proportion to its share.

    Places are equally spaced from a random start, so every share is exact on average.
    """
    up_to = np.cumsum(weights)
    if len(up_to) == 0 or up_to[-1] <= n_rows:
        return np.repeat(np.arange(len(weights)), weights)
    slots = (np.arange(n_rows) + chance) * (float(up_to[-1]) / n_rows)
    return np.minimum(np.searchsorted(up_to, slots, side="right"), len(weights) - 1)
