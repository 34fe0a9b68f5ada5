"""Pictures of values and recommended actions over pairs of state variables: empty without data, hatched with few."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.report import drawing
from kbrl.report.drawing import Picture
from kbrl.report.facts import Facts
from kbrl.report.maps import Map
from kbrl.report.pictures import groups, legend
from kbrl.report.words import listing, number, percent, short

_MOST_MARKERS = 13  # a side
_HATCH = "////"


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
    bar.set_label("value")
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
    kinds = groups(facts)
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
    legend(figure, axes)
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
    own = [(name, places[0]) for name, _, _, places in groups(facts) if len(places) == 1]
    for kind, (name, place) in enumerate(own):
        colour = drawing.LINE_COLOURS[kind % len(drawing.LINE_COLOURS)]
        axes.plot(x, drawn.q[:, place], dashes[kind % len(dashes)], color=colour, linewidth=1.8, label=name)
    across = {"transform": axes.get_xaxis_transform(), "facecolor": "none", "edgecolor": drawing.PALE, "linewidth": 0}
    axes.fill_between(x, 0, 1, where=drawn.is_weak[0], hatch=_HATCH, **across)
    axes.set_xlabel(short(facts.subject.variables[0], 40))
    axes.set_ylabel("value of the action")
    legend(figure, axes)
    alt = f"Curves of the value of each action along {facts.subject.variables[0]}. {_unseen(drawn)}"
    return drawing.finished(figure, alt, "Value of each action. There is no curve where there are no data.")


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
        axes.add_collection(hatched, autolim=False)


def _mark(axes: Any, drawn: Map, chosen: Booleans, marker: str) -> None:
    """Mark cells here and there, so that actions can be told apart without colours."""
    rows, columns = (_every(n_cells) for n_cells in chosen.shape)
    picked = np.argwhere(chosen[np.ix_(rows, columns)])
    x, y = _middles(drawn.x_edges)[columns[picked[:, 1]]], _middles(drawn.y_edges)[rows[picked[:, 0]]]
    axes.plot(x, y, marker, color=drawing.INK, markersize=3.6, alpha=0.65, markeredgewidth=0, linestyle="")


def _every(n_cells: int) -> Integers:
    step = max(1, round(n_cells / _MOST_MARKERS))
    return np.arange(step // 2, n_cells, step)


def _names(facts: Facts, drawn: Map) -> list[str]:
    return [facts.subject.variables[place] for place in drawn.variables]


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
