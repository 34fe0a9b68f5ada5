"""What every task offers: collecting, judging, and refusing bad input."""

import numpy as np
import pytest

from kbrl import Transitions
from kbrl.tasks import PuddleWorld, Task
from kbrl.trials.policies import UniformRandom


def to_the_corner(observations):
    return np.where(observations[:, 0] < observations[:, 1], 2, 0)


def return_from(task, state, policy):
    """Run one episode of one state, one decision after the other."""
    total, states = 0.0, np.array([state])
    for t in range(task.max_steps):
        states, rewards, terminals = task.step(states, policy(states))
        total += task.discount**t * rewards[0]
        if terminals[0]:
            return total, t + 1, True
    return total, task.max_steps, False


@pytest.mark.parametrize("policy", [to_the_corner, lambda seen: np.full(len(seen), 3)])
def test_evaluation_agrees_with_episodes_run_one_by_one(policy):
    task = PuddleWorld(noise=False)
    result = task.evaluate(policy)
    one_by_one = [return_from(task, state, policy) for state in task.test_states()]
    np.testing.assert_allclose(result.returns, [r for r, _, _ in one_by_one], atol=1e-12)
    np.testing.assert_array_equal(result.lengths, [t for _, t, _ in one_by_one])
    np.testing.assert_array_equal(result.terminated, [end for _, _, end in one_by_one])


def test_a_log_of_a_task_passes_the_checks_of_data_from_outside():
    log = PuddleWorld().collect(5000, random_state=0)
    again = Transitions(
        log.states, log.actions, log.rewards, log.next_states, log.terminals, log.episodes, action_labels=range(4)
    )
    assert len(again) == 5000
    assert again.n_actions == 4
    np.testing.assert_array_equal(np.unique(log.actions), range(4))


def test_the_seed_decides_the_noise_and_the_actions():
    task = PuddleWorld()
    one, two = task.collect(700, random_state=5), task.collect(700, random_state=5)
    np.testing.assert_array_equal(one.next_states, two.next_states)
    results = [task.evaluate(to_the_corner, random_state=seed).returns for seed in (1, 1, 2)]
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


def test_rewards_and_ends_of_a_log_belong_to_its_next_states():
    task = PuddleWorld()
    log = task.collect(20_000, random_state=0)
    in_goal = task.in_goal(log.next_states)
    np.testing.assert_array_equal(log.terminals, in_goal)
    np.testing.assert_allclose(log.rewards, 5 * in_goal - 10 * task.depths(log.next_states), atol=1e-12)
    assert not task.in_goal(log.states).any()


def test_policies_may_answer_with_the_names_of_actions():
    task = PuddleWorld(noise=False)
    by_name = task.evaluate(lambda seen: np.array(task.actions)[to_the_corner(seen)])
    np.testing.assert_array_equal(by_name.returns, task.evaluate(to_the_corner).returns)
    assert task.evaluate(UniformRandom(task.actions, 0), "grid", random_state=0).returns.shape == (9,)


def test_states_to_start_from_are_a_name_an_array_or_a_number():
    task = PuddleWorld()
    for states, n in (("top", 4), ([[0.5, 0.1]], 1), (6, 6), (None, 13)):
        assert len(task.evaluate(to_the_corner, states, random_state=0).returns) == n


def test_a_policy_that_overwrites_its_input_does_not_move_the_task():
    def careless(observations):
        choices = to_the_corner(observations)
        observations *= 0
        return choices

    task = PuddleWorld(noise=False)
    np.testing.assert_array_equal(task.evaluate(careless).returns, task.evaluate(to_the_corner).returns)


def test_a_step_leaves_the_states_it_was_given_as_they_were():
    states = PuddleWorld().reset(5, 0)
    before = states.copy()
    states.flags.writeable = False
    PuddleWorld().step(states, [0] * 5, 0)
    np.testing.assert_array_equal(states, before)


class Counter(Task):
    """A task of the user's: the state counts down to 0."""

    name, actions, discount, max_steps, state_names = "Counter", ("wait",), 0.9, 10, ("left",)

    def _reset(self, n, rng):
        return np.full((n, 1), 3.0)

    def _step(self, states, actions, rng):
        states -= 1  # in place: allowed, since it is given a copy
        return states, np.ones(len(states)), states[:, 0] == 0


def test_a_task_of_the_users_own_needs_a_start_and_a_step():
    task = Counter()
    log = task.collect(6)
    np.testing.assert_array_equal(log.states[:, 0], [3, 2, 1, 3, 2, 1])
    np.testing.assert_array_equal(log.terminals, [False, False, True] * 2)
    assert task.evaluate(UniformRandom(range(1)), 2).returns == pytest.approx(1 + 0.9 + 0.81)
    with pytest.raises(ValueError, match="Counter has no test states"):
        task.evaluate(UniformRandom(range(1)))
    with pytest.raises(NotImplementedError, match="Counter cannot be drawn"):
        task.draw(None, log.states)


@pytest.mark.parametrize(
    "states, actions, message",
    [
        ([0.5, 0.5], [0], "states of PuddleWorld must have two dimensions"),
        ([[0.5, 0.5, 0.5]], [0], "states of PuddleWorld must have 2 columns"),
        ([[0.5, 0.5], [0.1, np.nan]], [0, 0], "must be finite, but 1 of 2 rows are not; the first is row 1"),
        ([[np.inf, 0.5]], [0], "must be finite"),
        (np.empty((0, 2)), [], "at least one row"),
        ([["a", "b"]], [0], "must be real numbers"),
        ([[0.5, 0.5]], [4], "from 0 to 3"),
        ([[0.5, 0.5]], [-1], "the first is row 0: -1"),
        ([[0.5, 0.5]], [0, 1], r"shape of the actions is \(2,\)"),
        ([[0.5, 0.5]], ["sideways"], "'sideways'"),
    ],
)
def test_bad_states_and_actions_are_refused(states, actions, message):
    with pytest.raises((ValueError, TypeError), match=message):
        PuddleWorld().step(states, actions)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda task: task.reset(0), "n must be at least 1, but it is 0"),
        (lambda task: task.reset(3, "seed"), "random_state must be"),
        (lambda task: task.collect(-1), "n must be at least 1, but it is -1"),
        (lambda task: task.evaluate(to_the_corner, [[0.1]]), "must have 2 columns"),
        (lambda task: task.evaluate(to_the_corner, [[0.1, np.nan]]), "must be finite"),
        (lambda task: task.evaluate(lambda seen: [0]), "one action per state"),
        (lambda task: task.evaluate(lambda seen: seen), "one action per state"),
        (lambda task: task.evaluate(to_the_corner, "nowhere"), "name must be one of"),
    ],
)
def test_bad_calls_are_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(PuddleWorld())
