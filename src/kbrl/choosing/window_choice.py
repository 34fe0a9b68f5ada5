"""Whether windows are needed, and how long: by what they predict of held-out episodes.

Where what people did before still tells something that the state does not, what follows an action over k steps is
predicted twice: by lines of one step, composed k times with the logged actions, and by the lines of windows, which know
the first action alone.  If windows predict better, by more than chance, composing loses something.  Of these lengths
the one is taken at which windows predict best.  A rehearsal would compose steps, too, so it cannot judge them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbrl.arrays import Floats, Integers
from kbrl.choosing.candidates import USUAL, Candidate, gain_of_behaviour, n_reps_for_lines
from kbrl.data.transitions import Transitions
from kbrl.learners.kbsf import KBSF
from kbrl.learners.learner import clone
from kbrl.lines.plans import world_of
from kbrl.lines.stage import predicted_outcomes
from kbrl.lines.windows import complete_windows, windows_at
from kbrl.model.model import Model

LENGTHS = (4, 8, 16, 32, 64)  # steps: each is twice the one before
_JUDGED, _BLOCKS, _LEAST = 1500, 32, 300  # held-out windows, blocks of them for the standard error, and at least
_LEAST_SHARE = 0.5  # of the rows must have complete windows: the others would not be learnt from
_CONSTANT = 1e-9  # of the square of its mean: what varies by less is rounding


class WindowError(NamedTuple):
    """What is predicted of held-out windows: errors relative to the variance, summed over next state and rewards."""

    candidate: Candidate
    length: int
    direct: float  # of the lines of windows
    composed: float  # of lines of one step
    chance: float  # twice the standard error of the difference

    @property
    def reason(self) -> str:
        """Why a rehearsal is not used."""
        return (
            f"it composes steps, and lines of {self.length} steps at once predict held-out episodes better (error "
            f"{self.direct:.2g}) than lines of one step, composed ({self.composed:.2g}): effects are delayed, or part "
            f"of the state is hidden"
        )


def best_window(learnt: Transitions, held: Transitions, steps: Model, learner: KBSF) -> WindowError | None:
    """Return the windows that predict best among those that predict better than composed steps; None if none do.

    steps: the lines of one step, of the episodes to learn from.  Where plans were asked for, there are no windows.
    """
    plan = learner.settings().plan
    is_free = plan.decisions is None and plan.hold is None and plan.window is None
    if not is_free or held.durations is not None:
        return None
    usual = plan.usual
    if usual is None and gain_of_behaviour(steps, held) > 0:
        usual = USUAL
    tried = [_errors(learnt, held, steps, learner, length, usual) for length in LENGTHS]
    better = [each for each in tried if each is not None and each.composed - each.direct > each.chance]
    return min(better, key=lambda each: each.direct, default=None)


def n_reps_for_windows(n_rows: int, length: int) -> int:
    """Return the number of representative states: fewer than for steps, as lines of windows rest on more rows."""
    return n_reps_for_lines(int(n_rows / np.sqrt(length)))


def _errors(
    learnt: Transitions, held: Transitions, steps: Model, learner: KBSF, length: int, usual: float | None
) -> WindowError | None:
    rows, few = complete_windows(held, length), complete_windows(learnt, length)
    if min(len(rows), len(few)) < _LEAST or len(few) < _LEAST_SHARE * len(learnt):
        return None
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), _JUDGED)).astype(np.intp)]
    windows = windows_at(held, rows, length, steps.discount)
    going = ~windows.terminals
    if going.sum() < _LEAST:
        return None
    rows, windows = rows[going], windows[going]
    plan = learner.settings().plan.set_params(window=length, usual=usual)
    settings = {"order": 1, "plan": plan}
    model = clone(learner).set_params(**settings, n_reps=n_reps_for_windows(len(learnt), length)).fit(learnt).model_
    found = predicted_outcomes(model.scaled(windows.states), _actions(windows, model), world_of(model.lines))
    direct = _relative(windows, model.coordinates.back(found[0]), found[1], model)
    composed = _relative(windows, *_composed(held, rows, length, steps), model)
    known = np.isfinite(direct) & np.isfinite(composed)
    if known.sum() < _LEAST:
        return None
    blocks = np.array([block.mean() for block in np.array_split((composed - direct)[known], _BLOCKS)])
    chance = 2 * float(blocks.std(ddof=1) / np.sqrt(len(blocks)))
    name = f"lines of windows of {length} steps" + (" that begin as people do" if usual else "")
    means = float(direct[known].mean()), float(composed[known].mean())
    return WindowError(Candidate(name, settings, model), length, *means, chance)


def _composed(log: Transitions, rows: Integers, length: int, steps: Model) -> tuple[Floats, Floats]:
    """Return where lines of one step lead with the logged actions, (n, n_dims), and what they pay on the way, (n,)."""
    world, actions = world_of(steps.lines, steps.surface), _actions(log, steps)
    states, rewards = steps.scaled(log.states[rows]), np.zeros(len(rows))
    for ahead in range(length):
        states, paid, _ = predicted_outcomes(states, actions[rows + ahead], world)
        lost = ~np.isfinite(paid)  # nothing is known of the action there: it is not compared
        states[lost], paid[lost] = 0.0, np.nan
        rewards += steps.discount**ahead * paid
    return steps.coordinates.back(states), rewards


def _actions(log: Transitions, model: Model) -> Integers:
    return log.with_actions(model.action_labels).action_indices


def _relative(windows: Transitions, states: Floats, rewards: Floats, model: Model) -> Floats:
    """Return the squared errors of predicted next states and rewards, relative to their variances, (n,)."""
    weights = 1.0 / model.coordinates.scale
    moves = weights * (windows.next_states - windows.states)
    parts = [
        (np.square(weights * (states - windows.next_states)).sum(axis=1), moves.var(axis=0).sum()),
        (np.square(rewards - windows.rewards), windows.rewards.var()),
    ]
    sizes = (np.square(moves).mean(), np.square(windows.rewards).mean())
    shares = [part / size for (part, size), least in zip(parts, sizes) if size > _CONSTANT * least]
    result: Floats = np.sum(shares, axis=0) if shares else np.zeros(len(windows))
    return result
