"""What a model remembers of how it was learnt: in memory, in its file, and in the sum of two models."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from kbrl import KBSF, Committee, Growth, KbrlWarning, Transitions, Variant, fit_log
from kbrl.settings import about_settings
from kbrl.storage.model_file import load_model, save_model
from samples import random_log
from storage.saved_models import STATES, assert_same_model, fitted

FORMAT_1 = Path(__file__).parent.parent / "format_1"
FIRST, FAR = random_log(n=100, seed=1), random_log(n=60, seed=2, scale=5.0)
REPS = np.random.default_rng(5).random((12, 2))
CHANGED = "representative states came or went while it learnt cannot forget"


def unlearnt(learner):
    """Return the same learner with a model of no data."""
    return KBSF.with_model(learner.model_.without_data())


def loaded(model, tmp_path):
    save_model(model, tmp_path / "m.kbrl")
    return KBSF.with_model(load_model(tmp_path / "m.kbrl"))


def grown():
    return KBSF(n_reps=12, growth=Growth(distance=0.5), random_state=0).fit(FIRST).partial_fit(FAR)


def shrunk():
    model = fitted(FIRST)
    model.shrink(0.3)
    assert len(model.reps_) < 12
    return model


# Point 3: forgetting after the representative states changed


@pytest.mark.parametrize("make", [grown, shrunk])
def test_a_model_that_grew_or_shrank_cannot_forget_once_saved_and_loaded_either(make, tmp_path):
    for model in (make(), loaded(make(), tmp_path), loaded(loaded(make(), tmp_path), tmp_path)):
        with pytest.raises(ValueError, match=CHANGED):
            model.forget(FIRST[:10])


@pytest.mark.parametrize("make", [grown, shrunk])
def test_a_sum_cannot_forget_if_one_of_its_terms_cannot_whichever_it_is(make, tmp_path):
    changed = make()
    other = unlearnt(changed).partial_fit(FIRST[:50].replaced(rewards=FIRST.rewards[:50] + 1))  # grows no further
    for total in (
        changed + other,
        other + changed,
        loaded(other, tmp_path) + changed,
        other + loaded(changed, tmp_path),
    ):
        with pytest.raises(ValueError, match=CHANGED):
            total.forget(FIRST[:10])


def test_a_model_that_did_not_change_forgets_once_saved_loaded_and_added(tmp_path):
    settings = {"reps": REPS, "scaling": None, "sample_width": 1.0}
    one, other = fitted(FIRST, **settings), fitted(random_log(n=50, seed=9), **settings)
    rest = fitted([FIRST[10:], random_log(n=50, seed=9)], **settings)
    for total in (loaded(one, tmp_path) + other, other + loaded(one, tmp_path), loaded(one + other, tmp_path)):
        np.testing.assert_allclose(total.forget(FIRST[:10]).q_values(STATES), rest.q_values(STATES), rtol=1e-9)
        np.testing.assert_allclose(total.mdp_.probabilities.sum(axis=2) <= 1 + 1e-9, True)


def test_a_model_of_format_1_does_not_forget_as_it_cannot_know(tmp_path):
    model = KBSF.with_model(load_model(FORMAT_1 / "sums.kbrl"))
    for one in (model, loaded(model, tmp_path), model + unlearnt(model), unlearnt(model) + model):
        with pytest.raises(ValueError, match=r"file of format 1, which does not say whether .* Fit it again"):
            one.forget(Transitions([[61.0, 158.0]], ["none"], [-3.8], [[61.0, 163.0]]))
    with pytest.raises(ValueError, match="keeps its samples"):
        load_model(FORMAT_1 / "neighbors.kbrl") - random_log(n=5)


# Point 4: rows that were never learnt


def test_rows_that_were_never_learnt_are_not_forgotten(tmp_path):
    model = loaded(fitted(FIRST), tmp_path)
    before = model.q_values(STATES).tolist()
    changed = FIRST[:3].replaced(rewards=FIRST.rewards[:3] + np.array([0.0, 1e-9, 0.0]))
    with pytest.raises(ValueError, match=r"but 1 of these 3 were never learnt, or fewer times. Nothing is forgotten"):
        model.forget(changed)
    with pytest.raises(ValueError, match="but 1 of these 2 were never learnt"):
        model.forget(FIRST[np.array([4, 4])])
    assert model.q_values(STATES).tolist() == before
    model.forget(FIRST[:3])
    with pytest.raises(ValueError, match="but 3 of these 3 were never learnt"):
        model.forget(FIRST[:3])
    np.testing.assert_allclose(
        model.forget(FIRST[3:5]).rep_q_, KBSF(**refit_settings(model)).fit(FIRST[5:]).rep_q_, rtol=1e-7
    )


def refit_settings(model):
    return {"reps": model.reps_, "scaling": model.scale_}


def test_of_many_rows_a_sample_is_known_and_all_of_them_together_are():
    log, others = random_log(n=3000, seed=3), random_log(n=3000, seed=4)
    model = fitted(log)
    with pytest.raises(ValueError, match=r"at least \d+ of these 100 were never learnt"):
        model.forget(others[:100])
    swapped = Transitions(
        np.vstack([log.states[1:], others.states[:1]]), log.actions, log.rewards, log.next_states, log.terminals
    )  # fmt: skip
    with pytest.raises(ValueError, match="never learnt"):
        model.forget(swapped)


# Point 8: settings of the fit and present ones

SET_LATER = {
    "n_reps": 7, "reps": REPS, "sample_width": 0.7, "rep_width": 0.3, "sample_neighbors": 2, "rep_neighbors": 2,
    "discount": 0.5, "scaling": "range", "random_state": 5, "profile": "gaussian", "cover_distance": 0.3,
    "grow_distance": 0.1, "grow_below": 0.1, "max_reps": 13, "terminals": "continue", "aggregation": "hard",
    "neighborhoods": "per_chunk", "q_function": "samples", "solver": "policy iteration", "tolerance": 1e-3, "n_jobs": 1,
    "norm": np.inf, "sweeps": 3, "min_cases": 30, "order": 1, "plan_decisions": 2, "plan_hold": 2, "acting": "reps",
    "inside": 1.0, "usual": 0.5, "plan_window": 4,
}  # fmt: skip
FITS = {
    "plain": {},
    "growing": {"growth": Growth(distance=0.4, max_reps=40)},
    "samples": {"variant": Variant(q_function="samples", terminals="continue")},
    "neighbours": {"sample_neighbors": 3},
}


def test_every_setting_is_tried():
    assert set(SET_LATER) == set(about_settings())


@pytest.mark.filterwarnings("ignore:Nothing is left to decide")  # with min_cases=30, one action is
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("name", SET_LATER)
def test_learning_goes_on_as_it_would_in_memory_whatever_was_set_after_the_fit(fit, name, tmp_path):
    if name == "grow_below" and fit == "growing":
        pytest.skip("growth takes one of the two")
    at = about_settings()[name].path.replace(".", "__")
    model = fitted(FIRST, **FITS[fit]).set_params(**{at: SET_LATER[name]})
    back = loaded(model, tmp_path)
    assert_same_model(model.partial_fit(FAR), back.partial_fit(FAR))
    save_model(model, tmp_path / "one.kbrl")
    save_model(back, tmp_path / "other.kbrl")
    assert (tmp_path / "one.kbrl").read_bytes() == (tmp_path / "other.kbrl").read_bytes()
    assert_same_model(fitted(FAR, **FITS[fit]), back.fit(FAR))  # a file has the settings of the fit


# Point 18: data counted twice


def test_adding_models_of_the_same_data_warns():
    settings = {"reps": REPS, "scaling": None}
    long, short = fitted(random_log(n=1000, seed=1), **settings), fitted(random_log(n=300, seed=2), **settings)
    both = long + short  # silently
    with pytest.warns(
        KbrlWarning, match="all 1,000 are learnt already, and nothing else is: they count twice in the sum"
    ):
        long + long
    with pytest.warns(KbrlWarning, match=r"about 300 of the 1,300 are learnt already \(100 % of all that is\)"):
        short + both
    with pytest.warns(KbrlWarning, match=r"all 300 are learnt already \(23 % of all that is\)"):
        both + short


def test_learning_the_whole_log_again_warns_and_parts_of_it_do_not():
    model = fitted(FIRST)
    with pytest.warns(KbrlWarning, match="These 100 transitions are those that the model was fitted to"):
        model.partial_fit(FIRST[np.arange(100)[::-1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(FIRST[:50]).partial_fit(FIRST[50:])
        model = KBSF(reps=REPS, scaling=None)
        for row in range(40):
            model.partial_fit(FIRST[row : row + 1])


def test_learning_a_batch_again_warns_after_a_file_and_a_sum_too(tmp_path):
    settings = {"reps": REPS, "scaling": None}
    first, far = fitted(FIRST, **settings), fitted(FAR, **settings)
    model = loaded(first + far, tmp_path)
    message = f"These {len(FAR)} transitions are a batch of those that the model was fitted to: they count twice now."
    with pytest.warns(KbrlWarning, match=message):
        model.partial_fit(FAR)
    assert first.partial_fit(FAR).model_.sketch.batches == fitted(FIRST, **settings).model_.sketch.batches
    assert model.forget(FAR).model_.sketch.batches == ()


def test_online_learning_in_a_discrete_world_does_not_warn():
    row = Transitions([[0.0]], [0], [1.0], [[1.0]], action_labels=[0, 1])
    model = KBSF(reps=[[0.0], [1.0]], scaling=None)
    for _ in range(20):
        model.partial_fit(row)


def sketch_of(model):
    sketch = model.model_.sketch
    return (sketch.n_rows, sketch.total, sketch.hashes.tolist(), sketch.counts.tolist(), sketch.largest)


def test_the_sketch_is_the_same_however_a_model_came_about(tmp_path):
    log = random_log(n=3000, seed=1)
    settings = {"reps": REPS, "scaling": None}
    whole = fitted(log, **settings)
    parts = [log[:10], log[10:2000], log[2000:]]
    models = [
        fitted(parts, **settings),
        fitted(parts[::-1], **settings),
        fit_log(KBSF(**settings), parts),
        fitted(parts[0], **settings).partial_fit(parts[1]).partial_fit(parts[2]),
        fitted(parts[2], **settings) + (fitted(parts[1], **settings) + fitted(parts[0], **settings)),
        loaded(whole, tmp_path),
        *Committee(KBSF(**settings), n_members=2).fit(log).members_,
    ]
    for model in models:
        assert sketch_of(model) == sketch_of(whole)
    assert sketch_of(loaded(fitted(log).forget(log[:500]), tmp_path)) == sketch_of(fitted(log).forget(log[:500]))


def test_a_model_of_format_1_knows_no_sketch_and_stays_without(tmp_path):
    model = KBSF.with_model(load_model(FORMAT_1 / "sums.kbrl"))
    assert model.model_.sketch is None
    assert (model + unlearnt(model)).model_.sketch is None
    assert loaded(model, tmp_path).model_.sketch is None
