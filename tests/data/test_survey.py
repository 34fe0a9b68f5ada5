"""The survey of a log: exact, and the same however the rows are cut and ordered."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import Transitions
from kbrl.data.hashing import row_hashes
from kbrl.data.scaling import state_scale
from kbrl.data.survey import Survey, hash_limit, survey
from samples import logs, random_log


def rows_of(log):
    return np.column_stack([log.states, log.action_indices, log.rewards, log.next_states, log.terminals])


def bits(found):
    """Return all that a survey knows, as bytes."""
    sample = found.sample
    fields = [found.n_rows, found.counts.tolist(), found.action_labels.tolist()]
    arrays = [rows_of(sample), found.scale("std"), found.scale("range"), found.moments.mean()]
    return fields, [array.tobytes() for array in arrays]


@settings(max_examples=100, deadline=None)
@given(log=logs(), sample_rows=st.integers(1, 40), data=st.data())
def test_any_split_and_any_order_gives_the_same_survey(log, sample_rows, data):
    order = np.array(data.draw(st.permutations(range(len(log)))))
    chunk_rows = data.draw(st.integers(1, len(log)))
    whole = bits(survey([log], sample_rows=sample_rows))
    shuffled = log[order]
    assert bits(survey(shuffled.chunks(chunk_rows), sample_rows=sample_rows)) == whole
    parts = [survey([part], sample_rows=sample_rows) for part in shuffled.chunks(chunk_rows)]
    while len(parts) > 1:
        place = data.draw(st.integers(0, len(parts) - 2))
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    assert bits(parts[0]) == whole


@settings(max_examples=50, deadline=None)
@given(log=logs())
def test_a_log_that_fits_is_its_own_sample_each_row_as_often_as_it_occurs(log):
    sample = survey(log.chunks(7), sample_rows=len(log)).sample
    in_order = lambda rows: rows[np.lexsort(rows.T)]  # noqa: E731
    np.testing.assert_array_equal(in_order(rows_of(sample)), in_order(rows_of(log)))


@pytest.mark.parametrize("scaling", ["std", "range", None, [2.0, 3.0]])
def test_the_scale_is_that_of_the_whole_log(scaling):
    log = random_log(n=500)
    np.testing.assert_array_equal(survey(log.chunks(13)).scale(scaling), state_scale(log.states, scaling))


def test_of_many_rows_those_with_the_smallest_hashes_are_kept_in_their_order():
    log = random_log(n=3000)
    hashes = row_hashes([*log.states.T, *log.next_states.T, log.action_indices, log.rewards, log.terminals])
    smallest = log[np.argsort(hashes)[:100]]
    np.testing.assert_array_equal(rows_of(survey(log.chunks(64), sample_rows=100).sample), rows_of(smallest))


def test_a_row_that_is_common_has_its_share_of_the_sample_and_no_more():
    rare = random_log(n=900)
    common = rare[np.zeros(100, dtype=int)]
    sample = survey([rare, common, common[:]], sample_rows=200).sample
    is_common = (rows_of(sample) == rows_of(common[:1])).all(axis=1)
    kept = survey([rare, common, common], sample_rows=200)._settled()
    share = kept.multiplicities[(kept.rows[:, :2] == common.states[:1]).all(axis=1)].sum() / kept.multiplicities.sum()
    assert len(sample) == 200
    assert abs(is_common.mean() - share) <= 1 / 200


def test_different_rows_with_one_hash_are_ordered_by_their_contents(monkeypatch):
    monkeypatch.setattr("kbrl.data.survey.row_hashes", lambda columns: np.zeros(len(columns[0]), dtype=np.uint64))
    log = random_log(n=30, levels=2)
    whole = bits(survey([log], sample_rows=9))
    assert bits(survey(log[::-1].chunks(4), sample_rows=9)) == whole


def test_what_is_sent_to_another_process_is_the_same_survey():
    found = survey(random_log(n=50).chunks(10), sample_rows=20)
    assert bits(pickle.loads(pickle.dumps(found))) == bits(found)


def test_parts_that_keep_no_row_beyond_the_limit_have_the_same_sample_together():
    log = random_log(n=5000)
    whole = survey([log], sample_rows=100)
    limit = hash_limit(len(log), 100)
    parts = [survey([part], sample_rows=100, largest_hash=limit) for part in log.chunks(250)]
    total = sum(parts[1:], parts[0])
    assert not total.is_short
    assert bits(total) == bits(whole)
    assert max(len(part._settled().hashes) for part in parts) < 60  # of 250, where 100 would be kept
    repeated = log[np.zeros(5000, dtype=int)]
    assert survey([repeated], sample_rows=100, largest_hash=limit).is_short
    assert not survey([repeated], sample_rows=100).is_short
    assert hash_limit(100, 100) == 2**64 - 1


def test_memory_is_bounded_by_the_sample():
    found = Survey(np.arange(2), 2, sample_rows=100)
    for seed in range(30):
        found.add(random_log(n=200, seed=seed))
        assert len(found._kept.hashes) + sum(len(rows.hashes) for rows in found._waiting) < 100 + 100 + 200


def test_surveys_of_different_logs_do_not_add_up():
    found = survey([random_log(n_actions=2)])
    with pytest.raises(ValueError, match="know the same actions"):
        found + survey([random_log(n_actions=3)])
    with pytest.raises(ValueError, match="2 state variables, but one has 3"):
        found + survey([random_log(n_dims=3)])
    with pytest.raises(ValueError, match="samples are of one size"):
        found + survey([random_log()], sample_rows=5)
    with pytest.raises(ValueError, match="at least one chunk"):
        survey([])
    with pytest.raises(ValueError, match="no transition has been looked at"):
        Survey(np.arange(2), 2).sample  # noqa: B018


def test_minus_zero_is_zero():
    one, other = (Transitions([[zero]], [0], [zero], [[zero]]) for zero in (0.0, -0.0))
    assert bits(survey([one])) == bits(survey([other]))
