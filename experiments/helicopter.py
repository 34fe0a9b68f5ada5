"""Helicopter hovering: incremental KBSF against SARSA(lambda) with tile coding, both learning while they fly.

Paper: section 5.2.3: 500 representative states by k-means from the first 50 000 transitions, model and values updated
every 50 000, epsilon 1 lowered by 30 % as often, 70 000 episodes.  It does not say how states are scaled: here not at
all, and the nearest samples are those of each batch, as its algorithm has it; READINGS are others.  Deviations: runs
end after a number of transitions instead of episodes; one flight at a time but for the readings (50 side by side).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import curve, new_figure, paper_value
from experiments.study import Job, Row, Settings, Verdict, distinct, generator, interval, select, shown
from kbrl import KBSF, SARSA, Epsilon, OnlineAgent, OnlineRun
from kbrl.tasks import Helicopter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Helicopter hovering: KBSF and SARSA while they learn"

M, BATCH = 500, 50_000  # t_m = t_v
WIDTH, NEIGHBORS = 1.0, 4  # tau = tau-bar, mu = mu-bar
LAMBDA, ALPHA, TILINGS, TILES = 0.05, 0.001, 24, 4
LOWERED = 0.7  # epsilon, every batch
PAPER_RATIO = 2.25
N_POINTS = 5  # of the curves, a batch
LITERAL: dict[str, Any] = {"scaling": None, "neighborhoods": "per_chunk"}
READINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("raw units, nearest of all samples", {"scaling": None}),
    "std": ("divided by standard deviations", {}),
    "limits": ("divided by the limits, nearest of each batch", {"scaling": "limits", "neighborhoods": "per_chunk"}),
    "range": ("divided by ranges", {"scaling": "range"}),
    "continue": ("crashes not terminal, divided by limits", {"scaling": "limits", "terminals": "continue"}),
}
SIZES: dict[str, dict[str, int]] = {
    "smoke": {"batch": 500, "batches": 4, "runs": 1, "readings": 0},
    "laptop": {"batch": BATCH, "batches": 12, "runs": 5, "readings": 1},
    "paper": {"batch": BATCH, "batches": 100, "runs": 50, "readings": 10},
}


def jobs(scale: str) -> list[Job]:
    """Both methods one at a time, at laptop scale in the first run only; the others and other readings side by side."""
    size = SIZES[scale]
    timed = [
        Job({"method": method, "size": scale}, seed, alone=seed == 0 or scale == "paper")
        for method in ("KBSF", "SARSA")
        for seed in range(size["runs"])
    ]
    other = [
        Job({"method": "KBSF", "reading": name, "size": scale}, seed)
        for name in READINGS
        for seed in range(size["readings"])
    ]
    return other + timed


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Fly on and on; a row a fifth of a batch: how long episodes were, and what a step cost in that batch."""
    size = SIZES[settings["size"]]
    task = Helicopter()
    _fly(settings["method"], task, seed, 200, None).steps(500)  # compile
    run = _fly(settings["method"], task, seed, size["batch"], settings.get("reading"))
    record = run.steps(size["batches"] * size["batch"])
    ended_at, lengths = np.array(record.ended_at), np.array(record.lengths)
    n_steps, cost = size["batch"] // N_POINTS, record.seconds_per_step
    for point in range(size["batches"] * N_POINTS):
        ended = (ended_at > point * n_steps) & (ended_at <= (point + 1) * n_steps)
        seconds = float(cost[min(point // N_POINTS, len(cost) - 1)])
        yield {
            "transitions": (point + 1) * n_steps,
            "batch": point // N_POINTS,
            "episodes": int((ended_at <= (point + 1) * n_steps).sum()),
            "length": float(lengths[ended].mean()) if ended.any() else float(n_steps),
            "microseconds": 1e6 * seconds,
            "seconds": seconds * n_steps,
        }


def _fly(method: str, task: Helicopter, seed: int, batch: int, reading: str | None) -> OnlineRun:
    exploration = Epsilon(1.0, LOWERED, batch, 0.0)
    agent: Any
    if method == "SARSA":
        agent = SARSA(
            len(task.actions),
            task.low,
            task.high,
            n_tilings=TILINGS,
            tiles=TILES,
            step_size=ALPHA,
            trace_decay=LAMBDA,
            discount=task.discount,
            exploration=exploration,
            model_interval=batch,
            random_state=generator(seed, 1),
        )
    else:
        options = dict(READINGS[reading][1] if reading else LITERAL)
        if options.get("scaling") == "limits":
            options["scaling"] = task.high
        learner = KBSF(
            min(M, batch // 10),
            sample_width=WIDTH,
            rep_width=WIDTH,
            sample_neighbors=NEIGHBORS,
            rep_neighbors=NEIGHBORS,
            discount=task.discount,
            random_state=seed,
            **options,
        )
        agent = OnlineAgent(
            learner, len(task.actions), exploration=exploration, model_interval=batch, random_state=generator(seed, 1)
        )
    return OnlineRun(agent, task, n_parallel=50 if reading else 1, random_state=generator(seed, 2))


# The picture --------------------------------------------------------------------------------------------------------


def draw(rows: list[Row]) -> Figure:
    """Draw the length of episodes, the time of all steps and the time of one, over the transitions."""
    figure, panels = new_figure(1, 3, height=3.8)
    flown = [row for row in rows if "reading" not in row]
    for method in ("KBSF", "SARSA"):
        own = _with_totals(select(flown, method=method))
        timed = select(own, alone=True)
        plain = {"marker": ""}
        curve(panels[0, 0], own, "transitions", "length", method, **plain)
        curve(panels[0, 1], timed, "transitions", "total", method, **plain)
        curve(panels[0, 2], timed, "transitions", "microseconds", method, **plain)
    for name, (text, _) in READINGS.items():
        style = {"marker": "", "color": "#888888", "linewidth": 0.8}
        lines = dict(zip(READINGS, ("-", "--", ":", "-.", (0, (1, 4)))))
        own = select(rows, reading=name)
        curve(panels[0, 0], own, "transitions", "length", f"{text}", linestyle=lines[name], **style)
    # Intervals of few runs reach far beyond the means; the picture is of the means.
    panels[0, 0].set(title="(a) steps before a crash", ylabel="mean steps an episode", ylim=(0, _highest(rows)))
    if select(flown, method="SARSA"):
        level = PAPER_RATIO * float(np.mean(_late(select(flown, method="SARSA"), "length")))
        paper_value(panels[0, 0], level, f"the paper: {PAPER_RATIO:g} times SARSA's last steps")
    panels[0, 1].set(title="(b) time", ylabel="seconds so far")
    panels[0, 2].set(title="(c) time a step", ylabel="microseconds")
    panels[0, 2].set_ylim(bottom=0)
    for axes in panels.flat:
        axes.set(xlabel="transitions; epsilon is lowered at each 50 000")
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2)
    return figure


def _highest(rows: list[Row]) -> float:
    """Return a limit above the mean of every curve."""
    means: dict[tuple[str, str, int], list[float]] = {}
    for row in rows:
        means.setdefault((row["method"], row.get("reading", ""), row["transitions"]), []).append(row["length"])
    return 1.3 * max(float(np.mean(lengths)) for lengths in means.values())


def _with_totals(rows: list[Row]) -> list[Row]:
    totals: list[Row] = []
    for seed in distinct(rows, "seed"):
        own = sorted(select(rows, seed=seed), key=lambda row: int(row["transitions"]))
        sums = np.cumsum([row["seconds"] for row in own]).tolist()
        totals += [row | {"total": total} for row, total in zip(own, sums)]
    return totals


# The verdicts -------------------------------------------------------------------------------------------------------


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge HE1 by the last batches, HE2 by the points before and after epsilon is lowered, HE3 by the last third."""
    flown = {
        method: [row for row in select(rows, method=method) if "reading" not in row] for method in ("KBSF", "SARSA")
    }
    if not all(flown.values()):
        return [Verdict(f"HE{k}", "-", 0, None, "Needs both methods.") for k in (1, 2, 3)]
    return [_he1(rows, flown), _he2(flown), _he3(flown)]


def _late(rows: list[Row], name: str, share: float = 0.2) -> list[float]:
    """Return the mean of the last points of each run."""
    last = max(row["transitions"] for row in rows)
    late = [row for row in rows if row["transitions"] > (1 - share) * last]
    return [float(np.mean([row[name] for row in select(late, seed=seed)])) for seed in distinct(late, "seed")]


def _he1(rows: list[Row], flown: dict[str, list[Row]]) -> Verdict:
    lengths = {method: _late(own, "length") for method, own in flown.items()}
    ratio = float(np.mean(lengths["KBSF"]) / np.mean(lengths["SARSA"]))
    means = {method: interval([{"x": value} for value in found], "x") for method, found in lengths.items()}
    said = {method: shown(found[0], found[1], 0) for method, found in means.items()}
    episodes = {method: max(row["episodes"] for row in own) for method, own in flown.items()}
    tried = [
        f"{text}: {np.mean(_late(select(rows, reading=name), 'length')):.0f}"
        for name, (text, _) in READINGS.items()
        if select(rows, reading=name)
    ]
    note = (
        f"Mean steps in the last fifth of {max(row['transitions'] for row in flown['KBSF'])} transitions, that is, up "
        f"to {episodes['KBSF']} episodes of KBSF and {episodes['SARSA']} of SARSA, not 70 000. Holds if the ratio is "
        f"at least 2. Other readings of KBSF, steps: {'; '.join(tried) or 'not run'}."
    )
    ours = f"{ratio:.2f} times: KBSF {said['KBSF']}, SARSA {said['SARSA']} steps"
    return Verdict("HE1", ours, len(lengths["KBSF"]), ratio >= 2, note)


def _he2(flown: dict[str, list[Row]]) -> Verdict:
    shares, texts = [], []
    for method, own in flown.items():
        rises, within = _steps_at_lowering(own)
        shares.append(rises > within)
        texts.append(f"{method}: x {rises:.2f} where epsilon is lowered, x {within:.2f} a point elsewhere")
    note = (
        "Geometric means over the first eight times that epsilon is lowered, of the episodes' length in the fifth of a "
        "batch after it by that before it, and of the same between the other points. Holds if the first is larger."
    )
    return Verdict("HE2", "; ".join(texts), len(distinct(flown["KBSF"], "seed")), all(shares), note)


def _steps_at_lowering(rows: list[Row]) -> tuple[float, float]:
    at: list[float] = []
    elsewhere: list[float] = []
    for seed in distinct(rows, "seed"):
        own = sorted(select(rows, seed=seed), key=lambda row: int(row["transitions"]))
        for before, after in pairwise(own):
            if after["batch"] <= 8:
                grown = float(np.log(after["length"] / before["length"]))
                (at if after["batch"] != before["batch"] else elsewhere).append(grown)
    return float(np.exp(np.mean(at))), float(np.exp(np.mean(elsewhere)))


def _he3(flown: dict[str, list[Row]]) -> Verdict:
    flown = {method: select(own, alone=True) for method, own in flown.items()}
    cost = {method: _late(own, "microseconds", 1 / 3) for method, own in flown.items()}
    kbsf, sarsa = float(np.mean(cost["KBSF"])), float(np.mean(cost["SARSA"]))
    ours = f"{kbsf / sarsa:.2f} times SARSA's: {kbsf:.0f} and {sarsa:.0f} microseconds a step"
    early = float(np.mean([row["microseconds"] for row in flown["KBSF"] if row["batch"] in (1, 2)]))
    note = (
        "Last third of the run, one flight at a time, updates included. Holds if KBSF's is at most 1.5 times SARSA's. "
        f"KBSF's second and third batch took {early:.0f} microseconds a step."
    )
    return Verdict("HE3", ours, len(cost["KBSF"]), kbsf <= 1.5 * sarsa, note)
