"""Fitted Q iteration: value iteration on finite MDPs, trees by slow loops, and the puddle world."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import FiniteMDP, Transitions
from kbrl.learners.fitted_q import FittedQ
from kbrl.learners.forest import Forest, grow
from kbrl.mdp.dynamic_programming import backup
from kbrl.tasks import PuddleWorld
from samples import SCALES, logs, random_log

ensemble = pytest.importorskip("sklearn.ensemble")
linear_model = pytest.importorskip("sklearn.linear_model")
neighbors = pytest.importorskip("sklearn.neighbors")

QUERIES = np.random.default_rng(6).random((9, 2))


def corridor(n_states=8):
    """Return all pairs of a corridor whose right end pays 1 and ends, left and right failing once in four times."""
    one_hot, rows = np.eye(n_states), []
    probabilities, rewards = np.zeros((2, n_states, n_states)), np.zeros((2, n_states))
    for state in range(n_states):
        for action, move in enumerate((-1, 1)):
            for step in (move, move, move, -move):
                next_state = min(max(state + step, 0), n_states - 1)
                end = next_state == n_states - 1
                rows.append((one_hot[state], action, float(end), one_hot[next_state], end))
                probabilities[action, state, next_state] += 0.25 * (not end)
                rewards[action, state] += 0.25 * end
    return Transitions(*map(list, zip(*rows))), FiniteMDP(probabilities, rewards, 0.9)


def value_iteration(mdp, n_iterations):
    values = np.zeros(mdp.n_states)
    for _ in range(n_iterations):
        q = backup(mdp, values)
        values = q.max(axis=1)
    return q


@pytest.mark.parametrize("per_action", [True, False])
@pytest.mark.parametrize("freeze_after", [None, 1, 3])
def test_with_fully_grown_trees_on_one_hot_states_it_is_value_iteration(per_action, freeze_after):
    # After three iterations most targets are still 0: kept cuts must part these states nevertheless.
    log, mdp = corridor()
    for n_iterations in (1, 3, 20):
        model = FittedQ(
            n_iterations, 2, 2, freeze_after=freeze_after, per_action=per_action, discount=0.9, random_state=0
        ).fit(log)
        np.testing.assert_allclose(model.q_values(np.eye(8)), value_iteration(mdp, n_iterations), atol=1e-12)


def test_a_regressor_that_remembers_its_data_gives_value_iteration():
    log, mdp = corridor()
    for regressor in (neighbors.KNeighborsRegressor(4), linear_model.LinearRegression(fit_intercept=False)):
        model = FittedQ(20, regressor=regressor, discount=0.9, scaling=None).fit(log)
        np.testing.assert_allclose(model.q_values(np.eye(8)), value_iteration(mdp, 20), atol=1e-9)


def slow_leaf(forest, tree, row):
    node = forest.roots[tree]
    while forest.left[node] >= 0:
        node = forest.left[node] if row[forest.variables[node]] <= forest.cuts[node] else forest.right[node]
    return node


def slow_means(forest, inputs, targets, queries):
    """Return the mean over trees of the mean of the targets in the leaf of each query."""
    answers = []
    for query in queries:
        means = []
        for tree in range(len(forest.roots)):
            leaf = slow_leaf(forest, tree, query)
            means.append(np.mean([y for x, y in zip(inputs, targets) if slow_leaf(forest, tree, x) == leaf]))
        answers.append(np.mean(means))
    return np.array(answers)


def some_inputs(n=200, seed=0):
    return np.random.default_rng(seed).random((n, 3)).astype(np.float32)


def test_new_targets_give_the_means_of_the_leaves_worked_out_by_hand():
    rng = np.random.default_rng(1)
    inputs, queries = some_inputs(), some_inputs(20, seed=2)
    forest = grow(inputs, rng.random(200), for_keeps=True, n_jobs=1, n_estimators=4, min_samples_split=10)
    leaves, new_targets = forest.leaves(inputs), rng.random(200)
    renewed = forest.renewed(leaves, new_targets)
    expected = slow_means(forest, inputs, new_targets, queries)
    np.testing.assert_allclose(renewed(queries), expected, rtol=1e-12)
    np.testing.assert_allclose(renewed.at_leaves(forest.leaves(queries)), expected, rtol=1e-12)


def test_iterations_with_kept_cuts_are_those_worked_out_by_hand():
    log = random_log(n=60, ending=0.2)
    few, many = (FittedQ(n, 3, 5, freeze_after=3, discount=0.9, random_state=0).fit(log) for n in (4, 7))
    function, scale, rows = many._function, many.scale_, log.by_action()
    here = [function.inputs(log.states[r] / scale, a) for a, r in enumerate(rows)]
    there = function.inputs(log.next_states / scale, 0)
    q = few.q_values(log.next_states)
    for _ in range(3):
        targets = log.rewards + 0.9 * np.where(log.terminals, 0.0, q.max(axis=1))
        q = np.column_stack(
            [slow_means(function.models[a], here[a], targets[rows[a]], there) for a in range(log.n_actions)]
        )
    np.testing.assert_allclose(many.q_values(log.next_states), q, rtol=1e-12)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_forest_answers_as_scikit_learns_does(n_jobs):
    inputs, targets = some_inputs(3000), np.random.default_rng(1).random(3000)
    settings = {"n_estimators": 5, "min_samples_split": 20, "max_features": 2, "random_state": 0}
    forest = grow(inputs, targets, for_keeps=False, n_jobs=n_jobs, **settings)
    forest = forest.renewed(forest.leaves(inputs, n_jobs), targets, n_jobs)
    theirs = ensemble.ExtraTreesRegressor(**settings).fit(inputs, targets)
    queries = some_inputs(5000, seed=2)
    np.testing.assert_allclose(forest(queries, n_jobs), theirs.predict(queries), rtol=1e-10)
    ids = np.array([tree.apply(queries) for tree in theirs.estimators_])
    np.testing.assert_array_equal(forest.leaves(queries, n_jobs) - forest.roots[:, None], ids)


def leaf_sizes(forest: Forest, inputs):
    return [np.bincount(leaves)[np.unique(leaves)].max() for leaves in forest.leaves(inputs)]


@pytest.mark.parametrize("targets", [np.zeros(500), np.full(500, 1e9), np.arange(500.0) == 0])
def test_cuts_to_be_kept_are_made_where_targets_are_constant(targets):
    inputs, settings = some_inputs(500), {"n_estimators": 3, "min_samples_split": 8, "random_state": 0}
    kept = grow(inputs, targets.astype(float), for_keeps=True, n_jobs=1, **settings)
    assert max(leaf_sizes(kept, inputs)) < 8
    passing = grow(inputs, targets.astype(float), for_keeps=False, n_jobs=1, **settings)
    assert max(leaf_sizes(passing, inputs)) > 100  # scikit-learn's own rule


def test_no_state_is_cut_off_from_a_reward_that_is_felt_later():
    # 30 states in a line, reward at the end; at iteration 2 all other targets are 0.
    states = np.repeat(np.arange(30.0), 2)[:, None]
    actions = np.tile([0, 1], 30)
    next_states = np.clip(states + 2 * actions[:, None] - 1, 0, 29)
    ends = next_states[:, 0] == 29
    log = Transitions(states, actions, ends.astype(float), next_states, ends)
    model = FittedQ(40, 10, 2, freeze_after=2, discount=0.9, random_state=0).fit(log)
    assert (model.predict(states) == 1).all()
    np.testing.assert_allclose(model.values(np.arange(28.0)[:, None]), 0.9 ** np.arange(28, 0, -1), rtol=1e-9)


def test_shifted_states_give_the_same_answers():
    log = random_log(n=200)
    shifted = Transitions(log.states + 1e6, log.actions, log.rewards, log.next_states + 1e6, log.terminals)
    one, two = (FittedQ(8, 5, random_state=0).fit(data) for data in (log, shifted))
    np.testing.assert_allclose(two.q_values(QUERIES + 1e6), one.q_values(QUERIES), rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(log=logs(scales=SCALES), per_action=st.booleans(), min_split=st.sampled_from([2, 7]))
def test_any_log_gives_values_within_the_bounds_of_the_rewards(log, per_action, min_split):
    model = FittedQ(
        6, 2, min_split, freeze_after=3, per_action=per_action, discount=0.9, random_state=0, min_cases=1
    ).fit(log)
    q = model.q_values(log.next_states)
    tried = np.bincount(log.action_indices, minlength=log.n_actions) > 0
    assert (q[:, ~tried] == -np.inf).all()
    assert np.abs(q[:, tried]).max() <= np.abs(log.rewards).max() / (1 - 0.9) * (1 + 1e-12)
    assert np.isin(model.predict(log.states), log.actions).all()


def test_a_random_regressor_follows_the_random_state_and_is_left_as_it_was():
    log, regressor = random_log(n=60), ensemble.RandomForestRegressor(3)
    one, two = (FittedQ(3, regressor=regressor, random_state=0).fit(log).q_values(QUERIES) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert regressor.random_state is None
    assert not hasattr(regressor, "estimators_")


def test_values_that_grow_without_bound_are_an_error():
    # Q is linear in a state that doubles at each step: 2 * 0.9 > 1.
    states = np.linspace(1, 2, 30)[:, None]
    log = Transitions(states, np.zeros(30, dtype=int), states[:, 0], 2 * states)
    line = linear_model.LinearRegression(fit_intercept=False)
    with pytest.raises(ValueError, match="No value can exceed 20, the largest reward for ever, but at iteration"):
        FittedQ(500, regressor=line, discount=0.9, scaling=None).fit(log)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"n_iterations": 0}, "n_iterations must be at least 1, but it is 0"),
        ({"n_trees": 2.5}, "n_trees must be a whole number, but it is 2.5"),
        ({"min_split": 1}, "min_split must be at least 2, but it is 1"),
        ({"freeze_after": 0}, "freeze_after must be at least 1, but it is 0"),
        ({"discount": 1.0}, "discount must lie in [0, 1), but it is 1.0"),
        ({"terminals": "maybe"}, "terminals must be one of 'absorb', 'continue', but it is 'maybe'"),
        ({"regressor": "trees"}, "regressor must be a scikit-learn regressor, or one with its habits, but 'trees'"),
    ],
)
def test_bad_parameters_get_a_clear_error(changes, words):
    with pytest.raises((ValueError, TypeError)) as caught:
        FittedQ(**changes).fit(random_log())
    assert words in str(caught.value)


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(ImportError, match=r"pip install 'kbrl\[trees\]'"):
        FittedQ().fit(random_log())


def test_it_solves_the_puddle_world():
    task = PuddleWorld()
    model = FittedQ(random_state=0).fit(task.collect(8000, random_state=0))
    assert np.mean([task.evaluate(model.predict, random_state=seed).mean for seed in range(3)]) > 3.0
