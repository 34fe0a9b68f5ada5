"""What the first rows of a table tell about each column: ``kbrl init`` proposes roles from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.column_names import has_word, words_of
from kbrl.data.written import iso_date
from kbrl.tables.cell_values import BLANKS, FLAGS, Column, Labels, Numbers
from kbrl.tables.faults import LogError
from kbrl.tables.formats import Table, regrouped
from kbrl.tables.text_files import PLAIN, Dialect

SAMPLE_ROWS = 5000
MOST_COLUMNS = 2000  # each pair of columns may be compared, and a person reads the result
_AT_ONCE = 100  # columns that are read by one pass
FEW = 20  # more different numbers than that are amounts, to be put into classes
_FALLING = 0.2  # share of the episodes that must begin before the one above them ends: dates may overlap
SOME = 5  # last rows on which a flag must be true to be taken for one of ends, whatever its name is
# Words that name what episodes are about, also where rows are in any order.
_CLEAR = ("patient", "subject", "stay", "admission", "hadm", "person", "session", "episode", "participant", "pat",
          "fallnr", "paciente", "paziente", "sejour")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Profile:
    """What some rows tell about one column."""

    name: str
    codes: Integers  # (n,), places in values; -1 where there is nothing
    values: tuple[Any, ...]  # different ones
    width: int = 0  # of a column of lists
    dialect: Dialect = PLAIN  # how numbers are written

    def __len__(self) -> int:
        return len(self.codes)

    def ordered(self, order: Integers) -> Profile:
        """Return the same with the rows in another order."""
        return replace(self, codes=self.codes[order]) if len(self) else self

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The different values as texts, numbers as Python writes them."""
        texts = (str(value).strip() for value in self.values)
        plain = (text if _is_number(text) else self.dialect.plain(text) for text in texts)
        return tuple(iso_date(text, self.dialect.dates) if self.dialect.dates else text for text in plain)

    @staticmethod
    def is_amount(text: str) -> bool:
        """Whether a text is a number."""
        return _is_number(text) and text.lower() not in FLAGS

    @cached_property
    def is_missing(self) -> Booleans:
        """Which rows have no value, (n,)."""
        blank = np.array([text.lower() in BLANKS for text in self.texts] + [True])
        return np.asarray(blank[self.codes])

    @cached_property
    def filled(self) -> tuple[str, ...]:
        """The different values that are not blank."""
        return tuple(text for text in self.texts if text.lower() not in BLANKS)

    @cached_property
    def counts(self) -> dict[str, int]:
        """How often each value occurs."""
        times = np.bincount(self.codes + 1, minlength=len(self.values) + 1)[1:]
        return {text: int(n) for text, n in zip(self.texts, times) if text.lower() not in BLANKS}

    @property
    def n_distinct(self) -> int:
        """The number of different values."""
        return len(set(self.filled))

    @property
    def n_filled(self) -> int:
        """The number of rows with a value."""
        return int((~self.is_missing).sum())

    @property
    def is_unique(self) -> bool:
        """Whether no value occurs twice, in more than 20 rows."""
        return self.n_distinct == self.n_filled and self.n_filled > 20

    @property
    def numbers_rows(self) -> bool:
        """Whether the values are whole numbers that rise by 1 from row to row, over the whole table."""
        return self.kind == "number" and self.is_unique and bool((np.diff(self.numbers) == 1).all())

    @property
    def is_constant(self) -> bool:
        """Whether every row has the same value."""
        return self.kind != "list" and self.n_distinct == 1 and self.n_filled == len(self)

    @property
    def is_coded(self) -> bool:
        """Whether its few small whole numbers may be names of levels."""
        is_whole = all(re.fullmatch(r"[0-9]{1,3}", text) for text in self.filled)
        return is_whole and 3 <= self.n_distinct <= 8

    @property
    def described(self) -> str:
        """What its values are, for people, and how many are missing."""
        if self.kind == "list":
            return f"lists of {self.width} numbers"
        lacking = int(self.is_missing.sum())
        missing = f", {lacking} of {len(self)} missing" if lacking else ""
        kinds = {"text": f"{self.n_distinct} different texts", "number": "numbers", "boolean": "true or false"}
        return f"{kinds.get(self.kind, self.kind)}{missing}"

    @property
    def is_counter(self) -> bool:
        """Whether the values are whole numbers that mostly rise by the same amount."""
        rises = np.diff(self.numbers)
        usual = float(np.median(rises)) if len(rises) else 0.0
        return usual > 0 and usual % 1 == 0 and float(np.mean(rises == usual)) > 0.5

    @cached_property
    def kind(self) -> str:
        """What its values are: list, nothing, boolean, number, date or text."""
        if self.width:
            return "list"
        if not self.filled:
            return "nothing"
        if {text.lower() for text in self.filled} <= {*FLAGS, "0", "1", "0.0", "1.0"}:
            return "boolean"
        if all(map(_is_number, self.filled)):
            return "number"
        return "date" if all(map(_is_date, self.filled)) else "text"

    @cached_property
    def numbers(self) -> Floats:
        """The values as numbers, dates as seconds, (n,); NaN where there is none."""
        convert = _seconds if self.kind == "date" else _number
        known = np.array([convert(text) for text in self.texts] + [np.nan], dtype=np.float64)
        return np.asarray(known[self.codes])


def profiles_of(table: Table, dialect: Dialect = PLAIN) -> list[Profile]:
    """Return the profile of each column of a table by its first rows."""
    if len(table.names) > MOST_COLUMNS:
        raise LogError(
            "too_large",
            f"Roles are proposed for at most {MOST_COLUMNS} columns, but the log has {len(table.names)}.",
            advice="State the roles without a proposal, as in kbrl check LOG --state a,b --action c --reward d.",
        )
    pieces = (table.names[start : start + _AT_ONCE] for start in range(0, len(table.names), _AT_ONCE))
    found = [profile for names in pieces for profile in _profiles(table, names, dialect)]
    if not any(map(len, found)):
        _refuse(table)
    return found


def _refuse(table: Table) -> NoReturn:
    """Raise the error of a table of which no row can be read."""
    for name in table.names[:1]:
        next(_batches(table, name, "labels"), None)  # says what is wrong with the file
    raise LogError("empty_log", "The log has columns, but no rows.")


def _profiles(table: Table, names: Sequence[str], dialect: Dialect) -> list[Profile]:
    """Return the profiles of some columns by one pass, or by one pass each if one of them has no labels."""
    try:
        labels = next(regrouped(table, dict.fromkeys(names, "labels"), SAMPLE_ROWS))
    except (LogError, StopIteration) as error:
        if isinstance(error, LogError) and error.fault.name == "too_large":
            raise  # it would be as large for each column
        return [_profile(table, name, dialect) for name in names]
    return [_of_labels(name, labels[name], dialect) for name in names]


def _of_labels(name: str, column: Column, dialect: Dialect) -> Profile:
    assert isinstance(column, Labels)
    taken, _ = column.taken()  # marks for missing values are no values
    places = np.full(len(column.values) + 1, -1, dtype=np.intp)
    places[taken] = np.arange(len(taken))
    return Profile(name, places[column.codes], tuple(column.values[k] for k in taken.tolist()), dialect=dialect)


def _profile(table: Table, name: str, dialect: Dialect) -> Profile:
    try:
        return _of_labels(name, next(_batches(table, name, "labels"))[name], dialect)
    except (LogError, StopIteration):
        pass
    try:
        column = next(_batches(table, name, "numbers"))[name]
        width = column.values.shape[1] if isinstance(column, Numbers) and column.values.ndim == 2 else 0
        return Profile(name, np.full(len(column), -1), (), width)
    except (LogError, StopIteration):
        return Profile(name, np.empty(0, dtype=np.intp), ())


def _batches(table: Table, name: str, kind: Any) -> Iterator[Any]:
    return regrouped(table, {name: kind}, SAMPLE_ROWS)


def rises_within(step: Profile, episodes: Profile | None) -> Floats:
    """Return by how much a column rises from each row to the next of the same episode; (k,)."""
    rises = np.diff(step.numbers)
    same = np.ones(len(rises), dtype=bool) if episodes is None else episodes.codes[1:] == episodes.codes[:-1]
    return np.asarray(rises[same & ~np.isnan(rises)])


def is_unique_within(column: Profile, episodes: Profile) -> bool:
    """Return whether no value occurs twice in an episode."""
    pairs = np.column_stack([episodes.codes, column.codes])[~column.is_missing & ~episodes.is_missing]
    return len(np.unique(pairs, axis=0)) == len(pairs)


def is_ordered_within(step: Profile, episodes: Profile) -> bool:
    """Return whether a column rises within each run of equal episodes, and falls where some of them begin.

    Then the two tell, whatever they are called, which rows belong together and in which order.
    """
    rises, is_new = np.diff(step.numbers), episodes.codes[1:] != episodes.codes[:-1]
    if step.is_missing.any() or episodes.is_missing.any() or returns(episodes) or not 2 < is_new.sum() < len(rises) / 2:
        return False
    return bool((rises[~is_new] > 0).all() and (rises[is_new] <= 0).mean() > _FALLING)


def finest_episodes(candidates: Sequence[Profile], steps: Sequence[Profile]) -> tuple[Profile, Profile] | None:
    """Return the column with the most values such that a step rises within its runs, with that step; else None."""
    found = [(each, step) for each in candidates if (step := ordering_step(steps, each)) is not None]
    return max(found, key=lambda pair: pair[0].n_distinct) if found else None


def ordering_step(steps: Sequence[Profile], episodes: Profile) -> Profile | None:
    """Return the first column that rises within episodes, of some that may order the rows."""
    usable = (p for p in steps if p.name != episodes.name)
    return next((p for p in usable if is_ordered_within(p, episodes)), None)


def changes_within(column: Profile, episodes: Profile | None) -> float:
    """Return how often a column changes from a row to the next of the same episode, as a share of these pairs."""
    same = np.ones(len(column) - 1, dtype=bool) if episodes is None else episodes.codes[1:] == episodes.codes[:-1]
    return float((column.codes[1:] != column.codes[:-1])[same].mean()) if same.any() else 0.0


def few_that_change(columns: Sequence[Profile], episodes: Profile | None) -> list[Profile]:
    """Return the columns of few words, or of flags, that change within episodes: a sex does not.

    The last one comes first: people write what they saw before what they did.
    """
    free = [p for p in columns if changes_within(p, episodes) > 0]
    few = [p for p in free if p.kind == "text" and 2 <= p.n_distinct <= FEW]
    few = few or [p for p in free if p.kind == "boolean" and not has_word(p.name, "harm")]
    few = few or [p for p in free if p.kind == "number" and 2 <= p.n_distinct <= 5]
    return few[::-1]


def last_rows(episodes: Profile) -> Booleans:
    """Return which rows are the last of a run of equal episodes, (n,); of the last run nothing is known."""
    changes = np.append(episodes.codes[1:] != episodes.codes[:-1], False)
    return np.asarray(changes)


def runs_of(step: Profile) -> Profile | None:
    """Return episodes without a name: each begins where the step starts again at its first value; else None."""
    numbers = step.numbers
    again = np.append(False, (numbers[1:] == numbers[0]) & (numbers[1:] <= numbers[:-1]))
    falls = np.append(False, numbers[1:] < numbers[:-1])
    if step.is_missing.any() or not 2 < again.sum() < len(step) / 2 or (falls & ~again).any():
        return None
    return Profile(f"runs of {step.name}", np.cumsum(again), tuple(range(int(again.sum()) + 1)))


def without_repeats(profiles: Sequence[Profile]) -> Integers:
    """Return the rows that are not the same as an earlier one in every column."""
    cells = np.column_stack([profile.codes for profile in profiles if len(profile)])
    _, first = np.unique(cells, axis=0, return_index=True)
    return np.sort(first)


def returns(episodes: Profile) -> int:
    """Return how often an episode starts again after another one."""
    starts = episodes.codes[np.append(True, episodes.codes[1:] != episodes.codes[:-1])]
    return len(starts) - len(np.unique(starts))


def tells_apart(column: Profile, steps: Sequence[Profile] = ()) -> bool:
    """Return whether a column may tell episodes apart: its values repeat, in runs unless its name is clear.

    Rows in any order will do if no two of them have the same value and the same step.
    """
    is_clear = any(word in _CLEAR for word in words_of(column.name))
    in_runs = returns(column) <= column.n_distinct
    is_key = any(is_unique_within(step, column) and not step.is_unique for step in steps if step.name != column.name)
    return 2 < column.n_distinct < 0.7 * column.n_filled and (in_runs or is_clear or is_key)


def is_on_first_rows(column: Profile) -> bool:
    """Return whether a column seems to have a value on the first row of each block only."""
    known = column.codes[~column.is_missing]
    is_sparse = column.is_missing.mean() > 0.3 and not column.is_missing[0]
    return bool(is_sparse and column.n_distinct > 2 and len(np.unique(known)) == len(known))


def filled_down(column: Profile) -> Profile:
    """Return a column whose missing values are those of the row above them."""
    rows = np.where(column.is_missing, 0, np.arange(len(column)))
    return column.ordered(np.maximum.accumulate(rows))


def is_closing(flags: Profile, is_last: Booleans) -> bool:
    """Return whether a flag is true on some last rows of episodes, and on no others."""
    rows = np.flatnonzero(flags.numbers[:-1] == 1)  # nothing is known of the last row of all
    return len(rows) >= SOME and bool(is_last[rows].all())


def is_chance(column: Profile) -> bool:
    """Return whether a column seems to hold the probability of the action that was taken."""
    within = column.kind == "number" and bool(np.all((column.numbers > 0) & (column.numbers <= 1)))
    return (has_word(column.name, "propensity") and column.kind == "number") or (
        within and "p" in words_of(column.name)[:1]
    )


def is_only_on(column: Profile, is_last: Booleans) -> bool:
    """Return whether a column has values on some last rows of episodes, and on no others."""
    rows = np.flatnonzero(~column.is_missing[:-1])
    return len(rows) >= SOME and bool(is_last[rows].all())


def closing_levels(column: Profile, is_last: Booleans, least: int) -> list[str]:
    """Return the values of a column that occur on at least so many last rows, and on no others.

    A text with both quotation marks cannot stand in an expression.
    """
    levels = []
    for code, text in enumerate(column.texts):
        rows = np.flatnonzero(column.codes[:-1] == code)  # nothing is known of the last row of all
        if len(rows) >= least and is_last[rows].all() and text.lower() not in BLANKS and not {"'", '"'} <= set(text):
            levels.append(text)
    return sorted(levels)


def _is_number(text: str) -> bool:
    return not np.isnan(_number(text)) or text.lower() in ("inf", "-inf")


def _number(text: str) -> float:
    if text.lower() in FLAGS:
        return FLAGS[text.lower()]
    try:
        return float(text) if "_" not in text else np.nan
    except ValueError:
        return np.nan


def _is_date(text: str) -> bool:
    return not np.isnan(_seconds(text))


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None).timestamp() if len(text) >= 8 else np.nan
    except (ValueError, OverflowError, OSError):
        return np.nan
