"""A log in parts that different processes read: what all of them must know, and how each is read.

A part is a file, some row groups of a Parquet file, a frame, or Transitions.  A light look at every part finds the
actions of the whole log.  Rows with next states of their own can be read in any part.  Where the next state is in the
next row, an episode must lie within one part; an episode that is seen not to is refused.
"""

from __future__ import annotations

import glob
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from kbrl.arrays import Array
from kbrl.data.episodes import EpisodePart
from kbrl.data.names import UNNAMED, Source, unite_labels
from kbrl.data.recipe import Recipe
from kbrl.data.transitions import Transitions
from kbrl.logs.columns import Columns, resolve
from kbrl.logs.log import CHUNK_ROWS, Mapped, Scan, in_order, light_kinds, prepare, scan
from kbrl.logs.rows import kinds_of, order_of, refuse_amounts
from kbrl.logs.sequence import EpisodeMemory, Numbering
from kbrl.logs.value_facts import ValueFacts, look_at_values
from kbrl.tables.faults import LogError
from kbrl.tables.formats import Table, batch_length, find_files, is_address, open_table, regrouped
from kbrl.tables.text_files import PLAIN, Dialect

_LEAST_ROWS, _MOST_PARTS = 2**20, 4096  # rows of a piece of a Parquet file, and how many pieces all files make


@dataclass(frozen=True, eq=False)
class Part:
    """One part of a log; ``path`` is None where the part is handed over in memory."""

    name: str
    path: str | None = None
    row_groups: tuple[int, ...] | None = None
    dialect: Dialect = PLAIN
    first_episodes: tuple[int, ...] = ()  # of each of its tables, if episodes are numbered over all parts

    def open(self, held: Any = None) -> Any:
        """Return the part, ready to be read: Transitions, a table, or a list of tables."""
        opened = self._opened(held)
        if not self.first_episodes:
            return opened
        return [Numbered(*pair) for pair in zip(_tables_in(opened), self.first_episodes)]

    def _opened(self, held: Any) -> Any:
        if self.row_groups is not None:
            from kbrl.tables.arrow_files import ParquetTable

            return ParquetTable(Path(cast(str, self.path)), self.row_groups)
        if self.path is not None:
            return open_table(self.path, self.dialect)
        if isinstance(held, (list, Iterator)):
            return [self._opened(item) for item in held]
        return held if isinstance(held, Transitions) else open_table(held, self.dialect)


class Numbered(NamedTuple):
    """A table of a part, and the number of its first episode in the whole log."""

    table: Any
    first_episode: int


def _tables_in(opened: Any) -> list[Any]:
    return opened if isinstance(opened, list) else [opened]


@dataclass(frozen=True, eq=False)
class Look:
    """What a light look at one part tells."""

    n_rows: int
    scan: Scan | None = None  # None where the part holds Transitions, or nothing
    labels: Array | None = None  # of the actions of Transitions
    source: Source = UNNAMED  # of Transitions
    row_groups: tuple[int, ...] = ()  # their numbers of rows, if the part can be cut between them


@dataclass(frozen=True, eq=False)
class Facts:
    """What every reader of a part must know of the whole log."""

    action_labels: Array
    n_rows: int
    scan: Scan | None  # None where the parts are Transitions
    source: Source = UNNAMED  # of Transitions: their variables are put into the order of these names
    recipe: Recipe | None = None  # how the columns of tables become state variables
    part: EpisodePart | None = None  # the episodes that are read; None: all

    def chunks(self, opened: Any) -> Iterator[Transitions]:
        """Yield the transitions of a part that was opened; a part alone may hold none."""
        for chunk in self._all_chunks(opened):
            if self.part is None:
                yield chunk
            elif (kept := self.part.rows(chunk)).any():
                yield chunk[kept]

    @property
    def numbers_episodes(self) -> bool:
        """Whether episodes have no identifiers, so that they are numbered as they come."""
        return self.scan is not None and self.scan.columns.episode is None

    def _all_chunks(self, opened: Any, first_episode: int = 0) -> Iterator[Transitions]:
        if isinstance(opened, list):
            for item in opened:
                yield from self._all_chunks(item)
        elif isinstance(opened, Numbered):
            yield from self._all_chunks(opened.table, opened.first_episode)
        elif isinstance(opened, Transitions):
            yield from opened.in_order_of(self.source).with_actions(self.action_labels).chunks(CHUNK_ROWS)
        else:
            try:
                scan = cast(Scan, self.scan)
                table = prepare(opened, scan.columns, self.recipe, is_known=True)
                log = scan.log(table, self.action_labels.tolist())
                yield from replace(log, first_episode=first_episode).chunks()
            except LogError as error:
                if error.fault.name not in ("no_transitions", "empty_log"):
                    raise


def parts_of(paths: Sequence[Any], dialect: Dialect = PLAIN) -> list[Part]:
    """Return the files of a log as parts; folders and globs are looked up here, files only where they are read."""
    from kbrl.tables.datasets import find_dataset

    files: list[Any] = []
    for source in paths:
        path = Path(source)
        if is_address(source):
            files.append(source)
            continue
        is_folder = path.is_dir() and find_dataset(path) is None
        files += find_files(path) if is_folder or glob.has_magic(str(path)) else [path]
    return [Part(str(file), str(file), dialect=dialect) for file in files]


def find_columns(opened: Any, columns: Mapped) -> Columns | None:
    """Return the columns of a part that was opened; None for Transitions."""
    first = next(iter(opened), None) if isinstance(opened, list) else opened
    return None if first is None or isinstance(first, Transitions) else resolve(first.names, columns)


def light_columns(columns: Columns) -> list[str]:
    """Return the names of the columns that a look reads."""
    return list(light_kinds(columns))


def values_in(opened: Any, columns: Columns) -> ValueFacts | None:
    """Look at the values of a part that was opened; None for Transitions, or where there is nothing."""
    tables = opened if isinstance(opened, list) else [opened]
    if any(isinstance(table, Transitions) for table in tables):
        return None  # the look that follows says if both are there
    found = []
    for table in tables:
        try:
            found.append(look_at_values(in_order(table, columns), columns))
        except LogError as error:
            if error.fault.name != "empty_log":  # the look that follows leaves such a part out
                raise
    return sum(found[1:], found[0]) if found else None


def agreed_recipe(values: Sequence[ValueFacts | None], columns: Columns, n_parts: int) -> Recipe | None:
    """Return how the columns of all parts become state variables."""
    found = [each for each in values if each is not None]
    if not found:
        return None
    recipe = sum(found[1:], found[0]).recipe(columns)
    if recipe is not None and recipe.episode is not None and columns.next_state and n_parts > 1:
        raise LogError(
            "split_episode",
            f"Values that depend on earlier rows of {recipe.episode!r} need whole episodes, but parts of a log with "
            f"next states may cut them. Read the log in one process, or take another rule than forward: median.",
        )
    return recipe


def look_at(opened: Any, columns: Columns | None, n_parts: int, recipe: Recipe | None = None) -> Look:
    """Look at a part that was opened, one of ``n_parts``; ``columns`` are those of the first part."""
    items = opened if isinstance(opened, list) else [opened]
    logs = [item for item in items if isinstance(item, Transitions)]
    tables = [item for item in items if not isinstance(item, Transitions)]
    if (logs and columns is not None) or (tables and columns is None):
        raise TypeError("The parts of a log must all be Transitions or all be tables, but it has both.")
    if columns is None:
        labels = unite_labels([log.action_labels for log in logs]) if logs else None
        return Look(sum(map(len, logs)), labels=labels, source=reduce(add, [log.source for log in logs], UNNAMED))
    if not tables:
        return Look(0)
    n_episodes = max(100, EpisodeMemory.MOST // n_parts)
    prepared = [prepare(table, columns, recipe, is_known=True) for table in tables]
    scans = [scan(table, columns, n_episodes=n_episodes) for table in prepared]
    whole = sum(scans[1:], scans[0])
    can_cut = columns.next_state and hasattr(opened, "row_group_sizes") and (recipe is None or recipe.episode is None)
    return Look(whole.n_rows, whole, row_groups=tuple(opened.row_group_sizes()) if can_cut else ())


def agree(
    looks: Sequence[Look], names: Sequence[str], actions: Sequence[Any] | None, recipe: Recipe | None = None
) -> Facts:
    """Return what the looks tell of the whole log: its actions in the order that one process would give them."""
    _refuse_cut_episodes(looks, names)
    n_rows = sum(look.n_rows for look in looks)
    if n_rows == 0:
        raise LogError("empty_log", f"The log has no rows in any of its {len(looks)} parts.")
    scans = [look.scan for look in looks if look.scan is not None]
    if scans:
        whole = replace(sum(scans[1:], scans[0]), edges=())  # no longer needed: every reader of a part gets the rest
        whole.tell()
        if actions is None:
            refuse_amounts(whole.taken.settled(), whole.columns.action)
        return Facts(whole.labels(actions, recipe), n_rows, whole, recipe=recipe)
    labels = unite_labels([look.labels for look in looks if look.labels is not None])
    source = reduce(add, [look.source for look in looks])
    return Facts(labels if actions is None else np.array(actions), n_rows, None, source)


def numberings_in(opened: Any, facts: Facts) -> list[Numbering]:
    """Return the numbering of each table of a part that was opened, as if it were the first."""
    columns = cast(Scan, facts.scan).columns
    tables = (prepare(table, columns, facts.recipe, is_known=True) for table in _tables_in(opened))
    return [_numbering_of(table, columns) for table in tables]


def _numbering_of(table: Table, columns: Columns) -> Numbering:
    """Return the numbering of all rows of a table whose episodes have no identifiers."""
    numbering, n_rows = Numbering(), 0
    names = (columns.action, columns.step, columns.terminated, columns.truncated, columns.done)
    kinds = {name: kind for name, kind in kinds_of(columns).items() if name in names}
    for batch in regrouped(table, kinds, CHUNK_ROWS):
        order_of(batch, columns, n_rows, numbering, None)
        n_rows += batch_length(batch)
    return numbering


def numbered(parts: Sequence[Part], numberings: Sequence[Sequence[Numbering]]) -> list[Part]:
    """Return the parts with the numbers that their first episodes have in the whole log."""
    before: Numbering | None = None
    result = []
    for part, own in zip(parts, numberings):
        first = []
        for numbering in own:
            after = numbering.after(before)
            first.append(after.last - numbering.last)
            before = after
        result.append(replace(part, first_episodes=tuple(first)))
    return result


def cut(parts: Sequence[Part], looks: Sequence[Look]) -> tuple[list[Part], list[int]]:
    """Cut large Parquet files between their row groups, the same way whoever reads them; return pieces and their rows.

    Parts without rows are left out.
    """
    enough = max(_LEAST_ROWS, sum(look.n_rows for look in looks) // _MOST_PARTS)
    pieces: list[Part] = []
    n_rows: list[int] = []
    for part, look in zip(parts, looks):
        groups = _grouped(look.row_groups, enough)
        if len(groups) > 1:
            named = [f"{part.name}, row groups {group[0]} to {group[-1]}" for group in groups]
            pieces += [replace(part, name=name, row_groups=group) for name, group in zip(named, groups)]
            n_rows += [sum(look.row_groups[k] for k in group) for group in groups]
        elif look.n_rows:
            pieces.append(part)
            n_rows.append(look.n_rows)
    return pieces, n_rows


def _grouped(sizes: Sequence[int], enough: int) -> list[tuple[int, ...]]:
    """Put neighbouring row groups together until they have enough rows."""
    ends_at = np.cumsum(sizes) // enough
    starts = [0, *(1 + np.flatnonzero(np.diff(ends_at))).tolist(), len(sizes)] if len(sizes) else [0]
    return [tuple(range(first, last)) for first, last in pairwise(starts)]


def _refuse_cut_episodes(looks: Sequence[Look], names: Sequence[str]) -> None:
    """Refuse episodes that are in two tables, where the next state of a row is in the next row."""
    edges = [(edge, name) for look, name in zip(looks, names) if look.scan for edge in look.scan.edges]
    homes: dict[Hashable, int] = {}
    for place, (edge, name) in enumerate(edges):
        for episode in edge.episodes:
            if homes.setdefault(episode, place) != place:
                _refuse_cut(f"episode {episode} is in {edges[homes[episode]][1]} and in {name}")
        if place and not edge.episodes:
            before, name_before = edges[place - 1]
            if not before.is_ended and not edge.first_step < before.last_step:
                _refuse_cut(f"nothing says whether an episode ends with {name_before} or continues in {name}")


def _refuse_cut(what: str) -> None:
    raise LogError(
        "split_episode",
        f"Where next states are taken from the next row, every episode must lie within one part of the log, but "
        f"{what}. Put each episode into one file, give next observations, or read the log in one process.",
    )
