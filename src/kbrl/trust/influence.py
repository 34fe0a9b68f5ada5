"""How much each episode adds to a value: the terms of the estimating equations, one sum per episode.

For the solution theta of the equations and u of the transposed ones, an episode adds
psi = D theta + u (R + discount T theta - (1 - lambda) S theta - lambda W theta), with the sums of the episode alone.
Over all episodes psi sums to n V, up to what the ridge adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats, Integers
from kbrl.data.transitions import Transitions
from kbrl.trust.block_sums import Seen, settled
from kbrl.trust.estimates import Evidence, solve_system
from kbrl.trust.evaluator import CHUNK_ROWS, PolicyEvaluator, chunks_of
from kbrl.trust.judgement import Influence
from kbrl.trust.policy_answers import Answers
from kbrl.trust.trajectories import Trajectories

_SEVERAL, _DIGITS = 3, 9  # rows and digits by which copies of an episode are told from others like it


@dataclass(frozen=True, eq=False)
class EpisodeTerms:
    """What each episode adds to n V of the first policy and of the logged one; one entry per episode."""

    names: list[Any]
    value: Floats  # (n_episodes,)
    now: Floats  # (n_episodes,)
    n_rows: Integers  # (n_episodes,)
    first: Integers  # (n_episodes,): a hash of the first state

    @property
    def influences(self) -> tuple[Influence, ...]:
        """All episodes, those first whose absence would change the gain most."""
        terms = self.value - self.now
        changes = -(terms - terms.mean()) / len(terms)
        order = np.argsort(-np.abs(changes), kind="stable")
        return tuple(Influence(self.names[place], float(changes[place])) for place in order)

    @property
    def n_copies(self) -> int:
        """How many episodes of several rows begin, and last, as another one, and add the same, to nine digits."""
        long = self.n_rows >= _SEVERAL
        terms = np.column_stack([self.value, self.now])[long]
        size = np.abs(terms).max(initial=0.0)
        if size == 0.0:
            return 0
        keys = np.column_stack([np.round(terms / size, _DIGITS), self.n_rows[long], self.first[long]])
        different = np.unique(keys, axis=0)
        return len(terms) - len(different)


def episode_terms(evaluator: PolicyEvaluator, log: Any, smoothing: float) -> EpisodeTerms:
    """Return what each episode of the log that the evaluator was fitted to adds to the values."""
    frame, policy = evaluator.checked_frame(), evaluator.answers()[0]
    answers = policy if evaluator.remembered is None else evaluator.remembered.again(policy)
    assert evaluator.sums is not None
    evidence = Evidence(evaluator.sums, frame.discount, 0)
    solved = [solve_system(evidence.system(now=now), smoothing, frame.discount) for now in (False, True)]
    columns = np.concatenate([each.columns(frame.features.n_reps) for each in solved], axis=1)
    trajectories = Trajectories(frame.features.coordinates.scale, frame.discount)
    names: dict[int, tuple[Any, int]] = {}
    terms: list[tuple[Array, ...]] = []

    def add(stretches: Any) -> None:
        for stretch in stretches:
            seen = Seen.of(stretch, frame.features, frame.n_blocks)
            _remember(names, seen)
            of_value, of_now = np.split(seen.phi @ columns, 2, axis=1)
            value = _terms(seen, of_value, smoothing, frame.discount, answers)
            now = _terms(seen, of_now, smoothing, frame.discount, None)
            hashes, places = np.unique(seen.counted(stretch.hashes), return_inverse=True)
            terms.append((hashes, np.bincount(places, value), np.bincount(places, now), np.bincount(places)))

    for chunk in chunks_of(log):
        for piece in chunk.in_order_of(frame.source).with_actions(frame.action_labels).chunks(CHUNK_ROWS):
            add(trajectories.add(piece))
    add(trajectories.finish())
    hashes, places = np.unique(np.concatenate([part[0] for part in terms]), return_inverse=True)
    sums = [np.bincount(places, np.concatenate([part[k] for part in terms])) for k in (1, 2, 3)]
    value, now = (np.asarray(total - each.leftover / len(hashes)) for total, each in zip(sums, solved))
    labels, first = zip(*(names[value] for value in hashes.tolist()))
    return EpisodeTerms([*labels], value, now, sums[2].astype(np.intp), np.array(first))


def _remember(names: dict[int, tuple[Any, int]], seen: Seen) -> None:
    """Keep the label of each episode that starts, and a hash of its first state."""
    log: Transitions = seen.stretch.log
    starts = np.flatnonzero(seen.counted(seen.stretch.is_start))
    assert log.episodes is not None
    first = [hash(state.tobytes()) for state in log.states[starts]]
    names.update(zip(seen.stretch.hashes[starts].tolist(), zip(log.episodes[starts].tolist(), first)))


def _terms(
    seen: Seen, found: Floats, smoothing: float, discount: float, policy: Callable[[Floats], Answers] | None
) -> Floats:
    """Return what each counted row adds, (n,); without a policy, for the logged one.

    found: the `Solved.columns` at each point, (n_points, 3 A).
    """
    stretch, log, n = seen.stretch, seen.stretch.log, seen.stretch.n_counted
    actions, ends, is_cut = (seen.counted(x) for x in (log.action_indices, log.terminals, stretch.is_cut))
    values, ratios, smoothed_values = np.split(found, 3, axis=1)
    rows = np.arange(n)  # the states of the rows come first
    ratio, smoothed = ratios[rows, actions], smoothed_values[rows, actions]
    going_on, starts = np.flatnonzero(~ends), np.flatnonzero(seen.counted(stretch.is_start))
    if policy is None:
        going_on = going_on[~is_cut[going_on]]
        after = Answers(going_on, seen.next_actions[going_on], np.ones(len(going_on)))
        first = Answers(starts, actions[starts], np.ones(len(starts)))
    else:
        after = settled(policy(log.next_states[going_on]).at(going_on), seen.next_actions, actions)
        first = settled(policy(log.states[starts]).at(starts), actions, actions)
    following = np.bincount(after.rows, after.weights * values[seen.there[after.rows], after.actions], minlength=n)
    errors = log.rewards[:n] + discount * following - (1.0 - smoothing) * values[rows, actions]
    terms = ratio * errors - smoothing * smoothed
    if policy is None:
        terms = np.where(is_cut, 0.0, terms)
    return terms + np.bincount(first.rows, first.weights * values[first.rows, first.actions], minlength=n)
