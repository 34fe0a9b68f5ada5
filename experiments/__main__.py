"""Run the paper's study: python -m experiments [FIGURE ...] --scale smoke|laptop|paper

Runs what is missing, then draws the pictures and writes the table of claims.  Ctrl-C and go on later: jobs that are
done are not run again.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from experiments.claims import CLAIMS, counted, write_claims
from experiments.drawing import save_figure
from experiments.runner import figure_file, missing_jobs, run_figure
from experiments.store import Store
from experiments.study import SCALES, Verdict
from kbrl.cli.console import progress

FIGURES = (
    "theory", "puddle", "incremental", "poles", "hiv", "epilepsy", "triple_pole", "helicopter", "trust", "deferral",
    "power",
)  # fmt: skip


@click.command()
@click.argument("figures", nargs=-1, type=click.Choice(FIGURES))
@click.option("--scale", default="laptop", show_default=True, type=click.Choice(SCALES), help="How much to run.")
@click.option("--results", type=click.Path(path_type=Path), help="Folder; by default results, or build/smoke.")
@click.option("--without-timed", is_flag=True, help="Leave what is compared in time for when the machine is free.")
@click.option("--only-draw", is_flag=True, help="Run nothing; draw and judge the rows that are there.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def main(
    figures: tuple[str, ...], scale: str, results: Path | None, without_timed: bool, only_draw: bool, quiet: bool
) -> None:
    """Run the paper's experiments, draw their figures and judge its claims."""
    folder = results or Path("build/smoke" if scale == "smoke" else "results")
    chosen = figures or FIGURES
    failures: list[str] = []
    if not only_draw:
        stores = {figure: Store(folder, figure, scale) for figure in chosen}
        missing = {figure: missing_jobs(figure, scale, stores[figure], not without_timed) for figure in chosen}
        with progress(sum(map(len, missing.values())), quiet) as step:
            for figure in chosen:
                failures += run_figure(figure, scale, missing[figure], stores[figure], step)
    found = _draw_and_judge(folder)
    write_claims(folder / "CLAIMS.md", found)
    for claim, (at_scale, verdict) in found.items():
        click.echo(f"{claim:4} {verdict.finding.value:22} {verdict.ours} ({verdict.n_runs} runs, {at_scale})")
    click.echo(f"{len(CLAIMS)} claims. {counted(found).capitalize()}.")
    click.echo(f"Figures and {folder / 'CLAIMS.md'} are written.")
    for failure in failures:
        click.echo(f"Failed: {failure}", err=True)
    sys.exit(1 if failures else 0)


def _draw_and_judge(folder: Path) -> dict[str, tuple[str, Verdict]]:
    """Make every figure's picture and verdicts from its largest scale that has rows."""
    found: dict[str, tuple[str, Verdict]] = {}
    for figure in FIGURES:
        scales = [scale for scale in SCALES if (folder / "rows" / f"{figure}.{scale}.jsonl").exists()]
        stores = [(scale, Store(folder, figure, scale)) for scale in reversed(scales)]
        scale, rows = next(((scale, store.rows) for scale, store in stores if store.rows), ("", []))
        if rows:
            save_figure(figure_file(figure).draw(rows), folder, figure)
            write_page = getattr(figure_file(figure), "write_page", None)
            if write_page is not None and scale != "smoke":
                write_page(rows)
            for verdict in figure_file(figure).verdicts(rows):
                # A smoke run shows that all works; it is too small to judge by.
                found[verdict.claim] = (scale, replace(verdict, judged=None) if scale == "smoke" else verdict)
    return found


if __name__ == "__main__":
    main()
