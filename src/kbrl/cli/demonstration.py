"""The command demo: the main job on a table as people keep it, and the puddle world."""

from __future__ import annotations

import shlex
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbrl.cli.console import print_table, progress
from kbrl.cli.options import quiet_option, seed_option

if TYPE_CHECKING:
    from kbrl.demo.puddle_picture import Score

WARD = (  # what the demonstration runs, in its folder
    ("Look at the table, and propose which column is what:", "kbrl init ward.csv --force"),
    ("Find what is wrong with it:", "kbrl check ward.csv --config ward.toml"),
    (
        "Learn from half of the patients:",
        "kbrl fit ward.csv --config ward.toml --hold-out 0.5 -o ward.kbrl",
    ),
    ("Ask the other half whether the policy is better than the doctors:", "kbrl judge ward.kbrl ward.csv"),
    (
        "Why this answer for one patient?",
        "kbrl explain ward.kbrl --state sofa=12,lactate=3,ventilated=no --log ward.csv --cases 2",
    ),
    ("One page about all of it, for people:", "kbrl report ward.kbrl ward.csv -o ward.html"),
)  # fmt: skip
PARTS = ("table", "ward", "puddles")


@click.command()
@click.option(
    "--only",
    type=click.Choice(PARTS),
    help="table: only write ward.csv. ward: the table, and what is learnt from it. puddles: the puddle world.",
)
@click.option(
    "-n", "--transitions", default=1000, show_default=True, type=click.IntRange(10, 20000), help="Moves per run."
)
@click.option("-m", "--reps", default=100, show_default=True, type=click.IntRange(1), help="Representative states.")
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1), help="Runs of the puddle world.")
@seed_option
@click.option(
    "-o", "--output", default="demo", show_default=True, type=click.Path(path_type=Path), help="Folder to write to."
)
@quiet_option
def demo(
    only: str | None, transitions: int, reps: int, runs: int, seed: int, output: Path, quiet: bool
) -> None:  # fmt: skip
    """Show what kbrl does with a table, on a simulated ward.

    The ward's table is as people keep them: semicolons, decimal commas, dates, missing values, notes.  Each command is
    printed before it runs, so that you can repeat it.  After the ward comes the paper's puddle world, with a picture of
    what was learnt.

    Example: kbrl demo --only table -o .
    """
    from kbrl.report.drawing import need_matplotlib

    if only != "table":
        need_matplotlib("The demonstration")  # before any work is done
    output.mkdir(parents=True, exist_ok=True)
    if only != "puddles":
        _write_table(output, seed)
    if only in (None, "ward"):
        _learn_from_table(output)
    if only in (None, "puddles"):
        _learn_puddles(output, transitions, reps, runs, seed, quiet)
    if only is None:
        _say_what_next(output)


def _write_table(output: Path, seed: int) -> None:
    from kbrl.demo.ward_table import is_ward, write_ward

    table = output / "ward.csv"
    if table.is_file() and not is_ward(table):
        raise click.UsageError(f"{table} exists, and is not the table of kbrl demo. Name another folder: -o NEW.")
    n_rows = write_ward(output / "ward.csv", seed=seed)
    click.echo(f"{output / 'ward.csv'}: {n_rows:,} visits of a simulated ward, as people keep tables. It begins:\n")
    with open(output / "ward.csv", encoding="utf-8") as file:
        click.echo("".join(f"    {next(file)}" for _ in range(5)))


def _learn_from_table(output: Path) -> None:
    """Run the commands of the main job in the folder, each after it was printed."""
    from kbrl.cli import commands
    from kbrl.demo.ward_table import judged_and_true

    with chdir(output):
        for number, (why, line) in enumerate(WARD, start=1):
            click.secho(f"\n{number}. {why}\n", bold=True)
            click.echo(f"$ {line}\n")
            commands.main(args=shlex.split(line)[1:], prog_name="kbrl", standalone_mode=False)
        now, then = judged_and_true(Path("ward.kbrl"))
    click.secho("\nWas the judgement right?\n", bold=True)
    click.echo(
        f"This ward is simulated, so the truth can be looked up. A new patient scores {now:.2f} on average if treated "
        f"by the doctors, and {then:.2f} if treated by the policy. The true gain is {then - now:+.2f}."
    )


def _learn_puddles(output: Path, transitions: int, reps: int, runs: int, seed: int, quiet: bool) -> None:
    from kbrl.demo.puddle_picture import draw, run

    with progress(3 * runs, quiet) as step:
        scores, model = run(transitions, reps, runs, seed, step)
    click.secho("\nThe paper's puddle world\n", bold=True)
    click.echo(
        f"Walk to a corner, worth 5, and do not get wet. {runs} runs, 13 test states of the paper, "
        f"discounted by {model.discount} per move."
    )
    _print_scores(scores)
    draw(model, output / "puddle_world.png", seed)
    click.echo(f"Picture: {output / 'puddle_world.png'}")


def _say_what_next(output: Path) -> None:
    click.secho("\nTry next\n", bold=True)
    click.echo(f"Open {output / 'ward.html'} in a browser and fill in a patient. Then:\n")
    click.echo("    kbrl init YOUR_TABLE.csv            # then check, fit and judge, as above")
    click.echo("    kbrl tasks                          # the simulators; kbrl collect writes their logs")
    click.echo("    kbrl fit --help                     # all that can be set; little has to be")


def _print_scores(scores: list[Score]) -> None:
    rows = []
    for score in scores:
        mean, half = score.interval()
        learnt = (
            (f"{sum(score.seconds) / len(score.seconds):.3f}", f"{score.n_states}", f"{score.n_bytes / 1e6:.1f}")
            if score.n_states
            else ("-", "-", "-")
        )
        rows.append((score.method, f"{score.n_moves or '-'}", f"{mean:.2f} +- {half:.2f}", *learnt))
    names = ("policy", "learnt from", "return (99 % interval)", "seconds to learn", "model's states", "model's MB")
    print_table(names, rows, right=True)
