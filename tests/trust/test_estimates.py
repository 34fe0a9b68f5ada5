"""Values from sums: identities, exact features, and the coverage of intervals over simulated logs."""

import numpy as np
import pytest

from kbrl import PolicyEvaluator
from kbrl.tasks import PuddleWorld
from kbrl.trust.estimates import Evidence, jackknife_error, rungs
from kbrl.trust.influence import episode_terms
from kbrl.trust.verdict import judged
from trust.finite_logs import random_world, without_block


def first_action(states):
    return np.zeros(len(states), dtype=int)


def evidence_of(evaluator):
    return Evidence(evaluator.sums, evaluator.discount, features=evaluator.frame.features)


def test_influences_sum_to_the_values_with_any_features_and_smoothing():
    log = PuddleWorld().collect(3000, random_state=0, max_steps=60)
    found = PolicyEvaluator(first_action, discount=0.95, n_reps=15).fit(log)
    for smoothing in (0.03, 0.3):
        terms = episode_terms(found, log, smoothing)
        expected, n = evidence_of(found).at(smoothing), len(terms.names)
        assert n == found.n_episodes
        np.testing.assert_allclose([terms.value.sum() / n, terms.now.sum() / n], expected[:2], atol=1e-6)


def test_with_few_different_states_features_are_indicators_and_smoothing_changes_nothing():
    (log,) = random_world(3).logs(1, 300, np.random.default_rng(0))
    found = PolicyEvaluator(first_action, discount=0.9).fit(log)
    assert found.frame.features.is_exact
    values = [evidence_of(found).at(smoothing) for smoothing in (0.0, 0.03, 1.0)]
    np.testing.assert_allclose(values[0], values[1], atol=1e-9)
    np.testing.assert_allclose(values[0], values[2], atol=1e-9)


def test_with_indicators_the_value_is_that_of_the_observed_frequencies():
    world = random_world(4)
    (log,) = world.logs(1, 2000, np.random.default_rng(1))
    counts, following, paid = np.zeros((2, 5)), np.zeros((2, 5, 5)), np.zeros((2, 5))
    states, after = log.states[:, 0].astype(int), log.next_states[:, 0].astype(int)
    np.add.at(counts, (log.action_indices, states), 1)
    np.add.at(paid, (log.action_indices, states), log.rewards)
    goes_on = ~log.terminals
    np.add.at(following, (log.action_indices[goes_on], states[goes_on], after[goes_on]), 1)
    first = np.append(True, log.episodes[1:] != log.episodes[:-1])
    start = np.bincount(states[first], minlength=5) / first.sum()
    expected = start @ np.linalg.solve(np.eye(5) - 0.9 * following[0] / counts[0][:, None], paid[0] / counts[0])
    found = PolicyEvaluator(first_action, discount=0.9).fit(log)
    assert evidence_of(found).at(0.03)[0] == pytest.approx(expected, abs=1e-3)  # the ridge is a hundredth of a row


def test_the_jackknife_of_a_mean_is_its_standard_error():
    rng = np.random.default_rng(0)
    sizes = rng.integers(3, 9, size=20)
    blocks = [rng.normal(size=size) for size in sizes]
    everything = np.concatenate(blocks)
    left_out = np.array([(everything.sum() - b.sum()) / (len(everything) - len(b)) for b in blocks])
    by_hand = np.sqrt(sum((b.sum() - len(b) * everything.mean()) ** 2 for b in blocks)) / len(everything)
    assert jackknife_error(everything.mean(), left_out, sizes.astype(float)) == pytest.approx(by_hand, rel=0.15)


def second_action(states):
    return np.ones(len(states), dtype=int)


def test_with_exact_features_intervals_cover_the_truth_as_often_as_they_say():
    # 500 logs: the standard error of a coverage is sqrt(0.95 * 0.05 / 500) = 1.0 points at 95 %, and 1.3 at 90 %; a
    # mean over two policies, whose errors are nearly independent, has some 0.7 and 0.95.
    world, policies = random_world(1), {"first": first_action, "second": second_action}
    truths = [world.value(np.eye(2)[np.full(5, action)]) for action in (0, 1)]
    now = world.value(world.practice)
    covered = {(what, level): [] for what in ("value", "gain") for level in (0.95, 0.9)}
    like = None
    for log in world.logs(500, 200, np.random.default_rng(51)):
        found = PolicyEvaluator(policies, discount=world.discount, like=like).fit(log)
        like = found if like is None else like
        evidence = evidence_of(found)
        for place, truth in enumerate(truths):
            ladder = rungs(evidence.of(place), ((0.03, 0.1),))  # one is enough: features are exact
            for level in (0.95, 0.9):
                judgement, _ = judged(evidence.of(place), ladder, level)
                covered["value", level].append(judgement.value.low <= truth <= judgement.value.high)
                covered["gain", level].append(judgement.gain.low <= truth - now <= judgement.gain.high)
    shares = {key: 100 * np.mean(found) for key, found in covered.items()}
    for (what, level), share in shares.items():
        low, high = (93.0, 97.0) if level == 0.95 else (87.5, 92.5)
        assert low <= share <= high, (what, shares)


@pytest.mark.parametrize("n_rows", [400, 3000])
def test_leaving_a_block_out_gives_what_the_sums_without_it_give(n_rows):
    log = PuddleWorld().collect(n_rows, random_state=1, max_steps=30)
    found = PolicyEvaluator(first_action, discount=0.95, n_reps=20, n_blocks=5).fit(log)
    evidence = evidence_of(found)
    full, left_out = evidence.with_left_out(0.1)
    np.testing.assert_allclose(full, evidence.at(0.1), rtol=1e-8)
    direct = np.array([without_block(evidence, block).at(0.1) for block in np.flatnonzero(evidence.kept)])
    errors = [jackknife_error(full[0], each[:, 0], found.sums.n_episodes[evidence.kept]) for each in (left_out, direct)]
    assert errors[0] == pytest.approx(errors[1], rel=0.05)
