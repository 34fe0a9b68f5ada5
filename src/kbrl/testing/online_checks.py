"""Checks of a learner that learns only while acting: it has ``act`` and ``observe`` in place of ``fit``.

It is made for states of two variables in the unit square, and gets the labels of its actions by the parameter
``actions``.  An action that was never tried must be tried at some point, so its value is finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats
from kbrl.learners.learner import clone
from kbrl.testing.lessons import (
    DISCOUNT,
    discount_of,
    is_worth,
    refuses,
    same,
    some_log,
    some_states,
    taught,
    with_params,
)

_LABELS = np.array(["left", "right", "wait"])
_HERE, _THERE = [0.25, 0.25], [0.75, 0.75]
_AT_MOST = 20_000  # repetitions of a problem until its values settle


def set_params_returns_the_learner_and_refuses_unknown_parameters(learner: Any) -> None:
    """A known one is stored as it is."""
    copy = clone(learner)
    for name, value in learner.get_params(deep=False).items():
        assert copy.set_params(**{name: value}) is copy, "set_params must return the learner"
        assert copy.get_params()[name] is value, f"set_params did not store {name}"
    refuses(lambda: copy.set_params(no_such_parameter=1), "an unknown parameter")


def it_acts_and_answers_before_it_has_learnt(learner: Any) -> None:
    """It must act to learn; until then its values are finite."""
    fresh = with_params(learner, actions=_LABELS)
    assert fresh.act(some_states()[0]) in _LABELS, "act does not answer with a label"
    assert np.isfinite(fresh.q_values(some_states())).all(), "not all values are finite"
    assert np.isin(fresh.predict(some_states()), _LABELS).all(), "predict does not answer with labels"


def a_clone_has_the_same_parameters_and_knows_no_more_than_a_new_learner(learner: Any) -> None:
    """Whatever its original has observed."""
    model = taught(learner, some_log(), random_state=0)
    copy = clone(model)
    for name, value in model.get_params(deep=False).items():
        assert copy.get_params()[name] is value, f"{name} was not handed on"
    fresh = with_params(learner, actions=some_log().action_labels, random_state=0)
    same(copy.q_values(some_states()), fresh.q_values(some_states()))
    assert not np.array_equal(model.q_values(some_states()), fresh.q_values(some_states())), "it never learns"


def the_same_random_state_gives_the_same_behaviour(learner: Any) -> None:
    """The actions of a whole run, and the values after it, to the last bit."""
    (acted, values), (acted_again, values_again) = (_run(with_params(learner, random_state=3)) for _ in range(2))
    assert acted == acted_again, "it acts differently"
    same(values, values_again)


def a_refused_observation_loses_nothing(learner: Any) -> None:
    """NaN, a state of other variables, an action that it does not know, a reward that is not a number."""
    model = taught(learner, some_log())
    before = model.q_values(some_states())
    here, action = [0.5, 0.5], 0
    bad = {
        "NaN": ([np.nan, 0.5], action, 0.0, here, False),
        "an infinite next state": (here, action, 0.0, [np.inf, 0.5], False),
        "one variable too few": ([0.5], action, 0.0, here, False),
        "one variable too many after it": (here, action, 0.0, [0.5, 0.5, 0.5], False),
        "an unknown action": (here, 17, 0.0, here, False),
        "an infinite reward": (here, action, np.inf, here, False),
    }
    for what, transition in bad.items():
        refuses(lambda transition=transition: model.observe(*transition), what)  # type: ignore[misc]
    refuses(lambda: model.act([np.nan, 0.5]), "NaN to act in")
    same(model.q_values(some_states()), before)


def it_finds_the_action_that_is_paid(learner: Any) -> None:
    """One state, three actions that end the episode: the second one pays 1, the others nothing."""
    agent = with_params(learner, actions=_LABELS, random_state=0)
    for _ in range(1000):
        action = agent.act(_HERE)
        agent.observe(_HERE, action, float(action == "right"), _HERE, True)
    assert agent.predict([_HERE])[0] == "right", f"after 1000 tries it prefers {agent.predict([_HERE])[0]}"


def a_final_reward_counts_once_and_is_discounted_on_the_way_to_it(learner: Any) -> None:
    """Here leads to there, and there to the end, which pays 1: going is worth 1 there, and the discount here."""
    agent = with_params(learner, actions=["go"], discount=DISCOUNT, exploration=0.0, random_state=0)
    way = [(_HERE, 0.0, _THERE, False), (_THERE, 1.0, _HERE, True)]
    q = _settled(agent, way)
    is_worth("going from there", q[1, 0], 1.0)
    is_worth("going from here", q[0, 0], discount_of(agent))


def a_reward_at_every_step_is_worth_its_discounted_sum(learner: Any) -> None:
    """One state, one action, a reward of 1 at every step: 1 / (1 - discount)."""
    agent = with_params(learner, actions=["go"], discount=DISCOUNT, exploration=0.0, random_state=0)
    is_worth("it", _settled(agent, [(_HERE, 1.0, _HERE, False)])[0, 0], 1.0 / (1.0 - discount_of(agent)))


def _settled(agent: Any, way: list[tuple[Any, float, Any, bool]]) -> Floats:
    """Observe the same transitions repeatedly until the values of their states settle, and return these values."""
    states = [state for state, *_ in way]
    q = agent.q_values(states)
    for _ in range(_AT_MOST // 200):
        for _ in range(200):
            for state, reward, next_state, ends in way:
                agent.observe(state, agent.act(state), reward, next_state, ends)
        before, q = q, agent.q_values(states)
        if np.abs(q - before).max() < 1e-3:
            break
    return np.asarray(q)


def _run(learner: Any) -> tuple[list[Any], Array]:
    """Act for 200 decisions in the unit square: each action leads to its own state, and the third one ends."""
    agent = with_params(learner, actions=_LABELS)
    places = {"left": [0.1, 0.5], "right": [0.9, 0.5], "wait": [0.5, 0.9]}
    state, acted = [0.5, 0.5], []
    for _ in range(200):
        acted.append(agent.act(state))
        next_state = places[str(acted[-1])]
        agent.observe(state, acted[-1], state[0] - 0.3, next_state, acted[-1] == "wait")
        state = [0.5, 0.5] if acted[-1] == "wait" else next_state
    return acted, agent.q_values(some_states())
