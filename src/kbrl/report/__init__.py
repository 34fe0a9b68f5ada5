"""A report that a person can read: what was learnt from what, as one page that opens from disk.

``facts`` computes all that is said, in one pass over the log; ``pictures`` and ``map_pictures`` draw it; ``page`` puts
the sections together: ``overview``, ``decisions``, ``landscape``, ``colophon``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kbrl.atomic_write import check_target, written_beside
from kbrl.report.drawing import need_matplotlib
from kbrl.report.facts import Facts, gather
from kbrl.report.page import render
from kbrl.report.subject import Subject, open_subject


def write_report(
    model: Any,
    log: Any,
    path: str | os.PathLike[str],
    *,
    columns: Mapping[str, Any] | Sequence[str] | None = None,
    title: str | None = None,
) -> Facts:
    """Write a report on a model, looked at with a log, as an HTML file; return the facts that are in it.

    ``model`` is a KBSF or the path of its file; ``log`` is Transitions, or what ``read_log`` takes and reads in chunks.
    """
    return write_page(open_subject(model, log, columns), path, title=title)


def write_page(
    subject: Subject,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    phase: Callable[[str, int], Callable[[int], None]] | None = None,
) -> Facts:
    """Write a report on what has been opened.

    ``phase(name, n_rows)`` is called when a part of the work starts; what it returns is told the rows that are done.
    """
    need_matplotlib()
    check_target(path)
    facts = gather(subject, phase("looking through the log", subject.n_rows) if phase else None)
    if phase:
        phase("drawing", 0)
    page = render(facts, title)
    with written_beside(path) as beside:
        beside.write_text(page, encoding="utf-8")
    return facts
