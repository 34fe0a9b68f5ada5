"""How commands open the logs they learn from: in which columns, with which actions, here or on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kbrl.cli.options import refuse_repeated, source_of

if TYPE_CHECKING:
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
    """Give a client of the cluster that was asked for, None if none was."""
    if workers is not None and address is not None:
        raise click.UsageError("--workers starts a cluster and --dask uses one that runs: give one of them.")
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
    return open_matching_log(saved.model.model_, source_of(log), columns, stored=saved.columns)


def with_actions(log: Any, actions: str | None) -> Any:
    """Let a log know of actions that it does not have, given as a,b,c; they are of the kind of those it has."""
    if actions is None:
        return log
    kind: Any = {"b": _flag, "i": int, "u": int, "f": float}.get(log.action_labels.dtype.kind, str)
    texts = [text.strip() for text in actions.split(",")]
    try:
        labels = [kind(text) for text in texts]
    except (ValueError, KeyError):
        raise click.BadParameter(
            f"the actions of the log are such as {log.action_labels[0]}, but some of {actions!r} are not of that kind.",
            param_hint="--actions",
        ) from None
    if "" in texts or len(set(labels)) < len(labels):
        raise click.BadParameter(f"names must differ, and none be empty: {actions!r}.", param_hint="--actions")
    return _with_labels(log, labels)


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _with_labels(log: Any, labels: list[Any]) -> Any:
    from kbrl.logs.log import Log
    from kbrl.storage.matching_log import with_labels

    return with_labels(log, labels) if isinstance(log, Log) else log.with_actions(labels)


@contextmanager
def pointing_at_check(log: tuple[str, ...]) -> Iterator[None]:
    """Say of faults in a log how to see all of them."""
    from kbrl.tables.faults import LogError

    try:
        yield
    except LogError as error:
        if error.fault.name in ("missing_file", "unknown_action"):
            raise
        raise ValueError(
            f"{error} All that is wrong with the log is listed by: kbrl check {' '.join(log)} (with the same columns)"
        ) from None
