"""Episodes that run side by side, recorded step by step and written to a log episode by episode.

Where an episode begins in the log is known only when those before it are over.  Until then its steps are kept in
time order; then they are copied to their places, once.

Paper: "a set of n sample transitions" (section 4.3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.transitions import Transitions
from kbrl.numba_cache import njit

FIRST_ROOM = 1_000_000  # rows kept before the arrays must grow; unused room costs nothing


class Step(NamedTuple):
    """One time step of all episodes that still run."""

    rows: Integers  # which episodes they are, in ascending order
    actions: Integers
    rewards: Floats
    next_observations: Floats
    terminals: Booleans


class Pages(NamedTuple):
    """The columns of a log that is being written."""

    states: Floats  # (n_rows, n_dims); all as in Transitions
    actions: Integers
    rewards: Floats
    next_states: Floats
    terminals: Booleans
    episodes: Integers

    def to_log(self, n_actions: int) -> Transitions:
        """Return the log, its actions labelled by their places."""
        return Transitions.trusted(*self, np.arange(n_actions))


def empty_pages(n_rows: int, n_dims: int) -> Pages:
    """Return room for that many transitions, in one block: fresh memory comes faster in large pieces."""
    block = np.empty((2 * n_dims + 3) * n_rows)
    states, next_states, rest = np.split(block, [n_dims * n_rows, 2 * n_dims * n_rows])
    rewards, actions, episodes = rest.reshape(3, n_rows)
    shape = (n_rows, n_dims)
    columns = (states.reshape(shape), actions.view(np.intp), rewards, next_states.reshape(shape))
    return Pages(*columns, np.empty(n_rows, dtype=bool), episodes.view(np.intp))


class _Kept(NamedTuple):
    """Steps in time order, one row per episode that was still running."""

    actions: Integers
    rewards: Floats
    seen: Floats  # (n_kept, n_dims): the observations after the step


class _Episodes(NamedTuple):
    """What is known of each episode as a whole."""

    starts: Floats  # (n_episodes, n_dims): the first observations
    lengths: Integers  # (n_episodes,)
    ended: Booleans  # (n_episodes,): really, not by a time limit


class Recorder:
    """Keeps what happens in episodes that start together, and writes it to a log; then it can be used again."""

    def __init__(self) -> None:
        self._kept = _room(0, 0)

    def start(self, observations: Floats, max_steps: int) -> None:
        """Begin with the first observations of new episodes, and forget the earlier ones."""
        n, n_dims = observations.shape
        if len(self._kept.rewards) == 0:
            self._kept = _room(min(n * max_steps, FIRST_ROOM), n_dims)
        starts = np.array(observations, dtype=np.float64, order="C")
        self._episodes = _Episodes(starts, np.zeros(n, dtype=np.intp), np.zeros(n, dtype=bool))
        self._bounds = [0]  # where each step begins among those kept
        self._last: Step | None = None

    @property
    def n_rows(self) -> int:
        """The number of transitions of all episodes."""
        return self._bounds[-1]

    @property
    def n_dims(self) -> int:
        """The number of observed variables."""
        return self._episodes.starts.shape[1]

    def add(self, step: Step) -> None:
        """Keep a step.  Its numbers are copied: a simulator may overwrite its own."""
        if self._last is not None and self._last.rows is not step.rows:
            self._note_ends(self._last)
        first = self._bounds[-1]
        end = first + len(step.rows)
        while end > len(self._kept.rewards):
            self._kept = _doubled(self._kept)
        actions, rewards, seen = self._kept
        actions[first:end], rewards[first:end], seen[first:end] = step.actions, step.rewards, step.next_observations
        self._bounds.append(end)
        self._last = step

    def write(self, pages: Pages, first_row: int, first_episode: int) -> None:
        """Write the episodes down from a row on, one after the other, as far as there is room."""
        if self._last is not None:
            self._note_ends(self._last)
        _write(self._kept, np.array(self._bounds), self._episodes, pages, first_row, first_episode)

    def to_log(self, first_episode: int, n_actions: int) -> Transitions:
        """Return the episodes as a log."""
        pages = empty_pages(self.n_rows, self.n_dims)
        self.write(pages, 0, first_episode)
        return pages.to_log(n_actions)

    def _note_ends(self, step: Step) -> None:
        """Treat a step as the last one of its episodes; episodes that continue are noted again later."""
        self._episodes.lengths[step.rows] = len(self._bounds) - 1
        self._episodes.ended[step.rows] = step.terminals


def _room(n: int, n_dims: int) -> _Kept:
    return _Kept(np.empty(n, dtype=np.intp), np.empty(n), np.empty((n, n_dims)))


def _doubled(kept: _Kept) -> _Kept:
    """Return twice the room, the first half filled."""
    n, n_dims = kept.seen.shape
    larger = _room(2 * n, n_dims)
    for column, old in zip(larger, kept):
        column[:n] = old
    return larger


@njit(cache=True, nogil=True)
def _write(kept: _Kept, places: Integers, episodes: _Episodes, pages: Pages, row: int, number: int) -> None:
    """Write episode by episode from a row on; ``places[t]`` is where step t of the next episode is kept.

    In one loop: a function per row took twice as long (measured).
    """
    for e in range(len(episodes.lengths)):
        n = min(episodes.lengths[e], len(pages.rewards) - row)
        if n == 0:
            return
        for j in range(pages.states.shape[1]):
            pages.states[row, j] = episodes.starts[e, j]
        for t in range(n):
            i, place = row + t, places[t]
            for j in range(pages.states.shape[1]):
                pages.next_states[i, j] = kept.seen[place, j]
                if t + 1 < n:
                    pages.states[i + 1, j] = kept.seen[place, j]
            pages.actions[i], pages.rewards[i] = kept.actions[place], kept.rewards[place]
            pages.terminals[i], pages.episodes[i] = False, number + e
            places[t] += 1
        row += n
        pages.terminals[row - 1] = episodes.ended[e] and n == episodes.lengths[e]
