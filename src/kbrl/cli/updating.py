"""Commands that make models of models: update, merge, defer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

from kbrl.cli.console import HeadedCommand, pointing_at_check, row_progress, say
from kbrl.cli.fitting import print_model
from kbrl.cli.opening import open_for
from kbrl.cli.options import (
    FILE,
    POSITIVE,
    FiniteRange,
    check_output,
    chunk_option,
    column_options,
    given,
    jobs_option,
    json_option,
    log_argument,
    model_argument,
    quiet_option,
    refuse_input_as_output,
)

if TYPE_CHECKING:
    from kbrl.data.overlap import Overlap
    from kbrl.model.model import Model
    from kbrl.storage.model_file import SavedModel

_again_option = click.option("--again", is_flag=True, help="Accept rows that were learnt before, and count them again.")


@click.command(cls=HeadedCommand)
@click.argument("model", type=FILE)
@log_argument
@click.option("-o", "--output", type=FILE, help="File to write. Default: MODEL itself.")
@column_options
@click.option(
    "--alone",
    is_flag=True,
    help="Learn from LOG alone, without what MODEL has learnt. The result can be merged with MODEL.",
)
@_again_option
@jobs_option
@chunk_option
@quiet_option
@json_option
def update(
    model: Path,
    log: tuple[str, ...],
    output: Path | None,
    alone: bool,
    again: bool,
    jobs: int | None,
    chunk_rows: int | None,
    quiet: bool,
    as_json: bool,
    **columns: str | None,
) -> None:
    """Add the transitions of LOG to MODEL.

    The columns are those of MODEL's first log, unless others are named.  Representative states, scale, widths and
    actions stay those of MODEL.  A LOG with rows that MODEL has learnt before is refused, as far as the sketch in MODEL
    can tell; --again counts them again.

    Example: kbrl update model.kbrl may.csv -o model-may.kbrl
    """
    from kbrl.choosing.automatic_fit import learn_more
    from kbrl.data.overlap import overlap
    from kbrl.storage.model_file import read_model, save_model

    start = perf_counter()
    if alone and output is None:
        raise click.UsageError("--alone would overwrite what MODEL has learnt. Name another file: -o NEW.")
    refuse_input_as_output(output, *log)
    check_output(output or model)
    with _kept_if_replaced(model, output) as check_unchanged:
        saved = read_model(model)
        known = saved.model.without_data() if alone else saved.model
        if known.sketch is None and not again:
            _warn_of_unknown(model)
        with pointing_at_check(log), row_progress(quiet) as phase:
            phase("opening the log", 0)
            opened = open_for(saved, log, given(columns) or {})
            more = learn_more(known, opened, n_jobs=jobs, chunk_rows=chunk_rows, phase=phase)
        if known.sketch is not None and more.sketch is not None and not again:
            _refuse_if_twice(overlap(known.sketch, more.sketch - known.sketch), f"{' '.join(log)} was not learnt from")
        check_unchanged()
        save_model(more, output or model, columns=saved.columns or opened.columns.to_dict())
    print_model(more, output or model, known.n_samples, perf_counter() - start, as_json=as_json)


def _kept_if_replaced(model: Path, output: Path | None) -> AbstractContextManager[Callable[[], None]]:
    """Keep MODEL from other updates if this one replaces it; many may read it at a time."""
    from kbrl.files import kept_for_us

    is_replaced = output is None or (output.exists() and model.exists() and output.samefile(model))
    return kept_for_us(model) if is_replaced else nullcontext(lambda: None)


@click.command()
@click.argument("models", nargs=-1, required=True, type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="File to write the model of all data to.")
@_again_option
@json_option
def merge(models: tuple[Path, ...], output: Path, again: bool, as_json: bool) -> None:
    """Add up MODELS of different data.

    They must have the same representative states, scale and widths: such models come from kbrl update --alone.  Models
    that share data are refused, as far as the sketches of their rows can tell; --again counts shared rows again.

    Example: kbrl merge april.kbrl may.kbrl -o both.kbrl
    """
    from kbrl.storage.model_file import read_model, save_model

    start = perf_counter()
    if len(models) < 2:
        raise click.UsageError("merge needs at least two models: kbrl merge A B -o OUT.")
    if len({path.resolve() for path in models}) < len(models) and not again:
        raise click.UsageError(
            "merge needs different models: the data of a model that is named twice would count twice."
        )
    refuse_input_as_output(output, *models)
    check_output(output)
    first = read_model(models[0])
    total = first.model
    seen = {_content(models[0]): models[0]}
    for path in models[1:]:
        other = read_model(path)
        same = seen.setdefault(_content(path), path)
        if same is not path and not again:
            raise ValueError(f"{path} is a copy of {same}: together they would count the same data twice.")
        try:
            _check_same_state(first, other)
            both = total + other.model
            if not again:
                _refuse_shared(total, other.model, (models[0], path))
            total = both
        except ValueError as error:
            raise ValueError(f"{path} cannot be added to {models[0]}: {error}") from None
    save_model(total, output, columns=first.columns)
    print_model(total, output, first.model.n_samples, perf_counter() - start, as_json=as_json)


@click.command()
@model_argument
@click.option("-o", "--output", required=True, type=FILE, help="File to write the deferring model to.")
@click.option(
    "--cases", default=3.0, show_default=True, type=POSITIVE, help="Support that an action needs to be offered."
)
@click.option(
    "--caution",
    default=1.0,
    show_default=True,
    type=FiniteRange(0),
    help="Number of standard errors by which it must be better than current practice.",
)
@click.option(
    "--log", multiple=True, type=click.Path(), help="What MODEL was fitted to, to find how stable new answers are."
)
@click.option("--label", default="as now", show_default=True, help="The answer that leaves a decision to people.")
def defer(model: str, output: Path, cases: float, caution: float, log: tuple[str, ...], label: str) -> None:
    """Make a model that answers "as now" where there are too few data.

    An action is offered only where enough logged cases support it, and only where it is better than current practice,
    with caution.  The new model predicts, explains, reports and learns further like any other.

    Example: kbrl defer model.kbrl -o safe.kbrl --cases 3 --caution 1
    """
    from kbrl.data.episodes import EpisodePart
    from kbrl.insight.agreement import with_agreement
    from kbrl.storage.model_file import read_model, save_model

    refuse_input_as_output(output, model, *log)
    saved = read_model(model)
    safe = saved.model.deferring(cases, caution, label=label)
    if log:
        opened = open_for(saved, log, {})
        if safe.held_out is not None:
            opened = opened.only(EpisodePart(1.0 - safe.held_out))  # what it has learnt from
        safe = with_agreement(safe, opened.chunks())
    deferred = safe.deferred(safe.reps)
    save_model(safe, output, columns=saved.columns)
    share = 100 * float(deferred.mean())
    say(f"{output}: answers {label!r} at {share:.0f} % of its {len(deferred)} representative states.")


def _check_same_state(first: SavedModel, other: SavedModel) -> None:
    names = [saved.columns.get("state") if isinstance(saved.columns, dict) else None for saved in (first, other)]
    if None not in names and names[0] != names[1]:
        raise ValueError(f"their states are of different columns, {names[0]} and {names[1]}.")


def _refuse_shared(total: Model, other: Model, paths: tuple[Path, Path]) -> None:
    """Refuse to add up models of the same data, as far as they know."""
    from kbrl.data.overlap import overlap

    if total.sketch is None or other.sketch is None:
        _warn_of_unknown(paths[total.sketch is not None])
    else:
        _refuse_if_twice(overlap(total.sketch, other.sketch), "they share data")


def _refuse_if_twice(found: Overlap, what: str) -> None:
    if found.is_counted_twice:
        may_clash = found.has_identifiers and not found.is_same
        raise ValueError(
            f"{what}: of its transitions, {found}. They would count twice. Nothing was written. Give only new rows, or "
            f"count these again: --again."
            + (" If these are different episodes with the same identifiers, use --again as well." if may_clash else "")
        )


def _warn_of_unknown(path: Path) -> None:
    from kbrl.checks import KbrlWarning

    warnings.warn(
        f"{path} has file format 1, which does not record which rows were learnt: rows that it has learnt before would "
        f"count twice. To be sure, fit it again.",
        KbrlWarning,
        stacklevel=3,
    )


def _content(path: Path) -> bytes:
    return sha256(path.read_bytes()).digest()
