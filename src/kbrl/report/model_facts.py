"""The facts of a model by itself, whatever log it is looked at with: size, kernels, settings, and how it was solved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbrl.arrays import Floats, Integers
from kbrl.mdp.deferral import Deferral
from kbrl.mdp.dynamic_programming import method_for
from kbrl.model.model import Model
from kbrl.report.lookup import what_it_keeps
from kbrl.settings import about_settings


@dataclass(frozen=True)
class Setting:
    """A setting of the fit."""

    name: str
    value: str
    is_default: bool
    meaning: str


@dataclass(frozen=True)
class HowSolved:
    """How well the reduced model was solved."""

    method: str | None  # None: a fixed number of sweeps of value iteration
    converged: bool
    iterations: int
    residual: float
    largest_error: float  # of a value, with respect to the exact solution of the reduced model
    tolerance: float


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """The facts about a model that a report shows."""

    n_transitions: int  # that it was fitted to
    counts: dict[str, int]  # the same, by action
    left_out: dict[str, int]  # actions that were taken too rarely to be recommended, and how often
    min_cases: int
    discount: float
    has_durations: bool  # the discount is over time
    scale: tuple[float, ...]  # (n_dims,)
    sample_width: float
    rep_widths: tuple[float, float]  # the smallest and the largest
    reps: Floats  # (n_reps, n_dims)
    rep_values: Floats  # (n_reps,)
    rep_policy: Integers  # (n_reps,): places of actions; -1 where none is available
    rep_cases: Integers  # (n_reps,): logged states that are nearest to each, of all actions
    knows_support: bool  # how many cases an answer rests on; models from files of format 1 may not know
    solver: HowSolved
    settings: tuple[Setting, ...]
    deferral: Deferral | None  # when it answers "as now"
    answers: tuple[str, ...]  # the labels of all answers
    flags: tuple[str, ...]  # what spoke against trusting it when it was fitted
    kept_rows: tuple[str, ...]  # what of the log it holds row by row


def facts_of_model(model: Model, rep_cases: Integers) -> ModelFacts:
    """Return the facts of a model; ``rep_cases`` are the numbers of logged states nearest to each representative."""
    sums = model.sums
    solution = model.solution if model.deferral is None else model.deferring_solution
    widths = model.basis.rep_kernel.width
    return ModelFacts(
        n_transitions=model.n_samples,
        counts=dict(zip(map(str, model.action_labels.tolist()), sums.counts.tolist())),
        left_out={str(label): n for label, n in model.left_out.items()},
        min_cases=model.min_cases,
        discount=model.discount,
        has_durations=model.basis.discount is not None,
        scale=tuple(model.coordinates.scale.tolist()),
        sample_width=float(model.basis.sample_kernel.width),
        rep_widths=(float(np.min(widths)), float(np.max(widths))),
        reps=model.reps,
        rep_values=solution.values,
        rep_policy=model.rep_policy,
        rep_cases=rep_cases,
        knows_support=not np.isnan(sums.effective_cases()).any(),
        solver=_solver(model),
        settings=tuple(_settings(model)),
        deferral=model.deferral,
        answers=tuple(map(str, model.answer_labels.tolist())),
        flags=model.flags,
        kept_rows=tuple(what_it_keeps(model)),
    )


def _solver(model: Model) -> HowSolved:
    solution = model.solution if model.deferral is None else model.deferring_solution
    solver = model.settings.solver
    method = method_for(model.mdp) if solver.method == "auto" else solver.method
    return HowSolved(
        method=method if solver.sweeps is None else None,
        converged=bool(solution.converged),
        iterations=int(solution.iterations),
        residual=float(solution.residual),
        largest_error=float(solution.residual) / (1 - model.mdp.discount),
        tolerance=float(solver.tolerance),
    )


def _settings(model: Model) -> Iterator[Setting]:
    for each in about_settings().values():
        value = each.of(model.settings)
        is_plain = value is None or isinstance(value, (str, int, float))
        yield Setting(
            each.path, _text(value), is_plain and value in (each.default, each.about.none_means), each.about.help
        )


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"array of {' x '.join(map(str, value.shape))} numbers"
    return "none" if value is None else str(value.tolist() if isinstance(value, np.ndarray) else value)
