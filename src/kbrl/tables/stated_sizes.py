"""Before memory is taken: what Parquet and Arrow files state about their sizes, read without the library that obeys it.

A small file can state large arrays, and pyarrow takes the memory for them before it looks at the data.  It also ends
the process when it is asked for the columns of a damaged footer.  So we read the sizes ourselves.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kbrl.files import bytes_on_disk, too_empty, too_large
from kbrl.tables.faults import LogError, refuse_size


def check_parquet(path: Path, row_groups: Sequence[int] | None = None) -> None:
    """Refuse a file that states far more rows than it can hold, or values or a page that do not fit into memory."""
    try:
        footer = _footer(path)
        if footer is None:
            return  # not Parquet at all: pyarrow says so
        refuse_size(too_empty(path, "the file", 8 * footer[3], bytes_on_disk(path)), path)
        groups, lengths = footer.get(4, []), _fixed_lengths(footer[2])
        for group in groups if row_groups is None else (groups[k] for k in row_groups):
            for chunk, length in zip(group[1], lengths, strict=True):
                name, n_values, n_bytes = (chunk[3][field] for field in (3, 5, 6))
                n_bytes = max(n_bytes, 8 * n_values if n_values > group[3] else 0)  # pages are unpacked whole; lists
                n_bytes = max(n_bytes, _largest_page(path, chunk[3]), length * n_values)
                refuse_size(too_large(path, repr(b".".join(name).decode("utf-8", "replace")), n_bytes), path)
    except LogError:
        raise
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, RecursionError, struct.error):
        _refuse_unknown_sizes(path)  # pyarrow may read on where we cannot


def _refuse_unknown_sizes(path: Path) -> None:
    raise LogError("unreadable", f"{path} cannot be read: what it says about its own sizes is damaged.")


def _fixed_lengths(schema: list[dict[int, Any]]) -> list[int]:
    """Return the bytes that each value of a column takes by its type, 0 where values differ or are small.

    Such a value may be stored once, in a dictionary, and is copied to each row that names it.
    """
    leaves = [element for element in schema if not element.get(5)]
    return [element.get(2, 0) if element.get(1) == _FIXED_LENGTH else 0 for element in leaves]


def _largest_page(path: Path, chunk: dict[int, Any]) -> int:
    """Return the bytes that the largest page of a column has when it is unpacked, as the pages themselves say."""
    largest = 0
    with open(path, "rb") as file, suppress(IndexError, KeyError, TypeError, ValueError, OSError, RecursionError):
        place = min(chunk[field] for field in (9, 11) if chunk.get(field, 0) > 0)  # the first data or dictionary page
        end = place + chunk[7]
        while place < end:
            page, length = _page(file, place)
            largest = max(largest, page[2])
            place += length + max(page[3], 0)
    return largest  # up to where the pages are damaged, which pyarrow notices if it reads them


def _page(file: Any, place: int) -> tuple[dict[int, Any], int]:
    """Return the header of a page, and how many bytes it takes; statistics may make it long."""
    for most in (1 << 9, 1 << 24):
        file.seek(place)
        header = _Thrift(file.read(most))
        with suppress(IndexError):
            return header.read(_STRUCT, 0), header.place
    raise IndexError("cut short")


def _footer(path: Path) -> dict[int, Any] | None:
    """Return the metadata of a Parquet file, by the numbers of the fields in its specification; None if it is none."""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(-8, os.SEEK_END)
        length, end = struct.unpack("<I4s", file.read(8))
        if end == b"PAR1":
            file.seek(-8 - length, os.SEEK_END)
            return dict(_Thrift(file.read(length)).read(_STRUCT, 0))
    return None


_FIXED_LENGTH = 7  # a type of Parquet: values of a stated number of bytes each
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12


class _Thrift:
    """Reads Thrift's compact protocol, in which Parquet writes its metadata."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self.place = raw, 0

    def _take(self, length: int) -> bytes:
        taken = self._raw[self.place : self.place + length]
        if len(taken) < length:
            raise IndexError("cut short")
        self.place += length
        return taken

    def _number(self) -> int:
        """Read a whole number of seven bits per byte."""
        number = shift = 0
        while shift < 70:
            (byte,) = self._take(1)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return number

    def _signed(self) -> int:
        number = self._number()
        return (number >> 1) ^ -(number & 1)

    def read(self, kind: int, depth: int) -> Any:
        """Read a value of a kind."""
        if depth > 20:
            raise RecursionError
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._take(1)[0]
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._number())
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _STRUCT:
            return self._fields(depth)
        if kind == _MAP:
            return self._map(depth)
        return self._signed()

    def _map(self, depth: int) -> None:
        """Pass over a map: Parquet's metadata have none, but pyarrow passes over what it does not know."""
        size = self._number()
        kinds = self._take(1)[0] if size else 0
        for kind in (kinds >> 4, kinds & 15) * size:
            self.read(_BYTE if kind in (_TRUE, _FALSE) else kind, depth + 1)

    def _list(self, depth: int) -> list[Any]:
        (head,) = self._take(1)
        size = head >> 4 if head >> 4 < 15 else self._number()
        kind = _BYTE if head & 15 in (_TRUE, _FALSE) else head & 15
        return [self.read(kind, depth + 1) for _ in range(size)]

    def _fields(self, depth: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while True:
            (head,) = self._take(1)
            if head == 0:
                return found
            number = number + (head >> 4) if head >> 4 else self._signed()
            found[number] = self.read(head & 15, depth + 1)


_DICTIONARY, _RECORDS = 2, 3  # kinds of messages of an Arrow file
_CONTINUED = 0xFFFFFFFF  # stands before each message
_PACKED_BEFORE = b"ARROW:experimental_compression"  # version 0.17 of Arrow notes it in words


def check_arrow(path: Path) -> None:
    """Refuse an Arrow file one of whose record batches does not fit into memory once it is unpacked."""
    n_rows = 0
    try:
        with open(path, "rb") as file:
            for start in _message_starts(file):
                length, n_bytes = _sizes_of_batch(file, start)
                refuse_size(too_large(path, "a record batch", n_bytes), path)
                n_rows += length
                refuse_size(too_empty(path, "the file", 8 * n_rows, bytes_on_disk(path)), path)
    except OSError:
        return  # not there: pyarrow says so
    except (IndexError, OverflowError, struct.error):
        _refuse_unknown_sizes(path)


def _message_starts(file: Any) -> Iterator[int]:
    """Yield where each message starts: as the footer says, or one after the other in a stream."""
    size = file.seek(0, os.SEEK_END)
    if _bytes_at(file, max(size - 6, 0), min(size, 6)) == b"ARROW1":  # the end decides, as for pyarrow
        length = struct.unpack("<i", _bytes_at(file, size - 10, 4))[0]
        footer = _Flatbuffer(_bytes_at(file, size - 10 - length, length))
        for field in (2, 3):  # dictionaries and record batches
            for place in footer.structs(footer.root, field, 24):
                yield footer.numbers("<q", place)[0]
    if _bytes_at(file, 0, min(size, 6)) != b"ARROW1":
        yield from _messages_of_stream(file, size)


def _messages_of_stream(file: Any, size: int) -> Iterator[int]:
    start = 0
    while start <= size - 8:  # an end may be marked by four bytes
        message, head = _message(file, start)
        if message is None:
            return
        yield start
        place = message.field(message.root, 3)
        body = message.numbers("<q", place)[0] if place else 0
        if body < 0:
            raise IndexError("a message of no length")
        start += head + body


def _message(file: Any, start: int) -> tuple[_Flatbuffer | None, int]:
    """Return the head of a message, and how many bytes come before its body; None at the end of a stream."""
    first, length = struct.unpack("<Ii", _bytes_at(file, start, 8))
    before = 8 if first == _CONTINUED else 4  # before version 0.15 of Arrow
    length = length if first == _CONTINUED else first
    return (_Flatbuffer(_bytes_at(file, start + before, length)) if length else None), before + length


def _sizes_of_batch(file: Any, start: int) -> tuple[int, int]:
    """Return how many rows a message holds, and how many bytes its buffers have when they are unpacked."""
    message, head = _message(file, start)
    if message is None:
        return 0, 0
    kind = message.numbers("<B", message.field(message.root, 1) or 0)[0]
    table = message.follow(message.field(message.root, 2) or 0)
    if kind == _DICTIONARY:
        table = message.follow(message.field(table, 1) or 0)
    elif kind != _RECORDS:
        return 0, 0
    length = message.field(table, 0)
    n_rows = message.numbers("<q", length)[0] if length else 0
    is_packed, n_bytes = message.field(table, 3) is not None or message.holds(_PACKED_BEFORE), 0
    for place in message.structs(table, 2, 16):
        offset, n_stored = message.numbers("<qq", place)
        stated = struct.unpack("<q", _bytes_at(file, start + head + offset, 8))[0] if is_packed and n_stored else -1
        n_bytes += n_stored if stated == -1 else stated & 0xFFFFFFFFFFFFFFFF  # a negative one is refused as well
    return n_rows, n_bytes


def _bytes_at(file: Any, place: int, length: int) -> bytes:
    if place < 0 or length < 0:
        raise IndexError("outside of the file")
    file.seek(place)
    found = file.read(length)
    if len(found) < length:
        raise IndexError("cut short")
    return bytes(found)


class _Flatbuffer:
    """Reads the tables in which Arrow writes its metadata."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self.root = self.follow(0)

    def numbers(self, form: str, place: int) -> tuple[Any, ...]:
        """Return the numbers at a place."""
        if place < 0:
            raise IndexError("outside of the message")
        return struct.unpack_from(form, self._raw, place)

    def holds(self, text: bytes) -> bool:
        """Return whether a text is anywhere in the message."""
        return text in self._raw

    def follow(self, place: int) -> int:
        """Return where the offset at a place leads."""
        return place + int(self.numbers("<I", place)[0])

    def field(self, table: int, number: int) -> int | None:
        """Return where a field of a table is; None if it has its default."""
        layout = table - self.numbers("<i", table)[0]
        if 4 + 2 * number >= self.numbers("<H", layout)[0]:
            return None
        offset = self.numbers("<H", layout + 4 + 2 * number)[0]
        return table + offset if offset else None

    def structs(self, table: int, number: int, size: int) -> Iterator[int]:
        """Yield where each entry of a vector of structs is."""
        place = self.field(table, number)
        if place is not None:
            start = self.follow(place)
            yield from (start + 4 + size * k for k in range(self.numbers("<I", start)[0]))
