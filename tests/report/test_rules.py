"""Rules imitate advice: they find what can be said simply, and how true that is of states not used to find them."""

import numpy as np
import pytest

from kbrl.report.rules import LEAST_ROWS, MOST_RULES, NO_ADVICE, find_rules


def holds(rule, states):
    """Which states a rule is about, by its conditions as a person reads them."""
    rows = np.ones(len(states), dtype=bool)
    for condition in rule.conditions:
        x = states[:, condition.variable]
        rows &= (x >= (-np.inf if condition.low is None else condition.low)) & (
            x < (np.inf if condition.high is None else condition.high)
        )
    return rows


def test_advice_that_is_a_threshold_becomes_that_rule():
    states = np.random.default_rng(0).random((2000, 3)) * 100
    advice = np.where(states[:, 1] >= 65.0, 2, NO_ADVICE)
    found = find_rules(states, advice)
    (rule,) = [rule for rule in found.rules if rule.advice == 2]
    (condition,) = rule.conditions
    assert condition.variable == 1
    assert condition.low == pytest.approx(65.0, abs=4.0)
    assert condition.high is None
    assert found.fidelity > 0.95


def test_rules_part_the_states_and_their_numbers_are_those_of_the_other_half():
    rng = np.random.default_rng(1)
    states = rng.normal(size=(999, 4))
    advice = np.where(states[:, 0] * states[:, 1] > 0, 0, np.where(states[:, 2] > 0.5, 1, NO_ADVICE))
    found = find_rules(states, advice)
    assert 2 <= len(found.rules) <= MOST_RULES
    assert (sum(rule.rows.astype(int) for rule in found.rules) == 1).all()
    judged = np.arange(999) % 2 == 1
    n_true = 0
    for rule in found.rules:
        rows = holds(rule, states)
        np.testing.assert_array_equal(rows, rule.rows)
        assert rule.n_rows == (rows & judged).sum()
        assert rule.n_true == (advice[rows & judged] == rule.advice).sum()
        n_true += rule.n_true
    assert found.fidelity == n_true / judged.sum()


def test_fidelity_does_not_flatter_rules_for_pure_chance():
    rng = np.random.default_rng(2)
    states, advice = rng.random((4000, 5)), rng.integers(2, size=4000)
    assert find_rules(states, advice).fidelity == pytest.approx(0.5, abs=0.04)


def test_the_first_cut_is_that_of_an_exhaustive_search():
    rng = np.random.default_rng(3)
    states = rng.integers(0, 6, size=(60, 2)).astype(float)
    advice = ((states[:, 0] > 2) ^ (rng.random(60) < 0.2)).astype(int)
    grown, said = states[::2], advice[::2]

    def impurity(kinds):
        return len(kinds) - sum(np.bincount(kinds) ** 2) / len(kinds) if len(kinds) else 0.0

    best = min(
        (impurity(said[grown[:, k] < cut]) + impurity(said[grown[:, k] >= cut]), k, cut)
        for k in range(2)
        for cut in np.unique(grown[:, k])[1:]
        if min((grown[:, k] < cut).sum(), (grown[:, k] >= cut).sum()) >= LEAST_ROWS
    )
    found = find_rules(states, advice)
    limits = {(c.variable, limit) for rule in found.rules for c in rule.conditions for limit in (c.low, c.high)}
    split = {(variable, np.ceil(limit)) for variable, limit in limits if limit is not None}
    assert best[1:] in split


@pytest.mark.parametrize("n", [1, 2, 9])
def test_few_states_make_one_rule(n):
    found = find_rules(np.arange(float(n))[:, None], np.arange(n))
    assert len(found.rules) == 1
    assert found.rules[0].conditions == ()


def test_cuts_have_few_digits():
    states = np.random.default_rng(4).random((3000, 1))
    found = find_rules(states, (states[:, 0] > 1 / 3).astype(int))
    cuts = {limit for rule in found.rules for c in rule.conditions for limit in (c.low, c.high) if limit is not None}
    assert all(len(f"{cut:.10g}") <= 5 for cut in cuts)
