"""Commands that need a simulator and no data: demo, tasks, collect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbrl.cli.options import quiet_option, seed_option
from kbrl.cli.screen import print_table, progress

if TYPE_CHECKING:
    from kbrl.demo import Score


@click.command()
@click.option(
    "-n", "--transitions", default=4000, show_default=True, type=click.IntRange(10, 20000), help="Moves a run."
)
@click.option("-m", "--reps", default=100, show_default=True, type=click.IntRange(1), help="Representative states.")
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1), help="Independent runs.")
@seed_option
@click.option("-o", "--output", default="demo", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@quiet_option
def demo(transitions: int, reps: int, runs: int, seed: int, output: Path, quiet: bool) -> None:
    """Learn the puddle world from random moves and draw what was learnt.

    Example: kbrl demo --runs 3 -o pictures
    """
    from kbrl.demo import draw, run

    output.mkdir(parents=True, exist_ok=True)
    with progress(3 * runs, quiet) as step:
        scores, model = run(transitions, reps, runs, seed, step)
    click.echo(
        f"Puddle world: {transitions} random moves a run, {runs} runs, "
        f"13 test states of the paper; the goal is worth 5, discounted by {model.discount} a move."
    )
    _print_scores(scores)
    try:
        draw(model, output / "puddle_world.png", seed)
    except ImportError:
        raise click.ClickException("The picture needs matplotlib. Install it by: pip install 'kbrl[plot]'.") from None
    click.echo(f"Picture: {output / 'puddle_world.png'}")


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
@click.argument("task")
@click.option("-n", "--transitions", default=10_000, show_default=True, type=click.IntRange(1), help="Number of rows.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help=".csv or .npz")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="An option of the task, as in --set n_poles=2."
)
@seed_option
def collect(task: str, transitions: int, output: Path, settings: tuple[str, ...], seed: int) -> None:
    """Write a log of random moves in TASK.

    Example: kbrl collect PuddleWorld -n 8000 -o log.csv
    """
    import numpy as np

    from kbrl.data.logs import write_log
    from kbrl.tasks import TASKS

    names = {name.lower(): name for name in TASKS}
    if task.lower() not in names:
        raise click.UsageError(f"There is no task {task!r}. The tasks are {', '.join(TASKS)}.")
    simulator = TASKS[names[task.lower()]](**dict(_setting(text) for text in settings))
    log = simulator.collect(transitions, random_state=seed)
    named = log._replaced(action_labels=np.array(simulator.actions))
    write_log(named, output, names=simulator.observation_names)
    click.echo(f"{output}: {len(log)} transitions of {simulator!r}, {int(log.terminals.sum())} of them ends.")


def _setting(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE; a value is a JSON number, list, true or false, or else a word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--set takes NAME=VALUE, but it got {text!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _print_scores(scores: list[Score]) -> None:
    rows = []
    for score in scores:
        mean, half = score.interval()
        learnt = (
            (f"{sum(score.seconds) / len(score.seconds):.3f}", f"{score.n_states}", f"{score.n_bytes / 1e6:.1f}")
            if score.n_states
            else ("-", "-", "-")
        )
        rows.append((score.method, f"{mean:.2f} +- {half:.2f}", *learnt))
    names = ("policy", "return (99 % interval)", "seconds to learn", "model's states", "model's MB")
    print_table(names, rows, right=True)
