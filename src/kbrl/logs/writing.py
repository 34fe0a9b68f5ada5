"""Logs of transitions as files with canonical columns, one row a transition.

episode_id, step, observation_* (or the given names), action, reward, next_observation_*, terminated, truncated.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from kbrl.arrays import Array, Booleans, Integers
from kbrl.data.transitions import Transitions
from kbrl.logs.table_writers import table_writer


def write_log(log: Transitions, path: str | os.PathLike[str], *, names: Sequence[str] | None = None) -> None:
    """Write a log as CSV, Parquet, Arrow or .npz, by the ending of the path; ``names`` are the state variables'."""
    with table_writer(path, "A log") as write:
        write(as_columns(log, names))


def as_columns(log: Transitions, names: Sequence[str] | None = None) -> dict[str, Array]:
    """Return a log as columns by their canonical names; a row without an end that is its episode's last was cut."""
    names = [str(k) for k in range(log.n_dims)] if names is None else list(names)
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
    }


def _within_episodes(episodes: Array) -> tuple[Integers, Booleans]:
    """Return the number of each row within its run of equal episodes, and which rows are the last of theirs."""
    is_first = np.ones(len(episodes), dtype=bool)
    is_first[1:] = episodes[1:] != episodes[:-1]
    starts = np.flatnonzero(is_first)
    steps = np.arange(len(episodes)) - np.repeat(starts, np.diff(np.append(starts, len(episodes))))
    return steps, np.append(is_first[1:], True)
