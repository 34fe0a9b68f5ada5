"""Where a row of a log is, in words that a person can look up.

A row of a text file has a line, of which the first is the header; any other row has a number, counted from 1.  Inside,
rows are counted from 0 over the whole log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Place(NamedTuple):
    """The place of one row."""

    unit: str  # line or row
    number: int  # from 1
    file: str = ""  # where it is not the only one, or a text

    def __str__(self) -> str:
        """Say it in a sentence."""
        counted = "" if self.unit == "line" else " (counting from 1)"
        return f"{self.unit} {self.number}{counted}{f' of {self.file}' if self.file else ''}"


def places_of(table: Any, rows: Sequence[int]) -> list[Place]:
    """Return the places of some rows of a table; one that does not say otherwise counts its rows."""
    find = getattr(table, "places", None)
    return [Place("row", row + 1) for row in rows] if find is None else list(find(rows))
