"""Logs of people at work: simulators, a habit of acting in each, and how often people depart from it.

The truth is known: what current practice is worth, what any other policy is worth, and whether changing one decision
is right.  CartPole and Pendulum are Gymnasium's (`experiments.physics`); Pendulum has three torques.  "Narrow" people
depart rarely from their habit, so that little is known of anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.physics import push_cart, swing
from kbrl import Transitions
from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.tasks import PuddleWorld
from kbrl.tasks.task import Task
from kbrl.trials import rollout

Habit = Callable[[Floats], Integers]  # from observations to places of actions


class CartPole(Task):
    """A pole on a cart that is pushed to the left or to the right; every step without a fall pays 1."""

    name = "CartPole"
    source = "Gymnasium, CartPole-v1"
    actions = ("left", "right")
    discount = 0.99
    max_steps = 200
    state_names = ("position", "speed", "angle", "turning")
    low, high = np.full(4, -5.0), np.full(4, 5.0)

    def _reset(self, n: int, rng: np.random.Generator) -> Floats:
        return rng.uniform(-0.05, 0.05, (n, 4))

    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        moved, falls = push_cart(states, np.where(actions == 1, 10.0, -10.0))
        return moved, np.ones(len(states)), falls


class Pendulum(Task):
    """A pendulum that is to stand upright, with a motor that cannot lift it at once; it never ends."""

    name = "Pendulum"
    source = "Gymnasium, Pendulum-v1, with three torques"
    actions = ("back", "none", "forth")
    discount = 0.95
    max_steps = 100
    state_names = ("angle", "turning")
    low, high = np.array([-1.0, -1.0, -8.0]), np.array([1.0, 1.0, 8.0])

    @property
    def observation_names(self) -> tuple[str, ...]:
        """Cosine and sine of the angle, and its speed."""
        return ("cosine", "sine", "turning")

    def observe(self, states: Floats) -> Floats:
        """Return cosine and sine of the angle, and its speed."""
        return np.column_stack([np.cos(states[:, 0]), np.sin(states[:, 0]), states[:, 1]])

    def restore(self, observations: Floats) -> Floats:
        """Return the states behind observations."""
        return np.column_stack([np.arctan2(observations[:, 1], observations[:, 0]), observations[:, 2]])

    def _reset(self, n: int, rng: np.random.Generator) -> Floats:
        return rng.uniform([-np.pi, -1.0], [np.pi, 1.0], (n, 2))

    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        angle, turning, rewards = swing(states[:, 0], states[:, 1], 2.0 * (actions - 1.0))
        return np.column_stack([angle, turning]), rewards, np.zeros(len(states), dtype=bool)


@dataclass(frozen=True)
class People:
    """Who acts: by habit, and with probability ``epsilon`` at random."""

    task: Task
    habit: Habit
    epsilon: float

    def act(self, observations: Floats, rng: np.random.Generator) -> Integers:
        """Return what they do, (n,), as places of actions."""
        n = len(observations)
        chosen = rng.integers(len(self.task.actions), size=n)
        return np.where(rng.random(n) < self.epsilon, chosen, self.habit(observations))

    def log(self, n_episodes: int, seed: Any) -> Transitions:
        """Return the log of so many episodes, with the names of state variables and actions."""
        rng = np.random.default_rng(seed)
        log = rollout(self.task, lambda seen: self.act(seen, rng), n_episodes, rng, record=True).log
        assert log is not None
        labels = np.array(self.task.actions)
        return Transitions(
            log.states, labels[log.action_indices], log.rewards, log.next_states, log.terminals,
            episodes=log.episodes, state_names=self.task.observation_names, action_labels=labels,
        )  # fmt: skip

    def value(self, policy: Callable[[Floats], Array] | None, n_episodes: int, seed: Any) -> float:
        """Return the mean discounted return of a policy, whose "as now" leaves it to these people; None: theirs."""
        rng = np.random.default_rng(seed)
        acting = self.following(policy, rng)
        return float(rollout(self.task, acting, n_episodes, rng).returns.mean())

    def following(
        self, policy: Callable[[Floats], Array] | None, rng: np.random.Generator
    ) -> Callable[[Floats], Integers]:
        """Return how these people act if they follow a policy's answers, and their habit where it says "as now"."""
        places = {name: place for place, name in enumerate(self.task.actions)} | {"as now": -1}

        def acting(seen: Floats) -> Integers:
            own = self.act(seen, rng)
            if policy is None:
                return own
            told = np.array([places[str(answer)] for answer in policy(seen).tolist()], dtype=np.intp)
            return np.where(told < 0, own, told)

        return acting


def gains_of_a_change(people: People, seen: Floats, n_rollouts: int, seed: Any) -> tuple[Floats, Floats]:
    """Return what each action gains over current practice if only this decision is changed, and its standard error.

    From each observed state, every action is tried so often, and people act as now afterwards: (n, n_actions) each.
    A policy of which every change is such a gain is better than current practice (the policy improvement theorem).
    """
    task, n_actions, rng = people.task, len(people.task.actions), np.random.default_rng(seed)
    starts = task.restore(seen) if isinstance(task, Pendulum) else seen
    begin = np.repeat(starts, n_actions * n_rollouts, axis=0)
    first = np.tile(np.repeat(np.arange(n_actions), n_rollouts), len(seen))
    states, returns, ends = task.step(begin, first, rng)
    alive = np.flatnonzero(~ends)
    ahead = rollout(task, people.following(None, rng), states[alive], rng)
    returns[alive] += task.discount * ahead.returns
    each = returns.reshape(len(seen), n_actions, n_rollouts)
    means, errors = each.mean(axis=2), each.var(axis=2, ddof=1) / n_rollouts
    shares = np.full(means.shape, people.epsilon / n_actions)
    shares[np.arange(len(seen)), people.habit(seen)] += 1.0 - people.epsilon
    now, now_error = (shares * means).sum(axis=1, keepdims=True), (shares**2 * errors).sum(axis=1, keepdims=True)
    own = errors * (1.0 - 2.0 * shares)  # as the action itself is part of the mixture
    return means - now, np.sqrt(own + now_error)


def _right_then_up(seen: Floats) -> Integers:
    """Walk along the lower edge, and through what is in the way."""
    return np.where(seen[:, 0] < 0.9, 2, 0)


def _against_the_lean(seen: Floats) -> Integers:
    return (seen[:, 2] > 0).astype(np.intp)


def _swing_up(seen: Floats) -> Integers:
    """Swing up by pushing along, not beyond the energy that is needed, and balance near the top."""
    cosine, sine, turning = seen.T
    is_up = cosine > 0.9
    balance = np.sign(-(10.0 * sine + 2.0 * turning))
    energy = 0.5 * turning**2 / 3.0 + 5.0 * (cosine - 1.0)  # 0 at rest at the top
    pump = np.where(turning >= 0, 1, -1) * np.where(energy < 0, 1, -1)
    return (1 + np.where(is_up, balance, pump)).astype(np.intp)


PEOPLE = {
    "puddle narrow": People(PuddleWorld(), _right_then_up, 0.15),
    "puddle wide": People(PuddleWorld(), _right_then_up, 0.9),
    "cartpole narrow": People(CartPole(), _against_the_lean, 0.3),
    "cartpole wide": People(CartPole(), _against_the_lean, 1.0),
    "pendulum narrow": People(Pendulum(), _swing_up, 0.15),
    "pendulum wide": People(Pendulum(), _swing_up, 0.8),
}
