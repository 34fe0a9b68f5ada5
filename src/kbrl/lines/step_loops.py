"""The inner loops of one step, compiled: which lines are mixed at a state, where they lead, and back onto the data.

The representative states near a state are looked for among the neighbours of the one that was nearest a step before
(`LocalLines.graph`).  The tests hold these loops against slow ones.

Loops are compiled once each.  Those that Python calls (`lean`) do not call each other, because a loop is compiled again
into each one that calls it; those that only loops call (`inner`) get no entry from Python, which takes longer to
compile than most of them.  They get only the parts of the world that they need, for the same reason.
"""

from __future__ import annotations

from math import erfc
from typing import NamedTuple

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.lines.world import Ground, Moves, Near, World, own_rows
from kbrl.numba_cache import inner, lean

BLENDED = 6  # representative states whose lines are mixed at a state
_FAST = {"contract", "arcp", "nsz"}
_ROUNDING = 1e-9  # shares of levels whose sum is off by less are left as they are: what is constant stays so, exactly


class Room(NamedTuple):
    """Where loops put what they find of the representative states around a state."""

    squares: Floats  # (n_near,): their squared distances
    places: Integers  # (n_near,): which of them are mixed
    weights: Floats  # (n_near,): and how much each counts
    away: Floats  # (n_near, n_dims): from each that is mixed to the state
    found: Floats  # (n_targets,): what lines predict
    matrices: Floats  # (2, n_dims, n_dims)

    @classmethod
    def of(cls, world: World) -> Room:
        """Return empty arrays."""
        n_near, n_dims = world.graph.shape[1], world.reps.shape[1]
        places, away = np.empty(n_near, dtype=np.intp), np.empty((n_near, n_dims))
        found, matrices = np.empty(world.lines.shape[2]), np.empty((2, n_dims, n_dims))
        return cls(np.empty(n_near), places, np.empty(n_near), away, found, matrices)


# Loops instead of assignments to slices: they take a fraction of the time to compile.


@inner()
def fill(values: Floats, value: float) -> None:
    for k in range(len(values)):
        values[k] = value


@inner()
def copy(source: Floats, target: Floats) -> None:
    for k in range(len(target)):
        target[k] = source[k]


@inner()
def copy_rows(source: Floats, target: Floats) -> None:
    for r in range(len(target)):
        for k in range(target.shape[1]):
            target[r, k] = source[r, k]


@inner(fastmath=_FAST)
def square_distance(state: Floats, rep: Floats) -> float:
    total = 0.0
    for k in range(len(state)):
        total += (state[k] - rep[k]) * (state[k] - rep[k])
    return total


@inner(fastmath=_FAST)
def squares_around(state: Floats, cell: int, near: Near, squares: Floats) -> None:
    """Fill in the squared distances of a state from the neighbours of a representative state, (n_near,)."""
    value = state[0]  # the first variable sets what the others are added to
    for j in range(len(squares)):
        away = value - near.around[cell, 0, j]
        squares[j] = away * away
    for k in range(1, len(state)):
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
    n_kept, worst = min(n_blended + 1, n_near), 0
    for j in range(n_kept):
        weights[j], places[j] = squares[j], near.graph[cell, j]
        worst = j if weights[j] > weights[worst] else worst
    for j in range(n_kept, n_near):  # nearly none is nearer: neighbours are in the order of their distances
        if squares[j] < weights[worst]:
            weights[worst], places[worst] = squares[j], near.graph[cell, j]
            for k in range(n_kept):
                worst = k if weights[k] > weights[worst] else worst
    n_used, reach = n_kept, 2.0 * np.sqrt(weights[worst])
    if n_near > n_blended:
        n_used, reach = n_kept - 1, 0.5 * reach
        weights[worst], places[worst] = weights[n_used], places[n_used]
    per_reach, total = 1.0 / reach if reach > 0.0 else 0.0, 0.0
    for j in range(n_used):
        share = 1.0 - np.sqrt(weights[j]) * per_reach
        weights[j] = share * share
        total += weights[j]
    if total <= 0.0:  # all are equally far
        fill(weights, 1.0)
        total = float(n_used)
    for j in range(n_used):
        weights[j] /= total
    return n_used


@inner(fastmath=_FAST)
def predict(state: Floats, action: int, cell: int, near: Near, moves: Moves, room: Room) -> int:
    """Fill in ``room.found``: displacement, reward, end and perhaps fade.  Return how many lines are mixed.

    None are mixed where nothing is known.  ``room.squares`` are those of `squares_around`, for the state and the cell.
    After it, places and weights are those of the lines that are mixed.
    """
    n_dims, places, weights, away = len(state), room.places, room.weights, room.away
    n_used = blend(cell, min(BLENDED, len(weights)), near, room)  # a constant is a type of its own, compiled again
    n_known, mass = 0, 0.0
    for j in range(n_used):
        i = places[j]
        if moves.known[action, i]:
            places[n_known], weights[n_known] = i, weights[j]
            mass += weights[j]
            for k in range(n_dims):
                away[n_known, k] = state[k] - near.reps[i, k]
            n_known += 1
    if mass <= 0.0:
        return 0
    for j in range(n_known):
        weights[j] /= mass
    for target in range(len(room.found)):
        total, limit = 0.0, 2 * (target - n_dims)
        for j in range(n_known):
            i = places[j]
            value = moves.lines[action, i, target, 0]
            for k in range(n_dims):
                value += moves.lines[action, i, target, 1 + k] * away[j, k]
            if target >= n_dims:
                value = min(max(value, moves.limits[action, i, limit]), moves.limits[action, i, limit + 1])
            total += weights[j] * value
        room.found[target] = total
    return n_known


@lean()
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
    room: Room,
) -> None:
    """Fill in the representative states around each state, (n, n_blended), and their weights, 0 for those not used.

    are_new: the states are put back onto the data first, in place, and their cells are only near the nearest ones.
    values: of the representative states, or empty.  If they are given, only ``totals`` are filled in: the blended
        values of as many states that follow each other as there are states for one total.
    """
    has_values = len(values) > 0
    n_each = len(states) // len(totals) if has_values else 1
    for t in range(len(states)):
        state, cell = states[t], cells[t]
        if are_new:
            settle(state, ground)
            cell = nearest_from(state, cell, near, room.squares)
        else:
            squares_around(state, cell, near, room.squares)
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


@lean()
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
    parts = (world.near, world.ground, places, weights, none, none, Room.of(world))
    blend_states(states, cells, n_blended, are_new, *parts)
    return places, weights


def blended_values(
    states: Floats, cells: Integers, world: World, n_blended: int, are_new: bool, values: Floats, n_totals: int
) -> Floats:
    """Return the values of representative states, (n_reps,), as they are mixed at the states, in sums, (n_totals,)."""
    totals, nowhere = np.empty(n_totals), np.empty((0, 0))
    parts = (world.near, world.ground, np.empty((0, 0), dtype=np.intp), nowhere, values, totals, Room.of(world))
    blend_states(states, cells, n_blended, are_new, *parts)
    return totals


def blended(state: Floats, action: int, world: World) -> tuple[Integers, Floats]:
    """Return the representative states whose lines are mixed for an action at a scaled state, and their weights."""
    places, weights = (part[0] for part in blends(state[None], world.cells(state[None]), world))
    used = (weights > 0) & world.known[action, places]
    return places[used], weights[used] / weights[used].sum()


@inner()
def spread_on(action: int, n_mixed: int, moves: Moves, room: Room, spread: Floats) -> None:
    """Let the covariance of a state pass through a step, in place: J spread J' + noise, with J = 1 + slopes.

    n_mixed: how many lines are mixed, by `predict`.
    """
    n_dims, slopes, moved = len(spread), room.matrices[0], room.matrices[1]
    for r in range(n_dims):
        for c in range(n_dims):
            total = 1.0 if r == c else 0.0
            for j in range(n_mixed):
                total += room.weights[j] * moves.lines[action, room.places[j], r, 1 + c]
            slopes[r, c] = total
    for r in range(n_dims):
        for c in range(n_dims):
            total = 0.0
            for k in range(n_dims):
                total += slopes[r, k] * spread[k, c]
            moved[r, c] = total
    for r in range(n_dims):
        for c in range(r + 1):
            total = 0.0
            for j in range(n_mixed):
                total += room.weights[j] * moves.noise[action, room.places[j], r, c]
            for k in range(n_dims):
                total += moved[r, k] * slopes[c, k]
            spread[r, c] = spread[c, r] = total


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


@lean()
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
    room: Room,
) -> None:
    """Let each state take its action in the lines' world, in place; fill in rewards, probabilities of an end, and more.

    ``draws``, (n, n_dims), are standard normal: they become the noise of the step, and decide for a level of each
    category.  ``fades`` are what the next state counts, 1 where steps have no durations.  ``inside`` says whether the
    action is known there, and whether the state that is reached is near logged ones.
    """
    n_dims, found, factor, noise = states.shape[1], room.found, room.matrices[0], room.matrices[1]
    expected = room.away[0]  # which is free after a prediction
    for t in range(len(states)):
        here = states[t]
        squares_around(here, cells[t], near, room.squares)
        n_mixed = predict(here, actions[t], cells[t], near, moves, room)
        inside[t] = n_mixed > 0
        rewards[t], ends[t] = found[n_dims], found[n_dims + 1]
        fades[t] = found[n_dims + 2] if len(found) > n_dims + 2 else 1.0
        for k in range(n_dims):
            expected[k] = here[k] + found[k]
        if len(moves.noise):
            _blend_noise(actions[t], n_mixed, moves, room, noise)
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
def _blend_noise(action: int, n_mixed: int, moves: Moves, room: Room, noise: Floats) -> None:
    """Fill in the covariance of the noise, (n_dims, n_dims)."""
    for r in range(len(noise)):
        for c in range(len(noise)):
            total = 0.0
            for j in range(n_mixed):
                total += room.weights[j] * moves.noise[action, room.places[j], r, c]
            noise[r, c] = total


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
