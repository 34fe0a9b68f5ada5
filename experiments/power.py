"""The learning table: kbrl's orders 0 and 1 against fitted Q iteration and LSPI, by the return in the environment.

Not of the paper.  Every method learns from the same log and is tested in the same 20 episodes; seeds are fixed
beforehand.  Time is that of one fit in CPU seconds on one thread, choosing settings included, after a
fit to a few rows that compiles what has to be compiled.  Logs are read from a file where ``kbrl fit`` would do so.
The settings of the rivals were fixed before the run: each is the best of four on one other log (`power_search`).
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.power_page import draw, page
from experiments.power_tasks import TASKS
from experiments.study import Job, Row, Settings, Verdict, generator, timing
from kbrl import KBSF, LSPI, FittedQ, Transitions, fit_automatically, open_log
from kbrl.checks import KbrlWarning
from kbrl.files import written_beside
from kbrl.logs.writing import write_log

__all__ = ["TITLE", "draw", "jobs", "measure", "verdicts", "write_page"]  # what the command needs of a figure's file

TITLE = "Learning table: returns and times on public tasks"
PAGE = Path(__file__).parents[1] / "docs" / "power.md"
N_EPISODES = 20
DISCOUNT = 0.99
LSPI_REPS = 200
# Each the best of four on one other log of the task, of seed 1000: see power_search.  The lander was not searched.
LSPI_WIDTHS = {"CartPole": 1.0, "Pendulum": 0.02, "MountainCar": 0.3, "Acrobot": 1.0, "NoisyCartPole": 1.0}
LSPI_WIDTHS |= {"Inventory": 0.02, "Puddle": 0.02, "HabitCartPole": 1.0, "Lander": 0.3, "Glucose": 0.02}
_MIN_SPLITS = {"CartPole": 5, "Pendulum": 5, "MountainCar": 5, "Acrobot": 20, "NoisyCartPole": 50, "Inventory": 5}
_MIN_SPLITS |= {"Puddle": 20, "HabitCartPole": 5, "Lander": 20, "Glucose": 5}
_ONE_ENSEMBLE = ("Acrobot", "Puddle")
TREES = {task: {"min_split": least, "per_action": task not in _ONE_ENSEMBLE} for task, least in _MIN_SPLITS.items()}
FEW_ROWS = 600  # to compile with


@dataclass(frozen=True)
class Size:
    """How much a scale runs."""

    n_seeds: int
    tasks: tuple[str, ...] = tuple(TASKS)
    n_steps: int | None = None  # None: those of the task
    n_episodes: int = N_EPISODES
    n_iterations: int = 50
    n_reps: int = 1000


SIZES = {
    "smoke": Size(1, ("CartPole", "Inventory"), n_steps=800, n_episodes=2, n_iterations=3, n_reps=50),
    "laptop": Size(3),
    "paper": Size(10),
}


def jobs(scale: str) -> list[Job]:
    """Two jobs a log, seed by seed, so that an interrupted study has something of every task."""
    size = SIZES[scale]
    pairs = [(task, learners) for task in size.tasks for learners in LEARNERS]
    return [
        Job({"task": task, "size": scale, "learners": learners}, seed)
        for seed in range(size.n_seeds)
        for task, learners in pairs
    ]


@dataclass(frozen=True)
class Learnt:
    """A policy, and what is to be told of how it came about."""

    predict: Callable[[Any], Any]
    chosen: str = ""


@dataclass(frozen=True)
class Lesson:
    """What a method learns from, and how much effort it may make."""

    task: str
    log: Transitions
    path: Path  # the same log in a file
    size: Size


Learn = Callable[[Lesson], Learnt]


def _order_0(lesson: Lesson) -> Learnt:
    found = fit_automatically(_kbsf(), open_log(lesson.path), choose=("n_reps", "sample_width", "rep_width"))
    model = found.model
    return Learnt(model.predict, f"m {model.n_reps}, widths {model.sample_width:.2g}, {model.rep_width:.2g}")


def _automatic(lesson: Lesson) -> Learnt:
    found = fit_automatically(_kbsf(), open_log(lesson.path))
    return Learnt(found.model.predict, found.choice.chosen.name if found.choice else "no rehearsal")


def _order_1(lesson: Lesson) -> Learnt:
    return Learnt(_kbsf(order=1, n_reps=lesson.size.n_reps, reps="spread").fit(lesson.log).predict)


def _fitted_q(lesson: Lesson) -> Learnt:
    return Learnt(trees(lesson.size.n_iterations, **TREES[lesson.task]).fit(lesson.log).predict)


def trees(n_iterations: int, n_trees: int = 30, **options: Any) -> FittedQ:
    """Return fitted Q iteration, with the paper's number of trees."""
    return FittedQ(n_iterations, n_trees, discount=DISCOUNT, random_state=0, n_jobs=1, **options)


def _lspi(lesson: Lesson) -> Learnt:
    return Learnt(least_squares(LSPI_WIDTHS[lesson.task]).fit(lesson.log).predict)


def least_squares(width: float) -> LSPI:
    """Return LSPI with normalised kernels around 200 representative states."""
    return LSPI(LSPI_REPS, width=width, discount=DISCOUNT, random_state=0, n_jobs=1)


def _kbsf(**options: Any) -> KBSF:
    return KBSF(discount=DISCOUNT, random_state=0, n_jobs=1, **options)


METHODS: dict[str, Learn] = {
    "order 0": _order_0,
    "kbrl fit": _automatic,
    "order 1": _order_1,
    "fitted Q": _fitted_q,
    "LSPI": _lspi,
}


LEARNERS = {"kbrl": ("order 0", "kbrl fit", "order 1"), "rivals": ("fitted Q", "LSPI")}


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Let methods learn from one log, and test what they learnt; with the rivals, what those did who are logged."""
    size, pair = SIZES[settings["size"]], TASKS[settings["task"]]
    log = pair.log(size.n_steps or pair.n_steps, seed)
    if settings["learners"] == "rivals":
        rng = generator(seed, 2)
        at_random = lambda states: rng.integers(log.n_actions, size=len(states))  # noqa: E731
        yield {"method": "as logged", "return": _tested(settings, seed, pair.behaviour(seed + 1000) or at_random)}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        few = _lesson(settings["task"], log[:FEW_ROWS], Path(folder) / "few.parquet", SIZES["smoke"])
        whole = _lesson(settings["task"], log, Path(folder) / "log.parquet", size)
        for method in LEARNERS[settings["learners"]]:
            METHODS[method](few)  # compiles
            with timing() as timer:
                learnt = METHODS[method](whole)
            found = {"return": _tested(settings, seed, learnt.predict), "cpu_seconds": round(timer.cpu_seconds, 3)}
            yield {"method": method, "chosen": learnt.chosen} | found


def _lesson(task: str, log: Transitions, path: Path, size: Size) -> Lesson:
    write_log(log, path)
    return Lesson(task, log, path, size)


def _tested(settings: Settings, seed: int, predict: Callable[[Any], Any]) -> float:
    return tested(settings["task"], SIZES[settings["size"]].n_episodes, seed, predict)


def tested(task: str, n_episodes: int, seed: int, predict: Callable[[Any], Any]) -> float:
    """Return the mean return over the episodes, the same ones for every method of a seed."""
    found = TASKS[task].tested().evaluate(predict, n_episodes, random_state=generator(seed, 1))
    return round(float(np.mean(found.returns)), 6)


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge no claim of the paper."""
    return []


def write_page(rows: list[Row]) -> None:
    """Write the page of the docs; it can be made again from the rows at any time."""
    with written_beside(PAGE) as beside:
        Path(beside).write_text(page(rows), encoding="utf-8")
