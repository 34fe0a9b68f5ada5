"""The tasks of the learning table: environments of Gymnasium, the puddle world, a store of goods, a glucose record.

A task comes twice: as the log sees it, and as it is tested, in its usual form.  The two differ where random actions
from the usual starts never reach the goal, so that nobody could learn from the log.  Logs are of random actions, or of
people who are neither good nor random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.glucose import Glucose, usual_doses
from experiments.study import generator
from kbrl import Transitions
from kbrl.arrays import Booleans, Floats, Integers
from kbrl.tasks import PuddleWorld, from_gymnasium
from kbrl.tasks.task import Task

N_TORQUES, N_NOISE = 5, 6
N_STEPS = 20_000  # of a log
Habit = Callable[[Floats, np.random.Generator], Integers]  # from observations to places of actions
UNLIMITED = 10**6  # steps of an episode, more than any log has


@dataclass(frozen=True)
class Pair:
    """A task to take logs of, and the same task to be tested in."""

    title: str
    logged: Callable[[], Task]
    tested: Callable[[], Task]
    habit: Habit | None = None  # of those who are logged; None: random actions
    n_steps: int = N_STEPS

    def log(self, n_steps: int, seed: int) -> Transitions:
        """Return a log of what people do, or of random actions."""
        return self.logged().collect(n_steps, self.behaviour(seed), random_state=generator(seed))

    def behaviour(self, seed: int) -> Callable[[Any], Integers] | None:
        """Return the habit with a seed of its own; None: random actions."""
        if self.habit is None:
            return None
        habit, rng = self.habit, generator(seed, 3)
        return lambda observations: habit(np.asarray(observations, dtype=np.float64), rng)


def _made(name: str, **options: Any) -> Any:
    import gymnasium

    return gymnasium.make(name, **options)


def _task(env: Any) -> Task:
    return from_gymnasium(env, discount=1.0)  # returns are plain sums


def _cart_pole() -> Task:
    return _task(_made("CartPole-v1"))


def _noisy_cart_pole() -> Task:
    """CartPole, whose observations also have six numbers that mean nothing, new at every step."""
    import gymnasium

    env = _made("CartPole-v1")
    rng = np.random.default_rng(0)  # seeded again at every reset

    class WithNoise(gymnasium.ObservationWrapper):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            nonlocal rng
            rng = np.random.default_rng(seed)
            return super().reset(seed=seed, options=options)

        def observation(self, observation: Any) -> Any:
            return np.concatenate([observation, rng.standard_normal(N_NOISE)])

    wrapped = WithNoise(env)
    low, high = (np.append(np.float64(bound), np.full(N_NOISE, far)) for bound, far in _bounds(env))
    wrapped.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
    return _task(wrapped)


def push_towards_the_fall(observations: Floats, rng: np.random.Generator) -> Integers:
    """Return pushes to the side where the pole leans; every second one is random."""
    leans = observations[:, 2] + 0.3 * observations[:, 3] > 0
    return np.where(rng.random(len(leans)) < 0.5, rng.integers(2, size=len(leans)), leans).astype(np.intp)


def _lander() -> Task:
    return _task(_made("LunarLander-v3"))


def sink_too_fast(observations: Floats, rng: np.random.Generator) -> Integers:
    """Return what a pilot does who keeps upright and brakes late; four of ten decisions are random."""
    x, height, drift, rising, angle, turning, left, right = observations.T
    lean = np.clip(0.6 * x + 0.9 * drift, -0.4, 0.4) - angle - 1.2 * turning
    is_falling = rising < -0.3 - 0.5 * np.maximum(height, 0.0)
    turns = np.where(lean > 0.05, 1, np.where(lean < -0.05, 3, 0))
    wanted = np.where(is_falling, 2, np.where(left + right > 0, 0, turns))
    return np.where(rng.random(len(wanted)) < 0.4, rng.integers(4, size=len(wanted)), wanted)


def _bounds(env: Any) -> list[tuple[Floats, float]]:
    return [(env.observation_space.low, -np.inf), (env.observation_space.high, np.inf)]


def _pendulum() -> Task:
    import gymnasium

    torques = np.linspace(-2.0, 2.0, N_TORQUES)

    class FiveTorques(gymnasium.ActionWrapper):
        def action(self, action: int) -> Any:
            return torques[[action]].astype(np.float32)

    wrapped = FiveTorques(_made("Pendulum-v1"))
    wrapped.action_space = gymnasium.spaces.Discrete(N_TORQUES)
    return _task(wrapped)


def _mountain_car() -> Task:
    return _task(_made("MountainCar-v0"))


def _mountain_car_from_anywhere() -> Task:
    """MountainCar, whose episodes start with any place and any speed."""
    import gymnasium

    class FromAnywhere(gymnasium.Wrapper):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed, options=options)
            car: Any = self.unwrapped
            place = car.np_random.uniform(car.min_position, car.goal_position)
            car.state = np.array([place, car.np_random.uniform(-car.max_speed, car.max_speed)])
            return car.state.astype(np.float32), {}

    return _task(FromAnywhere(_made("MountainCar-v0")))


def _acrobot() -> Task:
    return _task(_made("Acrobot-v1"))


def _acrobot_without_limit() -> Task:
    return _task(_made("Acrobot-v1", max_episode_steps=UNLIMITED))


class Inventory(Task):
    """A store of goods with random demand: order 0 to 20 pieces a day, which come the next day.

    The expected demand wanders and is known.  A piece sold earns 3 and costs 1; each order costs 2 more, each piece in
    store 0.1 a day and each piece that a customer wanted in vain 1.  The store holds 40 pieces; what is too much is
    lost.  Episodes have 100 days.
    """

    name = "Inventory"
    actions = ("0", "5", "10", "15", "20")
    discount = 1.0
    max_steps = 100
    state_names = ("stock", "ordered", "expected")
    low = np.array([0.0, 0.0, 2.0])
    high = np.array([40.0, 20.0, 14.0])

    def _reset(self, n: int, rng: np.random.Generator) -> Floats:
        return np.column_stack([rng.integers(0, 41, n), np.zeros(n), rng.uniform(self.low[2], self.high[2], n)])

    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        stock, expected = np.minimum(states[:, 0] + states[:, 1], self.high[0]), states[:, 2]
        wanted = rng.poisson(expected)
        sold, ordered = np.minimum(stock, wanted), 5.0 * actions
        left = stock - sold
        rewards = 3.0 * sold - ordered - 2.0 * (ordered > 0) - 0.1 * left - (wanted - sold)
        moved = expected + 0.1 * (8.0 - expected) + rng.standard_normal(len(states))
        next_states = np.column_stack([left, ordered, np.clip(moved, self.low[2], self.high[2])])
        return next_states, rewards, np.zeros(len(states), dtype=bool)


TASKS = {
    "CartPole": Pair("CartPole-v1", _cart_pole, _cart_pole),
    "Pendulum": Pair("Pendulum-v1, 5 torques", _pendulum, _pendulum),
    "MountainCar": Pair("MountainCar-v0, logs that start anywhere", _mountain_car_from_anywhere, _mountain_car),
    "Acrobot": Pair("Acrobot-v1, logs without a time limit", _acrobot_without_limit, _acrobot),
    "NoisyCartPole": Pair("CartPole-v1 with six noise variables", _noisy_cart_pole, _noisy_cart_pole),
    "Inventory": Pair("inventory with random demand", Inventory, Inventory),
    "Puddle": Pair("puddle world, noisy moves", PuddleWorld, PuddleWorld),
    "HabitCartPole": Pair(
        "CartPole-v1, logs of a hand that is right more often than not", _cart_pole, _cart_pole, push_towards_the_fall
    ),
    "Lander": Pair("LunarLander-v3, logs of a mediocre pilot, 50 000 steps", _lander, _lander, sink_too_fast, 50_000),
    "Glucose": Pair("glucose record, delayed insulin, logs of usual doses", Glucose, Glucose, usual_doses),
}
