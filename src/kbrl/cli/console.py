"""What a person at a terminal sees: tables on standard output, progress on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kbrl.interrupts import stop_if_asked


@contextmanager
def progress(n_steps: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that advances a progress bar on a terminal by one step and names the next one."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as bar:
        task = bar.add_task("setting up", total=n_steps)
        yield lambda description: bar.update(task, advance=1, description=description)


def print_table(names: Sequence[str], rows: Iterable[Sequence[str]], *, right: bool = False) -> None:
    """Print a table on standard output, at least 110 characters wide."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(names):
        table.add_column(name, overflow="fold", justify="right" if right and number else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console()
    Console(width=max(110, console.width)).print(table)


@contextmanager
def row_progress(quiet: bool) -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """Yield phase(name, n_rows), which starts a part of the work and returns a progress callback."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    what = (TextColumn("{task.description}"), BarColumn(bar_width=10), TextColumn("{task.fields[rows]}"))
    when = (TimeRemainingColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*what, *when, console=console, disable=quiet or not console.is_terminal, transient=True) as bar:
        last: list[Any] = []

        def phase(name: str, n_rows: int) -> Callable[[int], None]:
            stop_if_asked()
            for task in last:
                bar.remove_task(task)
            # without rows to count, the bar only shows that work is in progress
            task = bar.add_task(name, total=n_rows or None, rows="", left="left" if n_rows else "")
            last[:] = [task]
            of_all = f" of {_short(n_rows)}" if n_rows else ""

            def step(n_done: int) -> None:
                stop_if_asked()
                bar.update(task, advance=n_done)
                state = bar.tasks[0]
                rate = f", {_short(state.speed)}/s" if state.speed else ""
                bar.update(task, rows=f"{_short(state.completed)}{of_all} rows{rate}")

            return step

        yield phase
    stop_if_asked()


def _short(number: float) -> str:
    """Write a number in few characters: 12, 1.23k, 12.3M."""
    for unit in ("", "k", "M"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}G"
