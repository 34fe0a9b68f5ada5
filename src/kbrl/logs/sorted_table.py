"""A table in the order of its episodes and steps, for logs that were not written in that order.

Episodes come in the order of their first rows.  The keys of all rows, 16 bytes each, are held in memory; the rows
themselves only if they are few.  Otherwise they are dealt out to temporary files, each a stretch of the order, and the
files are sorted one after the other.

If asked, rows that repeat another one of the same episode and step are dropped: the first stays.  They are found by a
hash of all cells that are read, 8 bytes more per row.
"""

from __future__ import annotations

import tempfile
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from kbrl.arrays import Array, Integers
from kbrl.logs.columns import Columns
from kbrl.tables.cell_values import Batch, Column, Kind, Labels, Numbers, join_columns
from kbrl.tables.faults import PLACE, LogError, Place, places_of
from kbrl.tables.formats import Table, batch_length, regrouped

STRETCH = 2**20  # rows that are sorted in memory at a time
_CHUNK_ROWS = 65536
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # an odd number whose bits look random: 2^64 divided by the golden ratio


class SortedTable:
    """A table whose rows come by episode and, within an episode, by step."""

    def __init__(self, table: Table, columns: Columns, *, stretch: int = STRETCH) -> None:
        if columns.episode is None and columns.step is None:
            raise LogError(
                "missing_column",
                "Rows can be sorted only by episode and step, but no column is either.",
                advice="Name them: --episode NAME --step NAME, in Python columns={'episode': NAME, 'step': NAME}.",
            )
        if columns.drop_repeats and columns.step is None:
            raise LogError(
                "missing_column",
                "Repeated rows can be told from equal ones only by the step, but no column is the step.",
                advice="Name it: --step NAME, in Python columns={'step': NAME}; or leave --drop-repeats out.",
            )
        self.table, self.names, self.is_text = table, table.names, table.is_text
        self._columns, self._stretch = columns, stretch
        self._n_rows = 0  # of the table as it was written

    def places(self, rows: Sequence[int]) -> list[Place]:
        """Return the places of some rows in the table as it was written."""
        return places_of(self.table, self._order[list(rows)].tolist())

    @property
    def n_repeats(self) -> int:
        """The number of rows that are dropped because they repeat another one."""
        n_kept = len(self._order)
        return self._n_rows - n_kept

    @cached_property
    def _order(self) -> Integers:
        """The rows of the table in their new order, without those that are dropped, (n,)."""
        kinds: dict[str, Kind] = {} if self._columns.episode is None else {self._columns.episode: "labels"}
        if self._columns.step is not None:
            kinds[self._columns.step] = "steps"
        codes, steps, known, first = [], [], dict[Hashable, int](), 0
        for batch in regrouped(self.table, kinds, _CHUNK_ROWS):
            n_rows = batch_length(batch)
            codes.append(self._episodes(batch, known, n_rows))
            steps.append(self._steps(batch, first, n_rows))
            first += n_rows
        self._n_rows = first
        if first == 0:
            return np.empty(0, dtype=np.intp)
        keys = (np.concatenate(steps), np.concatenate(codes))
        return self._without_repeats(keys) if self._columns.drop_repeats else np.lexsort(keys)

    def _without_repeats(self, keys: tuple[Array, Array]) -> Integers:
        hashes = np.concatenate([_row_hashes(batch) for batch in regrouped(self.table, self._kinds(), _CHUNK_ROWS)])
        order = np.lexsort((hashes, *keys))  # equal rows come together, in the order that they were written in
        repeats = np.ones(len(order) - 1, dtype=bool)
        for key in (hashes, *keys):
            repeats &= key[order[1:]] == key[order[:-1]]
        kept = np.zeros(len(order), dtype=bool)
        kept[order[np.append(True, ~repeats)]] = True
        in_order = np.lexsort(keys)
        return in_order[kept[in_order]]

    def _kinds(self) -> dict[str, Kind]:
        """Return how the columns that are read are compared: by their labels, lists by their numbers."""
        names = self._columns.read_from(self.table.names)
        return {name: "labels" if _has_labels(self.table, name) else "numbers" for name in names}

    def _episodes(self, batch: Batch, known: dict[Hashable, int], n_rows: int) -> Integers:
        if self._columns.episode is None:
            return np.zeros(n_rows, dtype=np.intp)
        labels = cast(Labels, batch[self._columns.episode])
        taken = np.unique(labels.codes, return_index=True)
        by_appearance = taken[0][np.argsort(taken[1])].tolist()
        places = np.empty(len(labels.values) + 1, dtype=np.intp)
        for code in by_appearance:
            places[code] = known.setdefault(labels.values[code] if code >= 0 else None, len(known))
        return places[labels.codes]

    def _steps(self, batch: Batch, first: int, n_rows: int) -> Array:
        if self._columns.step is None:
            return np.zeros(n_rows)
        column = cast(Numbers, batch[self._columns.step])
        values = column.values.reshape(n_rows)
        if np.isnan(values).any():
            row = int(np.argmax(np.isnan(values)))
            raise LogError(
                "missing_step",
                f"Rows are sorted by {self._columns.step!r}, but it is {column.quote(row)} at {PLACE}.",
                rows=[first + row],
                columns=[self._columns.step],
                table=self.table,
            )
        return values

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their new order, at most ``n_rows`` at a time."""
        order = self._order
        if (order[1:] > order[:-1]).all() and self.n_repeats == 0:
            yield from self.table.batches(kinds, n_rows)
            return
        stretches = self._in_memory(kinds) if len(order) <= self._stretch else self._by_files(kinds)
        for whole in stretches:
            for start in range(0, batch_length(whole), n_rows):
                yield {name: column[start : start + n_rows] for name, column in whole.items()}

    def _in_memory(self, kinds: Mapping[str, Kind]) -> Iterator[Batch]:
        batches = list(regrouped(self.table, kinds, _CHUNK_ROWS))
        whole = {name: join_columns([batch[name] for batch in batches]) for name in kinds}
        yield {name: column.take(self._order) for name, column in whole.items()}

    def _by_files(self, kinds: Mapping[str, Kind]) -> Iterator[Batch]:
        """Deal the rows out to files, one for each stretch of the order and column; sort stretch by stretch."""
        ranks = np.full(self._n_rows, -1, dtype=np.int64)
        ranks[self._order] = np.arange(len(self._order))
        n_files = -(-len(self._order) // self._stretch)
        with tempfile.TemporaryDirectory() as folder:
            stores = {name: _Store(Path(folder), place) for place, name in enumerate(kinds)}
            first = 0
            for batch in regrouped(self.table, kinds, _CHUNK_ROWS):
                own = ranks[first : first + batch_length(batch)]
                homes = own // self._stretch  # -1 of rows that are dropped
                for file in np.unique(homes[homes >= 0]).tolist():
                    rows = np.flatnonzero(homes == file)
                    for name, store in stores.items():
                        store.add(batch[name].take(rows), file, own[rows])
                first += len(own)
            for file in range(n_files):
                yield {name: store.read(file) for name, store in stores.items()}


def said_of_repeats(n_repeats: int, n_kept: int) -> str:
    """Return how many rows were dropped because they repeat another one, for people."""
    return (
        f"{n_repeats:,} of {n_repeats + n_kept:,} rows repeat another row of the same episode and step in every column "
        f"that is read: they are dropped."
    )


def _has_labels(table: Table, name: str) -> bool:
    try:
        next(regrouped(table, {name: "labels"}, 1), None)
    except LogError:
        return False
    return True


def _row_hashes(batch: Batch) -> Array:
    """Return a hash of the cells of each row, (n,); rows with equal cells have equal ones."""
    hashes = np.zeros(batch_length(batch), dtype=np.uint64)
    for column in batch.values():
        if isinstance(column, Labels):
            known = [hash((type(value), value)) for value in column.values]
            cells = np.array([*known, 0], dtype=np.int64).view(np.uint64)[column.codes][:, None]
        else:
            numbers = np.where(np.isnan(column.values), np.nan, column.values + 0.0)  # one NaN, one zero
            cells = np.ascontiguousarray(numbers).view(np.uint64).reshape(len(hashes), -1)
        for entry in cells.T:
            hashes = (hashes ^ entry) * _MIXER
            hashes ^= hashes >> np.uint64(32)
    return hashes


class _Store:
    """The cells of one column in files, one for each stretch of the order."""

    def __init__(self, folder: Path, place: int) -> None:
        self._folder, self._place = folder, place
        self._known: dict[tuple[type, Hashable], int] = {}
        self._texts: dict[int, str] = {}  # of odd cells, by rank
        self._kind: tuple[bool, tuple[int, ...], bool] = (False, (), False)  # labels, shape of a cell, times

    def add(self, column: Column, file: int, ranks: Integers) -> None:
        if isinstance(column, Labels):
            moved = [self._known.setdefault((type(value), value), len(self._known)) for value in column.values]
            cells: Array = np.array([*moved, -1], dtype=np.int64)[column.codes]
            self._kind = (True, (), False)
        else:
            cells, self._kind = column.values, (False, column.values.shape[1:], column.is_time)
            odd = [] if column.odd is None else np.flatnonzero(column.odd).tolist()
            self._texts |= {int(ranks[row]): text for row, text in zip(odd, column.texts)}
        for name, array in (("cells", np.ascontiguousarray(cells)), ("ranks", ranks)):
            with open(self._path(file, name), "ab") as out:
                out.write(array.tobytes())

    def read(self, file: int) -> Column:
        is_labels, shape, is_time = self._kind
        ranks = np.fromfile(self._path(file, "ranks"), dtype=np.int64)
        order = np.argsort(ranks)
        dtype = np.int64 if is_labels else np.float64
        cells: Any = np.fromfile(self._path(file, "cells"), dtype=dtype).reshape(len(ranks), *shape)[order]
        if is_labels:
            return Labels(cells.astype(np.intp), tuple(value for _, value in self._known))
        odd = np.array([rank in self._texts for rank in ranks[order].tolist()]) if self._texts else None
        texts = tuple(self._texts[rank] for rank in ranks[order].tolist() if rank in self._texts)
        return Numbers(cells, odd if texts else None, texts, is_time)

    def _path(self, file: int, name: str) -> Path:
        return self._folder / f"{self._place}-{file}-{name}"
