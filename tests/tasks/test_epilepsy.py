"""The epilepsy task against a slow scalar twin, by hand, and as an environment."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import Transitions
from kbrl.tasks.epilepsy import Epilepsy, FixedFrequency
from kbrl.tasks.gymnasium_env import TaskEnv
from kbrl.tasks.nearest_row import make_row_model, nearest_rows
from kbrl.tasks.recordings import Recordings

WAIT, PULSE = 0, 1


def random_recordings(n=60, n_dims=5, seed=0, *, pulsed=0.2, levels=None):
    """Three recordings of a random walk that is pulled back; with ``levels``, on a grid, so that there are ties."""
    rng = np.random.default_rng(seed)
    features = np.zeros((n, n_dims))
    for t in range(1, n):
        features[t] = 0.8 * features[t - 1] + rng.standard_normal(n_dims)
    if levels is not None:
        features = np.round(features * levels) / levels
    labels, recordings = rng.integers(1, 4, size=n), np.sort(rng.integers(1, 4, size=n))
    return Recordings(features, labels, recordings, rng.standard_normal(n_dims), 0.3, rng.random(n) < pulsed)


def slow_nearest(state, recordings, candidates):
    distances = [sum((a - b) * (a - b) for a, b in zip(state, recordings.features[row].tolist())) for row in candidates]
    return candidates[distances.index(min(distances))]  # the first of equally near ones


def slow_step(state, action, recordings, across):
    """One decision in scalars, as the public code does it: the move of the nearest row, and a shift by a pulse."""
    n, rows = len(recordings), recordings.features
    ids = recordings.recordings
    candidates = [i for i in range(n) if across or (i + 1 < n and ids[i + 1] == ids[i])]
    here = slow_nearest(state, recordings, candidates)
    after = (here + 1) % n
    low, high = rows.min(axis=0), rows.max(axis=0)
    moved = []
    for j, s in enumerate(state):
        shift = recordings.magnitude * recordings.stimulation[j]
        s = s + (rows[after, j] - rows[here, j]) + (action - int(recordings.pulses[here])) * shift
        margin = 0.1 * (high[j] - low[j])
        moved.append(min(max(s, low[j] - margin), high[j] + margin))
    return moved, recordings.labels[slow_nearest(moved, recordings, candidates)] == 3


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("n_dims", [1, 2, 5])
def test_a_step_is_that_of_the_slow_twin(n_dims, across):
    recordings = random_recordings(n_dims=n_dims)
    task = Epilepsy(recordings, noise=False, across_recordings=across, seizure_penalty=20, pulse_penalty=2)
    rng = np.random.default_rng(1)
    states = np.vstack([3 * rng.standard_normal((80, n_dims)), recordings.features])
    actions = rng.integers(2, size=len(states))
    next_states, rewards, terminals = task.step(states, actions)
    assert not terminals.any()
    for i in range(len(states)):
        moved, seizes = slow_step(states[i].tolist(), int(actions[i]), recordings, across)
        np.testing.assert_allclose(next_states[i], moved, rtol=0, atol=1e-12)
        assert rewards[i] == -2 * actions[i] - 20 * seizes


def test_a_recorded_policy_replays_the_recording():
    recordings = random_recordings(pulsed=0.4)
    task = Epilepsy(recordings, noise=False)
    moved, _, _ = task.step(recordings.features, recordings.pulses.astype(int))
    np.testing.assert_allclose(moved, np.roll(recordings.features, -1, axis=0), rtol=0, atol=1e-12)


def test_a_chain_of_three_rows_is_worked_out_by_hand():
    recordings = Recordings([[0.0], [1.0], [5.0]], [1, 3, 1], [1, 1, 1], [1.0], 0.5)
    task = Epilepsy(recordings, noise=False)
    moved, rewards, _ = task.step([[0.2], [0.2], [0.9], [5.2]], [WAIT, PULSE, WAIT, PULSE])
    np.testing.assert_allclose(moved.ravel(), [1.2, 1.7, 4.9, 0.7])  # +1, +1 and a pulse, +4, -5 and a pulse
    np.testing.assert_array_equal(rewards, [-40, -41, 0, -41])
    kept, _, _ = Epilepsy(recordings, noise=False, across_recordings=False).step([[4.9]], [WAIT])
    assert kept[0, 0] == pytest.approx(5.5)  # the last row is nobody's neighbour: 4.9 + 4, clipped at 5 + 0.5


@given(st.integers(0, 10_000), st.sampled_from([1, 3, 5]), st.sampled_from([None, 1, 2]), st.integers(2, 300))
@settings(max_examples=60, deadline=None)
def test_the_nearest_row_is_the_first_of_the_nearest(seed, n_dims, levels, n):
    recordings = random_recordings(n, n_dims, seed, levels=levels)
    rng = np.random.default_rng(seed)
    states = np.vstack([recordings.features, 2 * rng.standard_normal((50, n_dims)), [[1e3] * n_dims, [1e140] * n_dims]])
    states[:20] = np.round(states[:20])  # on the grid
    found = nearest_rows(states, make_row_model(recordings, across_recordings=True))
    for state, row in zip(states.tolist(), found):
        assert row == slow_nearest(state, recordings, range(n))


def test_a_states_move_depends_neither_on_the_batch_nor_on_threads():
    task = Epilepsy(random_recordings(500), noise=False)
    states, actions = task.reset(200, 0), np.random.default_rng(1).integers(2, size=200)
    whole, rewards, _ = task.step(states, actions)
    single = [task.step(states[i : i + 1], actions[i : i + 1]) for i in range(200)]
    np.testing.assert_array_equal(whole, np.vstack([moved for moved, _, _ in single]))
    np.testing.assert_array_equal(rewards, np.concatenate([reward for _, reward, _ in single]))
    with ThreadPoolExecutor(4) as pool:
        for moved, _, _ in pool.map(lambda _: task.step(states, actions), range(16)):
            np.testing.assert_array_equal(moved, whole)


def test_one_seed_gives_one_log():
    def log(seed):
        return Epilepsy(random_recordings()).collect(300, random_state=seed, max_steps=50)

    np.testing.assert_array_equal(log(1).next_states, log(1).next_states)
    assert not np.array_equal(log(1).next_states, log(2).next_states)


@pytest.mark.parametrize("centred, low", [(False, 0.0), (True, -1.0)])
def test_the_noise_is_uniform_and_scaled_by_the_mean_step(centred, low):
    recordings = random_recordings()
    state = np.repeat(recordings.features[5:6], 40_000, axis=0)
    options = {"noise_scale": 1e-3, "noise_centred": centred}
    moved, _, _ = Epilepsy(recordings, **options).step(state, np.zeros(len(state), dtype=int), 0)
    exact, _, _ = Epilepsy(recordings, noise=False).step(state[:1], [WAIT])
    noise = (moved - exact) / (1e-3 * np.abs(np.diff(recordings.features, axis=0)).mean(axis=0))
    np.testing.assert_allclose(noise.min(axis=0), low, atol=1e-3)
    np.testing.assert_allclose(noise.max(axis=0), low + 2, atol=1e-3)
    np.testing.assert_allclose(noise.mean(axis=0), low + 1, atol=5 * (1 / 3) ** 0.5 / 200)


def test_episodes_start_midway_between_two_rows_or_in_one():
    recordings = Recordings([[0.0], [1.0], [10.0]], [1, 1, 3], [1, 1, 1], [1.0], 0.1)
    pairs, rows = Epilepsy(recordings).reset(1000, 0), Epilepsy(recordings, start="row").reset(1000, 0)
    assert set(pairs.ravel()) == {0.0, 0.5, 1.0, 5.0, 5.5, 10.0}
    assert set(rows.ravel()) == {0.0, 1.0, 10.0}


def test_the_test_states_are_ten_and_always_the_same():
    recordings = random_recordings()
    rows, box = Epilepsy(recordings).test_states(), Epilepsy(recordings).test_states("box")
    assert rows.shape == box.shape == (10, 5)
    assert all((recordings.features == row).all(axis=1).any() for row in rows)
    assert len(np.unique(rows, axis=0)) == 10
    assert ((box >= recordings.features.min(axis=0)) & (box <= recordings.features.max(axis=0))).all()
    np.testing.assert_array_equal(rows, Epilepsy(recordings, seizure_penalty=10).test_states("rows"))


def test_no_state_leaves_the_bounds_even_under_pulses_that_drive_it_out():
    recordings = random_recordings()
    task = Epilepsy(recordings)
    states = task.reset(50, 0)
    for _ in range(300):
        states, _, _ = task.step(states, np.ones(50, dtype=int), 0)
        assert ((states >= task.low) & (states <= task.high)).all()
    span = recordings.features.max(axis=0) - recordings.features.min(axis=0)
    np.testing.assert_allclose(task.high - task.low, 1.2 * span)


def test_the_time_limits_are_the_papers():
    task = Epilepsy(random_recordings())
    assert (task.max_steps, task.test_steps, task.discount) == (10_000, 100_000, 0.99)
    assert task.evaluate(FixedFrequency(1), 2, 0, max_steps=7).lengths.tolist() == [7, 7]


@pytest.mark.parametrize("hz, per_second, n", [(0, 5, 1000), (0.5, 5, 1000), (1.5, 5, 1000), (0.1, 5, 10_000)])
def test_a_fixed_frequency_is_exact_over_long_runs(hz, per_second, n):
    policy = FixedFrequency(hz, per_second)
    pulses = np.array([policy(np.zeros((3, 5)))[0] for _ in range(n)])
    assert pulses.sum() == round(n * hz / per_second)
    gaps = np.diff(np.flatnonzero(pulses))
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1  # evenly spread


def test_a_fixed_frequency_gives_all_rows_their_pulse_at_the_same_decision():
    policy = FixedFrequency(2.5)
    assert [policy(np.zeros((2, 1))).tolist() for _ in range(4)] == [[0, 0], [1, 1], [0, 0], [1, 1]]
    assert repr(Epilepsy(random_recordings(), decisions_per_second=10).fixed_frequency(2)) == (
        "FixedFrequency(2, decisions_per_second=10)"
    )


def test_fractions_are_the_same_from_a_log_and_without_one():
    task = Epilepsy(random_recordings())
    evaluation = task.evaluate(FixedFrequency(1.5), random_state=3, max_steps=200, record=True)
    from_log = task.fractions(evaluation)
    direct = task.evaluate_fractions(FixedFrequency(1.5), random_state=3, max_steps=200)
    np.testing.assert_array_equal(from_log.seizures, direct.seizures)
    np.testing.assert_array_equal(direct.pulses, np.full(10, 0.3))
    np.testing.assert_array_equal(from_log.pulses, direct.pulses)
    rewards = evaluation.log.rewards.reshape(10, 200).sum(axis=1)
    np.testing.assert_allclose(-40 * 200 * direct.seizures - 200 * direct.pulses, rewards)
    assert repr(direct).startswith("Fractions(10 episodes, seizures 0.")
    with pytest.raises(ValueError, match="The evaluation has no log"):
        task.fractions(task.evaluate(FixedFrequency(1.5), 1, 0, max_steps=2))


def test_fractions_accept_starts_by_number_name_and_value_and_logs_with_named_actions():
    task = Epilepsy(random_recordings())
    for states, n in ((3, 3), ("box", 10), (np.zeros((2, 5)), 2)):
        assert len(task.evaluate_fractions(FixedFrequency(0), states, 0, max_steps=5).seizures) == n
    rows = task.recordings.features
    log = Transitions(rows[:3], ["wait", "pulse", "wait"], [0, 0, 0], rows[1:4])
    assert task.fractions(log).pulses == pytest.approx([1 / 3])
    assert task.fractions(log).seizures == pytest.approx([task.recordings.seizures[1:4].mean()])


@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
def test_the_environment_passes_gymnasiums_own_checks(render_mode):
    check_env(TaskEnv(Epilepsy(random_recordings()), render_mode=render_mode), skip_render_check=True)  # warnings raise


def test_the_default_is_the_substitute_and_says_so():
    task = Epilepsy()
    assert "SUBSTITUTE" in repr(task)
    assert "SUBSTITUTE" in Epilepsy.__doc__
    assert task.recordings is Epilepsy().recordings
    check_env(TaskEnv(task), skip_render_check=True)


def test_the_environment_draws_its_episode():
    env = TaskEnv(Epilepsy(random_recordings()), render_mode="rgb_array")
    env.reset(seed=0)
    env.step(PULSE)
    assert env.render().shape == (500, 500, 3)


class Axes:
    """Remembers what is drawn."""

    def __init__(self):
        self.calls = {}

    def __getattr__(self, name):
        return lambda *values, **options: self.calls.setdefault(name, []).append((values, options))


def test_a_picture_shades_seizures_marks_pulses_and_names_the_source(tmp_path):
    recordings = Recordings([[0.0], [1.0], [5.0]], [1, 3, 1], [1, 1, 1], [1.0], 0.5)
    axes = Axes()
    Epilepsy(recordings).draw(axes, np.array([[0.0], [1.0], [1.1], [5.0], [0.9]]), np.array([0, 1, 0, 1]))
    shaded = [values for values, _ in axes.calls["axvspan"]]
    np.testing.assert_allclose(shaded, [(0.1, 0.5), (0.7, 0.9)])  # decisions 1 to 2, and 4, at five a second
    np.testing.assert_allclose(axes.calls["vlines"][0][0][0], [0.2, 0.6])
    assert "(recordings)" in axes.calls["set_title"][0][0][0]
    picture = Axes()
    Epilepsy().draw(picture, np.zeros((1, 5)))
    assert "SUBSTITUTE" in picture.calls["set_title"][0][0][0]


def test_recordings_are_read_from_a_folder(tmp_path):
    (tmp_path / "params.dat").write_text("f\nl\ns\n3\n2\n3\n3\n0.5\n5\n")
    (tmp_path / "f").write_text("0 0\n1 0\n2 0\n")
    (tmp_path / "l").write_text("1 1 1\n1 1 2\n1 1 3\n")
    (tmp_path / "s").write_text("0 1\n")
    task = Epilepsy(str(tmp_path), noise=False)
    assert task.state_names == ("component 1", "component 2")
    assert str(tmp_path) in repr(task)
    moved, rewards, _ = task.step([[0.9, 0.0]], [PULSE])
    np.testing.assert_allclose(moved, [[1.9, 0.0]])  # the second component never varies: it is clipped to 0
    np.testing.assert_array_equal(rewards, [-41])


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"seizure_penalty": -40}, ValueError, "seizure_penalty must be 0 or a number above it, but it is -40"),
        ({"pulse_penalty": "1"}, TypeError, "pulse_penalty must be a number"),
        ({"decisions_per_second": 0}, ValueError, "decisions_per_second must be a finite number above 0"),
        ({"noise_scale": np.inf}, ValueError, "noise_scale must be a finite number above 0"),
        ({"start": "end"}, ValueError, "start must be one of 'pair', 'row', but it is 'end'"),
        ({"recordings_seed": -1}, ValueError, "recordings_seed must be at least 0"),
        ({"recordings": 3}, TypeError, "recordings must be the path of a folder"),
        ({"recordings": "/nowhere/at/all"}, FileNotFoundError, "is not a folder"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        Epilepsy(**options)


def test_bad_states_actions_and_frequencies_are_refused():
    task = Epilepsy(random_recordings())
    with pytest.raises(ValueError, match="states of Epilepsy must have 5 columns"):
        task.step([[0.0, 0.0]], [WAIT])
    with pytest.raises(ValueError, match="states of Epilepsy must be finite"):
        task.step([[np.nan] * 5], [WAIT])
    with pytest.raises(ValueError, match="from 0 to 1"):
        task.step([[0.0] * 5], [2])
    with pytest.raises(ValueError, match="hz must be at most 5, one pulse per decision, but it is 6"):
        FixedFrequency(6)
    with pytest.raises(ValueError, match="hz must be 0 or a number above it"):
        FixedFrequency(-1)
    alone = Recordings([[0.0], [1.0]], [1, 1], [1, 2], [1.0], 0.5)
    with pytest.raises(ValueError, match="across_recordings=False needs a recording of two rows or more"):
        Epilepsy(alone, across_recordings=False).step([[0.0]], [WAIT])
