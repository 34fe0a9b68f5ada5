"""A log as people pass it: Transitions, an opened log, a frame, or the path of a file.

Where a policy has a model, a frame or a file is read as the model needs it: in the columns of its first log, by its
recipe, and with its actions.  ``kbrl update``, ``explain``, ``judge`` and ``report`` open logs by the same function.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kbrl.arrays import Integers
from kbrl.checks import KbrlWarning
from kbrl.data.any_frame import is_frame
from kbrl.data.column_names import listing
from kbrl.data.names import find_names
from kbrl.data.transitions import Transitions, as_log
from kbrl.data.values import RULES
from kbrl.data.written import is_number
from kbrl.logs.columns import REQUIRED, SETTINGS, Columns, columns_read
from kbrl.logs.log import Log, Mapped, load_log, open_log
from kbrl.logs.rows import label_array
from kbrl.model.model import Model, models_of
from kbrl.tables.faults import LogError
from kbrl.tables.formats import open_table
from kbrl.tables.text_files import dialect_in

Numbered = tuple[Integers, Transitions]  # the numbers of the rows behind transitions, and those


def is_table(log: Any) -> bool:
    """Return whether a log is a table that is still to be read: a frame, a mapping of columns, or a path."""
    return isinstance(log, (str, os.PathLike)) or is_frame(log)


def loaded(log: Any, columns: Mapped = None) -> Any:
    """Return the transitions of a table, whose ``columns`` are as for `load_log`; any other log as it is."""
    if is_table(log):
        return load_log(log, columns=columns)
    _refuse_columns(log, columns)
    return log


def opened(log: Any, columns: Mapped = None, *, policy: Any = None) -> Any:
    """Return a table as an opened log, which can be read again and again; any other log as it is.

    ``columns`` names, by role, those that differ from the columns that the model of the policy was fitted to.  Without
    a model they are as for `open_log`.
    """
    if not is_table(log):
        _refuse_columns(log, columns)
        return log
    model = next(iter(models_of(policy)), None)
    if model is None:
        return open_log(log, columns=columns)
    return open_matching_log(model, log, columns.to_dict() if isinstance(columns, Columns) else dict(columns or {}))


def numbered_chunks(log: Any) -> Iterator[Numbered]:
    """Yield the chunks of an opened log, of Transitions or of a list of them with the numbers of their rows."""
    if isinstance(log, Log):
        yield from log.numbered_chunks()
        return
    if not isinstance(log, Iterable):
        as_log(log)  # says what is wrong
    first = 0
    for chunk in [log] if isinstance(log, Transitions) else log:
        yield np.arange(first, first + len(as_log(chunk))), chunk
        first += len(chunk)


def _refuse_columns(log: Any, columns: Mapped) -> None:
    if columns is not None:
        raise TypeError(
            f"columns name those of a frame or a file, but the log is {type(log).__name__}. Leave them out, or name "
            f"them where the log is read: open_log(frame, columns=...)."
        )


def open_matching_log(
    model: Model, source: Any, columns: Mapping[str, Any], *, stored: Mapping[str, Any] | Sequence[str] | None = None
) -> Log:
    """Open a log for a model.

    ``source`` is anything that `open_log` takes; ``stored`` are the columns in the model's file, by default those that
    the model knows; ``columns`` names, by role, those that differ.
    """
    recipe, named = model.source.recipe, model.source.state_names
    stored = stored or model.source.roles or (named if recipe is None else recipe.names)
    known = names_by_role(stored)
    available = open_table(source, dialect_in(known | dict(columns))).names
    said = [name for name in RULES if name in columns]
    if said:
        raise ValueError(
            f"The model keeps how columns became state variables and actions, but {', '.join(said)} would change it. "
            f"Leave it out, or fit again."
        )
    if recipe is not None and "state" not in known:
        known = {"state": list(recipe.names)} | known
    if not isinstance(stored, Mapping) and recipe is None:  # only names of variables; a dialect may add a prefix
        found = find_names(available, known.get("state", ()))
        known = {"state": found} if found else {}
    log = open_log(source, columns=carried_over(known, columns, available) or None, recipe=recipe, is_known=True)
    if "state" in columns and recipe is None:  # these are the model's variables, whatever they are called here
        log = replace(log, state_names=model.source.state_names)
    try:
        return with_labels(log, model.action_labels.tolist())
    except LogError as error:
        raise ValueError(
            f"{error.fault.message} The model knows no others. It keeps the actions of its first log: use a log with "
            f"the same actions, or fit again and name all possible actions (kbrl fit --actions)."
        ) from None


def names_by_role(columns: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Return names of columns by role; a list without roles names the state variables."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        return {"state": columns.split(",") if isinstance(columns, str) else list(columns)}
    return {role: names for role, names in columns.items() if names is not None}


def with_labels(log: Log, labels: list[Any]) -> Log:
    """Return a log that has these possible actions; a taken action that is not among them raises a LogError."""
    taken = log.action_labels.tolist()
    if log.table.is_text and log.action_type is int and all(isinstance(label, str) for label in labels):
        log, taken = replace(log, action_type=str), [str(label) for label in taken]  # words that look like numbers
    are_numbers = all(isinstance(label, (int, float)) and not isinstance(label, bool) for label in labels)
    if are_numbers and not log.table.is_text and all(isinstance(label, str) and is_number(label) for label in taken):
        log, taken = replace(log, action_type=float), [float(label) for label in taken]  # 5 mg in a frame
    return replace(log, action_labels=label_array(taken, labels, log.columns.action))


def carried_over(stored: Mapping[str, Any], given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of a later log: as stored with the model of the first log, unless given.

    Optional columns that this log lacks are left out with a warning.
    """
    if "state" in given:  # the names of next states belong to those of the states
        stored = {role: columns for role, columns in stored.items() if role != "next_state"}
    if "step" in given:  # the stride belongs to the step
        stored = {role: columns for role, columns in stored.items() if role != "stride"}
    roles = {role: columns for role, columns in stored.items() if role not in SETTINGS}
    listed = {role: [columns] if isinstance(columns, str) else list(columns) for role, columns in roles.items()}
    optional = [role for role in listed if role not in REQUIRED and role not in given]
    missing = [role for role in optional if not set(names).issuperset(columns_read(role, listed[role], names))]
    if missing:
        lacking = [name for role in missing for name in listed[role]]
        warnings.warn(f"The log lacks {listing(lacking)}, which the model's first log had.", KbrlWarning, stacklevel=3)
    missing += ["stride"] if "step" in missing else []
    return {role: columns for role, columns in stored.items() if role not in missing} | dict(given)
