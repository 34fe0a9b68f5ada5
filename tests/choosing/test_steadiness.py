"""Whether decisions depend on chance, and candidates that depend less on it."""

from types import SimpleNamespace

import numpy as np
import pytest

from kbrl import KBSF, Transitions
from kbrl.choosing.candidates import candidates
from kbrl.choosing.rehearsal import choose_by_rehearsal
from kbrl.choosing.steadiness import Steady, agreement, best_steadier, steady_candidates, with_other_luck
from kbrl.lines.stage import Rehearsal

LEARNER = KBSF(discount=0.95, reps="spread", random_state=0)
ROWS = SimpleNamespace(states=np.zeros((10, 1)))


def moves(n_episodes=60, length=20, seed=0):
    """Return points in the plane that are pushed along the first axis; pay grows along it."""
    rng = np.random.default_rng(seed)
    here = rng.uniform(-1, 1, size=(n_episodes * length, 2))
    action = rng.integers(2, size=len(here))
    there = np.clip(here + np.column_stack([0.2 * action - 0.1, np.zeros(len(here))]), -1, 1)
    return Transitions(here, action, there[:, 0], there, episodes=np.repeat(np.arange(n_episodes), length))


def deciding(n_ones):
    """Return what decides 1 in so many of ten states."""
    return SimpleNamespace(predict=lambda states: (np.arange(10) < n_ones).astype(int))


def steady(n_alike, earned):
    run = Rehearsal(np.full(4, float(earned)), np.zeros(4, dtype=bool))
    return Steady(SimpleNamespace(model=deciding(10)), deciding(n_alike), run)


def test_the_best_in_rehearsal_is_taken_among_those_that_agree_more_than_before():
    assert agreement(deciding(10), deciding(7), ROWS) == pytest.approx(0.7)
    found = [steady(6, earned=9), steady(8, earned=1), steady(9, earned=5), steady(10, earned=3)]
    assert best_steadier(found, 0.7, ROWS) == (2, pytest.approx(0.9))
    assert best_steadier(found, 1.0, ROWS) is None
    assert best_steadier([], 0.0, ROWS) is None


def test_another_random_state_chooses_other_representative_states_from_the_same_log():
    log = moves(seed=1)
    model = KBSF(30, reps="spread", order=1, random_state=0).fit(log).model_
    other = with_other_luck(model, log)
    assert other.settings.n_reps == 30
    assert not np.array_equal(other.basis.reps, model.basis.reps)
    assert other.n_samples == model.n_samples


def test_steady_candidates_are_what_their_settings_make():
    log = moves()
    kept = next(candidates(log, moves(seed=1), LEARNER, (1,)))
    found = list(steady_candidates(kept, log, LEARNER))
    lengths = [(each.settings["plan"].decisions, each.settings["plan"].hold) for each, _ in found]
    assert lengths == [(3, 4), (2, 2), (2, 4), (3, 2)]
    states = np.random.default_rng(2).uniform(-1, 1, size=(50, 2))
    for each, twin in found[:2]:
        made = LEARNER.settings().__class__(**{**vars(LEARNER.settings()), **each.settings, "n_reps": 80})
        own = KBSF(**vars(made)).fit(log).model_
        np.testing.assert_allclose(own.q_values(states), each.model.q_values(states), rtol=1e-9)
        assert twin.settings.plan == each.model.settings.plan


def test_steadier_candidates_are_tried_only_where_decisions_depend_on_chance(monkeypatch):
    for least, is_tried in ((0.0, False), (1.1, True)):
        monkeypatch.setattr("kbrl.choosing.rehearsal.LEAST_AGREEMENT", least)
        choice = choose_by_rehearsal(moves(), LEARNER)
        assert choice.is_believed
        assert any("mixed from" in each.name for each in choice.tried) == is_tried
        assert choice.chosen in choice.tried
