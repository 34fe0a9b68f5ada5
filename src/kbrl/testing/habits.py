"""Checks of a learner's habits, which are scikit-learn's: parameters, copies, and learning from a log by ``fit``."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.checks import NotFittedError
from kbrl.data.transitions import Transitions
from kbrl.learners.exploration import as_actions
from kbrl.learners.learner import clone
from kbrl.testing.lessons import LABELS, error_of, is_online, refuses, same, some_log, some_states, teach, with_params

# Parameters


def parameters_are_stored_untouched(learner: Any) -> None:
    """The constructor keeps the very objects it gets, and learning does not change them."""
    params = learner.get_params(deep=False)
    labels = as_actions(params["actions"]) if is_online(learner) else LABELS
    fresh = type(learner)(**params)
    for moment in ("after construction", "after learning"):
        for name, value in params.items():
            assert getattr(fresh, name) is value, f"{name} is not the object that was passed, {moment}"
        teach(fresh, some_log(n_actions=len(labels), labels=labels))


def set_params_changes_parameters_and_refuses_unknown_ones(learner: Any) -> None:
    """It returns the learner, accepts any value, which ``fit`` may refuse later, and refuses unknown names."""
    copy = clone(learner)
    for name in copy.get_params(deep=False):
        marker = object()
        assert copy.set_params(**{name: marker}) is copy, "set_params must return the learner"
        assert copy.get_params()[name] is marker, f"set_params did not change {name}"
    refuses(lambda: copy.set_params(no_such_parameter=1), "an unknown parameter")


def a_clone_has_the_same_parameters_and_has_learnt_nothing(learner: Any) -> None:
    """The clone of a fitted learner is not fitted."""
    copy = clone(teach(clone(learner), some_log()))
    for name, value in learner.get_params(deep=False).items():
        assert copy.get_params()[name] is value, f"{name} was not handed on"
    a_question_before_fit_is_refused(copy)


# Fitting


def a_question_before_fit_is_refused(learner: Any) -> None:
    """The error is a NotFittedError, kbrl's or scikit-learn's."""
    fresh = clone(learner)
    for question in (fresh.predict, fresh.q_values):
        error = error_of(lambda question=question: question(some_states()))  # type: ignore[misc]
        assert error is not None, f"{question.__name__} answered"
        is_right = isinstance(error, NotFittedError) or type(error).__name__ == "NotFittedError"
        assert is_right, f"{question.__name__} raised {type(error).__name__} instead"


def fit_returns_the_learner(learner: Any) -> None:
    """So that model = Learner().fit(log) works."""
    copy = clone(learner)
    assert copy.fit(some_log()) is copy, "fit returned something else"


def fit_again_forgets_what_was_learnt(learner: Any) -> None:
    """A second fit gives what a first fit to the same log gives."""
    states = some_states()
    twice = with_params(learner, random_state=0).fit(some_log(seed=1, n_actions=2)).fit(some_log())
    once = with_params(learner, random_state=0).fit(some_log())
    same(twice.q_values(states), once.q_values(states))


def a_refused_fit_loses_nothing(learner: Any) -> None:
    """Anything but a log is refused, and the answers do not change."""
    states = some_states()
    fitted = clone(learner).fit(some_log())
    before = fitted.q_values(states)
    for nonsense in (None, [[0.0, 1.0]], np.zeros((3, 2)), "log"):
        refuses(lambda nonsense=nonsense: fitted.fit(nonsense), f"a fit to {nonsense!r}")  # type: ignore[misc]
    same(fitted.q_values(states), before)


def an_action_never_tried_is_minus_infinity_and_never_chosen(learner: Any) -> None:
    """Even where every action that was tried has a negative value."""
    states = some_states()
    log = some_log(n_actions=2)
    log = Transitions(log.states, log.action_indices, log.rewards - 9.0, log.next_states, action_labels=[0, 1, 2])
    fitted = clone(learner).fit(log)
    q = fitted.q_values(states)
    assert (q[:, 2] == -np.inf).all(), f"its values are {q[:3, 2]} ..."
    assert np.isfinite(q[:, :2]).all(), "the actions that were tried have no finite value"
    assert (fitted.predict(states) != 2).all(), "it is chosen"


def one_transition_is_enough(learner: Any) -> None:
    """There is one action, and it is the answer."""
    states, log = some_states(), some_log()[:1]
    fitted = clone(learner).fit(log)
    assert np.isin(fitted.predict(states), log.actions).all(), "another action is chosen"
    assert not np.isnan(fitted.q_values(states)).any(), "its value is not a number"


def the_units_of_the_states_do_no_harm(learner: Any) -> None:
    """Values are finite for states of about a millionth and of about a million."""
    log = some_log()
    for unit in (1e-6, 1e6):
        other = Transitions(log.states * unit, log.actions, log.rewards, log.next_states * unit, log.terminals)
        q = clone(learner).fit(other).q_values(other.states)
        assert np.isfinite(q).all(), f"not at {unit:g}"
