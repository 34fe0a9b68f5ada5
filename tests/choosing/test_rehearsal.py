"""Rehearsal: candidates act in the lines of episodes that they did not learn from."""

from dataclasses import replace

import numpy as np
import pytest

from kbrl import KBSF, Transitions
from kbrl.choosing.candidates import candidates, gain_of_behaviour
from kbrl.choosing.held_out_stage import held_out_stage, low_returns, returns_to_go, why_not_believed
from kbrl.choosing.rehearsal import (
    EpisodeSample,
    _best,
    _flags,
    can_rehearse,
    choose_by_rehearsal,
    compete,
)
from kbrl.choosing.steadiness import agreement, with_other_luck
from kbrl.learners.learner import clone
from kbrl.lines.plans import world_of
from kbrl.lines.stage import Rehearsal, Stage, predicted
from kbrl.settings import Growth, Settings, Variant

FREE = ("n_reps", "sample_width", "rep_width", "order", "reps")


def walks(n_episodes=80, length=25, seed=0):
    """Return walks on a line from -1 to 1, pushed left or right at random; the right end pays and ends."""
    rng = np.random.default_rng(seed)
    rows = []
    for episode in range(n_episodes):
        x = rng.uniform(-1, 0)
        for _ in range(length):
            action = int(rng.integers(2))
            following = float(np.clip(x + (0.15 if action else -0.15) + 0.01 * rng.normal(), -1, 1))
            end = following > 0.9
            rows.append((x, action, 1.0 if end else -0.05, following, end, episode))
            x = following
            if end:
                break
    x, action, reward, following, end, episode = map(np.array, zip(*rows))
    return Transitions(x[:, None], action, reward, following[:, None], end, episodes=episode)


def test_what_is_chosen_earns_more_than_the_logged_decisions():
    choice = choose_by_rehearsal(walks(), KBSF(discount=0.95, reps="spread", random_state=0))
    assert choice.is_better_than_now
    assert choice.chosen in choice.tried
    assert {each.settings["order"] for each in choice.tried} == {0, 1}
    assert choice.chosen.mean >= max(each.mean for each in choice.tried) - 0.2


def test_rehearsed_returns_are_those_of_the_simulator():
    """Always to the right: from x it takes (0.9 - x) / 0.15 steps, which cost 0.05 each, and the last one pays 1."""
    log = walks(300)
    model = KBSF(60, reps="spread", order=1, discount=0.95, random_state=0).fit(log).model_
    starts = np.linspace(-0.95, -0.05, 10)
    world = world_of(model.lines, is_spread=True)
    stage = Stage(world, model.scaled(starts[:, None]), 40, 0.95, value_outside=-1.0)
    found = stage.rehearse(lambda states: np.ones(len(states), dtype=np.intp)).returns
    expected = []
    for x in starts:
        n = int(np.ceil((0.9 - x) / 0.15))
        expected.append(0.95 ** (n - 1) - 0.05 * (1 - 0.95 ** (n - 1)) / 0.05)
    np.testing.assert_allclose(found, expected, atol=0.12)


def test_a_run_that_leaves_the_data_gets_the_low_value_for_the_rest():
    states = np.random.default_rng(0).uniform(size=(500, 1))
    log = Transitions(states, np.zeros(500, dtype=int), np.ones(500), states + 1.0)  # every step leaves the data
    model = KBSF(reps=states[:20], order=1, discount=0.9, random_state=0).fit(log).model_
    world = world_of(model.lines, is_spread=True, inside=2.0)
    stage = Stage(world, model.scaled(states[:5]), 10, 0.9, value_outside=-7.0)
    found = stage.rehearse(lambda states: np.zeros(len(states), dtype=np.intp))
    assert found.left.all()
    np.testing.assert_allclose(found.returns, -7.0)


def test_another_candidate_must_win_by_more_than_chance():
    rng = np.random.default_rng(0)
    first = Rehearsal(rng.normal(size=16), np.zeros(16, dtype=bool))
    luckier = Rehearsal(first.returns + rng.normal(0.1, 1.0, size=16), first.left)
    better = Rehearsal(first.returns + 0.5, first.left)
    assert _best([first, luckier]) == 0
    assert _best([first, luckier, better]) == 2


def test_one_of_many_that_are_as_good_as_the_first_rarely_wins():
    """Seven candidates that differ by chance alone: the limit holds for all six tries together."""
    rng, stays = np.random.default_rng(0), np.zeros(16, dtype=bool)
    wins = [_best([Rehearsal(one, stays) for one in rng.normal(size=(7, 16))]) != 0 for _ in range(500)]
    assert np.mean(wins) < 0.025 + 3 * np.sqrt(0.025 * 0.975 / 500)


class Scripted:
    """A stage on which a policy, which is a number here, earns that number in each run, and noise."""

    def __init__(self, n_starts=16):
        self.starts = np.zeros((n_starts, 1))
        self.n_runs = {}

    def rehearse(self, policy, runs):
        noise = 0.01 * np.random.default_rng(int(1000 * policy)).normal(size=len(self.starts))[runs]
        self.n_runs[policy] = self.n_runs.get(policy, 0) + len(noise)
        return Rehearsal(policy + noise - noise.mean(), np.zeros(len(noise), dtype=bool))


def test_candidates_that_are_clearly_worse_do_not_go_on():
    stage = Scripted()
    runs = compete(stage, [1.0, 5.0, 2.0, 3.0])
    assert stage.n_runs == {1.0: 4, 5.0: 4, 2.0: 4, 3.0: 4}  # one is left: no more runs are needed
    assert _best(runs) == 1


def test_at_most_half_of_close_candidates_go_on_and_the_first_among_them():
    stage = Scripted()
    policies = [1.0, 1.001, 1.002, 1.003, 1.004]
    compete(stage, policies)
    assert stage.n_runs[1.0] == 16
    assert sorted(stage.n_runs.values()) == [4, 4, 8, 16, 16]
    assert stage.n_runs[1.004] == 16


def test_few_starts_are_all_used_once():
    stage = Scripted(n_starts=3)
    compete(stage, [1.0, 1.001])
    assert stage.n_runs == {1.0: 3, 1.001: 3}


def habitual(share, seed=0):
    """Return walks of people who go to the right where x is below 0, this share of the time more than by chance."""
    log, rng = walks(seed=seed), np.random.default_rng(seed)
    wanted = (log.states[:, 0] < 0).astype(int)
    actions = np.where(rng.random(len(log)) < share, wanted, rng.integers(2, size=len(log)))
    return log.replaced(action_indices=actions)


def test_what_people_did_tells_something_only_if_it_depends_on_the_state():
    for share, is_told in ((0.0, False), (0.6, True)):
        learnt, held = habitual(share), habitual(share, seed=1)
        model = KBSF(40, reps="spread", order=1, random_state=0).fit(learnt).model_
        assert (gain_of_behaviour(model, held) > 0) == is_told


def test_plans_that_begin_as_people_do_come_first_where_people_tell_something():
    learner = KBSF(reps="spread", discount=0.95, random_state=0)
    names = [each.name for each in candidates(habitual(0.6), habitual(0.6, seed=1), learner, (1,))]
    assert names[0] == "lines, plans of 1 x 1 that begin as people do"  # actions do nothing here, so moves are noise
    assert "lines, plans of 3 x 4 that begin as people do" in names
    assert "lines, plans of 3 x 4" in names
    at_random = [each.name for each in candidates(walks(), walks(seed=1), learner, (1,))]
    assert at_random[0] == "lines, plans of 3 x 4"
    assert not any("people" in name for name in at_random)


def test_a_candidate_that_leaves_the_data_more_often_than_the_first_does_not_win():
    stays, leaves = np.zeros(16, dtype=bool), np.ones(16, dtype=bool)
    first, better = np.zeros(16), np.ones(16)
    assert _best([Rehearsal(first, stays), Rehearsal(better, leaves)]) == 0
    assert _best([Rehearsal(first, leaves), Rehearsal(better, leaves)]) == 1
    assert _best([Rehearsal(first, stays), Rehearsal(better, leaves), Rehearsal(better, np.arange(16) < 3)]) == 2


def test_the_sample_of_episodes_does_not_depend_on_how_the_log_is_cut_or_ordered():
    log = walks()
    one = EpisodeSample(len(log), 800)
    list(one.kept([log]))
    many = EpisodeSample(len(log), 800)
    parts = [log[np.flatnonzero(log.episodes == e)] for e in reversed(range(80))]
    list(many.kept(parts))
    assert 600 < len(one.log) < 1000
    np.testing.assert_array_equal(one.log.states, many.log.states)
    kept = set(one.log.episodes.tolist())
    assert (np.isin(log.episodes, list(kept)).sum()) == len(one.log)  # whole episodes


def test_logs_that_are_too_small_are_not_rehearsed():
    small = EpisodeSample(100)
    list(small.kept([walks(4)]))
    assert small.log is None


@pytest.mark.parametrize(
    "settings",
    [{"sample_neighbors": 5}, {"growth": Growth(distance=0.1)}, {"variant": Variant(norm=1)}],
)
def test_settings_that_only_order_0_has_are_not_rehearsed_away(settings):
    assert can_rehearse(Settings(), FREE)
    assert not can_rehearse(Settings(**settings), FREE)
    assert not can_rehearse(Settings(), ["n_reps", "order", "reps", "rep_width"])


def test_returns_to_go_are_discounted_within_episodes():
    log = Transitions(np.zeros((5, 1)), [0] * 5, [1.0, 2.0, 4.0, 8.0, 16.0], np.zeros((5, 1)), episodes=[0, 0, 0, 1, 1])
    is_start = np.array([True, False, False, True, False])
    assert returns_to_go(log, is_start, np.full(5, 0.5)).tolist() == [3.0, 4.0, 4.0, 16.0, 16.0]


def test_a_run_outside_earns_what_logged_stretches_of_the_same_length_earned_at_worst():
    """Ten episodes of three rows that pay 1 to 10 per row; the first ends, the others are cut."""
    pay = np.repeat(np.arange(1.0, 11.0), 3)
    ends = np.arange(30) == 2
    log = Transitions(np.zeros((30, 1)), [0] * 30, pay, np.zeros((30, 1)), ends, episodes=np.arange(30) // 3)
    is_start = np.arange(30) % 3 == 0
    found = low_returns(log, is_start, np.where(ends, 0.0, 0.5), 4)
    threes = [1.75, 1.5, 1.0, *(1.75 * k for k in range(2, 11))]
    twos = [1.5, 1.5, 1.0, *(1.5 * k for k in range(2, 11) for _ in range(2))]
    ones = [*(float(k) for k in range(1, 11) for _ in range(3))]
    ended = [1.75, 1.5, 1.0]  # of four rows nothing else is known
    expected = [np.quantile(each, 0.1) for each in (ended, threes, twos, ones)]
    np.testing.assert_allclose(found, expected)


def noisy(noise, seed=0):
    """Return walks on a line, 20 steps each, pushed by 0.1 to the left or the right and by noise."""
    rng = np.random.default_rng(seed)
    x, actions = rng.uniform(-1, 1, 100), rng.integers(2, size=(20, 100))
    path = [x]
    for pushed in actions:
        path.append(np.clip(path[-1] + 0.2 * pushed - 0.1 + noise * rng.normal(size=100), -1, 1))
    states = np.stack(path, axis=1)
    return Transitions(
        states[:, :-1].reshape(-1, 1), actions.T.ravel(), -np.abs(states[:, 1:]).ravel(), states[:, 1:].reshape(-1, 1),
        episodes=np.repeat(np.arange(100), 20),
    )  # fmt: skip


@pytest.mark.parametrize(("noise", "first"), [(0.001, "3 x 4"), (0.3, "1 x 1")])
def test_plans_of_one_step_are_the_ones_to_beat_where_noise_is_larger_than_the_gaps(noise, first):
    learner = KBSF(reps="spread", discount=0.95, random_state=0)
    log = noisy(noise)
    found = list(candidates(log, noisy(noise, seed=1), learner, (1,)))
    assert found[0].model.lines.is_noise_beyond_gaps == (first == "1 x 1")
    assert found[0].name == f"lines, plans of {first}"
    assert sorted(each.name[-5:] for each in found) == ["1 x 1", "2 x 2", "2 x 4", "3 x 2", "3 x 4"]


def test_a_run_may_last_longer_than_episodes_that_ended_by_themselves_but_not_than_those_that_were_cut():
    learner = KBSF(discount=0.95, reps="spread", random_state=0)
    cut = noisy(0.01)  # 20 steps each
    ended = cut.replaced(terminals=np.arange(len(cut)) % 20 == 19)
    other = noisy(0.01, seed=1)
    assert held_out_stage(cut, other, learner, True)[0].n_steps == 20
    assert held_out_stage(ended, other, learner, True)[0].n_steps > 20


def test_runs_start_anywhere_where_few_episodes_start():
    learner = KBSF(discount=0.95, reps="spread", random_state=0)
    log = noisy(0.05)  # 100 episodes of 20 steps
    few = log.replaced(episodes=np.arange(len(log)) // 500)
    stage, now = held_out_stage(log, noisy(0.05, seed=1), learner, True)
    assert now is not None
    anywhere, unknown = held_out_stage(few, noisy(0.05, seed=1), learner, True)
    assert unknown is None  # what people earned from there is not what episodes earned
    assert len(anywhere.starts) == len(stage.starts) == 16
    own = anywhere.model.scaled(few.states[np.linspace(0, len(few) - 1, 16).astype(int)])
    np.testing.assert_array_equal(anywhere.starts, own)


def test_logged_decisions_are_paid_for_as_many_steps_as_rehearsed_ones():
    """Every step costs 1, so no policy is better; runs are shorter than episodes, whose later costs must not count."""
    log = noisy(0.05)  # 20 steps each; runs have 5, after which a reward counts less than a twentieth
    log = log.replaced(rewards=np.full(len(log), -1.0))
    choice = choose_by_rehearsal(log, KBSF(discount=0.5, reps="spread", random_state=0))
    assert choice.now == pytest.approx(choice.tried[0].mean)
    assert not choice.is_better_than_now


def driven_out(seed=0):
    """Return episodes whose rows have nothing to do with each other: each step leads far outside."""
    log = noisy(0.01, seed)
    return log.replaced(next_states=log.states + 5.0 * np.sign(log.states))


def test_where_a_copy_of_people_leaves_the_data_rehearsal_is_not_believed():
    learner = KBSF(discount=0.95, reps="spread", random_state=0)
    log = noisy(0.05)
    stage, _ = held_out_stage(log, noisy(0.05, seed=1), learner, True)
    assert why_not_believed(stage, log, True) == ""
    narrow = replace(stage, world=stage.world._replace(reach=np.full(len(stage.world.reps), 1e-9)))
    assert why_not_believed(narrow, log, True) == "a copy of what people did left the data in 100% of its runs"
    choice = choose_by_rehearsal(driven_out(), learner)
    assert not choice.is_believed
    assert choice.chosen is choice.tried[0]
    assert not choice.is_better_than_now
    assert any("the rehearsal was not used: a copy of what people did" in flag for flag in choice.flags)


def test_where_nothing_can_be_told_people_are_followed(monkeypatch):
    """Actions do nothing, so chance decides; rewards grow with the step, which the state does not show."""
    pay = np.tile(np.arange(20.0), 100) + np.random.default_rng(0).normal(size=2000)
    log = noisy(0.05).replaced(rewards=pay)
    habit = np.where(np.random.default_rng(1).random(2000) < 0.6, log.states[:, 0] < 0, log.action_indices == 1)
    log = log.replaced(action_indices=habit.astype(int))
    learner = KBSF(discount=0.95, reps="spread", random_state=0)
    monkeypatch.setattr("kbrl.choosing.rehearsal.LEAST_AGREEMENT", 1.1)  # as if chance had decided
    choice = choose_by_rehearsal(log, learner)
    assert not choice.is_believed
    assert choice.chosen.name == "as people usually do"
    model = clone(learner).set_params(**choice.chosen.settings, n_reps=100).fit(log).model_
    states = np.linspace(-0.9, 0.9, 19)[:, None]
    assert (model.predict(states) == (states[:, 0] < 0)).mean() > 0.85
    monkeypatch.setattr("kbrl.choosing.rehearsal.LEAST_AGREEMENT", 0.0)
    assert choose_by_rehearsal(log, learner).chosen.name == "lines, plans of 3 x 4 that begin as people do"


def test_where_a_copy_of_people_earns_something_else_rehearsal_is_not_believed():
    """The pay grows with the steps of an episode, which the state does not show: a copy is paid the mean throughout."""
    learner, steps = KBSF(discount=0.95, reps="spread", random_state=0), np.arange(20.0)
    for pay, is_believed in ((np.ones(20), True), (steps, False)):
        log = noisy(0.05).replaced(rewards=np.tile(pay, 100))
        stage, _ = held_out_stage(log, noisy(0.05, seed=1), learner, True)
        reason = why_not_believed(stage, log, True)
        assert (reason == "") == is_believed
        assert why_not_believed(stage, log, False) == ""  # without episodes nobody knows what they earned
    assert reason.endswith(f"people earned {0.95**steps @ steps:.4g}")


def test_predicted_next_states_are_near_the_logged_ones():
    log = walks()
    model = KBSF(40, reps="spread", order=1, random_state=0).fit(log).model_
    going = ~log.terminals
    world = world_of(model.lines)
    found = predicted(model.scaled(log.states[going]), log.action_indices[going], world)
    errors = np.abs(model.coordinates.back(found) - log.next_states[going])
    assert np.median(errors) < 0.02


def drift(step, reward, seed=0, n=1200):
    """Return points on a line that move by a step, whatever is done, and are paid the same everywhere."""
    states = np.random.default_rng(seed).uniform(-1, 1, size=(n, 1))
    return Transitions(states, np.arange(n) % 2, np.full(n, reward), states + step, episodes=np.arange(n) // 20)


def test_a_model_of_other_dynamics_predicts_worse_than_that_nothing_moves():
    learnt, held = drift(0.1, 0.0), drift(-0.1, 0.0, seed=1)
    model = KBSF(40, reps="spread", order=1, discount=0.9, random_state=0).fit(learnt).model_
    (flag,) = [flag for flag in _flags(model, held, 1.0, True) if "nothing moves" in flag]
    assert "(4 times the error)" in flag  # it errs by 0.2, nothing moving by 0.1; squared
    assert not any("nothing moves" in flag for flag in _flags(model, drift(0.1, 0.0, seed=1), 1.0, True))


def test_states_beyond_the_range_of_the_data_do_not_count_as_predicted_badly():
    """There, predicted states are put back into the range, on purpose."""
    learnt, held = drift(0.1, 0.0), drift(0.1, 0.0, seed=1)
    model = KBSF(40, reps="spread", order=1, discount=0.9, random_state=0).fit(learnt).model_
    far = held.states + np.where(np.arange(len(held)) < 100, 50.0, 0.0)[:, None]
    held = held.replaced(states=far, next_states=far + 0.1)
    assert not any("nothing moves" in flag for flag in _flags(model, held, 1.0, True))


def test_a_model_that_promises_more_than_was_ever_earned_is_flagged():
    learnt = drift(0.0, 1.0)
    model = KBSF(40, reps="spread", order=1, discount=0.9, random_state=0).fit(learnt).model_
    held = drift(0.0, 0.5, seed=1)  # all are cut
    ended = held.replaced(terminals=np.append(held.episodes[1:] != held.episodes[:-1], True))
    flags = _flags(model, ended, 1.0, True)
    assert any("promises up to 10, but no held-out episode earned more than 4.392" in flag for flag in flags)
    assert pytest.approx(4.392, abs=1e-3) == 0.5 * (1 - 0.9**20) / 0.1
    flags = _flags(model, held, 1.0, True)  # 0.5 for ever
    assert any("but no held-out episode could have earned more without its cut than 5" in flag for flag in flags)
    assert not any("promises" in flag for flag in _flags(model, learnt, 1.0, True))  # 1 for ever


def test_decisions_that_depend_on_the_seed_are_flagged():
    rng = np.random.default_rng(3)
    states = rng.uniform(size=(1200, 3))
    log = Transitions(states, rng.integers(2, size=1200), rng.normal(size=1200), states, episodes=np.arange(1200) // 20)
    model = KBSF(200, reps="random", order=1, sample_neighbors=5, discount=0.5, random_state=0).fit(log).model_
    share = agreement(model, with_other_luck(model, log), log)
    said = f"random_state, it decides differently in {1 - share:.0%}"
    assert any(said in flag for flag in _flags(model, log, share, True))
    assert not any("random_state" in flag for flag in _flags(model, log, 0.8, True))


@pytest.mark.parametrize("name", ["patient_{:04d}", "2024-03-01/{:03d}", "a long name of a ward, bed {}"])
def test_episodes_with_long_names_that_begin_alike_are_told_apart(name):
    log = walks()
    named = log.replaced(episodes=np.array([name.format(episode) for episode in log.episodes.tolist()]))
    sample = EpisodeSample(len(named), 800)
    list(sample.kept([named]))
    assert 500 < len(sample.log) < 1100
    whole = EpisodeSample(len(named))
    list(whole.kept([named]))
    assert choose_by_rehearsal(whole.log, KBSF(discount=0.95, reps="spread", random_state=0)) is not None
