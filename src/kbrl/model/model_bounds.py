"""Bounds on the distance of a model's own answers from KBRL's: for which answers, where, and for which models.

Paper: propositions 1, 2 and 4.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kbrl.arrays import Floats
from kbrl.data.scaling import state_scale
from kbrl.data.transitions import Transitions, refuse_allowed
from kbrl.mdp.bounds import Bound
from kbrl.mdp.dynamic_programming import backup
from kbrl.model.kbsf_bounds import bound_kbsf, bound_online, kbsf_matrices
from kbrl.model.kernels import Kernel
from kbrl.model.model import Model
from kbrl.model.nearest_samples import Neighborhoods
from kbrl.model.tied_samples import capacity

SAME_MODEL = 1e-8  # two models that differ by less differ by rounding


def bound_answers(model: Model, log: Transitions) -> Bound:
    """Return how far the model's ``q_values`` can be from KBRL's, for the log that it was fitted to.

    Where answers come from samples it is proposition 2, for any state at all; where they come from representative
    states it is proposition 4, for the next states of the log and nowhere else.  A model that is not what Algorithm 1
    makes of this log is refused.  Takes time n * n * n_reps.
    """
    arguments, q_error = _arguments(model, log), _error_of_rep_q(model)
    if model.settings.variant.q_function == "reps":
        return bound_online(*arguments, q_error)
    found = bound_kbsf(*arguments).times(model.discount, "Q from the samples, at any state")
    extra = model.discount * q_error  # Q from samples takes one step before it looks at Q-bar
    return replace(found, value=found.value + extra, tighter=found.tighter + extra, q_error=found.value + extra)


def bound_rep_values(model: Model, log: Transitions) -> Bound:
    """Return how far max D Q-bar can be from KBRL's values at the next states of the log: proposition 1.

    Its ``q_error`` is proposition 2, for Q from samples anywhere.
    """
    return bound_kbsf(*_arguments(model, log))


def bound_rep_q(model: Model, log: Transitions, q_error: float = 0.0) -> Bound:
    """Return how far Q from the representative states can be from KBRL's, at the next states of the log.

    Proposition 4.  ``q_error`` is how far the present Q-bar may be from optimal, where it was not solved to the end.
    """
    return bound_online(*_arguments(model, log), q_error)


def _error_of_rep_q(model: Model) -> float:
    """Return how far Q-bar can be from the optimal one, by what one more backup changes."""
    mdp, solution = model.mdp, model.solution
    again = backup(mdp, solution.values)
    known = np.isfinite(again)
    change = float(np.abs(again[known] - solution.q[known]).max(initial=0.0))
    return change + mdp.discount * solution.residual / (1 - mdp.discount)


def _arguments(model: Model, log: Transitions) -> tuple[Transitions, Floats, Kernel, Kernel, float]:
    _refuse_what_has_no_bound(model)
    prepared, units, basis = model.prepared(log), model.coordinates, model.basis
    log = prepared.replaced(states=units.of(prepared.states), next_states=units.of(prepared.next_states))
    _check_is_model_of(model, log)
    _check_scale(model, prepared)
    return log, basis.reps, basis.sample_kernel, basis.rep_kernel, model.discount


def _refuse_what_has_no_bound(model: Model) -> None:
    basis, reason = model.basis, ""
    if model.settings.order == 1:
        reason = "lines and plans (order=1) are not averages over samples"
    elif basis.hard:
        reason = "hard aggregation does not approximate KBRL"
    elif basis.sample_kernel.neighbors is not None and model.settings.variant.neighborhoods == "per_chunk":
        reason = "its neighbours were counted in each chunk (neighborhoods='per_chunk'), KBRL's in all data"
    elif model.has_changed:
        reason = "its representative states came or went while it learnt, so that its sums are of several bases"
    elif model.deferral is not None:
        reason = "it defers to current practice, which KBRL does not"
    elif basis.discount is not None:
        reason = "its steps have durations, and the bounds are for one discount"
    elif model.left_out:
        reason = f"it leaves out the actions {list(model.left_out)} (min_cases={model.min_cases}; 1 keeps all)"
    if reason:
        raise ValueError(
            f"The paper's bounds are on the distance of Algorithm 1 from KBRL, and this model has none: {reason}. "
            f"Fit a model in one go with the representative states given (reps=...) to get a bound."
        )


def _check_scale(model: Model, log: Transitions) -> None:
    """Refuse a model whose scale KBRL would not have by the same setting, as after a fit in chunks."""
    refuse_allowed(log, "KBRL, from which a bound is the distance,")
    scaling, own = model.settings.scaling, model.coordinates.scale
    if not isinstance(scaling, str):
        return
    scale = log.source.with_fixed_scales(state_scale(log.states, scaling), scaling)
    if not np.allclose(scale, own, rtol=SAME_MODEL, atol=0):
        raise ValueError(
            f"A bound is on the distance from KBRL, but with scaling={scaling!r} KBRL divides the states of this log "
            f"by {scale.tolist()}, and this model by {own.tolist()}, the scale of the transitions that came first. "
            f"Fit in one go; or fit this model and KBRL with scaling=model.scale_, so that their units are the same."
        )


def _check_is_model_of(model: Model, log: Transitions) -> None:
    """Refuse a scaled log from which Algorithm 1 makes another model than this."""
    basis, mdp = model.basis, model.mdp
    probabilities, rewards = kbsf_matrices(log, basis.reps, basis.sample_kernel, basis.rep_kernel)
    tried = np.array([block is not None for block in probabilities])
    same = bool((mdp.available == tried[:, None]).all())
    same = same and np.abs(rewards - mdp.rewards).max() <= SAME_MODEL * max(1e-300, np.abs(log.rewards).max())
    for action in np.flatnonzero(tried) if same else ():
        own = mdp.stacked[action * basis.n_reps : (action + 1) * basis.n_reps]
        same = same and float(abs(own - probabilities[action]).max()) <= SAME_MODEL
    if not same and isinstance(model.sums, Neighborhoods) and model.sums.is_sampled:
        raise ValueError(
            f"The paper's bounds are on the distance of Algorithm 1 from KBRL, and this model has none: at some "
            f"representative states more different outcomes are equally far away than are kept "
            f"({capacity(model.sums.n_neighbors)}), so that a sample of them stands for all. Fit with "
            f"sample_neighbors=None, or with at least as many as tie, to get a bound."
        )
    if not same:
        raise ValueError(
            f"A bound is of a model and the log that it was fitted to, but Algorithm 1 makes another model of "
            f"these {len(log)} transitions than this one of {model.n_samples}. Pass the log of the fit, all of it."
        )
