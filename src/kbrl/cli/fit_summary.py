"""What the commands that make models say at their end, to a person or to a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kbrl.choosing.automatic_fit import Automatic
    from kbrl.logs.log import Log
    from kbrl.model.model import Model

_JUDGED = {
    "error": "chosen by the errors of next states and rewards left out, and of next states rebuilt",
    "bellman": "chosen by how well values explain the targets of transitions held out",
}


def print_fit(found: Automatic, log: Log, path: Path, seconds: float, *, asked: dict[str, Any], as_json: bool) -> None:
    """Print what a model was learnt from, what was chosen for it and why, what was ``asked`` for, and where it is."""
    facts = _facts(found.model.model_, path, seconds)
    facts |= {"rows": log.n_rows, "episodes": found.n_episodes or None, "columns": log.columns.to_dict()}
    facts["reps_reason"] = found.n_reps.reason if found.n_reps else None
    facts["widths_criterion"] = found.widths.criterion if found.widths else None
    facts["widths_tried"] = [vars(trial) for trial in found.widths.trials] if found.widths else []
    facts["seconds_of"] = found.seconds
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    episodes = f" in {_count(found.n_episodes, 'episode')}" if found.n_episodes else ""
    transitions = _count(facts["transitions"], "transition")
    lines = {"learnt from": f"{transitions} of {_count(log.n_rows, 'row')}{episodes}"}
    lines["state"] = ", ".join(log.columns.state)
    lines |= _model_lines(found.model.model_, facts)
    lines["representative states"] += f" (--reps): {_why_so_many(found, facts['reps'], asked)}"
    for name, option in (("width of samples", "sample_width"), ("width of states", "rep_width")):
        why = "as asked for" if option in asked or not found.widths else _JUDGED[found.widths.criterion]
        lines[name] = f"{facts[option]:g} (--{option.replace('_', '-')}): {why}"
    parts = ", ".join(f"{name} {spent:.1f}" for name, spent in found.seconds.items())
    lines["seconds"] = f"{seconds:.1f}: {parts}"
    _print(path, lines)


def print_model(model: Model, path: Path, n_before: int, seconds: float, *, as_json: bool) -> None:
    """Print what is behind a model now, and where it is."""
    facts = _facts(model, path, seconds) | {"transitions_before": n_before}
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    transitions = _count(facts["transitions"], "transition")
    lines = {"learnt from": f"{transitions}, {facts['transitions'] - n_before:,} of them new"}
    _print(path, lines | _model_lines(model, facts) | {"seconds": f"{seconds:.1f}"})


def _why_so_many(found: Automatic, n_reps: int, asked: dict[str, Any]) -> str:
    """Say how the number of representative states came about."""
    if found.n_reps is not None:
        return found.n_reps.reason
    if "n_reps" not in asked:
        return "as many as --choose-reps found"
    return "as asked for" if n_reps == asked["n_reps"] else f"{asked['n_reps']:,} were asked for"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


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
        "sample_width": basis.sample_kernel.width,
        "rep_width": basis.rep_kernel.width,
        "solver_iterations": int(model.solution.iterations),
        "solver_converged": bool(model.solution.converged),
        "seconds": seconds,
    }


def _model_lines(model: Model, facts: dict[str, Any]) -> dict[str, str]:
    actions = [f"{action['action']} ({action['count']:,})" for action in facts["actions"]]
    shown = ", ".join(actions[:8]) + (f" and {len(actions) - 8} more" if len(actions) > 8 else "")
    percent = 100 * (1 - facts["discount"])
    return {
        "actions": shown,
        **_left_out(model),
        "discount": f"{facts['discount']:g} (--discount): a reward one step later counts {percent:.3g} % less",
        "representative states": f"{facts['reps']:,}",
    }


def _left_out(model: Model) -> dict[str, str]:
    """Say which actions are not recommended because they were hardly ever taken, and why; or why none is."""
    least, counts = model.min_cases, model.sums.counts
    taken = counts[counts > 0]
    if len(taken) and (taken < least).all():
        return {
            "actions left out": f"none, though all were taken fewer than {least} times (--min-cases): mind the values"
        }
    rare = [f"{label} ({n:,})" for label, n in model.left_out.items()]
    if not rare:
        return {}
    shown = ", ".join(rare[:8]) + (f" and {len(rare) - 8} more" if len(rare) > 8 else "")
    return {
        "actions left out": f"{shown}: taken fewer than {least} times (--min-cases), too few to tell luck from effect"
    }


def _print(path: Path, lines: dict[str, str]) -> None:
    width = max(map(len, lines)) + 2
    for name, text in lines.items():
        click.echo(f"{name:{width}}{text}")
    click.echo(f"{'model':{width}}{path}")
