"""What a report is made of: a model and a log, opened so that one fits the other.

The columns of the log are those that the model was fitted to, unless others are named.  All actions of the log must be
known to the model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbrl.arrays import Integers
from kbrl.data.column_names import display_names
from kbrl.data.transitions import Transitions
from kbrl.learners.kbsf import KBSF
from kbrl.learners.matching_log import names_by_role, numbered_chunks, open_matching_log
from kbrl.logs.log import CHUNK_ROWS, Log
from kbrl.model.model import Model, as_model
from kbrl.storage.model_file import read_model


@dataclass(frozen=True, eq=False)
class Inputs:
    """A model, a log, and the names of both."""

    model: Model
    log: Log | Transitions
    variables: tuple[str, ...]  # names of the state variables
    model_name: str | None  # of the file; None if the model was given as an object
    library_version: str | None  # that wrote the file
    log_names: tuple[str, ...]  # of the files; none if the log was given as an object
    units: Mapping[str, str] = field(default_factory=dict)  # of state variables, and of "value"
    with_cases: bool = False  # whether the page may show rows of the log

    @property
    def n_rows(self) -> int:
        """The number of rows of the log; rows without a next state are not transitions."""
        return self.log.n_rows if isinstance(self.log, Log) else len(self.log)

    def chunks(self) -> Iterator[tuple[Integers, Transitions]]:
        """Yield row numbers of the log, from 0, and their transitions, with variables and actions as in the model."""
        for rows, chunk in numbered_chunks(self.log if isinstance(self.log, Log) else self.log.chunks(CHUNK_ROWS)):
            if chunk.n_dims != len(self.variables):
                raise ValueError(
                    f"The model knows {len(self.variables)} state variables, but the log has {chunk.n_dims}. "
                    f"Name the columns of the state that the model was fitted to, in the same order."
                )
            yield rows, chunk.in_order_of(self.model.source).with_actions(self.model.action_labels)


def open_inputs(
    model: Any,
    log: Any,
    columns: Mapping[str, Any] | Sequence[str] | None = None,
    *,
    units: Mapping[str, str] | None = None,
    with_cases: bool = False,
) -> Inputs:
    """Open a model (a Model, a KBSF, or the path of its file) and a log (Transitions, or what ``read_log`` takes).

    ``columns`` names columns by role, as for ``read_log``, or lists the names of the state variables.  ``units`` maps
    names of state variables, and "value", to their units.
    """
    stored, model_name, version = None, None, None
    if isinstance(model, (str, os.PathLike)):
        saved, model_name = read_model(model), Path(model).name
        model, stored, version = saved.model, saved.columns, saved.library_version
    elif not isinstance(model, (KBSF, Model)):
        raise TypeError(f"A report needs a Model, a KBSF or the path of its file, but it got {type(model).__name__}.")
    model, given = as_model(model), names_by_role(columns)
    log_names: tuple[str, ...] = ()
    if not isinstance(log, (Log, Transitions)):
        log_names = _file_names(log)
        log = open_matching_log(model, log, given, stored=stored)
    names = model.source.state_names
    named = ({"state": names} if names else {}) | names_by_role(stored) | given
    variables = _variables(log, named.get("state", ()), model.coordinates.n_dims)
    if model.recipe is not None:
        variables = model.recipe.variables
    return Inputs(
        model, log, variables, model_name, version, log_names, _checked_units(units or {}, variables), with_cases
    )


def _checked_units(units: Mapping[str, str], variables: Sequence[str]) -> dict[str, str]:
    """Refuse units of things that the page does not show."""
    unknown = [name for name in units if name not in (*variables, "value")]
    if unknown:
        raise ValueError(
            f"Units are given to state variables ({', '.join(variables)}) and to value, but {unknown[0]!r} is neither."
        )
    return dict(units)


def _file_names(log: Any) -> tuple[str, ...]:
    paths = log if isinstance(log, (list, tuple)) else [log]
    return tuple(Path(path).name for path in paths if isinstance(path, (str, os.PathLike)))


def _variables(log: Log | Transitions, state: str | Sequence[str], n_dims: int) -> tuple[str, ...]:
    """Return a name for each state variable: those of the columns, or x0, x1 and so on, as the command calls them."""
    names = tuple(state.split(",")) if isinstance(state, str) else tuple(state)
    if isinstance(log, Log):
        names = display_names(names if len(names) == n_dims else log.columns.state)
    if len(names) == n_dims:
        return tuple(name.strip() for name in names)
    if len(names) == 1:  # a column of lists
        return tuple(f"{names[0]}[{place}]" for place in range(n_dims))
    return tuple(f"x{place}" for place in range(n_dims))
