"""Rows of Python objects, as openpyxl and sqlite3 give them, as batches of columns.

A cell may hold a number as text, as cells of Excel often do; it is read as the dialect says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np

from kbrl.data.state_column import as_float
from kbrl.tables.cell_values import BLANKS, Batch, Column, Kind, Numbers, as_flags, converting, from_objects
from kbrl.tables.text_files import Dialect

_MOST_BYTES = 1 << 27  # of the rows of a batch
_PLAIN = {int, float, type(None)}


def batches_of(
    rows: Iterable[Sequence[Any]], names: Sequence[str], kinds: Mapping[str, Kind], n_rows: int, dialect: Dialect
) -> Iterator[Batch]:
    """Yield the columns that ``kinds`` names of rows that have a cell for each name."""
    places = {name: place for place, name in reversed(list(enumerate(names)))}  # of two equal names, the first
    for held in _pieces(rows, n_rows):
        columns = list(zip(*held))
        yield {name: _converted(columns[places[name]], kind, name, dialect) for name, kind in kinds.items()}


def row_bytes(row: Sequence[Any]) -> int:
    """Return about how many bytes the cells of a row take.

    >>> row_bytes((1.5, None, "twelve bytes"))
    28
    """
    return sum(len(cell) if isinstance(cell, (str, bytes)) else 8 for cell in row)


def _pieces(rows: Iterable[Sequence[Any]], n_rows: int) -> Iterator[list[Sequence[Any]]]:
    """Yield at most ``n_rows`` rows at a time, and fewer if their texts are long."""
    held, n_bytes = list[Sequence[Any]](), 0
    for row in rows:
        held.append(row)
        n_bytes += row_bytes(row)
        if len(held) == n_rows or n_bytes > _MOST_BYTES:
            yield held
            held, n_bytes = [], 0
    if held:
        yield held


def _converted(cells: Sequence[Any], kind: Kind, name: str, dialect: Dialect) -> Column:
    with converting(name):
        return _column(cells, kind, name, dialect)


def _column(cells: Sequence[Any], kind: Kind, name: str, dialect: Dialect) -> Column:
    if kind == "labels":
        return from_objects(cells, kind, name)
    if set(map(type, cells)) <= _PLAIN:
        values = _floats(cells)
        return as_flags(values) if kind == "flags" else Numbers(values)
    if not any(isinstance(cell, (date, timedelta)) for cell in cells):
        cells = [_number(cell, dialect) for cell in cells]
    return from_objects(cells, kind, name)


def _floats(cells: Sequence[Any]) -> Any:
    """Return numbers as an array, NaN for None; whole numbers beyond all floats are infinite."""
    try:
        return np.array(cells, dtype=np.float64)
    except OverflowError:
        return np.array([np.nan if cell is None else as_float(cell) for cell in cells])


def _number(cell: Any, dialect: Dialect) -> Any:
    """Return the number that a text is, None for an empty one, and anything else as it is."""
    if not isinstance(cell, str):
        return cell
    if cell.strip().lower() in BLANKS:
        return None
    try:
        return cell if "_" in cell else float(dialect.plain(cell))
    except ValueError:
        return cell
