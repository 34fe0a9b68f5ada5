"""Committees decide by vote or by mean, and know how much they disagree."""

import pickle

import numpy as np
import pytest
from scipy.stats import chisquare

from kbrl import KBSF, NotFittedError, Transitions, load_log
from kbrl.data.scaling import Coordinates
from kbrl.learners.committee import Committee
from kbrl.learners.learner import Learner
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


class Stubborn(Learner):
    """Prefers one action, whatever the state."""

    def __init__(self, action, n_actions):
        self.action, self.n_actions = action, n_actions
        self.coordinates_ = Coordinates(np.zeros(2), np.array([1.0, 2.0]))
        self.action_labels_ = np.arange(n_actions)

    def _q_function(self):
        return lambda states: np.tile(np.arange(self.n_actions) == self.action, (len(states), 1)).astype(float)


def stubborn(preferred, n_actions):
    """Return a committee of members that each prefer one action."""
    result = Committee(Stubborn(0, n_actions), len(preferred))
    result.set_members([Stubborn(action, n_actions) for action in preferred])
    return result


@pytest.mark.parametrize(
    ("preferred", "tied"), [((0, 1), (0, 1)), ((3, 1, 0, 3, 1, 0, 2), (0, 1, 3)), (range(5), range(5))]
)
def test_over_many_states_tied_actions_win_equally_often(preferred, tied):
    states = (
        np.random.default_rng(0).standard_normal((20_000, 2)).round(3)
    )  # nothing that looks random in the last bits
    answers = stubborn(preferred, 5).predict(states)
    wins = np.bincount(answers, minlength=5)
    assert set(np.flatnonzero(wins)) == set(tied)
    assert chisquare(wins[list(tied)]).pvalue > 1e-3
    # Nor does a win say anything about the next state on a grid.
    grid = stubborn(preferred, 5).predict(np.column_stack([np.arange(10_000.0), np.zeros(10_000)]))
    assert abs((grid[1:] == grid[:-1]).mean() - 1 / len(tied)) < 0.02


def test_one_state_has_one_answer_however_it_is_asked_for(log):
    pair = Committee(KBSF(8, reps="random"), 2, random_state=0).fit(log)
    states = np.random.default_rng(1).random((2000, 2))
    is_tied = pair.votes(states).max(axis=1) == 0.5
    assert is_tied.mean() > 0.1
    answers = pair.predict(states)
    order = np.random.default_rng(2).permutation(2000)
    np.testing.assert_array_equal(pair.predict(states), answers)
    np.testing.assert_array_equal(pair.policy()(states), answers)
    np.testing.assert_array_equal(pair.predict(states[order]), answers[order])
    np.testing.assert_array_equal(pair.policy()(states[order][:7]), answers[order][:7])
    for copy in (pickle.loads(pickle.dumps(pair)), Committee(KBSF(8, reps="random"), 2, random_state=0).fit(log)):
        np.testing.assert_array_equal(copy.predict(states), answers)
    for state, answer in zip(states[:100], answers):
        assert pair.act(state) == pair.policy().act(state) == answer


def test_minus_zero_is_zero_when_ties_are_broken():
    committee, states = stubborn(range(5), 5), np.zeros((200, 2))
    states[:, 0] = np.arange(200)
    np.testing.assert_array_equal(committee.predict(states), committee.predict(np.where(states == 0, -0.0, states)))


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


@pytest.mark.parametrize("vote", ["majority", "mean"])
def test_no_action_is_recommended_where_none_is_allowed(vote):
    table = {"age": np.arange(60.0), "drug": ["a", "b", "c"] * 20, "score": np.arange(60.0) % 7, "over": [1] * 60}
    roles = {"state": "age", "action": "drug", "reward": "score", "terminated": "over"}
    roles["allowed"] = dict.fromkeys("abc", "age > 30")
    committee = Committee(KBSF(5, sample_width=1.0, rep_width=1.0), 3, vote=vote, random_state=0)
    committee.fit(load_log(table, columns=roles))
    assert set(committee.predict({"age": [40.0, 50.0]})) <= set("abc")
    assert committee.votes({"age": [10.0, 40.0]}).sum(axis=1).tolist() == [0.0, 1.0]
    for ask in (committee.predict, committee.policy(), lambda states: committee.act({"age": 10.0})):
        with pytest.raises(ValueError, match="no action can be recommended"):
            ask({"age": [40.0, 10.0]})


def test_a_frame_gets_a_series_with_its_index(log):
    pd = pytest.importorskip("pandas")
    committee = Committee(KBSF(8), 3, random_state=0).fit(log)
    answers = committee.predict(pd.DataFrame(log.states[:3], index=["x", "y", "z"]))
    assert answers.to_dict() == dict(zip("xyz", committee.predict(log.states[:3])))


def test_bad_committees_are_refused(log):
    with pytest.raises(ValueError, match="vote must be one of"):
        Committee(KBSF(), 3, vote="loudest").fit(log)
    with pytest.raises(ValueError, match="n_members must be at least 1"):
        Committee(KBSF(), 0).fit(log)
    with pytest.raises(NotFittedError, match="has not learnt anything yet"):
        Committee(KBSF()).predict(log.states)


@pytest.mark.parametrize("vote", ["majority", "mean"])
@pytest.mark.parametrize("on_lattice", [False, True])
def test_a_cost_per_step_makes_ties_that_are_decided_alike_however_states_are_asked_about(vote, on_lattice):
    rng = np.random.default_rng(0)
    states = rng.integers(4, size=(600, 2)) / 3.0 if on_lattice else rng.random((600, 2))
    log = Transitions(states, rng.integers(4, size=600), -np.ones(600), rng.permutation(states))
    committee = Committee(KBSF(12, reps="random"), 6, vote=vote, random_state=0).fit(log)
    for learner in (committee, committee.members_[0]):
        asked = rng.random((200, 2))
        chosen, policy = learner.predict(asked), learner.policy()
        np.testing.assert_array_equal([learner.act(state) for state in asked], chosen)
        np.testing.assert_array_equal([learner.predict([state])[0] for state in asked], chosen)
        np.testing.assert_array_equal(policy(asked), chosen)
        np.testing.assert_array_equal([policy.act(state) for state in asked], chosen)
