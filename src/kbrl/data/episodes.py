"""Which episode each row belongs to, by a hash of its identifier.

The hash decides to which part of a split and to which block an episode belongs, whatever the order of the rows, the
files or the machines.  Identifiers 7, 7.0 and "7" have the same hash, because files differ in type.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbrl.arrays import Booleans, Integers
from kbrl.data.sketch import Hashes, hashes_of_runs, row_hashes
from kbrl.data.transitions import Transitions


def episode_hashes(log: Transitions) -> Hashes:
    """Return the hash of the episode of each row, (n,); refuse a log that does not tell episodes apart."""
    if log.episodes is None:
        raise ValueError(
            "Episodes must be told apart, but this log has none. Name the column that identifies them (--episode, or "
            "columns={'episode': ...}), or pass Transitions(..., episodes=[...])."
        )
    hashes, lengths = hashes_of_runs(log.episodes)
    return np.repeat(hashes, lengths)


@dataclass(frozen=True)
class EpisodePart:
    """About a share of the episodes, by their hashes, or with ``is_rest`` the others; another seed draws other ones."""

    share: float
    random_state: int = 0
    is_rest: bool = False

    def rows(self, log: Transitions) -> Booleans:
        """Return which rows belong to it, (n,)."""
        hashes = episode_hashes(log)
        numbers = (hashes >> np.uint64(11)).astype(np.float64)  # all of their bits
        mixed = row_hashes([numbers, np.full(len(hashes), float(self.random_state))])
        is_in = mixed < np.uint64(min(int(self.share * 2.0**64), 2**64 - 1))
        return np.asarray(is_in != self.is_rest)


def block_of(hashes: Hashes, n_blocks: int) -> Integers:
    """Return the block of each episode, (n,), from 0 to n_blocks - 1."""
    return ((hashes >> np.uint64(32)) % np.uint64(n_blocks)).astype(np.intp)
