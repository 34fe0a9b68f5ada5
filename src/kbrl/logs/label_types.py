"""Before rows are read: the type and the order of the labels of actions and episodes.

In a text file, labels are whole numbers, numbers, truth values or words: the narrowest type that all labels of the
column allow.  A text such as 007, which a number would change, stays a word.  If one label is a whole number beyond
int64, all labels are words.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from kbrl.arrays import Array
from kbrl.checks import KbrlWarning
from kbrl.data.action_labels import (
    LARGEST_WHOLE_FLOAT,
    array_of_labels,
    find_label,
    fits_int64,
    is_whole,
    said_of_amounts,
)
from kbrl.tables.faults import CATALOGUE, LogError

MOST_ACTIONS = 1000  # more labels than that are continuous actions
_PATTERNS: dict[type, re.Pattern[str]] = {
    int: re.compile(r"0|-?[1-9]\d*"),
    float: re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"),
    bool: re.compile(r"[Tt]rue|[Ff]alse"),
}


def _allows(text: str, kind: type) -> bool:
    """Return whether a text can become a type without loss."""
    if not _PATTERNS[kind].fullmatch(text):
        return False
    if kind is bool or not _PATTERNS[int].fullmatch(text):
        return True
    if len(text) > 20:  # more than an int64 has; Python refuses to convert thousands of digits
        return False
    return fits_int64(int(text)) if kind is int else abs(int(text)) <= LARGEST_WHOLE_FLOAT


class TextType:
    """Finds the narrowest type that all texts of a column allow, batch by batch."""

    def __init__(self) -> None:
        self._possible = list(_PATTERNS)

    def see(self, texts: Iterable[Hashable]) -> None:
        """Take more texts into account."""
        for text in texts if self._possible else ():
            self._possible = [kind for kind in self._possible if _allows(str(text), kind)]

    def __add__(self, other: TextType) -> TextType:
        """Return the types that the texts of both parts allow."""
        result = TextType()
        result._possible = [kind for kind in self._possible if kind in other._possible]
        return result

    @property
    def found(self) -> type:
        """The narrowest type; str if nothing else is possible."""
        return self._possible[0] if self._possible else str


def as_type(value: Hashable, kind: type | None) -> Any:
    """Return a label as a type that it allows; None leaves it as it is."""
    if kind is None:
        return value
    return str(value).lower() == "true" if kind is bool else kind(value)


class ActionSet:
    """Counts how often each action was taken."""

    def __init__(self, column: str, *, is_text: bool) -> None:
        self.column, self.is_text = column, is_text
        self.counts: dict[tuple[type, Hashable], int] = {}

    def see(self, values: Iterable[Hashable], counts: Iterable[int]) -> None:
        """Take more rows into account."""
        for value, count in zip(values, counts):
            key = (type(value), value)
            self.counts[key] = self.counts.get(key, 0) + int(count)
        if len(self.counts) > MOST_ACTIONS:
            shown = ", ".join(str(value) for _, value in list(self.counts)[:3])
            raise LogError(
                "too_many_actions",
                f"Actions must be a few labels, but {self.column!r} has more than {MOST_ACTIONS}: {shown}, ...",
                columns=[self.column],
            )

    def __add__(self, other: ActionSet) -> ActionSet:
        """Return the actions of both parts of a log."""
        result = ActionSet(self.column, is_text=self.is_text or other.is_text)
        for part in (self, other):
            result.see((value for _, value in part.counts), part.counts.values())
        return result

    def kind(self) -> type | None:
        """Return the type that the labels are converted to, None if they stay as they are."""
        kinds = {kind for kind, _ in self.counts}
        if self.is_text:
            texts = TextType()
            texts.see(value for _, value in self.counts)
            return texts.found
        if kinds == {int} and not all(fits_int64(value) for value in self._whole_numbers()):
            return str
        if kinds == {int, float} and all(abs(value) <= LARGEST_WHOLE_FLOAT for value in self._whole_numbers()):
            return float
        if len(kinds) > 1:
            raise LogError(
                "mixed_actions",
                f"Actions must be labels of one kind, but {self.column!r} mixes {sorted(k.__name__ for k in kinds)}.",
                columns=[self.column],
            )
        return None

    def _whole_numbers(self) -> list[int]:
        return [value for _, value in self.counts if is_whole(value)]

    def settled(self) -> dict[Any, int]:
        """Return how often each label was taken, in the order of the labels."""
        kind = self.kind()
        counts: dict[Any, int] = {}
        for (_, value), count in self.counts.items():
            label = as_type(value, kind)
            counts[label] = counts.get(label, 0) + count
        return dict(sorted(counts.items()))


def warn_of_amounts(taken: Mapping[Any, int], column: str) -> None:
    """Warn if the labels of a column look like amounts; ``taken`` has the count of each."""
    said = said_of_amounts(taken)
    if said is not None:
        warnings.warn(f"{column!r} has {said}. {CATALOGUE['many_actions'][1]}", KbrlWarning, stacklevel=5)


def label_array(taken: Iterable[Any], actions: Iterable[Any] | None, column: str) -> Array:
    """Return the labels of all actions, (n_actions,): ``actions``, which must include all taken, or those taken."""
    taken = list(taken)
    if actions is None:
        return array_of_labels(taken)
    labels = array_of_labels(actions)
    possible = labels.tolist()
    places = {label: place for place, label in enumerate(possible)}
    unknown = [label for label in taken if find_label(label, places) < 0]
    if unknown:
        raise LogError(
            "unknown_action",
            f"Actions must be among {possible}, but {column!r} also has {unknown[:5]}.",
            columns=[column],
        )
    return labels
