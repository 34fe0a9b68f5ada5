"""The command kbrl.

Results go to standard output, progress and errors to standard error; progress only where that is a terminal.
Exit status: 0 all went well, 1 the data or the files are at fault, 2 the command line is, 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kbrl

if TYPE_CHECKING:
    from kbrl.data.quality import Report
    from kbrl.demo import Score


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kbrl.__version__, prog_name="kbrl")
def commands() -> None:
    """Kernel-based reinforcement learning: decision policies from logged transitions."""


@commands.command()
@click.option(
    "-n", "--transitions", default=4000, show_default=True, type=click.IntRange(10, 20000), help="Moves a run."
)
@click.option("-m", "--reps", default=100, show_default=True, type=click.IntRange(1), help="Representative states.")
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1), help="Independent runs.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Decides all randomness.")
@click.option("-o", "--output", default="demo", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
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


@commands.command()
def tasks() -> None:
    """List the simulators.

    Example: kbrl tasks
    """
    from rich.console import Console
    from rich.table import Table

    from kbrl.tasks import TASKS

    table = Table(box=None, pad_edge=False)
    for name in ("task", "observes", "actions", "discount", "test states", "source"):
        table.add_column(name, overflow="fold")
    for task in (make() for make in TASKS.values()):
        sets = ", ".join(f"{name} ({len(task.test_states(name))})" for name in task.test_sets)
        observed = f"{len(task.low)}: {', '.join(task.observation_names)}"
        actions = f"{len(task.actions)}" + (f": {', '.join(task.actions)}" if len(task.actions) <= 4 else "")
        table.add_row(task.name, observed, actions, f"{task.discount:g}", sets, task.source)
    Console(width=max(110, Console().width)).print(table)


@commands.command()
@click.argument("task")
@click.option("-n", "--transitions", default=10_000, show_default=True, type=click.IntRange(1), help="Number of rows.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help=".csv or .npz")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="An option of the task, as in --set n_poles=2."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Decides all randomness.")
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


@commands.command()
@click.argument("log", nargs=-1, required=True)
@click.option("--state", help="Columns of the state, as in age,sofa,lactate.")
@click.option("--action", help="Column of the action.")
@click.option("--reward", help="Column of the reward.")
@click.option("--episode", help="Column that tells episodes apart.")
@click.option("--step", help="Column of the step within the episode.")
@click.option("--terminated", help="Column that is true where an episode really ended.")
@click.option("--truncated", help="Column that is true where it was cut.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program to read.")
def check(log: tuple[str, ...], as_json: bool, **columns: str | None) -> None:
    """Find what is wrong with a LOG before learning does: a file, a folder or a glob of Parquet, CSV, Arrow or .npz.

    Exit status 1 if anything stops learning.  Example: kbrl check log.csv --state age,sofa --action dose
    """
    from kbrl.data.quality import check_log

    named = {name: column for name, column in columns.items() if column is not None}
    report = check_log(log[0] if len(log) == 1 else list(log), columns=named or None)
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        _print_faults(report)
    if report.stops_learning:
        sys.exit(1)


def _print_faults(report: Report) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    click.echo(f"{report.n_rows} rows, {report.n_episodes} episodes, {report.n_transitions} transitions.")
    if not report.faults:
        click.echo("No faults found.")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("fault", "count", "first rows", "stops learning", "what is wrong, and what to do"):
        table.add_column(name, overflow="fold")
    for fault in report.faults:
        rows = ", ".join(map(str, fault.rows))
        text = escape(f"{fault.message} {fault.advice}")
        table.add_row(fault.name, str(fault.count), rows, "yes" if fault.stops_learning else "no", text)
    Console(width=max(110, Console().width)).print(table)


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
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("policy", "return (99 % interval)", "seconds to learn", "model's states", "model's MB"):
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for score in scores:
        mean, half = score.interval()
        learnt = score.n_states > 0
        table.add_row(
            score.method,
            f"{mean:.2f} +- {half:.2f}",
            f"{sum(score.seconds) / len(score.seconds):.3f}" if learnt else "-",
            f"{score.n_states}" if learnt else "-",
            f"{score.n_bytes / 1e6:.1f}" if learnt else "-",
        )
    Console(width=max(100, Console().width)).print(table)


@contextmanager
def progress(n_steps: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show a bar on a terminal; the function given advances it by a step and says what comes next."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as bar:
        task = bar.add_task("setting up", total=n_steps)
        yield lambda description: bar.update(task, advance=1, description=description)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command; an error is one line on standard error, never a traceback."""
    try:
        commands.main(args=arguments, prog_name="kbrl", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Stopped.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
    except (ValueError, TypeError, OSError, MemoryError, ImportError) as error:
        click.echo(f"Error: {error or type(error).__name__}", err=True)
        sys.exit(1)
