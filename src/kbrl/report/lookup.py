"""What the page needs to answer for a state as the model does, in compact form.

These are the representative states, their values and their numbers of cases, as 32-bit numbers in base64.  The script
of the page, page.js, computes from them what `Model.q_values`, `coverage` and `agreement` compute.  A model of order 1
looks ahead from the state itself, which the page does not: it mixes the values of plans at the representative states,
and says how often that gave the same answer in logged states.  No action, reward or identifier of a logged case is in
the data, unless cases are asked for.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats
from kbrl.data.transitions import Transitions
from kbrl.mdp.dynamic_programming import best_actions
from kbrl.model.model import Model
from kbrl.model.nearest_samples import Neighborhoods
from kbrl.model.support import NEAR_REPS, own_reach, reach, usual_slack

MOST_LETTERS = 120_000  # of a page that has 200 kB without its pictures
MOST_CASES = 400
MOST_COMPARED = 1000  # logged states in which a model that looks ahead is compared with the page
_LARGEST = 1e300  # JSON has no infinity
FROM_THE_LOG = ("random", "farthest", "cover", "mixture")  # ways to choose representative states among logged ones


@dataclass(frozen=True)
class LookUp:
    """The data of the look-up as JSON, or why there is none."""

    data: str | None
    reason: str = ""
    knows_agreement: bool = False
    mixing: Mixing | None = None  # of a model that looks ahead


@dataclass(frozen=True)
class Mixing:
    """How mixing the values at the representative states compares with looking ahead, in logged states."""

    n_states: int
    share: float  # of these states with the same answer
    margin: float  # where the best answer is better by more, all of them had the same answer


def look_up(
    model: Model,
    names: Sequence[str],
    labels: Sequence[str],
    cases: Transitions | None,
    states: Floats | None = None,
) -> LookUp:
    """Return the data behind the look-up of a page; ``cases`` are logged rows that it may show, None: it shows none.

    ``states`` are logged ones, (n, n_dims), in which a model that looks ahead is compared with what the page does.
    """
    reason = _reason(model, cases is not None)
    if reason:
        return LookUp(None, reason)
    if model.look_ahead is not None:
        return _mixed_look_up(model, names, labels, cases, model.reps if states is None else states)
    facts = _facts(model) | {"names": list(names), "labels": list(labels)}
    if cases is not None:
        facts["logged"] = _logged(model, cases)
    knows_agreement = model.resamples is not None
    if model.resamples is not None:
        with_agreement = _written(facts | {"resamples": _packed(_offered(model, model.resamples))})
        if len(with_agreement) <= MOST_LETTERS:
            return LookUp(with_agreement, knows_agreement=True)
        knows_agreement = False
    text = _written(facts)
    if len(text) > MOST_LETTERS:
        return LookUp(None, f"its {model.basis.n_reps:,} representative states need more room than a small page has")
    return LookUp(text, knows_agreement=knows_agreement)


def _mixed_look_up(
    model: Model, names: Sequence[str], labels: Sequence[str], cases: Transitions | None, states: Floats
) -> LookUp:
    """Return the look-up of a model that looks ahead, with how far mixing can be relied on."""
    plan = model.settings.plan.set_params(acting="reps")
    at_reps = replace(model, settings=replace(model.settings, plan=plan), resamples=None)
    found = look_up(at_reps, names, labels, cases)
    if found.data is None:
        return found
    mixing = _compared(model, at_reps, states)
    data = json.loads(found.data) | {"margin": mixing.margin}
    return LookUp(_written(data), mixing=mixing)


def _compared(model: Model, at_reps: Model, states: Floats) -> Mixing:
    rows = model.scaled(states[np.unique(np.linspace(0, len(states) - 1, min(len(states), MOST_COMPARED)).astype(int))])
    q, own = at_reps.q_function(rows), best_actions(model.q_function(rows))
    differs = best_actions(q) != own
    ranked = np.sort(np.where(np.isfinite(q), q, -_LARGEST), axis=1)
    gaps = ranked[:, -1] - ranked[:, -2] if q.shape[1] > 1 else np.full(len(q), _LARGEST)
    return Mixing(len(rows), float(1.0 - differs.mean()), float(gaps[differs].max(initial=0.0)))


def what_it_keeps(model: Model) -> list[str]:
    """Return what a model keeps of the log row by row; nothing, with the usual settings."""
    kept = []
    if model.samples:
        kept.append("all transitions that it learnt from (q_function='samples')")
    if isinstance(model.sums, Neighborhoods):
        kept.append("next states and rewards of the cases nearest to each representative state (sample_neighbors)")
    if _are_logged(model) or model.settings.growth.distance or model.settings.growth.below:
        kept.append("logged states as its representative states")
    return kept


def _are_logged(model: Model) -> bool:
    """Whether the representative states are logged states themselves, not means of them."""
    reps = model.settings.reps
    return isinstance(reps, str) and reps in FROM_THE_LOG


def _reason(model: Model, with_cases: bool) -> str:
    """Return why a page cannot look up cases; an empty text if it can."""
    if model.settings.variant.q_function == "samples":
        return "its answers come from all logged cases, which are not in this page"
    if model.allowed is not None:
        return "it has rules for where actions are allowed, which this page does not apply"
    if callable(model.basis.sample_kernel.profile):
        return "its kernel is the user's own function"
    if _are_logged(model) and not with_cases:
        return "its representative states are logged states, which are not in this page without --with-cases"
    return ""


def _facts(model: Model) -> dict[str, Any]:
    basis, kernel, sums = model.basis, model.basis.rep_weights.kernel, model.sums
    q = model.answer_q
    cases = sums.effective_cases()
    knows_support = bool(np.isfinite(cases).all())
    return {
        "n": [basis.n_reps, model.coordinates.n_dims, len(model.action_labels)],
        "centre": model.coordinates.centre.tolist(),
        "scale": model.coordinates.scale.tolist(),
        "profile": kernel.profile,
        "norm": kernel.norm if np.isfinite(kernel.norm) else 0,
        "sampleNorm": basis.sample_kernel.norm if np.isfinite(basis.sample_kernel.norm) else 0,
        "neighbors": kernel.neighbors,
        "widths": _packed(np.broadcast_to(np.asarray(kernel.width, dtype=np.float64), basis.n_reps)),
        "reps": _packed(basis.reps),
        "q": _packed(_offered(model, q[None])),
        "cases": _packed(cases) if knows_support else None,
        "near": _packed(sums.nearest_distances()) if knows_support else None,
        "reach": reach(basis) + usual_slack(basis, sums) if knows_support else None,
        "ownReach": own_reach(basis),
        "nearReps": NEAR_REPS,
        "margin": None,
        "least": None if model.deferral is None else model.deferral.cases,
    }


def _offered(model: Model, q: Array) -> Array:
    """Return values at the representative states, (k, n_answers, n_reps); what is not offered there is "as now"."""
    filled = q if model.deferral is None else np.where(np.isfinite(q), q, q[:, :, -1:])
    return filled.transpose(0, 2, 1)


def _logged(model: Model, cases: Transitions) -> dict[str, Any]:
    """Return some logged rows, evenly spread over the sample."""
    rows = cases[np.unique(np.linspace(0, len(cases) - 1, min(MOST_CASES, len(cases))).astype(np.intp))]
    episodes = [None] * len(rows) if rows.episodes is None else [str(each) for each in rows.episodes.tolist()]
    return {
        "states": _packed(model.coordinates.of(rows.states)),
        "actions": rows.action_indices.tolist(),
        "rewards": [float(f"{reward:.4g}") for reward in rows.rewards.tolist()],
        "episodes": episodes,
    }


def _packed(array: Array) -> str:
    """Return numbers as 32-bit floats in base64; what is larger than these is infinite."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.ascontiguousarray(array, dtype="<f4").tobytes()).decode("ascii")


def _written(facts: dict[str, Any]) -> str:
    """Return JSON that cannot end the element of the page that it is in."""
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e")
