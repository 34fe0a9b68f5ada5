"""Tasks as Gymnasium environments, and Gymnasium environments as tasks."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from kbrl import KBSF
from kbrl.tasks import PuddleWorld, from_gymnasium
from kbrl.tasks.gymnasium_env import TaskEnv

RIGHT = 2


def make(**options):
    return gymnasium.make("kbrl/PuddleWorld-v0", **options).unwrapped


@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
def test_the_environment_passes_gymnasiums_own_checks(render_mode):
    check_env(make(render_mode=render_mode))  # warnings are errors here


def test_the_environment_moves_as_the_task_does():
    env, task = make(noise=False), PuddleWorld(noise=False)
    observation, _ = env.reset(seed=4)
    for action in (0, 2, 1, 3, 2, 2):
        expected, rewards, terminals = task.step([observation], [action])
        observation, reward, terminated, truncated, _ = env.step(action)
        np.testing.assert_array_equal(observation, expected[0])
        assert (reward, terminated, truncated) == (rewards[0], terminals[0], False)


def test_a_seed_decides_the_whole_episode():
    def episode(seed):
        env = make()
        return [env.reset(seed=seed)[0]] + [env.step(RIGHT)[0] for _ in range(5)]

    np.testing.assert_array_equal(episode(1), episode(1))
    assert not np.array_equal(episode(1), episode(2))


def test_an_episode_is_truncated_after_300_decisions_and_not_before():
    env = make()
    env.reset(seed=0, options={"state": [0.0, 0.0]})
    cuts = [env.step(3)[2:4] for _ in range(300)]
    assert cuts == [(False, False)] * 299 + [(False, True)]


def test_the_time_limit_can_be_changed():
    env = make(max_steps=2)
    env.reset(seed=0, options={"state": [0.0, 0.0]})
    assert [env.step(3)[3] for _ in range(2)] == [False, True]


def test_the_goal_terminates_and_does_not_truncate():
    env = make(noise=False, max_steps=1)
    env.reset(options={"state": [0.9, 0.96]})
    _, reward, terminated, truncated, _ = env.step(RIGHT)
    assert (reward, terminated, truncated) == (5.0, True, False)
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"Call reset\(\) before step\(\)"):
        env.step(RIGHT)


def test_bad_input_is_refused():
    env = TaskEnv(PuddleWorld())
    with pytest.raises(gymnasium.error.ResetNeeded, match="none has begun"):
        env.step(0)
    env.reset()
    with pytest.raises(ValueError, match="from 0 to 3"):
        env.step(4)
    with pytest.raises(ValueError, match=r"options\['state'\] must have 2 columns"):
        env.reset(options={"state": [0.5]})
    with pytest.raises(ValueError, match="render_mode must be None or 'rgb_array'"):
        TaskEnv(PuddleWorld(), render_mode="human")
    with pytest.raises(ValueError, match="goal must be one of"):
        make(goal="circle")


def test_a_picture_shows_puddles_goal_and_agent():
    env = make(render_mode="rgb_array", noise=False)
    with pytest.raises(gymnasium.error.ResetNeeded, match="no episode to draw"):
        env.render()
    env.reset(options={"state": [0.7, 0.2]})
    env.step(RIGHT)
    picture = env.render()
    assert picture.shape == (500, 500, 3)
    assert picture.dtype == np.uint8
    red, green, blue = np.moveaxis(picture.astype(int), -1, 0)
    assert ((blue > red + 60) & (blue > green + 20)).sum() > 5000  # the puddles
    assert ((green > red + 60) & (green > blue + 60)).sum() > 500  # the goal
    ys, xs = np.nonzero((red > 180) & (green < 80) & (blue < 80))  # the agent, right of and below the middle
    assert xs.mean() > 300
    assert ys.mean() > 300
    assert make().render() is None


@pytest.mark.parametrize(
    "program",
    [
        "import sys, kbrl; assert 'gymnasium' not in sys.modules",
        "import sys; sys.modules['gymnasium'] = None; from kbrl.tasks import PuddleWorld; PuddleWorld().reset(3)",
        "import gymnasium, kbrl.tasks; gymnasium.make('kbrl/PuddleWorld-v0')",
        "import gymnasium; gymnasium.make('kbrl.tasks:kbrl/PuddleWorld-v0')",
    ],
    ids=["kbrl-alone-imports-no-gymnasium", "tasks-work-without-it", "registered-by-import", "registered-by-name"],
)
def test_gymnasium_is_optional_and_registered_with_the_tasks(program):
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


class Drift(gymnasium.Env):
    """An environment of the user's: it drifts by 1 a step, cuts itself at 4, and action 6 ends it."""

    observation_space = gymnasium.spaces.Box(-10, 10, (1, 2), dtype=np.float32)
    action_space = gymnasium.spaces.Discrete(2, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.array([[0.0, self.np_random.random()]], dtype=np.float32)
        return self.place.copy(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.place[0, 0] += 1
        return self.place.copy(), 1.0, action == 6, bool(self.place[0, 0] >= 4), {}


def test_an_environment_of_the_users_own_is_used_as_a_task():
    task = from_gymnasium(Drift(), discount=0.5, max_steps=100)
    log = task.collect(10, lambda seen: [0], random_state=0)
    np.testing.assert_array_equal(log.states[:, 0], [0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
    np.testing.assert_array_equal(log.episodes, [0] * 4 + [1] * 4 + [2] * 2)
    assert not log.terminals.any()  # it cuts itself, which is no end
    np.testing.assert_array_equal(log.states, task.collect(10, lambda seen: [0], random_state=0).states)
    cut, ended = task.evaluate(lambda seen: [0], 3), task.evaluate(lambda seen: ["6"], 2)
    np.testing.assert_allclose(cut.returns, 1 + 0.5 + 0.25 + 0.125)
    assert not cut.terminated.any()
    assert ended.terminated.all()


spaces = gymnasium.spaces
SPACES = {
    "Discrete": (spaces.Discrete(3, start=4), ["x=4", "x=5", "x=6"]),
    "MultiDiscrete": (spaces.MultiDiscrete([2, 3]), ["x0=0", "x0=1", "x1=0", "x1=1", "x1=2"]),
    "MultiBinary": (spaces.MultiBinary(3), ["x0", "x1", "x2"]),
    "Box": (spaces.Box(-1, 1, (2, 2)), ["x0", "x1", "x2", "x3"]),
    "Dict": (
        spaces.Dict({"speed": spaces.Box(-1, 1, (1,)), "door": spaces.Discrete(2), "at": spaces.Box(-1, 1, (2,))}),
        ["at_0", "at_1", "door=0", "door=1", "speed"],
    ),
    "Tuple": (spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(2))), ["x0_0", "x0_1", "x1=0", "x1=1"]),
    "nested": (
        spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(1)))}), ["a_0=0", "a_0=1", "a_1_0"],
    ),
}  # fmt: skip


class Sampled(gymnasium.Env):
    """An environment that shows points of a space, and keeps them."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space, self.shown = space, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.shown.append(self.observation_space.sample())
        return self.shown[-1], {}

    def step(self, action):
        self.shown.append(self.observation_space.sample())
        return self.shown[-1], 0.0, False, False, {}


@pytest.mark.parametrize("kind", SPACES)
def test_observations_of_every_kind_are_rows_of_named_numbers_as_gymnasium_flattens_them(kind):
    space, names = SPACES[kind]
    env = Sampled(space)
    task = from_gymnasium(env, max_steps=9)
    assert list(task.state_names) == names
    log = task.collect(8, random_state=0)
    flat = [spaces.flatten(space, point) for point in env.shown[:8]]
    np.testing.assert_array_equal(log.states, np.array(flat, dtype=float))
    bounds = spaces.flatten_space(space)
    np.testing.assert_array_equal(
        task.low, np.zeros_like(task.low) if isinstance(bounds, spaces.MultiBinary) else bounds.low
    )


def test_observations_without_a_fixed_number_of_numbers_are_refused_by_name():
    space = spaces.Dict({"words": spaces.Text(5)})
    with pytest.raises(TypeError, match=r"Observations must be Box, Discrete.* but 'words' is Text"):
        from_gymnasium(Sampled(space), max_steps=9)


def test_a_table_of_places_is_learnt_from():
    task = from_gymnasium(gymnasium.make("FrozenLake-v1", is_slippery=False))
    log = task.collect(4000, random_state=0)
    model = KBSF(n_reps=16, reps="spread", sample_width=0.05, rep_width=0.05, discount=0.95, random_state=0).fit(log)
    assert task.evaluate(model.predict, 3, random_state=0).returns.min() > 0.5


def test_a_task_seen_through_gymnasium_gives_the_same_returns():
    def to_the_corner(observations):
        return np.where(observations[:, 0] < observations[:, 1], 2, 0)

    through = from_gymnasium(make(noise=False))
    assert through.max_steps == 300
    result = through.evaluate(to_the_corner, 5, random_state=0, record=True)
    starts = result.log.states[np.flatnonzero(np.diff(result.log.episodes, prepend=-1))]
    np.testing.assert_allclose(result.returns, PuddleWorld(noise=False).evaluate(to_the_corner, starts).returns)


def test_a_classic_environment_is_collected_from():
    log = from_gymnasium(gymnasium.make("CartPole-v1")).collect(200, random_state=0)
    assert log.states.shape == (200, 4)
    assert log.n_actions == 2
    assert log.terminals.any()


def test_environments_that_do_not_fit_are_refused():
    with pytest.raises(TypeError, match="must have Discrete actions"):
        from_gymnasium(gymnasium.make("Pendulum-v1"))
    with pytest.raises(ValueError, match="max_steps must be given"):
        from_gymnasium(Drift())
    task = from_gymnasium(Drift(), max_steps=9)
    with pytest.raises(ValueError, match="one episode at a time, but 2 were asked for"):
        task.reset(2)
    task.reset(1, 0)
    with pytest.raises(ValueError, match="cannot be put in a state"):
        task.step([[3.0, 3.0]], [0])
    with pytest.raises(TypeError, match="states must be a whole number"):
        task.evaluate(lambda seen: [0], [[0.0, 0.0]])
