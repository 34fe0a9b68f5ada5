"""Forgetting is the inverse of learning, or it is refused: judged by a refit and by sums in plain Python."""

from fractions import Fraction
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from kbrl import KBSF, Transitions, load_model, save_model
from kbrl.model.sums import PRECISION, new_statistics
from kbrl.tasks import PuddleWorld
from samples import as_lists, random_log

REPS = np.random.default_rng(5).random((6, 2))
HIDDEN = "nearly all weight is theirs, and rounding hides what would be left"
TOO_LARGE = r"rewards are so large that rounding hides those of the others. .* may be off by .* Fit again"
FOREIGN = "Only transitions that were learnt can be forgotten"


def refit_or_refusal(model, log, taken):
    """Forget some rows; return whether it was refused, after checking what came of it by a refit."""
    rest = log[~taken]
    before = model.q_values(REPS)
    try:
        model.forget(log[taken])
    except ValueError:
        with pytest.raises(ValueError, match=f"{HIDDEN}|{TOO_LARGE}"):
            model.forget(log[taken])
        np.testing.assert_array_equal(model.q_values(REPS), before)
        return True
    refit = KBSF(reps=REPS, sample_width=model.sample_width, scaling=None, discount=0.9, min_cases=1).fit(rest)
    np.testing.assert_array_equal(model.mdp_.available, refit.mdp_.available)
    np.testing.assert_allclose(model.mdp_.stacked, refit.mdp_.stacked, atol=3 * PRECISION)
    np.testing.assert_allclose(model.mdp_.rewards, refit.mdp_.rewards, atol=3 * PRECISION)
    return False


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0]), st.floats(0.01, 0.99))
def test_a_model_that_forgets_is_the_refit_or_says_that_it_cannot(seed, width, share):
    log = random_log(n=60, seed=seed % 1000, n_actions=3)
    taken = np.random.default_rng(seed).random(60) < share
    if not taken.any() or taken.all():
        taken[0] = not taken[0]
    model = KBSF(reps=REPS, sample_width=width, scaling=None, discount=0.9, min_cases=1).fit(log)
    refused = refit_or_refusal(model, log, taken)
    left = [
        share_left(rep, [s for s, _, _, _ in samples], [s for s, _, _, _ in kept], width)
        for samples, kept in zip(as_lists(log), as_lists(log[~taken]))
        for rep in REPS.tolist()
        if kept and len(kept) < len(samples)
    ]
    assert refused == (min(left, default=1) < 4 * np.finfo(float).eps * PRECISION**-1 * 60**0.5) or any(
        1e-11 < ratio < 1e-7
        for ratio in left  # where the exact number of terms decides
    )


def share_left(rep, before, after, width):
    """Return the share of the kernel mass at a representative state that is left, without underflow."""
    nearest = min(naive.distance(rep, s) for s in before)
    mass = [
        sum(Fraction(exp((nearest - naive.distance(rep, s)) / width)) for s in states) for states in (after, before)
    ]
    return float(mass[0] / mass[1])


def test_forgetting_half_a_log_at_a_narrow_width_is_refused_and_loses_nothing():
    """The review's case: 17.5 % of the pairs became unavailable and 54 % of the decisions differed from a refit."""
    log = PuddleWorld().collect(2000, random_state=0)
    model = KBSF(100, sample_width=0.01, random_state=0).fit(log)
    before = model.rep_q_.copy()
    with pytest.raises(ValueError, match=HIDDEN):
        model.forget(log[:1000])
    np.testing.assert_array_equal(model.rep_q_, before)
    assert model.n_samples_ == 2000


def test_forgetting_twice_remembers_the_rounding_of_the_first_time(tmp_path):
    """What the first step leaves behind is rounding to the second, however little that takes away."""
    states = np.array([[0.0], [0.6], [0.6], [1.2], [1.2]])
    log = Transitions(states, [0] * 5, [1.0, 2.0, 2.0, 3.0, 4.0], states)
    model = KBSF(reps=[[0.0]], sample_width=0.05, scaling=None, discount=0.0).fit(log)  # exp(-12) and exp(-24)
    KBSF(reps=[[0.0]], sample_width=0.05, scaling=None, discount=0.0).fit(log[1:]).forget(log[1:3])  # this alone can be
    model.forget(log[:1])
    assert model.q_values([[0.0]])[0, 0] == pytest.approx(2.0, abs=1e-4)
    save_model(model, tmp_path / "m.kbrl")
    for each in (model.model_, load_model(tmp_path / "m.kbrl")):
        with pytest.raises(ValueError, match=HIDDEN):
            each - log[1:3]


def test_an_action_that_is_forgotten_altogether_is_unavailable():
    log = random_log(n=60, n_actions=3)
    rows = log.by_action()[1]
    model = KBSF(reps=REPS, scaling=None, sample_width=0.5, discount=0.9).fit(log).forget(log[rows])
    refit = KBSF(reps=REPS, scaling=None, sample_width=0.5, discount=0.9).fit(log[np.setdiff1d(np.arange(60), rows)])
    assert not model.mdp_.available[1].any()
    np.testing.assert_allclose(model.rep_q_, refit.rep_q_, rtol=1e-9)


CHANGES = {
    "another state": lambda log: (log.states + 0.01, log.actions, log.rewards, log.next_states, log.terminals),
    "another next state": lambda log: (log.states, log.actions, log.rewards, log.states, log.terminals),
}


@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_were_never_learnt_cannot_be_forgotten(change):
    log = random_log(n=60)
    model = KBSF(reps=REPS, scaling=None, sample_width=0.1, rep_width=0.05).fit(log)
    foreign = Transitions(*CHANGES[change](log[:25]))
    with pytest.raises(ValueError, match=FOREIGN):
        model.forget(foreign)
    with pytest.raises(ValueError, match=f"{FOREIGN}, but some of these were not: their kernel values are not in"):
        _ = model.statistics_ - new_statistics(model.statistics_.basis).accumulate(foreign)  # the sums notice it, too


@pytest.mark.parametrize("large", [1e4, 1e9, -1e12, 1e16])
@pytest.mark.parametrize("twins", [False, True])
def test_forgetting_large_rewards_gives_the_model_of_the_others_or_is_refused(large, twins):
    rng = np.random.default_rng(0)
    rewards = rng.random(200)
    rewards[7] = large
    if twins:  # whose sum is small, and tells nothing of their size
        rewards[8] = -large
    log = Transitions(rng.random((200, 1)), np.zeros(200, dtype=int), rewards, rng.random((200, 1)))
    gone = np.abs(rewards) > 2
    settings = {"reps": [[0.2], [0.5], [0.8]], "sample_width": 0.3, "scaling": None, "discount": 0.9}
    model, refit = KBSF(**settings).fit(log), KBSF(**settings).fit(log[~gone])
    if abs(large) >= 1e12:
        with pytest.raises(ValueError, match=TOO_LARGE):
            model.forget(log[gone])
        assert model.n_samples_ == 200
    else:
        model.forget(log[gone])
        np.testing.assert_allclose(model.rep_q_, refit.rep_q_, rtol=1e-6)


def test_rounding_of_forgotten_rewards_adds_up_and_is_kept_in_the_file(tmp_path):
    rng = np.random.default_rng(1)
    rewards = np.concatenate([np.full(40, 2e8), rng.random(100)])  # one can be forgotten, but not forty one by one
    log = Transitions(rng.random((140, 1)), np.zeros(140, dtype=int), rewards, rng.random((140, 1)))
    model = KBSF(reps=[[0.2], [0.8]], sample_width=0.3, scaling=None).fit(log)
    save_model(model, tmp_path / "model.kbrl")

    def forget_one_by_one():
        for row in range(40):
            save_model(load_model(tmp_path / "model.kbrl") - log[row : row + 1], tmp_path / "model.kbrl")

    with pytest.raises(ValueError, match=TOO_LARGE):
        forget_one_by_one()
    assert 100 < load_model(tmp_path / "model.kbrl").n_samples < 140
