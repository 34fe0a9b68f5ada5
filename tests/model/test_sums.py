"""The sums: what they are, that they add up, and what does not change them."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import naive
from kbrl import Kernel, Transitions, join
from kbrl.data.scaling import Coordinates
from kbrl.model.kernels import Basis
from kbrl.model.sums import KernelSums, new_statistics
from samples import WIDTHS, as_lists, logs, random_log

DENSE = {"mu": None, "mu_bar": None}
FORMS = [DENSE, {"mu": None, "mu_bar": 2}, {"mu": 3, "mu_bar": None}, {"mu": 3, "mu_bar": 2}]


def make_basis(
    log, *, tau=0.3, tau_bar=0.2, mu=None, mu_bar=None, n_reps=5, seed=7, profile="exponential", norm=2, hard=False
):
    reps = np.random.default_rng(seed).random((n_reps, log.n_dims))
    kernels = Kernel(tau, profile, mu, norm), Kernel(tau_bar, profile, mu_bar, norm)
    return Basis(reps, Coordinates.plain(log.n_dims), *kernels, log.n_actions, hard)


def model_of(log, basis, neighborhoods="exact"):
    mdp = new_statistics(basis, neighborhoods).accumulate(log).to_mdp(0.9)
    return dense(mdp), mdp.rewards


def dense(mdp):
    stacked = mdp.stacked if isinstance(mdp.stacked, np.ndarray) else mdp.stacked.toarray()
    return stacked.reshape(mdp.n_actions, mdp.n_states, mdp.n_states)


def assert_same_model(one, other, rtol):
    np.testing.assert_allclose(one[0], other[0], rtol=rtol, atol=1e-300)
    np.testing.assert_allclose(one[1], other[1], rtol=rtol, atol=rtol)  # rewards are of the order of 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("profile", ["exponential", "gaussian", "uniform"])
@pytest.mark.parametrize("neighborhoods", ["exact", "per_chunk"])
@pytest.mark.parametrize("norm", [1, 2, 3, np.inf])
def test_the_model_is_that_of_algorithm_1(form, profile, neighborhoods, norm):
    log = random_log(n=30)
    basis = make_basis(log, profile=profile, norm=norm, **form)
    phi = getattr(naive, profile)
    expected = naive.kbsf_model(as_lists(log), basis.reps.tolist(), 0.3, 0.2, phi=phi, norm=norm, **form)
    assert_same_model(model_of(log, basis, neighborhoods), [np.array(x) for x in expected], rtol=1e-11)


@pytest.mark.parametrize("mu_bar", [1, 2, 4])
@pytest.mark.parametrize("profile", ["exponential", "gaussian", "uniform"])
def test_the_model_with_one_width_per_state_keeps_the_largest_kernel_values(mu_bar, profile):
    log, widths = random_log(n=30), [0.02, 0.5, 0.1, 0.9, 0.2]
    basis = make_basis(log, tau_bar=widths, mu_bar=mu_bar, profile=profile)
    phi = getattr(naive, profile)
    expected = naive.kbsf_model(as_lists(log), basis.reps.tolist(), 0.3, widths, phi=phi, mu_bar=mu_bar)
    assert_same_model(model_of(log, basis), [np.array(x) for x in expected], rtol=1e-11)


def test_hard_aggregation_keeps_the_nearest_state_whatever_the_widths():
    log = random_log(n=40)
    plain, widths = make_basis(log, hard=True), make_basis(log, hard=True, tau_bar=[0.01, 9.0, 0.1, 3.0, 0.5], mu_bar=2)
    assert_same_model(model_of(log, widths), model_of(log, plain), rtol=1e-15)


def test_a_function_of_the_users_gives_the_same_model_as_the_built_in_profile():
    log = random_log(n=30)
    own = make_basis(log, profile=lambda z: np.exp(-z))
    assert_same_model(model_of(log, own), model_of(log, make_basis(log)), rtol=1e-12)


def test_the_update_rules_of_algorithm_2_lead_to_the_same_model():
    log = random_log(n=30, n_actions=1)
    basis = make_basis(log)
    samples, reps = as_lists(log)[0], basis.reps.tolist()
    model, weights = ([[0.0] * 5 for _ in reps], [0.0] * 5), [0.0] * 5
    for start in range(0, 30, 7):
        naive.update(model, weights, samples[start : start + 7], reps, 0.3, 0.2)
    p, r = model_of(log, basis)
    np.testing.assert_allclose(p[0], model[0], rtol=1e-11)
    np.testing.assert_allclose(r[0], model[1], rtol=1e-11)


@settings(max_examples=150, deadline=None)
@given(
    log=logs(),
    form=st.sampled_from(FORMS),
    tau=WIDTHS,
    tau_bar=WIDTHS,
    kind=st.sampled_from([{}, {"profile": "uniform"}, {"norm": 1}, {"norm": 3, "profile": "gaussian"}]),
    data=st.data(),
)
def test_statistics_of_the_parts_add_up_to_those_of_the_whole(log, form, tau, tau_bar, kind, data):
    basis = make_basis(log, tau=tau, tau_bar=tau_bar, **form, **kind)
    part_of = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(log), max_size=len(log))))
    parts = [
        new_statistics(basis).accumulate(log[part_of == k])
        for k in data.draw(st.permutations(range(4)))
        if (part_of == k).any()
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged + part
    one_after_the_other = new_statistics(basis)
    for k in range(4):
        if (part_of == k).any():
            one_after_the_other.accumulate(log[part_of == k])
    whole = model_of(log, basis)
    for statistics in (merged, one_after_the_other):
        mdp = statistics.to_mdp(0.9)
        if form["mu"] is None:
            assert_same_model((dense(mdp), mdp.rewards), whole, rtol=1e-12)
        else:  # exact neighbourhoods: bit for bit
            np.testing.assert_array_equal(dense(mdp), whole[0])
            np.testing.assert_array_equal(mdp.rewards, whole[1])
        assert statistics.counts.sum() == len(log)


@settings(max_examples=100, deadline=None)
@given(log=logs(), form=st.sampled_from(FORMS), tau=WIDTHS, seed=st.integers(0, 99))
def test_permuting_the_data_changes_nothing(log, form, tau, seed):
    basis = make_basis(log, tau=tau, **form)
    shuffled = log[np.random.default_rng(seed).permutation(len(log))]
    assert_same_model(model_of(shuffled, basis), model_of(log, basis), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(log=logs(), tau=WIDTHS, tau_bar=WIDTHS)
def test_duplicating_the_data_changes_nothing(log, tau, tau_bar):
    basis = make_basis(log, tau=tau, tau_bar=tau_bar)
    assert_same_model(model_of(log + log, basis), model_of(log, basis), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(log=logs(levels=st.none()), tau=WIDTHS, tau_bar=WIDTHS)
def test_duplicating_the_data_and_the_neighbours_changes_nothing(log, tau, tau_bar):
    twice = make_basis(log, tau=tau, tau_bar=tau_bar, mu=6, mu_bar=2)
    once = make_basis(log, tau=tau, tau_bar=tau_bar, mu=3, mu_bar=2)
    assert_same_model(model_of(log + log, twice), model_of(log, once), rtol=1e-12)


@settings(max_examples=100, deadline=None)
@given(log=logs(), form=st.sampled_from(FORMS), tau=WIDTHS, tau_bar=WIDTHS, hard=st.booleans())
def test_rows_sum_to_one_minus_the_probability_of_ending(log, form, tau, tau_bar, hard):
    basis = make_basis(log, tau=tau, tau_bar=tau_bar, hard=hard, **form)
    # Reward 1 at an end and 0 elsewhere makes r-bar the probability of ending.
    ends = Transitions.trusted(
        log.states,
        log.action_indices,
        log.terminals.astype(float),
        log.next_states,
        log.terminals,
        None,
        log.action_labels,
    )
    # "exact" tells ties apart by their reward, so the flag has to be the reward in both.
    mdp = new_statistics(basis).accumulate(ends).to_mdp(0.9)
    tried = np.bincount(log.action_indices, minlength=log.n_actions) > 0
    np.testing.assert_allclose(dense(mdp)[tried].sum(axis=2), 1 - mdp.rewards[tried], atol=1e-12)
    np.testing.assert_array_equal(mdp.available, np.broadcast_to(tried[:, None], mdp.available.shape))


@settings(max_examples=60, deadline=None)
@given(log=logs(), form=st.sampled_from(FORMS), c=st.floats(-1e3, 1e3))
def test_adding_a_constant_to_the_rewards_adds_it_to_the_models_rewards(log, form, c):
    # Among more ties than there are places, a hash of the outcome decides, which another reward changes.
    assume(form["mu"] is None or len(np.unique(log.states, axis=0)) == len(log))
    basis = make_basis(log, **form)
    shifted = Transitions(
        log.states, log.actions, log.rewards + c, log.next_states, log.terminals, action_labels=log.action_labels
    )
    p, r = model_of(log, basis)
    p_shifted, r_shifted = model_of(shifted, basis)
    tried = np.bincount(log.action_indices, minlength=log.n_actions) > 0
    np.testing.assert_allclose(p_shifted, p, atol=1e-12)
    np.testing.assert_allclose(r_shifted[tried], r[tried] + c, atol=1e-9)


def test_one_chunk_of_the_per_chunk_reading_is_the_exact_one():
    log = random_log(n=50)
    basis = make_basis(log, mu=4, mu_bar=2)
    assert_same_model(model_of(log, basis, "per_chunk"), model_of(log, basis), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(log=logs(), mu=st.integers(1, 4), hard=st.booleans(), seed=st.integers(0, 99))
def test_the_order_of_the_rows_of_a_chunk_does_not_matter(log, mu, hard, seed):
    basis = make_basis(log, mu=mu, mu_bar=2, hard=hard)
    shuffled = log[np.random.default_rng(seed).permutation(len(log))]
    assert_same_model(model_of(shuffled, basis, "per_chunk"), model_of(log, basis, "per_chunk"), rtol=1e-9)


def test_samples_at_the_last_distance_of_a_chunk_share_the_places_that_are_left():
    # One representative state at 0; samples at 1 (reward 7) and three at 2 (rewards 1, 1 and 4); two places.
    log = Transitions([[2.0], [1.0], [2.0], [-2.0]], [0] * 4, [1.0, 7.0, 1.0, 4.0], [[0.0]] * 4)
    basis = Basis(np.zeros((1, 1)), Coordinates.plain(1), Kernel(1.0, neighbors=2), Kernel(1.0), 1, False)
    near, far = np.exp(-1.0), np.exp(-2.0)
    expected = (near * 7.0 + far * (1.0 + 1.0 + 4.0) / 3) / (near + far)
    np.testing.assert_allclose(model_of(log, basis, "per_chunk")[1], [[expected]], rtol=1e-12)


def test_per_chunk_neighbourhoods_are_the_sums_over_the_nearest_of_each_chunk():
    log = random_log(n=40, n_actions=1)
    basis = make_basis(log, mu=2, mu_bar=2)
    kept = []
    for start in (0, 20):
        for rep in basis.reps:
            order = start + np.argsort(((log.states[start : start + 20] - rep) ** 2).sum(axis=1))
            kept.append(order[:2])
    statistics = new_statistics(basis, "per_chunk")
    for start in (0, 20):
        statistics.accumulate(log[start : start + 20])
    mdp = statistics.to_mdp(0.9)
    for i, rep in enumerate(basis.reps):
        rows = np.concatenate([kept[i], kept[5 + i]])
        k = np.exp(-np.sqrt(((log.states[rows] - rep) ** 2).sum(axis=1)) / 0.3)
        np.testing.assert_allclose(mdp.rewards[0, i], k @ log.rewards[rows] / k.sum(), rtol=1e-12)


def test_hard_aggregation_is_the_equation_of_kveton_and_theocharous():
    log = random_log(n=30, n_actions=1, ending=0.0)
    basis = make_basis(log, hard=True)
    nearest = lambda s: int(np.argmin(((basis.reps - s) ** 2).sum(axis=1)))  # noqa: E731
    snapped = [basis.reps[nearest(s)].tolist() for s in log.states]
    k = np.array([naive.kappa(rep, snapped, 0.3) for rep in basis.reps.tolist()])
    d = np.eye(5)[[nearest(s) for s in log.next_states]]
    p, r = model_of(log, basis)
    np.testing.assert_allclose(p[0], k @ d, rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(r[0], k @ log.rewards, rtol=1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_the_number_of_threads_does_not_matter(form):
    log = random_log(n=5000, n_actions=3)
    basis = make_basis(log, **form)
    one = new_statistics(basis).accumulate(log, n_jobs=1).to_mdp(0.9)
    two = new_statistics(basis).accumulate(log, n_jobs=2).to_mdp(0.9)
    np.testing.assert_array_equal(dense(one), dense(two))
    np.testing.assert_array_equal(one.rewards, two.rewards)


@pytest.mark.parametrize("form", [DENSE, {"mu": 500, "mu_bar": None}])
def test_log_mass_is_the_log_of_the_sum_of_the_kernels(form):
    log = random_log(n=300)
    basis = make_basis(log, **form)
    for action, rows in enumerate(log.by_action()):
        distances = np.sqrt(((log.states[rows] - basis.reps[:, None]) ** 2).sum(axis=2))
        expected = np.log(np.exp(-distances / 0.3).sum(axis=1))
        np.testing.assert_allclose(new_statistics(basis).accumulate(log).log_mass()[action], expected, rtol=1e-12)


@pytest.mark.parametrize(
    "change",
    [{"tau": 0.4}, {"tau_bar": 0.4}, {"seed": 1}, {"hard": True}, {"mu_bar": 2}, {"profile": "gaussian"}, {"norm": 1}],
)
def test_statistics_of_another_basis_are_refused(change):
    log = random_log()
    with pytest.raises(ValueError, match="refer to the same basis, but these differ in"):
        KernelSums(make_basis(log)) + KernelSums(make_basis(log, **change))


def test_the_order_of_joined_logs_does_not_matter():
    parts = [random_log(seed=k) for k in range(3)]
    basis = make_basis(parts[0])
    assert_same_model(model_of(join(parts), basis), model_of(join(parts[::-1]), basis), rtol=1e-12)


@pytest.mark.parametrize("rewards", ["two values", "all different"])
def test_among_samples_of_one_state_the_reward_does_not_decide_which_are_kept(rewards):
    rng = np.random.default_rng(0)
    values = rng.choice([-1.0, 1.0], 1000) if rewards == "two values" else rng.normal(size=1000)
    one_state = np.zeros((1000, 1))
    log = Transitions(one_state, np.zeros(1000, dtype=int), values, one_state)
    basis = Basis(np.zeros((1, 1)), Coordinates.plain(1), Kernel(0.1, neighbors=50), Kernel(0.1), 1)
    kept = new_statistics(basis).accumulate(log).to_mdp(0.9).rewards[0, 0]
    if rewards == "two values":
        assert kept == pytest.approx(values.mean())
    else:  # the mean of 50 of them, within four standard errors
        assert abs(kept - values.mean()) < 4 / np.sqrt(50)


def test_the_last_places_are_shared_by_all_samples_at_that_distance():
    states = np.array([[0.0], [1.0], [-1.0], [1.0]])
    log = Transitions(states, np.zeros(4, dtype=int), [8.0, 1.0, 2.0, 1.0], states)
    basis = Basis(np.zeros((1, 1)), Coordinates.plain(1), Kernel(1e9, neighbors=3), Kernel(1.0), 1)
    # The nearest counts once, the three at distance 1, two of them the same, share the two places left.
    expected = (8 + 2 * (1 + 2 + 1) / 3) / 3
    assert new_statistics(basis).accumulate(log).to_mdp(0.9).rewards[0, 0] == pytest.approx(expected)
