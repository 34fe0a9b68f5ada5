"""SARSA(lambda): tiles, values it must converge to, and a task that it solves."""

import gymnasium
import numpy as np
import pytest

from kbrl.learners.exploration import Epsilon
from kbrl.learners.online import OnlineRun
from kbrl.learners.sarsa import SARSA
from kbrl.learners.tile_coding import fill_tiles
from kbrl.tasks import PuddleWorld


def tiles_of(state, n_tilings=8, n_blocks=2**40):
    tiles = np.zeros(n_tilings, dtype=np.intp)
    fill_tiles(np.asarray(state, dtype=float), n_blocks, tiles)
    return tiles


def slow_corners(state, n_tilings):
    """The corner of the active tile of each tiling, in parts of a tile, by looking for it."""
    corners = []
    for tiling in range(n_tilings):
        shift = [tiling * (1 + 2 * i) for i in range(len(state))]
        fine = [int(np.floor(x * n_tilings)) for x in state]
        corner = []
        for f, s in zip(fine, shift):
            while (f - s) % n_tilings:
                f -= 1
            corner.append(f)
        corners.append(tuple(corner))
    return corners


def test_states_share_just_the_tiles_whose_corners_they_share():
    rng = np.random.default_rng(0)
    for _ in range(50):
        a = rng.uniform(-3, 3, size=3)
        b = a + rng.uniform(-0.3, 0.3, size=3)
        shared = [x == y for x, y in zip(slow_corners(a, 8), slow_corners(b, 8))]
        np.testing.assert_array_equal(tiles_of(a) == tiles_of(b), shared)


def test_neighbours_within_an_nth_of_a_tile_share_all_but_a_few_tiles():
    a, b = tiles_of([0.51, 0.52]), tiles_of([0.51 + 1 / 8, 0.52])
    assert (a == b).sum() == 7


def test_what_is_learnt_of_one_action_is_not_learnt_of_another():
    agent = SARSA(3, [0.0], [1.0], step_size=1.0, exploration=0.0, random_state=0)
    action = agent.act([0.5])
    agent.observe([0.5], action, 1.0, [0.6], True)
    q = agent.q_values([[0.5]])[0]
    assert q[action] == pytest.approx(1.0)
    assert np.count_nonzero(q) == 1


def chain_agent(**settings):
    """One tile a state for states 0, 1, 2, 3: tiles of width 1 from -0.5 on."""
    defaults = {"n_tilings": 1, "tiles": 4, "exploration": 0.0, "discount": 0.9, "trace_decay": 0.0, "random_state": 0}
    return SARSA(1, [-0.5], [3.5], **(defaults | settings))


def run_chain(agent, n_episodes, rewards=(1.0, 2.0, 4.0), step_size=None):
    for episode in range(n_episodes):
        if step_size is not None:
            agent._alpha = step_size(episode)
        for state in range(3):
            agent.observe([state], agent.act([state]), rewards[state], [state + 1], state == 2)


def test_with_one_tile_a_state_it_converges_to_the_values_of_a_chain():
    agent = chain_agent(step_size=0.2)
    run_chain(agent, 300)
    expected = [1 + 0.9 * (2 + 0.9 * 4), 2 + 0.9 * 4, 4.0]
    np.testing.assert_allclose(agent.q_values([[0], [1], [2]])[:, 0], expected, rtol=1e-6)


def test_with_lambda_one_it_follows_monte_carlo():
    # One episode from zero weights, step size 1, no discount: every state gets the sum of the rewards after it.
    agent = chain_agent(step_size=1.0, trace_decay=1.0, discount=1.0)
    run_chain(agent, 1)
    np.testing.assert_allclose(agent.q_values([[0], [1], [2]])[:, 0], [7.0, 6.0, 4.0])
    # With step sizes 1 / k it is the mean return of k noisy episodes.
    rng = np.random.default_rng(0)
    agent, returns = chain_agent(step_size=1.0, trace_decay=1.0, discount=1.0), []
    for episode in range(20):
        rewards = rng.normal(size=3)
        returns.append(rewards[::-1].cumsum()[::-1])
        run_chain(agent, 1, rewards, step_size=lambda _, k=episode: 1 / (k + 1))
    np.testing.assert_allclose(agent.q_values([[0], [1], [2]])[:, 0], np.mean(returns, axis=0), atol=1e-9)


def test_with_lambda_zero_and_one_step_it_is_the_update_worked_out_by_hand():
    agent = chain_agent(step_size=0.5)
    agent.observe([0], agent.act([0]), 1.0, [1], False)
    agent.observe([1], agent.act([1]), 2.0, [2], True)
    agent.observe([0], agent.act([0]), 1.0, [1], False)
    # Q(0) = 0.5 * 1; Q(1) = 0.5 * 2; Q(0) += 0.5 * (1 + 0.9 * 1 - 0.5)
    np.testing.assert_allclose(agent.q_values([[0], [1]])[:, 0], [0.5 + 0.5 * 1.4, 1.0])


def test_replacing_traces_reach_back_by_their_decay():
    agent = chain_agent(step_size=1.0, trace_decay=0.5, discount=1.0)
    run_chain(agent, 1, rewards=(0.0, 0.0, 8.0))
    np.testing.assert_allclose(agent.q_values([[0], [1], [2]])[:, 0], [2.0, 4.0, 8.0])


@pytest.mark.parametrize("divide_step", [True, False])
def test_the_step_size_is_divided_by_the_number_of_tilings_if_asked_to(divide_step):
    agent = SARSA(2, [0.0], [1.0], n_tilings=4, step_size=0.1, divide_step=divide_step, exploration=0.0, random_state=0)
    action = agent.act([0.5])
    agent.observe([0.5], action, 1.0, [0.6], True)
    assert agent.q_values([[0.5]])[0, action] == pytest.approx(0.1 if divide_step else 0.4)


def test_a_cut_episode_leaves_no_traces_in_the_next():
    agent = chain_agent(step_size=1.0, trace_decay=1.0, discount=1.0)
    agent.observe([0], agent.act([0]), 1.0, [1], False)
    agent.act([3])  # not where it was expected: the episode before was cut
    agent.observe([3], 0, 5.0, [2], True)
    np.testing.assert_allclose(agent.q_values([[0], [3]])[:, 0], [1.0, 5.0])


def test_it_learns_of_the_action_taken_next_not_of_the_best_one():
    # Two actions, step size 1, no traces: Q(1, 0) = 4 and Q(1, 1) = 1; from 0, the next action is 1 by chance.
    agent = SARSA(2, [-0.5], [3.5], n_tilings=1, step_size=1.0, trace_decay=0.0, discount=0.5, exploration=0.0)
    agent.observe([1], 0, 4.0, [3], True)
    agent.observe([1], 1, 1.0, [3], True)
    agent.act([0])
    agent._rule = Epsilon(1.0)
    agent._rng = np.random.default_rng(next(s for s in range(99) if np.random.default_rng(s).random(2)[1] >= 0.5))
    agent.observe([0], 0, 0.0, [1], False)
    assert agent.act([1]) == 1
    assert agent.q_values([[0]])[0, 0] == pytest.approx(0.5 * 1.0)


def test_taking_an_action_clears_the_traces_of_the_others_in_that_state():
    agent = SARSA(2, [-0.5], [3.5], n_tilings=1, step_size=1.0, trace_decay=1.0, discount=1.0, exploration=0.0)
    agent.observe([0], 0, 0.0, [1], False)
    agent.observe([1], 0, 0.0, [0], False)
    agent.observe([0], 1, 0.0, [2], False)  # the trace of (0, 0) is gone
    agent.observe([2], 0, 8.0, [3], True)
    np.testing.assert_allclose(agent.q_values([[0]])[0], [0.0, 8.0])


def test_answers_come_from_the_tiles_that_were_learnt_even_on_their_borders():
    agent = SARSA(1, [0.1], [1.1], n_tilings=1, tiles=10, step_size=1.0)
    for x in np.round(np.arange(0.1, 1.1, 0.1), 1):
        agent.observe([x], 0, 1.0, [0.0], True)
        assert agent.q_values([[x]])[0, 0] == pytest.approx(1.0)


def puddle_agent():
    settings = {"n_tilings": 8, "tiles": 5, "step_size": 0.3, "trace_decay": 0.9, "random_state": 0}
    return SARSA(4, [0.0, 0.0], [1.0, 1.0], exploration=Epsilon(0.5, 0.7, 4_000), **settings)


def test_it_learns_the_puddle_world_on_line():
    task, agent = PuddleWorld(), puddle_agent()
    OnlineRun(agent, task, random_state=0).steps(40_000)
    assert task.evaluate(agent.predict, random_state=1).mean > 3


def test_it_runs_in_gymnasium_environments():
    agent = puddle_agent()
    record = OnlineRun(agent, gymnasium.make("kbrl/PuddleWorld-v0"), random_state=0).steps(2000)
    assert agent.n_seen == 2000
    assert sum(record.lengths) <= 2000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SARSA(2, [0.0], [0.0]), "low and high must be finite bounds"),
        (lambda: SARSA(2, [0.0], [np.inf]), "low and high must be finite bounds"),
        (lambda: SARSA(2, [0.0], [1.0], n_tilings=0), "n_tilings must be at least 1"),
        (lambda: SARSA(0, [0.0], [1.0]), "actions must be at least 1"),
        (lambda: SARSA(2, [0.0], [1.0], least_trace=-1.0), "least_trace must lie in"),
        (lambda: SARSA(99, [0.0], [1.0], memory=50), "memory must hold a weight for each of 99 actions"),
        (lambda: SARSA(2, [0.0], [1.0], step_size=-1), "step_size must be a finite number above 0"),
        (lambda: SARSA(2, [0.0], [1.0]).act([0.0, 1.0]), "state must have 1 columns"),
        (lambda: SARSA(2, [0.0], [1.0]).observe([0.0], 5, 0.0, [0.1], False), "action must be among"),
        (lambda: SARSA(2, [0.0], [1.0]).observe([0.0], 1, np.nan, [0.1], False), "reward must be finite"),
        (lambda: SARSA(2, [0.0], [1.0]).act_all(np.zeros((2, 1))), "one episode at a time"),
    ],
)
def test_bad_input_gets_a_clear_error(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
