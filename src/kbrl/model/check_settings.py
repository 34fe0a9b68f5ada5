"""Settings are checked here, once, before any work is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kbrl.checks import as_generator, in_unit_interval, one_of, positive, whole
from kbrl.model.kernels import Kernel, check_norm, check_profile, check_width
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
