"""The picture of three poles: the paper's panels, both gravities, and what other readings gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import STYLES, curve, drawn_interval, new_figure, paper_value
from experiments.study import Row, distinct, select
from experiments.triple_pole import ETAS, READINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHADES = dict(zip(ETAS, ("#CC79A7", "#882255", "#E69F00")))  # of FQIT
_CELLS: dict[str, Any] = {"color": "#009E73", "marker": "s", "linestyle": "--"}


def picture(rows: list[Row]) -> Figure:
    """Draw rates and times over n, ten batches of FQIT, m(n), correct physics, and the readings."""
    figure, panels = new_figure(2, 3, height=4.0)
    ours = [row for row in rows if row.get("reading") == "ours"]
    _draw_rates(panels[0, 0], _largest(ours, "up"), select(rows, part="FQIT", gravity="up", batch=1))
    _draw_times(panels[0, 1], rows)
    _draw_ten_batches(panels[0, 2], rows, ours)
    _draw_growth(panels[1, 0], ours)
    _draw_rates(panels[1, 1], _largest(ours, "down"), select(rows, part="FQIT", gravity="down", batch=1))
    _draw_ceiling(panels[1, 1], select(rows, part="ceiling"))
    _draw_readings(panels[1, 2], [row for row in rows if row["part"] == "iKBSF"])
    paper_value(panels[0, 0], 0.8, "paper, iKBSF: about 0.80")
    paper_value(panels[0, 0], 0.55, "paper, batch KBSF and FQIT: below 0.55")
    panels[0, 0].set_title("gravity up: as the paper's, very probably")
    panels[1, 1].set_title("gravity down: correct physics")
    for place, axes in enumerate(panels.flat):
        axes.set_title(f"({'abcdef'[place]}) {axes.get_title()}")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2)
    return figure


def _largest(rows: list[Row], gravity: str) -> list[Row]:
    """Return the rows with the largest batches of a part of iKBSF that gives rates."""
    own = select(rows, part="iKBSF", gravity=gravity)
    return select(own, n_batch=max(distinct(own, "n_batch"), default=0))


def _draw_rates(axes: Axes, ours: list[Row], fqit: list[Row]) -> None:
    own = select(ours, method="iKBSF")
    n_runs = len(distinct(own, "seed"))
    curve(axes, own, "n", "rate", f"iKBSF, runs: {n_runs}")
    curve(axes, own, "n", "cells", "iKBSF, centres of 256 cells", **_CELLS)
    _draw_points(axes, select(ours, method="batch KBSF"), "rate", "batch KBSF", "#56B4E9", "v")
    _draw_fqit(axes, fqit, "rate")
    axes.set(xlabel="n, number of transitions", ylabel="success rate, 256 states", ylim=(-0.03, 1.05), xscale="log")


def _draw_fqit(axes: Axes, rows: list[Row], y: str) -> None:
    """Draw one point a value of eta, and a curve where there are several batches."""
    for eta in reversed(distinct(rows, "eta")):
        own, color = select(rows, eta=eta), _SHADES.get(eta, STYLES["FQIT"][0])
        label = f"FQIT({eta}), runs: {len(distinct(own, 'seed'))}"
        if len(distinct(own, "n")) == 1:
            _draw_points(axes, own, y, label, color, "D")
        else:
            curve(axes, own, "n", y, label, color=color)


def _draw_points(axes: Axes, rows: list[Row], y: str, label: str, color: str, marker: str) -> None:
    for n in distinct(rows, "n"):
        mean, low, high = drawn_interval(select(rows, n=n), y)
        axes.errorbar(
            [n], [mean], [[mean - low], [high - mean]], fmt=marker, color=color, markersize=6, capsize=3, label=label
        )


def _draw_times(axes: Axes, rows: list[Row]) -> None:
    own = select(rows, part="time of iKBSF", method="iKBSF")
    curve(axes, own, "n", "seconds", "iKBSF, learning")
    with_sampling = [row | {"seconds": row["seconds"] + row["sampling_seconds"]} for row in own]
    curve(axes, with_sampling, "n", "seconds", "iKBSF, learning and sampling", **_CELLS)
    _draw_fqit(axes, select(rows, part="time of FQIT"), "seconds")
    axes.set(title="time, both cores", xlabel="n, number of transitions", ylabel="seconds", xscale="log", yscale="log")


def _draw_ten_batches(axes: Axes, rows: list[Row], ours: list[Row]) -> None:
    fqit = select(rows, part="FQIT", gravity="up")
    ten = [row for row in fqit if row["n_batches"] > 1]
    n_batch = max(distinct(ten, "n_batch"), default=0)
    beside = select(ours, part="iKBSF", method="iKBSF", gravity="up", n_batch=n_batch)
    curve(axes, beside, "n", "rate", f"iKBSF, runs: {len(distinct(beside, 'seed'))}")
    _draw_fqit(axes, ten, "rate")
    axes.set(title=f"batches of {n_batch}, gravity up", xlabel="n, number of transitions")
    axes.set(ylabel="success rate, 256 states", ylim=(-0.03, 1.05))


def _draw_growth(axes: Axes, ours: list[Row]) -> None:
    styles: dict[str, dict[str, Any]] = {"up": {}, "down": {"color": "#D55E00", "marker": "v"}}
    for gravity, style in styles.items():
        own = select(_largest(ours, gravity), method="iKBSF")
        curve(axes, own, "n", "m", f"iKBSF, gravity {gravity}, runs: {len(distinct(own, 'seed'))}", **style)
    axes.set(title="growth of the model", xlabel="n, number of transitions", ylabel="m, representative states")
    axes.set_ylim(bottom=0)


def _draw_ceiling(axes: Axes, rows: list[Row]) -> None:
    for row in rows:
        label = f"ceiling of any policy: {row['low']:.2f} to {row['high']:.2f}"
        axes.axhspan(row["low"], row["high"], color="#D55E00", alpha=0.35, linewidth=0, label=label)


def _draw_readings(axes: Axes, rows: list[Row]) -> None:
    """Draw the last rate of each reading, all with the batches that the readings have."""
    others = [row for row in rows if row["reading"] != "ours"]
    n_batch = max(distinct(others, "n_batch"), default=0)
    own = select(rows, method="iKBSF", gravity="up", n_batch=n_batch)
    names = [name for name in READINGS if name in distinct(own, "reading")]
    for key, label, color, marker, shift in (
        ("rate", "256 corners", "#0072B2", "o", 0.12),
        ("cells", "centres of 256 cells", "#009E73", "s", -0.12),
    ):
        found = [drawn_interval(last_rows(select(own, reading=name)), key) for name in names]
        means, lows, highs = np.transpose(found) if found else np.zeros((3, 0))
        places = np.arange(len(names))[::-1] + shift
        axes.errorbar(
            means,
            places,
            xerr=[means - lows, highs - means],
            fmt=marker,
            color=color,
            capsize=2,
            markersize=4,
            label=label,
        )
    axes.set_yticks(range(len(names)), [READINGS[name].text for name in reversed(names)], fontsize=7)
    n_batches = max(distinct(own, "batch"), default=0)
    axes.set(title=f"readings, {n_batches} batches of {n_batch}, gravity up", xlim=(-0.05, 1.1))
    axes.set(xlabel="success rate after the last batch")


def last_rows(rows: list[Row]) -> list[Row]:
    """Return the rows after the last batch."""
    return select(rows, batch=max(distinct(rows, "batch"), default=0))
