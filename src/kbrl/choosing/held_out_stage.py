"""The stage on which candidates rehearse: the lines of episodes that they were not learnt from.

A run that leaves the data gets a low return for the rest: that of poor logged stretches of the same length.  A copy of
people tells whether the stage can be trusted: it must stay where people stayed, and earn what they earned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.choosing.candidates import unsolved_lines
from kbrl.data.transitions import Transitions
from kbrl.learners.kbsf import KBSF
from kbrl.lines.plans import world_of
from kbrl.lines.stage import Stage
from kbrl.lines.step_loops import act_as_people
from kbrl.lines.surface import with_flags
from kbrl.model.model import Model

_RUNS, _STEPS = 16, 200
_LEAST_WEIGHT = 0.05  # of a reward at the end of a run: later ones hardly count
_STAGE_INSIDE = 3.0  # how far a run may leave the data, in `LocalLines.reach`: farther than plans may
_STRAYING = 0.05  # of runs that go where people went: so few may count as leaving the data
_LEAST_STRAYING = 1e-3  # of the states of other episodes are as far away as a run that leaves the data, at most
_FARTHER = 1.5  # times as far: lines reach a little beyond where people went
MOST_LEFT = 0.2  # of the runs, for a rehearsal to be believed
_COPIES = 4  # runs of a copy of people from each start
_APART = 3.0  # standard errors between what people earned and what their copy earns
_ROUNDING = 1e-6  # of what people earned: a copy that is always paid the same is off by rounding
_LEAST_EPISODES = 5  # for a standard error
_LOW = 0.1  # of the logged stretches earned less than what a run gets that has left the data


def lines_of(log: Transitions, learner: KBSF) -> Model:
    """Return the lines that a stage is made of."""
    return unsolved_lines(log, learner, min_cases=1)


@dataclass(frozen=True, eq=False)
class HeldOutStage(Stage):
    """A stage that remembers whose lines it has."""

    model: Model = None  # type: ignore[assignment]


def held_out_stage(
    log: Transitions, others: Transitions, learner: KBSF, has_episodes: bool
) -> tuple[HeldOutStage, float | None]:
    """Return the lines of held-out episodes as a stage, and what their decisions earned in as many steps as a run has.

    What they earned is None if fewer than five episodes tell it.
    Runs start where episodes start; anywhere if these are too few to tell chance from difference.
    A run has left the data if it is farther from them than plans may end, and half as far again as nearly all states of
    the ``others``.  "Nearly all" is so many that fewer than one in twenty runs leave the data if they go where people
    went.
    """
    model = lines_of(log, learner)
    is_start = np.append(True, log.episodes[1:] != log.episodes[:-1])  # type: ignore[index]
    fades = model.fades(log)
    has_starts = has_episodes and int(is_start.sum()) >= _LEAST_EPISODES
    starts = log.states[is_start] if has_starts else log.states
    picked = starts[np.linspace(0, len(starts) - 1, min(len(starts), _RUNS)).astype(np.intp)]
    longest = _longest(log, is_start) if has_episodes else _STEPS
    going = fades[~log.terminals]
    fade = float(np.exp(np.log(going).mean())) if len(going) and going.min() > 0 else 0.0
    horizon = int(np.ceil(np.log(_LEAST_WEIGHT) / np.log(fade))) if fade > 0 else 1
    world = world_of(model.lines, with_flags(model.surface, log.states), is_spread=True, usual=0.0)
    n_steps = max(1, min(_STEPS, horizon, longest))
    distances = cKDTree(model.basis.reps).query(model.scaled(others.states))[0]
    far = _FARTHER * float(np.quantile(distances, 1.0 - min(_LEAST_STRAYING, _STRAYING / n_steps)))
    stage = HeldOutStage(
        world=world._replace(reach=np.full(model.basis.n_reps, max(_STAGE_INSIDE * model.lines.reach, far))),
        starts=model.scaled(picked),
        n_steps=n_steps,
        discount=model.step_discount,
        value_outside=low_returns(log, is_start, fades, n_steps),
        model=model,
    )
    earned = _first_returns(log, fades, n_steps) if has_starts else np.zeros(0)
    return stage, float(earned.mean()) if len(earned) >= _LEAST_EPISODES else None


def _longest(log: Transitions, is_start: Booleans) -> int:
    """Return how long a run may be: as long as the longest episode if that was cut; longer if it ended by itself."""
    lengths = np.diff(np.append(np.flatnonzero(is_start), len(log)))
    ends = np.cumsum(lengths) - 1
    is_longest = lengths == lengths.max()
    return int(lengths.max()) if not log.terminals[ends[is_longest]].all() else _STEPS


def why_not_believed(stage: HeldOutStage, log: Transitions, has_episodes: bool) -> str:
    """Return why rehearsals on a stage cannot be trusted, in words; empty if they can.

    A copy of people, drawn from the lines of their behaviour, must stay within the data and earn what they earned.
    """
    copied = replace(stage, starts=np.repeat(stage.starts, _COPIES, axis=0)).rehearse(_as_people(stage))
    left = float(copied.left.mean())
    if left > MOST_LEFT:
        return f"a copy of what people did left the data in {left:.0%} of its runs"
    earned = _first_returns(log, stage.model.fades(log), stage.n_steps) if has_episodes else np.zeros(0)
    if len(earned) < _LEAST_EPISODES:
        return ""
    apart = abs(copied.mean - float(earned.mean()))
    chance = _APART * float(np.hypot(copied.error, earned.std(ddof=1) / np.sqrt(len(earned))))
    if apart <= chance + _ROUNDING * float(np.abs(earned).max()):
        return ""
    return f"a copy of what people did earned {copied.mean:.4g} there, but people earned {earned.mean():.4g}"


def _as_people(stage: Stage) -> Callable[[Floats], Integers]:
    luck, nearest = np.random.default_rng(stage.seed), cKDTree(stage.world.reps)

    def decide(states: Floats) -> Integers:
        return act_as_people(states, nearest.query(states)[1], luck.random(len(states)), stage.world)

    return decide


def _first_returns(log: Transitions, fades: Floats, n_steps: int) -> Floats:
    """Return what episodes earned in their first steps, discounted; those that were cut before are left out."""
    starts = np.flatnonzero(np.append(True, log.episodes[1:] != log.episodes[:-1]))  # type: ignore[index]
    stops = np.append(starts[1:], len(log))
    known = (stops - starts >= n_steps) | (fades[stops - 1] == 0.0)
    earned = []
    for start, stop in zip(starts[known], stops[known]):
        rows = slice(start, min(stop, start + n_steps))
        weights = np.append(1.0, np.cumprod(fades[rows])[:-1])
        earned.append(float(weights @ log.rewards[rows]))
    return np.array(earned)


def returns_to_go(log: Transitions, is_start: Booleans, fades: Floats) -> Floats:
    """Return the sum of rewards from each row to the end of its episode, (n,), discounted step by step."""
    result = log.rewards.copy()
    is_last = np.append(is_start[1:], True)
    for row in range(len(log) - 2, -1, -1):  # a bounded sample
        if not is_last[row]:
            result[row] += fades[row] * result[row + 1]
    return result


def most_earned(log: Transitions, is_start: Booleans, fades: Floats) -> tuple[float, bool]:
    """Return the largest return of an episode, and whether that one was cut.

    After a cut, an episode could have gone on with the largest of all rewards.
    """
    largest, going = max(float(log.rewards.max()), 0.0), fades[~log.terminals]
    for_ever = largest / (1.0 - going.max()) if len(going) and going.max() < 1.0 else 0.0
    last = np.append(np.flatnonzero(is_start)[1:], len(log)) - 1
    paid = log.rewards.copy()
    paid[last] += fades[last] * for_ever  # the fade of an end is 0
    most = returns_to_go(log.replaced(rewards=paid), is_start, fades)[is_start]
    best = int(np.argmax(most))
    return float(most[best]), bool(fades[last[best]] > 0)


def low_returns(log: Transitions, is_start: Booleans, fades: Floats, n_steps: int) -> Floats:
    """Return what nine of ten logged stretches earned at least, (n_steps,): of n_steps rows, of one less, down to one.

    A stretch that ends with its episode counts as one of any length; one that was cut says nothing of more rows.
    """
    rows = np.arange(len(log))
    last = np.append(np.flatnonzero(is_start)[1:], len(log))[np.cumsum(is_start) - 1] - 1
    earned, weights, result = np.zeros(len(log)), np.ones(len(log)), np.zeros(n_steps)
    for length in range(n_steps):
        here = np.minimum(rows + length, last[rows])
        earned = earned + weights * log.rewards[here]
        weights = weights * fades[here]
        result[length] = np.quantile(earned, _LOW)
        known = (rows + length < last[rows]) | (weights == 0.0)
        if not known.any():
            result[length + 1 :] = result[length]
            break
        rows, earned, weights = rows[known], earned[known], weights[known]
    return result[::-1]
