"""Rollouts of Gymnasium environments, as a program holds them: a list of episodes, or a list of steps.

An episode has observations (one more than actions), actions, rewards, terminations and truncations, as keys or as
attributes: the form of Minari's EpisodeData.  A step is what a loop round env.step has at hand:
(observation, action, reward, next_observation, terminated, truncated).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kbrl.arrays import Array
from kbrl.logs.cell_values import Batch, Kind, as_array, from_array
from kbrl.logs.faults import PLACE, LogError
from kbrl.logs.frames import FrameTable
from kbrl.logs.minari import episode_columns, flattened
from kbrl.logs.places import Place

STEP = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
_EPISODE = ("observations", "actions", "rewards", "terminations", "truncations")
FORMS = (
    "a list of episodes, each with observations, actions, rewards, terminations and truncations, or a list of steps "
    "(observation, action, reward, next_observation, terminated, truncated)"
)


class EpisodesTable:
    """Episodes in memory; one at a time is made a table."""

    is_text = False

    def __init__(self, episodes: Sequence[Any]) -> None:
        self._episodes = episodes
        self.names = tuple(self._columns(0))

    def batches(self, kinds: Mapping[str, Kind], n_rows: int) -> Iterator[Batch]:
        """Yield the rows of one episode after the other, at most ``n_rows`` at a time."""
        for place in range(len(self._episodes)):
            columns = self._columns(place)
            missing = [name for name in kinds if name not in columns]
            if missing:
                raise LogError("missing_column", f"Episode {place} lacks {', '.join(missing)}.", columns=missing)
            yield from FrameTable(columns).batches(kinds, n_rows)

    def _columns(self, place: int) -> dict[str, Array]:
        episode = self._episodes[place]
        fields = {name: _field(episode, name) for name in _EPISODE if _field(episode, name) is not None}
        arrays = {name: flattened(_as_array(values, name, f"episode {place}")) for name, values in fields.items()}
        return episode_columns(place, arrays)


class StepsTable:
    """Steps in memory, one tuple each."""

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
    """Return the table of a list of episodes or of steps, told by its first entry; None if it is neither."""
    if isinstance(source[0], (tuple, list)):
        return StepsTable(source)
    return EpisodesTable(source) if _field(source[0], "observations") is not None else None


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
    """Return an array; a list of words and numbers is not turned into words, so that its faults can be seen."""
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
