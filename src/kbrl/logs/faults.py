"""What can be wrong with a log: the names of the faults, whether each stops learning, and what to do about it.

The reader raises a fault that stops learning as a LogError; the check collects all faults as records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

SHOWN_ROWS = 5  # the first rows at fault that a record names
PLACE = "<place of the first row>"  # stands for it in a message until the table says where that is

_CELLS = "Drop or repair these rows."
_TOO_LARGE = "Drop or repair these rows, or change the units."
_SORT = (
    "Sort the log by episode and step, and drop repeated rows. If each file numbers its episodes anew, do not sort: "
    "give each episode an identifier of its own."
)
_GAPS = (
    "State another stride, or --stride any if the step only orders the rows; or allow it by --allow-gaps, in Python "
    "columns={'allow_gaps': True}."
)
_CUT = "If each file has episodes of its own, give each episode an identifier of its own; if the log was cut, nothing."

# name: (stops learning, what to do)
CATALOGUE: dict[str, tuple[bool, str]] = {
    "missing_file": (True, "Check the path; a folder and a glob such as 'logs/*.parquet' are accepted as well."),
    "unknown_format": (True, "Write it as .parquet, .csv, .tsv, .arrow, .feather, .npz or .hdf5."),
    "unreadable": (True, "Write the file again, or name its format by its ending."),
    "empty_log": (True, "Write at least one row of data."),
    "missing_column": (True, "Say which column it is: --action NAME and the like, in Python columns={'action': NAME}."),
    "ambiguous_column": (True, "Name the one to use: --action NAME and the like, in Python columns={'action': NAME}."),
    "repeated_column": (True, "Give each column a name of its own."),
    "uneven_columns": (True, "Give every column one entry a row."),
    "ragged_state": (True, "Give every row the same state variables, in the same order."),
    "wrong_width": (True, "Give the state and the next state the same variables, in the same order."),
    "vector_action": (True, "Give each combination that was taken one label, in one column."),
    "not_a_number": (True, "Write numbers there, or name another column."),
    "missing_state": (True, _CELLS),
    "infinite_state": (True, _TOO_LARGE),
    "missing_next_state": (True, "Drop these rows, or leave the next states out to take them from the next row."),
    "infinite_next_state": (True, _TOO_LARGE),
    "missing_reward": (True, _CELLS),
    "infinite_reward": (True, "Divide the rewards by a constant, or drop or repair these rows."),
    "missing_action": (True, "Drop these rows, or give 'nothing was done' a label of its own."),
    "missing_episode": (True, "Give every row the identifier of its episode."),
    "missing_step": (True, "Give every row its number within the episode, or leave the column of steps out."),
    "bad_flag": (True, "Write flags as true and false, or as 1 and 0."),
    "mixed_actions": (True, "Convert all actions to strings or all to whole numbers."),
    "too_many_actions": (True, "Put continuous actions into a few classes, each with a label."),
    "unknown_action": (True, "Add these labels to the list of possible actions, or drop the rows."),
    "no_order": (True, "Give next observations, or an episode_id, a step or flags that tell where episodes end."),
    "no_transitions": (True, "Give next observations, episodes of two rows and more, or flags on their last rows."),
    "duplicate_steps": (True, _SORT),
    "unsorted_steps": (True, _SORT),
    "split_episode": (True, _SORT),
    "wrong_stride": (True, "State it as --stride 1, as --stride '1 day' for datetimes, or as --stride any."),
    "too_many_gaps": (True, _GAPS),
    "missing_steps": (False, "Nothing, if few: a row before a gap is left out where it has no next state of its own."),
    "both_flags": (False, "Set truncated to false on real ends: a row with both flags is taken as an end."),
    "rows_after_end": (False, "Give each episode its own identifier, or set terminated on its last row only."),
    "time_limit_as_end": (False, "If a time limit cut them, set truncated instead of terminated on their last rows."),
    "next_state_mismatch": (False, "Check the order of the rows and the columns of the next state."),
    "unfinished_episodes": (False, "Set terminated or truncated on the last row of each episode."),
    "tiny_episodes": (False, "Check the identifiers: a row alone is of use only as an end or with a next state."),
    "episode_across_files": (False, _CUT),
    "constant_variable": (False, "Leave these columns out of the state: they tell no state from another."),
    "unequal_scales": (False, "Keep the scaling by standard deviations, or change the units."),
    "many_actions": (False, "Put amounts such as doses into a few classes, each with a label of its own."),
    "rare_action": (False, "Collect more of these actions, or merge them with others: their values will be guesses."),
    "untried_action": (False, "Collect some of these actions, or take them off the list: they will have no value."),
    "single_action": (False, "Check the column of actions: with one action there is nothing to decide."),
    "constant_reward": (False, "Check the column of rewards: all decisions are worth the same."),
    "reward_outliers": (False, "Check the units and the typing of these rewards; a few of them outweigh all others."),
    "no_flags": (False, "Add a column terminated: without it, no row is taken as an end."),
    "done_only": (False, "Add a column truncated: without it, time limits are taken as ends."),
}  # fmt: skip


class Place(NamedTuple):
    """The place of one row."""

    unit: str  # line or row
    number: int  # from 1
    file: str = ""  # where it is not the only one, or a text

    def __str__(self) -> str:
        """Say it in a sentence."""
        counted = "" if self.unit == "line" else " (counting from 1)"
        return f"{self.unit} {self.number}{counted}{f' of {self.file}' if self.file else ''}"


def places_of(table: Any, rows: Sequence[int]) -> list[Place]:
    """Return the places of some rows of a table; one that does not say otherwise counts its rows."""
    find = getattr(table, "places", None)
    return [Place("row", row + 1) for row in rows] if find is None else list(find(rows))


class LogError(ValueError):
    """A log cannot be learnt from; ``fault`` says why in the words of the check."""

    def __init__(
        self, name: str, message: str, *, rows: Sequence[int] = (), columns: Sequence[str] = (), table: Any = None
    ) -> None:
        (self.fault,) = located([make_fault(name, message, rows=rows, columns=columns)], table)
        super().__init__(f"{self.fault.message} {self.fault.advice}")


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a log.

    ``rows`` are for programs: counted from 0 over the whole log, without headers.  ``places`` are the same rows for
    people: the line of a text file, of which line 1 is the header, or else the number of the row, counted from 1.
    """

    name: str
    count: int
    unit: str  # what is counted: rows, variables, actions, episodes, borders of files or logs
    rows: tuple[int, ...]  # the first of them
    columns: tuple[str, ...]
    stops_learning: bool
    message: str
    advice: str
    places: tuple[Place, ...] = ()  # of these rows

    def to_dict(self) -> dict[str, Any]:
        """Return the record as what JSON can hold."""
        listed = {"rows": list(self.rows), "columns": list(self.columns), "places": list(map(str, self.places))}
        return asdict(self) | listed


def make_fault(
    name: str,
    message: str,
    *,
    count: int = 1,
    unit: str = "rows",
    rows: Sequence[int] = (),
    columns: Sequence[str] = (),
    stops: bool | None = None,
    advice: str | None = None,
) -> Fault:
    """Return the record of a fault of the catalogue; ``stops`` and ``advice`` may depend on the log."""
    stops_learning, usual_advice = CATALOGUE[name]
    stops_learning = stops_learning if stops is None else stops
    first = tuple(int(row) for row in rows[:SHOWN_ROWS])
    return Fault(name, int(count), unit, first, tuple(columns), stops_learning, message, advice or usual_advice)


def located(faults: Iterable[Fault], table: Any) -> list[Fault]:
    """Return the faults with the places of their rows in a table; it is looked through once for all of them."""
    faults = list(faults)
    unknown = sorted({row for fault in faults if not fault.places for row in fault.rows})
    places = dict(zip(unknown, places_of(table, unknown)))
    return [fault if fault.places else _at(fault, [places[row] for row in fault.rows]) for fault in faults]


def _at(fault: Fault, places: list[Place]) -> Fault:
    message = fault.message.replace(PLACE, str(places[0]), 1) if places else fault.message
    return replace(fault, message=message, places=tuple(places))
