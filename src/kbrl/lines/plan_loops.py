"""The inner loops of plans, compiled: blending lines, rolling plans out, and interpolating where they end.

A plan is a sequence of decisions, each held for some steps.  All plans of one length are rolled out together, so that
plans with a common beginning share it.  The representative states near a state are looked for among the neighbours of
the one that was nearest a step before (`LocalLines.graph`).  The tests hold these loops against slow ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.numba_cache import njit

OFFERED, REFUSED, UNKNOWN = 2, 1, 0  # plans that stay with the data; that do not; of which a step is not known
BLENDED = 6  # representative states whose lines are mixed at a state
_FAST = {"contract", "arcp", "nsz"}


class World(NamedTuple):
    """What the loops need: the lines, and what may be done where."""

    reps: Floats  # (n_reps, n_dims)
    columns: Floats  # (n_dims, n_reps): the same, for the search among all of them
    graph: Integers  # (n_reps, n_near)
    lines: Floats  # (n_actions, n_reps, n_dims + 2, 1 + n_dims)
    limits: Floats  # (n_actions, n_reps, 4)
    known: Booleans  # (n_actions, n_reps)
    noise: Floats  # (n_actions, n_reps, n_dims, n_dims); empty where successors are not spread
    span: Floats  # (2, n_dims)
    circles: Integers  # (n_circles, 2): pairs of variables that lie on a circle
    circle: Floats  # (n_circles, 5): its centre, scaled, the scales of the two variables, and its radius
    usual: Booleans  # (n_actions, n_reps): actions that people took often enough, to begin a plan with
    reach: Floats  # (n_reps,): a plan must not end farther from the nearest representative state


class Ends(NamedTuple):
    """Where plans end, one row per plan."""

    rewards: Floats  # (n_plans,): discounted
    alive: Floats  # (n_plans,): probability that the episode has not ended
    states: Floats  # (n_plans, n_dims)
    cells: Integers  # (n_plans,)
    spread: Floats  # (n_plans, n_dims, n_dims): covariance; empty where successors are not spread
    ranks: Integers  # (n_plans,): OFFERED, REFUSED or UNKNOWN; only plans of the highest rank there is may be chosen


@njit(cache=True, nogil=True)
def room_for(n_plans: int, n_dims: int, is_spread: bool) -> Ends:
    """Return empty arrays for the ends of plans."""
    n_spread = n_plans if is_spread else 0
    return Ends(
        np.empty(n_plans),
        np.empty(n_plans),
        np.empty((n_plans, n_dims)),
        np.empty(n_plans, dtype=np.intp),
        np.empty((n_spread, n_dims, n_dims)),
        np.empty(n_plans, dtype=np.intp),
    )


# Loops instead of assignments to slices: they take a fraction of the time to compile.


@njit(cache=True, nogil=True)
def _fill(values: Floats, value: float) -> None:
    for k in range(len(values)):
        values[k] = value


@njit(cache=True, nogil=True)
def _copy(source: Floats, target: Floats) -> None:
    for k in range(len(target)):
        target[k] = source[k]


@njit(cache=True, nogil=True)
def _copy_square(source: Floats, target: Floats) -> None:
    for r in range(len(target)):
        for c in range(len(target)):
            target[r, c] = source[r, c]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _square(state: Floats, rep: Floats) -> float:
    total = 0.0
    for k in range(len(state)):
        total += (state[k] - rep[k]) * (state[k] - rep[k])
    return total


@njit(cache=True, nogil=True)
def nearest_of_all(state: Floats, world: World) -> int:
    """Return the representative state nearest to a state."""
    best, least = 0, np.inf
    for i in range(len(world.reps)):
        square = _square(state, world.reps[i])
        if square < least:
            best, least = i, square
    return best


@njit(cache=True, nogil=True)
def _nearest_from(state: Floats, start: int, world: World) -> int:
    """Return the nearest representative state, going from neighbour to neighbour as long as they are nearer."""
    best, least = start, _square(state, world.reps[start])
    while True:
        here = best
        for near in range(1, world.graph.shape[1]):
            i = world.graph[here, near]
            square = _square(state, world.reps[i])
            if square < least:
                best, least = i, square
        if best == here:
            return here


@njit(cache=True, nogil=True)
def blend(state: Floats, cell: int, n_blended: int, world: World, places: Integers, weights: Floats) -> int:
    """Fill in the nearest representative states around a cell and their weights; return how many they are.

    The weight falls as (1 - distance / reach)^2; the reach is the distance of the first that does not count.
    """
    n_near = world.graph.shape[1]
    n_sorted = min(n_blended + 1, n_near)
    for j in range(n_sorted):
        weights[j] = np.inf
    for near in range(n_near):
        i = world.graph[cell, near]
        square = _square(state, world.reps[i])
        if square < weights[n_sorted - 1]:
            rank = n_sorted - 1
            while rank > 0 and weights[rank - 1] > square:
                weights[rank], places[rank] = weights[rank - 1], places[rank - 1]
                rank -= 1
            weights[rank], places[rank] = square, i
    n_used = n_sorted - 1 if n_near > n_blended else n_sorted
    reach = np.sqrt(weights[n_sorted - 1]) if n_near > n_blended else 2.0 * np.sqrt(weights[n_sorted - 1])
    total = 0.0
    for j in range(n_used):
        share = 1.0 - np.sqrt(weights[j]) / reach if reach > 0 else 1.0
        weights[j] = share * share
        total += weights[j]
    if total <= 0.0:  # all are equally far
        _fill(weights, 1.0)
        total = float(n_used)
    for j in range(n_used):
        weights[j] /= total
    return n_used


@njit(cache=True, nogil=True, fastmath=_FAST)
def predict(
    state: Floats, action: int, cell: int, world: World, places: Integers, weights: Floats, found: Floats
) -> bool:
    """Fill in the expected displacement, reward and end, (n_dims + 2,); return whether anything is known.

    After it, ``places`` and ``weights`` are those of the blend, with weight 0 where the action is not known.
    """
    n_dims = len(state)
    n_used = blend(state, cell, BLENDED, world, places, weights)
    mass = 0.0
    _fill(found, 0.0)
    for j in range(n_used):
        i = places[j]
        if not world.known[action, i]:
            weights[j] = 0.0
            continue
        mass += weights[j]
        line, limits = world.lines[action, i], world.limits[action, i]
        for target in range(n_dims + 2):
            value = line[target, 0]
            for k in range(n_dims):
                value += line[target, 1 + k] * (state[k] - world.reps[i, k])
            if target == n_dims:
                value = min(max(value, limits[0]), limits[1])
            elif target == n_dims + 1:
                value = min(max(value, limits[2]), limits[3])
            found[target] += weights[j] * value
    if mass <= 0.0:
        return False
    for target in range(n_dims + 2):
        found[target] /= mass
    for j in range(n_used):
        weights[j] /= mass
    for j in range(n_used, len(weights)):
        weights[j] = 0.0
    return True


def blended(state: Floats, action: int, world: World) -> tuple[Integers, Floats]:
    """Return the representative states whose lines are mixed for an action at a scaled state, and their weights."""
    places, weights = np.zeros(world.graph.shape[1], dtype=np.intp), np.zeros(world.graph.shape[1])
    predict(state, action, nearest_of_all(state, world), world, places, weights, np.empty(len(state) + 2))
    used = weights > 0
    return places[used], weights[used]


@njit(cache=True, nogil=True)
def _spread_on(action: int, world: World, places: Integers, weights: Floats, spread: Floats, room: Floats) -> None:
    """Let the covariance of a state pass through a step, in place: J spread J' + noise, with J = 1 + slopes."""
    n_dims = len(spread)
    slopes, noise, moved = room[0], room[1], room[2]
    for r in range(n_dims):
        _fill(slopes[r], 0.0)
        _fill(noise[r], 0.0)
    for j in range(len(weights)):
        if weights[j] == 0.0:
            continue
        line, own = world.lines[action, places[j]], world.noise[action, places[j]]
        for r in range(n_dims):
            for c in range(n_dims):
                slopes[r, c] += weights[j] * line[r, 1 + c]
                noise[r, c] += weights[j] * own[r, c]
    for r in range(n_dims):
        slopes[r, r] += 1.0
    for r in range(n_dims):
        for c in range(n_dims):
            total = 0.0
            for k in range(n_dims):
                total += slopes[r, k] * spread[k, c]
            moved[r, c] = total
    for r in range(n_dims):
        for c in range(n_dims):
            total = noise[r, c]
            for k in range(n_dims):
                total += moved[r, k] * slopes[c, k]
            spread[r, c] = total


@njit(cache=True, nogil=True)
def settle(state: Floats, world: World) -> None:
    """Put a predicted state back, in place: into the range of the data, and onto the circles that they lie on."""
    for k in range(len(state)):
        state[k] = min(max(state[k], world.span[0, k]), world.span[1, k])
    for c in range(len(world.circles)):
        one, other = world.circles[c, 0], world.circles[c, 1]
        x = (state[one] - world.circle[c, 0]) * world.circle[c, 2]
        y = (state[other] - world.circle[c, 1]) * world.circle[c, 3]
        size = np.sqrt(x * x + y * y)
        if size > 0:
            state[one] = world.circle[c, 0] + x * world.circle[c, 4] / (size * world.circle[c, 2])
            state[other] = world.circle[c, 1] + y * world.circle[c, 4] / (size * world.circle[c, 3])


@njit(cache=True, nogil=True)
def roll_out(
    state: Floats,
    cell: int,
    actions: Integers,
    n_decisions: int,
    n_held: int,
    discount: float,
    world: World,
    ends: Ends,
) -> None:
    """Roll out all plans from a state whose nearest representative state is ``cell``, and fill in where they end.

    Plan p decides by the digits of p to the base of the number of actions, the first decision first.
    """
    n_dims, n_actions, n_plans = len(state), len(actions), len(ends.rewards)
    is_spread = len(ends.spread) > 0
    states, cells = np.empty((n_decisions + 1, n_dims)), np.empty(n_decisions + 1, dtype=np.intp)
    rewards, alive = np.zeros(n_decisions + 1), np.ones(n_decisions + 1)
    known = np.ones(n_decisions + 1, dtype=np.bool_)
    spreads = np.zeros((n_decisions + 1, n_dims, n_dims))
    places, weights = np.zeros(world.graph.shape[1], dtype=np.intp), np.zeros(world.graph.shape[1])
    found, room = np.empty(n_dims + 2), np.empty((3, n_dims, n_dims))
    _copy(state, states[0])
    cells[0] = cell
    digits = np.zeros(n_decisions, dtype=np.intp)
    changed = 0  # the first decision that differs from the plan before
    for plan in range(n_plans):
        for level in range(changed, n_decisions):
            action = actions[digits[level]]
            here = states[level + 1]
            _copy(states[level], here)
            cell, total, left = cells[level], rewards[level], alive[level]
            factor = discount ** (level * n_held)
            known[level + 1] = known[level]
            if is_spread:
                _copy_square(spreads[level], spreads[level + 1])
            for _ in range(n_held):
                if not predict(here, action, cell, world, places, weights, found):
                    known[level + 1] = False
                    break
                if is_spread:
                    _spread_on(action, world, places, weights, spreads[level + 1], room)
                total += factor * left * found[n_dims]
                left *= 1.0 - found[n_dims + 1]
                factor *= discount
                for k in range(n_dims):
                    here[k] += found[k]
                settle(here, world)
                cell = _nearest_from(here, cell, world)
            cells[level + 1], rewards[level + 1], alive[level + 1] = cell, total, left
        ends.rewards[plan], ends.alive[plan] = rewards[n_decisions], alive[n_decisions]
        _copy(states[n_decisions], ends.states[plan])
        ends.cells[plan] = cells[n_decisions]
        if is_spread:
            _copy_square(spreads[n_decisions], ends.spread[plan])
        ends.ranks[plan] = UNKNOWN
        if known[n_decisions]:
            ends.ranks[plan] = OFFERED if _is_near(ends, plan, world) else REFUSED
        changed = n_decisions - 1
        while changed > 0 and digits[changed] == n_actions - 1:
            digits[changed] = 0
            changed -= 1
        digits[changed] += 1


@njit(cache=True, nogil=True)
def _is_near(ends: Ends, plan: int, world: World) -> bool:
    """Return whether a plan ends where the log has been; how it does not matter where the episode has ended."""
    if ends.alive[plan] < 0.5:
        return True
    cell = ends.cells[plan]
    return _square(ends.states[plan], world.reps[cell]) <= world.reach[cell] ** 2


@njit(cache=True, nogil=True)
def _refuse_unusual(cell: int, actions: Integers, world: World, ends: Ends) -> None:
    """Refuse plans that begin as people seldom did here."""
    n_first = len(ends.ranks) // len(actions)
    for plan in range(len(ends.ranks)):
        if not world.usual[actions[plan // n_first], cell]:
            ends.ranks[plan] = min(ends.ranks[plan], REFUSED)


@njit(cache=True, nogil=True)
def _factor(spread: Floats, factor: Floats) -> None:
    """Fill in a lower triangle whose product with its transpose is a covariance, (n_dims, n_dims); zeros stay zeros."""
    for r in range(len(spread)):
        for c in range(r + 1):
            total = spread[r, c]
            for k in range(c):
                total -= factor[r, k] * factor[c, k]
            if r == c:
                factor[r, r] = np.sqrt(max(total, 0.0))
            else:
                factor[r, c] = total / factor[c, c] if factor[c, c] > 0 else 0.0


@njit(cache=True, nogil=True)
def _sigma_points(state: Floats, spread: Floats, points: Floats) -> None:
    """Fill in 2 n_dims points with this mean and covariance: along the columns of a Cholesky factor."""
    n_dims = len(state)
    factor = np.zeros((n_dims, n_dims))
    _factor(spread, factor)
    size = np.sqrt(float(n_dims))
    for k in range(n_dims):
        for r in range(n_dims):
            points[2 * k, r] = state[r] + size * factor[r, k]
            points[2 * k + 1, r] = state[r] - size * factor[r, k]


@njit(cache=True, nogil=True)
def _fill_points(ends: Ends, plan: int, points: Floats) -> None:
    """Fill in where a plan may end: its end alone, or points spread around it."""
    if len(points) == 1:
        _copy(ends.states[plan], points[0])
    else:
        _sigma_points(ends.states[plan], ends.spread[plan], points)


@njit(cache=True, nogil=True)
def _blend_point(
    ends: Ends, plan: int, point: Floats, n_near: int, world: World, places: Integers, weights: Floats
) -> int:
    """Fill in the representative states around one of the points where a plan may end; return how many they are."""
    cell = ends.cells[plan]
    if len(ends.spread) > 0:
        settle(point, world)
        cell = _nearest_from(point, cell, world)
    return blend(point, cell, n_near, world, places, weights)


@njit(cache=True, nogil=True)
def mean_value(ends: Ends, plan: int, values: Floats, n_near: int, world: World) -> float:
    """Return the value of where a plan ends: that of its neighbours, and of points around it if it is spread."""
    places, weights = np.zeros(world.graph.shape[1], dtype=np.intp), np.zeros(world.graph.shape[1])
    n_dims = ends.states.shape[1]
    n_points = 2 * n_dims if len(ends.spread) > 0 else 1
    points = np.empty((n_points, n_dims))
    _fill_points(ends, plan, points)
    total = 0.0
    for p in range(n_points):
        n_used = _blend_point(ends, plan, points[p], n_near, world, places, weights)
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
    rewards: Floats,
    ranks: Integers,
    shares: Floats,
    columns: Integers,
) -> None:
    """Fill in the plan MDP from representative state ``first`` on: the rows of some representative states.

    rewards and ranks are (n_plans, n_rows); shares and columns (n_plans, n_rows, n_entries) are the transitions.
    """
    n_plans, n_rows, n_entries = shares.shape
    n_dims = world.reps.shape[1]
    n_points = n_entries // n_near
    ends = room_for(n_plans, n_dims, n_points > 1)
    places, weights = np.zeros(world.graph.shape[1], dtype=np.intp), np.zeros(world.graph.shape[1])
    points = np.empty((n_points, n_dims))
    for row in range(n_rows):
        roll_out(world.reps[first + row], first + row, actions, n_decisions, n_held, discount, world, ends)
        _refuse_unusual(first + row, actions, world, ends)
        for plan in range(n_plans):
            rewards[plan, row], ranks[plan, row] = ends.rewards[plan], ends.ranks[plan]
            _fill_points(ends, plan, points)
            for p in range(n_points):
                n_used = _blend_point(ends, plan, points[p], n_near, world, places, weights)
                for j in range(n_near):
                    here = p * n_near + j
                    shares[plan, row, here] = ends.alive[plan] * weights[j] / n_points if j < n_used else 0.0
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
    values: Floats,
    q: Floats,
    best: Integers,
) -> None:
    """Fill in the value of the best plan that begins with each action, (n_states, n_actions), and which plan it is.

    Refused plans count only where none is offered, and those with an unknown step only where there are no others.
    """
    n_plans = len(actions) ** n_decisions
    n_first = n_plans // len(actions)
    ends = room_for(n_plans, states.shape[1], is_spread)
    weight = discount ** (n_decisions * n_held)
    for t in range(len(states)):
        cell = nearest_of_all(states[t], world)
        roll_out(states[t], cell, actions, n_decisions, n_held, discount, world, ends)
        _refuse_unusual(cell, actions, world, ends)
        highest = UNKNOWN
        for plan in range(n_plans):
            highest = max(highest, ends.ranks[plan])
        for a in range(q.shape[1]):
            q[t, a], best[t, a] = -np.inf, -1
        for plan in range(n_plans):
            if ends.ranks[plan] < highest:
                continue
            value = ends.rewards[plan] + weight * ends.alive[plan] * mean_value(ends, plan, values, n_near, world)
            action = actions[plan // n_first]
            if value > q[t, action]:
                q[t, action], best[t, action] = value, plan


@njit(cache=True, nogil=True)
def advance(
    states: Floats,
    cells: Integers,
    actions: Integers,
    draws: Floats,
    world: World,
    rewards: Floats,
    ends: Floats,
    inside: Booleans,
) -> None:
    """Let each state take its action in the lines' world, in place; fill in rewards, probabilities of an end, and more.

    ``draws``, (n, n_dims), are standard normal: they become the noise of the step.  ``inside`` says whether the action
    is known there, and whether the state that is reached is near logged ones.
    """
    n_dims = states.shape[1]
    places, weights = np.zeros(world.graph.shape[1], dtype=np.intp), np.zeros(world.graph.shape[1])
    found, factor = np.empty(n_dims + 2), np.zeros((n_dims, n_dims))
    for t in range(len(states)):
        here = states[t]
        inside[t] = predict(here, actions[t], cells[t], world, places, weights, found)
        rewards[t], ends[t] = found[n_dims], found[n_dims + 1]
        if len(world.noise):
            _factor(_blended_noise(actions[t], world, places, weights), factor)
            for r in range(n_dims):
                for k in range(r + 1):
                    found[r] += factor[r, k] * draws[t, k]
        for k in range(n_dims):
            here[k] += found[k]
        settle(here, world)
        cells[t] = _nearest_from(here, cells[t], world)
        inside[t] = inside[t] and _square(here, world.reps[cells[t]]) <= world.reach[cells[t]] ** 2


@njit(cache=True, nogil=True)
def _blended_noise(action: int, world: World, places: Integers, weights: Floats) -> Floats:
    n_dims = world.noise.shape[2]
    noise = np.zeros((n_dims, n_dims))
    for j in range(len(weights)):
        for r in range(n_dims):
            for c in range(n_dims):
                noise[r, c] += weights[j] * world.noise[action, places[j], r, c]
    return noise
