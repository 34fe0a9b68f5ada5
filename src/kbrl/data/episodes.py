"""Which episode each row belongs to, by a hash of its identifier.

The hash decides to which part of a split and to which block an episode belongs, whatever the order of the rows, the
files or the machines.  Identifiers 7, 7.0 and "7" have the same hash, because files differ in type.
"""

from __future__ import annotations

import numpy as np

from kbrl.arrays import Booleans, Integers
from kbrl.data.row_hashes import Hashes, row_hashes
from kbrl.data.sketch import hashes_of_runs
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


def is_below(hashes: Hashes, share: float, random_state: int) -> Booleans:
    """Return which episodes are among a share of all, (n,), by their hashes; another seed draws other ones."""
    mixed = row_hashes([(hashes >> np.uint64(11)).astype(np.float64), np.full(len(hashes), float(random_state))])
    return np.asarray(mixed < np.uint64(min(int(share * 2.0**64), 2**64 - 1)))


def block_of(hashes: Hashes, n_blocks: int) -> Integers:
    """Return the block of each episode, (n,), from 0 to n_blocks - 1."""
    return ((hashes >> np.uint64(32)) % np.uint64(n_blocks)).astype(np.intp)
