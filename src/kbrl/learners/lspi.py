"""LSPI: least-squares policy iteration (Lagoudakis and Parr 2003), a rival of KBSF on the same features.

Q(s, a) = phi(s) . w_a, one block of weights per action.  Each iteration goes once through the transitions and fits the
values of the policy that is greedy in the last weights; the memory does not depend on the number of transitions.
Paper: section 4.3.2 and appendix B.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from kbrl.arrays import Floats
from kbrl.checks import (
    as_generator,
    as_rows,
    check_finite,
    check_profile,
    check_width,
    in_unit_interval,
    one_of,
    positive,
    whole,
)
from kbrl.data.scaling import Coordinates, coordinates
from kbrl.data.transitions import Transitions, as_log, refuse_allowed
from kbrl.learners.learner import Learner, say_if_rare
from kbrl.learners.least_squares import (
    MOST_KEPT,
    Equations,
    FeatureData,
    Features,
    LinearQ,
    Pairs,
    own_sums,
    successor_sums,
)
from kbrl.model.kernels import Kernel, KernelAt, Profile, log_profile
from kbrl.model.model import given_reps
from kbrl.model.reduced_model import often_taken
from kbrl.model.representatives import choose, distinct_rows
from kbrl.settings import TERMINALS, cases_needed
from kbrl.threads import number_of_jobs, one_blas_thread

KINDS = ("normalized", "raw")

_FAINTEST = 1e-100  # raw kernel values below it count as 0: products of them would be denormal, and slow


@dataclass(eq=False, repr=False)
class LSPI(Learner):
    """Least-squares policy iteration.

    n_reps, reps, discount, scaling, random_state, profile, cover_distance, terminals, n_jobs: as for KBSF.
    width, neighbors: of the kernel at the representative states; KBSF's rep_width and rep_neighbors.
    features: "normalized" kernel values, "raw" ones, or a function of states in the data's units, (n, n_dims) to
        (n, n_features), dense or sparse, that replaces representative states and kernel.
    ridge: added to the diagonal of A.  It acts like this number of transitions in favour of every weight being 0.
    max_iterations: the largest number of iterations.
    tolerance: stop when no weight changes by more than this fraction of the largest.
    min_cases: as for KBSF: actions that were taken fewer times are left out; None: 5.

    ``fit(log)`` takes `Transitions` or a list of them.  ``predict(states)`` and ``q_values(states)`` answer for
    states, (n_states, n_dims), as KBSF does.

    The paper's LSPI has features="raw" and ridge=0; on the puddle world its policies keep changing and rarely reach the
    goal, whereas narrow normalised kernels with a little ridge do.
    A has (n_actions * n_features)^2 entries.  It is solved by LU, or by its singular values if it is nearly singular.
    With ``neighbors`` it is sparse; beyond 4000 rows it is solved by LGMRES, or LSMR, starting at the last weights.

    In state 0, "left" pays 1 and stays there; in state 1, "right" does.  The discount is 0.9, so paying for ever is
    worth 1 / (1 - 0.9) = 10, and the other action is worth 0.9 * 10 = 9.

    >>> from kbrl import LSPI, Transitions
    >>> log = Transitions(
    ...     states=[[0.0], [0.0], [1.0], [1.0]],
    ...     actions=["left", "right", "left", "right"],
    ...     rewards=[1.0, 0.0, 0.0, 1.0],
    ...     next_states=[[0.0], [1.0], [0.0], [1.0]],
    ... )
    >>> model = LSPI(n_reps=2, discount=0.9, ridge=0, min_cases=1, random_state=0).fit(log)
    >>> model.q_values([[0.0], [1.0]]).round(2).tolist()
    [[10.0, 9.0], [9.0, 10.0]]
    """

    n_reps: int = 100
    reps: Any = "k-means"
    width: Any = 0.02
    features: str | Callable[[Floats], Any] = "normalized"
    neighbors: int | None = None
    discount: float = 0.99
    scaling: Any = "std"
    random_state: Any = None
    _: KW_ONLY
    profile: Profile = "exponential"
    cover_distance: float | None = None
    terminals: str = "absorb"
    ridge: float = 0.1
    max_iterations: int = 30
    tolerance: float = 1e-5
    min_cases: int | None = None
    n_jobs: int | None = None
    weights_: Floats = field(init=False)  # (n_features, n_actions), zero for actions never tried
    n_iterations_: int = field(init=False)
    converged_: bool = field(init=False)

    def fit(self, log: Transitions | Iterable[Transitions]) -> LSPI:
        """Learn from transitions, or from chunks of them that can be read many times, such as a list.

        The first policy is greedy in the immediate reward.
        """
        self._check_parameters()
        data = self._data(_repeatable(log))
        with one_blas_thread():  # the same result whatever the number of threads
            gram, rhs, counts = own_sums(data)
            often = often_taken(counts, cases_needed(self.min_cases))
            kept = [block if is_kept else None for block, is_kept in zip(gram, often)]
            equations = Equations(kept, rhs, float(self.discount), float(self.ridge))
            weights = equations.solve(None, np.zeros((data.n_features, data.n_actions)))
            n_iterations, converged = 0, False
            pairs = Pairs(data, MOST_KEPT if isinstance(log, Transitions) else 0)  # a list may exceed the memory
            while n_iterations < self.max_iterations and not converged:
                before = weights
                q = LinearQ(data.features, before, equations.tried)
                weights = equations.solve(successor_sums(data, q, pairs), before)
                converged = bool(np.abs(weights - before).max() <= self.tolerance * np.abs(weights).max())
                n_iterations += 1
        self.coordinates_, self.action_labels_, self.source_ = data.coordinates, data.action_labels, data.source
        self._features, self._tried = data.features, equations.tried
        self.weights_ = weights
        self.n_iterations_, self.converged_ = n_iterations, converged
        say_if_rare(data.action_labels, counts, self.min_cases)
        return self

    @property
    def reps_(self) -> Floats:
        """The representative states, (n_reps, n_dims), in the units of the data."""
        self._check_fitted()
        if not isinstance(self._features, KernelFeatures):
            raise AttributeError("This LSPI uses your own features, and has no representative states.")
        return self.coordinates_.back(self._features.at.points)

    def _q_function(self) -> Callable[[Floats], Floats]:
        self._check_fitted()
        return LinearQ(self._features, self.weights_, self._tried)

    def _data(self, chunks: Iterable[Transitions]) -> FeatureData:
        """Fix scaling, actions and features by the first transitions."""
        first = as_log(next(iter(chunks)))
        refuse_allowed(first, "LSPI")
        own = callable(self.features)  # the user's features see states as they are
        units = Coordinates.plain(first.n_dims) if own else coordinates(first.states, self.scaling, source=first.source)
        features = self._feature_function(first, units)
        few = features(units.of(first.states[:100]))
        return FeatureData(
            chunks,
            features,
            units,
            first.action_labels,
            first.source,
            absorb=self.terminals == "absorb",
            n_jobs=number_of_jobs(self.n_jobs),
            n_features=few.shape[1],
            n_entries=few.nnz // few.shape[0] + 1 if sparse.issparse(few) else few.shape[1],
        )

    def _feature_function(self, log: Transitions, units: Coordinates) -> Features:
        if callable(self.features):
            return UserFeatures(self.features)
        kernel = Kernel(self.width, self.profile, self.neighbors)
        return KernelFeatures(kernel.at(self._choose_reps(log, units)), self.features == "normalized")

    def _choose_reps(self, log: Transitions, units: Coordinates) -> Floats:
        if not isinstance(self.reps, str):
            given = given_reps(self.reps, log.source, log.n_dims)
            return units.of(distinct_rows(given, "reps"))
        points, rng = units.of(log.next_states), as_generator(self.random_state)
        return choose(points, self.reps, self.n_reps, rng, cover_distance=self.cover_distance)

    def _check_parameters(self) -> None:
        whole(self.n_reps, "n_reps")
        check_width(self.width, "width")
        if not callable(self.features):
            one_of(self.features, KINDS, "features")
        for name in ("neighbors", "min_cases"):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name)
        in_unit_interval(self.discount, "discount")
        check_profile(self.profile)
        one_of(self.terminals, TERMINALS, "terminals")
        if self.ridge != 0:
            positive(self.ridge, "ridge")
        whole(self.max_iterations, "max_iterations")
        positive(self.tolerance, "tolerance")
        number_of_jobs(self.n_jobs)


@dataclass(frozen=True, eq=False)
class KernelFeatures:
    """Kernel values at the representative states: normalised, or as they are."""

    at: KernelAt
    normalized: bool

    def __call__(self, states: Floats) -> Any:
        """Return the features, (n_states, n_reps), of scaled states; CSR if the kernel has neighbours."""
        if self.normalized:
            return self.at.weights(states)
        if self.at.kernel.neighbors is None:
            return self._values(self.at.in_widths(states))
        z, indices = self.at.neighbors_in_widths(states)
        values = self._values(z)
        row_starts, shape = np.arange(0, values.size + 1, z.shape[1]), (len(states), len(self.at.points))
        return sparse.csr_array((values.ravel(), indices.ravel(), row_starts), shape=shape)

    def _values(self, z: Floats) -> Floats:
        logs = log_profile(z, self.at.kernel.profile)
        values = np.exp(np.maximum(logs, np.log(_FAINTEST)))
        values[values <= 2 * _FAINTEST] = 0.0
        return values


@dataclass(frozen=True, eq=False)
class UserFeatures:
    """A user's feature function, whose answers are checked."""

    function: Features

    def __call__(self, states: Floats) -> Any:
        """Return the features, (n_states, n_features), of states in the data's units."""
        name, features = "the result of features(states)", self.function(states.copy())
        if sparse.issparse(features):
            features = sparse.csr_array(features, dtype=np.float64)
            check_finite(features.data, name)
        else:
            features = as_rows(features, name)
        if features.shape[0] != len(states):
            raise ValueError(
                f"{name} must have one row for each of {len(states)} states, but its shape is {features.shape}."
            )
        return features


def _repeatable(log: Any) -> Iterable[Transitions]:
    """Refuse an iterator, which can be read only once: every iteration reads the data."""
    if isinstance(log, Transitions) or not isinstance(log, Iterable):
        return [as_log(log)]
    if iter(log) is log:
        raise TypeError(
            f"LSPI reads the data at every iteration, but a {type(log).__name__} can be read only once. "
            f"Pass Transitions, a list of them, or an object whose __iter__ starts again."
        )
    if next(iter(log), None) is None:
        raise ValueError("fit needs at least one chunk of transitions, but the iterable is empty.")
    return log
