"""Frames of any library as columns by label, through the Arrow PyCapsule interface (``__arrow_c_stream__``).

pandas, polars, Arrow, DuckDB and others speak it, and kbrl needs pyarrow anyway, so no library needs its own code.  Two
exceptions: a lazy frame of polars is collected, and answers become a series of the library they came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kbrl.arrays import Array
from kbrl.data.column_names import listing


def is_frame(source: Any) -> bool:
    """Return whether a source has columns with labels: a frame, an Arrow table or reader, or a mapping."""
    if isinstance(source, Mapping) or is_lazy(source):
        return True
    return hasattr(source, "__arrow_c_stream__") and (hasattr(source, "columns") or hasattr(source, "schema"))


def is_lazy(source: Any) -> bool:
    """Return whether a source is a lazy frame of polars: the rows are computed when they are collected."""
    return hasattr(source, "collect_schema") and hasattr(source, "lazy") and not hasattr(source, "__arrow_c_stream__")


def columns_of(frame: Any) -> list[tuple[Any, Any]] | None:
    """Return the columns of a frame with their labels, in their order; None for anything but a frame.

    The index of a frame is not a column.  Labels may repeat.  A list of rows with labels is a frame, too: of mappings,
    series, or named tuples.

    >>> import pyarrow as pa
    >>> [(label, column.to_pylist()) for label, column in columns_of(pa.table({"age": [61, 47]}))]
    [('age', [61, 47])]
    """
    if isinstance(frame, (list, tuple)) and frame and (rows := _labelled_rows(frame)) is not None:
        labels = dict.fromkeys(label for row in rows for label in row)
        return [(label, [row.get(label) for row in rows]) for label in labels]
    if not is_frame(frame):
        return None
    if is_lazy(frame):
        frame = frame.collect()
    if isinstance(frame, Mapping) or hasattr(frame, "iloc"):
        return list(frame.items())
    if hasattr(frame, "get_columns"):
        return list(zip(frame.columns, frame.get_columns()))
    import pyarrow as pa

    table = pa.table(frame)
    return list(zip(table.column_names, table.columns))


def labelled(row: Any) -> Mapping[Any, Any] | None:
    """Return a row whose cells have labels, a mapping, a series or a named tuple, as a mapping; None for others."""
    if isinstance(row, Mapping):
        return row
    if isinstance(row, tuple):
        return row._asdict() if hasattr(row, "_asdict") else None
    if not (hasattr(row, "items") and hasattr(row, "index")) or hasattr(row, "columns"):
        return None
    cells = list(row.items())
    if len(dict(cells)) < len(cells):
        repeated = [name for name, count in Counter(str(label) for label, _ in cells).items() if count > 1]
        raise ValueError(f"Columns of states must have different names, but {listing(repeated)} occur more than once.")
    return dict(cells)


def _labelled_rows(rows: Sequence[Any]) -> list[Mapping[Any, Any]] | None:
    """Return rows as mappings if all of them have labels; None otherwise."""
    found = []
    for row in rows:
        if (one := labelled(row)) is None:
            return None
        found.append(one)
    return found


def are_numbered(labels: Iterable[Any]) -> bool:
    """Return whether columns have no names, but only whole numbers, as those of a frame made from an array."""
    return all(isinstance(label, (int, np.integer)) and not isinstance(label, bool) for label in labels)


def arrow_column(column: Any) -> Any:
    """Return a column of a frame as one Arrow array; None for anything else, and for untyped Python objects."""
    if not hasattr(column, "__arrow_c_stream__"):
        return None
    import pyarrow as pa

    try:
        array = pa.chunked_array(column).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None
    are_objects = pa.types.is_fixed_size_binary(array.type)  # polars gives their addresses
    if are_objects or getattr(array.type, "extension_name", "").startswith("pandas."):
        return None
    if pa.types.is_dictionary(array.type) and pa.types.is_string_view(array.type.value_type):
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


def as_series(frame: Any, values: Array) -> Any:
    """Return values, (n,), as a series of the frame's library, with its index; unchanged if it is not a frame."""
    library = type(frame).__module__.split(".")[0]
    if library == "pandas" and is_frame(frame):
        import pandas

        kept = object if values.dtype == object else None  # else None among words would become NaN
        return pandas.Series(values, index=frame.index, name="action", dtype=kept)
    if library == "polars" and is_frame(frame):
        import polars

        return polars.Series("action", np.asarray(values).tolist())
    return values
