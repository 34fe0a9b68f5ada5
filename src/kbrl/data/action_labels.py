"""Labels of actions and episodes as users pass them: checked, numbered, and united.

Labels may be of any one kind: whole numbers, other numbers, truth values, words, dates.  If some whole numbers do not
fit into int64, all labels become strings of digits, because the floats of NumPy would merge some.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from kbrl.arrays import Array, Integers
from kbrl.checks import KbrlWarning, check_finite, one_entry_a_row, refuse_masked, refuse_rows

MANY_LABELS = 100  # more different fractions than this are hardly actions
SOME_LABELS = 20  # nor are more than this, if most of them occur only a few times
FEW_TIMES = 5
LARGEST_WHOLE_FLOAT = 2**53  # beyond it, floats leave whole numbers out
_INT64 = np.iinfo(np.int64)


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
    array = one_entry_a_row(_as_array(values), name)
    if array.dtype.kind == "M" and np.isnat(array).any():
        refuse_rows(np.isnat(array), array.astype(str), name, "be labels", "Drop the rows without a date.")
    if array.dtype.kind == "f":
        check_finite(array, name)
    if array.dtype.kind == "O":
        missing = np.array([value is None or value != value for value in array])
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
    """Return sets of whole numbers of which NumPy would make floats together as int64, or as words if one is larger."""
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
