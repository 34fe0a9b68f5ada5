"""Find what is wrong with a log before learning does, in one pass and in bounded memory.

Every fault has a name, a count, the first rows, whether it stops learning, and what to do.  A fault stops learning
exactly if the reader refuses the log for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kbrl.checks import whole
from kbrl.logs.check_measures import ActionMeasure, CellMeasure, RewardMeasure, VariableMeasure
from kbrl.logs.check_order import SuccessionMeasure
from kbrl.logs.columns import Columns, resolve
from kbrl.logs.faults import CATALOGUE, Fault, LogError, located, make_fault
from kbrl.logs.formats import Table, open_table
from kbrl.logs.log import CHUNK_ROWS, Mapped
from kbrl.logs.rows import read_rows
from kbrl.logs.sequence import LeftOut


@dataclass(frozen=True)
class Report:
    """What a log holds and what is wrong with it; the worst first."""

    faults: tuple[Fault, ...]
    n_rows: int
    n_episodes: int
    n_transitions: int  # that the reader makes of the rows
    actions: dict[Any, int]  # how often each was taken
    columns: Columns | None
    unused: tuple[str, ...]  # columns that are not read
    left_out: LeftOut = field(default_factory=LeftOut)  # rows that no transition is made of, by reason

    @property
    def stops_learning(self) -> bool:
        """Whether any of the faults does."""
        return any(fault.stops_learning for fault in self.faults)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as what JSON can hold."""
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
    """Look through a log, given as to ``read_log``, and report all that is wrong with it."""
    whole(chunk_rows, "chunk_rows")
    try:
        table = open_table(source)
        named = resolve(table.names, columns)
    except LogError as error:
        return Report((error.fault,), 0, 0, 0, {}, None, ())
    return _Check(table, named, actions).run(chunk_rows)


class _Check:
    """The measures of one pass."""

    def __init__(self, table: Table, columns: Columns, actions: Sequence[Any] | None) -> None:
        self._table, self._columns = table, columns
        self._actions = ActionMeasure(columns, actions, is_text=table.is_text)
        self._succession = SuccessionMeasure(columns)
        self._others = (CellMeasure(), VariableMeasure(columns), RewardMeasure(columns))
        self._n_rows = 0

    def run(self, chunk_rows: int) -> Report:
        faults = list(self._read(chunk_rows))
        for measure in (*self._others, self._succession, self._actions):
            faults += measure.faults()
        faults += self._of_the_whole(faults)
        places = list(CATALOGUE)
        unique = {(fault.name, fault.columns): fault for fault in faults}.values()
        ordered = sorted(
            located(unique, self._table), key=lambda fault: (not fault.stops_learning, places.index(fault.name))
        )
        counts = self._succession.n_episodes, self._succession.n_transitions
        unused = tuple(name for name in self._table.names if name not in self._columns.used())
        left_out = self._succession.left_out
        return Report(tuple(ordered), self._n_rows, *counts, self._actions.counts, self._columns, unused, left_out)

    def _read(self, chunk_rows: int) -> Iterator[Fault]:
        """Let all rows go by; a fault after which nothing can be read ends the pass."""
        try:
            for rows in read_rows(self._table, self._columns, chunk_rows):
                self._n_rows += len(rows)
                for measure in (*self._others, self._succession, self._actions):
                    measure.add(rows)
        except LogError as error:
            yield error.fault

    def _of_the_whole(self, faults: list[Fault]) -> Iterator[Fault]:
        columns = self._columns
        if columns.terminated is None and columns.done is None:
            yield make_fault("no_flags", "No column says where episodes end.", unit="logs")
        if columns.done is not None and columns.terminated is None and columns.truncated is None:
            message = f"{columns.done!r} does not tell time limits from ends."
            yield make_fault("done_only", message, unit="logs", columns=[columns.done])
        if self._n_rows and self._succession.n_transitions == 0 and not any(f.stops_learning for f in faults):
            yield make_fault("no_transitions", f"None of the {self._n_rows} rows has a next state, nor is an end.")
