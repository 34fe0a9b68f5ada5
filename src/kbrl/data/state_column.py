"""How one column of the state becomes one or more state variables, and back.

A column has a kind (number, category, ordinal, boolean, elapsed time, vector) and a rule for missing values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np

from kbrl.arrays import Booleans, Floats
from kbrl.data.column_names import listing
from kbrl.data.expressions import Cells, Coded
from kbrl.data.values import FALSE, TRUE, Seen
from kbrl.data.written import Written

Kind = Literal["number", "category", "ordinal", "boolean", "elapsed", "vector", "angle"]
Missing = Literal["refuse", "median", "forward", "constant", "level", "drop"]
OTHER, MISSING = "(other)", "(missing)"  # names of levels
LEVEL_DISTANCE = {"std": 2.0, "range": 1.0}  # between two different levels, in units of the scaling
BLANK_TEXTS = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null"})  # "none" may be a level
WRITTEN_PLAINLY = Written()
_DIGITS = 12  # of decoded numbers: scaling there and back leaves rounding errors


@dataclass(frozen=True)
class StateColumn:
    """How one column of the state becomes one or more state variables."""

    name: str
    kind: Kind = "number"
    levels: tuple[str, ...] = ()  # of a category; of an ordinal column, from low to high
    has_other: bool = False  # rare and unknown levels have a variable of their own
    missing: Missing = "refuse"
    fill: float | None = None  # what missing values become; for a category, the place of a level, or -1 for none
    has_indicator: bool = False  # a variable is 1 where the value was filled in; of a category, a level
    width: int = 1  # of a column of vectors
    seconds: float = 1.0  # in a unit of elapsed time
    na: tuple[str, ...] = ()  # what stands for a missing value, such as - or 999
    period: float = 1.0  # of an angle: a full turn
    lowest: float = 0.0  # of an angle: where the range begins that it comes back in
    written: Written = WRITTEN_PLAINLY  # units after numbers, and the order of day and month in dates

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the state variables."""
        if self.kind == "vector":
            return tuple(f"{self.name}_{place}" for place in range(self.width))
        if self.kind != "category":
            main = (f"sin {self.name}", f"cos {self.name}") if self.kind == "angle" else (self.name,)
            return (*main, f"{self.name} is missing") if self.has_indicator else main
        names = [*self.levels, *([OTHER] if self.has_other else []), *([MISSING] if self.has_missing_level else [])]
        return tuple(f"{self.name}={name}" for name in names)

    @property
    def is_plain(self) -> bool:
        """Whether the column is read as it is: numbers, none of them missing."""
        return self.kind in ("number", "vector") and self.missing in ("refuse", "drop")

    @property
    def has_missing_level(self) -> bool:
        """Whether a missing value of a category is a level of its own."""
        return self.kind == "category" and (self.missing == "level" or self.has_indicator)

    def fixed_scale(self, distance: float) -> list[float]:
        """Return what each variable is divided by so that levels are this far apart; NaN where the spread decides."""
        if self.kind == "category":
            return [2**0.5 / distance] * len(self.variables)  # two levels differ in two variables, each by 1
        width = {"vector": self.width, "angle": 2}.get(self.kind, 1)
        main = [1 / distance] if self.kind == "boolean" else [np.nan] * width
        return main + ([1 / distance] if self.has_indicator else [])

    @property
    def looks_back(self) -> bool:
        """Whether a value may depend on earlier rows of the episode."""
        return self.missing == "forward" or self.kind == "elapsed"

    def looking_back(self, values: Floats, seen: Seen) -> Floats:
        """Return values with those of earlier rows; ``seen`` are the ones of each row's episode."""
        if self.missing == "forward":
            values = np.where(np.isnan(values), seen.last, values)
        return (values - seen.first) / self.seconds if self.kind == "elapsed" else values

    def values(self, cells: Cells) -> Values:
        """Return the number behind each cell, NaN where it is missing, and what is wrong with it."""
        if isinstance(cells, Coded) and self.written != WRITTEN_PLAINLY:
            texts = (self.written.bare(value) if isinstance(value, str) else value for value in cells.values)
            cells = Coded(cells.codes, tuple(texts))
        if isinstance(cells, Coded) and self.kind in ("category", "ordinal", "boolean"):
            return self._places(Coded(cells.codes, tuple(map(level_text, cells.values))))
        if isinstance(cells, Coded):
            numbers = _parsed(cells, seconds_since_1970 if self.kind == "elapsed" else _number)
            odd = np.isnan(numbers) & cells.where(lambda value: level_text(value) is not None)
            rule = "be a number"
            return Values(numbers, (Unfit(self.name, odd, cells, rule),) if odd.any() else ())
        if self.kind in ("category", "ordinal") or (self.kind == "boolean" and not _are_flags(cells)):
            distinct, codes = np.unique(cells, return_inverse=True)
            return self.values(Coded(codes.reshape(-1), tuple(distinct.tolist())))
        return Values(cells)

    def _places(self, cells: Coded) -> Values:
        """Return the place of the level of each cell; texts were made levels before."""
        missing = [value is None for value in cells.values]
        if self.kind == "boolean":
            found = [_flag(value) for value in cells.values]
        else:
            places = {level: place for place, level in enumerate(self.levels)}
            found = [places.get(str(value), -1) for value in cells.values]
        unknown = np.array([place < 0 and not gone for place, gone in zip(found, missing)] + [False])[cells.codes]
        numbers = np.array([np.nan if gone else float(place) for place, gone in zip(found, missing)] + [np.nan])
        values = numbers[cells.codes]
        if not unknown.any():
            return Values(values)
        if self.kind == "category":
            values[unknown] = len(self.levels) if self.has_other else -1
            return Values(values, unknown=Unfit(self.name, unknown, cells, f"be one of {listing(self.levels)}"))
        values[unknown] = np.nan
        allowed = "be true or false" if self.kind == "boolean" else f"be one of {listing(self.levels)}"
        return Values(values, (Unfit(self.name, unknown, cells, allowed),))

    def expanded(self, values: Floats) -> Floats:
        """Return the state variables, (n, n_variables), of values in which NaN is missing; NaN stays if no rule fits.

        The rule ``forward`` has been applied before.
        """
        missing = np.isnan(values)
        if self.kind == "category":
            if self.has_missing_level:
                values = np.where(missing, len(self.levels) + self.has_other, values)
            elif self.missing in ("forward", "constant") and self.fill is not None:
                values = np.where(missing, self.fill, values)
            hot = (values[:, None] == np.arange(len(self.variables))).astype(np.float64)
            hot[np.isnan(values)] = np.nan
            return hot
        if self.fill is not None and missing.any():
            values = np.where(missing, self.fill, values)
        if self.kind == "angle":
            turns = 2 * np.pi * np.remainder(values, self.period) / self.period
            main = np.column_stack([np.sin(turns), np.cos(turns)])
        else:
            main = values[:, None]
        return np.column_stack([main, missing]) if self.has_indicator else main

    def cells(self, rows: Floats) -> Cells:
        """Return the cells behind rows of state variables, (n, n_variables); what was filled in is missing."""
        if self.kind == "vector":
            return rows
        if self.kind == "category":
            names = tuple(name.removeprefix(f"{self.name}=") for name in self.variables)
            codes = np.where(rows.max(axis=1) > 0, rows.argmax(axis=1), len(names))
            gone = len(names) - 1 if self.has_missing_level else -2
            return Coded(np.where(codes == gone, -1, codes), (*names, OTHER))
        numbers = _rounded(self._angles(rows) if self.kind == "angle" else rows[:, 0])
        if self.has_indicator:
            numbers = np.where(rows[:, -1] > 0.5, np.nan, numbers)
        if self.kind == "ordinal":
            places = np.where(np.isnan(numbers), -1, np.clip(np.rint(numbers), 0, len(self.levels) - 1))
            return Coded(places.astype(np.intp), self.levels)
        return numbers

    def _angles(self, rows: Floats) -> Floats:
        """Return the angles of sines and cosines, from ``lowest`` up to a full turn more."""
        found = np.arctan2(rows[:, 0], rows[:, 1]) * self.period / (2 * np.pi)
        return self.lowest + np.remainder(found - self.lowest, self.period)

    def described(self) -> str:
        """Return the column with its kind, its levels and its rule, where it is more than plain numbers."""
        said = []
        if self.levels:
            said.append((" < " if self.kind == "ordinal" else ", ").join(self.levels[:6]))
            said[0] += ", ..." if len(self.levels) > 6 or self.has_other else ""
        elif self.kind != "number":
            words = {"boolean": "yes or no", "elapsed": "time since the episode began"}
            words["angle"] = f"an angle, {self.period:.4g} per full turn"
            said.append(words.get(self.kind, self.kind))
        if self.missing != "refuse":
            otherwise = ", else" if self.missing == "forward" else ""  # before the first value of an episode
            filled = f"{otherwise} {self.fill:g}" if self.fill is not None and not self.levels else ""
            said.append(f"missing: {self.missing}{filled}")
        return f"{self.name} ({'; '.join(said)})" if said else self.name

    def without_history(self) -> str:
        """Return what a missing value becomes where no earlier value of the episode is known; empty if refused."""
        if self.missing != "forward" or (self.fill is None and not self.has_indicator):
            return ""
        if self.kind == "category":
            place = -1 if self.fill is None else int(self.fill)
            return "a level of its own" if self.has_indicator else self.levels[place] if place >= 0 else "none of them"
        middle = self.levels[int(self.fill or 0)] if self.kind == "ordinal" else f"{self.fill:g}"
        return f"the median, {middle}{', with a variable that marks it' if self.has_indicator else ''}"

    def why_missing(self) -> str:
        """Return why a missing value cannot be answered."""
        if self.missing == "forward":
            return f"{self.name} is missing, and the table has no earlier value of the same episode"
        if self.missing == "drop":
            return f"{self.name} is missing, and the model's rule is to drop such rows"
        return f"{self.name} is missing, which it never was in the log of the model"


@dataclass(frozen=True, eq=False)
class Unfit:
    """Cells of a column that break its rule."""

    column: str
    rows: Booleans  # (n,)
    cells: Coded
    rule: str

    def say(self, row: int) -> str:
        """Return what is wrong with the cell of a row."""
        return f"{self.column} must {self.rule}, but it is {self.cells.values[self.cells.codes[row]]!r}"


@dataclass(frozen=True, eq=False)
class Values:
    """The numbers behind the cells of a column."""

    numbers: Floats  # (n,), NaN where missing or unfit
    unfit: tuple[Unfit, ...] = ()
    unknown: Unfit | None = None  # levels of a category that are taken as none of the known ones


def level_text(value: Any) -> str | None:
    """Return the name of a level, the same for all formats: 1 and 1.0 are '1'; None for a missing one."""
    if value is None or (isinstance(value, (float, np.floating)) and value != value):
        return None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    text = str(value).strip()
    if text in ("True", "False", "TRUE", "FALSE"):
        return text.lower()
    return None if text.lower() in BLANK_TEXTS else text


def as_cells(column: Any, *, labelled: bool = False) -> Cells:
    """Return a column of a frame, or a list, as numbers or as texts; ``labelled`` numbers and dates stay labels."""
    if isinstance(column, Coded):
        return column
    values = column.to_pylist() if hasattr(column, "to_pylist") else column
    array = np.asarray(values)
    if labelled and array.dtype.kind in "iufM":  # exact: doubles would merge large whole numbers
        is_exact = array.dtype.kind != "M" or array.dtype == "M8[D]"
        distinct, codes = np.unique(array if is_exact else array.astype("M8[us]"), return_inverse=True)
        return Coded(codes.reshape(-1), tuple(distinct.tolist()))
    if array.dtype.kind == "M":
        seconds = array.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(array), np.nan, seconds)
    if array.dtype.kind == "b":
        return Coded(np.atleast_1d(array).astype(np.intp), (False, True))  # a level is true or false, not 1 or 0
    if array.dtype.kind in "iuf":
        return np.atleast_1d(array).astype(np.float64)
    objects = np.atleast_1d(np.asarray(values, dtype=object)).tolist()
    if objects and all(np.ndim(cell) == 1 for cell in objects):
        return np.array([list(cell) for cell in objects], dtype=np.float64)
    known = [None if is_missing(cell) else cell for cell in objects]
    if not labelled and all(cell is None or isinstance(cell, (int, float, np.number)) for cell in known):
        return np.array([np.nan if cell is None else as_float(cell) for cell in known])
    places: dict[Any, int] = {}  # True equals 1, so truth values are kept apart
    keys = [(isinstance(cell, (bool, np.bool_)), cell) for cell in known]
    found = [-1 if key[1] is None else places.setdefault(key, len(places)) for key in keys]
    return Coded(np.array(found, dtype=np.intp), tuple(cell for _, cell in places))


def as_float(cell: Any) -> float:
    """Return a number as a float; a whole number beyond all floats is infinite.

    >>> as_float(7), as_float(-(10**400))
    (7.0, -inf)
    """
    try:
        return float(cell)
    except OverflowError:
        return np.inf if cell > 0 else -np.inf


def is_missing(cell: Any) -> bool:
    """Return whether a cell is None, NaN, or a frame's marker for a missing value."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and cell != cell)


def _parsed(cells: Coded, read: Callable[[Any], float]) -> Floats:
    """Return the numbers in texts, NaN where there is none."""
    numbers = np.full(len(cells.values) + 1, np.nan)
    for place, value in enumerate(cells.values):
        try:
            numbers[place] = read(value)
        except (TypeError, ValueError, AttributeError, OverflowError):
            continue
    return numbers[cells.codes]


def _number(value: Any) -> float:
    """Return a number; true and false are 1 and 0, as in the columns of a table."""
    return float({"true": 1, "false": 0}.get(value.strip().lower(), value) if isinstance(value, str) else value)


def seconds_since_1970(value: Any) -> float:
    """Return the seconds of a time since 1970, from a text or a datetime; without a zone, it is UTC."""
    moment = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _are_flags(numbers: Floats) -> bool:
    return bool(((numbers == 0) | (numbers == 1) | np.isnan(numbers)).all())


def _flag(value: str | None) -> int:
    text = "" if value is None else value.lower()
    return 1 if text in TRUE else 0 if text in FALSE else -1


def _rounded(numbers: Floats) -> Floats:
    """Return numbers to twelve digits."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = np.floor(np.log10(np.abs(numbers)))
        unit = 10.0 ** (_DIGITS - 1 - np.where(np.isfinite(size), size, 0.0))
        rounded = np.rint(numbers * unit) / unit
    return np.where(np.isfinite(rounded), rounded, numbers)
