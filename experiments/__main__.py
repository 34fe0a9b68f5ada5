"""Run the paper's study: python -m experiments [FIGURE ...] --scale smoke|laptop|paper

Runs what is missing, then draws the pictures and writes the tables.  Interrupt it whenever you like: jobs that are done
are not run again.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from experiments.claims import CLAIMS, counted, enough_runs, write_claims
from experiments.drawing import save_figure
from experiments.needs import Left
from experiments.overview import draw_overview
from experiments.runner import carry_over, duration, figure_file, missing_tasks, run_tasks, runnable
from experiments.store import Store
from experiments.study import SCALES, Row, Verdict, n_cores, not_run

FIGURES = (
    "theory", "puddle", "incremental", "poles", "hiv", "epilepsy", "triple_pole", "helicopter", "trust", "deferral",
    "power", "order_1", "rivals",
)  # fmt: skip


@click.command()
@click.argument("figures", nargs=-1, type=click.Choice(FIGURES))
@click.option("--scale", default="laptop", show_default=True, type=click.Choice(SCALES), help="How much to run.")
@click.option("--results", type=click.Path(path_type=Path), help="Folder; by default results, or build/smoke.")
@click.option("--claim", "claims", multiple=True, type=click.Choice(list(CLAIMS)), help="Only what it rests on.")
@click.option("--runs", type=click.IntRange(1), help="Only the first so many runs of each kind of job.")
@click.option("--without-timed", is_flag=True, help="Leave what is compared in time for when the machine is free.")
@click.option("--workers", type=click.IntRange(1), help="Jobs side by side; by default one per core.")
@click.option("--at-most", type=float, help="Only jobs that are expected to take at most so many seconds.")
@click.option("--only-draw", is_flag=True, help="Run nothing; draw and judge the rows that are there.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def main(
    figures: tuple[str, ...],
    scale: str,
    results: Path | None,
    claims: tuple[str, ...],
    runs: int | None,
    without_timed: bool,
    workers: int | None,
    at_most: float | None,
    only_draw: bool,
    quiet: bool,
) -> None:
    """Run the paper's experiments, draw their figures and judge its claims."""
    folder = results or Path("build/smoke" if scale == "smoke" else "results")
    failures: list[str] = []
    if not only_draw:
        chosen = figures or tuple(dict.fromkeys(CLAIMS[claim].figure for claim in claims)) or FIGURES
        stores = {figure: Store(folder, figure, scale) for figure in chosen}
        for figure in stores if scale == "paper" else ():
            carry_over(figure, Store(folder, figure, "laptop"), stores[figure])
        missing = missing_tasks(
            stores, scale, with_timed=not without_timed, at_most=at_most, claims=claims, n_runs=runs
        )
        tasks = runnable(missing)
        n_workers = workers or n_cores()
        if not quiet:
            seconds = sum(task.seconds / (1 if task.job.alone else n_workers) for task in tasks)
            click.echo(f"{len(tasks)} jobs, about {duration(seconds)} on a free machine. Interrupt whenever you like.")
        try:
            failures = run_tasks(tasks, scale, stores, n_workers, (lambda text: None) if quiet else click.echo)
        finally:
            for store in stores.values():
                store.pack()
    found = _draw_and_judge(folder)
    draw_overview(found, folder)
    write_claims(folder, found, left(folder))
    for claim, (at_scale, verdict) in found.items():
        click.echo(f"{claim:4} {verdict.finding.value:22} {verdict.ours} ({verdict.n_runs} runs, {at_scale})")
    click.echo(f"{len(CLAIMS)} claims. {counted(found).capitalize()}.")
    click.echo(f"Pictures, {folder / 'CLAIMS.md'} and {folder / 'NOTES.md'} are written.")
    for failure in failures:
        click.echo(f"Failed: {failure}", err=True)
    sys.exit(1 if failures else 0)


def _draw_and_judge(folder: Path) -> dict[str, tuple[str, Verdict]]:
    """Make every figure's picture and verdicts from its rows."""
    found: dict[str, tuple[str, Verdict]] = {}
    for figure in FIGURES:
        by_scale = {scale: rows for scale in SCALES if (rows := Store(folder, figure, scale).rows)}
        if not by_scale:
            continue
        found |= judged(figure, by_scale)
        drawn = drawn_scale(figure, by_scale)
        picture = figure_file(figure).draw(by_scale[drawn])
        if picture is not None:
            save_figure(picture, folder, figure)
        write_page = getattr(figure_file(figure), "write_page", None)
        if write_page is not None and drawn != "smoke":
            write_page(by_scale[drawn])
    return found


def left(folder: Path) -> dict[str, Left]:
    """Return what the paper's scale has to run: for each claim until it has enough runs, for each figure in all."""
    stores = {figure: Store(folder, figure, "paper") for figure in dict.fromkeys(c.figure for c in CLAIMS.values())}
    found = {figure: missing_tasks({figure: store}, "paper") for figure, store in stores.items()}
    for name, claim in CLAIMS.items():
        own = {claim.figure: stores[claim.figure]}
        found[name] = missing_tasks(own, "paper", claims=(name,), n_runs=enough_runs(name))
    return {name: Left(len(tasks), sum(task.seconds for task in tasks)) for name, tasks in found.items()}


def drawn_scale(figure: str, by_scale: dict[str, list[Row]]) -> str:
    """Return the scale of a picture, which needs all parts: of those that judge most claims that of most verdicts."""
    n_judged = {
        scale: sum(verdict.judged is not None for verdict in figure_file(figure).verdicts(rows))
        for scale, rows in by_scale.items()
    }
    chosen = [scale for scale, _ in judged(figure, by_scale).values()]
    return max(by_scale, key=lambda scale: (n_judged[scale], chosen.count(scale), SCALES.index(scale)))


def judged(figure: str, by_scale: dict[str, list[Row]]) -> dict[str, tuple[str, Verdict]]:
    """Return the verdict of each claim of a figure, with its scale.

    A claim is judged at the largest scale that has at least as many runs of it as any smaller one: so a study at the
    paper's scale takes over from the laptop's claim by claim, as its runs come in.
    """
    found: dict[str, tuple[str, Verdict]] = {}
    for scale in [scale for scale in SCALES if scale in by_scale]:
        for verdict in figure_file(figure).verdicts(by_scale[scale]):
            # A smoke run shows that all works; it is too small to judge by.
            own = replace(verdict, judged=None) if scale == "smoke" else verdict
            before = found.get(verdict.claim, ("", not_run(verdict.claim, "")))[1]
            if verdict.claim not in found or own.n_runs >= max(1, before.n_runs):
                found[verdict.claim] = (scale, replace(own, note=f"{own.note} {_at_laptop_scale(before)}".strip()))
    return found


def _at_laptop_scale(verdict: Verdict) -> str:
    """Say what a smaller scale found before a larger one took over: it may have more readings."""
    if verdict.judged is None:
        return ""
    found = f"{verdict.ours} ({verdict.n_runs} runs), {verdict.finding.value}"
    return f"At the laptop's scale: {found}. {verdict.note}".strip()


if __name__ == "__main__":
    main()
