"""The command kbrl: its subcommands, how errors are shown, and what a person at a terminal sees.

Results go to standard output, progress and errors to standard error; progress only where that is a terminal.
Exit status: 0 for success; 1 for faults in data or files, or if the reader of the results stops reading; 2 for faults
in the command line; 3 if the verdict of kbrl judge is not the one required; 130 after Ctrl-C.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import kbrl
from kbrl import notebooks
from kbrl.files import VARIABLE, parse_size, remembered, replaced, stop_if_asked, unseen
from kbrl.notebooks import Phase

# Each command's module, in the order of the work; it is loaded when the command is used.
_HOMES = {
    "demo": "kbrl.cli.demonstration",
    "tasks": "kbrl.cli.simulators",
    "collect": "kbrl.cli.simulators",
    "init": "kbrl.cli.starting",
    "check": "kbrl.cli.checking",
    "fit": "kbrl.cli.fitting",
    "update": "kbrl.cli.updating",
    "merge": "kbrl.cli.updating",
    "defer": "kbrl.cli.updating",
    "judge": "kbrl.cli.judging",
    "predict": "kbrl.cli.asking",
    "explain": "kbrl.cli.asking",
    "export": "kbrl.cli.exporting",
    "evaluate": "kbrl.cli.simulators",
    "report": "kbrl.cli.reporting",
}


class HeadedOption(click.Option):
    """An option that the help lists below a heading of its own."""

    def __init__(self, *names: Any, heading: str, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.heading = heading


class HeadedCommand(click.Command):
    """A command whose help lists options below their headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those without a heading first."""
        for heading, rows in options_by_heading(self, ctx).items():
            with formatter.section(heading):
                formatter.write_dl(rows)


def options_by_heading(command: click.Command, context: click.Context) -> dict[str, list[tuple[str, str]]]:
    """Return the options of a command as they are written, with their help, by heading."""
    found: dict[str, list[tuple[str, str]]] = {"Options": []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            found.setdefault(getattr(parameter, "heading", "Options"), []).append(record)
    return found


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _HOMES:
            return None
        command: click.Command = getattr(import_module(_HOMES[cmd_name]), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _check_given_once(click.Context(command, parent=ctx, info_name=name), rest)
        return name, command, rest


def _check_given_once(context: click.Context, arguments: list[str]) -> None:
    """Refuse an option that is given twice and takes one value: only the last would count."""
    try:
        *_, given = context.command.make_parser(context).parse_args(list(arguments))
    except click.UsageError:  # told when the command runs
        return
    for option, n_times in Counter(given).items():
        if n_times > 1 and isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count):
            raise click.UsageError(
                f"{option.opts[-1]} is given {n_times} times, and only the last would count. Give it once; options "
                f"that take several values take them separated by commas.",
                context,
            )


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kbrl.__version__, prog_name="kbrl")
@click.option(
    "--memory-limit",
    metavar="SIZE",
    help="Memory that one part of a small file may need, for example 8GB. Default: 1GB.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log what is done, and how long it takes, to standard error.")
@click.pass_context
def commands(context: click.Context, memory_limit: str | None, verbose: bool) -> None:
    """Learn decision policies from logs, and judge them, by kernel-based reinforcement learning.

    To see it at work: kbrl demo.  To begin with a table of your own: kbrl init TABLE.
    """
    if verbose:
        context.with_resource(_logged())
    if memory_limit is not None:
        try:
            parse_size(memory_limit)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--memory-limit") from None
        context.with_resource(_environment(VARIABLE, memory_limit))  # for workers as well


@contextmanager
def _logged() -> Iterator[None]:
    """Print what kbrl logs as long as this lasts."""
    logger, handler = logging.getLogger("kbrl"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set an environment variable as long as this lasts."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def main(arguments: list[str] | None = None) -> Any:
    """Run the command; an error is one or two lines on standard error, never a traceback."""
    with safe_screen():
        _run(arguments)


def _run(arguments: list[str] | None) -> None:
    n_replaced = len(replaced)
    try:
        with remembered(), warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)  # as ours are: they are for the user, and not errors
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            commands.main(args=arguments, prog_name="kbrl", standalone_mode=False)
    except click.ClickException as error:
        _show_error(error)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        say(f"Stopped.{_what_was_done(replaced[n_replaced:])}", err=True)
        sys.exit(130)
    except (ValueError, TypeError, OSError, MemoryError, ImportError) as error:
        say(f"Error: {_said(error)}", err=True)
        sys.exit(1)
    except Exception as error:  # ours, not the user's
        say(f"Error: {type(error).__name__}: {error}. This is a bug in kbrl. Please report it.", err=True)
        sys.exit(1)


def _what_was_done(files: list[Path]) -> str:
    """Say which files were written before Ctrl-C: to repeat the command might count data twice."""
    if not files:
        return ""
    return f" {', '.join(map(str, files))} had already been written completely: do not repeat the command."


def _show_error(error: click.ClickException) -> None:
    """Print an error; if the command line is at fault, a second line says where help is."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    say(f"Error: {error.format_message()}", err=True)
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        click.echo(f"For help: {context.command_path} --help", err=True)


def _said(error: Exception) -> str:
    """Return the text of an error, without the system's error number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _show_warning(message: Warning | str, *_: Any) -> None:
    say(f"Warning: {message}", err=True)


# What moves the cursor, sets the clipboard or the title, or turns the direction of text, and halves of characters.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return text whose control characters are spelt out; only new lines and tabs stay.

    >>> print(visible("low\x1b]0;you were here\x07"))
    low\x1b]0;you were here\x07
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    r"""Return text in one line: a label with a new line in it cannot look like a line of ours.

    >>> print(one_line("low\nVerdict: better"))
    low\nVerdict: better
    """
    return visible(text).replace("\n", "\\n")


def say(text: str, *, err: bool = False) -> None:
    """Print one line."""
    click.echo(one_line(text), err=err)


class _Screen:
    """A stream on which no text of a file can control the terminal; ``raw`` is the stream behind it."""

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
    """Print a table on standard output, as wide as the terminal or COLUMNS say (at least 80), else 110 characters."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(names):
        table.add_column(_cell(name), overflow="fold", justify="right" if right and number else "left")
    for row in rows:
        table.add_row(*map(_cell, row))
    console = Console(file=_raw(sys.stdout))
    console.width = max(80, console.width) if console.is_terminal or "COLUMNS" in os.environ else 110
    console.print(table)


def _cell(text: str) -> str:
    """Return text that is shown as it is, and in one line."""
    from rich.markup import escape

    return escape(one_line(text))


def some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


@contextmanager
def row_progress(quiet: bool) -> Iterator[Phase]:
    """Yield phase(name, n_rows), which starts a part of the work and returns a progress callback."""
    with nullcontext(unseen) if quiet else notebooks.progress(file=_raw(sys.stderr)) as phase:
        yield phase
    stop_if_asked()


@contextmanager
def pointing_at_check(log: tuple[str, ...]) -> Iterator[None]:
    """Add to an error about a log how to see all its faults."""
    from kbrl.tables.faults import LogError

    try:
        yield
    except LogError as error:
        if error.fault.name in ("missing_file", "unknown_action"):
            raise
        raise ValueError(
            f"{error} To list all faults of the log: kbrl check {shlex.join(log)} (with the same columns)"
        ) from None
