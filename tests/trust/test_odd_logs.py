"""Logs at the edge: one action, one reward, huge rewards, other units, other names: a judgement, and the right one."""

import numpy as np
import pytest

from kbrl import Transitions, judge
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


def test_a_constant_added_to_all_rewards_changes_no_gain(usual):
    log = walk(seed=1)  # nothing ends, so that values change by 1000 / (1 - discount); all episodes are cut
    found = judge(mostly_right, log.replaced(rewards=log.rewards + 1000.0), discount=DISCOUNT)
    for one, other in ((found, usual), (found.by_sums, usual.by_sums), (found.by_rehearsal, usual.by_rehearsal)):
        np.testing.assert_allclose(
            [one.gain.estimate, one.gain.low, one.gain.high],
            [other.gain.estimate, other.gain.low, other.gain.high],
            atol=0.01,
        )
    assert found.value.estimate == pytest.approx(usual.value.estimate + 1000 / (1 - DISCOUNT), abs=0.01)
    assert (found.verdict, found.refusals) == (usual.verdict, usual.refusals)


def test_rows_that_do_not_follow_each_other_are_counted_and_named():
    log = walk(n_episodes=50)
    doubled = judge(right, log[np.repeat(np.arange(len(log)), 2)], discount=DISCOUNT, rehearsed=False)
    assert any(f"after {len(log):,} rows, the next row of the same episode starts" in text for text in doubled.warnings)
    assert any("missing, doubled or out of order (kbrl check)" in text for text in doubled.refusals)
    missing = log[np.arange(len(log)) % 30 != 7]  # one row of each episode
    found = judge(right, missing, discount=DISCOUNT, rehearsed=False)
    assert any("after 50 rows, the next row of the same episode starts" in text for text in found.warnings)
    whole = judge(right, log, discount=DISCOUNT, rehearsed=False)
    assert not any("starts in another state" in text for text in whole.warnings)


@pytest.mark.parametrize("log", [42, iter([])])
def test_what_is_no_log_or_can_be_read_only_once_is_refused(log):
    with pytest.raises(TypeError, match=r"read more than once here, so it must be Transitions.* but it is"):
        judge(right, log, discount=DISCOUNT)


def test_sums_that_would_not_fit_into_memory_are_refused():
    with pytest.raises(ValueError, match=r"would keep 7\.37 GB of sums for 2400 .* may have 2 GB. Ask"):
        judge(right, walk(n_episodes=100), discount=DISCOUNT, n_reps=2400)


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


def in_copies(log, n):
    """Return the episodes so often, under other names."""
    parts = {name: [getattr(log, name)] * n for name in ("states", "actions", "rewards", "next_states", "terminals")}
    names = np.concatenate([log.episodes + copy * (1 + log.episodes.max()) for copy in range(n)])
    return Transitions(*map(np.concatenate, parts.values()), names)


def test_copies_of_episodes_are_noticed_and_constant_rewards_are_not_taken_for_copies():
    log = walk(n_episodes=12)
    copied = judge(right, in_copies(log, 4), discount=DISCOUNT, rehearsed=False)
    assert any("36 of the episodes seem to be copies" in text for text in copied.warnings)
    constant = log.replaced(rewards=np.ones(len(log)))
    for plain in (log, constant):
        assert not any("copies" in text for text in judge(right, plain, discount=DISCOUNT, rehearsed=False).warnings)


@pytest.mark.parametrize("discount", [0.0, 1e-200])
def test_where_later_rewards_count_for_nothing_the_return_is_the_first_reward(discount):
    log = walk()
    found = judge(mostly_right, log, discount=discount, rehearsed=False)
    first = np.append(True, log.episodes[1:] != log.episodes[:-1])
    assert found.observed == pytest.approx(log.rewards[first].mean())
    assert not any("nearly all logged episodes" in text for text in found.warnings)
    assert found.value.high - found.value.low < np.ptp(log.rewards)  # not open


def test_rewards_too_large_to_be_judged_are_refused_with_the_limit_the_value_and_a_way_out():
    log = walk()
    with pytest.raises(ValueError, match=r"smaller than 1e\+69 .* but one is \d.*e\+2\d\d. Divide them all"):
        judge(right, log.replaced(rewards=1e250 * log.rewards), discount=0.9)


def test_an_interval_allows_for_ends_that_a_log_of_equal_rewards_does_not_show():
    # none of n episodes ended: at 95 %, up to 1 - 0.05^(1/n) of them may end, at worst at once, which pays 1 of 10
    log = walk(n_episodes=50)
    log = log.replaced(rewards=np.ones(len(log)))
    found = judge(right, log, discount=0.9, rehearsed=False)
    assert not log.terminals.any()
    assert found.now.low == pytest.approx(10 - (1 - 0.05 ** (1 / 50)) * 9, abs=0.01)  # the ridge
    assert found.now.high == pytest.approx(10)
    assert any("0 of 50 episodes ended" in text for text in found.warnings)
    assert not any("lasts through an episode" in text for text in found.refusals)


def test_a_negative_number_of_influential_episodes_is_refused(usual):
    with pytest.raises(ValueError, match="n must be at least 0, but it is -1"):
        usual.influential(-1)
