"""Another start: a sheet of an Excel file as batches of columns, row by row, by openpyxl (an extra).

The first row with cells is the header; rows without cells are skipped.  Of a formula, the value that Excel stored
counts: nothing is computed, no macro is run and no link to another file is followed.
"""

from __future__ import annotations

import importlib.util
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from kbrl.checks import how_to_install
from kbrl.data.column_names import listing
from kbrl.tables.cell_values import Batch, Kind
from kbrl.tables.faults import LogError, Place
from kbrl.tables.python_rows import batches_of
from kbrl.tables.text_files import PLAIN, Dialect

EXCEL_ENDINGS = (".xlsx", ".xlsm")
_LARGEST = 1 << 28  # bytes of the texts of a file, which openpyxl holds in memory
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
            cut = (tuple(cells[k] if k < len(cells) else None for k in self._places) for _, cells in rows)
            yield from batches_of(cut, self.names, kinds, n_rows, self._dialect)

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
        with _opened(self.path) as workbook:
            yield _filled(workbook[self._sheet])


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import openpyxl

    try:
        _refuse_large(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about styles and checks of Excel, which do not matter
            workbook = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            yield workbook
        finally:
            workbook.close()
    except LogError:
        raise
    except _DAMAGED as error:
        raise LogError("unreadable", f"{path} cannot be read: {error}.") from None


def _size(sheet: Any) -> int:
    return sum(sum(cell is not None for cell in cells) for _, cells in islice(_filled(sheet), 1000))


def _filled(sheet: Any) -> Iterator[tuple[int, tuple[Any, ...]]]:
    sheet.reset_dimensions()  # what a file says about its size may be wrong
    numbered = enumerate(sheet.iter_rows(values_only=True), start=1)
    return ((number, cells) for number, cells in numbered if any(cell is not None for cell in cells))


def _refuse_large(path: Path) -> None:
    """Refuse a file whose texts would fill the memory."""
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(member.file_size for member in archive.infolist() if not _is_sheet(member.filename))
    if n_bytes > _LARGEST:
        raise LogError(
            "unreadable",
            f"{path} must hold at most {_LARGEST >> 20} MB beside the cells of its sheets, but it holds "
            f"{n_bytes >> 20} MB.",
            advice="Save the sheet as CSV.",
        )


def _is_sheet(name: str) -> bool:
    return name.lower().startswith("xl/worksheets/") or "/media/" in name.lower()
