"""The survey of a log: exact, and the same however the rows are cut and ordered."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import Transitions
from kbrl.data.scaling import state_scale
from kbrl.data.sketch import HashCounts, row_hashes
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


def repeated(counts, seed=0, **options):
    """Return a log in which the first row comes as often as the first count says, and so on, in this order."""
    return random_log(n=len(counts), seed=seed, **options)[np.repeat(np.arange(len(counts)), counts)]


def shares(log, counts, **options):
    """Return the share of each of the different rows in a sample, in their order."""
    different = {row.tobytes(): place for place, row in enumerate(rows_of(log)[np.cumsum(counts) - 1])}
    sample = rows_of(survey(log.chunks(97), **options).sample)
    places = [different[row.tobytes()] for row in sample]
    return np.bincount(places, minlength=len(counts)) / len(sample)


def test_a_row_that_is_half_of_the_log_is_half_of_every_sample():
    counts = [1500] + [1] * 1500
    for seed in range(50):
        assert abs(shares(repeated(counts, seed), counts, sample_rows=100)[0] - 0.5) <= 1 / 100


@pytest.mark.parametrize("sample_rows", [1, 7, 50])
def test_on_average_over_logs_every_row_has_its_share_of_the_sample(sample_rows):
    # Rows from 1 in 6 to 1 in 800, all of them common, and rare ones that come once.
    classes = {500: 2, 100: 5, 20: 20, 4: 60, 1: 1000}
    counts = np.repeat(list(classes), list(classes.values()))
    found = np.array([shares(repeated(counts, seed), counts, sample_rows=sample_rows) for seed in range(250)])
    for count in classes:
        by_log = found[:, counts == count].sum(axis=1)
        error = by_log.std() / np.sqrt(len(by_log))
        assert abs(by_log.mean() - (counts == count).sum() * count / counts.sum()) <= 4 * error + 1e-12


def test_rare_rows_that_repeat_have_nearly_their_share():
    # Of 6000 rows those that come 4 times are no more than 1 in 1500, and one of them is 4 in about 260 of those kept.
    classes = {2000: 1, 4: 250, 1: 3000}
    counts = np.repeat(list(classes), list(classes.values()))
    found = np.array([shares(repeated(counts, seed), counts, sample_rows=200) for seed in range(150)])
    four = found[:, counts == 4].sum(axis=1)
    assert abs(four.mean() - 1000 / 6000) <= 4 * four.std() / np.sqrt(150) + 4 / 260 * 1000 / 6000


def test_no_more_different_rows_than_the_sample_has_places_have_exact_shares():
    counts = np.array([700, 200, 50, 30, 10, 5, 3, 2])
    found = shares(repeated(counts), counts, sample_rows=100)
    assert (np.abs(found * 100 - counts / 10) < 1).all()


@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), sample_rows=st.integers(1, 300))
def test_a_skewed_log_has_one_sample_for_any_split_and_order(data, seed, sample_rows):
    rng = np.random.default_rng(seed)
    counts = np.ceil(rng.pareto(data.draw(st.sampled_from([0.5, 1.0, 3.0])), int(rng.integers(1, 800))) + 1e-9)
    log = repeated(np.minimum(counts, 3000).astype(int), seed)
    whole = bits(survey([log], sample_rows=sample_rows))
    if data.draw(st.booleans(), label="shuffled, else in blocks of equal rows"):
        log = log[rng.permutation(len(log))]
    cuts = np.sort(rng.integers(0, len(log) + 1, data.draw(st.integers(0, 8))))
    edges = [0, *cuts.tolist(), len(log)]
    parts = [log[start:stop] for start, stop in pairwise(edges) if stop > start]
    found = [survey(part.chunks(int(rng.integers(1, 2000))), sample_rows=sample_rows) for part in parts]
    while len(found) > 1:
        place = int(rng.integers(len(found) - 1))
        found[place : place + 2] = [found[place] + pickle.loads(pickle.dumps(found[place + 1]))]
    assert bits(found[0]) == whole


def test_a_common_row_is_found_even_if_it_is_rare_in_all_parts_but_a_small_one():
    rare, common = random_log(n=40_000), random_log(n=1, seed=1)[np.zeros(50, dtype=int)]
    for parts in ([rare, common], [common, rare], [rare[:20_000], common, rare[20_000:]]):
        found = sum((survey([part], sample_rows=1000) for part in parts[1:]), survey([parts[0]], sample_rows=1000))
        places = (rows_of(found.sample) == rows_of(common[:1])).all(axis=1).sum()
        assert 1 <= places <= 2  # 1000 * 50 / 40_050


def test_counts_of_hashes_are_never_too_small_and_add_up():
    rng = np.random.default_rng(0)
    hashes = rng.integers(2**64, size=30_000, dtype=np.uint64)[rng.zipf(1.3, 200_000) % 30_000]
    different, exact = np.unique(hashes, return_counts=True)
    whole, first, second = HashCounts(), HashCounts(), HashCounts()
    whole.add(hashes)
    first.add(hashes[:70_000])
    second.add(hashes[70_000:])
    counts = whole.of(different)
    assert (counts >= exact).all()
    assert (counts <= exact + 200_000 / 2000).all()
    np.testing.assert_array_equal((first + pickle.loads(pickle.dumps(second))).of(different), counts)


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
