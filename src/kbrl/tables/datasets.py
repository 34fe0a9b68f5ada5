"""Another start: episodes of Minari, D4RL and Gymnasium as batches of columns, without these libraries.

Minari keeps one group or folder per episode, with one more observation than actions; the last observation becomes the
next state of the last action.  One episode at a time is in memory.  D4RL keeps one flat table in an HDF5 file.
A program that steps a Gymnasium environment holds a list of episodes in the form of Minari's EpisodeData, or a list of
steps: (observation, action, reward, next_observation, terminated, truncated).
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from kbrl.arrays import Array
from kbrl.checks import how_to_install
from kbrl.data.column_names import listing
from kbrl.limits import too_empty, too_large
from kbrl.tables.arrow_files import check_parquet, refusing
from kbrl.tables.cell_values import Batch, Kind, as_array, from_array
from kbrl.tables.faults import PLACE, LogError, Place, refuse_size
from kbrl.tables.frames import FrameTable, check_lengths

Episode = tuple[int, Mapping[str, Array]]  # its number, and its arrays by the names of Minari
HDF5_ENDINGS = (".hdf5", ".h5")
_FIELDS = {"actions": "action", "rewards": "reward", "terminations": "terminated", "truncations": "truncated"}
_GROUP = "episode_"
_MOST_DEPTH = 16  # of groups in an episode
STEP = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
_EPISODE = ("observations", "actions", "rewards", "terminations", "truncations")
FORMS = (
    "a list of episodes, each with observations, actions, rewards, terminations and truncations, or a list of steps "
    "(observation, action, reward, next_observation, terminated, truncated)"
)


class EpisodesTable:
    """Episodes one after the other; one at a time becomes a table.

    ``episodes`` starts a new pass over them: the number of each, and its fields as ``episode_columns`` takes them.
    """

    is_text = False

    def __init__(self, episodes: Callable[[], Iterator[Episode]], where: str) -> None:
        self._episodes, self._where = episodes, where
        first = next(episodes(), None)
        if first is None:
            raise LogError("empty_log", f"{where} has no episodes.")
        self.names = tuple(episode_columns(*first))

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows of one episode after the other, at most ``n_rows`` at a time."""
        for number, fields in self._episodes():
            columns = episode_columns(number, fields)
            missing = [name for name in kinds if name not in columns]
            if missing:
                message = f"Episode {number} of {self._where} lacks {listing(missing)}."
                raise LogError("missing_column", message, columns=missing)
            yield from FrameTable(columns).batches(kinds, n_rows)


class FlatHdf5Table:
    """The arrays of an HDF5 file that have one entry per row, as D4RL writes them."""

    is_text = False

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opened(path) as file:
            items = {name: _own_item(file, name) for name in file}
            lengths = {name: item.shape[0] for name, item in items.items() if getattr(item, "shape", ())}
        check_lengths(lengths, str(path))
        self.names, self._n_rows = tuple(lengths), next(iter(lengths.values()), 0)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        with _opened(self.path) as file:
            items = {name: _own_item(file, name) for name in kinds}
            for item in items.values():
                _check_size(item, n_rows)
            for start in range(0, self._n_rows, n_rows):
                rows = slice(start, start + n_rows)
                yield {name: from_array(items[name][rows], kind, name) for name, kind in kinds.items()}


def open_hdf5(path: Path) -> EpisodesTable | FlatHdf5Table:
    """Return the table of an HDF5 file, of Minari or of D4RL."""
    with _opened(path) as file:
        is_minari = any(name.startswith(_GROUP) for name in file)
    return open_minari(path) if is_minari else FlatHdf5Table(path)


def open_minari(path: Path) -> EpisodesTable:
    """Return the table of a dataset of Minari in any of its three layouts; ``find_dataset`` says where it is."""
    read = _hdf5_episodes if path.suffix in HDF5_ENDINGS else _arrow_episodes
    return EpisodesTable(lambda: read(path), str(path))


def find_dataset(folder: Path) -> Path | None:
    """Return the file or folder with the episodes of a dataset of Minari; None if the folder is not one."""
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
    """Return the columns of an episode by canonical names; ``fields`` has one more observation than actions."""
    missing = [name for name in ("observations", "actions", "rewards") if not any(f.startswith(name) for f in fields)]
    if missing:
        raise LogError("missing_column", f"Episode {number} lacks {missing}.", columns=missing)
    n_steps = len(fields["actions"]) if "actions" in fields else 0
    expected = {name: n_steps + name.startswith("observations") for name in fields}
    wrong = {name: len(field) for name, field in fields.items() if len(field) != expected[name]}
    if wrong:
        raise LogError(
            "uneven_columns",
            f"Episode {number} must have one more observation than its {n_steps} actions, and as many of the rest, but "
            f"{', '.join(f'{name} has {length}' for name, length in wrong.items())}.",
            columns=list(wrong),
        )
    observed = {k.removeprefix("observations"): v for k, v in fields.items() if k.startswith("observations")}
    columns: dict[str, Array] = {"episode_id": np.full(n_steps, number), "step": np.arange(n_steps)}
    columns |= {f"observation{name}": values[:-1] for name, values in observed.items()}
    columns |= {f"next_observation{name}": values[1:] for name, values in observed.items()}
    return columns | {_FIELDS[name]: field for name, field in fields.items() if name in _FIELDS}


def flattened(array: Array) -> Array:
    """Return an array of at most two dimensions, (n,) or (n, entries of an observation)."""
    return array if array.ndim <= 2 else array.reshape(len(array), -1)


def _hdf5_episodes(path: Path) -> Iterator[Episode]:
    with _opened(path) as file:
        numbers = sorted(int(name.removeprefix(_GROUP)) for name in file if name.startswith(_GROUP))
        for number in numbers:
            group = _own_item(file, f"{_GROUP}{number}")
            fields: dict[str, Array] = {}
            for name in ("observations", *_FIELDS):
                if name in group.keys():  # noqa: SIM118 - "in group" would follow a link
                    fields |= _hdf5_arrays(group, name, name)
            yield number, fields


def _hdf5_arrays(group: Any, part: str, name: str, depth: int = 1) -> dict[str, Array]:
    """Return the arrays of a part of a group, by names such as observations_position."""
    item = _own_item(group, part)
    if hasattr(item, "shape"):
        _check_size(item, len(item) if item.shape else 1)
        return {name: flattened(item[()])}
    if depth > _MOST_DEPTH:  # a group may hold itself
        raise LogError("unreadable", f"{group.file.filename}: {group.name!r} has more than {_MOST_DEPTH} levels.")
    return {k: v for inner in item for k, v in _hdf5_arrays(item, inner, f"{name}_{inner}", depth + 1).items()}


def _own_item(group: Any, name: str) -> Any:
    """Return a dataset or group that this file itself holds; anything else could be any file of the machine."""
    import h5py

    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        kinds = {h5py.SoftLink: "a soft link", h5py.ExternalLink: "a link to another file"}
        _refuse_foreign(group, name, kinds.get(type(link), "a link of an unknown kind"))
    item = group[name]
    if isinstance(item, h5py.Dataset):
        plan = item.id.get_create_plist()
        if plan.get_external_count():
            _refuse_foreign(group, name, "stored in another file")
        if plan.get_layout() == h5py.h5d.VIRTUAL:
            _refuse_foreign(group, name, "a virtual dataset, put together from others")
    return item


def _refuse_foreign(group: Any, name: str, what: str) -> NoReturn:
    raise LogError(
        "foreign_data",
        f"{group.file.filename}: the data must be in the file itself, but {name!r} in {group.name!r} is {what}.",
        columns=[name],
    )


def _check_size(item: Any, n_rows: int) -> None:
    """Refuse a dataset of which so many rows, or one of its chunks, do not fit into memory, or which holds nothing."""
    path, what = item.file.filename, f"{item.name!r}"
    cell = max(item.dtype.itemsize, 8)  # numbers become doubles
    n_at_once = min(n_rows, item.shape[0]) * math.prod(item.shape[1:]) if item.shape else 1
    n_at_once = max(n_at_once, math.prod(item.chunks or (0,)))
    refuse_size(too_large(path, what, n_at_once * cell), path)
    refuse_size(too_empty(path, what, item.nbytes, item.id.get_storage_size()), path)


def _arrow_episodes(folder: Path) -> Iterator[Episode]:
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
            with parquet.ParquetFile(path, page_checksum_verification=True) as file:
                check_parquet(path, file.metadata)
                tables.append(file.read())
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


class StepsTable:
    """Steps in memory, one tuple per step."""

    is_text = False
    names: tuple[str, ...] = STEP

    def __init__(self, steps: Sequence[Any]) -> None:
        self._steps = steps

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the steps in their order, at most ``n_rows`` at a time."""
        for start in range(0, len(self._steps), n_rows):
            steps = self._steps[start : start + n_rows]
            _check_steps(steps, start)
            yield {name: from_array(_column(steps, name, start), kind, name) for name, kind in kinds.items()}


def open_rollouts(source: Sequence[Any]) -> EpisodesTable | StepsTable | None:
    """Return the table of a list of episodes or of steps, by its first entry; None if it is neither."""
    if isinstance(source[0], (tuple, list)):
        return StepsTable(source)
    if _field(source[0], "observations") is None:
        return None
    return EpisodesTable(lambda: _episodes_in(source), "the list")


def _episodes_in(source: Sequence[Any]) -> Iterator[Episode]:
    for place, episode in enumerate(source):
        fields = {name: _field(episode, name) for name in _EPISODE if _field(episode, name) is not None}
        arrays = {name: flattened(_as_array(values, name, f"episode {place}")) for name, values in fields.items()}
        yield place, arrays


def _field(episode: Any, name: str) -> Any:
    return episode.get(name) if isinstance(episode, Mapping) else getattr(episode, name, None)


def _check_steps(steps: Sequence[Any], first: int) -> None:
    wrong = next((k for k, step in enumerate(steps) if not isinstance(step, (tuple, list)) or len(step) != 6), None)
    if wrong is not None:
        step = steps[wrong]
        held = f"{len(step)} entries" if isinstance(step, (tuple, list)) else f"a {type(step).__name__}"
        raise LogError(
            "uneven_columns",
            f"A step must be ({', '.join(STEP)}), but {PLACE} is {held}.",
            rows=[first + wrong],
        )


def _column(steps: Sequence[Any], name: str, first: int) -> Array:
    values = [step[STEP.index(name)] for step in steps]
    if not name.endswith("observation"):
        return _as_array(values, name, Place("row", first + 1))
    shapes = [_shape(value, name, first + k) for k, value in enumerate(values)]
    odd_one = next((k for k, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd_one is not None:
        row = first + odd_one
        raise LogError(
            "ragged_state",
            f"All of {name} must have one shape, {shapes[0]} as before, but {PLACE} has {shapes[odd_one]}.",
            rows=[row],
            columns=[name],
        )
    return flattened(_as_array(values, name, Place("row", first + 1)))


def _shape(value: Any, name: str, row: int) -> tuple[int, ...]:
    _refuse_parts(value, name, Place("row", row + 1))
    return np.shape(value)


def _as_array(values: Any, name: str, place: Place | str) -> Array:
    """Return an array; a list of words and numbers stays mixed, so that its faults can be seen."""
    _refuse_parts(values, name, place)
    try:
        array = as_array(values)
    except ValueError as error:
        raise LogError("ragged_state", f"{name} of {place} cannot be made an array: {error}.") from None
    if isinstance(values, (list, tuple)) and array.dtype.kind in "SU" and len({type(value) for value in values}) > 1:
        array = np.empty(len(values), dtype=object)
        array[:] = values
    return array


def _refuse_parts(values: Any, name: str, place: Place | str) -> None:
    if isinstance(values, Mapping) or (isinstance(values, tuple) and any(isinstance(v, np.ndarray) for v in values)):
        kind = "a dict" if isinstance(values, Mapping) else "a tuple of arrays"
        raise LogError(
            "wrong_width",
            f"{name} must be numbers, but that of {place} is {kind}. Wrap the environment in "
            f"gymnasium.wrappers.FlattenObservation, or put its parts into one array.",
            columns=[name],
        )
