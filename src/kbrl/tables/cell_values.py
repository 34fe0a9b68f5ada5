"""The first step: the cells of a column, however they are stored, become numbers, steps, flags or labels.

What cannot be converted is marked, not refused: the reader refuses it later with its place, the check counts it.
True and false are the numbers 1 and 0 everywhere; yes, no, ja, nein and the like are words, except in flags.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.data.names import is_whole
from kbrl.data.state_column import as_float, is_missing, seconds_since_1970
from kbrl.data.values import FALSE, TRUE
from kbrl.tables.faults import LogError, refusing_damage

Kind = Literal["numbers", "steps", "flags", "labels"]  # steps are numbers or times, as seconds
BLANKS = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"})
NO_LABELS = BLANKS - {"none"}  # "none" is a usual name for doing nothing
BOOLEANS = {"true": 1.0, "false": 0.0}
FLAGS = dict.fromkeys(TRUE - {"1"}, 1.0) | dict.fromkeys(FALSE - {"0"}, 0.0)
_LONGEST_SHOWN = 80  # characters of a cell that a message quotes


@dataclass(frozen=True, eq=False)
class Numbers:
    """Numbers or flags of some rows; an empty cell is NaN, and a cell that is not a number is also marked as odd."""

    values: Floats  # (n,), or (n, width) for a column of lists
    odd: Booleans | None = None  # (n,)
    texts: tuple[str, ...] = ()  # what the odd cells contain, in their order
    is_time: bool = False  # the values are seconds

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Numbers:
        if self.odd is None:
            return Numbers(self.values[rows], is_time=self.is_time)
        first, last = (int(self.odd[:row].sum()) for row in rows.indices(len(self))[:2])
        return Numbers(self.values[rows], self.odd[rows], self.texts[first:last], self.is_time)

    def take(self, rows: Integers) -> Numbers:
        """Return the cells of some rows, in any order, repeated if a row is named repeatedly."""
        if self.odd is None:
            return Numbers(self.values[rows], is_time=self.is_time)
        odd, places = self.odd[rows], np.cumsum(self.odd) - 1
        texts = tuple(self.texts[place] for place in places[rows[odd]].tolist())
        return Numbers(self.values[rows], odd, texts, self.is_time)

    def quote(self, row: int) -> str:
        """Return the text of a cell without a number, for a message."""
        if self.odd is None or not self.odd[row]:
            return "nothing"
        return self.texts[int(self.odd[:row].sum())]


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of some rows, as places in a tuple of values; -1 if there is none."""

    codes: Integers  # (n,)
    values: tuple[Hashable, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> Labels:
        return Labels(self.codes[rows], self.values)

    def take(self, rows: Integers) -> Labels:
        """Return the labels of some rows, in any order, repeated if a row is named repeatedly."""
        return Labels(self.codes[rows], self.values)

    def renamed(self, texts: Sequence[str]) -> Labels:
        """Return the same rows with a text in place of each value; a text that is no label is missing."""
        named = labels_in(texts)
        return Labels(np.append(named.codes, -1)[self.codes], named.values)  # the last entry serves the code -1

    def taken(self) -> tuple[Integers, Integers]:
        """Return the codes that occur and how often each does."""
        counts = np.bincount(self.codes + 1, minlength=len(self.values) + 1)[1:]
        codes = np.flatnonzero(counts)
        return codes, counts[codes]


class RaggedError(Exception):
    """A list of another length than the first one; the caller, who knows the number of the row, reports it."""

    def __init__(self, name: str, row: int, length: int, usual: int) -> None:
        super().__init__(name, row, length, usual)
        self.name, self.row, self.length, self.usual = name, row, max(length, 0), max(usual, 0)


Column = Numbers | Labels
Batch = dict[str, Column]


def join_columns(parts: Sequence[Column]) -> Column:
    """Return the pieces of one column as one column."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Labels):
        return _join_labels([part for part in parts if isinstance(part, Labels)])
    numbers = [part for part in parts if isinstance(part, Numbers)]
    odd = None
    if any(part.odd is not None for part in numbers):
        odd = np.concatenate([np.zeros(len(p), dtype=bool) if p.odd is None else p.odd for p in numbers])
    texts = tuple(text for part in numbers for text in part.texts)
    return Numbers(np.concatenate([part.values for part in numbers]), odd, texts, numbers[0].is_time)


def _join_labels(parts: Sequence[Labels]) -> Labels:
    places: dict[tuple[type, Hashable], int] = {}
    codes = []
    for part in parts:
        # True == 1 == 1.0 in a dictionary, hence the type; the last entry serves the code -1
        moved = np.array([places.setdefault((type(v), v), len(places)) for v in part.values] + [-1], dtype=np.intp)
        codes.append(moved[part.codes])
    return Labels(np.concatenate(codes), tuple(value for _, value in places))


def stripped(column: Column) -> Column:
    """Return labels from a text file without the blanks around them; numbers and flags have none."""
    if isinstance(column, Numbers):
        return column
    return column.renamed([str(value).strip() for value in column.values])


def as_array(values: Any) -> Array:
    """Return an array; whole numbers that NumPy would round to floats, and numbers among words, stay Python objects."""
    array = np.asarray(values)
    if array.dtype.kind == "U" and array.ndim == 1 and not all(isinstance(value, str) for value in values):
        return np.array(values, dtype=object)
    if array.dtype.kind == "f" and isinstance(values, (list, tuple)) and all(map(is_whole, values)):
        return np.array(values, dtype=object)
    return array


def from_array(array: Array, kind: Kind, name: str) -> Column:
    """Convert a NumPy array, from an .npz file or a frame; ``name`` is the column's, for messages."""
    if array.dtype.kind == "O":
        return from_objects(array.tolist(), kind, name)
    if kind == "labels":
        return _label_array(squeezed(array, name))
    if array.dtype.kind in "mM":
        return from_times(array, kind, name)
    if array.dtype.kind not in "biuf":
        return from_objects(array.tolist(), kind, name)
    if array.ndim > 2 or (kind == "flags" and array.ndim > 1 and array.shape[1] != 1):
        raise LogError("wrong_width", f"{name!r} must have one or two dimensions, but its shape is {array.shape}.")
    values = np.ascontiguousarray(array, dtype=np.float64)
    return as_flags(values.reshape(len(values))) if kind == "flags" else Numbers(values)


def from_times(array: Array, kind: Kind, name: str) -> Column:
    """Convert datetimes or durations: as steps they are seconds; they are never numbers."""
    exact = array.astype(f"{array.dtype.kind}8[us]")
    if kind != "steps":
        return from_objects(exact.tolist(), kind, name)
    return Numbers(np.where(np.isnat(exact), np.nan, exact.astype(np.int64) / 1e6), is_time=True)


def refuse_struct(name: str, fields: Iterable[Any], kind: Kind) -> NoReturn:
    """Refuse a column whose cells have named fields."""
    listed = ", ".join(map(str, fields))
    if kind == "labels":
        raise LogError(
            "vector_action",
            f"{name!r} must hold one label per row, but each cell is a struct of the fields {listed}.",
            columns=[name],
        )
    raise LogError(
        "not_a_number",
        f"{name!r} must hold numbers or lists of numbers, but each cell is a struct of the fields {listed}. Make each "
        f"field a column of its own, such as observation_x.",
        columns=[name],
    )


def squeezed(array: Array, name: str) -> Array:
    """Return an array of shape (n,) from (n,) or (n, 1); longer rows cannot be labels and are refused."""
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    if array.ndim != 1:
        raise LogError(
            "vector_action", f"{name!r} must hold one label per row, but its shape is {array.shape}.", columns=[name]
        )
    return array


def _label_array(array: Array) -> Labels:
    if array.dtype.kind == "M":
        array = array.astype("U")
    values, codes = np.unique(array, return_inverse=True)
    codes = codes.reshape(-1).astype(np.intp)
    if array.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    if array.dtype.kind == "f":
        codes[np.isnan(array)] = -1
    return Labels(codes, tuple(values.tolist()))


def from_objects(cells: Sequence[Any], kind: Kind, name: str) -> Column:
    """Convert Python objects, from a frame or a column of mixed cells."""
    struct = next((cell for cell in cells if isinstance(cell, Mapping)), None)
    if struct is not None:
        refuse_struct(name, struct, kind)
    if kind == "labels":
        return _label_objects(cells, name)
    if any(is_list(cell) for cell in cells):
        return from_lists(cells, name)
    if kind == "steps" and isinstance(next((cell for cell in cells if not is_missing(cell)), None), (date, timedelta)):
        return replace(_parsed(cells, _seconds_of), is_time=True)
    if kind == "steps" and all(isinstance(cell, str) or is_missing(cell) for cell in cells):
        return numbers_in(["" if is_missing(cell) else cell for cell in cells], kind)
    parse: Callable[[Any], float] = _flag_of if kind == "flags" else _number_of
    return _parsed(cells, parse)


def labels_in(cells: Sequence[str]) -> Labels:
    """Convert cells of a text file to labels; an empty cell is a missing one."""
    places: dict[str, int] = {}
    codes = [-1 if is_no_label(cell) else places.setdefault(cell, len(places)) for cell in cells]
    return Labels(np.array(codes, dtype=np.intp), tuple(places))


def numbers_in(cells: Sequence[str], kind: Kind) -> Numbers:
    """Convert cells of a text file, or flags and steps that are texts elsewhere; an empty cell is a missing one."""
    if kind == "flags":
        return _parsed(cells, _flag_in)
    try:
        if not any("_" in cell for cell in cells):  # Python reads 1_000 as a number
            return Numbers(np.array([float(cell) for cell in cells]))
    except ValueError:
        pass
    numbers = _parsed(cells, _number_in)
    if kind == "steps" and numbers.odd is not None:
        times = replace(_parsed(cells, _seconds_in), is_time=True)
        return numbers if times.odd is not None else times
    return numbers


def as_flags(values: Floats) -> Numbers:
    """Return flags in which values other than 0, 1 and NaN are marked as odd."""
    bad = (values != 0) & (values != 1) & ~np.isnan(values)
    if not bad.any():
        return Numbers(values)
    return Numbers(np.where(bad, np.nan, values), bad, tuple(f"{value:g}" for value in values[bad].tolist()))


def is_list(cell: Any) -> bool:
    """Return whether a cell holds several values."""
    return not isinstance(cell, (str, bytes)) and hasattr(cell, "__len__") and hasattr(cell, "__getitem__")


def from_lists(cells: Sequence[Any], name: str) -> Numbers:
    """Convert lists of numbers, all of the same length, to an array (n, length)."""
    lengths = [len(cell) if is_list(cell) else -1 for cell in cells]
    odd_one = next((row for row, length in enumerate(lengths) if length != lengths[0]), None)
    if odd_one is not None:
        raise RaggedError(name, odd_one, lengths[odd_one], lengths[0])
    try:
        return Numbers(np.array([[as_float(entry) for entry in cell] for cell in cells]))
    except (TypeError, ValueError):
        raise LogError("not_a_number", f"Lists in {name!r} must hold numbers only.", columns=[name]) from None


def is_no_label(text: str) -> bool:
    """Return whether a cell of a text file is empty, or holds a word that programs write for a missing value."""
    return text.strip().lower() in NO_LABELS


def decoded(cell: Any) -> Any:
    """Return bytes, as HDF5 holds texts, as a text; anything else as it is."""
    return cell.decode("utf-8") if isinstance(cell, bytes) else cell


def _label_objects(cells: Sequence[Any], name: str) -> Labels:
    places: dict[tuple[type, Hashable], int] = {}
    codes = np.empty(len(cells), dtype=np.intp)
    for row, cell in enumerate(cells):
        if is_list(cell):
            if len(cell) != 1:
                raise LogError("vector_action", f"{name!r} must hold one label per row, but it holds {list(cell)!r}.")
            cell = cell[0]
        if is_list(cell):
            raise LogError("vector_action", f"{name!r} must hold one label per row, but it holds lists of lists.")
        cell = decoded(cell.item() if isinstance(cell, np.generic) else cell)
        codes[row] = -1 if is_missing(cell) else places.setdefault((type(cell), cell), len(places))
    return Labels(codes, tuple(value for _, value in places))


def _parsed(cells: Sequence[Any], parse: Callable[[Any], float]) -> Numbers:
    """Convert cell by cell; ``parse`` raises ValueError for a cell that is not a number."""
    values, odd, texts = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool), []
    for row, cell in enumerate(cells):
        try:
            values[row] = parse(cell)
        except ValueError:
            odd[row] = True
            texts.append(_shown(cell))
    return Numbers(values, odd if texts else None, tuple(texts))


def _shown(cell: Any) -> str:
    text = repr(cell) if isinstance(cell, str) else str(cell)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _number_in(text: str) -> float:
    bare = text.strip().lower()
    if bare in BLANKS:
        return np.nan
    if bare in BOOLEANS:
        return BOOLEANS[bare]
    if "_" in text:
        raise ValueError
    return float(text)


def _seconds_in(text: str) -> float:
    bare = text.strip()
    return np.nan if bare.lower() in BLANKS else _seconds_of(datetime.fromisoformat(bare))


def _seconds_of(cell: Any) -> float:
    """Return the seconds of a duration, or of a time since 1970; a time without a zone is taken as UTC."""
    if is_missing(cell):
        return np.nan
    if isinstance(cell, timedelta):
        return float(cell.total_seconds())
    if not isinstance(cell, date):
        raise ValueError
    return seconds_since_1970(cell)


def _flag_in(text: str) -> float:
    known = FLAGS.get(text.strip().lower())
    return _flag(_number_in(text)) if known is None else known


def _number_of(cell: Any) -> float:
    if is_missing(cell):
        return np.nan
    if isinstance(cell, (str, bytes)):
        raise ValueError
    try:
        return as_float(cell)
    except TypeError:
        raise ValueError from None


def _flag_of(cell: Any) -> float:
    cell = cell.decode() if isinstance(cell, bytes) else cell
    return _flag_in(cell) if isinstance(cell, str) else _flag(_number_of(cell))


def _flag(value: float) -> float:
    if value not in (0.0, 1.0) and not np.isnan(value):
        raise ValueError
    return value


@contextmanager
def converting(name: str) -> Iterator[None]:
    """Turn errors about cells that Python cannot hold, such as a year of 10000, into a fault that names the column."""
    try:
        yield
    except (OverflowError, UnicodeError, NotImplementedError) as error:
        advice = "Repair its cells, or write the column again as numbers or texts."
        raise LogError("unreadable", f"{name!r} cannot be read: {error}.", columns=[name], advice=advice) from None


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn Arrow's errors about a broken file into a fault that names the file."""
    import pyarrow as pa

    with refusing_damage(path, (pa.ArrowException, OSError, UnicodeDecodeError)):
        yield


def texts_from_arrow(column: Any, kind: Kind) -> Column:
    """Convert an Arrow array of strings, as those of a CSV file."""
    import pyarrow as pa

    if kind == "labels":
        return labels_from_texts(column)
    if kind != "flags":
        try:
            return Numbers(as_numpy(column.cast(pa.float64())))
        except pa.ArrowInvalid:
            pass  # some cell is empty, true or not a number
    different = labels_from_arrow(column, "")  # each text is converted once
    return numbers_in([str(value) for value in different.values], kind).take(different.codes)


def labels_from_texts(column: Any) -> Labels:
    """Convert an Arrow array of strings to labels."""
    encoded = labels_from_arrow(column, "")
    empty = np.array([is_no_label(str(value)) for value in encoded.values] + [True])
    return Labels(np.where(empty[encoded.codes], -1, encoded.codes), encoded.values)


def as_numpy(array: Any) -> Any:
    """Return the values of an Arrow array, NaN where a cell is empty.

    Without empty cells, Arrow's own conversion is avoided: it loads pandas if it is installed, which takes 60 MB.
    """
    if len(array) and array.null_count == 0 and hasattr(array, "__dlpack__"):
        return np.from_dlpack(array)
    return array.to_numpy(zero_copy_only=False)


def codes_of(column: Any) -> Integers:
    """Return the places of the values of a dictionary column, (n,); -1 where a cell is empty."""
    import pyarrow as pa

    signed = column.indices.cast(pa.int64())  # an ENUM of DuckDB has unsigned places
    return as_numpy(signed.fill_null(-1) if signed.null_count else signed).astype(np.intp)


def labels_from_arrow(column: Any, name: str) -> Labels:
    import pyarrow as pa

    if hasattr(column.type, "value_type") and not pa.types.is_dictionary(column.type):
        return _label_objects(column.to_pylist(), name)
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = codes_of(encoded)
    values = [decoded(value) for value in encoded.dictionary.to_pylist()]
    missing = [value is None or value != value for value in values]
    if any(missing):
        codes = np.where(np.array([*missing, True])[codes], -1, codes)  # the last entry serves -1
    plain = (int, float, bool, str)
    return Labels(codes, tuple(value if isinstance(value, plain) else str(value) for value in values))
