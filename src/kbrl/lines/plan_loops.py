"""The inner loops of plans, compiled: rolling plans out, and interpolating where they end.

A plan is a sequence of decisions, each held for some steps.  All plans of one length are rolled out together, so that
plans with a common beginning share it.  The tests hold these loops against slow ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.lines.step_loops import (
    World,
    blend,
    copy,
    copy_square,
    factor_of,
    nearest_from,
    nearest_of_all,
    predict,
    settle,
    shares_of_actions,
    spread_on,
    square_distance,
    squares_around,
)
from kbrl.numba_cache import njit

# Plans that stay with the data; that do not; of which a step is not known; that have a decision which may not be taken.
OFFERED, REFUSED, UNKNOWN, BARRED = 2, 1, 0, -1


class Ends(NamedTuple):
    """Where plans end, one row per plan."""

    rewards: Floats  # (n_plans,): discounted
    alive: Floats  # (n_plans,): probability that the episode has not ended
    fades: Floats  # (n_plans,): what a value counts then because of the durations of the steps; 1 without durations
    states: Floats  # (n_plans, n_dims)
    cells: Integers  # (n_plans,)
    spread: Floats  # (n_plans, n_dims, n_dims): covariance; empty where successors are not spread
    ranks: Integers  # (n_plans,): from OFFERED to BARRED; only plans of the highest rank there is may be chosen


@njit(cache=True, nogil=True)
def room_for(n_plans: int, n_dims: int, is_spread: bool) -> Ends:
    """Return empty arrays for the ends of plans."""
    n_spread = n_plans if is_spread else 0
    return Ends(
        np.empty(n_plans),
        np.empty(n_plans),
        np.empty(n_plans),
        np.empty((n_plans, n_dims)),
        np.empty(n_plans, dtype=np.intp),
        np.empty((n_spread, n_dims, n_dims)),
        np.empty(n_plans, dtype=np.intp),
    )


@njit(cache=True, nogil=True)
def roll_out(
    state: Floats,
    cell: int,
    actions: Integers,
    n_decisions: int,
    n_held: int,
    discount: float,
    world: World,
    barred: Booleans,
    ends: Ends,
) -> None:
    """Roll out all plans from a state whose nearest representative state is ``cell``, and fill in where they end.

    Plan p decides by the digits of p to the base of the number of actions, the first decision first.  ``barred``,
    (n_plans,), says which plans may not be taken; empty: those that the world does not offer.
    """
    n_dims, n_plans, n_targets = len(state), len(ends.rewards), world.lines.shape[2]
    is_spread, is_timed = len(ends.spread) > 0, n_targets > n_dims + 2
    states, cells = np.empty((n_decisions + 1, n_dims)), np.empty(n_decisions + 1, dtype=np.intp)
    rewards, alive, fades = np.zeros(n_decisions + 1), np.ones(n_decisions + 1), np.ones(n_decisions + 1)
    known, offered = np.ones(n_decisions + 1, dtype=np.bool_), np.ones(n_decisions + 1, dtype=np.bool_)
    spreads = np.zeros((n_decisions + 1, n_dims, n_dims))
    places, weights = np.zeros(world.graph.shape[1], dtype=np.intp), np.zeros(world.graph.shape[1])
    found, room, squares = np.empty(n_targets), np.empty((3, n_dims, n_dims)), np.empty(world.graph.shape[1])
    copy(state, states[0])
    cells[0] = cell
    digits = np.zeros(n_decisions, dtype=np.intp)
    changed = 0  # the first decision that differs from the plan before
    for plan in range(n_plans):
        for level in range(changed, n_decisions):
            action = actions[digits[level]]
            here = states[level + 1]
            copy(states[level], here)
            cell, total, left, fade = cells[level], rewards[level], alive[level], fades[level]
            factor = discount ** (level * n_held)
            known[level + 1], offered[level + 1] = known[level], offered[level]
            if len(world.offered) > 0:
                offered[level + 1] = offered[level] and world.offered[action, cell]
            if is_spread:
                copy_square(spreads[level], spreads[level + 1])
            squares_around(here, cell, world, squares)
            for _ in range(n_held):
                if not predict(here, action, cell, squares, world, places, weights, found):
                    known[level + 1] = False
                    break
                if is_spread:
                    spread_on(action, world, places, weights, spreads[level + 1], room)
                reward = found[n_dims]
                if len(world.doubts) > 0:
                    reward -= world.doubts[action, cell]
                total += factor * fade * left * reward
                left *= 1.0 - found[n_dims + 1]
                factor *= discount
                if is_timed:
                    fade *= found[n_dims + 2]
                for k in range(n_dims):
                    here[k] += found[k]
                settle(here, world)
                cell = nearest_from(here, cell, world, squares)
            cells[level + 1], rewards[level + 1], alive[level + 1], fades[level + 1] = cell, total, left, fade
        ends.rewards[plan], ends.alive[plan] = rewards[n_decisions], alive[n_decisions]
        ends.fades[plan] = fades[n_decisions]
        copy(states[n_decisions], ends.states[plan])
        ends.cells[plan] = cells[n_decisions]
        if is_spread:
            copy_square(spreads[n_decisions], ends.spread[plan])
        is_barred = not offered[n_decisions] or (len(barred) > 0 and barred[plan])
        ends.ranks[plan] = BARRED if is_barred else _rank(ends, plan, known[n_decisions], world)
        changed = _count_on(digits, len(actions))


@njit(cache=True, nogil=True)
def _rank(ends: Ends, plan: int, is_known: bool, world: World) -> int:
    """Return whether a plan that may be taken is offered; the last one does as now, see `deferring_plans`."""
    if not is_known:
        return UNKNOWN
    does_as_now = len(world.offered) > 0 and plan == len(ends.rewards) - 1
    return OFFERED if does_as_now or _is_near(ends, plan, world) else REFUSED


@njit(cache=True, nogil=True)
def _count_on(digits: Integers, base: int) -> int:
    """Add one to a number of these digits, in place, and return the first one that changes."""
    changed = len(digits) - 1
    while changed > 0 and digits[changed] == base - 1:
        digits[changed] = 0
        changed -= 1
    digits[changed] += 1
    return changed


@njit(cache=True, nogil=True)
def _is_near(ends: Ends, plan: int, world: World) -> bool:
    """Return whether a plan ends where the log has been; how it does not matter where the episode has ended."""
    if ends.alive[plan] < 0.5:
        return True
    cell = ends.cells[plan]
    return square_distance(ends.states[plan], world.reps[cell]) <= world.reach[cell] ** 2


@njit(cache=True, nogil=True)
def _refuse_unusual(state: Floats, cell: int, actions: Integers, world: World, ends: Ends) -> None:
    """Refuse plans that begin as people seldom did here."""
    if len(world.behaviour) == 0:
        return
    places, weights = np.zeros(world.graph.shape[1], dtype=np.intp), np.zeros(world.graph.shape[1])
    shares = np.empty(len(world.behaviour))
    shares_of_actions(state, cell, world, places, weights, shares)
    most = 0.0
    for a in actions:
        most = max(most, shares[a])
    n_first = len(ends.ranks) // len(actions)
    for plan in range(len(ends.ranks)):
        if shares[actions[plan // n_first]] < world.usual * most:
            ends.ranks[plan] = min(ends.ranks[plan], REFUSED)


@njit(cache=True, nogil=True)
def _sigma_points(state: Floats, spread: Floats, points: Floats) -> None:
    """Fill in 2 n_dims points with this mean and covariance: along the columns of a Cholesky factor."""
    n_dims = len(state)
    factor = np.zeros((n_dims, n_dims))
    factor_of(spread, factor)
    size = np.sqrt(float(n_dims))
    for k in range(n_dims):
        for r in range(n_dims):
            points[2 * k, r] = state[r] + size * factor[r, k]
            points[2 * k + 1, r] = state[r] - size * factor[r, k]


@njit(cache=True, nogil=True)
def _fill_points(ends: Ends, plan: int, points: Floats) -> None:
    """Fill in where a plan may end: its end alone, or points spread around it."""
    if len(points) == 1:
        copy(ends.states[plan], points[0])
    else:
        _sigma_points(ends.states[plan], ends.spread[plan], points)


@njit(cache=True, nogil=True)
def _blend_point(
    ends: Ends,
    plan: int,
    point: Floats,
    n_near: int,
    world: World,
    places: Integers,
    weights: Floats,
    squares: Floats,
) -> int:
    """Fill in the representative states around one of the points where a plan may end; return how many they are."""
    cell = ends.cells[plan]
    if len(ends.spread) > 0:
        settle(point, world)
        cell = nearest_from(point, cell, world, squares)
    else:
        squares_around(point, cell, world, squares)
    return blend(squares, cell, n_near, world, places, weights)


@njit(cache=True, nogil=True)
def mean_value(ends: Ends, plan: int, values: Floats, n_near: int, world: World) -> float:
    """Return the value of where a plan ends: that of its neighbours, and of points around it if it is spread."""
    places, weights = np.zeros(world.graph.shape[1], dtype=np.intp), np.zeros(world.graph.shape[1])
    n_dims = ends.states.shape[1]
    n_points = 2 * n_dims if len(ends.spread) > 0 else 1
    points, squares = np.empty((n_points, n_dims)), np.empty(world.graph.shape[1])
    _fill_points(ends, plan, points)
    total = 0.0
    for p in range(n_points):
        n_used = _blend_point(ends, plan, points[p], n_near, world, places, weights, squares)
        for j in range(n_used):
            total += weights[j] * values[places[j]]
    return total / n_points


@njit(cache=True, nogil=True)
def plan_rows(
    first: int,
    actions: Integers,
    n_decisions: int,
    n_held: int,
    discount: float,
    n_near: int,
    world: World,
    barred: Booleans,
    rewards: Floats,
    ranks: Integers,
    shares: Floats,
    columns: Integers,
) -> None:
    """Fill in the plan MDP from representative state ``first`` on: the rows of some representative states.

    rewards and ranks are (n_plans, n_rows); shares and columns (n_plans, n_rows, n_entries) are the transitions.
    barred: which plans may not be taken, (n_rows, n_plans) or (n_rows, 0).
    """
    n_plans, n_rows, n_entries = shares.shape
    n_dims = world.reps.shape[1]
    n_points = n_entries // n_near
    ends = room_for(n_plans, n_dims, n_points > 1)
    places, weights = np.zeros(world.graph.shape[1], dtype=np.intp), np.zeros(world.graph.shape[1])
    points, squares = np.empty((n_points, n_dims)), np.empty(world.graph.shape[1])
    for row in range(n_rows):
        start = world.reps[first + row]
        roll_out(start, first + row, actions, n_decisions, n_held, discount, world, barred[row], ends)
        _refuse_unusual(start, first + row, actions, world, ends)
        for plan in range(n_plans):
            rewards[plan, row], ranks[plan, row] = ends.rewards[plan], ends.ranks[plan]
            left = ends.alive[plan] * ends.fades[plan]
            _fill_points(ends, plan, points)
            for p in range(n_points):
                n_used = _blend_point(ends, plan, points[p], n_near, world, places, weights, squares)
                for j in range(n_near):
                    here = p * n_near + j
                    shares[plan, row, here] = left * weights[j] / n_points if j < n_used else 0.0
                    columns[plan, row, here] = places[j] if j < n_used else 0


@njit(cache=True, nogil=True)
def look_ahead(
    states: Floats,
    actions: Integers,
    n_decisions: int,
    n_held: int,
    discount: float,
    n_near: int,
    is_spread: bool,
    world: World,
    barred: Booleans,
    values: Floats,
    q: Floats,
    best: Integers,
) -> None:
    """Fill in the value of the best plan that begins with each action, (n_states, n_actions), and which plan it is.

    Refused plans count only where none is offered, and those with an unknown step only where there are no others.
    ``barred`` ones, (n_states, n_plans) or (n_states, 0), never do.
    """
    n_plans = len(actions) ** n_decisions
    n_first = n_plans // len(actions)
    ends = room_for(n_plans, states.shape[1], is_spread)
    weight = discount ** (n_decisions * n_held)
    for t in range(len(states)):
        cell = nearest_of_all(states[t], world)
        roll_out(states[t], cell, actions, n_decisions, n_held, discount, world, barred[t], ends)
        _refuse_unusual(states[t], cell, actions, world, ends)
        highest = UNKNOWN
        for plan in range(n_plans):
            highest = max(highest, ends.ranks[plan])
        for a in range(q.shape[1]):
            q[t, a], best[t, a] = -np.inf, -1
        for plan in range(n_plans):
            if ends.ranks[plan] < highest:
                continue
            left = weight * ends.alive[plan] * ends.fades[plan]
            value = ends.rewards[plan] + left * mean_value(ends, plan, values, n_near, world)
            action = actions[plan // n_first]
            if value > q[t, action]:
                q[t, action], best[t, action] = value, plan


@njit(cache=True, nogil=True)
def ends_of_plans(
    states: Floats, actions: Integers, n_decisions: int, n_held: int, discount: float, world: World, found: Floats
) -> None:
    """Fill in where all plans from each state end, (n_states, n_plans, n_dims)."""
    n_plans, n_dims = found.shape[1:]
    ends, barred = room_for(n_plans, n_dims, False), np.zeros(0, dtype=np.bool_)
    for t in range(len(states)):
        cell = nearest_of_all(states[t], world)
        roll_out(states[t], cell, actions, n_decisions, n_held, discount, world, barred, ends)
        for plan in range(n_plans):
            copy(ends.states[plan], found[t, plan])
