"""What every learner must be able to do: a battery of checks, for the library's learners and for a user's own.

``check_learner(learner)`` runs them all on copies of the learner; to see them one by one in pytest, parametrize over
``LEARNER_CHECKS``.  Each check is a sentence that is true of a learner, and works on a small log of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats
from kbrl.checks import KbrlWarning, NotFittedError
from kbrl.data.transitions import Transitions
from kbrl.learners.estimator import clone

Check = Callable[[Any], None]

_DISCOUNT = 0.5  # for problems worked out by hand
_BLUR = 0.1  # by how much smoothing and regularisation may move their values


def check_learner(learner: Any) -> None:
    """Run every check on copies of a learner with its parameters; AssertionError names the first one that fails.

    The learner must take states of two variables, with any number of actions and from one transition upwards, and
    tell states apart that are 1000 units, or seven standard deviations, from each other.
    """
    for check in LEARNER_CHECKS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", KbrlWarning)  # such as: fewer states than representative states
                check(learner)
        except Exception as error:
            sentence = check.__name__.replace("_", " ")
            reason = str(error).strip() or type(error).__name__
            raise AssertionError(f"{learner!r} fails the check that {sentence!r}: {reason}") from error


# Parameters


def parameters_are_stored_untouched(learner: Any) -> None:
    """The constructor keeps the very objects it gets, and fit does not change them."""
    params = learner.get_params()
    fresh = type(learner)(**params)
    for moment in ("after construction", "after fit"):
        for name, value in params.items():
            assert getattr(fresh, name) is value, f"{name} is not the object that was passed, {moment}"
        fresh.fit(_log())


def set_params_changes_parameters_and_refuses_unknown_ones(learner: Any) -> None:
    """It returns the learner, and an unknown name is a ValueError."""
    copy = clone(learner)
    for name in copy.get_params():
        marker = object()
        assert copy.set_params(**{name: marker}) is copy, "set_params must return the learner"
        assert copy.get_params()[name] is marker, f"set_params did not change {name}"
    _refuses(lambda: copy.set_params(no_such_parameter=1), "an unknown parameter")


def a_clone_has_the_same_parameters_and_has_learnt_nothing(learner: Any) -> None:
    """A clone of a fitted learner is one that has not been fitted."""
    copy = clone(clone(learner).fit(_log()))
    for name, value in learner.get_params().items():
        assert copy.get_params()[name] is value, f"{name} was not handed on"
    a_question_before_fit_is_refused(copy)


# Fitting


def a_question_before_fit_is_refused(learner: Any) -> None:
    """The error is a NotFittedError, kbrl's or scikit-learn's."""
    fresh = clone(learner)
    for question in (fresh.predict, fresh.q_values):
        error = _error_of(lambda question=question: question(_states()))  # type: ignore[misc]
        assert error is not None, f"{question.__name__} answered"
        is_right = isinstance(error, NotFittedError) or type(error).__name__ == "NotFittedError"
        assert is_right, f"{question.__name__} raised {type(error).__name__} instead"


def fit_returns_the_learner(learner: Any) -> None:
    """So that model = Learner().fit(log) works."""
    copy = clone(learner)
    assert copy.fit(_log()) is copy, "fit returned something else"


def fit_again_forgets_what_was_learnt(learner: Any) -> None:
    """A second fit gives what a first fit to the same log gives."""
    states = _states()
    twice = _with(learner, random_state=0).fit(_log(seed=1, n_actions=2)).fit(_log())
    once = _with(learner, random_state=0).fit(_log())
    _same(twice.q_values(states), once.q_values(states))


def a_refused_fit_loses_nothing(learner: Any) -> None:
    """What is no log is refused, and the answers stay what they were."""
    states = _states()
    fitted = clone(learner).fit(_log())
    before = fitted.q_values(states)
    for nonsense in (None, [[0.0, 1.0]], np.zeros((3, 2)), "log"):
        _refuses(lambda nonsense=nonsense: fitted.fit(nonsense), f"a fit to {nonsense!r}")  # type: ignore[misc]
    _same(fitted.q_values(states), before)


def the_same_random_state_gives_the_same_answers_whatever_the_number_of_threads(learner: Any) -> None:
    """To the last bit."""
    states = _states()
    one, again = (_with(learner, random_state=3, n_jobs=1).fit(_log()) for _ in range(2))
    _same(one.q_values(states), again.q_values(states))
    many = _with(learner, random_state=3, n_jobs=2).fit(_log())
    _same(one.q_values(states), many.q_values(states))


def the_log_and_the_states_are_left_as_they_were(learner: Any) -> None:
    """Neither fit nor a question changes its input."""
    log, states = _log(), _states()
    kept = [np.array(field) for field in _fields(log)]
    fitted = clone(learner).fit(log)
    fitted.predict(states)
    fitted.q_values(states)
    for before, after in zip(kept, _fields(log), strict=True):
        assert np.array_equal(before, after), "the log was changed"
    assert np.array_equal(states, _states()), "the states were changed"


# Answers


def predict_answers_with_labels_of_the_log(learner: Any) -> None:
    """Whole numbers come back as whole numbers, words as words."""
    states = _states()
    for labels in (np.array([10, 20, 30]), np.array(["left", "right", "wait"])):
        answers = clone(learner).fit(_log(labels=labels)).predict(states)
        assert np.shape(answers) == (len(states),), f"the answers have the shape {np.shape(answers)}"
        assert np.isin(answers, labels).all(), f"{np.unique(answers)} are not all among {labels}"


def q_values_has_one_row_a_state_and_one_column_an_action(learner: Any) -> None:
    """All of them numbers where every action was tried."""
    states = _states()
    q = clone(learner).fit(_log()).q_values(states)
    assert np.shape(q) == (len(states), 3), f"its shape is {np.shape(q)}, for {len(states)} states and 3 actions"
    assert np.isfinite(q).all(), "not all of it is finite"


def predict_chooses_the_best_column_of_q_values(learner: Any) -> None:
    """And so do ``act`` and ``values``, where there are such."""
    states = _states()
    fitted = clone(learner).fit(_log())
    q, answers = fitted.q_values(states), fitted.predict(states)
    chosen = np.searchsorted(_LABELS, answers)
    assert (q[np.arange(len(q)), chosen] == q.max(axis=1)).all(), "another action has a higher value"
    if hasattr(fitted, "act"):
        assert [fitted.act(state) for state in states] == answers.tolist(), "act answers differently"
    if hasattr(fitted, "values"):
        np.testing.assert_array_equal(fitted.values(states), q.max(axis=1))


def columns_are_in_the_order_of_the_labels_and_the_best_paid_action_is_chosen(learner: Any) -> None:
    """One state, three actions that end the episode; the last in the alphabet is named first, and is paid."""
    actions = np.repeat(["stay", "go", "rest"], 20)
    states = np.zeros((60, 2))
    log = Transitions(
        states, actions, actions == "stay", states, np.ones(60, dtype=bool), action_labels=["stay", "go", "rest"]
    )
    fitted = clone(learner).fit(log)
    assert fitted.q_values(states[:1]).argmax() == 0, "its column is not the largest"
    assert fitted.predict(states[:1])[0] == "stay", f"predict answers {fitted.predict(states[:1])[0]}"


def an_action_never_tried_is_minus_infinity_and_never_chosen(learner: Any) -> None:
    """Even where all that was tried lost."""
    states = _states()
    log = _log(n_actions=2)
    log = Transitions(log.states, log.action_indices, log.rewards - 9.0, log.next_states, action_labels=[0, 1, 2])
    fitted = clone(learner).fit(log)
    q = fitted.q_values(states)
    assert (q[:, 2] == -np.inf).all(), f"its values are {q[:3, 2]} ..."
    assert np.isfinite(q[:, :2]).all(), "the actions that were tried have no finite value"
    assert (fitted.predict(states) != 2).all(), "it is chosen"


def every_state_is_answered_by_itself(learner: Any) -> None:
    """The answer to a state does not depend on what else is asked."""
    states = _states()
    fitted = clone(learner).fit(_log())
    alone = np.concatenate([fitted.q_values(state[None]) for state in states])
    np.testing.assert_allclose(fitted.q_values(states), alone, rtol=1e-9, atol=1e-12)


def states_may_come_as_lists_in_single_precision_or_in_columns(learner: Any) -> None:
    """The same numbers in another form are the same states."""
    fitted = clone(learner).fit(_log())
    states = _states().astype(np.float32).astype(np.float64)
    expected = fitted.q_values(states)
    for form in (states.tolist(), states.astype(np.float32), np.asfortranarray(states), states[::-1][::-1]):
        np.testing.assert_allclose(fitted.q_values(form), expected, rtol=1e-12)


def states_that_are_none_are_refused(learner: Any) -> None:
    """NaN, infinity, another number of variables, no rows, one dimension, words."""
    fitted = clone(learner).fit(_log())
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
        for question in (fitted.predict, fitted.q_values):
            _refuses(lambda states=states, question=question: question(states), f"states with {what}")  # type: ignore[misc]


# Small and odd logs


def one_transition_is_enough(learner: Any) -> None:
    """There is one action, and it is the answer."""
    states = _states()
    fitted = clone(learner).fit(_log()[:1])
    log = _log()[:1]
    assert np.isin(fitted.predict(states), log.actions).all(), "another action is chosen"
    assert not np.isnan(fitted.q_values(states)).any(), "its value is not a number"


def one_action_is_enough(learner: Any) -> None:
    """With a single label."""
    states = _states()
    fitted = clone(learner).fit(_log(n_actions=1))
    assert fitted.q_values(states).shape == (len(states), 1), "there is not one column"
    assert np.isfinite(fitted.q_values(states)).all(), "its values are not finite"
    assert (fitted.predict(states) == 0).all(), "it is not chosen"


def variables_and_rewards_that_never_change_do_no_harm(learner: Any) -> None:
    """A constant variable, constant rewards, and the same transition many times."""
    log = _log()
    flat = np.column_stack([log.states[:, 0], np.full(len(log), 7.0)])
    for odd in (
        Transitions(flat, log.actions, log.rewards, flat),
        Transitions(log.states, log.actions, np.zeros(len(log)), log.next_states),
        log[np.zeros(30, dtype=np.intp)],
    ):
        q = clone(learner).fit(odd).q_values(odd.states)
        assert np.isfinite(q.max(axis=1)).all(), f"no finite value for {odd!r}"


def the_units_of_the_states_do_no_harm(learner: Any) -> None:
    """Values are finite for states of a millionth and of a million."""
    log = _log()
    for unit in (1e-6, 1e6):
        other = Transitions(log.states * unit, log.actions, log.rewards, log.next_states * unit, log.terminals)
        q = clone(learner).fit(other).q_values(other.states)
        assert np.isfinite(q).all(), f"not at {unit:g}"


# Problems worked out by hand


def a_final_reward_counts_once_and_is_discounted_on_the_way(learner: Any) -> None:
    """Away, one may stay or go home; at home, going pays 1 and ends: worth 1 at home, the discount away."""
    away, home = [0.0, 0.0], [1000.0, 1000.0]
    states, next_states = [away] * 600 + [home] * 10, [away] * 300 + [home] * 310
    rewards, ends = [0.0] * 600 + [1.0] * 10, [False] * 600 + [True] * 10
    log = Transitions(states, ["stay"] * 300 + ["go"] * 310, rewards, next_states, ends, action_labels=["go", "stay"])
    fitted = _with(learner, discount=_DISCOUNT, terminals="absorb", random_state=0).fit(log)
    discount = _discount(fitted)
    q = fitted.q_values([home, away])
    for what, value, expected in (
        ("going at home", q[0, 0], 1.0),
        ("going from away", q[1, 0], discount),
        ("staying away", q[1, 1], discount**2),
    ):
        assert abs(value - expected) <= _BLUR * expected, (
            f"{what} should be worth {expected:.3g}, but it is {value:.3g}"
        )
    assert fitted.predict([away])[0] == "go", "away, it stays"


def a_reward_for_ever_is_worth_its_discounted_sum(learner: Any) -> None:
    """One state, one action, a reward of 1 at every step: 1 / (1 - discount); a time limit is no end."""
    log = Transitions(np.zeros((50, 2)), ["work"] * 50, np.ones(50), np.zeros((50, 2)), [False] * 50)
    fitted = _with(learner, discount=_DISCOUNT, random_state=0).fit(log)
    expected, value = 1.0 / (1.0 - _discount(fitted)), fitted.q_values([[0.0, 0.0]])[0, 0]
    assert abs(value - expected) <= _BLUR * expected, f"it should be worth {expected:.3g}, but it is {value:.3g}"


# Those first without which the others could not be told.
LEARNER_CHECKS: tuple[Check, ...] = (
    set_params_changes_parameters_and_refuses_unknown_ones,
    a_question_before_fit_is_refused,
    fit_returns_the_learner,
    parameters_are_stored_untouched,
    a_clone_has_the_same_parameters_and_has_learnt_nothing,
    q_values_has_one_row_a_state_and_one_column_an_action,
    the_log_and_the_states_are_left_as_they_were,
    predict_answers_with_labels_of_the_log,
    predict_chooses_the_best_column_of_q_values,
    columns_are_in_the_order_of_the_labels_and_the_best_paid_action_is_chosen,
    the_same_random_state_gives_the_same_answers_whatever_the_number_of_threads,
    fit_again_forgets_what_was_learnt,
    a_refused_fit_loses_nothing,
    an_action_never_tried_is_minus_infinity_and_never_chosen,
    every_state_is_answered_by_itself,
    states_may_come_as_lists_in_single_precision_or_in_columns,
    states_that_are_none_are_refused,
    one_transition_is_enough,
    one_action_is_enough,
    variables_and_rewards_that_never_change_do_no_harm,
    the_units_of_the_states_do_no_harm,
    a_final_reward_counts_once_and_is_discounted_on_the_way,
    a_reward_for_ever_is_worth_its_discounted_sum,
)

_LABELS = np.arange(3)


def _states() -> Floats:
    """Return twelve states, every time anew: whoever changes them harms no other check."""
    return np.random.default_rng(7).random((12, 2))


def _log(*, seed: int = 0, n_actions: int = 3, labels: Array = _LABELS) -> Transitions:
    """Return forty random transitions of two variables; every action is tried, some episodes end."""
    rng = np.random.default_rng(seed)
    n = 40
    return Transitions(
        rng.random((n, 2)),
        labels[np.arange(n) % n_actions],
        rng.random(n),
        rng.random((n, 2)),
        np.arange(n) % 10 == 9,
        action_labels=labels[:n_actions],
    )


def _fields(log: Transitions) -> list[Array]:
    return [log.states, log.action_indices, log.rewards, log.next_states, log.terminals, log.action_labels]


def _with(learner: Any, **params: Any) -> Any:
    """Return a copy with those of the parameters that the learner, or a learner among its parameters, has."""
    known = learner.get_params()
    inner = {name: _with(value, **params) for name, value in known.items() if _is_learner(value)}
    return clone(learner).set_params(**inner | {name: value for name, value in params.items() if name in known})


def _discount(learner: Any) -> float:
    """Return the discount of a learner, or of a learner among its parameters."""
    known = learner.get_params()
    inner = [_discount(value) for value in known.values() if _is_learner(value)]
    return float(known.get("discount", inner[0] if inner else _DISCOUNT))


def _is_learner(value: Any) -> bool:
    return hasattr(value, "get_params") and hasattr(value, "q_values")


def _same(ours: Floats, theirs: Floats) -> None:
    assert np.array_equal(ours, theirs), f"values differ by up to {np.abs(ours - theirs).max():.1e}"


def _refuses(call: Callable[[], Any], what: str) -> None:
    error = _error_of(call)
    assert error is not None, f"it accepted {what}"
    assert isinstance(error, (ValueError, TypeError)), f"{what} raised {type(error).__name__}: {error}"


def _error_of(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None
