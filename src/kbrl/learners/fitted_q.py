"""Fitted Q iteration with extra-trees (Ernst, Geurts and Wehenkel 2005), a rival of KBSF.

Each iteration regresses r + discount max_a Q(s', a) on (s, a); the first one, r.  From iteration ``freeze_after`` on
the trees keep their cuts, and an iteration only renews the means in their leaves: the leaves that hold the states and
next states are found once.  Needs scikit-learn, in the extra ``trees``.
Paper: section 4.3.3 and appendix B.2 (FQIT).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats, Integers
from kbrl.checks import as_generator, in_unit_interval, one_of, whole
from kbrl.data.scaling import Coordinates, coordinates
from kbrl.data.transitions import Transitions, as_log, refuse_allowed, refuse_durations
from kbrl.learners.forest import Forest, grow
from kbrl.learners.learner import Learner, say_if_rare
from kbrl.model.reduced_model import often_taken
from kbrl.settings import TERMINALS, cases_needed
from kbrl.threads import number_of_jobs

_FARTHEST = 1e30  # inputs of trees are clipped to it: they have single precision
_GROWTH = 1e6  # a regressor that exceeds the largest possible value by this factor is stopped


@dataclass(eq=False, repr=False)
class FittedQ(Learner):
    """Fitted Q iteration with extra-trees, or with any regressor; needs scikit-learn.

    n_iterations, n_trees: 50 and 30 in the paper.
    min_split: nodes with fewer transitions are not cut, eta_min.
    candidate_cuts: at each node, one random cut is tried for each of this many variables; None: all.
    freeze_after: the iteration after which the cuts no longer change; None: new trees at every iteration.
    per_action: one ensemble per action; otherwise one for all, with one more input for each possible action.
    regressor: a scikit-learn regressor that is fitted at every iteration instead of trees; nothing is frozen then.
    discount, random_state, terminals, n_jobs: as for KBSF.
    scaling: as for KBSF; only regressors depend on it.
    min_cases: as for KBSF: actions that were taken fewer times are left out; None: 5.

    ``fit(log)`` takes `Transitions`.  ``predict(states)`` and ``q_values(states)`` answer for states, (n_states,
    n_dims), as KBSF does.  The cuts that are kept will serve other targets, so a node is cut even if its targets are
    still constant: there, the cut is the one that best separates the states.

    In state 0, "left" pays 1 and stays there; in state 1, "right" does.  Of two steps, with a discount of 0.9, the
    first pays 1 or 0 and the second 1.

    >>> from kbrl import FittedQ, Transitions
    >>> log = Transitions(
    ...     states=[[0.0], [0.0], [1.0], [1.0]],
    ...     actions=["left", "right", "left", "right"],
    ...     rewards=[1.0, 0.0, 0.0, 1.0],
    ...     next_states=[[0.0], [1.0], [0.0], [1.0]],
    ... )
    >>> model = FittedQ(n_iterations=2, n_trees=5, min_split=2, discount=0.9, min_cases=1, random_state=0).fit(log)
    >>> model.q_values([[0.0], [1.0]]).round(2).tolist()
    [[1.9, 0.9], [0.9, 1.9]]
    """

    n_iterations: int = 50
    n_trees: int = 30
    min_split: int = 10
    candidate_cuts: int | None = None
    freeze_after: int | None = 10
    discount: float = 0.99
    random_state: Any = None
    _: KW_ONLY
    per_action: bool = True
    regressor: Any = None
    scaling: Any = "std"
    terminals: str = "absorb"
    min_cases: int | None = None
    n_jobs: int | None = None

    def fit(self, log: Transitions) -> FittedQ:
        """Learn from transitions, all of which are held in memory."""
        self._check_parameters()
        log = as_log(log)
        refuse_allowed(log, "FittedQ")
        refuse_durations(log, "FittedQ")
        units = coordinates(log.states, self.scaling, source=log.source)
        continues = np.flatnonzero(~log.terminals) if self.terminals == "absorb" else np.arange(len(log))
        inputs, parts = self._parts(log, units, continues)
        next_values = np.zeros(len(continues))
        largest = float(np.abs(log.rewards).max() / (1.0 - self.discount))
        for iteration in range(1, self.n_iterations + 1):
            targets = log.rewards.copy()
            targets[continues] += float(self.discount) * next_values
            _check_growth(targets, largest, iteration)
            for part in parts:
                part.learn(targets[part.rows], iteration)
            if iteration < self.n_iterations and len(continues):
                next_values = np.max([part.at_next_states(a) for part in parts for a in part.actions], axis=0)
        models = {action: part.model for part in parts for action in part.actions}
        self._function = FittedFunction(inputs, [models.get(action) for action in range(log.n_actions)], self.n_threads)
        self.coordinates_, self.action_labels_, self.source_ = units, log.action_labels, log.source
        say_if_rare(log.action_labels, np.bincount(log.action_indices, minlength=log.n_actions), self.min_cases)
        return self

    def _q_function(self) -> Callable[[Floats], Floats]:
        self._check_fitted()
        return self._function

    @property
    def n_threads(self) -> int:
        """The number of threads that ``n_jobs`` stands for."""
        return number_of_jobs(self.n_jobs)

    def _parts(self, log: Transitions, units: Coordinates, continues: Integers) -> tuple[Inputs, list[_Part]]:
        """Return how states become inputs, and the transitions in parts with a model each."""
        states, next_states = units.of(log.states), units.of(log.next_states)[continues]
        inputs = Inputs(
            centre=states.mean(axis=0) if self.regressor is None else None,
            n_flags=0 if self.per_action else log.n_actions,
        )
        by_action = log.by_action()
        often = often_taken([len(rows) for rows in by_action], cases_needed(self.min_cases))
        tried = [action for action, rows in enumerate(by_action) if len(rows) and often[action]]
        together = np.flatnonzero(np.isin(log.action_indices, tried))
        groups = [(by_action[a], [a]) for a in tried] if self.per_action else [(together, tried)]
        rng = as_generator(self.random_state)
        kind = _TreePart if self.regressor is None else _RegressorPart
        parts: list[_Part] = []
        for rows, actions in groups:
            here = inputs(states[rows], log.action_indices[rows])
            parts.append(kind(self, rng, rows, here, {action: inputs(next_states, action) for action in actions}))
        return inputs, parts

    def _check_parameters(self) -> None:
        whole(self.n_iterations, "n_iterations")
        whole(self.n_trees, "n_trees")
        whole(self.min_split, "min_split", at_least=2)
        for name in ("candidate_cuts", "freeze_after", "min_cases"):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name)
        in_unit_interval(self.discount, "discount")
        one_of(self.terminals, TERMINALS, "terminals")
        number_of_jobs(self.n_jobs)
        for verb in ("fit", "predict", "get_params"):
            if self.regressor is not None and not callable(getattr(self.regressor, verb, None)):
                raise TypeError(
                    f"regressor must be a scikit-learn regressor, or one with its habits, but {self.regressor!r} has "
                    f"no {verb}."
                )


@dataclass(frozen=True, eq=False)
class Inputs:
    """How scaled states, and the action where one model serves all, become the inputs of a regression."""

    centre: Floats | None  # (n_dims,) for trees, whose inputs have single precision; None: for regressors
    n_flags: int  # 0, or the number of actions: one input each, which is 1 for the action at hand

    def __call__(self, states: Floats, actions: int | Integers) -> Array:
        """Return the inputs, (n_states, n_inputs)."""
        columns = states if self.centre is None else np.clip(states - self.centre, -_FARTHEST, _FARTHEST)
        if self.n_flags:
            flags = np.zeros((len(states), self.n_flags))
            flags[np.arange(len(states)), actions] = 1.0
            columns = np.hstack([columns, flags])
        return columns if self.centre is None else columns.astype(np.float32)


@dataclass(frozen=True, eq=False)
class FittedFunction:
    """Q from one model per action; None, and -inf, for actions never tried."""

    inputs: Inputs
    models: list[Any]
    n_jobs: int

    def __call__(self, states: Floats) -> Floats:
        """Return Q, (n_states, n_actions), of scaled states."""
        q = np.full((len(states), len(self.models)), -np.inf)
        for action, model in enumerate(self.models):
            if model is not None:
                q[:, action] = model(self.inputs(states, action), self.n_jobs)
        return q


class _Part:
    """Transitions that share a model: those of one action, or all."""

    model: Any  # inputs and a number of threads to values

    def __init__(
        self, settings: FittedQ, rng: np.random.Generator, rows: Integers, inputs: Array, next_inputs: dict[int, Array]
    ) -> None:
        self.settings, self.rng, self.rows, self.inputs, self.next_inputs = settings, rng, rows, inputs, next_inputs
        self.actions = list(next_inputs)

    def learn(self, targets: Floats, iteration: int) -> None:
        """Fit the model to the targets of an iteration, which are counted from 1."""
        raise NotImplementedError

    def at_next_states(self, action: int) -> Floats:
        """Return the value of an action in each next state."""
        return np.asarray(self.model(self.next_inputs[action], self.settings.n_threads))

    def _seed(self) -> int:
        return int(self.rng.integers(2**31))


class _RegressorPart(_Part):
    """A regressor, fitted again at every iteration."""

    def learn(self, targets: Floats, iteration: int) -> None:
        from sklearn.base import clone

        regressor = clone(self.settings.regressor)
        if regressor.get_params().get("random_state", 0) is None:
            regressor.set_params(random_state=self._seed())
        regressor.fit(self.inputs, targets)
        self.model = lambda inputs, n_jobs: regressor.predict(inputs)


class _TreePart(_Part):
    """Trees: new ones up to an iteration; after it, only the means in their leaves change."""

    model: Forest
    _leaves: Array  # (n_trees, n)
    _next_leaves: dict[int, Array] | None = None  # (n_trees, n_next) of each action, once the cuts are kept

    def learn(self, targets: Floats, iteration: int) -> None:
        settings, n_jobs = self.settings, self.settings.n_threads
        last_growth = settings.n_iterations if settings.freeze_after is None else settings.freeze_after
        if iteration <= last_growth:
            kept = iteration == last_growth < settings.n_iterations
            self.model = self._grow(targets, kept)
            self._leaves = self.model.leaves(self.inputs, n_jobs)
            if kept:
                self._next_leaves = {a: self.model.leaves(x, n_jobs) for a, x in self.next_inputs.items()}
        self.model = self.model.renewed(self._leaves, targets, n_jobs)

    def at_next_states(self, action: int) -> Floats:
        if self._next_leaves is None:
            return super().at_next_states(action)
        return self.model.at_leaves(self._next_leaves[action], self.settings.n_threads)

    def _grow(self, targets: Floats, kept: bool) -> Forest:
        settings, n_inputs = self.settings, self.inputs.shape[1]
        return grow(
            self.inputs,
            targets,
            for_keeps=kept,
            n_jobs=settings.n_threads,
            n_estimators=settings.n_trees,
            min_samples_split=settings.min_split,
            max_features=n_inputs if settings.candidate_cuts is None else min(settings.candidate_cuts, n_inputs),
            random_state=self._seed(),
        )


def _check_growth(targets: Floats, largest: float, iteration: int) -> None:
    """Refuse values that grow without bound; NaN is caught, too."""
    reached = np.abs(targets).max()
    if not reached <= _GROWTH * largest:
        raise ValueError(
            f"No value can exceed {largest:.3g}, the largest reward for ever, but at iteration {iteration} of fitted Q "
            f"one is {reached:.3g}: the regressor lets them grow. Use one that averages, such as trees."
        )
