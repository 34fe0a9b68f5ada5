"""Where most logs start: Parquet, Arrow and Feather files as batches of columns.

Memory is bounded by the rows asked for.  Parquet is decoded page by page, Arrow files are mapped.  One exception: each
record batch of a compressed Arrow file is unpacked whole.  What that will take is checked before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kbrl.files import too_large
from kbrl.tables.cell_values import (
    Batch,
    Column,
    Kind,
    Numbers,
    RaggedError,
    as_flags,
    as_numpy,
    codes_of,
    converting,
    from_objects,
    from_times,
    labels_from_arrow,
    refuse_struct,
    refusing,
    texts_from_arrow,
)
from kbrl.tables.faults import LogError, Place, refuse_size
from kbrl.tables.stated_sizes import check_arrow, check_parquet

BUFFER = 1 << 20  # bytes that are fetched at a time: of a column of Parquet, or of a text


class ParquetTable:
    """One Parquet file, or some of its row groups."""

    is_text = False

    def __init__(self, path: Path, row_groups: Sequence[int] | None = None) -> None:
        self.path, self._row_groups = path, row_groups
        check_parquet(path, row_groups)
        self._texts: list[str] = []
        with refusing(path), self._open() as file:
            self.names = tuple(file.schema_arrow.names)
            self._texts = [leaf.path for leaf in _leaves(file.schema) if leaf.physical_type == "BYTE_ARRAY"]

    def _open(self) -> Any:
        import pyarrow.parquet as parquet

        # without a buffer, the whole column of a row group would be fetched at once; a text of a dictionary that many
        # rows name stays one text
        return parquet.ParquetFile(
            self.path, buffer_size=BUFFER, pre_buffer=False, page_checksum_verification=True, memory_map=False,
            read_dictionary=self._texts,
        )  # fmt: skip

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        options = {"columns": list(kinds), "row_groups": self._row_groups, "use_threads": False}
        with refusing(self.path), self._open() as file:
            for batch in file.iter_batches(batch_size=n_rows, **options):
                _check_types(batch, kinds, self.path)
                yield converted(batch, kinds)

    def places(self, rows: Sequence[int]) -> list[Place]:
        """Return the numbers of some rows in the whole file."""
        first = sum(self.row_group_sizes()[: self._row_groups[0]]) if self._row_groups else 0
        return [Place("row", first + row + 1) for row in rows]

    def row_group_sizes(self) -> list[int]:
        """Return the number of rows of each row group."""
        with refusing(self.path), self._open() as file:
            return [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]


class ArrowFileTable:
    """One Arrow or Feather file, in the file format or the stream format."""

    is_text = False

    def __init__(self, path: Path) -> None:
        self.path = path
        check_arrow(path)
        with refusing(path):
            self.names = tuple(self._open().schema.names)

    def _open(self) -> Any:
        import pyarrow as pa

        source = pa.memory_map(str(self.path))
        try:
            return pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        with refusing(self.path):
            file = self._open()
            n_batches = getattr(file, "num_record_batches", None)
            stored = file if n_batches is None else (file.get_batch(k) for k in range(n_batches))
            for batch in stored:
                batch.validate(full=True)  # offsets of a damaged file may point anywhere
                for start in range(0, batch.num_rows, n_rows):
                    piece = batch.slice(start, n_rows)
                    _check_types(piece, kinds, self.path)
                    yield converted(piece, kinds)


def _check_types(batch: Any, names: Iterable[str], path: Path) -> None:
    """Refuse columns of a file in which many rows can stand for one long value, which we would copy to each."""
    for name in set(names).intersection(batch.schema.names):
        check_type(batch.column(name), name, path)


def check_type(column: Any, name: str, path: Path) -> None:
    """Refuse one such column."""
    import pyarrow as pa

    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    is_shared = pa.types.is_dictionary(column.type)
    column = column.dictionary if is_shared else column
    kind = column.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        refuse_size(too_large(path, repr(name), _viewed_bytes(column)), path)
    elif _is_list(kind) and not _is_flat(kind.value_type):
        raise LogError("not_a_number", f"Lists in {name!r} must hold numbers, but they hold {kind.value_type}.")
    elif not (_is_flat(kind) or pa.types.is_struct(kind) or (_is_list(kind) and not is_shared)):
        advice = "Write the column again as numbers, texts, or lists of numbers."
        raise LogError("unreadable", f"{name!r} of {path} has a type that is not read: {kind}.", advice=advice)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_flat(kind: Any) -> bool:
    """Return whether each value is one number, time or text, with bytes of its own."""
    import pyarrow as pa

    types = pa.types
    tests = (types.is_primitive, types.is_decimal, types.is_null, types.is_string, types.is_large_string,
             types.is_binary, types.is_large_binary, types.is_fixed_size_binary)  # fmt: skip
    return any(test(kind) for test in tests)


def _viewed_bytes(column: Any) -> int:
    """Return the bytes of all texts of an array of views, each of which starts with its length."""
    views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)[column.offset : column.offset + len(column)]
    return int(views[column.is_valid().to_numpy(zero_copy_only=False), 0].sum(dtype=np.int64))


def converted(batch: Any, kinds: Mapping[str, Kind]) -> Batch:
    """Convert the columns of a record batch that ``kinds`` names."""
    missing = [name for name in kinds if name not in batch.schema.names]
    if missing:
        raise LogError("missing_column", f"All files of a log must have the same columns, but one lacks {missing}.")
    found: Batch = {}
    for name, kind in kinds.items():
        with converting(name):
            found[name] = from_arrow(batch.column(name), kind, name)
    return found


def from_arrow(column: Any, kind: Kind, name: str) -> Column:
    """Convert one Arrow array; ``name`` is the column's, for messages."""
    import pyarrow as pa

    types = pa.types
    if isinstance(column, pa.ExtensionArray):
        is_exact = getattr(column.type, "type_name", "") == "numeric"  # of PostgreSQL: numbers as texts
        column = column.storage
        if is_exact and kind != "labels":
            return texts_from_arrow(column.fill_null(""), kind)
    if types.is_struct(column.type):
        refuse_struct(name, [field.name for field in column.type], kind)
    if kind == "labels":
        return labels_from_arrow(column, name)
    if types.is_dictionary(column.type):
        return _from_dictionary(column, kind, name)
    if _is_list(column.type):
        return _lists(column, name)
    if types.is_boolean(column.type) or types.is_integer(column.type) or types.is_floating(column.type):
        values = as_numpy(column.cast(pa.float64(), safe=False))  # empty cells become NaN, large numbers are rounded
        is_checked = kind != "flags" or types.is_boolean(column.type)
        return Numbers(values) if is_checked else as_flags(values)
    if types.is_temporal(column.type) and kind == "steps":
        return from_times(_microseconds(column), kind, name)
    if types.is_decimal(column.type):
        return Numbers(as_numpy(column.cast(pa.float64())))
    if kind in ("flags", "steps") and (types.is_string(column.type) or types.is_large_string(column.type)):
        return texts_from_arrow(column.fill_null(""), kind)
    return from_objects(column.to_pylist(), kind, name)


def _from_dictionary(column: Any, kind: Kind, name: str) -> Column:
    """Convert each different value once: a small file can name a long text in many rows."""
    import pyarrow as pa

    used, places = np.unique(codes_of(column), return_inverse=True)
    values = from_arrow(column.dictionary.take(pa.array(used, mask=used < 0)), kind, name)
    assert isinstance(values, Numbers)
    return values.take(places.reshape(-1))


def _leaves(schema: Any) -> Iterator[Any]:
    return (schema.column(k) for k in range(len(schema)))


def _microseconds(column: Any) -> Any:
    """Return datetimes, durations or times of day as a NumPy array, in microseconds."""
    import pyarrow as pa

    is_moment = pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)
    of_day = pa.types.is_time(column.type)
    exact = column.cast(
        pa.timestamp("us") if is_moment else pa.time64("us") if of_day else pa.duration("us"), safe=False
    )
    counts = exact.cast(pa.int64())
    missing = np.asarray(counts.is_null().to_numpy(zero_copy_only=False))
    times = as_numpy(counts.fill_null(0)).astype("datetime64[us]" if is_moment else "timedelta64[us]")
    times[missing] = "NaT"
    return times


def _lists(column: Any, name: str) -> Numbers:
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    if len(lengths) and (lengths != lengths[0]).any():
        odd_one = int(np.argmax(lengths != lengths[0]))
        raise RaggedError(name, odd_one, int(lengths[odd_one]), int(lengths[0]))
    flat = column.flatten()
    if not (pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type) or pa.types.is_boolean(flat.type)):
        raise LogError("not_a_number", f"Lists in {name!r} must hold numbers, but they hold {flat.type}.")
    values = as_numpy(flat.cast(pa.float64(), safe=False))
    return Numbers(values.reshape(len(column), -1) if len(column) else values.reshape(0, 0))
