"""How the columns of a table become state variables: a record that is learnt once and kept in the model.

Each state column has a kind (number, category, ordinal, boolean, elapsed time) and a rule for missing values.
``encode`` makes rows of state variables from cells, ``decode`` makes cells from rows.  The record also says which
actions are classes of a number, and where an action is allowed.  See docs/decisions/19-values.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from kbrl.arrays import Array, Booleans, Floats
from kbrl.checks import KbrlWarning
from kbrl.data.column_names import listing
from kbrl.data.expressions import Cells, Coded, Expression, parse
from kbrl.data.values import EpisodeStarts, Seen, ValueMemory

Kind = Literal["number", "category", "ordinal", "boolean", "elapsed", "vector"]
Missing = Literal["refuse", "median", "forward", "constant", "level", "drop"]
OTHER, MISSING = "(other)", "(missing)"  # names of levels
JOINED = " + "  # between the labels of a combination of actions
LEVEL_DISTANCE = {"std": 2.0, "range": 1.0}  # between two different levels, in units of the scaling
TRUE, FALSE = frozenset({"true", "t", "yes", "1"}), frozenset({"false", "f", "no", "0"})
BLANK_TEXTS = frozenset({"", "na", "n/a", "nan", "null"})  # "none" may be a level
_DIGITS = 12  # of decoded numbers: scaling forth and back is off by rounding


@dataclass(frozen=True)
class StateColumn:
    """How one column of the state becomes one or more state variables."""

    name: str
    kind: Kind = "number"
    levels: tuple[str, ...] = ()  # of a category; of an ordinal column, from low to high
    has_other: bool = False  # rare and unknown levels have a variable of their own
    missing: Missing = "refuse"
    fill: float | None = None  # what missing values become; of a category, the place of a level, or -1 for none
    has_indicator: bool = False  # a variable is 1 where the value was filled in; of a category, a level
    width: int = 1  # of a column of vectors
    seconds: float = 1.0  # in a unit of elapsed time

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the state variables."""
        if self.kind == "vector":
            return tuple(f"{self.name}_{place}" for place in range(self.width))
        if self.kind != "category":
            return (self.name, f"{self.name} is missing") if self.has_indicator else (self.name,)
        names = [*self.levels, *([OTHER] if self.has_other else []), *([MISSING] if self._has_missing_level else [])]
        return tuple(f"{self.name}={name}" for name in names)

    @property
    def _has_missing_level(self) -> bool:
        """Whether a missing value of a category is a level of its own."""
        return self.kind == "category" and (self.missing == "level" or self.has_indicator)

    def fixed_scale(self, distance: float) -> list[float]:
        """Return what each variable is divided by so that levels are this far apart; NaN where the spread decides."""
        if self.kind == "category":
            return [2**0.5 / distance] * len(self.variables)  # two levels differ in two variables, each by 1
        main = [1 / distance] if self.kind == "boolean" else [np.nan] * (self.width if self.kind == "vector" else 1)
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
        if isinstance(cells, Coded) and self.kind in ("category", "ordinal", "boolean"):
            return self._places(Coded(cells.codes, tuple(map(level_text, cells.values))))
        if isinstance(cells, Coded):
            numbers = _parsed(cells, _seconds if self.kind == "elapsed" else float)
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
            if self._has_missing_level:
                values = np.where(missing, len(self.levels) + self.has_other, values)
            elif self.missing in ("forward", "constant") and self.fill is not None:
                values = np.where(missing, self.fill, values)
            hot = (values[:, None] == np.arange(len(self.variables))).astype(np.float64)
            hot[np.isnan(values)] = np.nan
            return hot
        if self.fill is not None and missing.any():
            values = np.where(missing, self.fill, values)
        return np.column_stack([values, missing]) if self.has_indicator else values[:, None]

    def cells(self, rows: Floats) -> Cells:
        """Return the cells behind rows of state variables, (n, n_variables); what was filled in is missing."""
        if self.kind == "vector":
            return rows
        if self.kind == "category":
            names = tuple(name.removeprefix(f"{self.name}=") for name in self.variables)
            codes = np.where(rows.max(axis=1) > 0, rows.argmax(axis=1), len(names))
            gone = len(names) - 1 if self._has_missing_level else -2
            return Coded(np.where(codes == gone, -1, codes), (*names, OTHER))
        numbers = _rounded(rows[:, 0])
        if self.has_indicator:
            numbers = np.where(rows[:, 1] > 0.5, np.nan, numbers)
        if self.kind == "ordinal":
            places = np.where(np.isnan(numbers), -1, np.clip(np.rint(numbers), 0, len(self.levels) - 1))
            return Coded(places.astype(np.intp), self.levels)
        return numbers

    def described(self) -> str:
        """Return the column with its kind, its levels and its rule, where it is more than plain numbers."""
        said = []
        if self.levels:
            said.append((" < " if self.kind == "ordinal" else ", ").join(self.levels[:6]))
            said[0] += ", ..." if len(self.levels) > 6 or self.has_other else ""
        elif self.kind != "number":
            said.append({"boolean": "yes or no", "elapsed": "time since the episode began"}.get(self.kind, self.kind))
        if self.missing != "refuse":
            filled = f" {self.fill:g}" if self.fill is not None and not self.levels else ""
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


@dataclass(frozen=True)
class ActionBins:
    """The classes that the numbers of an action column are put into."""

    name: str  # of the column
    edges: tuple[float, ...]  # between classes, ascending; a class has its upper edge
    labels: tuple[str, ...]
    doses: tuple[float, ...]  # what stands for each class: the median of its numbers

    def classes(self, numbers: Floats) -> Coded:
        """Return the class of each number; NaN has none."""
        places = np.searchsorted(np.array(self.edges), numbers, side="left")
        return Coded(np.where(np.isnan(numbers), -1, places), self.labels)


@dataclass(frozen=True)
class Recipe:
    """How columns become state variables and actions.

    >>> recipe = Recipe((StateColumn("age"), StateColumn("sex", "category", ("F", "M"), missing="level")))
    >>> recipe.variables
    ('age', 'sex=F', 'sex=M', 'sex=(missing)')
    >>> rows = recipe.encode({"age": [61.0, 47.0], "sex": ["M", None]}).rows
    >>> rows.tolist()
    [[61.0, 0.0, 1.0, 0.0], [47.0, 0.0, 0.0, 1.0]]
    >>> recipe.described(rows[0])
    {'age': 61.0, 'sex': 'M'}
    """

    columns: tuple[StateColumn, ...]
    bins: tuple[ActionBins, ...] = ()
    allowed: tuple[tuple[str, str], ...] = ()  # where an action is allowed: its label as text, and an expression
    episode: str | None = None  # the column of the episode, if a value may depend on earlier rows of it
    actions: tuple[str, ...] = ()  # the columns of the action, if some are put into classes

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of all state variables."""
        return tuple(name for column in self.columns for name in column.variables)

    @property
    def flags(self) -> dict[str, tuple[str, str]]:
        """What variables that are 0 or 1 say where they are 1, and where they are 0, by their names."""
        found = {}
        for column in self.columns:
            for name in column.variables:
                if column.kind == "category":
                    level = name.removeprefix(f"{column.name}=")
                    found[name] = (f"{column.name} is {level}", f"{column.name} is not {level}")
                elif name != column.name and column.kind != "vector":
                    found[name] = (name, f"{column.name} is not missing")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of the state."""
        return tuple(column.name for column in self.columns)

    def slices(self) -> Iterator[tuple[StateColumn, slice]]:
        """Yield each column with the places of its variables."""
        start = 0
        for column in self.columns:
            stop = start + len(column.variables)
            yield column, slice(start, stop)
            start = stop

    def encode(self, table: Mapping[str, Any]) -> Encoded:
        """Return the state variables of a table's rows; ``table`` maps names of columns to cells of any kind.

        Without the column of the episode, each row stands alone.
        """
        parts, reasons, notes = [], list[tuple[Booleans, str | Unfit]](), list[str]()
        episodes = _as_codes(table[self.episode]) if self.episode is not None and self.episode in table else None
        for column in self.columns:
            cells = as_cells(table[column.name])
            found = column.values(cells)
            numbers = found.numbers
            if column.looks_back:
                starts = EpisodeStarts().add(episodes, len(numbers))
                numbers = column.looking_back(numbers, ValueMemory().add(numbers, starts))
                notes += said_of_filled(column, int(np.isnan(numbers).sum()), len(numbers))
            rows = column.expanded(numbers) if column.kind != "vector" else np.asarray(cells)
            reasons += [(unfit.rows, unfit) for unfit in found.unfit]
            if found.unknown is not None and not column.has_other:
                said = found.unknown.say(int(np.argmax(found.unknown.rows)))
                notes.append(f"{said}: it is equally far from all of them.")
            parts.append(rows)
            reasons.append((np.asarray(np.isnan(rows).any(axis=1)), column.why_missing()))
        return Encoded(np.column_stack(parts), tuple(reasons), tuple(notes))

    def decode(self, states: Floats) -> dict[str, Cells]:
        """Return the cells behind rows of state variables, (n, n_dims)."""
        return {column.name: column.cells(states[:, place]) for column, place in self.slices()}

    def described(self, state: Any) -> dict[str, Any]:
        """Return one state, (n_dims,), as people have it: a level by its name, None where a value was missing."""
        return {name: _shown(cells) for name, cells in self.decode(np.asarray(state, dtype=np.float64)[None]).items()}

    def with_fixed_scales(self, scale: Floats, scaling: Any) -> Floats:
        """Return the scale in which levels are as far apart as ``LEVEL_DISTANCE`` says; a given scale stays."""
        if not isinstance(scaling, str):
            return scale
        fixed = np.array([entry for column in self.columns for entry in column.fixed_scale(LEVEL_DISTANCE[scaling])])
        return np.where(np.isnan(fixed), scale, fixed)

    @cached_property
    def _allowed(self) -> dict[str, Expression]:
        return {label: parse(text, "truth") for label, text in self.allowed}

    def allowed_in(self, states: Floats, labels: Array) -> Booleans:
        """Return which actions are allowed in which states, (n, n_dims) to (n, n_actions)."""
        result = np.ones((len(states), len(labels)), dtype=bool)
        if self.allowed:
            cells = self.decode(states)
            for place, label in enumerate(labels.tolist()):
                rule = self._allowed.get(str(label))
                if rule is not None:
                    result[:, place] = rule.truths(cells)
        return result

    def doses(self, label: Any) -> dict[str, float]:
        """Return what stands for the classes in an action's label, by the column of the number."""
        parts = str(label).split(JOINED) if len(self.actions) > 1 else [str(label)]
        classes = {each.name: dict(zip(each.labels, each.doses)) for each in self.bins}
        return {name: classes[name][part] for name, part in zip(self.actions, parts) if part in classes.get(name, {})}

    def by_dose(self, labels: Iterable[Any]) -> list[Any]:
        """Return the labels of actions, classes of numbers in the order of these."""
        return sorted(
            labels, key=lambda label: (*(self.doses(label).get(name, 0.0) for name in self.actions), str(label))
        )

    def differences(self, other: Recipe) -> list[str]:
        """Return in words what differs between two recipes."""
        mine, theirs = ({c.name: c for c in recipe.columns} for recipe in (self, other))
        if list(mine) != list(theirs):
            return [f"the columns of the state are {listing(list(mine))} and {listing(list(theirs))}"]
        said = []
        for name, column in mine.items():
            for field in fields(StateColumn):
                one, two = getattr(column, field.name), getattr(theirs[name], field.name)
                if one != two:
                    said.append(f"{field.name.replace('_', ' ')} of {name!r}: {one!r} and {two!r}")
        said += [f"the episode: {self.episode!r} and {other.episode!r}"] if self.episode != other.episode else []
        same_actions = (self.bins, self.actions) == (other.bins, other.actions)
        said += [] if same_actions else ["the classes of the actions"]
        return said + (["where actions are allowed"] if self.allowed != other.allowed else [])

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a dict for JSON."""
        return {
            "columns": [asdict(column) | {"levels": list(column.levels)} for column in self.columns],
            "bins": [{key: list(v) if isinstance(v, tuple) else v for key, v in asdict(b).items()} for b in self.bins],
            "allowed": [list(pair) for pair in self.allowed],
            "episode": self.episode,
            "actions": list(self.actions),
        }

    @classmethod
    def from_dict(cls, facts: Any) -> Recipe:
        """Return the recipe of a dict; refuse one that no recipe gives."""
        _require(isinstance(facts, dict) and set(facts) == {f.name for f in fields(cls)}, "it lacks fields")
        lists, episode = [facts[name] for name in ("columns", "bins", "allowed", "actions")], facts["episode"]
        _require(all(isinstance(part, list) for part in lists) and facts["columns"], "it has no columns")
        names = [*facts["actions"], *([] if episode is None else [episode])]
        _require(all(isinstance(name, str) for name in names), "the episode or the action is no column")
        columns = tuple(_column_of(entry) for entry in facts["columns"])
        _require(len({column.name for column in columns}) == len(columns), "columns must differ")
        bins = tuple(_bins_of(entry) for entry in facts["bins"])
        pairs = facts["allowed"]
        _require(all(isinstance(p, list) and [type(t) for t in p] == [str, str] for p in pairs), "allowed is no list")
        for label, text in pairs:
            unknown = [name for name in parse(text, "truth").columns if name not in {c.name for c in columns}]
            _require(not unknown, f"allowed[{label!r}] reads columns that are not of the state")
        return cls(columns, bins, tuple((label, text) for label, text in pairs), episode, tuple(facts["actions"]))


@dataclass(frozen=True, eq=False)
class Encoded:
    """State variables of some rows, and what is wrong with rows that have NaN."""

    rows: Floats  # (n, n_dims)
    reasons: tuple[tuple[Booleans, str | Unfit], ...]
    notes: tuple[str, ...] = ()  # unknown levels, and missing values that nothing could be carried forward to

    @property
    def usable(self) -> Booleans:
        """The rows that have all their variables, and no cell that breaks the rule of its column, (n,)."""
        return ~np.any([rows for rows, _ in self.reasons], axis=0)

    def say(self, row: int) -> str:
        """Return why a row has no state; empty if it has one."""
        for rows, why in self.reasons:
            if rows[row]:
                return why if isinstance(why, str) else why.say(row)
        return ""

    def tell(self) -> None:
        """Warn of what was taken as something else."""
        for note in self.notes:
            warnings.warn(note, KbrlWarning, stacklevel=4)

    def refuse(self) -> None:
        """Raise an error for the first row that has no state."""
        bad = ~self.usable
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(
                f"States must have a value for each variable, but {int(bad.sum())} of {len(bad)} rows have not; the "
                f"first is row {row}: {self.say(row)}. Drop these rows, or fill them in."
            )


def said_of_filled(column: StateColumn, n_filled: int, n_rows: int) -> list[str]:
    """Return what is said where values are missing and there is no earlier one to carry forward; nothing if none is."""
    taken_as = column.without_history()
    if not n_filled or not taken_as:
        return []
    return [
        f"{column.name} is missing in {n_filled:,} of {n_rows:,} rows without an earlier value of the same episode: it "
        f"is taken as {taken_as}."
    ]


def level_text(value: Any) -> str | None:
    """Return the name of a level, the same for all formats: 1 and 1.0 are '1'; None for a missing one."""
    if value is None or (isinstance(value, (float, np.floating)) and value != value):
        return None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)) and value == int(value):
        return str(int(value))
    text = str(value).strip()
    if text in ("True", "False", "TRUE", "FALSE"):
        return text.lower()
    return None if text.lower() in BLANK_TEXTS else text


def as_cells(column: Any) -> Cells:
    """Return a column of a frame, or a list, as numbers or as texts."""
    if isinstance(column, Coded):
        return column
    values = column.to_pylist() if hasattr(column, "to_pylist") else column
    array = np.asarray(values)
    if array.dtype.kind == "M":
        seconds = array.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(array), np.nan, seconds)
    if array.dtype.kind == "b":
        return Coded(np.atleast_1d(array).astype(np.intp), (False, True))  # a level is true or false, not 1 or 0
    if array.dtype.kind in "iuf":
        return np.atleast_1d(array).astype(np.float64)
    places: dict[Any, int] = {}
    objects = np.atleast_1d(np.asarray(values, dtype=object)).tolist()
    if objects and all(np.ndim(cell) == 1 for cell in objects):
        return np.array([list(cell) for cell in objects], dtype=np.float64)
    known = [None if _is_missing(cell) else cell for cell in objects]
    if all(cell is None or isinstance(cell, (int, float, np.number)) for cell in known):
        return np.array([np.nan if cell is None else float(cell) for cell in known])
    codes = [-1 if cell is None else places.setdefault(cell, len(places)) for cell in known]
    return Coded(np.array(codes, dtype=np.intp), tuple(places))


def _as_codes(column: Any) -> Coded:
    """Return identifiers as codes."""
    cells = as_cells(column)
    if isinstance(cells, Coded):
        return cells
    distinct, codes = np.unique(cells, return_inverse=True)
    return Coded(codes.reshape(-1), tuple(distinct.tolist()))


def _is_missing(cell: Any) -> bool:
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and cell != cell)


def _parsed(cells: Coded, read: Callable[[Any], float]) -> Floats:
    """Return the numbers in texts, NaN where there is none."""
    numbers = np.full(len(cells.values) + 1, np.nan)
    for place, value in enumerate(cells.values):
        try:
            numbers[place] = read(value)
        except (TypeError, ValueError, AttributeError):
            continue
    return numbers[cells.codes]


def _seconds(value: Any) -> float:
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


def _shown(cells: Cells) -> Any:
    if isinstance(cells, Coded):
        return None if cells.codes[0] < 0 else cells.values[cells.codes[0]]
    return cells[0].tolist() if cells.ndim > 1 else None if np.isnan(cells[0]) else float(cells[0])


def _require(holds: Any, rule: str) -> None:
    if not holds:
        raise ValueError(f"the recipe is wrong: {rule}")


def _column_of(entry: Any) -> StateColumn:
    """Return a state column from a dict; refuse one that is not well formed."""
    wanted = {field.name for field in fields(StateColumn)}
    _require(isinstance(entry, dict) and set(entry) == wanted, "a column lacks fields, or has unknown ones")
    types: dict[str, tuple[type, ...]] = {"name": (str,), "kind": (str,), "levels": (list,), "has_other": (bool,)}
    types |= {"missing": (str,)}
    types |= {"fill": (int, float, type(None)), "has_indicator": (bool,), "width": (int,), "seconds": (int, float)}
    wrong = [name for name, kinds in types.items() if type(entry[name]) not in kinds]
    _require(not wrong, f"{', '.join(wrong)} of a column is of the wrong kind")
    _require(entry["kind"] in get_args(Kind) and entry["missing"] in get_args(Missing), "a kind is not known")
    levels, is_labelled = entry["levels"], entry["kind"] in ("category", "ordinal")
    _require(all(isinstance(level, str) for level in levels) and len(set(levels)) == len(levels), "levels must differ")
    _require(bool(levels) == is_labelled, "a category has levels, and a number has none")
    numbers = [entry["seconds"], 0.0 if entry["fill"] is None else entry["fill"]]
    _require(all(np.isfinite(numbers)) and entry["width"] >= 1 and entry["seconds"] > 0, "a number is out of range")
    return StateColumn(**entry | {"levels": tuple(levels)})


def _bins_of(entry: Any) -> ActionBins:
    wanted = {field.name for field in fields(ActionBins)}
    _require(isinstance(entry, dict) and set(entry) == wanted and isinstance(entry["name"], str), "classes lack fields")
    edges, labels, doses = (entry[name] for name in ("edges", "labels", "doses"))
    _require(all(isinstance(part, list) for part in (edges, labels, doses)), "classes are no lists")
    numbers = all(type(v) in (int, float) and np.isfinite(v) for v in [*edges, *doses])
    _require(numbers and all(isinstance(label, str) for label in labels), "classes are of the wrong kind")
    _require(len(labels) == len(edges) + 1 == len(doses) and edges == sorted(set(edges)), "classes do not fit edges")
    return ActionBins(entry["name"], tuple(edges), tuple(labels), tuple(doses))
