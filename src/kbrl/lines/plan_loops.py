"""The inner loops of plans, compiled: rolling plans out, spreading their ends, and choosing between them.

A plan is a sequence of decisions, each held for some steps.  All plans of one length are rolled out together, so that
plans with a common beginning share it.  The tests hold these loops against slow ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.lines.step_loops import (
    copy,
    factor_of,
    fill,
    nearest_from,
    predict,
    room_for,
    settle,
    spread_on,
    square_distance,
    squares_around,
)
from kbrl.lines.world import Ground, Moves, Near, Rules
from kbrl.numba_cache import inner, njit

# Plans that stay with the data; that do not; of which a step is not known; that have a decision which may not be taken.
OFFERED, REFUSED, UNKNOWN, BARRED = 2, 1, 0, -1


class Length(NamedTuple):
    """How long plans are."""

    n_decisions: int
    n_held: int  # steps that each is held
    discount: float  # of one step; 1 where the lines hold it, because steps have durations


class Ends(NamedTuple):
    """Where plans end, one row per state that they begin in."""

    rewards: Floats  # (n_states, n_plans): discounted
    alive: Floats  # (n_states, n_plans): probability that the episode has not ended
    fades: Floats  # (n_states, n_plans): what a value counts then because of the durations of the steps; 1 without
    states: Floats  # (n_states, n_plans, n_dims)
    cells: Integers  # (n_states, n_plans)
    spread: Floats  # (n_states, n_plans, n_dims, n_dims): covariance; no plans where successors are not spread
    ranks: (
        Integers  # (n_states, n_plans): from OFFERED to BARRED; only plans of the highest rank there is may be chosen
    )

    @classmethod
    def room(cls, n_states: int, n_plans: int, n_dims: int, is_spread: bool) -> Ends:
        """Return empty arrays."""
        size = (n_states, n_plans)
        rewards, alive, fades = np.empty(size), np.empty(size), np.empty(size)
        cells, ranks = np.empty(size, dtype=np.intp), np.empty(size, dtype=np.intp)
        spread = np.empty((n_states, n_plans if is_spread else 0, n_dims, n_dims))
        return cls(rewards, alive, fades, np.empty((*size, n_dims)), cells, spread, ranks)


@inner()
def _next_plan(n_actions: int, digits: Integers) -> int:
    """Count one plan further, in place; return the first decision that differs."""
    changed = len(digits) - 1
    while changed > 0 and digits[changed] == n_actions - 1:
        digits[changed] = 0
        changed -= 1
    digits[changed] += 1
    return changed


@inner()
def _rank_of_end(rank: int, is_far: bool, may_end: bool, is_usual: bool, is_barred: bool) -> int:
    """Return the rank of a plan: that of its steps, or a lower one because of its end or its beginning."""
    if is_barred:
        return BARRED
    if (is_far and not may_end) or not is_usual:
        return min(rank, REFUSED)
    return rank


# The steps of a decision stay in the loop below: as a function, inlined or not, they take 4 to 16 % more CPU time.


@njit(cache=True, nogil=True)
def roll_out(
    states: Floats,
    cells: Integers,
    actions: Integers,
    length: Length,
    near: Near,
    moves: Moves,
    ground: Ground,
    rules: Rules,
    usual: Booleans,
    barred: Booleans,
    ends: Ends,
) -> None:
    """Roll out all plans from states whose nearest representative states are ``cells``, and fill in where they end.

    Plan p decides by the digits of p to the base of the number of actions, the first decision first.
    usual: with which actions plans should begin, (n_states, n_actions), or (n_states, 0): with all.
    barred: which plans may not be taken, (n_states, n_plans), or (n_states, 0): those that the rules do not offer.
    """
    n_dims, n_targets, n_plans = states.shape[1], moves.lines.shape[2], ends.rewards.shape[1]
    n_decisions, n_held, discount = length
    is_spread, is_timed = ends.spread.shape[1] > 0, n_targets > n_dims + 2
    # Where a plan is before each of its decisions, and after the last.
    here, spreads = np.empty((n_decisions + 1, n_dims)), np.empty((n_decisions + 1, n_dims, n_dims))
    at, ranks = np.empty(n_decisions + 1, dtype=np.intp), np.empty(n_decisions + 1, dtype=np.intp)
    totals = np.empty((n_decisions + 1, 3))  # the reward, and the probability and the fade of what comes then
    digits = np.empty(n_decisions, dtype=np.intp)
    room, found, squares = room_for(near), np.empty(n_targets), np.empty((3, n_dims, n_dims))
    totals[0, 0], totals[0, 1], totals[0, 2], ranks[0] = 0.0, 1.0, 1.0, OFFERED
    for r in range(n_dims):
        fill(spreads[0, r], 0.0)
    for level in range(n_decisions):
        digits[level] = 0
    for t in range(len(states)):
        copy(states[t], here[0])
        at[0], digits[0] = cells[t], 0  # the other digits are 0 again after the last plan
        changed = 0  # the first decision that differs from the plan before
        for plan in range(n_plans):
            for level in range(changed, n_decisions):
                action, state, cell, rank = actions[digits[level]], here[level + 1], at[level], ranks[level]
                total, left, fade = totals[level, 0], totals[level, 1], totals[level, 2]
                copy(here[level], state)
                factor = discount ** (level * n_held)
                if len(rules.offered) > 0 and not rules.offered[action, cell]:
                    rank = BARRED
                if is_spread:
                    for r in range(n_dims):
                        copy(spreads[level, r], spreads[level + 1, r])
                squares_around(state, cell, near, room.squares)
                for _ in range(n_held):
                    if not predict(state, action, cell, near, moves, room, found):
                        rank = min(rank, UNKNOWN)
                        break
                    if is_spread:
                        spread_on(action, moves, room, spreads[level + 1], squares)
                    reward = found[n_dims]
                    if len(rules.doubts) > 0:
                        reward -= rules.doubts[action, cell]
                    total += factor * fade * left * reward
                    left *= 1.0 - found[n_dims + 1]
                    factor *= discount
                    if is_timed:
                        fade *= found[n_dims + 2]
                    for k in range(n_dims):
                        state[k] += found[k]
                    settle(state, ground)
                    cell = nearest_from(state, cell, near, room.squares)
                at[level + 1], ranks[level + 1] = cell, rank
                totals[level + 1, 0], totals[level + 1, 1], totals[level + 1, 2] = total, left, fade
            ends.rewards[t, plan], ends.alive[t, plan], ends.fades[t, plan] = (
                totals[n_decisions, 0],
                totals[n_decisions, 1],
                totals[n_decisions, 2],
            )
            copy(here[n_decisions], ends.states[t, plan])
            cell, rank = at[n_decisions], ranks[n_decisions]
            ends.cells[t, plan] = cell
            if is_spread:
                for r in range(n_dims):
                    copy(spreads[n_decisions, r], ends.spread[t, plan, r])
            does_as_now = len(rules.offered) > 0 and plan == n_plans - 1  # see `deferring_plans`
            may_end_anywhere = does_as_now or totals[n_decisions, 1] < 0.5  # where the episode has ended
            is_far = square_distance(here[n_decisions], near.reps[cell]) > rules.reach[cell] ** 2
            is_usual = usual.shape[1] == 0 or usual[t, digits[0]]
            is_barred = barred.shape[1] > 0 and barred[t, plan]
            ends.ranks[t, plan] = _rank_of_end(rank, is_far, may_end_anywhere, is_usual, is_barred)
            changed = _next_plan(len(actions), digits)


@njit(cache=True, nogil=True)
def sigma_points(states: Floats, spread: Floats, points: Floats) -> None:
    """Fill in 2 n_dims points around each state, (n, 2 n_dims, n_dims), with it as mean and ``spread`` as covariance.

    They are along the columns of a Cholesky factor.
    """
    n_dims = states.shape[1]
    factor, size = np.empty((n_dims, n_dims)), np.sqrt(float(n_dims))
    for t in range(len(states)):
        factor_of(spread[t], factor)
        for k in range(n_dims):
            for r in range(n_dims):
                away = size * factor[r, k] if r >= k else 0.0
                points[t, 2 * k, r] = states[t, r] + away
                points[t, 2 * k + 1, r] = states[t, r] - away


@njit(cache=True, nogil=True)
def choose(actions: Integers, length: Length, ends: Ends, ahead: Floats, q: Floats, best: Integers) -> None:
    """Fill in the value of the best plan that begins with each action, (n_states, n_actions), and which plan it is.

    Refused plans count only where none is offered, and those with an unknown step only where there are no others.
    Barred ones never do.  ``ahead`` is the value of where each plan ends, (n_states, n_plans).
    """
    n_plans = ahead.shape[1]
    n_first = n_plans // len(actions)
    weight = length.discount ** (length.n_decisions * length.n_held)
    for t in range(len(ahead)):
        highest = UNKNOWN
        for plan in range(n_plans):
            highest = max(highest, ends.ranks[t, plan])
        for a in range(q.shape[1]):
            q[t, a], best[t, a] = -np.inf, -1
        for plan in range(n_plans):
            if ends.ranks[t, plan] < highest:
                continue
            left = weight * ends.alive[t, plan] * ends.fades[t, plan]
            value = ends.rewards[t, plan] + left * ahead[t, plan]
            action = actions[plan // n_first]
            if value > q[t, action]:
                q[t, action], best[t, action] = value, plan
