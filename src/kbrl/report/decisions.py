"""The sections of a report on decisions: what was logged, what is recommended, and where the two differ."""

from __future__ import annotations

from kbrl.report.blocks import (
    count_cell,
    left_out,
    number_cell,
    paragraph,
    pictures,
    point,
    section,
    share_cell,
    shown_actions,
    shown_variables,
    support_cell,
)
from kbrl.report.drawing import Picture
from kbrl.report.facts import ActionFacts, Facts
from kbrl.report.markup import Cell, Markup, Row, element, listed, table
from kbrl.report.words import MISSING, plural
from kbrl.settings import FEW_CASES

_HEAD = ["Action", "Logged rows", "Logged share", "Recommended rows", "Recommended share"]
_HEAD += ["Agreement", "Little support", "Mean reward", "Mean value", "Mean advantage"]
_NOTES = {
    "Agreement:": "of the rows in which the action was logged, those in which it is recommended, too.",
    "Little support:": f"of the rows in which it is recommended, those with fewer than {FEW_CASES} logged cases of it.",
    "Mean reward:": "of the rows in which it was logged.",
    "Mean value:": "over the same rows, what the model expects of the action in the long run.",
    "Mean advantage:": "over the same rows, by how much the model expects more of what it recommends.",
}


def actions(facts: Facts, picture: Picture) -> Markup:
    """Show what was logged and what is recommended, action by action."""
    places = shown_actions(facts)
    rows = [_action_row(facts.labels[place], facts.actions[place], facts) for place in places]
    others = [action for place, action in enumerate(facts.actions) if place not in places]
    if others:
        rows.append(_action_row(plural(len(others), "other"), sum(others[1:], start=others[0]), facts))
    total = _action_row("All", facts.total, facts)
    return section(
        "actions",
        "The actions",
        table("Actions, logged and recommended", _HEAD, rows, total=total, id_="actions-table"),
        listed((point(name, text) for name, text in _NOTES.items()), class_="quiet"),
        pictures(picture),
    )


def disagreements(facts: Facts) -> Markup:
    """Show where the model would have decided otherwise."""
    if not facts.disagreements:
        return section("disagreements", "Disagreements", paragraph("There are none: what was logged is recommended."))
    rows = [
        (
            facts.labels[pair.logged],
            facts.labels[pair.recommended],
            count_cell(pair.count),
            share_cell(pair.count, facts.n_transitions),
            share_cell(pair.n_weak, pair.count) if facts.knows_support else Cell("not known"),
            number_cell(pair.mean_advantage),
        )
        for pair in facts.disagreements
    ]
    head = ("Logged", "Recommended", "Rows", "Share of all rows", "Little support", "Mean advantage")
    frequent = table("Most frequent disagreements with the log", head, rows, id_="disagreements-table")
    return section("disagreements", "Disagreements", frequent, *_examples(facts))


def _examples(facts: Facts) -> list[Markup]:
    if not facts.examples and not facts.n_better_weak:
        return []
    heading = element("h3", "Where most seems to be at stake")
    left = paragraph(_without_support(facts), class_="quiet")
    if not facts.examples:
        return [heading, left]
    places = shown_variables(facts)
    rows: list[Row] = [
        (
            str(example.row),
            MISSING if example.episode is None else str(example.episode),
            *(number_cell(example.state[place]) for place in places),
            facts.labels[example.logged],
            facts.labels[example.recommended],
            number_cell(example.advantage),
            support_cell(example.support),
        )
        for example in facts.examples
    ]
    names = (facts.subject.variables[place] for place in places)
    head = ("Row", "Episode", *names, "Logged", "Recommended", "Advantage", "Support")
    note = (
        "Look at these first: is the recommendation plausible, or is something at work that no column tells? There is "
        "at most one row an episode. Rows of the log are counted from 0. Support is about how many logged cases "
        "of the recommended action there are around the state."
    )
    return [
        heading,
        table("Rows with the largest advantage", head, rows, id_="examples"),
        left_out(facts),
        paragraph(note, class_="quiet"),
        left,
    ]


def _without_support(facts: Facts) -> str:
    """Say how many rows are not listed, because what is recommended there has little support."""
    if not facts.knows_support:
        return "How much support this advice has is not known: the model's file does not say how many cases there were."
    return (
        f"Left out: {plural(facts.n_better_weak, 'row')} in which the recommended action has little support, fewer "
        f"than {FEW_CASES} logged cases around the state."
    )


def _action_row(label: str, action: ActionFacts, facts: Facts) -> Row:
    return (
        label,
        count_cell(action.n_logged),
        share_cell(action.n_logged, facts.n_transitions),
        count_cell(action.n_recommended),
        share_cell(action.n_recommended, facts.n_transitions),
        share_cell(action.n_agreed, action.n_logged),
        share_cell(action.n_weak, action.n_recommended) if facts.knows_support else Cell("not known"),
        number_cell(action.mean_reward),
        number_cell(action.mean_value),
        number_cell(action.mean_advantage),
    )
