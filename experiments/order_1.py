"""Beyond the paper: kbrl's lines and plans (order 1) on the paper's five families, with correct physics.

The data have the paper's sizes; gravity is "down".  Beside it stands the best that is known of each task: the ceiling
of ``experiments.feasibility`` for poles, the healthy steady state for HIV, 6000 steps for the helicopter.  Plans are
those of the library's defaults, but for poles and HIV, where two lengths are run and both are shown.  Nothing here
judges a claim of the paper.  The page is results/BEYOND.md.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import new_figure
from experiments.epilepsy import FOLDER, PENALTIES
from experiments.hiv_protocol import protocol
from experiments.study import Job, Row, Settings, Verdict, distinct, generator, interval, select, timing
from kbrl import KBSF, Epsilon, OnlineAgent, OnlineRun, Plan
from kbrl.checks import KbrlWarning
from kbrl.tasks import Epilepsy, Helicopter, PoleBalancing, PuddleWorld
from kbrl.tasks.hiv import HIV

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Order 1 on the paper's tasks, with correct physics"

TASKS = ("puddle", "one pole", "two poles", "three poles", "HIV", "epilepsy", "helicopter")
N_POLES = {"one pole": 1, "two poles": 2, "three poles": 3}
TESTS = {1: "paper", 2: "a", 3: "corners"}
FAST = (2.3, 3.5, 0.6, 3.0, 0.6, 5.0, 0.6, 3.0)  # half-widths of a box of starts: cart and poles move fast in it
PLANS = {"3x4": Plan(decisions=3, hold=4), "5x3": Plan(decisions=5, hold=3), "2x2": Plan(decisions=2, hold=2)}
PLANS["6x1"] = Plan(decisions=6, hold=1)
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"n": dict.fromkeys(TASKS, 2000), "m": 30, "steps": 50, "rounds": 2, "batches": 2, "runs": 1},
    "laptop": {"n": {"puddle": 8000, "one pole": 50_000, "two poles": 200_000, "three poles": 200_000}
               | {"HIV": 60_000, "epilepsy": 50_000, "helicopter": 50_000},
               "m": 1000, "steps": 3000, "rounds": 10, "batches": 4, "runs": 3},
    "paper": {"n": {"puddle": 8000, "one pole": 50_000, "two poles": 1_000_000, "three poles": 1_000_000}
              | {"HIV": 60_000, "epilepsy": 500_000, "helicopter": 50_000},
              "m": 3000, "steps": 3000, "rounds": 10, "batches": 60, "runs": 30},
}  # fmt: skip
SECONDS = {"puddle": 20, "one pole": 60, "two poles": 400, "three poles": 600, "HIV": 120, "epilepsy": 300}
HELICOPTER_M = 100  # 256 actions: with lines, each representative state keeps 256 times 400 numbers


def jobs(scale: str) -> list[Job]:
    """All tasks side by side; the helicopter and epilepsy, which are long, in ten runs at most."""
    size, found = SIZES[scale], []
    for task in TASKS:
        n_runs = min(size["runs"], 10) if task in ("helicopter", "epilepsy", "three poles") else size["runs"]
        for settings in _settings(task, scale):
            seconds = float(SECONDS.get(task, 1500)) * (1 if scale == "paper" else 0.2)
            found += [Job(settings | {"task": task, "size": scale}, seed, seconds=seconds) for seed in range(n_runs)]
    return found


def _settings(task: str, scale: str) -> list[Settings]:
    if task in N_POLES:
        # A short pole falls too fast for a decision that is held: docs/study.md.
        plans = ("3x4", "5x3") if task == "one pole" else ("3x4", "6x1")
        kinds = [{"start": start, "plan": plan} for start in ("origin", "fast") for plan in plans]
        return kinds[:1] if scale == "smoke" else kinds
    if task == "HIV":
        return [{"plan": plan} for plan in ("2x2", "3x4")]
    if task == "epilepsy":
        source = "recordings" if FOLDER in os.environ and scale != "smoke" else "substitute"
        return [{"penalty": penalty, "source": source} for penalty in PENALTIES]
    return [{}]


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Learn from random transitions as the paper's method does, and test as it is tested."""
    parts = {"HIV": _hiv, "epilepsy": _epilepsy, "helicopter": _helicopter, "puddle": _puddle}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)  # of first rounds, and of models that promise too much
        yield parts.get(settings["task"], _poles)(settings, SIZES[settings["size"]], seed)


def _learner(m: int, seed: int, plan: str | None = None, **options: Any) -> KBSF:
    given = {} if plan is None else {"plan": PLANS[plan]}
    return KBSF(m, "spread", order=1, random_state=seed, min_cases=1, n_jobs=1, **given, **options)


def _puddle(_: Settings, size: dict[str, Any], seed: int) -> Row:
    task = PuddleWorld()
    log = task.collect(size["n"]["puddle"], random_state=generator(seed))
    with timing() as timer:
        learner = _learner(min(100, size["m"]), seed).fit(log)
    found = task.evaluate(learner.predict, random_state=generator(seed, 1))
    return {"result": found.mean, "cpu_seconds": timer.cpu_seconds}


def _poles(settings: Settings, size: dict[str, Any], seed: int) -> Row:
    n_poles = N_POLES[settings["task"]]
    start: Any = "origin" if settings["start"] == "origin" else FAST[: 2 + 2 * n_poles]
    log = PoleBalancing(n_poles, start=start).collect(size["n"][settings["task"]], random_state=generator(seed))
    with timing() as timer:
        learner = _learner(size["m"], seed, settings["plan"]).fit(log)
    task = PoleBalancing(n_poles)
    found = task.evaluate(learner.predict, TESTS[n_poles], max_steps=size["steps"])
    rate, steps = task.success_rate(found), float(np.median(found.lengths))
    return {"result": rate, "rate": rate, "median_steps": steps, "cpu_seconds": timer.cpu_seconds}


def _hiv(settings: Settings, size: dict[str, Any], seed: int) -> Row:
    task, learner = HIV(), _learner(min(2000, size["m"]), seed, settings["plan"], discount=0.98)
    n_patients = size["n"]["HIV"] // (200 * size["rounds"])
    with timing() as timer:
        protocol(task, learner, n_rounds=size["rounds"], n_patients=max(1, n_patients), random_state=generator(seed))
    return {"result": task.evaluate(learner.predict, random_state=0).mean, "cpu_seconds": timer.cpu_seconds}


def _epilepsy(settings: Settings, size: dict[str, Any], seed: int) -> Row:
    recordings = os.environ[FOLDER] if settings["source"] == "recordings" else None
    task = Epilepsy(recordings, seizure_penalty=settings["penalty"])
    log = task.collect(size["n"]["epilepsy"], random_state=generator(seed))
    with timing() as timer:
        learner = _learner(size["m"], seed).fit(log)
    found = task.evaluate_fractions(learner.predict, random_state=0, max_steps=2 * size["steps"])
    seizures, pulses = float(found.seizures.mean()), float(found.pulses.mean())
    fixed = task.evaluate_fractions(task.fixed_frequency(1.0), random_state=0, max_steps=2 * size["steps"])
    one_hertz = {"seizures_at_1_hz": float(fixed.seizures.mean()), "pulses_at_1_hz": float(fixed.pulses.mean())}
    return {"result": seizures, "seizures": seizures, "pulses": pulses, "cpu_seconds": timer.cpu_seconds} | one_hertz


def _helicopter(_: Settings, size: dict[str, Any], seed: int) -> Row:
    task, batch = Helicopter(), size["n"]["helicopter"]
    learner = _learner(min(size["m"], HELICOPTER_M), seed, discount=task.discount, scaling=None)
    agent = OnlineAgent(
        learner, len(task.actions), exploration=Epsilon(1.0, 0.7, batch, 0.0), model_interval=batch,
        random_state=generator(seed, 1),
    )  # fmt: skip
    run = OnlineRun(agent, task, n_parallel=50, random_state=generator(seed, 2))
    with timing() as timer:
        record = run.steps(size["batches"] * batch)
    late = np.array(record.ended_at) > 0.8 * size["batches"] * batch
    return {"result": float(np.array(record.lengths)[late].mean()), "cpu_seconds": timer.cpu_seconds}


# The picture and the page -------------------------------------------------------------------------------------------


def groups(rows: list[Row]) -> dict[str, list[Row]]:
    """Return the runs of each task and setting, by what they are called."""
    found: dict[str, list[Row]] = {}
    for task in TASKS:
        for row in select(rows, task=task):
            about = ", ".join(f"{row[name]:g}" if name == "penalty" else str(row[name])
                              for name in ("start", "plan", "source", "penalty") if name in row)  # fmt: skip
            found.setdefault(f"{task}: {about}" if about else task, []).append(row)
    return found


def draw(rows: list[Row]) -> Figure:
    """Draw the share of the best that is known, for what is a success rate."""
    from experiments.order_1_page import CEILINGS

    figure, ((axes,),) = new_figure(1, 1, width=7.0, height=3.6)
    own = {name: group for name, group in groups(rows).items() if group[0]["task"] in CEILINGS}
    for place, group in enumerate(own.values()):
        ceiling = CEILINGS[group[0]["task"]]
        axes.plot([ceiling] * 2, [place - 0.4, place + 0.4], color="#D55E00", linewidth=2)
        axes.plot([row["rate"] for row in group], [place] * len(group), "o", color="#0072B2", alpha=0.6, markersize=4)
        axes.plot(interval(group, "rate")[0], place, "D", color="black", fillstyle="none", markersize=7)
    runs = {name: len(distinct(group, "seed")) for name, group in own.items()}
    axes.set_yticks(range(len(own)), [f"{name} ({n} run{'s' if n > 1 else ''})" for name, n in runs.items()])
    axes.set(xlim=(-0.02, 1.02), ylim=(len(own) - 0.5, -0.5), xlabel="success rate, gravity down; line: ceiling")
    return figure


def write_page(rows: list[Row]) -> None:
    """Write results/BEYOND.md."""
    from experiments.order_1_page import write

    write(groups(rows))


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge no claim of the paper."""
    return []
