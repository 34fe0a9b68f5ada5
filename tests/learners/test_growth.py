"""Incremental KBSF: growth, shrinking, merging and forgetting."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import naive
from kbrl import KBSF, Growth, Kernel, Solver, Transitions, Variant
from kbrl.data.scaling import Coordinates
from kbrl.model.kernels import Basis
from kbrl.model.sums import new_statistics
from kbrl.settings import grouped
from samples import WIDTHS, logs, random_log

FORMS = [(None, None), (None, 2), (3, 2), (3, None)]
REPS = np.random.default_rng(5).random((6, 2))


def dense(mdp):
    return mdp.stacked if isinstance(mdp.stacked, np.ndarray) else mdp.stacked.toarray()


def basis_of(log, n_reps, form, tau=0.3, tau_bar=0.2):
    reps = np.random.default_rng(7).random((9, log.n_dims))[:n_reps]
    kernels = Kernel(tau, neighbors=form[0]), Kernel(tau_bar, neighbors=form[1])
    return Basis(reps, Coordinates.plain(log.n_dims), *kernels, log.n_actions)


@settings(max_examples=80, deadline=None)
@given(
    before=logs(max_rows=15), seed=st.integers(0, 999), form=st.sampled_from(FORMS), tau=WIDTHS,
    neighborhoods=st.sampled_from(["exact", "per_chunk"]),
)  # fmt: skip
def test_a_grown_model_is_the_old_one_plus_one_that_had_all_states_from_the_start(
    before, seed, form, tau, neighborhoods
):
    later = random_log(n=12, n_dims=before.n_dims, n_actions=before.n_actions, seed=seed)
    small, large = basis_of(before, 3, form, tau), basis_of(before, 5, form, tau)
    old = new_statistics(small, neighborhoods).accumulate(before)
    grown = old.on(large).accumulate(later)
    expected = old.on(large) + new_statistics(large, neighborhoods).accumulate(later)
    np.testing.assert_allclose(dense(grown.to_mdp(0.9)), dense(expected.to_mdp(0.9)), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(grown.to_mdp(0.9).rewards, expected.to_mdp(0.9).rewards, atol=1e-12)


@pytest.mark.parametrize("form", [(None, None), (None, 2)])
def test_growing_keeps_every_old_entry_of_dense_sums(form):
    log = random_log(n=40)
    small = basis_of(log, 3, form)
    larger = replace(small, reps=np.concatenate([small.reps, [[5.0, 5.0]]]))
    grown = new_statistics(small).accumulate(log).on(larger)
    old, new = new_statistics(small).accumulate(log).to_mdp(0.9), grown.to_mdp(0.9)
    np.testing.assert_array_equal(new.probabilities[:, :3, :3], old.probabilities)
    np.testing.assert_array_equal(new.rewards[:, :3], old.rewards)
    assert not new.available[:, 3].any()


def test_states_beyond_the_distance_become_representative_states_and_the_curve_is_recorded():
    near, far = random_log(n=50), random_log(n=50, seed=1)
    far = Transitions(far.states + 10, far.actions, far.rewards, far.next_states + 10, far.terminals)
    model = KBSF(reps=REPS, scaling=None, growth=Growth(distance=1.5)).fit(near)
    assert len(model.reps_) == 6
    model.partial_fit(far)
    new = model.reps_[6:]
    assert len(new) >= 1
    assert np.sqrt(((far.next_states[:, None] - model.reps_) ** 2).sum(axis=2)).min(axis=1).max() <= 1.5
    np.testing.assert_array_equal(model.growth_, [[50, 6], [100, len(model.reps_)]])
    assert np.isfinite(model.q_values(far.states)).all()


def test_growth_by_a_kernel_value_is_growth_by_the_distance_where_it_has_that_value():
    assert Kernel(0.5).reach(0.01) == pytest.approx(-0.5 * np.log(0.01))
    assert Kernel(2.0, "gaussian").reach(0.01) == pytest.approx(2 * np.sqrt(-2 * np.log(0.01)))
    assert Kernel(1.0, lambda z: 1 / (1 + z)).reach(0.01) == pytest.approx(99.0)
    log = random_log(n=200, seed=3)
    one = KBSF(reps=REPS, scaling=None, rep_width=0.05, growth=Growth(below=0.01)).fit(log)
    two = KBSF(reps=REPS, scaling=None, rep_width=0.05, growth=Growth(distance=-0.05 * np.log(0.01))).fit(log)
    np.testing.assert_array_equal(one.reps_, two.reps_)


@pytest.mark.parametrize("norm", [1, 3, np.inf])
def test_growth_and_covers_measure_by_the_norm_of_the_kernels(norm):
    """Against a loop over the states in order."""
    log = random_log(n=200, seed=3)
    grown = (
        KBSF(reps=REPS, scaling=None, rep_width=0.1, growth=Growth(below=0.1), variant=Variant(norm=norm))
        .fit(log)
        .reps_
    )
    cover = (
        KBSF(reps="cover", growth=Growth(cover_distance=0.3), scaling=None, variant=Variant(norm=norm)).fit(log).reps_
    )
    for start, distance, found in ((REPS.tolist(), -0.1 * np.log(0.1), grown), ([], 0.3, cover)):
        wanted = list(start)
        for state in log.next_states.tolist():
            if all(naive.distance(state, rep, norm) > distance for rep in wanted):
                wanted.append(state)
        assert found.tolist() == wanted
        assert len(wanted) > len(start)


def test_a_distance_whose_square_no_float_can_hold_adds_no_state():
    learner = KBSF(n_reps=5, growth=Growth(distance=1e200), random_state=0).fit(random_log(n=40))
    assert learner.partial_fit(random_log(n=40, seed=1)).model_.basis.n_reps == 5


def test_growth_stops_at_the_largest_number():
    model = KBSF(reps=REPS, growth=Growth(distance=0.01, max_reps=9), scaling=None).fit(random_log(n=100))
    assert len(model.reps_) == 9


@pytest.mark.parametrize("form", [(None, None), (3, 2)])
@pytest.mark.parametrize("cuts", [[20], [1, 2, 50], [59]])
def test_models_fitted_apart_add_up_to_the_model_of_all_data(form, cuts):
    log = random_log(n=60, n_actions=3)
    settings = {"reps": REPS, "scaling": None, "solver": Solver(tolerance=1e-13)}
    settings |= {"sample_neighbors": form[0], "rep_neighbors": form[1]}
    parts = [KBSF(**settings, min_cases=1).fit(log[a:b]) for a, b in zip([0, *cuts], [*cuts, 60])]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged + part
    whole = KBSF(**settings, min_cases=1).fit(log)
    np.testing.assert_allclose(merged.rep_q_, whole.rep_q_, rtol=1e-10)
    assert merged.n_samples_ == 60


@settings(max_examples=60, deadline=None)
@given(log=logs(), more=st.integers(1, 20), seed=st.integers(0, 99), form=st.sampled_from([(None, None), (None, 2)]))
def test_what_is_added_and_taken_away_again_leaves_the_model_as_it_was(log, more, seed, form):
    extra = random_log(n=more, n_dims=log.n_dims, n_actions=log.n_actions, seed=seed)
    basis = basis_of(log, 4, form, tau=0.5)
    alone = new_statistics(basis).accumulate(log)
    assume(np.abs(alone.to_mdp(0.9).rewards).max() > 1e-6)  # nothing tells mean rewards of 0 from rounding: refused
    back = (alone + new_statistics(basis).accumulate(extra)) - new_statistics(basis).accumulate(extra)
    np.testing.assert_allclose(dense(back.to_mdp(0.9)), dense(alone.to_mdp(0.9)), atol=1e-9)
    np.testing.assert_allclose(back.to_mdp(0.9).rewards, alone.to_mdp(0.9).rewards, atol=1e-9)
    np.testing.assert_array_equal(back.to_mdp(0.9).available, alone.to_mdp(0.9).available)


def test_a_model_forgets_data():
    log = random_log(n=60)
    settings = {"reps": REPS, "scaling": None, "sample_width": 0.5}
    np.testing.assert_allclose(
        KBSF(**settings).fit(log).forget(log[40:]).rep_q_, KBSF(**settings).fit(log[:40]).rep_q_, rtol=1e-6
    )


def test_what_cannot_be_forgotten_is_said():
    log = random_log(n=60)
    with pytest.raises(ValueError, match="those that would take their places"):
        KBSF(reps=REPS, sample_neighbors=3).fit(log).forget(log[:5])
    with pytest.raises(ValueError, match="keeps its samples"):
        KBSF(reps=REPS, variant=Variant(q_function="samples")).fit(log).forget(log[:5])
    with pytest.raises(ValueError, match="but 55 of these 60 were never learnt"):
        KBSF(reps=REPS).fit(log[:5]).forget(log)


@pytest.mark.parametrize("form", [(None, None), (3, 2)])
def test_dropping_states_that_nothing_leads_to_changes_nothing(form):
    log = random_log(n=80)
    settings = {"scaling": None, "rep_width": 0.05, "sample_neighbors": form[0], "rep_neighbors": form[1]}
    far = np.concatenate([REPS, [[50.0, 50.0], [-70.0, 10.0]]])
    model = KBSF(reps=far, **settings).fit(log)
    assert model.shrink(1e-12) <= 1e-6
    np.testing.assert_array_equal(model.reps_, REPS)
    np.testing.assert_allclose(model.rep_q_, KBSF(reps=REPS, **settings).fit(log).rep_q_, rtol=1e-6)


def test_a_shrunk_model_still_has_distributions_for_rows_and_says_what_changed():
    log = random_log(n=80, ending=0.0)
    model = KBSF(n_reps=30, random_state=0).fit(log)
    before = {tuple(rep): value for rep, value in zip(model.reps_, model.rep_values_)}
    change = model.shrink(0.6)
    assert 0 < len(model.reps_) < 30
    np.testing.assert_allclose(model.mdp_.probabilities.sum(axis=2), 1.0)
    after = {tuple(rep): value for rep, value in zip(model.reps_, model.rep_values_)}
    assert change == pytest.approx(max(abs(before[rep] - after[rep]) for rep in after))


def test_models_of_other_data_are_refused_where_they_do_not_fit():
    log = random_log(n=60)
    model = KBSF(reps=REPS, scaling=None).fit(log)
    with pytest.raises(ValueError, match="refer to the same basis, but these differ in: representative states"):
        model + KBSF(reps=REPS + 1, scaling=None).fit(log)
    with pytest.raises(ValueError, match="know the same actions"):
        model + KBSF(reps=REPS, scaling=None).fit(random_log(n_actions=3))
    with pytest.raises(ValueError, match="but not both"):
        KBSF(growth=Growth(distance=1.0, below=0.01)).fit(log)
    with pytest.raises(ValueError, match="cannot grow"):
        KBSF(growth=Growth(distance=1.0), rep_width=[1.0, 2.0]).fit(log)


@pytest.mark.parametrize("neighborhoods", ["exact", "per_chunk"])
def test_growing_keeps_what_truncated_statistics_knew(neighborhoods):
    log = random_log(n=40)
    small = basis_of(log, 3, (3, 2))
    larger = replace(small, reps=np.concatenate([small.reps, [[50.0, 50.0]]]))
    old = new_statistics(small, neighborhoods).accumulate(log)
    new = old.on(larger).to_mdp(0.9)
    np.testing.assert_allclose(dense(new).reshape(2, 4, 4)[:, :3, :3], dense(old.to_mdp(0.9)).reshape(2, 3, 3))
    np.testing.assert_array_equal(new.rewards[:, :3], old.to_mdp(0.9).rewards)


@pytest.mark.parametrize("n_calls", [1, 2, 3, 5])
def test_a_failure_in_the_middle_leaves_the_model_as_it_was(n_calls):
    log = random_log(n=60, n_actions=2)
    left = [10**9]

    def profile(z):
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("interrupted")
        return np.exp(-z)

    model = KBSF(reps=REPS, scaling=None, growth=Growth(distance=0.3), n_jobs=1, variant=Variant(profile=profile)).fit(
        log[:30]
    )
    before, reps, growth = model.rep_q_.copy(), model.reps_.copy(), model.growth_.copy()
    left[0] = n_calls
    with pytest.raises(RuntimeError, match="interrupted"):
        model.partial_fit(log[30:])
    left[0] = 10**9
    np.testing.assert_array_equal(model.reps_, reps)
    np.testing.assert_array_equal(model.growth_, growth)
    np.testing.assert_array_equal(model.rep_q_, before)
    assert np.isfinite(model.partial_fit(log[30:]).rep_q_).all()
    assert model.n_samples_ == 60


def test_models_that_were_fitted_differently_are_not_added():
    log = random_log(n=60)
    settings = {"reps": REPS, "scaling": None}
    for name, value in (("discount", 0.5), ("terminals", "continue"), ("q_function", "samples")):
        with pytest.raises(ValueError, match=f"differ in: {name}"):
            KBSF(**settings).fit(log) + KBSF(**settings, **grouped({name: value})).fit(log)


def test_a_model_that_has_grown_cannot_forget():
    near, far = random_log(n=50), random_log(n=50, seed=1)
    far = Transitions(far.states + 10, far.actions, far.rewards, far.next_states + 10, far.terminals)
    model = KBSF(reps=REPS, scaling=None, growth=Growth(distance=1.5)).fit([near, far])
    with pytest.raises(ValueError, match="came or went while it learnt"):
        model.forget(near)


def test_parameters_set_after_fit_wait_for_the_next_fit():
    log = random_log(n=60)
    model = KBSF(reps=REPS, scaling=None).fit(log[:40])
    model.set_params(discount=0.1, variant__terminals="continue", variant__q_function="samples").partial_fit(log[40:])
    np.testing.assert_allclose(model.q_values(log.states), KBSF(reps=REPS, scaling=None).fit(log).q_values(log.states))
