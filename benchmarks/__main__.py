"""The command ``python -m benchmarks``: measure, and show each figure beside its goal.

Nothing here fails for being slow: a figure short of its goal is shown as such.
"""

from __future__ import annotations

import platform
from importlib.metadata import version

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import (
    cluster,
    dense,
    files,
    judging,
    latency,
    learners,
    lines,
    memory,
    rivals,
    sarsa,
    serving,
    simulators,
    solvers,
    sparse,
    streaming,
    values,
)
from benchmarks.measure import Report, Section, show

MODULES = (
    dense,
    learners,
    sparse,
    lines,
    latency,
    serving,
    memory,
    solvers,
    simulators,
    rivals,
    sarsa,
    streaming,
    files,
    judging,
    values,
    cluster,
)
SECTIONS = {module.SECTION.name: module.SECTION for module in MODULES}
WIDTH = 120  # of tables that do not go to a terminal


def _chosen(context: click.Context, parameter: click.Parameter, value: str | None) -> list[Section]:
    names = list(SECTIONS) if value is None else [name.strip() for name in value.split(",")]
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        raise click.BadParameter(f"there is no section {', '.join(unknown)}; choose from {', '.join(SECTIONS)}.")
    return [SECTIONS[name] for name in names]


@click.command()
@click.option("--only", "sections", callback=_chosen, help=f"Sections to run: {','.join(SECTIONS)}.")
@click.option("--quick", is_flag=True, help="Small sizes, to see that it runs; goals are not judged.")
def main(sections: list[Section], quick: bool) -> None:
    """Measure kbrl against other ways to compute the same."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(_setting(), style="dim", highlight=False)
    reports = []
    # Refreshed by hand, between measurements: a display of its own thread would be counted.
    progress = Progress(
        TextColumn("{task.fields[section]}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        auto_refresh=False,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task("", total=len(sections), section="")
        for section in sections:

            def tick(text: str, section: Section = section) -> None:
                progress.update(task, description=text, section=section.name, refresh=True)

            for report in section.run(quick, tick):
                show(report, console, judged=not quick)
                reports.append(report)
            progress.advance(task)
    if not quick:
        console.print(_summary(reports), highlight=False)


def _setting() -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in ("kbrl", "numpy", "scipy", "numba"))
    threads = "one thread, CPU time, the smallest of interleaved rounds"
    return f"{platform.machine()}, Python {platform.python_version()}, {versions}; {threads}.\n"


def _summary(reports: list[Report]) -> str:
    goals = [(report, row) for report in reports for row in report.rows if row.goal and row.goal.met is not None]
    short = [f"  {report.title}; {row.contender}: {row.goal.text}" for report, row in goals if not row.goal.met]
    lines = [f"{len(goals) - len(short)} of {len(goals)} goals met."]
    return "\n".join([*lines, *(["Short of the goal:", *short] if short else [])])


if __name__ == "__main__":
    main()
