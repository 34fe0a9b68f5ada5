"""What the cells of one column are: counts that add up, whatever the split of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kbrl.arrays import Booleans, Floats
from kbrl.data.scaling import Moments
from kbrl.data.state_column import level_text
from kbrl.data.values import ValueCounts, ValueMemory
from kbrl.tables.cell_values import BLANKS, Column, Labels, Numbers

MOST_TEXTS = 10_000  # different texts of a column that are counted
MOST_CHANGE = 1e150  # its square is finite
LEAST_PAIRS = 30  # of values of the same episode, to tell whether values last


class Cells(NamedTuple):
    """The known cells of some rows, (n,) each; NaN in both where a cell is missing."""

    numbers: Floats
    texts: Floats  # the place of each text among those seen


@dataclass
class ColumnFacts:
    """What the cells of one column are."""

    n_rows: int = 0
    n_missing: int = 0
    n_left: int = 0  # still missing after earlier values of the episode were carried forward
    n_numbers: int = 0
    width: int = 0  # of vectors; 0 for single cells
    is_time: bool = False
    levels: Counter[str] = field(default_factory=Counter)  # texts that are not numbers, or all of them
    too_many: bool = False  # different texts
    first_text: tuple[int, str] | None = None  # the row of the first cell that is not a number, and the cell
    counts: ValueCounts = field(default_factory=ValueCounts)
    changes: Moments = field(default_factory=lambda: Moments(1))  # of numbers, from the last known one of the episode
    n_pairs: int = 0  # texts that follow a text in the same episode
    n_same: int = 0  # of these, the same text

    def add(self, column: Column, first: int, *, all_texts: bool) -> Cells:
        """Take more cells into account; with ``all_texts``, numbers are levels as well."""
        return self._add_labels(column, first, all_texts) if isinstance(column, Labels) else self._add(column, first)

    @property
    def lasts(self) -> bool:
        """Whether the last value of the episode is a better guess than the middle of the column.

        True if there are too few to tell.  Of numbers, the mean square of their changes is compared with their
        variance; of texts, how often the last one occurs again with how often the most frequent one occurs.
        """
        if self.n_numbers and not self.levels:
            values, counts = self.counts.values()
            middle = np.average(values, weights=counts) if len(values) else 0.0
            n_pairs, n_all = self.changes.n_rows, int(counts.sum())
            apart = float(np.sum(counts * np.square(values - middle)))
            return n_pairs < LEAST_PAIRS or self.changes.mean_square()[0] <= apart / n_all
        usual = max(self.levels.values(), default=0) / max(sum(self.levels.values()), 1)
        return self.n_pairs < LEAST_PAIRS or self.n_same >= usual * self.n_pairs

    def _add(self, column: Numbers, first: int) -> Cells:
        if column.values.ndim == 2:
            self.width = column.values.shape[1]
            self.n_rows += len(column)
            return Cells(np.zeros(len(column)), np.full(len(column), np.nan))
        odd = np.zeros(len(column), dtype=bool) if column.odd is None else column.odd
        missing = np.isnan(column.values) & ~odd
        self.n_rows, self.is_time = self.n_rows + len(column), self.is_time or column.is_time
        self.n_missing += int(missing.sum())
        self.n_numbers += len(column) - int(missing.sum()) - len(column.texts)
        self.counts.add(column.values)
        texts = np.full(len(column), np.nan)
        if column.texts:
            own = [str(text).strip("'") for text in column.texts]
            self._count(dict(Counter(own)))
            self._note(first + int(np.argmax(odd)), column.texts[0])
            texts[odd] = self._places(own)
        return Cells(np.where(odd, np.nan, column.values), texts)

    def _add_labels(self, column: Labels, first: int, all_texts: bool) -> Cells:
        names = [level_text(value) for value in column.values]
        is_number = np.array([not all_texts and _is_number(value) for value in column.values] + [False])
        missing = np.array([name is None for name in names] + [True])[column.codes]
        codes, times = column.taken()
        counted: dict[str, int] = {}
        for code, n in zip(codes.tolist(), times.tolist()):
            name = names[code]
            if name is not None and not is_number[code]:
                counted[name] = counted.get(name, 0) + n
        self.n_rows, self.n_missing = self.n_rows + len(column), self.n_missing + int(missing.sum())
        self.n_numbers += int(is_number[column.codes].sum())
        if counted:
            self._count(counted)
            row = int(np.argmax(~missing & ~is_number[column.codes]))
            self._note(first + row, repr(names[column.codes[row]]))
        values: list[Any] = list(column.values)
        numbers = np.array([float(v) if n else np.nan for v, n in zip(values, is_number.tolist())] + [np.nan])
        texts = np.where(is_number, np.nan, np.append(self._places(names), np.nan))
        return Cells(numbers[column.codes], texts[column.codes])

    def _places(self, names: Sequence[str | None]) -> Floats:
        """Return a number for each text, the same for the same one; NaN for those that are not counted."""
        known = {name: place for place, name in enumerate(self.levels)}
        return np.array([np.nan if name is None else known.get(name, np.nan) for name in names], dtype=np.float64)

    def _count(self, texts: dict[str, int]) -> None:
        self.levels.update(texts)
        if len(self.levels) > MOST_TEXTS:
            self.too_many = True
            self.levels = Counter({text: self.levels[text] for text in sorted(self.levels)[:100]})

    def _note(self, row: int, text: str) -> None:
        self.first_text = min(self.first_text or (row, text), (row, text))

    def __add__(self, other: ColumnFacts) -> ColumnFacts:
        """Return the facts of both parts; rows are counted from the start of the first one."""
        noted = other.first_text and (self.n_rows + other.first_text[0], other.first_text[1])
        result = ColumnFacts(
            self.n_rows + other.n_rows,
            self.n_missing + other.n_missing,
            self.n_left + other.n_left,
            self.n_numbers + other.n_numbers,
            max(self.width, other.width),
            self.is_time or other.is_time,
            Counter(self.levels),
            self.too_many or other.too_many,
            self.first_text or noted,
            self.counts + other.counts,
            self.changes + other.changes,
            self.n_pairs + other.n_pairs,
            self.n_same + other.n_same,
        )
        result._count(dict(other.levels))
        return result


class Carrying:
    """Finds out what carrying values forward within episodes would do to a column, from batch to batch."""

    def __init__(self, facts: ColumnFacts) -> None:
        self._facts, self._numbers, self._texts = facts, ValueMemory(), ValueMemory()

    def add(self, cells: Cells, starts: Booleans) -> None:
        """Take the next rows into account; ``starts`` says which of them begin an episode."""
        numbers, texts = self._numbers.add(cells.numbers, starts), self._texts.add(cells.texts, starts)
        self._facts.n_left += int((np.isnan(numbers.last) & np.isnan(texts.last)).sum())
        with np.errstate(over="ignore", invalid="ignore"):
            changes = cells.numbers - numbers.before
        self._facts.changes.accumulate(changes[np.abs(changes) < MOST_CHANGE, None])
        follows = ~np.isnan(cells.texts) & ~np.isnan(texts.before)
        self._facts.n_pairs += int(follows.sum())
        self._facts.n_same += int((cells.texts == texts.before).sum())


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return value.strip().lower() not in BLANKS
    return isinstance(value, (int, float)) and value == value
