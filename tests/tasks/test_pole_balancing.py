"""Pole balancing against published vectors, slow twins, Lagrange's equations and conservation laws."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl.tasks import pole_dynamics
from kbrl.tasks.gymnasium_env import TaskEnv
from kbrl.tasks.pole_balancing import PoleBalancing
from kbrl.tasks.pole_dynamics import advance
from tasks import slow_poles

DOWN, UP = -9.8, 9.8
n_poles = pytest.mark.parametrize("n_poles", [1, 2, 3])
gravities = pytest.mark.parametrize("gravity", [DOWN, UP])


def random_states(n, n_poles, seed=0):
    largest = np.array([3.0, 5.0, *[np.pi, 10.0] * n_poles])
    return np.random.default_rng(seed).uniform(-largest, largest, (n, len(largest)))


def differentiate(state, force, gravity, track_friction):
    """Return the library's time derivative of one state."""
    n_poles, n_lanes = len(state) // 2 - 1, pole_dynamics._LANES
    block, slopes = (np.repeat(np.asarray(state)[:, None], n_lanes, axis=1) for _ in range(2))
    poles = np.array([slow_poles.HALF_LENGTHS[:n_poles], slow_poles.MASSES[:n_poles]])
    scratch = np.empty((2, 1 + n_poles, n_lanes))
    constants = np.array([gravity, track_friction, 2e-6])
    pole_dynamics._differentiate(block, np.full(n_lanes, force), poles, constants, slopes, scratch)
    return slopes[:, 0]


@n_poles
@pytest.mark.parametrize("friction, field", [(True, "next_state"), (False, "next_state_no_cart_friction")])
def test_it_reproduces_the_reference_transitions(n_poles, friction, field):
    rows = json.loads((Path(__file__).parent / f"pole{n_poles}.json").read_text())["transitions"]
    task = PoleBalancing(n_poles, forces=(-10, 0, 10), track_friction=friction)
    actions = [task.forces.index(row["action"]) for row in rows]
    next_states, rewards, terminals = task.step([row["state"] for row in rows], actions)
    np.testing.assert_allclose(next_states, [row[field] for row in rows], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(rewards, [row["reward"] for row in rows])
    np.testing.assert_array_equal(terminals, [row["terminated"] for row in rows])


@n_poles
@gravities
@pytest.mark.parametrize("friction", [0.0, 5e-4])
def test_it_agrees_with_both_slow_twins(n_poles, gravity, friction):
    states = random_states(200, n_poles)
    forces = np.random.default_rng(1).choice([-10.0, 0.0, 10.0, 3.5], len(states))
    fast = advance(states, forces, gravity, track_friction=friction)
    slow = [slow_poles.python_decision(s, f, gravity, friction) for s, f in zip(states.tolist(), forces.tolist())]
    np.testing.assert_allclose(fast, slow, rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(fast, slow_poles.numpy_decision(states, forces, gravity, friction), atol=1e-12)


@n_poles
@gravities
def test_accelerations_solve_lagranges_equations_of_rods_on_a_cart(n_poles, gravity):
    for state, force in zip(random_states(100, n_poles), np.linspace(-10, 10, 100)):
        slopes = differentiate(state, force, gravity, 5e-4)
        np.testing.assert_array_equal(slopes[::2], state[1::2])
        expected = slow_poles.lagrange_accelerations(state, force, gravity, 5e-4)
        np.testing.assert_allclose(slopes[1::2], expected, rtol=1e-10, atol=1e-10)


@n_poles
@gravities
def test_energy_is_conserved_without_friction_to_the_order_of_the_integration(n_poles, gravity):
    states = 0.5 * random_states(20, n_poles)
    forces, before = np.zeros(20), slow_poles.energy(states, gravity)

    def drift(n_steps):
        step = 0.4 / n_steps
        after = advance(states, forces, gravity, track_friction=0.0, hinge_friction=0.0, step=step, n_steps=n_steps)
        return np.abs(slow_poles.energy(after, gravity) - before).max()

    assert drift(400) < 1e-6 * np.abs(before).max()
    assert drift(100) > 12 * drift(200) > 12 * 12 * drift(400)  # halving the step of order 4 divides errors by 16


@given(st.integers(1, 3), st.integers(0, 1000), st.sampled_from(["down", "up"]))
@settings(max_examples=30, deadline=None)
def test_the_mirror_image_of_state_and_force_leads_to_the_mirror_image(n_poles, seed, gravity):
    task = PoleBalancing(n_poles, gravity=gravity)
    states, actions = random_states(20, n_poles, seed), np.arange(20) % 2
    moved, rewards, terminals = task.step(states, actions)
    mirrored = task.step(-states, 1 - actions)
    np.testing.assert_allclose(mirrored[0], -moved, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(mirrored[1], rewards)
    np.testing.assert_array_equal(mirrored[2], terminals)


@n_poles
def test_a_state_moves_the_same_alone_and_in_any_company(n_poles):
    task, states = PoleBalancing(n_poles), random_states(71, n_poles)  # more than two blocks, and a rest
    actions = np.arange(71) % 2
    together = task.step(states, actions)[0]
    alone = [task.step(states[[i]], actions[[i]])[0][0] for i in range(71)]
    np.testing.assert_array_equal(together, alone)


@given(st.floats(-1e6, 1e6))
@settings(max_examples=200, deadline=None)
def test_sine_and_cosine_are_right_to_the_last_places(angle):
    expected = (np.sin(angle), np.cos(angle))
    np.testing.assert_allclose(pole_dynamics._sine_and_cosine(angle), expected, rtol=0, atol=2.3e-16)


def test_absurd_angles_are_failures_and_no_nan():
    states, rewards, terminals = PoleBalancing().step(
        [[0.0, 0.0, angle, 0.0] for angle in (1e9, -1e30, 1e100)], [0] * 3
    )
    assert np.isfinite(states).all()
    assert terminals.all()
    np.testing.assert_array_equal(rewards, -1.0)


def test_at_rest_without_a_force_nothing_moves():
    for gravity in ("down", "up"):
        states, rewards, terminals = PoleBalancing(3, gravity=gravity, forces=[0]).step(np.zeros((1, 8)), [0])
        np.testing.assert_array_equal(states, 0.0)  # friction has no direction: sgn(0) = 0
        assert (rewards[0], terminals[0]) == (0.0, False)


def test_with_gravity_up_a_pole_swings_about_the_top_with_the_period_of_small_swings():
    task = PoleBalancing(gravity="up", forces=[0.0], start=[0, 0, 0.02, 0])
    result = task.evaluate(lambda seen: np.zeros(len(seen)), [[0.0, 0.0, 0.02, 0.0]], record=True)
    assert task.success_rate(result) == 1.0
    angles = result.log.states[:, 2]
    assert np.abs(angles).max() <= 0.02
    # theta'' = -(3 g / 4 l)(1 + 0.75 m / (M + m / 4)) theta for small angles.
    frequency = np.sqrt(0.75 * 9.8 / 0.5 * (1 + 0.75 * 0.1 / 1.025))
    n_crossings = (np.diff(np.sign(angles)) != 0).sum()
    assert n_crossings == pytest.approx(frequency / np.pi * 60, rel=0.01)
    assert PoleBalancing(forces=[0.0]).evaluate(lambda seen: [0], [[0.0, 0.0, 0.02, 0.0]]).terminated.all()


@pytest.mark.parametrize(
    "state, force, fails",
    [
        ([2.39, 1.0, 0, 0], 10, True),
        ([-2.39, -1.0, 0, 0], -10, True),
        ([2.37, 1.0, 0, 0], 10, False),  # 2.37 + 0.02 + about 0.002
        ([0, 0, np.deg2rad(35), 2.0], 10, True),
        ([0, 0, np.deg2rad(-35), -2.0], -10, True),
        ([0, 0, np.deg2rad(33), 1.0], 10, False),
        # Pushed back: 2.4002 after 0.01 s, and 2.3995 after 0.02 s, when it is looked at.
        ([2.3999, 0.08, 0, 0], -10, False),
    ],
)
def test_a_failure_is_seen_after_the_decision_pays_minus_one_and_ends_the_episode(state, force, fails):
    task = PoleBalancing()
    states, rewards, terminals = task.step([state], [task.forces.index(force)])
    assert (rewards[0], bool(terminals[0])) == (-1.0 if fails else 0.0, fails)
    assert task.fails(states)[0] == fails


@pytest.mark.parametrize("pole", [0, 1, 2])
def test_every_pole_can_fail(pole):
    state = np.zeros(8)
    state[2 + 2 * pole] = 0.7
    assert PoleBalancing(3).step([state], [0])[2][0]


def test_a_fall_is_worth_the_discounted_penalty():
    result = PoleBalancing(2).evaluate(lambda seen: np.zeros(len(seen)), 1)
    assert result.terminated[0]
    assert result.returns[0] == pytest.approx(-(0.99 ** (result.lengths[0] - 1)))
    assert PoleBalancing.success_rate(result) == 0.0


@pytest.mark.parametrize(
    "n_poles, name, size, n_levels",
    [(1, "paper", 81, 3), (2, "a", 81, 3), (2, "b", 729, 3), (2, "c", 64, 2), (3, "corners", 256, 2)],
)
def test_the_test_sets_are_grids_over_the_papers_box(n_poles, name, size, n_levels):
    task = PoleBalancing(n_poles)
    widths = np.array([1.2, 1.2 / 5, *np.deg2rad([18, 75, 18, 150, 18, 75])])[: 2 + 2 * n_poles]
    for suffix, scale in (("", 1.0), (" cells", (n_levels - 1) / n_levels)):
        states = task.test_states(name + suffix)
        assert len(np.unique(states, axis=0)) == len(states) == size
        for column, width in list(zip(states.T, widths))[2 if name == "a" else 0 :]:
            expected = scale * width * (np.array([-1, 0, 1]) if n_levels == 3 else np.array([-1, 1]))
            np.testing.assert_allclose(np.unique(column), expected, atol=1e-15)
    if name == "a":
        np.testing.assert_array_equal(states[:, :2], 0.0)
    assert task.test_sets[0] == {1: "paper", 2: "a", 3: "corners"}[n_poles]
    assert not task.fails(states).any()


def test_episodes_start_where_they_are_told_to():
    np.testing.assert_array_equal(PoleBalancing(2).reset(5, 0), np.zeros((5, 6)))
    box = np.array([0.1, 0.0, 0.2, 0.3])
    for start, widths in (("test box", PoleBalancing().test_states().max(axis=0)), (box, box)):
        states = PoleBalancing(start=start).reset(20_000, 0)
        assert (np.abs(states) <= widths).all()
        np.testing.assert_allclose(states.std(axis=0), widths / np.sqrt(3), rtol=0.02)  # of a uniform distribution
        np.testing.assert_allclose(states.mean(axis=0), 0.0, atol=0.03)


def test_the_seed_decides_the_log_whatever_runs_beside_it():
    task = PoleBalancing(2, start="test box")

    def collect(seed):
        return task.collect(3000, random_state=seed).next_states

    with ThreadPoolExecutor(4) as pool:
        logs = list(pool.map(collect, [3, 3, 4, 3]))
    np.testing.assert_array_equal(logs[0], logs[1])
    np.testing.assert_array_equal(logs[0], logs[3])
    assert not np.array_equal(logs[0], logs[2])
    np.testing.assert_array_equal(logs[0], collect(3))


def pump(pole):
    """Push so that the pole (or, for -1, the cart) gains speed: against where it moves, or along."""
    return lambda seen: (seen[:, 3 + 2 * pole] * np.cos(seen[:, 2 + 2 * pole]) < 0 if pole >= 0 else seen[:, 1] > 0) * 1


@n_poles
@pytest.mark.parametrize("gravity", ["down", "up"])
@pytest.mark.parametrize("strength", [10.0, 100.0])
def test_observations_stay_within_their_bounds_however_one_pushes(n_poles, gravity, strength):
    task = PoleBalancing(n_poles, gravity=gravity, forces=(-strength, strength), start="test box")
    random = np.random.default_rng(0)
    policies = [pump(pole) for pole in range(-1, n_poles)]
    policies += [lambda seen: random.integers(2, size=len(seen)), lambda seen: (seen.sum(axis=1) > 0) * 1]
    for policy in policies:
        for states in (task.test_states(), 100):
            log = task.evaluate(policy, states, 0, record=True, max_steps=300).log
            assert (log.next_states >= task.low).all()
            assert (log.next_states <= task.high).all()
    assert (task.high < 1000).all()
    np.testing.assert_array_equal(task.low, -task.high)


@n_poles
@pytest.mark.parametrize("start", ["origin", "test box"])
def test_the_environment_passes_gymnasiums_own_checks(n_poles, start):
    # Warnings are errors here.  Pictures have a test of their own: this check draws registered environments only.
    check_env(TaskEnv(PoleBalancing(n_poles, start=start)), skip_render_check=True)


def test_the_environment_moves_as_the_task_does_and_is_cut_after_3000_decisions():
    task = PoleBalancing(gravity="up", forces=[-10.0, 0.0])
    env = TaskEnv(task)
    observation, _ = env.reset(options={"state": [0.1, 0.2, 0.1, -0.2]})
    expected = task.step([observation], [0])[0][0]
    np.testing.assert_array_equal(env.step(0)[0], expected)
    env.reset(options={"state": [0.0, 0.0, 0.1, 0.0]})
    assert [env.step(1)[2:4] for _ in range(3000)] == [(False, False)] * 2999 + [(False, True)]


@n_poles
def test_a_picture_shows_the_cart_where_it_is_and_the_poles_in_their_colors(n_poles):
    def picture(x, action):
        env = TaskEnv(PoleBalancing(n_poles, gravity="up", forces=(-10, 0, 10)), render_mode="rgb_array")
        env.reset(options={"state": [x, *[0.0] * (1 + 2 * n_poles)]})
        env.step(action)
        return env.render().astype(int)

    def middle_of(image, color):
        scene = image[: len(image) // 2]
        return np.nonzero((np.abs(scene - color) < 30).all(axis=2))[1].mean()

    left, right = picture(-1.0, 0), picture(1.0, 1)
    blue = [31, 119, 180]  # of the first pole
    assert middle_of(left, blue) < 220 < 280 < middle_of(right, blue)
    assert middle_of(left, [44, 160, 44]) > middle_of(left, blue)  # the arrow pushes left, from the right
    red = (np.abs(right - [214, 39, 40]) < 30).all(axis=2)
    assert red.sum() > 100  # the ends of the track and the limits of the angles


def test_what_a_task_is_can_be_read():
    task = PoleBalancing(2, forces=(-10, 0, 2.5))
    assert task.actions == ("-10 N", "0 N", "2.5 N")
    assert task.state_names == ("x", "x_dot", "theta_1", "theta_1_dot", "theta_2", "theta_2_dot")
    assert repr(task).startswith("PoleBalancing(n_poles=2, gravity='down', forces=(-10.0, 0.0, 2.5)")
    assert (task.discount, task.max_steps) == (0.99, 3000)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_poles": 4}, "n_poles must be 1, 2 or 3, but it is 4"),
        ({"n_poles": 0}, "n_poles must be at least 1"),
        ({"n_poles": 1.0}, "n_poles must be a whole number"),
        ({"gravity": "sideways"}, "gravity must be one of 'down', 'up', but it is 'sideways'"),
        ({"forces": []}, "forces must list different finite numbers"),
        ({"forces": [1.0, np.nan]}, "forces must list different finite numbers"),
        ({"forces": [np.inf]}, "forces must list different finite numbers"),
        ({"forces": [5, 5]}, "forces must list different finite numbers"),
        ({"forces": 10}, "forces must list different finite numbers"),
        ({"forces": ["left"]}, "forces must be real numbers"),
        ({"forces": [-1e4, 1e4]}, "forces and start must keep the speeds bounded"),
        ({"start": [0, 1e6, 0, 0]}, "forces and start must keep the speeds bounded|start must be"),
        ({"start": "middle"}, "start must be one of 'origin', 'test box', but it is 'middle'"),
        ({"start": [1.0, 1.0]}, "start must be 'origin', 'test box' or 4 half-widths"),
        ({"start": [0, 0, -0.1, 0]}, "start must be 'origin', 'test box' or 4 half-widths not below 0"),
        ({"start": [3.0, 0, 0, 0]}, "within the failure limits"),
        ({"start": [0, 0, np.nan, 0]}, "start must be 'origin'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        PoleBalancing(**options)


@pytest.mark.parametrize(
    "states, actions, message",
    [
        ([[0.0] * 4], [0], "states of PoleBalancing must have 6 columns"),
        ([[0.0] * 5 + [np.nan]], [0], "must be finite"),
        ([[0.0] * 6], [2], "from 0 to 1"),
        ([[0.0] * 6], ["5 N"], "'-10 N', '10 N'"),
    ],
)
def test_bad_states_and_actions_are_refused(states, actions, message):
    with pytest.raises(ValueError, match=message):
        PoleBalancing(2).step(states, actions)
    with pytest.raises(ValueError, match="name must be one of 'a', 'b', 'c'"):
        PoleBalancing(2).test_states("paper")
