"""Names of state variables, with frames that are read by these names, and labels of actions and episodes.

Columns in another order give the same answers.  Arrays, lists, and frames with numbered columns are read by position.

Labels may be of any one kind: whole numbers, other numbers, truth values, words, dates.  If some whole numbers do not
fit into int64, all labels become strings of digits, because the floats of NumPy would merge some.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from kbrl.arrays import Array, Floats, Integers
from kbrl.checks import (
    KbrlWarning,
    as_floats,
    as_rows,
    check_finite,
    check_lengths,
    one_entry_per_row,
    refuse_masked,
    refuse_rows,
)
from kbrl.data.any_frame import are_numbered, as_series, columns_of, labelled
from kbrl.data.column_names import ALIASES, PREFIXES, listing, without_prefix
from kbrl.data.recipe import Encoded, Recipe
from kbrl.data.state_column import is_missing

MANY_LABELS = 100  # more different fractions than this are probably not actions
SOME_LABELS = 20  # nor are more than this, if most of them occur only a few times
FEW_TIMES = 5
LARGEST_WHOLE_FLOAT = 2**53  # beyond it, floats skip whole numbers
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class Source:
    """What is known about transitions besides their numbers: names, and whether episodes have identifiers."""

    state_names: tuple[str, ...] | None = None  # one per state variable; None if they have none
    other_names: tuple[str, ...] = ()  # of the log's other columns, which a frame of states may have as well
    has_episode_ids: bool = True  # episodes, if there are any, were identified by the log, not numbered by the reader
    recipe: Recipe | None = None  # how columns became state variables; None: each column is a variable
    roles: Mapping[str, Any] | None = field(default=None, compare=False)  # names of the log's columns by role

    @classmethod
    def of_columns(cls, state: Sequence[str], n_dims: int, *, others: Sequence[str], has_episode_ids: bool) -> Source:
        """Return what the columns of a log say; the variables of one column of vectors are numbered from 0."""
        names = tuple(state) if len(state) == n_dims else None
        if len(state) == 1 and n_dims > 1:
            names = tuple(f"{state[0]}_{number}" for number in range(n_dims))
        taken = set(state)
        rest = tuple(name for name in others if name and name not in taken)
        return cls(names, rest if names else (), has_episode_ids)

    @classmethod
    def of_roles(cls, columns: Any, n_dims: int) -> Source:
        """Return what the columns of a model file say: a list of those of the state, a dict by role, or None."""
        roles = columns if isinstance(columns, Mapping) else {"state": columns or ()}
        listed = {role: [names] if isinstance(names, str) else list(names or ()) for role, names in roles.items()}
        others = [name for role, names in listed.items() if role != "state" for name in names]
        return cls.of_columns(listed.get("state", []), n_dims, others=others, has_episode_ids=True)

    def to_facts(self) -> dict[str, Any]:
        """Return the names in a form that JSON can hold."""
        return {"state": None if self.state_names is None else list(self.state_names), "others": list(self.other_names)}

    def __add__(self, other: Source) -> Source:
        """Return the source of both together; the names of the states are the first's, if it has any."""
        names = other.state_names if self.state_names is None else self.state_names
        taken = set(names or ())
        rest = (name for name in dict.fromkeys([*self.other_names, *other.other_names]) if name not in taken)
        self.check_same_recipe(other)
        recipe = self.recipe or other.recipe
        has_ids = self.has_episode_ids and other.has_episode_ids
        return Source(names, tuple(rest), has_ids, recipe, self.roles or other.roles)

    def check_same_recipe(self, other: Source) -> None:
        """Refuse another source whose columns became state variables in another way."""
        if self.recipe is not None and other.recipe is not None:
            different = self.recipe.differences(other.recipe)
        else:
            different = self._more_than_numbers(other, marks=True) + other._more_than_numbers(self, marks=False)
        if different:
            raise ValueError(
                f"State variables must be made of columns in the same way, but these differ in {'; '.join(different)}. "
                f"Open further logs as the first model needs them: kbrl update, or open_log(..., recipe=model.recipe)."
            )

    def _more_than_numbers(self, table: Source, *, marks: bool) -> list[str]:
        """Return what the columns of this source are, in words, where those of a table without a recipe are not."""
        is_read = table.recipe is None and table.roles is not None
        return [] if self.recipe is None or not is_read else self.recipe.more_than_numbers(marks=marks)

    def places_in(self, other: Source) -> Integers | None:
        """Return the places of these state variables in another source, (n_dims,); None if the order is the same.

        Other variables are refused.  If one of the two has no names, position counts.
        """
        self.check_same_recipe(other)
        mine, theirs = self.state_names, other.state_names
        if mine is None or theirs is None or mine == theirs:
            return None
        found = find_names(theirs, mine)
        if found is None or len(theirs) != len(mine):
            raise ValueError(f"{_differences(mine, theirs, 'Transitions')} Give the same variables by the same names.")
        places = {name: place for place, name in enumerate(theirs)}
        return np.array([places[name] for name in found], dtype=np.intp)

    def check_same_order(self, other: Source) -> None:
        """Refuse another source with other state variables, or the same ones in another order."""
        self.places_in(other)
        if self.state_names and other.state_names not in (None, self.state_names):
            raise ValueError(
                f"Models add up only if their state variables are in the same order, but these have "
                f"{list(self.state_names)} and {list(other.state_names)}."
            )

    def with_fixed_scales(self, scale: Floats, scaling: Any) -> Floats:
        """Return the scale in which the levels of categories are as far apart as the recipe says."""
        return scale if self.recipe is None else self.recipe.with_fixed_scales(scale, scaling)

    def knows(self, name: str) -> bool:
        """Return whether a column outside the state is known from the log, or has a usual name."""
        is_role = any(name.lower() in names for role, names in ALIASES.items() if role != "state")
        return name in self.other_names or is_role or name.lower().startswith(PREFIXES["next_state"])


UNNAMED = Source()


def find_names(available: Sequence[str], names: Sequence[str]) -> list[str] | None:
    """Return which of the available columns hold these variables; None if some are missing.

    They have the same names, or the same names with another prefix or none.
    """
    for prefix in (None, "", *PREFIXES["state"]):
        found = names if prefix is None else [f"{prefix}{name}" for name in without_prefix(names)]
        if all(name in available for name in found):
            return list(found)
    return None


def frame_names(frame: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a frame; None for anything else, or if the columns are only numbered."""
    labels = [label for label, _ in columns_of(frame) or ()]
    return None if are_numbered(labels) else tuple(map(str, labels))


def rows_by_name(states: Any, source: Source, what: str = "states") -> Any:
    """Return states with the variables in the order of a source: frames and mappings by name, all else as it is.

    One column that holds vectors has all variables, by position.
    """
    if source.state_names is None or (columns := columns_of(states)) is None:
        return states
    encoded = _encoded(columns, source)
    if encoded is not None:
        encoded.refuse()
        encoded.tell()
        return encoded.rows
    found = _found_labels([label for label, _ in columns], source, what)
    if found is None:
        return states
    held = dict(columns)
    rows = {str(label): np.atleast_1d(_numbers(held[label], f"{what}[{label!r}]")) for label in found}
    check_lengths({name: len(column) for name, column in rows.items()})
    return np.column_stack(list(rows.values()))


def state_rows(states: Any, source: Source, n_dims: int) -> Floats:
    """Return states as users pass them, (n_states, n_dims), checked, and by name where they have names."""
    return as_rows(rows_by_name(states, source), "states", n_dims=n_dims)


def answered(states: Any, source: Source, answer: Callable[[Any], Array]) -> Any:
    """Return the answers for states; for a frame of pandas or polars, a series with the frame's index.

    A row without a state, as where a value is missing that the recipe has no rule for, has no answer: None.  A
    KbrlWarning says how many there are, and why.
    """
    encoded = _encoded(columns_of(states) or (), source)
    if encoded is None:
        return as_series(states, answer(states))
    usable = encoded.usable
    encoded.tell()
    if usable.all():
        return as_series(states, answer(encoded.rows))
    answers = np.full(len(usable), None, dtype=object)
    if usable.any():
        answers[usable] = answer(encoded.rows[usable])
    row = int(np.argmin(usable))
    warnings.warn(
        f"{int((~usable).sum())} of {len(usable)} rows have no answer; the first is row {row}: {encoded.say(row)}.",
        KbrlWarning,
        stacklevel=3,
    )
    return as_series(states, answers)


def _encoded(columns: Sequence[tuple[Any, Any]], source: Source) -> Encoded | None:
    """Return the state variables of columns by a recipe; None without one, and for columns of other names.

    Columns that neither the recipe nor the log knows are refused.
    """
    known = source.recipe.names if source.recipe else ()
    texts = [str(label) for label, _ in columns]
    if source.recipe is None:
        return None
    if not set(known) <= set(texts):
        is_made = find_names(texts, source.recipe.variables) == list(source.recipe.variables)
        if is_made or are_numbered(label for label, _ in columns):
            return None
        raise ValueError(f"{_differences(known, texts, 'The states')} Pass these columns by these names.")
    unknown = [text for text in texts if text not in known and not source.knows(text)]
    if unknown:
        raise ValueError(f"{_differences(known, [*known, *unknown], 'The states')} Leave these columns out.")
    _refuse_repeated(known, texts)
    return source.recipe.encode({str(label): column for label, column in columns})


def next_rows_by_name(next_states: Any, source: Source) -> Any:
    """Return next states with the variables in the order of the states, where both have names; refuse other variables.

    They have the same names, or all of them with one prefix or suffix more, such as next_age for age.
    """
    names, labels = source.state_names, frame_names(next_states)
    if names is None or labels is None or labels == names:
        return next_states
    found = with_one_affix(labels, names) or with_one_affix(labels, without_prefix(names))
    if found is None:
        raise ValueError(
            f"next_states must have the variables of the states, {listing(names)}, but they have {listing(labels)}. "
            f"Name them alike, with a prefix if you like: next_{names[0]}."
        )
    held = {str(label): column for label, column in columns_of(next_states) or ()}
    return np.column_stack([_numbers(held[label], f"next_states[{label!r}]") for label in found])


def with_one_affix(labels: Sequence[str], names: Sequence[str]) -> list[str] | None:
    """Return the labels in the order of the names from which they differ by one prefix, or one suffix."""
    for label in labels:
        if label.endswith(names[0]):
            found = [f"{label[: len(label) - len(names[0])]}{name}" for name in names]
            if sorted(found) == sorted(labels):
                return found
        if label.startswith(names[0]):
            found = [f"{name}{label[len(names[0]) :]}" for name in names]
            if sorted(found) == sorted(labels):
                return found
    return None


def _numbers(column: Any, name: str) -> Floats:
    """Return a column of numbers, (n,), or of vectors, (n, n_dims)."""
    values = column.to_pylist() if hasattr(column, "to_pylist") else column
    cells = np.asarray(values)
    if cells.dtype == object and cells.ndim == 1 and len(cells) and np.ndim(cells[0]) == 1:
        values = [list(cell) for cell in cells]
    return as_floats(values, name)


def row_by_name(state: Any, source: Source) -> Any:
    """Return one state with the variables in the order of a source; only one with labels is changed."""
    if source.state_names is None or (row := labelled(state)) is None:
        return state
    if source.recipe is not None and not are_numbered(row):
        several = [c.name for c in source.recipe.columns if c.kind != "vector" and np.ndim(row.get(c.name, 0)) > 0]
        if several:
            raise ValueError(f"One state must have one value per column, but {listing(several)} has several.")
        return rows_by_name({label: [value] for label, value in row.items()}, source)[0]
    found = _found_labels(list(row), source, "states")
    if found is None:
        return state
    return np.concatenate([np.atleast_1d(as_floats(row[label], f"state[{label!r}]")) for label in found])


def _found_labels(labels: Sequence[Any], source: Source, what: str) -> list[Any] | None:
    """Return the labels of the state variables in their order; None if columns are only numbered and none is a name."""
    names = source.state_names or ()
    texts = [str(label) for label in labels]
    found = find_names(texts, names) or _vector_name(texts, names)
    if found is None and are_numbered(labels):
        return None
    unknown = [text for text in texts if text not in (found or names) and not source.knows(text)]
    if found is None or unknown:
        given = [text for text in texts if text in names or text in unknown]
        said = _differences(names, given, "The states" if what == "states" else what)
        raise ValueError(f"{said} Pass these variables by these names: frame[{list(names)}].")
    _refuse_repeated(found, texts)
    return [labels[texts.index(name)] for name in found]


def _refuse_repeated(names: Sequence[str], labels: Sequence[str]) -> None:
    repeated = [name for name in names if labels.count(name) > 1]
    if repeated:
        raise ValueError(f"Columns of states must have different names, but {listing(repeated)} occur more than once.")


def _vector_name(texts: Sequence[str], names: Sequence[str]) -> list[str] | None:
    """Return the one column that holds all variables as vectors, where these are numbered: age_0, age_1 of age."""
    stem = names[0].removesuffix("_0")
    numbered = [f"{stem}_{number}" for number in range(len(names))]
    if len(names) < 2 or list(names) != numbered:
        return None
    dialects = ALIASES["state"] if stem.lower() in ALIASES["state"] else ()
    return next(([name] for name in (stem, *dialects) if name in texts), None)


def _differences(names: Sequence[str], given: Sequence[str], what: str) -> str:
    missing, unknown = [n for n in names if n not in given], [n for n in given if n not in names]
    lacks = [f"lack {listing(missing)}"] if missing else []
    has = [f"have {listing(unknown)}, which the model does not know"] if unknown else []
    said = " and ".join(lacks + has)
    return f"{what} must have the variables that the model was fitted to, {listing(names)}, but they {said}."


def fits_int64(label: int) -> bool:
    """Return whether a whole number can be stored as an int64."""
    return bool(_INT64.min <= label <= _INT64.max)


def is_whole(label: Any) -> TypeGuard[int]:
    """Return whether a label is a whole number; a truth value is not."""
    return isinstance(label, (int, np.integer)) and not isinstance(label, bool)


def array_of_labels(labels: Iterable[Any]) -> Array:
    """Return labels as an array; whole numbers become strings if some do not fit into int64."""
    labels = list(labels)
    if all(map(is_whole, labels)) and not all(map(fits_int64, labels)):
        return np.array([str(label) for label in labels])
    return np.array(labels)


def find_label(label: Any, places: Mapping[Any, int]) -> int:
    """Return the place of a label, -1 if it is not listed; a whole number may be listed as a string."""
    place = places.get(label)
    if place is None and is_whole(label):
        place = places.get(str(label))
    return -1 if place is None else place


def as_labels(values: Any, name: str) -> Array:
    """Return labels of one kind, (n,); refuse anything else."""
    refuse_masked(values, name)
    array = one_entry_per_row(_as_array(values), name)
    if array.dtype.kind == "M" and np.isnat(array).any():
        refuse_rows(np.isnat(array), array.astype(str), name, "be labels", "Drop the rows without a date.")
    if array.dtype.kind == "f":
        check_finite(array, name)
    if array.dtype.kind == "O":
        missing = np.array([is_missing(value) or bool(value != value) for value in array])
        if missing.any():
            refuse_rows(missing, array, name, "be labels", "Drop these rows or give the missing label a name.")
        if len({type(value) for value in array}) > 1:
            raise TypeError(
                f"{name} must be labels of one kind, but they mix {sorted({type(v).__name__ for v in array})}. "
                f"Convert them all to strings or all to whole numbers."
            )
    elif array.dtype.kind not in "biufSUM":
        raise TypeError(f"{name} must be numbers or strings, but their type is {array.dtype}.")
    return array


def _as_array(values: Any) -> Array:
    """Return an array; a list of mixed kinds stays mixed, so that its faults can be seen."""
    if isinstance(values, (list, tuple)) and len({type(value) for value in values if not isinstance(value, list)}) > 1:
        numbers = (bool, int, float, np.number, np.bool_)
        if not all(isinstance(value, numbers) for value in values):
            array = np.empty(len(values), dtype=object)
            array[:] = values
            return array
    return array_of_labels(values) if isinstance(values, (list, tuple)) else np.array(values)


def _without_floats(label_sets: list[Array]) -> list[Array]:
    """Return sets of whole numbers that NumPy would join as floats as int64, or as words if one is too large."""
    if any(labels.dtype.kind not in "iu" for labels in label_sets):
        return label_sets
    if np.result_type(*(labels.dtype for labels in label_sets)).kind != "f":
        return label_sets
    fit = all(labels.max(initial=0) <= _INT64.max for labels in label_sets)
    return [labels.astype(np.int64 if fit else str) for labels in label_sets]


def index_labels(actions: Array, action_labels: Sequence[Any] | Array | None) -> tuple[Array, Integers]:
    """Return the possible labels, (n_actions,), by default those that occur, sorted; and the place of each action."""
    if action_labels is None:
        labels, indices, counts = np.unique(actions, return_inverse=True, return_counts=True)
        _warn_of_amounts(dict(zip(labels.tolist(), counts.tolist())))
        return labels, indices.astype(np.intp)
    labels = as_labels(action_labels, "action_labels")
    if len(np.unique(labels)) != len(labels):
        raise ValueError(f"action_labels must differ from each other, but they are {labels.tolist()}.")
    labels, actions = _without_floats([labels, actions])
    if labels.dtype.kind == "U" and actions.dtype.kind in "iu":  # beside larger numbers they are listed by their digits
        actions = actions.astype(str)
    unknown = ~np.isin(actions, labels)
    if unknown.any():
        refuse_rows(unknown, actions, "actions", f"be among the action_labels {labels.tolist()}", "Add the label.")
    return labels, positions(labels, actions)


def said_of_amounts(counts: Mapping[Any, int]) -> str | None:
    """Return what is strange about labels that look like amounts, given the count of each; None if they do not.

    Amounts are numbers with fractions among them: very many, or many that mostly occur a few times.
    """
    fractions = [label for label in counts if isinstance(label, float) and label % 1 != 0]
    n_few = sum(n < FEW_TIMES for n in counts.values())
    if not fractions or len(counts) <= (SOME_LABELS if 2 * n_few > len(counts) else MANY_LABELS):
        return None
    return (
        f"{len(counts)} different labels, among them fractions such as {fractions[0]:g}, and each counts as an action "
        f"of its own; {n_few} of them occur fewer than {FEW_TIMES} times"
    )


def _warn_of_amounts(counts: Mapping[Any, int]) -> None:
    said = said_of_amounts(counts)
    if said is not None:
        warnings.warn(
            f"actions have {said}. If these are rewards, check the order: Transitions(states, actions, rewards, "
            f"next_states). If they are amounts, put them into a few classes, or name them all in action_labels.",
            KbrlWarning,
            stacklevel=4,
        )


def positions(labels: Array, values: Array) -> Integers:
    """Return the place of each value in the labels, which must contain it."""
    order = np.argsort(labels, kind="stable")
    return order[np.searchsorted(labels, values.astype(labels.dtype), sorter=order)].astype(np.intp)


def unite_labels(label_sets: list[Array]) -> Array:
    """Return all labels, in order of appearance."""
    united, *others = _without_floats(label_sets)
    for labels in others:
        if (united.dtype.kind in "SU") != (labels.dtype.kind in "SU"):
            raise TypeError(f"Actions of logs to join must be of one kind, but they are {united[:3]} and {labels[:3]}.")
        united = np.concatenate([united, labels[~np.isin(labels, united)]])
    return united
