"""Actions of a table: classes of doses, combinations of columns, and which are allowed where."""

import numpy as np
import pytest

from eight_rows import ROLES, table
from kbrl import KBRL, KBSF, join, load_log, open_log
from messy_ward import COLUMNS, DRUGS, STATE, clean_log, fitted


@pytest.fixture(scope="module")
def ward():
    return clean_log(700)


def test_classes_of_a_dose_are_quantiles_with_the_range_as_label_and_the_median_as_dose():
    doses = np.arange(1.0, 9.0)
    log = open_log(table(drug=doses), columns=ROLES | {"bins": {"drug": 4}})
    (bins,) = log.recipe.bins
    assert bins.labels == ("up to 2", "above 2 to 4", "above 4 to 6", "above 6")
    assert bins.doses == (1.0, 3.0, 5.0, 7.0)
    assert join(log.chunks()).actions.tolist() == [bins.labels[k] for k in (0, 0, 1, 1, 2, 2, 3, 3)]


@pytest.mark.parametrize("rule", ["0+2", "0 + 2"])
def test_zero_may_be_a_class_of_its_own(rule):
    log = open_log(table(drug=[0.0, 0, 0, 0, 1, 2, 3, 4]), columns=ROLES | {"bins": {"drug": rule}})
    assert log.recipe.bins[0].labels == ("0", "above 0 to 2", "above 2")
    assert log.recipe.doses("above 2") == {"drug": 3.0}


def test_classes_may_lie_between_edges_of_the_user():
    log = open_log(table(drug=[0.0, 5, 10, 11, 49, 50, 51, 99]), columns=ROLES | {"bins": {"drug": [10, 50]}})
    assert log.recipe.bins[0].labels == ("up to 10", "above 10 to 50", "above 50")
    assert join(log.chunks()).action_indices.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


def test_classes_are_actions_in_the_order_of_their_doses():
    doses = [2.0, 9.0, 11.0, 30.0, 120.0, 1.0, 9.5, 100.0]
    log = open_log(table(drug=doses), columns=ROLES | {"bins": {"drug": [5, 10, 100]}})
    assert log.action_labels.tolist() == ["up to 5", "above 5 to 10", "above 10 to 100", "above 100"]


def test_several_columns_make_combinations():
    rows = table(dose=[0.0, 0, 5, 5, 0, 5, 0, 5])
    log = load_log(rows, columns=ROLES | {"action": ["drug", "dose"], "bins": {"dose": [1]}})
    assert log.actions.tolist()[:4] == ["p + up to 1", "q + up to 1", "p + above 1", "q + above 1"]
    plain = load_log(rows, columns=ROLES | {"action": "drug,dose"})
    assert plain.actions.tolist()[:4] == ["p + 0", "q + 0", "p + 5", "q + 5"]


def test_what_is_to_be_small_is_a_reward_with_the_other_sign():
    roles = {role: name for role, name in ROLES.items() if role != "reward"}
    rows = table(gain=np.arange(8.0))
    for minimize in ("gain", "2 * gain + 1"):
        log = load_log(rows, columns=roles | {"minimize": minimize})
        factor, rest = (1, 0) if minimize == "gain" else (2, 1)
        assert log.rewards.tolist() == [-(factor * k + rest) for k in range(8)]


# Allowed actions.


def slow_values(model, allowed, sweeps=2000):
    """Value iteration over the representative states, one number at a time, over the allowed actions."""
    mdp, values = model.mdp, [0.0] * model.basis.n_reps
    chances = np.asarray(mdp.stacked.toarray() if hasattr(mdp.stacked, "toarray") else mdp.stacked)
    chances = chances.reshape(len(model.action_labels), model.basis.n_reps, -1)
    for _ in range(sweeps):
        values = [
            max(
                mdp.rewards[action, rep] + mdp.discount * float(chances[action, rep] @ np.array(values))
                for action in range(len(model.action_labels))
                if allowed[rep][action]
            )
            for rep in range(model.basis.n_reps)
        ]
    return values


def test_values_are_maxima_over_the_actions_that_are_allowed_at_each_representative_state(ward):
    model = fitted(ward[:1500], allowed={"high": "map < 65 and unit == 'icu'", "low": "severity != 'mild'"}).model_
    states = [model.recipe.described(rep) for rep in model.reps]
    allowed = [
        [
            {"high": s["map"] < 65 and s["unit"] == "icu", "low": s["severity"] != "mild", "none": True}[a]
            for a in model.action_labels
        ]
        for s in states
    ]
    assert 0 < np.mean(allowed) < 1
    np.testing.assert_allclose(model.solution.values, slow_values(model, allowed), rtol=1e-4)


def test_no_answer_names_an_action_that_is_not_allowed_in_the_state_itself(ward):
    model = fitted(ward[:1500], allowed={"high": "map < 65", "none": "false"})
    states = ward[STATE]
    q, labels = model.q_values(states), model.action_labels_.tolist()
    assert (np.isneginf(q[:, labels.index("high")]) == (states["map"] >= 65)).all()
    assert np.isneginf(q[:, labels.index("none")]).all()
    answers = model.predict(states)
    assert not ((answers == "high") & (states["map"] >= 65)).any()
    assert [model.act(states.iloc[row]) for row in range(20)] == answers[:20].tolist()


def test_an_edge_of_a_rule_is_exact_whatever_the_scale():
    n = 40
    rows = {
        "x": np.repeat([64.9, 65.0], n // 2),
        "drug": np.arange(n) % 2,
        "gain": np.arange(n) % 2.0,
        "over": np.ones(n),
    }
    roles = {role: name for role, name in ROLES.items() if role != "episode"}
    model = KBSF(n_reps=2, random_state=0).fit(rows, columns=roles | {"allowed": {"1": "x < 65"}})
    assert model.predict({"x": [64.9, 65.0, 64.99999]}).tolist() == [1, 0, 1]


def test_where_no_action_is_allowed_there_is_no_recommendation(ward):
    model = fitted(ward[:900], allowed=dict.fromkeys(DRUGS, "map < 60"))
    with pytest.raises(ValueError, match="none is allowed there"):
        model.predict(ward[STATE])


def test_learners_without_such_rules_refuse_them(ward):
    log = load_log(ward[:90], columns=COLUMNS | {"allowed": {"high": "map < 65"}})
    with pytest.raises(ValueError, match="KBRL takes the maximum over all actions"):
        KBRL().fit(log)
