"""Incremental KBSF on the puddle world: the same model from chunks of any size (t_m = t_v), at little extra cost.

Paper: section 5.2.1, 50 runs, 100 evenly spread representative states, transitions of a random policy.  Deviations:
states are divided by the standard deviation of a uniform state, a constant, because the first chunk, whose deviations
would be taken, is a different one for each t_m; the t_m below 1000 are ours; the time is that of learning, without
acting, which is random and the same for every t_m; it is taken at width 0.1, on one thread, in jobs of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import curve, new_figure
from experiments.rule import All, Estimate, Exact, Sampled, estimate
from experiments.study import (
    Job,
    Row,
    Settings,
    Verdict,
    best_over,
    distinct,
    generator,
    interval,
    not_run,
    select,
    shown,
    timing,
    with_interval,
)
from kbrl import KBSF, Transitions
from kbrl.learners.online import OnlineAgent
from kbrl.tasks import PuddleWorld

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Puddle world: incremental KBSF over t_m = t_v"

N = 8000
INTERVALS = (8000, 4000, 2000, 1000, 500, 100)  # iota = t_m = t_v; the first is batch KBSF, the last two are ours
PAPER_INTERVALS = (4000, 2000, 1000)
LOOK_EVERY = 1000  # transitions between two tests of the policy; or iota, where that is more
WIDTHS = (0.01, 0.1, 1.0)  # tau and tau-bar; the table's {0.01, 0.1, 0.1} is a misprint
TIMED_WIDTH = 0.1
SIDE = np.linspace(0.0, 1.0, 10)
S_BAR = np.stack(np.meshgrid(SIDE, SIDE), axis=-1).reshape(-1, 2)  # m = 100, evenly distributed
SCALING = np.full(2, 1 / np.sqrt(12.0))  # the standard deviation of a uniform state

COLORS = ("#000000", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")
SAME = 1e-9  # differences of the models up to this are rounding
SMALL = 1.5  # "a small overhead": not half as much again


@dataclass(frozen=True)
class Size:
    """How much a scale runs."""

    n_runs: dict[str, int]  # of each part
    n: int = N
    intervals: tuple[int, ...] = INTERVALS
    widths: tuple[float, ...] = WIDTHS
    look_every: int = LOOK_EVERY


SIZES = {
    "smoke": Size({"returns": 2, "times": 1}, n=400, intervals=(400, 100), widths=(0.1,), look_every=100),
    "laptop": Size({"returns": 12, "times": 8}),
    "paper": Size({"returns": 50, "times": 30}),
}


def jobs(scale: str) -> list[Job]:
    """Returns and models side by side, times one at a time."""
    return [
        Job({"part": part, "size": scale}, seed, part == "times", 2 if part == "times" else 6)
        for part, n_runs in SIZES[scale].n_runs.items()
        for seed in range(n_runs)
    ]


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Feed one log to the agent in chunks of every size."""
    size = SIZES[settings["size"]]
    log = PuddleWorld().collect(size.n, random_state=generator(seed))
    part = _returns if settings["part"] == "returns" else _times
    yield from part(size, log, seed)


def _returns(size: Size, log: Transitions, seed: int) -> Iterator[Row]:
    for tau in size.widths:
        for tau_bar in size.widths:
            batch: KBSF | None = None
            for iota in size.intervals:
                agent, seen, returns = _agent(tau, tau_bar, iota), [], []
                step = max(iota, size.look_every)
                for end in range(step, len(log) + 1, step):
                    _feed(agent, log[agent.n_seen : end], iota)
                    found = PuddleWorld().evaluate(agent.learner.predict, random_state=generator(seed, 1))
                    seen.append(end)
                    returns.append(round(found.mean, 6))
                batch = agent.learner if batch is None else batch
                row = {"iota": iota, "tau": tau, "tau_bar": tau_bar, "seen": seen, "returns": returns}
                yield row | {"return": returns[-1]} | _differences(agent.learner, batch, log)


def _times(size: Size, log: Transitions, seed: int) -> Iterator[Row]:
    """The time of all updates, with t_v = t_m and with one solution at the end: the median of five, in turns."""
    _feed(_agent(TIMED_WIDTH, TIMED_WIDTH, 100), log[:200], 100)  # compile
    cases = [(iota, t_v) for iota in size.intervals for t_v in sorted({iota, len(log)})]
    repeats: dict[tuple[int, int], list[Any]] = {case: [] for case in cases}
    for _ in range(5):
        for iota, t_v in cases:
            agent = _agent(TIMED_WIDTH, TIMED_WIDTH, iota, t_v)
            with timing() as timer:
                _feed(agent, log, iota)
            repeats[iota, t_v].append(timer)
    for (iota, t_v), timers in repeats.items():
        seconds, cpu = (median(getattr(timer, name) for timer in timers) for name in ("seconds", "cpu_seconds"))
        yield {"iota": iota, "t_v": t_v, "seconds": round(seconds, 6), "cpu_seconds": round(cpu, 6)}


def _agent(tau: float, tau_bar: float, t_m: int, t_v: int | None = None) -> OnlineAgent:
    learner = KBSF(reps=S_BAR, sample_width=tau, rep_width=tau_bar, scaling=SCALING, n_jobs=1, min_cases=1, order=0)
    return OnlineAgent(learner, 4, exploration=1.0, model_interval=t_m, value_interval=t_v)


def _feed(agent: OnlineAgent, log: Transitions, iota: int) -> None:
    """Let the agent observe the log; it updates its model after every iota transitions."""
    for start in range(0, len(log), iota):
        part = log[start : start + iota]
        agent.observe_all(part.states, part.actions, part.rewards, part.next_states, part.terminals)


def _differences(learner: KBSF, batch: KBSF, log: Transitions) -> dict[str, float]:
    """Return how far the final model is from the batch one: P-bar, r-bar, Q-bar, and decisions at the log's states."""
    (p, r), (p_batch, r_batch) = ((model.mdp_.probabilities, model.mdp_.rewards) for model in (learner, batch))
    return {
        "p_difference": float(np.abs(p - p_batch).max()),
        "r_difference": float(np.abs(r - r_batch).max()),
        "q_difference": float(np.abs(learner.rep_q_ - batch.rep_q_).max()),
        "other_decisions": float(np.mean(learner.predict(log.next_states) != batch.predict(log.next_states))),
    }


def draw(rows: list[Row]) -> Figure:
    """Draw the paper's two panels: returns over transitions for each iota, and run times."""
    figure, ((left, right),) = new_figure(1, 2, width=5.2, height=4.0)
    best = _best(rows)
    for place, iota in enumerate(reversed(distinct(best, "iota"))):
        found = [
            {"n": n, "return": value}
            for row in select(best, iota=iota)
            for n, value in zip(row["seen"], row["returns"], strict=True)
        ]
        style = {"color": COLORS[place], "marker": "osv^D*"[place], "markersize": 9 - place, "alpha": 0.8}
        curve(left, found, "n", "return", rf"$\iota$ = {iota}{' (batch)' if place == 0 else ''}", **style)
    left.set(title="(a) return, the same for all at the same n", xlabel="number of transitions", ylabel="mean return")
    left.set(ylim=(-1.5, 4.5))
    times = select(rows, part="times")
    curve(
        right, [row for row in times if row["t_v"] == row["iota"]], "iota", "cpu_seconds", r"iKBSF, $t_m = t_v = \iota$"
    )
    last = [row for row in times if row["t_v"] == max(distinct(times, "iota"))]
    style = {"color": COLORS[1], "linestyle": "--"}
    curve(right, last, "iota", "cpu_seconds", r"iKBSF, $t_m = \iota$, values once, at the end", **style)
    right.set(title="(b) time to learn", xlabel=r"$\iota$, transitions between updates", ylabel="CPU seconds")
    right.set(xscale="log", yscale="log")
    for axes in (left, right):
        if axes.has_data():
            axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncol=3 if axes is left else 1)
    return figure


def _best(rows: list[Row]) -> list[Row]:
    """Return the rows of the widths with the best final return, which is the same for every iota."""
    return best_over(select(rows, part="returns"), ("tau", "tau_bar"), "return")


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge IN1 and IN2."""
    return [_in1(select(rows, part="returns")), _in2(select(rows, part="times"))]


def _in1(rows: list[Row]) -> Verdict:
    if not {*PAPER_INTERVALS, N} <= set(distinct(rows, "iota")):
        return not_run("IN1", f"Needs {N} transitions in chunks of {PAPER_INTERVALS}, and at once.")
    best = _best(rows)
    p, r, q = (max(row[f"{name}_difference"] for row in rows) for name in "prq")
    batch = {row["seed"]: row["return"] for row in select(best, iota=N)}
    gap = max(abs(row["return"] - batch[row["seed"]]) for row in best)
    mean, half, n_runs = interval(select(best, iota=N), "return")
    others = max(row["other_decisions"] for row in rows)
    ours = f"models within {max(p, r):.0e}, returns within {gap:.4f}"
    note = (
        f"Largest differences from batch KBSF over all chunks, widths and runs: P {p:.1e}, r {r:.1e}, Q {q:.1e}; other "
        f"decisions at {100 * others:.2f} % of the sampled states. The same data give the same model, so there is no "
        f"chance in it. Return {shown(mean, half)}. Best: tau {best[0]['tau']:g}, tau-bar {best[0]['tau_bar']:g}."
    )
    parts = (
        Exact(f"P and r agree up to {SAME:g}", max(p, r) <= SAME, n_runs),
        Exact(f"returns agree up to {SAME:g}", gap <= SAME, n_runs),
    )
    return Verdict("IN1", ours, All(parts), note)


def _in2(rows: list[Row]) -> Verdict:
    if not {*PAPER_INTERVALS, N} <= set(distinct(rows, "iota")):
        return not_run("IN2", f"Needs times with {N} transitions in chunks of {PAPER_INTERVALS}.")
    batch = {row["seed"]: row["cpu_seconds"] for row in select(rows, iota=N)}
    each, once = _ratios(rows, batch, solves_each=True), _ratios(rows, batch, solves_each=False)
    ours = ", ".join(f"{each[iota].mean:.2f}" for iota in PAPER_INTERVALS) + " times"
    listed = [
        "; ".join(f"{with_interval(found)} ({iota})" for iota, found in ratios.items()) for ratios in (each, once)
    ]
    note = (
        f"CPU time over that of one batch, {1000 * float(np.mean(list(batch.values()))):.1f} ms, by iota = t_m = t_v: "
        f"{listed[0]}. Splitting alone, with the values solved once, at the end: {listed[1]}. No iota from "
        f"{min(PAPER_INTERVALS)} on may cost more than {SMALL:g} times the batch with t_v = t_m, as the paper has it: "
        "this asks for a solution with every chunk, where the batch has one. The smaller iota are ours."
    )
    parts = (Sampled(f"time over the batch's at iota = {iota}", each[iota], high=SMALL) for iota in PAPER_INTERVALS)
    return Verdict("IN2", ours, All(tuple(parts)), note)


def _ratios(rows: list[Row], batch: dict[int, float], *, solves_each: bool) -> dict[int, Estimate]:
    """Return the time over the batch's, with its interval, for each iota below the batch."""
    return {
        iota: estimate(
            row["cpu_seconds"] / batch[row["seed"]] for row in select(rows, iota=iota, t_v=iota if solves_each else N)
        )
        for iota in distinct(rows, "iota")
        if iota < N
    }
