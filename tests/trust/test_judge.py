"""Verdicts: what is judged, what is refused, and what is said."""

import json
from dataclasses import replace

import numpy as np
import pandas
import pytest

from kbrl import KBSF, Committee, KbrlWarning, Transitions, compare, judge, open_log, split_episodes
from kbrl.tasks import PuddleWorld
from kbrl.trust.estimates import Evidence, Rung, rungs
from kbrl.trust.evaluator import PolicyEvaluator
from kbrl.trust.importance import importance_estimate
from kbrl.trust.judge import judge_evaluated
from kbrl.trust.learnt_episodes import LearntError
from kbrl.trust.rehearsed import Rehearsed
from kbrl.trust.verdict import judged
from trust.finite_logs import Finite, random_world

WORLD = Finite(  # action 1 moves to the state that pays, action 0 to the one that does not
    np.array([[[0.8, 0.1], [0.8, 0.1]], [[0.1, 0.8], [0.1, 0.8]]]),
    np.array([[0.0, 2.0], [0.0, 2.0]]),
    np.array([0.5, 0.5]),
    np.full((2, 2), 0.5),
    0.9,
)


@pytest.fixture(scope="module")
def log():
    (found,) = WORLD.logs(1, 400, np.random.default_rng(0))
    return found


def always(action):
    return lambda states: np.full(len(states), action)


def test_a_policy_that_is_much_better_or_much_worse_is_called_so_and_practice_neither(log):
    better, worse = (judge(always(action), log, discount=0.9) for action in (1, 0))
    assert (better.verdict, worse.verdict) == ("better", "worse")
    truths = [WORLD.value(np.eye(2)[[action, action]]) - WORLD.value(WORLD.practice) for action in (1, 0)]
    assert better.gain.low < truths[0] < better.gain.high
    assert worse.gain.low < truths[1] < worse.gain.high
    same = judge(lambda states: np.full((len(states), 2), 0.5), log, discount=0.9)
    assert same.verdict == "cannot tell"
    assert same.refusals == ()
    assert "Cannot tell: the estimated gain" in str(same)


def test_the_gain_is_the_value_minus_now_and_its_half_width_the_sum_of_its_parts(log):
    found = judge(always(1), log, discount=0.9)
    assert found.gain.estimate == pytest.approx(found.value.estimate - found.now.estimate)
    for part in (found.now, found.value, found.gain):
        assert part.half == pytest.approx(part.sampling + part.smoothing + part.self_check)
        assert part.high - part.low <= 2 * part.half + 1e-12
    assert json.loads(found.to_json())["gain"]["low"] == found.gain.low


@pytest.mark.parametrize("unit", [2.0, 0.001, 37.0])
def test_a_judgement_is_the_same_in_every_unit_of_rewards(unit):
    given = PuddleWorld(noise=True).collect(3000, random_state=3, max_steps=60)
    parts = (given.states, given.actions, given.rewards * unit, given.next_states, given.terminals)
    plain, scaled = (
        judge(always(2), each, discount=0.95, rehearsed=False) for each in (given, Transitions(*parts, given.episodes))
    )
    for one, other in zip((plain.now, plain.value, plain.gain), (scaled.now, scaled.value, scaled.gain)):
        np.testing.assert_allclose([other.low, other.high], np.multiply([one.low, one.high], unit), rtol=1e-6)


def test_the_most_influential_episode_is_the_one_whose_absence_changes_the_gain_most(log):
    found = judge(always(1), log, discount=0.9)
    first = found.influential(1)[0]
    without = judge(always(1), log[log.episodes != first.episode], discount=0.9)
    assert without.gain.estimate - found.gain.estimate == pytest.approx(first.change, rel=0.2)
    assert len(found.influential(7)) == 7


def test_few_episodes_give_numbers_but_no_verdict(log):
    few = log[np.isin(log.episodes, np.unique(log.episodes)[:39])]
    found = judge(always(1), few, discount=0.9)
    assert found.verdict == "cannot tell"
    assert any("there are 39 episodes, and a verdict needs at least 40" in text for text in found.refusals)


def test_one_episode_gives_no_verdict_and_no_number_beyond_what_rewards_allow(log):
    single = log[log.episodes == log.episodes[0]]
    found = judge(always(1), single, discount=0.9)
    assert found.verdict == "cannot tell"
    widest = (single.rewards.max() - single.rewards.min()) / (1 - 0.9)
    assert found.gain.high - found.gain.low <= 2 * widest + 10
    assert found.influences == ()
    said = " ".join(found.refusals)
    assert "there is one episode, and a verdict needs at least 40" in said
    assert "all episodes are in one of 20 blocks" in said
    assert "equations" not in said


def test_rows_that_nothing_follows_give_no_verdict():
    rng = np.random.default_rng(0)
    states, actions = rng.random((200, 1)), rng.integers(2, size=200)
    log = Transitions(states, actions, 1.0 * actions, rng.random((200, 1)), episodes=np.arange(200))
    found = judge(always(1), log, discount=0.9)
    assert found.verdict == "cannot tell"
    assert any("the next action is not known" in text for text in found.refusals)


def test_decisions_without_sequels_are_judged_too():
    rng = np.random.default_rng(0)
    states, actions = rng.random((400, 1)), rng.integers(2, size=400)
    rewards = actions + rng.normal(size=400)
    log = Transitions(states, actions, rewards, states, np.ones(400, dtype=bool), np.arange(400))
    found = judge(always(1), log, discount=0.9)
    assert found.verdict == "better"
    assert found.gain.low < 0.5 < found.gain.high  # 1 against a mean of 1/2


def test_an_action_that_was_never_tried_gives_no_verdict(log):
    known = log.with_actions(np.array([0, 1, 2]))
    found = judge(always(2), known, discount=0.9)
    assert found.verdict == "cannot tell"
    assert found.thin_share > 0.9


def stairs(n_episodes=200, n_steps=40, seed=0):
    """Return walks on numbered stairs, from 0: people go up or down at random, and never up from 15."""
    rng = np.random.default_rng(seed)
    x, parts = np.zeros(n_episodes), []
    for step in range(n_steps):
        up = (rng.random(n_episodes) < 0.8) & (x < 15)
        following = np.maximum(x + np.where(up, 1, -1), 0)
        parts.append((np.arange(n_episodes), np.full(n_episodes, step), x, up, following))
        x = following
    columns = [np.concatenate(column) for column in zip(*parts)]
    names, _, x, up, following = (column[np.lexsort([columns[1], columns[0]])] for column in columns)
    rewards = rng.normal(-1.0, 0.1, len(x))
    return Transitions(x[:, None], up.astype(int), rewards, following[:, None], episodes=names, action_labels=[0, 1])


def test_all_that_follows_a_decision_that_nobody_took_counts_as_not_supported():
    log = stairs()
    found = judge(always(1), log, discount=0.95)  # 15 decisions that many took, and then one that nobody took
    after = 0.95**15 / (1 - 0.95)
    assert found.thin_share == pytest.approx(after / (1 / (1 - 0.95)), rel=0.05)
    assert not found.is_bounded
    assert judge(lambda states: (states[:, 0] < 15).astype(int), log, discount=0.95).is_bounded


def test_a_state_that_lacks_what_matters_is_noticed():
    # what pays is a hidden weather that changes every ten steps or so; the state is a coin
    rng = np.random.default_rng(1)
    n_episodes, n_steps = 100, 40
    weather = (np.cumsum(rng.random((n_episodes, n_steps)) < 0.1, axis=1) % 2).ravel()
    coins = rng.integers(2, size=(n_episodes, n_steps + 1))
    states, following = coins[:, :-1].reshape(-1, 1).astype(float), coins[:, 1:].reshape(-1, 1).astype(float)
    actions = rng.integers(2, size=n_episodes * n_steps)
    names = np.repeat(np.arange(n_episodes), n_steps)
    log = Transitions(states, actions, 1.0 * weather + 0.2 * actions, following, episodes=names)
    found = judge(always(1), log, discount=0.9)
    assert found.memory > 0.5
    assert found.verdict == "cannot tell"


def rehearsed(value, observed, half=1.0, far_share=0.0):
    """Return a rehearsal with these estimates, whose interval has about this half width."""
    estimates = np.array([value, observed, observed])
    left_out = estimates + half / 7 * np.array([[1.0, 0.0, 0.0]] * 5 + [[-1.0, 0.0, 0.0]] * 5)
    rung = Rung(np.nan, estimates, estimates, left_out, np.full(10, 40.0), np.zeros(3))
    return Rehearsed(rung, far_share, n_rows=1000, n_runs=400)


def test_a_second_estimate_that_does_not_meet_the_first_takes_the_verdict_away_and_intervals_hold_both(log):
    evaluator = PolicyEvaluator(always(1), discount=0.9).fit(log)
    evidence = Evidence(evaluator.sums, 0.9)
    alone, _ = judged(evidence, rungs(evidence), 0.95)
    assert alone.verdict == "better"
    now, gain = alone.now.estimate, alone.gain.estimate
    agrees, _ = judged(evidence, rungs(evidence), 0.95, second=rehearsed(now + gain + 0.1, now))
    assert agrees.verdict == "better"
    assert gain < agrees.gain.estimate < gain + 0.1
    assert agrees.gain.half < max(alone.gain.half, agrees.by_rehearsal.gain.half)
    assert agrees.gain.estimate == pytest.approx(agrees.value.estimate - agrees.now.estimate)
    differs, _ = judged(evidence, rungs(evidence), 0.95, second=rehearsed(now - 9.0, now))
    assert differs.verdict == "cannot tell"
    assert "the two methods disagree" in differs.refusals[0]
    for found in (differs.by_sums.gain, differs.by_rehearsal.gain):
        assert differs.gain.low <= found.low <= found.high <= differs.gain.high


def test_a_policy_that_goes_far_from_the_log_in_rehearsal_has_no_interval(log):
    evaluator = PolicyEvaluator(always(1), discount=0.9).fit(log)
    evidence = Evidence(evaluator.sums, 0.9)
    found, _ = judged(evidence, rungs(evidence), 0.95, second=rehearsed(10.0, 8.0, far_share=0.2))
    assert found.verdict == "cannot tell"
    assert not found.is_bounded
    assert found.value.low == pytest.approx(min(log.rewards.min(), log.rewards.min() / (1 - 0.9)))
    assert found.value.high == pytest.approx(log.rewards.max() / (1 - 0.9))
    assert "20 % of the policy's decisions are far from all logged ones" in found.refusals[0]
    assert "do not tell what the policy gains" in found.sentence


def test_where_five_rows_do_not_show_the_action_the_rehearsal_judges_alone(log):
    evaluator = PolicyEvaluator(always(1), discount=0.9).fit(log)
    thin = replace(evaluator.sums, weight=evaluator.sums.weight * 1e-3)
    evidence = Evidence(thin, 0.9)
    found = rungs(Evidence(evaluator.sums, 0.9))
    refused, _ = judged(evidence, found, 0.95)
    assert evidence.thin_share > 0.9
    assert not refused.is_bounded
    assert "where fewer than 5 logged rows support the action; at most 10 % may be" in refused.refusals[0]
    alone, _ = judged(evidence, found, 0.95, second=rehearsed(10.0, 8.0))
    assert alone.is_bounded
    assert (alone.gain, alone.value) == (alone.by_rehearsal.gain, alone.by_rehearsal.value)
    assert any("the sums are ignored, and only the rehearsal counts" in text for text in alone.warnings)
    far, _ = judged(evidence, found, 0.95, second=rehearsed(10.0, 8.0, far_share=0.2))
    assert not far.is_bounded


def test_an_interval_is_open_above_where_fewer_than_five_logged_episodes_earned_as_much(log):
    evaluator = PolicyEvaluator(always(1), discount=0.9).fit(log)
    few = np.array([99.0, 99.0, 99.0, 99.0, 3.0])  # as if only four returns had been above 3
    sums = replace(evaluator.sums, largest_returns=few, left_out=np.zeros(1))
    evidence = Evidence(sums, 0.9)
    found, _ = judged(evidence, rungs(evidence), 0.95)
    assert found.verdict == "better"
    assert found.value.high == pytest.approx(log.rewards.max() / (1 - 0.9))
    assert any("fewer than 5 earned more than 3)" in text for text in found.warnings)
    usual, _ = judged(Evidence(evaluator.sums, 0.9), rungs(evidence), 0.95)
    assert found.gain.low == usual.gain.low
    assert usual.value.high < found.value.high


def test_an_interval_is_open_below_where_fewer_than_five_logged_episodes_earned_as_little(log):
    evaluator = PolicyEvaluator(always(0), discount=0.9).fit(log)
    few = np.array([0.0, 0.0, 0.0, 0.0, 15.0])
    evidence = Evidence(replace(evaluator.sums, smallest_returns=few, left_out=np.zeros(1)), 0.9)
    found, _ = judged(evidence, rungs(evidence), 0.95)
    assert found.verdict == "worse"
    assert found.value.low == pytest.approx(log.rewards.min() / (1 - 0.9))
    assert found.gain.low == pytest.approx(found.value.low - found.now.high)
    assert found.sentence.startswith(
        f"Worse: the policy loses {-found.gain.estimate:.4g} against what is done now (95 %"
    )


def ward(n_episodes, rng, *, hidden):
    """Return a log of patients whose health x drifts; the sicker ones (unrecorded, for good) are treated more.

    Treatment helps by 0.3, and being sick costs 1 per step.
    """
    x, sick, parts = rng.normal(size=n_episodes), rng.random(n_episodes) < 0.5, []
    for step in range(12):
        action = (rng.random(n_episodes) < np.where(sick, 0.8, 0.2)).astype(int)
        reward = x + 0.3 * action - sick * hidden
        following = 0.5 * x + rng.normal(0.0, 0.5, n_episodes)
        parts.append((np.arange(n_episodes), np.full(n_episodes, step), x, action, reward, following))
        x = following
    columns = [np.concatenate(column) for column in zip(*parts)]
    names, step, x, action, reward, then = (column[np.lexsort([columns[1], columns[0]])] for column in columns)
    return Transitions(x[:, None], action, reward, then[:, None], step == 11, names, action_labels=[0, 1])


@pytest.mark.parametrize("seed", range(3))
def test_a_lasting_variable_that_is_not_recorded_is_noticed_and_one_that_does_not_matter_is_not(seed):
    rng = np.random.default_rng(seed)
    found = judge(always(0), ward(200, rng, hidden=True), discount=0.95, rehearsed=False)
    assert found.lasting > 1.6
    assert any(
        "something that matters, and lasts through an episode, is not among the state variables" in text
        for text in found.refusals
    )
    seen = judge(always(0), ward(200, rng, hidden=False), discount=0.95, rehearsed=False)
    assert 0.6 < seen.lasting < 1.4
    assert seen.refusals == ()
    assert seen.gain.low < -0.3 * 0.5 * (1 - 0.95**12) / 0.05 < seen.gain.high


def test_values_are_cut_to_what_rewards_allow_and_an_interval_outside_gives_no_verdict(log):
    evaluator = PolicyEvaluator(always(1), discount=0.9).fit(log)
    evidence = Evidence(evaluator.sums, 0.9)
    found = judge(always(1), log, discount=0.9)
    assert log.rewards.min() / (1 - 0.9) <= found.value.low <= found.value.high <= log.rewards.max() / (1 - 0.9)
    limits = {"smallest_reward": np.array([0.0]), "largest_reward": np.array([0.1])}  # a value of at most 1
    refused, _ = judged(replace(evidence, sums=replace(evaluator.sums, **limits)), rungs(evidence), 0.95)
    assert refused.verdict == "cannot tell"
    assert any("outside of what the rewards allow" in text for text in refused.refusals)
    assert (refused.value.low, refused.value.high) == pytest.approx((0.0, 1.0))
    assert not refused.is_bounded


def test_a_model_is_not_judged_by_episodes_it_learnt_from_and_a_committee_neither(log):
    learn, rest = split_episodes(log, 0.5)
    model = KBSF(n_reps=2, discount=0.9, random_state=0).fit(learn).model_
    assert judge(model, rest).verdict == "better"
    n_learnt = len(np.unique(learn.episodes))
    with pytest.raises(LearntError, match=f"{n_learnt} of the 400 episodes were learnt from"):
        judge(model, log)
    assert judge(model, log, allow_learnt=True).n_episodes == 400
    committee = Committee(KBSF(n_reps=2, discount=0.9), n_members=3, random_state=0).fit(learn)
    assert judge(committee, rest).verdict == "better"
    with pytest.raises(LearntError):
        judge(committee, learn)


def test_a_model_that_does_not_know_what_it_learnt_is_judged_with_a_warning(log):
    learn, rest = split_episodes(log, 0.5)
    model = replace(KBSF(n_reps=2, discount=0.9, random_state=0).fit(learn).model_, sketch=None)
    with pytest.warns(KbrlWarning, match="does not say what was learnt from"):
        judge(model, rest)


def test_where_episodes_have_no_identifiers_learnt_rows_are_noticed():
    rng = np.random.default_rng(0)
    columns = {"s": rng.random(600), "action": rng.integers(2, size=600), "reward": rng.random(600)}
    columns["done"] = np.arange(600) % 5 == 4
    opened = open_log(columns, columns={"state": "s"})
    model = KBSF(n_reps=5, random_state=0).fit(opened.chunks()).model_
    with pytest.raises(LearntError, match="rows that it did not learn from"):
        judge(model, opened)


def test_compared_policies_share_the_level(log):
    found = compare({"one": always(1), "zero": always(0)}, log, discount=0.9)
    assert (found.verdict("one", "zero"), found.verdict("zero", "one")) == ("better", "worse")
    single = judge(always(1), log, discount=0.9)
    assert found.judgements["one"].gain.half > single.gain.half
    difference = found.differences["one", "zero"]
    one, zero = (found.judgements[name].value.estimate for name in ("one", "zero"))
    assert difference.estimate == pytest.approx(one - zero)


def test_compared_policies_take_the_options_of_judge(log):
    given = {"one": always(1), "zero": always(0)}
    chances = np.full(len(log), 0.5)
    found = compare(given, log, discount=0.9, rehearsed=False, propensities=chances)
    for name, policy in given.items():
        assert found.judgements[name].importance == importance_estimate(policy, log, chances, discount=0.9)
        assert found.judgements[name].not_rehearsed == "it was not asked for"
    with pytest.raises(TypeError, match="a dict of policies by name"):
        compare([always(1)], log, discount=0.9)


def test_policies_of_different_discounts_are_not_compared_unless_one_is_given(log):
    learn, rest = split_episodes(log, 0.5)
    short, long = (KBSF(2, discount=discount, random_state=0).fit(learn).model_ for discount in (0.5, 0.9))
    with pytest.raises(ValueError, match=r"different ones: short 0.5, long 0.9. Pass discount="):
        compare({"short": short, "long": long}, rest)
    assert compare({"short": short, "long": long}, rest, discount=0.9).judgements["short"].discount == 0.9
    assert compare({"rule": always(1), "long": long}, rest).judgements["rule"].discount == 0.9


def test_a_log_that_is_read_in_chunks_is_judged_as_in_memory(log, tmp_path):
    from kbrl.logs.writing import write_log

    write_log(log, tmp_path / "log.parquet")
    opened = open_log(tmp_path / "log.parquet")
    in_memory = judge(always(1), log, discount=0.9)
    from_file = judge_evaluated(PolicyEvaluator(always(1), discount=0.9).fit(opened), opened)
    assert from_file.gain.low == pytest.approx(in_memory.gain.low)
    assert from_file.influences[0].episode == in_memory.influences[0].episode


def test_a_split_is_by_episode_and_the_same_for_any_order_of_rows_and_kind_of_log(log, tmp_path):
    from kbrl.logs.writing import write_log

    learn, rest = split_episodes(log, 0.3)
    chosen = set(learn.episodes.tolist())
    assert not chosen & set(rest.episodes.tolist())
    assert 0.2 < len(chosen) / 400 < 0.4
    backwards = split_episodes(log[::-1], 0.3)[0]
    assert set(backwards.episodes.tolist()) == chosen
    assert set(split_episodes(log, 0.3, random_state=1)[0].episodes.tolist()) != chosen
    write_log(log, tmp_path / "log.parquet")
    opened = split_episodes(open_log(tmp_path / "log.parquet"), 0.3)[0].chunks(100)
    assert {episode for chunk in opened for episode in chunk.episodes.tolist()} == chosen
    for share in (0, 1.0, "half"):
        with pytest.raises(ValueError, match="share must be a number"):
            split_episodes(log, share)
    with pytest.raises(ValueError, match="puts all 1 episodes into one"):
        split_episodes(log[:1], 0.5)


def test_importance_weights_of_practice_itself_give_the_observed_mean():
    world = random_world(2)
    (log,) = world.logs(1, 200, np.random.default_rng(3))
    states = log.states[:, 0].astype(int)
    propensities = world.practice[states, log.action_indices]
    found = importance_estimate(
        lambda seen: world.practice[seen[:, 0].astype(int)], log, propensities, discount=world.discount
    )
    starts = np.append(True, log.episodes[1:] != log.episodes[:-1])
    steps = np.arange(len(log)) - np.maximum.accumulate(np.where(starts, np.arange(len(log)), 0))
    assert found.value == pytest.approx((log.rewards * world.discount**steps).sum() / 200)
    assert found.effective_episodes == pytest.approx(200)
    with pytest.raises(ValueError, match="be above 0 and at most 1"):
        importance_estimate(always(0), log, 0 * propensities, discount=0.9)


def test_propensities_in_the_log_are_used_in_memory_in_chunks_and_from_files(log, tmp_path):
    parts = (log.states, log.actions, log.rewards, log.next_states, log.terminals, log.episodes)
    given = Transitions(*parts, propensities=np.full(len(log), 0.5))
    expected = importance_estimate(always(1), log, np.full(len(log), 0.5), discount=0.9)
    options = {"discount": 0.9, "rehearsed": False}
    assert judge(always(1), log, **options).importance is None
    assert judge(always(1), given, **options).importance == expected
    assert str(expected) in str(judge(always(1), given, **options))
    assert importance_estimate(always(1), [given[:100], given[100:]], discount=0.9) == expected
    names = {"state": "x", "episode": "id", "action_prob": "chance"}
    frame = pandas.DataFrame({"id": log.episodes, "x": log.states[:, 0], "action": log.actions, "reward": log.rewards})
    frame["terminated"], frame["chance"] = log.terminals, 0.5
    frame.to_csv(tmp_path / "log.csv", index=False)
    opened = open_log(tmp_path / "log.csv", columns=names)
    found = judge(always(1), opened, **options).importance
    assert found.value == pytest.approx(expected.value, abs=1e-9)
    with pytest.raises(ValueError, match="The log has no propensities"):
        importance_estimate(always(1), log, discount=0.9)


def test_importance_weights_are_the_products_of_ratios_worked_out_by_hand():
    # two episodes of two steps; the policy takes action 1 for certain, practice did so with 1/2
    log = Transitions(
        np.zeros((4, 1)), [1, 1, 1, 0], [1.0, 2.0, 3.0, 5.0], np.zeros((4, 1)), [0, 1, 0, 1], ["x", "x", "y", "y"]
    )
    found = importance_estimate(always(1), log, np.full(4, 0.5), discount=0.5)
    # step 0: weights 2, 2: mean of 1 and 3; step 1: weights 4, 0: 2
    assert found.value == pytest.approx(2.0 + 0.5 * 2.0)
    assert found.effective_episodes == pytest.approx(1.0)
    assert not found.is_usable


def test_importance_weights_begin_anew_after_an_end_although_the_identifier_stays():
    parts = ([1, 1, 1, 0], [1.0, 2.0, 3.0, 5.0], np.zeros((4, 1)), [0, 1, 0, 1])
    apart, alike = (Transitions(np.zeros((4, 1)), *parts, names) for names in (["x", "x", "y", "y"], ["x"] * 4))
    found = [importance_estimate(always(1), log, np.full(4, 0.5), discount=0.5) for log in (apart, alike)]
    assert found[0].value == found[1].value
    assert found[0].n_episodes == found[1].n_episodes == 2


def test_a_policy_is_asked_once_about_each_row_and_for_probabilities_twice():
    log = PuddleWorld().collect(900, random_state=0, max_steps=30)
    n_asked = []

    def certain(states):
        n_asked.append(len(states))
        return np.zeros(len(states), dtype=int)

    def uncertain(states):
        n_asked.append(len(states))
        return np.full((len(states), 4), 0.25)

    judge(certain, log, discount=0.9, rehearsed=False)
    once, n_reps = sum(n_asked), n_asked[0]  # the first are the representative states
    n_asked.clear()
    judge(uncertain, log, discount=0.9, rehearsed=False)
    n_starts = len(np.unique(log.episodes))
    assert once == n_reps + int((~log.terminals).sum()) + n_starts
    assert sum(n_asked) == 2 * once - n_reps
