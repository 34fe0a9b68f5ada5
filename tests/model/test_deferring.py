"""A model that defers: as now without support or without a gain, the same through files, sums and further learning."""

import numpy as np
import pytest

from kbrl import KBSF, Transitions, Variant, coverage, explain, load_model, save_model
from kbrl.mdp.deferral import Deferral
from kbrl.model.kernels import Kernel
from kbrl.model.q_functions import DeferringQ
from samples import random_log


def ward(n=400, seed=0, gain=0.0):
    """Two actions in [0, 1], and below 0.5 "b" pays more; it is rare, and never taken above 0.7."""
    rng = np.random.default_rng(seed)
    states = rng.random((n, 1))
    is_b = (rng.random(n) < 0.3) & (states[:, 0] < 0.7)
    rewards = rng.normal(0.0, 0.1, n) + np.where(is_b & (states[:, 0] < 0.5), gain, 0.0)
    return Transitions(states, np.where(is_b, "b", "a"), rewards, rng.random((n, 1)), episodes=np.arange(n) // 5)


def fitted(log, **more):
    return KBSF(
        **(
            {"n_reps": 12, "sample_width": 0.1, "rep_width": 0.1, "discount": 0.5, "random_state": 0, "min_cases": 1}
            | more
        )
    ).fit(log)


GRID = np.linspace(0.0, 1.0, 41)[:, None]


def test_an_answer_is_a_change_only_where_its_support_is_at_least_the_cases():
    check_support(fitted(ward(gain=1.0)).deferring(cases=5, caution=0.0))


def check_support(safe):
    answers, support = safe.predict(GRID), coverage(safe, GRID).support
    own = {"a": support[:, 0], "b": support[:, 1]}
    assert {"a", "b", "as now"} >= set(answers.tolist()) >= {"b", "as now"}
    for k, answer in enumerate(answers.tolist()):
        assert answer == "as now" or own[answer][k] >= 5
    assert not (answers[GRID[:, 0] > 0.9] == "b").any()


def test_a_clear_gain_is_recommended_and_no_gain_is_left_to_people():
    low = GRID[GRID[:, 0] < 0.4]
    assert (fitted(ward(gain=1.0)).deferring().predict(low) == "b").all()
    assert (fitted(ward(gain=0.0)).deferring(caution=3.0).predict(low) == "as now").all()


def test_more_cases_and_more_caution_defer_more_often():
    check_shares(fitted(ward(gain=0.15)), (1, 5, 20, 1e6))


def check_shares(model, cases):
    shares = [model.deferring(least, 0.5).deferred(GRID).mean() for least in cases]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    shares = [model.deferring(3, caution).deferred(GRID).mean() for caution in (0.0, 1.0, 4.0, 1e6)]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_where_all_is_left_to_people_the_value_is_the_return_of_the_log():
    rng = np.random.default_rng(0)  # one state, rewards 0 and 1 by two actions: current practice pays 0.25 per step
    actions = np.where(rng.permutation(400) < 100, "b", "a")
    log = Transitions(np.zeros((400, 1)), actions, (actions == "b") * 1.0, np.zeros((400, 1)))
    safe = KBSF(reps=[[0.0]], discount=0.9, scaling=None).fit(log).deferring(cases=1000)
    assert safe.predict([[0.0]]).tolist() == ["as now"]
    np.testing.assert_allclose(safe.q_values([[0.0]]), [[-np.inf, -np.inf, 2.5]], atol=1e-6)


def test_predict_act_policy_deferred_and_values_agree():
    safe = fitted(ward(gain=1.0)).deferring()
    answers = safe.predict(GRID)
    assert [safe.act(state) for state in GRID] == answers.tolist() == safe.policy()(GRID).tolist()
    assert (safe.deferred(GRID) == (answers == "as now")).all()
    np.testing.assert_array_equal(safe.model_.values(GRID), safe.q_values(GRID).max(axis=1))
    assert not fitted(ward()).deferred(GRID).any()


def test_in_doubt_between_equals_the_decision_is_left_to_people():
    log = Transitions([[0.0]] * 8, ["a", "b"] * 4, [1.0] * 8, [[0.0]] * 8)
    safe = KBSF(reps=[[0.0]], discount=0.5, scaling=None, min_cases=1).fit(log).deferring(caution=0.0)
    assert safe.predict([[0.0]]).tolist() == ["as now"]


def test_an_action_is_chosen_only_where_most_of_the_weight_prefers_it():
    # at 0 and 1: "a" gains 9 at 0, loses 1 at 1, so that its mean gain is 0 at the share 0.1 of the weight of 0;
    # "b" gains 1 at 1 only, and is not offered at 0
    at = Kernel(0.5).at(np.array([[0.0], [1.0]]))
    rep_q = np.array([[9.0, -np.inf, 0.0], [-1.0, 1.0, 0.0]])
    q = DeferringQ.from_reps(at, rep_q, lambda states: np.full((len(states), 2), 10.0), cases=3)
    states = np.array([[0.0], [0.4], [0.5], [0.6], [1.0]])
    shares = at.weights(states)[:, 0]
    assert (9 * shares - (1 - shares) > 0).all()  # the mean gain of "a" is positive everywhere
    assert q(states).argmax(axis=1).tolist() == [0, 0, 2, 1, 1]
    np.testing.assert_allclose(q(states)[:, 2], 0.0)


def test_labels_that_are_numbers_stay_numbers_beside_as_now():
    log = ward(gain=1.0)
    numbered = Transitions(log.states, log.action_indices, log.rewards, log.next_states)
    answers = fitted(numbered).deferring().predict(GRID).tolist()
    assert set(map(type, answers)) == {int, str}


def test_a_label_of_an_action_cannot_mean_as_now():
    log = ward()
    named = Transitions(log.states, np.where(log.actions == "a", "as now", "b"), log.rewards, log.next_states)
    with pytest.raises(ValueError, match="An action is also called 'as now'"):
        fitted(named).deferring()
    assert "leave it" in fitted(named).deferring(label="leave it").predict(GRID).tolist()


def test_a_saved_model_defers_as_before(tmp_path):
    safe = fitted(ward(gain=1.0)).deferring(cases=4, caution=0.5, label="keep")
    save_model(safe, tmp_path / "safe.kbrl")
    loaded = load_model(tmp_path / "safe.kbrl")
    assert loaded.deferral == Deferral(4, 0.5, "keep")
    np.testing.assert_array_equal(loaded.q_values(GRID), safe.q_values(GRID))


def test_learning_in_parts_defers_like_learning_at_once():
    log = ward(gain=1.0)
    start = fitted(log[:200]).model_
    at_once = start.extend(log[200:]).deferring()
    for other in (
        start.deferring().extend(log[200:]),
        start.deferring() + start.deferring().without_data().extend(log[200:]),
    ):
        np.testing.assert_allclose(other.q_values(GRID), at_once.q_values(GRID), atol=1e-6)
    with pytest.raises(ValueError, match="these differ in: deferral"):
        start + start.deferring()


def test_forgetting_leaves_the_spread_of_the_rest():
    log = ward(gain=1.0)
    model = fitted(log).model_
    rest = (model - log[:50]).deferring()
    again = model.without_data().extend(log[50:]).deferring()
    np.testing.assert_allclose(rest.q_values(GRID), again.q_values(GRID), rtol=1e-4)


@pytest.mark.parametrize("profile", ["exponential", "gaussian", "uniform"])
def test_the_spread_of_rewards_is_that_of_the_weighted_cases(profile):
    log = random_log(60, n_actions=2, seed=3)
    model = fitted(log, n_reps=5, variant=Variant(profile=profile), sample_width=1.0).model_
    z = np.linalg.norm(model.basis.reps[:, None] - model.coordinates.of(log.states)[None], axis=2)
    kernel = {"exponential": np.exp(-z), "gaussian": np.exp(-0.5 * z**2), "uniform": (z <= 1.0) * 1.0}[profile]
    for action, rows in enumerate(log.by_action()):
        weights, rewards = kernel[:, rows], log.rewards[rows]
        known = weights.sum(axis=1) > 0
        means = (weights @ rewards)[known] / weights.sum(axis=1)[known]
        squares = (weights[known] * (rewards - means[:, None]) ** 2).sum(axis=1) / weights.sum(axis=1)[known]
        np.testing.assert_allclose(model.sums.reward_spread()[action][known], np.sqrt(squares), atol=1e-6)


def test_behaviour_is_the_share_of_each_action_among_the_cases():
    log = Transitions([[0.0]] * 4 + [[9.0]], ["a", "a", "a", "b", "b"], [0.0] * 5, [[0.0]] * 5)
    model = KBSF(reps=[[0.0], [9.0]], sample_width=0.1, scaling=None, min_cases=1).fit(log).model_
    np.testing.assert_allclose(model.sums.behaviour(), [[0.75, 0.0], [0.25, 1.0]], atol=1e-12)


@pytest.mark.parametrize("settings", [{"sample_neighbors": 4}, {"variant": Variant(q_function="samples")}])
def test_models_that_do_not_know_current_practice_do_not_defer(settings):
    with pytest.raises(ValueError, match="Only a model with sums over all cases knows"):
        fitted(ward(), **settings).deferring()


def test_without_the_spread_of_rewards_only_deferring_without_caution_is_possible():
    model = fitted(ward(gain=1.0))
    model.model_.sums.reward_squares[:] = np.nan  # as from an older file
    with pytest.raises(ValueError, match="does not know how rewards spread"):
        model.deferring()
    assert "b" in model.deferring(caution=0.0).predict(GRID).tolist()


def test_bounds_on_the_distance_from_kbrl_are_refused():
    log = ward()
    with pytest.raises(ValueError, match="defers to current practice"):
        fitted(log).deferring().bound(log)


def test_explain_gives_the_answer_and_what_it_was_compared_with():
    log = ward(gain=1.0)
    model = fitted(log)
    plain, safe = explain(model, [0.2], log=log), explain(model.deferring(), [0.2], log=log)
    assert (plain.answer, plain.as_now) == ("b", None)
    assert safe.answer == "b"
    q = model.deferring().q_values([[0.2]])[0]
    assert safe.as_now == q[2]
    assert {each.action: each.cautious_value for each in safe.actions} == {"a": q[0], "b": q[1]}
    assert [each.value for each in safe.actions] == [each.value for each in plain.actions]
    far = explain(model.deferring(), [5.0], log=log)
    assert far.answer == "as now"
    assert [each.cautious_value for each in far.actions] == [None, None]
