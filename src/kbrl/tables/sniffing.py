"""What to state about a source that its bytes do not tell, found by looking at it: for ``kbrl init``.

Readers never guess.  This module does, from the first rows and, for the encoding of a text, from one pass over its
bytes; a person reads the result before it is used.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from kbrl.data.column_names import listing
from kbrl.tables.cell_values import refusing
from kbrl.tables.databases import DATABASE_ENDINGS, SeveralTablesError, all_of, open_database
from kbrl.tables.excel import EXCEL_ENDINGS, ExcelTable
from kbrl.tables.faults import LogError
from kbrl.tables.formats import ending_of
from kbrl.tables.text_files import PLAIN, Dialect, encoding_of, has_comma, open_bytes, open_text, undecodable

_LINES, _LETTERS = 2000, 1 << 24  # of a text that are looked at
_TOP = 60  # rows in which the header is looked for
_LEAST = 5  # rows that must follow one of units
_BLOCK = 1 << 20
_WITH_POINTS = re.compile(r"[+-]?[0-9]{1,3}(?:\.[0-9]{3})+(?:,[0-9]+)?", re.ASCII)  # 1.234 or 1.234,5
_WITH_COMMAS = re.compile(r"[+-]?[0-9]{1,3}([,'])[0-9]{3}(?:\1[0-9]{3})*(?:\.[0-9]+)?", re.ASCII)  # 1,234 or 1'234.5
_BEFORE, _AFTER = "€$£¥", "€$£¥%"  # signs beside numbers


@dataclass(frozen=True)
class Guess:
    """A dialect to state, the reasons for it, and what is uncertain."""

    dialect: Dialect
    reasons: Mapping[str, str] = field(default_factory=dict)  # of each option that the dialect states
    doubts: tuple[str, ...] = ()


def guess_dialect(source: Any) -> Guess:
    """Return what to state so that a source can be read as it was meant."""
    path = Path(source) if isinstance(source, (str, Path)) else Path()
    if not path.is_file():
        return Guess(PLAIN)
    ending = ending_of(path)
    if ending in (".csv", ".tsv"):
        with refusing(path):
            try:
                return _of_text(path)
            except UnicodeError as error:
                raise undecodable(path, encoding_of(path, PLAIN), str(error)) from None
            except csv.Error as error:
                raise LogError("unreadable", f"{path} cannot be read: {error}.") from None
    if ending in EXCEL_ENDINGS:
        return _of_workbook(path)
    return _of_database(path) if ending in DATABASE_ENDINGS else Guess(PLAIN)


def _of_text(path: Path) -> Guess:
    encoding, why = _encoding(path)
    reasons, dialect = {"encoding": why}, Dialect(encoding=encoding)
    with open_text(path, encoding_of(path, dialect)) as file:
        lines = list(_first_lines(file))
    delimiter = max(",;\t|", key=lambda sign: sum(line.count(sign) for line in lines[:_TOP]))
    top = list(csv.reader(lines[:_TOP], delimiter=delimiter))
    skip, why = _around_header(top)
    if skip:
        dialect, reasons = replace(dialect, skip=skip), reasons | {"skip": why}
        n_above, _, n_below = skip.partition("+")
        header = lines[int(n_above)]
        lines = [header, *lines[int(n_above) + 1 + int(n_below or 0) :]]
    header = lines[0] if lines else ""
    delimiter = max(",;\t|", key=header.count)
    if delimiter == "|":
        dialect, reasons = (
            replace(dialect, delimiter="|"),
            reasons | {"delimiter": "| separates the cells of the header"},
        )
    columns = list(zip(*_rows(lines[1:], delimiter)))
    decimal, thousands, found = _numbers_in(columns)
    titles = next(csv.reader([header], delimiter=delimiter), [])
    names = ", ".join(title.strip() for k, title in enumerate(titles) if k in found)
    reasons["decimal"] = f"numbers have a decimal comma in {names}"
    reasons["thousands"] = f"{thousands} separates thousands in {names}"
    return Guess(replace(dialect, decimal=decimal, thousands=thousands), reasons)


def _first_lines(file: TextIO) -> Iterator[str]:
    """Yield the first lines of a text; very long ones in pieces, and fewer of them."""
    n_letters = 0
    for line in islice(iter(lambda: file.readline(_BLOCK), ""), _LINES):
        yield line
        n_letters += len(line)
        if n_letters > _LETTERS:
            return


def _around_header(rows: Sequence[Sequence[str]]) -> tuple[str, str]:
    """Return what is to be skipped around the header, such as 2, or 2+1 with a row of units below it, and why."""
    n_above = _above_header([sum(bool(cell.strip()) for cell in row) for row in rows])
    n_below = _below_header(rows[n_above + 1 :])
    why = "the rows above the header have fewer cells" if n_above else ""
    units = "a row below the header has no number where the others have one, as units have none" if n_below else ""
    return f"{n_above}+{n_below}" if n_below else str(n_above or ""), "; ".join(filter(None, (why, units)))


def _below_header(rows: Sequence[Sequence[str]]) -> int:
    """Return how many rows below the header are not data: texts, in columns that hold numbers from then on."""
    for n_below in (1, 2):
        first, rest = rows[:n_below], [row for row in rows[n_below:] if row]
        numeric = [k for k in range(len(rows[0]) if rows else 0) if _share([r[k] for r in rest if k < len(r)], _is_any)]
        told = [[row[k].strip() for k in numeric if k < len(row)] for row in first]
        if len(rest) >= _LEAST and all(sum(map(bool, t)) > 1 and not any(map(_is_any, t)) for t in told):
            return n_below
    return 0


def _is_any(cell: str) -> bool:
    """Return whether a cell holds a number, in whichever country."""
    return _is_continental(cell.strip()) or _is_english(cell.strip())


def _above_header(widths: Sequence[int]) -> int:
    """Return how many rows stand above the header: those that have at most half as many cells as rows usually have."""
    filled = sorted(width for width in widths if width)
    usual = filled[len(filled) // 2] if len(filled) >= 4 else 0
    return next((row for row, width in enumerate(widths) if 2 * width > usual), 0) if usual > 2 else 0


def _encoding(path: Path) -> tuple[str | None, str]:
    """Return the encoding to state, None if the file says it itself or is UTF-8, and why."""
    if encoding_of(path, PLAIN) != "utf-8-sig":
        return None, ""
    decoder, zeros, high = codecs.getincrementaldecoder("utf-8")(), [0, 0], set[int]()
    is_utf8, first = True, b""
    for block in _blocks(path):
        first = first or block
        zeros = [zeros[k] + block[k::2].count(0) for k in (0, 1)]
        if is_utf8:
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                is_utf8 = False
        high |= set(block) & set(range(0x80, 0xA0)) if not is_utf8 else set()
    if max(zeros) > len(first) // 8:
        name = "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
        return name, f"every other byte is 0, as in {name}"
    if is_utf8:
        return None, ""
    name = "cp1252" if high else "latin-1"
    return name, f"its bytes are not UTF-8; {name} is the usual encoding of such files"


def _blocks(path: Path) -> Iterator[bytes]:
    with open_bytes(path) as file:
        while block := file.read(_BLOCK):
            yield block


def _rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    width = max((len(row) for row in rows), default=0)
    return [row + [""] * (width - len(row)) for row in rows]


def _numbers_in(columns: Sequence[Sequence[str]]) -> tuple[str | None, str | None, list[int]]:
    """Return the decimal comma and the separator of thousands, if there are any, and the columns that show it."""
    filled = [[_without_price(cell) for cell in column if cell.strip()] for column in columns]
    commas = [k for k, cells in enumerate(filled) if _share(cells, _is_continental) and any(map(has_comma, cells))]
    with_points = any(_share(cells, _is_english) and any(map(_has_point, cells)) for cells in filled)
    in_threes = all(_is_grouped(cell) or cell.lstrip("+-").isdigit() for k in commas for cell in filled[k])
    if commas and not (with_points and in_threes):  # 112,040 beside 1.5 is a number of thousands
        points = any(_WITH_POINTS.fullmatch(cell) for k in commas for cell in filled[k])
        return ",", "." if points else None, commas
    grouped = [k for k, cells in enumerate(filled) if _share(cells, _is_english) and any(map(_is_grouped, cells))]
    signs = {_WITH_COMMAS.fullmatch(cell)[1] for k in grouped for cell in filled[k] if _is_grouped(cell)}  # type: ignore[index]
    return None, signs.pop() if len(signs) == 1 else None, grouped


def _without_price(cell: str) -> str:
    return cell.strip().lstrip(_BEFORE).rstrip(_AFTER).strip()


def _is_continental(cell: str) -> bool:
    return cell.lstrip("+-").isdigit() or has_comma(cell) or _WITH_POINTS.fullmatch(cell) is not None


def _is_english(cell: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]+(?:\.[0-9]*)?", cell, re.ASCII) is not None or _is_grouped(cell)


def _is_grouped(cell: str) -> bool:
    return _WITH_COMMAS.fullmatch(cell) is not None


def _has_point(cell: str) -> bool:
    """Return whether a cell is a number with a decimal point, and not one with points between thousands."""
    return "." in cell and _WITH_POINTS.fullmatch(cell) is None


def _share(cells: Sequence[str], holds: Any, share: float = 0.9) -> bool:
    """Return whether a rule holds for most cells: some are blanks in words."""
    return len(cells) > 0 and sum(map(holds, cells)) >= share * len(cells)


def _of_workbook(path: Path) -> Guess:
    sizes = ExcelTable.sizes(path)
    if not sizes:
        return Guess(PLAIN)
    sheet, dialect, doubts = max(sizes, key=lambda name: sizes[name]), PLAIN, list[str]()
    if len(sizes) > 1:
        dialect = Dialect(sheet=sheet)
        doubts = [f"the file has several sheets, {', '.join(sizes)}; the one with the most cells was taken"]
    skip, why = _around_header(ExcelTable.top(path, sheet, _TOP))
    dialect = replace(dialect, skip=skip or None)
    return Guess(dialect, {"sheet": f"the sheet {sheet!r} has the most cells", "skip": why}, tuple(doubts))


def _of_database(path: Path) -> Guess:
    try:
        open_database(path, PLAIN)
    except SeveralTablesError as error:
        sizes = {name: len(open_database(path, Dialect(query=all_of(name))).names) for name in error.tables}
        if sizes:
            largest = max(sizes, key=lambda name: sizes[name])
            doubt = f"the database has several tables, {listing(error.tables)}; the one with the most columns was taken"
            return Guess(Dialect(query=all_of(largest)), {"query": f"{largest!r} has the most columns"}, (doubt,))
    return Guess(PLAIN)
