"""Commands that act in a simulator: tasks, collect, evaluate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbrl.cli.acting import complete_task, counted, env_option, model_policy, random_moves, set_option, simulator_of
from kbrl.cli.console import print_table, progress, row_progress, say
from kbrl.cli.options import FILE, FiniteRange, check_output, json_option, model_argument, quiet_option, seed_option

if TYPE_CHECKING:
    from kbrl.tasks import Task
    from kbrl.trials import Evaluation
    from kbrl.trials.policies import Policy


@click.command()
def tasks() -> None:
    """List the simulators.

    Example: kbrl tasks
    """
    from kbrl.tasks import TASKS

    rows = []
    for task in (make() for make in TASKS.values()):
        sets = ", ".join(f"{name} ({len(task.test_states(name))})" for name in task.test_sets)
        observed = f"{len(task.low)}: {', '.join(task.observation_names)}"
        actions = f"{len(task.actions)}" + (f": {', '.join(task.actions)}" if len(task.actions) <= 4 else "")
        rows.append((task.name, observed, actions, f"{task.discount:g}", sets, task.source))
    print_table(("task", "observes", "actions", "discount", "test states", "source"), rows)


@click.command()
@click.argument("task", required=False, shell_complete=complete_task)
@click.option("-n", "--transitions", default=10_000, show_default=True, type=click.IntRange(1), help="Number of rows.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=FILE,
    help="File to write: .csv, .parquet, .arrow or .npz.",
)
@env_option
@set_option
@click.option(
    "--policy",
    type=click.Path(exists=True, dir_okay=False),
    help="Model that chooses the moves. Default: random moves.",
)
@click.option("--epsilon", type=FiniteRange(0, 1), help="Share of random moves among those of --policy.")
@seed_option
@quiet_option
def collect(
    task: str | None, transitions: int, output: Path, env: str | None, settings: tuple[str, ...],
    policy: str | None, epsilon: float | None, seed: int, quiet: bool,
) -> None:  # fmt: skip
    """Write a log of moves in a simulator.

    The simulator is TASK (kbrl tasks lists them) or a Gymnasium environment (--env).  Moves are random, or those of a
    model (--policy).

    Example: kbrl collect PuddleWorld -n 8000 -o log.csv
    """
    import numpy as np

    from kbrl.logs.writing import write_log

    if epsilon is not None and policy is None:
        raise click.UsageError("--epsilon needs --policy: without a model, all moves are random.")
    check_output(output, "A log")
    with simulator_of(task, env, settings) as simulator, row_progress(quiet) as phase:
        rng = np.random.default_rng(seed)
        moves = _moves(simulator, policy, epsilon or 0.0, rng)
        log = simulator.collect(transitions, counted(moves, phase("collecting", transitions)), rng)
        named = log.replaced(action_labels=np.array(simulator.actions))
        write_log(named, output, names=simulator.observation_names)
        about = repr(simulator) if env is None else simulator.name
    say(f"{output}: {len(log):,} transitions of {about}, {int(log.terminals.sum()):,} of them ends.")


def _moves(simulator: Task, model: str | None, epsilon: float, rng: Any) -> Policy:
    from kbrl.storage.model_file import read_model
    from kbrl.trials.policies import EpsilonGreedy

    if model is None:
        return random_moves(simulator, rng)
    acting = model_policy(simulator, read_model(model))
    return EpsilonGreedy(acting, epsilon, range(len(simulator.actions)), rng) if epsilon else acting


@click.command()
@model_argument
@click.option("--task", shell_complete=complete_task, help="Name of a simulator; kbrl tasks lists them.")
@env_option
@set_option
@click.option("--states", help="Name of a set of test states, or a number of start states.")
@click.option("--runs", default=10, show_default=True, type=click.IntRange(1), help="Independent runs.")
@seed_option
@json_option
@quiet_option
def evaluate(
    model: str, task: str | None, env: str | None, settings: tuple[str, ...], states: str | None, runs: int,
    seed: int, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Let a MODEL act in a simulator.

    It is compared with uniformly random moves.  A run is one episode from each of the start states; its return is the
    mean of theirs.  The intervals are over runs.  If nothing in the simulator is random, all runs of the model are the
    same.  The discount of returns is the task's; in a Gymnasium environment it is the model's.

    Example: kbrl evaluate model.kbrl --task PuddleWorld --states paper --runs 20
    """
    from kbrl.storage.model_file import read_model

    saved = read_model(model)
    with simulator_of(task, env, settings, discount=saved.model.discount) as simulator:
        starts = _starts(simulator, states)
        acting = model_policy(simulator, saved)
        results: dict[str, list[Evaluation]] = {"model": [], "random moves": []}
        with progress(2 * runs, quiet) as step:
            for run in range(runs):
                for name, found in results.items():
                    step(f"run {run + 1} of {runs}: {name}")
                    found.append(_run(simulator, acting if name == "model" else None, starts, seed, run))
        facts = {"task": simulator.name, "discount": simulator.discount, "runs": runs}
        facts |= {"episodes_per_run": len(results["model"][0].returns)}
        facts["policies"] = {name: _scores(simulator, found) for name, found in results.items()}
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        _print_evaluation(facts)


def _starts(simulator: Task, states: str | None) -> str | int:
    """Return the name of a set of test states, or a number of start states."""
    if states is not None and states.isdigit() and int(states) > 0:
        return int(states)
    if states is None:
        return simulator.test_sets[0] if simulator.test_sets else 10
    if states not in simulator.test_sets:
        sets = f"its sets are {', '.join(simulator.test_sets)}" if simulator.test_sets else "it has no sets"
        raise click.UsageError(f"{simulator.name} has no test states {states!r}; {sets}. A number draws start states.")
    return states


def _run(simulator: Task, policy: Policy | None, starts: str | int, seed: int, run: int) -> Evaluation:
    """Evaluate a policy, or random moves, from starts that depend on the seed and the run only."""
    import numpy as np

    policy = policy or random_moves(simulator, np.random.default_rng([seed, run, 1]))
    return simulator.evaluate(policy, starts, np.random.default_rng([seed, run, 0]))


def _scores(simulator: Task, found: list[Evaluation]) -> dict[str, Any]:
    """Return the mean over runs of what was achieved, with the half width of its 99 % interval, None for one run."""
    import numpy as np

    from kbrl.trials import confidence_interval

    measures = {"return": [e.mean for e in found], "steps": [float(e.lengths.mean()) for e in found]}
    success_rate = getattr(simulator, "success_rate", None)
    if success_rate is not None:
        measures["success"] = [success_rate(e) for e in found]
    scores: dict[str, Any] = {}
    for name, values in measures.items():
        mean, half = confidence_interval(values)
        scores[name] = {"mean": mean, "half_width": half if np.isfinite(half) else None}
    return scores


def _print_evaluation(facts: dict[str, Any]) -> None:
    click.echo(
        f"{facts['task']}: {facts['runs']} runs of {facts['episodes_per_run']} episodes; "
        f"returns discounted by {facts['discount']:g} per decision; 99 % intervals."
    )
    measures = list(facts["policies"]["model"])
    rows = [
        (name, *(_with_interval(scores[measure]) for measure in measures)) for name, scores in facts["policies"].items()
    ]
    print_table(("policy", *measures), rows, right=True)


def _with_interval(score: dict[str, Any]) -> str:
    half = score["half_width"]
    return f"{score['mean']:.4g}" + ("" if half is None else f" +- {half:.2g}")
