"""How commands open what they need: logs, here or on a cluster, and the columns and states that a model takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kbrl.cli.options import refuse_repeated, source_of

if TYPE_CHECKING:
    from kbrl.data.recipe import Recipe
    from kbrl.logs.log import Log
    from kbrl.storage.model_file import SavedModel


def open_source(log: tuple[str, ...], columns: dict[str, Any] | None, client: Any = None) -> Any:
    """Open a log, here or on a cluster."""
    from kbrl.logs.log import open_log

    refuse_repeated(log)
    if client is not None:
        from kbrl.on_dask.fitting_on_dask import open_on_dask

        return open_on_dask(list(log), client=client, columns=columns)
    return open_log(source_of(log), columns=columns)


@contextmanager
def cluster(workers: int | None, address: str | None, phase: Any) -> Iterator[Any]:
    """Yield a client of the Dask cluster that was asked for, or None."""
    if workers is not None and address is not None:
        raise click.UsageError("--workers starts a cluster and --dask uses a running one: give only one of them.")
    if workers is None and address is None:
        yield None
        return
    from kbrl.on_dask.clients import local_cluster, running_cluster

    phase("starting the workers" if address is None else "looking for the cluster", 0)
    with local_cluster(workers or 1) if address is None else running_cluster(address) as client:
        yield client


def open_for(saved: SavedModel, log: tuple[str, ...], columns: dict[str, Any]) -> Log:
    """Open a log as a model needs it: in its columns, where no others are named, and with its actions."""
    from kbrl.storage.matching_log import open_matching_log

    refuse_repeated(log)
    return open_matching_log(saved.model, source_of(log), columns, stored=saved.columns)


def with_actions(log: Any, actions: str | None) -> Any:
    """Add possible actions to a log, given as a,b,c; they must be of the same type as its own."""
    if actions is None:
        return log
    kind: Any = {"b": _flag, "i": int, "u": int, "f": float}.get(log.action_labels.dtype.kind, str)
    texts = [text.strip() for text in actions.split(",")]
    try:
        labels = [kind(text) for text in texts]
    except (ValueError, KeyError):
        raise click.BadParameter(
            f"actions must be of the type of those in the log, such as {log.action_labels[0]}, but some of {actions!r} "
            f"are not.",
            param_hint="--actions",
        ) from None
    if "" in texts or len(set(labels)) < len(labels):
        raise click.BadParameter(
            f"names must be different and not empty, but they are {actions!r}.", param_hint="--actions"
        )
    return _with_labels(log, labels)


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _with_labels(log: Any, labels: list[Any]) -> Any:
    from kbrl.logs.log import Log
    from kbrl.storage.matching_log import with_labels

    return with_labels(log, labels) if isinstance(log, Log) else log.with_actions(labels)


@contextmanager
def pointing_at_check(log: tuple[str, ...]) -> Iterator[None]:
    """Add to an error about a log how to see all its faults."""
    from kbrl.tables.faults import LogError

    try:
        yield
    except LogError as error:
        if error.fault.name in ("missing_file", "unknown_action"):
            raise
        raise ValueError(
            f"{error} To list all faults of the log: kbrl check {' '.join(log)} (with the same columns)"
        ) from None


def state_columns(saved: SavedModel) -> list[str]:
    """Return the columns of the state that a model file names, in their order; none if it names none."""
    columns = saved.columns.get("state") if isinstance(saved.columns, dict) else saved.columns
    if saved.model.source.recipe is not None:
        return list(columns or saved.model.source.recipe.names)
    return list(columns or saved.model.source.state_names or ())


def variables(saved: SavedModel) -> list[str]:
    """Return a name for each state variable: those of the file, mostly without the prefix of a dialect, or x0, x1..."""
    from kbrl.logs.columns import Columns

    names, n_dims = state_columns(saved), saved.model.coordinates.n_dims
    if saved.model.source.recipe is not None:
        return list(saved.model.source.recipe.variables)
    return list(Columns(tuple(names), "", "").labels) if len(names) == n_dims else [f"x{k}" for k in range(n_dims)]


def columns_in(table: Sequence[str], saved: SavedModel) -> list[str] | None:
    """Return the columns of a table that hold the state of a model; None if the model does not name them."""
    from kbrl.data.column_names import listing
    from kbrl.data.state_names import find_names

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
    names, parts = variables(saved), [part.strip() for part in text.split(",")]
    if not any("=" in part for part in parts):
        if len(parts) != len(names):
            raise _bad_state(f"{len(parts)} values for {len(names)} state variables: {', '.join(names)}.")
        return [_number(part, name) for part, name in zip(parts, names)]
    known = dict(zip(state_columns(saved), names)) | {name: name for name in names}
    given: dict[str, float] = {}
    for part in parts:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in known or known[name] in given:
            raise _bad_state(f"{part!r} must be NAME=VALUE, once for each of {', '.join(names)}.")
        given[known[name]] = _number(value, name)
    missing = [name for name in names if name not in given]
    if missing:
        raise _bad_state(f"There is no value for {', '.join(missing)}.")
    return [given[name] for name in names]


def _parse_cells(text: str, recipe: Recipe) -> list[float]:
    """Read the cells of one row, in the order of the columns or as NAME=VALUE; a missing one is left empty."""
    names, parts = list(recipe.names), [part.strip() for part in text.split(",")]
    if all("=" not in part for part in parts):
        if len(parts) != len(names):
            raise _bad_state(f"{len(parts)} values for {len(names)} columns: {', '.join(names)}.")
        parts = [f"{name}={part}" for name, part in zip(names, parts)]
    cells: dict[str, list[str | None]] = {}
    for part in parts:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in names or name in cells:
            raise _bad_state(f"{part!r} must be NAME=VALUE, once for each of {', '.join(names)}.")
        cells[name] = [value or None]
    encoded = recipe.encode({name: cells.get(name, [None]) for name in names})
    if encoded.say(0):
        raise _bad_state(f"{encoded.say(0)}.")
    encoded.tell()
    return [float(value) for value in encoded.rows[0]]


def _number(text: str, name: str) -> float:
    from kbrl.logs.rows import LARGEST_NUMBER

    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) <= LARGEST_NUMBER:
        raise _bad_state(f"{name} must be a number of at most {LARGEST_NUMBER:g} in size, but it is {text!r}.")
    return value


def _bad_state(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="--state")
