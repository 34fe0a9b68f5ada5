"""The page: one file that opens from disk, with everything in it."""

from __future__ import annotations

from importlib.resources import files

from kbrl import __version__
from kbrl.report import colophon, decisions, drawing, landscape, overview
from kbrl.report.blocks import log_name
from kbrl.report.drawing import Picture
from kbrl.report.facts import Facts
from kbrl.report.map_pictures import draw_curves, draw_policy, draw_values
from kbrl.report.markup import Markup, element, joined, listed
from kbrl.report.pictures import draw_actions, draw_distances, draw_reps, draw_support

NAVIGATION = {
    "caution": "Before you act",
    "data": "Data",
    "actions": "Actions",
    "disagreements": "Disagreements",
    "coverage": "Coverage",
    "maps": "Values and policy",
    "reps": "Representative states",
    "solver": "Solver",
    "settings": "Settings",
    "use": "Using the model",
}


# Nothing is loaded and nothing is run, whatever the user's data hold.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render(facts: Facts, title: str | None = None) -> str:
    """Return the whole page."""
    title = title or f"What was learnt from {log_name(facts)}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(files("kbrl.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    with drawing.style():
        body = element("body", *_body(facts, title))
    return "<!DOCTYPE html>\n" + element("html", "\n", head, "\n", body, "\n", lang="en") + "\n"


def _body(facts: Facts, title: str) -> list[Markup]:
    links = [element("a", text, href=f"#{id_}") for id_, text in NAVIGATION.items()]
    main = (
        overview.cautions(facts),
        overview.data(facts),
        decisions.actions(facts, draw_actions(facts)),
        decisions.disagreements(facts),
        landscape.coverage(facts, draw_distances(facts), *([draw_support(facts)] if facts.knows_support else [])),
        landscape.maps(facts, _maps(facts)),
        landscape.representatives(facts, draw_reps(facts)),
        colophon.solver(facts),
        colophon.settings(facts),
        colophon.use(facts),
    )
    return [
        element("a", "Skip to the report", href="#caution", class_="skip"),
        element("header", element("h1", title), overview.summary(facts), overview.tiles(facts)),
        element("nav", listed(links), aria_label="Sections"),
        element("main", *(joined([part, "\n"]) for part in main)),
        element("footer", f"Made by kbrl {__version__}. Nothing in this page is loaded from elsewhere."),
    ]


def _maps(facts: Facts) -> list[tuple[Picture, ...]]:
    return [
        (draw_values(facts, drawn), draw_policy(facts, drawn)) if drawn.q is None else (draw_curves(facts, drawn),)
        for drawn in facts.maps
    ]
