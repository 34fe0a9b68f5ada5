"""A frame or a file in the place of a log: read by the model's recipe, or refused with a way out."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kbrl import (
    KBSF,
    PolicyEvaluator,
    Transitions,
    compare,
    explain,
    judge,
    load_log,
    load_model,
    open_log,
    save_model,
    split_episodes,
    write_report,
)
from kbrl.tables.faults import LogError
from kbrl.trust.policy_answers import as_answers

ROLES = {"state": ["unit", "pressure"], "action": "drug", "reward": "0 - risk", "episode": "stay", "step": "day"}
ROLES |= {"terminated": "outcome in ('home', 'died')"}
FORMS = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "mapping": lambda frame: frame.to_dict(orient="list"),
}


def stays(first, n_stays, *, units=("icu", "ward", "acute"), seed=0):
    """Return stays of four days: drug b lowers the risk in the first unit, drug a elsewhere."""
    rng = np.random.default_rng(seed)
    stay = np.repeat(np.arange(first, first + n_stays), 4)
    unit, drug = np.repeat(rng.choice(units, n_stays), 4), rng.choice(["a", "b"], len(stay))
    risk = np.where((drug == "b") == (unit == units[0]), 1.0, 3.0) + rng.normal(0, 0.2, len(stay))
    pressure = np.where(rng.random(len(stay)) < 0.1, np.nan, rng.normal(80, 10, len(stay)))
    outcome = np.tile(["", "", "", "home"], n_stays)
    columns = {"stay": stay, "day": np.tile(np.arange(4), n_stays), "unit": unit, "pressure": pressure}
    return pd.DataFrame(columns | {"drug": drug, "risk": risk, "outcome": outcome})


@pytest.fixture(scope="module")
def learnt():
    with pytest.warns(match="pressure"):
        return KBSF(12, discount=0.8, random_state=0).fit(stays(0, 100), columns=ROLES)


@pytest.fixture(scope="module")
def later():
    return stays(1000, 120, seed=1)


def by_recipe(model, frame):
    """Return the log as the model needs it, opened by hand."""
    return open_log(frame, columns=ROLES, recipe=model.recipe)


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_is_judged_as_the_log_that_was_opened_by_the_models_recipe(learnt, later, form):
    by_hand, by_frame = (
        judge(learnt, log, rehearsed=False) for log in (by_recipe(learnt.model_, later), FORMS[form](later))
    )
    assert by_frame.to_json() == by_hand.to_json()
    assert by_frame.gain.estimate > 0


@pytest.mark.parametrize("form", ["pandas", "polars", "arrow"])
def test_compare_and_an_evaluator_take_a_frame(learnt, later, form):
    frame, log = FORMS[form](later), by_recipe(learnt.model_, later)
    policies = {"learnt": learnt, "always a": lambda states: ["a"] * len(states)}
    assert str(compare(policies, frame)) == str(compare(policies, log))
    sums = [PolicyEvaluator(policies).fit(each).sums.next_policy for each in (frame, log)]
    np.testing.assert_array_equal(*sums)


@pytest.mark.parametrize("form", ["pandas", "polars", "arrow"])
def test_an_explanation_takes_its_cases_from_a_frame(learnt, form):
    frame, state = stays(0, 100), {"unit": "icu", "pressure": 75.0}
    by_frame = explain(learnt, state, log=FORMS[form](frame))
    assert by_frame.to_dict() == explain(learnt, state, log=by_recipe(learnt.model_, frame)).to_dict()
    assert by_frame.actions[0].total_weight == pytest.approx(1.0)


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_is_split_as_its_transitions_are_and_the_parts_can_be_learnt_from(form):
    frame = stays(0, 60).assign(pressure=80.0)
    parts = split_episodes(FORMS[form](frame), 0.6, columns=ROLES)
    whole = split_episodes(load_log(frame, columns=ROLES), 0.6)
    for part, expected in zip(parts, whole):
        np.testing.assert_array_equal(part.states, expected.states)
        assert part.episodes.tolist() == expected.episodes.tolist()
    model = KBSF(3, random_state=0).fit(parts[0])
    assert judge(model, parts[1], rehearsed=False).n_episodes == len(set(parts[1].episodes.tolist()))


def test_a_file_is_taken_where_a_frame_is(learnt, later, tmp_path):
    later.to_csv(tmp_path / "later.csv", index=False)
    by_file, by_frame = (judge(learnt, log, rehearsed=False) for log in (tmp_path / "later.csv", later))
    assert by_file.to_json() == by_frame.to_json()


def test_a_saved_model_still_knows_the_columns_of_its_log(learnt, later, tmp_path):
    save_model(learnt, tmp_path / "ward.kbrl")
    model = load_model(tmp_path / "ward.kbrl")
    assert model.source.roles["reward"] == "0 - risk"
    by_file, by_learner = (judge(policy, later, rehearsed=False) for policy in (model, learnt))
    assert by_file.to_json() == by_learner.to_json()
    write_report(model, later, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 0


def test_columns_with_other_names_are_named(learnt, later):
    renamed = later.rename(columns={"drug": "given", "stay": "case"})
    found = judge(learnt, renamed, columns={"action": "given", "episode": "case"}, rehearsed=False)
    assert found.gain == judge(learnt, later, rehearsed=False).gain


def test_a_function_needs_the_columns_named(later):
    policy = lambda states: ["a"] * len(states)  # noqa: E731
    whole = later.assign(pressure=80.0)
    found = judge(policy, whole, discount=0.8, columns=ROLES)
    assert found.gain == judge(policy, load_log(whole, columns=ROLES), discount=0.8).gain
    with pytest.raises(LogError, match=r"must have a column for the state.*columns=\{'state': NAME\}"):
        judge(policy, whole, discount=0.8)


def test_a_model_of_bare_arrays_says_how_to_name_the_columns(later):
    rows = {"states": [[0.0], [1.0]], "actions": ["a", "b"], "rewards": [0.0, 1.0], "next_states": [[1.0], [0.0]]}
    model = KBSF(2, min_cases=1, random_state=0).fit(Transitions(**rows))
    with pytest.raises(LogError, match=r"columns=\{'state': NAME\}"):
        judge(model, later)
    with pytest.raises(LogError, match=r"columns=\{'state': NAME\}"):
        explain(model, [0.5], log=later)


def test_columns_of_a_log_that_is_no_table_are_refused(learnt, later):
    log = by_recipe(learnt.model_, later)
    for call in (lambda: judge(learnt, log, columns=ROLES), lambda: split_episodes(log, columns=ROLES)):
        with pytest.raises(TypeError, match=r"columns name those of a frame.*open_log"):
            call()
    with pytest.raises(TypeError, match="columns name those of a frame"):
        PolicyEvaluator(learnt).fit(log, columns=ROLES)


def test_a_log_whose_variables_were_made_in_another_way_is_refused(learnt):
    other = load_log(stays(1000, 60, units=("icu", "ward", "night")).assign(pressure=80.0), columns=ROLES)
    with pytest.raises(ValueError, match=r"differ in levels of 'unit'.*recipe"):
        judge(learnt, other)


def test_the_order_of_the_columns_of_a_log_does_not_change_what_a_model_answers():
    roles = ROLES | {"state": ["severe", "pressure"]}
    frames = [stays(first, 100, seed=first).assign(pressure=lambda f: f.pressure.fillna(80.0)) for first in (0, 1000)]
    first, second = (frame.assign(severe=(frame.unit == "icu").astype(float)) for frame in frames)
    model = KBSF(12, discount=0.8, random_state=0).fit(first, columns=roles)
    log = load_log(second, columns=roles | {"state": ["pressure", "severe"]})
    answers = as_answers(model, log.action_labels, log.source)(log.states)
    expected = model.predict(second[["severe", "pressure"]]).tolist()
    assert log.action_labels[answers.actions].tolist() == expected
    assert len(set(expected)) == 2


def test_doses_with_units_in_a_frame_are_those_of_a_text_file(tmp_path):
    first, second = (stays(start, 60).assign(pressure=80.0, dose=lambda f: np.where(f.drug == "a", "2.5 mg", "5 mg"))
                     for start in (0, 1000))  # fmt: skip
    first.to_csv(tmp_path / "first.csv", index=False)
    second.to_csv(tmp_path / "second.csv", index=False)
    roles = ROLES | {"state": "unit", "action": "dose", "suffix": {"dose": "mg"}}
    model = KBSF(3, discount=0.8, random_state=0).fit(tmp_path / "first.csv", columns=roles)
    assert model.action_labels_.tolist() == [2.5, 5.0]
    by_file, by_frame = (judge(model, log, rehearsed=False) for log in (tmp_path / "second.csv", second))
    assert by_frame.to_json() == by_file.to_json()


def test_marks_beside_numbers_in_a_frame_are_those_of_a_text_file(tmp_path):
    """A library keeps such a column as texts."""
    frame = stays(0, 60).assign(pressure=lambda f: ["-" if p != p else f"{p:.2f}" for p in f.pressure])
    frame.to_csv(tmp_path / "log.csv", index=False)
    roles = ROLES | {"na": {"pressure": ["-"]}, "missing": {"pressure": "median"}}
    by_file, by_frame = (load_log(log, columns=roles) for log in (tmp_path / "log.csv", frame))
    np.testing.assert_array_equal(by_frame.states, by_file.states)
    model = KBSF(5, discount=0.8, random_state=0).fit(tmp_path / "log.csv", columns=roles)
    assert judge(model, frame, rehearsed=False, allow_learnt=True).n_episodes == 60
