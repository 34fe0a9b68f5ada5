"""Tile coding: a state as a few active tiles of many overlapping grids, hashed into a fixed memory.

Each tiling is a grid shifted against the others; a state activates one tile of each.  The tiles of all actions share
one memory: tile, tiling and action are hashed to a place in it.  Shifts follow Sutton's CMAC: tiling j is moved by
j (1 + 2 i) / n_tilings tile widths along variable i.  Paper: section 5.2.3, SARSA.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kbrl.arrays import Floats, Integers


@njit(cache=True, nogil=True)
def _mix(x: np.uint64) -> np.uint64:
    """Scramble the bits of a number (the finaliser of splitmix64, Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def fill_tiles(state: Floats, n_tilings: int, memory: int, tiles: Integers) -> None:
    """Fill ``tiles``, (n_actions, n_tilings), with the places of the active tiles of a state in tile widths."""
    for tiling in range(n_tilings):
        key = _mix(np.uint64(tiling + 1))
        for i in range(len(state)):
            fine = int(np.floor(state[i] * n_tilings))  # in n_tilings-ths of a tile
            corner = fine - (fine - tiling * (1 + 2 * i)) % n_tilings
            key = _mix(key ^ (np.uint64(corner + 2**40) * np.uint64(0x9E3779B97F4A7C15)))
        for action in range(len(tiles)):
            tiles[action, tiling] = int(_mix(key + np.uint64(action)) % np.uint64(memory))


@njit(cache=True, nogil=True)
def fill_q(weights: Floats, tiles: Integers, q: Floats) -> None:
    """q[a] = the sum of the weights of the active tiles of action a."""
    for action in range(len(tiles)):
        total = 0.0
        for tiling in range(tiles.shape[1]):
            total += weights[tiles[action, tiling]]
        q[action] = total
