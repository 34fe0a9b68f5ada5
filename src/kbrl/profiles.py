"""Kernel profiles phi with a name, each stated once: log phi(z) - log phi(z_ref), with z a distance in widths.

A profile is a function of two numbers, 0 <= z_ref <= z, without cancellation where both are large.  phi(0) must be 1.
Where phi(z_ref) is 0, only what is as near as z_ref counts.  The name of the function is the name of the profile.
`kbrl.model.compiled` compiles these functions, for the loops and for arrays, so they may use arithmetic, comparisons
and min and max.  This module imports nothing heavy, because `kbrl.settings` takes the names from here.

Paper: phi of appendix B.2.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

RADIUS = 1 + 1e-12  # in widths, where the uniform kernel ends: what is at one width but for rounding is within


def exponential(z: float, z_ref: float) -> float:
    """phi(z) = exp(-z), the paper's."""
    return z_ref - z


def gaussian(z: float, z_ref: float) -> float:
    """phi(z) = exp(-z^2 / 2)."""
    return 0.5 * (z_ref - z) * (z_ref + z)


def uniform(z: float, z_ref: float) -> float:
    """phi(z) = 1 up to z = 1, 0 beyond."""
    return 0.0 if z <= max(RADIUS, z_ref) else -inf


PROFILES: dict[str, Callable[[float, float], float]] = {
    profile.__name__: profile for profile in (exponential, gaussian, uniform)
}
