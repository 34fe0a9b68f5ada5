"""All claims in one picture: how far each figure is from the limit beyond which its claim holds.

Figures have units of their own, so distances are in half widths of the figure's own 99 % interval: beyond 1 on the
right a part holds, beyond 1 on the left it does not, and between it is undecided.  A claim of several parts is shown
by the part that decides it, or keeps it from being decided.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.claims import CLAIMS
from experiments.drawing import new_figure, save_figure
from experiments.rule import All, Exact, Finding, OneOf, Part, Sampled
from experiments.study import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Told apart in print by their marks as well.
LOOKS = {
    Finding.HOLDS: ("#0072B2", "o", "full"),
    Finding.FAILS: ("#D55E00", "X", "full"),
    Finding.UNDECIDED: ("#777777", "s", "none"),
}
FARTHEST = 60.0  # figures farther off are drawn here


def draw_overview(verdicts: dict[str, tuple[str, Verdict]], folder: Path) -> None:
    """Draw claims.png and claims.svg."""
    figure, ((axes,),) = new_figure(1, 1, width=9.0, height=0.27 * len(CLAIMS) + 1.5)
    for place, name in enumerate(CLAIMS):
        if name in verdicts and verdicts[name][1].judged is not None:
            _draw_claim(axes, place, verdicts[name][1])
        else:
            axes.annotate("not run", (0, place), fontsize=7, va="center", ha="center")
    axes.axvline(0, color="black", linewidth=1.0)
    for end in (-1, 1):
        axes.axvline(end, color="black", linewidth=0.6, linestyle=(0, (2, 3)))
    axes.set_xscale("symlog", linthresh=2.0, linscale=1.6)
    axes.set(xlim=(-1.3 * FARTHEST, 1.3 * FARTHEST), ylim=(len(CLAIMS) - 0.4, -0.6))
    ticks = [-50, -10, -5, -2, -1, 0, 1, 2, 5, 10, 50]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(CLAIMS)), [f"{name}  {_brief(claim.text)}" for name, claim in CLAIMS.items()], fontsize=7)
    axes.set_xlabel("distance from the limit, in half widths of the 99 % interval; right: holds")
    for finding, (color, marker, fill) in LOOKS.items():
        axes.plot([], [], marker, color=color, fillstyle=fill, label=finding.value)
    axes.plot([], [], "D", color="black", markersize=5, fillstyle="none", label="the paper's figure")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.35, -0.05), ncol=4)
    save_figure(figure, folder, "claims")


def _brief(text: str) -> str:
    return text if len(text) <= 62 else text[:60].rsplit(" ", 1)[0] + " ..."


def _draw_claim(axes: Axes, place: int, verdict: Verdict) -> None:
    assert verdict.judged is not None
    color, marker, fill = LOOKS[verdict.finding]
    leaf = decisive(verdict.judged)
    if isinstance(leaf, Exact):
        at = FARTHEST if leaf.is_true else -FARTHEST
        axes.plot(at, place, marker, color=color, fillstyle=fill, markersize=7)
        shift, side = (-8, "right") if at > 0 else (8, "left")
        axes.annotate("exact", (at, place), (shift, 0), textcoords="offset points", fontsize=7, va="center", ha=side)
        return
    if leaf.n_runs < 2:
        text = axes.annotate(
            "one run, no interval", (0, place), (6, 0), textcoords="offset points", fontsize=7, va="center"
        )
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # a line passes behind it
        return
    low, mean, high = (float(np.clip(end, -FARTHEST, FARTHEST)) for end in _distances(leaf))
    axes.plot([low, high], [place, place], color=color, linewidth=2.2, alpha=0.75, solid_capstyle="butt")
    axes.plot(mean, place, marker, color=color, fillstyle=fill, markersize=7)
    if leaf.paper is not None:
        at = float(np.clip(_distance(leaf, leaf.paper), -FARTHEST, FARTHEST))
        axes.plot(at, place, "D", color="black", markersize=5, fillstyle="none")


def decisive(part: Part) -> Sampled | Exact:
    """Return the part without parts that decides, or that is nearest to deciding otherwise."""
    if isinstance(part, All | OneOf):
        inner = [decisive(each) for each in part.parts]
        return (min if isinstance(part, All) else max)(inner, key=_strength)
    return part


def _strength(leaf: Sampled | Exact) -> tuple[int, float]:
    """Order parts from refuted to proved; of those that are undecided, the ones with one run come first."""
    order = {Finding.FAILS: 0, Finding.UNDECIDED: 1, Finding.HOLDS: 2}[leaf.finding]
    if isinstance(leaf, Exact):
        return order, FARTHEST if leaf.is_true else -FARTHEST
    return order, _distances(leaf)[1] if leaf.n_runs > 1 else -FARTHEST


def _distances(leaf: Sampled) -> tuple[float, float, float]:
    """Return both ends of the interval and the mean between them, as distances from the limit."""
    ends = sorted(_distance(leaf, end) for end in (leaf.found.low, leaf.found.high))
    return ends[0], _distance(leaf, leaf.found.mean), ends[1]


def _distance(leaf: Sampled, value: float) -> float:
    """Return how far a value is on the claim's side of the nearer limit, in half widths of the interval."""
    from_low = leaf.found.mean - leaf.low <= leaf.high - leaf.found.mean
    limit, side = (leaf.low, 1.0) if from_low else (leaf.high, -1.0)
    is_inside = (leaf.found.mean - limit) * side >= 0
    facing_low = is_inside == from_low  # the end of the interval that faces the limit
    unit = leaf.found.mean - leaf.found.low if facing_low else leaf.found.high - leaf.found.mean
    off = (value - limit) * side
    return float(off / unit) if unit > 0 else float(np.sign(off) * FARTHEST)
