"""LSPI: least squares by slow loops, policy iteration on finite MDPs, and the puddle world."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from kbrl import FiniteMDP, KbrlWarning, Kernel, Transitions, solve
from kbrl.learners import least_squares
from kbrl.learners.lspi import LSPI, KernelFeatures
from kbrl.mdp.dynamic_programming import backup, evaluate_policy
from kbrl.tasks import PuddleWorld
from samples import SCALES, WIDTHS, logs, random_log

REPS = np.random.default_rng(5).random((6, 2))
QUERIES = np.random.default_rng(6).random((9, 2))


def lspi(**changes):
    return LSPI(
        **({"reps": REPS, "width": 0.3, "discount": 0.9, "scaling": None, "ridge": 0.0, "max_iterations": 3} | changes)
    )


def slow_features(state, width, normalized):
    values = [np.exp(-np.sqrt(sum((a - b) ** 2 for a, b in zip(state, rep))) / width) for rep in REPS.tolist()]
    return [v / sum(values) for v in values] if normalized else values


def slow_block_features(state, action, n_actions, *how):
    own = slow_features(state, *how)
    return np.concatenate([own if b == action else np.zeros(len(own)) for b in range(n_actions)])


def slow_lspi(log, width, normalized, discount, ridge, n_iterations):
    """Lagoudakis and Parr's algorithm, one sample at a time; the first pass ignores successors."""
    n_actions, how = log.n_actions, (width, normalized)
    weights = None
    for _ in range(n_iterations + 1):
        size = n_actions * len(REPS)
        matrix, rhs = ridge * np.eye(size), np.zeros(size)
        rows = zip(log.states.tolist(), log.action_indices, log.rewards, log.next_states.tolist(), log.terminals)
        for state, action, reward, next_state, end in rows:
            phi = slow_block_features(state, action, n_actions, *how)
            after = np.zeros(size)
            if weights is not None and not end:
                options = [slow_block_features(next_state, b, n_actions, *how) for b in range(n_actions)]
                after = max(options, key=lambda option: option @ weights)
            matrix += np.outer(phi, phi - discount * after)
            rhs += phi * reward
        weights = np.linalg.lstsq(matrix, rhs, rcond=1e-14)[0]
    return weights.reshape(n_actions, -1).T


@pytest.mark.parametrize("features", ["raw", "normalized"])
@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_weights_are_those_of_a_direct_least_squares_solution(features, ridge):
    log = random_log(n=60, n_actions=3)
    model = lspi(features=features, ridge=ridge, tolerance=1e-300).fit(log)
    expected = slow_lspi(log, 0.3, features == "normalized", 0.9, ridge, model.n_iterations_)
    np.testing.assert_allclose(model.weights_, expected, rtol=1e-6, atol=1e-8)
    phi = np.array([slow_features(state, 0.3, features == "normalized") for state in QUERIES.tolist()])
    np.testing.assert_allclose(model.q_values(QUERIES), phi @ expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("neighbors", [1, 3])
def test_raw_features_with_one_width_per_state_are_the_largest_kernel_values(neighbors):
    widths = np.geomspace(0.05, 2.0, len(REPS))
    features = KernelFeatures(Kernel(widths, neighbors=neighbors).at(REPS), normalized=False)(QUERIES)
    for row, state in zip(features.toarray(), QUERIES):
        values = np.exp(-np.sqrt(((REPS - state) ** 2).sum(axis=1)) / widths)
        values[np.argsort(-values)[neighbors:]] = 0.0
        np.testing.assert_allclose(row, values, rtol=1e-12)


def finite_problem(n_states=5, n_actions=3, seed=0):
    """Return a log in which pair (s, a) leads to four states, one of them ends, and the MDP of its frequencies."""
    rng = np.random.default_rng(seed)
    probabilities, rewards = np.zeros((n_actions, n_states, n_states)), np.zeros((n_actions, n_states))
    rows = []
    for state in range(n_states):
        for action in range(n_actions):
            reward = rng.normal()
            rewards[action, state] = reward
            for end in (False, False, False, rng.random() < 0.2):
                next_state = rng.integers(n_states)
                rows.append(([float(state)], action, reward, [float(next_state)], end))
                probabilities[action, state, next_state] += 0.25 * (not end)
    rng.shuffle(rows)
    return Transitions(*map(list, zip(*rows))), FiniteMDP(probabilities, rewards, 0.9)


def indicators(states, n=5):
    return np.eye(n)[states[:, 0].astype(int)]


STATES = np.arange(5.0)[:, None]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("features", [indicators, lambda states: sparse.csr_array(indicators(states))])
def test_with_indicators_of_states_it_solves_the_finite_mdp(seed, features):
    log, mdp = finite_problem(seed=seed)
    model = LSPI(features=features, discount=0.9, ridge=0.0).fit(log)
    assert model.converged_
    np.testing.assert_allclose(model.q_values(STATES), solve(mdp, tolerance=1e-12).q, atol=1e-9)


def test_with_indicators_of_states_each_iteration_is_one_of_policy_iteration():
    log, mdp = finite_problem(n_states=5, seed=1)
    policy = mdp.rewards.T.argmax(axis=1)
    for n_iterations in (1, 2, 3):
        q = backup(mdp, evaluate_policy(mdp, policy))
        model = LSPI(features=indicators, discount=0.9, ridge=0.0, max_iterations=n_iterations).fit(log)
        np.testing.assert_allclose(model.q_values(STATES), q, atol=1e-9)
        policy = q.argmax(axis=1)


def test_once_converged_further_iterations_change_nothing():
    log, _ = finite_problem()
    model = LSPI(features=indicators, discount=0.9, ridge=0.0).fit(log)
    assert model.converged_
    assert model.n_iterations_ < 30
    short = LSPI(features=indicators, discount=0.9, ridge=0.0, max_iterations=model.n_iterations_ - 1).fit(log)
    np.testing.assert_allclose(short.weights_, model.weights_, atol=1e-9)
    first = LSPI(features=indicators, discount=0.9, ridge=0.0, max_iterations=1).fit(log)
    assert first.n_iterations_ == 1
    assert not first.converged_


def test_features_that_say_the_same_twice_change_no_value():
    log, mdp = finite_problem()
    doubled = LSPI(features=lambda s: np.hstack([indicators(s)] * 2), discount=0.9, ridge=0.0).fit(log)
    np.testing.assert_allclose(doubled.q_values(STATES), solve(mdp, tolerance=1e-12).q, atol=1e-8)
    np.testing.assert_allclose(doubled.weights_[:5], doubled.weights_[5:], atol=1e-8)  # the shortest of all solutions


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_large_sparse_equations_have_the_solution_of_small_dense_ones(monkeypatch, ridge):
    log = random_log(n=400, n_actions=2)
    settings = {"reps": "random", "n_reps": 40, "neighbors": 4, "ridge": ridge, "random_state": 0}
    dense = lspi(**settings).fit(log)
    monkeypatch.setattr(least_squares, "_DENSE_WEIGHTS", 0)
    np.testing.assert_allclose(lspi(**settings).fit(log).q_values(QUERIES), dense.q_values(QUERIES), atol=1e-4)


@pytest.mark.parametrize("features", ["raw", "normalized"])
def test_with_all_representative_states_as_neighbours_a_sparse_kernel_is_the_dense_one(features):
    log = random_log(n=60)
    every = lspi(features=features, neighbors=6).fit(log)
    np.testing.assert_allclose(every.q_values(QUERIES), lspi(features=features).fit(log).q_values(QUERIES), atol=1e-7)


def test_chunks_give_the_model_of_all_data():
    log = random_log(n=60)
    whole = lspi().fit(log)
    np.testing.assert_allclose(lspi().fit(list(log.chunks(7))).weights_, whole.weights_, rtol=1e-6, atol=1e-9)


class Stream:
    """Chunks that are made when they are asked for, every time alike."""

    def __init__(self, n_chunks):
        self.n_chunks = n_chunks

    def __iter__(self):
        return (random_log(n=5000, seed=seed) for seed in range(self.n_chunks))


def test_features_that_are_kept_change_no_bit_of_the_weights(monkeypatch):
    log = random_log(n=3000, seed=0)
    monkeypatch.setattr(least_squares, "_BLOCK_ENTRIES", 2**10)  # many blocks
    kept = lspi().fit(log)
    assert kept.n_iterations_ > 1
    for room in (0, 12_000):  # for none of them, and for some
        monkeypatch.setattr("kbrl.learners.lspi.MOST_KEPT", room)
        np.testing.assert_array_equal(lspi().fit(log).weights_, kept.weights_)


def test_memory_does_not_grow_with_the_number_of_transitions():
    def peak(n_chunks):
        tracemalloc.start()
        LSPI(n_reps=50, reps="random", max_iterations=2, random_state=0).fit(Stream(n_chunks))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(1)
    # Eight times the data, 18 MB of them; when the collector runs makes a factor of up to two.
    assert peak(64) < 2.5 * peak(8)


def test_duplicating_the_data_changes_nothing_without_ridge():
    log = random_log(n=60)
    np.testing.assert_allclose(lspi().fit(log + log).q_values(QUERIES), lspi().fit(log).q_values(QUERIES), atol=1e-7)


@settings(max_examples=60, deadline=None)
@given(
    log=logs(scales=SCALES),
    width=WIDTHS,
    features=st.sampled_from(["raw", "normalized"]),
    neighbors=st.sampled_from([None, 1, 3]),
    profile=st.sampled_from(["exponential", "gaussian"]),
    ridge=st.sampled_from([0.0, 0.1]),
)
@pytest.mark.filterwarnings("ignore::kbrl.KbrlWarning")
def test_any_log_gives_finite_values_for_the_actions_that_were_tried(log, width, features, neighbors, profile, ridge):
    model = LSPI(
        5, "random", width, features, neighbors, profile=profile, ridge=ridge, random_state=0, min_cases=1
    ).fit(log)
    q = model.q_values(log.next_states)
    tried = np.bincount(log.action_indices, minlength=log.n_actions) > 0
    assert np.isfinite(q[:, tried]).all()
    assert (q[:, ~tried] == -np.inf).all()
    assert np.isin(model.predict(log.states), log.actions).all()


def test_representative_states_are_given_back_in_the_units_of_the_data():
    log = random_log(n=60)
    np.testing.assert_allclose(lspi(scaling="std").fit(log).reps_, REPS)
    with pytest.raises(AttributeError, match="no representative states"):
        LSPI(features=lambda states: states).fit(log).reps_  # noqa: B018


@pytest.mark.parametrize(
    "learner, data, words",
    [
        (lspi(width=-1.0), None, "width must be a finite number above 0, but it is -1.0"),
        (lspi(features="cooked"), None, "features must be one of 'normalized', 'raw', but it is 'cooked'"),
        (lspi(ridge=-1.0), None, "ridge must be"),
        (lspi(max_iterations=0), None, "max_iterations must be at least 1, but it is 0"),
        (lspi(features=lambda s: s[:1]), None, "must have one row for each of 40 states, but its shape is"),
        (lspi(features=lambda s: s * np.nan), None, "must be finite, but 40 of 40 rows are not"),
        (lspi(), iter([random_log()]), "can be read only once"),
        (lspi(), [], "the iterable is empty"),
        (lspi(), [random_log(), random_log(n_dims=3)], "Transitions must have 2 state variables, but they have 3"),
        (lspi(), [random_log(n_actions=2), random_log(n_actions=3)], "but they also have [2]"),
    ],
)
def test_bad_input_gets_a_clear_error(learner, data, words):
    with pytest.raises((ValueError, TypeError)) as caught:
        learner.fit(random_log() if data is None else data)
    assert words in str(caught.value)


def test_more_representative_states_than_states_are_said():
    with pytest.warns(KbrlWarning, match="60"):
        LSPI(n_reps=1000).fit(random_log(n=60))


def test_it_solves_the_puddle_world():
    task = PuddleWorld()
    model = LSPI(200, width=0.01, random_state=0).fit(task.collect(8000, random_state=0))
    assert np.mean([task.evaluate(model.predict, random_state=seed).mean for seed in range(3)]) > 3.0
