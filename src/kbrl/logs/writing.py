"""The way back: transitions, or any table, are written to a file, piece by piece.

The ending of the path says the format: CSV, Parquet, Arrow or NumPy's .npz.  The file is written beside its place and
renamed at the end.  Only .npz is put together in memory, because its arrays follow each other whole.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from kbrl.arrays import Array, Booleans, Integers
from kbrl.data.column_names import without_prefix
from kbrl.data.transitions import Transitions
from kbrl.files import written_beside

Piece = Mapping[str, Array]  # some rows: names of columns to arrays of one length, (n,)
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also those of full width
SUFFIXES = (".csv", ".parquet", ".arrow", ".npz")


def check_suffix(path: str | os.PathLike[str], what: str) -> str:
    """Return the ending of a path, in lower case; refuse one that is not a format for tables."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        choices = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise ValueError(f"{what} is written as {choices}, but the path ends in {suffix!r}: {path}.")
    return suffix


@contextmanager
def table_writer(
    path: str | os.PathLike[str], what: str = "A table", *, digits: int | None = None
) -> Iterator[Callable[[Piece], None]]:
    """Give a function that writes some rows; the file appears at the end, and only if nothing failed.

    ``digits`` rounds numbers in CSV.  A masked number, and None, is an empty cell.
    """
    suffix = check_suffix(path, what)
    with written_beside(path) as beside:
        if suffix == ".csv":
            with open(beside, "w", newline="", encoding="utf-8") as file:
                yield csv_writer(file, digits=digits)
        elif suffix == ".npz":
            pieces: list[Piece] = []
            yield pieces.append
            arrays = {name: np.concatenate([_plain(p[name]) for p in pieces]) for name in pieces[0]}
            np.savez(beside, **arrays)  # type: ignore[arg-type]
        else:
            with ExitStack() as stack:
                yield _arrow_writer(beside, suffix, stack)


def csv_writer(file: IO[str], *, digits: int | None = None) -> Callable[[Piece], None]:
    """Return a function that writes rows as CSV, with a header before the first; numbers keep all digits, or these."""
    writer = csv.writer(file, lineterminator="\n")
    has_header = False

    def write(piece: Piece) -> None:
        nonlocal has_header
        if not has_header:
            writer.writerow(piece)
            has_header = True
        writer.writerows(zip(*(_cells(column, digits) for column in piece.values())))  # floats by repr

    return write


def _cells(column: Array, digits: int | None) -> list[Any]:
    """Return a column as CSV has it; what is masked is None, which is written as an empty cell."""
    cells: list[Any] = column.tolist()
    if column.dtype.kind == "f" and digits is not None and digits < 17:
        return [cell if cell is None else float(f"{cell:.{digits}g}") for cell in cells]
    return cells


def _plain(column: Any) -> Array:
    """Return a column without objects, which an .npz file cannot hold: empty cells are NaN, or empty texts."""
    if column.dtype.kind == "O":
        cells = column.tolist()
        is_number = all(cell is None or isinstance(cell, (int, float)) for cell in cells)
        empty: Any = np.nan if is_number else ""
        return np.array([empty if cell is None else cell for cell in cells])
    return np.asarray(np.ma.filled(column, np.nan) if column.dtype.kind == "f" else column)


def looks_like_a_formula(text: Any) -> bool:
    """Return whether a spreadsheet program would run a cell with this text."""
    return isinstance(text, str) and text.lstrip().startswith(_FORMULA_STARTS)


def without_formulas(piece: Piece) -> dict[str, Array]:
    """Return rows that are safe to open in a spreadsheet program: before a text that it would run stands a quote.

    >>> rows = without_formulas({"action": np.array(["=1+1", "wait"]), "value": np.array([-1.0, 2.0])})
    >>> rows["action"].tolist(), rows["value"].tolist()
    (["'=1+1", 'wait'], [-1.0, 2.0])
    """

    def quoted(text: Any) -> Any:
        return f"'{text}" if looks_like_a_formula(text) else text

    safe = {}
    for name, column in piece.items():
        is_text = column.dtype.kind in "UO"
        safe[quoted(name)] = np.array([quoted(cell) for cell in column.tolist()]) if is_text else column
    return safe


def _arrow_writer(path: Path, suffix: str, stack: ExitStack) -> Callable[[Piece], None]:
    import pyarrow as pa
    from pyarrow import parquet

    opened: list[Any] = []

    def write(piece: Piece) -> None:
        table = pa.table({name: _arrow(column) for name, column in piece.items()})
        if not opened:  # the first rows tell the types of the columns
            make = parquet.ParquetWriter if suffix == ".parquet" else pa.ipc.new_file
            opened.append(stack.enter_context(make(str(path), table.schema)))
        opened[0].write_table(table)

    return write


def _arrow(column: Array) -> Any:
    import pyarrow as pa

    if isinstance(column, np.ma.MaskedArray):
        return pa.array(column.data, mask=np.ma.getmaskarray(column))
    return pa.array(column)


def write_log(log: Transitions, path: str | os.PathLike[str], *, names: Sequence[str] | None = None) -> None:
    """Write a log as CSV, Parquet, Arrow or .npz, by the ending of the path, one row per transition.

    Columns: episode_id, step, observation_NAME, action, reward, next_observation_NAME, terminated, truncated; also
    step_duration and action_prob, if the log has them.  ``names`` are those of the state variables, by default those of
    the log, or 0, 1, 2 and so on if it has none.

    >>> from kbrl import Transitions, load_log
    >>> log = Transitions([[0.0], [0.5]], ["go", "wait"], [0.0, 1.0], [[0.5], [1.0]], terminals=[False, True])
    >>> write_log(log, "log.csv", names=["position"])
    >>> print(Path("log.csv").read_text().splitlines()[0])
    episode_id,step,observation_position,action,reward,next_observation_position,terminated,truncated
    >>> load_log("log.csv").states.tolist()
    [[0.0], [0.5]]
    """
    with table_writer(path, "A log") as write:
        write(as_columns(log, names))


def as_columns(log: Transitions, names: Sequence[str] | None = None) -> dict[str, Array]:
    """Return a log as columns by canonical names; the last row of an episode is terminated or truncated."""
    if names is None:
        names = without_prefix(log.state_names) if log.state_names else [str(k) for k in range(log.n_dims)]
    episodes = np.arange(len(log)) if log.episodes is None else log.episodes
    steps, is_last = _within_episodes(episodes)
    return {
        "episode_id": episodes,
        "step": steps,
        **{f"observation_{name}": log.states[:, k] for k, name in enumerate(names)},
        "action": log.actions,
        "reward": log.rewards,
        **{f"next_observation_{name}": log.next_states[:, k] for k, name in enumerate(names)},
        "terminated": log.terminals,
        "truncated": is_last & ~log.terminals,
        **({} if log.durations is None else {"step_duration": log.durations}),
        **({} if log.propensities is None else {"action_prob": log.propensities}),
    }


def _within_episodes(episodes: Array) -> tuple[Integers, Booleans]:
    """Return the number of each row within its run of equal episodes, and which rows are the last of a run."""
    is_first = np.ones(len(episodes), dtype=bool)
    is_first[1:] = episodes[1:] != episodes[:-1]
    starts = np.flatnonzero(is_first)
    steps = np.arange(len(episodes)) - np.repeat(starts, np.diff(np.append(starts, len(episodes))))
    return steps, np.append(is_first[1:], True)
