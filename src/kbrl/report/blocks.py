"""What the sections of a report are built of: headings, paragraphs, cells with numbers, pictures side by side."""

from __future__ import annotations

import numpy as np

from kbrl.report.drawing import Picture
from kbrl.report.facts import ActionFacts, Facts
from kbrl.report.markup import Cell, Markup, element, figure, joined
from kbrl.report.words import cases, count, number, percent, plural

MOST_ACTIONS = 40  # rows of a table
MOST_COLUMNS = 7  # state variables in a table that has other columns as well


def section(id_: str, title: str, *contents: str) -> Markup:
    """Return a section with its heading."""
    heading = element("h2", title, id_=f"{id_}-title")
    return element("section", "\n", heading, "\n", *_lines(contents), id_=id_, aria_labelledby=f"{id_}-title")


def paragraph(*contents: str, class_: str | None = None) -> Markup:
    """Return a paragraph."""
    return element("p", *contents, class_=class_)


def point(name: str, text: str) -> Markup:
    """Return an item of a list: a name in bold, and what there is to say of it."""
    return joined([element("strong", name), " ", text])


def pictures(*drawn: Picture) -> Markup:
    """Return pictures side by side, or one below the other where there is no room."""
    figures = [figure(p.source, p.alt, p.caption, width=p.width, height=p.height) for p in drawn]
    return element("div", *_lines(figures), class_="pictures")


def number_cell(value: float | int | None) -> Cell:
    """Return a number as a cell."""
    return Cell(number(value), value)


def count_cell(value: int) -> Cell:
    """Return a whole number as a cell."""
    return Cell(count(value), value)


def support_cell(value: float) -> Cell:
    """Return a number of logged cases as a cell."""
    return Cell(cases(value), value)


def share_cell(part: float, whole: float = 1.0) -> Cell:
    """Return a share as a cell."""
    return Cell(percent(part, whole), part / whole if whole else None)


def weak_share(facts: Facts, action: ActionFacts) -> str:
    """Return the share of the recommendations of an action that have little support, or that it is not known."""
    return percent(action.n_weak, action.n_recommended) if facts.knows_support else "not known"


def shown_actions(facts: Facts) -> list[int]:
    """Return the places of the actions that a table has room for: the most frequent, in the order of the labels."""
    weights = np.array([max(action.n_logged, action.n_recommended) for action in facts.actions])
    return sorted(np.argsort(-weights, kind="stable")[:MOST_ACTIONS].tolist())


def shown_variables(facts: Facts) -> list[int]:
    """Return the variables that a table has room for: those of largest influence, in their own order."""
    return sorted(np.argsort(-np.array(facts.influences), kind="stable")[:MOST_COLUMNS].tolist())


def left_out(facts: Facts) -> Markup:
    """Say how many variables such a table has no room for."""
    n_left = len(facts.subject.variables) - MOST_COLUMNS
    if n_left <= 0:
        return Markup("")
    return paragraph(f"Left out: {plural(n_left, 'state variable')} of less influence.", class_="quiet")


def sampled_note(facts: Facts, what: str) -> str:
    """Say what comes from a sample only, where the log is longer than that."""
    return f" {what} come from a sample of {plural(len(facts.sample), 'row')}." if facts.is_sampled else ""


def log_name(facts: Facts) -> str:
    """Return what the log is called."""
    names = facts.subject.log_names
    if not names:
        return "the log"
    return names[0] if len(names) == 1 else f"{names[0]} and {plural(len(names) - 1, 'other file')}"


def _lines(contents: tuple[str, ...] | list[Markup]) -> list[str]:
    """Put a line break after each piece, so that the source of the page can be read."""
    return [piece for content in contents for piece in (content, "\n")]
