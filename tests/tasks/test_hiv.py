"""The HIV drug schedule against published vectors and returns, slow twins, steady states and hand calculations."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

import tasks.slow_hiv as slow
from experiments.hiv_protocol import protocol
from kbrl import KBSF
from kbrl.tasks.gymnasium_env import TaskEnv
from kbrl.tasks.hiv import HIV, STARTS

FACTS = json.loads((Path(__file__).parent / "hiv.json").read_text())
VECTORS = FACTS["transitions"]
POLICIES = {"no_drug": 0, "rti_only": 1, "pi_only": 2, "both_drugs": 3}
counts = st.tuples(
    st.floats(1e3, 1e6), st.floats(0, 4e3), st.floats(0, 1e5), st.floats(0, 1e3), st.floats(0, 1e6), st.floats(1, 1e6)
)


def column(name):
    return np.array([row[name] for row in VECTORS])


def always(action):
    return lambda observations: np.full(len(observations), action)


def random_states(n, seed=0):
    return np.array(STARTS["unhealthy"]) * np.exp(np.random.default_rng(seed).normal(size=(n, 6)))


@pytest.mark.parametrize("reading, rewards", [("successor", "reward"), ("current", "reward_from_current_state")])
def test_it_reproduces_the_reference_transitions(reading, rewards):
    next_states, got, terminals = HIV(reward_from=reading).step(column("state"), column("action"))
    np.testing.assert_allclose(next_states, column("next_state"), rtol=1e-9)
    np.testing.assert_allclose(got, column(rewards), rtol=1e-9)
    np.testing.assert_array_equal(terminals, column("terminated"))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "options, published",
    [
        ({}, "discounted_return"),
        ({"reward_from": "current"}, "discounted_return_reward_from_current_state"),
        ({"second_cost": 20000}, "discounted_return_R2_20000"),
    ],
)
def test_the_constant_policies_have_their_published_returns_over_5000_days(policy, options, published):
    facts = FACTS["returns_5000_days"]["policies"][policy]
    result = HIV(**options).evaluate(always(POLICIES[policy]), record=True)
    assert result.returns[0] == pytest.approx(facts[published], rel=1e-8)
    assert result.lengths[0] == 1000
    np.testing.assert_allclose(10 ** result.log.next_states[-1], facts["final_state"], rtol=1e-8)


@given(st.lists(counts, min_size=1, max_size=20), st.integers(0, 2**32 - 1))
@settings(max_examples=6, deadline=None)
def test_the_compiled_model_agrees_with_numpy(states, seed):
    actions = np.random.default_rng(seed).integers(4, size=len(states))
    next_states, _, _ = HIV().step(states, actions)
    np.testing.assert_allclose(next_states, slow.step_numpy(states, actions), rtol=1e-10)


@given(counts, st.integers(0, 3), st.booleans(), st.sampled_from([0, 2000, 20000]))
@settings(max_examples=15, deadline=None)
def test_the_compiled_model_agrees_with_plain_python(state, action, from_current, cost):
    task = HIV(second_cost=cost, reward_from="current" if from_current else "successor")
    next_states, rewards, _ = task.step([state], [action])
    expected = slow.step_python(state, action)
    np.testing.assert_allclose(next_states[0], expected, rtol=1e-10)
    reward = slow.reward(state, expected, action, second_cost=cost, from_current=from_current)
    # virus and effectors may cancel: the error is relative to the larger of the two
    assert rewards[0] == pytest.approx(reward, rel=1e-9, abs=1e-9 * 1000 * max(state[5], expected[5]))


def test_eulers_steps_follow_a_tight_solver_to_two_percent():
    def exact(state, action):
        efficacy = slow.EFFICACY[action]
        course = solve_ivp(lambda t, x: slow.rates(*x, *efficacy), (0, 5), state, "LSODA", rtol=1e-10, atol=1e-8)
        return course.y[:, -1]

    for state, action in zip(column("state")[:12], column("action")):
        np.testing.assert_allclose(HIV().step([state], [action])[0][0], exact(state, action), rtol=0.02)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 30, 33])
def test_a_patients_future_does_not_depend_on_the_batch_bit_for_bit(n):
    states, actions = random_states(40), np.arange(40) % 4
    together, rewards, _ = HIV().step(states, actions)
    chosen = np.random.default_rng(n).permutation(40)[:n]
    some, some_rewards, _ = HIV().step(states[chosen], actions[chosen])
    np.testing.assert_array_equal(some, together[chosen])
    np.testing.assert_array_equal(some_rewards, rewards[chosen])


@pytest.mark.parametrize("name, tolerance", [("unhealthy", 0.02), ("healthy", 1e-9), ("uninfected", 1e-12)])
def test_the_named_starts_are_steady_without_drugs(name, tolerance):
    states = HIV(start=name).reset(2)
    np.testing.assert_array_equal(states, [STARTS[name]] * 2)
    for _ in range(20):
        states, _, _ = HIV().step(states, [0, 0])
    np.testing.assert_allclose(states[0], STARTS[name], rtol=tolerance)  # the unhealthy one is a rounding: 24 for 23.54


@pytest.mark.parametrize("name, slowest", [("unhealthy", -0.030), ("healthy", -0.0026)])
def test_two_steady_states_attract_at_their_published_rates_and_the_uninfected_one_repels(name, slowest):
    assert growth(name) == pytest.approx(slowest, rel=0.02)
    assert growth("uninfected") > 0.1


def growth(name):
    """Return the largest rate per day at which a small deviation from a steady state grows."""
    steady = HIV().step([STARTS[name]], [0])[0][0]
    for _ in range(100):
        steady = HIV().step([steady], [0])[0][0]
    sizes = np.maximum(1e-6 * steady, 1e-9)
    moved = HIV().step(steady + np.diag(sizes), [0] * 6)[0] - HIV().step([steady], [0])[0]
    return np.log(np.abs(np.linalg.eigvals(moved / sizes[:, None]))).max() / 5


def test_the_reward_of_staying_healthy_is_what_its_counts_say():
    rewards = HIV().step([STARTS["healthy"]], [0])[1]
    assert rewards[0] == pytest.approx(1000 * 353108.0351 - 0.1 * 415.3756, rel=1e-6)


def test_drugs_cost_their_weight_times_their_squared_efficacy():
    _, rewards, _ = HIV(reward_from="current").step([STARTS["unhealthy"]] * 4, [0, 1, 2, 3])
    np.testing.assert_allclose(rewards[0] - rewards, [0, 20000 * 0.49, 2000 * 0.09, 20000 * 0.49 + 2000 * 0.09])


def test_learners_see_the_logarithms_and_no_patient_of_the_papers_reaches_the_bounds():
    task = HIV()
    log = task.collect(6000, random_state=0)
    assert ((log.next_states > task.low + 2) & (log.next_states < task.high - 1)).all()
    states = random_states(5)
    np.testing.assert_allclose(10 ** task.observe(states), states)
    assert task.observation_names[2] == "log10 T1*"


def test_counts_of_zero_are_observed_within_the_bounds():
    task = HIV(start="uninfected")
    seen = task.observe(task.reset(1))
    assert ((seen >= task.low) & (seen <= task.high)).all()
    np.testing.assert_array_equal(seen[0, 2:5], task.low[2:5])


def test_thirty_patients_are_followed_for_1000_days_from_the_unhealthy_state():
    log = HIV().collect(6000, random_state=0)
    np.testing.assert_array_equal(np.bincount(log.episodes), [200] * 30)
    np.testing.assert_allclose(10 ** log.states[::200], [STARTS["unhealthy"]] * 30)
    assert not log.terminals.any()
    np.testing.assert_array_equal(HIV().test_states(), [STARTS["unhealthy"]])


def test_the_same_seed_gives_the_same_log_on_any_thread():
    expected = HIV().collect(2000, random_state=3)
    with ThreadPoolExecutor(4) as pool:
        logs = list(pool.map(lambda _: HIV().collect(2000, random_state=3), range(4)))
    for log in logs:
        np.testing.assert_array_equal(log.next_states, expected.next_states)
        np.testing.assert_array_equal(log.actions, expected.actions)
    assert not np.array_equal(HIV().collect(2000, random_state=4).actions, expected.actions)


class Recorder:
    """A learner that remembers what it was given, and always advises PI."""

    def __init__(self):
        self.logs = []

    def fit(self, log):
        self.logs.append(log)

    def predict(self, states):
        return np.full(len(states), 2)


def test_the_protocol_merges_ten_rounds_of_6000_transitions():
    learner = Recorder()
    log = protocol(HIV(), learner, random_state=0)
    assert [len(log) for log in learner.logs] == [6000 * k for k in range(1, 11)]
    for given_log in (*learner.logs, log):
        np.testing.assert_array_equal(given_log.states, log.states[: len(given_log)])
        np.testing.assert_array_equal(given_log.episodes, np.repeat(np.arange(len(given_log) // 200), 200))
    advised = (log.actions == 2).reshape(10, 6000).mean(axis=1)
    spread = 5 * np.sqrt(0.25 / 6000)
    assert advised[0] == pytest.approx(0.25, abs=spread)  # the first round is random
    np.testing.assert_allclose(advised[1:], 0.85 + 0.15 / 4, atol=spread)


def test_the_protocol_trains_a_learner_and_repeats_with_its_seed():
    def run():
        model = KBSF(n_reps=40, reps="random", sample_width=1.0, rep_width=1.0, discount=0.98, random_state=0)
        log = protocol(HIV(), model, n_rounds=2, n_patients=4, epsilon=0.3, random_state=1)
        return log, HIV().evaluate(model.predict).returns

    (one, score), (two, again) = run(), run()
    assert len(one) == 2 * 4 * 200
    np.testing.assert_array_equal(one.actions, two.actions)
    np.testing.assert_array_equal(score, again)


@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
@pytest.mark.parametrize("start", ["unhealthy", "uninfected"])
def test_the_environment_passes_gymnasiums_own_checks(render_mode, start):
    env = TaskEnv(HIV(start=start), render_mode=render_mode)
    env.spec = EnvSpec("test/HIV-v0", lambda **options: TaskEnv(HIV(start=start), **options))
    check_env(env)  # warnings are errors here


def test_the_environment_follows_the_patient_and_is_cut_after_200_decisions():
    env, task = TaskEnv(HIV()), HIV()
    env.reset(seed=0)
    states, cuts = task.reset(1), []
    for t in range(200):
        states, rewards, _ = task.step(states, [t % 4])
        seen, reward, terminated, truncated, _ = env.step(t % 4)
        np.testing.assert_array_equal(seen, task.observe(states)[0])
        assert (reward, terminated) == (rewards[0], False)
        cuts.append(truncated)
    assert cuts == [False] * 199 + [True]


def test_a_picture_shows_six_curves_and_when_each_drug_was_taken():
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    states = random_states(5)
    HIV().draw(axes, states, np.array([1, 0, 3, 2]))
    curves = [line for line in axes.lines if len(line.get_xdata()) == 5]
    np.testing.assert_allclose([line.get_ydata() for line in curves], states.T)
    np.testing.assert_allclose(curves[0].get_xdata(), [0, 5, 10, 15, 20])
    rti, pi = (
        [path.get_extents().intervalx.tolist() for path in bars.get_paths()] for bars in axes.child_axes[0].collections
    )
    assert rti == [[0, 5], [10, 15]]
    assert pi == [[10, 15], [15, 20]]


def test_a_picture_can_be_made_before_the_first_decision():
    env = TaskEnv(HIV(), render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (500, 500, 3)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: HIV(second_cost=-1), "second_cost must be a finite number not below 0, but it is -1"),
        (lambda: HIV(second_cost=np.nan), "second_cost must be a finite number"),
        (lambda: HIV(second_cost="much"), "second_cost must be real numbers"),
        (lambda: HIV(reward_from="both"), "reward_from must be one of 'successor', 'current', but it is 'both'"),
        (lambda: HIV(start="ill"), "start must be one of 'unhealthy', 'healthy', 'uninfected', but it is 'ill'"),
        (lambda: HIV(start=[1, 2, 3]), "start must have 6 columns"),
        (lambda: HIV(start=[1, 2, 3, 4, 5, -6]), "start must be counts, not below 0"),
        (lambda: HIV().step([[5.2, 0.7, 4.1, 1.7, 4.8, -0.5]], [0]), "not their logarithms"),
        (lambda: HIV().step([[1e5, 5, 1e4, 40, 1e12, 20]], [0]), "counts that Euler's steps can follow"),
        (lambda: HIV().step([[1e5, 5, 1e4, 40, np.nan, 20]], [0]), "states of HIV must be finite"),
        (lambda: HIV().step([STARTS["healthy"]], [4]), "from 0 to 3"),
        (lambda: HIV().test_states("healthy"), "name must be one of 'unhealthy'"),
        (lambda: protocol(HIV(), Recorder(), n_rounds=0), "n_rounds must be at least 1"),
        (lambda: protocol(HIV(), Recorder(), n_patients=0), "n_patients must be at least 1"),
        (lambda: protocol(HIV(), Recorder(), epsilon=1.5), "epsilon must lie in"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_patients_may_start_from_counts_of_the_users_own():
    task = HIV(start=[1e6, 3000, 10, 1, 100, 50])
    np.testing.assert_array_equal(task.reset(3), [[1e6, 3000, 10, 1, 100, 50]] * 3)
