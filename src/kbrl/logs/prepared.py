"""A table whose columns are made of those of another one, by a recipe: categories become variables, and so on.

The rest of the reader sees a clean table.  A state column gives its state variables, a reward or an end may be an
expression, and an action may be a class of numbers or a combination of columns.  Columns that need nothing are passed
on as they are, and so is a table of plain numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from kbrl.arrays import Array, Booleans, Floats
from kbrl.checks import KbrlWarning, counted
from kbrl.data.column_names import listing
from kbrl.data.expressions import Cells, Coded, Expression, Type, parse
from kbrl.data.recipe import JOINED, ActionBins, Recipe, said_of_filled
from kbrl.data.state_column import StateColumn, Values, level_text
from kbrl.data.values import EpisodeStarts, ValueMemory
from kbrl.logs.columns import BY_EXPRESSION, LAST_ROW, Columns
from kbrl.tables.cell_values import Batch, Column, Kind, Labels, Numbers, from_objects, numbers_in
from kbrl.tables.cleaned import SameRows
from kbrl.tables.faults import LogError
from kbrl.tables.formats import Table, batch_length

_GAP_ROWS = 65536  # that are read at a time
MANY_COMBINATIONS = 12  # of several action columns, for which a warning says how few rows each has
_KINDS: dict[Type, Kind] = {"number": "numbers", "text": "labels", "truth": "flags"}


class PreparedTable(SameRows):
    """A table in which some columns are made of others."""

    def __init__(self, table: Table, columns: Columns, recipe: Recipe | None) -> None:
        self.table, self.recipe = table, recipe
        self.is_text = table.is_text
        self._columns = columns
        made = [name for name in columns.used() if name and name not in table.names]
        self.names = (*table.names, *made)
        stated = {} if recipe is None else {column.name: column for column in recipe.columns}
        dropping = {name for name, column in stated.items() if column.missing == "drop"}
        following = dict(zip(columns.next_state, columns.state))
        self.dropped = frozenset(name for name in columns.used() if following.get(name, name) in dropping)
        self._variables: list[_Variables] = []  # of the last pass

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the columns asked for, at most ``n_rows`` rows at a time."""
        makers = {name: maker for name in kinds if (maker := self._maker(name)) is not None}
        self._variables = [maker for maker in makers.values() if isinstance(maker, _Variables)]
        needs: dict[str, Kind] = {}
        for name, kind in kinds.items():
            _add_needs(needs, makers[name].needs if name in makers else {name: kind})
        following = [name for name in self._columns.next_state if name in kinds]
        if any(name in makers for name in following):  # to know whether a whole next state is missing
            for name in self._columns.next_state:
                maker = self._maker(name)
                _add_needs(needs, {name: "numbers"} if maker is None else maker.needs)
        for batch in self.table.batches(needs, n_rows):
            raw = _Raw(batch, self.is_text)
            made = {name: makers[name].make(raw) if name in makers else raw.get(name, kinds[name]) for name in kinds}
            absent = _all_missing(raw, self._columns.next_state) if any(name in makers for name in following) else None
            if absent is not None and absent.any():
                made |= {name: _without(cast(Numbers, made[name]), absent) for name in following}
            yield made

    def gaps(self, name: str, rows: Sequence[int]) -> list[str]:
        """Return the columns that leave an expression without a value in some rows, those of the first row first.

        The table is read again up to these rows.
        """
        maker, found, first = self._maker(name), dict[str, None](), 0
        if not isinstance(maker, _FromExpression):
            return []
        for batch in self.table.batches(maker.needs, _GAP_ROWS):
            raw = _Raw(batch, self.is_text)
            own = [row - first for row in rows if first <= row < first + len(raw)]
            by_column = maker.gaps(raw) if own else {}
            found |= {column: None for row in own for column, is_gap in by_column.items() if is_gap[row]}
            first += len(raw)
            if first > max(rows):
                break
        return list(found)

    def said_of_filled(self, n_rows: int) -> list[str]:
        """Return what the last pass found missing without an earlier value to carry forward, for people."""
        return [said for each in self._variables for said in said_of_filled(each.column, each.n_filled, n_rows)]

    def _maker(self, name: str) -> Maker | None:
        columns = self._columns
        if name in (columns.reward, columns.terminated, columns.truncated) and name not in self.table.names:
            role = next(role for role in BY_EXPRESSION if getattr(columns, role) == name)
            return _FromExpression(parse(name, BY_EXPRESSION[role]))  # type: ignore[arg-type]
        bins = {} if self.recipe is None else {each.name: each for each in self.recipe.bins}
        if name == columns.action and (columns.action_parts or name in bins):
            return _Combined(columns.action_parts or (name,), bins)
        if self.recipe is None:
            return None
        by_name = {column.name: column for column in self.recipe.columns}
        own = dict(zip(columns.next_state, columns.state)).get(name, name)
        places = dict(zip(columns.state, self.recipe.names))  # the names of a later log may be others
        column = by_name.get(places.get(own, own))
        if column is None or column.is_plain:
            return None
        return _Variables(column, own, name if name != own else None, columns.episode)


def _add_needs(needs: dict[str, Kind], more: Mapping[str, Kind]) -> None:
    """Note further columns to read; one that is needed as two kinds is read as labels, which become any kind."""
    for name, kind in more.items():
        needs[name] = kind if needs.get(name, kind) == kind else "labels"


def _all_missing(raw: _Raw, names: Sequence[str]) -> Booleans:
    """Return the rows in which all of some columns are missing, (n,)."""
    missing = np.ones(len(raw), dtype=bool)
    for name in names:
        column = raw.batch[name]
        if isinstance(column, Labels):
            missing &= _as_texts(column).codes < 0
        else:
            odd = np.zeros(len(column), dtype=bool) if column.odd is None else column.odd
            missing &= np.isnan(column.values).reshape(len(column), -1).all(axis=1) & ~odd
    return missing


def _without(column: Numbers, rows: Booleans) -> Numbers:
    """Return a column in which some rows are missing."""
    values = column.values.copy()
    values[rows] = np.nan
    return Numbers(values, column.odd, column.texts, column.is_time)


class _Raw:
    """The columns of a batch as they were read, converted to another kind where two uses need different ones."""

    def __init__(self, batch: Batch, is_text: bool) -> None:
        self.batch, self._is_text = batch, is_text

    def __len__(self) -> int:
        return batch_length(self.batch)

    def get(self, name: str, kind: Kind) -> Column:
        """Return a column as a kind."""
        column = self.batch[name]
        if isinstance(column, Labels) and kind != "labels":
            values = [*column.values, "" if self._is_text else None]  # the last one serves -1
            found = numbers_in(list(map(str, values)), kind) if self._is_text else from_objects(values, kind, name)
            return cast(Numbers, found).take(column.codes)
        return column

    def cells(self, name: str, kind: Kind) -> Cells:
        """Return a column as numbers, NaN where one is missing, or as texts."""
        column = self.get(name, kind)
        return _as_texts(column) if isinstance(column, Labels) else column.values


def _as_texts(labels: Labels) -> Coded:
    """Return labels as texts, in which NA and the like are missing."""
    texts = tuple(map(level_text, labels.values))
    gone = np.array([text is None for text in texts] + [True])
    return Coded(np.where(gone[labels.codes], -1, labels.codes), texts)


class Maker(Protocol):
    """Makes a column of a batch."""

    needs: dict[str, Kind]  # the columns that it is made of

    def make(self, raw: _Raw) -> Column:
        """Return the column for the next batch."""


class _FromExpression:
    """Makes rewards or flags by an expression."""

    def __init__(self, expression: Expression) -> None:
        self._expression = expression
        self.needs = {column: _KINDS[kind] for column, kind in expression.columns.items()}

    def make(self, raw: _Raw) -> Column:
        numbers = self._expression.numbers(self._cells(raw))
        odd = {name: column for name in self.needs if (column := _odd_numbers(raw, name, self.needs[name])) is not None}
        if not odd:
            return Numbers(numbers)
        bad = np.logical_or.reduce([cast(Booleans, column.odd) for column in odd.values()])
        texts = tuple(_first_odd(odd, row) for row in np.flatnonzero(bad).tolist())
        return Numbers(np.where(bad, np.nan, numbers), bad, texts)

    def gaps(self, raw: _Raw) -> dict[str, Booleans]:
        """Return the columns whose missing values leave it without a value, and in which rows."""
        return self._expression.gaps(self._cells(raw))

    def _cells(self, raw: _Raw) -> dict[str, Cells]:
        cells = {name: raw.cells(name, kind) for name, kind in self.needs.items()}
        for name, column in cells.items():
            if isinstance(column, np.ndarray) and column.ndim > 1:
                message = f"An expression needs one value per row, but {name!r} holds lists of {column.shape[1]}."
                advice = f"Name its entries, such as {name}_0, after --split {name}."
                raise LogError("wrong_width", message, columns=[name], advice=advice)
        return cells or {"": np.zeros(len(raw))}


def _odd_numbers(raw: _Raw, name: str, kind: Kind) -> Numbers | None:
    column = raw.get(name, kind)
    return column if isinstance(column, Numbers) and column.odd is not None else None


def _first_odd(columns: dict[str, Numbers], row: int) -> str:
    return next(f"{c.quote(row)} in {name!r}" for name, c in columns.items() if cast(Booleans, c.odd)[row])


class _Combined:
    """Makes actions of classes of numbers, or of combinations of several columns."""

    def __init__(self, parts: Sequence[str], bins: Mapping[str, ActionBins]) -> None:
        self._parts, self._bins = parts, bins
        self.needs: dict[str, Kind] = {name: "numbers" if name in bins else "labels" for name in parts}

    def make(self, raw: _Raw) -> Labels:
        found = [self._classes(raw, name) for name in self._parts]
        if len(found) == 1:
            return Labels(found[0].codes, found[0].values)
        codes = np.column_stack([part.codes for part in found])
        combinations, places = np.unique(codes, axis=0, return_inverse=True)
        texts = [JOINED.join(str(p.values[c]) for p, c in zip(found, row)) for row in combinations.tolist()]
        return Labels(np.where((codes < 0).any(axis=1), -1, places.reshape(-1)), tuple(texts))

    def _classes(self, raw: _Raw, name: str) -> Coded:
        column = raw.get(name, self.needs[name])
        if isinstance(column, Labels):
            return Coded(column.codes, tuple(level_text(value) or str(value) for value in column.values))
        return self._bins[name].classes(column.values)


class _Variables:
    """Makes the state variables of a column, of this state or of the next one."""

    def __init__(self, column: StateColumn, own: str, following: str | None, episode: str | None) -> None:
        self.column, self._own, self._following, self._episode = column, own, following, episode
        is_number = column.kind in ("number", "angle")
        kind: Kind = "steps" if column.kind == "elapsed" else "numbers" if is_number else "labels"
        self._kind = kind
        self._looks_back = column.looks_back
        self.needs: dict[str, Kind] = {following or own: kind}
        if self._looks_back:
            self.needs |= {own: kind} | ({} if episode is None else {episode: "labels"})
        self._memory, self._starts = ValueMemory(), EpisodeStarts()
        self.n_filled = 0  # values that are missing, and none of the episode came before

    def make(self, raw: _Raw) -> Numbers:
        found, odd, texts = self._values(raw, self._following or self._own)
        if self._looks_back:
            mine = found if self._following is None else self._values(raw, self._own)[0]
            labels = None if self._episode is None else cast(Labels, raw.get(self._episode, "labels"))
            episodes = None if labels is None else Coded(labels.codes, labels.values)
            starts = self._starts.add(episodes, len(mine))
            found = self.column.looking_back(found, self._memory.add(mine, starts))
            self.n_filled += int((np.isnan(found) & ~odd).sum())
            found[odd] = np.nan
        rows = self.column.expanded(found)
        if not odd.any():
            return Numbers(rows)
        return Numbers(np.where(odd[:, None], np.nan, rows), odd, texts)

    def _values(self, raw: _Raw, name: str) -> tuple[Floats, Booleans, tuple[str, ...]]:
        """Return the numbers behind the cells of a column, which of them cannot be used, and their texts."""
        column = raw.get(name, self._kind)
        if isinstance(column, Numbers):
            odd = np.zeros(len(column), dtype=bool) if column.odd is None else column.odd
            return column.values.reshape(len(column)), odd, column.texts
        found = self.column.values(_as_texts(column))
        self._say_unknown(found)
        odd = np.zeros(len(column), dtype=bool)
        if not found.unfit:
            return found.numbers, odd, ()
        (unfit,) = found.unfit
        rows = np.flatnonzero(unfit.rows).tolist()
        shown = {code: unfit.cells.values[code] for code in np.unique(unfit.cells.codes[unfit.rows]).tolist()}
        return (
            found.numbers,
            unfit.rows,
            tuple(f"{shown[unfit.cells.codes[row]]!r} (must {unfit.rule})" for row in rows),
        )

    def _say_unknown(self, found: Values) -> None:
        if found.unknown is None or self.column.has_other:
            return
        row = int(np.argmax(found.unknown.rows))
        level = found.unknown.cells.values[found.unknown.cells.codes[row]]
        warnings.warn(
            f"{self._own!r} has a level that the model does not know, {level!r}: it is taken as none of "
            f"{', '.join(self.column.levels)}, equally far from all of them.",
            KbrlWarning,
            stacklevel=2,
        )


class LastRows(SameRows):
    """A table with one more column, ``last_row``, which is true in the last row of each episode.

    Many tables do not mark ends: each of their episodes is complete, or a column says on all rows how it ended.  Then
    ``terminated = "last_row"`` and ``reward = "where(last_row, where(died, -1, 1), 0)"``.  One batch is held back,
    because only the row that follows tells which row is the last.
    """

    def __init__(self, table: Table, episode: str) -> None:
        self.table, self._episode = table, episode
        self.is_text, self.names = table.is_text, (*table.names, LAST_ROW)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the columns asked for, at most ``n_rows`` rows at a time."""
        if LAST_ROW not in kinds:
            yield from self.table.batches(kinds, n_rows)
            return
        asked: dict[str, Kind] = {self._episode: "labels"}
        asked |= {name: kind for name, kind in kinds.items() if name != LAST_ROW}
        held: Batch | None = None
        for batch in self.table.batches(asked, n_rows):
            if held is not None:
                yield self._marked(held, _cell(batch[self._episode], 0), kinds)
            held = batch
        if held is not None:
            yield self._marked(held, _NOTHING, kinds)

    def _marked(self, batch: Batch, following: Any, kinds: Mapping[str, Kind]) -> Batch:
        column = batch[self._episode]
        places = column.codes if isinstance(column, Labels) else column.values
        is_last = np.append(places[1:] != places[:-1], _cell(column, -1) != following)[: batch_length(batch)]
        return {name: Numbers(is_last.astype(np.float64)) if name == LAST_ROW else batch[name] for name in kinds}


_NOTHING = object()  # no row follows


def _cell(column: Column, row: int) -> Any:
    if len(column) == 0:
        return _NOTHING
    code = column.codes[row] if isinstance(column, Labels) else 0
    return column.values[row] if isinstance(column, Numbers) else None if code < 0 else column.values[code]


def check_actions(columns: Columns, labels: Array, taken: Mapping[Any, int]) -> None:
    """Refuse rules for unknown actions, and warn about many combinations; ``taken`` has the count of each."""
    known = {str(label) for label in labels.tolist()}
    unknown = [label for label in columns.rules.allowed if label not in known]
    if unknown:
        raise LogError(
            "unknown_action",
            f"The rule 'allowed' must name actions, {listing(sorted(known))}, but it names {listing(unknown)}.",
            columns=[columns.action],
            advice="Write the labels as they are in the log, or list all possible actions: --actions.",
        )
    if len(columns.action_parts) > 1 and len(taken) > MANY_COMBINATIONS:
        usual = sorted(taken.values())[len(taken) // 2]
        warnings.warn(
            f"{len(taken)} combinations of {listing(columns.action_parts)} are {len(taken)} actions; half of them have "
            f"at most {counted(usual, 'row')}. Combine fewer columns, or put numbers into fewer classes: --bins.",
            KbrlWarning,
            stacklevel=3,
        )
