"""Datasets of Minari and D4RL from a local path, offline, without their libraries and without any environment.

Minari keeps one group or folder an episode, with an observation more than actions; here the last one becomes the next
state of the last action.  One episode at a time is in memory.  D4RL keeps one flat table in an HDF5 file.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kbrl.arrays import Array
from kbrl.checks import how_to_install
from kbrl.logs.cell_values import Batch, Kind, from_array
from kbrl.logs.faults import LogError
from kbrl.logs.frames import FrameTable, check_lengths

HDF5_ENDINGS = (".hdf5", ".h5")
_FIELDS = {"actions": "action", "rewards": "reward", "terminations": "terminated", "truncations": "truncated"}
_GROUP = "episode_"


class MinariTable:
    """A dataset of Minari, in any of its three layouts."""

    is_text = False

    def __init__(self, path: Path) -> None:
        self.path = path
        first = next(self._episodes(), None)
        if first is None:
            raise LogError("empty_log", f"{path} has no episodes.")
        self.names = tuple(episode_columns(*first))

    def _episodes(self) -> Iterator[tuple[int, dict[str, Array]]]:
        return _hdf5_episodes(self.path) if self.path.suffix in HDF5_ENDINGS else _arrow_episodes(self.path)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows of one episode after the other, at most ``n_rows`` at a time."""
        for number, fields in self._episodes():
            columns = episode_columns(number, fields)
            missing = [name for name in kinds if name not in columns]
            if missing:
                raise LogError("missing_column", f"Episode {number} of {self.path} lacks {missing}.", columns=missing)
            yield from FrameTable(columns).batches(kinds, n_rows)


class FlatHdf5Table:
    """The arrays of an HDF5 file that have one entry a row, as D4RL writes them."""

    is_text = False

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opened(path) as file:
            lengths = {name: item.shape[0] for name, item in file.items() if getattr(item, "shape", ())}
        check_lengths(lengths, str(path))
        self.names, self._n_rows = tuple(lengths), next(iter(lengths.values()), 0)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        with _opened(self.path) as file:
            for start in range(0, self._n_rows, n_rows):
                rows = slice(start, start + n_rows)
                yield {name: from_array(file[name][rows], kind, name) for name, kind in kinds.items()}


def open_hdf5(path: Path) -> MinariTable | FlatHdf5Table:
    """Open an HDF5 file of either library."""
    with _opened(path) as file:
        is_minari = any(name.startswith(_GROUP) for name in file)
    return MinariTable(path) if is_minari else FlatHdf5Table(path)


def find_dataset(folder: Path) -> Path | None:
    """Return where a folder keeps the episodes of a dataset of Minari, None if it is none."""
    for place in (folder, folder / "data"):
        try:
            metadata = json.loads((place / "metadata.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(metadata, dict) and "total_episodes" in metadata:
            file = place / "main_data.hdf5"
            return file if file.exists() else place
    return None


def episode_columns(number: int, fields: Mapping[str, Array]) -> dict[str, Array]:
    """Return an episode as a table; ``fields`` has one observation more than actions."""
    missing = [name for name in ("observations", "actions", "rewards") if not any(f.startswith(name) for f in fields)]
    if missing:
        raise LogError("missing_column", f"Episode {number} lacks {missing}.", columns=missing)
    n_steps = len(fields["actions"]) if "actions" in fields else 0
    expected = {name: n_steps + name.startswith("observations") for name in fields}
    wrong = {name: len(field) for name, field in fields.items() if len(field) != expected[name]}
    if wrong:
        raise LogError(
            "uneven_columns",
            f"Episode {number} must have one observation more than its {n_steps} actions, and as many of the rest, but "
            f"{', '.join(f'{name} has {length}' for name, length in wrong.items())}.",
            columns=list(wrong),
        )
    observed = {k.removeprefix("observations"): v for k, v in fields.items() if k.startswith("observations")}
    columns: dict[str, Array] = {"episode_id": np.full(n_steps, number), "step": np.arange(n_steps)}
    columns |= {f"observation{name}": values[:-1] for name, values in observed.items()}
    columns |= {f"next_observation{name}": values[1:] for name, values in observed.items()}
    return columns | {_FIELDS[name]: field for name, field in fields.items() if name in _FIELDS}


def flattened(array: Array) -> Array:
    """Return at most two dimensions: the entries of an observation in a row."""
    return array if array.ndim <= 2 else array.reshape(len(array), -1)


def _hdf5_episodes(path: Path) -> Iterator[tuple[int, dict[str, Array]]]:
    with _opened(path) as file:
        numbers = sorted(int(name.removeprefix(_GROUP)) for name in file if name.startswith(_GROUP))
        for number in numbers:
            group = file[f"{_GROUP}{number}"]
            fields: dict[str, Array] = {}
            for name in ("observations", *_FIELDS):
                if name in group:
                    fields |= _hdf5_arrays(group[name], name)
            yield number, fields


def _hdf5_arrays(item: Any, name: str) -> dict[str, Array]:
    """Return the arrays of a dataset, or of a group of them, by names such as observations_position."""
    if hasattr(item, "shape"):
        return {name: flattened(item[()])}
    return {k: v for part in item for k, v in _hdf5_arrays(item[part], f"{name}_{part}").items()}


def _arrow_episodes(folder: Path) -> Iterator[tuple[int, dict[str, Array]]]:
    from kbrl.logs.arrow_files import refusing

    numbers = sorted(int(path.name) for path in folder.iterdir() if path.is_dir() and path.name.isdigit())
    for number in numbers:
        with refusing(folder / str(number)):
            table = _arrow_table(folder / str(number))
            fields: dict[str, Array] = {}
            for name in ("observations", *_FIELDS):
                if name in table.column_names:
                    column = table.column(name).combine_chunks()
                    # all columns but the observations are padded to their length
                    fields |= _arrow_arrays(column if name == "observations" else column[:-1], name)
        yield number, fields


def _arrow_table(folder: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    parts = sorted(path for path in folder.iterdir() if path.suffix in (".arrow", ".parquet"))
    if not parts:
        raise LogError("missing_file", f"The folder {folder} holds no episode.")
    tables = []
    for path in parts:
        if path.suffix == ".parquet":
            tables.append(parquet.ParquetFile(path, page_checksum_verification=True).read())
        else:
            tables.append(pa.ipc.open_file(pa.memory_map(str(path))).read_all())
    return pa.concat_tables(tables)


def _arrow_arrays(column: Any, name: str) -> dict[str, Array]:
    import pyarrow as pa

    if pa.types.is_struct(column.type):
        parts = [(column.type.field(k).name, column.field(k)) for k in range(column.type.num_fields)]
        return {k: v for part, values in parts for k, v in _arrow_arrays(values, f"{name}_{part}").items()}
    if pa.types.is_fixed_size_list(column.type):
        return {name: np.asarray(column.flatten()).reshape(len(column), -1)}
    return {name: np.asarray(column.to_numpy(zero_copy_only=False))}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if importlib.util.find_spec("h5py") is None:
        raise ImportError(f"{path}: HDF5 needs h5py. {how_to_install('minari')}")
    import h5py

    try:
        with h5py.File(path, "r") as file:
            yield file
    except LogError:
        raise
    except (OSError, KeyError, RuntimeError, TypeError, ValueError, AttributeError) as error:  # h5py on damaged bytes
        raise LogError("unreadable", f"{path} cannot be read: {error}.") from None
