"""Beside the way to transitions: find everything that is wrong with a log, in one pass and in bounded memory.

Each fault has a name, a count, its first rows, whether it stops learning, and advice.  A fault stops learning if and
only if the reader refuses the log because of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kbrl.checks import whole
from kbrl.logs.check_measures import (
    ORDER_FAULTS,
    ActionMeasure,
    CellMeasure,
    RewardMeasure,
    SuccessionMeasure,
    VariableMeasure,
)
from kbrl.logs.columns import Columns, resolve
from kbrl.logs.log import CHUNK_ROWS, Mapped, in_order, prepare
from kbrl.logs.rows import read_rows
from kbrl.logs.sequence import LeftOut, refuse_left_out
from kbrl.logs.sorted_table import said_of_repeats
from kbrl.logs.value_facts import look_at_values
from kbrl.notebooks import html_table
from kbrl.tables.faults import CATALOGUE, Fault, LogError, located, make_fault
from kbrl.tables.formats import Table, open_table
from kbrl.tables.text_files import dialect_in


@dataclass(frozen=True)
class Report:
    """What a log contains and what is wrong with it; the faults that stop learning come first."""

    faults: tuple[Fault, ...]
    n_rows: int
    n_episodes: int
    n_transitions: int  # that learning gets from the rows
    actions: dict[Any, int]  # how often each was taken
    columns: Columns | None
    unused: tuple[str, ...]  # columns that are not read
    left_out: LeftOut = field(default_factory=LeftOut)  # rows that do not become transitions, by reason

    @property
    def stops_learning(self) -> bool:
        """Whether any of the faults stops learning."""
        return any(fault.stops_learning for fault in self.faults)

    def _repr_html_(self) -> str:
        """Return the report as a notebook shows it."""
        title = f"{self.n_rows:,} rows, {self.n_episodes:,} episodes, {self.n_transitions:,} transitions"
        rows = [
            (fault.name, f"{fault.count:,}", "yes" if fault.stops_learning else "no", f"{fault.message} {fault.advice}")
            for fault in self.faults
        ]
        rows += [] if rows else [("No faults found.",)]  # type: ignore[list-item]
        return html_table(title, rows, head=("fault", "count", "stops learning", "what is wrong, and what to do"))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dict for JSON."""
        return {
            "stops_learning": self.stops_learning,
            "n_rows": self.n_rows,
            "n_episodes": self.n_episodes,
            "n_transitions": self.n_transitions,
            "left_out": asdict(self.left_out),
            "actions": [{"label": label, "count": count} for label, count in self.actions.items()],
            "columns": None if self.columns is None else self.columns.to_dict(),
            "unused": list(self.unused),
            "faults": [fault.to_dict() for fault in self.faults],
        }


def check_log(
    source: Any, *, columns: Mapped = None, actions: Sequence[Any] | None = None, chunk_rows: int = CHUNK_ROWS
) -> Report:
    """Return a report of everything that is wrong with a log; arguments as for ``read_log``.  Nothing is raised for it.

    >>> report = check_log({"obs": [0.0, 0.5, None], "action": ["go", "go", "wait"], "reward": [0, 0, 1],
    ...                     "done": [0, 0, 1]})
    >>> report.stops_learning, report.n_rows, report.actions
    (False, 3, {'go': 2, 'wait': 1})
    >>> report.faults[0].name, report.faults[0].message
    ('filled_values', "Missing values of 'obs', in 1 of 3 rows, become the median, 0, with a variable that marks them.")
    """
    whole(chunk_rows, "chunk_rows")
    try:
        table = open_table(source, dialect_in(columns))
        named = resolve(table.names, columns)
        table = in_order(table, named)
    except LogError as error:
        return Report((error.fault,), 0, 0, 0, {}, None, ())
    try:
        recipe, faults = look_at_values(table, named).decided(named, table)
    except LogError as error:  # the pass below also finds it, if it is about the rows
        recipe, faults = None, [error.fault]
    return _Check(prepare(table, named, recipe, is_known=True), named, actions, faults).run(chunk_rows)


class _Check:
    """The measures of one pass."""

    def __init__(
        self, table: Table, columns: Columns, actions: Sequence[Any] | None, faults: Sequence[Fault] = ()
    ) -> None:
        self._table, self._columns, self._faults = table, columns, faults
        recipe = getattr(table, "recipe", None)
        names = columns.state if recipe is None else recipe.variables
        self._actions = ActionMeasure(columns, actions, is_text=table.is_text)
        self._succession = SuccessionMeasure(columns)
        self._others = (CellMeasure(table), VariableMeasure(names), RewardMeasure(columns))
        self._n_rows = 0

    def run(self, chunk_rows: int) -> Report:
        faults = [*self._faults, *self._read(chunk_rows)]
        for measure in (*self._others, self._succession, self._actions):
            faults += measure.faults()
        faults += self._too_many_left_out(faults)
        faults += self._of_the_whole(faults)
        places = list(CATALOGUE)
        unique = {(fault.name, fault.columns): fault for fault in faults}.values()
        ordered = sorted(
            located(unique, self._table), key=lambda fault: (not fault.stops_learning, places.index(fault.name))
        )
        counts = self._succession.n_episodes, self._succession.n_transitions
        used = set(self._columns.used())
        unused = tuple(name for name in self._table.names if name not in used)
        left_out = self._succession.left_out
        return Report(tuple(ordered), self._n_rows, *counts, self._actions.counts, self._columns, unused, left_out)

    def _read(self, chunk_rows: int) -> Iterator[Fault]:
        """Show all rows to the measures; a fault that makes the rest unreadable ends the pass."""
        try:
            for rows in read_rows(self._table, self._columns, chunk_rows):
                self._n_rows += len(rows)
                for measure in (*self._others, self._succession, self._actions):
                    measure.add(rows)
        except LogError as error:
            yield error.fault

    def _of_the_whole(self, faults: list[Fault]) -> Iterator[Fault]:
        columns, n_repeats = self._columns, getattr(self._table, "n_repeats", 0)
        if n_repeats:
            yield make_fault("repeated_rows", said_of_repeats(n_repeats, self._n_rows), count=n_repeats)
        if columns.terminated is None and columns.done is None and not columns.one_step:
            yield make_fault("no_flags", "No column says where episodes end.", unit="logs")
        if columns.done is not None and columns.terminated is None and columns.truncated is None:
            message = f"{columns.done!r} does not distinguish time limits from ends."
            yield make_fault("done_only", message, unit="logs", columns=[columns.done])
        if self._n_rows and self._succession.n_transitions == 0 and not any(f.stops_learning for f in faults):
            yield make_fault("no_transitions", f"None of the {self._n_rows} rows has a next state or ends an episode.")

    def _too_many_left_out(self, faults: list[Fault]) -> Iterator[Fault]:
        """Yield a refusal by the rows that are left out, unless faults in their order make the count meaningless."""
        ordering = set(self._columns.ordering())
        for fault in faults:
            if fault.stops_learning and (fault.name in ORDER_FAULTS or ordering & set(fault.columns)):
                return
        left_out = self._succession.left_out
        try:
            refuse_left_out(left_out, self._n_rows, self._columns)
        except LogError as error:
            count = left_out.gaps if error.fault.name == "too_many_gaps" else left_out.total
            yield replace(error.fault, count=count)
