"""KBSF: kernel-based stochastic factorization.

Learns a small MDP over representative states from any number of transitions, in one pass, and solves it.
Time is linear in the number of transitions, memory independent of it.
Paper: Algorithm 1 (batch) and Algorithm 2 (further data), sections 4 and 5; section 7 for ``aggregation="hard"``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from kbrl.arrays import Floats, Integers
from kbrl.checks import KbrlWarning, as_generator, as_rows, in_unit_interval, one_of, positive, whole
from kbrl.data.exact_sums import Moments
from kbrl.data.overlap import Overlap, is_same_by_no_chance, overlap
from kbrl.data.scaling import Coordinates, around_centre, scale_of, state_scale
from kbrl.data.sketch import Sketch
from kbrl.data.transitions import Transitions, join
from kbrl.learners.learner import Learner, as_log
from kbrl.learners.reduced_model import ReducedModel
from kbrl.mdp.bounds import Bound
from kbrl.mdp.dynamic_programming import METHODS, Solution, backup
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model.basis import Basis
from kbrl.model.case_counts import FEW_CASES
from kbrl.model.kbsf_bounds import bound_kbsf, bound_online, kbsf_matrices
from kbrl.model.kernels import Kernel, Profile, check_norm, check_profile, check_width
from kbrl.model.q_functions import GreedyPolicy, RepQ, SampleQ
from kbrl.model.representatives import choose, distinct_rows
from kbrl.model.sums import NEIGHBORHOODS, Statistics
from kbrl.threads import number_of_jobs

TERMINALS = ("absorb", "continue")
AGGREGATIONS = ("soft", "hard")
Q_FUNCTIONS = ("reps", "samples")
SAME_MODEL = 1e-8  # two models that differ by less differ by rounding
MANY_ROWS = 100  # in fewer, few cases of an action are no surprise


class KBSF(Learner):
    """Kernel-based stochastic factorization.

    n_reps: number of representative states, m; ``reps``: how to choose them among the next states ("k-means", "random",
        "grid", "farthest", "mixture" of Gaussians, or "cover" with ``cover_distance``), or an array (m, n_dims) in the
        units of the data.
    sample_width, rep_width: the kernels' widths tau and tau-bar, in units of ``scaling``; rep_width may be an array,
        one width a representative state.
    sample_neighbors, rep_neighbors: truncate the kernels to that many nearest neighbours, mu and mu-bar.
    scaling: what each state variable is divided by: "std", "range", None, or an array.
    profile: how kernels fall with distance in widths: "exponential" (the paper's), "gaussian", "uniform" (all within
        one width count alike) or a function.  Where nothing is within reach, the nearest counts.
    norm: p of the Minkowski norm of kernels, growth and covers, from 1 to 16 or infinity.  k-means, farthest points,
        mixtures and the distances of coverage and report stay Euclidean.
    grow_distance, grow_below: on-line growth: a next state farther than this distance from all representative states,
        or at which all their kernels are below this value (the paper's 0.01), becomes one, up to ``max_reps``.
    terminals: "absorb" ends an episode where the data say so; "continue" ignores the flag.
    aggregation: "soft" is KBSF; "hard" is Kveton and Theocharous' variant.
    neighborhoods: whether ``sample_neighbors`` counts in all data ("exact") or in each chunk ("per_chunk").
    q_function: answers come from the representative states ("reps"), or from the samples ("samples": the paper's
        batch formula, which keeps all transitions).
    sweeps: apply the Bellman operator so many times to the last values (zeros at first) where an answer is asked for
        after new data, in place of solving the model with ``solver``: less work for each update when learning on-line.
        ``solution_.residual`` says how far from solved it is, and ``converged`` is True only where that is proved.
    min_cases: an action that was taken fewer times in all is not available, unless none was taken so often; None is 1,
        the paper's method, and a warning where some actions were taken fewer than 5 times.
    n_jobs: number of threads, None for one a core; results do not depend on it.
    """

    _model: ReducedModel
    _used: dict[str, Any]  # the parameters of this fit
    _growth: float | None  # how far a state must be from all representative states to become one
    _kept: list[Transitions]  # only where q_function is "samples"
    # Answers that are kept until data come.
    _samples: SampleQ | None
    _policy: GreedyPolicy | None

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
        norm: float = 2.0,
        cover_distance: float | None = None,
        grow_distance: float | None = None,
        grow_below: float | None = None,
        max_reps: int | None = None,
        terminals: str = "absorb",
        aggregation: str = "soft",
        neighborhoods: str = "exact",
        q_function: str = "reps",
        solver: str = "auto",
        tolerance: float = 1e-8,
        sweeps: int | None = None,
        min_cases: int | None = None,
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
        self.norm = norm
        self.cover_distance = cover_distance
        self.grow_distance = grow_distance
        self.grow_below = grow_below
        self.max_reps = max_reps
        self.terminals = terminals
        self.aggregation = aggregation
        self.neighborhoods = neighborhoods
        self.q_function = q_function
        self.solver = solver
        self.tolerance = tolerance
        self.sweeps = sweeps
        self.min_cases = min_cases
        self.n_jobs = n_jobs

    def fit(self, log: Any) -> KBSF:
        """Learn from transitions, or from an iterable of chunks of them, of which one at a time is in memory.

        Logs on a Dask cluster are learnt from by `kbrl.fit_on_dask`.
        """
        self._check_parameters()
        chunks = _chunks(log)
        with self._unharmed():
            first = as_log(next(chunks))
            self._start(first)
            for chunk in chain([first], chunks):
                self._add(as_log(chunk))
            self._model.solution  # noqa: B018
        self._say_if_rare()
        return self

    def partial_fit(self, log: Transitions) -> KBSF:
        """Learn from further transitions; scaling and actions stay those of the first ones.

        The model is solved when an answer is next asked for, starting from the last values.
        """
        before = self._model.sketch if hasattr(self, "_model") else None
        self._learn_more(as_log(log))
        self._say_if_again(before)
        return self

    def _learn_more(self, log: Transitions) -> None:
        with self._unharmed():
            if not hasattr(self, "_model"):
                self._check_parameters()
                self._start(log)
            self._add(log)

    def _say_if_again(self, before: Sketch | None) -> None:
        """Warn where the transitions that came are just those that there were: all of them count twice now."""
        after = self._model.sketch
        if before is None or after is None or after.n_rows != 2 * before.n_rows:
            return
        if is_same_by_no_chance(before, replace(before, total=(after.total - before.total) % 2**64)):
            warnings.warn(
                f"These {before.n_rows:,} transitions are those that the model was fitted to: they count twice now. "
                f"Learn only from further ones; fit(log) starts anew.",
                KbrlWarning,
                stacklevel=3,
            )

    def __add__(self, other: KBSF) -> KBSF:
        """Return the model of the data of both; both must have the same representative states, scaling and kernels."""
        if not isinstance(other, KBSF):
            return NotImplemented
        result = self._merged(other)
        found = self._overlap(other._model.sketch)
        if found is not None and found.is_counted_twice:
            warnings.warn(
                f"Of the transitions of the second model, {found}: they count twice in the sum. Add models of "
                f"different transitions.",
                KbrlWarning,
                stacklevel=2,
            )
        return result

    def _merged(self, other: KBSF) -> KBSF:
        for learner in (self, other):
            learner._check_fitted()
        self._check_same_settings(other)
        if self.action_labels_.tolist() != other.action_labels_.tolist():
            raise ValueError(
                f"Models add up only if they know the same actions in the same order, but these know "
                f"{self.action_labels_.tolist()} and {other.action_labels_.tolist()}."
            )
        self._source.places_in(other._source)  # refuses other variables
        if self._source.state_names and other._source.state_names not in (None, self._source.state_names):
            raise ValueError(
                f"Models add up only if their state variables are in the same order, but these have "
                f"{list(self._source.state_names)} and {list(other._source.state_names)}."
            )
        result = self._with(self._model.merged(other._model), self._kept + other._kept)
        result._source = self._source + other._source
        return result

    def _overlap(self, further: Sketch | None) -> Overlap | None:
        """Compare what was learnt with a sketch of further transitions; None where one of the two is not known."""
        learnt = self._fitted.sketch
        return None if learnt is None or further is None else overlap(learnt, further)

    def _check_same_settings(self, other: KBSF) -> None:
        names = ("discount", "terminals", "neighborhoods", "q_function")
        different = [name for name in names if self._used[name] != other._used[name]]
        different += ["min_cases"] if self._model.min_cases != other._model.min_cases else []
        if different:
            listing = ", ".join(different)
            raise ValueError(f"Models add up only if they were fitted alike, but these differ in: {listing}.")

    def forget(self, log: Transitions) -> KBSF:
        """Take transitions away that were learnt from before; needs dense sums (sample_neighbors=None).

        Rows that were certainly never learnt are refused: of up to 1024 different ones each is known, of more a sample.
        """
        self._check_fitted()
        if self._kept:
            raise ValueError("A model that keeps its samples (q_function='samples') cannot forget some of them.")
        self._model = self._model.without(self._prepared(log))
        self._forget_answers()
        return self

    def shrink(self, largest_inflow: float = 1e-4) -> float:
        """Drop the representative states to which no pair leads with a larger probability than this.

        Returns the largest change of the values at the others.
        """
        self._check_fitted()
        change = self._model.shrink(in_unit_interval(largest_inflow, "largest_inflow"))
        self._forget_answers()
        return change

    @property
    def reps_(self) -> Floats:
        """The representative states, (n_reps, n_dims), in the units of the data."""
        return self._fitted.basis.coordinates.back(self._model.basis.reps)

    @property
    def statistics_(self) -> Statistics:
        """The sums."""
        return self._fitted.statistics

    @property
    def mdp_(self) -> FiniteMDP:
        """The reduced MDP, with one state a representative state."""
        return self._fitted.mdp

    @property
    def solution_(self) -> Solution:
        """The solution of the reduced MDP, brought up to date where data have come since."""
        return self._fitted.solution

    @property
    def n_samples_(self) -> int:
        """The number of transitions behind the model."""
        return self._fitted.n_samples

    @property
    def left_out_(self) -> dict[Any, int]:
        """The actions that were taken, but fewer than ``min_cases`` times, and how often: they have no value."""
        counts, often = self._fitted.statistics.counts, self._fitted.often_taken
        return {
            label: n for label, n, kept in zip(self.action_labels_.tolist(), counts.tolist(), often) if n and not kept
        }

    @property
    def growth_(self) -> Integers:
        """The curve m(n): (number of transitions, number of representative states) after each chunk, (k, 2)."""
        return self._fitted.growth

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
        return RepQ(self._fitted.basis.rep_weights, self.rep_q_)(self._scaled(states))

    def q_from_samples(self, states: Any) -> Floats:
        """Return Q from the samples; the learner must have kept them, that is, have q_function="samples"."""
        self._check_fitted()
        return self._sample_q()(self._scaled(states))

    def bound(self, log: Transitions) -> Bound:
        """Return how far this model's ``q_values`` can be from KBRL's, for the log that it was fitted to.

        It says itself of which answers and where it holds.  With q_function="samples" it is proposition 2, for any
        state at all; with "reps" it is proposition 4, for the next states of the log and nowhere else.  A model that
        is not what Algorithm 1 makes of this log is refused.  Takes time n * n * n_reps.
        """
        arguments, discount = self._bound_arguments(log), self._model.discount
        q_error = self._error_of_rep_q()
        if self._used["q_function"] == "reps":
            return bound_online(*arguments, q_error)
        values = bound_kbsf(*arguments)
        found = values.times(discount, "Q from the samples, at any state")
        extra = discount * q_error  # Q from samples takes one step before it looks at Q-bar
        return replace(found, value=found.value + extra, tighter=found.tighter + extra, q_error=found.value + extra)

    def bound_values(self, log: Transitions) -> Bound:
        """Return how far max D Q-bar can be from KBRL's values at the next states of the log: proposition 1.

        Its ``q_error`` is proposition 2, for Q from samples anywhere.
        """
        return bound_kbsf(*self._bound_arguments(log))

    def bound_online(self, log: Transitions, q_error: float = 0.0) -> Bound:
        """Return how far Q from the representative states can be from KBRL's, at the next states of the log.

        Proposition 4.  ``q_error`` is how far the present rep_q_ may be from optimal, where the model was not solved
        to the end.
        """
        return bound_online(*self._bound_arguments(log), q_error)

    def _error_of_rep_q(self) -> float:
        """Return how far rep_q_ can be from the optimal Q-bar, by what one more backup changes."""
        mdp, solution = self._fitted.mdp, self.solution_
        again = backup(mdp, solution.values)
        known = np.isfinite(again)
        change = float(np.abs(again[known] - solution.q[known]).max(initial=0.0))
        return change + mdp.discount * solution.residual / (1 - mdp.discount)

    def _bound_arguments(self, log: Transitions) -> tuple[Transitions, Floats, Kernel, Kernel, float]:
        basis = self._fitted.basis
        self._refuse_what_has_no_bound()
        log = self._prepared(log)
        units = basis.coordinates
        log = log._replaced(states=units.of(log.states), next_states=units.of(log.next_states))
        self._check_is_model_of(log)
        return log, basis.reps, basis.sample_kernel, basis.rep_kernel, self._model.discount

    def _refuse_what_has_no_bound(self) -> None:
        basis, reason = self._model.basis, ""
        if basis.hard:
            reason = "hard aggregation does not approximate KBRL"
        elif basis.sample_kernel.neighbors is not None and self._used["neighborhoods"] == "per_chunk":
            reason = "its neighbours were counted in each chunk (neighborhoods='per_chunk'), KBRL's in all data"
        elif self._model.has_changed:
            reason = "its representative states came or went while it learnt, so that its sums are of several bases"
        elif self.left_out_:
            reason = (
                f"it leaves out the actions {list(self.left_out_)} (min_cases={self._model.min_cases}; 1 keeps all)"
            )
        if reason:
            raise ValueError(
                f"The paper's bounds are on the distance of Algorithm 1 from KBRL, and this model has none: {reason}. "
                f"Fit a model in one go with the representative states given (reps=...) to get a bound."
            )

    def _check_is_model_of(self, log: Transitions) -> None:
        """Refuse a log, scaled, of which Algorithm 1 makes another model than this."""
        basis, mdp = self._model.basis, self._model.mdp
        probabilities, rewards = kbsf_matrices(log, basis.reps, basis.sample_kernel, basis.rep_kernel)
        tried = np.array([block is not None for block in probabilities])
        same = bool((mdp.available == tried[:, None]).all())
        same = same and np.abs(rewards - mdp.rewards).max() <= SAME_MODEL * max(1e-300, np.abs(log.rewards).max())
        for action in np.flatnonzero(tried) if same else ():
            own = mdp.stacked[action * basis.n_reps : (action + 1) * basis.n_reps]
            same = same and float(abs(own - probabilities[action]).max()) <= SAME_MODEL
        if not same:
            raise ValueError(
                f"A bound is of a model and the log that it was fitted to, but Algorithm 1 makes another model of "
                f"these {len(log)} transitions than this one of {self.n_samples_}. Pass the log of the fit, all of it."
            )

    def act(self, state: Any) -> Any:
        """Return the label of the best action for one state, (n_dims,), as fast as can be."""
        self._check_fitted()
        if self._policy is None:
            self._policy = self.policy()
        return self._policy.act(state)

    def _q_function(self) -> Callable[[Floats], Floats]:
        self._check_fitted()
        if self._used["q_function"] == "samples":
            return self._sample_q()
        return RepQ(self._fitted.basis.rep_weights, self.rep_q_)

    def _sample_q(self) -> SampleQ:
        if not self._kept:
            raise ValueError(
                "Q from samples needs the transitions, and this model has not kept them. "
                "Fit with KBSF(q_function='samples'), or use q_from_reps."
            )
        if self._samples is None:
            log, basis = join(self._kept), self._model.basis
            values = RepQ(basis.rep_weights, self.rep_q_)(basis.coordinates.of(log.next_states)).max(axis=1)
            worths = log.rewards + self._model.discount * np.where(log.terminals, 0.0, values)
            states = basis.coordinates.of(log.states)
            rows = [found if kept else found[:0] for found, kept in zip(log.by_action(), self._model.often_taken)]
            self._samples = SampleQ.of(basis.sample_kernel, states, worths, rows)
        return self._samples

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
        check_norm(self.norm)
        positive(self.sample_width, "sample_width")
        check_width(self.rep_width, "rep_width")
        one_of(self.solver, ("auto", *METHODS), "solver")
        positive(self.tolerance, "tolerance")
        for name in ("sample_neighbors", "rep_neighbors", "max_reps", "sweeps", "min_cases"):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name)
        self._growth_distance()

    def _growth_distance(self) -> float | None:
        return _growth_distance(self._settings())

    def _settings(self) -> dict[str, Any]:
        """Return the parameters that KBSF itself has, whatever a learner derived from it adds or leaves out."""
        return {name: getattr(self, name) for name in KBSF._parameter_names()}

    def _start(self, log: Transitions, moments: Moments | None = None) -> None:
        """Freeze scaling, actions and first representative states by the first transitions; forget what was learnt.

        The moments of all states are given where these are only a sample.
        """
        units = self._coordinates(log, moments)
        basis = Basis(
            reps=self._choose_reps(log, units),
            coordinates=units,
            sample_kernel=Kernel(self.sample_width, self.profile, self.sample_neighbors, self.norm),
            rep_kernel=Kernel(self.rep_width, self.profile, self.rep_neighbors, self.norm),
            n_actions=log.n_actions,
            hard=self.aggregation == "hard",
        )
        discount = float(self.discount)
        planning: dict[str, Any] = {
            "solver": self.solver,
            "tolerance": self.tolerance,
            "sweeps": self.sweeps,
            "min_cases": self.min_cases or 1,
        }
        self._model = ReducedModel(basis, self.neighborhoods, discount, **planning)
        self.coordinates_ = units
        self.action_labels_ = log.action_labels
        self._source = log.source
        self._kept = []
        self._freeze_settings(self._settings())

    def _freeze_settings(self, settings: dict[str, Any]) -> None:
        """Remember the parameters of this fit: those that are set later count from the next one on."""
        self._used = settings
        self._growth = _growth_distance(settings)

    def _say_if_rare(self) -> None:
        """Warn where the values of some actions rest on a few cases, unless ``min_cases`` says what to do with them."""
        counts = dict(zip(self.action_labels_.tolist(), self._fitted.statistics.counts.tolist()))
        if self.min_cases is not None and max(counts.values()) < self.min_cases:
            warnings.warn(
                f"No action was taken min_cases={self.min_cases} times, so all {len(counts)} are kept; the most "
                f"frequent was taken {max(counts.values())} times. Put similar actions into a few classes.",
                KbrlWarning,
                stacklevel=3,
            )
        rare = [label for label, n in counts.items() if 0 < n < FEW_CASES]
        if self.min_cases is not None or self.n_samples_ < MANY_ROWS or not rare:
            return
        shown = ", ".join(f"{label!r} ({counts[label]})" for label in rare[:5])
        more = f" and {len(rare) - 5} more" if len(rare) > 5 else ""
        warnings.warn(
            f"Of {self.n_samples_} transitions, {len(rare)} of {len(counts)} actions have fewer than {FEW_CASES} "
            f"cases, and may look good by luck: {shown}{more}. KBSF(min_cases={FEW_CASES}) leaves such actions out; "
            f"min_cases=1 keeps them without this warning.",
            KbrlWarning,
            stacklevel=3,
        )

    def _coordinates(self, log: Transitions, moments: Moments | None = None) -> Coordinates:
        """Return centre and scale of the states; the centre of given representative states is theirs.

        So models with the same representative states and scale add up, whatever their data.
        """
        scale = state_scale(log.states, self.scaling) if moments is None else scale_of(moments, self.scaling)
        if not isinstance(self.reps, str):
            given = as_rows(self.reps, "reps", n_dims=log.n_dims)
            return around_centre(scale, Moments(log.n_dims).widen(given))
        return around_centre(scale, moments or Moments(log.n_dims).widen(log.states))

    def _choose_reps(self, log: Transitions, units: Coordinates) -> Floats:
        if not isinstance(self.reps, str):
            given = as_rows(self.reps, "reps", n_dims=log.n_dims)
            return units.of(distinct_rows(given, "reps"))
        points = units.of(log.next_states)
        rng = as_generator(self.random_state)
        n_reps = self.max_reps if self.reps == "cover" else self.n_reps  # a cover is as large as it has to be
        return choose(points, self.reps, n_reps, rng, cover_distance=self.cover_distance, norm=check_norm(self.norm))

    def _add(self, log: Transitions) -> None:
        if self._model.n_samples == 0 and self._source.state_names is None:  # the sample it started from had no names
            self._source = as_log(log).source
        log = self._prepared(log)
        growth = {"grow_distance": self._growth, "max_reps": self._used["max_reps"]}
        self._model.add(log, **growth, n_jobs=number_of_jobs(self.n_jobs))
        if self._used["q_function"] == "samples":
            self._kept = [*self._kept, log]
        self._forget_answers()

    def _prepared(self, log: Transitions) -> Transitions:
        """Check and number further transitions as the first ones were, and ignore ends if asked to."""
        log = as_log(log)
        n_dims = self.coordinates_.n_dims
        if log.n_dims != n_dims:
            raise ValueError(f"Transitions must have {n_dims} state variables, but they have {log.n_dims}.")
        log = log.in_order_of(self._source)
        self.coordinates_.check(log.states)
        self.coordinates_.check(log.next_states)
        log = log.with_actions(self.action_labels_)
        ends = self._used["terminals"] == "absorb"
        return log if ends else log._replaced(terminals=np.zeros(len(log), dtype=bool))

    def _take(self, statistics: Statistics, sketch: Sketch | None) -> None:
        """Have learnt, all at once, what the statistics say, and solve the model."""
        self._model = self._model.with_sums(statistics, sketch)
        self._forget_answers()
        self._model.solution  # noqa: B018

    @property
    def _fitted(self) -> ReducedModel:
        self._check_fitted()
        return self._model

    def _with(self, model: ReducedModel, kept: list[Transitions]) -> KBSF:
        result = type(self)(**self.get_params())
        result._model, result._kept = model, kept
        result.coordinates_, result.action_labels_ = self.coordinates_, self.action_labels_
        result._source = self._source
        result._used, result._growth = self._used, self._growth
        result._forget_answers()
        return result

    def _forget_answers(self) -> None:
        self._samples = self._policy = None

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """What was learnt before is not lost to a bad chunk or to Ctrl-C."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise


def _growth_distance(settings: dict[str, Any]) -> float | None:
    """Return how far a state must be from all representative states to become one, in scaled units."""
    distance, below, width = settings["grow_distance"], settings["grow_below"], settings["rep_width"]
    if distance is None and below is None:
        return None
    if np.ndim(width):
        raise ValueError("A model with one width a representative state cannot grow: new ones have no width.")
    if below is None:
        return positive(distance, "grow_distance")
    if distance is not None:
        raise ValueError("Growth takes grow_distance or grow_below, but not both.")
    return Kernel(width, settings["profile"]).reach(below)


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
