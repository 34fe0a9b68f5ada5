"""Sums over the rows of a log and the model's answers to them, in one pass.

A tally holds a few numbers per pair of a logged action and an answer; a sample for the pictures; and the rows with the
largest advantage among those whose advice has enough support, at most one per episode.  Its memory does not grow with
the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.data.scaling import Moments
from kbrl.data.survey import Survey
from kbrl.data.transitions import Transitions
from kbrl.logs.sequence import EpisodeMemory
from kbrl.model.model import Model
from kbrl.report.recommendations import Answers, answers

SAMPLE_ROWS = 20_000
N_EXAMPLES = 10


@dataclass(frozen=True)
class Example:
    """A logged decision for which the model recommends another action."""

    row: int  # of the log, from 0
    episode: Any
    state: tuple[float, ...]
    logged: int  # places of actions
    recommended: int
    advantage: float
    support: float  # logged cases of the recommended action around the state


class Tally:
    """Sums over the rows of a log; matrices are (n_actions, n_answers), logged action by answer."""

    def __init__(self, model: Model, reach: float) -> None:
        n_actions, n_answers = len(model.action_labels), len(model.answer_labels)
        shape = (n_actions, n_answers)
        self._model, self._reach = model, reach
        self.survey = _survey(model, has_durations=False)
        self.rewards = Moments(1)
        self.reward_sum: Floats = np.zeros(n_actions)  # by logged action
        self.counts: Integers = np.zeros(shape, dtype=np.intp)
        self.n_valued: Integers = np.zeros(shape, dtype=np.intp)  # rows whose logged action has a value
        self.value_sum: Floats = np.zeros(shape)  # of the logged action
        self.advantage_sum: Floats = np.zeros(shape)  # of the recommended action over the logged one
        self.n_weak: Integers = np.zeros(n_answers, dtype=np.intp)  # by answer
        self.weak_counts: Integers = np.zeros(shape, dtype=np.intp)  # rows in which it has little support
        self.n_better = [0, 0]  # rows in which another action is expected to be better: with support, and with little
        self.backed_gain = 0.0  # sum of the advantages of those with support
        self.rep_counts: Integers = np.zeros(model.basis.n_reps, dtype=np.intp)  # states nearest to each
        self.n_far = 0
        self.n_ends = 0
        self.n_episodes: int | None = None
        self.examples: list[Example] = []
        self._memory, self._last_episode = EpisodeMemory(), None

    @property
    def n_rows(self) -> int:
        """The number of transitions seen."""
        return self.survey.n_rows

    def add(self, rows: Integers, chunk: Transitions) -> None:
        """Add transitions, which come from these rows of the log."""
        found = answers(self._model, chunk.states)
        if chunk.durations is not None and self.survey.n_rows == 0:
            self.survey = _survey(self._model, has_durations=True)
        self.survey.add(chunk)
        self.rewards.accumulate(chunk.rewards[:, None])
        self.reward_sum += np.bincount(chunk.action_indices, chunk.rewards, minlength=len(self.reward_sum))
        self.n_weak += np.bincount(found.best[found.is_weak], minlength=len(self.n_weak))
        self.rep_counts += np.bincount(found.nearest, minlength=len(self.rep_counts))
        self.n_far += int((found.distances > self._reach).sum())
        self.n_ends += int(chunk.terminals.sum())
        self._add_pairs(chunk, found)
        self._add_examples(rows, chunk, found)
        if chunk.episodes is not None:
            self._add_episodes(chunk.episodes)

    def _add_pairs(self, chunk: Transitions, found: Answers) -> None:
        values = found.value_of(chunk.action_indices)
        is_valued = np.isfinite(values)
        self.counts += self._by_pair(chunk, found, np.ones(len(chunk), dtype=bool))
        self.weak_counts += self._by_pair(chunk, found, found.is_weak)
        self.n_valued += self._by_pair(chunk, found, is_valued)
        self.value_sum += self._by_pair(chunk, found, is_valued, values)
        self.advantage_sum += self._by_pair(chunk, found, is_valued, found.values - values)

    def _by_pair(self, chunk: Transitions, found: Answers, rows: Booleans, weights: Floats | None = None) -> Array:
        shape = self.counts.shape
        pairs = chunk.action_indices[rows] * shape[1] + found.best[rows]
        sums = np.bincount(pairs, None if weights is None else weights[rows], minlength=shape[0] * shape[1])
        return sums.reshape(shape)

    def _add_examples(self, rows: Integers, chunk: Transitions, found: Answers) -> None:
        advantages = found.values - found.value_of(chunk.action_indices)
        advantages[~np.isfinite(advantages)] = 0.0  # compared with an action about which nothing is known
        is_backed = (advantages > 0) & ~found.is_weak
        self.n_better[0] += int(is_backed.sum())
        self.n_better[1] += int(((advantages > 0) & found.is_weak).sum())
        self.backed_gain += float(advantages[is_backed].sum())
        advantages[~is_backed] = 0.0  # advice with little support is not listed
        order = np.argsort(-advantages, kind="stable")
        if chunk.episodes is not None:
            order = order[np.sort(np.unique(chunk.episodes[order], return_index=True)[1])]
        order = order[advantages[order] > 0]
        candidates = self.examples + [
            Example(
                row=int(rows[place]),
                episode=None if chunk.episodes is None else chunk.episodes[place : place + 1].tolist()[0],
                state=tuple(chunk.states[place].tolist()),
                logged=int(chunk.action_indices[place]),
                recommended=int(found.best[place]),
                advantage=float(advantages[place]),
                support=float(found.best_support[place]),
            )
            for place in order[:N_EXAMPLES].tolist()
        ]
        self.examples = _largest(candidates)

    def _add_episodes(self, episodes: Array) -> None:
        n_starts = 1 + int(np.count_nonzero(episodes[1:] != episodes[:-1]))
        if self.n_episodes is None:
            self.n_episodes = 0
        elif episodes[0] == self._last_episode:
            n_starts -= 1
        self.n_episodes += n_starts - len(self._memory.returns(episodes))
        self._last_episode = episodes[-1]


def _largest(candidates: list[Example]) -> list[Example]:
    """Return the examples of largest advantage, at most one per episode."""
    chosen: dict[Any, Example] = {}
    for example in sorted(candidates, key=lambda example: (-example.advantage, example.row)):
        chosen.setdefault(example.row if example.episode is None else (example.episode,), example)
    return list(chosen.values())[:N_EXAMPLES]


def _survey(model: Model, *, has_durations: bool) -> Survey:
    n_dims = model.coordinates.n_dims
    return Survey(model.action_labels, n_dims, sample_rows=SAMPLE_ROWS, has_durations=has_durations)
