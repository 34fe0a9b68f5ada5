"""KBSF: the paper's theorems, both Q functions, and the habits of its front door."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from kbrl import KBRL, KBSF, KbrlWarning, NotFittedError, Solver, Transitions, Variant, clone
from samples import SCALES, WIDTHS, as_lists, logs, random_log

REPS = np.random.default_rng(5).random((6, 2))


def kbsf(**changes):
    return KBSF(**({"reps": REPS, "sample_width": 0.3, "rep_width": 0.2, "discount": 0.9, "scaling": None} | changes))


@pytest.fixture(scope="module")
def log():
    return random_log(n=60, n_actions=3)


@pytest.mark.parametrize("ending", [0.0, 0.2])
def test_kbsf_is_kbrl_when_the_representative_states_are_the_next_states_and_the_width_goes_to_zero(ending):
    log = random_log(n=50, n_actions=2, ending=ending)
    settings = {"sample_width": 0.2, "discount": 0.9, "scaling": None}
    big = KBRL(**settings, tolerance=1e-13).fit(log)
    queries = np.random.default_rng(1).random((20, 2))
    reduced = KBSF(
        reps=log.next_states,
        rep_width=1e-9,
        variant=Variant(q_function="samples"),
        **settings,
        solver=Solver(tolerance=1e-13),
    ).fit(log)
    np.testing.assert_allclose(reduced.q_values(queries), big.q_values(queries), rtol=1e-10)
    np.testing.assert_allclose(reduced.rep_values_, big.solution_.values, rtol=1e-10)


def test_the_values_at_the_representative_states_are_those_of_algorithm_1(log):
    model = kbsf().fit(log)
    p, r = naive.kbsf_model(as_lists(log), REPS.tolist(), 0.3, 0.2)
    np.testing.assert_allclose(model.rep_q_, naive.value_iteration(p, r, 0.9, 300), atol=1e-6)
    np.testing.assert_allclose(model.rep_values_, model.rep_q_.max(axis=1))


def test_q_from_representative_states_is_equation_ikbsf_q(log):
    model, queries = kbsf().fit(log), np.random.default_rng(2).random((9, 2))
    expected = [naive.q_from_reps(s, REPS.tolist(), model.rep_q_.tolist(), 0.2) for s in queries.tolist()]
    np.testing.assert_allclose(model.q_values(queries), expected, rtol=1e-10)


def test_q_from_samples_is_equation_kbsf_q(log):
    model, queries = kbsf(variant=Variant(q_function="samples")).fit(log), np.random.default_rng(2).random((9, 2))
    next_values = [
        [
            0.0 if end else max(naive.q_from_reps(s, REPS.tolist(), model.rep_q_.tolist(), 0.2))
            for _, _, s, end in samples
        ]
        for samples in as_lists(log)
    ]
    expected = [naive.q_from_samples(s, as_lists(log), next_values, 0.3, 0.9) for s in queries.tolist()]
    np.testing.assert_allclose(model.q_values(queries), expected, rtol=1e-10)
    np.testing.assert_allclose(model.q_from_reps(queries), kbsf().fit(log).q_values(queries))


def test_rewards_plus_a_constant_shift_values_where_nothing_ends():
    log = random_log(n=60, ending=0.0)
    shifted = Transitions(log.states, log.actions, log.rewards + 3.0, log.next_states, log.terminals)
    difference = (
        kbsf(solver=Solver(tolerance=1e-12)).fit(shifted).rep_q_ - kbsf(solver=Solver(tolerance=1e-12)).fit(log).rep_q_
    )
    np.testing.assert_allclose(difference, 3.0 / (1 - 0.9), rtol=1e-8)


@settings(max_examples=100, deadline=None)
@given(
    log=logs(scales=SCALES),
    sample_width=WIDTHS,
    rep_width=WIDTHS,
    neighbors=st.sampled_from([(None, None), (3, 2), (1, None), (None, 1)]),
    reps=st.sampled_from(["k-means", "random", "farthest", "grid"]),
    scaling=st.sampled_from(["std", "range", None]),
    q_function=st.sampled_from(["reps", "samples"]),
)
@pytest.mark.filterwarnings("ignore::kbrl.KbrlWarning")
def test_any_log_gives_finite_values_for_the_actions_that_were_tried(
    log, sample_width, rep_width, neighbors, reps, scaling, q_function
):
    model = KBSF(
        n_reps=5,
        reps=reps,
        sample_width=sample_width,
        rep_width=rep_width,
        sample_neighbors=neighbors[0],
        rep_neighbors=neighbors[1],
        scaling=scaling,
        variant=Variant(q_function=q_function),
        random_state=0,
        min_cases=1,
    ).fit(log)
    q = model.q_values(log.next_states)
    tried = np.bincount(log.action_indices, minlength=log.n_actions) > 0
    assert np.isfinite(q[:, tried]).all()
    assert (q[:, ~tried] == -np.inf).all()
    assert np.isin(model.predict(log.states), log.actions).all()
    assert np.abs(q[:, tried]).max() <= np.abs(log.rewards).max() / (1 - 0.99) * (1 + 2 * model.solver.tolerance)


@settings(max_examples=50, deadline=None)
@given(log=logs(levels=st.none()), factor=st.sampled_from([1e-6, 0.5, 1e6]))
@pytest.mark.filterwarnings("ignore::kbrl.KbrlWarning")
def test_other_units_change_nothing_where_states_are_scaled(log, factor):
    other = Transitions(
        log.states * factor,
        log.actions,
        log.rewards,
        log.next_states * factor,
        log.terminals,
        action_labels=log.action_labels,
    )
    one, two = (KBSF(n_reps=4, reps="random", random_state=0, min_cases=1).fit(data) for data in (log, other))
    np.testing.assert_allclose(two.q_values(other.states), one.q_values(log.states), rtol=1e-6)
    np.testing.assert_allclose(two.reps_, one.reps_ * factor, rtol=1e-12)


def test_sweeps_after_fit_give_the_optimal_values_of_so_many_steps_and_go_on_from_there(log):
    model = kbsf(solver=Solver(sweeps=4), discount=0.9).fit(log)
    p, r = model.mdp_.probabilities.tolist(), model.mdp_.rewards.tolist()
    np.testing.assert_allclose(model.rep_q_, naive.value_iteration(p, r, 0.9, 4), rtol=1e-12)
    assert not model.solution_.converged
    before = model.rep_values_
    with pytest.warns(KbrlWarning, match="they count twice now"):
        model.partial_fit(log)  # the same data again: the same model, and four more sweeps
    np.testing.assert_allclose(model.rep_q_, naive.value_iteration(p, r, 0.9, 8), rtol=1e-9)
    assert np.abs(model.rep_values_ - before).max() > 1e-6


def test_an_action_never_tried_is_unavailable_and_never_chosen():
    log = random_log(n=40, ending=0.0)
    losing = Transitions(log.states, log.actions, log.rewards - 9, log.next_states, action_labels=[0, 1, 2])
    for model in (
        kbsf().fit(losing),
        kbsf(variant=Variant(q_function="samples")).fit(losing),
        KBRL(scaling=None).fit(losing),
    ):
        assert (model.q_values(log.states)[:, 2] == -np.inf).all()
        assert 2 not in model.predict(log.states)
        assert model.act(log.states[0]) != 2


def test_labels_of_any_kind_come_back():
    log = random_log(n=40)
    named = Transitions(log.states, np.array(["wait", "go"])[log.action_indices], log.rewards, log.next_states)
    assert set(kbsf().fit(named).predict(log.states)) <= {"wait", "go"}


def test_act_is_predict_for_one_state(log):
    for changes in (
        {},
        {"variant": Variant(profile="gaussian")},
        {"rep_neighbors": 2},
        {"rep_neighbors": 2, "rep_width": np.geomspace(0.05, 2.0, len(REPS))},
        {"variant": Variant(profile="uniform"), "rep_width": 0.4},
        {"variant": Variant(norm=1), "rep_neighbors": 2},
        {"variant": Variant(q_function="samples")},
        {"variant": Variant(profile=lambda z: 1 / (1 + z) ** 3)},
    ):
        model = kbsf(**changes).fit(log)
        assert [model.act(s) for s in log.states] == model.predict(log.states).tolist()


@pytest.mark.parametrize("neighbors", [None, 2])
def test_a_model_that_has_acted_can_be_sent_to_another_process(log, neighbors):
    model = kbsf(rep_neighbors=neighbors).fit(log)
    acted = [model.act(state) for state in log.states]
    for copy in (pickle.loads(pickle.dumps(model)), pickle.loads(pickle.dumps(model.policy()))):
        assert [copy.act(state) for state in log.states] == acted


def test_terminal_transitions_lead_nowhere_unless_told_to_go_on():
    # One state, reward 1 for ever: worth 1 / (1 - 0.9) = 10 if it goes on, 1 if it ends.
    log = Transitions([[0.0]], [0], [1.0], [[0.0]], [True])
    continued = {"variant__terminals": "continue"}
    learners = ((KBSF(reps=[[0.0]], discount=0.9), continued), (KBRL(discount=0.9), {"terminals": "continue"}))
    for learner, change in learners:
        assert learner.fit(log).values([[0.0]])[0] == pytest.approx(1.0)
        assert learner.set_params(**change).fit(log).values([[0.0]])[0] == pytest.approx(10.0)


@pytest.mark.parametrize("form", [{}, {"sample_neighbors": 3, "rep_neighbors": 2}])
def test_chunks_and_further_data_give_the_model_of_all_data(log, form):
    batch = kbsf(solver=Solver(tolerance=1e-13), **form).fit(log)
    chunked = kbsf(solver=Solver(tolerance=1e-13), **form).fit(log.chunks(7))
    grown = kbsf(solver=Solver(tolerance=1e-13), **form).fit(log[:20]).partial_fit(log[20:])
    for model in (chunked, grown):
        np.testing.assert_allclose(model.rep_q_, batch.rep_q_, rtol=1e-10)
        assert model.n_samples_ == 60


def test_one_width_a_representative_state_is_accepted(log):
    even = kbsf(rep_width=np.full(6, 0.2)).fit(log)
    np.testing.assert_array_equal(even.rep_q_, kbsf().fit(log).rep_q_)
    assert np.isfinite(kbsf(rep_width=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).fit(log).rep_q_).all()


def test_hard_aggregation_is_kbsf_with_a_tiny_width_on_states_moved_to_their_representatives(log):
    nearest = lambda states: REPS[np.argmin(((states[:, None] - REPS) ** 2).sum(axis=2), axis=1)]  # noqa: E731
    moved = Transitions(nearest(log.states), log.actions, log.rewards, log.next_states, log.terminals)
    np.testing.assert_allclose(
        kbsf(variant=Variant(aggregation="hard")).fit(log).rep_q_, kbsf(rep_width=1e-9).fit(moved).rep_q_, rtol=1e-7
    )


def test_same_seed_same_model_whatever_the_number_of_threads():
    log = random_log(n=3000, n_actions=3)
    one, two = (KBSF(n_reps=20, random_state=3, n_jobs=n).fit(log) for n in (1, 2))
    np.testing.assert_array_equal(one.rep_q_, two.rep_q_)
    assert not np.array_equal(KBSF(n_reps=20, random_state=4).fit(log).reps_, one.reps_)


def test_fit_again_forgets_what_was_learnt(log):
    model = kbsf().fit(log)
    np.testing.assert_array_equal(model.fit(random_log(seed=9)).rep_q_, kbsf().fit(random_log(seed=9)).rep_q_)
    assert model.n_samples_ == 40


def test_a_failed_fit_loses_nothing(log):
    model = kbsf().fit(log)
    before = model.rep_q_.copy()
    with pytest.raises(ValueError, match="sample_width"):
        model.set_params(sample_width=-1).fit(log)
    np.testing.assert_array_equal(model.rep_q_, before)


def test_it_has_scikit_learns_habits(log):
    model = KBSF(n_reps=7, rep_width=0.5)
    assert repr(model) == "KBSF(n_reps=7, rep_width=0.5)"
    assert clone(model).get_params() == model.get_params()
    assert model.fit(log) is model
    assert model.n_features_in_ == 2
    with pytest.raises(NotFittedError, match="has not learnt anything yet"):
        clone(model).predict([[0.0, 0.0]])


def test_duplicates_among_the_users_representative_states_are_dropped_and_said(log):
    with pytest.warns(KbrlWarning, match="2 of them equal an earlier one"):
        model = kbsf(reps=np.concatenate([REPS, REPS[:2]])).fit(log)
    np.testing.assert_array_equal(model.reps_, REPS)


def test_more_representative_states_than_states_are_said(log):
    with pytest.warns(KbrlWarning, match="60"):
        assert len(KBSF(n_reps=1000).fit(log).reps_) == 60


def test_the_bound_of_a_model_is_kept_and_scaling_does_not_matter_to_it(log):
    queries = np.random.default_rng(3).random((50, 2))
    shared = {"sample_width": 0.5, "discount": 0.5}
    big = KBRL(**shared).fit(log)
    small = KBSF(30, rep_width=0.02, variant=Variant(q_function="samples"), random_state=0, **shared).fit(log)
    bound = small.bound(log)
    assert np.abs(big.q_values(queries) - small.q_values(queries)).max() <= bound.q_error
    other = Transitions(log.states * 1e6, log.actions, log.rewards, log.next_states * 1e6, log.terminals)
    moved = KBSF(reps=small.reps_ * 1e6, rep_width=0.02, variant=Variant(q_function="samples"), **shared).fit(other)
    assert moved.bound(other).value == pytest.approx(bound.value)
