"""An action that was hardly ever taken does not win by luck."""

import warnings

import numpy as np
import pytest

from kbrl import (
    KBRL,
    KBSF,
    LSPI,
    Committee,
    FittedQ,
    OnlineAgent,
    Transitions,
    Variant,
    fit_log,
    load_model,
    save_model,
)
from kbrl.checks import KbrlWarning
from kbrl.choosing.automatic_fit import fit_automatically
from kbrl.cli import main
from kbrl.insight.explanation import explain
from kbrl.logs.log import open_log
from kbrl.logs.writing import as_columns, write_log
from kbrl.report.recommendations import answers
from samples import random_log

USUAL = [0.0, 0.25, 0.5, 0.75, 1.0]
ODD = 0.37  # a dose that was given once, to a patient who did well
SEVERITIES = np.linspace(0.02, 0.98, 25)[:, None]


def ward(n=1000, seed=0):
    """One decision per patient, worth -(severity - dose)^2 and noise: the best usual dose is the nearest."""
    rng = np.random.default_rng(seed)
    severity, dose = rng.random(n), rng.choice(USUAL, size=n)
    reward = -((severity - dose) ** 2) + 0.05 * rng.normal(size=n)
    dose[n // 2], reward[n // 2] = ODD, 3.0
    return Transitions(severity[:, None], dose, reward, severity[:, None], np.ones(n, dtype=bool), np.arange(n))


def regret(doses):
    """How much worse the doses are than the best usual ones, on average: the truth is known."""
    worth = -((SEVERITIES - np.asarray(USUAL)) ** 2)
    return float(np.mean(worth.max(axis=1) + (SEVERITIES[:, 0] - np.asarray(doses, dtype=float)) ** 2))


def test_by_the_papers_method_a_single_lucky_dose_is_the_advice_for_all():
    model = KBSF(30, sample_width=0.1, rep_width=0.1, min_cases=1, random_state=0).fit(ward())
    assert set(model.predict(SEVERITIES).tolist()) == {ODD}
    assert regret(model.predict(SEVERITIES)) > 0.05


@pytest.mark.parametrize(
    "form",
    [{}, {"sample_neighbors": 5}, {"variant": Variant(q_function="samples")}, {"variant": Variant(aggregation="hard")}],
)
def test_a_dose_that_was_given_once_is_never_recommended_with_min_cases(form):
    log = ward()
    model = KBSF(30, sample_width=0.1, rep_width=0.1, min_cases=5, random_state=0, **form).fit(log)
    place = model.action_labels_.tolist().index(ODD)
    assert model.left_out_ == {ODD: 1}
    assert (model.q_values(SEVERITIES)[:, place] == -np.inf).all()
    assert (model.q_from_reps(SEVERITIES)[:, place] == -np.inf).all()
    assert set(model.predict(SEVERITIES).tolist()) <= set(USUAL)
    assert [model.act(state) for state in SEVERITIES] == model.predict(SEVERITIES).tolist()
    assert regret(model.predict(SEVERITIES)) < 0.02


def test_what_is_left_out_counts_as_little_as_if_its_rows_had_another_world():
    """The values are those of a model of the same data in which the rare action does not exist."""
    log = random_log(150, n_actions=3, seed=3)
    rare = np.flatnonzero(log.action_indices == 2)
    common = log[np.sort(np.concatenate([np.flatnonzero(log.action_indices < 2), rare[:3]]))]
    settings = {"reps": log.next_states[:12], "scaling": [1.0, 1.0], "sample_width": 0.3, "rep_width": 0.3}
    model = KBSF(**settings, min_cases=4).fit(common)
    without = KBSF(**settings, min_cases=1).fit(common[np.flatnonzero(common.action_indices < 2)])
    np.testing.assert_allclose(model.q_values(log.states), without.q_values(log.states), rtol=1e-9)
    np.testing.assert_allclose(model.rep_values_, without.rep_values_, rtol=1e-9)


def test_automatic_fits_leave_rare_actions_out_and_all_that_answers_follows():
    log = ward()
    model = fit_automatically(KBSF(random_state=0), open_log(as_columns(log))).model
    assert model.min_cases == 5
    assert model.left_out_ == {ODD: 1}
    assert regret(model.predict(SEVERITIES)) < 0.02
    labels = model.action_labels_[answers(model, SEVERITIES).best]
    assert ODD not in labels.tolist()
    shown = {found.action: found for found in explain(model, [0.5], log=log).actions}
    assert shown[ODD].is_left_out
    assert shown[ODD].n_taken == 1
    assert not shown[0.5].is_left_out


def test_the_command_says_which_actions_are_left_out_and_why(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_log(ward(), "ward.csv", names=["severity"])
    main(["fit", "ward.csv", "-o", "model.kbrl", "-q"])
    told = " ".join(capsys.readouterr().out.split())
    assert f"actions left out {ODD} (1): taken fewer than 5 times (--min-cases), too few to tell luck from" in told
    main(["explain", "model.kbrl", "--state", "0.5", "--log", "ward.csv", "-q"])
    assert (
        f"{ODD}: left out, as it was taken only once in all (see --min-cases of kbrl fit)." in capsys.readouterr().out
    )
    main(["predict", "model.kbrl", "ward.csv", "-q"])
    assert {line.split(",")[1] for line in capsys.readouterr().out.splitlines()[1:]} <= set(map(str, USUAL))
    main(["report", "model.kbrl", "ward.csv", "-o", "ward.html", "-q"])
    said = "Taken too rarely to tell luck from effect, fewer than 5 times: 0.37 (1 row)."
    assert said in (tmp_path / "ward.html").read_text(encoding="utf-8")
    (tmp_path / "one.toml").write_text("min_cases = 1")
    main(["fit", "ward.csv", "-o", "lucky.kbrl", "-q", "--config", "one.toml"])
    assert "actions left out" not in capsys.readouterr().out
    assert load_model("lucky.kbrl").left_out == {}


def doses(n, seed=0):
    """A dose of its own for nearly everyone."""
    rng = np.random.default_rng(seed)
    given = np.round(rng.random(n), 4)
    return Transitions(rng.random((n, 1)), given, rng.random(n), rng.random((n, 1)), action_labels=np.unique(given))


@pytest.mark.parametrize("n", [12, 20])  # of more different doses, the log itself is refused: see test_amounts
def test_a_log_in_which_no_action_was_taken_often_is_not_learnt_from_automatically(n, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        write_log(doses(n), "ward.csv", names=["severity"])
        for options, least in ([], 5), (["--min-cases", "7"], 7):
            with pytest.raises(SystemExit) as exit_:
                main(["fit", "ward.csv", "-o", "model.kbrl", "-q", *options])
            assert exit_.value.code == 1
            told = capsys.readouterr().err
            assert f"In {n} transitions with" in told
            assert f"and at least one must be taken {least} times (--min-cases). Put amounts such as doses into" in told
            assert "each with a label; or let luck decide: --min-cases 1." in told
            assert not (tmp_path / "model.kbrl").exists()
        main(["fit", "ward.csv", "-o", "model.kbrl", "-q", "--min-cases", "1"])
    assert load_model("model.kbrl").left_out == {}


def test_an_automatic_fit_with_min_cases_that_no_action_reaches_is_refused():
    log = random_log(30, n_actions=3, seed=1)
    with pytest.raises(ValueError, match=r"must be taken 100 times \(min_cases\).*or let luck decide: min_cases=1"):
        fit_automatically(KBSF(8, min_cases=100, random_state=0), open_log(as_columns(log)))


def test_where_no_action_was_taken_so_often_all_are_kept_and_that_is_said():
    log = random_log(30, n_actions=3, seed=1)
    with pytest.warns(
        KbrlWarning, match="No action was taken min_cases=100 times, so all 3 are kept; the most frequent"
    ):
        model = KBSF(8, min_cases=100, random_state=0).fit(log)
    assert model.left_out_ == {}
    np.testing.assert_array_equal(model.rep_q_, KBSF(8, random_state=0).fit(log).rep_q_)


def test_where_one_action_is_left_there_is_nothing_to_decide_and_that_is_said(tmp_path, monkeypatch, capsys):
    log = ward()
    usual = log[(log.actions == 0.5) | (log.actions == ODD)]
    message = (
        "Nothing is left to decide: the advice is 0.5 in every state, as the other one was taken fewer than 5 times"
    )
    for fit in (KBSF.fit, fit_log):
        with pytest.warns(KbrlWarning, match=message):
            model = fit(KBSF(10, min_cases=5, random_state=0), usual)
        assert set(model.predict(SEVERITIES).tolist()) == {0.5}
    monkeypatch.chdir(tmp_path)
    write_log(usual, "ward.csv", names=["severity"])
    main(["fit", "ward.csv", "-o", "model.kbrl", "-q"])
    assert message in " ".join(capsys.readouterr().err.split())


def forest():
    pytest.importorskip("sklearn")
    return FittedQ(3, 3, random_state=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: KBSF(20, random_state=0),
        lambda: KBRL(0.5),
        lambda: LSPI(10, random_state=0),
        forest,
        lambda: Committee(KBSF(10), n_members=4, random_state=0),
        lambda: Committee(LSPI(5), n_members=3, random_state=0),
    ],
)
def test_every_learner_names_rare_actions_once(make):
    log = ward(300)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make().fit(log)
    told = [str(found.message) for found in caught if "look good by luck" in str(found.message)]
    assert len(told) == 1
    assert told[0].startswith("Of 300 transitions, 1 of 6 actions have fewer than 5 cases, ")
    assert found_in_this_file(caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().fit(log[log.actions != ODD])


def found_in_this_file(caught):
    return any(found.filename == __file__ for found in caught)


def test_fit_names_rare_actions_unless_it_was_said_what_to_do_with_them():
    log = ward()
    message = r"Of 1000 transitions, 1 of 6 actions have fewer than 5 cases, .*: 0.37 \(1\). They are left out, .*=1"
    for fit in (KBSF.fit, fit_log):
        with pytest.warns(KbrlWarning, match=message):
            model = fit(KBSF(20, random_state=0), log)
        assert model.left_out_ == {ODD: 1}
    for given, left_out in ((1, {}), (5, {ODD: 1})):  # any warning is an error
        assert KBSF(20, min_cases=given, random_state=0).fit(log).left_out_ == left_out


def forest_for(**given):
    pytest.importorskip("sklearn")
    return FittedQ(2, 30, 20, random_state=0, n_jobs=1, **given)


LEARNERS = {
    "KBSF": lambda **given: KBSF(30, random_state=0, **given),
    "KBRL": lambda **given: KBRL(0.2, **given),
    "LSPI": lambda **given: LSPI(30, width=0.2, random_state=0, **given),
    "fitted Q": forest_for,
    "fitted Q, one forest for all": lambda **given: forest_for(per_action=False, **given),
    "a committee": lambda **given: Committee(KBSF(30, **given), n_members=3, random_state=0),
    "a committee of LSPI": lambda **given: Committee(LSPI(20, width=0.2, **given), 3, vote="mean", random_state=0),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_no_learner_recommends_a_single_lucky_dose_by_default(name):
    """The truth is known: the best usual dose is the nearest, and the lucky one is no better than its neighbours."""
    log = ward()
    with pytest.warns(KbrlWarning, match=r"0.37 \(1\). They are left out, .*min_cases=1 keeps them"):
        learner = LEARNERS[name]().fit(log)
    advice, place = learner.predict(SEVERITIES).tolist(), learner.action_labels_.tolist().index(ODD)
    assert ODD not in advice
    assert (learner.q_values(SEVERITIES)[:, place] == -np.inf).all()
    assert ODD not in [learner.act(state) for state in SEVERITIES]
    assert regret(advice) < 0.03


@pytest.mark.parametrize("name", ["KBSF", "KBRL", "LSPI", "fitted Q", "a committee"])
def test_with_min_cases_1_the_methods_of_the_paper_take_the_lucky_dose(name):
    assert ODD in LEARNERS[name](min_cases=1).fit(ward()).predict(SEVERITIES)


def nearest_neighbours():
    return pytest.importorskip("sklearn.neighbors").KNeighborsRegressor(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda **given: KBRL(0.3, scaling=[1.0, 1.0], **given),
        lambda **given: KBRL(0.3, sample_neighbors=3, scaling=[1.0, 1.0], **given),
        lambda **given: LSPI(reps=random_log(9, seed=5).states, width=0.3, scaling=[1.0, 1.0], **given),
        lambda **given: FittedQ(4, regressor=nearest_neighbours(), scaling=[1.0, 1.0], **given),
        lambda **given: FittedQ(4, regressor=nearest_neighbours(), per_action=False, scaling=[1.0, 1.0], **given),
    ],
    ids=["KBRL", "KBRL with neighbours", "LSPI", "fitted Q", "fitted Q, one regressor for all"],
)
def test_rows_of_an_action_that_is_left_out_count_for_nothing_in_any_learner(make):
    log = random_log(150, n_actions=3, seed=3)
    rare = np.flatnonzero(log.action_indices == 2)
    common = log[np.sort(np.concatenate([np.flatnonzero(log.action_indices < 2), rare[:3]]))]
    without = common[np.flatnonzero(common.action_indices < 2)]
    found = make(min_cases=5).fit(common).q_values(log.states)
    np.testing.assert_allclose(found, make(min_cases=1).fit(without).q_values(log.states), rtol=1e-7)
    assert np.isfinite(make(min_cases=3).fit(common).q_values(log.states)).all()


def test_tiny_logs_keep_all_actions_in_every_learner_and_say_so():
    log = random_log(8, n_actions=2, seed=1)[:6]
    for learner in (KBSF(2), KBRL(), LSPI(2), forest(), Committee(KBSF(2), 2)):
        with pytest.warns(KbrlWarning, match="No action was taken min_cases=5 times, so all 2 are kept; .*min_cases=1"):
            learner.fit(log)
        assert np.isfinite(learner.q_values(log.states)).all()


def test_learning_that_starts_with_partial_fit_keeps_all_actions_as_an_agent_has_to_try_them():
    log = ward()
    learner = KBSF(reps=SEVERITIES, scaling=None).partial_fit(log[:400]).partial_fit(log[[500]])
    assert learner.model_.min_cases == 1
    assert learner.left_out_ == {}
    asked_for = KBSF(reps=SEVERITIES, scaling=None, min_cases=5).partial_fit(log)
    assert asked_for.left_out_ == {ODD: 1}
    agent = OnlineAgent(KBSF(n_reps=1), ["left", "right"], exploration=0.0, model_interval=7, random_state=0)
    for action in ["left"] * 6 + ["right"]:
        agent.observe([0.0], action, float(action == "right"), [0.0], terminated=True)
    assert agent.act([0.0]) == "right"  # tried once


def test_further_data_and_other_models_bring_an_action_back():
    log = ward()
    settings = {"reps": SEVERITIES, "scaling": [1.0], "min_cases": 2}
    model = KBSF(**settings).fit(log)
    other = KBSF.with_model(model.model_.without_data()).partial_fit(log[[500]])
    assert (model + other).left_out_ == {}
    model.partial_fit(log[[500]])
    assert model.left_out_ == {}
    model.forget(log[[500]])
    assert model.left_out_ == {ODD: 1}
    with pytest.raises(ValueError, match="these differ in: min_cases"):
        model + KBSF(**settings | {"min_cases": 3}).fit(log)


@pytest.mark.parametrize("form", [{}, {"sample_neighbors": 3}])
def test_a_file_keeps_what_was_left_out(form, tmp_path):
    model = KBSF(20, min_cases=5, random_state=0, **form).fit(ward())
    save_model(model, tmp_path / "model.kbrl")
    loaded = load_model(tmp_path / "model.kbrl")
    assert loaded.left_out == {ODD: 1}
    assert loaded.q_values(SEVERITIES).tobytes() == model.q_values(SEVERITIES).tobytes()
    model.set_params(min_cases=1)  # counts from the next fit on
    save_model(model, tmp_path / "model.kbrl")
    assert load_model(tmp_path / "model.kbrl").left_out == {ODD: 1}


def test_the_distance_to_kbrl_is_not_bounded_for_a_model_without_some_of_its_actions():
    log = ward(120)
    model = KBSF(20, min_cases=5, random_state=0).fit(log)
    with pytest.raises(ValueError, match=r"it leaves out the actions \[0.37\] \(min_cases=5; 1 keeps all\)"):
        model.bound(log)
    assert ODD in KBRL(min_cases=1).fit(log).predict(SEVERITIES)


def test_min_cases_must_be_a_whole_number_above_zero():
    for value, error in ((0, ValueError), (2.5, TypeError), ("5", TypeError)):
        with pytest.raises(error, match="min_cases must be"):
            KBSF(5, min_cases=value).fit(random_log(20))
