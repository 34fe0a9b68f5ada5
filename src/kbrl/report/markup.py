"""HTML from strings, with one discipline: what is not markup already is escaped.

Column names, labels and titles come from the user's data, so no text gets into the page but through ``element``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_EMPTY = frozenset({"img", "meta"})


class Markup(str):
    """A piece of HTML; any other string is text."""


Content = str  # Markup as it is, text to be escaped


@dataclass(frozen=True)
class Cell:
    """A number in a table: as it is read, and exactly."""

    text: str
    value: float | int | None = None  # for programs; the text may be rounded


Row = Sequence[Cell | str]  # what is no number is text


def element(tag: str, /, *contents: Content, **attributes: str | int | None) -> Markup:
    """Return <tag attributes>contents</tag>; ``class_`` stands for class, ``aria_label`` for aria-label."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    opening = "".join(f' {key}="{escape(str(value))}"' for key, value in given.items())
    if tag in _EMPTY:
        return Markup(f"<{tag}{opening}>")
    return Markup(f"<{tag}{opening}>{joined(contents)}</{tag}>")


def joined(contents: Iterable[Content]) -> Markup:
    """Put pieces one after the other; texts are escaped."""
    return Markup("".join(piece if isinstance(piece, Markup) else escape(piece) for piece in contents))


def listed(items: Iterable[Content], **attributes: str) -> Markup:
    """Return an unordered list."""
    return element("ul", *(element("li", item) for item in items), **attributes)


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Row],
    *,
    total: Row | None = None,
    id_: str | None = None,
) -> Markup:
    """Return a table that scrolls by itself where the screen is narrow; the first cell of a row names it."""
    rows = list(rows)
    parts = [
        element("caption", caption),
        element("thead", _head(head, rows)),
        element("tbody", *(_row(row) for row in rows)),
    ]
    if total is not None:
        parts.append(element("tfoot", _row(total)))
    inner = element("table", *parts, id_=id_)
    return element("div", inner, class_="scroll", role="region", aria_label=caption, tabindex="0")


def _head(names: Sequence[str], rows: list[Row]) -> Markup:
    """Return the names of the columns, those of numbers to the right, above them."""
    is_number = [all(isinstance(cell, Cell) for cell in column) for column in zip(*rows)] or [False] * len(names)
    cells = (element("th", name, scope="col", class_="number" if n else None) for name, n in zip(names, is_number))
    return element("tr", *cells)


def _row(row: Row) -> Markup:
    first, *others = row
    return element("tr", element("th", _content(first), scope="row"), *(_cell(cell) for cell in others))


def _cell(cell: Cell | str) -> Markup:
    is_number = isinstance(cell, Cell)
    return element("td", _content(cell), class_="number" if is_number else None)


def _content(cell: Cell | str) -> Content:
    if not isinstance(cell, Cell):
        return cell
    if cell.value is None:
        return cell.text
    return element("data", cell.text, value=repr(cell.value))


def figure(source: str, alt: str, caption: Content, *, width: int, height: int) -> Markup:
    """Return a picture with its caption; ``alt`` says in words what it shows."""
    picture = element("img", src=source, alt=alt, width=width, height=height)
    return element("figure", picture, element("figcaption", caption))
