"""Another start: columns that are in memory, and those of .npz files: frames, mappings of names to arrays.

The arrays of an .npz file are streamed from the archive.  None is ever unpickled.  Only an array that is stored column
by column is loaded whole.
"""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Container, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from kbrl.arrays import Array
from kbrl.data.any_frame import arrow_column, columns_of
from kbrl.files import bytes_on_disk, too_empty, too_large
from kbrl.tables.arrow_files import from_arrow
from kbrl.tables.cell_values import Batch, Column, Kind, as_array, converting, from_array
from kbrl.tables.faults import LogError, refuse_size, refusing_damage

# what the archive, its compression and the headers of its arrays raise for damaged bytes
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, tokenize.TokenError, EOFError, OSError, ValueError, KeyError,
    SyntaxError, TypeError, NotImplementedError, OverflowError, RuntimeError,
)  # fmt: skip


class FrameTable:
    """A frame of any library, or a mapping of names to arrays."""

    is_text = False

    def __init__(self, frame: Any) -> None:
        labelled = columns_of(frame) or []
        self.names = tuple(str(label) for label, _ in labelled)
        self._columns = {str(label): column for label, column in labelled}
        if isinstance(frame, Mapping):
            arrays = {name: as_array(column) for name, column in self._columns.items()}
            check_lengths({name: len(column) for name, column in arrays.items()}, "The mapping")
            n = n_environments({name: column.shape for name, column in arrays.items()})
            self._columns = arrays if n is None else _rows_of_buffer(arrays, n)
            self.names = tuple(self._columns)
        self._n_rows = len(next(iter(self._columns.values()), ()))
        self._converted: dict[str, Any] = {}

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        for start in range(0, self._n_rows, n_rows):
            yield {name: self._piece(name, kind, start, n_rows) for name, kind in kinds.items()}

    def _piece(self, name: str, kind: Kind, start: int, n_rows: int) -> Column:
        if name not in self._converted:
            held = self._columns[name]
            found = arrow_column(held)
            self._converted[name] = as_array(held) if found is None else found
        column = self._converted[name]
        with converting(name):
            if isinstance(column, np.ndarray):
                return from_array(column[start : start + n_rows], kind, name)
            return from_arrow(column.slice(start, n_rows), kind, name)


class LazyTable:
    """A LazyFrame of polars, computed anew in each pass, some rows at a time."""

    is_text = False

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.names = tuple(frame.collect_schema().names())

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        chosen = self._frame.select(list(kinds))
        in_batches = getattr(chosen, "collect_batches", None)  # older versions of polars only collect all at once
        pieces = [chosen.collect()] if in_batches is None else in_batches(chunk_size=n_rows, maintain_order=True)
        for piece in pieces:
            yield from FrameTable(piece).batches(kinds, n_rows)


class NpzTable:
    """An .npz file with one array per column, all of the same length."""

    is_text = False

    def __init__(self, path: Path) -> None:
        self.path = path
        with refusing_damage(path, _DAMAGED), zipfile.ZipFile(path) as archive:
            n_stated = sum(member.file_size for member in archive.infolist())
            refuse_size(too_empty(path, "the archive", n_stated, bytes_on_disk(path)), path)
            shapes = {name: _member(archive, name).shape for name in archive.namelist() if name.endswith(".npy")}
        held = {name.removesuffix(".npy"): shape for name, shape in shapes.items() if shape}
        lengths = {name: shape[0] for name, shape in held.items()}
        check_lengths(lengths, str(path))
        self._n_rows, self._n_environments = next(iter(lengths.values()), 0), n_environments(held)
        self._steps = _counts_steps(lengths, self._n_environments)
        self.names = (*lengths, *self._steps)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time; a replay buffer environment by environment."""
        n_rows = max(1, n_rows // (self._n_environments or 1))
        for place in range(self._n_environments or 1):
            with refusing_damage(self.path, _DAMAGED):
                yield from self._batches_of(place, kinds, n_rows)

    def _batches_of(self, place: int, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        with ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(self.path))
            members = {k: self._opened(stack, archive, f"{k}.npy", n_rows) for k in kinds if k not in self._steps}
            for start in range(0, self._n_rows, n_rows):
                stop = min(start + n_rows, self._n_rows)
                arrays = {name: _rows(member, stop - start) for name, member in members.items()}
                if self._n_environments is not None:
                    arrays = {name: _flat(array[:, place]) for name, array in arrays.items()}
                arrays |= dict.fromkeys(self._steps, np.arange(start, stop))
                yield {name: from_array(arrays[name], kind, name) for name, kind in kinds.items()}

    def _opened(self, stack: ExitStack, archive: zipfile.ZipFile, name: str, n_rows: int) -> _Member:
        """Open an array of which ``n_rows`` rows at a time fit into memory; the stack closes it."""
        member = _member(archive, name)
        stack.enter_context(member.file)
        n_at_once = member.shape[0] if member.is_by_columns else min(n_rows, member.shape[0])
        n_bytes = n_at_once * math.prod(member.shape[1:]) * max(member.dtype.itemsize, 8)
        refuse_size(too_large(self.path, repr(name), n_bytes), self.path)
        return _row_by_row(member)


def n_environments(shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Return the number of environments of a replay buffer of Stable-Baselines3, None if the arrays are not of one.

    Its arrays have the shapes (n_steps, n_environments, ...).
    """
    rewards, observed = shapes.get("rewards", ()), shapes.get("observations", ())
    is_buffer = len(rewards) == 2 and len(observed) > 2 and all(s[1:2] == rewards[1:] for s in shapes.values())
    if not is_buffer:
        return None
    if rewards[1] != 1 and "next_observations" not in shapes:
        raise LogError(
            "missing_column",
            f"A replay buffer of {rewards[1]} environments must have next_observations, but it has none: its rows take "
            f"turns, so that the next row is of another episode.",
            columns=["next_observations"],
        )
    return rewards[1]


def _counts_steps(names: Container[str], n_environments: int | None) -> tuple[str, ...]:
    """Return the name of a column with the steps of a replay buffer, which tell where its next environment begins."""
    return () if (n_environments or 1) == 1 or "step" in names else ("step",)


def _rows_of_buffer(arrays: Mapping[str, Array], n_environments: int) -> dict[str, Array]:
    """Return the columns of a replay buffer, environment by environment: the rows of an episode follow each other."""
    rows = {k: _flat(array.swapaxes(0, 1).reshape(-1, *array.shape[2:])) for k, array in arrays.items()}
    steps = np.tile(np.arange(len(next(iter(arrays.values())))), n_environments)
    return rows | dict.fromkeys(_counts_steps(arrays, n_environments), steps)


def _flat(rows: Array) -> Array:
    """Return observations with one row each, (n,) or (n, entries)."""
    return rows if rows.ndim < 3 else rows.reshape(len(rows), -1)


def check_lengths(lengths: Mapping[str, int], what: str) -> None:
    """Refuse columns of unequal length."""
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise LogError("uneven_columns", f"{what} must have one entry per row in every column, but {counted}.")


class _Member(NamedTuple):
    """An array of an archive, opened at its first entry."""

    file: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_by_columns: bool  # in the order of Fortran, as DataFrame.to_numpy() gives it


def _member(archive: zipfile.ZipFile, name: str) -> _Member:
    """Open an array of the archive and read its header, up to the first row."""
    file = archive.open(name)
    try:
        return _at_first_row(file, name)
    except BaseException:
        file.close()
        raise


def _at_first_row(file: IO[bytes], name: str) -> _Member:
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, is_by_columns, dtype = read(file)
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects, which would have to be unpickled")
    if min(shape, default=0) < 0:
        raise ValueError(f"{name} states the shape {shape}")
    return _Member(file, shape, dtype, is_by_columns and len(shape) > 1)


def _row_by_row(member: _Member) -> _Member:
    """Return the array with its rows one after the other."""
    if not member.is_by_columns:
        return member
    # Loaded whole: the first row is spread over the file, up to its end.
    array = _entries(member, math.prod(member.shape)).reshape(member.shape, order="F")
    return member._replace(file=io.BytesIO(array.tobytes()), is_by_columns=False)


def _rows(member: _Member, count: int) -> Array:
    row = member.shape[1:]
    return _entries(member, count * math.prod(row)).reshape(count, *row)


def _entries(member: _Member, count: int) -> Array:
    n_bytes = count * member.dtype.itemsize
    read = member.file.read(n_bytes)
    if len(read) < n_bytes:
        raise EOFError("an array is cut short")
    return np.frombuffer(read, dtype=member.dtype)
