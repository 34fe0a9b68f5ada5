"""Puddle world: KBSF against KBRL over m, over n and over the kernels' widths.

Paper: section 4.3.1 and the figure of section 6.2, 50 runs, the best of all widths.  Deviations: states are divided by
their standard deviations (the paper advises to rescale and does not say how); the n below 8000 are ours (its text has
none); KBSF is judged by the paper's Q from the samples and, beside it, by Q from the representative states alone; times
are taken at width 0.1, in jobs of their own.  The rules of the verdicts are in ``puddle_claims``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import STYLES, curve, new_figure
from experiments.study import Job, Row, Settings, Verdict, best_over, distinct, generator, interval, select, timing
from kbrl import KBRL, KBSF, Transitions, Variant
from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.mdp.solvers import ROUNDS, SWEEPS
from kbrl.tasks import PuddleWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Puddle world: KBSF and KBRL over m, n and the kernels' widths"

N, M = 8000, 100  # the paper's KBSF(8000, 100) and KBRL(8000)
ALL_M = (10, 30, 50, 70, 90, 110, 130, 150)
ALL_N = (1000, 2000, 4000, 8000)
LONG_N = (128_000, 512_000, 2_048_000)  # beyond the paper's: where fixed costs no longer hide KBSF's growth with n
WIDTHS = (0.01, 0.1, 1.0)  # tau and tau-bar; the table's {0.01, 0.1, 0.1} is a misprint
TIMED_WIDTH = 0.1
N_ACTIONS, N_DIMS = 4, 2
RETURNS = (-1.5, 4.5)  # the pictures' axis: the goal is worth 5, some way off; failing costs 0, puddles more
WHAT = {"m": "m, number of representative states", "n": "n, number of transitions"}
PAPER_KBRL = {1.0: (1.47, 0.42), 0.1: (3.01, 0.08), 0.01: (3.00, 0.08)}  # its mean and half width at each tau


class NoisierPuddleWorld(PuddleWorld):
    """The puddle world with noise as large as a move: 0.05 instead of 0.01."""

    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        extra = np.sqrt(0.05**2 - 0.01**2) * rng.standard_normal(states.shape)
        return super()._step(states + extra, actions, rng)


@dataclass(frozen=True)
class Reading:
    """What the paper leaves open, read in another way than ours."""

    text: str
    task: PuddleWorld
    learner: dict[str, Any]
    max_steps: int | None = None  # of an episode of the data


READINGS = {
    "raw": Reading("raw units (and so, the range)", PuddleWorld(), {"scaling": None}),
    "square": Reading("square goal", PuddleWorld(goal="square"), {}),
    "continue": Reading("goal not terminal in the model", PuddleWorld(), {"terminals": "continue"}),
    "both": Reading("square goal, not terminal", PuddleWorld(goal="square"), {"terminals": "continue"}),
    "noise": Reading("noise of 0.05", NoisierPuddleWorld(), {}),
    "max": Reading("puddles' overlap not added", PuddleWorld(overlap="max"), {}),
    "uniform": Reading("samples from uniform states", PuddleWorld(), {}, max_steps=1),
}


@dataclass(frozen=True)
class Size:
    """How much a scale runs."""

    n_runs: dict[str, int]  # of each part
    all_n: tuple[int, ...] = ALL_N
    all_m: tuple[int, ...] = ALL_M
    m: int = M
    long_n: tuple[int, ...] = LONG_N
    widths: tuple[float, ...] = WIDTHS
    readings: tuple[str, ...] = tuple(READINGS)


SIZES = {
    "smoke": Size(
        {"KBSF": 2, "reading": 1, "KBRL": 1, "times": 1},
        all_n=(200, 400),
        all_m=(10, 30),
        m=20,
        long_n=(400, 800),
        widths=(0.1, 1.0),
        readings=("raw",),
    ),
    "laptop": Size({"KBSF": 12, "reading": 2, "KBRL": 8, "times": 8}, readings=tuple(READINGS)[:5]),
    "paper": Size({"KBSF": 50, "reading": 10, "KBRL": 50, "times": 30, "KBRL times": 30}),
}


SAME_AT_BOTH = ({"part": "KBRL"},)  # the laptop's runs have the paper's sizes
SECONDS = {"KBSF": 9, "reading": 22, "KBRL": 31, "times": 10, "KBRL times": 11}  # of a job


def jobs(scale: str) -> list[Job]:
    """Returns and readings side by side, times one at a time; below the paper's scale KBRL's returns are timed, too."""
    size = SIZES[scale]
    kinds: list[Settings] = [{"part": "KBSF", "size": scale}]
    kinds += [{"part": "reading", "reading": name, "size": scale} for name in size.readings]
    kinds += [{"part": part, "size": scale} for part in ("KBRL", "times", "KBRL times")]
    timed = {"times", "KBRL times"} | ({"KBRL"} if scale != "paper" else set())
    return [
        Job(kind, seed, kind["part"] in timed, SECONDS[kind["part"]])
        for kind in kinds
        for seed in range(size.n_runs.get(kind["part"], 0))
    ]


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Run one part on one log; smaller n take the log's first transitions."""
    parts = {"KBSF": _kbsf, "KBRL": _kbrl, "KBRL times": _kbrl, "times": _times, "reading": _reading}
    yield from parts[settings["part"]](settings, SIZES[settings["size"]], seed)


def _kbsf(_: Settings, size: Size, seed: int) -> Iterator[Row]:
    task = PuddleWorld()
    log = task.collect(max(size.all_n), random_state=generator(seed))
    for over, n, m in _places(size, size.all_n):
        for tau in size.widths:
            for tau_bar in size.widths:
                learner = KBSF(
                    m,
                    "k-means",
                    tau,
                    tau_bar,
                    random_state=seed,
                    n_jobs=1,
                    variant=Variant(q_function="samples"),
                    min_cases=1,
                    order=0,
                )
                learner.fit(log[:n])
                row = {"over": over, "n": n, "m": m, "tau": tau, "tau_bar": tau_bar}
                of_reps = _judged(task, _greedy(learner.q_from_reps), seed)
                yield row | _judged(task, learner.predict, seed) | {"rep_return": of_reps["return"]}


def _kbrl(settings: Settings, size: Size, seed: int) -> Iterator[Row]:
    task = PuddleWorld()
    log = task.collect(max(size.all_n), random_state=generator(seed))
    KBRL(min_cases=1).fit(log[:100])  # compile
    for n in size.all_n:
        for tau in size.widths if settings["part"] == "KBRL" else (TIMED_WIDTH,):
            learner, timed = _timed(KBRL(tau, min_cases=1), log[:n])
            row = {
                "method": "KBRL",
                "n": n,
                "tau": tau,
                "operations": _kbrl_operations(n, learner.solution_.iterations),
            }
            yield row | timed | _judged(task, learner.predict, seed)


def _times(_: Settings, size: Size, seed: int) -> Iterator[Row]:
    """The time of KBSF's fit, representative states included, on one thread, as KBRL has it: the median of three."""
    log = PuddleWorld().collect(max(size.all_n + size.long_n), random_state=generator(seed))
    KBSF(10, random_state=0, min_cases=1, order=0).fit(log[:100])  # compile
    for over, n, m in _places(size, sorted({*size.all_n, *size.long_n})):
        learner = KBSF(m, "k-means", TIMED_WIDTH, TIMED_WIDTH, random_state=seed, n_jobs=1, min_cases=1, order=0)
        repeats = [_timed(learner, log[:n])[1] for _repeat in range(3)]
        row = {"over": over, "n": n, "m": m, "operations": _kbsf_operations(n, m, learner.solution_.iterations)}
        yield row | {name: median(timed[name] for timed in repeats) for name in ("seconds", "cpu_seconds")}


def _reading(settings: Settings, size: Size, seed: int) -> Iterator[Row]:
    reading = READINGS[settings["reading"]]
    log = reading.task.collect(max(size.all_n), random_state=generator(seed), max_steps=reading.max_steps)
    for tau in size.widths:
        learner = KBRL(tau, **reading.learner, min_cases=1).fit(log)
        yield {"n": len(log), "tau": tau} | _judged(reading.task, learner.predict, seed)


def _places(size: Size, all_n: Iterable[int]) -> list[tuple[str, int, int]]:
    """Return what is varied, n and m."""
    return [("m", max(size.all_n), m) for m in size.all_m] + [("n", n, size.m) for n in all_n]


def _timed(learner: Any, log: Transitions) -> tuple[Any, dict[str, float]]:
    with timing() as timer:
        learner.fit(log)
    return learner, {"seconds": round(timer.seconds, 6), "cpu_seconds": round(timer.cpu_seconds, 6)}


def _judged(task: PuddleWorld, policy: Callable[[Any], Array], seed: int) -> dict[str, float]:
    found = task.evaluate(policy, random_state=generator(seed, 1))
    return {"return": round(found.mean, 6), "reached": round(float(found.terminated.mean()), 4)}


def _greedy(q: Callable[[Any], Floats]) -> Callable[[Any], Array]:
    return lambda states: q(states).argmax(axis=1)


def _kbsf_operations(n: int, m: int, iterations: int) -> float:
    """Multiply-adds: both kernels, the product K D, and policy iteration with one linear system an evaluation."""
    return 2.0 * n * m * N_DIMS + n * m**2 + (iterations + 2) * N_ACTIONS * m**2 + (iterations - 1) * m**3 / 3


def _kbrl_operations(n: int, iterations: int) -> float:
    """Multiply-adds: the kernel, and modified policy iteration; a row of P^a has n / |A| entries."""
    sweeps = (iterations - 1) * ROUNDS * (SWEEPS + 1)  # at most
    return float(n) ** 2 * (N_DIMS + iterations + 2 + sweeps / N_ACTIONS)


def best_kbsf(rows: list[Row], name: str = "return") -> list[Row]:
    """Return the rows of the best pair of widths, as the paper does."""
    return best_over(rows, ("tau", "tau_bar"), name)


def best_kbrl(rows: list[Row], n: int) -> list[Row]:
    """Return the rows of the best width at this n."""
    return best_over(select(rows, n=n), ("tau",), "return")


def timed_kbrl(rows: list[Row]) -> list[Row]:
    """Return the rows of KBRL's times: those that were taken alone, at one width."""
    return [row for row in select(rows, alone=True, tau=TIMED_WIDTH) if row["part"] in ("KBRL", "KBRL times")]


# The picture --------------------------------------------------------------------------------------------------------


def draw(rows: list[Row]) -> Figure:
    """Draw the paper's four panels, and its figure of the widths below them."""
    figure, panels = new_figure(3, 2, width=5.2)
    kbsf, kbrl, times = select(rows, part="KBSF"), select(rows, part="KBRL"), select(rows, part="times")
    top = max(distinct(kbrl, "n"), default=N)
    timed = timed_kbrl(rows)
    _draw_returns(panels[0, 0], select(kbsf, over="m"), "m")
    _draw_level(panels[0, 0], best_kbrl(kbrl, top), "return", f"KBRL({top})")
    _draw_times(panels[0, 1], select(times, over="m"), "m")
    _draw_level(panels[0, 1], select(timed, n=top), "cpu_seconds", f"KBRL({top})")
    _draw_returns(panels[1, 0], select(kbsf, over="n"), "n")
    curve(panels[1, 0], [row for n in distinct(kbrl, "n") for row in best_kbrl(kbrl, n)], "n", "return", "KBRL")
    _draw_times(panels[1, 1], select(times, over="n"), "n")
    curve(panels[1, 1], timed, "n", "cpu_seconds", "KBRL")
    panels[1, 1].set_xscale("log")
    _draw_widths(panels[2, 0], select(kbsf, over="m"))
    _draw_kbrl(panels[2, 1], select(kbrl, n=top), select(rows, part="reading"))
    for place, axes in enumerate(panels.flat):
        axes.set_title(f"({'abcdef'[place]}) {axes.get_title()}")
        if axes.has_data():
            axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncol=3 if place == 4 else 2)
    return figure


def _draw_returns(axes: Axes, rows: list[Row], x: str) -> None:
    for name, label, given in (
        ("return", "KBSF, Q from samples (as in the paper)", {}),
        ("rep_return", "KBSF, Q from representative states", {"color": "#56B4E9", "marker": "v", "linestyle": "--"}),
    ):
        best = [row for place in distinct(rows, x) for row in best_kbsf(select(rows, **{x: place}), name)]
        curve(axes, best, x, name, label, **given)
    axes.set(title=f"return over {x}{_fixed(rows, x)}", xlabel=WHAT[x], ylabel="mean return, best widths", ylim=RETURNS)


def _draw_times(axes: Axes, rows: list[Row], x: str) -> None:
    curve(axes, rows, x, "cpu_seconds", "KBSF")
    axes.set(
        title=f"time over {x}{_fixed(rows, x)}", xlabel=WHAT[x], ylabel="CPU seconds to find a policy", yscale="log"
    )


def _fixed(rows: list[Row], x: str) -> str:
    other = "n" if x == "m" else "m"
    return "".join(f", {other} = {value}" for value in distinct(rows, other))


def _draw_level(axes: Axes, rows: list[Row], name: str, label: str) -> None:
    """Draw a value that does not depend on x, with its interval."""
    mean, half, n_runs = interval(rows, name)
    color = STYLES["KBRL"][0]
    if n_runs == 0:
        return
    axes.axhline(mean, color=color, linewidth=1.3, label=label)
    if np.isfinite(half):
        axes.axhspan(mean - half, mean + half, color=color, alpha=0.15, linewidth=0)


def _draw_widths(axes: Axes, rows: list[Row]) -> None:
    colors, lines = dict(zip(WIDTHS, ("#009E73", "#0072B2", "#D55E00"))), dict(zip(WIDTHS, ("-", "--", ":")))
    for tau in distinct(rows, "tau"):
        for tau_bar in distinct(rows, "tau_bar"):
            style = {"color": colors[tau], "linestyle": lines[tau_bar]}
            own, label = select(rows, tau=tau, tau_bar=tau_bar), rf"$\tau$ {tau:g}, $\bar\tau$ {tau_bar:g}"
            curve(axes, own, "m", "return", label, **style)
    axes.set(title=f"KBSF at all widths{_fixed(rows, 'm')}", xlabel=WHAT["m"], ylabel="mean return", ylim=RETURNS)


def _draw_kbrl(axes: Axes, rows: list[Row], readings: list[Row]) -> None:
    """Draw KBRL's returns over tau beside the paper's, and what other readings gave, in grey."""
    paper = [PAPER_KBRL[tau] for tau in WIDTHS]
    found = [interval(select(rows, tau=tau), "return") for tau in WIDTHS]
    ours = [(mean, half if np.isfinite(half) else 0.0) for mean, half, _ in found]
    label = f"KBRL({max(distinct(rows, 'n'), default=N)}), ours"
    for shift, pairs, color, marker, text in (
        (0.12, paper, "black", "_", "KBRL(8000), the paper"),
        (-0.12, ours, STYLES["KBRL"][0], "s", label),
    ):
        places = np.arange(len(WIDTHS)) + shift
        means, halves = np.transpose(pairs)
        axes.errorbar(places, means, halves, fmt=marker, color=color, capsize=3, markersize=6, label=text)
    for name, marker in zip(distinct(readings, "reading"), "v^<>Pd*"):
        read = select(readings, reading=name)
        levels = [interval(select(read, tau=tau), "return")[0] for tau in WIDTHS]
        label = f"KBRL({read[0]['n']}), {READINGS[name].text}"
        axes.plot(range(len(WIDTHS)), levels, marker, color="#777777", markersize=4, label=label)
    axes.set(title="KBRL at all widths", xlabel=r"width $\tau$ of the kernel", ylabel="mean return")
    axes.set(xlim=(-0.5, len(WIDTHS) - 0.5), ylim=RETURNS)
    axes.set_xticks(range(len(WIDTHS)), [f"{tau:g}" for tau in WIDTHS])


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge PW1 to PW6."""
    from experiments.puddle_claims import judge  # which has its settings from here

    return judge(rows)
