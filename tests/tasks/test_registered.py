"""Every task of the library as a person meets it: by name, in Gymnasium, in pictures, from threads."""

from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from kbrl.tasks import TASKS

NAMES = list(TASKS)


@pytest.mark.parametrize("name", NAMES)
def test_its_environment_passes_gymnasiums_own_check(name):
    check_env(gymnasium.make(f"kbrl/{name}-v0", render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_is_decided_by_the_seed_of_reset(name):
    def episode():
        env = gymnasium.make(f"kbrl/{name}-v0")
        steps = [env.reset(seed=3)[0]]
        for k in range(10):
            observation, _, terminated, truncated, _ = env.step(k % env.action_space.n)
            steps.append(observation)
            if terminated or truncated:
                break
        return np.array(steps)

    np.testing.assert_array_equal(episode(), episode())


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_moves_as_the_task_does(name):
    task = TASKS[name]()
    env = gymnasium.make(f"kbrl/{name}-v0")
    env.reset(seed=5)
    start = env.unwrapped._state
    generator = np.random.default_rng()
    generator.bit_generator.state = env.unwrapped.np_random.bit_generator.state
    next_states, rewards, terminals = task.step(start, [1], generator)
    observation, reward, terminated, _, _ = env.step(1)
    np.testing.assert_array_equal(observation, task.observe(next_states)[0])
    assert (reward, terminated) == (rewards[0], terminals[0])


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_log_from_any_number_of_threads(name):
    def collect(seed):
        return TASKS[name]().collect(300, random_state=seed)

    alone = [collect(seed) for seed in range(4)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        together = list(pool.map(collect, range(4)))
    for one, other in zip(alone, together):
        for field in ("states", "actions", "rewards", "next_states", "terminals"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


@pytest.mark.parametrize("name", NAMES)
def test_it_says_where_it_comes_from_and_has_test_states_within_its_bounds(name):
    task = TASKS[name]()
    assert task.source
    for test_set in task.test_sets:
        observed = task.observe(task.test_states(test_set))
        assert (observed >= task.low).all()
        assert (observed <= task.high).all()
