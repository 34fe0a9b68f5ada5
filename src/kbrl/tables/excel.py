"""Another start: a sheet of an Excel file as batches of columns, row by row, by openpyxl (an extra).

The first row with cells, below those to skip, is the header; rows without cells are skipped.  Of a formula, the value
that Excel stored counts: nothing is computed, no macro is run and no link to another file is followed.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
import zipfile
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain, dropwhile, islice
from pathlib import Path
from typing import Any

from kbrl.checks import how_to_install
from kbrl.data.column_names import listing
from kbrl.files import bytes_on_disk, too_empty, too_large
from kbrl.tables.cell_values import Batch, Kind
from kbrl.tables.faults import LogError, Place, refuse_size, refusing_damage
from kbrl.tables.python_rows import batches_of
from kbrl.tables.text_files import PLAIN, Dialect, refuse_numbers

EXCEL_ENDINGS = (".xlsx", ".xlsm")
_MOST_ROWS, _MOST_COLUMNS = 1 << 20, 1 << 14  # of a sheet, by Excel's own rules
_PIECE = 1 << 20  # bytes; a cell of Excel holds at most 32,767 characters
_HELD_WHOLE = {"xl/sharedstrings.xml": 4}  # memory per byte: texts; the cells of a sheet are read one by one
_AS_TREE = 50  # memory per byte of all other parts, which openpyxl parses as a tree
_XML = re.compile(rb"(\xef\xbb\xbf|\xff\xfe|\xfe\xff)?[\s\0]*(<|\Z)")
_SHEET_ROOT = re.compile(rb"<([\w.-]+:)?worksheet\b")
_STRINGS = re.compile(rb"<([\w.-]+:)?si\b")  # shared texts, which are all held
_FOREIGN = (b"<![CDATA[", b"<!DOCTYPE", b"\0")  # signs that Excel does not write; zeros are in all of UTF-16
_SHEET = "Name one: --sheet NAME, in Python columns={'sheet': NAME}."
# what openpyxl, the archive and its XML raise for damaged bytes
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, ValueError, TypeError, SyntaxError, AttributeError,
    IndexError, NotImplementedError, RuntimeError,
)  # fmt: skip


class ExcelTable:
    """One sheet of an Excel file."""

    is_text = False

    def __init__(self, path: Path, dialect: Dialect = PLAIN) -> None:
        if importlib.util.find_spec("openpyxl") is None:
            raise ImportError(f"{path}: Excel files need openpyxl. {how_to_install('excel')}")
        self.path, self._dialect = path, dialect
        with refusing_damage(path, _DAMAGED):
            _check_parts(path)
        self._sheet = self._find_sheet(dialect.sheet)
        with self._numbered() as rows:
            header = next(rows, None)
            if header is None:
                raise LogError("empty_log", f"The sheet {self._sheet!r} of {path} is empty.")
            if next(rows, None) is None:
                raise LogError("empty_log", f"The sheet {self._sheet!r} of {path} has a header, but no row below it.")
        cells = header[1]
        self._places = [place for place, cell in enumerate(cells) if cell is not None and str(cell).strip()]
        self.names = tuple(str(cells[place]).strip() for place in self._places)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        with self._numbered() as rows:
            next(rows)
            cut = (tuple(cells[k] if k < len(cells) else None for k in self._places) for cells in self._counted(rows))
            yield from batches_of(cut, self.names, kinds, n_rows, self._dialect)

    def _counted(self, rows: Iterator[tuple[int, tuple[Any, ...]]]) -> Iterator[tuple[Any, ...]]:
        """Yield the cells of rows, as long as they are not far more than the file can hold."""
        n_cells, n_stored = 0, bytes_on_disk(self.path)
        for _, cells in rows:
            n_cells += len(cells)
            refuse_size(too_empty(self.path, "its sheet", 8 * n_cells, n_stored), self.path)
            yield cells

    def places(self, rows: Sequence[int]) -> list[Place]:
        """Return the rows of the sheet, as Excel numbers them."""
        wanted, found = set(rows), dict[int, int]()
        with self._numbered() as numbered:
            for row, (number, _) in enumerate(numbered, start=-1):  # the header is the row before the first
                if row in wanted:
                    found[row] = number
                if len(found) == len(wanted):
                    break
        return [Place("row of the sheet", found.get(row, row + 1), str(self.path)) for row in rows]

    @classmethod
    def sizes(cls, path: Path) -> dict[str, int]:
        """Return the number of cells of each sheet that has any, counted in its first rows."""
        with _opened(path) as workbook:
            counted = {sheet.title: _size(sheet) for sheet in workbook.worksheets}
        return {name: size for name, size in counted.items() if size}

    @classmethod
    def top(cls, path: Path, sheet: str, n_rows: int) -> list[list[str]]:
        """Return the cells of the first rows of a sheet as texts, empty where there is nothing."""
        texts: list[list[str]] = [[] for _ in range(n_rows)]
        with _opened(path) as workbook:
            for number, cells in _filled(workbook[sheet]):
                if number > n_rows:
                    break
                texts[number - 1] = ["" if cell is None else str(cell) for cell in cells]
        return texts

    def _find_sheet(self, stated: str | None) -> str:
        with _opened(self.path) as workbook:
            filled = [sheet.title for sheet in workbook.worksheets if any(_filled(sheet))]
        if stated is not None and stated not in filled:
            raise LogError(
                "unreadable", f"{self.path} has no sheet {stated!r} with cells, but {listing(filled)}.", advice=_SHEET
            )
        if stated is None and len(filled) > 1:
            raise LogError(
                "unreadable",
                f"A log must be one sheet, but {self.path} has {len(filled)}: {listing(filled)}.",
                advice=_SHEET,
            )
        if not filled:
            raise LogError("empty_log", f"{self.path} has no sheet with cells.")
        return stated or filled[0]

    @contextmanager
    def _numbered(self) -> Iterator[Iterator[tuple[int, tuple[Any, ...]]]]:
        """Give the rows that have cells, with their numbers in the sheet."""
        skipped, n_below = self._dialect.n_skipped, self._dialect.n_below
        with _opened(self.path) as workbook, closing(_filled(workbook[self._sheet])) as rows:
            below = dropwhile(lambda row: row[0] <= skipped, rows)
            header = list(islice(below, 1))
            refuse_numbers([cells for _, cells in islice(below, n_below)], self.path, self._dialect)
            yield chain(header, below)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import openpyxl

    with refusing_damage(path, _DAMAGED):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about styles and checks of Excel, which do not matter
            workbook = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            yield workbook
        finally:
            workbook.close()


def _size(sheet: Any) -> int:
    return sum(sum(cell is not None for cell in cells) for _, cells in islice(_filled(sheet), 1000))


def _filled(sheet: Any) -> Generator[tuple[int, tuple[Any, ...]], None, None]:
    """Yield the rows that have cells, with their numbers; refuse a sheet that Excel could not hold."""
    sheet.reset_dimensions()  # what a file says about its size may be wrong
    for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
        if number > _MOST_ROWS or len(cells) > _MOST_COLUMNS:
            raise ValueError(f"a sheet has at most {_MOST_ROWS:,} rows and {_MOST_COLUMNS:,} columns")
        if any(cell is not None for cell in cells):
            yield number, cells


def _check_parts(path: Path) -> None:
    """Refuse a file whose parts would fill the memory, or that hold a text without an end.

    openpyxl finds parts by what other parts say, whatever their names are.  So each one that may be XML is looked at.
    """
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            with archive.open(part) as file:
                piece = file.read(_PIECE)
                if not _XML.match(piece):
                    continue  # a picture; whoever parses it fails at its first byte
                usual = _HELD_WHOLE.get(part.filename.lower(), _AS_TREE)
                is_sheet = part.filename.lower().startswith("xl/worksheets/") and _SHEET_ROOT.search(piece) is not None
                while piece:
                    needed = 1 if is_sheet and not _STRINGS.search(piece) else usual
                    refuse_size(too_large(path, repr(part.filename), needed * part.file_size), path)
                    if any(sign in piece for sign in _FOREIGN) or (len(piece) == _PIECE and b"<" not in piece):
                        raise ValueError(f"{part.filename!r} has a text longer than Excel allows, or forbidden signs")
                    piece = file.read(_PIECE)
