"""What a fit on a cluster would take: a cost model whose constants are measured here, drawn out to 1000 workers.

``python -m benchmarks.projection`` measures (CPU seconds of one thread), holds the model against fits on one and on two
workers, and prints the projection; ``--picture FILE`` draws it.  What is not measured is the network: its speed is an
assumption, --bandwidth.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cluster import N_ACTIONS, N_DIMS, busiest_seconds, fit_seconds, learner, write_parts
from benchmarks.measure import cpu_time, seconds

TRIED_REPS = (100, 300, 1000)
FAN_IN, SAMPLE_ROWS, MOST_PARTS, PART_ROWS = 2, 100_000, 4096, 2**20
WORKERS = (1, 10, 100, 1000)


@dataclass(frozen=True)
class Costs:
    """Seconds: of a row to look at, to read, to survey, and to learn from (row + rep m + rep_squared m^2); of a number
    to add and, of a model, to solve; of a representative state to choose; of a task of Dask."""

    look: float
    read: float
    survey: float
    row: float
    rep: float
    rep_squared: float
    add: float
    solve: float
    choose: float
    task: float

    def fit(self, n: float, m: int, n_actions: int, n_workers: int, bandwidth: float) -> dict[str, float]:
        """Return the seconds of each part of a fit."""
        numbers, sample = n_actions * m**2, SAMPLE_ROWS * (2 * N_DIMS + 5)
        n_parts = max(n_workers, min(MOST_PARTS, n / PART_ROWS))
        levels = int(np.ceil(np.log(max(n_workers, 1)) / np.log(FAN_IN)))

        def reduced(size: float) -> float:
            """Add the results of a worker's own parts, then those of the workers, level by level."""
            sent = (FAN_IN - 1) * size * (8 / bandwidth + self.add)
            return n_parts / n_workers * size * self.add + levels * sent + 8 * size / bandwidth

        return {
            "read": n / n_workers * (self.look + 2 * self.read),
            "survey": n / n_workers * self.survey,
            "build": n / n_workers * (self.row + self.rep * m + self.rep_squared * m**2),
            "reduce": reduced(numbers) + (levels + 1) * sample * (8 / bandwidth + self.add),
            "choose and solve": self.choose * m + self.solve * numbers,
            "schedule": self.task * n_parts * (3 + 2 / (FAN_IN - 1)),
        }


def measure(folder: Path, tick: Callable[[str], None]) -> Costs:
    """Measure the constants on this machine."""
    from kbrl.data.survey import hash_limit, survey
    from kbrl.data.transitions import join
    from kbrl.logs.log import open_log
    from kbrl.model.model import first_model

    tick("reading")
    (path,) = write_parts(folder, 1, 400_000)
    n = 400_000
    look = _smallest(lambda: open_log(path)) / n
    log = open_log(path)
    read = _smallest(lambda: [None for _ in log.chunks()]) / n
    rows = join(list(log.chunks()))
    chunks = list(rows.chunks(65536))
    limit = hash_limit(10**9, SAMPLE_ROWS)  # of a large log, of which a part keeps few rows
    looked = _smallest(lambda: survey(chunks, largest_hash=limit)) / n
    build, add, solve, choose = [], 0.0, 0.0, 0.0
    for m in TRIED_REPS:
        tick(f"building with m = {m}")
        part = rows[: 20_000 if m < 1000 else 10_000]
        model = learner(m).fit(part)  # loads and compiles everything
        choose = cpu_time(lambda m=m: first_model(learner(m).settings(), rows[:SAMPLE_ROWS])) / m
        build.append(
            _smallest(lambda model=model, part=part: model.statistics_.on(model.statistics_.basis).accumulate(part))
            / len(part)
        )
        statistics, numbers = model.statistics_, N_ACTIONS * m**2
        add = _smallest(lambda statistics=statistics: statistics + statistics) / numbers
        solve = _smallest(lambda model=model: model.model_.with_sums(model.statistics_, None).solution) / numbers
    row, rep, rep_squared = np.linalg.solve([[1, m, m**2] for m in TRIED_REPS], build)
    tick("scheduling")
    return Costs(look, read, looked, max(row, 0.0), max(rep, 0.0), rep_squared, add, solve, choose, _task_seconds())


def _smallest(work: Callable[[], Any], rounds: int = 3) -> float:
    return min(cpu_time(work) for _ in range(rounds))


def _task_seconds(n_tasks: int = 2000) -> float:
    """Return the CPU seconds of scheduler and client, which are in this process, for a task that does nothing."""
    from distributed import wait

    from kbrl.on_dask.clients import local_cluster

    with local_cluster(1) as client:
        wait(client.map(abs, range(100), pure=False))
        start = time.process_time()
        wait(client.map(abs, range(n_tasks), pure=False))
        return (time.process_time() - start) / n_tasks


def check(costs: Costs, folder: Path, tick: Callable[[str], None]) -> list[tuple[int, float, float]]:
    """Return, for one and two workers, the CPU seconds of the busiest as predicted and as measured."""
    from kbrl.on_dask.clients import local_cluster

    paths, m, found = write_parts(folder, 10, 50_000), 300, []
    for n_workers in (1, 2):
        tick(f"a fit on {n_workers} workers")
        parts = costs.fit(500_000, m, N_ACTIONS, n_workers, 1e9)
        predicted = sum(parts[name] for name in ("read", "survey", "build"))
        with local_cluster(n_workers) as client:
            fit_seconds(paths, m, client)
            found.append((n_workers, predicted, busiest_seconds(paths, m, client)))
    return found


@click.command()
@click.option("--reps", default=1000, show_default=True, help="Representative states, m.")
@click.option("--actions", default=10, show_default=True, help="Actions.")
@click.option("--bandwidth", default=1e9, show_default=True, help="Assumed speed of the network, bytes a second.")
@click.option("--picture", type=click.Path(path_type=Path), help="File to draw the projection to.")
def main(reps: int, actions: int, bandwidth: float, picture: Path | None) -> None:
    """Measure the costs of a fit and project them to many workers."""
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as folder, console.status("measuring") as status:
        costs = measure(Path(folder), status.update)
        checked = check(costs, Path(folder), status.update)
    console.print(
        "Measured, in seconds of one thread:", {name: f"{value:.3g}" for name, value in asdict(costs).items()}
    )
    for n_workers, predicted, measured in checked:
        console.print(
            f"Held against a fit on {n_workers}: predicted {predicted:.2f} s, measured {measured:.2f} s of CPU."
        )
    console.print(_table(costs, reps, actions, bandwidth))
    if picture is not None:
        _draw(costs, reps, actions, bandwidth, picture)


def _table(costs: Costs, m: int, n_actions: int, bandwidth: float) -> Table:
    table = Table(title=f"PROJECTION, not a measurement: m = {m}, {n_actions} actions, {bandwidth / 1e9:g} GB/s")
    parts = list(costs.fit(1e6, m, n_actions, 1, bandwidth))
    for name in ("transitions", "workers", *parts, "in all"):
        table.add_column(name, justify="right")
    for n in (1e8, 1e10, 1e12):
        for n_workers in WORKERS:
            found = costs.fit(n, m, n_actions, n_workers, bandwidth)
            table.add_row(f"{n:.0e}", str(n_workers), *map(duration, found.values()), duration(sum(found.values())))
    return table


def duration(value: float) -> str:
    """Write a time in a unit that suits it."""
    for unit, size in (("years", 31_557_600), ("days", 86_400), ("h", 3600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:.3g} {unit}"
    return seconds(value)


def _draw(costs: Costs, m: int, n_actions: int, bandwidth: float, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    workers = np.unique(np.geomspace(1, 1000, 40).astype(int))
    figure, axes = plt.subplots(figsize=(7, 4))
    for name, size in {"1 minute": 60, "1 hour": 3600, "1 day": 86_400, "1 month": 2_629_800}.items():
        axes.axhline(size, color="0.85", linewidth=0.8, zorder=0)
        axes.text(1, size, name, color="0.5", fontsize=8, va="bottom")
    for power in (8, 10, 12):
        totals = [sum(costs.fit(10.0**power, m, n_actions, int(w), bandwidth).values()) for w in workers]
        (line,) = axes.loglog(workers, totals)
        axes.loglog(workers, totals[0] / workers, ":", color=line.get_color(), linewidth=1)
        axes.text(12, 1.6 * totals[0] / 12, f"$10^{{{power}}}$ transitions", color=line.get_color(), fontsize=9)
    axes.set(xlabel="workers of one thread each (dotted: if all of it were shared evenly)", ylabel="seconds")
    axes.set_title(f"Projection from costs measured on one machine: m = {m}, {n_actions} actions", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
