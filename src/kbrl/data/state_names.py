"""The names of the state variables, and frames that are read by these names.

Columns in another order give the same answers.  Arrays, lists, and frames with numbered columns are read by position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbrl.arrays import Integers
from kbrl.checks import as_floats, check_lengths
from kbrl.data.column_names import ALIASES, PREFIXES, listing, without_prefix


@dataclass(frozen=True)
class Source:
    """What is known about transitions beside their numbers: names, and whether episodes have identifiers."""

    state_names: tuple[str, ...] | None = None  # one per state variable; None if they have none
    other_names: tuple[str, ...] = ()  # of the log's other columns, which a frame of states may have as well
    has_episode_ids: bool = True  # episodes, if there are any, were identified by the log, not numbered by the reader

    @classmethod
    def of_columns(cls, state: Sequence[str], n_dims: int, *, others: Sequence[str], has_episode_ids: bool) -> Source:
        """Return the source of a log with these columns; a single column of lists names no variables."""
        names = tuple(state) if len(state) == n_dims else None
        rest = tuple(name for name in others if name not in state)
        return cls(names, rest if names else (), has_episode_ids)

    def __add__(self, other: Source) -> Source:
        """Return the source of both together; the names of the states are the first's, if it has any."""
        names = other.state_names if self.state_names is None else self.state_names
        rest = (name for name in dict.fromkeys([*self.other_names, *other.other_names]) if name not in (names or ()))
        return Source(names, tuple(rest), self.has_episode_ids and other.has_episode_ids)

    def places_in(self, other: Source) -> Integers | None:
        """Return the places of these state variables in another source, (n_dims,); None if the order is the same.

        Other variables are refused.  If one of the two has no names, position counts.
        """
        mine, theirs = self.state_names, other.state_names
        if mine is None or theirs is None or mine == theirs:
            return None
        found = find_names(theirs, mine)
        if found is None or len(theirs) != len(mine):
            raise ValueError(f"{_differences(mine, theirs, 'Transitions')} Give the same variables by the same names.")
        return np.array([theirs.index(name) for name in found], dtype=np.intp)

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


def rows_by_name(states: Any, source: Source) -> Any:
    """Return states with the variables in the order of a source; only frames and mappings are changed."""
    if source.state_names is None or (labels := _frame_labels(states)) is None:
        return states
    found = _found_labels(labels, source)
    if found is None:
        return states
    columns = {str(label): np.atleast_1d(as_floats(states[label], f"states[{label!r}]")) for label in found}
    check_lengths({name: len(column) for name, column in columns.items()})
    return np.column_stack(list(columns.values()))


def row_by_name(state: Any, source: Source) -> Any:
    """Return one state with the variables in the order of a source; only a Series or a dict is changed."""
    if source.state_names is None or isinstance(state, (np.ndarray, list, tuple)):
        return state
    labels = list(state) if isinstance(state, Mapping) else getattr(state, "index", None)
    if labels is None or callable(labels):
        return state
    found = _found_labels(list(labels), source)
    return state if found is None else as_floats([state[label] for label in found], "state")


def _frame_labels(frame: Any) -> list[Any] | None:
    """Return the labels of the columns of a frame of pandas, polars or Arrow, or of a mapping; None for others."""
    if isinstance(frame, (np.ndarray, list, tuple)):
        return None
    labels = frame if isinstance(frame, Mapping) else getattr(frame, "column_names", getattr(frame, "columns", None))
    return None if labels is None or callable(labels) else list(labels)


def _found_labels(labels: Sequence[Any], source: Source) -> list[Any] | None:
    """Return the labels of the state variables in their order; None if all labels are numbers and name none."""
    names = source.state_names or ()
    texts = [str(label) for label in labels]
    found = find_names(texts, names)
    if found is None and not any(isinstance(label, str) for label in labels):
        return None
    unknown = [text for text in texts if text not in (found or names) and not source.knows(text)]
    if found is None or unknown:
        what = _differences(names, [text for text in texts if text in names or text in unknown], "The states")
        raise ValueError(f"{what} Pass these variables by these names: frame[{list(names)}].")
    repeated = [name for name in found if texts.count(name) > 1]
    if repeated:
        raise ValueError(f"Columns of states must have different names, but {listing(repeated)} occur more than once.")
    return [labels[texts.index(name)] for name in found]


def _differences(names: Sequence[str], given: Sequence[str], what: str) -> str:
    missing, unknown = [n for n in names if n not in given], [n for n in given if n not in names]
    lacks = [f"lack {listing(missing)}"] if missing else []
    has = [f"have {listing(unknown)}, which the model does not know"] if unknown else []
    said = " and ".join(lacks + has)
    return f"{what} must have the variables that the model was fitted to, {listing(names)}, but they {said}."
