"""A table whose cells are read as people write them: marks for missing values, units, dates day first, lists.

Works on the columns of any source.  Nothing is guessed: all of it is stated, and ``kbrl init`` proposes it.  Each entry
of a list, such as a vector of joint positions, becomes a column: action_0, action_1 and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from kbrl.arrays import Floats
from kbrl.data.column_names import listing
from kbrl.data.expressions import Coded
from kbrl.data.values import unmarked
from kbrl.tables.cell_values import Batch, Column, Kind, Labels, Numbers, from_array, join_columns, numbers_in
from kbrl.tables.faults import LogError
from kbrl.tables.text_files import Dialect

_OF_ROWS = ("borders", "is_unordered", "n_repeats", "places")  # what a table may know of its rows


class SameRows:
    """A table with the rows of another one, ``table``, which says what is known of them."""

    table: Any

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_ROWS:
            raise AttributeError(name)
        return getattr(self.table, name)


class CleanedTable(SameRows):
    """A table whose cells are read as a dialect says; what it says of columns that do not exist is ignored."""

    def __init__(self, table: Any, dialect: Dialect) -> None:
        self.table, self._dialect = table, dialect
        self.names, self.is_text = table.names, table.is_text

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        suffixes = self._dialect.suffixes
        as_text = {
            name for name, kind in kinds.items() if name in suffixes or (kind == "steps" and self._dialect.dates)
        }
        if not self.is_text:  # a frame has texts where a column has marks beside its numbers
            marked = self._dialect.marks
            as_text |= {name for name, kind in kinds.items() if kind == "numbers" and name in marked}
        asked: dict[str, Kind] = {name: "labels" if name in as_text else kind for name, kind in kinds.items()}
        above = {name: _Above() for name in kinds if name in self._dialect.filled_down}
        for batch in self.table.batches(asked, n_rows):
            batch = {name: above[name].fill(column) if name in above else column for name, column in batch.items()}
            yield {name: self._cleaned(batch[name], name, kind) for name, kind in kinds.items()}

    def _cleaned(self, column: Column, name: str, kind: Kind) -> Column:
        marks = {*self._dialect.marks.get("", ()), *self._dialect.marks.get(name, ())}
        column = without_marks(column, marks) if marks else column
        if not isinstance(column, Labels) or (kind == "labels" and name not in self._dialect.suffixes):
            return column
        written = self._dialect.written(name, has_dates=kind == "steps")
        texts = [written.bare(str(value)) for value in column.values]
        if kind == "labels":
            return column.renamed(texts)
        return numbers_in([*texts, ""], kind).take(column.codes)  # the last entry serves the code -1


class _Above:
    """Fills empty cells of a column with the last one above them, from batch to batch."""

    def __init__(self) -> None:
        self._last: Column | None = None

    def fill(self, column: Column) -> Column:
        if len(column) == 0:
            return column
        whole = column if self._last is None else join_columns([self._last, column])
        gone = (
            whole.codes < 0 if isinstance(whole, Labels) else np.isnan(whole.values).reshape(len(whole), -1).all(axis=1)
        )
        if isinstance(whole, Numbers) and whole.odd is not None:
            gone = gone & ~whole.odd
        places = np.maximum.accumulate(np.where(gone, 0, np.arange(len(whole))))
        own = whole.take(places)[0 if self._last is None else 1 : len(whole)]
        self._last = own[len(own) - 1 : len(own)]
        return own


def without_marks(column: Column, marks: set[str]) -> Column:
    """Return a column in which cells that hold a mark are missing."""
    if isinstance(column, Labels):
        return Labels(cast(Coded, unmarked(Coded(column.codes, column.values), marks)).codes, column.values)
    values = cast(Floats, unmarked(column.values, marks))
    if column.odd is None:
        return Numbers(values, is_time=column.is_time)
    kept = [text.strip("'\"").strip() not in marks for text in column.texts]
    odd = column.odd.copy()
    odd[column.odd] = kept
    texts = tuple(text for text, is_kept in zip(column.texts, kept) if is_kept)
    return Numbers(values, odd if texts else None, texts, column.is_time)


class SplitTable(SameRows):
    """A table in which each of some columns of lists has become as many columns."""

    def __init__(self, table: Any, lists: Sequence[str]) -> None:
        missing = [name for name in lists if name not in table.names]
        if missing:
            message = f"The columns to split should be in {listing(missing)}, but they are {listing(table.names)}."
            raise LogError("missing_column", message, columns=missing, advice="Name others: --split NAME.")
        self.table, self.is_text = table, table.is_text
        widths = {name: _width(table, name) for name in lists}
        self._entries = {f"{name}_{k}": (name, k) for name, width in widths.items() for k in range(width)}
        names = [[f"{name}_{k}" for k in range(widths[name])] if name in widths else [name] for name in table.names]
        self.names = tuple(entry for entries in names for entry in entries)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        needed: dict[str, Kind] = {}
        for name, kind in kinds.items():
            needed |= {self._entries[name][0]: "numbers"} if name in self._entries else {name: kind}
        for batch in self.table.batches(needed, n_rows):
            yield {name: self._column(batch, name, kind) for name, kind in kinds.items()}

    def _column(self, batch: Batch, name: str, kind: Kind) -> Any:
        if name not in self._entries:
            return batch[name]
        home, place = self._entries[name]
        numbers = batch[home]
        assert isinstance(numbers, Numbers)
        return from_array(np.ascontiguousarray(numbers.values[:, place]), kind, name)


def _width(table: Any, name: str) -> int:
    for batch in table.batches({name: "numbers"}, 1):
        if len(batch[name]):
            values = batch[name].values
            if values.ndim == 2:
                return int(values.shape[1])
            raise LogError(
                "wrong_width",
                f"A column to split must hold lists of numbers, but {name!r} holds one number per row.",
                columns=[name],
                advice="Leave it out of --split.",
            )
    raise LogError("empty_log", "The log has columns, but no rows.")
