"""How the variables of a state are brought to a common magnitude before distances are taken.

The paper advises it (section 6.2), and its results on poles and puddles come out only with it.  The scale
belongs to the model: it is taken from the first data seen and frozen.  It comes from exact sums, so that neither the
order of the data nor their split into chunks changes a bit of it.
"""

from typing import Any

import numpy as np

from kbrl.arrays import Floats
from kbrl.checks import as_floats, one_of
from kbrl.data.moments import Moments

# A variable that moves by no more than this fraction of its size moves by rounding: it is constant.
_ROUNDING = 16 * float(np.finfo(np.float64).eps)


def state_scale(states: Floats, scaling: Any) -> Floats:
    """Return what each state variable is divided by, (n_dims,): "std", "range", None, or given by the user."""
    moments = Moments(states.shape[1])
    if isinstance(scaling, str) and scaling == "std":
        moments.accumulate(states)
    elif isinstance(scaling, str):
        moments.widen(states)
    return scale_of(moments, scaling)


def scale_of(moments: Moments, scaling: Any) -> Floats:
    """Return the same from the moments of the states."""
    if scaling is None:
        return np.ones(moments.n_dims)
    if isinstance(scaling, str):
        one_of(scaling, ("std", "range"), "scaling")
        return _spread(moments, scaling)
    return _given(scaling, moments.n_dims)


def _spread(moments: Moments, scaling: str) -> Floats:
    """Measure each variable's spread; one that never changes is left as it is."""
    spread = moments.largest - moments.smallest
    moves = spread > _ROUNDING * moments.largest_size
    return np.where(moves, moments.std() if scaling == "std" else spread, 1.0)


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
