"""Logs at the edge: one action, one reward, huge rewards, other units, other names: a judgement, and the right one."""

import numpy as np
import pytest

from kbrl import judge
from trust.test_rehearsed import DISCOUNT, mostly_right, walk


def right(states):
    return np.ones(len(states), dtype=int)


def numbers(found):
    """Return the estimates by rehearsal; the sums choose their representative states by hashes of rows."""
    parts = (found.by_rehearsal.value, found.by_rehearsal.gain)
    return np.array([[each.estimate, each.low, each.high] for each in parts])


@pytest.fixture(scope="module")
def usual():
    return judge(mostly_right, walk(seed=1), discount=DISCOUNT)


@pytest.mark.parametrize("factor", [1e-9, 1e12])
def test_rewards_in_other_units_give_the_same_judgement_in_these_units(usual, factor):
    log = walk(seed=1)
    found = judge(mostly_right, log.replaced(rewards=factor * log.rewards), discount=DISCOUNT)
    np.testing.assert_allclose(numbers(found), factor * numbers(usual), rtol=1e-6)
    assert (found.verdict, len(found.refusals)) == (usual.verdict, len(usual.refusals))


def test_states_in_other_units_give_the_same_judgement(usual):
    log = walk(seed=1)
    found = judge(
        mostly_right,
        log.replaced(states=1e4 * log.states + 7, next_states=1e4 * log.next_states + 7),
        discount=DISCOUNT,
    )
    np.testing.assert_allclose(numbers(found), numbers(usual), rtol=1e-6)
    assert found.verdict == usual.verdict


def test_a_log_with_one_action_says_that_doing_the_same_gains_nothing():
    log = walk(habit=1.1)  # always to the right
    found = judge(right, log, discount=DISCOUNT)
    assert found.verdict == "cannot tell"
    assert found.gain.low <= 0 <= found.gain.high
    assert not judge(lambda states: 1 - right(states), log, discount=DISCOUNT).is_bounded


@pytest.mark.parametrize("reward", [0.0, 2.0])
def test_where_every_reward_is_the_same_no_policy_is_better(reward):
    log = walk()
    found = judge(right, log.replaced(rewards=np.full(len(log), reward)), discount=DISCOUNT)
    assert found.verdict == "cannot tell"
    assert found.value.estimate == pytest.approx(reward / (1 - DISCOUNT))
    assert found.gain.estimate == pytest.approx(0.0, abs=1e-6)


def test_every_number_of_an_odd_judgement_can_be_written_as_json():
    log = walk(n_episodes=3)
    text = judge(right, log, discount=DISCOUNT).to_json()
    assert '"verdict": "cannot tell"' in text
    assert "NaN" not in text
    assert "Infinity" not in text
