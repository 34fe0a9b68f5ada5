"""How far a log has been read: rows, rows a second, time left and what is being done, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kbrl.interrupts import stop_if_asked


@contextmanager
def row_progress(quiet: bool) -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """Give a function that starts a part of the work: told its name and number of rows, it returns what counts them."""
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
            # without rows to count, the bar only shows that something is going on
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
