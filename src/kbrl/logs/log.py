"""From the rows of a log to transitions, chunk by chunk.

Next states are the log's own, or else those of the next row of the episode, across the borders of chunks and files.
A last row without a next state is kept if it is terminated, with its own state in the place of the next one, which no
value depends on; if it was cut there, by a flag or by the end of the log, it is left out.  So is a row before a gap,
where the stride of the steps is stated.  How many rows are left out, and why, is told when the log is opened.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import KbrlWarning, whole
from kbrl.data.action_labels import find_label
from kbrl.data.state_names import Source
from kbrl.data.transitions import Transitions, join
from kbrl.logs.cell_values import Batch, Kind, Labels, Numbers
from kbrl.logs.columns import Columns, resolve, resolve_state
from kbrl.logs.faults import PLACE, LogError
from kbrl.logs.formats import Table, batch_length, open_table, regrouped
from kbrl.logs.label_types import ActionSet, TextType, as_type, label_array, warn_of_amounts
from kbrl.logs.rows import Problem, Rows, bad_numbers, ends, kinds_of, order_of, read_rows, stacked
from kbrl.logs.sequence import (
    MOST_GAPS,
    Edge,
    EpisodeMemory,
    LeftOut,
    LeftOutCounter,
    Numbering,
    Pairs,
    Rises,
    Sequencer,
    find_edge,
    too_many_gaps,
)

CHUNK_ROWS = 65536
Mapped = Mapping[str, Any] | Columns | None  # names of columns by role, stride and allow_gaps


@dataclass(frozen=True, eq=False)
class Log:
    """A log that was opened and looked through once: what its columns are and which actions it has."""

    table: Table
    columns: Columns
    n_rows: int
    action_labels: Array
    action_type: type | None  # what the labels in the file are converted to
    episode_type: type | None
    left_out: LeftOut  # rows that are no transitions
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
            refuse_problems(rows.problems, rows.first, self.table)
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

    Of a Parquet or Arrow file only the column of the actions is read for that, and those that tell which rows are left
    out; a text file is split twice.  A KbrlWarning says how many rows are left out and why.
    """
    table = open_table(source)
    found = scan(table, resolve(table.names, columns))
    found.tell()
    return found.log(table, actions)


def read_log(
    source: Any, *, columns: Mapped = None, actions: Sequence[Any] | None = None, chunk_rows: int = CHUNK_ROWS
) -> Iterator[Transitions]:
    """Return the transitions of a log in chunks, of which one at a time is in memory.

    ``columns`` names the columns of some roles (state, action, reward, next_state, terminated, truncated, done,
    episode, step) where their names do not tell; ``actions`` lists the possible actions if not all were taken.

    Without a next state of its own, a row takes the state of the next row of its episode.  ``columns["stride"]`` says
    by how much the step rises from one row to the next: 1, "1 day" for datetimes, or "any".  A row after which it rises
    by anything else is then left out; ``columns["allow_gaps"]`` allows more than 5 per cent of the rows to be.
    """
    whole(chunk_rows, "chunk_rows")
    return open_log(source, columns=columns, actions=actions).chunks(chunk_rows)


def load_log(source: Any, *, columns: Mapped = None, actions: Sequence[Any] | None = None) -> Transitions:
    """Return all transitions of a log at once."""
    return join(list(read_log(source, columns=columns, actions=actions)))


def read_states(
    table: Table, *, state: str | Sequence[str] | None = None, chunk_rows: int = CHUNK_ROWS
) -> Iterator[Floats]:
    """Return the states of a log, or of any table that has them, in chunks, (n, n_dims); the columns are found at once.

    ``state`` names their columns, where their names do not tell.
    """
    names = resolve_state(table.names, state)

    def chunks() -> Iterator[Floats]:
        kinds: dict[str, Kind] = dict.fromkeys(names, "numbers")
        first = 0
        for batch in regrouped(table, kinds, chunk_rows):
            states = stacked(batch, names)
            spared = np.zeros(len(states), dtype=bool)
            found = (bad_numbers(cast(Numbers, batch[name]), name, "state", spared) for name in names)
            refuse_problems([problem for some in found for problem in some], first, table)
            yield states
            first += len(states)
        if first == 0:
            raise LogError("empty_log", "The table has columns, but no rows.")

    return chunks()


def refuse_problems(problems: Sequence[Problem], first: int, table: Table) -> None:
    """Raise the first thing that is wrong with the cells of some rows of a table, of which ``first`` is the first."""
    if not problems:
        return
    problem = min(problems, key=lambda found: int(np.argmax(found.bad)))
    n_bad = int(problem.bad.sum())
    raise LogError(
        problem.name,
        f"{problem.column!r} has at least {n_bad} faulty {'cell' if n_bad == 1 else 'cells'} ({problem.name}); the "
        f"first is {PLACE}: {problem.sample}.",
        rows=(first + np.flatnonzero(problem.bad)).tolist(),
        columns=[problem.column],
        table=table,
    )


@dataclass(frozen=True, eq=False)
class Scan:
    """What a light look through a log tells; scans of the parts of a log add up."""

    columns: Columns
    taken: ActionSet
    episodes: TextType
    left_out: LeftOut
    rises: Rises
    n_rows: int
    is_text: bool
    edges: tuple[Edge, ...] = ()  # of each table, where they were asked for

    def __add__(self, other: Scan) -> Scan:
        """Return the scan of both parts, whose columns are the same."""
        return Scan(
            self.columns,
            self.taken + other.taken,
            self.episodes + other.episodes,
            self.left_out + other.left_out,
            self.rises + other.rises,
            self.n_rows + other.n_rows,
            self.is_text or other.is_text,
            self.edges + other.edges,
        )

    def labels(self, actions: Sequence[Any] | None) -> Array:
        """Return the actions: those taken, or ``actions``, the possible ones."""
        taken = self.taken.settled()
        if actions is None:
            warn_of_amounts(taken, self.columns.action)
        return label_array(taken, actions, self.columns.action)

    def log(self, table: Table, actions: Sequence[Any] | None) -> Log:
        """Return the log of a table, opened."""
        labels, episode_type = self.labels(actions), self.episodes.found if self.is_text else None
        return Log(table, self.columns, self.n_rows, labels, self.taken.kind(), episode_type, self.left_out)

    def tell(self) -> None:
        """Say which rows are left out, and which are joined although steps may be missing; refuse too many gaps."""
        refuse_gaps(self.left_out, self.n_rows, self.columns)
        if 0 < self.left_out.total < self.n_rows:  # where no row is left, the reader refuses the log
            warnings.warn(self.left_out.say(self.n_rows), KbrlWarning, stacklevel=3)
        if self.columns.stride is None and self.rises.usual is not None and self.rises.n_larger:
            said, advice = self.rises.say()
            warnings.warn(f"{said}, and the row after it is taken as the next. {advice}", KbrlWarning, stacklevel=3)


def refuse_gaps(left_out: LeftOut, n_rows: int, columns: Columns) -> None:
    """Refuse a log of which too many rows are left out for gaps, unless that is allowed."""
    if columns.allow_gaps or not too_many_gaps(left_out.gaps, n_rows):
        return
    raise LogError(
        "too_many_gaps",
        f"At most {MOST_GAPS:.0%} of the rows may be left out because the step does not rise by the stride, "
        f"{columns.stride}, after them, but {left_out.gaps:,} of {n_rows:,} would be ({left_out.gaps / n_rows:.1%}).",
        columns=[cast(str, columns.step)],
    )


def light_kinds(columns: Columns) -> dict[str, Kind]:
    """Return the columns that tell the actions and which rows are left out, and what their cells are converted to."""
    flags = (columns.terminated, columns.truncated, columns.done)
    light = [columns.action, *flags]
    if not columns.next_state:
        light += [columns.episode, columns.step]
    elif any(flags):  # a next state may be missing where the episode ends or is cut, and then all of it is
        light.append(columns.next_state[0])
    return {name: kind for name, kind in kinds_of(columns).items() if name in light}


def scan(table: Table, columns: Columns, *, n_episodes: int = 0) -> Scan:
    """Look through a table once: at the actions, and at what tells which rows are left out.

    With ``n_episodes``, and where next states are in the next row, also find the edge of the table.
    """
    taken, episodes, n_rows = ActionSet(columns.action, is_text=table.is_text), TextType(), 0
    kinds, succession = light_kinds(columns), _Succession(columns, remember=n_episodes > 0)
    if columns.episode is not None and table.is_text:
        kinds[columns.episode] = "labels"
    for batch in regrouped(table, kinds, CHUNK_ROWS):
        labels = cast(Labels, batch[columns.action])
        codes, counts = labels.taken()
        taken.see([labels.values[code] for code in codes], counts)
        if columns.episode in batch and table.is_text:
            episodes.see(cast(Labels, batch[columns.episode]).values)
        succession.add(batch, n_rows)
        n_rows += batch_length(batch)
    left_out, rises = succession.left_out.found, succession.rises
    return Scan(columns, taken, episodes, left_out, rises, n_rows, table.is_text, succession.edges(n_episodes))


class _Succession:
    """Counts, in batches of the light columns, which rows have no next one."""

    def __init__(self, columns: Columns, *, remember: bool) -> None:
        self._columns, self._numbering, self._sequencer = columns, Numbering(), Sequencer()
        self.left_out, self.rises = LeftOutCounter(), Rises()
        self._memory = EpisodeMemory(np.inf) if remember and columns.episode is not None else None

    def add(self, batch: Batch, first: int) -> None:
        if self._columns.next_state:
            self._add_cuts(batch)
            return
        order = order_of(batch, self._columns, first, self._numbering, None)
        if order.episodes is None:
            return
        pairs = self._sequencer.add(order)
        self.left_out.add(pairs)
        if pairs.rises is not None:
            self.rises.add(pairs)
        if self._memory is not None:
            self._memory.returns(order.episodes)

    def edges(self, n_episodes: int) -> tuple[Edge, ...]:
        if n_episodes == 0 or not self._sequencer.last:
            return ()
        seen = [] if self._memory is None else sorted(self._memory.seen, key=str)[:n_episodes]
        return (find_edge(self._sequencer, seen),)

    def _add_cuts(self, batch: Batch) -> None:
        name = self._columns.next_state[0]
        if name in batch:
            terminated, truncated, _ = ends(batch, self._columns, batch_length(batch))
            following = cast(Numbers, batch[name]).values.reshape(len(terminated), -1)
            self.left_out.add_cuts(np.isnan(following).all(axis=1) & truncated & ~terminated)


class _Stitcher:
    """Makes transitions of rows; the last row waits for the next one where next states are missing."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._places = {label: place for place, label in enumerate(log.action_labels.tolist())}
        self._memory = EpisodeMemory()
        self._sequencer = Sequencer()

    def add(self, rows: Rows) -> Iterator[tuple[Integers, Transitions]]:
        fields: dict[str, Array] = {
            "states": rows.states,
            "actions": self._indices(rows.actions),
            "rewards": rows.rewards,
            "numbers": np.arange(rows.first, rows.first + len(rows)),
        }
        if rows.next_states is not None:
            fields |= {"terminated": rows.terminated} | ({} if rows.episodes is None else {"episodes": rows.episodes})
            closed = rows.without_next & rows.terminated
            next_states = _with_own_states(rows.next_states, closed, rows.states)
            yield from self._made(fields, next_states, ~rows.without_next | rows.terminated)
            return
        self._refuse_returns(rows)
        pairs = self._sequencer.add(rows, **fields)
        self._refuse_steps(pairs)
        head = {name: field[:-1] for name, field in pairs.fields.items()}
        is_end = head["terminated"]
        next_states = _with_own_states(pairs.fields["states"][1:], is_end, head["states"])
        yield from self._made(head, next_states, pairs.follows | is_end)

    def finish(self) -> Iterator[tuple[Integers, Transitions]]:
        waiting = self._sequencer.last
        if waiting and waiting["terminated"][0]:
            yield from self._made(waiting, waiting["states"], np.ones(1, dtype=bool))

    def _indices(self, actions: Labels) -> Integers:
        labels = (as_type(value, self._log.action_type) for value in actions.values)
        return np.array([find_label(label, self._places) for label in labels], dtype=np.intp)[actions.codes]

    def _refuse_steps(self, pairs: Pairs) -> None:
        """Refuse a step that does not rise within an episode."""
        if pairs.rises is None:
            return
        back = pairs.same & (pairs.rises <= 0)
        if back.any():
            place = int(np.argmax(back))
            before, step = pairs.fields["steps"][place : place + 2].tolist()
            self._refuse_step(before, step, pairs.first + place + 1, pairs.are_times)

    def _refuse_step(self, before: float, step: float, row: int, are_times: bool) -> None:
        name = "duplicate_steps" if step == before else "unsorted_steps"
        found = f"has step {step:g} after {before:g}"
        if are_times:
            found = f"is {before - step:g} seconds before the row above it"
        raise LogError(
            name,
            f"Steps must rise within an episode where next states are taken from the next row, but {PLACE} {found}.",
            rows=[row],
            columns=[cast(str, self._log.columns.step)],
            table=self._log.table,
        )

    def _refuse_returns(self, rows: Rows) -> None:
        returned = self._memory.returns(cast(Array, rows.episodes)) if self._log.columns.episode else []
        if returned:
            row = rows.first + returned[0]
            raise LogError(
                "split_episode",
                f"The rows of an episode must follow each other where next states are taken from the next row, but "
                f"episode {cast(Array, rows.episodes)[returned[0]]} starts again at {PLACE}.",
                rows=[row],
                columns=[cast(str, self._log.columns.episode)],
                table=self._log.table,
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
                fields["terminated"],
            ]
            named += [fields.get("episodes"), fields["numbers"]]
            if not kept.all():
                named = [None if field is None else field[kept] for field in named]
            yield named[-1], Transitions.trusted(*named[:-1], self._log.action_labels, source)


def _with_own_states(next_states: Floats, ends: Booleans, states: Floats) -> Floats:
    """Return next states, with the state of the row itself at ends, where no value depends on it."""
    if not ends.any():
        return next_states
    filled = next_states.copy()
    filled[ends] = states[ends]
    return filled
