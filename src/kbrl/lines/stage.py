"""Rehearsal: let a policy act, step by step, in the lines of episodes that it was not learnt from.

Logged first states are the starts.  Each step is drawn from the lines and their noise; instead of drawing ends, a run
counts as much as it has survived.  A run that leaves the data, or takes an action that nobody took nearby, stops
there and gets a low value for the rest: a policy must not win by going where nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.lines import step_loops

_SURVIVAL = 1e-3  # a run that has survived less counts for nothing


@dataclass(frozen=True, eq=False)
class Stage:
    """Where policies rehearse: the lines of held-out episodes, and how a rehearsal goes."""

    world: step_loops.World
    starts: Floats  # (n_runs, n_dims), scaled
    n_steps: int  # of a run, at most
    discount: float
    value_outside: float  # of what comes after a run has left the data
    seed: int = 0

    def rehearse(self, decide: Callable[[Floats], Integers], runs: slice = slice(None)) -> Rehearsal:
        """Let a policy act from some of the starts: scaled states, (n, n_dims), to the places of actions, (n,).

        All policies meet the same starts and the same noise.
        """
        states = self.starts[runs].copy()
        draws = np.random.default_rng(self.seed)
        cells = np.array([step_loops.nearest_of_all(state, self.world) for state in states], dtype=np.intp)
        returns, alive, left = np.zeros(len(states)), np.ones(len(states)), np.zeros(len(states), dtype=bool)
        factor = 1.0
        for _ in range(self.n_steps):
            noise = draws.standard_normal(self.starts.shape)[runs]
            acting = np.flatnonzero(alive > _SURVIVAL)
            if len(acting) == 0:
                break
            here, at = states[acting], cells[acting]
            rewards, ends, inside = np.empty(len(acting)), np.empty(len(acting)), np.empty(len(acting), dtype=bool)
            step_loops.advance(here, at, decide(here), noise[acting], self.world, rewards, ends, inside)
            returns[acting] += factor * alive[acting] * np.where(inside, rewards, self.value_outside)
            alive[acting] *= np.where(inside, 1.0 - ends, 0.0)
            left[acting[~inside]] = True
            states[acting], cells[acting] = here, at
            factor *= self.discount
        return Rehearsal(returns, left)


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What a policy earned in each run, discounted, and which runs left the data."""

    returns: Floats  # (n_runs,)
    left: Booleans  # (n_runs,)

    @property
    def mean(self) -> float:
        """The mean discounted return."""
        return float(self.returns.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean: of the starts and the noise, not of the lines."""
        return float(self.returns.std(ddof=1) / np.sqrt(len(self.returns))) if len(self.returns) > 1 else np.inf


def predicted(states: Floats, actions: Integers, world: step_loops.World) -> Floats:
    """Return the expected next states, (n, n_dims), of scaled states; NaN where nothing is known of the action."""
    return predicted_outcomes(states, actions, world)[0]


def predicted_outcomes(states: Floats, actions: Integers, world: step_loops.World) -> tuple[Floats, Floats, Floats]:
    """Return the expected next states, (n, n_dims), rewards, (n,), and ends, (n,); NaN where nothing is known."""
    found = np.ascontiguousarray(states).copy()
    cells = np.array([step_loops.nearest_of_all(state, world) for state in found], dtype=np.intp)
    rewards, ends, inside = np.empty(len(found)), np.empty(len(found)), np.empty(len(found), dtype=bool)
    quiet = world._replace(noise=np.zeros((0, 0, 0, 0)), reach=np.full(len(world.reps), np.inf))
    step_loops.advance(found, cells, actions.astype(np.intp), np.zeros_like(found), quiet, rewards, ends, inside)
    for part in (found, rewards, ends):
        part[~inside] = np.nan
    return found, rewards, ends
