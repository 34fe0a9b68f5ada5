"""Let docstrings be read as Markdown: examples become blocks of code, and lists of arguments become lists."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ARGUMENT = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*): ")


class MarkdownDocstrings(griffe.Extension):
    """Changes the text of each docstring before it is shown."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    r"""Return a docstring as Markdown.

    >>> print(as_markdown("Add.\n\nx: a number.\n\n>>> add(1)\n2"))
    Add.
    <BLANKLINE>
    - **x**: a number.
    <BLANKLINE>
    ```pycon
    >>> add(1)
    2
    ```
    """
    parts = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(_example(part) if part.lstrip().startswith(">>>") else _arguments(part) for part in parts)


def _example(part: str) -> str:
    return f"```pycon\n{part}\n```"


def _arguments(part: str) -> str:
    """Return a paragraph that is a list of arguments as a list of Markdown."""
    if not _ARGUMENT.match(part):
        return part
    lines = part.splitlines()
    shown = [
        _ARGUMENT.sub(r"- **\1**: ", line, count=1) if _ARGUMENT.match(line) else f"  {line.strip()}" for line in lines
    ]
    return "\n".join(shown)
