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

from experiments.drawing import FEWEST, STYLES, curve, new_figure
from experiments.hiv_protocol import protocol
from experiments.rule import All, Sampled, gap
from experiments.study import (
    Job,
    Row,
    Settings,
    Verdict,
    by_seed,
    distinct,
    generator,
    interval,
    not_run,
    select,
    timing,
)
from kbrl import KBSF, Committee, FittedQ, Transitions, Variant
from kbrl.arrays import Array, Floats
from kbrl.checks import KbrlWarning
from kbrl.tasks.hiv import HIV
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
FASTER = {100: 15, 50: 20}  # so many times than FQIT with that eta_min
ALIKE = 1.25  # returns are alike within this factor: the bound by which two medicines count as bioequivalent
BEYOND = 10  # an eta_min that the paper did not try

READINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "range": ("log10, divided by ranges", {"scaling": "range"}),
    "unscaled": ("log10, not divided", {"scaling": None}),
    "raw": ("counts, divided by standard deviations", {}),
    "k-means": ("representative states by k-means", {"reps": "k-means"}),
    "ten": ("ten neighbours in both kernels", {"sample_neighbors": 10, "rep_neighbors": 10}),
    "samples": ("Q from the samples", {"variant": Variant(q_function="samples")}),
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
    # Ten runs of what fitted Q does: each takes minutes.
    "paper": {"KBSF": 50, "times": 10, "committees": 40, "reading": 10, "beyond": 10, "rounds": 10, "patients": 30},
}
# The laptop's runs have the paper's sizes; there are only fewer of them.
SAME_AT_BOTH = tuple({"part": part} for part in ("KBSF", "committees", "beyond", "reading", "committee reading"))


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


SECONDS = {"KBSF": 18, "committees": 33, "beyond": 150, "times": 300, "reading": 4, "committee reading": 32}  # of a job


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
            seconds=SECONDS[kind["part"]],
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
        _run(task, FittedQ(min_split=50, n_trees=2, n_iterations=2, discount=DISCOUNT, min_cases=1), seed, "smoke")
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
    return KBSF(
        m, sample_width=WIDTH, rep_width=WIDTH, discount=DISCOUNT, random_state=seed, **given, min_cases=1, order=0
    )


def _committee(n_members: int, seed: int, m: int = MEMBERS_M) -> tuple[Row, Committee]:
    about = {"method": "committee", "m": m, "members": n_members}
    return about, Committee(_kbsf(m, seed), n_members, random_state=seed)


def _fitted_q(min_split: int, seed: int, **options: Any) -> tuple[Row, FittedQ]:
    learner = FittedQ(min_split=min_split, discount=DISCOUNT, random_state=seed, **options, min_cases=1)
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
        axes.axhline(0.0, color="black", linewidth=0.8)
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
        if n >= FEWEST:
            axes.axhspan(mean - half, mean + half, color=STYLES["FQIT"][0], alpha=0.08)


# The verdicts -------------------------------------------------------------------------------------------------------


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge the claims HI1 to HI5 by returns and by times, both compared seed by seed."""
    fqit = {eta: select(rows, method="FQIT", eta=eta) for eta in MIN_SPLITS}
    single = select(rows, part="KBSF")
    committee = {n: select(rows, method="committee", members=n) for n in MEMBERS[1:]}
    times = select(rows, part="times", alone=True)
    if not all(fqit.values()):
        return [not_run(f"HI{k}", "Needs FQIT and KBSF.") for k in range(1, 6)]
    members, timed = all(committee[n] for n in (MEMBERS[1], EXCEEDING)), "Needs runs that were timed."
    return [
        _hi1(rows, fqit),
        _hi2(rows, single, fqit[50]) if single else not_run("HI2", "Needs KBSF over m."),
        _hi3(times) if times else not_run("HI3", timed),
        _hi4(rows, committee, fqit) if members else not_run("HI4", "Needs committees."),
        _hi5(times) if times else not_run("HI5", timed),
    ]


def _said(rows: list[Row]) -> str:
    mean, half, n = interval(rows, "return")
    return f"{mean:.2e} +- {half:.1e}" if n > 1 else f"{mean:.2e} (one run)"


def _tried(rows: list[Row], part: str, readings: dict[str, Any]) -> str:
    """Say what each reading gave, of those that were run."""
    found = {name: select(rows, part=part, reading=name) for name in readings}
    return "; ".join(f"{readings[name][0]}: {_said(own)}" for name, own in found.items() if own) or "not run"


def _mean(rows: list[Row], name: str = "return") -> float:
    return interval(rows, name)[0]


def _less(text: str, first: list[Row], second: list[Row], factor: float = 1.0, **limits: float) -> Sampled:
    """Judge the return of the first less so many times that of the second."""
    return Sampled(text, gap(by_seed(first, "return"), by_seed(second, "return"), factor), **limits)


def _hi1(rows: list[Row], fqit: dict[int, list[Row]]) -> Verdict:
    means = ", ".join(f"{_mean(fqit[eta]) / 1e9:.2f}" for eta in sorted(fqit, reverse=True))
    ours = f"{means} e9"
    beyond = select(rows, method="FQIT", eta=BEYOND)
    note = f"Beyond the paper: FQIT({BEYOND}) {_said(beyond)}." if beyond else ""
    pairs = ((100, 200), (50, 100))
    parts = (_less(f"return of FQIT({low}) less FQIT({high})'s", fqit[low], fqit[high], low=0.0) for low, high in pairs)
    return Verdict("HI1", ours, All(tuple(parts)), note)


def _hi2(rows: list[Row], single: list[Row], best: list[Row]) -> Verdict:
    by_m = {m: select(single, m=m) for m in distinct(single, "m")}
    every = ", ".join(f"KBSF({m}) {_said(own)}" for m, own in by_m.items())
    few, many = min(by_m), max(by_m)
    about = f"return at m = {many} less"
    ours = f"{_mean(by_m[few]) / 1e9:.2f} to {_mean(by_m[many]) / 1e9:.2f} e9; FQIT(50) {_mean(best) / 1e9:.2f} e9"
    parts = [
        _less(f"{about} {1 / ALIKE:g} times that at {few}", by_m[many], by_m[few], 1 / ALIKE, low=0.0),
        _less(f"{about} {ALIKE:g} times that at {few}", by_m[many], by_m[few], ALIKE, high=0.0),
    ]
    parts += [_less(f"return of KBSF({m}) less FQIT(50)'s", own, best, high=0.0) for m, own in by_m.items()]
    note = (
        f"Little effect of m is a test of equivalence of the largest and the smallest m, within a factor of {ALIKE:g}, "
        f"the bound that is usual for two medicines. {every}. FQIT(50): {_said(best)}. Other readings, "
        f"KBSF({MEMBERS_M}): {_tried(rows, 'reading', READINGS)}."
    )
    return Verdict("HI2", ours, All(tuple(parts)), note)


def _hi3(times: list[Row]) -> Verdict:
    kbsf = select(times, method="KBSF")
    trees = {eta: select(times, method="FQIT", eta=eta) for eta in FASTER}
    ratios = {eta: _mean(own, "seconds") / _mean(kbsf, "seconds") for eta, own in trees.items()}
    ours = f"{ratios[100]:.1f} and {ratios[50]:.1f} times"
    note = (
        "Seconds of ten fits, one method at a time on both cores; our FQIT refreshes frozen trees without refitting. "
    )
    note += "Against trees that are refitted at every iteration: RIVALS.md."
    parts = (_slower(f"FQIT({eta})", trees[eta], "KBSF", kbsf, times) for eta, times in FASTER.items())
    return Verdict("HI3", ours, All(tuple(parts)), note)


def _slower(name: str, slow: list[Row], other: str, fast: list[Row], times: float = 1.0) -> Sampled:
    """Judge whether one takes more than so many times the seconds of another."""
    less = gap(by_seed(slow, "seconds"), by_seed(fast, "seconds"), times)
    return Sampled(f"the time in seconds of {name} less {times:g} times that of {other}", less, low=0.0)


def _hi4(rows: list[Row], committee: dict[int, list[Row]], fqit: dict[int, list[Row]]) -> Verdict:
    every = ", ".join(f"{n} members {_said(committee[n])}" for n in committee if committee[n])
    ours = ", ".join(f"{n}: {_mean(committee[n]) / 1e9:.2f} e9" for n in committee if committee[n])
    best = max(fqit, key=lambda eta: _mean(fqit[eta]))
    name = f"{1 / ALIKE:g} times FQIT(50)'s"
    note = (
        f"{every}. FQIT(50): {_said(fqit[50])}. Five members match it if they do not fall behind by more than a "
        f"factor of {ALIKE:g}, as in HI2. Runs with the same seed are compared. Other readings of fifteen members: "
        f"{_tried(rows, 'committee reading', COMMITTEES)}."
    )
    parts = (
        _less(f"return of 5 members less {name}", committee[5], fqit[50], 1 / ALIKE, low=0.0),
        _less(f"return of {EXCEEDING} members less FQIT({best})'s", committee[EXCEEDING], fqit[best], low=0.0),
    )
    return Verdict("HI4", ours, All(parts), note)


def _hi5(times: list[Row]) -> Verdict:
    thirty, trees = select(times, method="committee", members=30), select(times, method="FQIT", eta=200)
    own, other = _mean(thirty, "seconds"), _mean(trees, "seconds")
    ours = f"{other / own:.2f} times: {own:.0f} s and {other:.0f} s"
    note = f"Members have m = {MEMBERS_M}; the paper does not say theirs. Both on two cores, one at a time."
    return Verdict("HI5", ours, _slower("FQIT(200)", trees, "30 members", thirty), note)
