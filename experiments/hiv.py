"""HIV drug schedule: KBSF, committees of KBSF, and fitted Q with extra-trees.

Paper: section 4.3.3: ten rounds of 6000 transitions, 0.15-greedy, judged over 5000 days from the unhealthy state.
Deviations: learners see log10 of the six counts, divided by their standard deviations (the paper does not say; Ernst et
al. took logarithms); members of committees have m = 2000 (it does not say); where the first rounds have fewer states
than m, all are taken; fewer runs at laptop scale.  Seconds are those of all ten fits, without simulation.  Other
readings of what is left open are READINGS and COMMITTEES.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import STYLES, curve, new_figure
from experiments.study import Job, Row, Settings, Verdict, distinct, generator, interval, select, timing
from kbrl import KBSF, Committee, FittedQ, Transitions
from kbrl.arrays import Array, Floats
from kbrl.checks import KbrlWarning
from kbrl.tasks.hiv import HIV, protocol
from kbrl.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "HIV drug schedule: KBSF, committees, and fitted Q with extra-trees"

DISCOUNT = 0.98
ALL_M = (2000, 4000, 6000, 8000, 10_000)
M, MEMBERS_M = 10_000, 2000
WIDTH, MU, MU_BAR = 1.0, 2, 3  # tau = tau-bar, and the neighbours of both kernels
EXCEEDING = 15  # members with which the paper exceeds FQIT
MEMBERS = (1, 5, EXCEEDING, 30)
MIN_SPLITS = (50, 100, 200)  # eta_min
BEYOND = 10  # an eta_min that the paper did not try

READINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "range": ("log10, divided by ranges", {"scaling": "range"}),
    "unscaled": ("log10, not divided", {"scaling": None}),
    "raw": ("counts, divided by standard deviations", {}),
    "k-means": ("representative states by k-means", {"reps": "k-means"}),
    "ten": ("ten neighbours in both kernels", {"sample_neighbors": 10, "rep_neighbors": 10}),
    "samples": ("Q from the samples", {"q_function": "samples"}),
    "current": ("reward of the state before the decision", {}),
}
# Of committees of that size: options of the committee, of its members, and their number of representative states.
COMMITTEES: dict[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "range": ("log10, divided by ranges", {}, {"scaling": "range"}, MEMBERS_M),
    "mean": ("mean of the members' values instead of votes", {"vote": "mean"}, {}, MEMBERS_M),
    "large": (f"members with m = {M}", {}, {}, M),
    "small": ("members with m = 500", {}, {}, 500),
    "current": ("reward of the state before the decision", {}, {}, MEMBERS_M),
}
# Runs of each part; rounds and patients; sizes.
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"KBSF": 1, "times": 1, "committees": 0, "reading": 0, "beyond": 0, "rounds": 2, "patients": 3}
    | {"trees": {"n_trees": 3, "n_iterations": 12}},
    "laptop": {"KBSF": 6, "times": 3, "committees": 3, "reading": 3, "beyond": 1, "rounds": 10, "patients": 30},
    "paper": {"KBSF": 50, "times": 50, "committees": 0, "reading": 50, "beyond": 10, "rounds": 10, "patients": 30},
}


class RawHIV(HIV):
    """The same task, observed as counts."""

    low, high = np.zeros(6), np.full(6, 1e8)

    def observe(self, states: Floats) -> Floats:
        """Return the counts."""
        return states


class Timed:
    """A learner that adds up the seconds of its fits."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.seconds = self.cpu_seconds = 0.0

    def fit(self, log: Transitions) -> None:
        """Fit, and add the time it took."""
        with timing() as timer:
            self.learner.fit(log)
        self.seconds += timer.seconds
        self.cpu_seconds += timer.cpu_seconds

    def predict(self, states: Any) -> Array:
        """Answer as the learner does."""
        answers: Array = self.learner.predict(states)
        return answers


def jobs(scale: str) -> list[Job]:
    """Returns over m, of further committees and of other readings side by side; what is timed, alone."""
    size = SIZES[scale]
    kinds: list[Settings] = [{"part": part} for part in ("KBSF", "committees", "beyond", "times")]
    kinds += [{"part": "reading", "reading": name} for name in READINGS]
    kinds += [{"part": "committee reading", "reading": name} for name in COMMITTEES]
    return [
        Job(
            kind | {"size": scale},
            seed + (100 if kind["part"] == "committees" else 0),
            alone=_is_timed(kind, scale, seed),
        )
        for kind in kinds
        for seed in range(size[kind["part"].removeprefix("committee ")])
    ]


def _is_timed(kind: Settings, scale: str, seed: int) -> bool:
    """Times are taken of a run that has the machine to itself; at laptop scale of the first only."""
    return kind["part"] == "times" and (seed == 0 or scale == "paper")


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Run the ten rounds with each learner of a part."""
    size = settings["size"]
    task: Task = HIV()
    learners: list[tuple[Row, Any]]
    if settings["part"] == "KBSF":
        learners = [({"method": "KBSF", "m": m}, _kbsf(m, seed)) for m in _sizes(size)]
    elif settings["part"] == "committees":
        learners = [_committee(n, seed) for n in MEMBERS[1:3]]
    elif settings["part"] == "beyond":
        learners = [_fitted_q(BEYOND, seed)]
    elif settings["part"] == "reading":
        name = settings["reading"]
        task = RawHIV() if name == "raw" else _rewarded(name)
        learners = [({"method": "KBSF", "m": MEMBERS_M}, _kbsf(MEMBERS_M, seed, **READINGS[name][1]))]
    elif settings["part"] == "committee reading":
        task, (_, options, of_members, m) = _rewarded(settings["reading"]), COMMITTEES[settings["reading"]]
        about = {"method": "reading of committees", "m": m, "members": EXCEEDING}
        learners = [(about, Committee(_kbsf(m, seed, **of_members), EXCEEDING, random_state=seed, **options))]
    else:
        learners = [({"method": "KBSF", "m": _sizes(size)[-1]}, _kbsf(_sizes(size)[-1], seed))]
        learners += [_committee(n, seed, 50 if size == "smoke" else MEMBERS_M) for n in MEMBERS[1:]]
        learners += [_fitted_q(eta, seed, **SIZES[size].get("trees", {})) for eta in MIN_SPLITS]
        _run(task, _kbsf(20, seed), seed, "smoke")  # compile
        _run(task, FittedQ(min_split=50, n_trees=2, n_iterations=2, discount=DISCOUNT), seed, "smoke")
    for about, learner in learners:
        yield about | _run(task, learner, seed, size)


def _rewarded(reading: str) -> HIV:
    return HIV(reward_from="current" if reading == "current" else "successor")


def _run(task: Task, learner: Any, seed: int, size: str) -> Row:
    timed: Any = Timed(learner)
    rounds, patients = SIZES[size]["rounds"], SIZES[size]["patients"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "n_reps=", KbrlWarning)  # of the first rounds, see above
        protocol(task, timed, n_rounds=rounds, n_patients=patients, random_state=generator(seed))
    found = task.evaluate(timed.predict, random_state=0)
    return {"return": found.mean, "seconds": timed.seconds, "cpu_seconds": timed.cpu_seconds}


def _sizes(size: str) -> tuple[int, ...]:
    return (50, 100) if size == "smoke" else ALL_M


def _kbsf(m: int, seed: int, **options: Any) -> KBSF:
    given: dict[str, Any] = {"sample_neighbors": MU, "rep_neighbors": MU_BAR, "reps": "random"} | options
    return KBSF(m, sample_width=WIDTH, rep_width=WIDTH, discount=DISCOUNT, random_state=seed, **given)


def _committee(n_members: int, seed: int, m: int = MEMBERS_M) -> tuple[Row, Committee]:
    about = {"method": "committee", "m": m, "members": n_members}
    return about, Committee(_kbsf(m, seed), n_members, random_state=seed)


def _fitted_q(min_split: int, seed: int, **options: Any) -> tuple[Row, FittedQ]:
    learner = FittedQ(min_split=min_split, discount=DISCOUNT, random_state=seed, **options)
    return {"method": "FQIT", "eta": min_split}, learner


# The picture --------------------------------------------------------------------------------------------------------


def draw(rows: list[Row]) -> Figure:
    """Draw returns and times over m, and over the number of members, with FQIT as lines across."""
    figure, panels = new_figure(2, 2)
    kbsf = [row for row in select(rows, method="KBSF") if row["part"] in ("KBSF", "times")]
    committees = [row | {"members": row.get("members", 1)} for row in select(rows, method="committee")]
    committees += [row | {"members": 1} for row in select(kbsf, part="KBSF", m=min(distinct(kbsf, "m")))]
    times = select(rows, part="times", alone=True)
    curve(panels[0, 0], select(kbsf, part="KBSF"), "m", "return", "KBSF")
    curve(panels[0, 1], select(kbsf, part="KBSF"), "m", "cpu_seconds", "KBSF")
    curve(panels[1, 0], committees, "members", "return", "KBSF, committee")
    curve(panels[1, 1], select(times, method="committee"), "members", "seconds", "KBSF, committee")
    trees = select(rows, method="FQIT")
    _across(panels[0, 1], trees, "cpu_seconds")
    _across(panels[1, 1], select(times, method="FQIT"), "seconds")
    for axes in panels[:, 0]:
        _across(axes, trees, "return")
        axes.set_ylim(0, 1.2 * max(row["return"] for row in rows))  # intervals of few runs are wider than that
    for column, what in enumerate(("m, representative states", "members of the committee")):
        panels[column, 0].set(xlabel=what, ylabel="return over 5000 days", title="ac"[column].join("()") + " return")
        panels[column, 1].set(xlabel=what, yscale="log", title="bd"[column].join("()") + " time of ten fits")
    panels[0, 1].set(ylabel="CPU seconds")
    panels[1, 1].set(ylabel="seconds on both cores")
    for axes in panels.flat:
        if not axes.get_legend_handles_labels()[1]:
            continue
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=3)
    return figure


def _across(axes: Axes, rows: list[Row], name: str) -> None:
    lines = dict(zip((BEYOND, *MIN_SPLITS), (":", "--", "-", "-.")))
    for eta in distinct(rows, "eta"):
        mean, half, n = interval(select(rows, eta=eta), name)
        axes.axhline(mean, color=STYLES["FQIT"][0], linestyle=lines[eta], linewidth=1.2, label=f"FQIT({eta})")
        if np.isfinite(half) and n > 2:
            axes.axhspan(mean - half, mean + half, color=STYLES["FQIT"][0], alpha=0.08)


# The verdicts -------------------------------------------------------------------------------------------------------


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge the claims HI1 to HI5 by means and by ratios of times."""
    fqit = {eta: select(rows, method="FQIT", eta=eta) for eta in MIN_SPLITS}
    single = select(rows, part="KBSF")
    committee = {n: select(rows, method="committee", members=n) for n in MEMBERS[1:]}
    times = select(rows, part="times", alone=True)
    if not all(fqit.values()) or not single or not times:
        return [Verdict(f"HI{k}", "-", 0, None, "Needs FQIT and KBSF.") for k in range(1, 6)]
    return [_hi1(rows, fqit), _hi2(rows, single, fqit[50]), _hi3(times), _hi4(rows, committee, fqit), _hi5(times)]


def _said(rows: list[Row]) -> str:
    mean, half, n = interval(rows, "return")
    return f"{mean:.2e} +- {half:.1e}" if n > 1 else f"{mean:.2e} (one run)"


def _tried(rows: list[Row], part: str, readings: dict[str, Any]) -> str:
    """Say what each reading gave, of those that were run."""
    found = {name: select(rows, part=part, reading=name) for name in readings}
    return "; ".join(f"{readings[name][0]}: {_said(own)}" for name, own in found.items() if own) or "not run"


def _mean(rows: list[Row], name: str = "return") -> float:
    return interval(rows, name)[0]


def _hi1(rows: list[Row], fqit: dict[int, list[Row]]) -> Verdict:
    ours = ", ".join(f"FQIT({eta}) {_said(fqit[eta])}" for eta in sorted(fqit, reverse=True))
    beyond = select(rows, method="FQIT", eta=BEYOND)
    note = f"Holds if the means are in this order. Beyond the paper: FQIT({BEYOND}) {_said(beyond)}." if beyond else ""
    holds = _mean(fqit[50]) > _mean(fqit[100]) > _mean(fqit[200])
    return Verdict("HI1", ours, len(fqit[50]), holds, note)


def _hi2(rows: list[Row], single: list[Row], best: list[Row]) -> Verdict:
    few, many = (select(single, m=m) for m in (min(distinct(single, "m")), max(distinct(single, "m"))))
    ours = ", ".join(f"KBSF({m}) {_said(select(single, m=m))}" for m in distinct(single, "m"))
    gap = abs(_mean(few) - _mean(many))
    halves = [interval(group, "return")[1] for group in (few, many)]
    little = bool(gap <= sum(halves))
    below = max(_mean(select(single, m=m)) for m in distinct(single, "m")) < _mean(best)
    note = (
        f"Little effect of m: {'yes' if little else 'no'}, the intervals of the smallest and the largest m "
        f"{'overlap' if little else 'do not overlap'}. Below FQIT(50), {_said(best)}: {'yes' if below else 'no'}. "
        f"Other readings, KBSF({MEMBERS_M}): {_tried(rows, 'reading', READINGS)}."
    )
    return Verdict("HI2", ours, len(few), little and below, note)


def _hi3(times: list[Row]) -> Verdict:
    kbsf = _mean(select(times, method="KBSF"), "seconds")
    ratios = {eta: _mean(select(times, method="FQIT", eta=eta), "seconds") / kbsf for eta in (100, 50)}
    ours = f"{ratios[100]:.1f} times faster than FQIT(100), {ratios[50]:.1f} than FQIT(50)"
    note = "Seconds of ten fits, one method at a time on both cores; our FQIT refreshes frozen trees without refitting."
    return Verdict("HI3", ours, len(select(times, method="KBSF")), ratios[100] >= 15 and ratios[50] >= 20, note)


def _hi4(rows: list[Row], committee: dict[int, list[Row]], fqit: dict[int, list[Row]]) -> Verdict:
    ours = ", ".join(f"{n} members {_said(committee[n])}" for n in committee if committee[n])
    best = max(fqit.values(), key=_mean)
    mean, half, n_runs = interval(committee[EXCEEDING], "return")
    five_mean, five_half, _ = interval(committee[5], "return")
    matches = five_mean + five_half >= _mean(fqit[50])
    note = (
        f"FQIT(50): {_said(fqit[50])}. Holds if the interval of five members reaches FQIT(50)'s mean and that of "
        f"fifteen lies above the mean of the best FQIT, {_said(best)}. Other readings of fifteen members: "
        f"{_tried(rows, 'committee reading', COMMITTEES)}."
    )
    return Verdict("HI4", ours, n_runs, bool(matches and mean - half > _mean(best)), note)


def _hi5(times: list[Row]) -> Verdict:
    thirty = _mean(select(times, method="committee", members=30), "seconds")
    trees = _mean(select(times, method="FQIT", eta=200), "seconds")
    ours = f"30 members {thirty:.0f} s, FQIT(200) {trees:.0f} s: {trees / thirty:.2f} times as fast"
    note = f"Members have m = {MEMBERS_M}; the paper does not say theirs. Both on two cores, one at a time."
    return Verdict("HI5", ours, len(select(times, method="KBSF")), bool(thirty < trees), note)
