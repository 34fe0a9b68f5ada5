"""The command fit, and what it prints: what a model was learnt from, what was chosen, and why."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kbrl.cli.console import HeadedCommand, pointing_at_check, row_progress, say, some
from kbrl.cli.options import (
    FILE,
    POSITIVE,
    SHARE,
    check_output,
    chunk_option,
    column_options,
    config_option,
    given,
    jobs_option,
    json_option,
    learner_options,
    learner_parameters,
    log_argument,
    named_as_options,
    quiet_option,
    refuse_input_as_output,
    refuse_repeated,
    settings_as_options,
    source_of,
    value_options,
)

if TYPE_CHECKING:
    from kbrl.choosing.automatic_fit import Automatic
    from kbrl.logs.log import Log
    from kbrl.model.model import Model

_JUDGED = {
    "error": "chosen by the errors of predicted next states and rewards, and of rebuilt next states",
    "bellman": "chosen by how well values explain held-out transitions",
}
_WHY_NOT_REHEARSED = "there are too few rows, or over 20 variables, or options that only order 0 can have"
_WHY_IGNORED = (
    "not needed to predict rewards, ends or variables that matter in held-out episodes, and not changed by actions or "
    "by such variables. To keep all variables: --scaling std"
)


@click.command(cls=HeadedCommand)
@log_argument
@click.option("-o", "--output", required=True, type=FILE, help="File to write the model to.")
@column_options
@value_options
@click.option("--actions", help="All possible actions, for example no,low,high, if some of them are not in the log.")
@learner_options
@click.option(
    "--criterion",
    type=click.Choice(("error", "bellman")),
    default="error",
    show_default=True,
    help="Choose widths by the errors of predictions, or by the values of solved models, which is slower.",
)
@click.option("--megabytes", type=POSITIVE, help="Memory for the model's sums; limits --reps. Default: 256.")
@click.option(
    "--seconds", type=POSITIVE, help="Time for the whole fit; limits --reps, by a measurement on this machine."
)
@click.option("--agreement", is_flag=True, help="Also find how stable the answers are, in one more pass over the log.")
@click.option("--hold-out", type=SHARE, help="Share of the episodes to keep for kbrl judge, as in 0.5.")
@jobs_option
@chunk_option
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
    """Learn a model from a LOG: a file, folder, glob or database.  Memory does not grow with it.

    What is not given is chosen from the data: averages or lines, plans, the number of representative states, widths.
    The output says what was chosen and why.  A chosen model predicts well, but good predictions do not guarantee good
    decisions: hold episodes out by --hold-out, and judge the model by them with kbrl judge.  Options can also be in a
    TOML file, for example: state = ["age", "sofa"], discount = 0.95.  kbrl init proposes one.

    Example: kbrl fit log.csv --state age,sofa --action dose --hold-out 0.5 -o model.kbrl
    """
    from kbrl.choosing.automatic_fit import CHOSEN, RareActionsError, fit_automatically
    from kbrl.settings import Settings, checked, grouped
    from kbrl.storage.model_file import save_model
    from kbrl.trust.split import split_episodes

    start = perf_counter()
    refuse_input_as_output(output, *log)
    check_output(output)
    limits = {name: options.pop(name) for name in ("criterion", "megabytes", "seconds", "chunk_rows")}
    parameters = learner_parameters(options)  # what is left are the columns
    with settings_as_options():
        settings = checked(Settings(n_jobs=jobs, **grouped(parameters)))
    _check_pairs(parameters)
    if agreement and (workers or dask):
        raise click.UsageError("--agreement needs one process: it cannot be used with --workers or --dask.")
    choose = [name for name in CHOSEN if name not in parameters or (name == "scaling" and not _is_given(name))]
    with pointing_at_check(log), row_progress(quiet) as phase, cluster(workers, dask, phase) as client:
        phase("opening the log", 0)
        opened = with_actions(open_source(log, given(options), client), actions)
        if hold_out is not None:
            opened, _ = split_episodes(opened, 1.0 - hold_out)
        try:
            found = fit_automatically(settings, opened, choose=choose, phase=phase, **limits)
        except RareActionsError as error:
            raise ValueError(named_as_options(str(error))) from None
        model = replace(found.learnt, held_out=hold_out)
        if agreement:
            model = _with_agreement(model, opened, phase)
    save_model(model, output, columns=opened.columns.to_dict())
    print_fit(found, opened, output, perf_counter() - start, asked=parameters, as_json=as_json)


def _with_agreement(model: Model, log: Any, phase: Any) -> Model:
    from kbrl.insight.agreement import with_agreement

    return with_agreement(model, log.chunks(), step=phase("resampling episodes", log.n_rows))


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
    from kbrl.learners.matching_log import with_labels
    from kbrl.logs.log import Log

    return with_labels(log, labels) if isinstance(log, Log) else log.with_actions(labels)


def _ignored(found: Automatic, log: Log) -> list[str]:
    """Return the names of the state variables that distances are measured without."""
    recipe = found.learnt.recipe
    names = log.columns.state if recipe is None else recipe.variables
    return [names[place] for place in found.choice.ignored] if found.choice is not None else []


def print_fit(found: Automatic, log: Log, path: Path, seconds: float, *, asked: dict[str, Any], as_json: bool) -> None:
    """Print what a model was learnt from, what was chosen and why, what was ``asked`` for, and the file."""
    from kbrl.checks import counted

    facts = _facts(found.learnt, path, seconds)
    facts |= {"rows": log.n_rows, "episodes": found.n_episodes or None, "columns": log.columns.to_dict()}
    facts["reps_reason"] = found.n_reps.reason if found.n_reps else None
    facts["widths_criterion"] = found.widths.criterion if found.widths else None
    facts["widths_tried"] = [vars(trial) for trial in found.widths.trials] if found.widths else []
    facts["seconds_of"] = found.seconds
    facts |= _rehearsal_facts(found)
    facts["variables_ignored"] = _ignored(found, log)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    episodes = f" in {counted(found.n_episodes, 'episode')}" if found.n_episodes else ""
    transitions = counted(facts["transitions"], "transition")
    lines = {"learnt from": f"{transitions} of {counted(log.n_rows, 'row')}{episodes}"}
    part = getattr(log, "part", None)
    if part is not None:
        lines["held out"] = (
            f"{100 * (1.0 - part.share):.3g} % of the episodes; judge by them: kbrl judge {shlex.quote(str(path))} LOG"
        )
    recipe = found.learnt.recipe
    lines["state"] = ", ".join(log.columns.state if recipe is None else [each.described() for each in recipe.columns])
    if facts["variables_ignored"]:
        lines["ignored variables"] = f"{some(facts['variables_ignored'])}: {_WHY_IGNORED}"
    lines |= _model_lines(found.learnt, facts)
    lines["representative states"] += f" (--reps): {_why_so_many(found, facts['reps'], asked)}"
    lines |= _order_lines(found, asked)
    widths = (("width of samples", "sample_width"), ("width of states", "rep_width"))
    for name, option in () if found.learnt.settings.order == 1 else widths:
        why = "as asked for" if option in asked or not found.widths else _JUDGED[found.widths.criterion]
        lines[name] = f"{facts[option]:g} (--{option.replace('_', '-')}): {why}"
    parts = ", ".join(f"{name} {spent:.1f}" for name, spent in found.seconds.items())
    lines["seconds"] = f"{seconds:.1f}: {parts}"
    _print(path, lines)


def _rehearsal_facts(found: Automatic) -> dict[str, Any]:
    plan = found.learnt.plans if found.learnt.settings.order == 1 else None
    facts: dict[str, Any] = {"order": found.learnt.settings.order, "rehearsed": [], "now": None, "flags": []}
    facts["plan"] = None if plan is None else {"decisions": plan.n_decisions, "hold": plan.n_held}
    if plan is not None and found.learnt.window is not None:
        facts["plan"]["window"] = found.learnt.window
    if found.choice is not None:
        names = ("name", "mean", "error", "left")
        facts["rehearsed"] = [{name: getattr(each, name) for name in names} for each in found.choice.tried]
        facts |= {"now": found.choice.now, "flags": list(found.choice.flags)}
    return facts


def _order_lines(found: Automatic, asked: dict[str, Any]) -> dict[str, str]:
    """Return what was chosen by rehearsal, how each candidate did, and what speaks against the model."""
    from kbrl.checks import counted

    order, choice = found.learnt.settings.order, found.choice
    words = "averages, the paper's method" if order == 0 else "lines, and plans that look ahead"
    if order == 1:
        plan = found.learnt.plans
        window, length = found.learnt.window, f"{plan.n_decisions} x {plan.n_held} steps"
        at_once = f": what follows an action over {window} steps at once (--plan-window)"
        words += f": {counted(plan.n_plans, 'plan')} of {length}" if window is None else at_once
    unable = "not rehearsed: " + _WHY_NOT_REHEARSED
    by = "chosen by rehearsal" if found.learnt.window is None else "chosen by held-out predictions"
    why = "as asked for" if "order" in asked else unable if choice is None else by
    lines = {"order": f"{order} (--order): {words}; {why}"}
    if choice is None:
        return lines
    for number, each in enumerate(choice.tried, start=1):
        mark = ", chosen" if each is choice.chosen else ""
        left = f", {each.left:.0%} of the runs left the data" if each.left else ""
        lines[f"rehearsed {number}"] = f"{each.name}: {each.mean:.4g} +- {each.error:.2g} per episode{left}{mark}"
    if choice.now is not None:
        lines["logged decisions"] = f"{choice.now:.4g} per episode, discounted, in the same episodes"
    notes = list(choice.flags)
    if choice.is_better_than_now is False:
        notes.append("nothing rehearsed clearly better than the logged decisions: judge the model before you use it")
    for number, text in enumerate(notes, start=1):
        lines[f"note {number}"] = text
    return lines


def print_model(model: Model, path: Path, n_before: int, seconds: float, *, as_json: bool) -> None:
    """Print what a model has now been learnt from, and the file."""
    from kbrl.checks import counted

    facts = _facts(model, path, seconds) | {"transitions_before": n_before}
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    transitions = counted(facts["transitions"], "transition")
    lines = {"learnt from": f"{transitions}, {facts['transitions'] - n_before:,} of them new"}
    _print(path, lines | _model_lines(model, facts) | {"seconds": f"{seconds:.1f}"})


def _why_so_many(found: Automatic, n_reps: int, asked: dict[str, Any]) -> str:
    """Return the reason for the number of representative states."""
    if found.n_reps is not None:
        return found.n_reps.reason
    if "n_reps" not in asked:
        return "as many as --choose-reps found"
    return "as asked for" if n_reps == asked["n_reps"] else f"{asked['n_reps']:,} were asked for"


def _facts(model: Model, path: Path, seconds: float) -> dict[str, Any]:
    counts = model.sums.counts.tolist()
    basis = model.basis
    return {
        "model": str(path),
        "transitions": model.n_samples,
        "actions": [{"action": a, "count": n} for a, n in zip(model.action_labels.tolist(), counts)],
        "min_cases": model.min_cases,
        "left_out": list(model.left_out),
        "discount": model.discount,
        "reps": basis.n_reps,
        "sample_width": basis.sample_kernel.width if model.settings.order == 0 else None,
        "rep_width": basis.rep_kernel.width if model.settings.order == 0 else None,
        "solver_iterations": int(model.solution.iterations),
        "solver_converged": bool(model.solution.converged),
        "seconds": seconds,
    }


def _model_lines(model: Model, facts: dict[str, Any]) -> dict[str, str]:
    actions = [f"{action['action']} ({action['count']:,})" for action in facts["actions"]]
    shown = some(actions)
    percent = 100 * (1 - facts["discount"])
    later = "one step later" if model.basis.discount is None else "one period of --discount-per later"
    return {
        "actions": shown,
        **_left_out(model),
        "discount": f"{facts['discount']:g} (--discount): a reward {later} counts {percent:.3g} % less",
        "representative states": f"{facts['reps']:,}",
    }


def _left_out(model: Model) -> dict[str, str]:
    """Return the line about actions that are left out because they were rarely taken, or why none is."""
    least, counts = model.min_cases, model.sums.counts
    taken = counts[counts > 0]
    if len(taken) and (taken < least).all():
        return {
            "actions left out": f"none, because all were taken fewer than {least} times (--min-cases): values are "
            f"unreliable"
        }
    rare = [f"{label} ({n:,})" for label, n in model.left_out.items()]
    if not rare:
        return {}
    shown = some(rare)
    return {
        "actions left out": f"{shown}: taken fewer than {least} times (--min-cases), too few to tell luck from effect"
    }


def _print(path: Path, lines: dict[str, str]) -> None:
    width = max(map(len, lines)) + 2
    for name, text in lines.items():
        say(f"{name:{width}}{text}")
    say(f"{'model':{width}}{path}")
