"""The learning table: kbrl's orders 0 and 1 against fitted Q iteration and LSPI, by the return in the environment.

Not of the paper.  Every method learns from the same log of 20 000 random steps and is tested in the same 20 episodes;
seeds are fixed beforehand.  Time is that of one fit in CPU seconds on one thread, choosing settings included, after a
fit to a few rows that compiles what has to be compiled.  Logs are read from a file where ``kbrl fit`` would do so.
The settings of the rivals were fixed before the run: those of fitted Q are the paper's, with trees that are refreshed.
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
N_STEPS, N_EPISODES = 20_000, 20
DISCOUNT = 0.99
LSPI_REPS = 200
# The best of 0.02, 0.1, 0.3 and 1 on one other log of each task, of seed 1000.
LSPI_WIDTHS = {"CartPole": 1.0, "Pendulum": 0.02, "MountainCar": 0.3, "Acrobot": 1.0, "NoisyCartPole": 1.0}
LSPI_WIDTHS |= {"Inventory": 0.02, "Puddle": 0.02}
FEW_ROWS = 600  # to compile with


@dataclass(frozen=True)
class Size:
    """How much a scale runs."""

    n_seeds: int
    tasks: tuple[str, ...] = tuple(TASKS)
    n_steps: int = N_STEPS
    n_episodes: int = N_EPISODES
    n_iterations: int = 50
    n_reps: int = 1000


SIZES = {
    "smoke": Size(1, ("CartPole", "Inventory"), n_steps=800, n_episodes=2, n_iterations=3, n_reps=50),
    "laptop": Size(3),
    "paper": Size(10),
}


def jobs(scale: str) -> list[Job]:
    """One job a log, seed by seed, so that an interrupted study has something of every task."""
    size = SIZES[scale]
    return [Job({"task": task, "size": scale}, seed) for seed in range(size.n_seeds) for task in size.tasks]


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
    options: dict[str, Any] = {"n_iterations": lesson.size.n_iterations, "n_trees": 30, "min_split": 20, "n_jobs": 1}
    return Learnt(FittedQ(**options, discount=DISCOUNT, random_state=0).fit(lesson.log).predict)


def _lspi(lesson: Lesson) -> Learnt:
    learner = LSPI(LSPI_REPS, width=LSPI_WIDTHS[lesson.task], discount=DISCOUNT, random_state=0, n_jobs=1)
    return Learnt(learner.fit(lesson.log).predict)


def _kbsf(**options: Any) -> KBSF:
    return KBSF(discount=DISCOUNT, random_state=0, n_jobs=1, **options)


METHODS: dict[str, Learn] = {
    "order 0": _order_0,
    "kbrl fit": _automatic,
    "order 1": _order_1,
    "fitted Q": _fitted_q,
    "LSPI": _lspi,
}


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Let every method learn from one log, and test what it learnt."""
    size, pair = SIZES[settings["size"]], TASKS[settings["task"]]
    log = pair.logged().collect(size.n_steps, random_state=generator(seed))
    rng = generator(seed, 2)
    at_random = _tested(settings, seed, lambda states: rng.integers(log.n_actions, size=len(states)))
    yield {"method": "random", "return": at_random}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        few = _lesson(settings["task"], log[:FEW_ROWS], Path(folder) / "few.parquet", SIZES["smoke"])
        whole = _lesson(settings["task"], log, Path(folder) / "log.parquet", size)
        for method, learn in METHODS.items():
            learn(few)  # compiles
            with timing() as timer:
                learnt = learn(whole)
            found = {"return": _tested(settings, seed, learnt.predict), "cpu_seconds": round(timer.cpu_seconds, 3)}
            yield {"method": method, "chosen": learnt.chosen} | found


def _lesson(task: str, log: Transitions, path: Path, size: Size) -> Lesson:
    write_log(log, path)
    return Lesson(task, log, path, size)


def _tested(settings: Settings, seed: int, predict: Callable[[Any], Any]) -> float:
    """Return the mean return over the episodes, the same ones for every method of a seed."""
    n_episodes = SIZES[settings["size"]].n_episodes
    found = TASKS[settings["task"]].tested().evaluate(predict, n_episodes, random_state=generator(seed, 1))
    return round(float(np.mean(found.returns)), 6)


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge no claim of the paper."""
    return []


def write_page(rows: list[Row]) -> None:
    """Write the page of the docs; it can be made again from the rows at any time."""
    with written_beside(PAGE) as beside:
        Path(beside).write_text(page(rows), encoding="utf-8")
