"""The door: any source of a log becomes one table, read in batches, with only the rows asked for in memory.

A source is a file, a folder, a glob, several of them, a frame, a mapping or rollouts.  HDF5 needs h5py, an extra.
However a log is cut into files and row groups, its batches are the same.
"""

from __future__ import annotations

import glob
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kbrl.data.any_frame import is_frame, is_lazy
from kbrl.data.column_names import listing
from kbrl.files import check_ordinary, too_large
from kbrl.tables.arrow_files import ArrowFileTable, ParquetTable
from kbrl.tables.cell_values import Batch, Kind, Numbers, RaggedError, join_columns
from kbrl.tables.cleaned import CleanedTable, SplitTable
from kbrl.tables.databases import DATABASE_ENDINGS, open_address, open_database
from kbrl.tables.datasets import HDF5_ENDINGS, find_dataset, find_in_cache, open_hdf5, open_minari
from kbrl.tables.excel import EXCEL_ENDINGS, ExcelTable
from kbrl.tables.faults import PLACE, LogError, Place, places_of, refuse_size
from kbrl.tables.frames import FrameTable, LazyTable, NpzTable
from kbrl.tables.json_lines import JSON_ENDINGS, JsonLinesTable
from kbrl.tables.lists_of_steps import FORMS, open_rollouts
from kbrl.tables.text_files import PACKED, PLAIN, CsvTable, Dialect


class Table(Protocol):
    """Named columns that can be read from the start any number of times."""

    names: tuple[str, ...]
    is_text: bool  # cells are text, so a label may be a number or a word

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the named columns, converted to their kinds, at most ``n_rows`` rows at a time."""


class Border(NamedTuple):
    """Where the rows of one file end and those of another start."""

    row: int  # the first of the second file
    before: Path
    after: Path


class FilesTable:
    """The rows of several tables, one after the other."""

    def __init__(self, tables: Sequence[Table], paths: Sequence[Path]) -> None:
        self.names = tables[0].names
        self.is_text = any(table.is_text for table in tables)
        self._tables, self._paths = tables, paths
        self.borders: list[Border] = []  # found by the last pass: the length of a file is known once it is read

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows of one table after the other."""
        self.borders = []
        n_rows_before, path_before = 0, self._paths[0]
        for table, path in zip(self._tables, self._paths):
            missing = [name for name in kinds if name not in table.names]
            if missing:
                raise LogError(
                    "missing_column",
                    f"All files of a log must have the same columns, but {path} lacks {listing(missing)}.",
                    columns=missing,
                )
            for batch in table.batches(kinds, n_rows):
                if batch_length(batch) == 0:
                    continue
                if n_rows_before and path is not path_before:
                    self.borders.append(Border(n_rows_before, path_before, path))
                n_rows_before, path_before = n_rows_before + batch_length(batch), path
                yield batch

    def places(self, rows: Sequence[int]) -> list[Place]:
        """Return the places, in their files, of rows that the last pass has read."""
        starts = [Border(0, self._first_file(), self._first_file()), *self.borders]
        homes = [starts[bisect_right(starts, row, key=lambda border: border.row) - 1] for row in rows]
        found: dict[int, Place] = {}
        for start in starts:
            there = [row for row, home in zip(rows, homes) if home is start]
            table = self._tables[self._paths.index(start.after)]
            places = places_of(table, [row - start.row for row in there]) if there else []
            found |= {row: place._replace(file=str(start.after)) for row, place in zip(there, places)}
        return [found[row] for row in rows]

    def _first_file(self) -> Path:
        """Return the first file with rows."""
        return self.borders[0].before if self.borders else self._paths[0]


def open_table(source: Any, dialect: Dialect = PLAIN) -> Table:
    """Return the table of a path, a folder, a glob, a list of them, a frame, a mapping or rollouts.

    Only the names of the columns are read.  ``read_log`` says more about sources.
    """
    table = _opened(source, dialect)
    table = table if dialect.is_clean else CleanedTable(table, dialect)
    return SplitTable(table, dialect.lists) if dialect.lists else table


def _opened(source: Any, dialect: Dialect) -> Table:
    if isinstance(source, (str, os.PathLike)):
        return _one_after_the_other(_open_paths(source, dialect))
    if isinstance(source, (list, tuple)) and source and all(isinstance(path, (str, os.PathLike)) for path in source):
        return _one_after_the_other([opened for path in source for opened in _open_paths(path, dialect)])
    rollouts = open_rollouts(source) if isinstance(source, (list, tuple)) and source else None
    if rollouts is not None:
        return rollouts
    if is_lazy(source):
        return LazyTable(source)
    if is_frame(source):
        return FrameTable(source)
    raise TypeError(
        f"A log must be a path, a list of paths, a frame, a mapping of columns, {FORMS}, but it is "
        f"{type(source).__name__}{_of_what(source)}."
    )


def _of_what(source: Any) -> str:
    if not isinstance(source, (list, tuple)):
        return ""
    return f" of {type(source[0]).__name__}" if source else " without entries"


def regrouped(table: Table, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
    """Yield the rows of a table, exactly ``n_rows`` at a time, and the rest at the end."""
    held: list[Batch] = []
    n_held = 0
    for batch in _checked(table, kinds, n_rows):
        held.append(batch)
        n_held += batch_length(batch)
        if n_held < n_rows:
            continue
        whole = _joined(held)
        n_given = n_held - n_held % n_rows
        for start in range(0, n_given, n_rows):
            yield _cut(whole, slice(start, start + n_rows))
        held = [_cut(whole, slice(n_given, n_held))] if n_given < n_held else []
        n_held -= n_given
    if n_held:
        yield _joined(held)


def batch_length(batch: Batch) -> int:
    """Return the number of rows of a batch."""
    return len(next(iter(batch.values())))


def _checked(table: Table, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
    """Yield the batches that have rows; refuse lists of varying length with the number of the row."""
    n_seen, widths, are_times = 0, dict[str, tuple[int, ...]](), dict[str, bool]()
    try:
        for batch in table.batches(kinds, n_rows):
            if batch_length(batch) == 0:
                continue
            for name, column in batch.items():
                if not isinstance(column, Numbers):
                    continue
                _check_width(column, name, kinds[name])
                if column.values.shape[1:] != widths.setdefault(name, column.values.shape[1:]):
                    raise RaggedError(name, 0, sum(column.values.shape[1:]), sum(widths[name]))
                if column.is_time != are_times.setdefault(name, column.is_time):
                    raise LogError(
                        "not_a_number",
                        f"Steps in {name!r} must be all numbers or all datetimes, but there are both.",
                        columns=[name],
                    )
            yield batch
            n_seen += batch_length(batch)
    except RaggedError as error:
        row = n_seen + error.row
        usual = sum(widths.get(error.name, (error.usual,)))
        raise LogError(
            "ragged_state",
            f"Lists in {error.name!r} must be of one length, {usual} as in the first row, but {PLACE} has "
            f"{error.length} entries.",
            rows=[row],
            columns=[error.name],
            table=table,
        ) from None


def _check_width(column: Numbers, name: str, kind: Kind) -> None:
    """Refuse lists where one value is needed, and lists without entries."""
    width = column.values.shape[1] if column.values.ndim > 1 else 1
    if width == 0 or (kind in ("flags", "steps") and column.values.ndim > 1):
        message = f"{name!r} must hold {'one value' if width else 'a value'} per row, but it holds lists of {width}."
        raise LogError("wrong_width", message, columns=[name], advice="Name another column, or write it again.")


def _joined(batches: list[Batch]) -> Batch:
    return {name: join_columns([batch[name] for batch in batches]) for name in batches[0]}


def _cut(batch: Batch, rows: slice) -> Batch:
    return {name: column[rows] for name, column in batch.items()}


def borders_in(table: Table, first: int, n_rows: int) -> tuple[Border, ...]:
    """Return the borders of files just before or within rows that were read."""
    known: list[Border] = getattr(table, "borders", [])
    start, stop = (bisect_left(known, row, key=lambda border: border.row) for row in (first, first + n_rows))
    return tuple(known[start:stop])


def _one_after_the_other(opened: list[tuple[Path, Table]]) -> Table:
    paths, tables = zip(*opened)
    return tables[0] if len(tables) == 1 else FilesTable(tables, paths)


def _open_paths(source: Any, dialect: Dialect) -> list[tuple[Path, Table]]:
    path = Path(source)
    if is_address(source):
        return [(path, open_address(source, dialect))]
    folder = path if path.exists() else find_in_cache(str(path).removeprefix("minari:"))
    dataset = None if folder is None or not folder.is_dir() else find_dataset(folder)
    if dataset is not None:
        return [(path, open_minari(dataset))]
    return [(file, _open_file(file, dialect)) for file in find_files(path)]


def find_files(path: Path) -> list[Path]:
    """Return the files of a log in natural order: part-2 comes before part-10."""
    check_ordinary(path)
    if path.is_file():
        return [path]
    if path.is_dir():
        found = [file for file in path.rglob("*") if file.is_file() and _is_data(file.relative_to(path))]
        if not found:
            raise LogError("missing_file", f"The folder {path} holds no file of a log.")
    else:
        found = [Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]
        if not found:
            raise LogError("missing_file", f"There is no file {path}.")
    endings = sorted({ending_of(file) for file in found})
    if len({_OPENERS.get(ending) for ending in endings}) > 1:
        raise LogError("unknown_format", f"The files of a log must be of one format, but {path} has {endings}.")
    return sorted(found, key=lambda file: _natural(str(file)))


def _is_data(path: Path) -> bool:
    return ending_of(path) in _OPENERS and not any(part.startswith((".", "_")) for part in path.parts)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def ending_of(path: Path) -> str:
    """Return the ending that names the format of a file: that of log.csv.gz is .csv."""
    ending = path.suffix.lower()
    inner = Path(path.stem).suffix.lower() if ending in PACKED else ""
    return inner if _OPENERS.get(inner) in _PACKABLE else ending


_COLUMN_BYTES = 50_000  # that looking at one column may take: 20,000 columns are 1 GB


def _open_file(path: Path, dialect: Dialect) -> Table:
    opener = _OPENERS.get(ending_of(path))
    if opener is None:
        raise LogError("unknown_format", f"{path} has an unknown ending, {path.suffix!r}.")
    try:
        n_bytes = path.stat().st_size
        if n_bytes == 0:
            raise LogError("empty_log", f"{path} is empty: it has no bytes.")
        table = opener(path, dialect)
        n_columns = len(table.names)
        refuse_size(too_large(path, f"a table of {n_columns} columns", n_columns * _COLUMN_BYTES), path)
        return table
    except OSError as error:
        raise LogError("unreadable", f"{path} cannot be read: {error.strerror or error}.") from None


def _of_itself(opener: Callable[[Path], Table]) -> Callable[[Path, Dialect], Table]:
    """Return what opens a file that says itself how it is written."""
    return lambda path, dialect: opener(path)


_OPENERS: dict[str, Callable[[Path, Dialect], Table]] = {
    **dict.fromkeys((".parquet", ".pq"), _of_itself(ParquetTable)),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), _of_itself(ArrowFileTable)),
    **dict.fromkeys((".csv", ".tsv"), CsvTable),
    **dict.fromkeys(JSON_ENDINGS, JsonLinesTable),
    **dict.fromkeys(EXCEL_ENDINGS, ExcelTable),
    **dict.fromkeys(DATABASE_ENDINGS, open_database),
    **dict.fromkeys(HDF5_ENDINGS, _of_itself(open_hdf5)),
    ".npz": _of_itself(NpzTable),
}
_PACKABLE = (CsvTable, JsonLinesTable)  # their readers unpack


def is_address(source: Any) -> bool:
    """Return whether a text names a database: sqlite:FILE?QUERY, duckdb:FILE?QUERY or postgresql://..."""
    return isinstance(source, str) and source.startswith(("sqlite:", "duckdb:", "postgresql://", "postgres://"))
