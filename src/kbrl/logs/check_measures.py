"""What the check measures within each row: cells, state variables, rewards and actions.

Each measure sees the rows chunk by chunk, needs little memory, and reports at the end which faults it found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Integers
from kbrl.data.action_labels import find_label, said_of_amounts
from kbrl.logs.columns import Columns
from kbrl.logs.label_types import ActionSet, label_array
from kbrl.logs.rows import Rows, is_usable
from kbrl.tables.faults import PLACE, SHOWN_ROWS, Fault, LogError, counted, make_fault

FEWEST_TRIES = 10  # an action taken less often than that, or in fewer than a thousandth of the rows, is rare
LARGEST_SCALE_RATIO = 1000.0
OUTLIER_DOUBLINGS = 10  # an outlier is about a thousand times the usual size


@dataclass
class Tally:
    """How often something was seen, and in which rows first."""

    count: int = 0
    rows: list[int] = field(default_factory=list)

    def add(self, bad: Booleans, first: int) -> None:
        """Count the marked rows; ``first`` is the number of the first row, marked or not."""
        self.add_rows(first + np.flatnonzero(bad))

    def add_rows(self, rows: Integers) -> None:
        """Count rows by their numbers."""
        self.count += len(rows)
        self.rows += rows[: SHOWN_ROWS - len(self.rows)].tolist()


class CellMeasure:
    """Cells that are missing, infinite, too large or not numbers, and flags that contradict each other."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[Tally, str]] = {}
        self._both = Tally()

    def add(self, rows: Rows) -> None:
        """Take more rows into account."""
        for problem in rows.problems:
            tally, _ = self._found.setdefault((problem.name, problem.column), (Tally(), problem.sample))
            tally.add(problem.bad, rows.first)
        self._both.add(rows.both_flags, rows.first)

    def faults(self) -> Iterator[Fault]:
        """Yield one fault per column and kind of cell."""
        for (name, column), (tally, sample) in self._found.items():
            message = f"{column!r}: {counted(tally.count, 'cell')}, the first is {PLACE}: {sample}."
            yield make_fault(name, message, count=tally.count, rows=tally.rows, columns=[column])
        if self._both.count:
            message = f"{self._both.count} rows are both terminated and truncated."
            yield make_fault("both_flags", message, count=self._both.count, rows=self._both.rows)


class VariableMeasure:
    """The range and the spread of each state variable."""

    def __init__(self, columns: Columns) -> None:
        self._names = columns.state
        self._low: Array | None = None

    def add(self, rows: Rows) -> None:
        """Take more rows into account."""
        usable = is_usable(rows.states)
        if self._low is None:
            zeros = np.zeros(rows.states.shape[1])
            self._low, self._high, self._count, self._sum, self._squares = zeros + np.inf, zeros - np.inf, *[zeros] * 3
            self._shift = np.where(usable[0], rows.states[0], 0.0)  # keeps the squares small
        moved = np.where(usable, rows.states, self._shift) - self._shift
        self._squares = self._squares + (moved**2).sum(axis=0)
        self._sum = self._sum + moved.sum(axis=0)
        self._count = self._count + usable.sum(axis=0)
        self._low = np.minimum(self._low, np.where(usable, rows.states, np.inf).min(axis=0))
        self._high = np.maximum(self._high, np.where(usable, rows.states, -np.inf).max(axis=0))

    def faults(self) -> Iterator[Fault]:
        """Yield variables that never change, or whose scales are very different."""
        if self._low is None:
            return
        is_constant = self._low == self._high
        names = self._variable_names(len(is_constant))
        if is_constant.any():
            found = [name for name, bad in zip(names, is_constant) if bad]
            message = f"{', '.join(found)} never change."
            yield make_fault("constant_variable", message, count=len(found), unit="variables", columns=found)
        spread = np.where(is_constant | (self._count == 0), np.nan, self._spread())
        if np.isfinite(spread).any() and np.nanmax(spread) > LARGEST_SCALE_RATIO * np.nanmin(spread):
            wide, narrow = names[int(np.nanargmax(spread))], names[int(np.nanargmin(spread))]
            ratio = np.nanmax(spread) / np.nanmin(spread)
            message = f"The standard deviation of {wide} is {ratio:.1e} times that of {narrow}."
            yield make_fault("unequal_scales", message, count=2, unit="variables", columns=[wide, narrow])

    def _spread(self) -> Array:
        count = np.maximum(self._count, 1)
        return np.sqrt(np.maximum(self._squares / count - (self._sum / count) ** 2, 0.0))

    def _variable_names(self, n_dims: int) -> list[str]:
        if len(self._names) == n_dims:
            return list(self._names)
        return [f"{'+'.join(self._names)}[{k}]" for k in range(n_dims)]


_WHY_EQUAL = {False: "no row ends an episode", True: "every row ends its episode"}


class RewardMeasure:
    """The sizes of the rewards, by powers of two, without those at ends, where a prize or a penalty is usual."""

    _ZERO = 1100  # the place of the size 1/2 to 1

    def __init__(self, columns: Columns) -> None:
        self._column = columns.reward
        self._sizes = np.zeros(2200, dtype=np.int64)
        self._rows: dict[int, list[int]] = {}
        self._low, self._high, self._n_rows, self._n_ends = np.inf, -np.inf, 0, 0

    def add(self, rows: Rows) -> None:
        """Take more rows into account."""
        usable = is_usable(rows.rewards)
        self._n_rows += len(rows)
        self._n_ends += int(rows.terminated.sum())
        self._low = min(self._low, rows.rewards[usable].min(initial=np.inf))
        self._high = max(self._high, rows.rewards[usable].max(initial=-np.inf))
        places = np.flatnonzero(usable & (rows.rewards != 0) & ~rows.terminated)
        sizes = np.frexp(rows.rewards[places])[1] + self._ZERO
        self._sizes += np.bincount(sizes, minlength=len(self._sizes))
        for size in np.unique(sizes).tolist():
            first = self._rows.setdefault(size, [])
            if len(first) < SHOWN_ROWS:
                first += (rows.first + places[sizes == size][: SHOWN_ROWS - len(first)]).tolist()

    def faults(self) -> Iterator[Fault]:
        """Yield what is strange about the rewards."""
        if self._low == self._high and self._n_rows > 1 and not self._length_matters:
            why = f", and {_WHY_EQUAL[self._n_ends > 0]}" if self._low else ""
            message = f"All rewards are {self._low:g}{why}."
            yield make_fault("constant_reward", message, count=self._n_rows, columns=[self._column])
        total = int(self._sizes.sum())
        usual = int(np.searchsorted(np.cumsum(self._sizes), (total + 1) // 2))
        count = int(self._sizes[usual + OUTLIER_DOUBLINGS + 1 :].sum()) if total else 0
        if total >= 10 and 0 < count <= max(3, total // 100):
            far = sorted(row for size, first in self._rows.items() if size > usual + OUTLIER_DOUBLINGS for row in first)
            message = (
                f"{count} rewards before an end are at least {2**OUTLIER_DOUBLINGS} times as large as the usual one, "
                f"which is about {2.0 ** (usual - self._ZERO):.2g}; the first is {PLACE}."
            )
            yield make_fault("reward_outliers", message, count=count, rows=far, columns=[self._column])

    @property
    def _length_matters(self) -> bool:
        """Whether some rows end an episode and others do not; a constant reward other than 0 then counts steps."""
        return self._low != 0 and 0 < self._n_ends < self._n_rows


class ActionMeasure:
    """How often each action was taken."""

    def __init__(self, columns: Columns, actions: Sequence[Any] | None, *, is_text: bool) -> None:
        self._taken = ActionSet(columns.action, is_text=is_text)
        self._possible, self._column = actions, columns.action
        self.counts: dict[Any, int] = {}

    def add(self, rows: Rows) -> None:
        """Take more rows into account."""
        codes, counts = rows.actions.taken()
        self._taken.see([rows.actions.values[code] for code in codes], counts)

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong with the set of actions."""
        try:
            self.counts = self._taken.settled()
            labels = label_array(self.counts, self._possible, self._column).tolist()
        except LogError as error:
            yield error.fault
            return
        total = sum(self.counts.values())
        rare = [a for a, n in self.counts.items() if n < max(FEWEST_TRIES, total / 1000)]
        places = {label: place for place, label in enumerate(labels)}
        tried = {find_label(label, places) for label in self.counts}
        untried = [label for label, place in places.items() if place not in tried]
        said = said_of_amounts(self.counts) if self._possible is None else None
        if said is not None:
            message = f"{self._column!r} has {said}."
            yield make_fault("many_actions", message, count=len(labels), unit="actions", columns=[self._column])
        if rare:
            yield self._fault("rare_action", rare, ", ".join(f"{a}: {self.counts[a]} rows" for a in rare[:8]))
        if untried:
            yield self._fault("untried_action", untried, f"{', '.join(map(str, untried[:8]))}: never taken")
        if len(self.counts) == 1:
            yield self._fault("single_action", list(self.counts), f"all {total} rows have {next(iter(self.counts))!r}")

    def _fault(self, name: str, labels: list[Any], text: str) -> Fault:
        message = f"Of {sum(self.counts.values())} actions taken, {text}."
        return make_fault(name, message, count=len(labels), unit="actions", columns=[self._column])
