"""SARSA(lambda) with tile coding: a step of the compiled agent against the same in plain Python.

The paper's helicopter setting: 12 variables, 256 actions, 24 tilings of 4^12 tiles, hashed.  Both learn from the same
transitions; the time is that of observing one and choosing the next action.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Report, Row, Section, Tick, at_least, cpu_times, seconds, times

N_DIMS, N_TILINGS, TILES, MEMORY = 12, 24, 4, 2**20
ALPHA, DISCOUNT, DECAY, LEAST = 0.001 / N_TILINGS, 0.99, 0.99 * 0.05, 0.01


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield a table for the paper's number of actions and one for few."""
    for n_actions, n in ((256, 20), (4, 200)) if quick else ((256, 300), (4, 3000)):
        yield _compare(n_actions, n, tick)


SECTION = Section("sarsa", run)


def _compare(n_actions: int, n: int, tick: Tick) -> Report:
    from kbrl import SARSA

    rng = np.random.default_rng(0)
    states, rewards = np.cumsum(rng.normal(scale=0.01, size=(n + 1, N_DIMS)), axis=0), rng.normal(size=n)
    agent = SARSA(n_actions, -np.ones(N_DIMS), np.ones(N_DIMS), memory=MEMORY, exploration=0.0, random_state=0)

    def compiled() -> None:
        for t in range(n):
            agent.observe(states[t], agent.act(states[t]), rewards[t], states[t + 1], False)

    few = max(2, n // 50)
    rows_of_floats = states[: few + 1].tolist()
    compiled()  # loads the compiled loops
    found = cpu_times(
        {"kbrl": compiled, "plain Python": lambda: _plain(rows_of_floats, rewards, n_actions)}, rounds=3, tick=tick
    )
    ours, theirs = found["kbrl"] / n, found["plain Python"] / few
    goal = at_least(theirs / ours, 50, "kbrl at least 50 x faster") if n_actions == 256 else None
    rows = [
        Row("kbrl: observe and act", seconds(ours), "1.00 x"),
        Row("plain Python", seconds(theirs), times(theirs / ours), goal),
    ]
    return Report(f"A step of SARSA(lambda): {N_DIMS} variables, {n_actions} actions, {N_TILINGS} tilings", rows)


def _plain(states: list[list[float]], rewards: np.ndarray, n_actions: int) -> dict[int, float]:
    """The same algorithm with dictionaries and loops."""
    weights: dict[int, float] = {}
    traces: dict[int, float] = {}
    tiles = _tiles(states[0], n_actions)
    action = _best(weights, tiles)
    for state, reward in zip(states[1:], rewards.tolist()):
        next_tiles = _tiles(state, n_actions)
        next_action = _best(weights, next_tiles)
        traces = {place: trace * DECAY for place, trace in traces.items() if trace * DECAY >= LEAST}
        for other, places in enumerate(tiles):
            for place in places:
                if other != action:
                    traces.pop(place, None)
        value = sum(weights.get(place, 0.0) for place in tiles[action])
        traces.update(dict.fromkeys(tiles[action], 1.0))
        error = reward + DISCOUNT * sum(weights.get(place, 0.0) for place in next_tiles[next_action]) - value
        for place, trace in traces.items():
            weights[place] = weights.get(place, 0.0) + ALPHA * error * trace
        tiles, action = next_tiles, next_action
    return weights


def _tiles(state: list[float], n_actions: int) -> list[list[int]]:
    fine = [math.floor((x + 1) * TILES / 2 * N_TILINGS) for x in state]
    corners = [
        tuple(f - (f - tiling * (1 + 2 * i)) % N_TILINGS for i, f in enumerate(fine)) for tiling in range(N_TILINGS)
    ]
    blocks = [hash((tiling, corner)) % (MEMORY // n_actions) for tiling, corner in enumerate(corners)]
    return [[block * n_actions + action for block in blocks] for action in range(n_actions)]


def _best(weights: dict[int, float], tiles: list[list[int]]) -> int:
    values = [sum(weights.get(place, 0.0) for place in places) for places in tiles]
    return values.index(max(values))
