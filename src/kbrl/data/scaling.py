"""How the variables of a state are brought to a common magnitude before distances are taken.

The paper advises it (section 6.2), and its results on poles and puddles come out only with it.  The scale
belongs to the model: it is taken from the first data seen and frozen.
"""

from typing import Any

import numpy as np

from kbrl.arrays import Floats
from kbrl.checks import as_floats, one_of

# A spread smaller than this fraction of a variable's size is rounding, not information.
_NEGLIGIBLE = 1e-13


def state_scale(states: Floats, scaling: Any) -> Floats:
    """Return what each state variable is divided by, (n_dims,): "std", "range", None, or given by the user."""
    if scaling is None:
        return np.ones(states.shape[1])
    if isinstance(scaling, str):
        one_of(scaling, ("std", "range"), "scaling")
        return _spread(states, np.std if scaling == "std" else np.ptp)
    return _given(scaling, states.shape[1])


def _spread(states: Floats, measure: Any) -> Floats:
    """Measure each variable's spread; one that never changes is left as it is."""
    size = np.abs(states).max(axis=0)
    size[size == 0] = 1.0
    spread = measure(states / size, axis=0)  # in units of the size, so that no square overflows
    return np.where(spread > _NEGLIGIBLE, spread * size, 1.0)


def _given(scaling: Any, n_dims: int) -> Floats:
    scale = as_floats(scaling, "scaling")
    if scale.shape != (n_dims,):
        raise ValueError(
            f"scaling must be 'std', 'range', None or one number for each of the {n_dims} state variables, "
            f"but its shape is {scale.shape}."
        )
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ValueError(f"scaling must be finite numbers above 0, but it is {scale.tolist()}.")
    return scale.copy()
