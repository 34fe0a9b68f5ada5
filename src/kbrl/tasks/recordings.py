"""Labelled recordings of a brain slice as points of an embedding, and how a folder of them is read.

The plain-text format is that of the public neurostimulation data: ``params.dat`` names three files (features,
labels, stimulation vector), one per line, and then gives the number of rows, of features and of label columns, the
label of a seizure, the magnitude of a pulse, and a sampling constant that nothing here needs.

Paper: the appendix on tasks, "epilepsy suppression" (Bush and Pineau 2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import as_floats, as_rows, check_finite, refuse_rows, whole

PARAMETERS = "params.dat"
PARAMETER_NAMES = (
    "the name of the features file",
    "the name of the labels file",
    "the name of the stimulation file",
    "the number of rows",
    "the number of features",
    "the number of label columns",
    "the label of a seizure",
    "the magnitude of a pulse",
    "the sampling constant",
)
SEIZURE = 3  # labels: 1 quiet, 2 shortly before a seizure, 3 seizure


@dataclass(frozen=True, eq=False, repr=False)
class Recordings:
    """Points in time order, recording after recording, with the shift that a pulse gives the state.

    ``pulses`` marks the rows at which a pulse was given, where that is known; its effect is then in the step to
    the next row, and a model of no pulse has to take it out again.
    """

    features: Floats  # (n, n_dims)
    labels: Integers  # (n,): from 1 to seizure_label
    recordings: Integers  # (n,): which recording a row belongs to
    stimulation: Floats  # (n_dims,): the direction of a pulse's shift
    magnitude: float  # of a pulse's shift, times the norm of the direction
    pulses: Booleans | None = None  # (n,), or None where unknown: no row is then taken as pulsed
    seizure_label: int = SEIZURE
    source: str = "recordings"
    is_substitute: bool = False  # simulated instead of recorded

    def __post_init__(self) -> None:
        features = as_rows(self.features, "features")
        n, n_dims = features.shape
        if n < 2:
            raise ValueError(f"features must have at least two rows, so that one follows another, but have {n}.")
        label = whole(self.seizure_label, "seizure_label")
        pulses = np.zeros(n, dtype=bool) if self.pulses is None else np.asarray(self.pulses, dtype=bool)
        _check_shape(pulses, (n,), "pulses", "one per row of the features")
        stimulation = as_floats(self.stimulation, "stimulation")
        _check_shape(stimulation, (n_dims,), "stimulation", "one number per feature")
        check_finite(stimulation, "stimulation")
        _check_shape(as_floats(self.magnitude, "magnitude"), (), "magnitude", "one number")
        if not math.isfinite(self.magnitude):
            raise ValueError(f"magnitude must be a finite number, but it is {self.magnitude!r}.")
        fields = {"features": features, "stimulation": stimulation, "pulses": pulses}
        fields["labels"] = _as_whole(self.labels, n, "labels", 1, label)
        fields["recordings"] = _as_whole(self.recordings, n, "recordings", 0, None)
        for name, value in fields.items():
            value = value.copy()
            value.flags.writeable = False
            object.__setattr__(self, name, value)

    @property
    def seizures(self) -> Booleans:
        """Which rows are labelled as seizure, (n,)."""
        return np.asarray(self.labels == self.seizure_label)

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        return (
            f"Recordings({len(self)} rows of {self.features.shape[1]} features in {len(np.unique(self.recordings))} "
            f"recordings, {self.seizures.mean():.1%} in seizure; {self.source})"
        )


class _Parameters(NamedTuple):
    """The lines of ``params.dat``."""

    features: Path
    labels: Path
    stimulation: Path
    n_rows: int
    n_features: int
    n_label_columns: int
    seizure_label: int
    magnitude: float


def read_recordings(folder: Any) -> Recordings:
    """Read the recordings of a folder; an error names the file, the line and what it says."""
    if not isinstance(folder, (str, PathLike)):
        raise TypeError(f"recordings must be the path of a folder, or Recordings, but they are {folder!r}.")
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"The recordings folder {str(folder)!r} is not a folder. Pass one with {PARAMETERS}.")
    parameters = _read_parameters(folder)
    features = _read_table(parameters.features, parameters.n_rows, parameters.n_features)
    labels = _read_table(parameters.labels, parameters.n_rows, parameters.n_label_columns)
    stimulation = _read_table(parameters.stimulation, 1, parameters.n_features)[0]
    _check_labels(labels, parameters)
    return Recordings(
        features,
        labels[:, -1].astype(np.intp),
        labels[:, 0].astype(np.intp),
        stimulation,
        parameters.magnitude,
        seizure_label=parameters.seizure_label,
        source=f"recordings in {str(folder)!r}",
    )


def _read_parameters(folder: Path) -> _Parameters:
    lines = [line.strip() for line in _read_lines(folder / PARAMETERS)]
    if len(lines) < len(PARAMETER_NAMES):
        missing = PARAMETER_NAMES[len(lines)]
        raise ValueError(
            f"{PARAMETERS} must have {len(PARAMETER_NAMES)} lines, but it has {len(lines)}: {missing} is missing."
        )
    paths = [_inside(folder, line, name) for line, name in zip(lines[:3], PARAMETER_NAMES)]
    counts = [_count(line, place) for place, line in enumerate(lines[3:7], start=3)]
    if counts[2] < 2:
        raise ValueError(f"{PARAMETERS}, line 6: there must be two label columns or more, but it says {counts[2]}.")
    magnitude = _number(lines[7], f"{PARAMETERS}, line 8 ({PARAMETER_NAMES[7]})")
    return _Parameters(paths[0], paths[1], paths[2], counts[0], counts[1], counts[2], counts[3], magnitude)


def _inside(folder: Path, name: str, what: str) -> Path:
    """Return the file of that name; a path that leads out of the folder is refused."""
    if not name or name in (".", "..") or any(separator in name for separator in "/\\"):
        raise ValueError(f"{PARAMETERS}: {what} must be a plain name of a file beside it, but it is {name!r}.")
    return folder / name


def _count(text: str, place: int) -> int:
    where = f"{PARAMETERS}, line {place + 1} ({PARAMETER_NAMES[place]})"
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(f"{where}: a whole number above 0 is needed, but it says {text!r}.")
    return int(text)


def _read_table(path: Path, n_rows: int, n_columns: int) -> Floats:
    """Return finite numbers of exactly that shape, (n_rows, n_columns)."""
    lines = [(place, line.split()) for place, line in enumerate(_read_lines(path), start=1) if line.strip()]
    if len(lines) != n_rows:
        state = "cut short" if len(lines) < n_rows else "too long"
        raise ValueError(
            f"{path.name} must have {n_rows} rows, as {PARAMETERS} says, but it has {len(lines)}: it is {state}. "
            f"Copy the file again, or correct {PARAMETERS}."
        )
    table = np.empty((n_rows, n_columns))
    for row, (place, words) in enumerate(lines):
        if len(words) != n_columns:
            raise ValueError(f"{path.name}, line {place}: {n_columns} numbers are needed, but there are {len(words)}.")
        try:
            table[row] = words
        except ValueError:
            table[row] = [_number(word, f"{path.name}, line {place}") for word in words]
        if not np.isfinite(table[row]).all():
            _number(words[int(np.argmin(np.isfinite(table[row])))], f"{path.name}, line {place}")
    return table


def _read_lines(path: Path) -> list[str]:
    if not path.is_file():
        others = sorted(entry.name for entry in path.parent.iterdir())
        holds = f"it holds {', '.join(others[:6])}" if others else "it is empty"
        raise FileNotFoundError(f"The recordings folder {str(path.parent)!r} must have {path.name}, but {holds}.")
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{where}: a finite number is needed, but it says {text!r}.")
    return number


def _check_labels(labels: Floats, parameters: _Parameters) -> None:
    states, name = labels[:, -1], f"labels of {parameters.labels.name} (its last column)"
    _as_whole(states, len(states), name, 1, parameters.seizure_label)
    _as_whole(labels[:, 0], len(labels), f"recordings of {parameters.labels.name} (its first column)", 0, None)


def _as_whole(values: Any, n: int, name: str, low: int, high: int | None) -> Integers:
    array = as_floats(values, name)
    _check_shape(array, (n,), name, "one per row of the features")
    bad = ~((array == np.floor(array)) & (array >= low) & (array <= (np.iinfo(np.intp).max if high is None else high)))
    if bad.any():
        up_to = "" if high is None else f" to {high}"
        refuse_rows(bad, array, name, f"be whole numbers from {low}{up_to}", "Correct these rows.")
    return array.astype(np.intp)


def _check_shape(array: Array, shape: tuple[int, ...], name: str, meaning: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must be {meaning}, shape {shape}, but the shape is {array.shape}.")
