"""Lines and plans as slow loops: what `kbrl.lines` is held against."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np


def nearest(point: Any, points: Any) -> int:
    return int(np.argmin([np.sum((point - other) ** 2) for other in points]))


def line_at(rep: int, reps: Any, log: Any, *, n_cases: float) -> dict[str, Any] | None:
    """Fit a line around a representative state by weighted least squares over single rows.

    ``log`` are the rows of one action: states, next states, rewards, ends.  Whole cells are taken, the nearest first,
    until they hold enough rows; a cell's weight falls as 1 - (distance / reach)^2.
    """
    states, next_states, rewards, ends = log
    cells = np.array([nearest(state, reps) for state in states])
    distances = np.linalg.norm(reps - reps[rep], axis=1)
    order = np.argsort(distances, kind="stable")
    n_used, total = 0, 0
    while n_used < len(order) and total < n_cases:
        total += int((cells == order[n_used]).sum())
        n_used += 1
    reach = distances[order[n_used]] if n_used < len(order) else 1.001 * distances[order[n_used - 1]]
    weights = np.zeros(len(states))
    for j in order[:n_used]:
        weights[cells == j] = 1 - (distances[j] / reach) ** 2 if reach > 0 else 1.0
    used = weights > 0
    if not used.any():
        return None
    x, w = states[used] - reps[rep], weights[used]
    going = ~ends[used]
    moves = (next_states - states)[used]
    line = _weighted_line(x, np.column_stack([rewards[used], ends[used]]), w)
    result = {"rewards": rewards[used], "outcome": line, "n": used.sum(), "weights": w}
    result["move"] = _weighted_line(x[going], moves[going], w[going]) if going.any() else None
    return result


def _weighted_line(x: Any, z: Any, w: Any) -> Any:
    """Return intercept and slopes, (n_targets, 1 + n_dims), by least squares (no ridge)."""
    root = np.sqrt(w)[:, None]
    design = np.column_stack([np.ones(len(x)), x])
    return np.linalg.lstsq(root * design, root * z, rcond=None)[0].T


def blend(state: Any, candidates: Any, reps: Any, n_blended: int) -> tuple[list[int], Any]:
    """Return the nearest candidates and their weights, (1 - distance / distance of the next one)^2."""
    distances = sorted((float(np.sqrt(np.sum((state - reps[i]) ** 2))), int(i)) for i in candidates)
    if len(distances) > n_blended:
        reach, used = distances[n_blended][0], distances[:n_blended]
    else:
        reach, used = 2 * distances[-1][0], distances
    weights = np.array([(1 - d / reach) ** 2 if reach > 0 else 1.0 for d, _ in used])
    if weights.sum() <= 0:
        weights = np.ones(len(used))
    return [i for _, i in used], weights / weights.sum()


def step(state: Any, action: int, world: Any, n_blended: int) -> tuple[Any, float, float, float] | None:
    """Return the next state, the reward, the probability of an end and the fade, by the lines of the nearest reps."""
    n_dims = len(state)
    cell = nearest(state, world.reps)
    places, weights = blend(state, world.graph[cell], world.reps, n_blended)
    known = [(i, w) for i, w in zip(places, weights) if world.known[action, i]]
    mass = sum(w for _, w in known)
    if not known or mass <= 0:
        return None
    found = np.zeros(world.lines.shape[2])
    for i, w in known:
        value = world.lines[action, i, :, 0] + world.lines[action, i, :, 1:] @ (state - world.reps[i])
        for target, (low, high) in enumerate(world.limits[action, i].reshape(-1, 2), start=n_dims):
            value[target] = min(max(value[target], low), high)
        found += w / mass * value
    following = np.clip(state + found[:n_dims], world.span[0], world.span[1])
    for first, stop in world.levels:
        centre, scale = world.units[:, first:stop]
        shares = centre + scale * following[first:stop]
        if stop - first > 1 and shares.sum() > 0:
            following[first:stop] = (shares / shares.sum() - centre) / scale
    fade = float(found[n_dims + 2]) if len(found) > n_dims + 2 else 1.0
    return following, float(found[n_dims]), float(found[n_dims + 1]), fade


def plans_from(state, actions, n_decisions, n_held, discount, world, n_blended):
    """Yield, for each plan by itself, its actions, discounted reward, probability of going on, and end.

    With durations, the probability of going on is times what a value fades by until then.
    """
    for plan in product(actions, repeat=n_decisions):
        here, total, alive, factor, known = np.array(state, dtype=float), 0.0, 1.0, 1.0, True
        for action in np.repeat(plan, n_held):
            found = step(here, int(action), world, n_blended)
            if found is None:
                known = False
                break
            doubt = world.doubts[int(action), nearest(here, world.reps)] if len(world.doubts) else 0.0
            here, reward, end, fade = found
            total += factor * alive * (reward - doubt)
            alive *= (1 - end) * fade
            factor *= discount
        yield plan, total, alive, here, known
