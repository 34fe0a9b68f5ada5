"""The facts of a model by itself, whatever log it is looked at with: size, kernels, settings, and how it was solved."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbrl.arrays import Floats, Integers
from kbrl.learners.kbsf import KBSF
from kbrl.mdp.dynamic_programming import method_for

MEANINGS = {
    "n_reps": "how many representative states to choose",
    "reps": "how they are chosen, or which they are",
    "sample_width": "width of the kernel around logged states",
    "rep_width": "width of the kernel around representative states",
    "sample_neighbors": "how many nearest logged states count",
    "rep_neighbors": "how many nearest representative states count",
    "discount": "what a reward is worth one step later",
    "scaling": "what each state variable is divided by",
    "random_state": "seed of the random choices",
    "profile": "shape of the kernels",
    "norm": "how distances are measured; 2: Euclidean",
    "cover_distance": "how far apart representative states of a cover are",
    "grow_distance": "distance from which a state becomes a new representative state",
    "grow_below": "kernel value below which a state becomes one",
    "max_reps": "the largest number of representative states that growth may reach",
    "terminals": "whether the end of an episode ends it",
    "aggregation": "soft: KBSF; hard: each state counts as its nearest representative state",
    "neighborhoods": "whether neighbours are counted in all data or in each chunk",
    "q_function": "whether answers come from representative states or from samples",
    "solver": "how the small model is solved",
    "tolerance": "how exactly it is solved",
    "sweeps": "number of applications of the Bellman operator, if it is not solved to the end",
    "min_cases": "how often an action must have been taken to be recommended; none: once",
    "n_jobs": "number of threads; none: one per core",
}


@dataclass(frozen=True)
class Setting:
    """A setting of the learner."""

    name: str
    value: str
    is_default: bool
    meaning: str


@dataclass(frozen=True)
class Solver:
    """How well the reduced model was solved."""

    method: str | None  # None: a fixed number of sweeps of value iteration
    converged: bool
    iterations: int
    residual: float
    largest_error: float  # of a value, with respect to the exact solution of the reduced model
    tolerance: float


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """What is said of a model."""

    n_transitions: int  # that it was fitted to
    counts: dict[str, int]  # the same, by action
    left_out: dict[str, int]  # actions that were taken too rarely to be recommended, and how often
    min_cases: int
    discount: float
    scale: tuple[float, ...]  # (n_dims,)
    sample_width: float
    rep_widths: tuple[float, float]  # the smallest and the largest
    reps: Floats  # (n_reps, n_dims)
    rep_values: Floats  # (n_reps,)
    rep_policy: Integers  # (n_reps,): places of actions; -1 where none is available
    rep_cases: Integers  # (n_reps,): logged states that are nearest to each, of all actions
    knows_support: bool  # whether cases were counted; models from files of format 1 did not
    solver: Solver
    settings: tuple[Setting, ...]


def facts_of_model(model: KBSF) -> ModelFacts:
    """Return the facts of a fitted model."""
    sums, solution = model.statistics_, model.solution_
    widths = sums.basis.rep_kernel.width
    return ModelFacts(
        n_transitions=model.n_samples_,
        counts=dict(zip(map(str, model.action_labels_.tolist()), sums.counts.tolist())),
        left_out={str(label): n for label, n in model.left_out_.items()},
        min_cases=model.min_cases or 1,
        discount=model.mdp_.discount,
        scale=tuple(model.scale_.tolist()),
        sample_width=float(sums.basis.sample_kernel.width),
        rep_widths=(float(np.min(widths)), float(np.max(widths))),
        reps=model.reps_,
        rep_values=solution.values,
        rep_policy=solution.policy,
        rep_cases=sums.cells.cases.sum(axis=0),
        knows_support=sums.cells.is_known,
        solver=_solver(model),
        settings=tuple(_settings(model)),
    )


def _solver(model: KBSF) -> Solver:
    solution = model.solution_
    method = method_for(model.mdp_) if model.solver == "auto" else model.solver
    return Solver(
        method=method if model.sweeps is None else None,
        converged=bool(solution.converged),
        iterations=int(solution.iterations),
        residual=float(solution.residual),
        largest_error=float(solution.residual) / (1 - model.mdp_.discount),
        tolerance=float(model.tolerance),
    )


def _settings(model: KBSF) -> list[Setting]:
    defaults = inspect.signature(type(model).__init__).parameters
    return [
        Setting(name, _text(value), _is_plain(value) and value == defaults[name].default, MEANINGS.get(name, ""))
        for name, value in model.get_params().items()
    ]


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"array of {' x '.join(map(str, value.shape))} numbers"
    return "none" if value is None else str(value.tolist() if isinstance(value, np.ndarray) else value)
