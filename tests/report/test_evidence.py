"""The report's verdict is that of judge on episodes not learnt from, and its stability that of resampled episodes."""

from dataclasses import replace

import numpy as np
import pytest

from kbrl import KBSF, Transitions, agreement, judge, split_episodes, with_agreement
from kbrl.report import render, write_report
from kbrl.report.facts import condition_text, gather
from kbrl.report.inputs import open_inputs
from kbrl.report.rules import Condition


def log_of(n_episodes=160, seed=0, gain=1.0):
    """Episodes of six steps on a line; going right pays, and people go either way."""
    rng = np.random.default_rng(seed)
    parts = []
    for episode in range(n_episodes):
        x = rng.random()
        for step in range(6):
            right = bool(rng.random() < 0.5)
            y = float(np.clip(x + (0.1 if right else -0.1) + 0.02 * rng.normal(), 0.0, 1.0))
            reward = gain * (y - x) + 0.01 * rng.normal()
            parts.append(([x], "right" if right else "left", reward, [y], step == 5, f"e{episode}"))
            x = y
    columns = list(zip(*parts))
    return Transitions(*columns[:5], episodes=columns[5], state_names=["place"])


@pytest.fixture(scope="module")
def log():
    return log_of()


@pytest.fixture(scope="module")
def model(log):
    learnt = KBSF(12, sample_width=0.2, rep_width=0.2, discount=0.9, random_state=0).fit(split_episodes(log, 0.5)[0])
    return replace(learnt.model_, held_out=0.5)


@pytest.fixture(scope="module")
def facts(log, model, tmp_path_factory):
    return write_report(model, log, tmp_path_factory.mktemp("page") / "page.html", units={"place": "m", "value": "EUR"})


def text_of(facts):
    return " ".join(render(facts).split())


def test_the_verdict_is_that_of_judge_on_the_held_out_episodes(facts, log, model):
    expected = judge(model, split_episodes(log, 0.5)[1])
    assert facts.judgement.verdict == expected.verdict == "better"
    assert facts.judgement.gain == expected.gain
    text = text_of(facts)
    assert '<p class="verdict better"><strong>Better.</strong> Following this policy would gain about' in text
    assert f"judged on {expected.n_episodes} episodes that it did not learn from" in text
    assert "EUR per episode" in text
    assert text.index("Better.") < text.index("What could be wrong") < text.index('id="changes"')
    for warning in expected.warnings:
        assert warning in text


def test_the_picture_of_the_verdict_says_its_numbers(facts):
    assert f"gain {facts.judgement.gain}" in render(facts)


def test_a_policy_that_cannot_be_told_from_practice_is_not_praised(tmp_path):
    log = log_of(gain=0.0)
    learn, _ = split_episodes(log, 0.5)
    model = replace(KBSF(12, discount=0.9, random_state=0).fit(learn).model_, held_out=0.5)
    found = write_report(model, log, tmp_path / "page.html")
    text = text_of(found)
    assert found.judgement.verdict == "cannot tell"
    assert "The data do not show whether following this policy would be better or worse" in text
    assert "<strong>Better.</strong>" not in text


def test_without_held_out_episodes_the_page_says_how_to_get_a_verdict(log):
    model = KBSF(12, discount=0.9, random_state=0).fit(log).model_
    found = gather(open_inputs(model, log))
    assert found.judgement is None
    text = text_of(found)
    assert "<strong>Not judged.</strong> The model has learnt from episodes of this log" in text
    assert "kbrl fit LOG -o MODEL --hold-out 0.5" in text


def test_a_log_of_other_episodes_is_judged_as_a_whole(model):
    other = log_of(seed=9)
    renamed = other.replaced(episodes=np.array([f"other{name}" for name in other.episodes.tolist()]))
    found = gather(open_inputs(model, renamed))
    assert found.judgement.n_episodes == 160
    assert found.no_agreement.startswith("The model was not fitted to this log")


def test_episodes_are_named_only_if_asked_for(log, model):
    assert "Episodes that the verdict depends on most" not in render(gather(open_inputs(model, log)))
    text = render(gather(open_inputs(model, log, with_cases=True)))
    assert "Episodes that the verdict depends on most" in text


def test_stability_in_the_report_is_that_of_with_agreement(facts, log, model):
    expected = with_agreement(model, split_episodes(log, 0.5)[0])
    np.testing.assert_allclose(facts.sampled.agreement, agreement(expected, facts.sample.states))
    assert facts.no_agreement == ""
    assert facts.n_unstable == (facts.sampled.agreement < 0.8).sum()


def test_changes_have_support_and_agreement(facts):
    assert facts.rules
    found = facts.sampled
    assert (found.best_support[found.advice >= 0] >= 5).all()
    assert (found.agreement[found.advice >= 0] >= 0.8).all()
    for rule in facts.rules:
        assert facts.labels[rule.advice] == "right"
        assert sum(share for _, share in rule.done_now) == pytest.approx(1.0)
    assert 0.5 < facts.fidelity <= 1.0


def test_a_deferring_model_gets_a_page_of_its_own(log, model):
    found = gather(open_inputs(model.deferring(cases=3, caution=1.0), log))
    assert found.labels == ["left", "right", "as now"]
    assert found.total.n_recommended == found.total.n_logged == found.n_transitions
    n_now = int(model.deferring(cases=3, caution=1.0).deferred(log.states).sum())
    assert found.actions[2].n_recommended == n_now
    assert all(pair.recommended < 2 for pair in found.disagreements)
    assert "the answer is “as now”" in text_of(found)


def test_units_stand_beside_names_and_values_and_unknown_ones_are_refused(facts, log, model):
    assert facts.titles == ("place (m)",)
    assert '<th scope="row">place (m)</th>' in render(facts)
    assert condition_text(facts.inputs, Condition(0, 0.5, None)) == "place is 0.5 m or more"
    assert condition_text(facts.inputs, Condition(0, None, 2.0)) == "place is below 2 m"
    assert condition_text(facts.inputs, Condition(0, 1.0, 2.0)) == "place is from 1 to below 2 m"
    with pytest.raises(ValueError, match="'speed' is neither"):
        open_inputs(model, log, units={"speed": "m/s"})
