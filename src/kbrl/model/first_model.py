"""The model of no data yet: coordinates, representative states and kernels, from the first transitions seen.

Paper: section 4 (S-bar and the kernels), section 6.2 (their choice, and rescaling).
"""

from __future__ import annotations

from typing import Any

from kbrl.arrays import Floats
from kbrl.checks import as_generator, as_rows
from kbrl.data.exact_sums import Moments
from kbrl.data.scaling import Coordinates, around_centre, scale_of, state_scale
from kbrl.data.state_names import Source, rows_by_name
from kbrl.data.transitions import Transitions
from kbrl.model.basis import Basis
from kbrl.model.kernels import Kernel, check_norm
from kbrl.model.model import Model
from kbrl.model.representatives import choose, distinct_rows
from kbrl.model.sums import new_statistics
from kbrl.settings import Settings


def first_model(settings: Settings, log: Transitions, moments: Moments | None = None) -> Model:
    """Return a model of no data whose scaling, actions and representative states are fixed by these transitions.

    The moments of all states are given where these are only a sample.
    """
    units = coordinates_of(settings, log, moments)
    basis = Basis(
        reps=choose_reps(settings, log, units),
        coordinates=units,
        sample_kernel=Kernel(settings.sample_width, settings.profile, settings.sample_neighbors, settings.norm),
        rep_kernel=Kernel(settings.rep_width, settings.profile, settings.rep_neighbors, settings.norm),
        n_actions=log.n_actions,
        hard=settings.aggregation == "hard",
        discount=None if log.durations is None else float(settings.discount),
    )
    return Model(basis, new_statistics(basis, settings.neighborhoods), settings, log.action_labels, log.source)


def coordinates_of(settings: Settings, log: Transitions, moments: Moments | None = None) -> Coordinates:
    """Return centre and scale of the states; the centre of given representative states is theirs.

    So models with the same representative states and scale add up, whatever their data.
    """
    scale = state_scale(log.states, settings.scaling) if moments is None else scale_of(moments, settings.scaling)
    if not isinstance(settings.reps, str):
        given = given_reps(settings.reps, log.source, log.n_dims)
        return around_centre(scale, Moments(log.n_dims).widen(given))
    return around_centre(scale, moments or Moments(log.n_dims).widen(log.states))


def given_reps(reps: Any, source: Source, n_dims: int | None = None) -> Floats:
    """Return representative states that the user has given, (n_reps, n_dims): a frame is read by name."""
    return as_rows(rows_by_name(reps, source, "reps"), "reps", n_dims=n_dims)


def choose_reps(settings: Settings, log: Transitions, units: Coordinates) -> Floats:
    """Return the representative states, (n_reps, n_dims), in these coordinates: given, or chosen among next states."""
    if not isinstance(settings.reps, str):
        given = given_reps(settings.reps, log.source, log.n_dims)
        return units.of(distinct_rows(given, "reps"))
    n_reps = settings.max_reps if settings.reps == "cover" else settings.n_reps  # a cover is as large as it has to be
    return choose(
        units.of(log.next_states),
        settings.reps,
        n_reps,
        as_generator(settings.random_state),
        cover_distance=settings.cover_distance,
        norm=check_norm(settings.norm),
    )
