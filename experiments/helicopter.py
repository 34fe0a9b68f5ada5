"""Helicopter hovering: incremental KBSF against SARSA(lambda) with tile coding, both learning while they fly.

Paper: section 5.2.3: 500 representative states by k-means from the first 50 000 transitions, model and values updated
every 50 000, epsilon 1 lowered by 30 % as often, 70 000 episodes.  It does not say how states are scaled: here not at
all, and the nearest samples are those of each batch, as its algorithm has it; READINGS are others.  Nor does it give
the size of SARSA's hashed table: MEMORIES.  Both are tuned alike: one flight per setting, and the setting with the
longest flights flies again, with other seeds, to be judged.  Deviations: runs end after a number of transitions instead
of episodes; one flight at a time but for KBSF's readings (50 side by side).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import curve, new_figure, paper_value
from experiments.rule import All, Sampled, estimate, gap
from experiments.study import Job, Row, Settings, Verdict, distinct, generator, not_run, select, with_interval
from kbrl import KBSF, SARSA, Epsilon, OnlineAgent, OnlineRun, Variant
from kbrl.tasks import Helicopter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Helicopter hovering: KBSF and SARSA while they learn"
METHODS = ("KBSF", "SARSA")

M, BATCH = 500, 50_000  # t_m = t_v
WIDTH, NEIGHBORS = 1.0, 4  # tau = tau-bar, mu = mu-bar
LAMBDA, ALPHA, TILINGS, TILES = 0.05, 0.001, 24, 4
LOWERED = 0.7  # epsilon, every batch
PAPER_RATIO = 2.25
LONGER, DEARER = 2.0, 1.5  # what "about 2.25 times" the steps, and "slightly higher" costs, begin and end at
N_POINTS = 5  # of the curves, a batch
LITERAL: dict[str, Any] = {"scaling": None, "variant": Variant(neighborhoods="per_chunk")}
READINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("raw units, nearest of all samples", {"scaling": None}),
    "std": ("divided by standard deviations", {}),
    "limits": (
        "divided by the limits, nearest of each batch",
        {"scaling": "limits", "variant": Variant(neighborhoods="per_chunk")},
    ),
    "range": ("divided by ranges", {"scaling": "range"}),
    "continue": (
        "crashes not terminal, divided by limits",
        {"scaling": "limits", "variant": Variant(terminals="continue")},
    ),
}
# Weights of SARSA's table.  24 tilings of 4^12 tiles and 256 actions would be 10^11: hashing shares them out.
MEMORIES = {f"2^{power}": 2**power for power in (16, 18, 20, 22, 24, 26)}
PLAIN = {"KBSF": "literal", "SARSA": "2^20"}  # flown first, and timed
SEARCHED = {"KBSF": tuple(READINGS), "SARSA": tuple(name for name in MEMORIES if name != PLAIN["SARSA"])}
TUNED = {"KBSF": "exact", "SARSA": "2^20"}  # the best of the search; the verdict checks it
TUNED_SEED = 100  # the first of the flights that are judged: none of them took part in the search
# A flight ends after so many episodes, or batches, whichever comes first: who hovers well has long episodes.
SIZES: dict[str, dict[str, int]] = {
    "smoke": {"batch": 500, "batches": 4, "tuned": 1, "plain": 1, "readings": 0},
    "laptop": {"batch": BATCH, "batches": 12, "tuned": 5, "plain": 5, "readings": 1},
    "paper": {"batch": BATCH, "batches": 160, "episodes": 70_000, "tuned": 50, "plain": 10, "readings": 3},
}
FINE = 10  # batches that have N_POINTS rows; later ones have one
SECONDS = {"KBSF": 100, "SARSA": 80}  # of a flight of twelve batches


def jobs(scale: str) -> list[Job]:
    """Both methods one at a time, at laptop scale in the first run only; the others, search and tuned, side by side."""
    size, found = SIZES[scale], []
    for method in METHODS:
        about: Settings = {"method": method, "size": scale}
        seconds = SECONDS[method] * (6.0 if scale == "paper" else 1.0)
        for name in SEARCHED[method]:
            found += [Job(about | {"reading": name}, seed, seconds=seconds) for seed in range(size["readings"])]
        tuned = about | {"tuned": TUNED[method]}
        found += [Job(tuned, TUNED_SEED + run, seconds=seconds) for run in range(size["tuned"])]
        found += [Job(about, seed, seed == 0 or scale == "paper", seconds) for seed in range(size["plain"])]
    return found


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Fly on and on; a row per fifth of a batch: how long episodes were, and what a step cost in that batch.

    Late batches have one row each, which saves most of the room.
    """
    size = SIZES[settings["size"]]
    task = Helicopter()
    setting = settings.get("tuned") or settings.get("reading") or PLAIN[settings["method"]]
    n_parallel = 50 if settings["method"] == "KBSF" and "reading" in settings else 1
    _fly(settings["method"], setting, task, seed, 200).steps(500)  # compile
    run = _fly(settings["method"], setting, task, seed, size["batch"], n_parallel)
    record, most = run.steps(size["batch"]), size.get("episodes", np.inf)
    while run.agent.n_seen < size["batches"] * size["batch"] and len(record.lengths) < most:
        record = run.steps(size["batch"])
    ended_at, lengths, cost = np.array(record.ended_at), np.array(record.lengths), record.seconds_per_step
    for batch in range(run.agent.n_seen // size["batch"]):
        n_points = N_POINTS if "episodes" not in size or batch < FINE else 1
        ends = size["batch"] * (batch + np.arange(n_points + 1) / n_points)
        seconds = float(cost[min(batch, len(cost) - 1)])
        for first, last in pairwise(ends.round().astype(int).tolist()):
            ended = (ended_at > first) & (ended_at <= last)
            yield {
                "transitions": last,
                "batch": batch,
                "episodes": int((ended_at <= last).sum()),
                "length": float(lengths[ended].mean()) if ended.any() else float(last - first),
                "microseconds": 1e6 * seconds,
                "seconds": seconds * (last - first),
            }


def _fly(method: str, setting: str, task: Helicopter, seed: int, batch: int, n_parallel: int = 1) -> OnlineRun:
    exploration = Epsilon(1.0, LOWERED, batch, 0.0)
    agent: Any
    if method == "SARSA":
        agent = SARSA(
            len(task.actions),
            task.low,
            task.high,
            n_tilings=TILINGS,
            tiles=TILES,
            memory=MEMORIES[setting],
            step_size=ALPHA,
            trace_decay=LAMBDA,
            discount=task.discount,
            exploration=exploration,
            model_interval=batch,
            random_state=generator(seed, 1),
        )
    else:
        options = dict(LITERAL if setting == PLAIN["KBSF"] else READINGS[setting][1])
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
            min_cases=1,
            order=0,
        )
        agent = OnlineAgent(
            learner, len(task.actions), exploration=exploration, model_interval=batch, random_state=generator(seed, 1)
        )
    return OnlineRun(agent, task, n_parallel=n_parallel, random_state=generator(seed, 2))


# The picture --------------------------------------------------------------------------------------------------------


def draw(rows: list[Row]) -> Figure:
    """Draw the length of episodes, the time of all steps and the time of one, over the transitions."""
    figure, panels = new_figure(1, 3, height=3.8)
    flown = _plain(rows)
    for method in METHODS:
        own = _with_totals(select(flown, method=method))
        timed = select(own, alone=True)
        plain = {"marker": ""}
        curve(panels[0, 0], own, "transitions", "length", method, **plain)
        tuned = [row for row in select(rows, method=method) if "tuned" in row]
        curve(panels[0, 0], tuned, "transitions", "length", f"{method}, tuned", linestyle="--", **plain)
        curve(panels[0, 1], timed, "transitions", "total", method, **plain)
        curve(panels[0, 2], timed, "transitions", "microseconds", method, **plain)
    for name, (text, _) in READINGS.items():
        style = {"marker": "", "color": "#888888", "linewidth": 0.8}
        lines = dict(zip(READINGS, ("-", "--", ":", "-.", (0, (1, 4)))))
        own = select(rows, method="KBSF", reading=name)
        curve(panels[0, 0], own, "transitions", "length", f"{text}", linestyle=lines[name], **style)
    panels[0, 0].set(title="(a) steps before a crash", ylabel="mean steps per episode")
    if select(flown, method="SARSA"):
        level = PAPER_RATIO * float(np.mean(list(_late(select(flown, method="SARSA"), "length").values())))
        paper_value(panels[0, 0], level, f"the paper: {PAPER_RATIO:g} times SARSA's last steps")
    panels[0, 1].set(title="(b) time", ylabel="seconds so far")
    panels[0, 2].set(title="(c) time per step", ylabel="microseconds")
    panels[0, 2].set_ylim(bottom=0)
    for axes in panels.flat:
        axes.set(xlabel="transitions; epsilon is lowered at each 50 000")
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2)
    return figure


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
    flown = {method: _plain(select(rows, method=method)) for method in METHODS}
    tuned = {method: [row for row in select(rows, method=method) if "tuned" in row] for method in METHODS}
    jumping = {method: max(flown[method], tuned[method], key=_n_flights) for method in METHODS}
    timed = {method: select(own, alone=True) for method, own in flown.items()}
    needs = "Needs both methods."
    return [
        _he1(rows) if all(searched(rows, method) for method in METHODS) else not_run("HE1", needs),
        _he2(jumping) if all(jumping.values()) else not_run("HE2", needs),
        _he3(timed) if all(timed.values()) else not_run("HE3", needs),
    ]


def _n_flights(rows: list[Row]) -> int:
    return len(distinct(rows, "seed"))


def _plain(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "reading" not in row and "tuned" not in row]


def _late(rows: list[Row], name: str, share: float = 0.2) -> dict[int, float]:
    """Return the mean of the last points of each run, by its seed."""
    found = {}
    for seed in distinct(rows, "seed"):
        own = select(rows, seed=seed)
        last = max(row["transitions"] for row in own)
        found[seed] = float(np.mean([row[name] for row in own if row["transitions"] > (1 - share) * last]))
    return found


def searched(rows: list[Row], method: str) -> dict[str, float]:
    """Return the mean steps of each setting that the search has flown, as many times as all others."""
    own = select(rows, method=method)
    groups = {name: select(own, reading=name) for name in SEARCHED[method]}
    seeds = distinct([row for group in groups.values() for row in group], "seed") or [0]
    groups[PLAIN[method]] = [row for row in _plain(own) if row["seed"] in seeds]
    return {name: float(np.mean(list(_late(group, "length").values()))) for name, group in groups.items() if group}


def _he1(rows: list[Row]) -> Verdict:
    """Judge flights at the best setting of each method's search, which took no part in it."""
    found = {method: searched(rows, method) for method in METHODS}
    best = {method: max(steps, key=steps.__getitem__) for method, steps in found.items()}
    flown = {method: select(rows, method=method, tuned=best[method]) for method in METHODS}
    missing = [f"{method} at its best setting, {best[method]}" for method in METHODS if not flown[method]]
    if missing:
        return not_run("HE1", f"Needs flights of {' and '.join(missing)}: change TUNED and run again.")
    steps = {method: _late(own, "length") for method, own in flown.items()}
    means = {method: estimate(own.values()) for method, own in steps.items()}
    said = {method: f"{with_interval(mean, 0)} steps ({best[method]})" for method, mean in means.items()}
    ratio = means["KBSF"].mean / means["SARSA"].mean
    plain = {method: estimate(_late(_plain(select(rows, method=method)), "length").values()) for method in METHODS}
    tried = {
        method: "; ".join(f"{_setting(method, name)} {steps:.0f}" for name, steps in own.items())
        for method, own in found.items()
    }
    episodes = {method: _most(own) for method, own in flown.items()}
    note = (
        f"KBSF {said['KBSF']}, SARSA {said['SARSA']}. Mean steps in the last fifth of a flight, that is, up to "
        f"{episodes['KBSF']} episodes of KBSF and {episodes['SARSA']} of SARSA (the paper: 70 000). Both were tuned "
        f"alike: each of {len(found['KBSF'])} settings of KBSF and {len(found['SARSA'])} of SARSA was flown as often "
        f"as the others, and the one with most steps flew again, with other seeds. KBSF: {tried['KBSF']}. SARSA's "
        f"weights: {tried['SARSA']}. As first flown: KBSF, {PLAIN['KBSF']}, {with_interval(plain['KBSF'], 0)}, SARSA, "
        f"{PLAIN['SARSA']}, {with_interval(plain['SARSA'], 0)}."
    )
    ours = f"{ratio:.2f} times: {means['KBSF'].mean:.0f} and {means['SARSA'].mean:.0f} steps"
    longer = gap(steps["KBSF"], steps["SARSA"], LONGER)
    in_paper = (PAPER_RATIO - LONGER) * means["SARSA"].mean
    text = f"the mean of KBSF's steps less {LONGER:g} times SARSA's"
    return Verdict("HE1", ours, Sampled(text, longer, low=0.0, paper=in_paper), note)


def _setting(method: str, name: str) -> str:
    return READINGS[name][0] if method == "KBSF" and name in READINGS else name


def _most(rows: list[Row]) -> int:
    return max(int(row["episodes"]) for row in rows)


def _he2(flown: dict[str, list[Row]]) -> Verdict:
    texts, parts = [], []
    for method, own in flown.items():
        at, elsewhere = _steps_at_lowering(own)
        rises, within = (float(np.exp(np.mean(list(logs.values())))) for logs in (at, elsewhere))
        texts.append(f"{method} x {rises:.2f}, elsewhere x {within:.2f}")
        parts.append(Sampled(f"logarithm of {method}'s growth there less that elsewhere", gap(at, elsewhere), low=0.0))
    note = (
        "Geometric means over the first eight times that epsilon is lowered, of the episodes' length in the fifth of a "
        "batch after it by that before it, and of the same between the other points."
    )
    return Verdict("HE2", "; ".join(texts), All(tuple(parts)), note)


def _steps_at_lowering(rows: list[Row]) -> tuple[dict[int, float], dict[int, float]]:
    """Return the mean logarithm of growth of each run where epsilon is lowered, and elsewhere."""
    at: dict[int, list[float]] = {}
    elsewhere: dict[int, list[float]] = {}
    for seed in distinct(rows, "seed"):
        own = sorted(select(rows, seed=seed), key=lambda row: int(row["transitions"]))
        for before, after in pairwise(own):
            if after["batch"] <= 8:
                grown = float(np.log(after["length"] / before["length"]))
                (at if after["batch"] != before["batch"] else elsewhere).setdefault(seed, []).append(grown)
    first, second = ({seed: float(np.mean(logs)) for seed, logs in found.items()} for found in (at, elsewhere))
    return first, second


def _he3(flown: dict[str, list[Row]]) -> Verdict:
    cost = {method: _late(own, "microseconds", 1 / 3) for method, own in flown.items()}
    kbsf, sarsa = (float(np.mean(list(cost[method].values()))) for method in METHODS)
    ours = f"{kbsf / sarsa:.2f} times: {kbsf:.0f} and {sarsa:.0f} us"
    early = float(np.mean([row["microseconds"] for row in flown["KBSF"] if row["batch"] in (1, 2)]))
    note = (
        f"Last third of the run, one flight at a time, updates included; KBSF {PLAIN['KBSF']}, SARSA with "
        f"{PLAIN['SARSA']} weights. KBSF's second and third batch took {early:.0f} microseconds per step."
    )
    dearer = gap(cost["KBSF"], cost["SARSA"], DEARER)
    part = Sampled(f"the cost in microseconds of KBSF's steps less {DEARER:g} times SARSA's", dearer, high=0.0)
    return Verdict("HE3", ours, part, note)
