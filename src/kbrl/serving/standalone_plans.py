"""Looking ahead over plans, in plain Python: the part of an exported policy that models of order 1 need.

`kbrl.lines.plan_loops` does the same, compiled; the tests hold the two against each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

# Plans that stay with the data; that do not; of which a step is not known; that have a decision which is not offered.
OFFERED, REFUSED, UNKNOWN, BARRED = 2, 1, 0, -1
ROUNDING = 1e-9  # shares of levels whose sum is off by less are left as they are
BLENDED = 6  # representative states whose lines are mixed at a state

Vector = list[float]
Shares = list[tuple[float, int]]  # weights, and the places of representative states


class Place(NamedTuple):
    """Where a plan has got to."""

    state: Vector
    cell: int  # the nearest representative state
    reward: float  # discounted
    alive: float  # probability that the episode has not ended
    is_known: bool
    spread: list[Vector] | None  # covariance of the state; None where successors are not spread
    fade: float  # what a value counts then because of the durations of the steps
    is_offered: bool  # whether all decisions are


class Plans:
    """Short plans, rolled out in lines around the representative states."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.reps, self.values, self.span, self.circles = (facts[k] for k in ("reps", "values", "span", "circles"))
        self.graph = [[int(i) for i in row] for row in facts["graph"]]
        self.lines, self.limits, self.known, self.noise = (facts[k] for k in ("lines", "limits", "known", "noise"))
        self.behaviour, self.reach = facts["behaviour"], facts["plan_reach"]
        plan = facts["plan"]
        self.actions, self.n_actions, self.n_near = plan["actions"], plan["n_actions"], plan["n_near"]
        self.n_decisions, self.n_held, self.discount = plan["n_decisions"], plan["n_held"], plan["discount"]
        self.usual = plan["usual"]
        self.levels = [[int(k) for k in group] for group in facts["levels"]]
        self.centre, self.scale = facts["centre"], facts["scale"]
        self.offered, self.doubts = facts["offered"], facts["doubts"]  # empty: all are, and none

    def q(self, state: Vector) -> Vector:
        """Return the value of the best plan that begins with each action, -inf where none does."""
        cell = min(range(len(self.reps)), key=lambda i: math.dist(state, self.reps[i]))
        spread = [[0.0] * len(state) for _ in state] if self.noise else None
        start, plans = Place(state, cell, 0.0, 1.0, True, spread, 1.0, True), []
        usual = self._usual(state, cell)
        for action in self.actions:
            ends = [self._held(start, action, 0)]
            for level in range(1, self.n_decisions):
                ends = [self._held(end, following, level) for end in ends for following in self.actions]
            plans += [(action, end, self._rank(end, action in usual)) for end in ends]
        if self.offered and plans and plans[-1][2] > UNKNOWN:
            plans[-1] = (*plans[-1][:2], OFFERED)  # it does as now throughout
        highest = max((rank for _, _, rank in plans), default=UNKNOWN)
        q, weight = [-math.inf] * self.n_actions, self.discount ** (self.n_decisions * self.n_held)
        for action, end, rank in plans:
            if rank == highest:
                q[action] = max(q[action], end.reward + weight * end.alive * end.fade * self._value(end))
        return q

    def _rank(self, end: Place, is_usual: bool) -> int:
        if not end.is_offered:
            return BARRED
        if not end.is_known:
            return UNKNOWN
        is_near = end.alive < 0.5 or math.dist(end.state, self.reps[end.cell]) <= self.reach[end.cell]
        return OFFERED if is_near and is_usual else REFUSED

    def _usual(self, state: Vector, cell: int) -> list[int]:
        """Return the actions that people take often enough here to begin a plan with."""
        if not self.behaviour:
            return list(self.actions)
        found = dict.fromkeys(self.actions, 0.0)
        for weight, i in self._blend(state, cell, BLENDED):
            x = [1.0, *(s - r for s, r in zip(state, self.reps[i]))]
            for action in self.actions:
                share = sum(entry * each for entry, each in zip(self.behaviour[action][i], x))
                found[action] += weight * min(max(share, 0.0), 1.0)
        return [action for action, share in found.items() if share >= self.usual * max(found.values())]

    def _held(self, start: Place, action: int, level: int) -> Place:
        """Return where a decision leads that is held for some steps."""
        here, cell, total, left, is_known, spread, fade, is_offered = start
        is_offered = is_offered and (not self.offered or bool(self.offered[action][cell]))
        factor = self.discount ** (level * self.n_held)
        for _ in range(self.n_held):
            known = [(weight, i) for weight, i in self._blend(here, cell, BLENDED) if self.known[action][i]]
            mass = sum(weight for weight, _ in known)
            if mass <= 0:
                is_known = False
                break
            shares = [(weight / mass, i) for weight, i in known]
            move, reward, end, *timed = self._step(here, action, shares)
            reward -= self.doubts[action][cell] if self.doubts else 0.0
            if spread is not None:
                spread = self._spread_on(spread, action, shares)
            total += factor * fade * left * reward
            left *= 1.0 - end
            factor *= self.discount
            fade *= timed[0] if timed else 1.0
            here = self._settled([x + dx for x, dx in zip(here, move)])
            cell = self._nearest_from(here, cell)
        return Place(here, cell, total, left, is_known, spread, fade, is_offered)

    def _step(self, state: Vector, action: int, shares: Shares) -> tuple[Any, ...]:
        """Return the expected displacement, reward and end of one step; with durations, also what it fades by."""
        n_dims = len(state)
        found = [0.0] * len(self.lines[0][0])
        for weight, i in shares:
            x = [1.0, *(s - r for s, r in zip(state, self.reps[i]))]
            limits = self.limits[action][i]
            for target, line in enumerate(self.lines[action][i]):
                value = sum(entry * each for entry, each in zip(line, x))
                if target >= n_dims:
                    low, high = limits[2 * (target - n_dims) :][:2]
                    value = min(max(value, low), high)
                found[target] += weight * value
        return found[:n_dims], *found[n_dims:]

    def _spread_on(self, spread: list[Vector], action: int, shares: Shares) -> list[Vector]:
        """Return the covariance of a state after a step: J spread J' + noise, with J = 1 + slopes."""
        dims, lines, noises = range(len(spread)), self.lines[action], self.noise[action]
        slopes = [[sum(w * lines[i][r][1 + c] for w, i in shares) + (r == c) for c in dims] for r in dims]
        noise = [[sum(w * noises[i][r][c] for w, i in shares) for c in dims] for r in dims]
        moved = [[sum(slopes[r][k] * spread[k][c] for k in dims) for c in dims] for r in dims]
        return [[noise[r][c] + sum(moved[r][k] * slopes[c][k] for k in dims) for c in dims] for r in dims]

    def _settled(self, state: Vector) -> Vector:
        """Return a state within the range of the data, with shares of levels that sum to one, and on circles."""
        state = [min(max(x, low), high) for x, low, high in zip(state, *self.span)]
        for first, stop in self.levels:
            shares = [self.centre[k] + self.scale[k] * state[k] for k in range(first, stop)]
            total = sum(shares)
            if stop - first > 1 and total > ROUNDING and abs(total - 1.0) > ROUNDING:
                for k, share in zip(range(first, stop), shares):
                    state[k] = (share / total - self.centre[k]) / self.scale[k]
        for first, second, x0, y0, x_scale, y_scale, radius in self.circles:
            one, other = int(first), int(second)
            x, y = (state[one] - x0) * x_scale, (state[other] - y0) * y_scale
            size = math.hypot(x, y)
            if size > 0:
                state[one], state[other] = x0 + x * radius / (size * x_scale), y0 + y * radius / (size * y_scale)
        return state

    def _nearest_from(self, state: Vector, cell: int) -> int:
        """Return the nearest representative state, going from neighbour to neighbour as long as they are nearer."""
        least = math.dist(state, self.reps[cell])
        while True:
            here = cell
            for i in self.graph[here][1:]:
                way = math.dist(state, self.reps[i])
                if way < least:
                    cell, least = i, way
            if cell == here:
                return cell

    def _blend(self, state: Vector, cell: int, n_blended: int) -> Shares:
        """Return the shares of the nearest representative states around a cell."""
        near = sorted((math.dist(state, self.reps[i]), rank, i) for rank, i in enumerate(self.graph[cell]))
        is_cut = len(near) > n_blended
        reach = near[n_blended][0] if is_cut else 2.0 * near[-1][0]
        used = near[:n_blended]
        shares = [(1.0 - way / reach) ** 2 if reach > 0 else 1.0 for way, _, _ in used]
        total = sum(shares)
        if total <= 0:  # all are equally far
            shares, total = [1.0] * len(used), float(len(used))
        return [(share / total, i) for share, (_, _, i) in zip(shares, used)]

    def _value(self, end: Place) -> float:
        """Return the value of where a plan ends: that of its neighbours, and of points around it if it is spread."""
        state = end.state
        if end.spread is None:
            return self._mean_value(state, end.cell)
        total, factor, size = 0.0, _factor(end.spread), math.sqrt(len(state))
        for k in range(len(state)):
            for sign in (size, -size):
                point = self._settled([x + sign * factor[r][k] for r, x in enumerate(state)])
                total += self._mean_value(point, self._nearest_from(point, end.cell))
        return total / (2 * len(state))

    def _mean_value(self, state: Vector, cell: int) -> float:
        return float(sum(weight * self.values[i] for weight, i in self._blend(state, cell, self.n_near)))


def _factor(spread: list[Vector]) -> list[Vector]:
    """Return a lower triangle whose product with its transpose is a covariance."""
    factor = [[0.0] * len(spread) for _ in spread]
    for r, row in enumerate(spread):
        for c in range(r + 1):
            total = row[c] - sum(factor[r][k] * factor[c][k] for k in range(c))
            if r == c:
                factor[r][r] = math.sqrt(max(total, 0.0))
            elif factor[c][c] > 0:
                factor[r][c] = total / factor[c][c]
    return factor
