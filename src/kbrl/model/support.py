"""How many logged cases the value of each action in a state rests on, from the sums alone.

Every value is a weighted mean over logged cases, and Kish's 1 / sum_t w_t^2 is the number of cases that it rests on: n
equal weights make n.  With n[a, i] = (sum_t k)^2 / sum_t k^2 at representative state i, and as squares are convex,

    sum_t w_t^2 <= sum_i kappa-bar_i / n[a, i],  where w_t = sum_i kappa-bar_i kappa_a(rep i, s_t).

Support is the inverse of the right side, and it falls to 0 outside of the data: see docs/decisions/15-support.md.
A model that defers offers an action only where it has enough support.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats
from kbrl.data.transitions import Transitions
from kbrl.lines.moments import LineSums
from kbrl.mdp.deferral import Deferral, doubts, with_now
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.model.kernels import Basis, blocks, nearest_points
from kbrl.model.sample_weights import SampleWeights
from kbrl.model.sums import KernelSums, Statistics
from kbrl.settings import Settings

BLOCK_ENTRIES = 2**21  # of weights, so that memory does not grow with the number of states
NEAR_REPS = 16  # representative states by which the distance to the nearest case is judged
_ROUNDING = 1e-12  # relative rounding of distances, and of scaling a state there and back


def support_by_reps(basis: Basis, sums: Statistics, rows: Floats, *, cases: Floats | None = None) -> Floats:
    """Return the support of each action at scaled states, (n, n_actions), where answers come from representatives.

    ``cases`` are the effective cases of the sums, if they are known already.
    """
    cases = sums.effective_cases() if cases is None else cases
    parts = blocks(len(rows), max(1, BLOCK_ENTRIES // basis.n_reps))
    numbers = [_number(basis.rep_weights.weights(rows[block]), cases) for block in parts]
    return np.concatenate([np.zeros((0, basis.n_actions)), *numbers]) * _inside_by_reps(basis, sums, rows)


def support_by_samples(basis: Basis, log: Transitions, rows: Floats) -> Floats:
    """Return the support at scaled states, (n, n_actions), where answers come from samples: all weights are known."""
    states, support = basis.coordinates.of(log.states), np.zeros((len(rows), basis.n_actions))
    distances = np.full(support.shape, np.inf)
    for action, of_action in enumerate(log.by_action()):
        if len(of_action):
            samples = SampleWeights(basis.sample_kernel, states[of_action])
            for block in blocks(len(rows), max(1, BLOCK_ENTRIES // len(samples))):
                weights = samples.weights(rows[block])
                support[block, action] = 1.0 / np.asarray((weights * weights).sum(axis=1))
            tree, norm = cKDTree(samples.states), basis.sample_kernel.norm
            distances[:, action] = nearest_points(tree, rows, [1], norm)[0][:, 0]
    return support * inside(basis, distances)


def _number(weights: Any, cases: Floats) -> Floats:
    """Return 1 / sum_i weights[t, i] / cases[a, i], (n, n_actions).

    Representative states that know nothing of an action share their weight among the others, as in Q.
    """
    known = cases != 0
    inverse = np.divide(1.0, cases, out=np.zeros_like(cases), where=known)
    mass, total = weights @ known.T.astype(np.float64), weights @ inverse.T
    return np.divide(mass, total, out=np.zeros_like(mass), where=total != 0)


def _inside_by_reps(basis: Basis, sums: Statistics, rows: Floats) -> Floats:
    """Return how far inside the data of each action scaled states are, (n, n_actions), by the sums."""
    near = sums.nearest_distances()
    distances = np.stack([_distances_by_reps(basis, of_action, rows) for of_action in near], axis=1)
    rounding = _ROUNDING * np.abs(rows).max(axis=1, keepdims=True)
    return inside(basis, distances, usual_slack(basis, sums) + rounding)


def usual_slack(basis: Basis, sums: Statistics) -> float:
    """Return by how much distances to cases are usually overstated where only the sums are known."""
    return _usual(sums.nearest_distances().min(axis=0), reach(basis))


def _distances_by_reps(basis: Basis, near: Floats, rows: Floats) -> Floats:
    """Return how far the nearest case of an action can be at most from scaled states, (n,); inf where there is none.

    At most the distance to any representative state plus the distance from there: ``near``, (n_reps,), are its
    distances to them.
    """
    known = np.flatnonzero(np.isfinite(near))
    if not len(known):
        return np.full(len(rows), np.inf)
    tree = basis.rep_weights.tree if len(known) == len(near) else cKDTree(basis.reps[known])
    ranks = [*range(1, min(NEAR_REPS, len(known)) + 1)]
    distances, places = nearest_points(tree, rows, ranks, basis.sample_kernel.norm)
    return np.asarray((distances + near[known[places]]).min(axis=1))


def _usual(near: Floats, length: float) -> float:
    """Return how far a case usually is from a representative state that has one within a length."""
    within = near[near <= length]
    return float(np.median(within)) if len(within) else 0.0


def inside(basis: Basis, distances: Floats, slack: Any = 0.0) -> Floats:
    """Return how far inside the data of each action states are, (n, n_actions), by the distances to its cases.

    A state is within the data if a case of any action is within the `reach`, or a ``slack`` beyond where distances are
    bounds.  The action was taken there if its nearest case is hardly farther: by no more than half the gap between
    representative states, so that it was not only taken at the next one, or by no more than a width.
    """
    to_any = distances.min(axis=1, keepdims=True, initial=np.inf)
    farther = np.subtract(distances, to_any, out=np.full_like(distances, np.inf), where=np.isfinite(distances))
    return np.minimum(fade(to_any, reach(basis) + slack), fade(farther, own_reach(basis)))


def own_reach(basis: Basis) -> float:
    """Return how much farther the nearest case of an action may be than that of any, in scaled units."""
    return max(float(basis.sample_kernel.width), 0.5 * _gap(basis)) * (1 - _ROUNDING)


def reach(basis: Basis) -> float:
    """Return how far from all cases a state may be and still be within the data, in scaled units."""
    return max(float(basis.sample_kernel.width), _gap(basis))


def _gap(basis: Basis) -> float:
    """Return the gap between neighbouring representative states: the upper quartile, which no outlier stretches."""
    if basis.n_reps == 1:
        return 0.0
    gaps = nearest_points(basis.rep_weights.tree, basis.reps, [2], basis.sample_kernel.norm)[0]
    return float(np.quantile(gaps, 0.75))


def fade(distances: Floats, length: Any) -> Floats:
    """Return 1 up to a length, and less beyond it: 0 from twice the length."""
    return np.clip(2.0 - distances / length, 0.0, 1.0)


def deferring_mdp(
    basis: Basis,
    sums: KernelSums,
    rule: Deferral,
    often_taken: Booleans,
    discount: float,
    allowed: Booleans | None = None,
) -> FiniteMDP:
    """Return the reduced MDP with one more action, the last: as now.

    ``allowed`` are the pairs of actions and representative states that rules allow, (n_actions, n_reps); None: all.
    """
    mdp, behaviour = sums.to_mdp(discount), sums.behaviour()
    support = support_by_reps(basis, sums, basis.reps).T
    doubt = doubts(mdp, behaviour, sums.reward_spread(), sums.effective_cases(), rule.caution)
    offered = often_taken[:, None] & (support >= rule.cases) & np.isfinite(doubt)
    return with_now(mdp, behaviour, doubt, offered if allowed is None else offered & allowed)


def check_can_defer(sums: Statistics, settings: Settings, caution: float) -> None:
    """Refuse a model that does not know how often each action is taken now, or how rewards spread."""
    if isinstance(sums, LineSums):
        return
    is_truncated = isinstance(sums, KernelSums) and sums.basis.sample_kernel.neighbors is not None
    if settings.variant.q_function == "samples" or not isinstance(sums, KernelSums) or is_truncated:
        raise ValueError(
            "Only a model with sums over all cases knows how often each action is taken now. Fit without "
            "sample_neighbors and with Variant(q_function='reps') to defer, or with order=1."
        )
    if np.isnan(sums.effective_cases()).any():
        raise ValueError(
            "This model comes from an older file, which does not say how many cases there were. Fit it again."
        )
    if caution and not np.isfinite(sums.reward_spread()).all():
        raise ValueError(
            "This model does not know how rewards spread: it comes from an older file, or rewards are too large "
            "for their squares. Fit it again, or defer with caution=0."
        )
