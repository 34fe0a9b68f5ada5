"""A model of no data: its coordinates, representative states and kernels come from the first transitions.

Paper: section 4 (S-bar and the kernels), section 6.2 (their choice, and rescaling).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Floats
from kbrl.checks import as_generator, as_rows, check_norm
from kbrl.data.names import Source, rows_by_name
from kbrl.data.scaling import Coordinates, Moments, around_centre, scale_of, state_scale
from kbrl.data.transitions import Transitions
from kbrl.lines.circles import find_circles
from kbrl.lines.plans import NEAR
from kbrl.model.kernels import Basis, Kernel
from kbrl.model.model import Model
from kbrl.model.representatives import choose, distinct_rows
from kbrl.model.sums import new_statistics
from kbrl.settings import Settings


def first_model(settings: Settings, log: Transitions, moments: Moments | None = None) -> Model:
    """Return a model of no data whose scaling, actions and representative states are fixed by these transitions.

    The moments of all states are given where these are only a sample.
    """
    basis = basis_for(settings, log, moments)
    sums = new_statistics(basis, settings.variant.neighborhoods, settings.order)
    return Model(basis, sums, settings, log.action_labels, log.source)


def basis_for(settings: Settings, log: Transitions, moments: Moments | None = None) -> Basis:
    """Return the basis whose coordinates and representative states come from these transitions.

    Representative states are given by the user, or chosen among the next states.  Where they are given, the centre is
    theirs: so models with the same ones and the same scale add up, whatever their data.
    """
    source = log.source
    given = None if isinstance(settings.reps, str) else given_reps(settings.reps, source, log.n_dims)
    scale = state_scale(log.states, settings.scaling) if moments is None else scale_of(moments, settings.scaling)
    if source.recipe is not None:
        scale = source.recipe.with_fixed_scales(scale, settings.scaling)
    if moments is None or given is not None:
        moments = Moments(log.n_dims).widen(log.states if given is None else given)
    units = around_centre(scale, moments)
    if given is None:
        growth, is_cover = settings.growth, settings.reps == "cover"
        reps = choose(
            units.of(log.next_states),
            settings.reps,
            growth.max_reps if is_cover else settings.n_reps,  # a cover is as large as it has to be
            as_generator(settings.random_state),
            cover_distance=growth.cover_distance,
            norm=check_norm(settings.variant.norm),
        )
    else:
        reps = units.of(distinct_rows(given, "reps"))
    if settings.order == 1:
        return _basis_of_lines(settings, log, units, reps)
    variant = settings.variant
    return Basis(
        reps=reps,
        coordinates=units,
        sample_kernel=Kernel(settings.sample_width, variant.profile, settings.sample_neighbors, variant.norm),
        rep_kernel=Kernel(settings.rep_width, variant.profile, settings.rep_neighbors, variant.norm),
        n_actions=log.n_actions,
        hard=variant.aggregation == "hard",
        discount=None if log.durations is None else float(settings.discount),
    )


def _basis_of_lines(settings: Settings, log: Transitions, units: Coordinates, reps: Floats) -> Basis:
    """Return the basis of order 1, where widths follow the spacing of the representative states."""
    recipe = log.source.recipe
    gap = float(np.median(cKDTree(reps).query(reps, k=[2])[0])) if len(reps) > 1 else 1.0
    return Basis(
        reps=reps,
        coordinates=units,
        sample_kernel=Kernel(gap),
        rep_kernel=Kernel(gap, neighbors=settings.rep_neighbors or NEAR),
        n_actions=log.n_actions,
        discount=None if log.durations is None else float(settings.discount),
        circles=find_circles(log.states, units, () if recipe is None else recipe.circle_places()),
    )


def given_reps(reps: Any, source: Source, n_dims: int | None = None) -> Floats:
    """Return representative states that the user has given, (n_reps, n_dims): a frame is read by name."""
    return as_rows(rows_by_name(reps, source, "reps"), "reps", n_dims=n_dims)
