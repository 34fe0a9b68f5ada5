"""Another start: rollouts of Gymnasium in memory as batches of columns, without this library.

A program that steps an environment holds a list of episodes in the form of Minari's EpisodeData, or a list of steps:
(observation, action, reward, next_observation, terminated, truncated).  Of an observation with parts, a dict or a tuple
of arrays, each part is a column such as observation_position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kbrl.arrays import Array
from kbrl.tables.cell_values import Batch, Kind, as_array, from_array
from kbrl.tables.datasets import Episode, EpisodesTable, flattened
from kbrl.tables.faults import PLACE, LogError, Place

STEP = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
_EPISODE = ("observations", "actions", "rewards", "terminations", "truncations")
FORMS = (
    "a list of episodes, each with observations, actions, rewards, terminations and truncations, or a list of steps "
    "(observation, action, reward, next_observation, terminated, truncated)"
)


class StepsTable:
    """Steps in memory, one tuple per step."""

    is_text = False

    def __init__(self, steps: Sequence[Any]) -> None:
        self._steps = steps
        _check_steps(steps[:1], 0)
        self._homes = {f"{name}{part}": name for name, value in zip(STEP, steps[0]) for part in _parts(value, name)}
        self.names = tuple(self._homes)

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the steps in their order, at most ``n_rows`` at a time."""
        for start in range(0, len(self._steps), n_rows):
            steps = self._steps[start : start + n_rows]
            _check_steps(steps, start)
            yield {name: from_array(self._column(steps, name, start), kind, name) for name, kind in kinds.items()}

    def _column(self, steps: Sequence[Any], name: str, first: int) -> Array:
        home = self._homes[name]
        values = [step[STEP.index(home)] for step in steps]
        if not home.endswith("observation"):
            return _as_array(values, name, Place("row", first + 1))
        expected = [found.removeprefix(home) for found, its_home in self._homes.items() if its_home == home]
        parts = [_parts(value, home) for value in values]
        odd_one = next((k for k, found in enumerate(parts) if list(found) != expected), None)
        if odd_one is not None:
            _refuse_parts(values[odd_one], home, Place("row", first + odd_one + 1), expected)
        return _stacked([found[name.removeprefix(home)] for found in parts], name, first)


def open_rollouts(source: Sequence[Any]) -> EpisodesTable | StepsTable | None:
    """Return the table of a list of episodes or of steps, by its first entry; None if it is neither."""
    if isinstance(source[0], (tuple, list)):
        return StepsTable(source)
    if _field(source[0], "observations") is None:
        return None
    return EpisodesTable(lambda: _episodes_in(source), "the list")


def _episodes_in(source: Sequence[Any]) -> Iterator[Episode]:
    expected: list[str] | None = None
    for place, episode in enumerate(source):
        fields = {name: _field(episode, name) for name in _EPISODE if _field(episode, name) is not None}
        observed = _transposed(fields.pop("observations", []))
        parts = _parts(observed, "observations")
        expected = list(parts) if expected is None else expected
        if list(parts) != expected:
            _refuse_parts(observed, "observations", f"episode {place}", expected)
        named = {f"observations{part}": values for part, values in parts.items()} | fields
        yield place, {name: flattened(_as_array(values, name, f"episode {place}")) for name, values in named.items()}


def _field(episode: Any, name: str) -> Any:
    return episode.get(name) if isinstance(episode, Mapping) else getattr(episode, name, None)


def _transposed(values: Any) -> Any:
    """Return the observations of an episode by part, where each is a dict with the same keys."""
    is_list = isinstance(values, list) and len(values) > 0 and all(isinstance(value, Mapping) for value in values)
    if not is_list or any(value.keys() != values[0].keys() for value in values):
        return values
    return {key: _transposed([value[key] for value in values]) for key in values[0]}


def _parts(value: Any, name: str) -> dict[str, Any]:
    """Return the parts of an observation by what is added to its name: nothing if it has no parts."""
    if not name.startswith(("observation", "next_observation")):
        return {"": value}
    if isinstance(value, Mapping):
        return {f"_{key}{rest}": v for key, part in value.items() for rest, v in _parts(part, name).items()}
    if isinstance(value, tuple) and any(isinstance(part, np.ndarray) for part in value):
        return {f"_{k}{rest}": v for k, part in enumerate(value) for rest, v in _parts(part, name).items()}
    return {"": value}


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


def _stacked(values: list[Any], name: str, first: int) -> Array:
    """Return observations of some steps, which must have one shape, as an array."""
    shapes = [np.shape(value) for value in values]
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


def _as_array(values: Any, name: str, place: Place | str) -> Array:
    """Return an array; a list of words and numbers stays mixed, so that its faults can be seen."""
    try:
        array = as_array(values)
    except ValueError as error:
        raise LogError("ragged_state", f"{name} of {place} cannot be made an array: {error}.") from None
    if isinstance(values, (list, tuple)) and array.dtype.kind in "SU" and len({type(value) for value in values}) > 1:
        array = np.empty(len(values), dtype=object)
        array[:] = values
    return array


def _refuse_parts(value: Any, name: str, place: Place | str, expected: list[str]) -> None:
    """Refuse an observation with other parts than the first."""
    kind = "a dict" if isinstance(value, Mapping) else "a tuple of arrays" if isinstance(value, tuple) else "an array"
    wanted = "no parts" if expected == [""] else f"the parts {', '.join(part.strip('_') for part in expected)}"
    raise LogError(
        "wrong_width",
        f"{name} must have {wanted}, as in the first row, but that of {place} is {kind} with other parts. Use one "
        f"environment for a log, or wrap it in gymnasium.wrappers.FlattenObservation.",
        columns=[name],
    )
