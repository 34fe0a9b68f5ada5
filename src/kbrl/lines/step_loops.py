"""The inner loops of one step, compiled: which lines are mixed at a state, where they lead, and back onto the data.

The representative states near a state are looked for among the neighbours of the one that was nearest a step before
(`LocalLines.graph`).  The tests hold these loops against slow ones.
"""

from __future__ import annotations

from math import erfc
from typing import NamedTuple

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.numba_cache import njit

BLENDED = 6  # representative states whose lines are mixed at a state
_FAST = {"contract", "arcp", "nsz"}
_ROUNDING = 1e-9  # shares of levels whose sum is off by less are left as they are: what is constant stays so, exactly


class World(NamedTuple):
    """What the loops need: the lines, and what may be done where."""

    reps: Floats  # (n_reps, n_dims)
    graph: Integers  # (n_reps, n_near)
    around: Floats  # (n_reps, n_dims, n_near): where the neighbours in the graph are, for distances to all at once
    lines: Floats  # (n_actions, n_reps, n_targets, 1 + n_dims); where steps have durations there is one target more
    limits: Floats  # (n_actions, n_reps, 4 or 6)
    known: Booleans  # (n_actions, n_reps)
    noise: Floats  # (n_actions, n_reps, n_dims, n_dims); empty where successors are not spread
    span: Floats  # (2, n_dims)
    circles: Integers  # (n_circles, 2): pairs of variables that lie on a circle
    circle: Floats  # (n_circles, 5): its centre, scaled, the scales of the two variables, and its radius
    levels: Integers  # (n_groups, 2): the first variable of a category, and the one after its last; or a flag alone
    units: Floats  # (2, n_dims): the centre and the scale of each variable
    behaviour: Floats  # (n_actions, n_reps, 1 + n_dims): lines of the shares of the actions; empty: all are usual
    usual: float  # times the largest share: what an action needs to begin a plan
    reach: Floats  # (n_reps,): a plan must not end farther from the nearest representative state
    offered: Booleans  # (n_actions, n_reps): decisions that plans may have; empty: all
    doubts: Floats  # (n_actions, n_reps): what a step loses because little is known of the action; empty: nothing


# Loops instead of assignments to slices: they take a fraction of the time to compile.


@njit(cache=True, nogil=True)
def fill(values: Floats, value: float) -> None:
    for k in range(len(values)):
        values[k] = value


@njit(cache=True, nogil=True)
def copy(source: Floats, target: Floats) -> None:
    for k in range(len(target)):
        target[k] = source[k]


@njit(cache=True, nogil=True)
def copy_square(source: Floats, target: Floats) -> None:
    for r in range(len(target)):
        for c in range(len(target)):
            target[r, c] = source[r, c]


@njit(cache=True, nogil=True, fastmath=_FAST)
def square_distance(state: Floats, rep: Floats) -> float:
    total = 0.0
    for k in range(len(state)):
        total += (state[k] - rep[k]) * (state[k] - rep[k])
    return total


@njit(cache=True, nogil=True)
def nearest_of_all(state: Floats, world: World) -> int:
    """Return the representative state nearest to a state."""
    best, least = 0, np.inf
    for i in range(len(world.reps)):
        square = square_distance(state, world.reps[i])
        if square < least:
            best, least = i, square
    return best


@njit(cache=True, nogil=True, fastmath=_FAST)
def squares_around(state: Floats, cell: int, world: World, squares: Floats) -> None:
    """Fill in the squared distances of a state from the neighbours of a representative state, (n_near,)."""
    around = world.around[cell]
    fill(squares, 0.0)
    for k in range(len(state)):
        value = state[k]
        for near in range(len(squares)):
            squares[near] += (value - around[k, near]) * (value - around[k, near])


@njit(cache=True, nogil=True)
def nearest_from(state: Floats, start: int, world: World, squares: Floats) -> int:
    """Return the nearest representative state, going from neighbour to neighbour as long as they are nearer.

    After it, ``squares`` are the squared distances from its neighbours.
    """
    cell = start
    while True:
        squares_around(state, cell, world, squares)
        best = 0  # a representative state is the first of its neighbours
        for near in range(1, len(squares)):
            if squares[near] < squares[best]:
                best = near
        if best == 0:
            return cell
        cell = world.graph[cell, best]


@njit(cache=True, nogil=True)
def blend(squares: Floats, cell: int, n_blended: int, world: World, places: Integers, weights: Floats) -> int:
    """Fill in the nearest representative states around a cell and their weights; return how many they are.

    ``squares`` are the squared distances of the state from the neighbours of the cell.  The weight falls as
    (1 - distance / reach)^2; the reach is the distance of the first that does not count.
    """
    n_near = world.graph.shape[1]
    n_sorted = min(n_blended + 1, n_near)
    for j in range(n_sorted):
        weights[j] = np.inf
    for near in range(n_near):
        square = squares[near]
        if square < weights[n_sorted - 1]:
            rank = n_sorted - 1
            while rank > 0 and weights[rank - 1] > square:
                weights[rank], places[rank] = weights[rank - 1], places[rank - 1]
                rank -= 1
            weights[rank], places[rank] = square, world.graph[cell, near]
    n_used = n_sorted - 1 if n_near > n_blended else n_sorted
    reach = np.sqrt(weights[n_sorted - 1]) if n_near > n_blended else 2.0 * np.sqrt(weights[n_sorted - 1])
    total = 0.0
    for j in range(n_used):
        share = 1.0 - np.sqrt(weights[j]) / reach if reach > 0 else 1.0
        weights[j] = share * share
        total += weights[j]
    if total <= 0.0:  # all are equally far
        fill(weights, 1.0)
        total = float(n_used)
    for j in range(n_used):
        weights[j] /= total
    return n_used


@njit(cache=True, nogil=True, fastmath=_FAST)
def predict(
    state: Floats,
    action: int,
    cell: int,
    squares: Floats,
    world: World,
    places: Integers,
    weights: Floats,
    found: Floats,
) -> bool:
    """Fill in the expected displacement, reward, end and perhaps fade, (n_targets,); return whether anything is known.

    ``squares`` are those of `squares_around`, for the state and the cell.  After it, ``places`` and ``weights`` are
    those of the blend, with weight 0 where the action is not known.
    """
    n_dims, n_targets = len(state), len(found)
    n_used = blend(squares, cell, BLENDED, world, places, weights)
    mass = 0.0
    fill(found, 0.0)
    for j in range(n_used):
        i = places[j]
        if not world.known[action, i]:
            weights[j] = 0.0
            continue
        mass += weights[j]
        line, limits = world.lines[action, i], world.limits[action, i]
        for target in range(n_targets):
            value = line[target, 0]
            for k in range(n_dims):
                value += line[target, 1 + k] * (state[k] - world.reps[i, k])
            if target >= n_dims:
                limit = 2 * (target - n_dims)
                value = min(max(value, limits[limit]), limits[limit + 1])
            found[target] += weights[j] * value
    if mass <= 0.0:
        return False
    for target in range(n_targets):
        found[target] /= mass
    for j in range(n_used):
        weights[j] /= mass
    for j in range(n_used, len(weights)):
        weights[j] = 0.0
    return True


@njit(cache=True, nogil=True)
def shares_of_actions(
    state: Floats, cell: int, world: World, places: Integers, weights: Floats, shares: Floats
) -> None:
    """Fill in how often people take each action at a state, (n_actions,), by the lines of their behaviour."""
    squares = np.empty(world.graph.shape[1])
    squares_around(state, cell, world, squares)
    n_used = blend(squares, cell, BLENDED, world, places, weights)
    for a in range(len(shares)):
        shares[a] = 0.0
        for j in range(n_used):
            i = places[j]
            share = world.behaviour[a, i, 0]
            for k in range(len(state)):
                share += world.behaviour[a, i, 1 + k] * (state[k] - world.reps[i, k])
            shares[a] += weights[j] * min(max(share, 0.0), 1.0)


@njit(cache=True, nogil=True)
def act_as_people(states: Floats, cells: Integers, luck: Floats, world: World, actions: Integers) -> None:
    """Fill in an action for each state, (n,), drawn as often as people take it there; luck is between 0 and 1, (n,).

    ``cells``, (n,), are the representative states nearest to the states.
    """
    places, weights = np.zeros(world.graph.shape[1], dtype=np.intp), np.zeros(world.graph.shape[1])
    shares = np.empty(len(world.behaviour))
    for t in range(len(states)):
        shares_of_actions(states[t], cells[t], world, places, weights, shares)
        left = luck[t] * shares.sum()
        actions[t] = len(shares) - 1
        for a in range(len(shares)):
            left -= shares[a]
            if left < 0.0:
                actions[t] = a
                break


def blended(state: Floats, action: int, world: World) -> tuple[Integers, Floats]:
    """Return the representative states whose lines are mixed for an action at a scaled state, and their weights."""
    n_near, cell = world.graph.shape[1], nearest_of_all(state, world)
    places, weights, squares = np.zeros(n_near, dtype=np.intp), np.zeros(n_near), np.empty(n_near)
    squares_around(state, cell, world, squares)
    predict(state, action, cell, squares, world, places, weights, np.empty(world.lines.shape[2]))
    used = weights > 0
    return places[used], weights[used]


@njit(cache=True, nogil=True)
def spread_on(action: int, world: World, places: Integers, weights: Floats, spread: Floats, room: Floats) -> None:
    """Let the covariance of a state pass through a step, in place: J spread J' + noise, with J = 1 + slopes."""
    n_dims = len(spread)
    slopes, noise, moved = room[0], room[1], room[2]
    for r in range(n_dims):
        fill(slopes[r], 0.0)
        fill(noise[r], 0.0)
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
    """Put a predicted state back, in place: into the range of the data, and onto the surface that they lie on.

    The levels of a category have shares that sum to one; sines and cosines lie on a circle.
    """
    for k in range(len(state)):
        state[k] = min(max(state[k], world.span[0, k]), world.span[1, k])
    for group in range(len(world.levels)):
        first, stop = world.levels[group, 0], world.levels[group, 1]
        if stop - first > 1:
            _share_out(state, first, stop, world)
    for c in range(len(world.circles)):
        one, other = world.circles[c, 0], world.circles[c, 1]
        x = (state[one] - world.circle[c, 0]) * world.circle[c, 2]
        y = (state[other] - world.circle[c, 1]) * world.circle[c, 3]
        size = np.sqrt(x * x + y * y)
        if size > 0:
            state[one] = world.circle[c, 0] + x * world.circle[c, 4] / (size * world.circle[c, 2])
            state[other] = world.circle[c, 1] + y * world.circle[c, 4] / (size * world.circle[c, 3])


@njit(cache=True, nogil=True)
def _share_out(state: Floats, first: int, stop: int, world: World) -> None:
    """Let the shares of the levels of a category sum to one; where all are 0, the level is none of those known."""
    total = 0.0
    for k in range(first, stop):
        total += world.units[0, k] + world.units[1, k] * state[k]
    if total <= _ROUNDING or abs(total - 1.0) <= _ROUNDING:
        return
    for k in range(first, stop):
        share = (world.units[0, k] + world.units[1, k] * state[k]) / total
        state[k] = (share - world.units[0, k]) / world.units[1, k]


@njit(cache=True, nogil=True)
def factor_of(spread: Floats, factor: Floats) -> None:
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
def advance(
    states: Floats,
    cells: Integers,
    actions: Integers,
    draws: Floats,
    world: World,
    rewards: Floats,
    ends: Floats,
    fades: Floats,
    inside: Booleans,
) -> None:
    """Let each state take its action in the lines' world, in place; fill in rewards, probabilities of an end, and more.

    ``draws``, (n, n_dims), are standard normal: they become the noise of the step, and decide for a level of each
    category.  ``fades`` are what the next state counts, 1 where steps have no durations.  ``inside`` says whether the
    action is known there, and whether the state that is reached is near logged ones.
    """
    n_dims, n_targets = states.shape[1], world.lines.shape[2]
    places, weights = np.zeros(world.graph.shape[1], dtype=np.intp), np.zeros(world.graph.shape[1])
    found, factor, expected = np.empty(n_targets), np.zeros((n_dims, n_dims)), np.empty(n_dims)
    squares, noise = np.empty(world.graph.shape[1]), np.empty((n_dims, n_dims))
    for t in range(len(states)):
        here = states[t]
        squares_around(here, cells[t], world, squares)
        inside[t] = predict(here, actions[t], cells[t], squares, world, places, weights, found)
        rewards[t], ends[t] = found[n_dims], found[n_dims + 1]
        fades[t] = found[n_dims + 2] if n_targets > n_dims + 2 else 1.0
        for k in range(n_dims):
            expected[k] = here[k] + found[k]
        if len(world.noise):
            _blend_noise(actions[t], world, places, weights, noise)
            factor_of(noise, factor)
            for r in range(n_dims):
                for k in range(r + 1):
                    found[r] += factor[r, k] * draws[t, k]
        for k in range(n_dims):
            here[k] += found[k]
        if len(world.noise):
            _draw_levels(expected, draws[t], world, here)
        settle(here, world)
        cells[t] = nearest_from(here, cells[t], world, squares)
        inside[t] = inside[t] and square_distance(here, world.reps[cells[t]]) <= world.reach[cells[t]] ** 2


@njit(cache=True, nogil=True)
def _blend_noise(action: int, world: World, places: Integers, weights: Floats, noise: Floats) -> None:
    """Fill in the covariance of the noise, (n_dims, n_dims)."""
    for r in range(len(noise)):
        fill(noise[r], 0.0)
    for j in range(len(weights)):
        if weights[j] == 0.0:
            continue
        own = world.noise[action, places[j]]
        for r in range(len(noise)):
            for c in range(len(noise)):
                noise[r, c] += weights[j] * own[r, c]


@njit(cache=True, nogil=True)
def _draw_levels(expected: Floats, draws: Floats, world: World, state: Floats) -> None:
    """Let one level of each category be the one, and each flag be 0 or 1, with the probabilities that are expected."""
    for group in range(len(world.levels)):
        first, stop = world.levels[group, 0], world.levels[group, 1]
        total = 0.0 if stop - first > 1 else 1.0  # a flag is there, or it is not
        for k in range(first, stop if stop - first > 1 else first):
            total += max(world.units[0, k] + world.units[1, k] * expected[k], 0.0)
        left = 0.5 * erfc(-draws[first] / np.sqrt(2.0)) * total
        is_open = total > _ROUNDING
        for k in range(first, stop):
            share = max(world.units[0, k] + world.units[1, k] * expected[k], 0.0)
            is_this = is_open and left < share
            is_open = is_open and not is_this
            left -= share
            state[k] = ((1.0 if is_this else 0.0) - world.units[0, k]) / world.units[1, k]
