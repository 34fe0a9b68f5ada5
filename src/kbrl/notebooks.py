"""What a person sees in a notebook: small tables in place of long text, and progress, which a terminal shows as well.

Everything that is shown may come from a file that others wrote, so all text is escaped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from html import escape
from time import monotonic
from typing import Any

from kbrl.files import stop_if_asked, unseen

# phase(name, n_rows) starts a part of the work and returns a callback, which takes the number of rows done.
Phase = Callable[[str, int], Callable[[int], None]]
MOST_LABELS = 12  # that are listed
LONGEST = 200  # characters of a cell
_SECONDS_BETWEEN = 0.1  # two pictures of a bar in a notebook


def html_table(title: str, rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Return a table for a notebook; all text is escaped, and long text is cut.

    >>> html_table("Log", [("rows", 3)])
    '<table><caption style="text-align:left"><b>Log</b></caption><tr><td>rows</td><td>3</td></tr></table>'
    """
    rows = [tuple(row) for row in rows]
    width = max([len(head), *map(len, rows)])
    lines = ["".join(f"<th>{_cell(name)}</th>" for name in head)] if head else []
    lines += [_row(row, width) for row in rows]
    caption = f'<caption style="text-align:left"><b>{_cell(title)}</b></caption>'
    return f"<table>{caption}{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _row(row: Sequence[object], width: int) -> str:
    """Return the cells of a row; the last one of a short row takes the rest."""
    span = f' colspan="{width - len(row) + 1}"' if len(row) < width else ""
    return "".join(f"<td>{_cell(cell)}</td>" for cell in row[:-1]) + f"<td{span}>{_cell(row[-1])}</td>"


def _cell(value: object) -> str:
    text = str(value)
    return escape(text if len(text) <= LONGEST else f"{text[:LONGEST]}...")


def counted(labels: Iterable[object], counts: Iterable[int]) -> str:
    """Return labels with how often each occurs, the first ones if there are many.

    >>> counted(["low", "high"], [1200, 3])
    'low (1,200), high (3)'
    """
    pairs = [f"{label} ({count:,})" for label, count in zip(labels, counts)]
    return ", ".join(pairs[:MOST_LABELS]) + (
        f" and {len(pairs) - MOST_LABELS} more" if len(pairs) > MOST_LABELS else ""
    )


def is_notebook() -> bool:
    """Return whether this code runs in a Jupyter kernel; nothing is imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def progress(quiet: bool = False, file: Any = None) -> Iterator[Phase]:
    """Show how far long work is, in a notebook or on a terminal; nothing is shown elsewhere.

    Yields ``phase``, which `kbrl.fit` and others take.  ``file`` is the terminal, standard error if not given.

    >>> from kbrl import fit, progress
    >>> from kbrl.tasks import PuddleWorld
    >>> with progress() as phase:
    ...     model = fit(PuddleWorld().collect(300, random_state=0), random_state=0, phase=phase)
    >>> model.n_samples
    300
    """
    shown = _in_notebook() if is_notebook() else _on_terminal(sys.stderr if file is None else file)
    with nullcontext(unseen) if quiet else shown as phase:
        yield phase
    stop_if_asked()


@contextmanager
def _on_terminal(file: Any) -> Iterator[Phase]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=file)
    if not console.is_terminal:
        yield unseen
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


@contextmanager
def _in_notebook() -> Iterator[Phase]:
    from IPython.display import HTML, display

    handle = display(HTML(""), display_id=True)

    def phase(name: str, n_rows: int) -> Callable[[int], None]:
        stop_if_asked()
        n_seen, last = 0, monotonic()
        handle.update(HTML(progress_html(name, 0, n_rows)))

        def step(n_done: int) -> None:
            nonlocal n_seen, last
            stop_if_asked()
            n_seen += n_done
            if monotonic() - last >= _SECONDS_BETWEEN:
                last = monotonic()
                handle.update(HTML(progress_html(name, n_seen, n_rows)))

        return step

    try:
        yield phase
    finally:
        handle.update(HTML(""))  # a bar is of no use afterwards


def progress_html(name: str, n_done: int, n_rows: int) -> str:
    """Return a bar; without rows to count, it only shows that work is in progress.

    >>> progress_html("learning", 500, 2000)
    '<progress value="500" max="2000"></progress> learning: 500 of 2k rows'
    """
    if not n_rows:
        return f"<progress></progress> {escape(name)}"
    counts = f"{_short(n_done)} of {_short(n_rows)} rows"
    return f'<progress value="{n_done}" max="{n_rows}"></progress> {escape(name)}: {counts}'


def _short(number: float) -> str:
    """Write a number in few characters: 12, 1.23k, 12.3M."""
    for unit in ("", "k", "M"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}G"
