"""Tile coding: a state as a few active tiles of many overlapping grids, hashed into a fixed memory.

Each tiling is a grid shifted against the others; a state activates one tile of each.  Tile and tiling are hashed to a
block of the memory that holds one weight per action, side by side.  Shifts follow Sutton's CMAC: tiling j is moved by
j (1 + 2 i) / n_tilings tile widths along variable i.  Paper: section 5.2.3, SARSA.
"""

from __future__ import annotations

import numpy as np

from kbrl.arrays import Floats, Integers
from kbrl.numba_cache import njit


@njit(cache=True, nogil=True)
def _mix(x: np.uint64) -> np.uint64:
    """Scramble the bits of a number (the finaliser of splitmix64, Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def fill_tiles(state: Floats, n_blocks: int, tiles: Integers) -> None:
    """Fill ``tiles``, (n_tilings,), with the blocks of the active tiles of a state, which is given in tile widths."""
    n_tilings = len(tiles)
    for tiling in range(n_tilings):
        key = _mix(np.uint64(tiling + 1))
        for i in range(len(state)):
            fine = int(np.floor(state[i] * n_tilings))  # in n_tilings-ths of a tile
            corner = fine - (fine - tiling * (1 + 2 * i)) % n_tilings
            key = _mix(key ^ (np.uint64(corner + 2**40) * np.uint64(0x9E3779B97F4A7C15)))
        tiles[tiling] = int(key % np.uint64(n_blocks))


@njit(cache=True, nogil=True)
def fill_q(weights: Floats, tiles: Integers, q: Floats) -> None:
    """q[a] = the sum of the weights, (n_blocks, n_actions), of action a in the active tiles."""
    q[:] = 0.0
    for tiling in range(len(tiles)):
        block = weights[tiles[tiling]]
        for action in range(len(q)):
            q[action] += block[action]
