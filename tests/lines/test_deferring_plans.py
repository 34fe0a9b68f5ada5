"""Deferring with lines and plans: as now is a decision of its own, and values are those of the mixed policy."""

import numpy as np
import pytest

import messy_ward
from kbrl import KBSF, Plan, Transitions, explain, judge, load_log, load_model, save_model
from kbrl.lines.local_lines import local_lines
from kbrl.lines.step_loops import BLENDED
from model.test_deferring import GRID, check_shares, check_support, ward
from naive_lines import plans_from

LENGTHS = [Plan(decisions=1, hold=1), Plan(decisions=2, hold=2), Plan(decisions=2, hold=2, acting="reps")]


def fitted(log, **more):
    settings = {"n_reps": 12, "reps": "spread", "discount": 0.5, "random_state": 0, "min_cases": 1}
    return KBSF(order=1, **settings | more).fit(log)


@pytest.mark.parametrize("plan", LENGTHS)
def test_an_answer_is_a_change_only_where_its_support_is_at_least_the_cases(plan):
    check_support(fitted(ward(gain=1.0), plan=plan).deferring(cases=5, caution=0.0))


@pytest.mark.parametrize("plan", LENGTHS)
def test_a_clear_gain_is_recommended_and_no_gain_is_left_to_people(plan):
    low = GRID[GRID[:, 0] < 0.4]
    assert (fitted(ward(gain=1.0), plan=plan).deferring().predict(low) == "b").all()
    assert (fitted(ward(gain=0.0), plan=plan).deferring(caution=3.0).predict(low) == "as now").all()


def test_more_cases_and_more_caution_defer_more_often():
    check_shares(fitted(ward(gain=0.15)), (1, 5, 12, 1e6))


@pytest.mark.parametrize("plan", LENGTHS)
def test_where_all_is_left_to_people_the_value_is_the_return_of_the_log(plan):
    rng = np.random.default_rng(0)  # rewards 0 and 1 by two actions: current practice pays 0.25 per step
    actions = np.where(rng.permutation(400) < 100, "b", "a")
    log = Transitions(np.zeros((400, 1)), actions, (actions == "b") * 1.0, np.zeros((400, 1)))
    safe = KBSF(order=1, reps=[[0.0]], discount=0.9, scaling=None, plan=plan).fit(log).deferring(cases=1000)
    assert safe.predict([[0.0]]).tolist() == ["as now"]
    np.testing.assert_allclose(safe.q_values([[0.0]]), [[-np.inf, -np.inf, 2.5]], atol=1e-6)


def steered_log(n=4000, seed=0):
    """Return a log of people who push a point towards 0.4, the harder the farther it is; being there pays."""
    rng = np.random.default_rng(seed)
    states = rng.uniform(-1, 1, size=(n, 1))
    is_up = rng.random(n) < 0.5 + 0.4 * (0.4 - states[:, 0]) / 1.4
    next_states = states + np.where(is_up, 0.1, -0.1)[:, None]
    return Transitions(states, np.where(is_up, "up", "down"), -(states[:, 0] ** 2), next_states)


def test_as_now_leads_where_current_practice_leads():
    """Of the mean of people who push up with probability 0.5 + 0.4 (0.4 - s) / 1.4, by 0.1 each time."""
    model = fitted(steered_log(), n_reps=25, plan=Plan(decisions=1, hold=1)).model_
    now = local_lines(model.sums.of_all_actions())
    from kbrl.lines.plans import world_of
    from kbrl.lines.stage import predicted

    states = np.linspace(-0.8, 0.8, 9)[:, None]
    rows = model.scaled(states)
    found = model.coordinates.back(predicted(rows, np.zeros(9, dtype=np.intp), world_of(now)))
    np.testing.assert_allclose(found, states + 0.1 * 0.8 * (0.4 - states) / 1.4, atol=0.015)


@pytest.mark.parametrize("plan", LENGTHS)
def test_the_value_of_as_now_is_the_return_of_people_who_go_on_as_now(plan):
    """Where nothing is offered.  If s pays s, the mean m of s is all that counts: m - 0.4 shrinks by 0.08 / 1.4."""
    log = steered_log()
    safe = fitted(log.replaced(rewards=log.states[:, 0]), n_reps=40, discount=0.9, plan=plan).deferring(cases=1e6)
    for start in (-0.4, 0.0, 0.4):
        expected = 0.4 / (1 - 0.9) + (start - 0.4) / (1 - 0.9 * (1 - 0.08 / 1.4))
        assert safe.model_.values([[start]])[0] == pytest.approx(expected, abs=0.15)


def test_the_mdp_is_that_of_plans_rolled_out_one_by_one_with_their_doubts():
    safe = fitted(steered_log(600), plan=Plan(decisions=2, hold=2)).deferring(cases=8, caution=1.0).model_
    plans = safe.deferring_plans
    world = plans.world
    mdp = plans.mdp()
    assert plans.actions.tolist() == [0, 1, 2]
    assert not world.offered[:2].all()
    assert (world.doubts[2] == 0).all()
    assert (world.doubts[:2] > 0).any()
    for i in range(0, 12, 3):
        for number, (plan, reward, _, _, _) in enumerate(
            plans_from(world.reps[i], plans.actions, 2, 2, 0.5, world, BLENDED)
        ):
            assert mdp.rewards[number, i] == pytest.approx(reward, abs=1e-12)
            if not world.offered[plan[0], i]:
                assert not mdp.available[number, i]
    assert mdp.available[-1].all()  # as now throughout


def test_predict_act_policy_deferred_and_values_agree():
    safe = fitted(ward(gain=1.0)).deferring()
    answers = safe.predict(GRID)
    assert [safe.act(state) for state in GRID] == answers.tolist() == safe.policy()(GRID).tolist()
    assert (safe.deferred(GRID) == (answers == "as now")).all()
    np.testing.assert_array_equal(safe.model_.values(GRID), safe.q_values(GRID).max(axis=1))


def test_in_doubt_between_equals_the_decision_is_left_to_people():
    log = Transitions([[0.0]] * 8, ["a", "b"] * 4, [1.0] * 8, [[0.0]] * 8)
    safe = KBSF(order=1, reps=[[0.0]], discount=0.5, scaling=None, min_cases=1).fit(log).deferring(caution=0.0)
    assert safe.predict([[0.0]]).tolist() == ["as now"]


def test_files_sums_and_further_learning_keep_deferring(tmp_path):
    log = ward(gain=1.0)
    safe = fitted(log).deferring(cases=4).model_
    save_model(safe, tmp_path / "safe.kbrl")
    loaded = load_model(tmp_path / "safe.kbrl")
    np.testing.assert_array_equal(loaded.q_values(GRID), safe.q_values(GRID))
    empty = safe.without_data()
    both = empty.extend(log[:150]) + empty.extend(log[150:])
    np.testing.assert_allclose(both.q_values(GRID), safe.q_values(GRID), atol=1e-9)
    more = ward(200, seed=5, gain=1.0)
    np.testing.assert_array_equal(loaded.extend(more).q_values(GRID), safe.extend(more).q_values(GRID))


def test_an_explanation_says_what_as_now_is_worth():
    log = ward(gain=1.0)
    safe = fitted(log).deferring()
    found = explain(safe, [0.2], log=log)
    assert found.answer == "b"
    assert found.as_now == pytest.approx(float(safe.q_values([[0.2]])[0, -1]))


def test_it_can_be_judged():
    log = ward(1500, gain=1.0)
    safe = fitted(log[:700]).deferring()
    assert judge(safe, log[700:], discount=0.5).gain.estimate > 0


@pytest.mark.parametrize("order", [0, 1])
def test_a_model_that_defers_honours_the_rules_for_allowed_actions(order):
    frame = messy_ward.clean_log(120)
    columns = messy_ward.COLUMNS | {"allowed": {"high": "map < 65", "low": "sofa < 8"}}
    log = load_log(frame, columns=columns)
    learner = KBSF(60, order=order, discount=0.9, random_state=0, sample_width=0.5, rep_width=0.5)
    safe = learner.fit(log).deferring(cases=1, caution=0.0)
    answers = safe.predict(log.states)
    assert {"high", "low", "as now"} <= set(answers)
    assert (log.states[answers == "high"][:, 1] < 65).all()
    assert (log.states[answers == "low"][:, 0] < 8).all()
