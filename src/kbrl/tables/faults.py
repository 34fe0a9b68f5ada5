"""Before everything else: what can be wrong with a log, whether it stops learning, what to do, and where it is.

The reader raises a fault that stops learning as a LogError.  The check collects all faults as records.  Inside, rows
are counted from 0 over the whole log.  For people, a row of a text file has a line, of which line 1 is the header; any
other row has a number, counted from 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from kbrl.data.values import FALSE, TRUE
from kbrl.files import raise_the_limit

SHOWN_ROWS = 5  # the first rows at fault that a record names
PLACE = "<place of the first row>"  # stands in a message until the table tells the place

_CELLS = "Drop or repair these rows."
_FLAGS = "Write flags as true and false, or 1 and 0; or state a condition: --terminated \"NAME == 'word'\"."
_TOO_LARGE = "Drop or repair these rows, or change the units."
_COMPLETE = "If every episode of the log is complete: --terminated last_row."
_ENDS = f"Set terminated or truncated on the last row of each episode. {_COMPLETE}"
_SORT = (
    "Sort the log by episode and step: --sort, or --drop-repeats if rows are repeated. If each file numbers its "
    "episodes anew, do not sort: give each episode an identifier of its own."
)
_GAPS = (
    "State another stride, or --stride any if the step only orders the rows. Or allow gaps: --allow-gaps, in Python "
    "columns={'allow_gaps': True}."
)
OTHER_EPISODES = "Name another column that tells episodes apart: --episode NAME, in Python columns={'episode': NAME}."
OWN_NEXT = "Write the next states of these rows, or drop their columns to take them from the next row."
ALLOW = "Or allow many rows to be left out: --allow-gaps, in Python columns={'allow_gaps': True}."
_CUT = "If each file has its own episodes, give each episode an identifier of its own. If one log was cut, do nothing."

# name: (stops learning, what to do)
CATALOGUE: dict[str, tuple[bool, str]] = {
    "missing_file": (True, "Check the path; a folder and a glob such as 'logs/*.parquet' are accepted as well."),
    "unknown_format": (True, "Save it as .parquet, .csv, .csv.gz, .xlsx, .jsonl, .arrow, .npz, .hdf5 or .sqlite."),
    "unreadable": (True, "Write the file again; its ending must name its format."),
    "foreign_data": (True, "Copy the data into the file itself, such as with h5repack or h5py, and read the copy."),
    "too_large": (True, raise_the_limit()),
    "empty_log": (True, "Write at least one row of data."),
    "missing_column": (True, "Say which column it is: --action NAME and the like, in Python columns={'action': NAME}."),
    "ambiguous_column": (True, "Name the one to use: --action NAME and the like, in Python columns={'action': NAME}."),
    "bad_expression": (True, "Write it as in \"-0.1 * sofa + 5 * (outcome == 'home')\"; odd names in `backticks`."),
    "repeated_column": (True, "Give each column a name of its own."),
    "uneven_columns": (True, "Give every column one entry per row."),
    "ragged_state": (True, "Give every row the same state variables, in the same order."),
    "wrong_width": (True, "Give the state and the next state the same variables, in the same order."),
    "vector_action": (True, "Give each combination of actions one label, in one column."),
    "not_a_number": (True, "Write numbers there, or name another column."),
    "date_in_state": (True, "Use the time since the episode began: --elapsed 'NAME=1 day'."),
    "not_a_date": (True, "Write ISO dates such as 2024-02-27 or 2024-02-27 09:30, or take the column as a number."),
    "too_many_levels": (True, "Leave the column out of the state, or put its texts into a few levels."),
    "unknown_level": (True, "Add the levels to the stated order, or repair the cells."),
    "missing_state": (True, "Say what to do: --missing NAME=median, forward, drop or a constant; or repair the rows."),
    "infinite_state": (True, _TOO_LARGE),
    "missing_next_state": (True, "Drop these rows, or leave the next states out to take them from the next row."),
    "infinite_next_state": (True, _TOO_LARGE),
    "missing_reward": (True, f"{_CELLS} Or say what a missing reward counts as: --missing NAME=0."),
    "infinite_reward": (True, "Divide the rewards by a constant, or drop or repair these rows."),
    "missing_action": (True, "Drop these rows, or give 'nothing was done' a label of its own."),
    "missing_episode": (True, "Delete rows of sums, and give the others an identifier; or --fill-down NAME."),
    "missing_step": (True, "Give every row its number within the episode, or leave the column of steps out."),
    "bad_propensity": (True, "Write the probability of the action, above 0 and up to 1, or name another column."),
    "bad_flag": (True, _FLAGS),
    "mixed_actions": (True, "Convert all actions to strings or all to whole numbers."),
    "too_many_actions": (True, "Put continuous actions into a few classes: --bins NAME=4."),
    "unknown_action": (True, "Add these labels to the list of possible actions, or drop the rows."),
    "no_order": (True, "Add next observations, an episode_id, a step or flags of ends; or: --one-step."),
    "no_transitions": (True, "Add next observations, episodes of at least two rows, or flags on their last rows."),
    "duplicate_steps": (True, _SORT),
    "unsorted_steps": (True, _SORT),
    "split_episode": (True, _SORT),
    "wrong_stride": (True, "State it as 1, as '1 day' for datetimes, or, for the stride, as any."),
    "bad_duration": (True, "Write how much time passes until the next state, or name another column."),
    "too_many_gaps": (True, _GAPS),
    "too_many_left_out": (True, f"{OTHER_EPISODES} {ALLOW}"),
    "repeated_rows": (False, "Do nothing if they were exported twice; otherwise leave --drop-repeats out."),
    "filled_values": (False, "To decide yourself: --missing NAME=median, forward, drop or a constant."),
    "missing_steps": (False, "Do nothing if they are few: rows before a gap are left out if they lack a next state."),
    "both_flags": (False, "Set truncated to false on real ends: a row with both flags is taken as an end."),
    "rows_after_end": (False, "Give each episode its own identifier, or set terminated on its last row only."),
    "time_limit_as_end": (False, "If a time limit cut them, set truncated instead of terminated on their last rows."),
    "next_state_mismatch": (False, "Check the order of the rows and the columns of the next state."),
    "unfinished_episodes": (False, _ENDS),
    "tiny_episodes": (False, "Check the identifiers: a single row must end the episode or have a next state."),
    "episode_across_files": (False, _CUT),
    "constant_variable": (False, "Leave these columns out of the state: they do not distinguish states."),
    "unequal_scales": (False, "Keep the scaling by standard deviations, or change the units."),
    "many_actions": (True, "Put amounts such as doses into a few classes: --bins NAME=4."),
    "rare_action": (False, "Collect more of these actions, or merge them with others: their values are uncertain."),
    "untried_action": (False, "Collect some of these actions, or remove them from the list: they will have no value."),
    "single_action": (False, "Check the column of actions: with one action there is nothing to decide."),
    "constant_reward": (False, "Check the column of rewards: all decisions are worth the same."),
    "reward_outliers": (False, "Check these rewards for wrong units and typing errors: a few outweigh all others."),
    "no_flags": (False, f"Add a column terminated. {_COMPLETE}"),
    "done_only": (False, "Add a column truncated: without it, time limits are taken as ends."),
}  # fmt: skip


class Place(NamedTuple):
    """The place of one row."""

    unit: str  # line or row
    number: int  # from 1
    file: str = ""  # for a text file, or if there are several files

    def __str__(self) -> str:
        """Return the place as words in a sentence."""
        counted = "" if self.unit == "line" else " (counting from 1)"
        return f"{self.unit} {self.number}{counted}{f' of {self.file}' if self.file else ''}"


def places_of(table: Any, rows: Sequence[int]) -> list[Place]:
    """Return the places of some rows of a table: as the table itself says, or else by counting rows."""
    find = getattr(table, "places", None)
    return [Place("row", row + 1) for row in rows] if find is None else list(find(rows))


class LogError(ValueError):
    """A log that cannot be learnt from; ``fault`` is the record of what is wrong."""

    def __init__(
        self,
        name: str,
        message: str,
        *,
        rows: Sequence[int] = (),
        columns: Sequence[str] = (),
        table: Any = None,
        advice: str | None = None,
    ) -> None:
        (self.fault,) = located([make_fault(name, message, rows=rows, columns=columns, advice=advice)], table)
        super().__init__(f"{self.fault.message} {self.fault.advice}")


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a log; ``rows`` are for programs, ``places`` are the same rows for people."""

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
        """Return the record as a dict for JSON."""
        listed = {"rows": list(self.rows), "columns": list(self.columns), "places": list(map(str, self.places))}
        return asdict(self) | listed


@contextmanager
def refusing_damage(path: Any, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn errors that a library raises about a broken file into a fault that names the file."""
    try:
        yield
    except LogError:
        raise
    except errors as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise LogError("unreadable", f"{path} cannot be read: {reason}.") from None


def refuse_size(complaint: str | None, path: Any) -> None:
    """Raise the error for a file that asks for more than it may, if ``kbrl.files`` has a complaint."""
    if complaint is not None:
        raise LogError("too_large", f"{path} cannot be read: {complaint}.")


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
    """Return the record of a fault; ``stops`` and ``advice`` replace what the catalogue says."""
    stops_learning, usual_advice = CATALOGUE[name]
    stops_learning = stops_learning if stops is None else stops
    first = tuple(int(row) for row in rows[:SHOWN_ROWS])
    return Fault(name, int(count), unit, first, tuple(columns), stops_learning, message, advice or usual_advice)


def explained(
    fault: str, column: str, sample: str, rows: Sequence[int], table: Any
) -> tuple[str, list[str], str | None]:
    """Return the first cell at fault for people, the columns at fault, and what to do; None: as the catalogue says.

    Where an expression has no value, the columns are those whose missing values are the reason.
    """
    behind = table.gaps(column, rows[:SHOWN_ROWS]) if sample == "nothing" and hasattr(table, "gaps") else []
    first, advice = next(iter(behind), column), None
    if fault == "missing_reward":
        advice = (
            f"{_CELLS} Or say what a missing reward counts as: --missing \"{first}=0\", in Python columns={{'missing': "
            f"{{{first!r}: 0}}}}; or by an expression: where(is_missing(`{first}`), 0, `{first}`)."
        )
    elif fault == "not_a_number" and sample.strip("'").lower() in TRUE | FALSE:
        advice = f'Write numbers there. To count yes as 1 and no as 0 in a reward: --reward "where(`{column}`, 1, 0)".'
    elif hasattr(table, "gaps") and column not in table.table.names and " in " in sample:  # behind an expression
        advice = "Repair these cells. If one stands for a missing value, say so: --na NAME=TEXT."
    elif fault == "bad_flag" and behind:
        advice = (
            f'Write true or false there, or say what a missing one means: "not is_missing(`{first}`) and `{first}`" '
            f"takes it as false."
        )
    return (f"nothing in {first!r}", behind, advice) if behind else (sample, [column], advice)


def located(faults: Iterable[Fault], table: Any) -> list[Fault]:
    """Return the faults with the places of their rows; the table is read at most once for all of them."""
    faults = list(faults)
    unknown = sorted({row for fault in faults if not fault.places for row in fault.rows})
    places = dict(zip(unknown, places_of(table, unknown)))
    return [fault if fault.places else _at(fault, [places[row] for row in fault.rows]) for fault in faults]


def _at(fault: Fault, places: list[Place]) -> Fault:
    message = fault.message.replace(PLACE, str(places[0]), 1) if places else fault.message
    return replace(fault, message=message, places=tuple(places))
