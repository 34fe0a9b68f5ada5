"""A report that people can read: a model and a log, as one HTML page that opens from disk.

In reading order: ``inputs`` opens the model and the log; ``facts`` gathers all that is said, with ``model_facts``,
``recommendations``, ``tally``, ``evidence``, ``rules``, ``lookup`` and ``maps``; ``pictures`` draws them in the style
of ``drawing``; ``words`` writes numbers for people.  All markup and prose is in page.html.jinja and
elements.html.jinja, all styles in style.css, all scripts in page.js.  To add a section: put its facts into `Facts`,
write a ``<section>`` in page.html.jinja, and link to it in ``<nav>``.
"""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kbrl import __version__
from kbrl.files import check_target, written_beside
from kbrl.report import words
from kbrl.report.drawing import need_matplotlib
from kbrl.report.facts import Facts, gather
from kbrl.report.inputs import Inputs, open_inputs
from kbrl.report.pictures import draw
from kbrl.settings import FEW_CASES

FILTERS = (
    words.number, words.brief, words.count, words.cases, words.percent, words.plural, words.listing, words.counted,
)  # fmt: skip


def write_report(
    model: Any,
    log: Any,
    path: str | os.PathLike[str],
    *,
    columns: Mapping[str, Any] | Sequence[str] | None = None,
    title: str | None = None,
    units: Mapping[str, str] | None = None,
    with_cases: bool = False,
) -> Facts:
    """Write a report about a model and a log as an HTML file, and return the facts that are in it.

    ``model`` is a Model, a KBSF or the path of its file.  ``log`` is Transitions, or anything that ``read_log`` takes;
    it is read in chunks.  ``columns`` names columns by role, as for ``read_log``, or lists the names of the state
    variables.  ``units`` maps names of state variables, and "value", to their units.  ``with_cases`` allows the page to
    show rows of the log; without it, it holds none.

    >>> from kbrl import KBSF, Transitions
    >>> log = Transitions([[0.0], [1.0], [2.0]], ["up", "up", "down"], [0.0, 0.0, 1.0], [[1.0], [2.0], [1.0]])
    >>> facts = write_report(KBSF(n_reps=2, min_cases=1, random_state=0).fit(log), log, "report.html")
    >>> facts.n_transitions
    3
    """
    return write_page(open_inputs(model, log, columns, units=units, with_cases=with_cases), path, title=title)


def write_page(
    inputs: Inputs,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    phase: Callable[[str, int], Callable[[int], None]] | None = None,
) -> Facts:
    """Write a report about inputs that are open.

    ``phase(name, n_rows)`` is called when a part of the work starts; it returns a function that is called with the
    number of rows that were done.
    """
    need_matplotlib()
    check_target(path)
    facts = gather(inputs, phase("looking through the log", inputs.n_rows) if phase else None)
    if phase:
        phase("drawing", 0)
    page = render(facts, title)
    with written_beside(path) as beside:
        beside.write_text(page, encoding="utf-8", errors="backslashreplace")
    return facts


def render(facts: Facts, title: str | None = None) -> str:
    """Return the page; ``title`` is its heading, if it should not be "What was learnt from" the log."""
    page = environment().get_template("page.html.jinja")
    script = files("kbrl.report").joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(sha256(script.encode()).digest()).decode("ascii")  # the browser runs this script alone
    given = {"facts": facts, "pictures": draw(facts), "title": title, "few": FEW_CASES, "version": __version__}
    return page.render(given | {"script": Markup(script), "digest": digest, "look_up": Markup(facts.lookup.data or "")})


def environment() -> Environment:
    """Return what templates are rendered with: text is escaped, and an unknown name is an error."""
    found = Environment(
        loader=PackageLoader("kbrl.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {function.__name__: function for function in FILTERS} | {"shell": shlex.quote, "python": repr}
    return found
