"""How texts are written, and CSV files as batches of columns, packed or not.

A `Dialect` states what the bytes of a source do not tell: encoding, decimal comma, sheet, query.  Nothing is guessed
when a log is read; ``kbrl init`` looks at a file and proposes what to state.

A CSV file has a header line; commas, semicolons or tabs separate the cells.  Blanks around the name of a column are
dropped, and then those around its labels as well: "a, b" means "a,b".  Memory is bounded: the text is unpacked,
decoded and split block by block.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from kbrl.data.written import DATE_ORDERS, Written
from kbrl.files import bytes_on_disk, memory_limit, shown, too_empty
from kbrl.tables.arrow_files import BUFFER
from kbrl.tables.cell_values import (
    Batch,
    Column,
    Kind,
    labels_from_texts,
    numbers_in,
    refusing,
    stripped,
    texts_from_arrow,
)
from kbrl.tables.faults import LogError, Place, refuse_size

_LONGEST_HEADER = 1 << 24  # characters of the first line of a text
PACKED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}  # ending: how Arrow calls it
_CELLS_AT_ONCE = 4096  # bytes of each column that are split at once: some hundred cells
_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
          codecs.BOM_UTF16_BE: "utf-16"}  # fmt: skip

_SEPARATORS = (",", ".", " ", "'", "_")
_MOST_SKIPPED = 1000
_SKIP = re.compile(r"([0-9]{1,4})(?:\+([0-9]{1,4}))?", re.ASCII)  # rows above the header + rows below it
_WORDS = {"tab": "\t", "space": " "}  # for what is hard to write on a command line
COMMA = "If , is the decimal sign, state it: --decimal , in Python columns={'decimal': ','}."
_WITH_COMMA = re.compile(r"\s*'?[+-]?(?:[0-9]+|[0-9]{1,3}(?:[. \u00a0\u202f'][0-9]{3})+),[0-9]+'?\s*", re.ASCII)


@dataclass(frozen=True)
class Dialect:
    """How a source is written; None where nothing is stated.

    >>> Dialect(decimal=",", thousands=".").plain("-1.234,5")
    '-1234.5'
    """

    encoding: str | None = None  # of a text file; without it UTF-8, or what the first bytes of the file say
    delimiter: str | None = None  # of a CSV file; without it the most frequent of , ; and tab in the header
    decimal: str | None = None  # "," in 3,5
    thousands: str | None = None  # "." in 1.234,5
    sheet: str | None = None  # of an Excel file
    query: str | None = None  # for a database: one that selects the rows
    split: str | None = None  # columns of lists, as in "action,observation", of which each entry becomes a column
    skip: str | None = None  # rows above the header of a CSV or Excel file; "2+1": also 1 below it, such as units
    na: str | None = None  # what stands for a missing value, as in "-; unknown; age=999"
    fill_down: str | None = None  # columns in which an empty cell means the one above it, as in "patient,ward"
    suffix: str | None = None  # what stands after the numbers of a column, as in "dose=mg"
    dates: str | None = None  # the order of day and month in dates that are not ISO dates: see DATE_ORDERS

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f"{field.name} must be a text, but it is {value!r}.")
        if self.encoding is not None:
            _check_encoding(self.encoding)
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in "\"'\r\n"):
            raise ValueError(f"delimiter must be one character, such as ; or |, but it is {self.delimiter!r}.")
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be . or , but it is {self.decimal!r}.")
        if self.thousands is not None and (self.thousands not in _SEPARATORS or self.thousands == self.point):
            raise ValueError(
                f"thousands must be one of {' '.join(map(repr, _SEPARATORS))}, and not the decimal sign, "
                f"{self.point!r}, but it is {self.thousands!r}."
            )
        if self.skip is not None and (_SKIP.fullmatch(self.skip) is None or max(self._skips) > _MOST_SKIPPED):
            raise ValueError(
                f"skip must be a number of rows above the header, or of those above and below it as in 2+1, at most "
                f"{_MOST_SKIPPED} each, but it is {self.skip!r}."
            )
        if self.dates not in (None, *DATE_ORDERS):
            raise ValueError(f"dates must be {' or '.join(map(repr, DATE_ORDERS))}, but it is {self.dates!r}.")
        if self.suffix is not None and "" in self.suffixes:
            raise ValueError(f"suffix must be written as name=unit; name=unit, but it is {self.suffix!r}.")

    @property
    def lists(self) -> list[str]:
        """The columns to split."""
        return [] if self.split is None else [name.strip() for name in self.split.split(",")]

    @property
    def filled_down(self) -> list[str]:
        """The columns in which an empty cell means the one above it."""
        return [] if self.fill_down is None else [name.strip() for name in self.fill_down.split(",")]

    @property
    def n_skipped(self) -> int:
        """The number of rows above the header."""
        return self._skips[0]

    @property
    def n_below(self) -> int:
        """The number of rows below the header that are not data."""
        return self._skips[1]

    @property
    def _skips(self) -> tuple[int, int]:
        found = _SKIP.fullmatch(self.skip or "0")
        return (int(found[1]), int(found[2] or 0)) if found else (0, 0)

    @property
    def marks(self) -> dict[str, list[str]]:
        """What stands for a missing value, by column; of all columns under the name ''."""
        return _listed(self.na)

    @property
    def suffixes(self) -> dict[str, str]:
        """What stands after the numbers of a column, by column."""
        return {name: values[0] for name, values in _listed(self.suffix).items()}

    @property
    def named(self) -> list[str]:
        """The columns whose cells it says something of."""
        return [name for name in (*self.marks, *self.suffixes, *self.filled_down) if name]

    @property
    def is_clean(self) -> bool:
        """Whether cells are read as they are."""
        return all(stated is None for stated in (self.na, self.suffix, self.dates, self.fill_down))

    @property
    def point(self) -> str:
        """The decimal sign."""
        return self.decimal or "."

    def written(self, name: str = "", *, has_dates: bool = False) -> Written:
        """Return how the cells of a column are written; only those that hold dates are read by their order."""
        dates = self.dates or "" if has_dates else ""
        return Written(self.point, self.thousands or "", self.suffixes.get(name, ""), dates)

    def plain(self, text: str) -> str:
        """Return a number as Python writes it, any other text as it is: see `Written.plain`."""
        return self.written().plain(text)

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written as Python writes them."""
        return self.point == "." and self.thousands is None

    def to_dict(self) -> dict[str, str]:
        """Return what is stated."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}


STATED = tuple(field.name for field in fields(Dialect))
PLAIN = Dialect()


def dialect_in(columns: Any) -> Dialect:
    """Return the dialect that is stated beside the columns, in a mapping or a record of them."""
    columns = columns if isinstance(columns, Mapping) or columns is None else vars(columns)
    stated = {name: columns[name] for name in STATED if columns and columns.get(name) is not None}
    for name in ("split", "fill_down"):
        if isinstance(stated.get(name), (list, tuple)):
            stated[name] = ",".join(map(str, stated[name]))
    stated |= {name: _as_text(stated[name]) for name in ("skip", "na", "suffix") if name in stated}
    for name in ("delimiter", "thousands"):
        if stated.get(name) in _WORDS:
            stated[name] = _WORDS[stated[name]]
    return Dialect(**stated)


def _as_text(value: Any) -> Any:
    """Return what is stated by a list or a table as one text: a; b; name=c."""
    if isinstance(value, Mapping):
        pairs = [(name, each) for name, own in value.items() for each in (own if isinstance(own, list) else [own])]
        return "; ".join(f"{name}={_shown(each)}" for name, each in pairs)
    if isinstance(value, (list, tuple)):
        return "; ".join(map(_shown, value))
    return _shown(value)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _listed(text: str | None) -> dict[str, list[str]]:
    """Return what a text such as '-; age=999; age=-1' says of each column, and of all under the name ''."""
    found: dict[str, list[str]] = {}
    for part in [] if text is None else text.split(";"):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if part.strip():
            found.setdefault(name if equals else "", []).append(value if equals else name)
    return found


def has_comma(text: str) -> bool:
    """Return whether a text, in quotes or not, looks like a number with a decimal comma.

    >>> has_comma("1.234,5"), has_comma("1,234.5"), has_comma("a,b")
    (True, False, False)
    """
    return _WITH_COMMA.fullmatch(text) is not None


def _check_encoding(name: str) -> None:
    try:
        "a".encode(name)
    except (LookupError, ValueError):
        raise ValueError(
            f"encoding must be one that Python knows, such as latin-1 or utf-16, but it is {name!r}."
        ) from None


class CsvTable:
    """One CSV file."""

    is_text = True

    def __init__(self, path: Path, dialect: Dialect = PLAIN) -> None:
        self.path, self._dialect = path, dialect
        with refusing(path):
            self._encoding = encoding_of(path, dialect)
            self._delimiter, self._written = _header(path, self._encoding, dialect)
        self.names = _without_blanks(self._written)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        written = {name: as_written for name, as_written in zip(self.names, self._written) if name in kinds}
        with refusing(self.path):
            for block in self._blocks(list(written.values())):
                for start in range(0, block.num_rows, n_rows):
                    piece = block.slice(start, n_rows)
                    yield {name: self._cells(piece, name, written[name], kind) for name, kind in kinds.items()}

    def _cells(self, piece: Any, name: str, written: str, kind: Kind) -> Column:
        cells = texts_in(piece.column(written), kind, self._dialect)
        return cells if name == written else stripped(cells)

    def _blocks(self, columns: list[str]) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        encoding = "utf8" if self._encoding == "utf-8-sig" else self._encoding
        try:
            with open_bytes(self.path) as file:
                yield from arrow_csv.open_csv(
                    file,
                    read_options=arrow_csv.ReadOptions(
                        use_threads=False,
                        block_size=max(BUFFER, _CELLS_AT_ONCE * len(self.names)),
                        encoding=encoding,
                        skip_rows=self._dialect.n_skipped,
                        skip_rows_after_names=self._dialect.n_below,
                    ),
                    parse_options=arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                    convert_options=arrow_csv.ConvertOptions(
                        include_columns=columns,
                        column_types=dict.fromkeys(columns, pa.string()),
                        strings_can_be_null=False,
                    ),
                )
        except (pa.ArrowInvalid, UnicodeError) as error:
            if not isinstance(error, UnicodeError) and "UTF8" not in str(error):
                raise
            raise undecodable(self.path, self._encoding, str(error).splitlines()[0]) from None

    def places(self, rows: Sequence[int]) -> list[Place]:
        """Return the line at which each row starts; a quoted cell may span lines, an empty line is not a row."""
        wanted, found = set(rows), dict[int, int]()
        try:
            with open_text(self.path, self._encoding) as file:
                skipped = _skip(file, self._dialect.n_skipped)
                lines = iter(lambda: file.readline(_LONGEST_HEADER), "")  # Arrow may see other lines than we do
                reader = csv.reader(lines, delimiter=self._delimiter)
                row, n_lines = -1 - self._dialect.n_below, 0  # the header is the row before the first
                while len(found) < len(wanted):
                    cells = next(reader)
                    if cells and row in wanted:
                        found[row] = skipped + n_lines + 1
                    row, n_lines = row + bool(cells), reader.line_num
        except (StopIteration, UnicodeError, csv.Error, OSError):  # the file has changed, or Arrow is less strict
            pass
        units = {row: ("line", found[row]) if row in found else ("row", row + 1) for row in rows}
        return [Place(*units[row], str(self.path)) for row in rows]


def open_bytes(path: Path) -> Any:
    """Open a file, unpacked as its ending says."""
    return io.BufferedReader(_Unpacked(path), BUFFER) if path.suffix.lower() in PACKED else open(path, "rb")


class _Unpacked(io.RawIOBase):
    """The bytes of a packed file, refused once they are far more than any honest file would hold."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._path, self._n_read = path, 0
        self._file = pa.input_stream(str(path), compression=PACKED[path.suffix.lower()], buffer_size=BUFFER)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n_bytes = self._file.readinto(buffer)
        self._n_read += n_bytes
        refuse_size(too_empty(self._path, "its text", self._n_read, bytes_on_disk(self._path)), self._path)
        return int(n_bytes)

    def close(self) -> None:
        self._file.close()
        super().close()


def open_text(path: Path, encoding: str) -> TextIO:
    """Open a file as text, unpacked as its ending says."""
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, newline="")


def encoding_of(path: Path, dialect: Dialect) -> str:
    """Return the encoding that is stated, or that the first bytes of a file say; else that of UTF-8."""
    if dialect.encoding is not None:
        name = codecs.lookup(dialect.encoding).name
        return "utf-8-sig" if name == "utf-8" else name
    with open_bytes(path) as file:
        start = file.read(4)
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), "utf-8-sig")


def texts_in(column: Any, kind: Kind, dialect: Dialect) -> Column:
    """Convert an Arrow array of strings in which numbers are written as a dialect says."""
    import pyarrow.compute as pc

    if dialect.is_plain or kind == "flags":
        return texts_from_arrow(column, kind)
    if kind == "labels":
        labels, decimal = labels_from_texts(column), Dialect(decimal=dialect.decimal)  # thousands may be part of a name
        values = map(str, labels.values)
        return labels.renamed([decimal.plain(value) if dialect.point in value else value for value in values])
    if pc.all(pc.match_substring_regex(column, dialect.written().number)).as_py():
        bare = pc.replace_substring_regex(column, dialect.written().separators, "") if dialect.thousands else column
        return texts_from_arrow(pc.replace_substring(bare, dialect.point, "."), kind)
    different = column.dictionary_encode()  # each text is converted once
    found = numbers_in([dialect.plain(text) for text in different.dictionary.to_pylist()], kind)
    return found.take(np.asarray(different.indices).astype(np.intp))


def _skip(file: TextIO, n_lines: int) -> int:
    """Read the lines above the header; return their number."""
    for _ in range(n_lines):
        file.readline(_LONGEST_HEADER)
    return n_lines


def _header(path: Path, encoding: str, dialect: Dialect) -> tuple[str, tuple[str, ...]]:
    """Return the delimiter, stated or the most frequent candidate in the header, and the names of the columns."""
    longest, delimiter = max(_LONGEST_HEADER, memory_limit() // 64), dialect.delimiter
    try:
        with open_text(path, encoding) as file:
            _skip(file, dialect.n_skipped)
            line = file.readline(longest).removeprefix("\ufeff")
            if len(line) >= longest - 1:
                refuse_size(f"its first line, the header, has more than {shown(longest)}", path)
            if "\0" in line:  # every other byte of UTF-16, if the text is English
                raise undecodable(path, encoding, "the header has bytes of 0")
            delimiter = delimiter or max(",;\t", key=line.count)
            rest = iter(lambda: file.readline(longest), "")  # a cell in quotes may continue in the next line
            names = tuple(next(csv.reader(chain([line], rest), delimiter=delimiter), ()))
            below = [next(csv.reader(rest, delimiter=delimiter), []) for _ in range(dialect.n_below)]
            has_rows = bool(file.read(1))
    except UnicodeError as error:
        raise undecodable(path, encoding, str(error)) from None
    except csv.Error as error:
        raise LogError("unreadable", f"{path} cannot be read: {error}.") from None
    if not names:
        raise LogError("empty_log", f"{path} has no header line.")
    if not has_rows:
        raise LogError("empty_log", f"{path} has a header, but no row below it.")
    refuse_numbers(below, path, dialect)
    return delimiter, names


def refuse_numbers(rows: Sequence[Sequence[Any]], path: Path, dialect: Dialect) -> None:
    """Refuse to skip rows below the header that hold numbers: they are data, not units; a unit may be 1."""
    for cell in (str(cell).strip() for row in rows for cell in row if cell is not None):
        plain = numbers_in([dialect.plain(cell)], "numbers")
        if plain.odd is None and not np.isnan(plain.values[0]) and cell != "1":
            raise LogError(
                "unreadable",
                f"skip = {dialect.skip!r} leaves out rows below the header of {path}, but one of them holds a number, "
                f"{cell!r}: it seems to be data.",
                advice=f"If all rows are data: --skip {dialect.n_skipped}, in Python columns={{'skip': "
                f"{dialect.n_skipped}}}.",
            )


def _without_blanks(written: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns without the blanks around them, unless only blanks distinguish two names."""
    bare = tuple(name.strip() for name in written)
    return bare if len(set(bare)) == len(set(written)) else written


def undecodable(path: Path, encoding: str, reason: str) -> LogError:
    """Return the error about a text that is not in its encoding."""
    if encoding != "utf-8-sig":
        return LogError(
            "unreadable", f"{path} cannot be read: its text is not in {encoding} ({reason}). State another encoding."
        )
    return LogError(
        "unreadable",
        f"{path} cannot be read: its text is not in UTF-8 ({reason}); save it as UTF-8, or state its encoding: "
        f"--encoding latin-1, --encoding utf-16 and the like, in Python columns={{'encoding': 'latin-1'}}.",
        advice=f"kbrl init {shlex.quote(path.name)} proposes one.",
    )
