"""What a person at a terminal sees: tables on standard output, progress on standard error."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kbrl.interrupts import stop_if_asked

# What moves the cursor, sets the clipboard or the title, or turns the direction of text, and halves of characters.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return text whose control characters are spelt out; only new lines and tabs stay.

    >>> print(visible("low\x1b]0;you were here\x07"))
    low\x1b]0;you were here\x07
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class _Screen:
    """A stream on which no text of a file can command the terminal; ``raw`` is the stream behind it."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        self.raw.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def safe_screen() -> Iterator[None]:
    """Let all that is printed meanwhile be `visible`: labels and names come from files that others may have written."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Screen(before[0]), _Screen(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def data_output() -> Any:
    """Return where data are printed to: unchanged to a file or a program, `visible` to a terminal."""
    return sys.stdout if sys.stdout.isatty() else _raw(sys.stdout)


def _raw(stream: Any) -> Any:
    return stream.raw if isinstance(stream, _Screen) else stream


@contextmanager
def progress(n_steps: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that advances a progress bar on a terminal by one step and names the next one."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(file=_raw(sys.stderr))
    if quiet or not console.is_terminal:
        yield lambda description: None
        return
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("setting up", total=n_steps)
        yield lambda description: bar.update(task, advance=1, description=description)


def print_table(names: Sequence[str], rows: Iterable[Sequence[str]], *, right: bool = False) -> None:
    """Print a table on standard output, at least 110 characters wide."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(names):
        table.add_column(_cell(name), overflow="fold", justify="right" if right and number else "left")
    for row in rows:
        table.add_row(*map(_cell, row))
    console = Console(file=_raw(sys.stdout))
    Console(file=_raw(sys.stdout), width=max(110, console.width)).print(table)


def _cell(text: str) -> str:
    """Return text that is shown as it is, and in one line."""
    from rich.markup import escape

    return escape(visible(text).replace("\n", "\\n"))


@contextmanager
def row_progress(quiet: bool) -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """Yield phase(name, n_rows), which starts a part of the work and returns a progress callback."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=_raw(sys.stderr))
    if quiet or not console.is_terminal:
        yield lambda name, n_rows: _phase_unseen()
        stop_if_asked()
        return
    what = (TextColumn("{task.description}"), BarColumn(bar_width=10), TextColumn("{task.fields[rows]}"))
    when = (TimeRemainingColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*what, *when, console=console, transient=True) as bar:
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


def _phase_unseen() -> Callable[[int], None]:
    """Return the callback of a part of the work that shows no progress, and stops if asked."""
    stop_if_asked()
    return lambda n_done: stop_if_asked()


def _short(number: float) -> str:
    """Write a number in few characters: 12, 1.23k, 12.3M."""
    for unit in ("", "k", "M"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}G"
