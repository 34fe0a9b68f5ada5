"""The substitute recordings: the Epileptor against a slow twin and published fractions, and the embedding."""

import numpy as np
import pytest

from kbrl.tasks import epileptor
from kbrl.tasks.epilepsy import Epilepsy, FixedFrequency
from kbrl.tasks.epileptor import principal_components, pulse_shift, pulses_at, simulate_potential, simulate_recordings

DT = 0.05
STEPS = 96  # a decision lasts 4.8 units


def slow_epileptor(x0, pulses, normals):
    """Return the potential after every step, and the low-passed x1 before every decision."""
    x1, y1, z, x2, y2, u, level = -1.6, -11.0, 3.5, -0.9, 0.0, -0.16, -1.6
    potentials, levels = [], []
    for pulse, kicks in zip(pulses, normals):
        levels.append(level)
        for k, kick in enumerate(kicks):
            potentials.append(x2 - x1)
            p = 2.0 if pulse and k * DT < 1.0 - 1e-9 else 0.0
            f1 = x1**3 - 3 * x1**2 if x1 < 0 else (x2 - 0.6 * (z - 4) ** 2) * x1
            f2 = 0 if x2 < -0.25 else 6 * (x2 + 0.25)
            slopes = (y1 - f1 - z + 3.1 + p, 1 - 5 * x1**2 - y1, (4 * (x1 - x0) - z) / 2857)
            slopes += (-y2 + x2 - x2**3 + 0.45 + 2 * u - 0.3 * (z - 3.5), (-y2 + f2) / 10, -0.01 * (u - 0.1 * x1))
            noise = (0.025 * kick[0], 0.025 * kick[1], 0.0, 0.25 * kick[2], 0.25 * kick[3], 0.0)
            level += DT * (x1 - level) / 20
            state = (x1, y1, z, x2, y2, u)
            x1, y1, z, x2, y2, u = (s + DT * d + DT**0.5 * e for s, d, e in zip(state, slopes, noise))
    return np.array(potentials), np.array(levels)


def test_the_compiled_epileptor_is_the_slow_one():
    pulses = np.array([False, True, False, True, True] * 4)
    potential, seizures = simulate_potential(-1.9, pulses, np.random.default_rng(3))
    normals = np.random.default_rng(3).standard_normal((len(pulses), STEPS, 4))
    slow, levels = slow_epileptor(-1.9, pulses, normals)
    np.testing.assert_allclose(potential, slow.reshape(len(pulses), 8, 12).mean(axis=2), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(seizures, levels > -1.0)


def seizure_fraction(x0, rate, n=8000):
    _, seizures = simulate_potential(x0, pulses_at(rate, n), np.random.default_rng(1))
    return seizures[500:].mean()


def test_unstimulated_slices_have_the_fractions_of_seizure_found_by_another_program():
    found = [seizure_fraction(x0, 0.0) for x0 in epileptor.SLICES]
    np.testing.assert_allclose(found, [0.229, 0.283, 0.320, 0.355, 0.391], atol=0.03)


def test_recorded_pulses_come_at_the_rates_of_the_fixed_frequency_policies():
    for rate in epileptor.RATES:
        policy = FixedFrequency(rate)
        np.testing.assert_array_equal(pulses_at(rate, 200), [policy(np.zeros((1, 5)))[0] for _ in range(200)])


def test_principal_components_are_those_of_the_singular_value_decomposition():
    rows = np.random.default_rng(0).standard_normal((300, 6)) * [5, 4, 3, 2, 1, 0.5] @ np.ones((6, 6)).cumsum(axis=0)
    found = principal_components(rows, 3)
    left, values, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(found), np.abs(left[:, :3] * values[:3]), atol=1e-9)


def test_the_shift_by_a_pulse_is_found_again_in_rows_that_it_made():
    rng = np.random.default_rng(2)
    pulses = rng.random(4000) < 0.2
    features = np.zeros((4000, 2))
    for t in range(3999):  # a contraction, noise, and the shift
        features[t + 1] = 0.7 * features[t] + 0.1 * rng.standard_normal(2) + pulses[t] * np.array([0.5, -0.2])
    np.testing.assert_allclose(pulse_shift(features, pulses, np.repeat([1, 2], 2000)), [0.5, -0.2], atol=0.03)


def test_the_lags_reach_back_from_the_decision_without_touching_it():
    samples = np.arange(160.0).reshape(20, 8)  # sample k is the number k
    row = epileptor._lagged(samples)[10]  # its decision begins with sample 80
    np.testing.assert_allclose(row, [78.0 - 3 * k for k in range(15)])  # the middles of 77-79, 74-76, ...


def test_the_trace_fades_by_half_and_counts_earlier_pulses_only():
    trace = epileptor._trace(np.array([False, True, False, True, False, False]))
    np.testing.assert_allclose(trace / epileptor.TRACE_HEIGHT, [0, 0, 1, 0.5, 1.25, 0.625])


@pytest.fixture(scope="module")
def recordings():
    return simulate_recordings(0)


def test_there_are_twenty_recordings_of_two_thousand_rows_labelled_as_substitute(recordings):
    np.testing.assert_array_equal(np.bincount(recordings.recordings)[1:], [2000] * 20)
    assert recordings.features.shape == (40_000, 5)
    assert recordings.is_substitute
    assert "SUBSTITUTE" in repr(recordings)
    assert recordings.pulses.reshape(5, 4, 2000).sum(axis=(0, 2)).tolist() == [0, 1000, 2000, 4000]
    assert np.linalg.norm(recordings.stimulation) == pytest.approx(1.0)
    np.testing.assert_allclose(recordings.features.mean(axis=0), 0.0, atol=1e-9)
    correlations = np.corrcoef(recordings.features.T) - np.eye(5)
    assert np.abs(correlations).max() < 1e-9  # principal components are uncorrelated


def test_a_pulse_shifts_the_state_by_nearly_the_height_of_the_trace(recordings):
    assert 0.9 < recordings.magnitude / epileptor.TRACE_HEIGHT < 1.1


def test_the_seed_decides_the_recordings_and_one_process_simulates_them_once():
    first, again = simulate_recordings(5, n_rows=30), simulate_recordings(5, n_rows=30)
    assert first is again
    simulate_recordings.cache_clear()
    np.testing.assert_array_equal(simulate_recordings(5, n_rows=30).features, first.features)
    assert not np.array_equal(simulate_recordings(6, n_rows=30).features, first.features)
    with pytest.raises(ValueError, match="recordings_seed must be at least 0"):
        simulate_recordings(-1)


def test_the_model_keeps_the_epileptors_response_to_the_rate():
    task = Epilepsy()

    def modelled(hz):
        return task.evaluate_fractions(task.fixed_frequency(hz), random_state=0, max_steps=8000).seizures

    none, half, one, three = (modelled(hz) for hz in (0.0, 0.5, 1.0, 3.0))
    for found, rate in ((none, 0.0), (half, 0.5), (one, 1.0)):
        truth = np.mean([seizure_fraction(x0, rate) for x0 in epileptor.SLICES])
        assert abs(found.mean() - truth) < 0.045  # of 0.31, 0.21 and 0.21
    assert none.mean() > half.mean() + 0.05  # a U over the rate: pulses help,
    assert three.mean() > one.mean() + 0.05  # and too many of them do not
