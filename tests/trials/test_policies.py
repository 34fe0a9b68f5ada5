"""Policies: random and exploring rules, and the translation of their answers."""

import numpy as np
import pytest

from kbrl import KBSF, LSPI, Transitions
from kbrl.tasks import Epilepsy, PoleBalancing, PuddleWorld, from_gymnasium
from kbrl.trials.policies import Constant, EpsilonGreedy, UniformRandom, action_indices

STATES = np.zeros((40_000, 2))


def always(action):
    return lambda observations: np.full(len(observations), action)


def test_uniform_random_takes_every_action_equally_often():
    counts = np.unique(UniformRandom(["a", "b", "c", "d"], 0)(STATES), return_counts=True)[1]
    # Four binomial counts: mean 10 000, standard deviation sqrt(40000 * 3/16) = 87.
    assert np.abs(counts - 10_000).max() < 5 * 87


def test_the_same_seed_draws_the_same_actions():
    np.testing.assert_array_equal(UniformRandom(range(4), 3)(STATES), UniformRandom(range(4), 3)(STATES))


def test_epsilon_zero_is_the_policy_itself():
    assert (EpsilonGreedy(always("b"), 0.0, ["a", "b"], 0)(STATES) == "b").all()


def test_epsilon_greedy_leaves_the_policy_with_probability_epsilon_times_the_share_of_other_actions():
    leaves = EpsilonGreedy(always(1), 0.15, range(4), 0)(STATES) != 1
    expected = 0.15 * 3 / 4
    assert abs(leaves.mean() - expected) < 5 * np.sqrt(expected * (1 - expected) / len(STATES))


def test_actions_are_known_by_their_place_or_their_name():
    names = ("up", "down", "left")
    for choices in ([2, 0], np.array([2, 0], dtype=np.uint8), [2.0, 0.0], ["left", "up"], np.array([2, 0], object)):
        np.testing.assert_array_equal(action_indices(choices, 2, names), [2, 0])
    np.testing.assert_array_equal(action_indices([True, False], 2, names), [1, 0])


@pytest.mark.parametrize(
    "choices, message",
    [
        ([0, 3], r"from 0 to 2, places in \('up', 'down', 'left'\).* 1 of 2 rows are not; the first is row 1: 3"),
        ([-1, 0], "the first is row 0: -1"),
        ([0.5, 0], "the first is row 0: 0.5"),
        ([0, np.nan], "the first is row 1: nan"),
        (["up", "west"], "the first is row 1: 'west'"),
        ([None, None], "the first is row 0: None"),
        ([0], r"one action per state, shape \(2,\), but the shape of the actions is \(1,\)"),
        ([[0], [1]], r"but the shape of the actions is \(2, 1\)"),
        (1, r"but the shape of the actions is \(\)"),
    ],
)
def test_unknown_actions_are_refused_by_name(choices, message):
    with pytest.raises(ValueError, match=message):
        action_indices(choices, 2, ("up", "down", "left"))


def test_epsilon_and_the_list_of_actions_are_checked():
    with pytest.raises(ValueError, match=r"epsilon must lie in \[0, 1\], but it is 1.5"):
        EpsilonGreedy(always(0), 1.5, range(2))
    with pytest.raises(ValueError, match="at least one action"):
        UniformRandom([])
    with pytest.raises(ValueError, match="one action per state"):
        EpsilonGreedy(lambda observations: np.zeros(3), 0.1, range(2), 0)(np.zeros((2, 1)))


def test_a_constant_policy_always_answers_the_same():
    assert Constant("wait")(np.zeros((3, 2))).tolist() == ["wait"] * 3
    assert Constant(2)(np.zeros((1, 2))).tolist() == [2]


def test_fixed_policies_are_evaluated_like_learners():
    task = PuddleWorld(noise=False)
    by_name, by_place = task.evaluate(Constant("right"), "top"), task.evaluate(Constant(2), "top")
    np.testing.assert_array_equal(by_name.returns, by_place.returns)
    assert by_name.lengths.tolist() == task.evaluate(lambda states: [2] * len(states), "top").lengths.tolist()


@pytest.mark.parametrize("learner", [KBSF(), LSPI()], ids=repr)
@pytest.mark.parametrize("place", range(4))
@pytest.mark.filterwarnings("ignore::kbrl.KbrlWarning")
def test_a_learner_that_knows_one_action_is_judged_as_the_constant_policy_is(learner, place):
    task = PuddleWorld()
    log = Transitions([[0.2, 0.3], [0.7, 0.6]], [place] * 2, [0.0, 1.0], [[0.2, 0.4], [0.9, 0.6]])
    learner.fit(log)
    ours, theirs = (task.evaluate(policy, random_state=3, record=True) for policy in (Constant(place), learner.predict))
    np.testing.assert_array_equal(ours.returns, theirs.returns)
    np.testing.assert_array_equal(ours.lengths, theirs.lengths)
    np.testing.assert_array_equal(ours.log.next_states, theirs.log.next_states)


def fixed_policies(task):
    n_actions = len(task.actions)
    return [
        Constant(n_actions - 1),
        Constant(task.actions[0]),
        UniformRandom(range(n_actions), 0),
        UniformRandom(task.actions, 0),
        EpsilonGreedy(Constant(0), 0.5, range(n_actions), 0),
        lambda observations: np.zeros(len(observations), dtype=int),
    ]


def test_fixed_policies_act_wherever_learners_do():
    import gymnasium

    pulses = Epilepsy().fixed_frequency(1.0)
    tasks = [PuddleWorld(), PoleBalancing(2), from_gymnasium(gymnasium.make("CartPole-v1"))]
    for task in tasks:
        for policy in fixed_policies(task):
            judged = task.evaluate(policy, 3, random_state=0, max_steps=20, record=True)
            assert judged.returns.shape == (3,)
            assert np.isfinite(judged.returns).all()
            assert judged.lengths.sum() == len(judged.log)
            assert len(task.collect(30, policy, random_state=0, max_steps=20)) == 30
    pole = PoleBalancing(1)
    assert np.bincount(pole.evaluate(pulses, 1, random_state=0, max_steps=5, record=True).log.actions)[1] == 1
