"""KBSF(order=1): exact for linear dynamics, the same for any split, in files, and where it must refuse."""

import numpy as np
import pytest

from kbrl import KBSF, Growth, Plan, Transitions, Variant, coverage, load_model, save_model
from kbrl.checks import KbrlWarning
from samples import random_log


def drifting_log(n=2000, seed=0, n_actions=2):
    """Return a log in which actions push a point on a line to the left or to the right; near 0 pays."""
    rng = np.random.default_rng(seed)
    states = rng.uniform(-1, 1, size=(n, 2))
    actions = rng.integers(n_actions, size=n)
    push = np.linspace(-0.1, 0.1, n_actions)[actions]
    next_states = np.column_stack([np.clip(states[:, 0] + push, -1, 1), 0.9 * states[:, 1]])
    return Transitions(states, actions, -np.abs(states[:, 0]), next_states, episodes=np.arange(n) // 50)


def fitted(log, **more):
    settings = {"n_reps": 40, "reps": "farthest", "discount": 0.9, "random_state": 0} | more
    return KBSF(order=1, **settings).fit(log).model_


def test_the_policy_goes_to_where_it_pays():
    model = fitted(drifting_log())
    assert model.predict([[-0.8, 0.0], [0.8, 0.0]]).tolist() == [1, 0]
    assert model.act([-0.8, 0.0]) == 1


def test_values_are_closer_to_the_known_optimum_than_those_of_order_0():
    """From x the best is to walk to 0 in steps of 0.1: -sum of 0.9^t |x - 0.1 t|."""
    log = drifting_log(6000)
    lines = fitted(log, n_reps=100, plan=Plan(decisions=3, hold=1))
    averages = KBSF(100, reps="farthest", discount=0.9, random_state=0).fit(log).model_
    places = np.array([-0.75, -0.35, 0.55, 0.85])
    expected = []
    for x in np.abs(places):
        steps = np.arange(round(10 * x) + 1)
        expected.append(-(0.9**steps * np.maximum(x - 0.1 * steps, 0)).sum())
    states = np.column_stack([places, np.zeros(4)])
    errors = [np.abs(model.values(states) - expected).mean() for model in (lines, averages)]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("cut", [1, 700, 1999])
def test_a_model_of_the_parts_is_the_model_of_the_whole(cut):
    log = drifting_log()
    whole = fitted(log)
    empty = whole.without_data()
    total = empty.extend(log[:cut]) + empty.extend(log[cut:])
    np.testing.assert_allclose(total.q_values(log.states[:50]), whole.q_values(log.states[:50]), atol=1e-9)
    assert total.n_samples == whole.n_samples


def test_forgetting_is_the_inverse_of_learning():
    log = drifting_log()
    model = fitted(log)
    again = model.extend(log[:300]) - log[:300]  # within the range of the rest: the range of all is kept
    np.testing.assert_allclose(again.q_values(log.states[:50]), model.q_values(log.states[:50]), atol=1e-6)


def test_a_shift_and_a_rescaling_of_the_data_change_nothing():
    log = drifting_log()
    factors = np.array([1000.0, 0.01])
    moved = log.replaced(states=log.states * factors + 5.0, next_states=log.next_states * factors + 5.0)
    here, there = fitted(log), fitted(moved)
    expected = here.q_values(log.states[:50])
    np.testing.assert_allclose(there.q_values(log.states[:50] * factors + 5.0), expected, atol=1e-6)


def test_a_file_gives_the_same_answers_and_learns_on(tmp_path):
    log = drifting_log()
    model = fitted(log)
    save_model(model, tmp_path / "m.kbrl")
    loaded = load_model(tmp_path / "m.kbrl")
    np.testing.assert_array_equal(loaded.q_values(log.states), model.q_values(log.states))
    more = drifting_log(100, seed=2)
    np.testing.assert_array_equal(loaded.extend(more).q_values(log.states), model.extend(more).q_values(log.states))


def test_circles_come_back_from_a_file(tmp_path):
    angles = np.random.default_rng(0).uniform(-np.pi, np.pi, size=500)
    states = np.column_stack([np.cos(angles), np.sin(angles), angles**2])
    log = Transitions(states, np.arange(500) % 2, np.cos(angles), states[::-1])
    model = fitted(log)
    assert model.basis.circles.places.tolist() == [[0, 1]]
    save_model(model, tmp_path / "m.kbrl")
    np.testing.assert_array_equal(load_model(tmp_path / "m.kbrl").q_values(states), model.q_values(states))


def test_answers_from_representative_states_nearly_agree_with_looking_ahead():
    log = drifting_log()
    ahead, reps = fitted(log), fitted(log, plan=Plan(acting="reps"))
    states = log.states[np.abs(log.states[:, 0]) > 0.3][:100]
    assert (ahead.predict(states) == reps.predict(states)).mean() > 0.9


def test_one_state_and_many_states_get_the_same_answers():
    model = fitted(drifting_log())
    states = drifting_log(30, seed=3).states
    assert [model.act(state) for state in states] == model.predict(states).tolist()
    np.testing.assert_array_equal(np.vstack([model.q_values(s[None]) for s in states]), model.q_values(states))


def test_the_number_of_threads_does_not_matter():
    log = drifting_log()
    one, two = fitted(log, n_jobs=1), fitted(log, n_jobs=2)
    np.testing.assert_array_equal(one.q_values(log.states[:50]), two.q_values(log.states[:50]))


def test_rare_actions_are_left_out_of_plans():
    log = drifting_log(1000)
    rows = np.arange(1000) < 3
    actions = np.where(rows, 2, log.action_indices)
    rewards = np.where(rows, 100.0, log.rewards)
    lucky = Transitions(log.states, actions, rewards, log.next_states)
    with pytest.warns(KbrlWarning, match="min_cases"):
        model = fitted(lucky)
    assert (model.q_values(log.states)[:, 2] == -np.inf).all()
    assert 2 not in model.predict(log.states)


def test_growth_adds_representative_states_where_data_come():
    log = drifting_log()
    learner = KBSF(20, reps="farthest", order=1, discount=0.9, growth=Growth(distance=0.4), random_state=0)
    learner.fit(log[log.states[:, 0] < 0])
    before = len(learner.reps_)
    learner.partial_fit(log[log.states[:, 0] >= 0])
    assert len(learner.reps_) > before
    assert learner.predict([[0.8, 0.0]]).tolist() == [0]


def test_shrinking_keeps_the_cases():
    learner = KBSF(60, reps="farthest", order=1, discount=0.9, random_state=0).fit(drifting_log())
    learner.shrink(0.3)
    assert learner.model_.sums.cases.sum() == 2000
    assert np.isfinite(learner.q_values([[0.0, 0.0]])).all()


def test_support_is_0_far_from_the_data():
    log = drifting_log()
    found = coverage(fitted(log), [[0.0, 0.0], [50.0, 0.0]])
    assert (found.support[0] >= 5).all()
    assert (found.support[1] == 0).all()


def test_coordinates_far_from_everything_get_an_answer():
    model = fitted(drifting_log())
    assert np.isfinite(model.q_values([[1e6, -1e6]])).all()


@pytest.mark.filterwarnings("ignore::kbrl.KbrlWarning")
def test_a_random_log_gives_finite_values():
    for seed in range(5):
        log = random_log(60, n_dims=1 + seed % 3, seed=seed, ending=0.3, levels=[None, 2][seed % 2])
        model = KBSF(10, order=1, min_cases=1, random_state=0).fit(log).model_
        assert np.isfinite(model.q_values(log.states).max(axis=1)).all()
        bound = np.abs(log.rewards).max() / (1 - 0.99) * (1 + 1e-6)
        assert np.abs(model.solution.values).max() <= bound


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": 2}, "order must be 0 .averages. or 1 .lines and plans., but it is 2"),
        ({"order": True}, "order must be 0"),
        ({"order": 1, "variant": Variant(norm=1)}, "order=1 has none of the variants of order 0.*variant.norm=1"),
        ({"order": 1, "variant": Variant(q_function="samples")}, "variant.q_function='samples'"),
        ({"order": 1, "growth": Growth(below=0.01)}, "use growth.distance instead of growth.below"),
        ({"order": 1, "plan": Plan(decisions=20)}, "plan.decisions=20 makes 2.20 plans"),
        ({"order": 1, "plan": Plan(hold=20_000)}, "at most 10,000 steps, but they make 20,000"),
        ({"order": 1, "plan": Plan(decisions=10**9)}, "at most 10,000 steps, but they make 1,000,000,000"),
        ({"order": 1, "plan": Plan(window=20_000)}, "plan.window may have at most 10,000 steps, but it is 20000"),
        ({"order": 1, "plan": Plan(acting="boldly")}, "plan.acting must be one of 'ahead', 'reps'"),
        ({"order": 1, "plan": Plan(inside=-1.0)}, "plan.inside must be"),
    ],
)
def test_settings_that_order_1_cannot_have_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        KBSF(20, reps="farthest", **settings).fit(drifting_log(200))


def test_rewards_whose_squares_would_overflow_are_refused():
    log = drifting_log(50)
    with pytest.raises(ValueError, match=r"rewards must be at most 1e.100 in size"):
        fitted(log.replaced(rewards=log.rewards * 1e200))


def test_order_1_has_no_bound_and_no_samples():
    log = drifting_log(300)
    learner = KBSF(20, reps="farthest", order=1).fit(log)
    with pytest.raises(ValueError, match=r"lines and plans .order=1. are not averages over samples"):
        learner.bound(log)
    with pytest.raises(ValueError, match="Only a model of order 1 has lines and plans"):
        _ = KBSF(20).fit(log).model_.lines


def test_successors_are_spread_only_where_steps_are_noisy():
    quiet = drifting_log()
    rng = np.random.default_rng(0)
    noisy = quiet.replaced(next_states=quiet.next_states + 0.2 * rng.normal(size=(2000, 2)))
    assert not fitted(quiet).plans.is_spread
    assert fitted(noisy).plans.is_spread


def test_too_many_state_variables_are_refused_at_once_and_the_options_are_named():
    states = np.random.default_rng(0).random((50, 1000))
    log = Transitions(states, np.arange(50) % 2, states[:, 0], states)
    with pytest.raises(ValueError, match=r"at most 100, but there are 1000\. Use order=0 \(--order 0\)"):
        fitted(log)
    assert np.isfinite(KBSF(n_reps=5, random_state=0).fit(log).q_values(states)).all()  # order 0 takes them


def test_sums_that_do_not_fit_into_memory_are_refused_before_it_is_taken():
    states = np.random.default_rng(0).random((4000, 60))
    log = Transitions(states, np.arange(4000) % 20, states[:, 0], states)
    with pytest.raises(ValueError, match=r"would keep 4\.\d+ GB of sums .* \(n_reps, --reps\)"):
        fitted(log, n_reps=3000, reps="random")


def test_models_that_only_decide_otherwise_share_their_lines_and_others_do_not():
    log = drifting_log()
    model = fitted(log[:1500])
    other = model.with_settings(plan=Plan(decisions=1, hold=1))
    assert other.lines is model.lines
    assert model.deferring().lines is model.lines
    assert not np.array_equal(model.with_settings(sample_neighbors=300).lines.lines, model.lines.lines)
    more = other.extend(log[1500:])
    np.testing.assert_array_equal(more.lines.cases, model.extend(log[1500:]).lines.cases)
    assert not np.array_equal(more.lines.cases, model.lines.cases)
