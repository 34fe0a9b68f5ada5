"""What is stated and known about the values of columns: rules, counts, and what earlier rows of an episode had.

Rules are what the user states about missing values, categories, classes of actions and allowed actions.  Each is
written in three ways: as a dict in Python, as a table in TOML, and as ``name=value; name=value`` on the command line.
The data decide what is not stated, and a warning says how.

Counts tell how often each number of a column occurs, to four digits: for medians and quantiles of columns of any
length.  Counts of parts add up, so neither the split nor the order of the rows changes a quantile.  Numbers are told
apart to one part in 30,000; a quantile is rounded to four digits, and so is exact for data with no more digits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.data.column_names import listing
from kbrl.data.expressions import Cells, Coded, ExpressionError, parse

_DROPPED = 8  # bits of the 23 of a float32: 15 are left
_NARROW = 2**18  # keys: eight powers of two
_MOST_WAITING = 2**16  # keys that wait to be merged, in addition to twice the number of those that are merged
_LARGEST = np.finfo(np.float32).max

_YES = ("true", "t", "yes", "y", "1", "ja", "j", "wahr", "oui", "vrai", "si", "sí", "verdadero", "sim", "sì", "vero")
_NO = ("false", "f", "no", "n", "0", "nein", "falsch", "non", "faux", "falso", "não", "nao", "nee")
TRUE, FALSE = frozenset(_YES), frozenset(_NO)  # words for true and false, in small letters
WORDS = ("median", "forward", "drop", "level")  # rules for missing values; anything else is a constant
RULES = ("missing", "category", "ordinal", "elapsed", "angle", "bins", "allowed")  # of rules, as users write them


class ValueCounts:
    """Counts of the finite numbers seen; NaN is left out.

    >>> counts = ValueCounts().add(np.array([1.0, 2.5, 2.5, 40.0])) + ValueCounts().add(np.array([3.0, np.nan]))
    >>> counts.total, counts.quantile(0.5), counts.quantile(1.0)
    (5, 2.5, 40.0)
    """

    def __init__(self) -> None:
        self._keys: Array = np.empty(0, dtype=np.uint32)  # different, ascending
        self._counts: Integers = np.empty(0, dtype=np.intp)
        self._waiting: list[tuple[Array, Integers]] = []
        self._n_waiting = 0

    def add(self, values: Floats) -> ValueCounts:
        """Count more numbers, (n,), and return self."""
        missing = np.isnan(values)
        kept = values[~missing] if missing.any() else values
        with np.errstate(over="ignore"):
            small = np.clip(kept.astype(np.float32), -_LARGEST, _LARGEST) + np.float32(0)
        if len(small) == 0:
            return self
        keys, counts = _counted(small.view(np.uint32) >> np.uint32(_DROPPED))
        self._waiting.append((keys, counts))
        self._n_waiting += len(keys)
        if self._n_waiting > _MOST_WAITING + 2 * len(self._keys):
            self._settle()
        return self

    def __add__(self, other: ValueCounts) -> ValueCounts:
        """Return the counts of both."""
        result = ValueCounts()
        for part in (self, other):
            part._settle()
            result._waiting.append((part._keys, part._counts))
        result._settle()
        return result

    @property
    def total(self) -> int:
        """The number of numbers."""
        self._settle()
        return int(self._counts.sum())

    def quantile(self, share: float) -> float:
        """Return the smallest number that at least this share of the numbers does not exceed; there must be some."""
        values, counts = self.values()
        place = np.searchsorted(np.cumsum(counts), share * counts.sum() - 1e-9)
        return float(values[min(int(place), len(values) - 1)])

    def values(self) -> tuple[Floats, Integers]:
        """Return the numbers, to four digits and ascending, and how often each occurs."""
        self._settle()
        bits = self._keys << np.uint32(_DROPPED)
        centre = np.where(bits << np.uint32(1) == 0, 0, bits + np.uint32(1 << (_DROPPED - 1)))
        numbers = np.array([float(f"{number:.4g}") for number in centre.astype(np.uint32).view(np.float32).tolist()])
        order = np.argsort(numbers, kind="stable")
        return numbers[order], self._counts[order]

    def where(self, low: float, high: float) -> ValueCounts:
        """Return the counts of the numbers above ``low`` up to ``high``."""
        values, counts = self.values()
        picked = (values > low) & (values <= high)
        result = ValueCounts()
        small = values[picked].astype(np.float32)
        result._waiting.append((small.view(np.uint32) >> np.uint32(_DROPPED), counts[picked]))
        result._settle()
        return result

    def _settle(self) -> None:
        if not self._waiting:
            return
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._waiting)])
        counts = np.concatenate([self._counts, *(counts for _, counts in self._waiting)])
        order = np.argsort(keys, kind="stable")
        first = np.flatnonzero(np.append(True, np.diff(keys[order]) != 0)[: len(keys)])
        self._keys = keys[order[first]]
        self._counts = np.add.reduceat(counts[order], first) if len(first) else counts
        self._waiting, self._n_waiting = [], 0


def _counted(keys: Array) -> tuple[Array, Integers]:
    """Return the different keys, ascending, and how often each occurs."""
    low, high = int(keys.min()), int(keys.max())
    if high - low > _NARROW:
        found, counts = np.unique(keys, return_counts=True)
        return found, counts.astype(np.intp)
    counts = np.bincount((keys - np.uint32(low)).view(np.int32), minlength=high - low + 1)  # faster than sorting
    places = np.flatnonzero(counts)
    return (places + low).astype(np.uint32), counts[places]


class Seen(NamedTuple):
    """What each row has seen of its episode, (n,) each; NaN where there is nothing."""

    first: Floats  # the first value up to this row
    last: Floats  # the last value up to this row
    before: Floats  # the last value before this row


class EpisodeStarts:
    """Finds out, from batch to batch, which rows begin an episode."""

    def __init__(self) -> None:
        self._last: Any = None
        self._has_begun = False

    def add(self, episodes: Coded | None, n_rows: int) -> Booleans:
        """Return which of the next rows begin an episode, (n,); without identifiers, each row stands alone."""
        if episodes is None:
            return np.ones(n_rows, dtype=bool)
        codes, values = episodes.codes, episodes.values
        starts = np.append(True, codes[1:] != codes[:-1])
        own, last = (None if code < 0 else values[code] for code in codes[[0, -1]].tolist())
        starts[0] = not self._has_begun or own != self._last
        self._last, self._has_begun = last, True
        return starts


class ValueMemory:
    """Remembers, from batch to batch, the first value of the present episode and its last one."""

    def __init__(self) -> None:
        self._first = self._last = np.nan

    def add(self, values: Floats, starts: Booleans) -> Seen:
        """Return what each of the next rows has seen; ``values`` are NaN where one is missing."""
        began = np.append(True, starts)
        padded = np.append(self._last, values)
        last = padded[_latest(began, ~np.isnan(padded))]
        before = np.where(starts, np.nan, last[:-1])
        padded[0] = self._first
        first = padded[_earliest(began, ~np.isnan(padded))]
        self._first, self._last = float(first[-1]), float(last[-1])
        return Seen(first[1:], last[1:], before)


def _latest(starts: Booleans, known: Booleans) -> Array:
    """Return the place of the latest known value of each row's episode, of its first row if there is none."""
    return np.maximum.accumulate(np.where(starts | known, np.arange(len(starts)), 0))


def _earliest(starts: Booleans, known: Booleans) -> Array:
    """Return the place of the first known value of each row's episode up to the row, of its first row if none."""
    number = np.cumsum(starts) - 1
    begins = np.flatnonzero(starts)
    places = np.arange(len(starts))
    first_known = np.minimum.reduceat(np.where(known, places, len(starts)), begins)[number]
    return np.where(first_known <= places, first_known, begins[number])


@dataclass(frozen=True)
class Rules:
    """The rules that were stated."""

    missing: dict[str, str | float] = field(default_factory=dict)  # by column: one of WORDS, or a constant
    missing_elsewhere: str | float | None = None  # for all other columns of the state
    category: tuple[str, ...] = ()  # columns whose numbers are names of levels
    ordinal: dict[str, tuple[str, ...]] = field(default_factory=dict)  # levels from low to high, by column
    elapsed: dict[str, str] = field(default_factory=dict)  # the unit of the time since an episode began, by column
    angle: dict[str, float] = field(default_factory=dict)  # how much a full turn is, by column
    bins: dict[str, Bins] = field(default_factory=dict)  # by action column
    allowed: dict[str, str] = field(default_factory=dict)  # an expression, by label of the action

    def missing_in(self, column: str) -> str | float | None:
        """Return the rule for missing values of a column; None if none was stated."""
        return self.missing.get(column, self.missing_elsewhere)

    def named(self) -> dict[str, list[str]]:
        """Return the columns of the state that rules name, by rule."""
        return {
            "missing": list(self.missing),
            "category": list(self.category),
            "ordinal": list(self.ordinal),
            "elapsed": list(self.elapsed),
            "angle": list(self.angle),
        }


@dataclass(frozen=True)
class Bins:
    """How the numbers of an action become classes: by quantiles, or between edges that the user gives."""

    n_quantiles: int = 0
    edges: tuple[float, ...] = ()
    zero_apart: bool = False  # 0, nothing given, is a class of its own


def rules_of(given: Mapping[str, Any]) -> Rules:
    """Return the rules in a mapping of names to what users write; other names are not looked at."""
    said = {name: given[name] for name in RULES if given.get(name) is not None}
    missing = said.get("missing", {})
    single = not isinstance(missing, Mapping) and not (isinstance(missing, str) and "=" in missing)
    return Rules(
        missing={} if single else {k: _missing(v) for k, v in _pairs(missing, "missing").items()},
        missing_elsewhere=_missing(missing) if single and missing != {} else None,
        category=tuple(_names(said.get("category", ()))),
        ordinal={k: _levels(k, v) for k, v in _pairs(said.get("ordinal", {}), "ordinal").items()},
        elapsed={k: str(v) for k, v in _pairs(said.get("elapsed", {}), "elapsed").items()},
        angle=_angles(said.get("angle", {})),
        bins={k: _bins(k, v) for k, v in _pairs(said.get("bins", {}), "bins").items()},
        allowed={str(k): _allowed(k, v) for k, v in _pairs(said.get("allowed", {}), "allowed").items()},
    )


def _pairs(given: Any, rule: str) -> dict[str, Any]:
    """Return what is stated by column: a mapping, or a text such as map=forward; lactate=0."""
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    if not isinstance(given, str):
        raise TypeError(f"{rule} must map names to rules, but it is {given!r}.")
    found: dict[str, str] = {}
    for part in given.split(";"):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value or name in found:
            raise ValueError(f"{rule} must be written as name=value; name=value, each name once, but it is {given!r}.")
        found[name] = value
    return found


def _names(given: Any) -> list[str]:
    names = given.split(",") if isinstance(given, str) else list(given)
    return [str(name).strip() for name in names]


def _angles(given: Any) -> dict[str, float]:
    """Read names of columns in radians, or what a full turn is by column: {"wind": 360}, or wind=360."""
    is_plain = isinstance(given, (list, tuple)) or (isinstance(given, str) and "=" not in given)
    periods = dict.fromkeys(_names(given), 2 * np.pi) if is_plain else _pairs(given, "angle")
    found = {}
    for name, period in periods.items():
        try:
            found[name] = float(period)
        except (TypeError, ValueError):
            found[name] = np.nan
        if isinstance(period, bool) or not 0 < found[name] < 1e100 or not name:
            raise ValueError(
                f"angle[{name!r}] must be how much a full turn is, such as 360 for degrees, but it is {period!r}. For "
                f"radians name the column alone: angle = [{name!r}]."
            )
    return found


def _missing(given: Any) -> str | float:
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise TypeError(f"A rule for missing values must be {listing(WORDS)} or a constant, but it is {given!r}.")
    if isinstance(given, str) and given.strip() not in WORDS:
        try:
            return float(given)
        except ValueError:
            return given.strip()  # a level
    return given.strip() if isinstance(given, str) else float(given)


def _levels(column: str, given: Any) -> tuple[str, ...]:
    levels = tuple(_names(given.replace("<", ",") if isinstance(given, str) else given))
    if len(levels) < 2 or len(set(levels)) < len(levels) or "" in levels:
        raise ValueError(f"ordinal[{column!r}] must list different levels from low to high, but it is {given!r}.")
    return levels


def _bins(column: str, given: Any) -> Bins:
    """Read 4 (quantiles), '0+4' (and zero apart), or the edges between classes: '10,50' or [10, 50]."""
    rule = f"bins[{column!r}] must be a number of classes such as 4, '0+4' to set 0 apart, or edges such as [10, 50]"
    zero = isinstance(given, str) and given.replace(" ", "").startswith("0+")
    bare = given.replace(" ", "")[2:] if zero else given
    if isinstance(bare, str):
        bare = bare.split(",") if "," in bare else bare
    try:
        if isinstance(bare, (list, tuple)):
            edges = tuple(float(edge) for edge in bare)
            if not edges or list(edges) != sorted(set(edges)) or not all(abs(edge) < 1e100 for edge in edges):
                raise ValueError
            return Bins(edges=edges, zero_apart=zero)
        if isinstance(bare, bool) or int(bare) != float(bare) or not 1 + (not zero) <= int(bare) <= 100:
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"{rule}, but it is {given!r}.") from None
    return Bins(n_quantiles=int(bare), zero_apart=zero)


def _allowed(label: Any, given: Any) -> str:
    text = str(given).lower() if isinstance(given, bool) else given
    try:
        return parse(text, "truth").text
    except ExpressionError as error:
        raise ValueError(f"allowed[{str(label)!r}]: {error}") from None


def unmarked(cells: Cells, marks: Collection[str]) -> Cells:
    """Return cells in which marks such as - or 999 count as missing.

    >>> unmarked(np.array([61.0, 999.0]), ["-", "999"]).tolist()
    [61.0, nan]
    """
    if not marks:
        return cells
    numbers = [number for mark in marks if (number := _number(mark)) is not None]
    if not isinstance(cells, Coded):
        return np.where(np.isin(cells, numbers), np.nan, cells) if numbers else cells
    gone = [str(value).strip() in marks or _number(value) in numbers for value in cells.values]
    return Coded(np.where(np.array([*gone, True])[cells.codes], -1, cells.codes), cells.values)


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
