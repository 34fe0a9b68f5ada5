"""Simulated logs whose truth is known: worlds, what is done there now, and returns by simulation.

Each world has a current practice that acts on the full state: a sensible rule, replaced by a uniformly random action
with a probability of ``noise``.  Narrow practice explores little.  In a hidden world the log lacks a variable that
practice saw.  CartPole and Pendulum are Gymnasium's (`experiments.physics`), with noise and three strengths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from experiments.physics import push_cart, swing
from kbrl import Transitions
from kbrl.arrays import Booleans, Floats, Integers
from kbrl.tasks import HIV, PoleBalancing, PuddleWorld

Step = Callable[[Floats, Integers, np.random.Generator], tuple[Floats, Floats, Booleans]]
Decide = Callable[[Floats], Integers]


@dataclass(frozen=True)
class World:
    """A simulator, the practice in it, and what of its state is recorded."""

    reset: Callable[[int, np.random.Generator], Floats]
    step: Step
    rule: Decide  # of current practice, on full states
    worse: Decide  # a policy on recorded states that is worse than practice
    n_actions: int
    discount: float
    limit: int  # decisions after which a logged episode is cut
    noise: float  # the probability of a random action in current practice
    observe: Callable[[Floats], Floats] = lambda states: states
    state_of: Callable[[Floats], Floats] = lambda seen: seen  # the full states behind recorded ones
    n_truth: int = 2000  # episodes behind a truth

    def practice(self, states: Floats, rng: np.random.Generator) -> Integers:
        """Return what is done now."""
        explores = rng.random(len(states)) < self.noise
        return np.where(explores, rng.integers(self.n_actions, size=len(states)), self.rule(states))

    def practice_probabilities(self, seen: Floats) -> Floats:
        """Return the probability of each action in recorded states, (n, n_actions), if nothing is hidden."""
        chances = np.full((len(seen), self.n_actions), self.noise / self.n_actions)
        chances[np.arange(len(seen)), self.rule(self.state_of(seen))] += 1.0 - self.noise
        return chances

    def collect(self, n_episodes: int, rng: np.random.Generator) -> Transitions:
        """Return a log of so many whole episodes under current practice."""
        states, names, parts = self.reset(n_episodes, rng), np.arange(n_episodes), []
        for t in range(self.limit):
            actions = self.practice(states, rng)
            following, rewards, ends = self.step(states.copy(), actions, rng)
            seen, then = self.observe(states), self.observe(following)
            parts.append((names, np.full(len(names), t), seen, actions, rewards, then, ends))
            states, names = following[~ends], names[~ends]
            if not len(names):
                break
        columns = [np.concatenate(column) for column in zip(*parts)]
        order = np.lexsort([columns[1], columns[0]])
        episodes, _, seen, actions, rewards, then, ends = (column[order] for column in columns)
        return Transitions(seen, actions, rewards, then, ends, episodes, action_labels=np.arange(self.n_actions))

    def truth(self, decide: Decide | None, rng: np.random.Generator, n: int | None = None) -> tuple[float, float]:
        """Return the mean discounted return, without a limit that matters, and its standard error.

        ``decide`` acts on recorded states; without it, practice acts.
        """
        states = self.reset(self.n_truth if n is None else n, rng)
        returns, rows, weight = np.zeros(len(states)), np.arange(len(states)), 1.0
        while weight > 1e-3 and len(rows):
            actions = self.practice(states, rng) if decide is None else np.asarray(decide(self.observe(states)))
            states, rewards, ends = self.step(states.copy(), actions, rng)
            returns[rows] += weight * rewards
            states, rows, weight = states[~ends], rows[~ends], weight * self.discount
        return float(returns.mean()), float(returns.std() / np.sqrt(len(returns)))


def _puddle() -> World:
    task = PuddleWorld()

    def rule(states: Floats) -> Integers:
        return np.where(states[:, 0] < states[:, 1], 2, 0)  # towards the corner, through puddles or not

    return World(
        lambda n, rng: task.reset(n, rng),
        task.step_trusted,
        rule,
        lambda seen: np.where(seen[:, 0] > 0.5, 3, 1),
        4,
        discount=0.95,
        limit=100,
        noise=0.7,
    )


def _cart_step(states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
    moved, falls = push_cart(states, 10.0 * (actions - 1.0) + rng.normal(0.0, 1.0, len(states)))
    return moved, np.ones(len(states)), falls


def _cart_pole() -> World:
    return World(
        lambda n, rng: rng.uniform(-0.15, 0.15, (n, 4)),
        _cart_step,
        lambda states: np.where(states[:, 2] + 0.2 * states[:, 3] > 0, 2, 0),
        lambda seen: np.where(seen[:, 2] > 0, 0, 2),
        3,
        discount=0.97,
        limit=150,
        noise=0.7,
    )


def _swing(states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
    angle = np.arctan2(states[:, 1], states[:, 0])
    gusts = rng.normal(0.0, 0.05, len(states))
    angle, turning, rewards = swing(angle, states[:, 2], 2.0 * (actions - 1.0), gusts)
    return np.stack([np.cos(angle), np.sin(angle), turning], axis=1), rewards, np.zeros(len(states), dtype=bool)


def _hang(n: int, rng: np.random.Generator) -> Floats:
    angle = rng.uniform(-np.pi, np.pi, n)
    return np.stack([np.cos(angle), np.sin(angle), rng.uniform(-1.0, 1.0, n)], axis=1)


def _pendulum() -> World:
    return World(
        _hang,
        _swing,
        lambda states: np.where(states[:, 2] > 0, 2, 0),  # pumps energy, and never brakes
        lambda seen: np.full(len(seen), 2),
        3,
        discount=0.95,
        limit=120,
        noise=0.6,
    )


def _pole() -> World:
    task = PoleBalancing(1, start="test box")
    return World(
        lambda n, rng: task.reset(n, rng),
        task.step_trusted,
        lambda states: np.where(states[:, 2] + 0.3 * states[:, 3] > 0, 1, 0),
        lambda seen: np.where(seen[:, 2] > 0, 0, 1),
        2,
        discount=0.97,
        limit=150,
        noise=0.7,
    )


def _hiv() -> World:
    task = HIV()

    def reset(n: int, rng: np.random.Generator) -> Floats:
        return np.asarray(task.reset(n, rng) * np.exp(rng.normal(0.0, 0.3, (n, 6))))

    def step(states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        following, rewards, ends = task.step_trusted(states, actions, rng)
        return following * np.exp(rng.normal(0.0, 0.1, following.shape)), rewards / 1e4, ends

    return World(
        reset,
        step,
        lambda states: np.where(states[:, 4] > 1e4, 3, 0),  # both drugs while there is much virus
        lambda seen: np.full(len(seen), 1),
        4,
        discount=0.9,
        limit=50,
        noise=0.6,
        observe=task.observe,
        state_of=lambda seen: np.asarray(10.0**seen),
        n_truth=300,
    )


WORLDS: dict[str, Callable[[], World]] = {
    "puddle": _puddle,
    "cartpole": _cart_pole,
    "pendulum": _pendulum,
    "poles": _pole,
    "hiv": _hiv,
}
NARROW = {"puddle": 0.15, "cartpole": 0.3, "pendulum": 0.15}  # noise
HIDDEN = {"puddle": (0,), "cartpole": (0, 2, 3), "pendulum": (0, 1)}  # columns that are recorded


def world(name: str, variant: str) -> World:
    """Return a world as it is ("wide"), with narrow practice, or with a hidden variable."""
    found = WORLDS[name]()
    if variant == "narrow":
        return replace(found, noise=NARROW[name])
    if variant == "hidden":
        columns = list(HIDDEN[name])
        worse = {"puddle": lambda seen: np.full(len(seen), 1), "cartpole": lambda seen: np.where(seen[:, 1] > 0, 0, 2)}
        decide = worse.get(name, found.worse)
        return replace(found, observe=lambda states: states[:, columns], worse=decide)
    return found
