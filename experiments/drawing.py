"""How all pictures look, and how they get into files: PNG and SVG, the same bytes for the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.study import Row, measured, select
from kbrl.files import written_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One colour and marker a method in all pictures (Okabe and Ito's palette, safe for colour-blind readers).
STYLES = {
    "KBSF": ("#0072B2", "o"),
    "iKBSF": ("#0072B2", "o"),
    "batch KBSF": ("#56B4E9", "v"),
    "KBRL": ("#D55E00", "s"),
    "LSPI": ("#009E73", "^"),
    "FQIT": ("#CC79A7", "D"),
    "SARSA": ("#E69F00", "P"),
}

FEWEST = 5  # intervals of fewer runs are wider than most pictures: they stand in NOTES.md and are not drawn
TIMES = ("seconds", "cpu_seconds")


def new_figure(n_rows: int, n_columns: int, width: float = 4.6, height: float = 3.4) -> tuple[Figure, Any]:
    """Return a figure and its axes, (n_rows, n_columns)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "kbrl", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
    return plt.subplots(
        n_rows, n_columns, figsize=(width * n_columns, height * n_rows), squeeze=False, layout="constrained"
    )


def curve(axes: Axes, rows: Sequence[Row], x: str, y: str, label: str, **given: Any) -> None:
    """Draw the mean of ``y`` over ``x`` with its shadowed 99 % interval, in the style of the method in the label."""
    places = sorted({row[x] for row in rows})
    if not places:
        return
    mean, low, high = np.transpose([drawn_interval(select(rows, **{x: place}), y) for place in places])
    name = next((known for known in STYLES if label.startswith(known)), "")
    color, marker = STYLES.get(name, ("#555555", "."))
    style: dict[str, Any] = {"color": color, "marker": marker, "markersize": 4, "linewidth": 1.3} | given
    axes.plot(places, mean, label=label, **style)
    axes.fill_between(places, low, high, color=style["color"], alpha=0.15, linewidth=0)


def drawn_interval(rows: Sequence[Row], y: str) -> tuple[float, float, float]:
    """Return a mean and both ends of its interval as they are drawn: NaN for less than FEWEST runs.

    Times are drawn on logarithmic axes, so their intervals are those of their logarithms.
    """
    values = np.array([row[y] for row in rows], dtype=np.float64)
    if len(values) < FEWEST:
        mean = float(values.mean()) if len(values) else float("nan")
        return mean, float("nan"), float("nan")
    if y in TIMES and values.min() > 0:
        logs = measured([{y: float(value)} for value in np.log(values)], y)
        return float(values.mean()), float(np.exp(logs.low)), float(np.exp(logs.high))
    found = measured(rows, y)
    return found.mean, found.low, found.high


def paper_value(axes: Axes, value: float, text: str) -> None:
    """Draw a value that the paper's text states as a dashed line."""
    axes.axhline(value, color="black", linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(
        text, (1.0, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7, color="black"
    )


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write NAME.png and NAME.svg without dates in them."""
    import matplotlib.pyplot as plt

    for suffix, options in (("png", {"dpi": 130}), ("svg", {"metadata": {"Date": None}})):
        with written_beside(folder / f"{name}.{suffix}") as beside:
            figure.savefig(beside, format=suffix, **options)
    plt.close(figure)
