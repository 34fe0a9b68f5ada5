"""From batches of columns to rows of a log: states, actions, rewards, flags, and the problems in their cells.

Problems are recorded here and refused, or counted, by the caller.  A row is terminated if the episode really ended
there, truncated if it was only cut.  ``done`` means either; it counts as an end unless another column says that the
row was cut.  In a text file, labels get the narrowest type that all labels of the column allow: whole numbers, numbers,
truth values or words.  A text such as 007, which a number would change, stays a word.

"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from kbrl.arrays import Array, Booleans, Floats
from kbrl.checks import counted
from kbrl.data.names import LARGEST_WHOLE_FLOAT, array_of_labels, find_label, fits_int64, is_whole, said_of_amounts
from kbrl.logs.columns import Columns
from kbrl.logs.sequence import Numbering, Order, stride_size
from kbrl.tables.cell_values import Batch, Kind, Labels, Numbers
from kbrl.tables.faults import PLACE, LogError, explained
from kbrl.tables.formats import Border, Table, batch_length, borders_in, regrouped
from kbrl.tables.text_files import COMMA, has_comma

LARGEST_NUMBER = 1e100  # leaves room for sums of squares; learners also refuse larger rewards
MOST_ACTIONS = 1000  # more labels than that are continuous actions
_LONGEST_FLOAT = 24  # characters, as of -1.7976931348623157e+308; longer texts may differ and be the same float
_PATTERNS: dict[type, re.Pattern[str]] = {
    int: re.compile(r"0|-?[1-9]\d*"),
    float: re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"),
    bool: re.compile(r"[Tt]rue|[Ff]alse"),
}


@dataclass(frozen=True, eq=False)
class Problem:
    """The cells of one column that break one rule."""

    name: str  # of the fault
    column: str
    bad: Booleans  # (n,)
    sample: str  # the first of them


@dataclass(frozen=True, eq=False)
class Rows(Order):
    """Some consecutive rows of a log."""

    states: Floats  # (n, d)
    actions: Labels
    rewards: Floats  # (n,)
    next_states: Floats | None  # (n, d)
    problems: tuple[Problem, ...]
    borders: tuple[Border, ...] = ()  # of files, before one of these rows
    durations: Floats | None = None  # (n,), until the next state, in periods of the discount
    propensities: Floats | None = None  # (n,), of the actions taken

    def __len__(self) -> int:
        return len(self.states)

    @cached_property
    def without_next(self) -> Booleans:
        """The rows whose next state is left empty because the episode ends or is cut there, (n,)."""
        closing = self.terminated | self.truncated
        if self.next_states is None:
            return np.zeros(len(self), dtype=bool)
        closing[closing] = np.isnan(self.next_states[closing]).all(axis=1)
        return closing


def read_rows(
    table: Table, columns: Columns, n_rows: int, episode_type: Any = None, *, first_episode: int = 0
) -> Iterator[Rows]:
    """Yield the rows of a table, exactly ``n_rows`` at a time and the rest at the end.

    Episodes without identifiers are numbered from ``first_episode``.
    """
    ordering = (columns.episode, columns.step, columns.terminated, columns.truncated, columns.done, columns.one_step)
    if not columns.next_state and not any(ordering):
        raise LogError("no_order", "The log has no next states, and no column tells where its episodes end.")
    numbering = Numbering(first_episode)
    first = 0
    for batch in regrouped(table, kinds_of(columns), n_rows):
        rows = _rows_of(batch, columns, first, numbering, episode_type, getattr(table, "dropped", frozenset()))
        yield replace(rows, borders=borders_in(table, first, len(rows)))
        first += len(rows)
    if first == 0:
        raise LogError("empty_log", "The log has columns, but no rows.")


def kinds_of(columns: Columns) -> dict[str, Kind]:
    """Return the columns that are read, and what their cells are converted to."""
    labels = (columns.action, columns.episode)
    flags = (columns.terminated, columns.truncated, columns.done)
    kinds: dict[str, Kind] = {}
    for name in columns.used():
        kinds[name] = "labels" if name in labels else "flags" if name in flags else "numbers"
    if columns.step is not None:
        kinds[columns.step] = "steps"
    return kinds


def order_of(batch: Batch, columns: Columns, first: int, numbering: Numbering, episode_type: Any) -> Order:
    """Return what orders the rows of a batch; ``numbering`` numbers episodes that have no identifier."""
    terminated, truncated, both = ends(batch, columns, batch_length(batch))
    steps, episodes = _column(batch, columns.step), _episodes(batch, columns, episode_type)
    state_only, ended = _only_states(batch, columns, terminated, truncated)
    if state_only is not None:
        terminated, truncated = terminated & ~state_only, truncated | state_only
    if episodes is None and any((columns.terminated, columns.truncated, columns.done, columns.step, columns.one_step)):
        episodes = numbering.number(terminated | truncated, steps)
    are_times = columns.step is not None and cast(Numbers, batch[columns.step]).is_time
    stride = stride_size(columns.stride, columns.step, is_time=are_times)
    if columns.duration is None:
        period_size(columns, are_times)  # refuses one of another kind than the steps
    return Order(first, terminated, truncated, both, episodes, steps, are_times, stride, state_only, ended)


def _only_states(
    batch: Batch, columns: Columns, terminated: Booleans, truncated: Booleans
) -> tuple[Booleans | None, Booleans | None]:
    """Return the rows without an action, which only say where the row before them led, and which of them are ends.

    None where rows have next states of their own: then every row needs an action.  Where no column tells episodes
    apart, a flag must say that the episode ends there: else an action is missing.
    """
    if columns.next_state or columns.one_step:
        return None, None
    state_only = np.asarray(cast(Labels, batch[columns.action]).codes < 0)
    if columns.episode is None:
        state_only &= terminated | truncated
    return state_only, state_only & terminated


def _rows_of(
    batch: Batch, columns: Columns, first: int, numbering: Numbering, episode_type: Any, dropped: frozenset[str]
) -> Rows:
    states = stacked(batch, columns.state)
    next_states = stacked(batch, columns.next_state) if columns.next_state else None
    if next_states is not None and next_states.shape != states.shape:
        raise LogError(
            "wrong_width",
            f"Next states must have the {states.shape[1]} variables of the states, but they have "
            f"{next_states.shape[1]}.",
            columns=columns.next_state,
        )
    rewards, actions = cast(Floats, _column(batch, columns.reward)), cast(Labels, batch[columns.action])
    order = order_of(batch, columns, first, numbering, episode_type)
    rows = Rows(
        **vars(order),
        states=states,
        actions=actions,
        rewards=rewards,
        next_states=next_states,
        problems=(),
        durations=_durations(batch, columns),
        propensities=_column(batch, columns.action_prob),
    )
    return replace(rows, problems=tuple(_problems(rows, batch, columns, dropped)))


def period_size(columns: Columns, are_times: bool) -> float | None:
    """Return the period of the discount, in units of the step or in seconds; None if it is per row."""
    return stride_size(columns.discount_per, columns.step, is_time=are_times, what="discount's period")


def _durations(batch: Batch, columns: Columns) -> Floats | None:
    """Return the durations that a column holds, in periods of the discount; None if there is no such column."""
    durations = _column(batch, columns.duration)
    if durations is None:
        return None
    period = stride_size(columns.discount_per or "1", columns.duration, is_time=False, what="discount's period")
    return durations / cast(float, period)


def stacked(batch: Batch, names: Sequence[str]) -> Floats:
    """Return the state variables in some columns, (n, n_dims); a column of lists holds several."""
    parts = [cast(Numbers, batch[name]).values for name in names]
    return parts[0] if len(parts) == 1 and parts[0].ndim == 2 else np.column_stack(parts)


def _column(batch: Batch, name: str | None) -> Floats | None:
    if name is None:
        return None
    values = cast(Numbers, batch[name]).values
    if values.ndim == 2 and values.shape[1] != 1:
        raise LogError("wrong_width", f"{name!r} must hold one number per row, but it holds {values.shape[1]}.")
    return values.reshape(len(values))


def _episodes(batch: Batch, columns: Columns, episode_type: Any) -> Array | None:
    if columns.episode is None:
        return None
    labels = cast(Labels, batch[columns.episode])
    values: list[Hashable] = [as_type(value, episode_type) for value in labels.values]
    if len({type(value) for value in values}) > 1:
        values = [str(value) for value in values]
    # as objects, whole numbers beyond int64 stay exact; beside smaller ones they would become floats
    is_large = any(is_whole(value) and not fits_int64(value) for value in values)
    known = [*values, type(values[0])() if values else 0]  # the last entry serves -1
    return np.array(known, dtype=object if is_large else None)[labels.codes]


def ends(batch: Batch, columns: Columns, n_rows: int) -> tuple[Booleans, Booleans, Booleans]:
    """Return which rows are ends, which are cut, and which have both flags and count as ends, each (n,)."""
    if columns.one_step:
        none = np.zeros(n_rows, dtype=bool)
        return ~none, none, none
    flags = [_flag(batch, name, n_rows) for name in (columns.terminated, columns.truncated, columns.done)]
    terminated, truncated, done = flags
    if columns.terminated is None:
        return done & ~truncated, truncated, np.zeros(n_rows, dtype=bool)
    both = terminated & truncated
    if columns.truncated is None:
        truncated = done
    return terminated, truncated & ~terminated, both


def _flag(batch: Batch, name: str | None, n_rows: int) -> Booleans:
    return np.zeros(n_rows, dtype=bool) if name is None else cast(Numbers, batch[name]).values == 1


def _problems(rows: Rows, batch: Batch, columns: Columns, dropped: frozenset[str]) -> Iterator[Problem]:
    exempt = rows.without_next
    roles = [(name, "state") for name in columns.state] + [(name, "next_state") for name in columns.next_state]
    roles.append((columns.reward, "reward"))
    for name, role in roles:
        spared = exempt if role == "next_state" else np.zeros(len(rows), dtype=bool)
        spared = np.ones(len(rows), dtype=bool) if name in dropped else spared
        if role == "reward" and rows.state_only is not None:
            spared = rows.state_only
        yield from bad_numbers(cast(Numbers, batch[name]), name, role, spared)
    if columns.step is not None:
        yield from bad_numbers(cast(Numbers, batch[columns.step]), columns.step, "step", np.zeros(len(rows), bool))
    if rows.durations is not None:
        cells = cast(Numbers, batch[cast(str, columns.duration)])
        rule = "durations must be above 0"
        bad = ~(is_usable(rows.durations) & (rows.durations > 0)) & ~rows.terminated
        yield from _found("bad_duration", cast(str, columns.duration), bad, partial(_against, rule, cells))
    if rows.propensities is not None:
        likely = cast(Numbers, batch[cast(str, columns.action_prob)])
        rule = "it must lie above 0 and up to 1"
        bad = ~((rows.propensities > 0) & (rows.propensities <= 1))
        bad = bad if rows.state_only is None else bad & ~rows.state_only
        yield from _found("bad_propensity", cast(str, columns.action_prob), bad, partial(_against, rule, likely))
    for flag in (columns.terminated, columns.truncated, columns.done):
        if flag is not None:
            cells = cast(Numbers, batch[flag])
            yield from _found("bad_flag", flag, np.isnan(cells.values), cells.quote)
    for label, fault in ((columns.action, "missing_action"), (columns.episode, "missing_episode")):
        if label is not None:
            missing = np.asarray(cast(Labels, batch[label]).codes < 0)
            if label == columns.action and rows.state_only is not None:
                missing = missing & ~rows.state_only
            yield from _found(fault, label, missing, lambda row: "nothing")


def bad_numbers(cells: Numbers, name: str, role: str, spared: Booleans) -> Iterator[Problem]:
    """Yield the problems in a column of numbers, which may be missing in the ``spared`` rows."""
    values = cells.values.reshape(len(cells), -1)
    odd = np.zeros(len(cells), dtype=bool) if cells.odd is None else cells.odd
    missing = np.isnan(values).any(axis=1) & ~odd & ~spared
    too_large = np.abs(values) > LARGEST_NUMBER
    infinite = np.asarray(too_large.any(axis=1))
    kinds = " (steps are numbers, or ISO dates such as 2024-02-27 or 2024-02-27 09:30)" if role == "step" else ""
    yield from _found("not_a_number", name, odd, lambda row: f"{cells.quote(row)}{_hint(cells.quote(row))}{kinds}")
    yield from _found(f"missing_{role}", name, missing, lambda row: "nothing")
    if role != "step":
        rule = f"numbers must be finite and at most {LARGEST_NUMBER:g} in size"
        yield from _found(
            f"infinite_{role}", name, infinite, lambda row: f"{values[row][too_large[row]][0]:g} ({rule})"
        )


def _hint(quoted: str) -> str:
    return f". {COMMA}" if has_comma(quoted) else ""


def _against(rule: str, cells: Numbers, row: int) -> str:
    """Return a cell and the rule that its number breaks, or the cell alone if it is not a number."""
    value = float(cells.values.reshape(len(cells), -1)[row, 0])
    return cells.quote(row) if np.isnan(value) else f"{value:g} ({rule})"


def is_usable(numbers: Floats) -> Booleans:
    """Return which numbers are neither missing nor infinite nor too large."""
    return np.asarray(np.abs(numbers) <= LARGEST_NUMBER)


def _found(fault: str, column: str, bad: Booleans, quote: Callable[[int], str]) -> Iterator[Problem]:
    if bad.any():
        yield Problem(fault, column, bad, quote(int(np.argmax(bad))))


def _allows(text: str, kind: type) -> bool:
    """Return whether a text can become a type without loss."""
    if not _PATTERNS[kind].fullmatch(text):
        return False
    if kind is bool:
        return True
    if not _PATTERNS[int].fullmatch(text):
        return len(text) <= _LONGEST_FLOAT and math.isfinite(float(text))
    if len(text) > 20:  # more than an int64 has; Python refuses to convert thousands of digits
        return False
    return fits_int64(int(text)) if kind is int else abs(int(text)) <= LARGEST_WHOLE_FLOAT


class TextType:
    """Finds the narrowest type that all texts of a column allow, batch by batch."""

    def __init__(self) -> None:
        self._possible = list(_PATTERNS)

    def see(self, texts: Iterable[Hashable]) -> None:
        """Take more texts into account."""
        for text in texts if self._possible else ():
            self._possible = [kind for kind in self._possible if _allows(str(text), kind)]

    def __add__(self, other: TextType) -> TextType:
        """Return the types that the texts of both parts allow."""
        result = TextType()
        result._possible = [kind for kind in self._possible if kind in other._possible]
        return result

    @property
    def found(self) -> type:
        """The narrowest type; str if nothing else is possible."""
        return self._possible[0] if self._possible else str


def as_type(value: Hashable, kind: type | None) -> Any:
    """Return a label as a type that it allows; None leaves it as it is."""
    if kind is None:
        return value
    return str(value).lower() == "true" if kind is bool else kind(value)


class ActionSet:
    """Counts how often each action was taken."""

    def __init__(self, column: str, *, is_text: bool) -> None:
        self.column, self.is_text = column, is_text
        self.counts: dict[tuple[type, Hashable], int] = {}

    def see(self, values: Iterable[Hashable], counts: Iterable[int]) -> None:
        """Take more rows into account."""
        for value, count in zip(values, counts):
            key = (type(value), value)
            self.counts[key] = self.counts.get(key, 0) + int(count)
        if len(self.counts) > MOST_ACTIONS:
            shown = ", ".join(str(value) for _, value in list(self.counts)[:3])
            raise LogError(
                "too_many_actions",
                f"Actions must be a few labels, but {self.column!r} has more than {MOST_ACTIONS}: {shown}, ...",
                columns=[self.column],
            )

    def __add__(self, other: ActionSet) -> ActionSet:
        """Return the actions of both parts of a log."""
        result = ActionSet(self.column, is_text=self.is_text or other.is_text)
        for part in (self, other):
            result.see((value for _, value in part.counts), part.counts.values())
        return result

    def kind(self) -> type | None:
        """Return the type that the labels are converted to, None if they stay as they are."""
        kinds = {kind for kind, _ in self.counts}
        if self.is_text:
            texts = TextType()
            texts.see(value for _, value in self.counts)
            return texts.found
        if kinds == {int} and not all(fits_int64(value) for value in self._whole_numbers()):
            return str
        if kinds == {int, float} and all(abs(value) <= LARGEST_WHOLE_FLOAT for value in self._whole_numbers()):
            return float
        if len(kinds) > 1:
            raise LogError(
                "mixed_actions",
                f"Actions must be labels of one kind, but {self.column!r} mixes {sorted(k.__name__ for k in kinds)}.",
                columns=[self.column],
            )
        return None

    def _whole_numbers(self) -> list[int]:
        return [value for _, value in self.counts if is_whole(value)]

    def settled(self) -> dict[Any, int]:
        """Return how often each label was taken, in the order of the labels."""
        kind = self.kind()
        counts: dict[Any, int] = {}
        for (_, value), count in self.counts.items():
            label = as_type(value, kind)
            counts[label] = counts.get(label, 0) + count
        return dict(sorted(counts.items()))


def refuse_amounts(taken: Mapping[Any, int], column: str) -> None:
    """Refuse labels of a column that look like amounts; ``taken`` has the count of each."""
    said = said_of_amounts(taken)
    if said is not None:
        raise LogError(
            "many_actions",
            f"{column!r} has {said}.",
            columns=[column],
            advice=f"Put amounts such as doses into a few classes: --bins {column}=4, in Python columns={{'bins': "
            f"{{{column!r}: 4}}}}. If each number is an action of its own, list all of them in Python: actions=[...].",
        )


def label_array(taken: Iterable[Any], actions: Iterable[Any] | None, column: str) -> Array:
    """Return the labels of all actions, (n_actions,): ``actions``, which must include all taken, or those taken."""
    taken = list(taken)
    if actions is None:
        return array_of_labels(taken)
    labels = array_of_labels(actions)
    possible = labels.tolist()
    places = {label: place for place, label in enumerate(possible)}
    unknown = [label for label in taken if find_label(label, places) < 0]
    if unknown:
        raise LogError(
            "unknown_action",
            f"Actions must be among {possible}, but {column!r} also has {unknown[:5]}.",
            columns=[column],
        )
    return labels


def refuse_problems(problems: Sequence[Problem], first: int, table: Table) -> None:
    """Raise the first of some problems; ``first`` is the number of the first row in the table."""
    if not problems:
        return
    problem = min(problems, key=lambda found: int(np.argmax(found.bad)))
    n_bad, rows = int(problem.bad.sum()), (first + np.flatnonzero(problem.bad)).tolist()
    sample, columns, advice = explained(problem.name, problem.column, problem.sample, rows, table)
    raise LogError(
        problem.name,
        f"{problem.column!r} has at least {counted(n_bad, 'faulty cell')} ({problem.name}); the first is {PLACE}: "
        f"{sample}.",
        rows=rows,
        columns=columns,
        advice=advice,
        table=table,
    )
