"""Committees: several learners that differ in their randomness, and decide together.

The paper's members have representative states of their own, drawn at random, and vote; ties are broken at random.
Here chance is a hash of the state: over many states tied actions win equally often, but one state has one answer.
The members' disagreement says how much an answer owes to chance.  Paper: section 4.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats
from kbrl.checks import as_generator, one_of, whole
from kbrl.data.names import UNNAMED, row_by_name
from kbrl.data.sketch import row_hashes
from kbrl.data.transitions import Transitions, as_log
from kbrl.learners.learner import Learner, clone, said_elsewhere, say_if_rare
from kbrl.mdp.dynamic_programming import best_actions
from kbrl.threads import number_of_jobs

VOTES = ("majority", "mean")
_TRIFLE = 1e-9  # less than one vote of any committee, and more than rounding


@dataclass(eq=False, repr=False)
class Committee(Learner):
    """A committee of copies of a learner, each with its own random_state.

    learner: such as KBSF(...); its ``random_state`` is replaced.
    n_members: the number of copies.
    vote: "majority" chooses the action that most members prefer, and in a tie the one that a hash of the state
        favours; "mean" chooses the action with the best mean value.
    n_jobs: the number of members that are fitted at the same time; None: one per core.

    ``fit(log)`` takes `Transitions`.  For states, (n_states, n_dims), ``predict`` returns the labels of the chosen
    actions, (n_states,); ``votes``, ``q_values`` and ``spread`` return the shares of the votes, the means and the
    standard deviations of the members' values, (n_states, n_actions).

    In state 0, "left" pays 1 and stays there; in state 1, "right" does.  All members see that.

    >>> from kbrl import KBSF, Committee, Transitions
    >>> log = Transitions(
    ...     states=[[0.0], [0.0], [1.0], [1.0]],
    ...     actions=["left", "right", "left", "right"],
    ...     rewards=[1.0, 0.0, 0.0, 1.0],
    ...     next_states=[[0.0], [1.0], [0.0], [1.0]],
    ... )
    >>> committee = Committee(KBSF(n_reps=2, min_cases=1, discount=0.9), n_members=3, random_state=0).fit(log)
    >>> committee.predict([[0.0], [1.0]]).tolist()
    ['left', 'right']
    >>> committee.votes([[0.0], [1.0]]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    learner: Any
    n_members: int = 10
    _: KW_ONLY
    vote: str = "majority"
    random_state: Any = None
    n_jobs: int | None = None
    members_: list[Any] = field(init=False)

    def fit(self, log: Transitions) -> Committee:
        """Let every member learn from the same transitions; on a Dask cluster: `kbrl.fit_on_dask`."""
        log, members = as_log(log), self.new_members()

        def fit(member: Any) -> None:
            with said_elsewhere():
                member.fit(log)

        self._each(fit, members)
        self.set_members(members)
        params = members[0].get_params()
        if "min_cases" in params:
            counts = np.bincount(log.action_indices, minlength=log.n_actions)
            say_if_rare(log.action_labels, counts, params["min_cases"])
        return self

    def partial_fit(self, log: Transitions) -> Committee:
        """Let every member learn from further transitions."""
        members = self.members_ if hasattr(self, "members_") else self.new_members()
        self._each(lambda member: member.partial_fit(as_log(log)), members)
        self.set_members(members)
        return self

    @property
    def chooses_by(self) -> str:
        """The name of the method whose best column ``predict`` chooses: "votes", or "q_values" for vote="mean"."""
        return "q_values" if self.vote == "mean" else "votes"

    def _best(self, states: Any) -> Array:
        """Return the label of the action that the committee prefers in each state, (n_states,)."""
        if self.vote == "mean":
            return super()._best(states)
        decided = _decided(self.votes(states), self._scaled(states))
        return self.action_labels_[best_actions(decided, where_none=None)]

    def act(self, state: Any) -> Any:
        """Return the label of the action that the committee prefers in one state, (n_dims,)."""
        return self.predict([row_by_name(state, self.source_)])[0]

    def votes(self, states: Any) -> Floats:
        """Return the fraction of the members that prefer each action, (n_states, n_actions).

        Members to which no action is available, as where none is allowed, prefer none.
        """
        self._check_fitted()
        return _votes(self._all_q(states))

    def q_values(self, states: Any) -> Floats:
        """Return the mean of the members' values of each action, (n_states, n_actions)."""
        self._check_fitted()
        return _mean_and_spread(self._all_q(states))[0]

    def spread(self, states: Any) -> Floats:
        """Return the standard deviation of the members' values of each action, (n_states, n_actions)."""
        self._check_fitted()
        return _mean_and_spread(self._all_q(states))[1]

    def _all_q(self, states: Any) -> Floats:
        return np.stack([member.q_values(states) for member in self.members_])

    def _q_function(self) -> Callable[[Floats], Floats]:
        """Return the mean values, or the shares of the votes with ties broken, of the members as they are now."""
        self._check_fitted()
        policies, vote = [member.policy() for member in self.members_], self.vote

        def q(scaled_states: Floats) -> Floats:
            # One centre and scale for all: they depend on the log and the learner's settings, which all share.
            all_q = np.stack([policy.q(scaled_states) for policy in policies])
            return _mean_and_spread(all_q)[0] if vote == "mean" else _decided(_votes(all_q), scaled_states)

        return q

    def new_members(self) -> list[Any]:
        """Return members that have learnt nothing yet, each with its own random_state."""
        one_of(self.vote, VOTES, "vote")
        whole(self.n_members, "n_members")
        rng = as_generator(self.random_state)
        seeds = [int(seed) for seed in rng.integers(2**31, size=self.n_members)]
        takes_seed = "random_state" in self.learner.get_params()
        return [clone(self.learner).set_params(**({"random_state": seed} if takes_seed else {})) for seed in seeds]

    def _each(self, work: Callable[[Any], Any], members: list[Any]) -> None:
        with ThreadPoolExecutor(max_workers=min(number_of_jobs(self.n_jobs), len(members))) as pool:
            list(pool.map(work, members))

    def set_members(self, members: list[Any]) -> None:
        """Replace the members by ones that have learnt."""
        self.members_ = members
        self.coordinates_, self.action_labels_ = members[0].coordinates_, members[0].action_labels_
        self.source_ = getattr(members[0], "source_", UNNAMED)


def _votes(all_q: Floats) -> Floats:
    """Return the fraction of the members that prefer each action, (n_states, n_actions)."""
    preferred = np.stack([best_actions(q, where_none=-1) for q in all_q])
    return (preferred[:, :, None] == np.arange(all_q.shape[2])).mean(axis=0)


def _decided(votes: Floats, states: Floats) -> Floats:
    """Return the votes, with slightly more for the action that wins a tie; -inf where no member prefers any.

    It is the one whose hash together with the state is smallest: the same whenever and in whatever company a state is
    asked about.
    """
    tied, has_votes = votes == votes.max(axis=1, keepdims=True), votes.max(axis=1) > 0
    rows, decided = np.flatnonzero((tied.sum(axis=1) > 1) & has_votes), np.where(has_votes[:, None], votes, -np.inf)
    if len(rows):
        columns, actions = [*states[rows].T], range(votes.shape[1])
        hashes = np.stack([row_hashes([*columns, np.full(len(rows), action)]) for action in actions], axis=1)
        winners = np.where(tied[rows], hashes, np.iinfo(np.uint64).max).argmin(axis=1)
        decided[rows, winners] *= 1 + _TRIFLE
    return decided


def _mean_and_spread(all_q: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation over the members that know an action; -inf and 0 where none does."""
    known = np.isfinite(all_q)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, all_q, 0.0).sum(axis=0) / count
    spread = np.sqrt((np.where(known, all_q - mean, 0.0) ** 2).sum(axis=0) / count)
    return np.where(known.any(axis=0), mean, -np.inf), spread
