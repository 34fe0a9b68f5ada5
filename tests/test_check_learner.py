"""The battery for learners: the library's pass it, and it finds what is wrong with others."""

import warnings

import numpy as np
import pytest

import kbrl
from kbrl import KBRL, KBSF, LSPI, SARSA, Committee, FittedQ, Growth, KbrlWarning, Variant
from kbrl.data.transitions import as_log
from kbrl.learners.learner import Learner
from kbrl.testing import check_learner, checks_for

LEARNERS = [
    KBSF(),
    KBSF(20, sample_neighbors=3, rep_neighbors=2, variant=Variant(q_function="samples")),
    KBSF(20, sample_neighbors=3, rep_neighbors=2, variant=Variant(neighborhoods="per_chunk")),
    KBSF(30, growth=Growth(distance=0.5, max_reps=40)),
    KBSF(variant=Variant(aggregation="hard")),
    KBSF(reps="farthest", variant=Variant(profile="gaussian", terminals="continue")),
    KBRL(),
    KBRL(sample_neighbors=3),
    LSPI(),
    LSPI(20, features="raw", ridge=0.0, neighbors=3),
    FittedQ(12, n_trees=3, freeze_after=4),
    FittedQ(12, n_trees=3, freeze_after=4, per_action=False),
    Committee(KBSF(reps="random"), 2, vote="mean"),
    Committee(KBSF(reps="random"), 3, vote="majority"),
    SARSA(3, [0.0, 0.0], [1.0, 1.0], step_size=0.1),
    SARSA(["a", "b"], [0.0, 0.0], [1.0, 1.0], n_tilings=8, step_size=0.5, trace_decay=0.9, exploration=0.0),
]


def test_no_public_learner_is_forgotten():
    public = [getattr(kbrl, name) for name in kbrl.__all__]
    learners = {one for one in public if isinstance(one, type) and issubclass(one, Learner)}
    assert learners == {type(learner) for learner in LEARNERS}


@pytest.mark.parametrize(
    "learner, check",
    [(learner, check) for learner in LEARNERS for check in checks_for(learner)],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
@pytest.mark.filterwarnings("ignore::kbrl.KbrlWarning")
def test_the_librarys_learners_pass(learner, check):
    if isinstance(learner, FittedQ):
        pytest.importorskip("sklearn")
    check(learner)


def test_what_a_learner_warns_of_is_not_held_against_it():
    with warnings.catch_warnings():
        warnings.simplefilter("error", KbrlWarning)
        check_learner(KBSF(n_reps=1000))


class Own(KBSF):
    """A learner of one's own; the broken ones below lack one of its habits each."""

    def __init__(self, discount=0.99, random_state=None, n_jobs=None):
        super().__init__(50, discount=discount, random_state=random_state, n_jobs=n_jobs)


def test_a_learner_of_ones_own_passes():
    check_learner(Own())


class RoundsItsDiscount(Own):
    def __init__(self, discount=0.99, random_state=None, n_jobs=None):
        super().__init__(float(f"{discount:.2f}"), random_state, n_jobs)


class IgnoresSetParams(Own):
    def set_params(self, **params):
        return self


class AnswersBeforeFit(Own):
    def predict(self, states):
        return super().predict(states) if hasattr(self, "model_") else np.zeros(len(states))


class FitsInSilence(Own):
    def fit(self, log):
        super().fit(log)


class KeepsItsFirstLog(Own):
    def fit(self, log):
        self._first = getattr(self, "_first", log)
        return super().fit(self._first)


class ForgetsTooSoon(Own):
    def fit(self, log):
        self.__dict__.pop("model_", None)
        return super().fit(log)


class DependsOnTheClock(Own):
    def q_values(self, states):
        return super().q_values(states) + np.random.default_rng().random()


class AnswersWithPlaces(Own):
    def predict(self, states):
        return np.argmax(self.q_values(states), axis=1)


class TurnsItsTable(Own):
    def q_values(self, states):
        return super().q_values(states).T


class ChoosesTheWorst(Own):
    def predict(self, states):
        worst = np.argmin(self.q_values(states), axis=1)
        return self.action_labels_[worst]


class SortsItsLabels(Own):
    def q_values(self, states):
        return super().q_values(states)[:, np.argsort(self.action_labels_)]


class HopesForTheUnknown(Own):
    def q_values(self, states):
        q = super().q_values(states)
        return np.where(np.isfinite(q), q, 0.0)


class ComparesStates(Own):
    def q_values(self, states):
        return super().q_values(states) + np.mean(states)


class TakesNanForZero(Own):
    def q_values(self, states):
        return super().q_values(np.nan_to_num(np.asarray(states, dtype=float)))


class ShiftsStatesInPlace(Own):
    def q_values(self, states):
        q = super().q_values(states)
        if isinstance(states, np.ndarray):
            states += 1.0
        return q


class IgnoresEnds(Own):
    def fit(self, log):
        return super().fit(as_log(log).replaced(terminals=np.zeros(len(log), dtype=bool)))


class TakesEveryRowForAnEnd(Own):
    def fit(self, log):
        return super().fit(as_log(log).replaced(terminals=np.ones(len(log), dtype=bool)))


class VotesInSecret(Committee):
    """It chooses by votes, and says that it chooses by values."""

    chooses_by = "q_values"


class TakesTheFewestVotes(Committee):
    """It says that it chooses by votes, and takes the action with the fewest."""

    def predict(self, states):
        fewest = self.votes(states).argmin(axis=1)
        return self.action_labels_[fewest]


@pytest.mark.parametrize(
    "learner, sentence",
    [
        (RoundsItsDiscount(), "parameters are stored untouched"),
        (IgnoresSetParams(), "set params changes parameters and refuses unknown ones"),
        (AnswersBeforeFit(), "a question before fit is refused"),
        (FitsInSilence(), "fit returns the learner"),
        (KeepsItsFirstLog(), "fit again forgets what was learnt"),
        (ForgetsTooSoon(), "a refused fit loses nothing"),
        (DependsOnTheClock(), "predict chooses the best action"),
        (AnswersWithPlaces(), "predict answers with labels of the log"),
        (TurnsItsTable(), "q values has one row per state and one column per action"),
        (ChoosesTheWorst(), "predict chooses the best action"),
        (SortsItsLabels(), "columns are in the order of the labels and the best paid action is chosen"),
        (HopesForTheUnknown(), "an action never tried is minus infinity and never chosen"),
        (ComparesStates(), "every state is answered by itself"),
        (TakesNanForZero(), "states that are none are refused"),
        (ShiftsStatesInPlace(), "the log and the states are left as they were"),
        (IgnoresEnds(), "a final reward counts once and is discounted on the way"),
        (VotesInSecret(KBSF(2, reps="random"), 2, random_state=0), "predict chooses the best action"),
        (TakesTheFewestVotes(KBSF(reps="random"), 3), "predict chooses the best action"),
        (TakesEveryRowForAnEnd(), "a final reward counts once and is discounted on the way"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_habit_that_is_missing_is_named(learner, sentence):
    with pytest.raises(AssertionError) as caught:
        check_learner(learner)
    assert f"fails the check that {sentence!r}" in str(caught.value)


@pytest.mark.parametrize("nonsense", [KBSF, None, "KBSF", np.argmax])
def test_what_is_no_learner_is_refused(nonsense):
    with pytest.raises(TypeError, match="needs a learner with fit, or with act and observe"):
        check_learner(nonsense)
