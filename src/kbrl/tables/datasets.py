"""Another start: episodes of Minari, D4RL and d3rlpy as batches of columns, without these libraries.

Minari keeps one group or folder per episode, with one more observation than actions; the last observation becomes the
next state of the last action.  d3rlpy keeps arrays such as observations_0 per episode, with as many observations as
actions.  One episode at a time is in memory.  D4RL keeps one flat table in an HDF5 file.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from kbrl.arrays import Array
from kbrl.checks import how_to_install
from kbrl.data.column_names import listing
from kbrl.files import allowed_bytes, bytes_on_disk, memory_limit, shown, too_empty, too_large
from kbrl.tables.arrow_files import check_type
from kbrl.tables.cell_values import Batch, Kind, from_array, refusing
from kbrl.tables.faults import LogError, refuse_size, refusing_damage
from kbrl.tables.frames import FrameTable, check_lengths
from kbrl.tables.stated_sizes import check_arrow, check_parquet

Episode = tuple[int, Mapping[str, Array]]  # its number, and its arrays by the names of Minari
HDF5_ENDINGS = (".hdf5", ".h5")
_FIELDS = {"actions": "action", "rewards": "reward", "terminations": "terminated", "truncations": "truncated"}
_GROUP = "episode_"
_MOST_GAIN = 1032  # of deflate
_MOST_PARTS = 64  # of an observation
_MOST_DEPTH = 16  # of groups in an episode
_MOST_METADATA = 1 << 24  # bytes
_D3RLPY = ("columns", "num_episodes", "version")  # what a file of d3rlpy 2 holds beside its episodes


class EpisodesTable:
    """Episodes one after the other; one at a time becomes a table.

    ``episodes`` starts a new pass over them: the number of each, and its fields as ``episode_columns`` takes them, or
    ``columns_without_next`` if the last observation does not follow the last action.
    """

    is_text = False

    def __init__(self, episodes: Callable[[], Iterator[Episode]], where: str, *, following: bool = True) -> None:
        self._episodes, self._where = episodes, where
        self._columns = episode_columns if following else columns_without_next
        first = next(episodes(), None)
        if first is None:
            raise LogError("empty_log", f"{where} has no episodes.")
        self.names = tuple(self._columns(*first))

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows of one episode after the other, at most ``n_rows`` at a time."""
        for number, fields in self._episodes():
            columns = self._columns(number, fields)
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
                yield {name: from_array(_cells(items[name], rows), kind, name) for name, kind in kinds.items()}


def open_hdf5(path: Path) -> EpisodesTable | FlatHdf5Table:
    """Return the table of an HDF5 file, of Minari, d3rlpy or D4RL."""
    with _opened(path) as file:
        is_minari = any(_is_episode(name) for name in file)
        is_d3rlpy = set(_D3RLPY) <= set(file)
    if is_d3rlpy:
        return EpisodesTable(lambda: _d3rlpy_episodes(path), str(path), following=False)
    return open_minari(path) if is_minari else FlatHdf5Table(path)


def _is_episode(name: str) -> bool:
    """Return whether a group holds an episode; episode_id is a column of a flat table."""
    return name.startswith(_GROUP) and name.removeprefix(_GROUP).isdecimal()


def _in_order(names: list[str], prefix: str, where: Path) -> list[tuple[int, str]]:
    """Return the numbers and the names of episodes, in order; refuse names that could be of the same one."""
    numbered = sorted((int(name.removeprefix(prefix)), name) for name in names)
    odd = next((name for number, name in numbered if name != f"{prefix}{number}"), None)
    if odd is not None:
        raise LogError("unreadable", f"{where} cannot be read: {odd!r} is not how an episode is numbered.")
    return numbered


def open_minari(path: Path) -> EpisodesTable:
    """Return the table of a dataset of Minari in any of its three layouts; ``find_dataset`` says where it is."""
    read = _hdf5_episodes if path.suffix in HDF5_ENDINGS else _arrow_episodes
    return EpisodesTable(lambda: read(path), str(path))


def find_dataset(folder: Path) -> Path | None:
    """Return the file or folder with the episodes of a dataset of Minari; None if the folder is not one."""
    for place in (folder, folder / "data"):
        metadata = _metadata(place / "metadata.json")
        if isinstance(metadata, dict) and "total_episodes" in metadata:
            file = place / "main_data.hdf5"
            return file if file.exists() else place
    return None


def _metadata(path: Path) -> Any:
    """Return what a file of metadata says; None if it is none, a pipe, or far too large."""
    try:
        if path.is_file() and path.stat().st_size <= _MOST_METADATA:
            return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        pass
    return None


def find_in_cache(name: str) -> Path | None:
    """Return the folder of a dataset of Minari by its id, such as D4RL/door/human-v2; None if it is not there."""
    root = os.environ.get("MINARI_DATASETS_PATH")
    folder = Path.home() / ".minari" / "datasets" if root is None else Path(root)
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts:
        return None
    return folder / name if (folder / name / "data").is_dir() else None


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


def columns_without_next(number: int, fields: Mapping[str, Array]) -> dict[str, Array]:
    """Return the columns of an episode of d3rlpy, with as many observations as actions.

    An episode that is not terminated was cut: what came after its last row is not known.
    """
    rewards, ended = fields.get("rewards", np.empty(0)), bool(np.all(fields.get("terminated", False)))
    wrong = {name: len(field) for name, field in fields.items() if field.ndim and len(field) != len(rewards)}
    missing = [name for name in ("observations", "actions", "rewards") if not any(f.startswith(name) for f in fields)]
    if wrong or missing:
        held = ", ".join(f"{name} has {length}" for name, length in wrong.items()) or f"it lacks {missing}"
        message = f"Episode {number} must have {len(rewards)} entries in every field, as many as rewards, but {held}."
        raise LogError("uneven_columns", message, columns=list(wrong) or missing)
    is_last = np.arange(len(rewards)) == len(rewards) - 1
    columns: dict[str, Array] = {"episode_id": np.full(len(rewards), number), "step": np.arange(len(rewards))}
    columns |= {k.replace("observations", "observation"): v for k, v in fields.items() if k.startswith("observations")}
    ends = {"terminated": is_last & ended, "truncated": is_last & (not ended)}
    return columns | {"action": fields["actions"], "reward": rewards} | ends


def flattened(array: Array) -> Array:
    """Return an array of at most two dimensions, (n,) or (n, entries of an observation)."""
    return array if array.ndim <= 2 else array.reshape(len(array), -1)


def _d3rlpy_episodes(path: Path) -> Iterator[Episode]:
    with _opened(path) as file:
        for number in range(int(_own_item(file, "num_episodes")[()])):
            fields: dict[str, Array] = {}
            for name in ("observations", "actions", "rewards", "terminated"):
                parts = [f"{name}_{number}", *(f"{name}_{number}_{part}" for part in range(_MOST_PARTS))]
                for place, part in enumerate(part for part in parts if part in file.keys()):  # noqa: SIM118
                    item = f"{name}_{place}" if part != parts[0] else name
                    fields |= _hdf5_arrays(file, part, item)
            yield number, fields


def _hdf5_episodes(path: Path) -> Iterator[Episode]:
    with _opened(path) as file:
        for number, name_of_group in _in_order([name for name in file if _is_episode(name)], _GROUP, path):
            group = _own_item(file, name_of_group)
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
        return {name: flattened(_cells(item, slice(None)) if item.shape else item[()])}
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
    """Refuse a dataset that is empty, or whose rows or chunks do not fit into memory."""
    path, what = item.file.filename, f"{item.name!r}"
    cell = max(item.dtype.itemsize, 8)  # numbers become doubles
    n_at_once = min(n_rows, item.shape[0]) * math.prod(item.shape[1:]) if item.shape else 1
    n_at_once = max(n_at_once, math.prod(item.chunks or (0,)))
    refuse_size(too_large(path, what, n_at_once * cell), path)
    refuse_size(too_empty(path, what, item.nbytes, item.id.get_storage_size()), path)
    _check_chunks(item)


def _check_chunks(item: Any) -> None:
    """Refuse a packed chunk that unpacks to more than a chunk: HDF5 takes memory as long as there is more."""
    from h5py import h5z

    plan = item.id.get_create_plist()
    filters = [plan.get_filter(k)[0] for k in range(plan.get_nfilters())]
    if h5z.FILTER_DEFLATE not in filters:
        return
    path, most = item.file.filename, math.prod(item.chunks) * item.dtype.itemsize
    if set(filters[filters.index(h5z.FILTER_DEFLATE) + 1 :]) - {h5z.FILTER_FLETCHER32}:
        raise LogError("unreadable", f"{path} cannot be read: {item.name!r} is packed more than once.")
    places: list[tuple[int, ...]] = []
    suspect = allowed_bytes(path) // _MOST_GAIN

    def note(chunk: Any) -> None:
        if chunk.size > suspect:
            places.append(chunk.chunk_offset)

    item.id.chunk_iter(note)
    for place in places:
        with suppress(zlib.error):  # damaged, or stored as it is: HDF5 says so
            unpacked = zlib.decompressobj().decompress(item.id.read_direct_chunk(place)[1], most + 1)
            if len(unpacked) > most:
                refuse_size(f"a chunk of {item.name!r} states {shown(most)}, but it unpacks to more", path)


def _cells(item: Any, rows: slice) -> Array:
    """Return some rows of a dataset.

    Many rows may refer to one long text, and h5py would copy it for each: texts are read a few at a time, and each is
    held once.
    """
    if not item.dtype.hasobject:
        return item[rows]
    path, what = item.file.filename, f"{item.name!r}"
    first, last, _ = rows.indices(len(item))
    held, cells, n_held, n_read = dict[Any, Any](), list[Any](), 0, 0
    at_once = max(1, memory_limit() // (10 * bytes_on_disk(path)))  # no text is longer than the file
    for start in range(first, last, at_once):
        for cell in item[start : min(start + at_once, last)].ravel().tolist():
            key = bytes(cell) if isinstance(cell, np.ndarray) else cell
            n_read += len(key)
            n_held += 0 if key in held else len(key)
            cells.append(held.setdefault(key, cell))
        refuse_size(too_large(path, what, n_held), path)
        refuse_size(too_empty(path, what, n_read, bytes_on_disk(path)), path)
    found = np.empty(len(cells), dtype=object)
    found[:] = cells
    return found.reshape(-1, *item.shape[1:])


def _arrow_episodes(folder: Path) -> Iterator[Episode]:
    names = [path.name for path in folder.iterdir() if path.is_dir() and path.name.isdecimal()]
    for number, name_of_folder in _in_order(names, "", folder):
        with refusing(folder / name_of_folder):
            table = _arrow_table(folder / name_of_folder)
            fields: dict[str, Array] = {}
            for name in ("observations", *_FIELDS):
                if name in table.column_names:
                    column = table.column(name).combine_chunks()
                    # all columns but the observations are padded to their length
                    fields |= _arrow_arrays(column if name == "observations" else column[:-1], name, folder)
        yield number, fields


def _arrow_table(folder: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    parts = sorted(path for path in folder.iterdir() if path.suffix in (".arrow", ".parquet") and path.is_file())
    if not parts:
        raise LogError("missing_file", f"The folder {folder} holds no episode.")
    tables = []
    for path in parts:
        if path.suffix == ".parquet":
            check_parquet(path)
            tables.append(parquet.ParquetFile(path, page_checksum_verification=True).read())
        else:
            check_arrow(path)
            tables.append(pa.ipc.open_file(pa.memory_map(str(path))).read_all())
    return pa.concat_tables(tables)


def _arrow_arrays(column: Any, name: str, folder: Path) -> dict[str, Array]:
    import pyarrow as pa

    check_type(column, name, folder)
    if pa.types.is_struct(column.type):
        parts = [(column.type.field(k).name, column.field(k)) for k in range(column.type.num_fields)]
        return {k: v for part, values in parts for k, v in _arrow_arrays(values, f"{name}_{part}", folder).items()}
    if pa.types.is_fixed_size_list(column.type):
        return {name: np.asarray(column.flatten()).reshape(len(column), -1)}
    return {name: np.asarray(column.to_numpy(zero_copy_only=False))}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if importlib.util.find_spec("h5py") is None:
        raise ImportError(f"{path}: HDF5 needs h5py. {how_to_install('minari')}")
    import h5py

    damaged = (OSError, KeyError, RuntimeError, TypeError, ValueError, AttributeError)  # what h5py raises
    with refusing_damage(path, damaged), h5py.File(path, "r") as file:
        yield file
