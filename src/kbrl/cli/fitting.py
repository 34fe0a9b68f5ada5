"""Commands that make models: fit, update, merge, defer; and what they print at the end."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kbrl.cli.console import row_progress
from kbrl.cli.fit_summary import print_fit, print_model
from kbrl.cli.opening import cluster, open_for, open_source, pointing_at_check, with_actions
from kbrl.cli.options import (
    FILE,
    POSITIVE,
    SHARE,
    FiniteRange,
    column_options,
    config_option,
    given,
    json_option,
    learner_options,
    learner_parameters,
    log_argument,
    model_argument,
    named_as_options,
    quiet_option,
    refuse_input_as_output,
    settings_as_options,
    value_options,
)

if TYPE_CHECKING:
    from kbrl.data.overlap import Overlap
    from kbrl.model.model import Model
    from kbrl.storage.model_file import SavedModel

_jobs_option = click.option("--jobs", type=click.IntRange(1), help="Number of threads. Default: one per core.")
_chunk_option = click.option(
    "--chunk-rows",
    type=click.IntRange(1),
    help="Rows in memory at a time. Default: 16384, or 65536 with --sample-neighbors.",
)

_again_option = click.option("--again", is_flag=True, help="Accept rows that were learnt before, and count them again.")


@click.command()
@log_argument
@click.option("-o", "--output", required=True, type=FILE, help="File to write the model to.")
@column_options
@value_options
@click.option(
    "--actions", help="All possible actions, for example no,low,high, if the log does not contain all of them."
)
@learner_options
@click.option(
    "--criterion",
    type=click.Choice(("error", "bellman")),
    default="error",
    show_default=True,
    help="Choose widths by the errors of predictions, or by the values of solved models (slower).",
)
@click.option("--megabytes", type=POSITIVE, help="Memory for the model's sums; limits --reps. Default: 256.")
@click.option(
    "--seconds", type=POSITIVE, help="Time for the whole fit; limits --reps, by a measurement on this machine."
)
@click.option(
    "--agreement", is_flag=True, help="Also learn how stable the answers are: one more pass over the log, and order 0."
)
@click.option("--hold-out", type=SHARE, help="Share of the episodes to keep for kbrl judge, as in 0.5.")
@_jobs_option
@_chunk_option
@click.option(
    "--workers", type=click.IntRange(1), help="Start this many worker processes on this machine (needs Dask)."
)
@click.option("--dask", metavar="ADDRESS", help="Use the Dask cluster with the scheduler at this address.")
@config_option
@quiet_option
@json_option
def fit(
    log: tuple[str, ...],
    output: Path,
    actions: str | None,
    agreement: bool,
    hold_out: float | None,
    jobs: int | None,
    workers: int | None,
    dask: str | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Learn a model from a LOG: files, folders or globs of Parquet, CSV, Arrow or .npz.  Memory does not grow with it.

    If not given, the number of representative states and both widths are chosen from the data.  Chosen widths predict
    well, but good predictions do not guarantee good decisions: if you have a simulator, compare some by kbrl evaluate.
    Options can also be in a TOML file, for example: reps = 200, state = ["age", "sofa"], discount = 0.95.

    Example: kbrl fit log.csv --state age,sofa --action dose -o model.kbrl
    """
    from kbrl.choosing.automatic_fit import CHOSEN, RareActionsError, fit_automatically
    from kbrl.learners.kbsf import KBSF
    from kbrl.settings import grouped
    from kbrl.storage.model_file import save_model
    from kbrl.trust.split import split_episodes

    start = perf_counter()
    refuse_input_as_output(output, *log)
    _check_output(output)
    if hold_out is not None and (workers or dask):
        raise click.UsageError("--hold-out needs one process: it does not go with --workers and --dask.")
    limits = {name: options.pop(name) for name in ("criterion", "megabytes", "seconds", "chunk_rows")}
    parameters = learner_parameters(options)  # what is left are the columns
    if agreement:
        parameters.setdefault("order", 0)  # resampled episodes need averages
    learner = KBSF(n_jobs=jobs, **grouped(parameters))
    with settings_as_options():
        learner.checked_settings()
    _check_pairs(parameters)
    if agreement and (workers or dask):
        raise click.UsageError("--agreement needs one process: it does not go with --workers and --dask.")
    choose = [name for name in CHOSEN if name not in parameters or (name == "scaling" and not _is_given(name))]
    with pointing_at_check(log), row_progress(quiet) as phase, cluster(workers, dask, phase) as client:
        phase("opening the log", 0)
        opened = with_actions(open_source(log, given(options), client), actions)
        if hold_out is not None:
            opened, _ = split_episodes(opened, 1.0 - hold_out)
        try:
            found = fit_automatically(learner, opened, choose=choose, phase=phase, **limits)
        except RareActionsError as error:
            raise ValueError(named_as_options(str(error))) from None
        model = replace(found.model.model_, held_out=hold_out)
        if agreement:
            model = _with_agreement(model, opened, phase)
    save_model(model, output, columns=opened.columns.to_dict())
    print_fit(found, opened, output, perf_counter() - start, asked=parameters, as_json=as_json)


def _with_agreement(model: Model, log: Any, phase: Any) -> Model:
    from kbrl.insight.agreement import with_agreement

    return with_agreement(model, log.chunks(), step=phase("resampling episodes", log.n_rows))


@click.command()
@click.argument("model", type=FILE)
@log_argument
@click.option("-o", "--output", type=FILE, help="File to write. Default: MODEL itself.")
@column_options
@click.option(
    "--alone",
    is_flag=True,
    help="Learn only from LOG, without what MODEL has learnt. The result can be merged with MODEL.",
)
@_again_option
@_jobs_option
@_chunk_option
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
    """Continue learning: add the transitions of LOG to MODEL.

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
    _check_output(output or model)
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
    save_model(more, output or model, columns=saved.columns or opened.columns.to_dict())
    print_model(more, output or model, known.n_samples, perf_counter() - start, as_json=as_json)


@click.command()
@click.argument("models", nargs=-1, required=True, type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="File to write the model of all data to.")
@_again_option
@json_option
def merge(models: tuple[Path, ...], output: Path, again: bool, as_json: bool) -> None:
    """Merge MODELS of different data that have the same representative states, scale and widths.

    Such models come from kbrl update --alone.  Models that share data are refused, as far as the sketches of their rows
    can tell; --again counts shared rows again.

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
    _check_output(output)
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
@click.option("--cases", default=3.0, show_default=True, type=POSITIVE, help="Least support of an action offered.")
@click.option(
    "--caution", default=1.0, show_default=True, type=FiniteRange(0), help="Standard errors that it must be better by."
)
@click.option(
    "--log", multiple=True, type=click.Path(), help="What MODEL was fitted to, to learn how stable the new answers are."
)
@click.option("--label", default="as now", show_default=True, help="The answer that leaves a decision to people.")
def defer(model: str, output: Path, cases: float, caution: float, log: tuple[str, ...], label: str) -> None:
    """Make of MODEL one that answers "as now" where the data do not carry a change of current practice.

    An action is offered only where enough logged cases support it, and only where it is better than current practice,
    with caution.  The new model predicts, explains, reports and learns further like any other.

    Example: kbrl defer model.kbrl -o safe.kbrl --cases 3 --caution 1
    """
    from kbrl.insight.agreement import with_agreement
    from kbrl.storage.model_file import read_model, save_model

    refuse_input_as_output(output, model, *log)
    saved = read_model(model)
    safe = saved.model.deferring(cases, caution, label=label)
    if log:
        safe = with_agreement(safe, open_for(saved, log, {}).chunks())
    deferred = safe.deferred(safe.reps)
    save_model(safe, output, columns=saved.columns)
    share = 100 * float(deferred.mean())
    click.echo(f"{output}: answers {label!r} at {share:.0f} % of its {len(deferred)} representative states.")


def _is_given(option: str) -> bool:
    """Return whether an option that has a default was given, on the command line or in a file."""
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


def _check_pairs(parameters: dict[str, Any]) -> None:
    """Refuse options that would do nothing without another one."""
    is_cover = parameters.get("reps") == "cover"
    if is_cover != ("cover_distance" in parameters):
        raise click.UsageError(
            "--choose-reps cover and --cover-distance must be given together, but only one was given."
        )
    if "max_reps" in parameters and not is_cover and not {"grow_distance", "grow_below"} & set(parameters):
        raise click.UsageError(
            "--max-reps limits growth or a cover: give --grow-distance, --grow-below or --choose-reps cover with it. "
            "The number itself is --reps."
        )
    if parameters["neighborhoods"] == "per_chunk" and "sample_neighbors" not in parameters:
        raise click.UsageError("--neighborhoods per_chunk needs --sample-neighbors, which was not given.")


def _check_same_state(first: SavedModel, other: SavedModel) -> None:
    names = [saved.columns.get("state") if isinstance(saved.columns, dict) else None for saved in (first, other)]
    if None not in names and names[0] != names[1]:
        raise ValueError(f"their states are of different columns, {names[0]} and {names[1]}.")


def _refuse_shared(total: Model, other: Model, paths: tuple[Path, Path]) -> None:
    """Refuse to add up models of the same data, as far as they know."""
    found = total.overlap(other.sketch)
    if found is None:
        _warn_of_unknown(paths[total.sketch is not None])
    else:
        _refuse_if_twice(found, "they share data")


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


def _check_output(path: Path) -> None:
    """Refuse a file that cannot be written before any work is done."""
    from kbrl.atomic_write import check_target

    folder = check_target(path).parent
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{path} cannot be written: the folder {folder} is read-only. Name another.")
