"""Checks of a learner's answers, ``predict`` and ``q_values``, however it has learnt."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats
from kbrl.data.transitions import Transitions
from kbrl.mdp.dynamic_programming import TIE
from kbrl.testing.lessons import LABELS, refuses, same, some_log, some_states, taught


def q_values_has_one_row_per_state_and_one_column_per_action(learner: Any) -> None:
    """All values are finite, because every action was tried."""
    states = some_states()
    q = taught(learner, some_log()).q_values(states)
    assert np.shape(q) == (len(states), 3), f"its shape is {np.shape(q)}, for {len(states)} states and 3 actions"
    assert np.isfinite(q).all(), "not all of it is finite"


def the_log_and_the_states_are_left_as_they_were(learner: Any) -> None:
    """Neither learning nor a question changes its input."""
    log, states = some_log(), some_states()
    kept = [np.array(field) for field in _fields(log)]
    model = taught(learner, log)
    model.predict(states)
    model.q_values(states)
    for before, after in zip(kept, _fields(log), strict=True):
        assert np.array_equal(before, after), "the log was changed"
    assert np.array_equal(states, some_states()), "the states were changed"


def predict_answers_with_labels_of_the_log(learner: Any) -> None:
    """Whole numbers come back as whole numbers, words as words."""
    states = some_states()
    for labels in (np.array([10, 20, 30]), np.array(["left", "right", "wait"])):
        answers = taught(learner, some_log(labels=labels)).predict(states)
        assert np.shape(answers) == (len(states),), f"the answers have the shape {np.shape(answers)}"
        assert np.isin(answers, labels).all(), f"{np.unique(answers)} are not all among {labels}"


def predict_chooses_the_best_action(learner: Any) -> None:
    """The best column of ``q_values``, or of what ``chooses_by`` names; so does ``act`` without exploration."""
    states = some_states()
    model = taught(learner, some_log(), exploration=0.0)
    rule = getattr(model, "chooses_by", "q_values")
    scores = getattr(model, rule)(states)
    assert np.shape(scores) == (len(states), 3), f"{rule} has the shape {np.shape(scores)}"
    _are_best(model.predict(states), scores, f"predict chooses by {rule}")
    if hasattr(model, "act"):
        _are_best(np.array([model.act(state) for state in states]), scores, f"act chooses by {rule}")
    if hasattr(model, "values"):
        np.testing.assert_array_equal(model.values(states), model.q_values(states).max(axis=1))


def _are_best(answers: Array, scores: Floats, claim: str) -> None:
    chosen = scores[np.arange(len(scores)), np.searchsorted(LABELS, answers)]
    largest = np.abs(np.where(np.isfinite(scores), scores, 0.0)).max(axis=1)
    is_best = chosen >= scores.max(axis=1) - TIE * largest  # any action that is best up to rounding will do
    assert is_best.all(), f"{claim}, but another action is better there"


def columns_are_in_the_order_of_the_labels_and_the_best_paid_action_is_chosen(learner: Any) -> None:
    """One state, three actions that end the episode; the last in the alphabet is named first, and is paid."""
    actions = np.repeat(["stay", "go", "rest"], 20)
    states = np.zeros((60, 2))
    log = Transitions(
        states, actions, actions == "stay", states, np.ones(60, dtype=bool), action_labels=["stay", "go", "rest"]
    )
    model = taught(learner, log)
    assert model.q_values(states[:1]).argmax() == 0, "its column is not the largest"
    assert model.predict(states[:1])[0] == "stay", f"predict answers {model.predict(states[:1])[0]}"


def the_same_random_state_gives_the_same_answers_whatever_the_number_of_threads(learner: Any) -> None:
    """To the last bit."""
    states = some_states()
    one, *others = (taught(learner, some_log(), random_state=3, n_jobs=n_jobs) for n_jobs in (1, 1, 2))
    values, choices = one.q_values(states), one.predict(states)
    for other in others:
        same(other.q_values(states), values)
        assert np.array_equal(other.predict(states), choices), "it chooses differently"


def every_state_is_answered_by_itself(learner: Any) -> None:
    """The answer for a state does not depend on the other states asked about."""
    states = some_states()
    model = taught(learner, some_log())
    alone = np.concatenate([model.q_values(state[None]) for state in states])
    np.testing.assert_allclose(model.q_values(states), alone, rtol=1e-9, atol=1e-12)


def states_may_come_as_lists_in_single_precision_or_in_columns(learner: Any) -> None:
    """The same numbers in another form are the same states."""
    model = taught(learner, some_log())
    states = some_states().astype(np.float32).astype(np.float64)
    expected = model.q_values(states)
    for form in (states.tolist(), states.astype(np.float32), np.asfortranarray(states), states[::-1][::-1]):
        np.testing.assert_allclose(model.q_values(form), expected, rtol=1e-12)


def states_that_are_none_are_refused(learner: Any) -> None:
    """NaN, infinity, another number of variables, no rows, one dimension, words."""
    model = taught(learner, some_log())
    bad = {
        "NaN": [[0.0, np.nan]],
        "infinity": [[np.inf, 0.0]],
        "one variable too few": [[0.0]],
        "one variable too many": [[0.0, 0.0, 0.0]],
        "no rows": np.empty((0, 2)),
        "one dimension": [0.0, 0.0],
        "words": [["a", "b"]],
    }
    for what, states in bad.items():
        for question in (model.predict, model.q_values):
            refuses(lambda states=states, question=question: question(states), f"states with {what}")  # type: ignore[misc]


def one_action_is_enough(learner: Any) -> None:
    """A log with a single label is learnt, and that action is the answer."""
    states = some_states()
    model = taught(learner, some_log(n_actions=1))
    assert model.q_values(states).shape == (len(states), 1), "there is not one column"
    assert np.isfinite(model.q_values(states)).all(), "its values are not finite"
    assert (model.predict(states) == 0).all(), "it is not chosen"


def variables_and_rewards_that_never_change_do_no_harm(learner: Any) -> None:
    """A constant variable, constant rewards, and the same transition many times."""
    log = some_log()
    flat = np.column_stack([log.states[:, 0], np.full(len(log), 7.0)])
    for odd in (
        Transitions(flat, log.actions, log.rewards, flat),
        Transitions(log.states, log.actions, np.zeros(len(log)), log.next_states),
        log[np.zeros(30, dtype=np.intp)],
    ):
        q = taught(learner, odd).q_values(odd.states)
        assert np.isfinite(q.max(axis=1)).all(), f"no finite value for {odd!r}"


def _fields(log: Transitions) -> list[Array]:
    return [log.states, log.action_indices, log.rewards, log.next_states, log.terminals, log.action_labels]
