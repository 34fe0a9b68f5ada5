"""The demonstration: learn the puddle world from random moves, and show what was learnt.

Collects logs, learns with KBRL, with KBSF and with KBSF from ten times the moves, compares them with the random policy,
and draws the value function with the representative states and a few trajectories.  Paper: section 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from kbrl.data.transitions import Transitions
from kbrl.files import written_beside
from kbrl.learners.kbrl import KBRL
from kbrl.learners.kbsf import KBSF
from kbrl.tasks import PuddleWorld
from kbrl.trials import confidence_interval
from kbrl.trials.policies import Policy, UniformRandom

WIDTH = 0.1  # of all kernels, in standard deviations of the states
MORE = 10  # times the moves, which KBSF learns from in less time than KBRL needs for the first


@dataclass
class Score:
    """What one method achieved over the runs."""

    method: str
    n_moves: int = 0  # that it learnt from
    returns: list[float] = field(default_factory=list)  # one mean over the test states per run
    seconds: list[float] = field(default_factory=list)  # to learn
    n_states: int = 0  # of the model
    n_bytes: int = 0

    def interval(self) -> tuple[float, float]:
        """The mean return and the half width of its 99 % interval."""
        return confidence_interval(self.returns)


def run(
    n_transitions: int, n_reps: int, n_runs: int, seed: int, step: Callable[[str], None]
) -> tuple[list[Score], KBSF]:
    """Learn and evaluate in every run; ``step`` is told what is going on.  Returns the scores and the last KBSF."""
    task = PuddleWorld()
    many = MORE * n_transitions
    scores = [Score("random moves"), Score("KBRL", n_transitions), Score("KBSF", n_transitions), Score("KBSF", many)]
    _warm_up(task)
    for number in range(n_runs):
        rng = np.random.default_rng([seed, number])
        _record(scores[0], task, UniformRandom(range(4), rng), 0.0, None, seed + number)
        log = task.collect(many, random_state=rng)
        exact = KBRL(sample_width=WIDTH, discount=task.discount, min_cases=1)
        small = KBSF(n_reps, sample_width=WIDTH, rep_width=WIDTH, discount=task.discount, random_state=rng, min_cases=1)
        learners: tuple[KBRL | KBSF, ...] = (exact, small, small)
        for score, learner in zip(scores[1:], learners, strict=True):
            step(f"run {number + 1}: {score.method} on {score.n_moves} moves")
            _, seconds = _timed(learner, log[: score.n_moves])
            _record(score, task, learner.predict, seconds, learner.mdp_, seed + number)
    return scores, small


def draw(model: KBSF, path: Path, seed: int = 0) -> None:
    """Draw the value function, the representative states, the puddles and a few trajectories."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    task = PuddleWorld()
    figure = Figure(figsize=(8.2, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    side = np.linspace(0.0, 1.0, 151)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    image = axes.pcolormesh(side, side, model.values(grid).reshape(151, 151), cmap="YlGn", shading="gouraud")
    figure.colorbar(image, ax=axes, label="value of a state (discounted reward to come)")
    depths = task.depths(grid).reshape(151, 151)
    axes.contourf(side, side, depths, levels=[1e-9, 1.0], colors=["tab:blue"], alpha=0.35)
    axes.plot(*model.reps_.T, "k.", markersize=4, label=f"{len(model.reps_)} representative states")
    _draw_trajectories(axes, task, model, seed)
    axes.plot([0.9, 1.0], [1.0, 0.9], color="tab:red", linewidth=3, label="goal: the corner beyond")
    axes.fill([], [], color="tab:blue", alpha=0.35, label="puddles")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="x", ylabel="y")
    axes.set_title(f"Puddle world, learnt by KBSF from {model.n_samples_} random moves")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    with written_beside(path) as beside:
        figure.savefig(beside, dpi=130)


def _draw_trajectories(axes: Any, task: PuddleWorld, model: KBSF, seed: int) -> None:
    starts = np.array([[0.1, 0.3], [0.3, 0.5], [0.1, 0.9], [0.3, 1.0]])
    log = task.evaluate(model.predict, starts, random_state=seed, record=True).log
    assert log is not None
    for episode in range(len(starts)):
        rows = np.flatnonzero(log.episodes == episode)
        track = np.concatenate([log.states[rows], log.next_states[rows[-1:]]])
        label = "trajectories of the learnt policy" if episode == 0 else None
        axes.plot(*track.T, color="tab:orange", linewidth=2, label=label)
        axes.plot(*track[0], "o", color="tab:orange", markeredgecolor="black")


def _warm_up(task: PuddleWorld) -> None:
    """Compile before anything is timed."""
    log = task.collect(50, random_state=0)
    task.evaluate(KBSF(2, min_cases=1, random_state=0).fit(log).predict, 1, random_state=0)
    KBRL(min_cases=1).fit(log)


def _timed(learner: Any, log: Transitions) -> tuple[Any, float]:
    start = perf_counter()
    learner.fit(log)
    return learner, perf_counter() - start


def _record(score: Score, task: PuddleWorld, policy: Policy, seconds: float, mdp: Any, seed: int) -> None:
    score.returns.append(task.evaluate(policy, random_state=seed).mean)
    score.seconds.append(seconds)
    if mdp is not None:
        stacked = mdp.stacked
        arrays = (stacked,) if isinstance(stacked, np.ndarray) else (stacked.data, stacked.indices, stacked.indptr)
        score.n_states, score.n_bytes = mdp.n_states, sum(array.nbytes for array in arrays) + mdp.rewards.nbytes
