"""Tables as text: CSV with a header line; commas, semicolons or tabs between the cells.

With pyarrow a file is split by Arrow, without it by Python, several times slower; the numbers are the same bits.

Blanks around the name of a column do not belong to it, nor those around its labels: "a, b" is a way to write "a,b".
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from kbrl.logs.cell_values import Batch, Kind, from_texts, stripped
from kbrl.logs.faults import LogError
from kbrl.logs.places import Place

_BLOCK = 1 << 20  # bytes that Arrow splits at a time


class CsvTable:
    """A CSV file split by Python's csv module."""

    is_text = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.delimiter, self._written = _header(path)
        self.names = _without_blanks(self._written)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        places = {name: self.names.index(name) for name in kinds}
        padded = _padded(self._written, self.names)
        with open(self.path, newline="", encoding="utf-8-sig") as file:
            rows = self._rows(csv.reader(file, delimiter=self.delimiter))
            while piece := list(islice(rows, n_rows)):
                cells = list(zip(*piece))
                batch = {name: from_texts(cells[places[name]], kind) for name, kind in kinds.items()}
                yield {name: stripped(column) if name in padded else column for name, column in batch.items()}

    def places(self, rows: Sequence[int]) -> list[Place]:
        """Return the lines of some rows."""
        return _lines(self.path, self.delimiter, rows)

    def _rows(self, reader: Any) -> Iterator[list[str]]:
        try:
            next(reader)
            for row in reader:
                if row and len(row) != len(self.names):
                    raise LogError(
                        "unreadable",
                        f"{self.path} cannot be read: line {reader.line_num} has {len(row)} cells, but the header "
                        f"has {len(self.names)}.",
                    )
                if row:
                    yield row
        except UnicodeDecodeError as error:
            raise _not_utf8(self.path, str(error)) from None
        except csv.Error as error:
            raise LogError("unreadable", f"{self.path} cannot be read: {error}.") from None


class ArrowCsvTable:
    """A CSV file split by Arrow."""

    is_text = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.delimiter, self._written = _header(path)
        self.names = _without_blanks(self._written)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        from kbrl.logs.arrow_files import refusing, texts_from_arrow

        written = {name: self._written[self.names.index(name)] for name in kinds}
        padded = _padded(self._written, self.names)
        with refusing(self.path):
            for stored in self._blocks(list(written.values())):
                for start in range(0, stored.num_rows, n_rows):
                    block = stored.slice(start, n_rows)
                    batch = {name: texts_from_arrow(block.column(written[name]), kinds[name]) for name in kinds}
                    yield {name: stripped(column) if name in padded else column for name, column in batch.items()}

    def places(self, rows: Sequence[int]) -> list[Place]:
        """Return the lines of some rows."""
        return _lines(self.path, self.delimiter, rows)

    def _blocks(self, columns: list[str]) -> Iterator[Any]:
        import pyarrow as pa

        try:
            yield from self._split(columns)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
            raise _not_utf8(self.path, str(error).splitlines()[0]) from None

    def _split(self, columns: list[str]) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        return arrow_csv.open_csv(
            self.path,
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK),
            parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=columns, column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=False
            ),
        )


def _header(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the delimiter, which is the likeliest one in the first line, and the names of the columns."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            line = file.readline()
            if "\0" in line:  # what every other byte of UTF-16 is, where the text is English
                raise _not_utf8(path, "the header has bytes of 0")
            delimiter = max(",;\t", key=line.count)
            file.seek(0)
            names = tuple(next(csv.reader(file, delimiter=delimiter), ()))
            has_rows = bool(file.readline())
    except UnicodeDecodeError as error:
        raise _not_utf8(path, str(error)) from None
    except csv.Error as error:
        raise LogError("unreadable", f"{path} cannot be read: {error}.") from None
    if not names:
        raise LogError("empty_log", f"{path} has no header line.")
    if not has_rows:
        raise LogError("empty_log", f"{path} has a header, but no row below it.")
    return delimiter, names


def _lines(path: Path, delimiter: str, rows: Sequence[int]) -> list[Place]:
    """Return the line at which each of some rows starts: a quoted cell may hold several, an empty one is no row."""
    wanted, found = set(rows), dict[int, int]()
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter)
            row, n_lines = -1, 0  # the header is the row before the first
            while len(found) < len(wanted):
                cells = next(reader)
                if cells and row in wanted:
                    found[row] = n_lines + 1
                row, n_lines = row + bool(cells), reader.line_num
    except (StopIteration, UnicodeDecodeError, csv.Error):  # the file has changed, or Arrow is less strict
        pass
    return [Place("line", found[row], str(path)) if row in found else Place("row", row + 1, str(path)) for row in rows]


def _without_blanks(written: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns without the blanks around them, unless those tell two columns apart."""
    bare = tuple(name.strip() for name in written)
    return bare if len(set(bare)) == len(set(written)) else written


def _padded(written: tuple[str, ...], names: tuple[str, ...]) -> set[str]:
    """Return the names of the columns that are written with blanks around them."""
    return {name for name, as_written in zip(names, written) if name != as_written}


def _not_utf8(path: Path, reason: str) -> LogError:
    return LogError("unreadable", f"{path} cannot be read: its text is not in UTF-8 ({reason}); save it as UTF-8.")
