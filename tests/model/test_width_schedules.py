"""Widths that shrink with data and representative states: what errs less along them, and the recipe's guarantee."""

import re
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import spearmanr

import naive
from kbrl import KBRL, KBSF, Kernel, Transitions
from kbrl.model.kbsf_bounds import bound_kbsf
from kbrl.model.width_schedules import rep_width_for, rep_width_within, sample_width_for
from samples import as_lists, random_log


def test_the_schedules_by_hand():
    assert sample_width_for(10_000, 1, width=2.0, rate=0.25) == pytest.approx(0.2)
    assert sample_width_for(64, 2) == pytest.approx(0.5)  # 64 ** (-1 / 6)
    assert rep_width_for(1, 3, width=0.7) == pytest.approx(0.7)
    assert rep_width_for(100, 2) == pytest.approx(0.1 / (1 + np.log(100)))


@pytest.mark.parametrize("n_dims", [1, 2, 5])
def test_widths_vanish_while_ever_more_samples_are_within_them(n_dims):
    numbers = np.array([10**k for k in range(1, 8)])
    widths = np.array([sample_width_for(n, n_dims) for n in numbers.tolist()])
    assert (np.diff(widths) < 0).all()
    assert (np.diff(numbers * widths**n_dims) > 0).all()
    rep_widths = [rep_width_for(m, n_dims) * m ** (1 / n_dims) for m in numbers.tolist()]
    assert (np.diff(rep_widths) < 0).all()  # in relation to the distance of neighbours


def noisy_sine(n, seed):
    """One step, discount 0: the value of a state is sin(6 s), and rewards are that and noise."""
    rng = np.random.default_rng(seed)
    states = rng.random((n, 1))
    return Transitions(states, np.zeros(n, dtype=int), np.sin(6 * states[:, 0]) + rng.normal(size=n), states)


def test_kbrl_comes_closer_to_the_truth_along_the_schedule_and_stops_at_a_fixed_width():
    grid = np.linspace(0.1, 0.9, 50)[:, None]
    truth = np.sin(6 * grid[:, 0])

    def error(n, width):
        squares = []
        for seed in range(10):
            model = KBSF(reps=grid, sample_width=width, rep_width=1e-6, discount=0.0, scaling=None)
            q = model.fit(noisy_sine(n, seed)).q_from_reps(grid)[:, 0]  # at its states KBSF's rewards are KBRL's
            squares.append(np.mean((q - truth) ** 2))
        return np.sqrt(np.mean(squares))

    along = [error(n, sample_width_for(n, 1, width=0.3)) for n in (100, 1000, 10_000, 100_000)]
    fixed = [error(n, 0.12) for n in (10_000, 100_000)]
    assert all(later < 0.75 * earlier for earlier, later in pairwise(along))
    assert fixed[1] > 0.9 * fixed[0]  # nothing but bias is left


@pytest.mark.parametrize("n_dims", [1, 2])
def test_kbsf_comes_closer_to_kbrl_along_the_schedule(n_dims):
    for seed in range(4):
        log = random_log(n=240, n_dims=n_dims, seed=seed, ending=0.0)
        settings = {"sample_width": 0.3, "discount": 0.9, "scaling": None}
        truth = KBRL(**settings).fit(log).solution_.values
        errors = []
        for m in (4, 16, 64, 200):
            model = KBSF(n_reps=m, rep_width=rep_width_for(m, n_dims), random_state=0, **settings).fit(log)
            errors.append(np.abs(model.q_from_reps(log.next_states).max(axis=1) - truth).max())
        assert errors[-1] < 0.1 * errors[0]
        assert spearmanr([4, 16, 64, 200], errors).statistic == -1.0


def naive_errors(log, reps, tau, tau_bar):
    """Return the largest row sum of |P-hat^a - D K^a| and sigma(D), by loops; the log ends nowhere."""
    lists, largest, sigma = as_lists(log), 0.0, 0.0
    for state in log.next_states.tolist():
        d = naive.kappa(state, reps, tau_bar)
        sigma = max(sigma, 1 - max(d))
        for samples in lists:
            own = [s for s, _, _, _ in samples]
            rows = [naive.kappa(rep, own, tau) for rep in reps]
            mixed = [sum(weight * row[j] for weight, row in zip(d, rows)) for j in range(len(own))]
            largest = max(largest, sum(abs(x - y) for x, y in zip(naive.kappa(state, own, tau), mixed)))
    return largest, sigma


@pytest.mark.parametrize("error", [1.0, 0.3, 0.05, 1e-3])
@pytest.mark.parametrize("seed", range(5))
def test_the_recipe_of_proposition_3_keeps_both_errors_below_what_was_asked(error, seed):
    log, rng = random_log(n=24, seed=seed, ending=0.0), np.random.default_rng(seed)
    reps = log.next_states + 1e-5 * rng.normal(size=log.next_states.shape)
    width = rep_width_within(log, reps, Kernel(0.5), error)
    assert width > 0
    factors, sigma = naive_errors(log, reps.tolist(), 0.5, width)
    assert factors < error
    assert sigma < error


def test_the_bound_falls_to_nothing_along_the_recipe():
    log = random_log(n=60, seed=1)
    bounds = []
    for error in (1.0, 0.1, 0.01, 1e-3, 1e-4):
        width = rep_width_within(log, log.next_states, Kernel(0.5), error)
        bounds.append(bound_kbsf(log, log.next_states, Kernel(0.5), Kernel(width), 0.9))
    values = [bound.value for bound in bounds]
    assert all(later < 0.2 * earlier for earlier, later in pairwise(values))
    assert not bounds[-1].vacuous


def test_a_recipe_that_cannot_be_followed_says_why():
    log = random_log(n=20, seed=0, ending=0.0)
    with pytest.raises(
        ValueError, match=r"next states, even the nearest representative state is too far away, at up to"
    ):
        rep_width_within(log, log.next_states[:2], Kernel(0.1), 0.01)
    middle = Transitions([[0.0]], [0], [0.0], [[0.5]])
    words = "1 next states are as far from the second representative state as from the nearest"
    with pytest.raises(ValueError, match=words):
        rep_width_within(middle, [[0.0], [1.0]], Kernel(1.0), 0.1)
    with pytest.raises(ValueError, match=re.escape("rate must be below 1 / n_dims = 0.5, but it is 0.5: ever fewer")):
        sample_width_for(10, 2, rate=0.5)
