"""What a report is about: a model and a log, opened so that the one understands the other.

The columns are those that the model was learnt from, unless others are named; the log may only have actions that the
model knows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kbrl.arrays import Integers
from kbrl.data.transitions import Transitions
from kbrl.learners.kbsf import KBSF
from kbrl.logs.columns import Columns, carried_over
from kbrl.logs.faults import LogError
from kbrl.logs.formats import open_table
from kbrl.logs.log import CHUNK_ROWS, Log, open_log
from kbrl.model.model import as_model
from kbrl.storage.model_file import SavedModel, read_model


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and the log that it is looked at with."""

    model: KBSF
    log: Log | Transitions
    variables: tuple[str, ...]  # names of the state variables
    model_name: str | None  # of the file; None where the model was given as an object
    library_version: str | None  # that wrote the file
    log_names: tuple[str, ...]  # of the files; none where the log was given as an object

    @property
    def n_rows(self) -> int:
        """The number of rows of the log; some may have no next state, and be no transitions."""
        return self.log.n_rows if isinstance(self.log, Log) else len(self.log)

    def chunks(self) -> Iterator[tuple[Integers, Transitions]]:
        """Yield rows of the log, by their number from 0, and their transitions, with actions as in the model."""
        for rows, chunk in _numbered(self.log):
            if chunk.n_dims != len(self.variables):
                raise ValueError(
                    f"The model knows {len(self.variables)} state variables, but the log has {chunk.n_dims}. "
                    f"Name the columns of the state that the model was learnt from, in the same order."
                )
            yield rows, chunk.in_order_of(self.model.source_).with_actions(self.model.action_labels_)


def open_subject(model: Any, log: Any, columns: Mapping[str, Any] | Sequence[str] | None = None) -> Subject:
    """Open a model (a KBSF, or the path of its file) and a log (Transitions, or what ``read_log`` takes).

    ``columns`` are roles and names, as for ``read_log``, or just the names of the state variables.
    """
    saved, model_name = _opened_model(model)
    fitted = saved.model
    labels = fitted.action_labels_.tolist()
    given = _roles(columns)
    stored = _roles(saved.columns)
    log_names: tuple[str, ...] = ()
    if not isinstance(log, (Log, Transitions)):
        log_names = _file_names(log)
        log = _opened_log(log, carried_over(stored, given, open_table(log).names), labels)
    names = fitted.source_.state_names
    if isinstance(log, Log) and "state" in given:  # these are the model's variables, whatever they are called here
        log = replace(log, state_names=names)
    in_order = {"state": names} if names else {}
    variables = _variables(log, in_order | stored | given, fitted.n_features_in_)
    return Subject(fitted, log, variables, model_name, saved.library_version or None, log_names)


def _numbered(log: Log | Transitions) -> Iterator[tuple[Integers, Transitions]]:
    if isinstance(log, Log):
        yield from log.numbered_chunks(CHUNK_ROWS)
        return
    first = 0
    for chunk in log.chunks(CHUNK_ROWS):
        yield np.arange(first, first + len(chunk)), chunk
        first += len(chunk)


def _opened_model(model: Any) -> tuple[SavedModel, str | None]:
    if isinstance(model, SavedModel):
        return model, None
    if isinstance(model, KBSF):
        as_model(model)
        return SavedModel(model, None, ""), None
    if isinstance(model, (str, os.PathLike)):
        return read_model(model), Path(model).name
    raise TypeError(f"A report is made of a KBSF or the path of its file, but it got {type(model).__name__}.")


def _opened_log(source: Any, columns: dict[str, Any], labels: list[Any]) -> Log:
    try:
        return open_log(source, columns=columns or None, actions=labels)
    except LogError as error:
        if error.fault.name != "unknown_action":
            raise
        raise ValueError(
            f"{error.fault.message} The model knows no others. Take the log that it was learnt from or one with the "
            f"same actions, or fit a model to this one."
        ) from None


def _roles(columns: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Return columns by their roles; a mere list names the state variables."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        return {"state": list(columns)}
    return {role: names for role, names in columns.items() if names is not None}


def _file_names(log: Any) -> tuple[str, ...]:
    paths = log if isinstance(log, (list, tuple)) else [log]
    return tuple(Path(path).name for path in paths if isinstance(path, (str, os.PathLike)))


def _variables(log: Log | Transitions, named: dict[str, Any], n_dims: int) -> tuple[str, ...]:
    """Return a name for each state variable: those of the columns, or state_1, state_2 and so on."""
    state = named.get("state", ())
    names = tuple(state.split(",")) if isinstance(state, str) else tuple(state)
    if isinstance(log, Log):
        names = Columns(names, "", "").labels if len(names) == n_dims else log.columns.labels
    if len(names) == n_dims:
        return tuple(name.strip() for name in names)
    if len(names) == 1:  # a column of lists
        return tuple(f"{names[0]}[{place}]" for place in range(n_dims))
    return tuple(f"state_{place + 1}" for place in range(n_dims))
