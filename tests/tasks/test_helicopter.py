"""Helicopter hovering against published vectors, the mechanics of a rigid body, and hand calculations."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from kbrl.tasks.gymnasium_env import TaskEnv
from kbrl.tasks.helicopter import Helicopter

VECTORS = json.loads((Path(__file__).parent / "helicopter.json").read_text())["transitions"]
HOVER = [0.0] * 12 + [1.0] + [0.0] * 7
HOVER_THRUST = 9.81 / 42.15
CONTROLS = Helicopter().controls
CRASH_COST = 3 * 20**2 + 3 * (2 * 3.1415 * 2) ** 2 + 3 * 5**2 + 1 - np.cos(np.pi / 12) ** 2
GRAVITY = np.array([0, 0, 9.81])
SIZES = np.array([0.1941, 0.2975, 0.6058, 0.1508, 0.2492, 0.0734])


def hover(**changes):
    """Return the start state with some columns changed, such as v=(1, 0, 0) or decisions=3."""
    columns = {"v": slice(0, 3), "position": slice(3, 6), "rates": slice(6, 9), "q": slice(9, 13)}
    columns |= {"gusts": slice(13, 19), "decisions": 19}
    state = np.array(HOVER)
    for name, value in changes.items():
        state[columns[name]] = value
    return state


def random_states(n, seed=0):
    """Return states well inside the limits."""
    rng = np.random.default_rng(seed)
    states = np.zeros((n, 20))
    states[:, :3] = rng.uniform(-2, 2, (n, 3))
    states[:, 3:6] = rng.uniform(-10, 10, (n, 3))
    states[:, 6:9] = rng.uniform(-1, 1, (n, 3))
    states[:, 9:13] = Rotation.from_rotvec(rng.uniform(-0.15, 0.15, (n, 3))).as_quat()
    states[:, 13:19] = SIZES * rng.normal(size=(n, 6))
    states[:, 19] = rng.integers(0, 5000, n)
    return states


def full_state(row):
    return np.array(row["state"] + row["gust"] + [row["steps_before"]])


@pytest.mark.parametrize("row", VECTORS, ids=range(len(VECTORS)))
def test_it_reproduces_the_reference_transitions(row):
    task = Helicopter(noise=False, wind=np.array(row["wind"]) / 5)
    next_states, rewards, terminals = task.fly([full_state(row)], [row["action"]])
    np.testing.assert_allclose(next_states[0, :13], row["next_state"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(next_states[0, 13:19], row["next_gust"], rtol=0, atol=1e-12)
    assert next_states[0, 19] == row["steps_before"] + 1
    assert rewards[0] == pytest.approx(row["reward"], rel=1e-15, abs=1e-12)
    assert terminals[0] == row["terminated"]
    seen = task.observe(np.array([full_state(row), next_states[0]]))
    np.testing.assert_allclose(seen, [row["observation"], row["next_observation"]], rtol=0, atol=1e-12)


def test_the_grid_of_controls_reproduces_them_as_well():
    rows = [row for row in VECTORS if set(np.abs(row["action"])) <= {0.05, 0.25} and row["wind"] == [0.0, 0.0]]
    task = Helicopter(noise=False)
    actions = [int(np.flatnonzero((task.controls == row["action"]).all(axis=1))[0]) for row in rows]
    next_states, _, _ = task.step([full_state(row) for row in rows], actions)
    np.testing.assert_allclose(next_states[:, :13], [row["next_state"] for row in rows], rtol=0, atol=1e-12)
    assert len(rows) >= 10


def slow_step(state, control, wind):
    """One decision without gusts' renewal, with scipy's rotations in place of quaternion algebra."""
    velocity, position, rates, gusts = state[:3], state[3:6], state[6:9], 0.8 * state[13:19]
    attitude = Rotation.from_quat(state[9:13])
    for _ in range(10):
        position = position + 0.01 * velocity
        air = attitude.inv().apply(velocity) + attitude.inv().apply([*wind, 0]) * np.array([1, 1, 0])
        body = -np.array([0.18, 0.43, 0.49]) * air + [0, -0.54, -42.15 * control[3]] + gusts[:3]
        velocity = velocity + 0.01 * (attitude.apply(body) + GRAVITY)
        attitude = attitude * Rotation.from_rotvec(0.01 * rates)
        turning = np.array([33.04, -33.32, 70.54]) * control[:3]
        rates = rates + 0.01 * (-np.array([12.78, 10.12, 8.16]) * rates + turning + gusts[3:])
    return np.concatenate([velocity, position, rates, attitude.as_quat(canonical=True)])


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_a_decision_agrees_with_a_slow_twin_on_scipys_rotations(seed):
    rng = np.random.default_rng(seed)
    state, control, wind = random_states(1, seed)[0], rng.uniform(-0.3, 0.3, 4), rng.uniform(-1, 1, 2)
    moved, _, _ = Helicopter(noise=False, wind=wind).fly([state], [control])
    np.testing.assert_allclose(moved[0, :13], slow_step(state, control, 5 * wind), rtol=0, atol=1e-12)


@pytest.mark.parametrize("renormalize", [False, True])
def test_random_transitions_within_the_limits_keep_the_quaternions_length(renormalize):
    task = Helicopter(renormalize=renormalize)
    states, rng = random_states(2000), np.random.default_rng(1)
    moved, _, _ = task.step(states, rng.integers(256, size=2000), rng)
    # Ten products of quaternions, each good to a few units in the last place.
    np.testing.assert_allclose(np.linalg.norm(moved[:, 9:13], axis=1), 1, rtol=0, atol=1e-14)


def test_over_a_whole_episode_the_quaternions_length_drifts_by_rounding_only():
    exact, drifting = (Helicopter(noise=False, renormalize=choice) for choice in (True, False))
    states = {task: np.array([HOVER]) for task in (exact, drifting)}
    for t in range(3000):  # nodding at the hover thrust: a helicopter that turns all the time
        for task in states:
            states[task] = task.fly(states[task], [[0.02, 0.05 * (-1) ** t, 0.01, HOVER_THRUST]])[0]
    lengths = [abs(np.linalg.norm(states[task][0, 9:13]) - 1) for task in (exact, drifting)]
    assert lengths[0] <= 3e-16
    assert lengths[1] <= 30_000 * 4e-16


def test_no_control_holds_it_at_the_target_because_of_the_side_thrust():
    grid = np.array([*product(np.linspace(-1, 1, 5), repeat=3)])
    controls = np.vstack([np.column_stack([grid, np.full(125, HOVER_THRUST)]), Helicopter().controls])
    moved, rewards, _ = Helicopter(noise=False).fly([HOVER] * len(controls), controls)
    assert (rewards < 0).all()
    still = moved[np.flatnonzero((controls[:, :3] == 0).all(axis=1))[0]]
    # With the best collective only the side acceleration is left; drag takes 0.43 of the speed a second.
    assert still[0] == still[2] == 0
    assert still[1] == pytest.approx(-0.54 / 0.43 * (1 - (1 - 0.0043) ** 10))


def test_it_can_be_held_still_at_a_steady_roll_which_costs():
    roll = np.arcsin(0.54 / 9.81)  # gravity's share to the right makes up for the thrust to the left
    state = hover(q=[np.sin(roll / 2), 0, 0, np.cos(roll / 2)])
    moved, rewards, _ = Helicopter(noise=False).fly([state], [[0, 0, 0, HOVER_THRUST * np.cos(roll)]])
    np.testing.assert_allclose(moved[0, :19], state[:19], rtol=0, atol=1e-15)
    assert rewards[0] == pytest.approx(-(np.sin(roll / 2) ** 2))


@given(
    st.integers(0, 5998),
    st.sampled_from([{"v": (5.5, 0, 0)}, {"rates": (0, 0, 14.5)}, {"position": (0, 25, 0)}]),
)
@settings(max_examples=20, deadline=None)
def test_a_crash_costs_the_largest_cost_for_every_decision_left(before, beyond):
    _, rewards, terminals = Helicopter(noise=False).fly([hover(decisions=before, **beyond)], [[0, 0, 0, HOVER_THRUST]])
    assert terminals[0]
    assert rewards[0] == pytest.approx(-CRASH_COST * (6000 - (before + 1)))
    assert abs(CRASH_COST - 1748.78) < 0.005


@pytest.mark.parametrize(
    "changes, ends",
    [
        ({"v": (4.9, 0, 0)}, False),
        ({"v": (5.2, 0, 0)}, True),
        ({"v": (0, -5.3, 0)}, True),
        ({"v": (0, 0, 5.4)}, True),
        ({"position": (19.99, 0, 0)}, False),
        ({"position": (20.01, 0, 0)}, True),
        ({"position": (0, -20.01, 0)}, True),
        ({"q": (np.sin(np.radians(14.5)), 0, 0, np.cos(np.radians(14.5)))}, False),
        ({"q": (0, np.sin(np.radians(15.5)), 0, np.cos(np.radians(15.5)))}, True),
        ({"q": (0, 0, np.sin(np.radians(15.5)), -np.cos(np.radians(15.5)))}, True),
    ],
)
def test_leaving_the_hover_regime_ends_the_episode(changes, ends):
    _, _, terminals = Helicopter(noise=False).fly([hover(**changes)], [[0, 0, 0, HOVER_THRUST]])
    assert terminals[0] == ends


@pytest.mark.parametrize("rate, ends", [(14.3, False), (14.8, True)])
def test_turning_too_fast_ends_the_episode(rate, ends):
    # Full counter-yaw takes a first step of 14.3 to 12.43 and of 14.8 to 12.89, on two sides of 12.566; from 17
    # degrees left to less than 30 degrees right, the heading itself ends nothing.
    state = hover(rates=(0, 0, rate), q=Rotation.from_euler("z", -17, degrees=True).as_quat())
    moved, _, terminals = Helicopter(noise=False).fly([state], [[0, 0, -1, HOVER_THRUST]])
    assert abs(moved[0, 11]) < np.sin(np.radians(15))
    assert terminals[0] == ends


def test_a_heading_30_degrees_off_ends_the_episode_like_any_other_attitude():
    for degrees, ends in ((29, False), (31, True)):
        state = hover(q=Rotation.from_euler("z", degrees, degrees=True).as_quat())
        assert Helicopter(noise=False).fly([state], [[0, 0, 0, HOVER_THRUST]])[2][0] == ends


def test_being_outside_within_a_decision_is_a_crash_even_when_it_is_inside_again_at_the_end():
    moved, _, terminals = Helicopter(noise=False).fly([hover(v=(5.05, 0, 0))], [[0, 0, 0, HOVER_THRUST]])
    assert terminals[0]
    assert np.abs(moved[0, :3]).max() < 5  # drag has taken 0.9 % off


@pytest.mark.parametrize("down", [-25.0, 25.0])
def test_altitude_is_limited_only_on_request(down):
    for limits, ends in ((False, False), (True, True)):
        task = Helicopter(noise=False, limits_altitude=limits)
        assert task.fly([hover(position=(0, 0, down))], [[0, 0, 0, HOVER_THRUST]])[2][0] == ends


def test_the_6000th_decision_is_an_end_worth_0_or_a_cut_with_its_cost():
    state = hover(decisions=5999)
    end, cut = Helicopter(noise=False), Helicopter(noise=False, limit="truncation")
    (one, reward, is_end), (two, cost, is_no_end) = (task.step([state], [255]) for task in (end, cut))
    assert (reward[0], is_end[0], is_no_end[0]) == (0, True, False)
    assert cost[0] == pytest.approx(-np.sum(two[0, :12] ** 2))
    assert (end.truncates(one)[0], cut.truncates(two)[0]) == (False, True)
    assert not cut.truncates(np.array([state]))[0]


def test_the_reward_is_minus_the_twelve_squares():
    states = random_states(50)
    moved, rewards, terminals = Helicopter(noise=False).fly(states, [[0, 0, 0, HOVER_THRUST]] * 50)
    np.testing.assert_allclose(rewards[~terminals], -np.sum(moved[~terminals, :12] ** 2, axis=1))
    assert (~terminals).sum() > 20


def test_learners_see_velocity_and_position_in_the_bodys_axes():
    turned = Rotation.from_euler("z", 90, degrees=True).as_quat()  # heading east: north is on the left
    seen = Helicopter().observe(np.array([hover(q=turned, v=(1, 0, 0), position=(0, 2, 3))]))[0]
    np.testing.assert_allclose(seen[:6], [0, -1, 0, 2, 0, 3], atol=1e-12)
    states = random_states(20)
    attitude = Rotation.from_quat(states[:, 9:13])
    expected = [
        attitude.inv().apply(states[:, :3]),
        attitude.inv().apply(states[:, 3:6]),
        states[:, 6:9],
        states[:, 9:12],
    ]
    np.testing.assert_allclose(Helicopter().observe(states), np.hstack(expected), atol=1e-12)


def test_observations_are_clipped_to_their_bounds():
    task = Helicopter()
    wild = task.observe(np.array([hover(v=(9, -9, 0), position=(30, 0, -30), rates=(-20, 20, 1))]))[0]
    rate = 2 * 3.1415 * 2
    np.testing.assert_array_equal(wild, [5, -5, 0, 20, 0, -20, -rate, rate, 1, 0, 0, 0])
    log = task.collect(3000, random_state=0)
    for seen in (log.states, log.next_states):
        assert ((seen >= task.low) & (seen <= task.high)).all()


def test_actions_are_the_combinations_of_the_levels_with_the_last_control_changing_fastest():
    task = Helicopter()
    levels = [-0.25, -0.05, 0.05, 0.25]
    assert len(task.actions) == 256
    np.testing.assert_array_equal(task.controls, [*product(levels, repeat=4)])
    np.testing.assert_array_equal([[float(x) for x in name.split()] for name in task.actions], task.controls)
    own = Helicopter(levels=[[-0.1, 0.1], [0.0], [0.0], [0.1, 0.2, 0.3]])
    np.testing.assert_array_equal(own.controls, [[a, 0, 0, b] for a in (-0.1, 0.1) for b in (0.1, 0.2, 0.3)])
    assert len(Helicopter(levels=[-0.1, 0.0, 0.1]).actions) == 81
    assert "actions" not in repr(task)


def test_each_control_drives_its_own_axis():
    moved, _, _ = Helicopter(noise=False).fly([HOVER] * 4, 0.05 * np.eye(4) + [0, 0, 0, HOVER_THRUST])
    signs = np.sign(np.round(moved[:, [6, 7, 8, 2]], 12))  # roll, pitch and yaw rate, and the velocity downwards
    np.testing.assert_array_equal(signs[:, :3], [[1, 0, 0], [0, -1, 0], [0, 0, 1], [0, 0, 0]])
    assert signs[3, 3] == -1


def test_controls_are_clipped_to_plus_minus_one():
    far, near = (Helicopter(noise=False).fly([HOVER], [np.multiply(c, [3, -3, 2, 2])]) for c in (1, 0.5))
    clipped = Helicopter(noise=False).fly([HOVER], [[1, -1, 1, 1]])
    np.testing.assert_array_equal(far[0], clipped[0])
    np.testing.assert_array_equal(near[0], clipped[0])


def test_gusts_decay_by_a_fifth_and_are_renewed_by_two_fifths_of_their_sizes():
    n, gusts = 50_000, np.array([1.0, -1.0, 0.5, 0.2, -0.2, 0.1])
    moved, _, _ = Helicopter().step(np.tile(hover(gusts=gusts), (n, 1)), np.zeros(n, dtype=int), 0)
    renewal = (moved[:, 13:19] - 0.8 * gusts) / (0.4 * SIZES)
    assert np.abs(renewal.mean(axis=0)).max() < 5 / np.sqrt(n)
    np.testing.assert_allclose(renewal.std(axis=0), 1, rtol=5 / np.sqrt(2 * n))
    assert np.abs(np.corrcoef(renewal.T) - np.eye(6)).max() < 5 / np.sqrt(n)
    still, _, _ = Helicopter(noise=False).step([hover(gusts=gusts)], [0])
    np.testing.assert_allclose(still[0, 13:19], 0.8 * gusts)


def test_episodes_start_at_the_target_calm_or_in_gusts_that_have_settled():
    np.testing.assert_array_equal(Helicopter().reset(3, 0), [HOVER] * 3)
    np.testing.assert_array_equal(Helicopter().test_states("hover"), [HOVER])
    n = 50_000
    blowing = Helicopter(start_gusts="blowing")
    states = blowing.reset(n, 0)
    later, _, _ = blowing.step(states, np.zeros(n, dtype=int), 1)
    for gusts in (states[:, 13:19], later[:, 13:19]):  # the law stays the same: g = 0.8 g + 0.4 s e has size 2 s / 3
        np.testing.assert_allclose(gusts.std(axis=0), 2 / 3 * SIZES, rtol=5 / np.sqrt(2 * n))
    np.testing.assert_array_equal(np.delete(states, range(13, 19), axis=1)[0], np.delete(HOVER, range(13, 19)))
    np.testing.assert_array_equal(Helicopter(start_gusts="blowing", noise=False).reset(1, 0), [HOVER])


def test_a_wind_from_the_north_pushes_to_the_south():
    moved, _, _ = Helicopter(noise=False, wind=(1, 0)).fly([HOVER], [[0, 0, 0, HOVER_THRUST]])
    assert moved[0, 0] == pytest.approx(-5 * (1 - (1 - 0.0018) ** 10))


def steer(observations):
    """Lean against side thrust, drift and distance; turn back to the north; push up when low."""
    u, v, w, x, y, z, _, _, _, qx, qy, qz = observations.T
    roll, pitch = -0.6 * (qx - 0.0275) - 0.03 * v - 0.01 * y, 0.6 * qy - 0.03 * u - 0.01 * x
    wanted = np.stack([roll, pitch, -0.5 * qz, HOVER_THRUST + 0.1 * z + 0.1 * w], axis=1)
    return np.argmin(((CONTROLS - wanted[:, None]) ** 2).sum(axis=2), axis=1)


def test_the_256_actions_are_enough_to_hover_in_gusts():
    result = Helicopter().evaluate(steer, 4, random_state=0, max_steps=400)
    assert not result.terminated.any()
    assert (result.returns > -100).all()  # a mean cost below 1 a decision


def test_the_same_seed_gives_the_same_log_on_any_thread():
    expected = Helicopter().collect(2000, random_state=3)
    with ThreadPoolExecutor(4) as pool:
        logs = list(pool.map(lambda _: Helicopter().collect(2000, random_state=3), range(4)))
    for log in logs:
        np.testing.assert_array_equal(log.next_states, expected.next_states)
        np.testing.assert_array_equal(log.actions, expected.actions)
    assert not np.array_equal(Helicopter().collect(2000, random_state=4).next_states, expected.next_states)


def test_a_states_future_does_not_depend_on_the_batch_without_noise():
    states, actions = random_states(40), np.arange(40) * 6
    together, rewards, _ = Helicopter(noise=False).step(states, actions)
    some, some_rewards, _ = Helicopter(noise=False).step(states[5:6], actions[5:6])
    np.testing.assert_array_equal(some, together[5:6])
    np.testing.assert_array_equal(some_rewards, rewards[5:6])


@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
def test_the_environment_passes_gymnasiums_own_checks(render_mode):
    env = TaskEnv(Helicopter(), render_mode=render_mode)
    env.spec = EnvSpec("test/Helicopter-v0", lambda **options: TaskEnv(Helicopter(), **options))
    check_env(env)  # warnings are errors here


@pytest.mark.parametrize("limit, last", [("terminal", (True, False)), ("truncation", (False, True))])
def test_the_environment_knows_an_end_from_a_cut(limit, last):
    env = TaskEnv(Helicopter(noise=False, limit=limit))
    env.reset(options={"state": hover(decisions=5998)})
    assert env.step(255)[2:4] == (False, False)
    assert env.step(255)[2:4] == last


def test_a_picture_shows_track_attitude_and_altitude():
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.add_subplot()
    states = random_states(9)
    states[-1] = hover(q=Rotation.from_euler("x", 20, degrees=True).as_quat(), position=(1, 2, -3))
    Helicopter().draw(axes, states, np.zeros(8, dtype=int))
    plan, horizon, altitude = axes.child_axes
    np.testing.assert_array_equal(plan.lines[0].get_xydata(), states[:, [4, 3]])  # east to the right, north up
    np.testing.assert_allclose(altitude.lines[1].get_xydata(), np.column_stack([0.1 * np.arange(9), -states[:, 5]]))
    assert horizon.get_title() == "roll 20°, pitch 0°"
    left, right = horizon.patches[1].get_xy()[:2]
    assert right[1] > left[1]  # leaning to the right, one sees the horizon rise on the right


def test_a_picture_can_be_made_before_the_first_decision():
    env = TaskEnv(Helicopter(), render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (500, 500, 3)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Helicopter(levels=[]), "levels must be the levels of all controls, or four lists of them"),
        (lambda: Helicopter(levels=0.1), "levels must be the levels of all controls"),
        (lambda: Helicopter(levels="ab"), "levels must be the levels of all controls"),
        (lambda: Helicopter(levels=[[0.1], [0.2]]), "four lists of them"),
        (lambda: Helicopter(levels=[[0.1], [], [0], [0]]), "levels of control 2 must be one or more different numbers"),
        (lambda: Helicopter(levels=[0.1, 0.1]), "levels of control 1 must be one or more different numbers"),
        (lambda: Helicopter(levels=[0.1, np.nan]), "levels of control 1 must be finite"),
        (lambda: Helicopter(wind=(2, 0)), r"wind must be two numbers in \[-1, 1\]"),
        (lambda: Helicopter(wind=0.5), "wind must be two numbers"),
        (lambda: Helicopter(wind=(np.nan, 0)), "wind must be two numbers"),
        (lambda: Helicopter(start_gusts="storm"), "start_gusts must be one of 'calm', 'blowing', but it is 'storm'"),
        (lambda: Helicopter(limit="never"), "limit must be one of 'terminal', 'truncation', but it is 'never'"),
        (lambda: Helicopter().step([[0.0] * 20], [0]), "quaternion of length 1 .* level helicopter has"),
        (lambda: Helicopter().step([hover(decisions=-1)], [0]), "a number of decisions not below 0"),
        (lambda: Helicopter().step([HOVER[:13]], [0]), "must have 20 columns"),
        (lambda: Helicopter().step([hover(v=(np.nan, 0, 0))], [0]), "must be finite"),
        (lambda: Helicopter().step([HOVER], [256]), "from 0 to 255"),
        (lambda: Helicopter().fly([HOVER], [[0, 0, 0]]), "controls must have 4 columns"),
        (
            lambda: Helicopter().fly([HOVER], [[0, 0, 0, 0]] * 2),
            "controls must have one row per state, 1, but they have 2",
        ),
        (lambda: Helicopter().fly([HOVER], [[0, 0, 0, np.inf]]), "controls must be finite"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
