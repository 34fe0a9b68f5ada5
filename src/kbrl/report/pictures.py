"""The pictures of a report, drawn from its facts.

Maps show values and recommended actions over pairs of state variables: white without data, hatched with few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.report import drawing
from kbrl.report.drawing import Picture
from kbrl.report.facts import Facts
from kbrl.report.maps import Map
from kbrl.report.words import cases, listing, number, percent, short
from kbrl.settings import FEW_CASES
from kbrl.trust.judgement import Interval

MOST_BARS = 12
_MOST_MARKERS = 13  # per side of a map
_LINE_LETTERS = 52  # characters that fit on one line of a legend
_HATCH = "////"


@dataclass(frozen=True)
class Pictures:
    """All pictures of a page."""

    verdict: Picture | None  # None where nothing was held out to judge by
    actions: Picture
    distances: Picture
    support: Picture | None  # None where the model did not count its cases
    maps: tuple[tuple[Picture, ...], ...]  # per map: value and policy, or curves
    reps: Picture


def draw(facts: Facts) -> Pictures:
    """Draw all pictures of a page."""
    with drawing.style():
        return Pictures(
            verdict=draw_verdict(facts) if facts.judgement is not None else None,
            actions=draw_actions(facts),
            distances=draw_distances(facts),
            support=draw_support(facts) if facts.model.knows_support else None,
            maps=tuple(draw_map(facts, drawn) for drawn in facts.maps),
            reps=draw_reps(facts),
        )


def draw_verdict(facts: Facts) -> Picture:
    """Draw the values of now and of the policy, and the gain, with their intervals in parts."""
    found = facts.judgement
    assert found is not None
    figure, (above, below) = drawing.new_figures(2.7, [2, 1])
    rows = {"done now": found.now, "this policy": found.value}
    for axes, part in ((above, rows), (below, {"gain": found.gain})):
        for row, interval in enumerate(part.values()):
            _bars(axes, row, interval)
        axes.use_sticky_edges = False
        axes.margins(x=0.06)
        axes.set_yticks(range(len(part)), list(part))
        axes.set_ylim(len(part) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0, labelcolor=drawing.INK, labelsize=10)
        axes.grid(axis="x", color=drawing.LINE, linewidth=0.6)
        axes.set_axisbelow(True)
    below.axvline(0.0, color=drawing.INK, linewidth=1)
    below.set_xlabel(f"discounted reward per episode{facts.value_unit and f', in{facts.value_unit}'}")
    named = dict(zip(*reversed(above.get_legend_handles_labels())))  # one of each kind
    columns = 4 if len(named) < 5 else 3  # five do not fit side by side
    figure.legend(
        named.values(), named.keys(), loc="outside upper left", ncols=columns, frameon=False, handlelength=1.2
    )
    alt = (
        f"Bars with intervals: done now {found.now}, this policy {found.value}, gain {found.gain}, each estimate with "
        f"its {100 * found.level:g} % interval."
    )
    caption = "Estimates with their intervals. The wider parts say where doubt comes from."
    return drawing.finished(figure, alt, caption)


def _bars(axes: Any, row: int, interval: Interval) -> None:
    """Draw an estimate and its interval: sampling, then smoothing, then the self-check, outwards."""
    parts = (("sampling", drawing.ACCENT), ("smoothing", drawing.PALE), ("self-check", drawing.LINE))
    reach = 0.0
    known = np.clip([interval.estimate - interval.half, interval.estimate + interval.half], interval.low, interval.high)
    if interval.high - interval.low > (1.0 + 1e-9) * (known[1] - known[0]):  # open on a side, or not bounded by data
        style = {"color": "none", "edgecolor": drawing.QUIET, "hatch": "///", "linewidth": 0.6, "label": "not known"}
        axes.barh(row, interval.high - interval.low, left=interval.low, height=0.34, **style)
    for name, colour in parts:
        size = getattr(interval, name.replace("-", "_"))
        for side in (-1, 1):
            start, end = (
                np.clip(interval.estimate + side * x, interval.low, interval.high) for x in (reach, reach + size)
            )
            axes.barh(row, end - start, left=start, height=0.34, color=colour, label=name if side > 0 else None)
        reach += size
    axes.plot(interval.estimate, row, "D", color=drawing.INK, markersize=5.5, label="estimate")


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
        "dashed line, there is little support."
    )
    return drawing.finished(figure, f"Medians and ranges of the support. {'; '.join(told)}.", caption)


def draw_map(facts: Facts, drawn: Map) -> tuple[Picture, ...]:
    """Draw the values and the policy over two variables, or one curve per action over the only variable."""
    if drawn.q is not None:
        return (draw_curves(facts, drawn),)
    return draw_values(facts, drawn), draw_policy(facts, drawn)


def draw_values(facts: Facts, drawn: Map) -> Picture:
    """Draw the value of the states."""
    figure, axes = _axes(facts, drawn)
    known = drawn.values[np.isfinite(drawn.values)]
    low, high = np.quantile(facts.sampled.values, [0.02, 0.98])  # the same colours in all maps, whatever the outliers
    _mesh(axes, drawn, np.ma.masked_invalid(drawn.values), cmap=drawing.VALUES, vmin=low, vmax=high)
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    image = axes.collections[0]
    bar = figure.colorbar(
        image, ax=axes, shrink=0.9, aspect=25, extend=extend[bool(known.min() < low), bool(known.max() > high)]
    )
    bar.outline.set_visible(False)
    bar.set_label(f"value{facts.value_unit and f' ({facts.value_unit.strip()})'}")
    _hatch(axes, drawn)
    names = _names(facts, drawn)
    best, worst = np.nanargmax(drawn.values), np.nanargmin(drawn.values)
    alt = (
        f"Map of the value over {listing(names)}: from {number(known.min())} near {_place(drawn, names, worst)} to "
        f"{number(known.max())} near {_place(drawn, names, best)}. {_unseen(drawn)}"
    )
    return drawing.finished(figure, alt, f"Value over {listing(names)}.")


def draw_policy(facts: Facts, drawn: Map) -> Picture:
    """Draw the recommended actions, by colour and by marker."""
    from matplotlib.colors import ListedColormap

    figure, axes = _axes(facts, drawn)
    kinds = _groups(facts)
    group_of = np.full(len(facts.actions) + 1, -1)
    for kind, (_, _, _, places) in enumerate(kinds):
        group_of[places] = kind
    shown = group_of[drawn.actions]  # -1, no data, takes the last entry: -1 again
    colours = ListedColormap([colour for _, colour, _, _ in kinds])
    _mesh(axes, drawn, np.ma.masked_less(shown, 0), cmap=colours, vmin=-0.5, vmax=len(kinds) - 0.5)
    _hatch(axes, drawn)
    present = [kind for kind in range(len(kinds)) if (shown == kind).any()]
    for kind in present:
        name, colour, marker, _ = kinds[kind]
        _mark(axes, drawn, shown == kind, marker)
        axes.plot([], [], marker, color=colour, markeredgecolor=drawing.INK, markersize=7, label=name, linestyle="")
    _legend(figure, axes)
    names = _names(facts, drawn)
    n_known = max(1, int((shown >= 0).sum()))
    shares = [f"{kinds[kind][0]} in {percent((shown == kind).sum(), n_known)} of it" for kind in present]
    alt = f"Map of the recommended action over {listing(names)}: {listing(shares)}. {_unseen(drawn)}"
    return drawing.finished(figure, alt, f"Recommended action over {listing(names)}.")


def draw_curves(facts: Facts, drawn: Map) -> Picture:
    """Draw the value of each action along the only state variable."""
    assert drawn.q is not None
    figure, axes = drawing.new_figure(3.2)
    x = _middles(drawn.x_edges)
    dashes = ("-", "--", "-.", ":")
    own = [(name, places[0]) for name, _, _, places in _groups(facts) if len(places) == 1]
    for kind, (name, place) in enumerate(own):
        colour = drawing.LINE_COLOURS[kind % len(drawing.LINE_COLOURS)]
        axes.plot(x, drawn.q[:, place], dashes[kind % len(dashes)], color=colour, linewidth=1.8, label=name)
    across = {"transform": axes.get_xaxis_transform(), "facecolor": "none", "edgecolor": drawing.PALE, "linewidth": 0}
    axes.fill_between(x, 0, 1, where=drawn.is_weak[0], hatch=_HATCH, **across)
    axes.set_xlabel(short(facts.titles[0], 40))
    axes.set_ylabel("value of the action")
    _legend(figure, axes)
    alt = f"Curves of the value of each action along {facts.names[0]}. {_unseen(drawn)}"
    return drawing.finished(figure, alt, "Value of each action. There is no curve where there are no data.")


def draw_reps(facts: Facts) -> Picture:
    """Draw the representative states over the two variables that matter most."""
    reps, policy = facts.model.reps, facts.model.rep_policy
    pair = facts.maps[0].variables
    ranks = np.argsort(np.argsort(facts.model.rep_cases)) / max(1, len(reps) - 1)
    figure, axes = drawing.new_figure(3.9)
    heights = reps[:, pair[1]] if len(pair) == 2 else facts.model.rep_values
    for name, colour, marker, places in _groups(facts):
        rows = np.flatnonzero(np.isin(policy, places))
        if len(rows):
            axes.scatter(
                reps[rows, pair[0]], heights[rows], 12 + 60 * ranks[rows] ** 2, color=colour, marker=marker,
                edgecolors=drawing.INK, linewidths=0.6, label=name,
            )  # fmt: skip
    axes.set_xlabel(short(facts.titles[pair[0]], 40))
    axes.set_ylabel(short(facts.titles[pair[1]], 30) if len(pair) == 2 else "value")
    _legend(figure, axes)
    caption = (
        "The representative states. The larger a marker, the more logged cases are nearest to it; its colour and shape "
        "show the best action there."
    )
    n_best = [f"{name} at {len(np.flatnonzero(np.isin(policy, places)))}" for name, _, _, places in _groups(facts)]
    return drawing.finished(figure, f"Map of {len(reps)} representative states; best are {listing(n_best)}.", caption)


def _axes(facts: Facts, drawn: Map) -> tuple[Any, Any]:
    figure, axes = drawing.new_figure(3.7)
    x_name, y_name = _names(facts, drawn)
    axes.set_xlabel(short(x_name, 40))
    axes.set_ylabel(short(y_name, 30))
    axes.set(xlim=drawn.x_edges[[0, -1]], ylim=drawn.y_edges[[0, -1]])
    return figure, axes


def _mesh(axes: Any, drawn: Map, colours: Array, **options: Any) -> None:
    axes.pcolormesh(drawn.x_edges, drawn.y_edges, colours, rasterized=True, shading="flat", **options)


def _hatch(axes: Any, drawn: Map) -> None:
    """Hatch the cells whose recommended action has little support, each run of them in a row as one box."""
    from matplotlib.collections import PolyCollection

    boxes = []
    for row, is_weak in enumerate(drawn.is_weak):
        borders = np.flatnonzero(np.diff(np.concatenate([[0], is_weak, [0]])))
        low, high = drawn.y_edges[row], drawn.y_edges[row + 1]
        for left, right in drawn.x_edges[borders.reshape(-1, 2)]:
            boxes.append([(left, low), (right, low), (right, high), (left, high)])
    if boxes:
        hatched = PolyCollection(boxes, facecolors="none", edgecolors=drawing.INK, linewidths=0, hatch=_HATCH)
        hatched.set_rasterized(True)  # as lines, they would make megabytes on paper
        axes.add_collection(hatched, autolim=False)


def _mark(axes: Any, drawn: Map, chosen: Booleans, marker: str) -> None:
    """Mark some cells, so that actions can be told apart without colours."""
    rows, columns = (_every(n_cells) for n_cells in chosen.shape)
    picked = np.argwhere(chosen[np.ix_(rows, columns)])
    x, y = _middles(drawn.x_edges)[columns[picked[:, 1]]], _middles(drawn.y_edges)[rows[picked[:, 0]]]
    axes.plot(x, y, marker, color=drawing.INK, markersize=3.6, alpha=0.65, markeredgewidth=0, linestyle="")


def _every(n_cells: int) -> Integers:
    step = max(1, round(n_cells / _MOST_MARKERS))
    return np.arange(step // 2, n_cells, step)


def _names(facts: Facts, drawn: Map) -> list[str]:
    return [facts.titles[place] for place in drawn.variables]


def _place(drawn: Map, names: list[str], cell: Any) -> str:
    """Return where a cell is, as in "age = 60 and dose = 2"."""
    row, column = np.unravel_index(cell, drawn.values.shape)
    middles = (_middles(drawn.x_edges)[column], _middles(drawn.y_edges)[row])
    return " and ".join(f"{name} = {number(float(middle))}" for name, middle in zip(names, middles))


def _unseen(drawn: Map) -> str:
    n_cells = drawn.actions.size
    n_empty, n_weak = int((drawn.actions < 0).sum()), int(drawn.is_weak.sum())
    return f"{percent(n_empty, n_cells)} of the area is empty, without data, and {percent(n_weak, n_cells)} is hatched."


def _middles(edges: Floats) -> Floats:
    return 0.5 * (edges[1:] + edges[:-1])


def _most_recommended(facts: Facts, most: int) -> list[int]:
    """Return the places of the actions that are recommended most often, in the order of the labels."""
    weight = np.array([action.n_recommended + 1e-9 * action.n_logged for action in facts.actions])
    return sorted(np.argsort(-weight, kind="stable")[:most].tolist())


def _groups(facts: Facts) -> list[tuple[str, str, str, list[int]]]:
    """Return name, colour, marker and places of the actions that have a colour of their own, and of all others."""
    n_own = len(drawing.COLOURS)
    chosen = _most_recommended(facts, n_own)
    groups = [
        (short(facts.labels[place]), drawing.COLOURS[k], drawing.MARKERS[k], [place]) for k, place in enumerate(chosen)
    ]
    others = [place for place in range(len(facts.actions)) if place not in chosen]
    return groups + ([("others", drawing.OTHERS, ".", others)] if others else [])


def _legend(figure: Any, axes: Any) -> None:
    """Put the names below the picture, as many in a line as there is room for."""
    names = axes.get_legend_handles_labels()[1]
    if names:
        n_columns = max(1, min(len(names), 4, _LINE_LETTERS // (4 + max(map(len, names)))))
        figure.legend(loc="outside lower left", ncols=n_columns, frameon=False, handletextpad=0.3, columnspacing=1.2)
