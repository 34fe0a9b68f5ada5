"""Ridge regression from covariances, many at once, with the ridge that the noise of the data asks for."""

from __future__ import annotations

import numpy as np

from kbrl.arrays import Floats

RANK = 1e-9  # directions in which states vary by less, relative to the widest, have no slope


def slopes(of_x: Floats, mixed: Floats, of_z: Floats, mass: Floats, ridge: float | None) -> Floats:
    """Return the slopes, (..., n_dims, n_targets), of a ridge regression, in the principal directions of x.

    The ridge of Hoerl, Kennard and Baldwin is the number of directions times the variance of the noise, over the size
    of the least-squares slopes; without enough cases to tell the noise there are no slopes.
    """
    sizes, directions = np.linalg.eigh(of_x)
    used = sizes > RANK * sizes[..., -1:]
    sizes = np.where(used, sizes, 1.0)
    along = np.where(used[..., None], directions.swapaxes(-1, -2) @ mixed, 0.0)
    plain = along / sizes[..., None]
    if ridge is not None:
        return directions @ (along / (sizes + ridge)[..., None]) if np.isfinite(ridge) else np.zeros_like(plain)
    rank = used.sum(axis=-1)
    free = mass - rank - 1
    noise = np.maximum(of_z - (plain * along).sum(axis=-2), 0.0)
    noise = np.where(noise > 1e-14 * of_z, noise, 0.0)  # rounding: on a line
    mean_size = np.where(used, sizes, 0.0).sum(axis=-1) / np.maximum(rank, 1)
    strength = (plain**2).sum(axis=-2) * np.maximum(free, 1.0)[..., None]
    penalty = np.divide(rank[..., None] * noise, strength, out=np.zeros_like(noise), where=strength > 0)
    most = 1e6 * np.maximum(mean_size, 1e-300)[..., None]  # a larger ridge leaves no slope, and might overflow
    shrunk = along / (sizes[..., None] + np.minimum(penalty, most)[..., None, :])
    return directions @ np.where((free > 0)[..., None, None], shrunk, 0.0)
