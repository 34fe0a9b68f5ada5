"""Between rows and transitions: which row of a log follows which, and which rows are left out because none does.

Learning, the scan before it, the check and the parts on Dask all ask here.  A step orders the rows of an episode.  A
difference between two steps is a gap only if the stride is stated: see docs/decisions/13-steps.md.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import counted, positive
from kbrl.tables.faults import ALLOW, OTHER_EPISODES, OWN_NEXT, PLACE, SHOWN_ROWS, LogError

ANY = "any"  # a stride: the step only orders the rows; its differences mean nothing
MOST_GAPS = 0.05  # the share of rows that gaps may leave out unless more is allowed
_DIFFER = "The two rows differ in a column that is read: delete the wrong one, or name a finer step: --step NAME."
MOST_LEFT_OUT = 0.5  # the share that gaps and cuts together may leave out
_SLACK = 1e-3  # of the stride: differences of seconds since 1970 are off by rounding, up to a microsecond
_SECONDS = {"millisecond": 0.001, "ms": 0.001, "second": 1, "s": 1, "minute": 60, "min": 60, "hour": 3600, "h": 3600,
            "day": 86400, "d": 86400, "week": 604800, "w": 604800}  # fmt: skip
_SECOND = np.timedelta64(1, "s")
_WITH_UNIT = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)?\s*([a-z]+)", re.ASCII | re.IGNORECASE)


def stride_text(value: Any) -> str:
    """Return a stride as it is stored: a number, a number with a unit of time, or ``any``."""
    text = value.strip() if isinstance(value, str) else value
    try:
        if isinstance(value, timedelta | np.timedelta64):
            text = f"{float(value / (timedelta(seconds=1) if isinstance(value, timedelta) else _SECOND))!r} seconds"
        if text != ANY and _seconds(text) is None:
            positive(float(text) if isinstance(text, str) else text, "stride")
    except (TypeError, ValueError):
        raise ValueError(
            f"stride must be a number above 0, a number with a unit from ms to weeks such as '1 day', or 'any', but it "
            f"is {value!r}."
        ) from None
    return str(text)


def period_text(value: Any) -> str:
    """Return what a discount is per as it is stored: a number, or a number with a unit of time."""
    try:
        text = stride_text(value)
    except ValueError:
        text = ANY
    if text == ANY:
        raise ValueError(
            f"discount_per must be a number above 0, or a number with a unit from ms to weeks such as '1 day', but it "
            f"is {value!r}."
        )
    return text


def stride_size(text: str | None, column: str | None, *, is_time: bool, what: str = "stride") -> float | None:
    """Return the stride between the steps of a column, in seconds if they are times; None for any difference."""
    if text is None or text == ANY:
        return None
    seconds = _seconds(text)
    if (seconds is not None) != is_time:
        held = "datetimes, which need a unit" if is_time else "numbers, which have no unit"
        raise LogError(
            "wrong_stride", f"The {what} is {text!r}, but the steps in {column!r} are {held}.", columns=[str(column)]
        )
    return float(text) if seconds is None else seconds


def _seconds(text: Any) -> float | None:
    """Return the seconds of a stride that has a unit, None if it has none."""
    found = _WITH_UNIT.fullmatch(text) if isinstance(text, str) else None
    unit = found[2].lower() if found else ""
    unit = unit if unit in _SECONDS else unit.removesuffix("s")
    return positive(float(found[1] or 1) * _SECONDS[unit], "stride") if found and unit in _SECONDS else None


@dataclass(frozen=True, eq=False)
class Order:
    """What orders some consecutive rows of a log."""

    first: int  # the number of the first of them in the log, from 0
    terminated: Booleans  # (n,), the episode really ends here
    truncated: Booleans  # (n,), the episode is only cut here
    both_flags: Booleans  # (n,), the log says both; terminated counts
    episodes: Array | None  # (n,); None where nothing tells episodes apart
    steps: Floats | None  # (n,)
    are_times: bool  # the steps, in seconds
    stride: float | None  # between the steps of rows that follow each other; None for any difference
    state_only: Booleans | None  # (n,), rows without an action, which may only be the last of their episodes
    ended: Booleans | None  # (n,), those of them that say that the episode ended there


class Numbering:
    """Numbers episodes that have no identifier: a new one starts after an end, or where the step decreases."""

    def __init__(self, first: int = 0) -> None:
        self.last, self.was_end, self.step = first, False, -np.inf
        self.first_step: float | None = None  # None: no row has come

    def number(self, ends: Booleans, steps: Floats | None) -> Integers:
        """Return the episode of each row of the next chunk, (n,)."""
        starts = np.append(self.was_end, ends[:-1])
        if self.first_step is None:
            self.first_step = -np.inf if steps is None else float(steps[0])
        if steps is not None:
            starts = starts | (steps < np.append(self.step, steps[:-1]))
            self.step = steps[-1]
        numbers = self.last + np.cumsum(starts)
        self.last, self.was_end = int(numbers[-1]), bool(ends[-1])
        return numbers.astype(np.intp)

    def after(self, before: Numbering | None) -> Numbering:
        """Return the numbering of these rows after those of another one, as if both had come to it."""
        if self.first_step is None:
            return self if before is None else before
        first = 0
        if before is not None and before.first_step is not None:
            first = before.last + (before.was_end or self.first_step < before.step)
        result = Numbering(first + self.last)
        result.was_end, result.step, result.first_step = self.was_end, self.step, self.first_step
        return result


@dataclass(frozen=True, eq=False)
class Pairs:
    """Some consecutive rows, and how each of them but the last continues in the row after it."""

    first: int  # the number of the first row in the log, from 0
    fields: dict[str, Array]  # arrays of these rows, (n, ...): terminated, truncated, episodes, steps and others
    same: Booleans  # (n - 1,), the row after it has the same episode
    rises: Floats | None  # (n - 1,), by how much the step rises; None where there are no steps
    follows: Booleans  # (n - 1,), the row after it is the next step of the same episode
    are_times: bool  # the steps, in seconds

    @property
    def without_action(self) -> Booleans:
        """The rows without an action whose episode continues in the row after, (n - 1,)."""
        none = self.fields.get("state_only")
        return np.zeros(len(self.same), dtype=bool) if none is None else np.asarray(none[:-1] & self.same)


class Sequencer:
    """Says which row follows which, chunk by chunk: the last row of a chunk is compared with the first of the next."""

    def __init__(self) -> None:
        self.first: dict[str, Array] = {}  # the fields of the first row of the log, each with one entry
        self.last: dict[str, Array] = {}  # those of the last row so far

    def add(self, order: Order, **others: Array) -> Pairs:
        """Compare the rows of the next chunk, and the last row before them; ``others`` are more arrays of the rows."""
        names = ("terminated", "truncated", "episodes", "steps", "state_only", "ended")
        fields = {name: getattr(order, name) for name in names} | others
        fields = {name: field for name, field in fields.items() if field is not None}
        n_before = len(self.last) > 0
        if n_before:
            fields = {name: np.concatenate([self.last[name], field]) for name, field in fields.items()}
        self.first = self.first or {name: field[:1].copy() for name, field in fields.items()}
        self.last = {name: field[-1:].copy() for name, field in fields.items()}  # a view would keep the chunk alive
        episodes, rises = fields["episodes"], np.diff(fields["steps"]) if "steps" in fields else None
        follows = same = np.asarray(episodes[1:] == episodes[:-1])
        if "ended" in fields and fields["ended"].any():  # the step before a last state is the one that ended there
            fields["terminated"] = fields["terminated"] | np.append(fields["ended"][1:] & same, False)
        if rises is not None and order.stride is not None:  # without a stride, the next row of an episode follows
            follows = same & (np.abs(rises - order.stride) <= _SLACK * order.stride)
        return Pairs(order.first - n_before, fields, same, rises, follows, order.are_times)


class EpisodeMemory:
    """Remembers the episodes that have been seen, up to a number of them, to notice one that comes back."""

    MOST = 200_000

    def __init__(self, most: float = MOST) -> None:
        self.seen: set[Hashable] = set()
        self._most, self._last = most, cast(Hashable, None)

    def returns(self, episodes: Array) -> list[int]:
        """Return the places of the rows at which an episode starts again that had been left before."""
        starts = np.append(0, 1 + np.flatnonzero(episodes[1:] != episodes[:-1]))
        returned = []
        for place, episode in zip(starts.tolist(), episodes[starts].tolist()):
            if episode != self._last and episode in self.seen:
                returned.append(place)
            if len(self.seen) < self._most:
                self.seen.add(episode)
            self._last = episode
        return returned


@dataclass(frozen=True, eq=False)
class Edge:
    """What tells whether an episode of one part of a log continues in another part."""

    episodes: tuple[Hashable, ...]  # the first, the last, and more of them; none where nothing identifies them
    is_ended: bool  # the last row is an end, or its episode is cut there
    first_step: float
    last_step: float


def find_edge(sequencer: Sequencer, episodes: Sequence[Hashable]) -> Edge:
    """Return the edge of the rows that a sequencer has seen; ``episodes`` are some of their identifiers."""
    first, last = sequencer.first, sequencer.last
    border = [row["episodes"].tolist()[0] for row in (first, last)] if episodes else []
    steps = [float(row["steps"][0]) if "steps" in row else 0.0 for row in (first, last)]
    return Edge((*border, *episodes), bool(last["terminated"][0] or last["truncated"][0]), *steps)


@dataclass(frozen=True)
class LeftOut:
    """How many rows do not become transitions, by reason; counts of the parts of a log add up."""

    gaps: int = 0  # the step after them is not the next one
    cuts: int = 0  # the episode was cut there, and what came next was not logged

    def __add__(self, other: LeftOut) -> LeftOut:
        """Return the counts of both parts."""
        return LeftOut(self.gaps + other.gaps, self.cuts + other.cuts)

    @property
    def total(self) -> int:
        """The number of rows that are left out for any reason."""
        return self.gaps + self.cuts

    def say(self, n_rows: int) -> str:
        """Return a sentence with the counts and the reasons."""
        reasons = []
        if self.gaps:
            reasons.append(f"{self.gaps:,} before a gap, where the step does not rise by the stride")
        if self.cuts:
            reasons.append(f"{self.cuts:,} at the end of an episode that was cut, where the next state is not known")
        return f"{self.total:,} of {n_rows:,} rows are left out: {' and '.join(reasons)}."


class LeftOutCounter:
    """Counts the rows that the reader leaves out, chunk by chunk."""

    def __init__(self) -> None:
        self._sum, self._is_open = LeftOut(), False

    def add(self, pairs: Pairs) -> None:
        """Take more rows into account, whose next states are in the next row."""
        terminated = pairs.fields["terminated"]
        lost = ~pairs.follows & ~terminated[:-1]
        n_gaps = int((lost & pairs.same).sum())
        self._sum += LeftOut(n_gaps, int(lost.sum()) - n_gaps)
        self._is_open = not terminated[-1]

    def add_cuts(self, cut: Booleans) -> None:
        """Take rows into account that have next states of their own; that of the marked ones is missing."""
        self._sum += LeftOut(cuts=int(cut.sum()))

    @property
    def found(self) -> LeftOut:
        """The counts, if the log ends here."""
        return self._sum + LeftOut(cuts=int(self._is_open))


class Rises:
    """The smallest rise of the step within an episode, how often it occurs, and how often a larger one does."""

    def __init__(self) -> None:
        self.least, self.n_least, self.n_larger = np.inf, 0, 0
        self.rows: list[int] = []  # the first rows before a larger rise
        self._least_rows: list[int] = []
        self._are_whole, self._is_time = True, False

    def add(self, pairs: Pairs) -> None:
        """Take more rows into account, which have steps."""
        steps = pairs.fields["steps"]
        self._are_whole = self._are_whole and bool((np.floor(steps) == steps).all())
        self._is_time |= pairs.are_times
        rises = cast(Floats, pairs.rises)
        is_rise = pairs.same & (rises > 0)
        self._lower(np.min(rises, where=is_rise, initial=np.inf))
        is_least = is_rise & (rises == self.least)
        self.n_least += self._note(is_least, pairs.first, self._least_rows)
        self.n_larger += self._note(is_rise ^ is_least, pairs.first, self.rows)

    @staticmethod
    def _note(found: Booleans, first: int, rows: list[int]) -> int:
        """Append the first rows that were found, where there is room for them, and return how many were found."""
        count = int(np.count_nonzero(found))
        if count and len(rows) < SHOWN_ROWS:
            rows += (first + np.flatnonzero(found)[: SHOWN_ROWS - len(rows)]).tolist()
        return count

    def _lower(self, least: float) -> None:
        """Start again with a smaller rise, if this is one; the rises counted so far are then larger ones."""
        if least < self.least:
            self.rows = sorted(self.rows + self._least_rows)[:SHOWN_ROWS]
            self.n_larger, self.n_least = self.n_larger + self.n_least, 0
            self.least, self._least_rows = float(least), []

    def __add__(self, other: Rises) -> Rises:
        """Return the counts of both parts of a log; numbers of rows are dropped, because each part starts at 0."""
        result = Rises()
        result.least = min(self.least, other.least)
        for part in (self, other):
            n_least = part.n_least if part.least == result.least else 0
            result.n_least += n_least
            result.n_larger += part.n_least + part.n_larger - n_least
            result._are_whole &= part._are_whole
            result._is_time |= part._is_time
        return result

    @property
    def usual(self) -> float | None:
        """The smallest rise, if steps are whole numbers and most of them rise by it, as a counter does."""
        return self.least if self._are_whole and self.n_least > self.n_larger else None

    def say(self) -> tuple[str, str]:
        """Return a sentence about larger rises and what to do about them; ``usual`` must be a number."""
        stride = f"{self.least:g}{' seconds' if self._is_time else ''}"
        written = f"'{stride}'" if self._is_time else stride
        advice = (
            f"If rows are missing there, leave out the rows before the gaps: --stride {written}, in Python "
            f"columns={{'stride': {written}}}. If no rows are missing, state that: --stride any."
        )
        return f"After {counted(self.n_larger, 'row')} the step rises by more than {stride}, its usual rise", advice


def refuse_left_out(left_out: LeftOut, n_rows: int, columns: Any) -> None:
    """Refuse a log if too many of its rows are left out, for gaps or in all, unless its `Columns` allow that."""
    if columns.allow_gaps:
        return
    if left_out.gaps > MOST_GAPS * n_rows:
        raise LogError(
            "too_many_gaps",
            f"Gaps may leave out at most {MOST_GAPS:.0%} of the rows, but after {left_out.gaps:,} of {n_rows:,} rows "
            f"({left_out.gaps / n_rows:.1%}) the step does not rise by the stride, {columns.stride}.",
            columns=[cast(str, columns.step)],
        )
    if MOST_LEFT_OUT * n_rows < left_out.total < n_rows:  # where no row is left, there are no transitions
        raise LogError(
            "too_many_left_out",
            f"At most {MOST_LEFT_OUT:.0%} of the rows may be left out, but {left_out.say(n_rows)}",
            advice=f"{OWN_NEXT if columns.next_state else OTHER_EPISODES} {ALLOW}",
        )


def refuse_only_states(pairs: Pairs, action: str, table: Any) -> None:
    """Refuse a row without an action that is not the last of its episode."""
    bad = pairs.without_action
    if bad.any():
        raise LogError(
            "missing_action",
            f"Only the last row of an episode may have no action, but {action!r} has at least "
            f"{counted(int(bad.sum()), 'faulty cell')} (missing_action) before it; the first is {PLACE}: nothing.",
            rows=(pairs.first + np.flatnonzero(bad)).tolist(),
            columns=[action],
            table=table,
        )


def refuse_steps(pairs: Pairs, columns: Any, table: Any) -> None:
    """Refuse a step that does not rise within an episode; ``columns`` are the `Columns` of the log."""
    if pairs.rises is None:
        return
    back = pairs.same & (pairs.rises <= 0)
    if not back.any():
        return
    place = int(np.argmax(back))
    before, step = pairs.fields["steps"][place : place + 2].tolist()
    found = f"has step {step:g} after {before:g}"
    if pairs.are_times:
        found = f"is {before - step:g} seconds before" if step < before else "has the same time as"
        found += " the row above it"
    raise LogError(
        "duplicate_steps" if step == before else "unsorted_steps",
        f"Steps must rise within an episode if next states are taken from the next row, but {PLACE} {found}.",
        rows=[pairs.first + place + 1],
        columns=[columns.step],
        table=table,
        advice=_DIFFER if columns.drop_repeats else None,
    )


def refuse_returns(rows: Order, memory: EpisodeMemory, column: str, table: Any) -> None:
    """Refuse an episode that starts again after another one."""
    episodes = cast(Array, rows.episodes)
    returned = memory.returns(episodes)
    if returned:
        raise LogError(
            "split_episode",
            f"The rows of an episode must follow each other if next states are taken from the next row, but episode "
            f"{episodes[returned[0]]} starts again at {PLACE}.",
            rows=[rows.first + returned[0]],
            columns=[column],
            table=table,
        )
