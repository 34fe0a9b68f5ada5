"""The puddle world against published vectors, the definition of its puddles, and hand calculations."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl.tasks import PuddleWorld

VECTORS = json.loads((Path(__file__).parent / "puddle.json").read_text())["transitions"]
unit = st.floats(0, 1)


def column(name):
    return np.array([row[name] for row in VECTORS])


def naive_depth(x, y, combine):
    """Search each centre line's points for the nearest one: the capsule's definition, done slowly."""
    depths = []
    for (ax, ay), (bx, by) in [((0.10, 0.75), (0.45, 0.75)), ((0.45, 0.40), (0.45, 0.80))]:
        points = [(ax + t * (bx - ax), ay + t * (by - ay)) for t in np.linspace(0, 1, 4001)]
        nearest = min(((x - px) ** 2 + (y - py) ** 2) ** 0.5 for px, py in points)
        depths.append(max(0.0, 0.1 - nearest))
    return combine(depths)


@pytest.mark.parametrize("overlap, rewards", [("add", "reward"), ("max", "reward_max_combine")])
def test_it_reproduces_the_reference_transitions(overlap, rewards):
    task = PuddleWorld(noise=False, overlap=overlap)
    next_states, got, terminals = task.step(column("state"), column("action"))
    np.testing.assert_allclose(next_states, column("next_state"), rtol=0, atol=1e-12)
    np.testing.assert_allclose(got, column(rewards), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(terminals, column("terminated"))


@given(unit, unit, st.sampled_from([("add", sum), ("max", max)]))
@settings(max_examples=60, deadline=None)
def test_depth_is_how_far_a_point_lies_inside_the_capsules(x, y, rule):
    overlap, combine = rule
    # The search over 4001 points misses the nearest one by at most 5e-5 along the line, twice where depths add.
    assert PuddleWorld(overlap=overlap).depths([[x, y]])[0] == pytest.approx(naive_depth(x, y, combine), abs=1.1e-4)


def test_where_the_puddles_cross_the_penalty_counts_both_or_the_larger():
    state, up = [[0.45, 0.70]], [0]
    assert PuddleWorld(noise=False).step(state, up)[1] == pytest.approx(-2.0)
    assert PuddleWorld(noise=False, overlap="max").step(state, up)[1] == pytest.approx(-1.0)


def test_the_four_actions_move_up_down_right_and_left_by_a_twentieth():
    moved, _, _ = PuddleWorld(noise=False).step([[0.7, 0.3]] * 4, [0, 1, 2, 3])
    np.testing.assert_allclose(moved, [[0.7, 0.35], [0.7, 0.25], [0.75, 0.3], [0.65, 0.3]])


def test_moves_are_disturbed_independently_in_both_coordinates():
    n = 200_000
    moved, _, _ = PuddleWorld().step(np.full((n, 2), 0.3), np.zeros(n, dtype=int), np.random.default_rng(0))
    noise = moved - [0.3, 0.35]
    assert np.abs(noise.mean(axis=0)).max() < 5 * 0.01 / np.sqrt(n)
    np.testing.assert_allclose(noise.std(axis=0), 0.01, rtol=5 / np.sqrt(2 * n))
    assert abs(np.corrcoef(noise.T)[0, 1]) < 5 / np.sqrt(n)


@given(unit, unit, st.integers(0, 3), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_no_move_leaves_the_square(x, y, action, seed):
    moved, _, _ = PuddleWorld().step([[x, y]], [action], seed)
    assert ((moved >= 0) & (moved <= 1)).all()


def test_at_a_border_a_move_is_clipped():
    moved, _, _ = PuddleWorld(noise=False).step([[0.02, 0.5], [0.5, 0.98], [1.0, 0.3]], [3, 0, 2])
    np.testing.assert_allclose(moved, [[0.0, 0.5], [0.5, 1.0], [1.0, 0.3]])


@pytest.mark.parametrize(
    "goal, state, action, ends",
    [
        ("triangle", [0.93, 0.94], 0, True),
        ("triangle", [0.999, 0.86], 0, True),  # in the triangle, beside the square
        ("square", [0.999, 0.86], 0, False),
        ("triangle", [0.93, 0.91], 0, False),
        ("square", [0.96, 0.92], 0, True),
        ("square", [0.96, 0.96], 1, False),  # leaving the goal is not entering it
    ],
)
def test_entering_the_goal_pays_five_and_ends_the_episode(goal, state, action, ends):
    _, rewards, terminals = PuddleWorld(noise=False, goal=goal).step([state], [action])
    assert (rewards[0], bool(terminals[0])) == ((5.0, True) if ends else (0.0, False))


@pytest.mark.parametrize("goal", ["triangle", "square"])
def test_start_states_cover_the_square_outside_the_goal(goal):
    task = PuddleWorld(goal=goal)
    states = task.reset(50_000, 0)
    assert not task.in_goal(states).any()
    assert len(np.unique(states, axis=0)) == len(states)  # those drawn again are spread like the others
    area = 0.5 * 0.1**2 if goal == "triangle" else 0.05**2  # of the goal
    in_middle = ((states > 0.25) & (states < 0.75)).all(axis=1).mean()
    assert abs(in_middle - 0.25 / (1 - area)) < 5 * np.sqrt(0.19 / 50_000)


def test_the_test_states_are_the_papers():
    task = PuddleWorld()
    assert task.test_states().shape == (13, 2)
    np.testing.assert_array_equal(task.test_states(), np.vstack([task.test_states("grid"), task.test_states("top")]))
    assert sorted(map(tuple, task.test_states("grid"))) == [(x, y) for x in (0.1, 0.2, 0.3) for y in (0.3, 0.4, 0.5)]
    assert sorted(map(tuple, task.test_states("top"))) == [(0.1, 0.9), (0.1, 1.0), (0.3, 0.9), (0.3, 1.0)]


def test_a_walk_to_the_goal_has_the_return_worked_out_by_hand():
    # From (0.705, 0.705) up to the border in 6 moves, then right: after 4 more, x + y = 0.905 + 1 is beyond 1.9.
    def up_then_right(observations):
        return np.where(observations[:, 1] < 0.99, 0, 2)

    result = PuddleWorld(noise=False).evaluate(up_then_right, [[0.705, 0.705]])
    assert result.terminated.all()
    assert result.lengths[0] == 10
    assert result.returns[0] == pytest.approx(5 * 0.99**9)


def test_unknown_options_are_refused():
    with pytest.raises(ValueError, match="goal must be one of 'triangle', 'square', but it is 'circle'"):
        PuddleWorld(goal="circle")
    with pytest.raises(ValueError, match="overlap must be one of 'add', 'max', but it is 'sum'"):
        PuddleWorld(overlap="sum")
    with pytest.raises(ValueError, match="name must be one of 'paper', 'grid', 'top', but it is 'bottom'"):
        PuddleWorld().test_states("bottom")
