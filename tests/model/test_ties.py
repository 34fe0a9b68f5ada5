"""Samples that are equally far away: all that tie at the last place share it, each as often as it occurs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from kbrl import KBRL, KBSF, Kernel, Transitions, Variant, load_model, save_model
from kbrl.model.nearest_samples import _FIELDS, Neighborhoods
from kbrl.model.sample_weights import SampleWeights
from kbrl.model.tied_samples import TIES
from model.test_nearest_samples import make_basis
from samples import as_lists, logs, random_log

GRIDS = st.sampled_from([1, 2, 3])  # few levels: many ties


def one_state(rewards, seed=0):
    """Return a log of one state whose transitions end with these rewards, in a random order."""
    rewards = np.random.default_rng(seed).permutation(rewards)
    n = len(rewards)
    return Transitions(np.zeros((n, 1)), [0] * n, rewards, np.zeros((n, 1)), [True] * n)


def frequent_and_rare(n_frequent, n_rare, seed=0):
    """Return rewards: nearly 1 many times, and others that all differ, about 0; other seeds have other hashes."""
    rng = np.random.default_rng(seed)
    return np.concatenate([np.full(n_frequent, rng.normal(1, 1e-6)), rng.normal(0, 1e-3, n_rare)])


@pytest.mark.parametrize("mu", [1, 2, 4, 8])
@pytest.mark.parametrize("learner", ["KBSF", "KBSF by samples", "KBRL", "per chunk"])
def test_one_discrete_state_is_worth_its_mean_whatever_the_number_of_neighbours(mu, learner):
    log = one_state(np.concatenate([np.ones(990), np.arange(10) * 1e-9]))
    settings = {"sample_neighbors": mu, "discount": 0.0}
    if learner == "KBRL":
        model = KBRL(**settings).fit(log)
    else:
        by = {
            "KBSF by samples": {"variant": Variant(q_function="samples")},
            "per chunk": {"variant": Variant(neighborhoods="per_chunk")},
        }
        model = KBSF(reps=[[0.0]], **settings, **by.get(learner, {})).fit(log)
    assert model.q_values([[0.0]])[0, 0] == pytest.approx(0.99, abs=1e-7)


@pytest.mark.parametrize("n_frequent, n_rare", [(900, 600), (40, 2000), (5000, 300), (0, 1000)])
@pytest.mark.parametrize("mu", [1, 8])
def test_where_more_outcomes_tie_than_are_kept_the_estimate_is_right_on_average(n_frequent, n_rare, mu):
    truth, found = n_frequent / (n_frequent + n_rare), []
    for seed in range(60):
        log = one_state(frequent_and_rare(n_frequent, n_rare, seed), seed)
        model = KBSF(reps=[[0.0]], sample_neighbors=mu, discount=0.0).fit(log)
        found.append(model.q_values([[0.0]])[0, 0])
    spread = np.std(found) / np.sqrt(len(found))
    assert n_rare > TIES
    assert abs(np.mean(found) - truth) < 4 * spread + 1e-3
    # no worse than as many rows drawn at random as there are in one list
    assert np.std(found) < 2 * np.sqrt(truth * (1 - truth) / (TIES / 2)) + 1e-3


@settings(deadline=None, max_examples=200)
@given(logs(max_rows=25, levels=GRIDS), st.integers(1, 6), st.sampled_from([0.01, 0.5, 3.0]))
def test_kbsf_kbrl_and_the_weights_of_samples_share_ties_as_the_slow_loop_does(log, mu, tau):
    reps = np.unique(log.next_states, axis=0)
    tried = [samples for samples in as_lists(log) if samples]
    p, r = map(np.array, naive.kbsf_model(tried, reps.tolist(), tau, 0.5, mu=mu))
    basis = make_basis(reps, log.n_actions, mu)
    basis = type(basis)(reps, basis.coordinates, Kernel(tau, neighbors=mu), Kernel(0.5), log.n_actions)
    mdp = Neighborhoods(basis).accumulate(log).to_mdp(0.9)
    taken = np.flatnonzero(np.bincount(log.action_indices, minlength=log.n_actions))
    np.testing.assert_allclose(mdp.probabilities[taken], p, atol=1e-12)
    np.testing.assert_allclose(mdp.rewards[taken], r, atol=1e-12)

    big = KBRL(sample_width=tau, sample_neighbors=mu, scaling=None, min_cases=1).fit(log)
    order = np.concatenate(log.by_action())
    p, r = map(np.array, naive.kbrl_model(tried, tau, mu=mu))
    dense = np.asarray(big.mdp_.stacked.toarray()).reshape(log.n_actions, len(log), len(log))
    np.testing.assert_allclose(dense[taken][:, order][:, :, order], p, atol=1e-12)
    np.testing.assert_allclose(big.mdp_.rewards[taken][:, order], r, atol=1e-12)

    weights = SampleWeights(Kernel(tau, neighbors=mu), log.states).weights(reps)
    expected = [naive.kappa(rep, log.states.tolist(), tau, neighbors=mu) for rep in reps.tolist()]
    np.testing.assert_allclose(weights.toarray(), expected, atol=1e-12)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(2, 5), st.integers(2, 3))
def test_many_different_outcomes_at_one_distance_are_the_same_bits_for_all_splits(seed, mu, n_parts, levels):
    """More outcomes tie than are kept, and none of them twice."""
    rng = np.random.default_rng(seed)
    n = 900
    states = rng.integers(levels, size=(n, 1)) / 1.0
    log = Transitions(states, np.zeros(n, int), rng.normal(size=n), states, np.zeros(n, bool))
    basis = make_basis(np.arange(levels, dtype=float)[:, None], 1, mu)
    whole = Neighborhoods(basis).accumulate(log)
    assert whole.n_places >= TIES
    owner, total = rng.integers(n_parts, size=n), Neighborhoods(basis)
    for part in range(n_parts):
        rows = rng.permutation(np.flatnonzero(owner == part))
        total = total + Neighborhoods(basis).accumulate(log[rows])
    for name in _FIELDS:
        np.testing.assert_array_equal(getattr(whole, name), getattr(total, name), err_msg=name)


def test_room_for_ties_is_given_back_when_nearer_samples_come():
    n = 2 * TIES
    log = random_log(n=n, n_dims=1, n_actions=1, levels=1)
    basis = make_basis(np.zeros((1, 1)), 1, 2)
    far = Transitions(log.states + 1.0, log.actions, np.arange(n) / 1.0, log.next_states)
    near = Transitions(np.full((2, 1), 0.5), [0, 0], [0.0, 1.0], np.zeros((2, 1)))
    statistics = Neighborhoods(basis).accumulate(far)
    assert statistics.n_places == 2 * (TIES // 2 + 1)
    assert statistics.accumulate(near).n_places == 2


def test_a_model_that_keeps_ties_comes_back_from_its_file(tmp_path):
    log = random_log(n=300, levels=3, seed=1)
    model = KBSF(reps=np.unique(log.next_states, axis=0), sample_neighbors=2).fit(log)
    assert model.statistics_.n_places > 2
    save_model(model, tmp_path / "m.kbrl")
    loaded = load_model(tmp_path / "m.kbrl")
    assert loaded.q_values(log.states).tolist() == model.q_values(log.states).tolist()
    more = random_log(n=100, levels=3, seed=2)
    one, two = model.partial_fit(more).q_values(log.states), loaded.extend(more).q_values(log.states)
    assert one.tolist() == two.tolist()


def lattice(n=120, levels=4, n_dims=1, seed=0, n_actions=2):
    """Return a log on whole numbers: many samples are equally far from any of them."""
    rng = np.random.default_rng(seed)
    states, next_states = rng.integers(levels, size=(2, n, n_dims)) / 1.0
    return Transitions(states, np.arange(n) % n_actions, rng.integers(3, size=n) + states[:, 0], next_states)


def moved(log, shift, step):
    """Return the log with its lattice elsewhere, and finer or coarser: the same but for rounding."""
    return Transitions(log.states * step + shift, log.actions, log.rewards, log.next_states * step + shift)


def in_parts(log, size):
    return [log[start : start + size] for start in range(0, len(log), size)]


@pytest.mark.parametrize("mu", [200, 300, 1000])
@pytest.mark.parametrize("way", ["in one go", "in chunks", "from its file"])
def test_more_neighbours_than_ties_are_kept_weigh_as_the_slow_loop_says(mu, way, tmp_path):
    rng = np.random.default_rng(mu)
    states, reps = rng.permutation(380)[:, None] % 2 / 1.0, [[0.0], [1.0]]
    log = Transitions(states, [0] * 380, states[:, 0] + rng.random(380), rng.random((380, 1)), rng.random(380) < 0.1)
    model = KBSF(reps=reps, scaling=None, sample_width=1.0, rep_width=0.5, sample_neighbors=mu)
    model.fit(log if way == "in one go" else in_parts(log, 70))
    if way == "from its file":
        save_model(model.fit(log[:250]), tmp_path / "m.kbrl")
        model = KBSF.with_model(load_model(tmp_path / "m.kbrl").extend(log[250:]))
    p, r = map(np.array, naive.kbsf_model(as_lists(log), reps, 1.0, 0.5, mu=mu))
    np.testing.assert_allclose(model.mdp_.probabilities, p, atol=1e-12)
    np.testing.assert_allclose(model.mdp_.rewards, r, atol=1e-12)


@pytest.mark.parametrize("mu", [200, 300, 1000])
def test_each_chunk_counts_more_neighbours_than_ties_are_kept_as_the_slow_loop_says(mu):
    rng = np.random.default_rng(mu)
    states = rng.permutation(720)[:, None] % 2 / 1.0
    log = Transitions(states, [0] * 720, states[:, 0] + rng.random(720), states)
    settings = {
        "scaling": None,
        "sample_width": 1.0,
        "sample_neighbors": mu,
        "variant": Variant(neighborhoods="per_chunk"),
    }
    model = KBSF(reps=[[0.0]], **settings).fit(in_parts(log, 360))
    total = worth = 0.0
    for chunk in in_parts(log, 360):
        near, far = (chunk.rewards[chunk.states[:, 0] == x] for x in (0.0, 1.0))
        n_near, n_far = min(mu, len(near)), min(len(far), max(0, mu - len(near)))
        total += n_near + n_far * np.exp(-1)
        worth += n_near * near.mean() + n_far * np.exp(-1) * far.mean()
    assert model.mdp_.rewards[0, 0] == pytest.approx(worth / total, abs=1e-12)


def test_ten_rows_on_either_side_count_alike_wherever_the_lattice_lies():
    """1 and 3 are one step from 2: of 5 places, 1 is for the sample at 2, and 2 for either side."""
    states = np.repeat([0.0, 1, 2, 3], [1, 10, 1, 10])[:, None]
    log = Transitions(states, [0] * 22, np.where(states[:, 0] > 2, 10.0, 0.0), states)
    for scaling in (None, "std", "range"):
        for shift, step in ((0.0, 1.0), (1.0, 1.0), (5.0, 0.1), (30.0, 0.1), (-100.0, 1 / 3)):
            there, at = moved(log, shift, step), [[2 * step + shift]]
            near = np.exp(-step / {None: 1.0, "std": there.states.std(), "range": np.ptp(there.states)}[scaling])
            settings = {"scaling": scaling, "sample_neighbors": 5, "sample_width": 1.0, "discount": 0.0}
            for learner in (
                KBSF(reps=at, **settings),
                KBSF(reps=at, variant=Variant(q_function="samples"), **settings),
                KBRL(**settings),
            ):
                assert learner.fit(there).q_values(at)[0, 0] == pytest.approx(20 * near / (1 + 4 * near), rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(1, 2),
    st.sampled_from(["std", "range"]),
    st.sampled_from([(3.0, 1.0), (0.0, 0.1), (-7.0, 0.3), (100.0, 1 / 3)]),
)
def test_rounding_decides_nothing_on_lattices(seed, mu, n_dims, scaling, where):
    """Learning, its parts and its bounds are those of the lattice of whole numbers, on which distances are exact."""
    log = lattice(n_dims=n_dims, seed=seed)
    there = moved(log, *where)
    units = there.states.std(axis=0) if scaling == "std" else np.ptp(there.states, axis=0)
    if n_dims == 2:  # one unit for both variables, or the lattice would not be square
        units, scaling = units[:1].repeat(2), units[:1].repeat(2)
    common = {"sample_neighbors": mu, "discount": 0.8}
    for kind, extra in ((KBSF, {}), (KBSF, {"variant": Variant(q_function="samples")}), (KBRL, {})):
        one, two = ({"sample_width": w, "scaling": s} for w, s in ((units[0] / where[1], None), (1.0, scaling)))
        if kind is KBSF:
            reps = np.unique(log.next_states, axis=0)
            one |= {"reps": reps, "rep_width": units[0] / where[1]}
            two |= {"reps": reps * where[1] + where[0], "rep_width": 1.0}
        plain, other = kind(**common, **extra, **one).fit(log), kind(**common, **extra, **two).fit(there)
        np.testing.assert_allclose(other.q_values(there.states), plain.q_values(log.states), rtol=1e-7)
        if kind is KBSF:
            assert other.bound(there).value == pytest.approx(plain.bound(log).value, rel=1e-6, abs=1e-8)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 5), st.integers(1, 2))
def test_what_ties_but_for_rounding_is_the_same_bits_for_all_orders_and_splits(seed, mu, n_parts, n_dims):
    rng = np.random.default_rng(seed)
    log = moved(lattice(n_dims=n_dims, seed=seed), 0.3, 1 / 7)
    basis = make_basis(np.unique(log.next_states, axis=0), 2, mu)
    whole, total, one_by_one = (Neighborhoods(basis) for _ in range(3))
    whole.accumulate(log)
    owner = rng.integers(n_parts, size=len(log))
    for part in range(n_parts):
        rows = log[rng.permutation(np.flatnonzero(owner == part))]
        total = total + Neighborhoods(basis).accumulate(rows)
        one_by_one.accumulate(rows)
    for other in (total, one_by_one):
        for name in _FIELDS:
            np.testing.assert_array_equal(getattr(other, name), getattr(whole, name), err_msg=name)
        assert other.weights().tobytes() == whole.weights().tobytes()


def test_a_bound_of_a_sample_of_tied_outcomes_is_refused_with_its_reason():
    log = one_state(np.random.default_rng(0).random(600))
    model = KBSF(reps=[[0.0]], sample_neighbors=2, scaling=None).fit(log)
    with pytest.raises(ValueError, match=rf"more different outcomes are equally far away than are kept \({TIES}\)"):
        model.bound(log)
    assert KBSF(reps=[[0.0]], sample_neighbors=600, scaling=None).fit(log).bound(log).value >= 0


def repeated(n_outcomes, times, n_single, seed):
    """Return a log of one state: outcomes worth 1 that each come several times, and others, worth 0, that do not."""
    rng = np.random.default_rng(seed)
    rewards = np.repeat([1.0, 0.0], [n_outcomes * times, n_single])
    next_states = np.concatenate([np.repeat(rng.random(n_outcomes), times), rng.random(n_single)])
    order, n = rng.permutation(len(rewards)), len(rewards)
    return Transitions(np.zeros((n, 1)), [0] * n, rewards[order], next_states[order, None])


@pytest.mark.parametrize("n_outcomes, times, n_single", [(150, 10, 1500), (400, 3, 1200), (2, 300, 600)])
@pytest.mark.parametrize("size", [None, 100, 40])
def test_where_tied_outcomes_repeat_the_estimate_is_right_on_average_for_any_split(n_outcomes, times, n_single, size):
    truth, found = n_outcomes * times / (n_outcomes * times + n_single), []
    basis = make_basis(np.zeros((1, 1)), 1, 4)
    for seed in range(20):
        log, statistics = repeated(n_outcomes, times, n_single, seed), Neighborhoods(basis)
        for part in in_parts(log, size or len(log)):
            statistics.accumulate(part)
        assert statistics.is_sampled
        found.append(statistics.to_mdp(0.9).rewards[0, 0])
    assert abs(np.mean(found) - truth) < 4 * np.std(found) / np.sqrt(len(found))
    assert np.std(found) < 0.1


@pytest.mark.parametrize("neighborhoods", ["exact", "per_chunk"])
def test_crowds_of_several_states_are_shared_in_one_go(neighborhoods):
    """0 and 2 are one step from 1, which has one row: the rest is theirs, by how often they were visited."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        states = np.repeat([0.0, 1.0, 2.0], [600, 1, 1800])[:, None]
        outcomes = rng.random((2401, 1))
        outcomes[700:1300] = outcomes[700]
        log = Transitions(states, [0] * 2401, (states[:, 0] > 1) / 1.0, outcomes)
        settings = {
            "sample_neighbors": 9,
            "sample_width": 1e9,
            "scaling": None,
            "variant": Variant(neighborhoods=neighborhoods),
        }
        found.append(KBSF(reps=[[1.0]], **settings).fit(log).mdp_.rewards[0, 0])
    assert abs(np.mean(found) - 8 / 9 * 0.75) < 4 * np.std(found) / np.sqrt(len(found))


def test_a_sample_of_tied_outcomes_comes_back_from_its_file(tmp_path):
    log, more = repeated(150, 10, 1500, 0), repeated(150, 10, 1500, 1)
    model = KBSF(reps=[[0.0]], sample_neighbors=4, scaling=None).fit(in_parts(log, 100))
    save_model(model, tmp_path / "m.kbrl")
    loaded = load_model(tmp_path / "m.kbrl")
    for _ in range(2):
        assert loaded.mdp.rewards.tobytes() == model.mdp_.rewards.tobytes()
        assert loaded.mdp.probabilities.tobytes() == model.mdp_.probabilities.tobytes()
        model, loaded = model.partial_fit(more), loaded.extend(more)
