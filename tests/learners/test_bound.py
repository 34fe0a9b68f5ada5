"""KBSF.bound: what it says holds of the answers it names, where it says, and what has no bound is refused."""

import numpy as np
import pytest

from kbrl import KBRL, KBSF, Growth, Solver, Transitions, Variant
from samples import random_log

SHARED = {"discount": 0.9, "scaling": None}
OF_KBRL, OF_KBSF = SHARED | {"tolerance": 1e-13}, SHARED | {"solver": Solver(tolerance=1e-13)}


def tied_log(seed):
    """Twelve rows with states in {0, 1}: nearly all samples tie."""
    return random_log(n=12, n_dims=1, n_actions=2, levels=2, seed=seed)


@pytest.mark.parametrize("neighbors", [{}, {"sample_neighbors": 2}, {"sample_neighbors": 2, "rep_neighbors": 1}])
@pytest.mark.parametrize("q_function", ["reps", "samples"])
def test_no_answer_is_farther_from_kbrl_than_the_bound_says_also_among_ties(neighbors, q_function):
    mu = {"sample_neighbors": neighbors.get("sample_neighbors")}
    rng = np.random.default_rng(0)
    for seed in range(150):
        log = tied_log(seed) if seed % 3 else random_log(n=15, seed=seed)
        big = KBRL(sample_width=0.5, **mu, **OF_KBRL, min_cases=1).fit(log)
        reps = np.unique(log.next_states, axis=0)[:: 1 + seed % 2]
        small = KBSF(
            reps=reps, sample_width=0.5, variant=Variant(q_function=q_function), **neighbors, **OF_KBSF, min_cases=1
        ).fit(log)
        bound = small.bound(log)
        anywhere = rng.uniform(-1, 2, (20, log.n_dims))
        states = anywhere if q_function == "samples" else log.next_states[~log.terminals]
        if len(states):
            off = np.abs(big.q_values(states) - small.q_values(states)).max()
            assert off <= bound.tighter + 1e-9
            assert off <= bound.value + 1e-9


def test_a_bound_says_of_which_answers_and_where_it_holds():
    log = random_log(n=30)
    assert "Q from the samples, at any state" in repr(
        KBSF(5, variant=Variant(q_function="samples"), random_state=0).fit(log).bound(log)
    )
    assert "Q from the representative states, at the sampled next states only" in repr(
        KBSF(5, random_state=0).fit(log).bound(log)
    )


def test_the_bound_of_the_default_answers_does_not_hold_between_the_next_states():
    """Why it says where it holds: without compression it is 0, and answers elsewhere are far from KBRL's."""
    log = random_log(n=60, seed=3)
    small = KBSF(reps=log.next_states, rep_width=1e-6, sample_width=0.1, **OF_KBSF).fit(log)
    big = KBRL(sample_width=0.1, **OF_KBRL).fit(log)
    assert small.bound(log).value < 1e-6
    going = log.next_states[~log.terminals]
    np.testing.assert_allclose(small.q_values(going), big.q_values(going), atol=1e-6)
    elsewhere = np.random.default_rng(0).random((500, 2))
    assert np.abs(small.q_values(elsewhere) - big.q_values(elsewhere)).max() > 0.1


def test_without_compression_answers_from_samples_are_those_of_kbrl_everywhere():
    log = random_log(n=60, seed=3)
    small = KBSF(
        reps=log.next_states, rep_width=1e-6, sample_width=0.1, variant=Variant(q_function="samples"), **OF_KBSF
    ).fit(log)
    bound, big = small.bound(log), KBRL(sample_width=0.1, **OF_KBRL).fit(log)
    elsewhere = np.random.default_rng(0).uniform(-2, 3, (500, 2))
    assert bound.value < 1e-6
    assert not bound.vacuous
    assert np.abs(small.q_values(elsewhere) - big.q_values(elsewhere)).max() <= bound.value + 1e-12


def grown():
    log = random_log(n=60)
    return KBSF(3, growth=Growth(distance=0.2), random_state=0).partial_fit(log[:20]).partial_fit(log[20:]), log


def shrunken():
    log = random_log(n=60)
    model = KBSF(20, random_state=0).fit(log)
    model.shrink(0.6)
    assert len(model.reps_) < 20
    return model, log


def per_chunk():
    log = random_log(n=60)
    return KBSF(5, sample_neighbors=3, variant=Variant(neighborhoods="per_chunk"), random_state=0).fit(
        [log[:30], log[30:]]
    ), log


def hard():
    log = random_log(n=60)
    return KBSF(5, variant=Variant(aggregation="hard"), random_state=0).fit(log), log


REFUSED = {
    "grown": (grown, "its representative states came or went"),
    "shrunken": (shrunken, "its representative states came or went"),
    "per chunk": (per_chunk, "its neighbours were counted in each chunk"),
    "hard": (hard, "hard aggregation does not approximate KBRL"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("which", ["bound", "bound_values", "bound_online"])
def test_a_model_that_algorithm_1_did_not_make_has_no_bound(case, which):
    make, reason = REFUSED[case]
    model, log = make()
    with pytest.raises(ValueError, match="this model has none: " + reason):
        getattr(model, which)(log)


OTHER_LOGS = {
    "a part": lambda log: log[:59],
    "twice the log": lambda log: log + log[:1],
    "another reward": lambda log: Transitions(
        log.states, log.actions, np.where(np.arange(60) == 7, 0.9, log.rewards), log.next_states, log.terminals
    ),
    "another next state": lambda log: Transitions(
        log.states, log.actions, log.rewards, log.next_states[::-1].copy(), log.terminals
    ),
    "another end": lambda log: Transitions(
        log.states, log.actions, log.rewards, log.next_states, log.terminals ^ (np.arange(60) == 7)
    ),
}


@pytest.mark.parametrize("other", OTHER_LOGS)
def test_a_log_that_the_model_was_not_fitted_to_is_refused(other):
    log = random_log(n=60)
    model = KBSF(5, sample_width=1.0, random_state=0).fit(log)
    with pytest.raises(ValueError, match="Algorithm 1 makes another model of these"):
        model.bound(OTHER_LOGS[other](log))


@pytest.mark.parametrize("other", OTHER_LOGS)
def test_a_log_that_makes_the_same_model_has_a_bound_that_is_true_of_that_log(other):
    """Truncated kernels see only some rows: a log that differs in others may do, but then the bound speaks of it."""
    log = random_log(n=60)
    model = KBSF(reps=log.next_states[:5], sample_neighbors=4, **OF_KBSF).fit(log)
    log = OTHER_LOGS[other](log)
    if other == "another next state":
        with pytest.raises(ValueError, match="Algorithm 1 makes another model of these"):
            model.bound(log)
        return
    states = log.next_states[~log.terminals]
    off = model.q_values(states) - KBRL(sample_neighbors=4, **OF_KBRL).fit(log).q_values(states)
    assert np.abs(off).max() <= model.bound(log).value


def test_models_that_add_up_have_the_bound_of_both_logs():
    one, two = random_log(n=40, seed=1), random_log(n=30, seed=2)
    settings = {"reps": one.next_states[:9], "sample_width": 0.5, **OF_KBSF}
    both = KBSF(**settings).fit(one) + KBSF(**settings).fit(two)
    assert both.bound(one + two).value == pytest.approx(KBSF(**settings).fit(one + two).bound(one + two).value)


def test_a_model_in_units_of_its_first_chunk_has_no_bound_unless_these_units_were_given():
    log = random_log(60, n_actions=2, seed=1)
    log = log[np.argsort(log.states[:, 0])]  # so that the first chunk has a smaller spread than all
    settings = {
        "reps": log.next_states,
        "rep_width": 1e-6,
        "sample_width": 0.1,
        "variant": Variant(q_function="samples"),
    }
    in_chunks = KBSF(**settings).fit([log[:20], log[20:]])
    with pytest.raises(ValueError, match=r"KBRL divides the states of this log by .* Fit in one go; or .*model.scale_"):
        in_chunks.bound(log)
    states = np.random.default_rng(0).random((50, 2))
    for fits, scaling in ((log, "std"), ([log[:20], log[20:]], in_chunks.scale_)):
        model = KBSF(**settings, scaling=scaling).fit(fits)
        truth = KBRL(sample_width=0.1, scaling=scaling).fit(log)
        assert np.abs(model.q_values(states) - truth.q_values(states)).max() <= model.bound(log).value + 1e-6
