"""KBSF: kernel-based stochastic factorization.

Learns a small MDP over representative states from any number of transitions, in one pass, and solves it.
Time is linear in the number of transitions, memory independent of it.
Paper: Algorithm 1 (batch) and Algorithm 2 (further data), sections 4 and 5; section 7 for ``aggregation="hard"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats
from kbrl.checks import as_generator, as_rows, in_unit_interval, one_of, positive, whole
from kbrl.data.scaling import state_scale
from kbrl.data.transitions import Transitions, join
from kbrl.learners.estimator import Learner, as_log, number_of_jobs
from kbrl.model import compiled
from kbrl.model.basis import Basis, check_range, scaled
from kbrl.model.bounds import Bound, bound_kbsf
from kbrl.model.factorization import lift
from kbrl.model.finite_mdp import FiniteMDP
from kbrl.model.kernels import Kernel, Profile, check_profile, check_width
from kbrl.model.representatives import choose, distinct_rows
from kbrl.model.statistics import NEIGHBORHOODS, Statistics, new_statistics
from kbrl.planning import Solution, solve
from kbrl.policy.q_functions import RepQ, SampleQ

TERMINALS = ("absorb", "continue")
AGGREGATIONS = ("soft", "hard")
Q_FUNCTIONS = ("reps", "samples")


class KBSF(Learner):
    """Kernel-based stochastic factorization.

    n_reps: number of representative states, m; ``reps``: how to choose them among the next states ("k-means", "random",
        "grid", "farthest", or "cover" with ``cover_distance``), or an array (m, n_dims) in the units of the data.
    sample_width, rep_width: the kernels' widths tau and tau-bar, in units of ``scaling``; rep_width may be an array,
        one width a representative state.
    sample_neighbors, rep_neighbors: truncate the kernels to that many nearest neighbours, mu and mu-bar.
    scaling: what each state variable is divided by: "std", "range", None, or an array.
    terminals: "absorb" ends an episode where the data say so; "continue" ignores the flag.
    aggregation: "soft" is KBSF; "hard" is Kveton and Theocharous' variant.
    neighborhoods: whether ``sample_neighbors`` counts in all data ("exact") or in each chunk ("per_chunk").
    q_function: answers come from the representative states ("reps"), or from the samples ("samples": the paper's
        batch formula, which keeps all transitions).
    n_jobs: number of threads, None for one a core; results do not depend on it.
    """

    reps_: Floats  # (n_reps, n_dims) in the units of the data
    statistics_: Statistics
    n_samples_: int

    _basis: Basis
    _kept: list[Transitions]  # only where q_function is "samples"
    # Answers, computed when they are first asked for and forgotten when data come.
    _mdp: FiniteMDP | None
    _solution: Solution | None  # the last one is kept as a warm start
    _is_stale: bool
    _samples: SampleQ | None
    _decider: Callable[[Floats], int] | None

    def __init__(
        self,
        n_reps: int = 100,
        reps: Any = "k-means",
        sample_width: float = 0.1,
        rep_width: Any = 0.1,
        sample_neighbors: int | None = None,
        rep_neighbors: int | None = None,
        discount: float = 0.99,
        scaling: Any = "std",
        random_state: Any = None,
        *,
        profile: Profile = "exponential",
        cover_distance: float | None = None,
        terminals: str = "absorb",
        aggregation: str = "soft",
        neighborhoods: str = "exact",
        q_function: str = "reps",
        solver: str = "auto",
        tolerance: float = 1e-8,
        n_jobs: int | None = None,
    ) -> None:
        self.n_reps = n_reps
        self.reps = reps
        self.sample_width = sample_width
        self.rep_width = rep_width
        self.sample_neighbors = sample_neighbors
        self.rep_neighbors = rep_neighbors
        self.discount = discount
        self.scaling = scaling
        self.random_state = random_state
        self.profile = profile
        self.cover_distance = cover_distance
        self.terminals = terminals
        self.aggregation = aggregation
        self.neighborhoods = neighborhoods
        self.q_function = q_function
        self.solver = solver
        self.tolerance = tolerance
        self.n_jobs = n_jobs

    def fit(self, log: Transitions | Iterable[Transitions]) -> KBSF:
        """Learn from transitions, or from an iterable of chunks of them, of which one at a time is in memory."""
        self._check_parameters()
        chunks = _chunks(log)
        before = dict(self.__dict__)
        try:
            first = as_log(next(chunks))
            self._start(first)
            for chunk in chain([first], chunks):
                self._add(as_log(chunk))
            self._solve()
        except BaseException:  # what was learnt before is not lost to a bad chunk or to Ctrl-C
            self.__dict__ = before
            raise
        return self

    def partial_fit(self, log: Transitions) -> KBSF:
        """Learn from further transitions; scaling and representative states stay those of the first ones."""
        if not hasattr(self, "statistics_"):
            self._check_parameters()
            self._start(as_log(log))
        self._add(as_log(log))
        return self

    @property
    def mdp_(self) -> FiniteMDP:
        """The reduced MDP, with one state a representative state."""
        self._check_fitted()
        if self._mdp is None:
            self._mdp = self.statistics_.to_mdp(float(self.discount))
        return self._mdp

    @property
    def solution_(self) -> Solution:
        """The solution of the reduced MDP, brought up to date where data have come since."""
        self._check_fitted()
        if self._is_stale:
            self._solve()
        assert self._solution is not None
        return self._solution

    @property
    def rep_q_(self) -> Floats:
        """Q-bar, (n_reps, n_actions)."""
        return self.solution_.q

    @property
    def rep_values_(self) -> Floats:
        """The values of the representative states, (n_reps,)."""
        return self.solution_.values

    def q_from_reps(self, states: Any) -> Floats:
        """Return Q from the representative states, whatever ``q_function`` says."""
        return RepQ(self._basis.rep_weights, self.rep_q_)(self._scaled(states))

    def q_from_samples(self, states: Any) -> Floats:
        """Return Q from the samples; the learner must have kept them, that is, have q_function="samples"."""
        return self._sample_q()(self._scaled(states))

    def bound(self, log: Transitions) -> Bound:
        """Return how far this model's values can be from KBRL's, if it was fitted to just this log.

        Propositions 1 and 2 of the paper, beside the trivial bound; takes time n * n * n_reps.
        """
        self._check_fitted()
        if self._basis.hard:
            raise ValueError("The bound is one on the distance to KBRL, which hard aggregation does not approximate.")
        log, scale = self._with_own_actions(as_log(log)), self._basis.scale
        states, next_states = scaled(log.states, scale), scaled(log.next_states, scale)
        fields = (states, log.action_indices, log.rewards, next_states, log.terminals, None, log.action_labels)
        basis = self._basis
        return bound_kbsf(
            Transitions._trusted(*fields), basis.reps, basis.sample_kernel, basis.rep_kernel, float(self.discount)
        )

    def act(self, state: Any) -> Any:
        """Return the label of the best action for one state, (n_dims,), as fast as can be."""
        self._check_fitted()
        if self._decider is None:
            self._decider = self._make_decider()
        return self.action_labels_[self._decider(self._scaled([state]))]

    def _q_function(self) -> Callable[[Floats], Floats]:
        self._check_fitted()
        if self.q_function == "samples":
            return self._sample_q()
        return RepQ(self._basis.rep_weights, self.rep_q_)

    def _sample_q(self) -> SampleQ:
        self._check_fitted()
        if not self._kept:
            raise ValueError(
                "Q from samples needs the transitions, and this model has not kept them. "
                "Fit with KBSF(q_function='samples'), or use q_from_reps."
            )
        if self._samples is None:
            log, basis = join(self._kept), self._basis
            to_reps = basis.to_reps(scaled(log.next_states, basis.scale), log.terminals)
            worths = log.rewards + self.discount * np.where(log.terminals, 0.0, lift(to_reps, self.rep_q_))
            states = scaled(log.states, basis.scale)
            self._samples = SampleQ.of(basis.sample_kernel, states, worths, log.by_action())
        return self._samples

    def _make_decider(self) -> Callable[[Floats], int]:
        """Prepare the compiled decision; it knows dense kernels, and actions available everywhere or nowhere."""
        at, q = self._basis.rep_weights, np.ascontiguousarray(self.rep_q_.T)
        known = np.isfinite(q)
        even = (known.all(axis=1) | ~known.any(axis=1)).all()
        if self.q_function != "reps" or at.shape is None or at.kernel.neighbors is not None or not even:
            function = self._q_function()
            return lambda states: int(np.argmax(function(states)[0]))
        columns, inverse_widths, shape, scratch = at.columns, at.inverse_widths, at.shape, np.empty(q.shape[1])
        return lambda states: compiled.decide(states[0], columns, inverse_widths, q, scratch, shape)

    def _check_parameters(self) -> None:
        """Refuse bad parameters before any work is done."""
        whole(self.n_reps, "n_reps")
        in_unit_interval(self.discount, "discount")
        one_of(self.terminals, TERMINALS, "terminals")
        one_of(self.aggregation, AGGREGATIONS, "aggregation")
        one_of(self.neighborhoods, NEIGHBORHOODS, "neighborhoods")
        one_of(self.q_function, Q_FUNCTIONS, "q_function")
        number_of_jobs(self.n_jobs)
        check_profile(self.profile)
        positive(self.sample_width, "sample_width")
        check_width(self.rep_width, "rep_width")
        for name in ("sample_neighbors", "rep_neighbors"):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name)

    def _start(self, log: Transitions) -> None:
        """Freeze scaling, actions and representative states by the first transitions; forget what was learnt."""
        scale = state_scale(log.states, self.scaling)
        reps = self._choose_reps(log, scale)
        basis = Basis(
            reps=reps,
            scale=scale,
            sample_kernel=Kernel(self.sample_width, self.profile, self.sample_neighbors),
            rep_kernel=Kernel(self.rep_width, self.profile, self.rep_neighbors),
            n_actions=log.n_actions,
            hard=self.aggregation == "hard",
        )
        self._basis = basis
        self.scale_ = scale
        self.reps_ = reps * scale
        self.action_labels_ = log.action_labels
        self.statistics_ = new_statistics(basis, self.neighborhoods)
        self.n_samples_ = 0
        self._kept = []
        self._solution = None
        self._forget_answers()

    def _choose_reps(self, log: Transitions, scale: Floats) -> Floats:
        if not isinstance(self.reps, str):
            given = as_rows(self.reps, "reps", n_dims=log.n_dims)
            return scaled(distinct_rows(given, "reps"), scale)
        points = scaled(log.next_states, scale)
        rng = as_generator(self.random_state)
        return choose(points, self.reps, self.n_reps, rng, cover_distance=self.cover_distance)

    def _add(self, log: Transitions) -> None:
        log = self._with_own_actions(log)
        self.statistics_.accumulate(log, n_jobs=number_of_jobs(self.n_jobs))
        self.n_samples_ += len(log)
        if self.q_function == "samples":
            self._kept.append(log)
        self._forget_answers()

    def _with_own_actions(self, log: Transitions) -> Transitions:
        """Number the actions as the first data did, and ignore ends if asked to."""
        if log.n_dims != len(self.scale_):
            raise ValueError(f"Transitions must have {len(self.scale_)} state variables, but they have {log.n_dims}.")
        check_range(log.states, self.scale_)
        check_range(log.next_states, self.scale_)
        log = with_labels(log, self.action_labels_)
        if self.terminals == "continue":
            fields = (log.states, log.action_indices, log.rewards, log.next_states, np.zeros(len(log), dtype=bool))
            return Transitions._trusted(*fields, log.episodes, log.action_labels)
        return log

    def _forget_answers(self) -> None:
        self._is_stale = True
        self._mdp = self._samples = self._decider = None

    def _solve(self) -> None:
        start = None if self._solution is None else self._solution.values
        self._solution = solve(self.mdp_, self.solver, values=start, tolerance=self.tolerance)
        self._is_stale = False


def _chunks(log: Any) -> Iterator[Any]:
    if isinstance(log, Transitions):
        return iter([log])
    if not isinstance(log, Iterable):
        as_log(log)
    chunks = iter(log)
    first = next(chunks, None)
    if first is None:
        raise ValueError("fit needs at least one chunk of transitions, but the iterable is empty.")
    return chain([first], chunks)


def with_labels(log: Transitions, labels: Array) -> Transitions:
    """Number a log's actions by the given labels; an action that is not among them is refused."""
    if log.action_labels.tolist() == labels.tolist():
        return log
    taken = log.action_labels[np.unique(log.action_indices)]
    unknown = [label for label in taken.tolist() if label not in labels.tolist()]
    if unknown:
        raise ValueError(
            f"Transitions must use the actions known from the first data, {labels.tolist()}, but they also have "
            f"{unknown}. Name all actions in the first log: Transitions(..., action_labels=[...])."
        )
    place = {label: index for index, label in enumerate(labels.tolist())}  # labels that were not taken may be unknown
    numbers = np.array([place.get(label, 0) for label in log.action_labels.tolist()], dtype=np.intp)
    fields = (log.states, numbers[log.action_indices], log.rewards, log.next_states, log.terminals, log.episodes)
    return Transitions._trusted(*fields, labels)
