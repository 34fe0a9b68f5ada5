"""The battery for learners that learn only while acting finds what is wrong with them."""

import numpy as np
import pytest

from kbrl import SARSA
from kbrl.testing import check_learner


class Own(SARSA):
    """A learner of one's own; the broken ones below lack one of its habits each."""

    def __init__(self, actions=3, discount=0.9, exploration=0.2, random_state=None):
        super().__init__(
            actions,
            [0.0, 0.0],
            [1.0, 1.0],
            step_size=0.3,
            discount=discount,
            exploration=exploration,
            random_state=random_state,
        )


def test_a_learner_of_ones_own_passes():
    check_learner(Own())


class TakesEveryParameter(Own):
    def set_params(self, **params):
        return super().set_params(**{name: value for name, value in params.items() if name in self.get_params()})


class WaitsForDataToAct(Own):
    def act(self, state):
        if self.n_seen == 0:
            raise RuntimeError("no data yet")
        return super().act(state)


class CountsInPlaces(Own):
    def predict(self, states):
        return self.q_values(states).argmax(axis=1)


SHARED = {}


class RemembersForOthers(Own):
    def _begin(self):
        super()._begin()
        self.weights_ = SHARED.setdefault(self.weights_.shape, self.weights_)


class NeverLearns(Own):
    def observe(self, *transition):
        self._checked(transition[0], "observation")


class ActsByTheClock(Own):
    def act(self, state):
        super().act(state)
        return self.action_labels_[np.random.default_rng().integers(len(self.action_labels_))]


class RepairsWhatItSees(Own):
    def observe(self, state, action, reward, next_state, ends):
        super().observe(np.nan_to_num(np.asarray(state)), action, reward, next_state, ends)


class LearnsBeforeItLooks(Own):
    def observe(self, state, action, reward, next_state, ends):
        self.weights_ += 1e-9
        super().observe(state, action, reward, next_state, ends)


class FearsRewards(Own):
    def observe(self, state, action, reward, next_state, ends):
        super().observe(state, action, reward if self.n_seen % 2 else -reward, next_state, ends)


class NeverSeesTheEnd(Own):
    def observe(self, state, action, reward, next_state, ends):
        super().observe(state, action, reward, next_state, False)


class SeesOnlyTheNextStep(Own):
    def observe(self, state, action, reward, next_state, ends):
        super().observe(state, action, reward, next_state, True)


@pytest.mark.parametrize(
    "learner, sentence",
    [
        (TakesEveryParameter(), "set params returns the learner and refuses unknown parameters"),
        (WaitsForDataToAct(), "it acts and answers before it has learnt"),
        (CountsInPlaces(), "it acts and answers before it has learnt"),
        (RemembersForOthers(), "a clone has the same parameters and knows no more than a new learner"),
        (NeverLearns(), "a clone has the same parameters and knows no more than a new learner"),
        (ActsByTheClock(), "predict chooses the best action"),
        (RepairsWhatItSees(), "a refused observation loses nothing"),
        (LearnsBeforeItLooks(), "a refused observation loses nothing"),
        (FearsRewards(), "it finds the action that is paid"),
        (NeverSeesTheEnd(), "a final reward counts once and is discounted on the way to it"),
        (SeesOnlyTheNextStep(), "a final reward counts once and is discounted on the way to it"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_habit_that_is_missing_is_named(learner, sentence):
    with pytest.raises(AssertionError) as caught:
        check_learner(learner)
    assert f"fails the check that {sentence!r}" in str(caught.value)
