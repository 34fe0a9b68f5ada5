"""States alone, for questions to a model: a table of them needs no actions, rewards or episodes.

They are streamed as logs are, and what is wrong with a cell is refused with its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from kbrl.arrays import Floats
from kbrl.logs.cell_values import Kind, Numbers
from kbrl.logs.columns import resolve_state
from kbrl.logs.faults import LogError
from kbrl.logs.formats import Table, regrouped
from kbrl.logs.log import CHUNK_ROWS, refuse_problems
from kbrl.logs.rows import bad_numbers, stacked


def read_states(
    table: Table, *, state: str | Sequence[str] | None = None, chunk_rows: int = CHUNK_ROWS
) -> Iterator[Floats]:
    """Return the states of a log, or of any table that has them, in chunks, (n, n_dims); the columns are found at once.

    ``state`` names their columns, where their names do not tell.
    """
    names = resolve_state(table.names, state)

    def chunks() -> Iterator[Floats]:
        kinds: dict[str, Kind] = dict.fromkeys(names, "numbers")
        first = 0
        for batch in regrouped(table, kinds, chunk_rows):
            states = stacked(batch, names)
            spared = np.zeros(len(states), dtype=bool)
            found = (bad_numbers(cast(Numbers, batch[name]), name, "state", spared) for name in names)
            refuse_problems([problem for some in found for problem in some], first, table)
            yield states
            first += len(states)
        if first == 0:
            raise LogError("empty_log", "The table has columns, but no rows.")

    return chunks()
