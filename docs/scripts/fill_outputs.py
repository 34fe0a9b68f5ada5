"""Run what a page shows and write the outputs into it, so that they are never made up and never out of date.

    python docs/scripts/fill_outputs.py                    # run all pages, and write what came out
    python docs/scripts/fill_outputs.py --check start.md   # only compare, and fail on a difference

Blocks of a page are run in their order, in an empty folder:

- ``console``: lines that start with ``$ kbrl`` are run, and what they print follows them.
- ``python``: is run, with the variables of the earlier blocks; a ``text`` block right after it is what it printed.
- with a title, such as ``toml title="ward.toml"``: is written to a file of that name.

``<!-- not run -->`` before a block leaves it alone; ``<!-- first 8 lines -->`` cuts what is printed.  Long lines are
folded.  Seconds differ from run to run, and numbers may differ a little between machines: a check allows both.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/start.md", *sorted(f"docs/howto/{p.name}" for p in (ROOT / "docs/howto").glob("*.md")))
WIDTH = 88  # characters of an output line: what a page of the site shows beside its contents
TOLERANCE = 0.02  # of numbers, between machines
# Of the parts of an interval: rounding decides ties between actions, and a few other decisions change a spread more
# than a mean.  Processors with and without wide vectors gave 1.50 and 1.55, two versions of NumPy 0.63 and 0.91.
TOLERANCE_OF_PARTS = 0.5
_BLOCK = re.compile(r"(?:<!-- (?P<note>[^>]*?) -->\n)?```(?P<kind>\w+)(?P<rest>[^\n]*)\n(?P<body>.*?)```", re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and where it stands."""

    kind: str
    rest: str
    body: str
    note: str
    span: tuple[int, int]  # of the body


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [Block(m["kind"], m["rest"], m["body"], m["note"] or "", m.span("body")) for m in _BLOCK.finditer(text)]


def filled(text: str) -> str:
    """Return a page with the outputs that its blocks have now."""
    pieces, last = [], 0
    wide = mock.patch.dict(os.environ, COLUMNS=str(WIDTH))
    with wide, tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in _run_all(blocks_of(text)):
            pieces += [text[last : block.span[0]], block.body]
            last = block.span[1]
    return "".join([*pieces, text[last:]])


def _run_all(blocks: list[Block]) -> Iterator[Block]:
    variables: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None  # by the block before this one, if that was Python
    for block in blocks:
        title = re.search(r'title="([^"]+)"', block.rest)
        if "not run" in block.note:
            printed = None
        elif title and block.kind != "text":
            Path(title[1]).write_text(block.body, encoding="utf-8")
            printed = None
        elif block.kind == "console":
            yield replace(block, body=_console(block))
            printed = None
        elif block.kind == "python":
            printed = _captured(_run_python, block.body, variables)
        elif block.kind == "text" and printed is not None:
            yield replace(block, body=_shown(printed, block.note))
            printed = None


def _console(block: Block) -> str:
    """Return the commands of a block, each with what it prints."""
    lines = []
    for line in block.body.splitlines():
        if line.startswith("$ "):
            output = _captured(_run_command, line[2:])
            lines += [line, *_shown(output, block.note).splitlines(), ""]
    return "\n".join(lines[:-1]) + "\n"


def _run_command(line: str) -> None:
    from kbrl.cli import main

    words = shlex.split(line, comments=True)
    if words[0] == "kbrl":
        main(words[1:])
    elif words[0] in ("head", "cat"):
        n_lines = int(words[2]) if words[1] == "-n" else None
        print(*Path(words[-1]).read_text(encoding="utf-8").splitlines()[:n_lines], sep="\n")
    else:
        raise ValueError(f"A page may run kbrl, head and cat, but this line is: {line}")


def _run_python(code: str, variables: dict[str, Any]) -> None:
    exec(compile(code, "the page", "exec"), variables)


def _captured(function: Any, *arguments: Any) -> str:
    """Return what a function prints, warnings included."""
    screen = io.StringIO()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the command shows its own
        try:
            function(*arguments)
        except SystemExit as end:
            if end.code:
                screen.write(f"(exit status {end.code})\n")
    return screen.getvalue()


def _shown(output: str, note: str) -> str:
    """Return an output with lines that fit on a page, and no more of them than the page asks for."""
    lines = [folded for line in output.strip("\n").splitlines() for folded in _folded(line.rstrip())]
    cut = re.search(r"first (\d+) lines", note)
    if cut and len(lines) > int(cut[1]):
        lines = [*lines[: int(cut[1])], "..."]
    return "\n".join(lines) + "\n"


def _folded(line: str) -> list[str]:
    """Fold a line; of a line with two columns, the second one."""
    if len(line) <= WIDTH:
        return [line]
    head = re.match(r"\S+( \S+)*  +", line)
    indent = " " * (len(head[0]) if head else 4)
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False)


def differences(old: str, new: str) -> list[str]:
    """Return the lines of a page that are no longer true."""
    pairs = zip(_without_folds(old), _without_folds(new))
    found = [f"- {a}\n+ {b}" for a, b in pairs if not _same(a, b)]
    if len(_without_folds(old)) != len(_without_folds(new)):
        found.append(f"{len(_without_folds(old))} lines became {len(_without_folds(new))}")
    return found


def _without_folds(text: str) -> list[str]:
    return text.splitlines()


def _same(old: str, new: str) -> bool:
    """Return whether two lines say the same: equal words, and numbers that differ by little, or by time."""
    if re.match(r"seconds\b", old) or "seconds" in old:
        old, new = (_NUMBER.sub("#", line) for line in (old, new))
    words = [_NUMBER.sub("#", line).split() for line in (old, new)]
    numbers = [[float(n.replace(",", "")) for n in _NUMBER.findall(line)] for line in (old, new)]
    if words[0] != words[1] or len(numbers[0]) != len(numbers[1]):
        return False
    tolerance = TOLERANCE_OF_PARTS if "sampling" in old else TOLERANCE
    return all(abs(a - b) <= tolerance * max(abs(a), abs(b), 0.05) for a, b in zip(*numbers))


def main() -> None:
    """Fill the pages, or check them."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("pages", nargs="*", default=PAGES)
    arguments = parser.parse_args()
    stale = 0
    for name in arguments.pages:
        path = ROOT / name
        old = path.read_text(encoding="utf-8")
        new = filled(old)
        found = differences(old, new)
        stale += len(found)
        print(f"{name}: {len(found)} lines differ", *found, sep="\n")
        if not arguments.check and new != old:
            path.write_text(new, encoding="utf-8")
    sys.exit(1 if arguments.check and stale else 0)


if __name__ == "__main__":
    main()
