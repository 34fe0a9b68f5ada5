"""The inner loops of one step, compiled: which lines are mixed at a state, where they lead, and back onto the data.

The representative states near a state are looked for among the neighbours of the one that was nearest a step before
(`LocalLines.graph`).  The tests hold these loops against slow ones.

Loops are compiled once each.  Those that Python calls (`njit`) do not call each other, because a loop is compiled again
into each one that calls it; those that only loops call (`inner`) get no entry from Python, which takes longer to
compile than most of them.  They get only the parts of the world that they need, for the same reason.
"""

from __future__ import annotations

from math import erfc
from typing import NamedTuple

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.lines.world import Ground, Moves, Near, World, own_rows
from kbrl.numba_cache import inner, njit

BLENDED = 6  # representative states whose lines are mixed at a state
_FAST = {"contract", "arcp", "nsz"}
_ROUNDING = 1e-9  # shares of levels whose sum is off by less are left as they are: what is constant stays so, exactly


class Room(NamedTuple):
    """Where loops put what they find of the representative states around a state, (n_near,)."""

    squares: Floats  # their squared distances
    places: Integers  # which of them are mixed
    weights: Floats  # and how much each counts
    away: Floats  # (n_dims,): from the one that is mixed now to the state


# Loops instead of assignments to slices: they take a fraction of the time to compile.


@inner()
def room_for(near: Near) -> Room:
    n_near = near.graph.shape[1]
    room = Room(np.empty(n_near), np.empty(n_near, dtype=np.intp), np.empty(n_near), np.empty(near.reps.shape[1]))
    for j in range(n_near):
        room.places[j], room.weights[j] = 0, 0.0
    return room


@inner()
def fill(values: Floats, value: float) -> None:
    for k in range(len(values)):
        values[k] = value


@inner()
def copy(source: Floats, target: Floats) -> None:
    for k in range(len(target)):
        target[k] = source[k]


@inner(fastmath=_FAST)
def square_distance(state: Floats, rep: Floats) -> float:
    total = 0.0
    for k in range(len(state)):
        total += (state[k] - rep[k]) * (state[k] - rep[k])
    return total


@inner(fastmath=_FAST)
def squares_around(state: Floats, cell: int, near: Near, squares: Floats) -> None:
    """Fill in the squared distances of a state from the neighbours of a representative state, (n_near,)."""
    fill(squares, 0.0)
    for k in range(len(state)):
        value = state[k]
        for j in range(len(squares)):
            away = value - near.around[cell, k, j]
            squares[j] += away * away


@inner()
def nearest_from(state: Floats, start: int, near: Near, squares: Floats) -> int:
    """Return the nearest representative state, going from neighbour to neighbour as long as they are nearer.

    After it, ``squares`` are the squared distances from its neighbours.
    """
    cell = start
    while True:
        squares_around(state, cell, near, squares)
        best, least = 0, squares[0]  # a representative state is the first of its neighbours
        n_nearer = 0
        for j in range(len(squares)):  # in vector instructions, unlike the search
            n_nearer += squares[j] < least
        if n_nearer == 0:
            return cell
        for j in range(1, len(squares)):
            if squares[j] < least:
                best, least = j, squares[j]
        cell = near.graph[cell, best]


@inner()
def blend(cell: int, n_blended: int, near: Near, room: Room) -> int:
    """Fill in the nearest representative states around a cell and their weights; return how many they are.

    ``room.squares`` are the squared distances of the state from the neighbours of the cell.  The weight falls as
    (1 - distance / reach)^2; the reach is the distance of the first that does not count.
    """
    squares, places, weights = room.squares, room.places, room.weights
    n_near = len(squares)
    n_sorted = min(n_blended + 1, n_near)
    for j in range(n_sorted):
        weights[j] = np.inf
    worst = np.inf
    for j in range(n_near):
        square = squares[j]
        if square < worst:
            rank = n_sorted - 1
            while rank > 0 and weights[rank - 1] > square:
                weights[rank], places[rank] = weights[rank - 1], places[rank - 1]
                rank -= 1
            weights[rank], places[rank] = square, near.graph[cell, j]
            worst = weights[n_sorted - 1]
    n_used = n_sorted - 1 if n_near > n_blended else n_sorted
    reach = np.sqrt(weights[n_sorted - 1]) if n_near > n_blended else 2.0 * np.sqrt(weights[n_sorted - 1])
    for j in range(n_used):
        share = 1.0 - np.sqrt(weights[j]) / reach if reach > 0 else 1.0
        weights[j] = share * share
    total = 0.0
    for j in range(n_used):
        total += weights[j]
    if total <= 0.0:  # all are equally far
        fill(weights, 1.0)
        total = float(n_used)
    for j in range(n_used):
        weights[j] /= total
    return n_used


@inner(fastmath=_FAST)
def predict(state: Floats, action: int, cell: int, near: Near, moves: Moves, room: Room, found: Floats) -> bool:
    """Fill in the expected displacement, reward, end and perhaps fade, (n_targets,); return whether anything is known.

    ``room.squares`` are those of `squares_around`, for the state and the cell.  After it, places and weights are those
    of the blend, with weight 0 where the action is not known.
    """
    n_dims, n_targets, places, weights = len(state), len(found), room.places, room.weights
    n_used = blend(cell, min(BLENDED, len(weights)), near, room)  # a constant is a type of its own, compiled again
    mass = 0.0
    fill(found, 0.0)
    for j in range(n_used):
        i = places[j]
        if not moves.known[action, i]:
            weights[j] = 0.0
            continue
        mass += weights[j]
        for k in range(n_dims):
            room.away[k] = state[k] - near.reps[i, k]
        for target in range(n_targets):
            value = moves.lines[action, i, target, 0]
            for k in range(n_dims):
                value += moves.lines[action, i, target, 1 + k] * room.away[k]
            if target >= n_dims:
                limit = 2 * (target - n_dims)
                value = min(max(value, moves.limits[action, i, limit]), moves.limits[action, i, limit + 1])
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
def blend_states(
    states: Floats,
    cells: Integers,
    n_blended: int,
    are_new: bool,
    near: Near,
    ground: Ground,
    places: Integers,
    weights: Floats,
    values: Floats,
    totals: Floats,
) -> None:
    """Fill in the representative states around each state, (n, n_blended), and their weights, 0 for those not used.

    are_new: the states are put back onto the data first, in place, and their cells are only near the nearest ones.
    values: of the representative states, or empty.  If they are given, only ``totals`` are filled in: the blended
        values of as many states that follow each other as there are states for one total.
    """
    room, has_values = room_for(near), len(values) > 0
    n_each = len(states) // len(totals) if has_values else 1
    for t in range(len(states)):
        cell = cells[t]
        if are_new:
            settle(states[t], ground)
            cell = nearest_from(states[t], cell, near, room.squares)
        else:
            squares_around(states[t], cell, near, room.squares)
        n_used = blend(cell, n_blended, near, room)
        if has_values:
            total = totals[t // n_each] if t % n_each else 0.0
            for j in range(n_used):
                total += room.weights[j] * values[room.places[j]]
            totals[t // n_each] = total
        else:
            for j in range(places.shape[1]):
                places[t, j] = room.places[j] if j < n_used else 0
                weights[t, j] = room.weights[j] if j < n_used else 0.0


@njit(cache=True, nogil=True)
def _fill_shares(
    states: Floats, places: Integers, weights: Floats, reps: Floats, behaviour: Floats, shares: Floats
) -> None:
    """Fill in how often people take each action, (n, n_actions), from the blends of the states."""
    for t in range(len(states)):
        for a in range(len(behaviour)):
            shares[t, a] = 0.0
            for j in range(places.shape[1]):
                i = places[t, j]
                share = behaviour[a, i, 0]
                for k in range(states.shape[1]):
                    share += behaviour[a, i, 1 + k] * (states[t, k] - reps[i, k])
                shares[t, a] += weights[t, j] * min(max(share, 0.0), 1.0)


def shares_of_actions(states: Floats, cells: Integers, world: World) -> Floats:
    """Return how often people take each action at scaled states, (n, n_actions), by the lines of their behaviour."""
    shares = np.empty((len(states), len(world.behaviour)))
    _fill_shares(states, *blends(states, cells, world), world.reps, world.behaviour, shares)
    return shares


def act_as_people(states: Floats, cells: Integers, luck: Floats, world: World) -> Integers:
    """Return an action for each state, (n,), drawn as often as people take it there; luck is between 0 and 1, (n,).

    cells: the representative states nearest to the states, (n,).
    """
    shares = shares_of_actions(own_rows(states), cells, world)
    drawn = luck * np.add.accumulate(shares, axis=1)[:, -1]
    is_passed = np.subtract.accumulate(np.column_stack([drawn, shares]), axis=1)[:, 1:] < 0.0
    is_passed[:, -1] = True
    return np.argmax(is_passed, axis=1)


def blends(
    states: Floats, cells: Integers, world: World, n_blended: int = BLENDED, are_new: bool = False
) -> tuple[Integers, Floats]:
    """Return the representative states that are mixed at each state, (n, n_blended), and their weights."""
    size, none = (len(states), min(n_blended, world.graph.shape[1])), np.empty(0)
    places, weights = np.empty(size, dtype=np.intp), np.empty(size)
    blend_states(states, cells, n_blended, are_new, world.near, world.ground, places, weights, none, none)
    return places, weights


def blended_values(
    states: Floats, cells: Integers, world: World, n_blended: int, are_new: bool, values: Floats, n_totals: int
) -> Floats:
    """Return the values of representative states, (n_reps,), as they are mixed at the states, in sums, (n_totals,)."""
    totals, nowhere = np.empty(n_totals), np.empty((0, 0))
    parts = (world.near, world.ground, np.empty((0, 0), dtype=np.intp), nowhere, values, totals)
    blend_states(states, cells, n_blended, are_new, *parts)
    return totals


def blended(state: Floats, action: int, world: World) -> tuple[Integers, Floats]:
    """Return the representative states whose lines are mixed for an action at a scaled state, and their weights."""
    places, weights = (part[0] for part in blends(state[None], world.cells(state[None]), world))
    used = (weights > 0) & world.known[action, places]
    return places[used], weights[used] / weights[used].sum()


@inner()
def spread_on(action: int, moves: Moves, room: Room, spread: Floats, squares: Floats) -> None:
    """Let the covariance of a state pass through a step, in place: J spread J' + noise, with J = 1 + slopes.

    squares: room for three matrices, (3, n_dims, n_dims).
    """
    n_dims = len(spread)
    slopes, noise, moved = squares[0], squares[1], squares[2]
    for r in range(n_dims):
        fill(slopes[r], 0.0)
        fill(noise[r], 0.0)
    for j in range(len(room.weights)):
        weight, i = room.weights[j], room.places[j]
        if weight == 0.0:
            continue
        for r in range(n_dims):
            for c in range(n_dims):
                slopes[r, c] += weight * moves.lines[action, i, r, 1 + c]
                noise[r, c] += weight * moves.noise[action, i, r, c]
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


@inner()
def settle(state: Floats, ground: Ground) -> None:
    """Put a predicted state back, in place: into the range of the data, and onto the surface that they lie on.

    The levels of a category have shares that sum to one; sines and cosines lie on a circle.
    """
    for k in range(len(state)):
        state[k] = min(max(state[k], ground.span[0, k]), ground.span[1, k])
    for group in range(len(ground.levels)):
        first, stop = ground.levels[group, 0], ground.levels[group, 1]
        if stop - first > 1:
            _share_out(state, first, stop, ground)
    for c in range(len(ground.circles)):
        one, other = ground.circles[c, 0], ground.circles[c, 1]
        x = (state[one] - ground.circle[c, 0]) * ground.circle[c, 2]
        y = (state[other] - ground.circle[c, 1]) * ground.circle[c, 3]
        size = np.sqrt(x * x + y * y)
        if size > 0:
            state[one] = ground.circle[c, 0] + x * ground.circle[c, 4] / (size * ground.circle[c, 2])
            state[other] = ground.circle[c, 1] + y * ground.circle[c, 4] / (size * ground.circle[c, 3])


@inner()
def _share_out(state: Floats, first: int, stop: int, ground: Ground) -> None:
    """Let the shares of the levels of a category sum to one; where all are 0, the level is none of those known."""
    total = 0.0
    for k in range(first, stop):
        total += ground.units[0, k] + ground.units[1, k] * state[k]
    if total <= _ROUNDING or abs(total - 1.0) <= _ROUNDING:
        return
    for k in range(first, stop):
        share = (ground.units[0, k] + ground.units[1, k] * state[k]) / total
        state[k] = (share - ground.units[0, k]) / ground.units[1, k]


@inner()
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
    near: Near,
    moves: Moves,
    ground: Ground,
    reach: Floats,
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
    n_dims, n_targets = states.shape[1], moves.lines.shape[2]
    room, found, expected = room_for(near), np.empty(n_targets), np.empty(n_dims)
    factor, noise = np.empty((n_dims, n_dims)), np.empty((n_dims, n_dims))
    for t in range(len(states)):
        here = states[t]
        squares_around(here, cells[t], near, room.squares)
        inside[t] = predict(here, actions[t], cells[t], near, moves, room, found)
        rewards[t], ends[t] = found[n_dims], found[n_dims + 1]
        fades[t] = found[n_dims + 2] if n_targets > n_dims + 2 else 1.0
        for k in range(n_dims):
            expected[k] = here[k] + found[k]
        if len(moves.noise):
            _blend_noise(actions[t], moves, room, noise)
            factor_of(noise, factor)
            for r in range(n_dims):
                for k in range(r + 1):
                    found[r] += factor[r, k] * draws[t, k]
        for k in range(n_dims):
            here[k] += found[k]
        if len(moves.noise):
            _draw_levels(expected, draws[t], ground, here)
        settle(here, ground)
        cells[t] = nearest_from(here, cells[t], near, room.squares)
        inside[t] = inside[t] and square_distance(here, near.reps[cells[t]]) <= reach[cells[t]] ** 2


@inner()
def _blend_noise(action: int, moves: Moves, room: Room, noise: Floats) -> None:
    """Fill in the covariance of the noise, (n_dims, n_dims)."""
    n_dims = len(noise)
    for r in range(n_dims):
        fill(noise[r], 0.0)
    for j in range(len(room.weights)):
        weight, i = room.weights[j], room.places[j]
        if weight == 0.0:
            continue
        for r in range(n_dims):
            for c in range(n_dims):
                noise[r, c] += weight * moves.noise[action, i, r, c]


@inner()
def _draw_levels(expected: Floats, draws: Floats, ground: Ground, state: Floats) -> None:
    """Let one level of each category be the one, and each flag be 0 or 1, with the probabilities that are expected."""
    for group in range(len(ground.levels)):
        first, stop = ground.levels[group, 0], ground.levels[group, 1]
        total = 0.0 if stop - first > 1 else 1.0  # a flag is there, or it is not
        for k in range(first, stop if stop - first > 1 else first):
            total += max(ground.units[0, k] + ground.units[1, k] * expected[k], 0.0)
        left = 0.5 * erfc(-draws[first] / np.sqrt(2.0)) * total
        is_open = total > _ROUNDING
        for k in range(first, stop):
            share = max(ground.units[0, k] + ground.units[1, k] * expected[k], 0.0)
            is_this = is_open and left < share
            is_open = is_open and not is_this
            left -= share
            state[k] = ((1.0 if is_this else 0.0) - ground.units[0, k]) / ground.units[1, k]
