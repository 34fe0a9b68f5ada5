"""How all pictures look, and how they get into files: PNG and SVG, the same bytes for the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.study import Row, select
from kbrl.files import written_beside
from kbrl.trials import confidence_interval

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
    """Draw the mean of ``y`` over ``x`` with its shadowed 99 % interval, in the style of the method in the label.

    Intervals of two runs are not drawn: they are wider than most pictures, and say as much.
    """
    places = sorted({row[x] for row in rows})
    if not places:
        return
    found = [drawn_interval(select(rows, **{x: place}), y) for place in places]
    mean, half = np.array([f[0] for f in found]), np.array([f[1] for f in found])
    name = next((known for known in STYLES if label.startswith(known)), "")
    color, marker = STYLES.get(name, ("#555555", "."))
    style: dict[str, Any] = {"color": color, "marker": marker, "markersize": 4, "linewidth": 1.3} | given
    axes.plot(places, mean, label=label, **style)
    axes.fill_between(places, mean - half, mean + half, color=style["color"], alpha=0.15, linewidth=0)


def drawn_interval(rows: Sequence[Row], y: str) -> tuple[float, float]:
    """Return a mean and the half width of Student's interval as they are drawn: none of less than three runs.

    The wider interval by which shares without spread are judged is not drawn: a band would jump where runs are alike.
    """
    values = [row[y] for row in rows]
    if not values:
        return float("nan"), 0.0
    return float(np.mean(values)), confidence_interval(values)[1] if len(values) > 2 else 0.0


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
