"""Widths chosen from data: the errors are what slow loops say, and the choice does what it is for."""

import math

import numpy as np
import pytest

from kbrl import KBSF, Transitions, Variant
from kbrl.choosing.hyperparameters import choose_widths
from kbrl.learners.learner import clone
from kbrl.tasks import PuddleWorld
from tests.samples import random_log

# the kernel relative to its value at the nearest sample, which nothing else underflows against
PROFILES = {
    "exponential": lambda z, nearest: math.exp(nearest - z),
    "gaussian": lambda z, nearest: math.exp((nearest**2 - z**2) / 2),
}


def tried(widths, name):
    """Return the errors of one width alone, by width."""
    other = {"sample_width": "rep_width", "rep_width": "sample_width"}[name]
    return {getattr(t, name): t.error for t in widths.trials if getattr(t, other) is None}


def slow_prediction_errors(log, width, profile, n_neighbors):
    """The squared errors of next states and of rewards, each transition predicted from the others of its action."""
    of_states = of_rewards = 0.0
    for rows in log.by_action():
        for i in rows:
            others = [j for j in rows if j != i]
            if not others:
                continue
            distances = {j: float(np.linalg.norm(log.states[i] - log.states[j])) for j in others}
            nearest = sorted(others, key=lambda j: distances[j])[: n_neighbors or len(others)]
            least = min(distances.values())
            weights = {j: PROFILES[profile](distances[j] / width, least / width) for j in nearest}
            reward = sum(w * log.rewards[j] for j, w in weights.items()) / sum(weights.values())
            of_rewards += (reward - log.rewards[i]) ** 2
            going_on = {j: w for j, w in weights.items() if not log.terminals[j]}
            if sum(going_on.values()) > 0 and not log.terminals[i]:
                mean = sum(w * log.next_states[j] for j, w in going_on.items()) / sum(going_on.values())
                of_states += float(((mean - log.next_states[i]) ** 2).sum())
    return of_states, of_rewards


@pytest.mark.parametrize("profile", ["exponential", "gaussian"])
@pytest.mark.parametrize("n_neighbors", [None, 3])
def test_prediction_errors_are_those_of_slow_loops(profile, n_neighbors):
    log = random_log(n=40, n_dims=2, n_actions=3, seed=1, ending=0.2)
    learner = KBSF(8, variant=Variant(profile=profile), sample_neighbors=n_neighbors, scaling=None, random_state=0)
    found = tried(choose_widths(log, learner), "sample_width")
    slow = np.array([slow_prediction_errors(log, width, profile, n_neighbors) for width in found])
    relative = slow / slow.min(axis=0)
    np.testing.assert_allclose(list(found.values()), (2 * relative[:, 0] + relative[:, 1]) / 3, rtol=1e-6)


@pytest.mark.parametrize("n_neighbors", [None, 2])
def test_rebuilding_errors_are_those_of_slow_loops(n_neighbors):
    log = random_log(n=30, n_dims=2, seed=2)
    reps = log.next_states[:6] + 0.1
    found = tried(choose_widths(log, KBSF(reps=reps, rep_neighbors=n_neighbors, scaling=None)), "rep_width")
    for width, error in found.items():
        squares = []
        for state in log.next_states[~log.terminals]:
            distances = [float(np.linalg.norm(state - rep)) for rep in reps]
            nearest = np.argsort(distances)[:n_neighbors]
            weights = np.array([math.exp(-distances[i] / width) for i in nearest])
            squares.append(float(((weights @ reps[nearest] / weights.sum() - state) ** 2).sum()))
        assert error == pytest.approx(np.mean(squares), rel=1e-9)


def test_the_sample_width_is_the_widest_that_errs_little_more_than_the_best_and_the_rep_width_errs_least():
    widths = choose_widths(PuddleWorld().collect(1500, random_state=3), KBSF(40, random_state=0))
    samples, reps = tried(widths, "sample_width"), tried(widths, "rep_width")
    least = min(samples.values())
    assert samples[widths.sample_width] <= 1.15 * least * (1 + 1e-6)
    assert all(error > 1.15 * least for width, error in samples.items() if width > widths.sample_width)
    assert reps[widths.rep_width] == min(reps.values())


def test_the_best_width_is_inside_of_what_is_tried():
    widths = choose_widths(PuddleWorld().collect(2000, random_state=4), KBSF(40, random_state=0))
    for name in ("sample_width", "rep_width"):
        grid = sorted(tried(widths, name))
        assert grid[0] < getattr(widths, name) < grid[-1]


def test_tenfold_units_give_tenfold_widths():
    log = random_log(n=200, n_dims=2, seed=5)
    larger = Transitions(10 * log.states, log.actions, log.rewards, 10 * log.next_states, log.terminals)
    learner = KBSF(20, scaling=None, random_state=0)
    small, large = choose_widths(log, learner), choose_widths(larger, learner)
    assert large.sample_width == pytest.approx(10 * small.sample_width)
    assert large.rep_width == pytest.approx(10 * small.rep_width)


def test_shifted_and_stretched_rewards_change_nothing():
    log = random_log(n=200, n_dims=2, seed=6)
    other = Transitions(log.states, log.actions, 100 - 7 * log.rewards, log.next_states, log.terminals)
    one, two = (choose_widths(each, KBSF(20, random_state=0)) for each in (log, other))
    assert (one.sample_width, one.rep_width) == (two.sample_width, two.rep_width)
    np.testing.assert_allclose([t.error for t in one.trials], [t.error for t in two.trials], rtol=1e-6)


def test_the_order_of_a_small_sample_does_not_matter():
    log = random_log(n=150, n_dims=2, seed=7)
    shuffled = log[np.random.default_rng(0).permutation(len(log))]
    learner = KBSF(reps=log.next_states[:20])
    one, two = choose_widths(log, learner), choose_widths(shuffled, learner)
    assert (one.sample_width, one.rep_width) == (two.sample_width, two.rep_width)
    np.testing.assert_allclose([t.error for t in one.trials], [t.error for t in two.trials], rtol=1e-9)


def test_where_only_rewards_depend_on_the_state_they_decide():
    rng = np.random.default_rng(8)
    states = rng.random((800, 1))
    rewards = np.sin(20 * states[:, 0])
    log = Transitions(states, np.zeros(800, int), rewards, rng.random((800, 1)))
    width = choose_widths(log, KBSF(20, scaling=None, random_state=0)).sample_width
    assert width < 0.05  # a mean over a wave of length 0.31 would predict nothing


def test_a_width_that_is_to_be_kept_is_kept_and_not_tried():
    log = random_log(n=60, seed=9)
    learner = KBSF(10, sample_width=0.123, rep_width=0.456, random_state=0)
    widths = choose_widths(log, learner, keep=["sample_width"])
    assert widths.sample_width == 0.123
    assert tried(widths, "sample_width") == {}
    both = choose_widths(log, learner, keep=["sample_width", "rep_width"])
    assert (both.sample_width, both.rep_width, both.trials) == (0.123, 0.456, ())


def test_the_learner_is_not_changed():
    learner = KBSF(10, random_state=0)
    before = learner.get_params()
    choose_widths(random_log(seed=10), learner, criterion="bellman")
    assert learner.get_params() == before
    assert not hasattr(learner, "scale_")


def test_the_bellman_criterion_finds_what_no_single_change_of_a_width_betters():
    log = PuddleWorld().collect(600, random_state=11)
    widths = choose_widths(log, KBSF(20, random_state=0, n_jobs=1), criterion="bellman")
    found = {(t.sample_width, t.rep_width): t.error for t in widths.trials}
    best = found[widths.sample_width, widths.rep_width]
    assert best == min(found.values())
    lines = [e for (s, r), e in found.items() if s == widths.sample_width or r == widths.rep_width]
    assert len(lines) > 10
    assert min(lines) == best


def test_the_bellman_error_is_the_unexplained_share_of_held_out_targets():
    log = random_log(n=80, n_dims=2, n_actions=2, seed=12)
    learner = KBSF(reps=log.next_states[:10], scaling=[1.0, 1.0], sample_width=0.2, rep_width=0.3, n_jobs=1)
    widths = choose_widths(log, learner, criterion="bellman", keep=["sample_width", "rep_width"], random_state=5)
    rows = np.random.default_rng(5).permutation(80)
    model = clone(learner).fit(log[rows[:40]])
    left = right = 0.0
    held = log[rows[40:]]
    targets = [
        reward + 0.99 * (0.0 if end else model.q_values([state]).max())
        for reward, end, state in zip(held.rewards, held.terminals, held.next_states)
    ]
    for i, target in enumerate(targets):
        left += (target - model.q_values(held.states[i : i + 1])[0, held.action_indices[i]]) ** 2
        right += (target - np.mean(targets)) ** 2
    assert widths.trials[0].error == pytest.approx(left / right, rel=1e-9)


@pytest.mark.parametrize(
    "log",
    [
        Transitions([[0.0]], ["a"], [1.0], [[0.0]]),
        Transitions([[0.0], [1.0]], ["a", "b"], [1.0, 2.0], [[1.0], [0.0]]),
        Transitions([[2.0]] * 5, [0, 1, 0, 1, 0], [1.0] * 5, [[2.0]] * 5),
        Transitions([[0.0], [1.0], [2.0]], [0, 0, 0], [1.0, 1.0, 1.0], [[5.0]] * 3, [True] * 3),
        Transitions([[1e-9], [1e9]] * 4, [0] * 8, range(8), [[1e9], [1e-9]] * 4),
        Transitions([[0.0, 7.0], [1.0, 7.0]] * 10, [0, 1] * 10, [0.1] * 20, [[1.0, 7.0], [0.0, 7.0]] * 10),
    ],
    ids=["one row", "one row per action", "one state", "all rows are ends", "two far states", "a constant variable"],
)
@pytest.mark.parametrize("criterion", ["error", "bellman"])
@pytest.mark.parametrize(
    "settings", [{}, {"sample_neighbors": 2, "rep_neighbors": 2}, {"variant": Variant(aggregation="hard")}]
)
def test_poor_logs_give_widths_that_a_model_can_be_fitted_with(log, criterion, settings):
    learner = KBSF(2, reps=log.next_states[:1], random_state=0, **settings)
    widths = choose_widths(log, learner, criterion=criterion)
    assert 0 < widths.sample_width < np.inf
    assert 0 < widths.rep_width < np.inf
    learner.set_params(sample_width=widths.sample_width, rep_width=widths.rep_width).fit(log).predict(log.states)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"criterion": "luck"}, "criterion must be one of"), ({"keep": ["discount"]}, "keep must be one of")],
)
def test_what_cannot_be_asked_for_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        choose_widths(random_log(), KBSF(5), **options)
    with pytest.raises(TypeError, match="learns from Transitions"):
        choose_widths([1, 2, 3], KBSF(5))


def test_on_the_puddle_world_chosen_widths_come_near_the_best():
    """The pairs are the best of 36 on other logs of 8000 moves, which return 3.4 to 3.8; random moves return 0."""
    task, pairs = PuddleWorld(), [(0.056, 0.056), (0.1, 0.032), (0.1, 0.056)]
    chosen, best = [], []
    for seed in (300, 301, 302):
        log = task.collect(8000, random_state=seed)
        learner = KBSF(100, discount=task.discount, random_state=0, n_jobs=1)
        widths = choose_widths(log, learner)
        returns = []
        for sample_width, rep_width in [(widths.sample_width, widths.rep_width), *pairs]:
            model = clone(learner).set_params(sample_width=sample_width, rep_width=rep_width).fit(log)
            returns.append(task.evaluate(model.predict, random_state=1).mean)
        chosen.append(returns[0])
        best.append(returns[1:])
    # a single log loses a fifth with the best widths as well, one in ten half
    assert np.mean(chosen) > 0.8 * np.mean(best, axis=0).max()
