"""How the columns of a table become state variables: a record that is learnt once and kept in the model.

Each state column has a kind (number, category, ordinal, boolean, elapsed time) and a rule for missing values.
``encode`` makes rows of state variables from cells, ``decode`` makes cells from rows.  The record also says which
actions are classes of a number, and where an action is allowed.  See docs/decisions/19-values.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, get_args

import numpy as np

from kbrl.arrays import Array, Booleans, Floats
from kbrl.checks import KbrlWarning
from kbrl.data.column_names import listing
from kbrl.data.expressions import Cells, Coded, Expression, parse
from kbrl.data.state_column import LEVEL_DISTANCE, Kind, Missing, StateColumn, Unfit, as_cells
from kbrl.data.values import EpisodeStarts, ValueMemory, unmarked
from kbrl.data.written import Written

JOINED = " + "  # between the labels of a combination of actions


@dataclass(frozen=True)
class ActionBins:
    """The classes that the numbers of an action column are put into."""

    name: str  # of the column
    edges: tuple[float, ...]  # between classes, ascending; the upper edge belongs to its class
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
                elif name == f"{column.name} is missing":
                    found[name] = (name, f"{column.name} is not missing")
        return found

    @property
    def ordered_levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of ordinal columns, from low to high; their variable is the place of the level."""
        return {column.name: column.levels for column in self.columns if column.kind == "ordinal"}

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

    def level_places(self) -> list[tuple[int, int]]:
        """Return the first variable of each category and the one after its last, and flags, which stand alone."""
        found = []
        for column, place in self.slices():
            if column.kind == "category":
                found.append((place.start, place.stop))
            if column.kind == "boolean":
                found.append((place.start, place.start + 1))
            if column.has_indicator and column.kind != "category":  # there, missing is a level
                found.append((place.stop - 1, place.stop))
        return found

    def circle_places(self) -> list[tuple[int, int]]:
        """Return the places of the sine and the cosine of each angle."""
        return [(place.start, place.start + 1) for column, place in self.slices() if column.kind == "angle"]

    def encode(self, table: Mapping[str, Any]) -> Encoded:
        """Return the state variables of a table's rows; ``table`` maps names of columns to cells of any kind.

        Without the column of the episode, each row stands alone.
        """
        parts, reasons, notes = [], list[tuple[Booleans, str | Unfit]](), list[str]()
        episodes = _as_codes(table[self.episode]) if self.episode is not None and self.episode in table else None
        for column in self.columns:
            is_labelled = column.kind in ("category", "ordinal")
            cells = unmarked(as_cells(table[column.name], labelled=is_labelled), column.na)
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
        """Return one state, (n_dims,), as people write it: a level by its name, None where a value was missing."""
        return {name: _shown(cells) for name, cells in self.decode(np.asarray(state, dtype=np.float64)[None]).items()}

    def with_fixed_scales(self, scale: Floats, scaling: Any) -> Floats:
        """Return the scale in which levels are ``LEVEL_DISTANCE`` apart; a given scale stays as it is."""
        if not isinstance(scaling, str):
            return scale
        fixed = np.array([entry for column in self.columns for entry in column.fixed_scale(LEVEL_DISTANCE[scaling])])
        scale = np.where(np.isnan(fixed), scale, fixed)
        for first, second in self.circle_places():  # a circle stays one
            scale[[first, second]] = scale[[first, second]].max()
        return scale

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
        """Return the labels of actions; classes of numbers are in the order of the numbers."""
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
                if field.name == "written":
                    continue  # says nothing about the variables
                one, two = getattr(column, field.name), getattr(theirs[name], field.name)
                if one != two:
                    said.append(f"{field.name.replace('_', ' ')} of {name!r}: {one!r} and {two!r}")
        said += [f"the episode: {self.episode!r} and {other.episode!r}"] if self.episode != other.episode else []
        same_actions = (self.bins, self.actions) == (other.bins, other.actions)
        said += [] if same_actions else ["the classes of the actions"]
        return said + (["where actions are allowed"] if self.allowed != other.allowed else [])

    def more_than_numbers(self, *, marks: bool) -> list[str]:
        """Return in words which columns would be other numbers if they were read as they are; ``marks``: also by na."""
        columns = [column for column in self.columns if column.kind not in ("number", "boolean", "vector")]
        said = [f"kind of {column.name!r}: {column.kind!r} and 'number'" for column in columns]
        marked = [column for column in self.columns if marks and column.na]
        return said + [f"na of {column.name!r}: {column.na!r} and ()" for column in marked]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a dict for JSON."""
        return {
            "columns": [asdict(c) | {"levels": list(c.levels), "na": list(c.na)} for c in self.columns],
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
        _require(all(isinstance(name, str) for name in names), "the episode or the action is not a column")
        columns = tuple(_column_of(entry) for entry in facts["columns"])
        _require(len({column.name for column in columns}) == len(columns), "columns must differ")
        bins = tuple(_bins_of(entry) for entry in facts["bins"])
        pairs = facts["allowed"]
        _require(
            all(isinstance(p, list) and [type(t) for t in p] == [str, str] for p in pairs), "allowed is not a list"
        )
        for label, text in pairs:
            unknown = [name for name in parse(text, "truth").columns if name not in {c.name for c in columns}]
            _require(not unknown, f"allowed[{label!r}] reads columns that are not of the state")
        return cls(columns, bins, tuple((label, text) for label, text in pairs), episode, tuple(facts["actions"]))


@dataclass(frozen=True, eq=False)
class Encoded:
    """State variables of some rows, and what is wrong with rows that have NaN."""

    rows: Floats  # (n, n_dims)
    reasons: tuple[tuple[Booleans, str | Unfit], ...]
    notes: tuple[str, ...] = ()  # unknown levels, and missing values without an earlier value to carry forward

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
                f"States must have a value for each variable, but {int(bad.sum())} of {len(bad)} rows do not; the "
                f"first is row {row}: {self.say(row)}. Drop these rows, or fill them in."
            )


def said_of_filled(column: StateColumn, n_filled: int, n_rows: int) -> list[str]:
    """Return what to say of missing values without an earlier one to carry forward; nothing if there are none."""
    taken_as = column.without_history()
    if not n_filled or not taken_as:
        return []
    return [
        f"{column.name} is missing in {n_filled:,} of {n_rows:,} rows without an earlier value of the same episode: it "
        f"is taken as {taken_as}."
    ]


def _as_codes(column: Any) -> Coded:
    """Return identifiers as codes."""
    cells = as_cells(column, labelled=True)
    if not isinstance(cells, Coded):
        raise TypeError(f"Identifiers of episodes must be one value per row, but they are {cells[:1].tolist()[0]}.")
    return cells


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
    _require(isinstance(entry, dict), "a column is not a table")
    entry = {"na": [], "period": 1.0, "lowest": 0.0, "written": {}} | entry  # files from before these have none
    _require(set(entry) == wanted, "a column lacks fields, or has unknown ones")
    types: dict[str, tuple[type, ...]] = {"name": (str,), "kind": (str,), "levels": (list,), "has_other": (bool,)}
    types |= {"missing": (str,), "na": (list,), "written": (dict,)}
    types |= {"fill": (int, float, type(None)), "has_indicator": (bool,), "width": (int,), "seconds": (int, float)}
    types |= {"period": (int, float), "lowest": (int, float)}
    wrong = [name for name, kinds in types.items() if type(entry[name]) not in kinds]
    _require(not wrong, f"{', '.join(wrong)} of a column is of the wrong kind")
    _require(entry["kind"] in get_args(Kind) and entry["missing"] in get_args(Missing), "a kind is not known")
    levels, is_labelled = entry["levels"], entry["kind"] in ("category", "ordinal")
    _require(all(isinstance(level, str) for level in levels) and len(set(levels)) == len(levels), "levels must differ")
    _require(all(isinstance(mark, str) for mark in entry["na"]), "na of a column is not a list of texts")
    _require(bool(levels) == is_labelled, "a category has levels, and a number has none")
    numbers = [entry["seconds"], entry["period"], entry["lowest"], 0.0 if entry["fill"] is None else entry["fill"]]
    above_0 = entry["width"] >= 1 and entry["seconds"] > 0 and entry["period"] > 0
    _require(all(np.isfinite(numbers)) and above_0, "a number is out of range")
    stated = entry["written"]
    known = {field.name for field in fields(Written)}
    _require(set(stated) <= known and all(isinstance(v, str) for v in stated.values()), "written has unknown fields")
    _require(stated.get("decimal", ".") in (".", ","), "the decimal sign of a column is not known")
    changed = {"levels": tuple(levels), "na": tuple(entry["na"]), "written": Written(**stated)}
    return StateColumn(**entry | changed)


def _bins_of(entry: Any) -> ActionBins:
    wanted = {field.name for field in fields(ActionBins)}
    _require(isinstance(entry, dict) and set(entry) == wanted and isinstance(entry["name"], str), "classes lack fields")
    edges, labels, doses = (entry[name] for name in ("edges", "labels", "doses"))
    _require(all(isinstance(part, list) for part in (edges, labels, doses)), "classes are not lists")
    numbers = all(type(v) in (int, float) and np.isfinite(v) for v in [*edges, *doses])
    _require(numbers and all(isinstance(label, str) for label in labels), "classes are of the wrong kind")
    _require(len(labels) == len(edges) + 1 == len(doses) and edges == sorted(set(edges)), "classes do not fit edges")
    return ActionBins(entry["name"], tuple(edges), tuple(labels), tuple(doses))
