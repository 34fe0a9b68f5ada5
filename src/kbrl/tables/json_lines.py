"""Another start: JSON lines, one object per line, as batches of columns.

The text is read and parsed by Arrow, block by block.  A key is a column, whether or not each line has it; to find all
keys, the file is read once when it is opened.  A field of an object within a line is a column such as observation_x.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kbrl.data.column_names import listing
from kbrl.files import too_large
from kbrl.tables.arrow_files import BUFFER, converted
from kbrl.tables.cell_values import Batch, Kind, refusing
from kbrl.tables.faults import LogError, Place, refuse_size
from kbrl.tables.text_files import PLAIN, Dialect, encoding_of, open_bytes, open_text, undecodable

JSON_ENDINGS = (".jsonl", ".ndjson")
_LONGEST = 1 << 24  # bytes of a line
_DEEPEST = 64  # lists and objects within each other
_MOST_KEYS = 50_000  # of a file
# A text, also one that nothing closes: if it failed there, the search would start again at each quote within it.
_TEXT = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)(?:"|\\?\Z)', re.DOTALL)
_KEY = re.compile(_TEXT.pattern + rb"(\s*:)?", re.DOTALL)  # a text, and whether it is a key


class JsonLinesTable:
    """One file of JSON lines."""

    is_text = False

    def __init__(self, path: Path, dialect: Dialect = PLAIN) -> None:
        self.path = path
        with refusing(path):
            self._encoding = encoding_of(path, dialect)
            names: dict[str, None] = {}
            for block in self._blocks(self._check_keys):
                names |= dict.fromkeys(block.column_names)
                _refuse_many(len(names), path)
            self.names = tuple(names)
        if not self.names:
            raise LogError("empty_log", f"{path} has no object with keys.")

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        import pyarrow as pa

        with refusing(self.path):
            for block in self._blocks():
                for name in kinds:
                    if name not in block.column_names:
                        block = block.append_column(name, pa.nulls(block.num_rows))
                for batch in block.select(list(kinds)).to_batches(max_chunksize=n_rows):
                    yield converted(batch, kinds)

    def places(self, rows: Sequence[int]) -> list[Place]:
        """Return the lines of some rows; an empty line is not a row."""
        wanted, found, row = set(rows), dict[int, int](), 0
        with open_text(self.path, self._encoding) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    found |= {row: number} if row in wanted else {}
                    row += 1
        return [Place("line", found.get(row, row + 1), str(self.path)) for row in rows]

    def _check_keys(self, text: bytes) -> None:
        """Refuse lines that have few keys each, but different ones: each key becomes a column with a cell per line."""
        n_lines, most = text.count(b"\n") + 1, text.count(b":")
        if most <= _MOST_KEYS and too_large(self.path, "", 8 * n_lines * most) is None:
            return
        n_keys = len(_keys(text))
        _refuse_many(n_keys, self.path)
        what = f"one table of {n_lines:,} lines and {n_keys:,} different keys"
        refuse_size(too_large(self.path, what, 8 * n_lines * n_keys), self.path)

    def _blocks(self, check: Callable[[bytes], None] | None = None) -> Iterator[Any]:
        """Yield Arrow tables of some lines each, the fields of objects as columns."""
        for text in self._texts():
            if _depth(text) > _DEEPEST:
                reason = f"lists and objects are nested more than {_DEEPEST} deep"
                raise LogError("unreadable", f"{self.path} cannot be read: {reason}.")
            if check is not None:
                check(text)
            table = _parsed(text)
            while any(_is_struct(field) for field in table.schema):
                names = [name for field in table.schema for name in _flat_names(field)]
                table = table.flatten().rename_columns(names)
            _refuse_repeated(table.column_names, self.path)
            if table.num_rows:
                yield table

    def _texts(self) -> Iterator[bytes]:
        """Yield whole lines, about a block at a time, in UTF-8."""
        rest = b""
        is_plain = self._encoding == "utf-8-sig"
        with open_bytes(self.path) if is_plain else _Recoded(self.path, self._encoding) as file:
            while piece := file.read(BUFFER):
                whole, newline, rest = (rest + piece).rpartition(b"\n")
                if newline and whole.strip():
                    yield whole.removeprefix(b"\xef\xbb\xbf")
                if len(rest) > _LONGEST:
                    reason = f"a line is longer than {_LONGEST:,} bytes"
                    raise LogError("unreadable", f"{self.path} cannot be read: {reason}.")
        if rest.strip():
            yield rest.removeprefix(b"\xef\xbb\xbf")


class _Recoded(io.RawIOBase):
    """A text file as bytes of UTF-8."""

    def __init__(self, path: Path, encoding: str) -> None:
        self._file, self._path, self._encoding = open_text(path, encoding), path, encoding

    def read(self, size: int = -1) -> bytes:
        try:
            return self._file.read(size).encode()
        except UnicodeError as error:
            raise undecodable(self._path, self._encoding, str(error)) from None

    def close(self) -> None:
        self._file.close()


def _depth(text: bytes) -> int:
    """Return how deep lists and objects are nested: Arrow follows them by recursion, until the process ends."""
    if text.count(b"[") + text.count(b"{") <= _DEEPEST:
        return 0
    signs = np.frombuffer(_TEXT.sub(b"", text), np.uint8)
    steps = np.isin(signs, list(b"[{")).astype(np.int8) - np.isin(signs, list(b"]}")).astype(np.int8)
    level = np.cumsum(steps, dtype=np.int64)
    return int((level - np.minimum.accumulate(level)).max(initial=0)) + 1


def _parsed(text: bytes) -> Any:
    """Return the lines as an Arrow table; a text that looks like a time stays a text, whatever its neighbours are."""
    import pyarrow as pa
    import pyarrow.json as arrow_json

    options = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    table = arrow_json.read_json(io.BytesIO(text), read_options=options)
    times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    if times:
        schema = arrow_json.ParseOptions(explicit_schema=pa.schema([(name, pa.string()) for name in times]))
        table = arrow_json.read_json(io.BytesIO(text), read_options=options, parse_options=schema)
    return table


def _is_struct(field: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_struct(field.type)


def _flat_names(field: Any) -> list[str]:
    """Return the names of the columns that a field becomes: observation_x for x of an observation."""
    return [f"{field.name}_{inner.name}" for inner in field.type] if _is_struct(field) else [field.name]


def _refuse_repeated(names: list[str], path: Path) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        message = f"Keys of {path} must become different columns, but {listing(repeated)} occur more than once."
        raise LogError("repeated_column", message, columns=repeated, advice="Rename one of the keys.")


def _keys(text: bytes) -> set[bytes]:
    return {found[1] for found in _KEY.finditer(text) if found[2]}


def _refuse_many(n_keys: int, path: Path) -> None:
    if n_keys > _MOST_KEYS:
        message = f"{path} may have at most {_MOST_KEYS:,} different keys, but it has {n_keys:,} or more."
        raise LogError("unreadable", message, advice="Write one object per row, with the same keys in each.")
