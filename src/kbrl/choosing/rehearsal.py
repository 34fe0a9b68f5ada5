"""Choose between orders, plans and widths without an environment: by rehearsal.

Candidates learn from half of some episodes.  Each then acts, step by step, in the lines of the other half, from logged
first states (`kbrl.lines.stage`).  The first candidate, lines with plans of the usual length, is kept unless another
earns more over the same starts, by more than one of so many would by chance.  If another random
state gives other decisions, candidates that depend less on it are tried (`kbrl.choosing.steadiness`).
If the stage cannot be trusted, because a copy of people leaves the data on it or does not earn what people earned,
lines with plans of the usual length are kept; or, if another random state gives other decisions, the choice is to do
as people usually do.
The chosen settings are then fitted to the whole log.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import stdtrit

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import KbrlWarning
from kbrl.choosing.candidates import AS_PEOPLE, Candidate, candidates
from kbrl.choosing.held_out_stage import (
    MOST_LEFT,
    HeldOutStage,
    held_out_stage,
    lines_of,
    most_earned,
    why_not_believed,
)
from kbrl.choosing.hyperparameters import WIDTHS
from kbrl.choosing.relevance import IGNORED, PASTS, told_by_the_past, variables_that_matter
from kbrl.choosing.steadiness import (
    LEAST_AGREEMENT,
    Steady,
    agreement,
    best_steadier,
    steady_candidates,
    with_other_luck,
)
from kbrl.choosing.window_choice import best_window
from kbrl.data.episodes import EpisodePart, episode_hashes
from kbrl.data.scaling import state_scale
from kbrl.data.transitions import Transitions, join
from kbrl.learners.kbsf import KBSF
from kbrl.learners.learner import clone
from kbrl.lines.plans import plan_length, world_of
from kbrl.lines.stage import Rehearsal, Stage, predicted, predicted_outcomes
from kbrl.mdp.dynamic_programming import best_actions
from kbrl.model.model import Model
from kbrl.settings import Growth, Settings, Variant

REPS_OF_LINES = "spread"
MOST_DIMS = 20  # state variables: rolling plans out takes time with their cube
REHEARSAL_ROWS = 20_000  # of whole episodes, to learn from and to rehearse in
# Splits of episodes that have nothing to do with each other, nor with that of --hold-out.
_SAMPLE_SEED, _HALVES_SEED, _PAST_SEED = 101, 102, 103
LEAST_ROWS = 500  # below that, halves are too small to tell anything
_BLOCK_ROWS = 200  # that stand for an episode where the log tells none apart
_ROUNDS = (4, 8, 16)  # runs after which some candidates stop
_FALSE_WINS = 0.025  # of the first candidate's rehearsals in which any other wins by chance
_CONTINUED = Variant(terminals="continue")
_CHECKED = 1000  # held-out states and steps that a model is looked at with
_BLOCKS = 32  # of checked rows, for standard errors: rows of an episode are alike


@dataclass(frozen=True)
class Tried:
    """A candidate: its settings, and what it earned in rehearsal, discounted, per run."""

    name: str
    settings: dict[str, Any]  # parameters of KBSF that make it
    mean: float
    error: float  # standard error of the mean
    left: float  # share of the runs that left the data
    widen: float = 1.0  # of order 0: what the widths that predict best are multiplied by


@dataclass(frozen=True)
class Choice:
    """What was chosen by rehearsal, all that was tried, and what the logged decisions earned from the same starts."""

    chosen: Tried
    tried: tuple[Tried, ...]
    now: float | None  # None where the log does not tell episodes apart
    flags: tuple[str, ...] = ()  # what speaks against trusting the model, in words
    ignored: tuple[int, ...] = ()  # the places of state variables that distances are measured without
    is_believed: bool = True  # whether a copy of people did as people did; if not, the safest one was kept

    @property
    def is_better_than_now(self) -> bool | None:
        """Whether the chosen one stayed with the data in rehearsal and earned more than people did; None: not known."""
        if self.now is None:
            return None
        stays = self.is_believed and self.chosen.left <= MOST_LEFT
        return stays and self.chosen.mean - 2 * self.chosen.error > self.now


class EpisodeSample:
    """Whole episodes with about this many rows in all, kept while the chunks of a log are read.

    A hash of the episode decides, so the sample does not depend on how the log is cut.  Samples of the parts of a log
    add up, in their order.
    """

    def __init__(self, n_rows: int, wanted: int = REHEARSAL_ROWS) -> None:
        self._part = EpisodePart(min(1.0, wanted / max(n_rows, 1)), _SAMPLE_SEED)
        self._parts: list[Transitions] = []
        self.n_seen = 0  # transitions
        self.has_episodes = False  # whether the log tells them apart

    def kept(self, chunks: Iterable[Transitions]) -> Iterator[Transitions]:
        """Yield the chunks, and keep the rows of the sample."""
        for chunk in chunks:
            named = chunk.replaced(episodes=_episodes_of(chunk, self.n_seen))
            rows = self._part.rows(named)
            if rows.any():
                self._parts.append(named[rows])
            self.n_seen += len(chunk)
            self.has_episodes = chunk.episodes is not None
            yield chunk

    def __add__(self, other: EpisodeSample) -> EpisodeSample:
        """Return the sample of this part of a log and of the one that follows it."""
        result = copy(self)
        result._parts = [*self._parts, *other._parts]
        result.n_seen += other.n_seen
        result.has_episodes = self.has_episodes or other.has_episodes
        return result

    @property
    def log(self) -> Transitions | None:
        """The rows; None if there are too few to rehearse with."""
        if sum(map(len, self._parts)) < LEAST_ROWS:
            return None
        log = join(self._parts)
        return log[np.argsort(episode_hashes(log), kind="stable")]  # whatever the order of the files


def _episodes_of(log: Transitions, n_before: int) -> Any:
    """Return what tells episodes apart, (n,); blocks of rows where the log does not."""
    if log.episodes is not None:
        return log.episodes
    return (n_before + np.arange(len(log))) // _BLOCK_ROWS


def choose_by_rehearsal(
    log: Transitions,
    learner: KBSF,
    *,
    has_episodes: bool = True,
    orders: tuple[int, ...] = (1, 0),
    may_ignore: bool = True,
) -> Choice | None:
    """Return what rehearses best, for a sample of whole episodes (`EpisodeSample`); None if halves are too small.

    The representative states of the candidates with lines are chosen as ``learner`` says.  If ``may_ignore``, all
    candidates measure distances without the variables that do not matter (`kbrl.choosing.relevance`).
    """
    in_first = EpisodePart(0.5, _HALVES_SEED).rows(log)
    if min(in_first.sum(), (~in_first).sum()) < LEAST_ROWS // 4:
        return None
    learnt, held = log[in_first], log[~in_first]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)  # the fit says it again
        matters = which_matter(log, in_first, learner) if may_ignore else np.ones(log.n_dims, dtype=bool)
        learner = ignoring(log, learner, ~matters)
        stage, now = held_out_stage(held, learnt, learner, has_episodes)
        tried_out = list(candidates(learnt, held, learner, orders))
        missing = _if_state_misses_something(tried_out[0].model, held)
        window = best_window(learnt, held, tried_out[0].model, learner) if missing else None
        reason = why_not_believed(stage, held, has_episodes) if window is None else window.reason
        tried_out += [] if window is None else [window.candidate]
        policies = [_decider(each.model, stage.model) for each in tried_out]
        runs = compete(stage, policies, _ROUNDS[:1] if reason else _ROUNDS)
        place = 0 if reason else _best(runs)
        place = place if window is None else len(tried_out) - 1
        share = _own_agreement(tried_out[place].model, learnt, held)
        if reason and window is None:
            place = _place_of_people(tried_out) if share < LEAST_AGREEMENT else _place_of_usual_length(tried_out)
            share = share if place == 0 else _own_agreement(tried_out[place].model, learnt, held)
        elif share < LEAST_AGREEMENT and not reason and 1 in orders:
            more = _steadier(tried_out[place], runs[place], stage, learnt, learner)
            if (best := best_steadier(more, share, _checked_rows(held))) is not None:
                place, share = len(tried_out) + best[0], best[1]
            tried_out, runs = [*tried_out, *(each.candidate for each in more)], [*runs, *(each.run for each in more)]
        flags = _flags(tried_out[place].model, held, share, has_episodes)
        flags = (*_if_left(runs[place], reason), *flags, *missing)
    tried = tuple(
        Tried(each.name, each.settings, run.mean, run.error, float(run.left.mean()), each.widen)
        for each, run in zip(tried_out, runs)
    )
    return Choice(tried[place], tried, now, flags, tuple(np.flatnonzero(~matters).tolist()), not reason)


def without_weight(scale: Floats, ignored: Sequence[int]) -> Floats:
    """Return what state variables are divided by, (n_dims,), so that distances ignore some of them."""
    result = scale.copy()
    result[list(ignored)] *= IGNORED
    return result


def ignoring(log: Transitions, learner: KBSF, ignored: Booleans) -> KBSF:
    if not ignored.any():
        return learner
    scale = _scale(log, learner)
    return clone(learner).set_params(scaling=without_weight(scale, np.flatnonzero(ignored).tolist()))


def _scale(log: Transitions, learner: KBSF) -> Floats:
    """Return what state variables are divided by, (n_dims,); levels of a category are as far apart as always."""
    scaling = learner.settings().scaling
    return log.source.with_fixed_scales(state_scale(log.states, scaling), scaling)


def which_matter(log: Transitions, in_first: Booleans, learner: KBSF) -> Booleans:
    """Return which variables distances are measured by, (n_dims,): all of them if lines predict better so."""
    everything = np.ones(log.n_dims, dtype=bool)
    matters = variables_that_matter(log, in_first)
    if matters.all():
        return everything
    scale = _scale(log, learner)
    learnt, held = log[in_first], log[~in_first]
    rows = _checked_rows(learnt)
    plain, without = (
        _errors(lines_of(held, each), rows, matters / scale) for each in (learner, ignoring(log, learner, ~matters))
    )
    gained = plain - without
    gained = gained[np.isfinite(gained)]
    blocks = np.array([block.mean() for block in np.array_split(gained, _BLOCKS) if len(block)])
    return everything if len(blocks) < 2 or _mean_and_error(blocks)[0] < -2 * _mean_and_error(blocks)[1] else matters


def _errors(model: Model, log: Transitions, weights: Floats) -> Floats:
    """Return the squared errors of what lines predict of each row: next state, weighted, and reward and end, (n,).

    Each part is relative to its variance; next states to that of the displacements.
    """
    world = world_of(model.lines, model.surface)
    actions = log.with_actions(model.action_labels).action_indices
    states, rewards, ends = predicted_outcomes(model.coordinates.of(log.states), actions, world)
    moves = weights * (model.coordinates.back(states) - log.next_states)
    typical = (weights * (log.next_states - log.states)).var(axis=0).sum()
    parts = [
        (np.square(moves).sum(axis=1) * ~log.terminals, typical),
        (np.square(rewards - log.rewards), log.rewards.var()),
        (np.square(ends - log.terminals), log.terminals.var()),
    ]
    result: Floats = np.sum([part / size for part, size in parts if size > 0], axis=0)
    return result


def _mean_and_error(values: Floats) -> tuple[float, float]:
    """Return the mean of values and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf


def _if_left(run: Rehearsal, reason: str) -> tuple[str, ...]:
    left = float(run.left.mean())
    if reason:
        return (f"the rehearsal was not used: {reason}",)
    if left <= MOST_LEFT:
        return ()
    return (f"{left:.0%} of its runs in rehearsal left the data, and what happens there is not known",)


def _flags(model: Model, held: Transitions, share: float, has_episodes: bool) -> tuple[str, ...]:
    """Return what speaks against trusting a model, in words; none of it needs an environment.

    share: of the states in which another random state decides alike.
    """
    found = []
    has_steps = model.settings.order == 1 and model.window is None
    if has_steps and (error := _prediction_error(model, _checked_rows(held))) > 1:
        found.append(f"it predicts next states worse than 'nothing moves' does ({error:.2g} times the error)")
    if share < LEAST_AGREEMENT:
        found.append(f"with another random_state, it decides differently in {1 - share:.0%} of the states")
    if has_episodes:
        is_start = np.append(True, held.episodes[1:] != held.episodes[:-1])  # type: ignore[index]
        most, is_cut = most_earned(held, is_start, model.fades(held))
        promised = float(model.values(held.states[is_start]).max())
        if promised > most + 1e-9 * abs(most):
            earned = "could have earned more without its cut" if is_cut else "earned more"
            found.append(f"it promises up to {promised:.4g}, but no held-out episode {earned} than {most:.4g}")
    return tuple(found)


def _checked_rows(log: Transitions) -> Transitions:
    return log[np.linspace(0, len(log) - 1, min(len(log), _CHECKED)).astype(np.intp)]


def _own_agreement(model: Model, learnt: Transitions, held: Transitions) -> float:
    """Return in which share of the states another random state decides alike."""
    return agreement(model, with_other_luck(model, learnt), _checked_rows(held))


def _place_of_usual_length(tried_out: Sequence[Candidate]) -> int:
    """Return the place of what is kept if the rehearsal is not used: the first with plans of the usual length.

    Not plans of one step, although the first candidate has them where steps look noisy.  A stage on which a copy of
    people goes astray shows that steps are far from linear: then what lines leave unexplained is not noise.
    """
    model = tried_out[0].model
    if model.settings.order != 1:
        return 0
    usual = plan_length(len(model.plans.actions))
    lengths = [(each.settings["plan"].decisions, each.settings["plan"].hold) for each in tried_out if each.is_lines]
    return lengths.index(usual) if usual in lengths else 0


def _place_of_people(tried_out: Sequence[Candidate]) -> int:
    """Return the place of doing as people usually do, where that is known: nothing else has been seen to work."""
    return next((place for place, each in enumerate(tried_out) if each.name == AS_PEOPLE), 0)


def _steadier(kept: Candidate, run: Rehearsal, stage: HeldOutStage, log: Transitions, learner: KBSF) -> list[Steady]:
    """Return candidates that depend less on chance, and do not rehearse clearly worse than the kept one."""
    found = []
    for each, twin in steady_candidates(kept, log, learner):
        own = stage.rehearse(_decider(each.model, stage.model), slice(0, len(run.returns)))
        behind, error = _mean_and_error(run.returns - own.returns)
        if behind <= 2 * error and _stays(own, run):
            found.append(Steady(each, twin, own))
    return found


def _if_state_misses_something(model: Model, held: Transitions) -> list[str]:
    """Return a flag if earlier actions help to predict what the lines leave unexplained of the next state or reward."""
    if model.settings.order != 1 or model.window is not None:
        return []
    world = world_of(model.lines, model.surface)
    actions = held.with_actions(model.action_labels).action_indices
    states, rewards, _ = predicted_outcomes(model.coordinates.of(held.states), actions, world)
    left = np.column_stack([model.coordinates.of(held.next_states) - states, held.rewards - rewards])
    left[held.terminals, :-1] = 0.0
    told = told_by_the_past(held, left, EpisodePart(0.5, _PAST_SEED).rows(held))
    if not told.any():
        return []
    names = [*(held.source.state_names or [f"variable {k + 1}" for k in range(held.n_dims)]), "the reward"]
    listing = ", ".join(str(names[k]) for k in np.flatnonzero(told))
    return [
        f"the state seems to lack something: what was done up to {PASTS[-1]} steps earlier still helps to predict "
        f"{listing}. Add columns that remember it, such as recent doses"
    ]


def _prediction_error(model: Model, log: Transitions) -> float:
    """Return the squared error of predicted next states, relative to predicting that nothing moves."""
    world = world_of(model.lines, model.surface)
    states, target = model.coordinates.of(log.states), model.coordinates.of(log.next_states)
    actions = log.with_actions(model.action_labels).action_indices
    found = predicted(states, actions, world)
    low, high = model.lines.span  # beyond it, predicted states are put back
    going = ~log.terminals & np.isfinite(found).all(axis=1) & ((states >= low) & (states <= high)).all(axis=1)
    nothing = np.square(target - states)[going].sum()
    return float(np.square(target - found)[going].sum() / nothing) if nothing > 0 else 0.0


def can_rehearse(settings: Settings, choose: Collection[str]) -> bool:
    """Return whether order and plans may be chosen: nothing was asked for that only order 0 has."""
    is_free = {"order", "reps", *WIDTHS} <= set(choose)
    no_neighbors = settings.sample_neighbors is None and settings.rep_neighbors is None
    return (
        is_free
        and no_neighbors
        and settings.plan.window is None
        and settings.growth == Growth()
        and settings.variant in (Variant(), _CONTINUED)
    )


def compete(
    stage: Stage, policies: Sequence[Callable[[Floats], Integers]], rounds: tuple[int, ...] = _ROUNDS
) -> list[Rehearsal]:
    """Let policies rehearse in rounds; after each, at most half continue: the first, and the best of the others.

    Those that are worse than the best by more than chance stop, too.  All have begun from the same starts.
    """
    runs = [stage.rehearse(policy, slice(0, rounds[0])) for policy in policies]
    left = list(range(len(policies)))
    for start, stop in pairwise(rounds):
        if start >= len(stage.starts):
            break
        left = _continuing(left, runs)
        for place in left if len(left) > 1 else []:
            runs[place] += stage.rehearse(policies[place], slice(start, stop))
    return runs


def _continuing(left: list[int], runs: list[Rehearsal]) -> list[int]:
    """Return those that continue: not clearly worse than the best, and at most half, the first before others."""
    believed = [place for place in left if _stays(runs[place], runs[0])] or left
    best = max(believed, key=lambda place: runs[place].mean)
    behind = {place: _mean_and_error(runs[best].returns - runs[place].returns) for place in believed}
    errors = {0: _errors_to_win(runs)}  # the first stops only if it is beaten
    close = [place for place in believed if behind[place][0] <= errors.get(place, 2.0) * behind[place][1]]
    close.sort(key=lambda place: (place != 0, -runs[place].mean))
    return close[: max(1, -(-len(left) // 2))]


def _stays(run: Rehearsal, first: Rehearsal) -> bool:
    """Return whether runs stayed with the data: mostly, or at least as often as those of the first candidate.

    What comes after leaving is not known; a candidate must not win by that.
    """
    return bool(run.left.mean() <= max(MOST_LEFT, first.left.mean()))


def _best(runs: list[Rehearsal]) -> int:
    """Return the place of the first one, or of the one that beats it most clearly, among those of the last round.

    If the first one is not among them, return the one that earned most.
    """
    most = max(len(run.returns) for run in runs)
    last = [place for place, run in enumerate(runs) if len(run.returns) == most and _stays(run, runs[0])]
    if 0 not in last:
        return max(last, key=lambda place: runs[place].mean, default=0)
    best, margin = 0, 0.0
    errors = _errors_to_win(runs)
    for place in last[1:]:
        mean, error = _mean_and_error(runs[place].returns - runs[0].returns)
        if mean - errors * error > margin:
            best, margin = place, mean - errors * error
    return best


def _errors_to_win(runs: list[Rehearsal]) -> float:
    """Return by how many standard errors another must beat the first: many try, and one of them may be lucky."""
    most = max(len(run.returns) for run in runs)
    return float(stdtrit(max(most - 1, 1), 1 - _FALSE_WINS / max(1, len(runs) - 1)))


def _decider(model: Model, stage: Model) -> Callable[[Floats], Integers]:
    """Return a policy of states in the stage's coordinates, to places of the stage's actions."""
    places = np.array([_place(label, stage) for label in model.action_labels.tolist()], dtype=np.intp)

    def decide(states: Floats) -> Integers:
        return places[best_actions(model.q_values(stage.coordinates.back(states)))]

    return decide


def _place(label: Any, stage: Model) -> int:
    return stage.action_labels.tolist().index(label)
