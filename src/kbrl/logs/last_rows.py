"""The word ``last_row`` in expressions: true in the last row of each episode.

Many tables do not mark ends: each of their episodes is complete, or a column says on all rows how it ended.  Then
``terminated = "last_row"`` and ``reward = "where(last_row, where(died, -1, 1), 0)"``.  One batch is held back, because
only the row that follows tells which row is the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kbrl.data.expressions import ExpressionError, parse
from kbrl.tables.cell_values import Batch, Column, Kind, Labels, Numbers
from kbrl.tables.faults import LogError, Place, places_of
from kbrl.tables.formats import Table, batch_length

LAST_ROW = "last_row"


def with_last_row(names: Sequence[str], texts: Sequence[Any]) -> Sequence[str]:
    """Return the names of columns, with ``last_row`` if one of the texts reads it and no column has this name."""
    return (*names, LAST_ROW) if LAST_ROW not in names and any(map(_reads_it, texts)) else names


def _reads_it(text: Any) -> bool:
    try:
        return isinstance(text, str) and LAST_ROW in parse(text).columns
    except ExpressionError:
        return False


def check_last_row(names: Sequence[str], found: Mapping[str, Any]) -> None:
    """Refuse ``last_row`` where nothing tells which row is the last of its episode."""
    if LAST_ROW in names or not any(_reads_it(found[role]) for role in ("reward", "terminated", "truncated")):
        return
    if found["episode"] is None or found["next_state"]:
        why = "rows have next states of their own" if found["next_state"] else "no column is named as the episode"
        raise LogError(
            "missing_column",
            f"last_row is the last row of an episode whose rows follow each other, but {why}.",
            columns=[LAST_ROW],
            advice="Name the column of the episode: --episode NAME; or use a column that marks the ends.",
        )


class LastRows:
    """A table with one more column, which is true in the last row of each episode."""

    def __init__(self, table: Table, episode: str) -> None:
        self.table, self._episode = table, episode
        self.is_text, self.names = table.is_text, (*table.names, LAST_ROW)

    def __getattr__(self, name: str) -> Any:
        if name == "table" or name == "row_group_sizes":  # a piece of a file does not tell what follows it
            raise AttributeError(name)
        return getattr(self.table, name)

    def places(self, rows: Sequence[int]) -> list[Place]:
        """Return the places of some rows."""
        return places_of(self.table, rows)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the columns asked for, at most ``n_rows`` rows at a time."""
        if LAST_ROW not in kinds:
            yield from self.table.batches(kinds, n_rows)
            return
        asked: dict[str, Kind] = {self._episode: "labels"}
        asked |= {name: kind for name, kind in kinds.items() if name != LAST_ROW}
        held: Batch | None = None
        for batch in self.table.batches(asked, n_rows):
            if held is not None:
                yield self._marked(held, _cell(batch[self._episode], 0), kinds)
            held = batch
        if held is not None:
            yield self._marked(held, _NOTHING, kinds)

    def _marked(self, batch: Batch, following: Any, kinds: Mapping[str, Kind]) -> Batch:
        column = batch[self._episode]
        places = column.codes if isinstance(column, Labels) else column.values
        is_last = np.append(places[1:] != places[:-1], _cell(column, -1) != following)[: batch_length(batch)]
        return {name: Numbers(is_last.astype(np.float64)) if name == LAST_ROW else batch[name] for name in kinds}


_NOTHING = object()  # no row follows


def _cell(column: Column, row: int) -> Any:
    if len(column) == 0:
        return _NOTHING
    code = column.codes[row] if isinstance(column, Labels) else 0
    return column.values[row] if isinstance(column, Numbers) else None if code < 0 else column.values[code]


def marked(table: Table, texts: Sequence[Any], episode: str | None) -> Table:
    """Return the table, with the last rows marked if one of the texts asks for them."""
    is_asked = LAST_ROW not in table.names and any(map(_reads_it, texts))
    return LastRows(table, episode) if is_asked and episode is not None else table
