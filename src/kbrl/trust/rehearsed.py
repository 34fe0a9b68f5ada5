"""A second estimate of a policy's value: it rehearses in local lines of the judged episodes (`kbrl.lines.stage`).

The lines of a sample of whole episodes are a simulator.  In it the policy acts from logged first states, and so does a
copy of what people did, whose value is known.  Errors are found as for the first estimate: sampling by lines without a
tenth of the episodes each, smoothing by lines of twice and of half as many cases, and the self-check by the copy.
Runs also tell whether the policy would take decisions that are far from all that was logged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import KbrlWarning
from kbrl.choosing.candidates import n_reps_for_lines
from kbrl.choosing.rehearsal import MOST_DIMS, REPS_OF_LINES, EpisodeSample, ignoring, which_matter
from kbrl.data.episodes import EpisodePart, block_of
from kbrl.data.transitions import Transitions
from kbrl.learners.kbsf import KBSF
from kbrl.lines.cells import nearest_cells
from kbrl.lines.local_lines import local_lines
from kbrl.lines.moments import LineSums
from kbrl.lines.plans import world_of
from kbrl.lines.stage import Stage
from kbrl.lines.step_loops import act_as_people
from kbrl.lines.surface import surface_of, with_flags
from kbrl.lines.world import World, own_rows, side_by_side
from kbrl.model.kernels import Basis
from kbrl.model.model import basis_for
from kbrl.trust.estimates import Rung
from kbrl.trust.evaluator import Frame
from kbrl.trust.policy_answers import DEFERS, PolicyAnswers
from kbrl.trust.trajectories import Stretch, Trajectories

# From scaled states, (n, n_dims), numbers drawn between 0 and 1, (n,), and their worlds, (n,), to places of actions.
Decide = Callable[[Floats, Floats, Integers], Integers]
ROWS = 20_000  # about so many, of whole episodes
GROUPS = 10  # of episodes, one of which is left out at a time
_N_WORLDS = 3 + GROUPS  # lines of all episodes, of more and of fewer cases each, and without each group
RUNS, FEWER_RUNS = 400, 100  # from logged first states, at least; fewer where more would take long
_MANY_ROWS = 10 * ROWS  # of a log: its sums are surer than a rehearsal in a sample, which then checks them
_FEWER = 4  # times fewer runs tell what other lines change
_LAST_WEIGHT, _MOST_STEPS = 0.01, 400  # the discount of the last step of a run, and how many there are at most
_MOST_AHEAD = 0.25  # the discount of the last step must be lower
_NARROW, _WIDE = 5, 20  # cases per number of a line, beside the usual 10
_NEAREST, _USUAL, _FAR = 5, 0.99, 2.0
_HALF_SEED = 103  # of a split of episodes that has nothing to do with others


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """The estimates by rehearsal: value of the policy, that of the copy of what was done, and what was observed."""

    rung: Rung
    far_share: float  # of the policy's decisions: twice as far from logged ones as 99 % of the logged ones are
    n_rows: int
    n_runs: int


def why_not(log: Transitions | None, discount: float) -> str:
    """Return why a sample of episodes cannot be rehearsed in; nothing if it can."""
    if log is None:
        return "there are too few rows"
    if log.n_dims > MOST_DIMS:
        return f"there are {log.n_dims} state variables, and at most {MOST_DIMS} are possible"
    if log.terminals.all():
        return "no decision is followed by another"
    if discount**_MOST_STEPS > _MOST_AHEAD:
        return f"with a discount of {discount:g} too much of the value comes after {_MOST_STEPS} steps"
    return ""


def rehearse(
    policies: Sequence[PolicyAnswers], sample: EpisodeSample, frame: Frame, n_runs: int = RUNS
) -> list[Rehearsed] | str:
    """Return the estimates of each policy by rehearsal in a sample of episodes, or why there are none."""
    if frame.features.is_exact:
        return "the log has few different states, for which the first method is exact"
    log = sample.log
    reason = why_not(log, frame.discount)
    if reason or log is None:
        return reason
    log = log.in_order_of(frame.source).with_actions(frame.action_labels)
    episodes = _Episodes.of(log, frame)
    if len(np.unique(episodes.groups)) < GROUPS:
        return "there are too few episodes"
    theatre = _Theatre.of(log, episodes, frame, n_runs)
    return [theatre.estimates(answers) for answers in policies]


@dataclass(frozen=True, eq=False)
class _Episodes:
    """The episodes of a sample: one entry each, in the order of the rows."""

    first: Integers  # (n,): the first row
    groups: Integers  # (n,): which are left out together
    returns: Floats  # (n,): discounted, up to where they end or are cut
    row_groups: Integers  # (n_rows,)
    cut_rows: Integers  # (n_cut,): the last row of each episode that was cut
    cut_weights: Floats  # (n_cut,): the discount of what comes after it
    of_cut: Integers  # (n_cut,): the episode

    @classmethod
    def of(cls, log: Transitions, frame: Frame) -> _Episodes:
        trajectories = Trajectories(frame.features.coordinates.scale, frame.discount)
        parts: list[Stretch] = [*trajectories.add(log), *trajectories.finish()]
        counted = [slice(0, part.n_counted) for part in parts]
        is_start = np.concatenate([part.is_start[some] for part, some in zip(parts, counted)])
        powers = np.concatenate([part.powers[some] for part, some in zip(parts, counted)])
        is_cut = np.concatenate([part.is_cut[some] for part, some in zip(parts, counted)]) & (powers > 0)
        groups = block_of(np.concatenate([part.hashes[some] for part, some in zip(parts, counted)]), GROUPS)
        first, numbers, cut = np.flatnonzero(is_start), np.cumsum(is_start) - 1, np.flatnonzero(is_cut)
        returns: Floats = np.bincount(numbers, powers * log.rewards, minlength=len(first)).astype(np.float64)
        return cls(first, groups[first], returns, groups, cut, frame.discount * powers[cut], numbers[cut])


@dataclass(frozen=True, eq=False)
class _Theatre:
    """The lines of all episodes, of all but a group of them, and of wider and narrower surroundings."""

    log: Transitions
    basis: Basis
    episodes: _Episodes
    world: World  # side by side: of all episodes; wider, narrower; without each group
    starts: Floats  # (n_runs, n_dims), scaled
    start_groups: Integers  # (n_runs,)
    discount: float

    @classmethod
    def of(cls, log: Transitions, episodes: _Episodes, frame: Frame, n_runs: int) -> _Theatre:
        """Fit the lines."""
        n_reps = n_reps_for_lines(len(log))
        learner = KBSF(n_reps, order=1, reps=REPS_OF_LINES, discount=frame.discount, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KbrlWarning)  # of fewer representative states than rows would carry
            matters = which_matter(log, EpisodePart(0.5, _HALF_SEED).rows(log), learner)
            basis = basis_for(ignoring(log, learner, ~matters).settings(), log)
        recipe = log.source.recipe
        levels = () if recipe is None else recipe.level_places()
        surface = with_flags(surface_of(basis.coordinates, basis.circles, levels), log.states)
        parts = [LineSums(basis).accumulate(log[episodes.row_groups == group]) for group in range(GROUPS)]
        total, size = reduce(add, parts), 1 + log.n_dims
        wanted = [(total, None), (total, _WIDE * size), (total, _NARROW * size), *((total - x, None) for x in parts)]
        world = side_by_side(
            [world_of(local_lines(sums, n_cases=n), surface, is_spread=True, usual=0.0) for sums, n in wanted]
        )
        picked = _repeated(len(episodes.first), n_runs)
        starts = basis.coordinates.of(log.states[episodes.first[picked]])
        return cls(log, basis, episodes, world, starts, episodes.groups[picked], frame.discount)

    def estimates(self, answers: PolicyAnswers) -> Rehearsed:
        """Let a policy rehearse in all lines."""
        far = _Far(self)
        values = self._means(self._decider(answers), far)
        numbers = np.column_stack([values, self.now])  # (_N_WORLDS, 3)
        rung = Rung(
            smoothing=float("nan"),
            estimates=numbers[0],
            smoother=numbers[1],
            left_out=numbers[3:],
            sizes=np.bincount(self.episodes.groups, minlength=GROUPS).astype(float),
            coarse=numbers[0] - numbers[2],
        )
        return Rehearsed(rung, far.share, len(self.log), len(self.starts))

    @cached_property
    def now(self) -> Floats:
        """The value of the copy of what people did, in all lines, and what was observed, (3 + GROUPS, 2)."""
        copied = self._means(self._as_people)
        observed = self.episodes.returns + self._to_come()
        kept = [self.episodes.groups != group for group in range(GROUPS)]
        means = [observed.mean()] * 3 + [observed[some].mean() for some in kept]
        return np.column_stack([copied, means])

    def _means(self, decide: Decide, watch: _Far | None = None) -> Floats:
        """Return the mean return in each of the lines, (3 + GROUPS,).

        All runs act in the lines of all episodes.  What other lines change is told by some of the runs, under the same
        chance; without a group, the runs from its first states do not count either.
        """
        whole = _played(self._stage(1, self.starts), decide, watch)
        beside = _played(self._stage(_N_WORLDS, self.starts[::_FEWER]), decide).reshape(_N_WORLDS, -1)
        changes = (beside - beside[0]).mean(axis=1)
        kept = [self.start_groups != place - 3 for place in range(_N_WORLDS)]  # the first three leave out none
        return np.array([whole[some].mean() for some in kept]) + changes

    def _stage(self, n_worlds: int, starts: Floats) -> _Stages:
        enough = np.log(_LAST_WEIGHT) / np.log(self.discount) if self.discount > 0 else 1.0
        n_steps, all_starts = max(1, min(_MOST_STEPS, int(np.ceil(enough)))), np.tile(starts, (n_worlds, 1))
        lost = len(self.log) - self.discount * float((~self.log.terminals).sum())
        unknown = float(self.log.rewards.sum()) / lost  # the value if all states were alike: no gain and no loss
        return _Stages(self.world, all_starts, n_steps, self.discount, value_outside=unknown, n_worlds=n_worlds)

    def _decider(self, answers: PolicyAnswers) -> Decide:
        def decide(states: Floats, luck: Floats, worlds: Integers) -> Integers:
            actions = answers(self.basis.coordinates.back(states)).drawn(luck)
            defers = actions == DEFERS
            return np.where(defers, self._as_people(states, luck, worlds), actions) if defers.any() else actions

        return decide

    def _as_people(self, states: Floats, luck: Floats, worlds: Integers) -> Integers:
        """Return what people would do, as the lines of each world have it; all have the same representative states."""
        cells = self._nearest.query(states)[1] + worlds * self.basis.n_reps
        return act_as_people(states, cells, luck, self.world)

    @cached_property
    def _nearest(self) -> cKDTree:
        return cKDTree(self.basis.reps)

    def _to_come(self) -> Floats:
        """Return what people would have earned after the cut of each episode, (n_episodes,), by rehearsal."""
        episodes, result = self.episodes, np.zeros(len(self.episodes.first))
        if len(episodes.cut_rows):
            states = self.basis.coordinates.of(self.log.next_states[episodes.cut_rows])
            ahead = _played(self._stage(1, states), self._as_people)
            np.add.at(result, episodes.of_cut, episodes.cut_weights * ahead)
        return result


class _Far:
    """Counts decisions that are far from logged ones: the fifth nearest case of the action is unusually distant.

    Distances are those to one half of the episodes.  Usual are those that 99 % of the decisions of the other half have.
    """

    def __init__(self, theatre: _Theatre) -> None:
        log = theatre.log
        half: Booleans = EpisodePart(0.5, _HALF_SEED).rows(log)
        states = theatre.basis.coordinates.of(log.states)
        self._trees = [cKDTree(states[half & (log.action_indices == action)]) for action in range(log.n_actions)]
        usual = self._distances(states[~half], log.action_indices[~half])
        usual = usual[np.isfinite(usual)]  # of actions that have five cases at all
        self._limit = _FAR * float(np.quantile(usual, _USUAL)) if len(usual) else 0.0
        self._far = self._all = 0.0

    def __call__(self, states: Floats, actions: Integers, weights: Floats) -> None:
        """Count some decisions."""
        self._far += float(weights @ (self._distances(states, actions) > self._limit))
        self._all += float(weights.sum())

    def add_missed(self, weight: float) -> None:
        """Count decisions that were not taken, because runs stopped where nothing is known of the action, as far."""
        self._far += weight
        self._all += weight

    @property
    def share(self) -> float:
        """The share of the decisions that are far."""
        return self._far / self._all if self._all > 0 else 0.0

    def _distances(self, states: Floats, actions: Integers) -> Floats:
        found = np.full(len(states), np.inf)
        for action, tree in enumerate(self._trees):
            some = np.flatnonzero(actions == action)
            if len(some) and tree.n >= _NEAREST:
                found[some] = tree.query(states[some], k=[_NEAREST])[0][:, 0]
        return found


@dataclass(frozen=True, eq=False)
class _Stages(Stage):
    """The first of several worlds side by side: runs from the same starts, with the same luck in each."""

    n_worlds: int = 1

    @property
    def n_starts(self) -> int:
        """The number of runs in each world."""
        return len(self.starts) // self.n_worlds

    def worlds(self, runs: Integers) -> Integers:
        """Return in which world some runs are, (n,)."""
        return runs // self.n_starts

    def first_cells(self) -> Integers:
        """Return the representative state nearest to each start, (n_runs,), in its own world."""
        n_reps = len(self.world.reps) // _N_WORLDS
        columns = np.ascontiguousarray(self.world.columns[:, :n_reps])
        return nearest_cells(own_rows(self.starts), columns) + n_reps * self.worlds(np.arange(len(self.starts)))

    def noise(self, draws: np.random.Generator) -> Floats:
        """Draw the noise of a step, the same in all worlds."""
        return np.tile(draws.standard_normal((self.n_starts, self.starts.shape[1])), (self.n_worlds, 1))

    def luck(self, draws: np.random.Generator) -> Floats:
        """Draw numbers between 0 and 1, (n_runs,), the same in all worlds."""
        return np.tile(draws.random(self.n_starts), self.n_worlds)


class _Actor:
    """A policy on stages: it draws its actions, each run with luck of its own, and may be watched."""

    def __init__(self, decide: Decide, stages: _Stages, watch: _Far | None) -> None:
        self._decide, self._stages, self._watch = decide, stages, watch
        self._draws = np.random.default_rng([0, 1])
        self._luck = self._weights = np.empty(0)
        self._worlds: Integers = np.empty(0, dtype=np.intp)
        self._last, self._total = np.zeros((2, len(stages.starts)))  # weights of decisions, by run

    def told(self, acting: Integers, weights: Floats) -> None:
        """Draw luck for the runs that act now."""
        self._luck, self._weights = self._stages.luck(self._draws)[acting], weights
        self._worlds = self._stages.worlds(acting)
        self._last[acting] = weights
        self._total[acting] += weights

    def missed(self, left: Booleans) -> float:
        """Return how much the decisions count that runs did not take because they left the data.

        They would have been as many as those of the runs that stayed.
        """
        stages = self._stages
        usual = np.sum(stages.discount ** np.arange(stages.n_steps)) if left.all() else self._total[~left].mean()
        return float(stages.discount * usual * self._last[left].sum())

    def __call__(self, states: Floats) -> Integers:
        """Return the places of actions, (n,), at scaled states."""
        actions = self._decide(states, self._luck, self._worlds)
        if self._watch is not None:
            self._watch(states, actions, self._weights)
        return actions


def _played(stages: _Stages, decide: Decide, watch: _Far | None = None) -> Floats:
    """Return what a policy earns in each run."""
    actor = _Actor(decide, stages, watch)
    run = stages.rehearse(actor, told=actor.told)
    if watch is not None:
        watch.add_missed(actor.missed(run.left))
    return np.asarray(run.returns + run.ahead)


def _repeated(n: int, n_wanted: int) -> Integers:
    """Return at least ``n_wanted`` places among n, each equally often; or some of them, if n is larger."""
    if n >= n_wanted:
        return np.linspace(0, n - 1, n_wanted).astype(np.intp)
    return np.tile(np.arange(n), -(-n_wanted // n))


def runs_for(policy: Any, n_rows: int) -> int:
    """Return how many runs a policy rehearses: fewer if it looks ahead, or if the log is far larger than the sample."""
    return FEWER_RUNS if looks_ahead(policy) or n_rows > _MANY_ROWS else RUNS


def looks_ahead(policy: Any) -> bool:
    """Whether a policy decides by looking ahead, which takes about a millisecond per state."""
    models = [getattr(each, "model_", each) for each in (policy, *getattr(policy, "members_", ()))]
    return any(getattr(getattr(model, "settings", None), "order", 0) == 1 for model in models)
