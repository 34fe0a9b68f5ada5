"""The cases behind a value make up the value, and weigh what the formulas say."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import KBSF, KbrlWarning, Solver, Transitions, Variant, load_model, save_model
from kbrl.insight.explanation import explain
from kbrl.logs.log import open_log
from kbrl.logs.writing import as_columns
from kbrl.tables.faults import LogError
from naive import kappa
from samples import random_log

FORMS = {
    "dense": {},
    "gaussian": {"variant": Variant(profile="gaussian")},
    "uniform": {"variant": Variant(profile="uniform"), "sample_width": 0.6},
    "another norm": {"variant": Variant(norm=1), "sample_neighbors": 3},
    "another norm, dense": {"variant": Variant(norm=np.inf)},
    "own profile": {"variant": Variant(profile=lambda z: 1 / (1 + z * z))},
    "continue": {"variant": Variant(terminals="continue")},
    "hard": {"variant": Variant(aggregation="hard")},
    "one width a representative state": {"rep_width": np.array([0.1, 0.5, 0.2, 1.0, 0.3, 0.4])},
    "one width a representative state, sparse": {
        "rep_width": np.array([0.1, 0.5, 0.2, 1.0, 0.3, 0.4]),
        "rep_neighbors": 2,
    },
    "sparse": {"sample_neighbors": 3, "rep_neighbors": 2},
    "sparse samples": {"sample_neighbors": 4},
    "hard and sparse": {"variant": Variant(aggregation="hard"), "sample_neighbors": 4},
    "samples": {"variant": Variant(q_function="samples")},
    "sparse, by samples": {"variant": Variant(q_function="samples"), "sample_neighbors": 3, "rep_neighbors": 2},
}


def fitted(form, log):
    reps = np.unique(log.next_states, axis=0)[:6]
    options = {"sample_width": 0.3, "rep_width": 0.3, "solver": Solver(tolerance=1e-12), "n_jobs": 1} | FORMS[form]
    return KBSF(reps=reps, min_cases=1, **options).fit(log)


def check(found, model):
    """The laws: weights sum to one, the cases and the rest make up the value, and the order is right."""
    assert [a.value for a in found.actions] == sorted([a.value for a in found.actions], reverse=True)
    assert sorted(a.action for a in found.actions) == sorted(model.action_labels_.tolist())
    for action in found.actions:
        weights = [case.weight for case in action.cases]
        assert weights == sorted(weights, reverse=True)
        if action.value == -math.inf:
            assert action.total_weight == 0
            assert not action.cases
            continue
        assert action.total_weight == pytest.approx(1.0, abs=1e-9)
        assert action.shown_weight + action.rest_weight == action.total_weight
        assert action.explained == pytest.approx(action.value, abs=1e-9)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 2, 4]), st.sampled_from([1, 3, 1000]), st.booleans())
def test_the_cases_shown_and_the_rest_make_up_the_value(form, seed, levels, n_cases, every_action):
    levels = None if np.ndim(FORMS[form].get("rep_width", 0)) else levels
    log = random_log(40, n_actions=3, seed=seed, levels=levels, every_action=every_action)
    model = fitted(form, log)
    state = np.random.default_rng(seed).normal(size=2)
    for source in (log, log.chunks(7)):
        found = explain(model, state, log=source, n_cases=n_cases)
        check(found, model)
        assert found.source == "log"
    assert all(len(action.cases) == min(n_cases, action.n_cases) for action in found.actions)


@pytest.mark.parametrize("form", ["sparse", "sparse samples", "hard and sparse"])
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 2, 4]))
def test_the_outcomes_that_a_model_keeps_weigh_as_much_as_their_rows_in_the_log(form, seed, levels):
    log = random_log(60, n_actions=2, seed=seed, levels=levels)
    model = fitted(form, log)
    state = np.random.default_rng(seed).normal(size=2)
    from_log, from_model = explain(model, state, log=log, n_cases=100), explain(model, state, n_cases=100)
    check(from_model, model)
    assert from_model.source == "outcomes"
    for one, other in zip(from_log.actions, from_model.actions):
        assert one.action == other.action
        by_outcome = Counter()
        for case in one.cases:
            by_outcome[case.reward, case.ends, np.round(case.next_state, 9).tobytes()] += case.weight
        kept = {(c.reward, c.ends, np.round(c.next_state, 9).tobytes()): c.weight for c in other.cases}
        assert set(kept) == set(by_outcome)
        for outcome, weight in kept.items():
            assert by_outcome[outcome] == pytest.approx(weight, abs=1e-12)


def slow_weights(model, log, state, action):
    """Weigh the cases of an action by the formula, in loops: {row: weight}."""
    reps = (model.reps_ / model.scale_).tolist()
    rows = log.by_action()[action].tolist()
    states = [(log.states[row] / model.scale_).tolist() for row in rows]
    at_state = kappa((state / model.scale_).tolist(), reps, model.rep_width)
    weights = dict.fromkeys(rows, 0.0)
    for rep, share in zip(reps, at_state):
        for row, weight in zip(rows, kappa(rep, states, model.sample_width)):
            weights[row] += share * weight
    return weights


def test_each_case_weighs_what_the_formula_says():
    log = random_log(30, n_actions=2, seed=3)
    model = fitted("dense", log)
    state = np.array([0.4, 0.2])
    for found in explain(model, state, log=log, n_cases=30).actions:
        expected = slow_weights(model, log, state, found.action)
        assert {case.row for case in found.cases} == set(expected)
        for case in found.cases:
            assert case.weight == pytest.approx(expected[case.row], rel=1e-9)
            assert case.state == tuple(log.states[case.row])
            assert case.next_state == tuple(log.next_states[case.row])
            assert (case.reward, case.ends) == (log.rewards[case.row], log.terminals[case.row])


def test_a_case_is_worth_its_reward_and_the_discounted_value_behind_it():
    """By hand: one representative state, so V-bar = r-bar / (1 - discount p), and every case but an end leads there."""
    log = Transitions([[0.0], [0.0]], ["a", "a"], [1.0, 3.0], [[0.0], [0.0]], [False, True])
    model = KBSF(reps=[[0.0]], discount=0.5, scaling=None).fit(log)
    (found,) = explain(model, [0.0], log=log).actions
    value = 2.0 / (1 - 0.5 * 0.5)
    assert found.value == pytest.approx(value)
    assert [(c.row, c.weight, c.ends) for c in found.cases] == [(0, 0.5, False), (1, 0.5, True)]
    assert [c.worth for c in found.cases] == pytest.approx([1.0 + 0.5 * value, 3.0])


def test_rows_are_those_of_the_log_and_episodes_its_own(tmp_path):
    """Where next states are missing, the last row of a cut episode is no transition: the numbers have gaps."""
    log = random_log(20, ending=0.0)
    episodes = np.repeat(["first", "second"], 10)
    columns = as_columns(Transitions(log.states, log.actions, log.rewards, log.next_states, episodes=episodes))
    columns = {name: column for name, column in columns.items() if not name.startswith("next_")}
    opened = open_log(columns)
    model = KBSF(n_reps=4, random_state=0).fit(opened.chunks())
    found = explain(model, [0.5, 0.5], log=opened, n_cases=100)
    cases = [case for action in found.actions for case in action.cases]
    assert sorted(case.row for case in cases) == [*range(9), *range(10, 19)]
    for case in cases:
        assert case.episode == episodes[case.row]
        assert case.state == tuple(log.states[case.row])


def test_a_model_that_keeps_its_samples_explains_itself(tmp_path):
    log = random_log(30, n_actions=2)
    model = fitted("samples", log)
    save_model(model, tmp_path / "model.kbrl")
    found = explain(load_model(tmp_path / "model.kbrl"), [0.1, 0.9])
    check(found, model)
    assert found.source == "samples"
    again = explain(model, [0.1, 0.9], log=log)
    assert [[c.row for c in a.cases] for a in found.actions] == [[c.row for c in a.cases] for a in again.actions]


def test_another_log_is_noticed():
    log = random_log(40, n_actions=2)
    for form in ("dense", "sparse", "samples"):
        model = fitted(form, log)
        for other in (random_log(40, n_actions=2, seed=1), log[:30], log + log):
            if form != "dense" and len(other) == 80:
                continue  # every case twice with half the weight, or as often as it was kept: the same value
            with pytest.warns(KbrlWarning, match="The cases do not make up the value"):
                found = explain(model, [0.5, 0.5], log=other)
            assert any((a.total_weight, a.explained) != pytest.approx((1, a.value)) for a in found.actions)


def test_half_the_log_has_the_weight_of_its_cases():
    log = random_log(40, n_actions=1)
    model = fitted("dense", log)
    (whole_log,) = explain(model, [0.5, 0.5], log=log, n_cases=40).actions
    with pytest.warns(KbrlWarning):
        (half,) = explain(model, [0.5, 0.5], log=log[:20], n_cases=40).actions
    assert half.total_weight == pytest.approx(sum(c.weight for c in whole_log.cases if c.row < 20), rel=1e-12)


@pytest.mark.parametrize("form", ["dense", "sparse", "hard", "samples"])
def test_an_action_that_was_never_tried_has_no_cases(form):
    log = random_log(30, n_actions=2)
    log = Transitions(log.states, log.actions, log.rewards, log.next_states, action_labels=[0, 1, 2])
    model = fitted(form, log)
    sources = [log, None] if form in ("sparse", "samples") else [log]
    for source in sources:
        found = explain(model, [0.5, 0.5], log=source)
        check(found, model)
        assert (found.actions[-1].action, found.actions[-1].n_cases) == (2, 0)


def test_a_model_of_sums_needs_the_log_and_one_of_chunks_cannot_be_explained():
    log = random_log(30)
    with pytest.raises(ValueError, match="has kept no cases"):
        explain(fitted("dense", log), [0.5, 0.5])
    model = KBSF(n_reps=4, sample_neighbors=2, variant=Variant(neighborhoods="per_chunk"), random_state=0).fit(log)
    with pytest.raises(ValueError, match="neighborhoods='exact'"):
        explain(model, [0.5, 0.5], log=log)


def test_bad_arguments_are_refused():
    log = random_log(30)
    model = fitted("dense", log)
    with pytest.raises(ValueError, match="n_cases must be at least 1"):
        explain(model, [0.5, 0.5], log=log, n_cases=0)
    with pytest.raises(ValueError, match="states must have 2 columns"):
        explain(model, [0.5], log=log)
    with pytest.raises(TypeError, match="learns from Transitions"):
        explain(model, [0.5, 0.5], log=3)
    with pytest.raises(LogError, match=r"There is no file log\.csv"):
        explain(model, [0.5, 0.5], log="log.csv")


def test_an_explanation_can_be_written_as_json():
    log = random_log(30, n_actions=2)
    log = Transitions(log.states, log.actions, log.rewards, log.next_states, action_labels=[0, 1, 2])
    facts = explain(fitted("dense", log), [0.5, 0.5], log=log, n_cases=2).to_dict()
    back = json.loads(json.dumps(facts, allow_nan=False))
    assert back["actions"][-1]["value"] is None
    assert len(back["actions"][0]["cases"]) == 2
    assert back["actions"][0]["total_weight"] == pytest.approx(1)


def test_a_case_as_far_away_as_a_kept_one_but_for_rounding_does_not_count_twice():
    log = random_log(60, n_actions=2, seed=294, levels=4)
    model = fitted("sparse samples", log)
    state = np.random.default_rng(294).normal(size=2)
    for source in (log, log.chunks(1), log.chunks(7)):
        check(explain(model, state, log=source), model)
