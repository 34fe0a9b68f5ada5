"""Committees decide by vote or by mean, and know how much they disagree."""

import numpy as np
import pytest

from kbrl import KBSF, NotFittedError
from kbrl.learners.committee import Committee
from samples import random_log


@pytest.fixture(scope="module")
def log():
    return random_log(n=200, n_actions=3)


@pytest.fixture(scope="module")
def committee(log):
    return Committee(KBSF(8, reps="random"), 5, random_state=0).fit(log)


def test_members_have_representative_states_of_their_own(committee):
    first, second = committee.members_[:2]
    assert not np.array_equal(first.reps_, second.reps_)


def test_the_majority_decides(committee, log):
    choices = np.stack([member.predict(log.states) for member in committee.members_])
    votes = np.stack([(choices == label).mean(axis=0) for label in range(3)], axis=1)
    np.testing.assert_array_equal(committee.votes(log.states), votes)
    decided = committee.predict(log.states)
    assert (votes[np.arange(200), decided] == votes.max(axis=1)).all()


def test_ties_are_broken_at_random(log):
    pair = Committee(KBSF(8, reps="random"), 2, random_state=0).fit(log)
    votes = pair.votes(log.states)
    tied = log.states[votes.max(axis=1) == 0.5]
    assert len(tied) > 0
    answers = np.stack([pair.predict(tied) for _ in range(30)])
    assert (answers != answers[0]).any()


def test_the_mean_decides_if_asked_to(log):
    mean = Committee(KBSF(8, reps="random"), 5, vote="mean", random_state=0).fit(log)
    expected = np.mean([member.q_values(log.states) for member in mean.members_], axis=0)
    np.testing.assert_allclose(mean.q_values(log.states), expected)
    np.testing.assert_array_equal(mean.predict(log.states), expected.argmax(axis=1))
    assert mean.act(log.states[0]) == mean.predict(log.states[:1])[0]


def test_the_spread_is_the_standard_deviation_of_the_members_values(committee, log):
    all_q = np.stack([member.q_values(log.states) for member in committee.members_])
    np.testing.assert_allclose(committee.spread(log.states), all_q.std(axis=0))


def test_a_committee_of_one_is_its_member(log):
    alone = Committee(KBSF(8, random_state=3), 1, random_state=0).fit(log)
    np.testing.assert_array_equal(alone.predict(log.states), alone.members_[0].predict(log.states))
    assert not alone.spread(log.states).any()


def test_the_number_of_threads_does_not_matter_and_the_seed_decides(log):
    one, two = (Committee(KBSF(8), 4, random_state=1, n_jobs=n).fit(log) for n in (1, 2))
    np.testing.assert_array_equal(one.q_values(log.states), two.q_values(log.states))


def test_further_data_reach_every_member(log):
    grown = Committee(KBSF(8), 3, random_state=0).fit(log[:100]).partial_fit(log[100:])
    assert [member.n_samples_ for member in grown.members_] == [200] * 3


def test_bad_committees_are_refused(log):
    with pytest.raises(ValueError, match="vote must be one of"):
        Committee(KBSF(), 3, vote="loudest").fit(log)
    with pytest.raises(ValueError, match="n_members must be at least 1"):
        Committee(KBSF(), 0).fit(log)
    with pytest.raises(NotFittedError, match="has not learnt anything yet"):
        Committee(KBSF()).predict(log.states)
