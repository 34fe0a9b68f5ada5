"""Whether decisions depend on chance, and what to do about it: answers from many representative states.

Another random state chooses other representative states from the same log.  If that changes many decisions, the values
around them are rough, which happens where few rewards are in the log.  To look ahead is then to compare the roughness
at the ends of plans.  Q-bar, mixed from many representative states, averages it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kbrl.choosing.candidates import ONE_STEP, Candidate, lengths_of_plans, unsolved_lines
from kbrl.data.transitions import Transitions
from kbrl.learners.kbsf import KBSF
from kbrl.lines.local_lines import GRAPH
from kbrl.lines.stage import Rehearsal
from kbrl.model.model import Model

LEAST_AGREEMENT = 0.8  # of the states in which another random state must decide alike
_MANY = GRAPH - 1  # representative states that are mixed: as many as are at hand
_OTHER_SEED = 12345


class Steady(NamedTuple):
    """A candidate, its twin of other luck, and how it rehearsed."""

    candidate: Candidate
    twin: Model
    run: Rehearsal


def with_other_luck(model: Model, log: Transitions) -> Model:
    """Return the model of the same log and settings with another random state."""
    return KBSF(**vars(replace(model.settings, random_state=_OTHER_SEED))).fit(log).model_


def agreement(one: Model, other: Model, rows: Transitions) -> float:
    """Return in which share of the states two models decide alike."""
    return float((one.predict(rows.states) == other.predict(rows.states)).mean())


def steady_candidates(kept: Candidate, log: Transitions, learner: KBSF) -> Iterator[tuple[Candidate, Model]]:
    """Yield candidates like the kept one that answer from many representative states, each with a twin of other luck.

    Plans of one step are not among them: they would be mixed from many at every step, which blurs what actions do.
    """
    plan = kept.model.settings.plan
    model = unsolved_lines(log, learner, rep_neighbors=_MANY)
    twin = unsolved_lines(log, learner, rep_neighbors=_MANY, random_state=_OTHER_SEED)
    for decisions, hold in lengths_of_plans(len(model.plans.actions), learner.settings().plan, is_noisy=False):
        if (decisions, hold) != ONE_STEP:
            changed = plan.set_params(decisions=decisions, hold=hold, acting="reps")
            name = f"lines, plans of {decisions} x {hold}, mixed from {_MANY} representative states"
            settings = {"order": 1, "plan": changed, "rep_neighbors": _MANY}
            yield Candidate(name, settings, model.with_settings(plan=changed)), twin.with_settings(plan=changed)


def best_steadier(found: Sequence[Steady], share: float, rows: Transitions) -> tuple[int, float] | None:
    """Return the place of the one that rehearsed best, and its agreement, among those that agree more than this share.

    Decisions of all of them depend less on chance, so that how they rehearse says more.  None: there are none.
    """
    shares = [agreement(each.candidate.model, each.twin, rows) for each in found]
    places = [place for place, own in enumerate(shares) if own > share]
    best = max(places, key=lambda place: found[place].run.mean, default=None)
    return None if best is None else (best, shares[best])
