"""The names of the state variables, and frames that are read by these names.

Columns in another order give the same answers.  Arrays, lists, and frames with numbered columns are read by position.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats, Integers
from kbrl.checks import KbrlWarning, as_floats, check_lengths
from kbrl.data.column_names import ALIASES, PREFIXES, listing, without_prefix
from kbrl.data.recipe import Recipe


@dataclass(frozen=True)
class Source:
    """What is known about transitions beside their numbers: names, and whether episodes have identifiers."""

    state_names: tuple[str, ...] | None = None  # one per state variable; None if they have none
    other_names: tuple[str, ...] = ()  # of the log's other columns, which a frame of states may have as well
    has_episode_ids: bool = True  # episodes, if there are any, were identified by the log, not numbered by the reader
    recipe: Recipe | None = None  # how columns became state variables; None: each column is a variable

    @classmethod
    def of_columns(cls, state: Sequence[str], n_dims: int, *, others: Sequence[str], has_episode_ids: bool) -> Source:
        """Return what the columns of a log tell; the variables of one column of vectors are numbered from 0."""
        names = tuple(state) if len(state) == n_dims else None
        if len(state) == 1 and n_dims > 1:
            names = tuple(f"{state[0]}_{number}" for number in range(n_dims))
        taken = set(state)
        rest = tuple(name for name in others if name not in taken)
        return cls(names, rest if names else (), has_episode_ids)

    def __add__(self, other: Source) -> Source:
        """Return the source of both together; the names of the states are the first's, if it has any."""
        names = other.state_names if self.state_names is None else self.state_names
        taken = set(names or ())
        rest = (name for name in dict.fromkeys([*self.other_names, *other.other_names]) if name not in taken)
        self.check_same_recipe(other)
        recipe = self.recipe or other.recipe
        return Source(names, tuple(rest), self.has_episode_ids and other.has_episode_ids, recipe)

    def check_same_recipe(self, other: Source) -> None:
        """Refuse another source whose columns became state variables in another way."""
        different = self.recipe.differences(other.recipe) if self.recipe and other.recipe else []
        if different:
            raise ValueError(
                f"State variables must be made of columns in the same way, but these differ in {'; '.join(different)}. "
                f"Open further logs as the first model needs them: kbrl update, or open_log(..., recipe=model.recipe)."
            )

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
    """Return the names of the columns of a frame; None for anything else, or if some are not strings."""
    labels = _frame_labels(frame)
    return tuple(labels) if labels and all(isinstance(label, str) for label in labels) else None


def rows_by_name(states: Any, source: Source, what: str = "states") -> Any:
    """Return states with the variables in the order of a source: frames and mappings by name, all else as it is.

    One column that holds vectors has all variables, by position.
    """
    if source.state_names is None or (labels := _frame_labels(states)) is None:
        return states
    if source.recipe is not None and set(source.recipe.names) <= {str(label) for label in labels}:
        encoded = source.recipe.encode(_by_text(states, labels, source))
        encoded.refuse()
        encoded.tell()
        return encoded.rows
    found = _found_labels(labels, source, what)
    if found is None:
        return states
    columns = {str(label): np.atleast_1d(_numbers(states[label], f"{what}[{label!r}]")) for label in found}
    check_lengths({name: len(column) for name, column in columns.items()})
    return np.column_stack(list(columns.values()))


def answered(states: Any, source: Source, answer: Callable[[Any], Array]) -> Any:
    """Return the answers for states; for a frame of pandas or polars, a series with the frame's index.

    A row without a state, as where a value is missing that the recipe has no rule for, has no answer: None.  A
    KbrlWarning says how many there are, and why.
    """
    labels = _frame_labels(states)
    recipe = source.recipe
    if recipe is None or labels is None or not set(recipe.names) <= {str(label) for label in labels}:
        return _as_series(states, answer(states))
    encoded = recipe.encode(_by_text(states, labels, source))
    usable = encoded.usable
    encoded.tell()
    if usable.all():
        return _as_series(states, answer(encoded.rows))
    answers = np.full(len(usable), None, dtype=object)
    if usable.any():
        answers[usable] = answer(encoded.rows[usable])
    row = int(np.argmin(usable))
    warnings.warn(
        f"{int((~usable).sum())} of {len(usable)} rows have no answer; the first is row {row}: {encoded.say(row)}.",
        KbrlWarning,
        stacklevel=3,
    )
    return _as_series(states, answers)


def _as_series(states: Any, answers: Array) -> Any:
    """Return answers as the series of the library that the states are a frame of."""
    library = type(states).__module__.split(".")[0] if hasattr(states, "columns") else ""
    if library == "pandas":
        import pandas

        return pandas.Series(answers, index=states.index, name="action")
    if library == "polars":
        import polars

        return polars.Series("action", answers.tolist())
    return answers


def _by_text(frame: Any, labels: Sequence[Any], source: Source) -> dict[str, Any]:
    """Return the columns of a frame by name; refuse those that neither the recipe nor the log knows."""
    known = source.recipe.names if source.recipe else ()
    unknown = [str(label) for label in labels if str(label) not in known and not source.knows(str(label))]
    if unknown:
        raise ValueError(f"{_differences(known, [*known, *unknown], 'The states')} Leave these columns out.")
    wanted = (*known, source.recipe.episode if source.recipe else None)
    return {str(label): frame[label] for label in labels if str(label) in wanted}


def next_rows_by_name(next_states: Any, source: Source) -> Any:
    """Return next states with the variables in the order of the states, where both have names; refuse quite others.

    They have the same names, or all of them with one prefix or suffix more, such as next_age for age.
    """
    names, labels = source.state_names, frame_names(next_states)
    if names is None or labels is None or labels == names:
        return next_states
    found = _with_one_affix(labels, names) or _with_one_affix(labels, without_prefix(names))
    if found is None:
        raise ValueError(
            f"next_states must have the variables of the states, {listing(names)}, but they have {listing(labels)}. "
            f"Name them alike, with a prefix if you like: next_{names[0]}."
        )
    return np.column_stack([_numbers(next_states[label], f"next_states[{label!r}]") for label in found])


def _with_one_affix(labels: Sequence[str], names: Sequence[str]) -> list[str] | None:
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
    """Return one state with the variables in the order of a source; only a Series or a dict is changed."""
    if source.state_names is None or isinstance(state, (np.ndarray, list, tuple)):
        return state
    labels = list(state) if isinstance(state, Mapping) else getattr(state, "index", None)
    if labels is None or callable(labels):
        return state
    if source.recipe is not None and set(source.recipe.names) <= {str(label) for label in labels}:
        return rows_by_name({label: [state[label]] for label in labels}, source)[0]
    found = _found_labels(list(labels), source, "states")
    if found is None:
        return state
    return np.concatenate([np.atleast_1d(as_floats(state[label], f"state[{label!r}]")) for label in found])


def _frame_labels(frame: Any) -> list[Any] | None:
    """Return the labels of the columns of a frame of pandas, polars or Arrow, or of a mapping; None for others."""
    if isinstance(frame, (np.ndarray, list, tuple)):
        return None
    labels = frame if isinstance(frame, Mapping) else getattr(frame, "column_names", getattr(frame, "columns", None))
    return None if labels is None or callable(labels) else list(labels)


def _found_labels(labels: Sequence[Any], source: Source, what: str) -> list[Any] | None:
    """Return the labels of the state variables in their order; None where labels are only numbers that name none."""
    names = source.state_names or ()
    texts = [str(label) for label in labels]
    found = find_names(texts, names) or _vector_name(texts, names)
    if found is None and not any(isinstance(label, str) for label in labels):
        return None
    unknown = [text for text in texts if text not in (found or names) and not source.knows(text)]
    if found is None or unknown:
        given = [text for text in texts if text in names or text in unknown]
        said = _differences(names, given, "The states" if what == "states" else what)
        raise ValueError(f"{said} Pass these variables by these names: frame[{list(names)}].")
    repeated = [name for name in found if texts.count(name) > 1]
    if repeated:
        raise ValueError(f"Columns of states must have different names, but {listing(repeated)} occur more than once.")
    return [labels[texts.index(name)] for name in found]


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
