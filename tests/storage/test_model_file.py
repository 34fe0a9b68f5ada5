"""The model file: the same answers and the same learning."""

import json
import os

import numpy as np
import pytest
from safetensors import safe_open

from kbrl import KBSF, KbrlWarning, Model, NotFittedError, Transitions, Variant
from kbrl.storage import model_file
from kbrl.storage.model_file import load_model, read_model, save_model
from storage.saved_models import FORMS, LATER, LOG, REPS, STATES, assert_same_model, fitted, resealed


@pytest.mark.parametrize("form", FORMS)
def test_a_loaded_model_answers_and_goes_on_learning_bit_for_bit(form, tmp_path):
    model = fitted(**FORMS[form])
    save_model(model, tmp_path / "m.kbrl")
    loaded = load_model(tmp_path / "m.kbrl")
    assert isinstance(loaded, Model)
    assert_same_model(model, loaded)
    learner = KBSF.with_model(loaded)
    for chunk in (LATER, LOG[1:], LATER[:1]):
        model.partial_fit(chunk)
        learner.partial_fit(chunk)
        loaded = loaded.extend(chunk)
        assert_same_model(model, loaded)
        assert_same_model(model, learner)
    assert model.act(STATES[0]) == loaded.act(STATES[0])


@pytest.mark.parametrize("form", FORMS)
def test_a_loaded_model_saves_to_the_same_bytes(form, tmp_path):
    save_model(fitted(**FORMS[form]), tmp_path / "one")
    save_model(load_model(tmp_path / "one"), tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_answers_of_a_loaded_model_need_no_solving(tmp_path, monkeypatch):
    save_model(fitted(), tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    monkeypatch.setattr("kbrl.model.reduced_model.solve", lambda *a, **k: pytest.fail("it solved"))
    loaded.predict(STATES)


def test_a_model_with_data_not_yet_solved_for_is_solved_before_it_is_saved(tmp_path):
    model = fitted().partial_fit(LATER)
    save_model(model, tmp_path / "m")
    assert_same_model(model, load_model(tmp_path / "m"))


def test_a_shrunken_a_merged_and_a_forgetful_model_come_back(tmp_path):
    shared = {"reps": REPS, "scaling": np.array([0.3, 0.3])}
    shrunken, merged, forgetful = fitted(), fitted(**shared) + fitted(LATER, **shared), fitted()
    shrunken.shrink(0.3)
    forgetful.forget(LOG[:20])
    for model in (shrunken, merged, forgetful):
        save_model(model, tmp_path / "m")
        loaded = load_model(tmp_path / "m")
        assert_same_model(model, loaded)
        assert_same_model(model.partial_fit(LATER[1:]), loaded.extend(LATER[1:]))


def test_a_file_has_the_settings_of_the_fit_whatever_was_changed_after_it(tmp_path):
    model = fitted().set_params(sample_width=3.0, discount=0.5, variant__neighborhoods="per_chunk", sample_neighbors=2)
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert_same_model(model.partial_fit(LATER), loaded.extend(LATER))
    assert_same_model(fitted(LATER), KBSF.with_model(loaded).fit(LATER))


def test_a_model_and_the_learner_that_has_it_give_the_same_file(tmp_path):
    learner = fitted()
    save_model(learner, tmp_path / "one")
    save_model(learner.model_, tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_files_that_hold_later_settings_beside_those_of_the_fit_load_with_those_of_the_fit(tmp_path):
    model = fitted(rep_width=0.2)
    save_model(model, tmp_path / "m")
    of_fit = {"rep_width": 0.2, "discount": 0.99}

    def as_it_was_written_before(facts):
        facts["settings"] |= {"rep_width": 7.0, "discount": 0.5}
        facts["fit_settings"] = of_fit

    resealed(tmp_path / "m", as_it_was_written_before)
    loaded = load_model(tmp_path / "m")
    assert {name: getattr(loaded.settings, name) for name in of_fit} == of_fit
    assert_same_model(model.partial_fit(LATER), loaded.extend(LATER))


LABELS = {
    "int": [7, -3, 2],
    "str": ["low", "höher", "a much longer name"],
    "float": [0.1, -2.5, 1e300],
    "bool": [False, True],
    "int8": np.array([1, 2, 3], dtype=np.int8),
    "float32": np.array([0.1, 0.2], dtype=np.float32),
    "object": np.array(["a", "bc"], dtype=object),
    "uint64": np.array([2**63, 1], dtype=np.uint64),
}


@pytest.mark.parametrize("kind", LABELS)
def test_action_labels_come_back_with_their_type(kind, tmp_path):
    labels = np.array(LABELS[kind])
    actions = labels[np.arange(30) % len(labels)]
    log = Transitions(LOG.states[:30], actions, LOG.rewards[:30], LOG.next_states[:30], action_labels=labels)
    model = fitted(log, n_reps=5)
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.action_labels.dtype == labels.dtype
    assert loaded.action_labels.tolist() == labels.tolist()
    answers = zip(loaded.predict(STATES).tolist(), model.predict(STATES).tolist())
    assert all(type(one) is type(other) and one == other for one, other in answers)


def test_labels_of_other_kinds_are_refused_before_anything_is_written(tmp_path):
    days = np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]")
    log = Transitions(LOG.states[:2], days, LOG.rewards[:2], LOG.next_states[:2])
    with pytest.raises(ValueError, match="action labels that are whole numbers"):
        save_model(fitted(log, n_reps=1), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "columns", [None, ["age", "größe"], {"state": ["age", "size"], "action": "dose", "terminated": None}]
)
def test_column_names_come_back(columns, tmp_path):
    save_model(fitted(), tmp_path / "m", columns=columns)
    saved = read_model(tmp_path / "m")
    assert saved.columns == columns
    assert saved.library_version == model_file.__version__


@pytest.mark.parametrize("columns", [["only one"], [1, 2], "xy", {"state": [1]}, {1: "x"}, {"state": {"a": "b"}}])
def test_bad_column_names_are_refused(columns, tmp_path):
    with pytest.raises(ValueError, match="column"):
        save_model(fitted(), tmp_path / "m", columns=columns)


def test_any_safetensors_reader_can_open_the_file(tmp_path):
    model = fitted()
    save_model(model, tmp_path / "m")
    with safe_open(tmp_path / "m", "np") as file:
        np.testing.assert_array_equal(file.get_tensor("q"), model.rep_q_)
        assert json.loads(file.metadata()["counts"]) == np.bincount(LOG.action_indices).tolist()


def test_what_cannot_be_stored_is_refused_or_announced(tmp_path):
    with pytest.raises(ValueError, match="holds no functions, but profile is"):
        save_model(fitted(variant=Variant(profile=lambda z: np.exp(-z))), tmp_path / "m")
    was_function = fitted(variant=Variant(profile=lambda z: np.exp(-z))).set_params(variant__profile="gaussian")
    with pytest.raises(ValueError, match="holds no functions, but profile is"):
        save_model(was_function, tmp_path / "m")
    with pytest.warns(KbrlWarning, match="generator is not stored"):
        save_model(fitted(random_state=np.random.default_rng(0)), tmp_path / "m")
    assert load_model(tmp_path / "m").settings.random_state is None
    with pytest.raises(NotFittedError):
        save_model(KBSF(), tmp_path / "n")
    with pytest.raises(TypeError, match="saves a Model or a KBSF, but it got str"):
        save_model("model", tmp_path / "n")
    assert os.listdir(tmp_path) == ["m"]
