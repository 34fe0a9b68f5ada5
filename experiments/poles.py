"""One and two poles: KBSF against LSPI over m, with gravity as the paper very probably had it, and as it is.

Paper: section 4.3.2, appendix B.1: 50 runs, for each m the best tau-bar.  With gravity "up" poles hang upwards; with
correct physics its rates for two poles are out of reach, by ``experiments.feasibility`` (the "ceiling").  What it
does not say, and we take: n for one pole (5*10^4), forces (-10, 10 N), start (the origin), scaling (standard
deviations), the value after a failure (0), two poles' 81 test states (set "a"); READINGS are others.  Large models of
one pole with correct physics are in docs/one_pole.md, the rules of the verdicts in ``poles_claims``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import curve, new_figure, paper_value
from experiments.feasibility import feasibility
from experiments.study import Job, Row, Settings, Verdict, best_over, distinct, generator, interval, select, timing
from kbrl import KBRL, KBSF, LSPI, Solver, Transitions, Variant
from kbrl.arrays import Floats
from kbrl.data.scaling import state_scale
from kbrl.model.representatives import k_means
from kbrl.tasks import PoleBalancing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "One and two poles: KBSF and LSPI over m"

N = {1: 50_000, 2: 1_000_000}
ALL_M = {1: (10, 30, 50, 70, 90, 110, 130, 150), 2: (20, 40, 60, 80, 100, 120, 140, 160, 180, 200)}
FEW_M, MANY_M = 30, 200  # the paper's KBSF for one pole, and for two
TAU = 1.0
TAU_BARS = (0.01, 0.1, 1.0)  # the table's {0.01, 0.1, 0.1} is a misprint
MAX_ITERATIONS = 30  # of LSPI and of policy iteration; ours ends by itself, and the rows say after how many
DECISIONS = 3000
TESTS = {1: "paper", 2: "a"}
GRAVITIES = ("up", "down")
# The paper's features are raw kernel values, and singular values solve its equations.  Ours, its strongest form, has
# KBSF's own normalised kernels and a little ridge.
LSPIS: dict[str, dict[str, Any]] = {"LSPI, raw": {"features": "raw", "ridge": 0}, "LSPI, normalised": {}}
AXES = 2 * np.array([1.2, 0.24, *np.deg2rad([18.0, 75.0])])  # of which the test box is half
NAMES = {1: "one pole", 2: "two poles"}
RAW: dict[str, Any] = {"linestyle": ":", "marker": "x"}
SMALLER: dict[str, Any] = {"color": "#56B4E9", "marker": "v", "linestyle": "--"}  # KBSF with the n of LSPI


def _centres_of_states(log: Transitions, seed: int) -> Floats:
    """Cluster the states that transitions start from instead of those they lead to."""
    scale = state_scale(log.states, "std")
    return k_means(log.states / scale, FEW_M, generator(seed)) * scale


def _patient_centres(log: Transitions, seed: int) -> Floats:
    """Cluster all next states until nothing changes, from a random start, as textbooks have it."""
    from sklearn.cluster import KMeans

    scale = state_scale(log.states, "std")
    found = KMeans(FEW_M, init="random", n_init=1, max_iter=1000, random_state=seed).fit(log.next_states / scale)
    return np.asarray(found.cluster_centers_, dtype=np.float64) * scale


@dataclass(frozen=True)
class Reading:
    """What the paper leaves open about one pole, read in another way than ours."""

    text: str
    task: dict[str, Any] = field(default_factory=dict)
    learner: dict[str, Any] = field(default_factory=dict)
    reps: Callable[[Transitions, int], Floats] | None = None
    tests: str = TESTS[1]
    data: float = 1.0  # so many times the transitions


READINGS = {
    "box": Reading("starts in the test box", {"start": "test box"}),
    "raw": Reading("raw units", learner={"scaling": None}),
    "range": Reading("divided by ranges", learner={"scaling": "range"}),
    "axes": Reading("divided by the paper's axes", learner={"scaling": AXES}),
    "states": Reading("k-means on states", reps=_centres_of_states),
    "patient": Reading("k-means on all next states to its end", reps=_patient_centres),
    "continue": Reading("failures not terminal", learner={"variant": Variant(terminals="continue")}),
    "tau": Reading("tau 0.1", learner={"sample_width": 0.1}),
    "more": Reading("4 n transitions", data=4.0),
    "forces": Reading("forces -10, 0, 10 N", {"forces": (-10.0, 0.0, 10.0)}),
    "rubbing": Reading("no friction of the track", {"track_friction": False}),
    "cells": Reading("centres of 81 cells as test states", tests="paper cells"),
    "fewer": Reading("n / 10 transitions", data=0.1),
    "samples": Reading(
        "n / 10 transitions, Q from the samples", learner={"variant": Variant(q_function="samples")}, data=0.1
    ),
}


@dataclass(frozen=True)
class Size:
    """How much a scale runs; of what is in dicts, for one and for two poles."""

    kbsf_runs: dict[tuple[int, str], int]  # by poles and gravity
    lspi_runs: dict[tuple[int, str], int]
    reading_runs: int
    n: dict[int, int] = field(default_factory=lambda: N)
    all_m: dict[int, tuple[int, ...]] = field(default_factory=lambda: ALL_M)
    lspi_n: dict[int, int] = field(default_factory=lambda: N)
    lspi_m: dict[int, tuple[int, ...]] = field(default_factory=lambda: ALL_M)
    tau_bars: tuple[float, ...] = TAU_BARS
    kbrl_n: tuple[int, ...] = (1000, 2000, 4000, 8000)
    kbrl_runs: int = 3
    decisions: int = DECISIONS
    budget: int = 20_000_000  # of the exhaustive search for states that cannot be balanced
    readings: tuple[str, ...] = tuple(READINGS)


def _each(*runs: int) -> dict[tuple[int, str], int]:
    return dict(zip(((n_poles, gravity) for n_poles in (1, 2) for gravity in GRAVITIES), runs))


SIZES = {
    "smoke": Size(
        _each(1, 0, 1, 1),
        _each(1, 0, 0, 0),
        1,
        n={1: 2000, 2: 4000},
        all_m={1: (10, 30), 2: (20, 40)},
        lspi_n={1: 1000, 2: 1000},
        lspi_m={1: (10, 20), 2: (20, 40)},
        tau_bars=(0.1, 1.0),
        kbrl_n=(200, 400),
        kbrl_runs=1,
        decisions=300,
        budget=2**10,
        readings=("box", "samples"),
    ),
    "laptop": Size(
        _each(20, 8, 6, 2),
        _each(4, 1, 3, 1),
        16,
        all_m=ALL_M | {2: (20, 60, 100, 140, 200)},
        lspi_n={1: N[1], 2: 100_000},
        lspi_m={1: (10, 30, 70, 150), 2: (20, 60)},
    ),
    # Of LSPI on two poles only times are judged; with 10^6 transitions a fit takes minutes.
    "paper": Size(_each(50, 50, 50, 50), _each(50, 10, 10, 0), 50, lspi_m=ALL_M | {2: (20, 100, 200)}, kbrl_runs=10),
}
SAME_AT_BOTH = ({"part": "reading"}, {"part": "KBSF", "n_poles": 1})  # the laptop's runs have the paper's sizes
TIMED_RUNS = 10  # of LSPI at the paper's scale: the other runs are side by side, and only their rates count
SECONDS = {"KBSF": {1: 6, 2: 45}, "LSPI": {1: 130, 2: 2500}}  # of a job


def jobs(scale: str) -> list[Job]:
    """KBSF's rates, the readings and the ceilings side by side; what is compared in time one at a time."""
    size = SIZES[scale]
    found = [Job({"part": "ceiling", "size": scale}, 0)]
    found += [Job({"part": "reading", "size": scale}, seed) for seed in range(size.reading_runs)]
    for part, runs in (("KBSF", size.kbsf_runs), ("LSPI", size.lspi_runs)):
        for (n_poles, gravity), n_runs in runs.items():
            settings = {"part": part, "n_poles": n_poles, "gravity": gravity, "size": scale}
            n_timed = 0 if part == "KBSF" else TIMED_RUNS if scale == "paper" else n_runs
            for own, seconds in _split(settings, size):
                found += [Job(own, seed, seed < n_timed, seconds) for seed in range(n_runs)]
    growth = {"part": "KBRL", "n_poles": 2, "gravity": "up", "size": scale}
    return found + [Job(growth, seed, alone=True, seconds=20) for seed in range(size.kbrl_runs)]


def _split(settings: Settings, size: Size) -> list[tuple[Settings, float]]:
    """Return the jobs that a run is made of, with their seconds.

    At the paper's scale long ones are split, so that those that a claim rests on can be run first: LSPI's m by m, and
    of KBSF on two poles the m that is judged by itself.  The same log and seed give the same figures either way.
    """
    part, n_poles = settings["part"], settings["n_poles"]
    seconds = SECONDS[part][n_poles]
    if settings["size"] != "paper" or (part, n_poles) == ("KBSF", 1):
        return [(settings, seconds)]
    if part == "KBSF":
        others = [m for m in size.all_m[n_poles] if m != MANY_M]
        return [(settings | {"all_m": [MANY_M]}, 0.3 * seconds), (settings | {"all_m": others}, seconds)]
    all_m = size.lspi_m[n_poles]
    return [(settings | {"all_m": [m]}, seconds * m / sum(all_m)) for m in all_m]


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Run one part."""
    parts = {"KBSF": _kbsf, "LSPI": _lspi, "reading": _readings, "ceiling": _ceilings, "KBRL": _growth}
    yield from parts[settings["part"]](settings, SIZES[settings["size"]], seed)


def _kbsf(settings: Settings, size: Size, seed: int) -> Iterator[Row]:
    n_poles = settings["n_poles"]
    task = PoleBalancing(n_poles, gravity=settings["gravity"])
    log = task.collect(size.n[n_poles], random_state=generator(seed))
    for m in settings.get("all_m", size.all_m[n_poles]):
        for tau_bar in size.tau_bars:
            learner = _new_kbsf(m, tau_bar, seed, n_jobs=1).fit(log)
            yield {"method": "KBSF", "n": len(log), "m": m, "tau_bar": tau_bar} | _judged(task, learner, size)


def _lspi(settings: Settings, size: Size, seed: int) -> Iterator[Row]:
    """KBSF and both LSPIs in turn, on the same data with the same representative states, timed."""
    n_poles = settings["n_poles"]
    task = PoleBalancing(n_poles, gravity=settings["gravity"])
    log = task.collect(size.lspi_n[n_poles], random_state=generator(seed))
    for m in settings.get("all_m", size.lspi_m[n_poles]):
        for tau_bar in size.tau_bars:
            learners: dict[str, Any] = {"KBSF": _new_kbsf(m, tau_bar, seed)}
            for name, options in LSPIS.items():
                learners[name] = LSPI(
                    m, width=tau_bar, random_state=seed, max_iterations=MAX_ITERATIONS, **options, min_cases=1
                )
            for name, learner in learners.items():
                learner.fit(log[:500])  # compile
                timed = _timed(learner, log, n_times=3 if name == "KBSF" else 1)
                row = {"method": name, "n": len(log), "m": m, "tau_bar": tau_bar}
                yield row | timed | _judged(task, learner, size)


def _readings(_: Settings, size: Size, seed: int) -> Iterator[Row]:
    for name in size.readings:
        reading = READINGS[name]
        task = PoleBalancing(1, gravity="up", **reading.task)
        log = task.collect(int(reading.data * size.n[1]), random_state=generator(seed))
        given = {} if reading.reps is None else {"reps": reading.reps(log, seed)}
        for tau_bar in size.tau_bars:
            learner = _new_kbsf(FEW_M, tau_bar, seed, n_jobs=1).set_params(**given, **reading.learner).fit(log)
            row = {"reading": name, "n": len(log), "m": FEW_M, "tau_bar": tau_bar}
            yield row | _judged(task, learner, size, reading.tests)


def _ceilings(_: Settings, size: Size, __: int) -> Iterator[Row]:
    """What nobody can exceed: bounds of the share of test states that can be balanced at all."""
    for n_poles in (1, 2):
        for gravity in GRAVITIES:
            task = PoleBalancing(n_poles, gravity=gravity)  # type: ignore[arg-type]
            found = feasibility(task, TESTS[n_poles], n_decisions=size.decisions, beam_width=200, budget=size.budget)
            low, high = found.ceiling
            yield {"n_poles": n_poles, "gravity": gravity, "low": round(low, 4), "high": round(high, 4)}


def _growth(_: Settings, size: Size, seed: int) -> Iterator[Row]:
    """The time of KBRL at small n, and of KBSF with the paper's n."""
    task = PoleBalancing(2, gravity="up")
    log = task.collect(size.n[2], random_state=generator(seed))
    for learner in (KBRL(TAU, min_cases=1), _new_kbsf(10, 1.0, seed)):
        learner.fit(log[:100])  # compile
    for m in size.all_m[2]:
        row = {"method": "KBSF", "n": len(log), "m": m, "tau_bar": 1.0}
        yield row | _timed(_new_kbsf(m, 1.0, seed), log)
    for n in size.kbrl_n:
        yield {"method": "KBRL", "n": n} | _timed(KBRL(TAU, min_cases=1), log[:n])


def _new_kbsf(m: int, tau_bar: float, seed: int, n_jobs: int | None = None) -> KBSF:
    return KBSF(
        m,
        "k-means",
        TAU,
        tau_bar,
        solver=Solver(method="policy iteration"),
        random_state=seed,
        n_jobs=n_jobs,
        min_cases=1,
        order=0,
    )


def _timed(learner: Any, log: Transitions, n_times: int = 1) -> dict[str, float]:
    """Return the median time of a fit, choice of representative states included."""
    timers = []
    for _ in range(n_times):
        with timing() as timer:
            learner.fit(log)
        timers.append(timer)
    return {name: round(median(getattr(timer, name) for timer in timers), 5) for name in ("seconds", "cpu_seconds")}


def _judged(task: PoleBalancing, learner: Any, size: Size, tests: str | None = None) -> dict[str, float]:
    found = task.evaluate(learner.policy(), tests or TESTS[task.n_poles], max_steps=size.decisions)
    n_iterations = learner.n_iterations_ if isinstance(learner, LSPI) else learner.solution_.iterations
    return {"rate": round(task.success_rate(found), 4), "iterations": int(n_iterations)}


def best_by_m(rows: list[Row]) -> list[Row]:
    """Return, for each m, the rows of the tau-bar with the best mean: what the paper reports."""
    return [row for m in distinct(rows, "m") for row in best_over(select(rows, m=m), ("tau_bar",), "rate")]


# The picture --------------------------------------------------------------------------------------------------------


def draw(rows: list[Row]) -> Figure:
    """Draw, for one pole and for two, the rates with both gravities and the times."""
    figure, panels = new_figure(2, 3, height=3.7)
    for line, n_poles in zip(panels, (1, 2)):
        for axes, gravity in zip(line, GRAVITIES):
            _draw_rates(axes, select(rows, n_poles=n_poles, gravity=gravity), n_poles, gravity)
        _draw_times(line[2], select(rows, n_poles=n_poles, gravity="up", alone=True), n_poles)
    paper_value(panels[0, 0], 0.9, "paper, KBSF, m = 30: about 0.90")
    paper_value(panels[0, 0], 0.6, "paper, LSPI: at most 0.60")
    paper_value(panels[1, 0], 0.8, "paper, KBSF, m = 200: over 0.80")
    for place, axes in enumerate(panels.flat):
        axes.set_title(f"({'abcdef'[place]}) {axes.get_title()}")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncol=2)
    return figure


def _draw_rates(axes: Axes, rows: list[Row], n_poles: int, gravity: str) -> None:
    for row in select(rows, part="ceiling"):
        label = f"ceiling of any policy: {' to '.join(sorted({f'{row[end]:.2f}' for end in ('low', 'high')}))}"
        top = max(row["high"], row["low"] + 0.005)
        axes.axhspan(row["low"], top, color="#D55E00", alpha=0.35, linewidth=0, label=label)
    for part, method, style in (
        ("KBSF", "KBSF", {}),
        ("LSPI", "KBSF", SMALLER),
        ("LSPI", "LSPI, normalised", {}),
        ("LSPI", "LSPI, raw", RAW),
    ):
        own = select(rows, part=part, method=method)
        if part == "LSPI" and method == "KBSF" and distinct(own, "n") == distinct(select(rows, part="KBSF"), "n"):
            continue  # the same as the first, with fewer runs
        label = "".join(f"{method}, n = {_power(n)}, runs: {len(distinct(own, 'seed'))}" for n in distinct(own, "n"))
        curve(axes, best_by_m(own), "m", "rate", label, **style)
    kind = "as the paper's, very probably" if gravity == "up" else "correct physics"
    axes.set(title=f"{NAMES[n_poles]}, gravity {gravity}: {kind}", xlabel="m, number of representative states")
    axes.set(ylabel=r"success rate, best $\bar\tau$", ylim=(-0.03, 1.05))
    axes.set_xticks(distinct(rows, "m"))


def _draw_times(axes: Axes, rows: list[Row], n_poles: int) -> None:
    for part, method, style in (
        ("LSPI", "LSPI, raw", RAW),
        ("LSPI", "LSPI, normalised", {}),
        ("LSPI", "KBSF", SMALLER if n_poles == 2 else {}),
        ("KBRL", "KBSF", {}),
    ):
        own = select(rows, part=part, method=method)
        label = "".join(f"{method}, n = {_power(n)}" for n in distinct(own, "n"))
        curve(axes, _mean_times(own), "m", "seconds", label, **style)
    axes.set(title=f"{NAMES[n_poles]}: time to find a policy", xlabel="m, number of representative states")
    axes.set(ylabel=r"seconds, mean over $\bar\tau$", yscale="log")
    axes.set_xticks(distinct(rows, "m"))


def _mean_times(rows: list[Row]) -> list[Row]:
    """Return one row per run and m, with the mean over tau-bar."""
    runs = {(row["seed"], row["m"]): select(rows, seed=row["seed"], m=row["m"]) for row in rows}
    return [{"m": m, "seconds": interval(own, "seconds")[0]} for (_, m), own in runs.items()]


def _power(n: int) -> str:
    """Return n as pictures have it: 5 times 10^4."""
    exponent = len(str(n)) - 1
    digits = n / 10**exponent
    return rf"$10^{exponent}$" if digits == 1 else rf"${digits:g} \cdot 10^{exponent}$"


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge PO1 to PO5."""
    from experiments.poles_claims import judge  # which has its settings from here

    return judge(rows)
