"""How well data cover a state, against plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import KBSF, Growth, Transitions, Variant
from kbrl.insight.coverage import coverage
from naive import distance, kappa
from samples import as_lists, random_log

FORMS = {
    "dense": {},
    "gaussian": {"variant": Variant(profile="gaussian"), "rep_width": 1.0},
    "sparse": {"sample_neighbors": 3, "rep_neighbors": 2},
    "sparse samples": {"sample_neighbors": 4},
    "sparse reps": {"rep_neighbors": 3},
    "hard": {"variant": Variant(aggregation="hard")},
    "one width a representative state": {"rep_width": np.array([0.1, 0.5, 0.2, 1.0, 0.3])},
}


def log_of_sum(logs):
    largest = max(logs)
    return -math.inf if largest == -math.inf else largest + math.log(sum(math.exp(x - largest) for x in logs))


def log_phi(z, profile):
    return -z * z / 2 if profile == "gaussian" else -z


def slow_coverage(model, log, state):
    """Distance, place of the nearest representative state, and the log of the mass of each action, by the formulas."""
    scale = model.scale_.tolist()
    reps = [[x / s for x, s in zip(rep, scale)] for rep in model.reps_.tolist()]
    state = [x / s for x, s in zip(state, scale)]
    distances = [distance(state, rep) for rep in reps]
    widths = model.rep_width.tolist() if np.ndim(model.rep_width) else [model.rep_width] * len(reps)
    kept = sorted(range(len(reps)), key=lambda i: distances[i])
    kept = kept[: 1 if model.variant.aggregation == "hard" else model.rep_neighbors or len(reps)]
    logs = [log_phi(distances[i] / widths[i], model.variant.profile) for i in kept]
    shares = [value - log_of_sum(logs) for value in logs]
    masses = []
    for samples in as_lists(log):
        states = [[x / s for x, s in zip(s_t, scale)] for s_t, _, _, _ in samples]
        if model.variant.aggregation == "hard":
            states = [min(reps, key=lambda rep: distance(s_t, rep)) for s_t in states]
        of_reps = []
        for i in kept:
            z = sorted(distance(reps[i], s_t) / model.sample_width for s_t in states)[: model.sample_neighbors]
            of_reps.append(log_of_sum([log_phi(value, model.variant.profile) for value in z] or [-math.inf]))
        masses.append(log_of_sum([share + mass for share, mass in zip(shares, of_reps)]))
    return min(distances), distances.index(min(distances)), masses


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-4, 0.01, 0.3, 100.0]), st.sampled_from([1, 3]))
def test_coverage_is_what_the_loops_say(form, seed, sample_width, n_actions):
    log = random_log(25, n_actions=n_actions, seed=seed)
    model = KBSF(n_reps=5, reps="random", sample_width=sample_width, min_cases=1, random_state=seed)
    model.set_params(**FORMS[form]).fit(log)
    states = np.random.default_rng(seed).normal(size=(6, 2)) * 2
    found = coverage(model, states)
    for row, state in enumerate(states.tolist()):
        near, place, masses = slow_coverage(model, log, state)
        assert found.distances[row] == pytest.approx(near, rel=1e-12)
        assert found.nearest[row] == place
        np.testing.assert_allclose(found.log_mass[row], masses, rtol=1e-9, atol=1e-9)


def test_an_action_that_was_never_taken_has_no_mass_anywhere():
    log = random_log(20, n_actions=2)
    log = Transitions(log.states, log.actions, log.rewards, log.next_states, action_labels=[0, 1, 2])
    found = coverage(KBSF(n_reps=4, random_state=0).fit(log), log.states)
    assert (found.log_mass[:, 2] == -np.inf).all()
    assert np.isfinite(found.log_mass[:, :2]).all()


@pytest.mark.parametrize("form", ["dense", "sparse", "hard"])
def test_mass_is_known_just_where_the_value_is(form):
    log = random_log(30, n_actions=2)
    model = KBSF(n_reps=5, growth=Growth(distance=0.2), random_state=0, **FORMS[form])
    model.partial_fit(log).partial_fit(log[log.by_action()[0]])  # new representative states know nothing of action 1
    states = np.random.default_rng(1).random((50, 2))
    known = np.isfinite(coverage(model, states).log_mass)
    np.testing.assert_array_equal(known, np.isfinite(model.q_values(states)))


def test_at_a_representative_state_with_a_very_wide_kernel_the_mass_is_the_number_of_transitions():
    log = random_log(40, n_actions=2)
    model = KBSF(n_reps=5, sample_width=1e9, random_state=0).fit(log)
    found = coverage(model, model.reps_)
    np.testing.assert_allclose(np.exp(found.log_mass), [np.bincount(log.action_indices)] * 5, rtol=1e-6)
    np.testing.assert_allclose(found.distances, 0, atol=1e-12)
    assert found.nearest.tolist() == [0, 1, 2, 3, 4]


def test_distances_are_in_units_of_the_scale():
    log = Transitions([[0.0, 0.0], [4.0, 10.0]], [0, 0], [0.0, 1.0], [[0.0, 0.0], [0.0, 0.0]])
    model = KBSF(reps=[[0.0, 0.0]], scaling=[2.0, 5.0]).fit(log)
    assert coverage(model, [[6.0, 20.0]]).distances.tolist() == [5.0]  # 3 and 4 units along the axes


def test_weights_of_the_twin_are_those_of_the_library():
    """The twin works in logs; where nothing underflows it must be the plain formula."""
    log = random_log(20, n_actions=1)
    model = KBSF(n_reps=5, reps="random", random_state=0, scaling=None, sample_width=0.5, rep_width=0.5).fit(log)
    state, reps = [0.3, 0.6], model.reps_.tolist()
    masses = [sum(math.exp(-distance(rep, s_t) / 0.5) for s_t in log.states.tolist()) for rep in reps]
    expected = sum(share * mass for share, mass in zip(kappa(state, reps, 0.5), masses))
    assert coverage(model, [state]).log_mass[0, 0] == pytest.approx(math.log(expected), rel=1e-12)


def test_states_of_the_wrong_size_are_refused():
    model = KBSF(n_reps=4, random_state=0).fit(random_log(20))
    with pytest.raises(ValueError, match="states must have 2 columns"):
        coverage(model, [[1.0]])
