"""Labels of actions and episodes as users pass them: checked, numbered, and united.

Any labels of one kind will do: whole numbers, other numbers, truth values, words, dates.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from kbrl.arrays import Array, Integers
from kbrl.checks import KbrlWarning, check_finite, one_entry_a_row, refuse_masked, refuse_rows

MANY_LABELS = 100  # more different fractions than this are hardly actions


def as_labels(values: Any, name: str) -> Array:
    """Return labels of one kind, (n,), or say what is wrong with them."""
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
    """Return an array; a list of mixed kinds is not turned into words, so that its faults can be seen."""
    if isinstance(values, (list, tuple)) and len({type(value) for value in values if not isinstance(value, list)}) > 1:
        numbers = (bool, int, float, np.number, np.bool_)
        if not all(isinstance(value, numbers) for value in values):
            array = np.empty(len(values), dtype=object)
            array[:] = values
            return array
    return np.array(values)


def index_labels(actions: Array, action_labels: Sequence[Any] | Array | None) -> tuple[Array, Integers]:
    """Return the possible labels, (n_actions,), by default those that occur in order, and the place of each action."""
    if action_labels is None:
        labels, indices = np.unique(actions, return_inverse=True)
        _warn_of_fractions(labels)
        return labels, indices.astype(np.intp)
    labels = as_labels(action_labels, "action_labels")
    if len(np.unique(labels)) != len(labels):
        raise ValueError(f"action_labels must differ from each other, but they are {labels.tolist()}.")
    unknown = ~np.isin(actions, labels)
    if unknown.any():
        refuse_rows(unknown, actions, "actions", f"be among the action_labels {labels.tolist()}", "Add the label.")
    return labels, positions(labels, actions)


def _warn_of_fractions(labels: Array) -> None:
    """Warn where so many labels are fractions that they may be rewards, or measurements."""
    if labels.dtype.kind == "f" and len(labels) > MANY_LABELS and (labels % 1 != 0).any():
        fraction = float(labels[labels % 1 != 0][0])
        warnings.warn(
            f"actions have {len(labels)} different labels, among them fractions such as {fraction:g}, and each counts "
            f"as an action of its own. If these are rewards, mind the order: Transitions(states, actions, rewards, "
            f"next_states). If they are amounts, put them into a few classes, or name them all in action_labels.",
            KbrlWarning,
            stacklevel=4,
        )


def positions(labels: Array, values: Array) -> Integers:
    """Return the place of each value in the labels; all of them occur there."""
    order = np.argsort(labels, kind="stable")
    return order[np.searchsorted(labels, values, sorter=order)].astype(np.intp)


def unite_labels(label_sets: list[Array]) -> Array:
    """Return all labels, in order of appearance."""
    united = label_sets[0]
    for labels in label_sets[1:]:
        if (united.dtype.kind in "SU") != (labels.dtype.kind in "SU"):
            raise TypeError(f"Actions of logs to join must be of one kind, but they are {united[:3]} and {labels[:3]}.")
        united = np.concatenate([united, labels[~np.isin(labels, united)]])
    return united
