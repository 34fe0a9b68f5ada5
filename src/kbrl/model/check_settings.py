"""Settings are checked here, once, before any work is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kbrl.checks import as_generator, check_norm, check_profile, check_width, in_unit_interval, one_of, positive, whole
from kbrl.model.kernels import Kernel
from kbrl.settings import CHOICE, COUNT, FRACTION, POSITIVE, SCALINGS, WAYS, Settings, about_settings

_BY_KIND: dict[str, Callable[[Any, str], Any]] = {COUNT: whole, POSITIVE: positive, FRACTION: in_unit_interval}


def check_settings(settings: Settings) -> None:
    """Refuse settings that are of a wrong kind, or do not go together."""
    for each in about_settings().values():
        value, about = each.of(settings), each.about
        if value is None and about.optional:
            continue
        if about.kind == CHOICE:
            one_of(value, about.choices, each.path)
        elif about.kind in _BY_KIND:
            _BY_KIND[about.kind](value, each.path)
    _check_order(settings)
    check_profile(settings.variant.profile)
    check_norm(settings.variant.norm)
    check_width(settings.rep_width, "rep_width")
    for name, choices in (("reps", WAYS), ("scaling", SCALINGS)):
        if isinstance(getattr(settings, name), str):
            one_of(getattr(settings, name), choices, name)
    if isinstance(settings.random_state, (bool, int, float, str)):
        as_generator(settings.random_state)
    growth_distance(settings)


def growth_distance(settings: Settings) -> float | None:
    """Return how far a state must be from all representative states to become one, in scaled units; None: never."""
    growth = settings.growth
    if growth.distance is None and growth.below is None:
        return None
    if np.ndim(settings.rep_width):
        raise ValueError("A model with one width per representative state cannot grow: new ones have no width.")
    if growth.below is None:
        return positive(growth.distance, "growth.distance")
    if growth.distance is not None:
        raise ValueError("Growth takes growth.distance or growth.below, but not both.")
    return Kernel(settings.rep_width, settings.variant.profile).reach(growth.below)


def _check_order(settings: Settings) -> None:
    """Refuse what models of order 1 cannot do."""
    if isinstance(settings.order, bool) or settings.order not in (0, 1):
        raise ValueError(f"order must be 0 (averages) or 1 (lines and plans), but it is {settings.order!r}.")
    if settings.order == 0:
        return
    wrong = _not_of_lines(settings)
    if wrong:
        listing = ", ".join(f"variant.{name}={value!r}" for name, value in wrong.items())
        raise ValueError(f"order=1 has none of the variants of order 0, but it was given {listing}. Use order=0.")
    if settings.growth.below is not None:
        raise ValueError("order=1 has no kernel to grow by: use growth.distance instead of growth.below.")


def _not_of_lines(settings: Settings) -> dict[str, Any]:
    """Return the variants that models of order 1 do not have."""
    fixed = {"norm": 2, "aggregation": "soft", "q_function": "reps", "neighborhoods": "exact"}
    given = {name: getattr(settings.variant, name) for name in fixed}
    return {name: value for name, value in given.items() if value != fixed[name]}
