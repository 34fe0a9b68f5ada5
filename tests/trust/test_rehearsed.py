"""The second estimate: a policy rehearses in the lines of the judged episodes."""

import numpy as np
import pytest

from kbrl import KBSF, PolicyEvaluator, Transitions, compare, judge, open_log, split_episodes
from kbrl.choosing.rehearsal import EpisodeSample
from kbrl.lines.plans import world_of
from kbrl.lines.stage import Step
from kbrl.lines.world import side_by_side
from kbrl.trust import judge as judging
from kbrl.trust.judge import affordable
from kbrl.trust.policy_answers import Answers
from kbrl.trust.rehearsed import GROUPS, rehearse, why_not
from messy_ward import COLUMNS, clean_log, score, with_holes

DISCOUNT = 0.9


def walk(n_episodes=80, n_steps=30, habit=0.5, seed=0):
    """Return a log in which a point drifts by 0.2 x + (-0.3 or 0.3) + noise, and pays its place; all are cut."""
    rng = np.random.default_rng(seed)
    x, parts = rng.normal(size=n_episodes), []
    for step in range(n_steps):
        action = (rng.random(n_episodes) < habit).astype(int)
        following = 0.8 * x + 0.6 * action - 0.3 + rng.normal(0.0, 0.1, n_episodes)
        parts.append((np.arange(n_episodes), np.full(n_episodes, step), x, action, following))
        x = following
    columns = [np.concatenate(column) for column in zip(*parts)]
    names, _, x, action, following = (column[np.lexsort([columns[1], columns[0]])] for column in columns)
    return Transitions(x[:, None], action, x, following[:, None], episodes=names, action_labels=[0, 1])


def value(starts, push):
    """Return the exact value of pushing by so much on average: sums of 0.8^t x + push (1 - 0.8^t) / 0.2."""
    near, far = 1.0 / (1.0 - 0.8 * DISCOUNT), 1.0 / (1.0 - DISCOUNT)
    return float(np.mean(starts) * near + push / 0.2 * (far - near))


def rehearsed(log, policy, discount=DISCOUNT):
    evaluator = PolicyEvaluator(policy, discount=discount).fit(log)
    sample = EpisodeSample(len(log))
    list(sample.kept([log]))
    return rehearse(evaluator.answers(), sample, evaluator.frame)


def mostly_right(states):
    return np.tile([0.3, 0.7], (len(states), 1))


def first_states(log):
    return log.states[np.append(True, log.episodes[1:] != log.episodes[:-1]), 0]


def test_a_linear_world_is_rehearsed_as_it_is():
    log = walk()
    (found,) = rehearsed(log, lambda states: np.ones(len(states), dtype=int))
    policy, people, observed = found.rung.estimates
    assert policy == pytest.approx(value(first_states(log), 0.3), abs=0.05)
    assert people == pytest.approx(value(first_states(log), 0.0), abs=0.15)
    assert observed == pytest.approx(value(first_states(log), 0.0), abs=0.25)  # another draw of noise and actions
    assert found.far_share < 0.02
    assert found.rung.left_out.shape == (GROUPS, 3)


def test_both_methods_are_shown_and_their_mean_holds_the_truth():
    log = walk(seed=1)
    found = judge(mostly_right, log, discount=DISCOUNT)
    truth = value(np.zeros(1), 0.12)
    assert found.verdict == "better"
    assert found.value.low < truth < found.value.high
    assert found.gain.low < truth < found.gain.high  # now is worth 0
    assert set(found.methods) == {"sums", "rehearsal"}
    assert f"Gain by rehearsal: {found.by_rehearsal.gain}" in str(found)
    assert found.to_dict()["by_rehearsal"]["gain"]["low"] == found.by_rehearsal.gain.low
    alone = judge(mostly_right, log, discount=DISCOUNT, rehearsed=False)
    assert alone.by_rehearsal is None
    assert "Not rehearsed: it was not asked for." in str(alone)


def test_a_policy_that_leaves_the_log_is_far_from_it():
    log = walk(habit=0.03, seed=2)  # hardly ever to the right
    (found,) = rehearsed(log, lambda states: np.ones(len(states), dtype=int))
    assert found.far_share > 0.5
    (usual,) = rehearsed(log, lambda states: np.zeros(len(states), dtype=int))
    assert usual.far_share < 0.05


def test_a_policy_that_defers_does_as_people_do():
    log = walk(seed=3)
    (found,) = rehearsed(log, lambda states: np.full(len(states), "as now"))
    policy, people, _ = found.rung.estimates
    assert policy == pytest.approx(people, abs=1e-12)


def test_probabilities_are_drawn_as_often_as_they_say():
    rows, actions = np.repeat(np.arange(1000), 3), np.tile(np.arange(3), 1000)
    answers = Answers(rows, actions, np.tile([0.2, 0.5, 0.3], 1000))
    drawn = answers.drawn((np.arange(1000) + 0.5) / 1000)
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 1000, [0.2, 0.5, 0.3], atol=0.002)


def test_what_cannot_be_rehearsed_is_said():
    log = walk(n_episodes=20)
    wide = Transitions(
        np.zeros((600, 21)), np.zeros(600, dtype=int), np.zeros(600), np.zeros((600, 21)), episodes=np.arange(600) // 30
    )
    single = Transitions(
        log.states, log.action_indices, log.rewards, log.states, np.ones(len(log), dtype=bool), np.arange(len(log))
    )
    assert why_not(log, 0.9) == ""
    assert why_not(None, 0.9) == "there are too few rows"
    assert "21 state variables, and at most 20" in why_not(wide, 0.9)
    assert why_not(single, 0.9) == "no decision is followed by another"
    assert "too much of the value comes after 400 steps" in why_not(log, 0.999)
    few = log[log.episodes < 5]
    assert rehearsed(few, lambda states: np.ones(len(states), dtype=int)) == "there are too few rows"
    found = judge(lambda states: np.ones(len(states), dtype=int), single, discount=0.9)
    assert "Not rehearsed: no decision is followed by another." in str(found)


@pytest.mark.filterwarnings("ignore::kbrl.checks.KbrlWarning")  # of what missing values become
def test_categories_flags_and_missing_values_are_rehearsed():
    opened = open_log(with_holes(clean_log(500), share=0.1), columns=COLUMNS)
    learn, rest = split_episodes(opened, 0.5)
    model = KBSF(80, sample_width=0.5, rep_width=0.5, discount=DISCOUNT, random_state=0).fit(learn.chunks()).model_
    found = judge(model, rest)
    truth = score(model.predict, 4000, discount=DISCOUNT)
    assert found.not_rehearsed == ""
    assert found.by_rehearsal.value.low < truth < found.by_rehearsal.value.high
    assert found.value.low < truth < found.value.high
    assert found.verdict == "better"


def test_a_run_is_always_at_one_level_of_a_category():
    log = next(iter(open_log(clean_log(300), columns=COLUMNS).chunks()))
    seen = []

    def watched(states):
        seen.append(states)
        return np.full(len(states), "high")

    rehearsed(log, watched)
    ((first, stop),) = [pair for pair in log.source.recipe.level_places() if pair[1] - pair[0] > 1]
    shares = np.concatenate(seen[-20:])[:, first:stop]  # the last ones come from runs
    np.testing.assert_allclose(np.sort(shares, axis=1), [[0.0, 0.0, 1.0]] * len(shares), atol=1e-9)


def test_a_policy_that_looks_ahead_is_judged_by_a_sample_of_whole_episodes():
    log = walk(n_episodes=100)
    model = KBSF(20, order=1, discount=DISCOUNT, random_state=0).fit(log).model_
    assert affordable(model, log, len(log)) is log
    assert affordable(lambda states: states, log, 10**6) is log
    some = affordable(model, log, 4 * 10**5)  # as if it were longer
    kept = np.unique(np.concatenate([chunk.episodes for chunk in some]))
    assert 10 < len(kept) < 40
    assert sum(map(len, some)) == 30 * len(kept)


def test_a_judgement_by_a_part_of_the_log_says_so_and_so_do_compared_ones(monkeypatch):
    monkeypatch.setattr(judging, "MOST_ROWS_AHEAD", 300)
    log, learnt = walk(n_episodes=40, seed=1), walk(n_episodes=20)
    model = KBSF(5, order=1, discount=DISCOUNT, random_state=0).fit(learnt).model_
    alone = judge(model, log, rehearsed=False, allow_learnt=True)
    both = compare({"plan": model, "right": mostly_right}, log, discount=DISCOUNT, allow_learnt=True)
    assert alone.n_rows == both.judgements["right"].n_rows < len(log)
    for found in (alone, *both.judgements.values()):
        assert any(f"{found.n_episodes} of the episodes were judged" in text for text in found.warnings)
    assert not any("were judged" in text for text in judge(mostly_right, log, discount=DISCOUNT).warnings)


def test_worlds_side_by_side_are_each_as_it_is_alone():
    models = [KBSF(8, order=1, random_state=0).fit(walk(seed=seed)).model_ for seed in (0, 1)]
    alone = [world_of(model.lines, is_spread=True) for model in models]
    span = alone[0].span
    alone = [world._replace(span=span) for world in alone]  # the same ground
    both, rng = side_by_side(alone), np.random.default_rng(0)
    states, actions, noise = rng.normal(size=(30, 1)), rng.integers(2, size=30), rng.normal(size=(30, 1))
    for place, world in enumerate(alone):
        own, joined = states.copy(), states.copy()
        cells = world.cells(own)
        shifted = cells + place * len(alone[0].reps)
        one, other = (
            Step.of(x, at, actions, noise, where) for x, at, where in ((own, cells, world), (joined, shifted, both))
        )
        np.testing.assert_array_equal(own, joined)
        np.testing.assert_array_equal(np.stack(one), np.stack(other))
        np.testing.assert_array_equal(cells + place * len(alone[0].reps), shifted)
