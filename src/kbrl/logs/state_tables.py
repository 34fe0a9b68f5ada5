"""Tables of states to be answered: they need no actions or rewards, and rows may have no state."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from kbrl.arrays import Array, Booleans, Floats
from kbrl.checks import KbrlWarning
from kbrl.data.column_names import listing
from kbrl.data.recipe import Recipe
from kbrl.data.state_column import StateColumn
from kbrl.logs.columns import Columns, resolve_state
from kbrl.logs.log import CHUNK_ROWS, prepare
from kbrl.logs.prepared import PreparedTable
from kbrl.logs.rows import bad_numbers, stacked
from kbrl.tables.cell_values import Batch, Kind, Labels, Numbers
from kbrl.tables.faults import LogError
from kbrl.tables.formats import Table, batch_length, regrouped


@dataclass(frozen=True, eq=False)
class StateRows:
    """Some rows of a table of states."""

    states: Floats  # (n, n_dims), NaN where something is wrong
    reasons: Array  # (n,) of texts: why a row has no state; empty if it has one
    kept: dict[str, Array]  # other columns that were asked for, (n,) each

    @property
    def usable(self) -> Booleans:
        """The rows that have a state, (n,)."""
        return np.asarray(self.reasons == "")


def read_states(
    table: Table,
    *,
    state: str | Sequence[str] | None = None,
    recipe: Recipe | None = None,
    keep: Sequence[str] = (),
    chunk_rows: int = CHUNK_ROWS,
) -> Iterator[StateRows]:
    """Return an iterator over the states of a table, chunk by chunk; it needs no actions or rewards.

    ``state`` names their columns if their names do not tell; ``recipe`` says how they become state variables; ``keep``
    names other columns to return.  Missing columns are refused at once.  A row with a bad cell has no state, and a
    reason.
    """
    names = resolve_state(table.names, state)
    for name in keep:
        if name not in table.names:
            message = f"The column {name!r} is to be kept, but the columns are {listing(table.names)}."
            raise LogError("missing_column", message, columns=[name], advice="Name columns of the table: --keep a,b.")
    episode = recipe.episode if recipe is not None and recipe.episode in table.names else None
    prepared = prepare(table, Columns(names, "", "", episode=episode), recipe, is_known=True)

    def chunks() -> Iterator[StateRows]:
        kinds: dict[str, Kind] = dict.fromkeys(names, "numbers")
        kinds |= {name: "labels" for name in keep if name not in names}
        n_rows = 0
        for batch in regrouped(prepared, kinds, chunk_rows):
            yield StateRows(stacked(batch, names), _reasons(batch, names, recipe), _kept(batch, keep))
            n_rows += batch_length(batch)
        if n_rows == 0:
            raise LogError("empty_log", "The table has columns, but no rows.")
        for said in prepared.said_of_filled(n_rows) if isinstance(prepared, PreparedTable) else ():
            warnings.warn(said, KbrlWarning, stacklevel=2)

    return chunks()


def _reasons(batch: Batch, names: Sequence[str], recipe: Recipe | None) -> Array:
    """Return why rows have no state, (n,); empty texts for the others."""
    reasons = np.full(batch_length(batch), "", dtype=object)
    spared = np.zeros(len(reasons), dtype=bool)
    for place, name in enumerate(names):
        cells = cast(Numbers, batch[name])
        for problem in bad_numbers(cells, name, "state", spared):
            rows = problem.bad & (reasons == "")
            if problem.name == "missing_state":
                known = recipe.columns[place] if recipe is not None else StateColumn(name)
                reasons[rows] = known.why_missing()
            elif problem.name == "not_a_number":
                texts = [
                    f"{name} is {cells.quote(row)}, which is not a number" for row in np.flatnonzero(rows).tolist()
                ]
                reasons[rows] = np.array(texts, dtype=object)
            else:
                reasons[rows] = f"{name} is infinite or too large"
    return reasons


def _kept(batch: Batch, keep: Sequence[str]) -> dict[str, Array]:
    kept = {}
    for name in keep:
        column = batch[name]
        if isinstance(column, Labels):
            column_values = np.array([*column.values, None], dtype=object)[column.codes]
        else:
            column_values = column.values
        kept[name] = column_values
    return kept
