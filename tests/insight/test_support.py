"""Support: never more than the number of cases that a value rests on, nothing far away, the same however data came."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

import naive
from kbrl import KBSF, Growth, Transitions, Variant, explain
from kbrl.insight.coverage import coverage
from kbrl.model.support import fade, reach
from kbrl.storage.model_file import load_model, save_model
from samples import as_lists, random_log

FORMS = {
    "dense": {},
    "gaussian": {"variant": Variant(profile="gaussian")},
    "uniform": {"variant": Variant(profile="uniform")},
    "a sum of differences": {"variant": Variant(norm=1)},
    "a user's profile": {"variant": Variant(profile=lambda z: np.exp(-z))},
    "neighbours": {"sample_neighbors": 3, "rep_neighbors": 2},
    "neighbours per chunk": {"sample_neighbors": 4, "variant": Variant(neighborhoods="per_chunk")},
    "hard": {"variant": Variant(aggregation="hard")},
    "samples": {"variant": Variant(q_function="samples")},
    "samples with neighbours": {"variant": Variant(q_function="samples"), "sample_neighbors": 4},
    "one width per representative state": {"rep_width": np.array([0.1, 0.5, 0.2, 1.0, 0.3])},
}


def fitted(log, form="dense", **more):
    return KBSF(**({"n_reps": 5, "reps": "random", "random_state": 0, "scaling": None} | FORMS[form] | more)).fit(log)


def slow_weights(model, log, state):
    """The weights w_t of the cases of each action in the value of a state, by the formulas, in loops."""
    phi = {"gaussian": naive.gaussian, "uniform": naive.uniform}.get(model.variant.profile, naive.exponential)
    reps = model.reps_.tolist()
    rep_width = model.rep_width.tolist() if np.ndim(model.rep_width) else model.rep_width
    result = []
    for samples in as_lists(log):
        states = [s for s, _, _, _ in samples]
        if model.variant.aggregation == "hard":
            states = [min(reps, key=lambda rep: math.dist(s, rep)) for s in states]
            shares = [float(i == min(range(len(reps)), key=lambda j: math.dist(state, reps[j]))) for i in range(5)]
        else:
            shares = naive.kappa(state, reps, rep_width, phi, model.rep_neighbors, model.variant.norm)
        at = (model.sample_width, phi, model.sample_neighbors, model.variant.norm)
        if model.variant.q_function == "samples":
            result.append(naive.kappa(state, states, *at))
        else:
            rows = [naive.kappa(rep, states, *at) for rep in reps]
            result.append([sum(share * row[t] for share, row in zip(shares, rows)) for t in range(len(states))])
    return result


def kish(weights):
    return sum(weights) ** 2 / sum(w * w for w in weights)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.05, 0.1, 0.3, 10.0]),
    st.sampled_from([0.05, 0.3]),
    st.sampled_from([None, 2, 5]),
)
def test_support_is_never_more_than_the_number_of_cases_that_the_value_rests_on(form, seed, width, rep_width, levels):
    log = random_log(30, seed=seed, levels=levels, scale=1 / (levels or 1))
    reps = np.random.default_rng(seed).random((5, 2))
    more = {} if "rep_width" in FORMS[form] else {"rep_width": rep_width}
    model = fitted(log, form, reps=reps, sample_width=width, **more)
    states = np.random.default_rng(seed).random((4, 2))
    support = coverage(model, states).support
    for row, state in enumerate(states.tolist()):
        for action, weights in enumerate(slow_weights(model, log, state)):
            assert support[row, action] <= kish(weights) * (1 + 1e-9)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "one width per representative state"])
@pytest.mark.parametrize("sample_width", [0.05, 0.4, 3.0])
def test_where_a_value_comes_from_one_representative_state_support_is_the_number_of_cases_it_rests_on(
    form, sample_width
):
    log = random_log(80, seed=3)
    model = fitted(log, form, reps=log.states[[3, 9, 30, 41, 70]], sample_width=sample_width, rep_width=1e-6)
    support = coverage(model, model.reps_).support
    for row, rep in enumerate(model.reps_.tolist()):
        expected = [kish(weights) for weights in slow_weights(model, log, rep)]
        np.testing.assert_allclose(support[row], expected, rtol=1e-9)


@pytest.mark.parametrize("settings", [{"sample_width": 1e-4}, {"sample_neighbors": 1}, {"sample_width": 1.8}])
def test_support_is_at_most_what_the_weights_of_explain_say_and_close_to_it(settings):
    log = random_log(200, seed=1, n_dims=1)
    model = KBSF(5, random_state=0, rep_width=0.1, **settings).fit(log)
    for state in ([0.2], [0.5], [0.77]):
        for action in explain(model, state, log=log, n_cases=200).actions:
            number = kish([case.weight for case in action.cases])
            assert 0.5 * number <= action.support <= number * (1 + 1e-9)


@pytest.mark.parametrize("n_dims", [1, 2, 6])
def test_for_the_uniform_profile_support_is_the_number_of_cases_within_the_radius(n_dims):
    log = random_log(300, n_dims=n_dims, n_actions=3, seed=n_dims)
    model = KBSF(
        8, variant=Variant(profile="uniform"), sample_width=0.6, rep_width=1e-6, scaling=None, random_state=0
    ).fit(log)
    expected = [
        [sum(math.dist(rep, s) <= 0.6 for s, _, _, _ in samples) for samples in as_lists(log)]
        for rep in model.reps_.tolist()
    ]
    assert (np.array(expected) > 1).all()
    np.testing.assert_array_equal(model.statistics_.effective_cases().T, expected)
    np.testing.assert_allclose(coverage(model, model.reps_).support, expected, rtol=1e-14)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "one width per representative state"])
@pytest.mark.parametrize("n_dims", [1, 2, 6])
def test_logged_states_are_supported_and_nothing_is_far_from_the_data(form, n_dims):
    rng = np.random.default_rng(n_dims)
    states = rng.normal(size=(500, n_dims))
    log = Transitions(states, rng.integers(2, size=500), rng.normal(size=500), states)
    model = fitted(log, form, n_reps=30, reps="k-means", scaling="std")
    found = coverage(model, states).support
    assert (found <= np.bincount(log.action_indices)).all()
    assert (found[np.arange(500), log.action_indices] > 0).mean() > 0.97
    far = coverage(model, [[7000.0] * n_dims, [-30.0] * n_dims])
    assert far.support.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert np.isfinite(far.log_mass).all() or form == "uniform"  # the kernel mass does not tell


@pytest.mark.parametrize("reps", ["k-means", "random", "farthest", "mixture"])
@pytest.mark.parametrize("kind", ["one outlier", "lognormal", "Cauchy"])
def test_outliers_do_not_lend_support_to_states_far_from_them(kind, reps):
    rng = np.random.default_rng(0)
    states = rng.normal(size=(1500, 2))
    if kind == "one outlier":
        states[0] = [60.0, 0.0]
    elif kind == "lognormal":
        states = np.exp(1.5 * states)
    else:
        states = rng.standard_cauchy((1500, 2))
    log = Transitions(states, rng.integers(2, size=1500), rng.random(1500), states + 0.1 * rng.normal(size=(1500, 2)))
    model = KBSF(50, reps=reps, random_state=0).fit(log)
    asked = rng.uniform(states.min(axis=0), states.max(axis=0), (2000, 2))
    far = cKDTree(states / model.scale_).query(asked / model.scale_)[0] > 3
    assert far.sum() > 500
    assert coverage(model, asked[far]).support.max() < 5


@pytest.mark.parametrize("form", ["dense", "neighbours", "hard", "samples"])
def test_an_action_that_was_only_taken_elsewhere_has_no_support_here(form):
    states = np.linspace(0.0, 1.0, 101)[:, None]
    log = Transitions(states, (states[:, 0] > 0.5).astype(int), np.zeros(101), states)
    support = coverage(fitted(log, form, reps=states[::5], sample_width=0.02), [[0.1], [0.9]]).support
    assert support[0, 1] == support[1, 0] == 0
    assert (np.diag(support) >= 1).all()


@pytest.mark.parametrize("form", ["dense", "neighbours", "hard", "samples"])
def test_on_discrete_states_an_action_that_was_only_taken_in_the_next_state_has_no_support(form):
    states = [[0.0, 1.0]] * 40 + [[1.0, 1.0]] * 30
    log = Transitions(states, [0] * 20 + [1] * 20 + [0] * 30, np.zeros(70), states)
    model = fitted(log, form, reps=[[0.0, 1.0], [1.0, 1.0], [1.0, 2.0]], sample_width=0.02, rep_width=0.02)
    found = coverage(model, model.reps_[:2]).support
    np.testing.assert_allclose(found, [[20.0, 20.0], [30.0, 0.0]], atol=1e-8)


@pytest.mark.parametrize("form", ["dense", "gaussian", "neighbours", "neighbours per chunk", "hard", "samples"])
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 59))
def test_support_is_the_same_however_the_data_came(form, seed, cut):
    log, rng = random_log(60, seed=seed), np.random.default_rng(seed)
    reps, asked = rng.random((6, 2)), rng.random((20, 2))
    start = KBSF(reps=reps, scaling=None, min_cases=1, **FORMS[form])
    whole = coverage(start.fit(log), asked).support
    shuffled = log[rng.permutation(60)]
    orders = [coverage(start.fit(shuffled), asked).support]
    if form != "neighbours per chunk":  # whose values depend on the split, too
        orders.append(
            coverage(KBSF(**start.get_params(deep=False)).fit(iter([shuffled[:cut], shuffled[cut:]])), asked).support
        )
        parts = [KBSF(**start.get_params(deep=False)).fit(part).model_ for part in (shuffled[cut:], shuffled[:cut])]
        orders.append(coverage(parts[0] + parts[1], asked).support)
    for other in orders:
        np.testing.assert_allclose(other, whole, rtol=1e-10)


def test_after_forgetting_support_is_that_of_the_others_and_not_more():
    log, asked = random_log(400, seed=3), np.random.default_rng(3).random((30, 2))
    reps = asked[:8]
    left = KBSF(reps=reps, scaling=None).fit(log).forget(log[:250])
    refit = KBSF(reps=reps, scaling=None).fit(log[250:])
    found, expected = (coverage(model, asked).support for model in (left, refit))
    assert np.median(found / expected) == pytest.approx(1, rel=1e-6)  # but how near the nearest case is, it only bounds
    for row, state in zip(found, asked.tolist()):
        assert (row <= [kish(weights) * (1 + 1e-9) for weights in slow_weights(refit, log[250:], state)]).all()
    numbers = [model.statistics_.effective_cases() for model in (left, refit)]
    np.testing.assert_allclose(*numbers, rtol=1e-6)
    bound, exact = (model.statistics_.nearest_distances() for model in (left, refit))
    assert (bound >= exact * (1 - 1e-12)).all()


def test_a_case_that_rounding_hides_after_forgetting_does_not_count_as_many():
    states = [[0.0], *[[x] for x in np.linspace(1.75, 1.8, 20)]]  # the others weigh 3e-8 beside the first
    log = Transitions(states, [0] * 21, [1.0] * 21, states)
    left = KBSF(reps=[[0.0]], sample_width=0.1, scaling=None).fit(log).forget(log[:1])
    (number,) = left.statistics_.effective_cases()[0]
    assert 1 <= number <= kish([math.exp(-x / 0.1) for (x,) in states[1:]])


@pytest.mark.parametrize("form", ["dense", "neighbours"])
def test_new_representative_states_know_no_cases_and_what_is_dropped_takes_its_own_along(form):
    log = random_log(40, seed=4)
    model = fitted(log, form).model_
    before = model.sums.effective_cases()
    grown = fitted(log, form, growth=Growth(distance=0.01)).model_.grow(np.array([[9.0, 9.0]]))
    assert grown.sums.effective_cases()[:, -1].tolist() == [0.0, 0.0]
    dropped = np.arange(5) == 2
    np.testing.assert_array_equal(model.shrink(dropped).sums.effective_cases(), before[:, ~dropped])


@pytest.mark.parametrize("form", ["dense", "neighbours", "neighbours per chunk", "samples"])
def test_support_is_the_same_after_save_and_load(form, tmp_path):
    log = random_log(60, seed=5)
    model = fitted(log, form)
    save_model(model, tmp_path / "model.kbrl")
    found = coverage(load_model(tmp_path / "model.kbrl"), log.states).support
    assert found.tobytes() == coverage(model, log.states).support.tobytes()


def test_support_of_sums_from_a_file_of_format_1_is_not_known(tmp_path):
    model = load_model(Path(__file__).parent.parent / "format_1" / "sums.kbrl")
    save_model(model, tmp_path / "again.kbrl")
    for other in (model, model + model, load_model(tmp_path / "again.kbrl")):
        found = coverage(other, model.reps)
        assert np.isnan(found.support).all()
        assert np.isfinite(found.log_mass).any()


def test_neighbours_from_a_file_of_format_1_tell_their_support():
    model = load_model(Path(__file__).parent.parent / "format_1" / "neighbors.kbrl")
    support = coverage(model, model.reps).support
    assert np.isfinite(support).all()
    assert 1 < support.max() <= model.n_samples


def test_support_fades_between_once_and_twice_the_reach():
    distances = np.array([0.0, 2.0, 3.0, 3.5, 4.0, 9.0, np.inf])
    assert fade(distances, 2.0).tolist() == [1.0, 1.0, 0.5, 0.25, 0.0, 0.0, 0.0]


def test_the_reach_is_the_sample_width_or_the_upper_quartile_of_the_gaps():
    reps = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [500.0]])
    log = Transitions(reps, [0] * 6, [0.0] * 6, reps)
    assert reach(fitted(log, reps=reps, sample_width=0.1).model_.basis) == 1.0
    assert reach(fitted(log, reps=reps, sample_width=7.0).model_.basis) == 7.0
    assert reach(fitted(log, reps=reps[:1], sample_width=0.1).model_.basis) == 0.1


def test_one_case_at_one_representative_state_supports_its_surroundings_up_to_twice_the_width():
    log = Transitions([[3.7, 0.1]] * 9, [0] * 9, [1.0] * 9, [[3.7, 0.1]] * 9)
    model = KBSF(reps=[[3.7, 0.1]], scaling=[1.7, 0.3], sample_width=0.1).fit(log)
    asked = [[3.7, 0.1], [3.7 + 0.17, 0.1], [3.7 + 1.5 * 0.17, 0.1], [3.7 + 2.1 * 0.17, 0.1]]
    np.testing.assert_allclose(coverage(model, asked).support[:, 0], [9, 9, 4.5, 0], rtol=1e-9)
