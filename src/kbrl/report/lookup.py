"""What the page needs to answer for a state as the model does, in few letters.

These are the representative states, their values and their numbers of cases, as 32-bit numbers in base64.  The script
of the page, page.js, computes from them what `Model.q_values`, `coverage` and `agreement` compute.  No action, reward
or identifier of a logged case is in them, unless cases are asked for.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbrl.arrays import Array
from kbrl.data.transitions import Transitions
from kbrl.model.model import Model
from kbrl.model.nearest_samples import Neighborhoods
from kbrl.model.support import NEAR_REPS, own_reach, reach, usual_slack

MOST_LETTERS = 120_000  # of a page that has 200 kB without its pictures
MOST_CASES = 400
FROM_THE_LOG = ("random", "farthest", "cover", "mixture")  # ways to choose representative states among logged ones


@dataclass(frozen=True)
class LookUp:
    """The data of the look-up as JSON, or why there is none."""

    data: str | None
    reason: str = ""
    knows_agreement: bool = False


def look_up(model: Model, names: Sequence[str], labels: Sequence[str], cases: Transitions | None) -> LookUp:
    """Return the data behind the look-up of a page; ``cases`` are logged rows that it may show, None: it shows none."""
    reason = _reason(model, cases is not None)
    if reason:
        return LookUp(None, reason)
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


def what_it_keeps(model: Model) -> list[str]:
    """Say what of the log a model holds row by row; nothing, for the usual settings."""
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
    """Say why a page cannot look up cases; nothing if it can."""
    if model.settings.variant.q_function == "samples":
        return "its answers come from all logged cases, which are not in this page"
    if model.settings.order == 1:
        return "its answers look ahead from the state at hand (order 1)"
    if callable(model.basis.sample_kernel.profile):
        return "its kernel is a function of the user's own"
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
