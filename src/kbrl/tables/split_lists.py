"""Columns of lists, such as a vector of joint positions, as one column per entry: action_0, action_1 and so on.

So the entries of a vector can be given roles and classes one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kbrl.data.column_names import listing
from kbrl.tables.cell_values import Batch, Kind, Numbers, from_array
from kbrl.tables.faults import LogError, Place, places_of


class SplitTable:
    """A table in which each of some columns of lists has become as many columns."""

    def __init__(self, table: Any, lists: Sequence[str]) -> None:
        missing = [name for name in lists if name not in table.names]
        if missing:
            message = f"The columns to split should be in {listing(missing)}, but they are {listing(table.names)}."
            raise LogError("missing_column", message, columns=missing, advice="Name others: --split NAME.")
        self._table, self.is_text = table, table.is_text
        widths = {name: _width(table, name) for name in lists}
        self._entries = {f"{name}_{k}": (name, k) for name, width in widths.items() for k in range(width)}
        names = [[f"{name}_{k}" for k in range(widths[name])] if name in widths else [name] for name in table.names]
        self.names = tuple(entry for entries in names for entry in entries)

    @property
    def borders(self) -> list[Any]:
        """Where files end, as the last pass found it."""
        return getattr(self._table, "borders", [])

    @property
    def is_unordered(self) -> bool:
        """Whether nothing says in which order the rows come."""
        return getattr(self._table, "is_unordered", False)

    def places(self, rows: Sequence[int]) -> list[Place]:
        """Return the places of some rows."""
        return places_of(self._table, rows)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        needed: dict[str, Kind] = {}
        for name, kind in kinds.items():
            needed |= {self._entries[name][0]: "numbers"} if name in self._entries else {name: kind}
        for batch in self._table.batches(needed, n_rows):
            yield {name: self._column(batch, name, kind) for name, kind in kinds.items()}

    def _column(self, batch: Batch, name: str, kind: Kind) -> Any:
        if name not in self._entries:
            return batch[name]
        home, place = self._entries[name]
        numbers = batch[home]
        assert isinstance(numbers, Numbers)
        return from_array(np.ascontiguousarray(numbers.values[:, place]), kind, name)


def _width(table: Any, name: str) -> int:
    for batch in table.batches({name: "numbers"}, 1):
        if len(batch[name]):
            values = batch[name].values
            if values.ndim == 2:
                return int(values.shape[1])
            raise LogError(
                "wrong_width",
                f"A column to split must hold lists of numbers, but {name!r} holds one number per row.",
                columns=[name],
                advice="Leave it out of --split.",
            )
    raise LogError("empty_log", "The log has columns, but no rows.")
