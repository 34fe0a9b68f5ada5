"""What a report says is what the log and the model say, counted by other means."""

import collections

import numpy as np
import pytest

from kbrl import KBSF, Transitions, save_model
from kbrl.insight.coverage import coverage
from kbrl.report import inputs
from kbrl.report.facts import gather
from kbrl.report.inputs import open_inputs
from kbrl.report.recommendations import answers, reach
from samples import random_log


def fitted(log, n_reps=20, **options):
    return KBSF(n_reps, sample_width=0.3, rep_width=0.3, random_state=0, **options).fit(log)


def facts_of(log, model=None, **options):
    return gather(open_inputs(model or fitted(log), log, **options))


def test_the_table_of_actions_is_that_of_a_recomputation(ward, recomputed):
    assert len(ward.facts.actions) == 4
    for action, expected in zip(ward.facts.actions, recomputed.table):
        counts = (action.n_logged, action.n_recommended, action.n_agreed)
        assert counts == (expected["logged"], expected["recommended"], expected["agreed"])
        means = (action.mean_reward, action.mean_value, action.mean_advantage)
        np.testing.assert_allclose(means, [expected["reward"], expected["value"], expected["advantage"]], rtol=1e-9)


def test_the_disagreements_are_those_of_a_recomputation(ward, recomputed):
    pairs = collections.Counter(zip(recomputed.logged.tolist(), recomputed.best.tolist()))
    differing = {pair: count for pair, count in pairs.items() if pair[0] != pair[1]}
    found = {(pair.logged, pair.recommended): pair for pair in ward.facts.disagreements}
    assert {pair: found[pair].count for pair in found} == differing
    counts = [pair.count for pair in ward.facts.disagreements]
    assert counts == sorted(counts, reverse=True)
    for (logged, recommended), pair in found.items():
        rows = (recomputed.logged == logged) & (recomputed.best == recommended)
        assert pair.mean_advantage == pytest.approx(recomputed.advantages[rows].mean())


def test_the_examples_are_the_largest_advantages_with_support_one_per_episode_by_their_row_of_the_log(ward, recomputed):
    backed = (recomputed.support >= 5) & (recomputed.advantages > 0)
    episodes = np.array([row[0] for row in recomputed.kept])
    best = {name: recomputed.advantages[backed & (episodes == name)].max(initial=0) for name in set(episodes)}
    expected = [advantage for advantage in sorted(best.values(), reverse=True)[:10] if advantage > 0]
    assert len(expected) > 3
    np.testing.assert_allclose([example.advantage for example in ward.facts.examples], expected)
    for example in ward.facts.examples:
        row = ward.rows[example.row]
        assert (example.episode, *example.state) == (row[0], *row[2:5])
        assert example.support == pytest.approx(recomputed.support[recomputed.kept.index(row)])


def test_advice_with_little_support_is_counted_and_left_out_of_what_is_at_stake(ward, recomputed):
    better, weak = recomputed.advantages > 0, recomputed.support < 5
    assert ward.facts.n_better == (better & ~weak).sum() > 0
    assert ward.facts.n_better_weak == (better & weak).sum() > 0
    assert ward.facts.backed_gain == pytest.approx(recomputed.advantages[better & ~weak].sum())
    assert ward.facts.total.n_weak == weak.sum()
    for pair in ward.facts.disagreements:
        rows = (recomputed.logged == pair.logged) & (recomputed.best == pair.recommended)
        assert pair.n_weak == (rows & weak).sum()


def test_rows_episodes_ends_and_spreads_are_those_of_the_log(ward, recomputed):
    facts = ward.facts
    assert facts.inputs.n_rows == len(ward.rows)
    assert facts.n_transitions == len(recomputed.kept)
    assert facts.n_episodes == 60
    assert facts.n_ends == 20
    states = np.array([row[2:5] for row in recomputed.kept])
    for spread, column in zip(
        (*facts.variables, facts.rewards), [*states.T, np.array([r[6] for r in recomputed.kept])]
    ):
        low, high = np.quantile(column, [0.01, 0.99])
        expected = (column.min(), low, np.median(column), column.mean(), high, column.max(), column.std())
        np.testing.assert_allclose(list(vars(spread).values()), expected)


def test_chunks_change_nothing_but_rounding(ward, monkeypatch):
    monkeypatch.setattr(inputs, "CHUNK_ROWS", 7)
    facts = gather(open_inputs(ward.model, ward.log, with_cases=True))
    assert facts.disagreements[0].count == ward.facts.disagreements[0].count
    assert [e.row for e in facts.examples] == [e.row for e in ward.facts.examples]
    assert facts.n_episodes == ward.facts.n_episodes
    for mine, whole in zip(facts.actions, ward.facts.actions):
        np.testing.assert_allclose(list(vars(mine).values()), list(vars(whole).values()))
    np.testing.assert_array_equal(facts.sample.states, ward.facts.sample.states)


def test_actions_add_up_to_their_total(ward):
    total = ward.facts.total
    assert total.n_logged == total.n_recommended == ward.facts.n_transitions
    assert total.n_agreed == sum(action.n_agreed for action in ward.facts.actions)


def test_an_action_that_the_model_never_saw_has_no_value_and_no_advantage():
    log = random_log(200, n_actions=2, seed=1)
    known = Transitions(log.states, log.actions, log.rewards, log.next_states, action_labels=[0, 1, 9])
    model = fitted(known)
    other = Transitions(log.states[:3], [9, 9, 0], log.rewards[:3], log.next_states[:3], action_labels=[0, 1, 9])
    facts = gather(open_inputs(model, other))
    assert facts.actions[2].n_logged == 2
    assert facts.actions[2].mean_value is None
    assert facts.actions[2].n_recommended == 0
    assert all(pair.mean_advantage is None for pair in facts.disagreements if pair.logged == 2)
    assert all(example.logged != 2 for example in facts.examples)


def test_advice_is_weak_where_fewer_than_five_cases_of_it_are_around():
    log = random_log(300, n_actions=3, seed=2)
    model = KBSF(20, sample_width=0.15, rep_width=0.3, random_state=0).fit(log)
    found, covered = answers(model, log.states), coverage(model, log.states)
    np.testing.assert_array_equal(found.support, covered.support)
    np.testing.assert_array_equal(found.best_support, found.support[np.arange(300), found.best])
    np.testing.assert_array_equal(found.is_weak, found.best_support < 5)
    assert 0 < found.is_weak.sum() < 300


def test_on_fourteen_rows_all_advice_has_little_support():
    log = random_log(14, n_actions=3, seed=1)
    facts = facts_of(log, fitted(log, n_reps=8, min_cases=1))
    assert facts.total.n_weak == facts.n_transitions == 14
    assert facts.examples == ()
    assert facts.n_better == 0


def test_little_support_is_counted_where_an_action_is_rare():
    rng = np.random.default_rng(0)
    states = rng.random((400, 1))
    actions = np.where(states[:, 0] < 0.5, rng.integers(2, size=400), 0)  # beyond a half, only the worse one was tried
    log = Transitions(states, actions, rewards=actions.astype(float), next_states=states, terminals=np.ones(400, bool))
    model = KBSF(40, sample_width=0.05, rep_width=0.05, random_state=0).fit(log)
    facts = facts_of(log, model)
    found = answers(model, np.array([[0.2], [0.9]]))
    assert found.best.tolist() == [1, 1]
    assert found.is_weak.tolist() == [False, True]
    assert facts.total.n_weak == facts.actions[1].n_weak == int(answers(model, states).is_weak.sum())


def test_a_state_is_far_off_if_it_is_farther_than_neighbouring_representative_states_are_apart():
    log = random_log(100, seed=3)
    reps = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 3.0]])
    model = KBSF(reps=reps, scaling=None, sample_width=0.3, rep_width=0.3).fit(log)
    assert reach(model.model_) == 3.0
    moved = log.replaced(states=np.where(np.arange(100)[:, None] < 7, 4.1, log.states))
    assert facts_of(moved, model).n_far == 7
    assert facts_of(log, model).n_far == 0


def test_one_representative_state_has_no_neighbours_and_nothing_is_far_off():
    log = random_log(10)
    assert reach(fitted(log, 1, min_cases=1).model_) == np.inf


def test_representative_states_are_listed_by_their_number_of_cases(ward, recomputed):
    model = ward.facts.inputs.model
    cases = recomputed.cases.sum(axis=1).astype(int)
    assert [rep.place for rep in ward.facts.reps] == np.argsort(-cases, kind="stable")[:12].tolist()
    for rep in ward.facts.reps:
        assert rep.n_cases == cases[rep.place]
        assert rep.value == model.solution.values[rep.place]
        assert rep.best == int(model.solution.q[rep.place].argmax())
        assert rep.state == tuple(model.reps[rep.place])


def test_names_come_from_the_columns_of_the_model_or_are_numbers(ward):
    log = random_log(30, n_dims=3)
    assert open_inputs(fitted(log), log).variables == ("x0", "x1", "x2")
    assert open_inputs(fitted(log), log, ["a", "b", "c"]).variables == ("a", "b", "c")
    assert open_inputs(fitted(log), log, {"state": "a, b,c"}).variables == ("a", "b", "c")
    frame = {"obs": log.states, "action": log.actions, "reward": log.rewards, "next_obs": log.next_states}
    assert open_inputs(fitted(log), frame).variables == ("obs[0]", "obs[1]", "obs[2]")
    assert ward.facts.inputs.variables[0] == "age"


def test_a_log_without_a_column_that_the_models_log_had_is_read_all_the_same(ward, tmp_path):
    lines = ward.log.read_text(encoding="utf-8").splitlines()
    path = tmp_path / "no_ends.csv"
    path.write_text("\n".join(line.rpartition(",")[0] for line in lines), encoding="utf-8")
    facts = gather(open_inputs(ward.model, path))
    assert facts.n_ends == 0
    assert facts.n_transitions == ward.facts.n_transitions - 20


def test_names_of_variables_that_were_saved_with_a_model_find_columns_with_a_prefix(tmp_path):
    rows = [f"{k},0,u,1,0" for k in range(9)]
    (tmp_path / "log.csv").write_text("\n".join(["obs_b,obs_a,action,reward,episode", *rows]))
    states = np.array([[0.0, k] for k in range(9)])
    log = Transitions(states, ["u"] * 9, np.ones(9), states)
    save_model(fitted(log, 2), tmp_path / "model.kbrl", columns=["a", "b"])
    facts = facts_of(tmp_path / "log.csv", tmp_path / "model.kbrl")
    assert facts.names == ("a", "b")
    assert [spread.largest for spread in facts.variables] == [0.0, 7.0]


def test_what_does_not_fit_the_model_is_said():
    log = random_log(30, n_dims=2, n_actions=2)
    model = fitted(log)
    with pytest.raises(ValueError, match="The model knows 2 state variables, but the log has 3"):
        gather(open_inputs(model, random_log(30, n_dims=3, n_actions=2)))
    with pytest.raises(ValueError, match="but they also have"):
        gather(open_inputs(model, random_log(30, n_dims=2, n_actions=3)))
    frame = {"obs": log.states, "action": ["no"] * 30, "reward": log.rewards, "next_obs": log.next_states}
    with pytest.raises(ValueError, match="The model knows no others"):
        open_inputs(model, frame)
    with pytest.raises(TypeError, match="A report needs a Model, a KBSF or the path of its file, but it got int"):
        open_inputs(3, log)
    with pytest.raises(ValueError, match="has not learnt anything yet"):
        open_inputs(KBSF(), log)


def test_settings_are_those_of_the_fit_whatever_the_learner_was_set_to_since():
    log = random_log(200, n_actions=2, seed=1)
    labelled = Transitions(log.states, [9, *log.actions[1:]], log.rewards, log.next_states, action_labels=[0, 1, 9])
    learner = fitted(labelled, min_cases=2).set_params(min_cases=1, solver__sweeps=3, solver__tolerance=0.5, n_reps=7)
    for model in (learner, learner.model_):
        facts = facts_of(labelled, model)
        assert facts.model.left_out == {"9": 1}
        assert facts.model.min_cases == 2
        assert (facts.model.solver.method, facts.model.solver.tolerance) == ("policy iteration", 1e-8)
        assert {setting.name: setting.value for setting in facts.model.settings}["n_reps"] == "20"
