"""What a saved model needs: a log in its columns, and states by the names of its variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kbrl.cli.options import refuse_repeated, source_of

if TYPE_CHECKING:
    from kbrl.data.recipe import Recipe
    from kbrl.logs.log import Log
    from kbrl.storage.model_file import SavedModel


def open_for(saved: SavedModel, log: tuple[str, ...], columns: dict[str, Any]) -> Log:
    """Open a log as a model needs it: in its columns, where no others are named, and with its actions."""
    from kbrl.learners.matching_log import open_matching_log

    refuse_repeated(log)
    return open_matching_log(saved.model, source_of(log), columns, stored=saved.columns)


def state_columns(saved: SavedModel) -> list[str]:
    """Return the columns of the state that a model file names, in their order; none if it names none."""
    columns = saved.columns.get("state") if isinstance(saved.columns, dict) else saved.columns
    if saved.model.source.recipe is not None:
        return list(columns or saved.model.source.recipe.names)
    return list(columns or saved.model.source.state_names or ())


def variables(saved: SavedModel) -> list[str]:
    """Return a name for each state variable: those of the file, mostly without the prefix of a dialect, or x0, x1..."""
    from kbrl.data.column_names import display_names

    names, n_dims = state_columns(saved), saved.model.coordinates.n_dims
    if saved.model.source.recipe is not None:
        return list(saved.model.source.recipe.variables)
    return list(display_names(names)) if len(names) == n_dims else [f"x{k}" for k in range(n_dims)]


def columns_in(table: Sequence[str], saved: SavedModel) -> list[str] | None:
    """Return the columns of a table that hold the state of a model; None if the model does not name them."""
    from kbrl.data.column_names import listing
    from kbrl.data.names import find_names

    names = state_columns(saved)
    if not names:
        return None
    found = find_names(table, names)
    if found is not None:
        return found
    raise ValueError(
        f"The model was fitted to the state in {listing(names)}, but the columns are {listing(table)}. Name those that "
        f"contain the same variables, in this order: --state a,b."
    )


def parse_state(text: str, saved: SavedModel) -> list[float]:
    """Read values in the order of the model's variables, or NAME=VALUE pairs in any order."""
    recipe = saved.model.source.recipe
    if recipe is not None:
        return _parse_cells(text, recipe)
    names = variables(saved)
    given = _by_name(text, names, "state variables", dict(zip(state_columns(saved), names)))
    missing = [name for name in names if name not in given]
    if missing:
        raise _bad_state(f"There is no value for {', '.join(missing)}.")
    return [_number(given[name], name) for name in names]


def _by_name(text: str, names: Sequence[str], what: str, others: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a state by name: in the order of the names, or NAME=VALUE; ``others`` are further names."""
    parts = [part.strip() for part in text.split(",")]
    if not any("=" in part for part in parts):
        if len(parts) != len(names):
            raise _bad_state(f"{len(parts)} values for {len(names)} {what}: {', '.join(names)}.")
        return dict(zip(names, parts))
    known, given = {**others, **{name: name for name in names}}, dict[str, str]()
    for part in parts:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in known or known[name] in given:
            raise _bad_state(f"{part!r} must be NAME=VALUE, once for each of {', '.join(names)}.")
        given[known[name]] = value
    return given


def _parse_cells(text: str, recipe: Recipe) -> list[float]:
    """Read the cells of one row, in the order of the columns or as NAME=VALUE; a missing one is left empty.

    The entries of a vector are columns of their own here: position_0, position_1.
    """
    vectors = {column.name: column.variables for column in recipe.columns if column.kind == "vector"}
    names = [each for name in recipe.names for each in vectors.get(name, (name,))]
    cells = _by_name(text, names, "columns", {})
    table: dict[str, Any] = {name: [cells.get(name) or None] for name in names}
    for vector, entries in vectors.items():
        table[vector] = [[_number(str(table[name][0] or ""), name) for name in entries]]
    encoded = recipe.encode(table)
    if encoded.say(0):
        raise _bad_state(f"{encoded.say(0)}.")
    encoded.tell()
    return [float(value) for value in encoded.rows[0]]


def _number(text: str, name: str) -> float:
    from kbrl.logs.rows import LARGEST_NUMBER
    from kbrl.tables.cell_values import BOOLEANS

    try:
        value = BOOLEANS[text.lower()] if text.lower() in BOOLEANS else float(text)  # as in the table
    except ValueError:
        value = float("nan")
    if not abs(value) <= LARGEST_NUMBER:
        raise _bad_state(f"{name} must be a number of at most {LARGEST_NUMBER:g} in size, but it is {text!r}.")
    return value


def _bad_state(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="--state")
