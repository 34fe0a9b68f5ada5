"""What a person at a terminal sees: tables on standard output, progress on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager


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


def print_table(names: Sequence[str], rows: Iterable[Sequence[str]], *, right: bool = False) -> None:
    """Print a table on standard output, at least 110 characters wide where that is no terminal."""
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
