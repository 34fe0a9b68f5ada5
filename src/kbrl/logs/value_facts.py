"""One pass over a table before it is read: what its values are, so that a recipe can be made of them.

Facts of parts add up, and none depends on the order of the rows or on how they are split; only the rule ``forward``
and elapsed times need whole episodes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, NoReturn, cast

import numpy as np

from kbrl.checks import KbrlWarning, counted
from kbrl.data.column_names import listing
from kbrl.data.expressions import Coded
from kbrl.data.recipe import ActionBins, Recipe
from kbrl.data.state_column import StateColumn, level_text
from kbrl.data.values import FALSE, TRUE, WORDS, Bins, EpisodeStarts, Rules, ValueCounts
from kbrl.data.written import Written
from kbrl.logs.column_facts import MOST_TEXTS, Carrying, ColumnFacts
from kbrl.logs.columns import Columns
from kbrl.logs.sequence import stride_size
from kbrl.tables.cell_values import Batch, Kind, Labels, Numbers
from kbrl.tables.faults import PLACE, Fault, LogError, make_fault
from kbrl.tables.formats import Table, batch_length, regrouped
from kbrl.tables.text_files import COMMA, dialect_in, has_comma

QUOTES = "'\""
MOST_LEVELS = 30  # of a category; rarer ones are put together
RARE = 1000  # a level is rare if fewer than one row in this many has it
_CHUNK_ROWS, _PEEK_ROWS = 16384, 4096


@dataclass
class ValueFacts:
    """What the values of a table are: of the columns of its state, and of actions that are numbers."""

    state: dict[str, ColumnFacts]
    doses: dict[str, ValueCounts]

    def __add__(self, other: ValueFacts) -> ValueFacts:
        """Return the facts of both parts."""
        state = {name: facts + other.state[name] for name, facts in self.state.items()}
        return ValueFacts(state, {name: counts + other.doses[name] for name, counts in self.doses.items()})

    def recipe(self, columns: Columns, table: Any = None) -> Recipe | None:
        """Return the recipe for these values, None if every column is plain numbers; warn of what was decided."""
        recipe, faults = self.decided(columns, table)
        for fault in faults:
            if fault.stops_learning:
                told = {"rows": fault.rows, "columns": fault.columns, "table": table, "advice": fault.advice}
                raise LogError(fault.name, fault.message, **told)
            warnings.warn(f"{fault.message} {fault.advice}", KbrlWarning, stacklevel=4)
        return recipe

    def decided(self, columns: Columns, table: Any = None) -> tuple[Recipe | None, list[Fault]]:
        """Return the recipe, in which columns at fault are taken as numbers, and all faults."""
        rules, found, faults = columns.rules, list[StateColumn](), list[Fault]()
        for name, facts in self.state.items():
            try:
                found.append(_as_written(_Decision(name, facts, columns, table).column, columns))
            except LogError as error:
                found.append(StateColumn(name, "vector" if facts.width else "number", width=facts.width or 1))
                faults.append(error.fault)
        bins = tuple(_classes(name, rules.bins[name], counts) for name, counts in self.doses.items())
        allowed = tuple(sorted(rules.allowed.items()))
        faults += _filled(found, self.state, rules)
        if not bins and not allowed and all(map(_needs_nothing, found)):
            return None, faults
        episode = columns.episode if any(column.looks_back for column in found) else None
        actions = (columns.action_parts or (columns.action,)) if bins else ()
        return Recipe(tuple(found), bins, allowed, episode, actions), faults


def look_at_values(table: Table, columns: Columns) -> ValueFacts:
    """Read the columns of the state, and binned actions, once."""
    rules, kinds = columns.rules, _guessed_kinds(table, columns)
    state = {name: ColumnFacts() for name in columns.state}
    doses = {name: ValueCounts() for name in rules.bins}
    carried, begun = {name: Carrying(state[name]) for name in _carried(columns)}, EpisodeStarts()
    first = 0
    for batch in regrouped(table, kinds, _CHUNK_ROWS):
        starts = begun.add(_episodes(batch, columns), batch_length(batch)) if carried else None
        for name, facts in state.items():
            labelled = name in rules.category or name in rules.ordinal
            cells = facts.add(batch[name], first, all_texts=labelled)
            if name in carried and starts is not None:
                carried[name].add(cells, starts)
        for name, counts in doses.items():
            _count_doses(counts, cast(Numbers, batch[name]), name, first, table)
        first += batch_length(batch)
    if first == 0:
        raise LogError("empty_log", "The log has columns, but no rows.")
    _count_missing_next(table, columns, state)
    return ValueFacts(state, doses)


def _carried(columns: Columns) -> list[str]:
    """Return the columns whose values may be carried forward within an episode: as stated, or by default."""
    stated = [name for name in columns.state if columns.rules.missing_in(name) == "forward"]
    if stated and columns.episode is None:
        raise LogError(
            "missing_column",
            f"Missing values of {listing(stated)} can be carried forward only within an episode, but no column tells "
            f"episodes apart.",
            advice="Name it: --episode NAME, in Python columns={'episode': NAME}; or take another rule: median.",
        )
    free = [name for name in columns.state if columns.rules.missing_in(name) is None and columns.rows_follow]
    return [*stated, *(name for name in free if name not in columns.rules.elapsed)]


def _episodes(batch: Batch, columns: Columns) -> Coded:
    labels = cast(Labels, batch[cast(str, columns.episode)])
    return Coded(labels.codes, labels.values)


def _count_missing_next(table: Table, columns: Columns, state: dict[str, ColumnFacts]) -> None:
    """Count missing values of next states, except where the whole next state is missing."""
    if not columns.next_state or len(columns.next_state) != len(columns.state):
        return
    kinds: dict[str, Kind] = dict.fromkeys(columns.next_state, "labels")
    own = dict(zip(columns.next_state, columns.state))
    kinds = {name: "numbers" if not state[own[name]].levels else "labels" for name in kinds}
    if any(state[name].width for name in columns.state):
        return
    for batch in regrouped(table, kinds, _CHUNK_ROWS):
        gone = {}
        for name, column in batch.items():
            values = column.codes < 0 if isinstance(column, Labels) else np.isnan(column.values)
            gone[name] = np.asarray(values).reshape(len(column), -1).any(axis=1)
        whole = np.logical_and.reduce(list(gone.values()))
        for name, missing in gone.items():
            state[own[name]].n_missing += int((missing & ~whole).sum())


def _guessed_kinds(table: Table, columns: Columns) -> dict[str, Kind]:
    """Return how each column is read: as numbers, or as labels if the first rows, or the user, say so."""
    rules = columns.rules
    kinds: dict[str, Kind] = dict.fromkeys(columns.state, "numbers")
    for kind, names in (("labels", [*rules.category, *rules.ordinal]), ("steps", list(rules.elapsed))):
        kinds |= dict.fromkeys(names, cast(Kind, kind))
    peek = next(regrouped(table, kinds, _PEEK_ROWS), {})
    for name, column in peek.items():
        if isinstance(column, Numbers) and column.odd is not None and name not in rules.elapsed:
            kinds[name] = "labels" if (column.odd | np.isnan(column.values)).all() else kinds[name]
    if columns.episode is not None and _carried(columns):
        kinds[columns.episode] = "labels"
    return kinds | dict.fromkeys(rules.bins, "numbers")


def _count_doses(counts: ValueCounts, column: Numbers, name: str, first: int, table: Any) -> None:
    if column.odd is not None:
        row = int(np.argmax(column.odd))
        raise LogError(
            "not_a_number",
            f"An action that is put into classes must be a number, but {name!r} is {column.quote(row)} at {PLACE}.",
            rows=[first + row],
            columns=[name],
            table=table,
            advice=f'Write a number there, or leave the cell empty; if it has a unit: --suffix "{name}=mg"; or use the '
            f"labels as they are, without --bins.",
        )
    counts.add(column.values.reshape(len(column)))


class _Decision:
    """What is done with one column, by the facts and by what was stated."""

    def __init__(self, name: str, facts: ColumnFacts, columns: Columns, table: Any) -> None:
        self._name, self._facts, self._rules, self._table = name, facts, columns.rules, table
        self._rule, self._can_carry = columns.rules.missing_in(name), columns.rows_follow

    @property
    def column(self) -> StateColumn:
        """The rule for the column."""
        name, facts, rules = self._name, self._facts, self._rules
        if facts.width:
            return StateColumn(name, "vector", width=facts.width)
        if name in rules.ordinal:
            return self._ordinal(rules.ordinal[name])
        if name in rules.elapsed:
            return self._elapsed(rules.elapsed[name])
        if name in rules.angle and facts.n_numbers and not facts.levels:
            lowest = 0.0 if facts.counts.quantile(0.0) >= 0 else -rules.angle[name] / 2
            column = StateColumn(name, "angle", period=rules.angle[name], lowest=lowest)
            return self._with_missing(column, facts.counts.quantile(0.5))
        if name in rules.angle and facts.first_text is not None:
            row, text = facts.first_text
            self._refuse("not_a_number", f"An angle must be a number, but {name!r} at {PLACE} is {text}.", rows=[row])
        if facts.n_numbers and not facts.levels and name not in rules.category:
            if not len(facts.counts.values()[0]):
                self._refuse_texts()
            return self._with_missing(StateColumn(name), facts.counts.quantile(0.5))
        if facts.levels and not facts.n_numbers:
            return self._of_texts()
        return self._neither()

    def _refuse_texts(self) -> NoReturn:
        """Refuse a column of a frame that holds numbers as texts."""
        name, facts = self._name, self._facts
        self._refuse(
            "not_a_number",
            f"{name!r} holds {counted(facts.n_numbers, 'number')} as texts.",
            advice=f"Convert the column: frame[{name!r}].astype(float). If they are names of levels: --category {name}"
            f", in Python columns={{'category': [{name!r}]}}.",
        )

    def _neither(self) -> NoReturn:
        """Refuse a column that is neither numbers nor texts."""
        name, facts = self._name, self._facts
        if facts.n_numbers == 0:
            self._refuse("missing_state", f"{name!r} has no value in any of its {facts.n_rows} rows.")
        row, text = cast(tuple[int, str], facts.first_text)
        n_texts = counted(sum(facts.levels.values()), "faulty cell")
        self._refuse(
            "not_a_number",
            f"{name!r} has at least {n_texts} (not_a_number) beside {counted(facts.n_numbers, 'number')}; the first is "
            f"{PLACE}: {text}.",
            rows=[row],
            advice=f"Write numbers there, or leave the cells empty. If it stands for a missing value: --na "
            f'"{name}={text.strip(QUOTES)}"; if it has a unit: --suffix "{name}=UNIT"; if all are names of levels: '
            f"--category {name}. In Python columns={{'na': {{...}}}} and so on.",
        )

    def _refuse(self, fault: str, message: str, *, rows: Sequence[int] = (), advice: str | None = None) -> NoReturn:
        raise LogError(fault, message, rows=rows, columns=[self._name], table=self._table, advice=advice)

    def _of_texts(self) -> StateColumn:
        """Texts: true and false, dates, or a category."""
        name, facts = self._name, self._facts
        levels = {level.lower() for level in facts.levels}
        if levels <= TRUE | FALSE and name not in self._rules.category:
            usual = sum(n for level, n in facts.levels.items() if level.lower() in TRUE) * 2 > sum(
                facts.levels.values()
            )
            return self._with_missing(StateColumn(name, "boolean"), float(usual))
        if all(map(_is_date, list(facts.levels)[:100])) and name not in self._rules.category:
            self._refuse(
                "date_in_state",
                f"A state variable must be a number, a category or a time that has passed, but {name!r} has dates, "
                f"such as {next(iter(facts.levels))}.",
                rows=[facts.first_text[0]] if facts.first_text else [],
                advice=f"Use the time since the episode began: --elapsed '{name}=1 day', in Python "
                f"columns={{'elapsed': {{{name!r}: '1 day'}}}}; or leave it out of --state.",
            )
        if all(map(has_comma, list(facts.levels)[:100])) and name not in self._rules.category:
            row, text = cast(tuple[int, str], facts.first_text)
            message = f"{name!r} must be numbers, but {PLACE} is {text}."
            self._refuse("not_a_number", message, rows=[row], advice=f"{COMMA} If it names a level: --category {name}.")
        if facts.too_many:
            self._refuse(
                "too_many_levels",
                f"{name!r} has more than {MOST_TEXTS:,} different texts, such as {listing(sorted(facts.levels)[:3])}: "
                f"it looks like an identifier.",
                rows=[facts.first_text[0]] if facts.first_text else [],
            )
        return self._category()

    def _category(self) -> StateColumn:
        facts = self._facts
        enough = sum(facts.levels.values()) / RARE
        frequent = sorted(facts.levels, key=lambda level: (-facts.levels[level], level))
        kept = [level for level in frequent[:MOST_LEVELS] if facts.levels[level] >= enough]
        column = StateColumn(self._name, "category", tuple(sorted(kept)), has_other=len(kept) < len(frequent))
        rule = self._rule_or_default("level")
        if rule is None or (rule == "median" and not facts.n_missing):
            return column
        if rule in ("level", "median"):
            return replace(column, missing="level")
        if rule == "forward":
            no_level = -1.0 if facts.n_missing and not facts.n_left else None
            return replace(column, missing="forward", fill=no_level, has_indicator=facts.n_left > 0)
        if rule == "drop":
            return replace(column, missing="drop")
        level = level_text(rule)
        if level not in column.levels:
            self._refuse_constant(f"one of the levels {listing(column.levels)}")
        return replace(column, missing="constant", fill=float(column.levels.index(level)))

    def _ordinal(self, order: tuple[str, ...]) -> StateColumn:
        facts = self._facts
        unknown = sorted(set(facts.levels) - set(order))
        if unknown:
            self._refuse(
                "unknown_level",
                f"{self._name!r} must have the levels {listing(order)}, but it also has {listing(unknown)}.",
                rows=[],
            )
        ranked = np.cumsum([facts.levels[level] for level in order])
        middle = float(np.searchsorted(ranked, (ranked[-1] + 1) // 2)) if ranked[-1] else 0.0
        if isinstance(self._rule, str) and self._rule not in WORDS:
            if self._rule not in order:
                self._refuse_constant(f"one of the levels {listing(order)}")
            return StateColumn(self._name, "ordinal", order, missing="constant", fill=float(order.index(self._rule)))
        return self._with_missing(StateColumn(self._name, "ordinal", order), middle)

    def _elapsed(self, unit: str) -> StateColumn:
        if not self._facts.is_time:
            shown = self._facts.first_text
            said = f"; the first at {PLACE} is {shown[1]}" if shown else ""
            self._refuse(
                "not_a_date",
                f"Elapsed time needs dates or times such as 2024-02-27 09:30, but {self._name!r} has other "
                f"values{said}.",
                advice="Write ISO dates, or say their order: --dates 'day first' or 'month first'.",
                rows=[shown[0]] if shown else [],
            )
        seconds = cast(float, stride_size(unit, self._name, is_time=True))
        if self._rule in ("median", None) and self._facts.n_missing:
            self._refuse(
                "missing_state",
                f"{self._name!r} has {self._facts.n_missing:,} cells without a time.",
                advice=f"Carry the last one forward or drop these rows: --missing {self._name}=forward, or =drop.",
            )
        missing = self._rule if self._rule in ("forward", "drop") else "refuse"
        return StateColumn(self._name, "elapsed", missing=cast(Any, missing), seconds=seconds)

    def _with_missing(self, column: StateColumn, middle: float) -> StateColumn:
        """Return a column of numbers with its rule for missing values; ``middle`` is the median."""
        rule, facts = self._rule_or_default("median"), self._facts
        is_stated = self._name in self._rules.missing
        if rule == "level":
            self._refuse_constant("median, forward, drop or a number, as it is not a category")
        if rule is None:
            return column
        if rule == "median":
            needed = facts.n_missing > 0 or is_stated
            return replace(column, missing="median", fill=middle, has_indicator=True) if needed else column
        if rule == "forward":
            fill = middle if facts.n_missing else None
            return replace(column, missing="forward", fill=fill, has_indicator=facts.n_left > 0)
        if rule == "drop":
            return replace(column, missing="drop") if is_stated or facts.n_missing else column
        if isinstance(rule, str):
            self._refuse_constant("median, forward, drop or a number")
        return replace(column, missing="constant", fill=float(rule))

    def _rule_or_default(self, otherwise: str) -> str | float | None:
        """Return the rule that was stated; else forward where values last, ``otherwise`` elsewhere."""
        if self._rule is not None or not self._facts.n_missing:
            return self._rule
        return "forward" if self._can_carry and self._facts.lasts else otherwise

    def _refuse_constant(self, wanted: str) -> NoReturn:
        raise ValueError(f"missing[{self._name!r}] must be {wanted}, but it is {self._rule!r}.")


def _as_written(column: StateColumn, columns: Columns) -> StateColumn:
    """Return a column with its marks of missing values, and with what a reader of texts does not deal with."""
    dialect = dialect_in(columns)
    marks = (*dialect.marks.get("", ()), *dialect.marks.get(column.name, ()))
    written = dialect.written(column.name, has_dates=column.kind == "elapsed")
    return replace(column, na=marks, written=written if written.suffix or written.dates else Written())


def _needs_nothing(column: StateColumn) -> bool:
    return column.is_plain and column.missing == "refuse" and not column.na and column.written == Written()


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return not text.isdigit()


def _filled(columns: Iterable[StateColumn], facts: dict[str, ColumnFacts], rules: Rules) -> Iterator[Fault]:
    """Yield missing values for which no rule was stated."""
    for column in columns:
        n_missing, n_rows = facts[column.name].n_missing, facts[column.name].n_rows
        if rules.missing_in(column.name) is not None or column.missing not in ("median", "level", "forward"):
            continue
        how = "a level of its own"
        if column.missing == "forward":
            left = facts[column.name].n_left
            first = f"; before the first one, in {counted(left, 'row')}, {column.without_history()}" if left else ""
            how = f"the last value of the same episode{first}"
        elif column.missing == "median":
            shown = column.levels[int(column.fill or 0)] if column.kind == "ordinal" else f"{column.fill:g}"
            how = f"the median, {shown}, with a variable that marks them"
        message = f"Missing values of {column.name!r}, in {n_missing:,} of {n_rows:,} rows, become {how}."
        yield make_fault("filled_values", message, count=n_missing, columns=[column.name])


def _classes(name: str, rule: Bins, counts: ValueCounts) -> ActionBins:
    """Return the classes of an action, with the median of each."""
    values, _ = counts.values()
    if len(values) == 0:
        raise LogError("missing_action", f"{name!r} has no number in any row, so it has no classes.", columns=[name])
    low, high = float(values[0]), float(values[-1])
    zero = rule.zero_apart and low <= 0
    rest = counts.where(0.0 if zero else -np.inf, np.inf)
    if rest.total == 0:
        raise LogError("single_action", f"{name!r} has no number above 0, so only one class.", columns=[name])
    shares = np.arange(1, rule.n_quantiles) / max(rule.n_quantiles, 1)
    inner = rule.edges or tuple(rest.quantile(float(share)) for share in shares)
    edges = sorted({edge for edge in inner if low <= edge < high} | ({0.0} if zero else set()))
    ends = [-np.inf, *edges, np.inf]
    parts = [(start, stop, counts.where(start, stop)) for start, stop in pairwise(ends)]
    labels = tuple(_class_label(start, stop, part) for start, stop, part in parts)
    doses = tuple(part.quantile(0.5) if part.total else min(max(start, low), high) for start, _, part in parts)
    return ActionBins(name, tuple(edges), labels, doses)


def _class_label(start: float, stop: float, part: ValueCounts) -> str:
    """Return the range of a class in words; the first and the last one have no end, as later numbers may lie beyond."""
    values, _ = part.values()
    if stop == 0.0 and values.tolist() == [0.0]:
        return "0"
    if start == -np.inf:
        return f"up to {stop:g}" if stop < np.inf else "any"
    return f"above {start:g}" if stop == np.inf else f"above {start:g} to {stop:g}"
