"""Rivals at their strongest, and in the paper's form: settings searched by one budget, and times of both forms.

KBSF and each rival have as many settings.  All settings learn from SEARCH logs and from judged ones, which are others;
the setting that is best on the search logs is judged on the judged logs.  Times are of one fit each to the same log:
FQIT with cuts kept after iteration 10 and leaves found once, its fastest form here, and with new trees at every
iteration; the paper keeps the cuts, and does not say how it finds the leaves, so its form lies between these two.
The page is results/RIVALS.md; nothing here judges a claim.  The helicopter has a search of its own (``helicopter``).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import STYLES, new_figure
from experiments.epilepsy import FOLDER
from experiments.study import Job, Row, Settings, Verdict, distinct, generator, interval, select, timing
from kbrl import KBSF, LSPI, FittedQ, Solver, Transitions
from kbrl.checks import KbrlWarning
from kbrl.tasks import Epilepsy, PoleBalancing
from kbrl.tasks.hiv import HIV
from kbrl.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Rivals at their strongest, and times of both forms of fitted Q"

FIRST_JUDGED = 100  # seeds of judged logs; those of search logs are smaller
PENALTY = 20.0  # of a seizure
TASKS = ("one pole", "HIV", "epilepsy")
METHODS = {"one pole": ("KBSF", "LSPI"), "HIV": ("KBSF", "FQIT"), "epilepsy": ("KBSF", "FQIT", "LSPI")}
BUDGET = 6  # settings of each method
SETTINGS: dict[tuple[str, str], list[Settings]] = {
    ("one pole", "KBSF"): [{"n_reps": m, "rep_width": width} for m in (30, 150) for width in (0.01, 0.1, 1.0)],
    ("one pole", "LSPI"): [
        {"n_reps": m, "width": width} | more
        for m, width, more in (
            (30, 1.0, {}), (70, 1.0, {}), (150, 1.0, {}), (70, 0.3, {}), (30, 0.1, {}),
            (30, 0.1, {"features": "raw", "ridge": 0}),
        )
    ],
    ("HIV", "KBSF"): [{"n_reps": m, "rep_width": width} for m in (2000, 10_000) for width in (0.1, 0.3, 1.0)],
    ("HIV", "FQIT"): [
        {"min_split": split, "per_action": each} for split in (5, 10, 50) for each in (True, False)
    ],
    ("epilepsy", "KBSF"): [{"rep_width": width, "scaling": scaling} for width in (0.01, 0.1, 1.0)
                           for scaling in ("std", None)],
    ("epilepsy", "FQIT"): [
        {"min_split": split, "per_action": each} for split in (20, 60, 200) for each in (True, False)
    ],
    ("epilepsy", "LSPI"): [{"width": width, "features": kind} | ({"ridge": 0} if kind == "raw" else {})
                           for width in (0.1, 0.3, 1.0) for kind in ("raw", "normalised")],
}  # fmt: skip
FORMS: dict[str, dict[str, Any]] = {"leaves found once": {}, "new trees": {"freeze_after": None}}
# The claims' FQIT and KBSF: which min_split, how many times faster KBSF is in the paper.
TIMED = {"HIV": ("HI3", 50, 20.0), "epilepsy": ("EP3", 20, 100.0), "three poles": ("TP3", 1000, 3.9)}
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"n": {"one pole": 1000, "HIV": 1000, "epilepsy": 1000, "three poles": 1000}, "m": 50, "steps": 100}
    | {"search": 1, "judged": 1, "times": 1, "few": {"n_trees": 2, "n_iterations": 12}},
    "laptop": {"n": {"one pole": 50_000, "HIV": 60_000, "epilepsy": 50_000, "three poles": 100_000}, "m": 5000}
    | {"steps": 20_000, "search": 2, "judged": 4, "times": 1, "few": {}},
    "paper": {"n": {"one pole": 50_000, "HIV": 60_000, "epilepsy": 500_000, "three poles": 1_000_000}, "m": 50_000}
    | {"steps": 100_000, "search": 3, "judged": 10, "times": 3, "few": {}},
}
SECONDS = {"KBSF": 15, "LSPI": 30, "FQIT": 120}


def jobs(scale: str) -> list[Job]:
    """All settings of all methods on search logs and on judged ones, side by side; times alone."""
    size, found = SIZES[scale], []
    for (task, method), settings in SETTINGS.items():
        for place in range(BUDGET if scale != "smoke" else 1):
            about = {"part": "search", "task": task, "method": method, "setting": settings[place], "size": scale}
            seeds = [*range(size["search"]), *(FIRST_JUDGED + run for run in range(size["judged"]))]
            found += [Job(about, seed, seconds=SECONDS[method]) for seed in seeds]
    for task in TIMED:
        about = {"part": "times", "task": task, "size": scale}
        found += [
            Job(about, seed, alone=True, seconds=1200 if scale == "paper" else 200) for seed in range(size["times"])
        ]
    return found


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Fit one setting, or all forms for their times, to a log of random transitions."""
    size, task = SIZES[settings["size"]], _task(settings["task"], settings["size"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        log = task.collect(size["n"][settings["task"]], random_state=generator(seed))
        if settings["part"] == "search":
            learner = _learner(settings["task"], settings["method"], settings["setting"], size, seed)
            yield {"is_judged": seed >= FIRST_JUDGED} | _timed(learner, log) | _tested(task, learner, size)
            return
        for name, learner in _forms(settings["task"], size, seed).items():
            learner.fit(log[:500])  # compile
            yield {"form": name} | _timed(learner, log)


def _task(name: str, scale: str) -> Task:
    if name == "HIV":
        return HIV()
    if name == "epilepsy":
        return Epilepsy(None if scale == "smoke" else os.environ.get(FOLDER), seizure_penalty=PENALTY)
    return PoleBalancing(1 if name == "one pole" else 3, gravity="up")


def _learner(task: str, method: str, setting: Settings, size: dict[str, Any], seed: int) -> Any:
    discount = 0.98 if task == "HIV" else 0.99
    common: dict[str, Any] = {"discount": discount, "random_state": seed, "min_cases": 1}
    if method == "FQIT":
        return FittedQ(n_jobs=1, **common, **size["few"], **setting)
    if method == "LSPI":
        sparse = {"neighbors": 6, "n_reps": 50} if task == "epilepsy" else {}
        return LSPI(max_iterations=30, **common, **sparse, **setting)
    of_task: dict[str, dict[str, Any]] = {
        "one pole": {"solver": Solver(method="policy iteration")},
        "HIV": {"reps": "random", "sample_neighbors": 2, "rep_neighbors": 3},
        "epilepsy": {"n_reps": size["m"], "sample_neighbors": 6, "rep_neighbors": 6},
        "three poles": {"n_reps": 200, "sample_width": 100.0, "sample_neighbors": 50, "rep_neighbors": 10},
    }
    return KBSF(n_jobs=1, order=0, **common, **({"sample_width": 1.0} | of_task[task] | setting))


def _forms(task: str, size: dict[str, Any], seed: int) -> dict[str, Any]:
    own = {"n_reps": 10_000, "rep_width": 1.0} if task == "HIV" else {"rep_width": 1.0}
    found = {"KBSF": _learner(task, "KBSF", own, size, seed)}
    for name, form in FORMS.items():
        found[f"FQIT, {name}"] = _learner(task, "FQIT", {"min_split": TIMED[task][1]} | form, size, seed)
    return found


def _timed(learner: Any, log: Transitions) -> Row:
    with timing() as timer:
        learner.fit(log)
    return {"seconds": round(timer.seconds, 3), "cpu_seconds": round(timer.cpu_seconds, 3)}


def _tested(task: Task, learner: Any, size: dict[str, Any]) -> Row:
    """Return what a method earns; of epilepsy the cost per decision, below zero."""
    if isinstance(task, Epilepsy):
        found = task.evaluate_fractions(learner.policy(), random_state=0, max_steps=size["steps"])
        seizures, pulses = float(found.seizures.mean()), float(found.pulses.mean())
        return {"result": -PENALTY * seizures - pulses, "seizures": seizures, "pulses": pulses}
    evaluation = task.evaluate(learner.predict, random_state=0)
    return {"result": task.success_rate(evaluation) if isinstance(task, PoleBalancing) else evaluation.mean}


# The picture and the page -------------------------------------------------------------------------------------------


def chosen(rows: list[Row], task: str, method: str) -> tuple[Settings, list[Row]] | None:
    """Return the setting that is best on the search logs, and its rows on the judged logs."""
    own = select(rows, part="search", task=task, method=method)
    found = [(setting, select(own, setting=setting)) for setting in SETTINGS[task, method]]
    tried = [(setting, group) for setting, group in found if select(group, is_judged=False)]
    if not tried:
        return None
    best, group = max(tried, key=lambda entry: interval(select(entry[1], is_judged=False), "result")[0])
    return best, select(group, is_judged=True)


def draw(rows: list[Row]) -> Figure | None:
    """Draw the results of every setting on judged logs, and the one that the search chooses; None before a search."""
    if not select(rows, part="search"):
        return None
    figure, panels = new_figure(1, len(TASKS), width=4.2, height=3.4)
    for axes, task in zip(panels[0], TASKS):
        for place, method in enumerate(METHODS[task]):
            color, marker = STYLES[method]
            own = select(rows, part="search", task=task, method=method, is_judged=True)
            axes.plot([place] * len(own), [row["result"] for row in own], marker, color=color, alpha=0.3, markersize=4)
            best = chosen(rows, task, method)
            if best and best[1]:
                mean = float(np.mean([row["result"] for row in best[1]]))
                axes.plot([place - 0.3, place + 0.3], [mean, mean], color="black", linewidth=2)
        axes.set_xticks(range(len(METHODS[task])), METHODS[task])
        axes.set(title=task, ylabel="result; bar: chosen by the search", xlim=(-0.6, len(METHODS[task]) - 0.4))
    return figure


def ratios(rows: list[Row]) -> dict[str, dict[str, list[float]]]:
    """Return, for each timed task and form of FQIT, its CPU time over KBSF's, run by run."""
    found: dict[str, dict[str, list[float]]] = {}
    for task in TIMED:
        own = select(rows, part="times", task=task)
        for seed in distinct(own, "seed"):
            times = {row["form"]: row["cpu_seconds"] for row in select(own, seed=seed)}
            for form in FORMS:
                ratio = times[f"FQIT, {form}"] / times["KBSF"]
                found.setdefault(task, {}).setdefault(form, []).append(ratio)
    return found


def write_page(rows: list[Row]) -> None:
    """Write results/RIVALS.md."""
    from experiments.rivals_page import write

    write(rows)


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge no claim of the paper."""
    return []
