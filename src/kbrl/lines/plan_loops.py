"""The inner loops of plans, compiled: rolling plans out, spreading their ends, and choosing between them.

A plan is a sequence of decisions, each held for some steps.  All plans of one length are rolled out together, so that
plans with a common beginning share it.  The tests hold these loops against slow ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.lines.step_loops import (
    Room,
    copy,
    copy_rows,
    factor_of,
    nearest_from,
    predict,
    settle,
    spread_on,
    square_distance,
    squares_around,
)
from kbrl.lines.world import Ground, Moves, Near, Rules
from kbrl.numba_cache import inner, lean, njit

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


class Path(NamedTuple):
    """Where a plan is before each of its decisions, and after the last."""

    states: Floats  # (n_decisions + 1, n_dims)
    spread: Floats  # (n_decisions + 1, n_dims, n_dims): covariance
    cells: Integers  # (n_decisions + 1,)
    ranks: Integers  # (n_decisions + 1,)
    totals: Floats  # (n_decisions + 1, 3): the reward, and the probability and the fade of what comes then
    digits: Integers  # (n_decisions,): which decisions

    @classmethod
    def room(cls, n_decisions: int, n_dims: int) -> Path:
        """Return the path before the first plan; where it begins is not known yet."""
        n, digits = n_decisions + 1, np.zeros(n_decisions, dtype=np.intp)
        cells, ranks = np.empty(n, dtype=np.intp), np.empty(n, dtype=np.intp)
        return cls(np.empty((n, n_dims)), np.zeros((n, n_dims, n_dims)), cells, ranks, np.empty((n, 3)), digits)


# The steps of a decision stay in the loop below: as a function they would be compiled twice, which takes 1.4 s.


@lean()
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
    path: Path,
    room: Room,
) -> None:
    """Roll out all plans from states whose nearest representative states are ``cells``, and fill in where they end.

    Plan p decides by the digits of p to the base of the number of actions, the first decision first.
    usual: with which actions plans should begin, (n_states, n_actions), or (n_states, 0): with all.
    barred: which plans may not be taken, (n_states, n_plans), or (n_states, 0): those that the rules do not offer.
    """
    n_dims, n_plans, n_decisions = states.shape[1], ends.rewards.shape[1], length.n_decisions
    is_spread, is_timed, found = ends.spread.shape[1] > 0, len(room.found) > n_dims + 2, room.found
    totals, digits = path.totals, path.digits
    totals[0, 0], totals[0, 1], totals[0, 2], path.ranks[0] = 0.0, 1.0, 1.0, OFFERED
    for t in range(len(states)):
        copy(states[t], path.states[0])
        path.cells[0], digits[0] = cells[t], 0  # the other digits are 0 again after the last plan
        changed = 0  # the first decision that differs from the plan before
        for plan in range(n_plans):
            for level in range(changed, n_decisions):
                action, cell, rank = actions[digits[level]], path.cells[level], path.ranks[level]
                state, spread = path.states[level + 1], path.spread[level + 1]
                total, left, fade = totals[level, 0], totals[level, 1], totals[level, 2]
                copy(path.states[level], state)
                factor = length.discount ** (level * length.n_held)
                if len(rules.offered) > 0 and not rules.offered[action, cell]:
                    rank = BARRED
                if is_spread:
                    copy_rows(path.spread[level], spread)
                squares_around(state, cell, near, room.squares)
                for _ in range(length.n_held):
                    n_mixed = predict(state, action, cell, near, moves, room)
                    if n_mixed == 0:
                        rank = min(rank, UNKNOWN)
                        break
                    if is_spread:
                        spread_on(action, n_mixed, moves, room, spread)
                    reward = found[n_dims]
                    if len(rules.doubts) > 0:
                        reward -= rules.doubts[action, cell]
                    total += factor * fade * left * reward
                    left *= 1.0 - found[n_dims + 1]
                    factor *= length.discount
                    if is_timed:
                        fade *= found[n_dims + 2]
                    for k in range(n_dims):
                        state[k] += found[k]
                    settle(state, ground)
                    cell = nearest_from(state, cell, near, room.squares)
                path.cells[level + 1], path.ranks[level + 1] = cell, rank
                totals[level + 1, 0], totals[level + 1, 1], totals[level + 1, 2] = total, left, fade
            _end(t, plan, is_spread, near, rules, usual, barred, ends, path)
            changed = _next_plan(len(actions), digits)


@inner()
def _end(
    t: int,
    plan: int,
    is_spread: bool,
    near: Near,
    rules: Rules,
    usual: Booleans,
    barred: Booleans,
    ends: Ends,
    path: Path,
) -> None:
    """Fill in where a plan from state ``t`` ends: after the last decision of the path."""
    last = len(path.digits)
    state, cell, left = path.states[last], path.cells[last], path.totals[last, 1]
    ends.rewards[t, plan], ends.alive[t, plan], ends.fades[t, plan] = path.totals[last, 0], left, path.totals[last, 2]
    copy(state, ends.states[t, plan])
    ends.cells[t, plan] = cell
    if is_spread:
        copy_rows(path.spread[last], ends.spread[t, plan])
    does_as_now = len(rules.offered) > 0 and plan == ends.rewards.shape[1] - 1  # see `deferring_plans`
    may_end_anywhere = does_as_now or left < 0.5  # where the episode has ended
    is_far = square_distance(state, near.reps[cell]) > rules.reach[cell] ** 2
    is_usual = usual.shape[1] == 0 or usual[t, path.digits[0]]
    is_barred = barred.shape[1] > 0 and barred[t, plan]
    ends.ranks[t, plan] = _rank_of_end(path.ranks[last], is_far, may_end_anywhere, is_usual, is_barred)


@lean()
def sigma_points(states: Floats, spread: Floats, points: Floats, factor: Floats) -> None:
    """Fill in 2 n_dims points around each state, (n, 2 n_dims, n_dims), with it as mean and ``spread`` as covariance.

    They are along the columns of a Cholesky factor, which is put into ``factor``, (n_dims, n_dims).
    """
    n_dims, size = states.shape[1], np.sqrt(float(states.shape[1]))
    for t in range(len(states)):
        factor_of(spread[t], factor)
        for k in range(n_dims):
            for r in range(n_dims):
                away = size * factor[r, k] if r >= k else 0.0
                points[t, 2 * k, r] = states[t, r] + away
                points[t, 2 * k + 1, r] = states[t, r] - away


@njit(cache=True, nogil=True)
def merge_columns(shares: Floats, columns: NDArray[np.int32], starts: Integers, n_columns: int) -> None:
    """Add up the shares of equal columns in each row of a sparse matrix, in place, and leave out those that are 0.

    Afterwards ``starts`` are where the rows begin then; the columns of a row are in the order in which they came.
    """
    at, stop = np.full(n_columns, -1), 0  # where each column was put last, and where the next entry will be
    for row in range(len(starts) - 1):
        first, begin = stop, starts[row]
        starts[row] = first
        for entry in range(begin, starts[row + 1]):
            column, share = columns[entry], shares[entry]
            if share == 0.0:
                continue
            if at[column] >= first:
                shares[at[column]] += share
            else:
                at[column], columns[stop], shares[stop] = stop, column, share
                stop += 1
    starts[-1] = stop


@lean()
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
