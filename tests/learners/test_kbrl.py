"""KBRL against its formulas."""

import numpy as np
import pytest
from hypothesis import given, settings

import naive
from kbrl import KBRL, KBSF, Variant
from samples import WIDTHS, as_lists, logs, random_log


@pytest.mark.parametrize("ending", [0.0, 0.3])
def test_values_are_those_of_the_papers_finite_mdp(ending):
    log = random_log(n=14, n_actions=2, ending=ending)
    log = log[np.argsort(log.action_indices, kind="stable")]  # the paper's order: by action
    model = KBRL(sample_width=0.3, discount=0.8, scaling=None).fit(log)
    p, r = naive.kbrl_model(as_lists(log), 0.3)
    np.testing.assert_allclose(model.mdp_.stacked.toarray().reshape(2, 14, 14), p, rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(model.mdp_.rewards, r, rtol=1e-11)
    np.testing.assert_allclose(model.solution_.q, naive.value_iteration(p, r, 0.8, 200), atol=1e-6)


@pytest.mark.parametrize("profile, norm", [("uniform", 2), ("exponential", 1), ("gaussian", 3)])
def test_kbrl_takes_any_profile_and_norm(profile, norm):
    log = random_log(n=14, n_actions=2, ending=0.2)
    log = log[np.argsort(log.action_indices, kind="stable")]
    model = KBRL(sample_width=0.3, discount=0.8, scaling=None, profile=profile, norm=norm).fit(log)
    p, r = naive.kbrl_model(as_lists(log), 0.3, getattr(naive, profile), norm=norm)
    np.testing.assert_allclose(model.mdp_.stacked.toarray().reshape(2, 14, 14), p, rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(model.mdp_.rewards, r, rtol=1e-11)


def test_q_is_equation_kbrl_q():
    log = random_log(n=14, ending=0.3)
    model = KBRL(sample_width=0.3, discount=0.8, scaling=None).fit(log)
    values = np.where(log.terminals, 0.0, model.solution_.values)
    next_values = [values[rows].tolist() for rows in log.by_action()]
    for state in np.random.default_rng(0).random((5, 2)):
        expected = naive.q_from_samples(state.tolist(), as_lists(log), next_values, 0.3, 0.8)
        np.testing.assert_allclose(model.q_values([state])[0], expected, rtol=1e-10)


def test_with_all_neighbours_the_sparse_model_is_the_dense_one():
    log = random_log(n=40, ending=0.2)
    dense, sparse = (KBRL(sample_width=0.3, sample_neighbors=mu).fit(log) for mu in (None, 40))
    np.testing.assert_allclose(sparse.q_values(log.states), dense.q_values(log.states), rtol=1e-9)


@settings(max_examples=50, deadline=None)
@given(log=logs(), width=WIDTHS)
def test_any_log_gives_finite_values_for_the_actions_that_were_tried(log, width):
    q = KBRL(sample_width=width, min_cases=1).fit(log).q_values(log.next_states)
    tried = np.bincount(log.action_indices, minlength=log.n_actions) > 0
    assert np.isfinite(q[:, tried]).all()
    assert (q[:, ~tried] == -np.inf).all()


@pytest.mark.parametrize("mu", [1, 2, 5])
@pytest.mark.parametrize("learner", ["KBRL", "KBSF"])
def test_the_order_of_the_rows_does_not_decide_between_neighbours_at_the_same_distance(learner, mu):
    log = random_log(n=60, levels=3, ending=0.1)
    order = np.random.default_rng(mu).permutation(60)
    if learner == "KBRL":
        options = {"sample_neighbors": mu, "scaling": None}
        models = [KBRL(0.3, **options).fit(one) for one in (log, log[order])]
        np.testing.assert_allclose(models[1].solution_.values, models[0].solution_.values[order], rtol=1e-9)
    else:
        reps = np.unique(log.next_states, axis=0)
        options = {"sample_neighbors": mu, "scaling": None, "variant": Variant(q_function="samples"), "reps": reps}
        models = [KBSF(len(reps), **options).fit(one) for one in (log, log[order])]
    states = np.concatenate([log.states, np.random.default_rng(0).random((20, 2))])
    np.testing.assert_allclose(models[1].q_values(states), models[0].q_values(states), rtol=1e-9)
