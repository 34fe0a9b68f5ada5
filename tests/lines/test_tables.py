"""Order 1 on tables as people have them: categories, missing values, rules for allowed actions."""

from itertools import product

import numpy as np
import pytest

import messy_ward
from kbrl import KBSF, Plan, Transitions, load_log, load_model, save_model
from kbrl.data.names import Source
from kbrl.data.recipe import Recipe, StateColumn
from kbrl.lines.plans import PlanQ
from kbrl.lines.stage import Stage
from kbrl.lines.step_loops import BLENDED
from naive_lines import blend, nearest, plans_from, step


def ward_log(n_patients=60, *, holes=True, **rules):
    frame = messy_ward.clean_log(n_patients)
    frame = messy_ward.with_holes(frame) if holes else frame
    return load_log(frame, columns=messy_ward.COLUMNS | {"missing": "median"} | rules)


def model_of(log, **more):
    settings = {"plan": Plan(decisions=2, hold=3)} | more
    return KBSF(30, order=1, reps="spread", discount=0.9, random_state=0, **settings).fit(log).model_


def quiet(plans):
    """Return the same plans, whose ends are points."""
    from dataclasses import replace

    return replace(plans, is_spread=False, world=plans.world._replace(noise=np.zeros((0, 0, 0, 0))))


@pytest.fixture(scope="module")
def ward():
    log = ward_log(category=["unit", "ventilated"])
    return log, model_of(log)


def shares_in(model, rows):
    """Return the shares of the levels of each category in scaled states."""
    states = model.coordinates.back(rows)
    return [states[..., first:stop] for first, stop in model.surface.levels if stop - first > 1]


def ends_from(model, states):
    return model.plans.ends(states, model.plans.world.cells(states)).states


def test_the_shares_of_the_levels_of_a_category_stay_shares(ward):
    log, model = ward
    found = shares_in(model, ends_from(model, model.scaled(log.states[:50])))
    assert len(found) == 2  # the unit and whether ventilated, each with holes: levels come and go
    for shares in found:
        np.testing.assert_allclose(shares.sum(axis=-1), 1.0, atol=1e-8)
        assert shares.min() >= -1e-9
        assert ((shares > 0.01) & (shares < 0.99)).any()


def test_with_levels_the_plan_mdp_is_that_of_plans_rolled_out_one_by_one(ward):
    _, model = ward
    plans, world = quiet(model.plans), quiet(model.plans).world
    mdp = plans.mdp()
    matrix = mdp.stacked.toarray().reshape(mdp.n_actions, 30, 30)
    for i in range(0, 30, 7):
        found = plans_from(world.reps[i], plans.actions, 2, 3, 0.9, world, BLENDED)
        for plan, (_, reward, alive, end, known) in enumerate(found):
            assert known
            assert mdp.rewards[plan, i] == pytest.approx(reward, abs=1e-8)  # shares off by less than 1e-9 are left
            places, weights = blend(end, world.graph[nearest(end, world.reps)], world.reps, 10)
            row = np.zeros(30)
            row[places] = alive * weights
            np.testing.assert_allclose(matrix[plan, i], row, atol=1e-7)


def test_a_category_that_never_changes_passes_through_plans_unchanged():
    log = ward_log(holes=False, category=["unit"])
    model = model_of(log)
    starts = model.scaled(log.states[:80])
    places = [k for k, name in enumerate(log.state_names) if name.startswith(("unit=", "ventilated"))]
    assert len(places) == 4
    ends = ends_from(model, starts)
    np.testing.assert_array_equal(ends[:, :, places], np.broadcast_to(starts[:, None, places], (80, 9, 4)))


def test_a_rehearsal_meets_levels_and_never_something_between_them(ward):
    log, model = ward
    world = model.plans.world._replace(noise=np.ascontiguousarray(model.lines.noise))
    stage = Stage(world, model.scaled(log.states[:20]), n_steps=6, discount=0.9, value_outside=-20.0)
    met = []

    def decide(states):
        met.append(states.copy())
        return np.zeros(len(states), dtype=np.intp)

    stage.rehearse(decide)
    for shares in shares_in(model, np.concatenate(met)):
        np.testing.assert_allclose(shares.max(axis=1), 1.0, atol=1e-9)
        np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-9)
    last = shares_in(model, met[-1])[0].argmax(axis=1)
    assert len(np.unique(last)) > 1


def test_drawn_levels_come_as_often_as_their_shares_say():
    rng = np.random.default_rng(0)
    codes, following = rng.integers(3, size=4000), rng.choice(3, size=4000, p=[0.2, 0.3, 0.5])
    recipe = Recipe((StateColumn("ward", "category", ("a", "b", "c")),))
    source = Source(recipe.variables, recipe=recipe)
    log = Transitions.trusted(
        np.eye(3)[codes], np.zeros(4000, dtype=np.intp), np.zeros(4000), np.eye(3)[following], np.zeros(4000, bool),
        None, np.array([0]), source,
    )  # fmt: skip
    model = KBSF(3, order=1, reps=np.eye(3), random_state=0).fit(log).model_
    world = model.plans.world._replace(noise=np.ascontiguousarray(model.lines.noise))
    stage = Stage(world, np.repeat(model.scaled(np.eye(3)), 1000, axis=0), 2, 0.9, 0.0)
    met = []
    stage.rehearse(lambda states: (met.append(states.copy()), np.zeros(len(states), dtype=np.intp))[1])
    np.testing.assert_allclose(model.coordinates.back(met[1]).mean(axis=0), [0.2, 0.3, 0.5], atol=0.03)


def test_a_file_with_categories_and_rules_gives_the_same_answers(ward, tmp_path):
    log = ward_log(allowed={"high": "unit == 'icu'"})
    model = model_of(log)
    save_model(model, tmp_path / "m.kbrl")
    loaded = load_model(tmp_path / "m.kbrl")
    np.testing.assert_array_equal(loaded.q_values(log.states), model.q_values(log.states))


# Rules for allowed actions.


def allowed_by_hand(state, label):
    """Return whether the rule of the test below allows an action in a state as people have it."""
    if label == "high":
        return state["map"] is not None and state["map"] < 75
    return label != "low" or state["sofa"] < 9


@pytest.fixture(scope="module")
def ruled():
    log = ward_log(allowed={"high": "map < 75", "low": "sofa < 9"})
    return log, model_of(log)


def test_no_answer_is_an_action_that_is_not_allowed_there(ruled):
    log, model = ruled
    for acting in ("ahead", "reps"):
        changed = model.with_settings(plan=Plan(decisions=2, hold=3, acting=acting))
        answers = changed.predict(log.states[:300])
        rows = [model.recipe.described(state) for state in log.states[:300]]
        assert all(allowed_by_hand(row, label) for row, label in zip(rows, answers))
        assert {"high", "low"} & set(answers)
        q = changed.q_values(log.states[:300])
        for row, values in zip(rows, q):
            forbidden = [not allowed_by_hand(row, label) for label in model.action_labels]
            assert np.isneginf(values[forbidden]).all()


def test_later_decisions_of_plans_are_allowed_where_they_are_taken(ruled):
    log, model = ruled
    plans, states = model.plans, model.scaled(log.states[:40])
    barred, labels = plans.barred(states, plans.world.cells(states)), model.action_labels[plans.actions]
    assert barred.any()
    assert not barred.all(axis=1).any()
    for state, found in zip(states, barred):
        for number, plan in enumerate(product(range(len(labels)), repeat=2)):
            here, is_open = state.copy(), True
            for decision in plan:
                row = model.recipe.described(model.coordinates.back(here))
                allowed = [allowed_by_hand(row, label) for label in labels]
                is_open = is_open and (allowed[decision] or not any(allowed))
                for _ in range(plans.n_held):
                    here = step(here, int(plans.actions[decision]), plans.world, BLENDED)[0]
            assert found[number] == (not is_open)


def test_the_best_plan_of_an_answer_has_only_allowed_decisions(ruled):
    log, model = ruled
    ahead = PlanQ(model.plans, model.solution.values)
    states = model.scaled(log.states[:100])
    q, best = ahead.best(states)
    barred = model.plans.barred(states, model.plans.world.cells(states))
    for t, (values, plans) in enumerate(zip(q, best)):
        assert not barred[t, plans[np.isfinite(values)]].any()


def test_where_nothing_is_allowed_the_answer_is_an_error():
    log = ward_log(allowed=dict.fromkeys(messy_ward.DRUGS, "sofa > 6"))
    model = model_of(log)
    assert model.predict(log.states[log.states[:, 0] > 6.5][:5]).shape == (5,)
    with pytest.raises(ValueError, match="no action can be recommended: none is allowed there"):
        model.predict(log.states[log.states[:, 0] < 6][:5])


def test_rules_change_nothing_where_everything_is_allowed():
    log = ward_log()
    free, ruled = model_of(log), model_of(ward_log(allowed={"high": "sofa > -1"}))
    np.testing.assert_array_equal(ruled.q_values(log.states[:50]), free.q_values(log.states[:50]))
