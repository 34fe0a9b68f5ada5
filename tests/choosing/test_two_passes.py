"""KBSF from a log that is read and never held."""

import numpy as np
import pytest

from kbrl import KBSF, Growth, Variant
from kbrl.choosing.automatic_fit import fit_log
from kbrl.data.survey import survey
from kbrl.logs.log import open_log
from kbrl.logs.writing import as_columns, write_log
from samples import random_log

DENSE = {"sample_width": 0.3, "rep_width": 0.2, "discount": 0.9}
EXACT = {"sample_neighbors": 4, "rep_neighbors": 3}
FORMS = pytest.mark.parametrize("form", [{}, EXACT, {**EXACT, "scaling": "range"}], ids=["dense", "sparse", "range"])


def learner(**changes):
    return KBSF(20, random_state=0, **(DENSE | changes))


@pytest.fixture(scope="module")
def log():
    return random_log(n=600, n_actions=3)


@pytest.fixture(scope="module")
def files(tmp_path_factory, log):
    """The log as one CSV file, as one Parquet file, and as ten Parquet files."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("logs")
    write_log(log, folder / "log.csv")
    parquet.write_table(pa.table(as_columns(log)), folder / "log.parquet")
    for number, part in enumerate(log.chunks(60)):
        parquet.write_table(pa.table(as_columns(part)), folder / f"part-{number}.parquet")
    return folder


def assert_same(model, expected, form):
    if "sample_neighbors" in form:
        for name in ("distances", "rewards", "next_states", "terminals", "multiplicities"):
            assert getattr(model.statistics_, name).tobytes() == getattr(expected.statistics_, name).tobytes()
        assert model.rep_q_.tobytes() == expected.rep_q_.tobytes()
    for name in ("reps_", "scale_"):
        assert getattr(model, name).tobytes() == getattr(expected, name).tobytes()
    for name in ("weight", "reward_sum"):
        if "sample_neighbors" not in form:
            np.testing.assert_allclose(
                getattr(model.statistics_, name), getattr(expected.statistics_, name), rtol=1e-12, atol=1e-13
            )
    np.testing.assert_allclose(model.mdp_.rewards, expected.mdp_.rewards, rtol=1e-12, atol=1e-13)
    assert model.n_samples_ == expected.n_samples_


@FORMS
def test_shuffled_rows_and_any_chunks_give_the_same_model(log, form):
    expected = fit_log(learner(**form), log)
    shuffled = log[np.random.default_rng(1).permutation(len(log))]
    for source in (shuffled, list(shuffled.chunks(17)), [log[300:], log[:300]]):
        assert_same(fit_log(learner(**form), source), expected, form)


@FORMS
def test_csv_parquet_and_ten_files_in_any_order_give_the_same_model(log, files, form):
    expected = fit_log(learner(**form), log)
    parts = [files / f"part-{number}.parquet" for number in (7, 2, 9, 0, 4, 1, 8, 3, 6, 5)]
    for source in (files / "log.csv", files / "log.parquet", parts):
        assert_same(fit_log(learner(**form), open_log(source)), expected, form)


def test_a_log_in_memory_gives_the_scale_of_fit_bit_for_bit(log):
    assert fit_log(learner(), log).scale_.tobytes() == learner().fit(log).scale_.tobytes()


def test_with_given_representative_states_it_is_the_model_of_fit(log):
    given = {"reps": log.next_states[:30], **EXACT}
    np.testing.assert_array_equal(
        fit_log(learner(**given), list(log.chunks(50))).rep_q_, learner(**given).fit(log).rep_q_
    )


def test_a_survey_made_before_is_used_and_steps_are_told(log):
    seen = []
    model = fit_log(learner(), list(log.chunks(250)), survey=survey([log]), step=seen.append)
    assert seen == [250, 250, 100]
    np.testing.assert_array_equal(model.reps_, fit_log(learner(), log).reps_)


@pytest.mark.parametrize(
    "changes",
    [
        {"growth": Growth(distance=0.3)},
        {"variant": Variant(q_function="samples")},
        {"variant": Variant(terminals="continue")},
    ],
)
def test_growth_samples_and_ends_that_are_ignored_work_as_in_fit(log, changes):
    scaled = {"reps": log.next_states[:5], **changes}
    one, other = fit_log(learner(**scaled), log), learner(**scaled).fit(log)
    np.testing.assert_allclose(one.q_values(log.states), other.q_values(log.states), rtol=1e-12)


def test_a_log_that_shrank_between_the_two_readings_is_refused_and_nothing_is_lost(log):
    model = fit_log(learner(), log)
    before = model.rep_q_.copy()
    with pytest.raises(ValueError, match="had 600 transitions when it was looked through, but 599"):
        fit_log(model, log[:599], survey=survey([log]))
    np.testing.assert_array_equal(model.rep_q_, before)


def test_what_can_be_read_only_once_is_refused(log):
    with pytest.raises(TypeError, match="read twice here"):
        fit_log(learner(), log.chunks(10))
