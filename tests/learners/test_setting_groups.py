"""Groups of settings: Growth, Variant and Solver, in scikit-learn's habits, in files and by their flat names."""

import inspect
import re

import numpy as np
import pytest
import sklearn.base

from kbrl import KBSF, Committee, Growth, Model, Plan, Solver, Variant, agreement, clone, with_agreement
from kbrl.settings import About, Settings, about_settings, check_settings, flattened, grouped
from samples import random_log

FLAT = {
    "grow_distance": (0.3, "growth=Growth(distance=0.3)"),
    "grow_below": (0.01, "growth=Growth(below=0.01)"),
    "max_reps": (40, "growth=Growth(max_reps=40)"),
    "cover_distance": (0.2, "growth=Growth(cover_distance=0.2)"),
    "profile": ("gaussian", "variant=Variant(profile='gaussian')"),
    "norm": (1, "variant=Variant(norm=1)"),
    "terminals": ("absorb", "variant=Variant(terminals='absorb')"),  # also where it is the default
    "aggregation": ("hard", "variant=Variant(aggregation='hard')"),
    "neighborhoods": ("per_chunk", "variant=Variant(neighborhoods='per_chunk')"),
    "q_function": ("samples", "variant=Variant(q_function='samples')"),
    "solver": ("value iteration", "solver=Solver(method='value iteration')"),
    "tolerance": (1e-3, "solver=Solver(tolerance=0.001)"),
    "sweeps": (7, "solver=Solver(sweeps=7)"),
    "plan_decisions": (2, "plan=Plan(decisions=2)"),
    "plan_hold": (3, "plan=Plan(hold=3)"),
    "acting": ("reps", "plan=Plan(acting='reps')"),
    "inside": (1.5, "plan=Plan(inside=1.5)"),
    "usual": (0.3, "plan=Plan(usual=0.3)"),
    "plan_window": (4, "plan=Plan(window=4)"),
}


def test_the_front_page_has_about_a_dozen_parameters():
    assert len(inspect.signature(KBSF).parameters) <= 17
    assert all(isinstance(each.about, About) and each.about.help for each in about_settings().values())


def test_every_setting_in_a_group_has_its_flat_name_here():
    assert set(FLAT) == {name for name, each in about_settings().items() if each.group is not None}


@pytest.mark.parametrize("name", FLAT)
def test_a_flat_name_is_refused_with_what_to_write_instead_and_that_works(name):
    value, instead = FLAT[name]
    with pytest.raises(TypeError, match=re.escape(instead)):
        KBSF(**{name: value})
    group, (kind, field) = instead.partition("=")[0], re.fullmatch(r"\w+=(\w+)\((\w+)=.*\)", instead).groups()
    written = KBSF(
        **{group: {"Growth": Growth, "Variant": Variant, "Solver": Solver, "Plan": Plan}[kind](**{field: value})}
    )
    assert flattened(written.settings())[name] == value
    assert grouped({name: value})[group] == getattr(written, group)


def test_several_flat_names_are_told_together():
    with pytest.raises(
        TypeError, match=r"tolerance, max_reps; write growth=Growth\(distance=0.3, max_reps=9\), solver"
    ):
        KBSF(n_reps=5, grow_distance=0.3, tolerance=0.1, max_reps=9)
    with pytest.raises(ValueError, match=r"has no parameter sweeps; write solver=Solver\(sweeps=3\)"):
        KBSF().set_params(sweeps=3)
    with pytest.raises(TypeError, match=r"solver must be a Solver, .* Write solver=Solver\(method='value iteration'\)"):
        KBSF().set_params(solver="value iteration").fit(random_log())


def test_a_dict_is_as_good_as_a_group_and_another_thing_is_refused():
    log, states = random_log(n=60), random_log(n=20, seed=1).states
    of_dicts = KBSF(10, growth={"distance": 0.2}, solver={"method": "value iteration"}, random_state=0).fit(log)
    of_groups = KBSF(10, growth=Growth(0.2), solver=Solver("value iteration"), random_state=0).fit(log)
    assert of_dicts.q_values(states).tolist() == of_groups.q_values(states).tolist()
    assert of_dicts.model_.settings.growth == Growth(distance=0.2)
    with pytest.raises(ValueError, match="Solver has no field methd; it has method, tolerance, sweeps"):
        KBSF(solver={"methd": "value iteration"}).fit(log)
    for wrong in (None, 3, Solver()):
        with pytest.raises(TypeError, match="growth must be a Growth, or a dict of its fields, but it is"):
            KBSF(growth=wrong).fit(log)


@pytest.mark.parametrize("name", FLAT)
def test_a_bad_value_in_a_group_is_named_by_its_path(name):
    each = about_settings()[name]
    said = each.field if each.field in ("norm", "profile") else each.path
    with pytest.raises((ValueError, TypeError), match=f"{said} must be"):
        check_settings(Settings(**grouped({name: "no such thing", "reps": [[0.0]]})))


def test_parameters_of_groups_are_got_set_and_cloned_as_scikit_learn_does():
    learner = KBSF(growth=Growth(distance=0.3))
    params = learner.get_params()
    assert params["growth__distance"] == 0.3
    assert set(learner.get_params(deep=False)) == set(inspect.signature(KBSF).parameters)
    groups = {"growth", "variant", "solver", "plan"}
    assert len(params) == len(about_settings()) + len(groups)
    for copy in (clone(learner), sklearn.base.clone(learner)):
        assert copy.set_params(growth__distance=0.5, growth__max_reps=9, discount=0.5) is copy
        assert copy.growth == Growth(distance=0.5, max_reps=9)
    assert learner.growth == Growth(distance=0.3)  # a record does not change with its copies
    assert learner.set_params(growth__below=0.1, growth=Growth(max_reps=3)).growth == Growth(below=0.1, max_reps=3)
    of_dict = KBSF(solver={"sweeps": 3}).set_params(solver__tolerance=0.1)
    assert of_dict.settings().solver == Solver(tolerance=0.1, sweeps=3)
    with pytest.raises(ValueError, match="Growth has no field width"):
        learner.set_params(growth__width=1)
    with pytest.raises(ValueError, match="n_reps__growth cannot be set: n_reps is 100, which has no parameters"):
        learner.set_params(n_reps__growth=1)


def test_parameters_of_a_learner_in_a_committee_are_reached_too():
    committee = Committee(KBSF(), n_members=2).set_params(learner__n_reps=7, learner__solver__sweeps=2)
    assert committee.get_params()["learner__solver__sweeps"] == 2
    members = committee.fit(random_log(n=40)).members_
    assert [len(member.reps_) for member in members] == [7, 7]
    assert {member.model_.settings.solver.sweeps for member in members} == {2}


def test_flat_names_and_groups_are_the_same_settings():
    given = {name: value for name, (value, _) in FLAT.items()} | {"n_reps": 3, "discount": 0.5}
    settings = Settings(**grouped(given))
    assert {name: flattened(settings)[name] for name in given} == given
    defaults = {name: each.default for name, each in about_settings().items()}
    assert flattened(Settings()) == defaults
    assert repr(KBSF(**grouped(defaults))) == "KBSF()"


def test_groups_never_change_and_are_equal_by_what_they_say():
    with pytest.raises(AttributeError):
        Growth().distance = 1.0
    assert Growth(0.1) == Growth(distance=0.1) != Growth()
    assert repr(Variant(norm=np.inf)) == "Variant(norm=inf)"
    assert isinstance(KBSF(5, solver=Solver(sweeps=1)).fit(random_log()).model_, Model)


def test_settings_that_sums_do_not_hold_can_be_changed_without_the_data():
    log, settings = random_log(n=200, n_actions=3), {"n_reps": 8, "random_state": 0}
    model = KBSF(**settings).fit(log).model_
    for changes in ({"discount": 0.5}, {"min_cases": 60}, {"solver": {"method": "value iteration"}}):
        fitted = KBSF(**settings | changes).fit(log).model_
        np.testing.assert_array_equal(model.with_settings(**changes).q_values(log.states), fitted.q_values(log.states))
    known = with_agreement(model, log)
    assert np.isfinite(agreement(known, log.states)).all()
    assert np.isnan(agreement(known.with_settings(discount=0.5), log.states)).all()  # it was that of another discount


@pytest.mark.parametrize(
    ("learner", "timed", "changes", "name"),
    [
        (KBSF(8), False, {"sample_width": 2.0}, "sample_width"),
        (KBSF(8), False, {"variant": Variant(terminals="continue")}, "variant"),
        (KBSF(8), False, {"sample_neighbors": 3}, "sample_neighbors"),
        (KBSF(8), True, {"discount": 0.5}, "discount"),
        (KBSF(8, order=1, plan=Plan(window=2)), False, {"discount": 0.5}, "discount"),
        (KBSF(8, order=1), False, {"plan": Plan(window=2)}, r"plan\.window"),
    ],
)
def test_settings_that_sums_hold_are_changed_by_a_fit_alone(learner, timed, changes, name):
    log = random_log(n=200)
    following = log.replaced(next_states=np.roll(log.states, -1, axis=0), episodes=np.zeros(200, dtype=int))
    model = learner.fit(following.replaced(durations=np.full(200, 2.0) if timed else None)).model_
    with pytest.raises(ValueError, match=f"the sums of this model depend on {name}. Fit again"):
        model.with_settings(**changes)
