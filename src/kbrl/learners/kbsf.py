"""KBSF: kernel-based stochastic factorization.

Settings that make a `Model`: a small MDP over representative states, from any number of transitions, in one pass.
Time is linear in the number of transitions, memory independent of it.
Paper: Algorithm 1 (batch) and Algorithm 2 (further data), sections 4 and 5; section 7 for hard aggregation.
"""

from __future__ import annotations

import warnings
from itertools import chain
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import KbrlWarning, NotFittedError, in_unit_interval
from kbrl.data.names import Source
from kbrl.data.overlap import is_learnt_batch, overlap
from kbrl.data.scaling import Coordinates
from kbrl.data.transitions import Transitions, as_chunks, as_log
from kbrl.learners.learner import Learner, clone, say_if_rare
from kbrl.learners.matching_log import loaded
from kbrl.mdp.bounds import Bound
from kbrl.mdp.deferral import AS_NOW
from kbrl.mdp.dynamic_programming import Solution
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model.model import Model, first_model
from kbrl.model.model_bounds import bound_answers, bound_rep_q, bound_rep_values
from kbrl.model.q_functions import GreedyPolicy
from kbrl.model.sums import Statistics
from kbrl.settings import FEW_CASES, Settings, checked, described, in_groups, with_groups


class KBSF(Settings, Learner):
    """Kernel-based stochastic factorization: settings in, a `Model` out.

    ``fit(log)`` learns from `Transitions`, or from an iterable of them.  ``predict(states)`` returns the label of the
    best action for each state, and ``q_values(states)`` the value of each action.  States are (n_states, n_dims), in
    the units of the data.  What was learnt is in ``model_``, which is replaced as a whole: a failed or interrupted fit
    loses nothing.

    {settings}

    In state 0, "left" pays 1 and stays there; in state 1, "right" does.  The discount is 0.9, so paying for ever is
    worth 1 / (1 - 0.9) = 10, and the other action is worth 0.9 * 10 = 9.

    >>> from kbrl import KBSF, Transitions
    >>> log = Transitions(
    ...     states=[[0.0], [0.0], [1.0], [1.0]],
    ...     actions=["left", "right", "left", "right"],
    ...     rewards=[1.0, 0.0, 0.0, 1.0],
    ...     next_states=[[0.0], [1.0], [0.0], [1.0]],
    ... )
    >>> model = KBSF(n_reps=2, min_cases=1, discount=0.9, random_state=0).fit(log)
    >>> model.predict([[0.0], [1.0]]).tolist()
    ['left', 'right']
    >>> model.q_values([[0.0], [1.0]]).round(2).tolist()  # one row per state, one column per action
    [[10.0, 9.0], [9.0, 10.0]]
    """

    def settings(self) -> Settings:
        """Return the current settings; only the kinds of the groups are checked."""
        return Settings(**with_groups(self.get_params(deep=False)))

    def fit(self, log: Any, *, columns: Any = None) -> KBSF:
        """Learn from transitions, or from an iterable of chunks of them, one at a time in memory; return the learner.

        A frame, a mapping of columns or the path of a file is loaded by `kbrl.load_log`; ``columns`` are as there.  For
        logs on a Dask cluster, use `kbrl.fit_on_dask`.

        >>> from kbrl import KBSF
        >>> ward = {"sex": ["F", "M", "F", "M"], "drug": ["a", "b", "b", "a"], "score": [1.0, 1.0, 0.0, 0.0],
        ...         "home": [True, True, True, True]}
        >>> roles = {"state": "sex", "action": "drug", "reward": "score", "terminated": "home"}
        >>> KBSF(n_reps=2, random_state=0).fit(ward, columns=roles).predict({"sex": ["M", "F"]}).tolist()
        ['b', 'a']
        """
        settings = checked(self, min_cases=FEW_CASES)
        chunks = as_chunks(loaded(log, columns))
        first = next(chunks)
        model = first_model(settings, first).extend(chain([first], chunks), n_jobs=settings.n_jobs, is_batch=True)
        model.solve()
        self.model_ = model
        say_if_rare(model.action_labels, model.sums.counts, self.min_cases)
        return self

    def partial_fit(self, log: Transitions) -> KBSF:
        """Learn from further transitions and return the learner; scaling and actions stay those of the first ones.

        The model is solved at the next question, starting from the last values.  Learning that starts here, without a
        fit, keeps all actions unless ``min_cases`` says otherwise: an agent has to try an action to learn of it.
        """
        log = as_log(log)
        before = self.model_ if hasattr(self, "model_") else first_model(checked(self, min_cases=1), log)
        model = before.extend(log, n_jobs=self.n_jobs)
        self.model_ = model
        _say_if_again(before, model)
        return self

    @classmethod
    def with_model(cls, model: Model) -> KBSF:
        """Return a learner that has learnt this model, such as one from a file, with the settings of its fit."""
        learner = cls(**vars(model.settings))
        learner.model_ = model
        return learner

    def __add__(self, other: KBSF) -> KBSF:
        """Return the learner of the data of both, which must have the same representative states and kernels."""
        if not isinstance(other, KBSF):
            return NotImplemented
        result = clone(self)
        result.model_ = self._fitted + other._fitted
        mine, others = self.model_.sketch, other.model_.sketch
        found = None if mine is None or others is None else overlap(mine, others)
        if found is not None and found.is_counted_twice:
            warnings.warn(
                f"Of the transitions of the second model, {found}: they count twice in the sum. Add models of "
                f"different transitions.",
                KbrlWarning,
                stacklevel=2,
            )
        return result

    def forget(self, log: Transitions) -> KBSF:
        """Remove transitions that were learnt before; needs dense sums (sample_neighbors=None).

        Rows that were certainly never learnt are refused.  Up to 1024 different rows are all known; beyond, a sample.
        """
        self.model_ = self._fitted - log
        return self

    def shrink(self, largest_inflow: float = 1e-4) -> float:
        """Drop the representative states that no state-action pair reaches with a higher probability than this.

        Return the largest change of the values at the others.
        """
        before = self._fitted
        largest = before.mdp.stacked.max(axis=0)
        inflow = np.asarray(largest.toarray() if hasattr(largest, "toarray") else largest).ravel()
        dropped = inflow <= in_unit_interval(largest_inflow, "largest_inflow")
        if not dropped.any() or dropped.all():
            return 0.0
        model = before.shrink(dropped)
        change = float(np.abs(model.solution.values - before.solution.values[~dropped]).max())
        self.model_ = model
        return change

    @property
    def coordinates_(self) -> Coordinates:  # type: ignore[override]
        """The centre that is subtracted from each state variable, and the scale that it is divided by."""
        return self._fitted.coordinates

    @property
    def action_labels_(self) -> Array:  # type: ignore[override]
        """The labels of the actions, in the order of the columns of q_values."""
        return self._fitted.action_labels

    @property
    def source_(self) -> Source:  # type: ignore[override]
        """The names of the state variables."""
        return self._fitted.source

    @property
    def reps_(self) -> Floats:
        """The representative states, (n_reps, n_dims), in the units of the data."""
        return self._fitted.reps

    @property
    def statistics_(self) -> Statistics:
        """The sums."""
        return self._fitted.sums

    @property
    def mdp_(self) -> FiniteMDP:
        """The reduced MDP, with one state per representative state."""
        return self._fitted.mdp

    @property
    def solution_(self) -> Solution:
        """The solution of the reduced MDP, with all data so far."""
        return self._fitted.solution

    @property
    def n_samples_(self) -> int:
        """The number of transitions behind the model."""
        return self._fitted.n_samples

    @property
    def left_out_(self) -> dict[Any, int]:
        """The actions that were taken, but fewer than ``min_cases`` times, and how often: they have no value."""
        return self._fitted.left_out

    @property
    def growth_(self) -> Integers:
        """The curve m(n): (number of transitions, number of representative states) after each chunk, (k, 2)."""
        return self._fitted.growth

    @property
    def rep_q_(self) -> Floats:
        """Q-bar, (n_reps, n_actions)."""
        return self._fitted.rep_q

    @property
    def rep_values_(self) -> Floats:
        """The values of the representative states, (n_reps,)."""
        return self.solution_.values

    def q_from_reps(self, states: Any) -> Floats:
        """Return Q from the representative states, (n_states, n_actions), whatever the settings say."""
        return self._fitted.where_allowed(self._fitted.rep_q_function)(self.model_.scaled(states))

    def q_from_samples(self, states: Any) -> Floats:
        """Return Q from the samples, (n_states, n_actions); the learner must have kept them, see `Variant`."""
        return self._fitted.where_allowed(self._fitted.sample_q_function)(self.model_.scaled(states))

    def q_values(self, states: Any) -> Floats:
        """Return the value of each action in each state, (n_states, n_dims) to (n_states, n_actions).

        An action that was never tried, or is left out, has the value -inf.
        """
        return self._fitted.q_values(states)

    def predict(self, states: Any) -> Array:
        """Return the label of the best action for each state, (n_states,); that of "as now" where it defers."""
        return self._fitted.predict(states)

    def act(self, state: Any) -> Any:
        """Return the label of the best action for one state, (n_dims,), as fast as possible."""
        return self._fitted.act(state)

    def policy(self) -> GreedyPolicy:
        """Return the current greedy policy, which later learning does not change."""
        return self._fitted.policy

    def deferring(self, cases: float = 3, caution: float = 1.0, *, label: str = AS_NOW) -> KBSF:
        """Return a learner whose model answers "as now" where data do not support a change: see `Model.deferring`."""
        return self.with_model(self._fitted.deferring(cases, caution, label=label))

    def deferred(self, states: Any) -> Booleans:
        """Return in which states, (n_states, n_dims), the answer is "as now", (n_states,)."""
        return self._fitted.deferred(states)

    def bound(self, log: Transitions) -> Bound:
        """Return how far this model's ``q_values`` can be from KBRL's: see `kbrl.model.model_bounds.bound_answers`."""
        return bound_answers(self._fitted, log)

    def bound_values(self, log: Transitions) -> Bound:
        """Return the bound of proposition 1: see `kbrl.model.model_bounds.bound_rep_values`."""
        return bound_rep_values(self._fitted, log)

    def bound_online(self, log: Transitions, q_error: float = 0.0) -> Bound:
        """Return the bound of proposition 4: see `kbrl.model.model_bounds.bound_rep_q`."""
        return bound_rep_q(self._fitted, log, q_error)

    @classmethod
    def _unknown(cls, names: list[str], params: dict[str, Any]) -> str:
        return in_groups(params) or super()._unknown(names, params)

    @property
    def _fitted(self) -> Model:
        if not hasattr(self, "model_"):
            raise NotFittedError("This KBSF has not learnt anything yet. Call fit with transitions first.")
        return self.model_


KBSF.__doc__ = (KBSF.__doc__ or "").replace("    {settings}", described())


def _say_if_again(before: Model, after: Model) -> None:
    """Warn if these transitions are exactly those learnt before, or one batch of them: they count twice now."""
    if before.sketch is None or after.sketch is None:
        return
    n_rows, whole = after.sketch.n_rows - before.sketch.n_rows, before.sketch.n_rows
    if n_rows != whole and n_rows not in dict(before.sketch.batches):  # the usual case; what follows takes time
        return
    if is_learnt_batch(before.sketch, after.sketch - before.sketch):
        which = "those" if n_rows == whole else "a batch of those"
        warnings.warn(
            f"These {n_rows:,} transitions are {which} that the model was fitted to: they count twice now. "
            f"Learn only from new ones; fit(log) starts from the beginning.",
            KbrlWarning,
            stacklevel=3,
        )
