"""The sections of a report on the space of states: coverage, values and policy, representative states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbrl.report.blocks import (
    count_cell,
    left_out,
    number_cell,
    paragraph,
    pictures,
    sampled_note,
    section,
    shown_actions,
    shown_variables,
    support_cell,
)
from kbrl.report.drawing import Picture
from kbrl.report.facts import Facts
from kbrl.report.markup import Markup, Row, table
from kbrl.report.words import MISSING, brief, count, listing, percent, plural
from kbrl.settings import FEW_CASES

LEVELS = {"50 %": 0.5, "90 %": 0.9, "99 %": 0.99, "All": 1.0}


def coverage(facts: Facts, *drawn: Picture) -> Markup:
    """Show how well the data cover the states."""
    intro = "An answer is as good as the data near it."
    if np.isfinite(facts.reach):
        intro += (
            f" Neighbouring representative states are at most {brief(facts.reach)} apart, in units of the scale. Rows "
            f"that are farther than that from all of them: {count(facts.n_far)} "
            f"({percent(facts.n_far, facts.n_transitions)})."
        )
    quantiles = np.quantile(facts.sampled.distances, list(LEVELS.values())).tolist()
    head = ("Action", "5 % of the rows below", "Median", "5 % of the rows above")
    note = (
        f"The support of an action in a state is about how many logged cases its value there rests on. Cases that "
        f"hardly weigh in it hardly count. Fewer than {FEW_CASES} are little. Where the action was not taken nearby, "
        f"it is 0."
    )
    support: tuple[Markup, ...] = (
        table(
            "Support of each action at the logged states",
            head,
            [_support_row(facts, place) for place in shown_actions(facts)],
            id_="supports",
        ),
        paragraph(note, class_="quiet"),
    )
    if not facts.knows_support:
        support = (paragraph("Support is not known: the model's file does not say how many cases there were."),)
    return section(
        "coverage",
        "Coverage",
        paragraph(intro, sampled_note(facts, "The tables and pictures here")),
        table(
            "Distance to the nearest representative state",
            ("Rows", "Within"),
            [(name, number_cell(distance)) for name, distance in zip(LEVELS, quantiles)],
            id_="distances",
        ),
        *support,
        pictures(*drawn),
    )


def maps(facts: Facts, drawn: Sequence[Sequence[Picture]]) -> Markup:
    """Show value and policy."""
    names = facts.subject.variables
    if len(names) > 2:
        chosen = list(dict.fromkeys(names[place] for shown in facts.maps for place in shown.variables))
        intro = (
            f"Over {len(chosen)} of the {len(names)} variables, chosen for their influence and because they do not "
            f"tell the same: {listing(chosen)}. Each cell shows the logged states that fall into it, whatever their "
            f"other variables: their mean value, and the action that is recommended in most of them."
        )
    else:
        intro = "The model's answers where there are logged states, in the cell or next to it."
    intro += " The value is the discounted reward to come."
    intro += " White: no data. Hatched: the recommended action has little support."
    if any(shown.is_cut for shown in facts.maps):
        intro += " Where outliers would squeeze a picture, the outermost 1 % of the states at either end are left out."
    return section("maps", "Values and policy", paragraph(intro), *(pictures(*group) for group in drawn))


def representatives(facts: Facts, picture: Picture) -> Markup:
    """Show the representative states that have most data behind them."""
    places = shown_variables(facts)
    rows: list[Row] = [
        (
            str(rep.place),
            *(number_cell(rep.state[place]) for place in places),
            number_cell(rep.value),
            facts.labels[rep.best] if rep.best >= 0 else MISSING,
            count_cell(rep.n_cases),
        )
        for rep in facts.reps
    ]
    head = ("No.", *(facts.subject.variables[place] for place in places), "Value", "Best action", "Cases")
    intro = (
        f"The model sums the data up in {plural(len(facts.model.reps_), 'representative state')}, and answers for any "
        f"state by those that are similar to it. The table has those with the most cases: logged states that are "
        f"nearest to them."
    )
    return section(
        "reps",
        "Representative states",
        paragraph(intro),
        table("Representative states with the most cases", head, rows, id_="reps-table"),
        left_out(facts),
        pictures(picture),
    )


def _support_row(facts: Facts, place: int) -> Row:
    quantiles = np.quantile(facts.sampled.support[:, place], [0.05, 0.5, 0.95]).tolist()
    return facts.labels[place], *map(support_cell, quantiles)
