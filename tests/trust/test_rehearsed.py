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


def test_a_difference_is_as_open_as_the_values_it_is_of():
    def pushing(share):
        return lambda states: np.tile([1 - share, share], (len(states), 1))

    log = walk()  # to the right half of the time: hardly any episode earns what always does
    policies = {"right": pushing(1.0), "nearly": pushing(0.97), "left": pushing(0.0), "practice": pushing(0.5)}
    found = compare(policies, log, discount=DISCOUNT, rehearsed=False)
    right, nearly, left, practice = (found.judgements[name].value for name in policies)
    assert right.is_open_above
    assert nearly.is_open_above
    assert left.is_open_below
    assert (practice.is_open_above, practice.is_open_below) == (False, False)
    assert found.differences["right", "left"].high == pytest.approx(right.high - left.low)
    assert found.verdict("right", "left") == found.verdict("right", "practice") == "better"
    assert found.verdict("right", "nearly") == "cannot tell"  # how much either earns is not known
    never = compare({"other": lambda states: ["c"] * len(states), "now": lambda states: ["as now"] * len(states)},
                    log.replaced(action_labels=np.array(["a", "b"])).with_actions(np.array(["a", "b", "c"])),
                    discount=DISCOUNT)  # fmt: skip
    assert not never.judgements["other"].is_bounded
    assert never.differences["other", "now"].low < -5 < 5 < never.differences["other", "now"].high


def one_sided(n_episodes=1000, n_steps=20, cost=-1.0, seed=0):
    """Return walks on a line from 0 to 1 that cost about 1 per step: above 0.5, people only ever go left."""
    rng = np.random.default_rng(seed)
    x = np.where(np.arange(n_episodes) % 5 > 0, rng.uniform(0.0, 0.3, n_episodes), rng.uniform(0.6, 1.0, n_episodes))
    parts = []
    for step in range(n_steps):
        action = ((x < 0.5) & (rng.random(n_episodes) < 0.5)).astype(int)
        following = np.clip(x + 0.1 * action - 0.05, 0.0, 1.0)
        parts.append((np.arange(n_episodes), np.full(n_episodes, step), x, action, following))
        x = following
    columns = [np.concatenate(column) for column in zip(*parts)]
    names, _, x, action, following = (column[np.lexsort([columns[1], columns[0]])] for column in columns)
    rewards = cost + rng.normal(0.0, 0.2, len(x))
    return Transitions(x[:, None], action, rewards, following[:, None], episodes=names, action_labels=[0, 1])


def test_a_run_that_stops_where_nothing_is_known_gains_nothing_and_the_rest_of_it_is_far():
    to_the_right = lambda states: np.ones(len(states), dtype=int)  # noqa: E731
    (costly,), (paid,) = (rehearsed(one_sided(cost=cost), to_the_right) for cost in (-1.0, 1.0))
    for found, cost in ((costly, -1.0), (paid, 1.0)):
        assert found.rung.estimates[0] == pytest.approx(10 * cost, abs=1.0)  # as any policy
        assert found.far_share > 0.2  # of the starts are where nobody went right
    judged = judge(to_the_right, one_sided(), discount=DISCOUNT)
    assert judged.verdict == "cannot tell"
    assert not judged.is_bounded


@pytest.mark.parametrize("seed", range(3))
def test_columns_of_noise_do_not_change_what_a_policy_earns_in_rehearsal(seed):
    log = walk(n_episodes=100, seed=seed)
    log = log.replaced(rewards=1.0 * (np.abs(log.states[:, 0]) < 0.3))  # a narrow place that pays
    noise = np.random.default_rng(seed).normal(size=(len(log) + 1, 6))
    states, following = (np.hstack([one, z]) for one, z in ((log.states, noise[:-1]), (log.next_states, noise[1:])))
    wide = Transitions(states, log.actions, log.rewards, following, episodes=log.episodes, action_labels=[0, 1])
    (plain,), (noisy,) = (rehearsed(each, lambda seen: (seen[:, 0] < 0).astype(int)) for each in (log, wide))
    assert noisy.rung.estimates[0] == pytest.approx(plain.rung.estimates[0], abs=0.3)


def test_decisions_are_far_from_the_log_also_where_many_actions_are_rare():
    # two of a hundred decisions are actions with one case each; the policy goes where nobody went right
    log = walk(habit=0.03, seed=2)
    rare = np.flatnonzero(np.random.default_rng(0).random(len(log)) < 0.02)
    actions = log.action_indices.copy()
    actions[rare] = 2 + np.arange(len(rare))
    odd = log.replaced(action_indices=actions, action_labels=np.arange(2 + len(rare)))
    (found,) = rehearsed(odd, lambda states: np.ones(len(states), dtype=int))
    assert found.far_share > 0.5


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
