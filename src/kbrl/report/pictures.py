"""The pictures of a report, drawn from its facts: actions, coverage, values and policies, representative states."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.report import drawing
from kbrl.report.drawing import Picture
from kbrl.report.facts import Facts
from kbrl.report.words import cases, listing, number, percent, short
from kbrl.settings import FEW_CASES

MOST_BARS = 12
_LINE_LETTERS = 52  # that a line of a legend has room for


def draw_actions(facts: Facts) -> Picture:
    """Draw how often each action was logged and is recommended."""
    weight = [max(action.n_logged, action.n_recommended) for action in facts.actions]
    places = sorted(np.argsort(-np.array(weight), kind="stable")[:MOST_BARS].tolist())
    total = facts.n_transitions
    figure, axes = drawing.new_figure(0.9 + 0.5 * len(places))
    rows = np.arange(len(places))
    kinds = (("logged", drawing.PALE, -0.19, "n_logged"), ("recommended", drawing.ACCENT, 0.19, "n_recommended"))
    for label, colour, shift, name in kinds:
        shares = [100 * getattr(facts.actions[place], name) / total for place in places]
        bars = axes.barh(rows + shift, shares, height=0.36, color=colour, label=label)
        axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=9, color=drawing.QUIET)
    axes.set_yticks(rows, [short(facts.labels[place]) for place in places])
    axes.tick_params(axis="y", length=0, labelcolor=drawing.INK, labelsize=10)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("% of the rows")
    figure.legend(loc="outside upper left", ncols=2, frameon=False)
    said = [
        f"{facts.labels[p]} {percent(facts.actions[p].n_logged, total)} logged and "
        f"{percent(facts.actions[p].n_recommended, total)} recommended"
        for p in places
    ]
    left_out = f" The {len(places)} most frequent of {len(weight)} actions." if len(places) < len(weight) else ""
    caption = f"How often each action was logged (grey) and is recommended (blue).{left_out}"
    return drawing.finished(figure, f"Bar chart. {'; '.join(said)}.", caption)


def draw_distances(facts: Facts) -> Picture:
    """Draw how far logged states are from the nearest representative state."""
    distances = facts.sampled.distances
    figure, axes = drawing.new_figure(2.7)
    shown = min(float(distances.max()), 2 * float(np.quantile(distances, 0.99))) or 1.0
    counts, edges = np.histogram(distances, bins=40, range=(0.0, shown))
    axes.stairs(100 * counts / len(distances), edges, fill=True, color=drawing.ACCENT)
    for level in (0.5, 0.99):
        axes.axvline(np.quantile(distances, level), color=drawing.INK, linewidth=1, linestyle="--")
        axes.annotate(
            percent(level).replace(".0", ""), (np.quantile(distances, level), 1.0), xytext=(3, -3),
            xycoords=("data", "axes fraction"), textcoords="offset points", va="top", fontsize=9,
        )  # fmt: skip
    axes.set(xlabel="distance to the nearest representative state", ylabel="% of the rows")
    axes.set_ylim(top=1.15 * axes.get_ylim()[1])  # room for the labels
    middle, far = np.quantile(distances, [0.5, 0.99])
    caption = (
        "Distances in units of the model's scale. The dashed lines mark the distances within which half of "
        "the rows and 99 % of them lie."
    )
    alt = f"Histogram of distances: half of the rows are within {number(middle)}, 99 % within {number(far)}."
    return drawing.finished(figure, alt, caption)


def draw_support(facts: Facts) -> Picture:
    """Draw how many logged cases of each action there are around the logged states."""
    places = _most_recommended(facts, MOST_BARS)
    figure, axes = drawing.new_figure(0.9 + 0.32 * max(3, len(places)))
    levels = np.quantile(facts.sampled.support[:, places], [0.05, 0.5, 0.95], axis=0)  # (3, n_places)
    rows = np.arange(len(places))
    axes.hlines(rows, levels[0], levels[2], color=drawing.PALE, linewidth=5)
    axes.plot(levels[1], rows, "o", color=drawing.ACCENT, markersize=6)
    axes.axvline(FEW_CASES, color=drawing.INK, linewidth=1, linestyle="--")
    axes.set_yticks(rows, [short(facts.labels[place]) for place in places])
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=drawing.INK, labelsize=10)
    if levels.max() > 20 * FEW_CASES:
        axes.set_xscale("symlog", linthresh=1)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(left=0)
    axes.grid(axis="x", color=drawing.LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("logged cases around the state")
    told = [
        f"{facts.labels[place]}: {cases(middle)}, from {cases(low)} to {cases(high)}"
        for place, (low, middle, high) in zip(places, levels.T.tolist())
    ]
    caption = (
        "The support of each action at the logged states: the median, and the middle 90 % of the rows. Left of the "
        "dashed line it is little."
    )
    return drawing.finished(figure, f"Medians and ranges of the support. {'; '.join(told)}.", caption)


def draw_reps(facts: Facts) -> Picture:
    """Draw the representative states over the two variables that matter most."""
    reps, policy = facts.model.reps_, facts.model.solution_.policy
    pair = facts.maps[0].variables
    ranks = np.argsort(np.argsort(facts.rep_cases)) / max(1, len(reps) - 1)
    figure, axes = drawing.new_figure(3.9)
    heights = reps[:, pair[1]] if len(pair) == 2 else facts.model.rep_values_
    for name, colour, marker, places in groups(facts):
        rows = np.flatnonzero(np.isin(policy, places))
        if len(rows):
            axes.scatter(
                reps[rows, pair[0]], heights[rows], 12 + 60 * ranks[rows] ** 2, color=colour, marker=marker,
                edgecolors=drawing.INK, linewidths=0.6, label=name,
            )  # fmt: skip
    axes.set_xlabel(short(facts.subject.variables[pair[0]], 40))
    axes.set_ylabel(short(facts.subject.variables[pair[1]], 30) if len(pair) == 2 else "value")
    legend(figure, axes)
    caption = (
        "The representative states. The larger a marker, the more logged cases are nearest to it; its colour and shape "
        "tell the action that is best there."
    )
    n_best = [f"{name} at {len(np.flatnonzero(np.isin(policy, places)))}" for name, _, _, places in groups(facts)]
    return drawing.finished(figure, f"Map of {len(reps)} representative states; best are {listing(n_best)}.", caption)


def _most_recommended(facts: Facts, most: int) -> list[int]:
    """Return the places of the actions that are recommended most often, in the order of the labels."""
    weight = np.array([action.n_recommended + 1e-9 * action.n_logged for action in facts.actions])
    return sorted(np.argsort(-weight, kind="stable")[:most].tolist())


def groups(facts: Facts) -> list[tuple[str, str, str, list[int]]]:
    """Return name, colour, marker and places of the actions that have a colour of their own, and of all others."""
    n_own = len(drawing.COLOURS)
    chosen = _most_recommended(facts, n_own)
    groups = [
        (short(facts.labels[place]), drawing.COLOURS[k], drawing.MARKERS[k], [place]) for k, place in enumerate(chosen)
    ]
    others = [place for place in range(len(facts.actions)) if place not in chosen]
    return groups + ([("others", drawing.OTHERS, ".", others)] if others else [])


def legend(figure: Any, axes: Any) -> None:
    """Put the names below the picture, as many in a line as there is room for."""
    names = axes.get_legend_handles_labels()[1]
    if names:
        n_columns = max(1, min(len(names), 4, _LINE_LETTERS // (4 + max(map(len, names)))))
        figure.legend(loc="outside lower left", ncols=n_columns, frameon=False, handletextpad=0.3, columnspacing=1.2)
