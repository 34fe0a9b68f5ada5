"""Named arrays and facts in one safetensors file, under a seal: the SHA-256 of all its bytes.

safetensors itself would not notice most flipped bits.  The seal is taken with its own 64 digits set to zero, and stands
with the format's name and version at the very start, so that nothing is parsed before it is checked.

The writer of the safetensors package orders metadata at random and holds all arrays twice; ours is sixteen lines, and
equal contents give equal files.  Reading is left to the package.  The layout is described in docs/model_file.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
from safetensors import SafetensorError, deserialize

from kbrl.arrays import Array
from kbrl.files import FREE_BYTES, check_ordinary, memory_limit, raise_the_limit, shown, too_large

# The kinds of arrays that are stored: name in the file, and NumPy's type.
_TYPES = {"F64": "<f8", "I64": "<i8", "I32": "<i4", "BOOL": "|b1"}
_NAMES = {np.dtype(numpy_type): name for name, numpy_type in _TYPES.items()}
_BLANK = b"0" * 64
_START = re.compile(
    rb'\{"__metadata__":\{"format":"(?P<format>[^"\\]{1,80})","format_version":"(?P<version>[0-9]{1,9})",'
    rb'"sha256":"(?P<seal>[0-9a-f]{64})"[,}]'
)
_LABEL_TYPE = re.compile(r"\|b1|\|[iu]1|<[iu][248]|<f[248]|<U[0-9]{1,5}|object")
_LONGEST_FAULT = 400  # characters
_HEAD_BYTES = 512  # in which the start must lie


class Contents(NamedTuple):
    """What a sealed file holds."""

    facts: dict[str, Any]
    arrays: dict[str, Array]
    version: int  # of the format


def write_sealed(
    file: IO[bytes], format_name: str, version: int, facts: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Write facts, as JSON, and arrays of float64, int64, int32 or bool to an open file."""
    arrays = {name: _little_endian(array) for name, array in arrays.items()}
    ordered = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # each is aligned to its own size
    metadata = {"format": format_name, "format_version": str(version), "sha256": _BLANK.decode()}
    header: dict[str, Any] = {"__metadata__": metadata | {name: _json(facts[name]) for name in sorted(facts)}}
    end = 0
    for name in ordered:
        array, start, end = arrays[name], end, end + arrays[name].nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    text = _json(header).encode()
    text += b" " * (-len(text) % 8)
    start_of_file = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(start_of_file)
    for name in ordered:
        digest.update(_bytes(arrays[name]))
    file.write(start_of_file.replace(_BLANK, digest.hexdigest().encode(), 1))
    for name in ordered:
        file.write(_bytes(arrays[name]))


def read_sealed(path: str | os.PathLike[str], format_name: str, version: int, *, oldest: int | None = None) -> Contents:
    """Read the file if it is whole, unchanged, and of this format and version, or of one since the ``oldest``.

    Else raise a ValueError.
    """
    versions = range(version if oldest is None else oldest, version + 1)
    check_ordinary(path)
    complaint = too_large(path, "it", os.stat(path).st_size)
    if complaint is not None:
        refuse(path, complaint, raise_the_limit())
    with open(path, "rb") as file:
        found_version = _check_start(file.read(_HEAD_BYTES), Path(path), format_name, versions)
        file.seek(0)
        raw = file.read()
    header_end = 8 + int.from_bytes(raw[:8], "little")
    if header_end > len(raw):
        refuse(path, f"it is cut short: it has {len(raw)} bytes, and its header alone should have {header_end}")
    _check_seal(raw, path)
    try:
        arrays = {name: _array(**entry) for name, entry in deserialize(raw)}  # type: ignore[no-untyped-call]
        metadata = json.loads(raw[8:header_end])["__metadata__"]
        named = {name: text for name, text in metadata.items() if name not in ("format", "format_version", "sha256")}
        facts = {name: json.loads(text, parse_constant=_refuse_constant) for name, text in named.items()}
    except (SafetensorError, ValueError, RecursionError) as error:
        refuse(path, f"its contents cannot be parsed ({error})")
    return Contents(facts, arrays, found_version)


def _refuse_constant(word: str) -> NoReturn:
    """Refuse the words for NaN and infinity, which Python's parser takes for numbers and no writer of ours writes."""
    raise ValueError(f"{word} is not JSON")


def refuse(path: str | os.PathLike[str], fault: str, way_out: str | None = None) -> NoReturn:
    """Raise the error for a file that cannot be used."""
    way_out = way_out or "Use an intact copy of the file, or make it again."
    fault = fault if len(fault) <= _LONGEST_FAULT else f"{fault[:_LONGEST_FAULT]}..."  # it may quote the file
    raise ValueError(f"{os.fspath(path)} cannot be loaded: {fault}. {way_out}")


def labels_as_facts(labels: Array) -> dict[str, Any]:
    """Return labels as a list, with NumPy's name of their type; objects, if all are plain, are marked as such."""
    values = labels.tolist()
    if labels.dtype.kind not in "biufUO" or not all(isinstance(value, (bool, int, float, str)) for value in values):
        raise ValueError(
            f"A file holds action labels that are whole numbers, other numbers, flags or strings, but they are "
            f"{values[:3]} ({labels.dtype}). Give the actions such names."
        )
    dtype = labels.dtype.newbyteorder("<").str if labels.dtype.kind != "O" else "object"
    return {"dtype": dtype, "values": values}


def check_labels(labels: dict[str, Any]) -> None:
    """Refuse labels of actions that are not different plain values of their type."""
    dtype, values = labels["dtype"], labels["values"]
    require(_LABEL_TYPE.fullmatch(dtype), f"action_labels are of an unknown type, {dtype!r}")
    require(all(isinstance(value, (bool, int, float, str)) for value in values), "action_labels are not all plain")
    require(len({type(value) for value in values}) == 1, "action_labels must be of one kind, and at least one")
    require(len(set(values)) == len(values), "action_labels must differ from each other")
    width = int(dtype[2:]) * 4 if dtype.startswith("<U") else 0  # bytes of each, also of short ones
    asked = width * len(values)
    require(asked <= max(FREE_BYTES, memory_limit()), f"action_labels of the type {dtype} ask for {shown(asked)}")
    try:
        same = np.array(values, dtype=dtype).tolist()
    except (OverflowError, TypeError) as error:
        raise ValueError(f"action_labels are not of the type {dtype} ({error})") from None
    require(same == values and type(same[0]) is type(values[0]), f"action_labels are not of the type {dtype}")


def require(holds: Any, rule: str) -> None:
    """Raise the rule as an error unless it holds."""
    if not holds:
        raise ValueError(rule)


def _check_start(head: bytes, path: Path, format_name: str, versions: Sequence[int]) -> int:
    """Return the version of the format."""
    start = _START.match(head, 8)
    if start is None:
        refuse(path, f"it does not start as a {format_name} does; it is another kind of file, or damaged")
    found, found_version = start["format"].decode("utf-8", "replace"), int(start["version"])
    if found != format_name:
        refuse(path, f"it should be a {format_name}, but it says that it is {found!r}")
    if found_version not in versions:
        way_out = (
            "Install the kbrl that wrote it, or a later one."
            if found_version > max(versions)
            else "Load and save it with the kbrl that wrote it, or make it again."
        )
        known = f"version{'s' if len(versions) > 1 else ''} {' and '.join(map(str, versions))}"
        refuse(path, f"its format version is {found_version}, and this kbrl reads {known}", way_out)
    return found_version


def _check_seal(raw: bytes, path: str | os.PathLike[str]) -> None:
    start = _START.match(raw, 8)
    assert start is not None
    first, last = start.span("seal")
    digest = hashlib.sha256(raw[:first] + _BLANK)
    digest.update(memoryview(raw)[last:])
    if digest.hexdigest() != start["seal"].decode():
        refuse(path, "its bytes are not those that were saved (SHA-256): it was damaged, cut short or edited")


def _array(dtype: str, shape: list[int], data: bytearray) -> Array:
    if dtype not in _TYPES:
        raise ValueError(f"an array has the type {dtype}, and only {', '.join(_TYPES)} are known")
    if dtype == "BOOL":
        flags = np.frombuffer(data, dtype=np.uint8)
        if flags.size and flags.max() > 1:
            raise ValueError("a flag is neither 0 nor 1")
        return flags.view(np.bool_).reshape(shape)
    return np.frombuffer(data, dtype=_TYPES[dtype]).reshape(shape)


def _little_endian(array: Array) -> Array:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
