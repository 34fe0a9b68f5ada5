"""The sections of a report on the space of states: coverage, values and policy, representative states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbrl.report.blocks import (
    left_out,
    number_cell,
    paragraph,
    pictures,
    sampled_note,
    section,
    share_cell,
    shown_actions,
    shown_variables,
)
from kbrl.report.drawing import Picture
from kbrl.report.facts import Facts
from kbrl.report.markup import Cell, Markup, Row, table
from kbrl.report.words import MISSING, brief, count, from_log, listing, percent, plural

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
    head = ("Action", "5 % of the rows below", "Median", "5 % of the rows above", "Median share")
    note = (
        "The kernel mass of an action adds up how similar the rows are in which it was taken: about the number of rows "
        "like this one. Its share in the mass of all actions tells how often it was taken in similar situations."
    )
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
        table(
            "Kernel mass of each action at the logged states",
            head,
            [_mass_row(facts, place) for place in shown_actions(facts)],
            id_="masses",
        ),
        paragraph(note, class_="quiet"),
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
            Cell(from_log(rep.log_mass)),
        )
        for rep in facts.reps
    ]
    head = ("No.", *(facts.subject.variables[place] for place in places), "Value", "Best action", "Kernel mass")
    intro = (
        f"The model sums the data up in {plural(len(facts.model.reps_), 'representative state')}, and answers for any "
        f"state by those that are similar to it. The table has those with the most data behind them."
    )
    return section(
        "reps",
        "Representative states",
        paragraph(intro),
        table("Representative states of largest kernel mass", head, rows, id_="reps-table"),
        left_out(facts),
        pictures(picture),
    )


def _mass_row(facts: Facts, place: int) -> Row:
    masses, shares = facts.sampled.log_mass[:, place], facts.sampled.shares[:, place]
    quantiles = np.quantile(masses, [0.05, 0.5, 0.95], method="nearest").tolist()  # of a zero mass the log is -inf
    cells = (Cell(from_log(quantile)) for quantile in quantiles)
    return facts.labels[place], *cells, share_cell(float(np.median(shares)))
