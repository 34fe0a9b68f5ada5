"""Agreement: the share of resampled logs with the same answer, by sums per block of episodes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from kbrl import KBSF, Plan, Transitions, Variant, agreement, explain, load_model, save_model, with_agreement
from kbrl.data.episodes import block_of, episode_hashes
from kbrl.insight.agreement import BlockSums

GRID = np.linspace(0.0, 1.0, 31)[:, None]


def ward(n=600, seed=0, gain=1.0):
    """Below 0.5, "b" pays more; above, all is chance.  Episodes have four rows."""
    rng = np.random.default_rng(seed)
    states, is_b = rng.random((n, 1)), rng.random(n) < 0.5
    rewards = rng.normal(size=n) + np.where(is_b & (states[:, 0] < 0.5), gain, 0.0)
    episodes = np.repeat([f"p{k}" for k in range(n // 4)], 4)
    return Transitions(states, np.where(is_b, "b", "a"), rewards, rng.random((n, 1)), episodes=episodes)


def fitted(log, **more):
    settings = {"n_reps": 10, "sample_width": 0.1, "rep_width": 0.1, "discount": 0.5, "random_state": 0} | more
    return KBSF(**settings).fit(log)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sample_neighbors": 30},
        {"variant": Variant(aggregation="hard")},
        {"order": 1, "plan": Plan(decisions=2, hold=1, acting="reps")},
    ],
)
def test_agreement_is_that_of_models_refitted_to_the_drawn_blocks(more):
    log = ward()
    model = with_agreement(fitted(log, **more), log, n_blocks=8, n_resamples=6, random_state=3)
    places, rng = block_of(episode_hashes(log), 8), np.random.default_rng(3)
    votes = []
    for draw in rng.integers(8, size=(6, 8)):
        rows = np.concatenate([np.flatnonzero(places == block) for block in draw])
        drawn = model.without_data().extend(log[rows])  # the same basis; rows that are drawn twice count twice
        votes.append(drawn.predict(GRID) == model.predict(GRID))
    np.testing.assert_allclose(agreement(model, GRID), np.mean(votes, axis=0))


@pytest.mark.parametrize("defers", [False, True])
def test_at_representative_states_plans_agree_as_models_refitted_to_the_drawn_blocks_do(defers):
    log = ward()
    model = fitted(log, order=1, plan=Plan(decisions=2, hold=1)).model_
    model = model.deferring(cases=1, caution=0.5) if defers else model
    model = with_agreement(model, log, n_blocks=8, n_resamples=6, random_state=3)
    places, rng = block_of(episode_hashes(log), 8), np.random.default_rng(3)
    votes = []
    for draw in rng.integers(8, size=(6, 8)):
        rows = np.concatenate([np.flatnonzero(places == block) for block in draw])
        drawn = model.without_data().extend(log[rows])
        votes.append(drawn.predict(model.reps) == model.predict(model.reps))
    found = agreement(model, model.reps)
    np.testing.assert_allclose(found, np.mean(votes, axis=0))
    assert 0 < found.min() < 1
    beside = agreement(model, GRID)
    refitted = np.interp(GRID[:, 0], *zip(*sorted(zip(model.reps[:, 0], found))))
    assert np.abs(beside - refitted).mean() < 0.2


def test_clear_differences_agree_and_chance_does_not():
    log = ward(gain=5.0)
    found = agreement(with_agreement(fitted(log), log), GRID)
    assert (found[GRID[:, 0] < 0.4] == 1.0).all()
    assert found[GRID[:, 0] > 0.6].mean() < 0.95


def test_agreement_is_not_known_until_it_is_learnt_and_no_longer_after_a_change():
    log = ward()
    plain = fitted(log).model_
    model = with_agreement(plain, log)
    assert np.isnan(agreement(plain, GRID)).all()
    assert np.isfinite(agreement(model, GRID)).all()
    for changed in (model.extend(log[:8]), model - log[:8], model + model.without_data(), model.deferring()):
        assert changed.resamples is None
    np.testing.assert_array_equal(model.q_values(GRID), plain.q_values(GRID))


def test_chunks_in_any_order_give_the_same_agreement():
    log = ward()
    whole = with_agreement(fitted(log), log).resamples
    parts = with_agreement(fitted(log), [log[300:], log[:300]]).resamples
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_a_saved_model_knows_its_agreement(tmp_path):
    log = ward()
    for model in (fitted(log).model_, fitted(log).model_.deferring()):
        model = with_agreement(model, log)
        save_model(model, tmp_path / "m.kbrl")
        np.testing.assert_array_equal(agreement(load_model(tmp_path / "m.kbrl"), GRID), agreement(model, GRID))


def test_a_deferring_model_agrees_on_as_now_where_nothing_has_support():
    log = ward()
    model = with_agreement(fitted(log).model_.deferring(cases=1e6), log)
    assert Counter(model.predict(GRID).tolist()) == {"as now": len(GRID)}
    assert (agreement(model, GRID) == 1.0).all()


def test_explain_says_how_stable_the_answer_is():
    log = ward()
    model = with_agreement(fitted(log), log)
    assert explain(model, [0.2], log=log).agreement == agreement(model, [[0.2]])[0]
    assert explain(fitted(log), [0.2], log=log).agreement is None


def test_memory_limits_the_number_of_blocks_and_too_few_are_refused():
    log = ward()
    model = fitted(log).model_
    megabytes = 2 * 10 * 10 * 8 / 1e6  # of one block: two actions, ten representative states
    assert BlockSums(model, n_blocks=20, megabytes=7.5 * megabytes).n_blocks == 7
    with pytest.raises(ValueError, match="at least 5 blocks of episodes"):
        with_agreement(model, log, megabytes=4 * megabytes)
    with pytest.raises(ValueError, match="answers come from sums"):
        with_agreement(fitted(log, variant=Variant(q_function="samples")), log)


def test_few_episodes_are_refused_because_resamples_of_one_block_would_all_agree():
    log = ward()
    few = log[np.isin(log.episodes, ["p0", "p1", "p2", "p3"])]
    for part in (few, few[:4]):
        with pytest.raises(ValueError, match=r"episodes in at least 5 blocks.* are in [1-4]. Use a log with more"):
            with_agreement(fitted(log), part)


def test_without_episodes_rows_are_resampled():
    log = ward()
    model = with_agreement(fitted(log), Transitions(log.states, log.actions, log.rewards, log.next_states))
    assert np.isfinite(agreement(model, GRID)).all()
    assert replace(model, resamples=None).resamples is None
