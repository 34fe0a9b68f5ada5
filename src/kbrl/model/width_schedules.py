"""Widths that shrink as data and representative states grow in number, so that KBSF converges to KBRL and KBRL to the
truth.

Two kinds.  `sample_width_for` and `rep_width_for` are rates: they say how widths change with the numbers, not how large
they are; choose ``width`` so that they are right for the numbers that you have tried.  `rep_width_within` is a
guarantee for one log and one set of representative states: the recipe in the proof of proposition 3, without its
circle.

Paper: section 6.2 ("tau should decrease with n at an admissible rate", "tau-bar should get smaller as m goes to n"),
lemma 2 and proposition 3 (appendix A.2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from kbrl.arrays import Floats
from kbrl.checks import as_rows, positive, whole
from kbrl.data.transitions import Transitions
from kbrl.model.kbsf_bounds import largest_rep_width
from kbrl.model.kernels import Kernel, blocks, distances_between

_BELOW = 1 - 1e-9  # lemma 2 holds below its width, not at it


def sample_width_for(n_samples: int, n_dims: int, *, width: float = 1.0, rate: float | None = None) -> float:
    """Return tau = width * n_samples ** -rate; ``n_samples`` are those of one action.

    A kernel estimate is consistent if tau goes to 0 (no bias) while n tau^d goes to infinity (no variance), that is,
    for any rate between 0 and 1 / d (Stone 1977).  The default, 1 / (d + 4), is the one that balances squared bias and
    variance of a smooth function.
    """
    n_samples, n_dims, width = whole(n_samples, "n_samples"), whole(n_dims, "n_dims"), positive(width, "width")
    rate = 1 / (n_dims + 4) if rate is None else positive(rate, "rate")
    if rate >= 1 / n_dims:
        raise ValueError(
            f"rate must be below 1 / n_dims = {1 / n_dims:g}, but it is {rate!r}: ever fewer samples would be within a "
            f"width. Leave it out for 1 / (n_dims + 4)."
        )
    return float(width * float(n_samples) ** -rate)


def rep_width_for(n_reps: int, n_dims: int, *, width: float = 1.0) -> float:
    """Return tau-bar = width * n_reps ** (-1 / n_dims) / (1 + log n_reps).

    The distance of neighbours among m points in d dimensions goes with m^(-1 / d).  Lemma 2 asks in addition for a
    factor 1 / log(m): there are ever more states that are far away, and their kernel values must not add up.
    """
    n_reps, n_dims, width = whole(n_reps, "n_reps"), whole(n_dims, "n_dims"), positive(width, "width")
    return float(width * float(n_reps) ** (-1 / n_dims) / (1 + np.log(n_reps)))


def rep_width_within(transitions: Transitions, reps: Any, sample_kernel: Kernel, error: float) -> float:
    """Return a tau-bar, the larger the better, for which |P-hat^a - D K^a| and sigma(D) are below ``error``.

    For the profile exp(-z) of the representative states' kernel, and states in scaled units, as in `bound_kbsf`.  The
    row of a next state is wrong by at most the mean, weighted by D, of how far KBRL's row there is from those at the
    representative states.  At the w nearest, that is at most error / 2; the others, where it is at most 2, must have
    less than error / 4 of the weight.  Lemma 2 gives the width for each w, and we take the largest.  Raises a
    ValueError where a next state is too far from all representative states (the proposition's delta), or as far from
    the second as from the nearest.
    """
    error = positive(error, "error")
    reps = as_rows(reps, "reps", n_dims=transitions.n_dims)
    states = transitions.next_states[~transitions.terminals]
    actions = [sample_kernel.at(transitions.states[rows]) for rows in transitions.by_action() if len(rows)]
    of_reps = [_dense(at.weights(reps)) for at in actions]
    width = np.inf
    for rows in blocks(len(states)):
        distances = distances_between(states[rows], reps, sample_kernel.norm)
        rows_of = (_dense(at.weights(states[rows])) for at in actions)
        unlike = np.max([cdist(own, others, "cityblock") for own, others in zip(rows_of, of_reps)], axis=0)
        width = min(width, _widest(distances, unlike, error))
    return width


def _dense(weights: Any) -> Floats:
    return weights if isinstance(weights, np.ndarray) else weights.toarray()


def _widest(distances: Floats, unlike: Floats, error: float) -> float:
    """Return the width for some states; (n_states, n_reps) are distances and how much the rows of KBRL differ."""
    n_reps, order = distances.shape[1], np.argsort(distances, axis=1)
    alike = np.take_along_axis(unlike, order, axis=1) <= error / 2
    n_alike = np.where(alike.all(axis=1), n_reps, np.argmin(alike, axis=1))
    far = np.flatnonzero(n_alike == 0)
    if len(far):
        raise ValueError(
            f"No rep_width makes the model exact to {error:g}: at {len(far)} next states, even the nearest "
            f"representative state is too far away, at up to {distances[far].min(axis=1).max():.3g}. Use more of them."
        )
    widths = np.where(n_alike == n_reps, np.inf, 0.0)
    for w in range(1, n_reps):
        enough = largest_rep_width(distances, w, _odds(error / 4))
        widths = np.where(w <= n_alike, np.maximum(widths, enough), widths)
    if n_reps > 1:
        widths = np.minimum(widths, largest_rep_width(distances, 1, _odds(error)))
    if not widths.all():
        raise ValueError(
            f"No rep_width makes the model exact to {error:g}: {int((widths == 0).sum())} next states are as far from "
            f"the second representative state as from the nearest. Move the representative states."
        )
    return float(widths.min()) * _BELOW


def _odds(share: float) -> float:
    """Return the largest ratio of others to the nearest that leaves the others less than this share."""
    return share / (1 - share) if share < 1 else 1e300
