"""Rehearsal: let a policy act, step by step, in the lines of episodes that it was not learnt from.

Logged first states are the starts.  Each step is drawn from the lines and their noise; instead of drawing ends, a run
counts as much as it has survived.  A run that leaves the data, or takes an action that nobody took nearby, stops
there and gets a low value for the rest: a policy must not win by going where nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.lines.step_loops import Room, advance
from kbrl.lines.world import World

_SURVIVAL = 1e-3  # a run that has survived less counts for nothing


@dataclass(frozen=True, eq=False)
class Stage:
    """Where policies rehearse: the lines of held-out episodes, and the rules of a rehearsal."""

    world: World
    starts: Floats  # (n_runs, n_dims), scaled
    n_steps: int  # of a run, at most
    discount: float  # of one step; 1 where the lines hold it, because steps have durations
    value_outside: float | Floats  # of what comes after a run has left the data, at any step or at each, (n_steps,)
    seed: int = 0

    def rehearse(
        self,
        decide: Callable[[Floats], Integers],
        runs: slice = slice(None),
        *,
        told: Callable[[Integers, Floats], None] | None = None,
    ) -> Rehearsal:
        """Let a policy act from some of the starts: scaled states, (n, n_dims), to the places of actions, (n,).

        All policies meet the same starts and the same noise.
        told: before each decision, which runs take it, and how much each counts.
        """
        states = self.starts[runs].copy()
        draws = np.random.default_rng(self.seed)
        cells = self.first_cells()[runs]
        returns, alive, left = np.zeros(len(states)), np.ones(len(states)), np.zeros(len(states), dtype=bool)
        factors = np.ones(len(states))
        outside = np.broadcast_to(self.value_outside, self.n_steps)
        late = np.zeros((3, len(states)))  # of the last quarter of the steps: their number, rewards and ends
        for number in range(self.n_steps):
            noise = self.noise(draws)[runs]
            acting = np.flatnonzero(alive > _SURVIVAL)
            if len(acting) == 0:
                break
            here, at = states[acting], cells[acting]
            if told is not None:
                told(acting, factors[acting] * alive[acting])
            step = Step.of(here, at, decide(here), noise[acting], self.world)
            inside, factor = step.inside, factors[acting]
            returns[acting] += factor * alive[acting] * np.where(inside, step.rewards, outside[number])
            alive[acting] *= np.where(inside, 1.0 - step.ends, 0.0)
            left[acting[~inside]] = True
            states[acting], cells[acting] = here, at
            factors[acting] *= self.discount * step.fades
            if number >= self.n_steps - self.n_steps // 4:
                late[:, acting] += np.stack([np.ones(len(acting)), step.rewards, step.ends])
        return Rehearsal(returns, left, factors * np.where(alive > _SURVIVAL, alive, 0.0) * self._for_ever(late))

    def first_cells(self) -> Integers:
        """Return the representative state nearest to each start, (n_runs,)."""
        return self.world.cells(self.starts)

    def noise(self, draws: np.random.Generator) -> Floats:
        """Draw the noise of a step for all starts, (n_runs, n_dims)."""
        return draws.standard_normal(self.starts.shape)

    def _for_ever(self, late: Floats) -> Floats:
        """Return what each run would be worth after its last step if it continued as in the last quarter, (n_runs,)."""
        rewards, ends = late[1:] / np.maximum(late[0], 1.0)
        lost = 1.0 - self.discount * (1.0 - ends)
        return np.divide(rewards, lost, out=np.zeros_like(rewards), where=lost > 0)


class Step(NamedTuple):
    """The outcome of a step, one entry per state."""

    rewards: Floats
    ends: Floats  # probabilities
    fades: Floats  # what the next state counts because of the duration of the step
    inside: Booleans  # whether the action is known there, and the next state near logged ones

    @classmethod
    def of(cls, states: Floats, cells: Integers, actions: Integers, draws: Floats, world: World) -> Step:
        """Let states, (n, n_dims), and their cells take their actions, in place."""
        n = len(states)
        step = cls(np.empty(n), np.empty(n), np.empty(n), np.empty(n, dtype=bool))
        parts = (world.near, world.moves, world.ground, world.reach)
        advance(states, cells, actions.astype(np.intp), draws, *parts, *step, Room.of(world))
        return step


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What a policy earned in each run, discounted, and which runs left the data."""

    returns: Floats  # (n_runs,)
    left: Booleans  # (n_runs,)
    ahead: Floats | float = 0.0  # (n_runs,): about what the steps after the last one would have added

    def __add__(self, other: Rehearsal) -> Rehearsal:
        """Return the runs of both."""
        joined = np.concatenate([self.returns, other.returns]), np.concatenate([self.left, other.left])
        return Rehearsal(*joined)

    @property
    def mean(self) -> float:
        """The mean discounted return."""
        return float(self.returns.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean: of the starts and the noise, not of the lines."""
        return float(self.returns.std(ddof=1) / np.sqrt(len(self.returns))) if len(self.returns) > 1 else np.inf


def predicted(states: Floats, actions: Integers, world: World) -> Floats:
    """Return the expected next states, (n, n_dims), of scaled states; NaN where nothing is known of the action."""
    return predicted_outcomes(states, actions, world)[0]


def predicted_outcomes(states: Floats, actions: Integers, world: World) -> tuple[Floats, Floats, Floats]:
    """Return the expected next states, (n, n_dims), rewards, (n,), and ends, (n,); NaN where nothing is known."""
    found = np.ascontiguousarray(states).copy()
    cells = world.cells(found)
    quiet = world._replace(noise=np.zeros((0, 0, 0, 0)), reach=np.full(len(world.reps), np.inf))
    step = Step.of(found, cells, actions, np.zeros_like(found), quiet)
    for part in (found, step.rewards, step.ends):
        part[~step.inside] = np.nan
    return found, step.rewards, step.ends
