"""What the command says of a fit: what a model was learnt from, what was chosen and why, as lines or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kbrl.choosing.automatic_fit import Automatic
    from kbrl.data.recipe import Recipe
    from kbrl.logs.log import Log
    from kbrl.model.model import Model

_JUDGED = {
    "error": "chosen by the errors of predicted next states and rewards, and of rebuilt next states",
    "bellman": "chosen by how well values explain held-out transitions",
}


_WHY_NOT_REHEARSED = (
    "there are too few rows, or over 20 variables, or columns, options or a cluster that only order 0 can have"
)
_WHY_IGNORED = (
    "in held-out episodes they help to predict neither rewards, ends nor other variables that matter, and neither "
    "actions nor such variables move them (--scaling std: keep them)"
)


def _ignored(found: Automatic, log: Log) -> list[str]:
    """Return the names of the state variables that distances are measured without."""
    return [log.columns.state[place] for place in found.choice.ignored] if found.choice is not None else []


def print_fit(found: Automatic, log: Log, path: Path, seconds: float, *, asked: dict[str, Any], as_json: bool) -> None:
    """Print what a model was learnt from, what was chosen and why, what was ``asked`` for, and the file."""
    facts = _facts(found.model.model_, path, seconds)
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
    episodes = f" in {_count(found.n_episodes, 'episode')}" if found.n_episodes else ""
    transitions = _count(facts["transitions"], "transition")
    lines = {"learnt from": f"{transitions} of {_count(log.n_rows, 'row')}{episodes}"}
    part = getattr(log, "part", None)
    if part is not None:
        lines["held out"] = f"{100 * (1.0 - part.share):.3g} % of the episodes; judge by them: kbrl judge {path} LOG"
    lines["state"] = _state_line(log.columns.state, found.model.model_.recipe)
    if facts["variables_ignored"]:
        lines["not in distances"] = f"{_some(facts['variables_ignored'])}: {_WHY_IGNORED}"
    lines |= _model_lines(found.model.model_, facts)
    lines["representative states"] += f" (--reps): {_why_so_many(found, facts['reps'], asked)}"
    lines |= _order_lines(found, asked)
    widths = (("width of samples", "sample_width"), ("width of states", "rep_width"))
    for name, option in () if found.model.order == 1 else widths:
        why = "as asked for" if option in asked or not found.widths else _JUDGED[found.widths.criterion]
        lines[name] = f"{facts[option]:g} (--{option.replace('_', '-')}): {why}"
    parts = ", ".join(f"{name} {spent:.1f}" for name, spent in found.seconds.items())
    lines["seconds"] = f"{seconds:.1f}: {parts}"
    _print(path, lines)


def _rehearsal_facts(found: Automatic) -> dict[str, Any]:
    plan = found.model.model_.plans if found.model.order == 1 else None
    facts: dict[str, Any] = {"order": found.model.order, "rehearsed": [], "now": None, "flags": []}
    facts["plan"] = None if plan is None else {"decisions": plan.n_decisions, "hold": plan.n_held}
    if found.choice is not None:
        names = ("name", "mean", "error", "left")
        facts["rehearsed"] = [{name: getattr(each, name) for name in names} for each in found.choice.tried]
        facts |= {"now": found.choice.now, "flags": list(found.choice.flags)}
    return facts


def _order_lines(found: Automatic, asked: dict[str, Any]) -> dict[str, str]:
    """Return what was chosen by rehearsal, how each candidate did, and what speaks against the model."""
    order, choice = found.model.order, found.choice
    words = "averages, the paper's method" if order == 0 else "lines, and plans that look ahead"
    if order == 1:
        plan = found.model.model_.plans
        words += f": {_count(plan.n_plans, 'plan')} of {plan.n_decisions} x {plan.n_held} steps"
    is_regular = found.model.model_.basis.discount is None
    unable = "not rehearsed: " + _WHY_NOT_REHEARSED if is_regular else "steps have durations"
    why = "as asked for" if "order" in asked else unable if choice is None else "chosen by rehearsal"
    lines = {"order": f"{order} (--order): {words}; {why}"}
    if choice is None:
        return lines
    for number, each in enumerate(choice.tried, start=1):
        mark = ", chosen" if each is choice.chosen else ""
        left = f", {each.left:.0%} of the runs left the data" if each.left else ""
        lines[f"rehearsed {number}"] = f"{each.name}: {each.mean:.4g} +- {each.error:.2g} per episode{left}{mark}"
    if choice.now is not None:
        lines["logged decisions"] = f"{choice.now:.4g} per episode, discounted, in the same episodes"
    if choice.is_better_than_now is False:
        lines["mind"] = "nothing rehearsed clearly better than the logged decisions: judge the model before you use it"
    for number, flag in enumerate(choice.flags, start=1):
        lines[f"mind {number}"] = flag
    return lines


def print_model(model: Model, path: Path, n_before: int, seconds: float, *, as_json: bool) -> None:
    """Print what a model has now been learnt from, and the file."""
    facts = _facts(model, path, seconds) | {"transitions_before": n_before}
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    transitions = _count(facts["transitions"], "transition")
    lines = {"learnt from": f"{transitions}, {facts['transitions'] - n_before:,} of them new"}
    _print(path, lines | _model_lines(model, facts) | {"seconds": f"{seconds:.1f}"})


def _state_line(names: Sequence[str], recipe: Recipe | None) -> str:
    """Return the columns of the state, with what they became where they are not plain numbers."""
    return ", ".join(names) if recipe is None else ", ".join(column.described() for column in recipe.columns)


def _why_so_many(found: Automatic, n_reps: int, asked: dict[str, Any]) -> str:
    """Return the reason for the number of representative states."""
    if found.n_reps is not None:
        return found.n_reps.reason
    if "n_reps" not in asked:
        return "as many as --choose-reps found"
    return "as asked for" if n_reps == asked["n_reps"] else f"{asked['n_reps']:,} were asked for"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


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
    shown = _some(actions)
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
    shown = _some(rare)
    return {
        "actions left out": f"{shown}: taken fewer than {least} times (--min-cases), too few to tell luck from effect"
    }


def _print(path: Path, lines: dict[str, str]) -> None:
    width = max(map(len, lines)) + 2
    for name, text in lines.items():
        click.echo(f"{name:{width}}{text}")
    click.echo(f"{'model':{width}}{path}")
