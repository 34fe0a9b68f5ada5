"""The style of the pictures: SVG with real text, small, the same bytes for the same facts, readable without colour.

Actions have a light colour that colour-blind people can tell apart (Paul Tol's scheme "light") and a marker as well.
Matplotlib is loaded when the first picture is drawn.
"""

from __future__ import annotations

import base64
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kbrl.checks import how_to_install

INK, QUIET, LINE, ACCENT, PALE = "#1c2128", "#545d68", "#d5dae0", "#0b5394", "#86909c"
VALUES = "viridis"
COLOURS = ("#77aadd", "#ee8866", "#eedd88", "#44bb99", "#ffaabb", "#bbcc33", "#99ddff")
LINE_COLOURS = ("#0077bb", "#cc3311", "#117733", "#332288", "#997700", "#882255", "#545d68")  # dark enough for lines
MARKERS = ("o", "^", "s", "v", "D", "P", "X")
OTHERS = "#dddddd"  # actions that have no colour of their own
WIDTH = 4.4  # inches: as wide as a column of the page, and readable on a phone

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # the fonts of the reader have all letters
    "svg.hashsalt": "kbrl",
    "text.parse_math": False,  # a $ in a name does not start a formula
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.7,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-3, 6),
}
_PAGE_FONTS = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Picture:
    """A picture for a page: a data: address that holds all of it, and its description in words."""

    source: str
    alt: str
    caption: str
    width: int  # in CSS pixels
    height: int


def need_matplotlib(what: str = "A report") -> None:
    """Raise an ImportError that says how to install matplotlib, if it is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError(f"{what} needs matplotlib for its pictures. {how_to_install('plot')}") from None


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of the page, without warnings about letters that only the fonts of the reader have."""
    import matplotlib

    fonts = logging.getLogger("matplotlib.font_manager")
    level = fonts.level
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        warnings.filterwarnings("ignore", message=r"constrained_layout not applied")
        fonts.setLevel(logging.ERROR)
        try:
            yield
        finally:
            fonts.setLevel(level)


def new_figure(height: float, width: float = WIDTH) -> tuple[Any, Any]:
    """Return a figure and its axes; sizes are in inches."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.locator_params(nbins=6, steps=[1, 2, 5, 10])
    return figure, axes


def new_figures(height: float, shares: list[int]) -> tuple[Any, list[Any]]:
    """Return a figure and its axes one below the other, with these shares of the height in inches."""
    figure, axes = new_figure(height)
    axes.remove()
    grid = figure.add_gridspec(len(shares), 1, height_ratios=shares)
    return figure, [figure.add_subplot(grid[place]) for place in range(len(shares))]


def finished(figure: Any, alt: str, caption: str) -> Picture:
    """Return the drawn figure as a picture."""
    stream = io.StringIO()
    facts = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(stream, format="svg", dpi=160, metadata=facts)
    text = stream.getvalue()
    text = text[text.index("<svg") :].replace("'DejaVu Sans'", _PAGE_FONTS)
    data = base64.b64encode(text.encode()).decode("ascii")
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return Picture(f"data:image/svg+xml;base64,{data}", alt, caption, width, height)
