"""From the rows of a log to transitions, chunk by chunk.

Next states are the log's own, or else those of the next row of the episode, across the borders of chunks and files.
A last row without a next state is kept if it is terminated, with its own state in the place of the next one, which no
value depends on; if it was cut there, by a flag or by the end of the log, it is left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import whole
from kbrl.data.action_labels import find_label
from kbrl.data.cells import Kind, Labels, Numbers
from kbrl.data.columns import Columns, resolve
from kbrl.data.faults import LogError
from kbrl.data.labels import ActionSet, TextType, as_type, label_array
from kbrl.data.naming import Source
from kbrl.data.readers import Table, batch_length, open_table, regrouped
from kbrl.data.rows import Problem, Rows, read_rows
from kbrl.data.transitions import Transitions, join

CHUNK_ROWS = 65536
Mapped = Mapping[str, str | Sequence[str]] | Columns | None


@dataclass(frozen=True, eq=False)
class Log:
    """A log that was opened and looked through once: what its columns are and which actions it has."""

    table: Table
    columns: Columns
    n_rows: int
    action_labels: Array
    action_type: type | None  # what the labels in the file are converted to
    episode_type: type | None
    stride: float  # between the steps of rows that follow each other; 0 where any difference will do
    state_names: tuple[str, ...] | None = None  # of the state variables, where they are not those of the columns

    def source(self, n_dims: int) -> Source:
        """Return what is known of the transitions beside their numbers; there are so many state variables."""
        names, has_ids = self.state_names or self.columns.state, self.columns.episode is not None
        return Source.of_columns(names, n_dims, others=self.table.names, has_episode_ids=has_ids)

    def chunks(self, chunk_rows: int = CHUNK_ROWS) -> Iterator[Transitions]:
        """Yield the transitions in their order; each chunk comes from about ``chunk_rows`` rows."""
        return (chunk for _, chunk in self.numbered_chunks(chunk_rows))

    def numbered_chunks(self, chunk_rows: int = CHUNK_ROWS) -> Iterator[tuple[Integers, Transitions]]:
        """Yield the same with the number of the row of the log, from 0, behind each transition."""
        whole(chunk_rows, "chunk_rows")
        stitcher = _Stitcher(self)
        n_given = 0
        for rows in read_rows(self.table, self.columns, chunk_rows, self.episode_type):
            refuse_problems(rows.problems, rows.first, len(rows))
            for numbers, chunk in stitcher.add(rows):
                n_given += len(chunk)
                yield numbers, chunk
        for numbers, chunk in stitcher.finish():
            n_given += len(chunk)
            yield numbers, chunk
        if n_given == 0:
            raise LogError("no_transitions", f"None of the {self.n_rows} rows has a next state, nor is an end.")


def open_log(source: Any, *, columns: Mapped = None, actions: Sequence[Any] | None = None) -> Log:
    """Open a log and look through its actions once, so that every chunk knows all of them.

    Of a Parquet or Arrow file only the column of the actions is read for that, and the steps where next states are
    missing; a text file is split twice.
    """
    table = open_table(source)
    return scan(table, resolve(table.names, columns)).log(table, actions)


def read_log(
    source: Any, *, columns: Mapped = None, actions: Sequence[Any] | None = None, chunk_rows: int = CHUNK_ROWS
) -> Iterator[Transitions]:
    """Return the transitions of a log in chunks, of which one at a time is in memory.

    ``columns`` names the columns of some roles (state, action, reward, next_state, terminated, truncated, done,
    episode, step) where their names do not tell; ``actions`` lists the possible actions if not all were taken.
    """
    whole(chunk_rows, "chunk_rows")
    return open_log(source, columns=columns, actions=actions).chunks(chunk_rows)


def load_log(source: Any, *, columns: Mapped = None, actions: Sequence[Any] | None = None) -> Transitions:
    """Return all transitions of a log at once."""
    return join(list(read_log(source, columns=columns, actions=actions)))


def refuse_problems(problems: Sequence[Problem], first: int, n_rows: int) -> None:
    """Raise the first thing that is wrong with the cells of some rows, of which ``first`` is the first."""
    if not problems:
        return
    problem = min(problems, key=lambda found: int(np.argmax(found.bad)))
    row = first + int(np.argmax(problem.bad))
    raise LogError(
        problem.name,
        f"{problem.column!r} has {int(problem.bad.sum())} faulty cells in rows {first} to {first + n_rows - 1} "
        f"({problem.name}); the first is row {row}: {problem.sample}.",
        rows=(first + np.flatnonzero(problem.bad)).tolist(),
        columns=[problem.column],
    )


class EpisodeMemory:
    """Remembers which episodes have been, to notice one that comes back; up to a number of them."""

    MOST = 200_000

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._last: Hashable = None

    def returns(self, episodes: Array) -> list[int]:
        """Return the places of rows at which an episode starts again that had been left before."""
        starts = np.append(0, 1 + np.flatnonzero(episodes[1:] != episodes[:-1]))
        returned = []
        for place, episode in zip(starts.tolist(), episodes[starts].tolist()):
            if episode != self._last and episode in self._seen:
                returned.append(place)
            if len(self._seen) < self.MOST:
                self._seen.add(episode)
            self._last = episode
        return returned


@dataclass(frozen=True, eq=False)
class Scan:
    """What a light look through a log tells; scans of the parts of a log add up."""

    columns: Columns
    taken: ActionSet
    episodes: TextType
    stride: _Stride
    n_rows: int
    is_text: bool

    def __add__(self, other: Scan) -> Scan:
        """Return the scan of both parts, whose columns are the same."""
        return Scan(
            self.columns,
            self.taken + other.taken,
            self.episodes + other.episodes,
            self.stride + other.stride,
            self.n_rows + other.n_rows,
            self.is_text or other.is_text,
        )

    def labels(self, actions: Sequence[Any] | None) -> Array:
        """Return the actions: those taken, or ``actions``, the possible ones."""
        return label_array(self.taken.settled(), actions, self.columns.action)

    def log(self, table: Table, actions: Sequence[Any] | None) -> Log:
        """Return the log of a table, opened."""
        labels, episode_type = self.labels(actions), self.episodes.found if self.is_text else None
        return Log(table, self.columns, self.n_rows, labels, self.taken.kind(), episode_type, self.stride.value)


def scan(table: Table, columns: Columns) -> Scan:
    """Look through a table once: at the actions, and at steps and episodes where something depends on them."""
    taken, episodes, stride, n_rows = ActionSet(columns.action, is_text=table.is_text), TextType(), _Stride(), 0
    kinds: dict[str, Kind] = {columns.action: "labels"}
    needs_steps = columns.step is not None and not columns.next_state
    if needs_steps:
        kinds[cast(str, columns.step)] = "numbers"
    if columns.episode is not None and (needs_steps or table.is_text):
        kinds[columns.episode] = "labels"
    for batch in regrouped(table.batches(kinds, CHUNK_ROWS), CHUNK_ROWS):
        labels = cast(Labels, batch[columns.action])
        codes, counts = labels.taken()
        taken.see([labels.values[code] for code in codes], counts)
        found = cast(Labels, batch[columns.episode]) if columns.episode in batch else None
        if found is not None and table.is_text:
            episodes.see(found.values)
        if needs_steps:
            stride.see(cast(Numbers, batch[cast(str, columns.step)]).values, found)
        n_rows += batch_length(batch)
    return Scan(columns, taken, episodes, stride, n_rows, table.is_text)


class _Stride:
    """The smallest step forward within an episode, if all steps are whole numbers."""

    def __init__(self) -> None:
        self._least, self._are_whole = np.inf, True

    def see(self, steps: Floats, episodes: Labels | None) -> None:
        self._are_whole &= bool((np.floor(steps) == steps).all())
        forward = np.diff(steps)
        inside = forward > 0
        if episodes is not None:
            inside &= episodes.codes[1:] == episodes.codes[:-1]
        self._least = min(self._least, forward[inside].min(initial=np.inf))

    def __add__(self, other: _Stride) -> _Stride:
        result = _Stride()
        result._least, result._are_whole = min(self._least, other._least), self._are_whole and other._are_whole
        return result

    @property
    def value(self) -> float:
        return float(self._least) if self._are_whole and np.isfinite(self._least) else 0.0


class _Stitcher:
    """Makes transitions of rows; the last row waits for the next one where next states are missing."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._places = {label: place for place, label in enumerate(log.action_labels.tolist())}
        self._memory = EpisodeMemory()
        self._waiting: dict[str, Array] | None = None
        self._first = 0  # the number of the row that waits

    def add(self, rows: Rows) -> Iterator[tuple[Integers, Transitions]]:
        fields = self._fields(rows)
        if rows.next_states is not None:
            closed = rows.without_next & rows.terminated
            next_states = np.where(closed[:, None], rows.states, rows.next_states)
            yield from self._made(fields, next_states, ~rows.without_next | rows.terminated)
            return
        self._refuse_returns(rows)
        if self._waiting is not None:
            fields = {name: np.concatenate([self._waiting[name], field]) for name, field in fields.items()}
        head = {name: field[:-1] for name, field in fields.items()}
        follows = self._follows(fields)
        is_end = head["terminals"]
        next_states = np.where(is_end[:, None], head["states"], fields["states"][1:])
        yield from self._made(head, next_states, follows | is_end)
        self._waiting = {name: field[-1:] for name, field in fields.items()}
        self._first = rows.first + len(rows) - 1

    def finish(self) -> Iterator[tuple[Integers, Transitions]]:
        if self._waiting is not None and self._waiting["terminals"][0]:
            yield from self._made(self._waiting, self._waiting["states"], np.ones(1, dtype=bool))

    def _fields(self, rows: Rows) -> dict[str, Array]:
        fields: dict[str, Array] = {
            "states": rows.states,
            "actions": self._indices(rows.actions),
            "rewards": rows.rewards,
            "terminals": rows.terminated,
            "numbers": np.arange(rows.first, rows.first + len(rows)),
        }
        if rows.episodes is not None:
            fields["episodes"] = rows.episodes
        if rows.steps is not None:
            fields["steps"] = rows.steps
        return fields

    def _indices(self, actions: Labels) -> Integers:
        labels = (as_type(value, self._log.action_type) for value in actions.values)
        return np.array([find_label(label, self._places) for label in labels], dtype=np.intp)[actions.codes]

    def _follows(self, fields: dict[str, Array]) -> Booleans:
        """Say of each row but the last whether the row after it is its next step."""
        same = np.asarray(fields["episodes"][1:] == fields["episodes"][:-1])
        if "steps" not in fields:
            return same
        forward = np.diff(fields["steps"])
        back = same & (forward <= 0)
        if back.any():
            self._refuse_step(int(np.argmax(back)), fields["steps"])
        return same & (forward <= self._log.stride) if self._log.stride else same

    def _refuse_step(self, place: int, steps: Floats) -> None:
        name = "duplicate_steps" if steps[place] == steps[place + 1] else "unsorted_steps"
        row = self._first + place + 1
        raise LogError(
            name,
            f"Steps must rise within an episode where next states are taken from the next row, but row {row} has step "
            f"{steps[place + 1]:g} after {steps[place]:g}.",
            rows=[row],
            columns=[cast(str, self._log.columns.step)],
        )

    def _refuse_returns(self, rows: Rows) -> None:
        returned = self._memory.returns(cast(Array, rows.episodes)) if self._log.columns.episode else []
        if returned:
            row = rows.first + returned[0]
            raise LogError(
                "split_episode",
                f"The rows of an episode must follow each other where next states are taken from the next row, but "
                f"episode {cast(Array, rows.episodes)[returned[0]]} starts again at row {row}.",
                rows=[row],
                columns=[cast(str, self._log.columns.episode)],
            )

    def _made(
        self, fields: dict[str, Array], next_states: Floats, kept: Booleans
    ) -> Iterator[tuple[Integers, Transitions]]:
        if kept.any():
            source = self._log.source(next_states.shape[1])
            named: list[Any] = [
                fields["states"],
                fields["actions"],
                fields["rewards"],
                next_states,
                fields["terminals"],
            ]
            named += [fields.get("episodes"), fields["numbers"]]
            if not kept.all():
                named = [None if field is None else field[kept] for field in named]
            yield named[-1], Transitions._trusted(*named[:-1], self._log.action_labels, source)
