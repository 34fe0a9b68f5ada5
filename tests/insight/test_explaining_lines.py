"""Explaining models of order 1: the cases behind the lines, and the plan."""

from dataclasses import replace

import numpy as np
import pytest

from kbrl import KBSF, Plan, Transitions, explain, split_episodes
from kbrl.checks import KbrlWarning
from kbrl.report import write_report


def drifting_log(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    states = rng.uniform(-1, 1, size=(n, 2))
    actions = np.where(rng.random(n) < 0.5, "left", "right")
    push = np.where(actions == "left", -0.1, 0.1)
    next_states = np.column_stack([np.clip(states[:, 0] + push, -1, 1), 0.9 * states[:, 1]])
    return Transitions(states, actions, -np.abs(states[:, 0]), next_states, episodes=np.arange(n) // 30)


def model_of(log, **more):
    return KBSF(40, reps="spread", order=1, discount=0.9, random_state=0, **more).fit(log).model_


def test_the_cases_of_an_action_weigh_1_together_and_are_near_the_state():
    log = drifting_log()
    found = explain(model_of(log), [0.5, 0.0], log=log, n_cases=5)
    assert [each.action for each in found.actions] == ["left", "right"]
    for each in found.actions:
        assert each.total_weight == pytest.approx(1.0, abs=1e-9)
        assert len(each.cases) == 5
        for case in each.cases:
            assert log.actions[case.row] == each.action
            assert np.linalg.norm(np.array(case.state) - [0.5, 0.0]) < 0.6


def test_without_slopes_the_weighted_mean_of_rewards_is_what_the_lines_say():
    log = drifting_log()
    model = model_of(log)
    found = explain(model, [0.3, 0.1], log=log, n_cases=2000)
    for each in found.actions:
        mean = sum(case.weight * case.reward for case in each.cases)
        assert mean == pytest.approx(-0.3, abs=0.1)  # the reward is -|x|


def test_the_plan_begins_with_the_action_and_goes_to_where_it_pays():
    log = drifting_log()
    found = explain(model_of(log, plan=Plan(decisions=3, hold=2)), [0.6, 0.0], log=log)
    assert found.actions[0].plan == ("left", "left", "left")
    assert found.actions[1].plan[0] == "right"
    assert found.to_dict()["actions"][0]["plan"] == ("left", "left", "left")


def test_another_log_is_said_not_to_be_the_models():
    log = drifting_log()
    with pytest.warns(KbrlWarning, match="The log is not the one"):
        explain(model_of(log), [0.5, 0.0], log=log[:100])


def test_the_report_of_a_model_of_order_1_is_written(tmp_path):
    from kbrl import save_model
    from kbrl.logs.writing import write_log

    log = drifting_log()
    save_model(model_of(log), tmp_path / "m.kbrl")
    write_log(log, tmp_path / "log.csv")
    write_report(tmp_path / "m.kbrl", tmp_path / "log.csv", tmp_path / "page.html")
    assert "left" in (tmp_path / "page.html").read_text()


def test_episodes_that_were_held_out_are_no_cases():
    log = drifting_log()
    learn, rest = split_episodes(log, 0.5)
    model = replace(model_of(learn), held_out=0.5)
    found = explain(model, [0.5, 0.0], log=log, n_cases=2000)  # the whole log, as the command gets it
    held = set(rest.episodes.tolist())
    for each in found.actions:
        assert each.total_weight == pytest.approx(1.0, abs=1e-9)
        assert not held & {case.episode for case in each.cases}
