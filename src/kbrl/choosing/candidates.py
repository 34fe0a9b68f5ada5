"""What is tried in rehearsal: lines with plans of several lengths, plans that begin as people do, and averages.

The first candidate is the one to beat: plans of the usual length, or of one step where the noise of a step is larger
than the gap between representative states.  If people's decisions depend on the state, by the likelihood of
held-out decisions, its plans begin as people do: an action that nobody took may look good only because little is known
of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kbrl.arrays import Floats
from kbrl.choosing.hyperparameters import choose_widths
from kbrl.data.transitions import Transitions
from kbrl.learners.kbsf import KBSF
from kbrl.learners.learner import clone
from kbrl.lines.plans import MOST_PLANS, plan_length, world_of
from kbrl.lines.step_loops import shares_of_actions
from kbrl.model.model import Model, first_model
from kbrl.settings import FEW_CASES, Plan, checked

USUAL = 0.3  # times as often as the usual action: what may begin a plan
AS_PEOPLE = "as people usually do"
_MOST_USUAL = 0.99  # times as often: only the usual action itself
ONE_STEP = (1, 1)
_LENGTHS = ((1, 1), (2, 2), (2, 4), (3, 2), (3, 4))  # decisions, and the steps that each is held
_ROWS_PER_REP, _FEWEST, _MOST = 15, 50, 2000
_MOST_AVERAGES = 300  # representative states of candidates of order 0
_WIDER = (1.0, 3.0)  # times the widths that predict best
_JUDGED, _BLOCKS = 1000, 32  # held-out decisions, and blocks of them for the standard error
_LEAST_SHARE = 0.01  # that anything is expected with: a decision that was thought impossible must not decide alone


class Candidate(NamedTuple):
    """A model that may be chosen, and the settings that make it."""

    name: str
    settings: dict[str, Any]
    model: Model
    widen: float = 1.0  # of order 0: what the widths that predict best are multiplied by

    @property
    def is_lines(self) -> bool:
        """Whether it has lines and plans."""
        return bool(self.settings["order"] == 1)


def candidates(log: Transitions, held: Transitions, learner: KBSF, orders: tuple[int, ...]) -> Iterator[Candidate]:
    """Yield what is tried, learnt from one half of the episodes; the first is the one to beat."""
    if 1 in orders:
        yield from _lines(log, held, learner)
    if 0 in orders:
        yield from _averages(log, learner)


def n_reps_for_lines(n_rows: int) -> int:
    """Return the number of representative states of order 1 for this many rows."""
    return int(np.clip(n_rows // _ROWS_PER_REP, min(_FEWEST, max(1, n_rows)), _MOST))


def unsolved_lines(log: Transitions, learner: KBSF, **changes: Any) -> Model:
    """Return a model of order 1 that has learnt the log.  It is solved at the first question, if there is one."""
    options = {"order": 1, "n_reps": n_reps_for_lines(len(log))} | changes
    settings = checked(clone(learner).set_params(**options), min_cases=FEW_CASES)
    return first_model(settings, log).extend(log, n_jobs=settings.n_jobs)


def _lines(log: Transitions, held: Transitions, learner: KBSF) -> Iterator[Candidate]:
    plan = learner.settings().plan
    model = unsolved_lines(log, learner)
    n_actions = len(model.plans.actions)
    lengths = lengths_of_plans(n_actions, plan, is_noisy=model.lines.is_noise_beyond_gaps)
    is_free = plan.usual is None and gain_of_behaviour(model, held) > 0
    for usual in (USUAL, None) if is_free else (plan.usual,):
        for decisions, hold in lengths:
            changed = plan.set_params(decisions=decisions, hold=hold, usual=usual)
            name = f"lines, plans of {decisions} x {hold}" + (" that begin as people do" if is_free and usual else "")
            yield Candidate(name, {"order": 1, "plan": changed}, model.with_settings(plan=changed))
    if is_free:
        copied = plan.set_params(decisions=1, hold=1, usual=_MOST_USUAL)
        yield Candidate(AS_PEOPLE, {"order": 1, "plan": copied}, model.with_settings(plan=copied))


def lengths_of_plans(n_actions: int, plan: Plan, *, is_noisy: bool) -> list[tuple[int, int]]:
    """Return the lengths of plans to try, the one to beat first; only the usual one where the user has given one."""
    usual = plan_length(n_actions, plan.decisions, plan.hold)
    if plan.decisions is not None or plan.hold is not None:
        return [usual]
    first = ONE_STEP if is_noisy else usual
    others = sorted({usual, *_LENGTHS} - {first}, key=lambda length: (length != usual, length))
    return [first, *(length for length in others if n_actions ** length[0] <= MOST_PLANS)]


def gain_of_behaviour(model: Model, held: Transitions) -> float:
    """Return by how much lines of behaviour predict held-out decisions better than their overall shares do.

    It is the mean gain in log-likelihood, less two standard errors: above 0, what people did depends on the state.
    """
    rows = held[np.linspace(0, len(held) - 1, min(len(held), _JUDGED)).astype(np.intp)]
    rows = rows.with_actions(model.action_labels)
    world = world_of(model.lines, model.surface, usual=USUAL)
    states = model.scaled(rows.states)
    here = shares_of_actions(states, world.cells(states), world)
    counts = model.sums.counts
    overall = counts / counts.sum()
    taken = rows.action_indices
    gains = np.log(_expected(here)[np.arange(len(rows)), taken]) - np.log(_expected(overall[None])[0, taken])
    blocks = np.array([block.mean() for block in np.array_split(gains, _BLOCKS) if len(block)])
    error = float(blocks.std(ddof=1) / np.sqrt(len(blocks))) if len(blocks) > 1 else np.inf
    return float(gains.mean()) - 2 * error


def _expected(shares: Floats) -> Floats:
    """Return shares as probabilities, (n, n_actions), none of them zero."""
    result: Floats = np.maximum(shares, 0.0) + _LEAST_SHARE
    return result / result.sum(axis=1, keepdims=True)


def _averages(log: Transitions, learner: KBSF) -> Iterator[Candidate]:
    n_reps = min(_MOST_AVERAGES, max(1, len(log) // 10))
    base = clone(learner).set_params(order=0, n_reps=n_reps, reps=KBSF().reps)
    widths = choose_widths(log, base)
    for widen in _WIDER:
        settings = {"sample_width": widen * widths.sample_width, "rep_width": widen * widths.rep_width}
        name = "averages" + (f", widths times {widen:g}" if widen != 1 else "")
        yield Candidate(name, {"order": 0}, clone(base).set_params(**settings).fit(log).model_, widen)
