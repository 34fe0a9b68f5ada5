"""What the check measures: within each row (cells, variables, rewards, actions), and between rows (steps, episodes).

Each measure sees the rows chunk by chunk, needs little memory, and reports at the end which faults it found.
``sequence`` says which row follows which; what is strange about it is counted here.

"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import counted
from kbrl.data.column_names import listing
from kbrl.data.names import find_label, said_of_amounts
from kbrl.data.scaling import Moments
from kbrl.logs.columns import Columns
from kbrl.logs.rows import ActionSet, Rows, is_usable, label_array
from kbrl.logs.sequence import EpisodeMemory, LeftOut, LeftOutCounter, Pairs, Rises, Sequencer
from kbrl.tables.faults import PLACE, SHOWN_ROWS, Fault, LogError, explained, make_fault
from kbrl.tables.formats import Border, Table

FEWEST_TRIES = 10  # an action taken less often than that, or in fewer than a thousandth of the rows, is rare
LARGEST_SCALE_RATIO = 1000.0
OUTLIER_DOUBLINGS = 10  # an outlier is about a thousand times the usual size


@dataclass
class Tally:
    """How often something was seen, and in which rows first."""

    count: int = 0
    rows: list[int] = field(default_factory=list)

    def add(self, bad: Booleans, first: int) -> None:
        """Count the marked rows; ``first`` is the number of the first row, marked or not."""
        self.add_rows(first + np.flatnonzero(bad))

    def add_rows(self, rows: Integers) -> None:
        """Count rows by their numbers."""
        self.count += len(rows)
        self.rows += rows[: SHOWN_ROWS - len(self.rows)].tolist()


class CellMeasure:
    """Cells that are missing, infinite, too large or not numbers, and flags that contradict each other."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._found: dict[tuple[str, str], tuple[Tally, str]] = {}
        self._both = Tally()

    def add(self, rows: Rows) -> None:
        """Take more rows into account."""
        for problem in rows.problems:
            tally, _ = self._found.setdefault((problem.name, problem.column), (Tally(), problem.sample))
            tally.add(problem.bad, rows.first)
        self._both.add(rows.both_flags, rows.first)

    def faults(self) -> Iterator[Fault]:
        """Yield one fault per column and kind of cell."""
        for (name, column), (tally, first) in self._found.items():
            sample, columns, advice = explained(name, column, first, tally.rows, self._table)
            message = f"{column!r}: {counted(tally.count, 'cell')}, the first is {PLACE}: {sample}."
            yield make_fault(name, message, count=tally.count, rows=tally.rows, columns=columns, advice=advice)
        if self._both.count:
            message = f"{self._both.count} rows are both terminated and truncated."
            yield make_fault("both_flags", message, count=self._both.count, rows=self._both.rows)


class VariableMeasure:
    """The range and the spread of each state variable."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._moments: list[Moments] = []  # of the usable numbers of each variable

    def add(self, rows: Rows) -> None:
        """Take more rows into account."""
        self._moments = self._moments or [Moments(1) for _ in range(rows.states.shape[1])]
        for moments, numbers in zip(self._moments, rows.states.T):
            moments.accumulate(numbers[is_usable(numbers)].reshape(-1, 1))

    def faults(self) -> Iterator[Fault]:
        """Yield variables that never change, or whose scales are very different."""
        is_constant = np.array([bool(each.smallest == each.largest) for each in self._moments], dtype=bool)
        names = self._variable_names(len(is_constant))
        if is_constant.any():
            found = [name for name, bad in zip(names, is_constant) if bad]
            message = f"{listing(found)} never change."
            yield make_fault("constant_variable", message, count=len(found), unit="variables", columns=found)
        spread = np.array([each.std()[0] if each.n_rows else np.nan for each in self._moments])
        spread[is_constant] = np.nan
        if np.isfinite(spread).any() and np.nanmax(spread) > LARGEST_SCALE_RATIO * np.nanmin(spread):
            wide, narrow = names[int(np.nanargmax(spread))], names[int(np.nanargmin(spread))]
            ratio = np.nanmax(spread) / np.nanmin(spread)
            message = f"The standard deviation of {wide} is {ratio:.1e} times that of {narrow}."
            yield make_fault("unequal_scales", message, count=2, unit="variables", columns=[wide, narrow])

    def _variable_names(self, n_dims: int) -> list[str]:
        if len(self._names) == n_dims:
            return list(self._names)
        return [f"{'+'.join(self._names)}[{k}]" for k in range(n_dims)]


_WHY_EQUAL = {False: "no row ends an episode", True: "every row ends its episode"}


class RewardMeasure:
    """The sizes of the rewards, by powers of two, without those at ends, where a prize or a penalty is usual."""

    _ZERO = 1100  # the place of the size 1/2 to 1

    def __init__(self, columns: Columns) -> None:
        self._column = columns.reward
        self._sizes = np.zeros(2200, dtype=np.int64)
        self._rows: dict[int, list[int]] = {}
        self._low, self._high, self._n_rows, self._n_ends = np.inf, -np.inf, 0, 0

    def add(self, rows: Rows) -> None:
        """Take more rows into account."""
        usable = is_usable(rows.rewards)
        self._n_rows += len(rows)
        self._n_ends += int(rows.terminated.sum())
        self._low = min(self._low, rows.rewards[usable].min(initial=np.inf))
        self._high = max(self._high, rows.rewards[usable].max(initial=-np.inf))
        places = np.flatnonzero(usable & (rows.rewards != 0) & ~rows.terminated)
        sizes = np.frexp(rows.rewards[places])[1] + self._ZERO
        self._sizes += np.bincount(sizes, minlength=len(self._sizes))
        for size in np.unique(sizes).tolist():
            first = self._rows.setdefault(size, [])
            if len(first) < SHOWN_ROWS:
                first += (rows.first + places[sizes == size][: SHOWN_ROWS - len(first)]).tolist()

    def faults(self) -> Iterator[Fault]:
        """Yield what is strange about the rewards."""
        if self._low == self._high and self._n_rows > 1 and not self._length_matters:
            why = f", and {_WHY_EQUAL[self._n_ends > 0]}" if self._low else ""
            message = f"All rewards are {self._low:g}{why}."
            yield make_fault("constant_reward", message, count=self._n_rows, columns=[self._column])
        total = int(self._sizes.sum())
        usual = int(np.searchsorted(np.cumsum(self._sizes), (total + 1) // 2))
        count = int(self._sizes[usual + OUTLIER_DOUBLINGS + 1 :].sum()) if total else 0
        if total >= 10 and 0 < count <= max(3, total // 100):
            far = sorted(row for size, first in self._rows.items() if size > usual + OUTLIER_DOUBLINGS for row in first)
            message = (
                f"{count} rewards before an end are at least {2**OUTLIER_DOUBLINGS} times as large as the usual one, "
                f"which is about {2.0 ** (usual - self._ZERO):.2g}; the first is {PLACE}."
            )
            yield make_fault("reward_outliers", message, count=count, rows=far, columns=[self._column])

    @property
    def _length_matters(self) -> bool:
        """Whether some rows end an episode and others do not; a constant reward other than 0 then counts steps."""
        return self._low != 0 and 0 < self._n_ends < self._n_rows


class ActionMeasure:
    """How often each action was taken."""

    def __init__(self, columns: Columns, actions: Sequence[Any] | None, *, is_text: bool) -> None:
        self._taken = ActionSet(columns.action, is_text=is_text)
        self._possible, self._column = actions, columns.action
        self.counts: dict[Any, int] = {}

    def add(self, rows: Rows) -> None:
        """Take more rows into account."""
        codes, counts = rows.actions.taken()
        self._taken.see([rows.actions.values[code] for code in codes], counts)

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong with the set of actions."""
        try:
            self.counts = self._taken.settled()
            labels = label_array(self.counts, self._possible, self._column).tolist()
        except LogError as error:
            yield error.fault
            return
        total = sum(self.counts.values())
        rare = [a for a, n in self.counts.items() if n < max(FEWEST_TRIES, total / 1000)]
        places = {label: place for place, label in enumerate(labels)}
        tried = {find_label(label, places) for label in self.counts}
        untried = [label for label, place in places.items() if place not in tried]
        said = said_of_amounts(self.counts) if self._possible is None else None
        if said is not None:
            message = f"{self._column!r} has {said}."
            yield make_fault("many_actions", message, count=len(labels), unit="actions", columns=[self._column])
        if rare:
            yield self._fault("rare_action", rare, ", ".join(f"{a}: {self.counts[a]} rows" for a in rare[:8]))
        if untried:
            yield self._fault("untried_action", untried, f"{', '.join(map(str, untried[:8]))}: never taken")
        if len(self.counts) == 1:
            yield self._fault("single_action", list(self.counts), f"all {total} rows have {next(iter(self.counts))!r}")

    def _fault(self, name: str, labels: list[Any], text: str) -> Fault:
        message = f"Of {sum(self.counts.values())} actions taken, {text}."
        return make_fault(name, message, count=len(labels), unit="actions", columns=[self._column])


_FEWEST_EPISODES = 3  # of one length, before a time limit is suspected


class SuccessionMeasure:
    """Counts faults in the order of the rows, episodes, and rows that are left out."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._sequencer = Sequencer()
        self._tallies = {name: Tally() for name in _MESSAGES}
        self._gaps, self._rises = Tally(), Rises()
        self._left_out = LeftOutCounter()
        self._memory = EpisodeMemory()
        self._lengths = EpisodeLengths()
        self._joined_files = JoinedFiles()
        self._n_rows = 0

    def add(self, rows: Rows) -> None:
        """Take more rows into account."""
        self._n_rows += len(rows)
        if rows.next_states is not None:
            self._left_out.add_cuts(rows.without_next & ~rows.terminated)
        if rows.episodes is None:
            return
        own = {} if rows.next_states is None else {"states": rows.states, "next_states": rows.next_states}
        pairs = self._sequencer.add(rows, **own)
        if rows.next_states is None:
            self._left_out.add(pairs)
            self._joined_files.add(rows.borders, pairs)
        if pairs.rises is not None:
            self._rises.add(pairs)
        self._compare(pairs)
        self._lengths.add(pairs)
        if self._columns.episode is not None:
            returned = np.array(self._memory.returns(rows.episodes), dtype=np.intp)
            self._tallies["split_episode"].add_rows(rows.first + returned)

    def _compare(self, pairs: Pairs) -> None:
        self._tallies["missing_action"].add(pairs.without_action, pairs.first)
        stopped = pairs.same & (pairs.fields["terminated"] | pairs.fields["truncated"])[:-1]
        if "state_only" in pairs.fields:  # a last state belongs to the step before it
            stopped = stopped & ~pairs.fields["state_only"][1:] & ~pairs.fields["state_only"][:-1]
        self._tallies["rows_after_end"].add(stopped, pairs.first + 1)
        if "next_states" in pairs.fields:
            differs = _differ(pairs.fields["next_states"][:-1], pairs.fields["states"][1:])
            is_near = np.ones(len(stopped), dtype=bool)
            if pairs.rises is not None and self._columns.stride is None:  # where none is stated, gaps are guessed
                is_near = pairs.rises <= max(1.0, self._rises.least)
            self._tallies["next_state_mismatch"].add(pairs.follows & ~stopped & differs & is_near, pairs.first)
        if pairs.rises is not None:
            self._tallies["duplicate_steps"].add(pairs.same & (pairs.rises == 0), pairs.first + 1)
            self._tallies["unsorted_steps"].add(pairs.same & (pairs.rises < 0), pairs.first + 1)
            self._gaps.add(pairs.same & ~pairs.follows & (pairs.rises > 0), pairs.first)

    @property
    def n_episodes(self) -> int:
        """The number of episodes so far; 0 if nothing tells them apart."""
        return self._lengths.n_episodes

    @property
    def n_transitions(self) -> int:
        """The number of transitions that learning gets from the rows."""
        return self._n_rows - self.left_out.total

    @property
    def left_out(self) -> LeftOut:
        """The rows that do not become transitions."""
        return self._left_out.found

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong with the order of the rows."""
        has_flags = any((self._columns.terminated, self._columns.truncated, self._columns.done))
        self._lengths.finish(self._sequencer.last, self._tallies, has_flags=has_flags)
        for name, tally in self._tallies.items():
            if tally.count:
                stops = False if name in ORDER_FAULTS and self._columns.next_state else None
                unit = "episodes" if name in ("tiny_episodes", "unfinished_episodes") else "rows"
                message = _MESSAGES[name].format(count=tally.count, place=PLACE)
                yield make_fault(name, message, count=tally.count, unit=unit, rows=tally.rows, stops=stops)
        yield from self._missing_steps()
        yield from self._lengths.faults()
        yield from self._joined_files.faults(self._rises.usual)

    def _missing_steps(self) -> Iterator[Fault]:
        """Yield rows after which steps are missing, or seem to be missing if no stride is stated."""
        own = bool(self._columns.next_state)
        if self._columns.stride is None:
            if self._rises.usual is not None and self._rises.n_larger and self._columns.discount_per is None:
                said, advice = self._rises.say()
                joined = "" if own else " The row after each of them is taken as the next."
                yield make_fault(
                    "missing_steps",
                    f"{said}; the first is {PLACE}.{joined}",
                    count=self._rises.n_larger,
                    rows=self._rises.rows,
                    advice=_OWN if own else advice,
                )
        elif self._gaps.count:
            message = (
                f"Rows after which the step does not rise by the stride, {self._columns.stride}: {self._gaps.count}; "
                f"the first is {PLACE}."
            )
            yield make_fault("missing_steps", message, count=self._gaps.count, rows=self._gaps.rows)


_OWN = "Nothing: these rows have next states of their own."
ORDER_FAULTS = ("duplicate_steps", "unsorted_steps", "split_episode")
_MESSAGES = {
    "duplicate_steps": "Rows that repeat the step of the row before them: {count}; the first is {place}.",
    "unsorted_steps": "Rows with an earlier step than the row before them: {count}; the first is {place}.",
    "split_episode": "Rows at which an episode starts again after another one: {count}; the first is {place}.",
    "rows_after_end": "Rows that follow an end within the same episode: {count}; the first is {place}.",
    "next_state_mismatch": "Rows whose next state is not the state of the row after: {count}; the first is {place}.",
    "unfinished_episodes": "Episodes that stop without terminated or truncated: {count}; the first at {place}.",
    "tiny_episodes": "Episodes of a single row that does not end them: {count}; the first is {place}.",
    "missing_action": "Rows without an action before the last of their episode: {count}; the first is {place}.",
}


class JoinedFiles:
    """Finds the borders of files across which rows are joined although no step shows that the episode continues."""

    def __init__(self) -> None:
        self._joined: list[tuple[Border, float]] = []  # and by how much the step rises there

    def add(self, borders: Sequence[Border], pairs: Pairs) -> None:
        """Take the borders of files between these rows into account."""
        for border in borders:
            place = border.row - pairs.first - 1
            if pairs.follows[place] and not pairs.fields["terminated"][place]:
                self._joined.append((border, np.nan if pairs.rises is None else float(pairs.rises[place])))

    def faults(self, usual: float | None) -> Iterator[Fault]:
        """Yield the borders as one fault that names the two files at the first; ``usual`` is the usual rise."""
        unsure = [border for border, rise in self._joined if rise not in (1.0, usual)]
        if not unsure:
            return
        message = (
            f"At {len(unsure)} borders of files the last row of one file takes its next state from the first row of "
            f"the other; the first is between {unsure[0].before} and {unsure[0].after}, at {PLACE}."
        )
        rows = [border.row for border in unsure]
        yield make_fault("episode_across_files", message, count=len(unsure), unit="borders", rows=rows)


class EpisodeLengths:
    """Counts episodes: all, the longest, those of one row that does not end them, and those that just stop."""

    def __init__(self) -> None:
        self.n_episodes = 0
        self._start = 0  # the first row of the current episode
        self._n_rows = 0
        self._longest, self._long, self._long_ended = 0, Tally(), Tally()
        self._loose, self._tiny = Tally(), Tally()

    def add(self, pairs: Pairs) -> None:
        """Close the episodes that end between two of these rows."""
        self._n_rows = pairs.first + len(pairs.same) + 1
        places = np.flatnonzero(~pairs.same)
        self._close(pairs.first + places, pairs.fields["terminated"][places], pairs.fields["truncated"][places])

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
        self._tiny.add_rows(last_rows[(lengths == 1) & ~terminated])  # an end needs no row after it
        self._start = int(last_rows[-1]) + 1
        self.n_episodes += len(last_rows)

    def finish(self, last: dict[str, Array], tallies: dict[str, Tally], *, has_flags: bool) -> None:
        """Close the last episode and hand over the counts."""
        if last and self._start < self._n_rows:
            self._close(np.array([self._n_rows - 1]), last["terminated"], last["truncated"])
        tallies["tiny_episodes"] = self._tiny
        tallies["unfinished_episodes"] = self._loose if has_flags else Tally()

    def faults(self) -> Iterator[Fault]:
        """Yield a time limit that looks like an end: many episodes have the greatest length, all are terminated."""
        count = self._long_ended.count
        often = max(_FEWEST_EPISODES, 0.05 * self.n_episodes)
        if self._longest > 1 and self._long.count == count >= often:
            message = (
                f"{count} of {self.n_episodes} episodes have the greatest length, {self._longest} rows, and all "
                f"are terminated there."
            )
            yield make_fault("time_limit_as_end", message, count=count, unit="episodes", rows=self._long_ended.rows)


def _differ(next_states: Floats, states: Floats) -> Booleans:
    """Return which rows differ by more than rounding to single precision, (n,); missing cells do not count."""
    known = is_usable(next_states).all(axis=1) & is_usable(states).all(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.maximum(np.abs(states), np.abs(next_states))
        return np.asarray(known & (np.abs(next_states - states) > 1e-6 * size + 1e-12).any(axis=1))
