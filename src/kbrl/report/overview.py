"""The first sections of a report: what was learnt from what, what to be careful about, and the data."""

from __future__ import annotations

from math import isnan

from kbrl.report.blocks import log_name, number_cell, paragraph, point, sampled_note, section, share_cell, weak_share
from kbrl.report.facts import Facts, Spread
from kbrl.report.markup import Cell, Markup, Row, element, listed, table
from kbrl.report.words import brief, count, listing, percent, plural
from kbrl.settings import FEW_CASES


def summary(facts: Facts) -> Markup:
    """Say in two sentences what was learnt from what, and what it comes to."""
    learnt = (
        f"From {plural(facts.model.n_samples_, 'logged decision')}, kbrl learnt which of "
        f"{plural(len(facts.actions), 'action')} ({listing(facts.labels, 6)}) promises the most reward in the long "
        f"run, given {listing(list(facts.subject.variables), 6)}."
    )
    total = facts.total
    compared = (
        f"In {percent(total.n_agreed, total.n_logged)} of the {plural(facts.n_transitions, 'row')} of "
        f"{log_name(facts)}, the recommended action is the one that was taken"
    )
    if facts.n_better:
        gain = brief(facts.backed_gain / facts.n_better)
        where = "where it is another" + (" and has enough support" if facts.knows_support else "")
        compared += (
            f"; {where} ({plural(facts.n_better, 'row')}), the model expects it to be worth {gain} more, on average"
        )
    elif facts.n_better_weak:
        compared += "; nowhere has another action enough support to say what it is worth"
    return paragraph(learnt, " ", compared, ".", class_="lead")


def tiles(facts: Facts) -> Markup:
    """Show the key figures."""
    total = facts.total
    figures = [
        ("rows of the log", count(facts.n_transitions)),
        ("representative states", count(len(facts.model.reps_))),
        ("of the rows agree with the model", percent(total.n_agreed, total.n_logged)),
        (f"of the advice has little support (fewer than {FEW_CASES} cases)", weak_share(facts, total)),
    ]
    pairs = (element("div", element("dt", name), element("dd", text)) for name, text in figures)
    return element("dl", *pairs, class_="tiles")


def cautions(facts: Facts) -> Markup:
    """Say what these numbers are not."""
    n_rows = facts.n_transitions
    items = [
        point(
            "Values are estimates.",
            "They come from what was logged, not from a trial of the new policy. What no column tells, such as the "
            "reason for a decision, is not accounted for.",
        ),
        point(
            "A disagreement proves nothing.",
            "It is a question to somebody who knows the case: perhaps the log was right for a reason that is not "
            "among the columns.",
        ),
        point(
            "Little support means extrapolation.",
            f"An action has little support in a state if there are fewer than {FEW_CASES} logged cases of it around "
            f"that state. {_how_much_is_weak(facts)}",
        ),
    ]
    left_out = facts.model.left_out_
    if left_out:
        named = listing([f"{label} ({plural(n, 'row')})" for label, n in left_out.items()], 6)
        text = f"Taken too rarely to tell luck from effect, fewer than {facts.model.model_.min_cases} times: {named}."
        items.append(point("Some actions are never recommended.", text))
    if facts.n_far:
        text = (
            f"Rows that are farther from every representative state than those are from each other: "
            f"{count(facts.n_far)} ({percent(facts.n_far, n_rows)}). Answers there extrapolate."
        )
        items.append(point("Some states are far off.", text))
    if not _is_same_data(facts):
        text = (
            f"The model was learnt from {plural(facts.model.n_samples_, 'row')}, and this log has {count(n_rows)}, or "
            f"other actions in them. The tables below describe this log."
        )
        items.append(point("This is not the log that was learnt from.", text))
    return section("caution", "Before you act on this", element("div", listed(items), class_="caution"))


def _how_much_is_weak(facts: Facts) -> str:
    if not facts.knows_support:
        return "For this model that is not known: its file does not say how many cases there were. Fit it again."
    n_weak = facts.total.n_weak
    share = percent(n_weak, facts.n_transitions)
    return f"This is so for {share} of the recommendations" + ("; the maps hatch where." if n_weak else ".")


def data(facts: Facts) -> Markup:
    """Describe the log."""
    subject = facts.subject
    n_unused = subject.n_rows - facts.n_transitions
    lines = [
        plural(subject.n_rows, "row")
        + (f", of which {count(n_unused)} have no next state and are left out" if n_unused else ""),
        "no column tells episodes apart" if facts.n_episodes is None else plural(facts.n_episodes, "episode"),
        f"{plural(facts.n_ends, 'row')} at which an episode really ended, not by a time limit",
    ]
    measures = ("Smallest", "Median", "Mean", "Largest", "Std. deviation")
    rows: list[Row] = [
        (name, *_spread(spread), number_cell(float(scale)), _influence(influence))
        for name, spread, scale, influence in zip(
            subject.variables, facts.variables, facts.model.scale_, facts.influences
        )
    ]
    note = (
        "Distances between states count each variable in units of its scale. Influence is the share of the variation "
        "of the values that the variable accounts for by itself."
        + (" There are too few rows to tell." if any(map(isnan, facts.influences)) else "")
    )
    return section(
        "data",
        "The data",
        listed(lines),
        table("State variables", ("Variable", *measures, "Scale", "Influence"), rows, id_="variables"),
        paragraph(note, sampled_note(facts, "Medians and influences"), class_="quiet"),
        table("Rewards", ("Number", *measures), [("Reward of a row", *_spread(facts.rewards))], id_="rewards"),
    )


def _spread(spread: Spread) -> tuple[Cell, ...]:
    numbers = (spread.smallest, spread.median, spread.mean, spread.largest, spread.std)
    return tuple(number_cell(value) for value in numbers)


def _is_same_data(facts: Facts) -> bool:
    """Whether the log has as many rows of each action as the model was learnt from."""
    return [action.n_logged for action in facts.actions] == facts.model.statistics_.counts.tolist()


def _influence(share: float) -> Cell:
    return Cell("\u2013") if isnan(share) else share_cell(share)
