"""What the check measures about the order of the rows: steps, ends, episodes, and states that should be the same.

Rows are compared with the row before them, also across the borders of chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.data.columns import Columns
from kbrl.data.episodes import EpisodeMemory
from kbrl.data.faults import PLACE, Fault, make_fault
from kbrl.data.measures import Tally
from kbrl.data.readers import Border
from kbrl.data.rows import Rows, is_usable

_MOST_STRIDES = 1000  # different differences between steps that are told apart
_FEWEST_EPISODES = 3  # of one length, before a time limit is suspected


class SuccessionMeasure:
    """Compares each row with the one before it, and counts episodes."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._last: dict[str, Array] | None = None
        self._tallies = {name: Tally() for name in _MESSAGES}
        self._strides: dict[float, tuple[Tally, Tally]] = {}  # all of them, and those that are no ends
        self._are_whole = True
        self._memory = EpisodeMemory()
        self._lengths = EpisodeLengths()
        self._joined_files = JoinedFiles()
        self._n_made = 0

    def add(self, rows: Rows) -> None:
        """Take more rows into account."""
        self._n_made += self._n_certain(rows)
        if rows.episodes is None:
            return
        fields = _fields(rows)
        first = rows.first
        if self._last is not None:
            fields = {name: np.concatenate([self._last[name], field]) for name, field in fields.items()}
            first -= 1
        same = np.asarray(fields["episodes"][1:] == fields["episodes"][:-1])
        self._compare(fields, same, first)
        if not self._columns.next_state:
            self._joined_files.add(rows.borders, same & ~fields["terminated"][:-1], fields.get("steps"), first)
        self._lengths.add(same, fields, first)
        if self._columns.episode is not None:
            returned = np.zeros(len(rows), dtype=bool)
            returned[self._memory.returns(rows.episodes)] = True
            self._tallies["split_episode"].add(returned, rows.first)
        self._last = {name: field[-1:] for name, field in fields.items()}

    def _n_certain(self, rows: Rows) -> int:
        if rows.next_states is None:
            return int(rows.terminated.sum())  # the others depend on the row after them
        return int((~rows.without_next | rows.terminated).sum())

    def _compare(self, fields: dict[str, Array], same: Booleans, first: int) -> None:
        is_end = fields["terminated"][:-1]
        stopped = same & (is_end | fields["truncated"][:-1])
        self._tallies["rows_after_end"].add(stopped, first + 1)
        goes_on = same & ~is_end
        if "next_states" in fields:
            differs = _differ(fields["next_states"][:-1], fields["states"][1:])
            forward = np.diff(fields["steps"]) if "steps" in fields else np.ones(len(same))
            stride = min(self._strides, default=1.0)
            self._tallies["next_state_mismatch"].add(goes_on & ~stopped & differs & (forward <= max(stride, 1)), first)
        else:
            self._n_made += int(goes_on.sum())
        if "steps" in fields:
            self._compare_steps(fields["steps"], same, goes_on, first)

    def _compare_steps(self, steps: Floats, same: Booleans, goes_on: Booleans, first: int) -> None:
        self._are_whole &= bool((np.floor(steps) == steps).all())
        forward = np.diff(steps)
        self._tallies["duplicate_steps"].add(same & (forward == 0), first + 1)
        self._tallies["unsorted_steps"].add(same & (forward < 0), first + 1)
        for stride in np.unique(forward[same & (forward > 0)]).tolist():
            if stride in self._strides or len(self._strides) < _MOST_STRIDES:
                both = self._strides.setdefault(stride, (Tally(), Tally()))
                both[0].add(same & (forward == stride), first)
                both[1].add(goes_on & (forward == stride), first)

    def _gaps(self) -> tuple[Tally, int]:
        """Return the rows before a gap, and how many of them would have been transitions."""
        gaps, n_lost = Tally(), 0
        least = min(self._strides, default=0.0)
        for stride, (every, going_on) in self._strides.items() if self._are_whole else ():
            if stride > least:
                gaps.count += every.count
                gaps.rows += every.rows
                n_lost += going_on.count
        gaps.rows.sort()
        return gaps, n_lost

    @property
    def n_episodes(self) -> int:
        """The number of episodes so far; 0 where nothing tells them apart."""
        return self._lengths.n_episodes

    @property
    def n_transitions(self) -> int:
        """The number of transitions that the reader makes of the rows."""
        return self._n_made - (0 if self._columns.next_state else self._gaps()[1])

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong with the order of the rows."""
        self._tallies["missing_steps"] = self._gaps()[0]
        has_flags = any((self._columns.terminated, self._columns.truncated, self._columns.done))
        self._lengths.finish(self._last, self._tallies, has_flags=has_flags)
        for name, tally in self._tallies.items():
            if tally.count:
                stops = False if name in _ORDER and self._columns.next_state else None
                unit = "episodes" if name in ("tiny_episodes", "unfinished_episodes") else "rows"
                message = _MESSAGES[name].format(count=tally.count, place=PLACE)
                yield make_fault(name, message, count=tally.count, unit=unit, rows=tally.rows, stops=stops)
        yield from self._lengths.faults()
        if self._columns.step is None or not self._are_whole:  # else rows are joined only where the steps go on
            yield from self._joined_files.faults()


_ORDER = ("duplicate_steps", "unsorted_steps", "split_episode")
_MESSAGES = {
    "duplicate_steps": "{count} rows repeat the step of the row before them; the first is {place}.",
    "unsorted_steps": "{count} rows have an earlier step than the row before them; the first is {place}.",
    "missing_steps": "After {count} rows steps are missing; the first is {place}.",
    "split_episode": "{count} times an episode starts again that had been left; the first is {place}.",
    "rows_after_end": "{count} rows follow an end within the same episode; the first is {place}.",
    "next_state_mismatch": "The next state of {count} rows is not the state of the row after; the first is {place}.",
    "unfinished_episodes": "{count} episodes stop without terminated or truncated; the first at {place}.",
    "tiny_episodes": "{count} episodes have a single row; the first is {place}.",
}


class JoinedFiles:
    """Counts the borders of files across which rows are joined, and no step shows that the episode goes on."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._first: Border | None = None

    def add(self, borders: Sequence[Border], goes_on: Booleans, steps: Floats | None, first: int) -> None:
        """Take the borders between rows into account, of which the first has the number ``first``."""
        for border in borders:
            place = border.row - first - 1
            is_shown = steps is not None and (steps[place + 1] - steps[place]) == 1
            if goes_on[place] and not is_shown:
                self._tally.add_rows(np.array([border.row]))
                self._first = self._first or border

    def faults(self) -> Iterator[Fault]:
        """Yield the borders as one fault, with the names of the two files at the first."""
        if self._first is None:
            return
        count, rows = self._tally.count, self._tally.rows
        message = (
            f"At {count} borders of files the last row of one file takes its next state from the first row of the "
            f"other; the first is between {self._first.before} and {self._first.after}, at {PLACE}."
        )
        yield make_fault("episode_across_files", message, count=count, unit="borders", rows=rows)


class EpisodeLengths:
    """Counts episodes: all of them, the longest, those of one row and those that just stop."""

    def __init__(self) -> None:
        self.n_episodes = 0
        self._start = 0  # the first row of the episode that goes on
        self._n_rows = 0
        self._longest, self._long, self._long_ended = 0, Tally(), Tally()
        self._loose, self._tiny = Tally(), Tally()

    def add(self, same: Booleans, fields: dict[str, Array], first: int) -> None:
        """Close the episodes that end between two of these rows."""
        self._n_rows = first + len(same) + 1
        places = np.flatnonzero(~same)
        self._close(first + places, fields["terminated"][places], fields["truncated"][places])

    def _close(self, last_rows: Integers, terminated: Booleans, truncated: Booleans) -> None:
        if len(last_rows) == 0:
            return
        lengths = np.diff(last_rows, prepend=self._start - 1)
        if lengths.max() > self._longest:
            self._longest, self._long, self._long_ended = int(lengths.max()), Tally(), Tally()
        is_long = lengths == self._longest
        self._long.add_rows(last_rows[is_long])
        self._long_ended.add_rows(last_rows[is_long & terminated])
        self._loose.add_rows(last_rows[~terminated & ~truncated])
        self._tiny.add_rows(last_rows[lengths == 1])
        self._start = int(last_rows[-1]) + 1
        self.n_episodes += len(last_rows)

    def finish(self, last: dict[str, Array] | None, tallies: dict[str, Tally], *, has_flags: bool) -> None:
        """Close the last episode and hand over the counts."""
        if last is not None and self._start < self._n_rows:
            self._close(np.array([self._n_rows - 1]), last["terminated"], last["truncated"])
        tallies["tiny_episodes"] = self._tiny
        tallies["unfinished_episodes"] = self._loose if has_flags else Tally()

    def faults(self) -> Iterator[Fault]:
        """Yield a time limit that looks like an end: many episodes of the greatest length, all of them terminated."""
        count = self._long_ended.count
        often = max(_FEWEST_EPISODES, 0.05 * self.n_episodes)
        if self._longest > 1 and self._long.count == count >= often:
            message = (
                f"{count} of {self.n_episodes} episodes have the greatest length, {self._longest} rows, and all "
                f"are terminated there."
            )
            yield make_fault("time_limit_as_end", message, count=count, unit="episodes", rows=self._long_ended.rows)


def _fields(rows: Rows) -> dict[str, Array]:
    fields: dict[str, Any] = {"terminated": rows.terminated, "truncated": rows.truncated, "episodes": rows.episodes}
    if rows.steps is not None:
        fields["steps"] = rows.steps
    if rows.next_states is not None:
        fields |= {"states": rows.states, "next_states": rows.next_states}
    return fields


def _differ(next_states: Floats, states: Floats) -> Booleans:
    """Say which rows differ by more than rounding to single precision; what is missing is counted elsewhere."""
    known = is_usable(next_states).all(axis=1) & is_usable(states).all(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.maximum(np.abs(states), np.abs(next_states))
        return np.asarray(known & (np.abs(next_states - states) > 1e-6 * size + 1e-12).any(axis=1))
