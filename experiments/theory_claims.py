"""What the runs of the theory say about the paper's claims TH1 to TH5."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from experiments.rule import All, Exact
from experiments.study import Row, Verdict, distinct, not_run, select
from experiments.theory import CROWDS, DENSER, GAMMA, NARROWER, T_V, TAU, norm_label
from experiments.theory_models import NORMS, ROUNDING

NOTHING = 1e-3  # xi_v goes to 0 if it falls to less than this share of the first


def judge(rows: list[Row]) -> list[Verdict]:
    """Judge TH1 to TH5."""
    random, puddle = select(rows, part="random"), select(rows, part="puddle")
    return [
        _within("TH1", random + puddle, "error", "bound", "random models and models of the puddle world"),
        _within("TH2", puddle, "q_error", "q_bound", "models of the puddle world, 200 random states each"),
        _th3(select(rows, part="denser")),
        _within("TH4", select(rows, part="on-line"), "error", "bound", f"steps on-line, with t_m = 1 and t_v = {T_V}"),
        _th5(select(rows, part="norms")),
    ]


def _within(claim: str, rows: list[Row], error: str, bound: str, what: str) -> Verdict:
    """Judge whether no error is above its bound."""
    errors, bounds, trivial = (
        np.array([value for row in rows for value in row.get(name, ())]) for name in (error, bound, "trivial")
    )
    if not len(errors):
        return not_run(claim, f"Needs {what}.")
    above, some = errors > bounds, errors > 0
    ratio = float(np.max(errors[some] / bounds[some], initial=0.0))
    ours = f"{int(above.sum())} of {len(errors)} above; largest error / bound {ratio:.3f}"
    note = (
        f"{len(errors)} {what}; {100 * np.mean(bounds < trivial):.0f} % of the bounds are better than the trivial one. "
        f"{ROUNDING:g} of the largest value is taken off each error for rounding."
    )
    return Verdict(claim, ours, Exact("no error is above its bound", not above.any(), len(errors)), note)


def _th3(rows: list[Row]) -> Verdict:
    """Judge whether the least xi_v over tau-bar falls with every step towards the next states, and to nothing."""
    if not rows:
        return not_run("TH3", "Needs ever denser representative states.")
    beside, grids = _least(rows, "beside"), _least(rows, "grid")
    falls = all(b < a or a == 0 for run in beside for a, b in pairwise(run))  # 0 where a log has no rewards
    first, last = max(run[0] for run in beside), max(run[-1] for run in beside)
    m = [str(m) for m in distinct(select(rows, sequence="grid"), "m")]
    ours = f"from {first:.3g} to {last:.3g}"
    note = (
        f"The distance falls from {DENSER[0]:g} to {DENSER[-1]:g}. "
        f"The least xi_v over tau-bar in {NARROWER}, at discount {GAMMA:g} and tau {TAU:g}; the largest of the runs. "
        f"On grids of {', '.join(m)} representative states it falls from {max(run[0] for run in grids):.3g} to "
        f"{max(run[-1] for run in grids):.3g}. Where tau-bar stays, it stops falling (see the picture)."
    )
    parts = (
        Exact("xi_v falls at every step", falls, len(beside)),
        Exact(f"its last value is less than {NOTHING:g} of its first", last < NOTHING * first, len(beside)),
    )
    return Verdict("TH3", ours, All(parts), note)


def _least(rows: list[Row], sequence: str) -> list[list[float]]:
    """Return the least bounds over tau-bar of each run, from the largest distance to the smallest."""
    own = sorted(select(rows, sequence=sequence), key=lambda row: -float(row["distance"]))
    return [[min(row["bound"]) for row in select(own, seed=seed)] for seed in distinct(own, "seed")]


def _th5(rows: list[Row]) -> Verdict:
    if not rows:
        return not_run("TH5", "Needs exact factorizations.")
    texts, parts, short = [], [], []
    for norm in NORMS:
        own = select(rows, norm=norm)
        ratios = np.array([ratio for row in select(own, models="random") for ratio in row["ratios"]])
        worst = max([row["ratios"][0] for row in select(own, models="crowd")], default=0.0)
        n_models, above = len(ratios), int((ratios > 1).sum())
        parts.append(
            Exact(f"no error is above the bound in the {norm_label(norm)}", above == 0 and worst <= 1, n_models)
        )
        texts.append(f"{norm_label(norm)}: {above} of {n_models} above, at most {ratios.max():.2f} times; {worst:.2f}")
        short.append(f"{worst:.2f}")
    note = (
        "Random exact factorizations whose error is above the bound, the largest error / bound among them, and after "
        "the semicolon that of an example made for it: two absorbing states pay 1 for opposite actions, a third is "
        f"their average, and up to {max(CROWDS)} states lead to the third. The proof needs Bellman operators that "
        "contract and an averager that does not expand, and only the max norm has both: docs/decisions/09-bounds.md."
    )
    ours = f"largest error / bound in the 1-, 2- and max norm: {', '.join(short)}"
    return Verdict("TH5", ours, All(tuple(parts)), f"{'. '.join(texts)}. {note}")
