"""Opened logs, and the last step: from rows to transitions, chunk by chunk.

Next states are the log's own.  If it has none, they are the states of the next row of the episode, also across chunks
and files.  The last row of an episode is kept if it is terminated; its own state stands for the next state, on which
no value depends.  It is left out if the episode was cut there, by a flag or by the end of the log.  A row before a gap
is left out if the stride of the steps is stated.  A warning says how many rows are left out when the log is opened.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import KbrlWarning, whole
from kbrl.data.episodes import EpisodePart
from kbrl.data.names import Source, find_label
from kbrl.data.recipe import Recipe
from kbrl.data.transitions import Transitions, join
from kbrl.data.values import Rules
from kbrl.logs.columns import Columns, resolve
from kbrl.logs.prepared import LastRows, PreparedTable, check_actions
from kbrl.logs.rows import (
    ActionSet,
    Rows,
    TextType,
    as_type,
    ends,
    kinds_of,
    label_array,
    order_of,
    period_size,
    read_rows,
    refuse_amounts,
    refuse_problems,
)
from kbrl.logs.sequence import (
    Edge,
    EpisodeMemory,
    LeftOut,
    LeftOutCounter,
    Numbering,
    Rises,
    Sequencer,
    find_edge,
    refuse_left_out,
    refuse_only_states,
    refuse_returns,
    refuse_steps,
)
from kbrl.logs.sorted_table import SortedTable, said_of_repeats
from kbrl.logs.value_facts import look_at_values
from kbrl.tables.cell_values import Batch, Column, Kind, Labels, Numbers
from kbrl.tables.faults import LogError
from kbrl.tables.formats import Table, batch_length, open_table, regrouped
from kbrl.tables.text_files import dialect_in

CHUNK_ROWS, _CLEAN_ROWS = 65536, 16384
Mapped = Mapping[str, Any] | Columns | None  # names of columns by role, stride and allow_gaps


@dataclass(frozen=True, eq=False)
class Log:
    """A log that was opened and scanned once: its columns, its actions, its number of rows."""

    table: Table
    columns: Columns
    n_rows: int
    action_labels: Array
    action_type: type | None  # what the labels in the file are converted to
    episode_type: type | None
    left_out: LeftOut  # rows that do not become transitions
    state_names: tuple[str, ...] | None = None  # of the state variables, if they differ from those of the columns
    recipe: Recipe | None = None  # how columns become state variables; None: each is one
    part: EpisodePart | None = None  # the episodes that are read; None: all
    first_episode: int = 0  # from which episodes without identifiers are numbered

    def only(self, part: EpisodePart) -> Log:
        """Return the log of these episodes alone."""
        return replace(self, part=part)

    def source(self, n_dims: int) -> Source:
        """Return what is known about the transitions beside their numbers, given the number of state variables."""
        names, has_ids, roles = self.state_names or self.columns.state, self.columns.episode is not None, self.roles
        if self.recipe is not None:
            rest = tuple(name for name in self.table.names if name and name not in self.recipe.variables)
            return Source(self.recipe.variables, rest, has_ids, self.recipe, roles)
        found = Source.of_columns(names, n_dims, others=self.table.names, has_episode_ids=has_ids)
        return replace(found, roles=roles)

    @cached_property
    def roles(self) -> dict[str, Any]:
        """The names of the columns by role, as a model keeps them."""
        return self.columns.to_dict()

    def chunks(self, chunk_rows: int = CHUNK_ROWS) -> Iterator[Transitions]:
        """Yield the transitions in their order; each chunk comes from about ``chunk_rows`` rows."""
        return (chunk for _, chunk in self.numbered_chunks(chunk_rows))

    def numbered_chunks(self, chunk_rows: int = CHUNK_ROWS) -> Iterator[tuple[Integers, Transitions]]:
        """Yield each chunk with the numbers of its rows in the log, (n,), counted from 0."""
        whole(chunk_rows, "chunk_rows")
        for numbers, chunk in self._all_chunks(chunk_rows):
            if self.part is None:
                yield numbers, chunk
            elif (kept := self.part.rows(chunk)).any():
                yield numbers[kept], chunk[kept]

    def _all_chunks(self, chunk_rows: int) -> Iterator[tuple[Integers, Transitions]]:
        stitcher, n_given = _Stitcher(self), 0
        for rows in read_rows(
            self.table, self.columns, chunk_rows, self.episode_type, first_episode=self.first_episode
        ):
            refuse_problems(rows.problems, rows.first, self.table)
            for numbers, chunk in stitcher.add(rows):
                n_given += len(chunk)
                yield numbers, chunk
        for numbers, chunk in stitcher.finish():
            n_given += len(chunk)
            yield numbers, chunk
        if n_given == 0:
            raise LogError("no_transitions", f"None of the {self.n_rows} rows has a next state or ends an episode.")


def open_log(
    source: Any,
    *,
    columns: Mapped = None,
    actions: Sequence[Any] | None = None,
    recipe: Recipe | None = None,
    is_known: bool = False,
) -> Log:
    """Open a log and scan it once, so that every chunk knows all actions; arguments as for ``read_log``.

    Returns a ``Log``, whose ``chunks()`` can be read again and again.  A first pass over the state finds out what its
    columns are: see ``Recipe``.  A ``recipe`` of an earlier log takes its place; ``is_known`` without a recipe says
    that all are numbers.  The scan reads only the action and the columns that tell which rows are left out.  A
    KbrlWarning says how many rows are left out and why.

    >>> log = open_log({"episode": [0, 0, 0, 1, 1], "obs": [0.0, 0.5, 1.0, 0.2, 0.9], "action": list("abbab"),
    ...                 "reward": [0, 0, 1, 0, 1], "terminated": [0, 0, 1, 0, 1]})
    >>> log.n_rows, log.action_labels.tolist(), log.columns.state
    (5, ['a', 'b'], ('obs',))
    >>> sum(len(chunk) for chunk in log.chunks(chunk_rows=3))
    5
    """
    table = open_table(source, dialect_in(columns))
    named = resolve(table.names, columns, is_first=not is_known)
    prepared = prepare(table, named, recipe, is_known=is_known)
    found = scan(prepared, named)
    found.tell()
    if getattr(table, "is_unordered", False) and not (named.next_state or named.one_step or named.sort):
        message = "The query has no ORDER BY, but next states are taken from the next row. Order by episode and step."
        warnings.warn(message, KbrlWarning, stacklevel=2)
    if actions is None and not is_known:
        refuse_amounts(found.taken.settled(), named.action)
    log = found.log(prepared, actions)
    if named.rules.allowed or named.action_parts:
        check_actions(named, log.action_labels, found.taken.settled())
    return log


def prepare(table: Table, columns: Columns, recipe: Recipe | None = None, *, is_known: bool = False) -> Table:
    """Return the table as a recipe says: one that is given, or learnt from the values; as it is if it needs none.

    With ``is_known``, no recipe is learnt where none is given.
    """
    table = in_order(table, columns)
    if columns.episode is not None and columns.reads_last_row(table.names):
        table = LastRows(table, columns.episode)
    if recipe is None and not is_known and not _is_clean(table, columns):
        recipe = look_at_values(table, columns).recipe(columns, table)
    is_made = not set(columns.used()) <= set(table.names) or columns.action_parts
    return PreparedTable(table, columns, recipe) if recipe is not None or is_made else table


def in_order(table: Table, columns: Columns) -> Table:
    """Return the table with its rows sorted, and without repeated ones, if that was asked for."""
    is_asked = columns.sort or columns.drop_repeats
    return SortedTable(table, columns) if is_asked and not isinstance(table, SortedTable) else table


def _is_clean(table: Table, columns: Columns) -> bool:
    """Return whether the table needs no recipe: nothing is stated about its state, and all of it is numbers.

    It is read up to the first batch with a cell that is not a number.
    """
    dialect = dialect_in(columns)
    marks, suffixes = dialect.marks, dialect.suffixes
    if columns.rules != Rules() or "" in marks or any(name in marks or suffixes.get(name) for name in columns.state):
        return False
    kinds: dict[str, Kind] = dict.fromkeys((*columns.state, *columns.next_state), "numbers")
    n_rows = 0
    for batch in regrouped(table, kinds, _CLEAN_ROWS):
        columns_of_numbers = cast(list[Numbers], list(batch.values()))
        if any(column.odd is not None or np.isnan(column.values).any() for column in columns_of_numbers):
            return False
        n_rows += batch_length(batch)
    return n_rows > 0


def read_log(
    source: Any, *, columns: Mapped = None, actions: Sequence[Any] | None = None, chunk_rows: int = CHUNK_ROWS
) -> Iterator[Transitions]:
    """Return an iterator over the transitions of a log, one chunk in memory at a time.

    ``source`` is the path of a file, a folder or a glob, a list of paths, a frame, a mapping of columns, or a list of
    rollouts.  ``columns`` names the columns of some roles (state, action, reward, next_state, terminated, truncated,
    done, episode, step) if their names do not tell.  ``actions`` lists the possible actions if not all were taken.
    Each chunk comes from ``chunk_rows`` rows.

    Without a next state of its own, a row takes the state of the next row of its episode.  ``columns["stride"]`` says
    by how much the step rises from one row to the next: 1, "1 day" for datetimes, or "any".  A row after which it rises
    by anything else is left out.  ``columns["allow_gaps"]`` allows this for more than 5 % of the rows, and allows more
    than half of the rows to be left out in all.  ``columns["discount_per"]``, such as "1 day", lets learners discount
    by the time between rows; ``columns["duration"]`` names a column of it where the step does not tell.

    >>> from kbrl import KBSF
    >>> ward = {"age": [61, 61, 61, 47, 47], "drug": ["none", "low", "none", "low", "none"],
    ...         "score": [-3.8, -1.9, -0.8, -2.6, -0.3], "discharged": [0, 0, 1, 0, 1]}
    >>> roles = {"state": "age", "action": "drug", "reward": "score", "terminated": "discharged"}
    >>> sum(len(chunk) for chunk in read_log(ward, columns=roles, chunk_rows=2))
    5
    >>> model = KBSF(n_reps=2, min_cases=1).fit(read_log(ward, columns=roles))
    """
    whole(chunk_rows, "chunk_rows")
    return open_log(source, columns=columns, actions=actions).chunks(chunk_rows)


def load_log(source: Any, *, columns: Mapped = None, actions: Sequence[Any] | None = None) -> Transitions:
    """Return all transitions of a log at once; arguments as for ``read_log``.

    >>> log = load_log({"obs": [0.0, 0.5, 1.0], "action": ["go", "go", "wait"], "reward": [0, 0, 1], "done": [0, 0, 1]})
    >>> log
    Transitions(3 rows, 1 state variable, 2 actions: go, wait; 1 terminal)
    >>> log.next_states.ravel().tolist()  # of the next row; at the end, the state itself, on which no value depends
    [0.5, 1.0, 1.0]
    """
    return join(list(read_log(source, columns=columns, actions=actions)))


@dataclass(frozen=True, eq=False)
class Scan:
    """What reading a few columns of a log tells; scans of the parts of a log add up."""

    columns: Columns
    taken: ActionSet
    episodes: TextType
    left_out: LeftOut
    rises: Rises
    n_rows: int
    is_text: bool
    is_countable: bool  # the columns that order the rows have no fault; otherwise the reader refuses the log
    edges: tuple[Edge, ...] = ()  # of each table, where they were asked for
    n_repeats: int = 0  # rows that were dropped before

    def __add__(self, other: Scan) -> Scan:
        """Return the scan of both parts, whose columns are the same."""
        summed = ("taken", "episodes", "left_out", "rises", "n_rows", "edges", "n_repeats")
        sums = {name: getattr(self, name) + getattr(other, name) for name in summed}
        is_text, is_countable = self.is_text or other.is_text, self.is_countable and other.is_countable
        return replace(self, **sums, is_text=is_text, is_countable=is_countable)

    def labels(self, actions: Sequence[Any] | None, recipe: Recipe | None = None) -> Array:
        """Return the actions: those taken, or ``actions``, the possible ones; classes of doses from low to high."""
        taken = list(self.taken.settled())
        ordered = recipe.by_dose(taken) if recipe is not None and recipe.bins else taken
        return label_array(ordered, actions, self.columns.action)

    def log(self, table: Table, actions: Sequence[Any] | None) -> Log:
        """Return the log of a table, opened."""
        recipe = table.recipe if isinstance(table, PreparedTable) else None
        labels, episode_type = self.labels(actions, recipe), self.episodes.found if self.is_text else None
        kind = self.taken.kind()
        return Log(table, self.columns, self.n_rows, labels, kind, episode_type, self.left_out, recipe=recipe)

    def tell(self) -> None:
        """Warn about rows that are left out, and about steps that may be missing; refuse too many of the former."""
        if self.n_repeats:
            warnings.warn(said_of_repeats(self.n_repeats, self.n_rows), KbrlWarning, stacklevel=3)
        if not self.is_countable:
            return
        refuse_left_out(self.left_out, self.n_rows, self.columns)
        if 0 < self.left_out.total < self.n_rows:  # where no row is left, the reader refuses the log
            warnings.warn(self.left_out.say(self.n_rows), KbrlWarning, stacklevel=3)
        if self.columns.discount_per is not None:
            return  # rows are not expected at equal intervals
        if self.columns.stride is None and self.rises.usual is not None and self.rises.n_larger:
            said, advice = self.rises.say()
            warnings.warn(f"{said}, and the row after it is taken as the next. {advice}", KbrlWarning, stacklevel=3)


def light_kinds(columns: Columns) -> dict[str, Kind]:
    """Return the columns that a scan reads, and what their cells are converted to."""
    flags = (columns.terminated, columns.truncated, columns.done)
    light = [columns.action, *flags]
    if not columns.next_state:
        light += [columns.episode, columns.step]
    elif any(flags):  # at the end of an episode a next state may be missing, and then all of it is
        light.append(columns.next_state[0])
    return {name: kind for name, kind in kinds_of(columns).items() if name in light}


def scan(table: Table, columns: Columns, *, n_episodes: int = 0) -> Scan:
    """Read the few columns that tell which actions there are and which rows are left out.

    With ``n_episodes`` above 0, and if next states are in the next row, also find the edge of the table, with the
    identifiers of this many episodes.
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
    edges, is_countable = succession.edges(n_episodes), succession.is_countable
    repeats = getattr(table, "n_repeats", 0)
    return Scan(columns, taken, episodes, left_out, rises, n_rows, table.is_text, is_countable, edges, repeats)


class _Succession:
    """Counts the rows that have no next one, in batches of the columns that a scan reads."""

    def __init__(self, columns: Columns, *, remember: bool) -> None:
        self._columns, self._numbering, self._sequencer = columns, Numbering(), Sequencer()
        self.left_out, self.rises = LeftOutCounter(), Rises()
        self._memory = EpisodeMemory(np.inf if remember else EpisodeMemory.MOST)
        self.is_countable = True

    def add(self, batch: Batch, first: int) -> None:
        self.is_countable &= all(_is_filled(batch[name]) for name in self._columns.ordering() if name in batch)
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
            self.is_countable &= not (pairs.same & (pairs.rises <= 0)).any()
        if self._columns.episode is not None:
            self.is_countable &= not self._memory.returns(order.episodes)

    def edges(self, n_episodes: int) -> tuple[Edge, ...]:
        if n_episodes == 0 or not self._sequencer.last:
            return ()
        seen = sorted(self._memory.seen, key=str)[:n_episodes]
        return (find_edge(self._sequencer, seen),)

    def _add_cuts(self, batch: Batch) -> None:
        name = self._columns.next_state[0]
        if name in batch:
            terminated, truncated, _ = ends(batch, self._columns, batch_length(batch))
            following = cast(Numbers, batch[name]).values.reshape(len(terminated), -1)
            self.left_out.add_cuts(np.isnan(following).all(axis=1) & truncated & ~terminated)


def _is_filled(column: Column) -> bool:
    return bool((column.codes >= 0).all() if isinstance(column, Labels) else not np.isnan(column.values).any())


class _Stitcher:
    """Makes transitions of rows; without next states, the last row of a chunk waits for the next chunk."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._places = {label: place for place, label in enumerate(log.action_labels.tolist())}
        self._memory, self._sequencer = EpisodeMemory(), Sequencer()

    def add(self, rows: Rows) -> Iterator[tuple[Integers, Transitions]]:
        fields: dict[str, Array] = {
            "states": rows.states,
            "actions": self._indices(rows.actions),
            "rewards": rows.rewards,
            "numbers": np.arange(rows.first, rows.first + len(rows)),
        }
        if rows.propensities is not None:
            fields["propensities"] = rows.propensities
        if rows.durations is not None:
            fields["durations"] = np.where(rows.terminated, 1.0, rows.durations)  # after an end nothing follows
        if rows.next_states is not None:
            fields |= {"terminated": rows.terminated} | ({} if rows.episodes is None else {"episodes": rows.episodes})
            closed = rows.without_next & rows.terminated
            next_states = _with_own_states(rows.next_states, closed, rows.states)
            yield from self._made(fields, next_states, ~rows.without_next | rows.terminated)
            return
        columns, table = self._log.columns, self._log.table
        if columns.episode is not None:
            refuse_returns(rows, self._memory, columns.episode, table)
        pairs = self._sequencer.add(rows, **fields)
        refuse_steps(pairs, columns, table)
        refuse_only_states(pairs, columns.action, table)
        head = {name: field[:-1] for name, field in pairs.fields.items()}
        is_end = head["terminated"]
        if self._log.columns.discount_per is not None and "durations" not in head:
            period = cast(float, period_size(self._log.columns, pairs.are_times))
            head["durations"] = np.where(is_end, 1.0, cast(Floats, pairs.rises) / period)
        next_states = _with_own_states(pairs.fields["states"][1:], is_end, head["states"])
        kept = pairs.follows | is_end
        yield from self._made(head, next_states, kept & ~head["state_only"] if "state_only" in head else kept)

    def finish(self) -> Iterator[tuple[Integers, Transitions]]:
        waiting = self._sequencer.last
        if waiting and waiting["terminated"][0]:
            if self._log.columns.discount_per is not None:
                waiting = waiting | {"durations": np.ones(1)}
            yield from self._made(waiting, waiting["states"], np.ones(1, dtype=bool))

    def _indices(self, actions: Labels) -> Integers:
        labels = (as_type(value, self._log.action_type) for value in actions.values)
        places = [find_label(label, self._places) for label in labels]
        return np.array([*places, -1], dtype=np.intp)[actions.codes]  # the last entry serves rows without an action

    def _made(
        self, fields: dict[str, Array], next_states: Floats, kept: Booleans
    ) -> Iterator[tuple[Integers, Transitions]]:
        if getattr(self._log.table, "dropped", None):  # rows with missing values, by the rule of the column
            kept = kept & ~np.isnan(fields["states"]).any(axis=1) & ~np.isnan(next_states).any(axis=1)
        if kept.any():
            source = self._log.source(next_states.shape[1])
            names = ("states", "actions", "rewards", "next_states", "terminated", "episodes")
            fields = fields | {"next_states": next_states}
            if not kept.all():
                fields = {name: field[kept] for name, field in fields.items()}
            rest = (self._log.action_labels, source, fields.get("durations"), fields.get("propensities"))
            yield fields["numbers"], Transitions.trusted(*map(fields.get, names), *rest)


def _with_own_states(next_states: Floats, ends: Booleans, states: Floats) -> Floats:
    """Return next states in which ends have the state of their own row."""
    if not ends.any():
        return next_states
    filled = next_states.copy()
    filled[ends] = states[ends]
    return filled
