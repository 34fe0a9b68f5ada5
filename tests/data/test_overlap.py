"""What counts as learnt before: known rows and whole batches, but neither rows that repeat nor clashing identifiers."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import join
from kbrl.data.overlap import is_learnt_batch, overlap
from kbrl.data.sketch import Sketch
from sketched_logs import chain, continuous, hospital, more, of_kinds


def is_twice(learnt, further):
    return overlap(Sketch.of(learnt), Sketch.of(further)).is_counted_twice


def at_most(k, n, p):
    """Return the chance of at most k successes in n trials."""
    return sum(math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k + 1))


def few_are_new(before, rows):
    n, once = before.total(), sum(c == 1 for c in before.values())
    is_new, twice = once / (n + 1), sum(c == 2 for c in before.values())
    lowest = max(0.0, is_new - 4.75 * math.sqrt((is_new * (1 - is_new) + 2 * twice / n) / n))
    return at_most(sum(c for row, c in rows.items() if row not in before), rows.total(), lowest) < 1e-6


def by_the_book(learnt, further):
    """Return the answer of the rule in docs/model_file.md, in plain Python, for kinds of rows without identifiers."""
    mine, theirs = Counter(learnt), Counter(further)
    if mine == theirs:
        return True
    n, m = mine.total(), theirs.total()
    q, repeated = n / (n + m), [row for row in mine + theirs if mine[row] + theirs[row] > 1]
    chances = [1 - q ** (mine[row] + theirs[row]) - (1 - q) ** (mine[row] + theirs[row]) for row in repeated]
    n_both = sum(row in mine and row in theirs for row in repeated)
    bounds = [sum(math.log1p(c * math.expm1(s / 10)) for c in chances) - s / 10 * n_both for s in range(201)]
    if (few_are_new(mine, theirs) or few_are_new(theirs, mine)) and min(bounds) < math.log(1e-3):
        return True
    n_of_once = sum(c for row, c in theirs.items() if mine[row] == 1)
    rate = min(1.0, 2 * (sum(c == 2 for c in mine.values()) + 1) / n)
    return theirs <= mine and n_of_once > 0 and 1 - at_most(n_of_once - 1, m, rate) < 1e-3


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=200), st.lists(st.integers(0, 300), min_size=1, max_size=200))
def test_shares_of_small_logs_are_those_of_their_intersection(one, other):
    common = sum((Counter(one) & Counter(other)).values())
    found = overlap(Sketch.of(of_kinds(one)), Sketch.of(of_kinds(other)))
    assert found.n_again == common
    assert found.share_of_learnt == pytest.approx(common / len(one))
    assert found.is_same == (sorted(one) == sorted(other))


@pytest.mark.parametrize("n, n_further, n_shared", [(20_000, 20_000, 1000), (20_000, 5000, 2500), (3000, 60_000, 3000)])
def test_shares_of_large_logs_are_estimated_from_the_list(n, n_further, n_shared):
    log = continuous(n, 0)
    further = join([log[:n_shared], continuous(n_further - n_shared, 1)])
    found = overlap(Sketch.of(log), Sketch.of(further))
    n_listed = 1024 * min(1.0, n_further / n)
    share = n_shared / n_further
    assert abs(found.share_of_further - share) < 4 * np.sqrt(share * (1 - share) / n_listed) + 1e-9
    assert found.is_counted_twice


@pytest.mark.parametrize("n, n_further", [(14, 14), (300, 300), (2000, 2000), (5000, 100), (100, 5000)])
def test_independent_continuous_logs_are_never_taken_for_the_same(n, n_further):
    for seed in range(20):
        assert not overlap(
            Sketch.of(continuous(n, seed)), Sketch.of(continuous(n_further, 100 + seed))
        ).is_counted_twice


@pytest.mark.parametrize("n", [500, 1000, 5000, 20_000])
def test_five_per_cent_of_a_continuous_log_are_noticed(n):
    for seed in range(10):
        log, n_old = continuous(n, seed), n // 20
        further = join([continuous(n - n_old, 100 + seed), log[:n_old]])
        assert overlap(Sketch.of(log), Sketch.of(further)).is_counted_twice
        assert overlap(Sketch.of(further), Sketch.of(log)).is_counted_twice


@pytest.mark.parametrize("n, n_new", [(14, 6), (14, 14), (100, 1000), (1000, 50_000)])
def test_an_export_that_contains_the_old_rows_is_noticed(n, n_new):
    log = continuous(n, 0)
    assert overlap(Sketch.of(log), Sketch.of(join([log, continuous(n_new, 1)]))).is_counted_twice


@pytest.mark.parametrize("n, n_further", [(30, 30), (1000, 1000), (5000, 200), (200, 5000)])
def test_independent_discrete_logs_are_not_taken_for_the_same(n, n_further):
    for seed in range(20):
        assert not overlap(Sketch.of(chain(n, seed)), Sketch.of(chain(n_further, 100 + seed))).is_counted_twice


@pytest.mark.parametrize("n_kinds", [50, 1000, 3000, 50_000])
@pytest.mark.parametrize("n, n_further", [(1000, 1000), (3000, 500)])
def test_rows_that_repeat_by_nature_are_no_evidence(n_kinds, n, n_further):
    rng = np.random.default_rng(n_kinds)
    for _ in range(20):
        one, other = of_kinds(rng.integers(n_kinds, size=n)), of_kinds(rng.integers(n_kinds, size=n_further))
        assert not overlap(Sketch.of(one), Sketch.of(other)).is_counted_twice


def test_an_excursion_that_only_one_log_made_does_not_make_the_other_look_known():
    rng = np.random.default_rng(0)
    excursion = np.arange(1000, 1100)  # a tenth of the rows occur once, so a tenth of the other log should be new
    one = of_kinds(np.append(rng.integers(10, size=900), excursion))
    other = of_kinds(rng.integers(10, size=1000))
    assert not overlap(Sketch.of(one), Sketch.of(other)).is_counted_twice


@pytest.mark.parametrize("log", [continuous(14, 0), continuous(5000, 0), chain(1000, 0)])
def test_the_very_same_log_is_noticed_in_any_order(log):
    again = log[np.random.default_rng(0).permutation(len(log))]
    found = overlap(Sketch.of(log), Sketch.of(again))
    assert found.is_same
    assert str(found) == f"all {len(log):,} are learnt already, and nothing else is"
    assert is_learnt_batch(Sketch.of(log), Sketch.of(again))


@pytest.mark.parametrize("kinds", [[1], [1, 1, 1, 1], [1, 2], [1, 2, 1, 2, 1, 2]])
def test_a_few_rows_that_are_all_there_is_may_well_come_again(kinds):
    assert not is_learnt_batch(Sketch.of(of_kinds(kinds)), Sketch.of(of_kinds(kinds)))


@pytest.mark.parametrize(
    "learnt, further, is_counted_twice",
    [
        # 18 or 25 of 100 known: by the point estimate, or one standard error below, 18 would do.
        (range(100), range(82, 182), False),
        (range(100), range(75, 175), True),
        # One new row; 8 or 9 pairs in both at (4/9)^k, 0.0015 or 0.0007, beside a kind that is half of all rows.
        ([*range(500), *[-1] * 500], [*range(8), 999, *[-1] * 491], False),
        ([*range(500), *[-1] * 500], [*range(9), 999, *[-1] * 490], True),
        # All 3 or 4 known of 14: (2/14)^k, 0.003 or 0.0004.
        (range(14), range(3), False),
        (range(14), range(4), True),
    ],
)
def test_the_thresholds_are_those_of_the_rule(learnt, further, is_counted_twice):
    assert by_the_book(learnt, further) == is_counted_twice
    assert is_twice(of_kinds([*learnt]), of_kinds([*further])) == is_counted_twice


def test_the_rule_is_the_one_that_is_described():
    rng, found = np.random.default_rng(0), Counter()
    for _ in range(200):
        kinds, n, m = 10 ** rng.uniform(0.5, 4), rng.integers(2, 120), rng.integers(1, 120)
        learnt = rng.integers(int(kinds), size=n)
        again = rng.choice(learnt, size=min(n, m) if rng.random() < 0.5 else rng.integers(min(n, m)), replace=False)
        further = np.append(again, rng.integers(int(kinds), size=max(0, m - len(again))))
        expected = by_the_book(learnt.tolist(), further.tolist())
        assert is_twice(of_kinds(learnt), of_kinds(further)) == expected
        found[expected] += 1
    assert min(found.values()) > 30


@pytest.mark.parametrize("n, n_known", [(14, 4), (50, 3), (200, 2), (1000, 2)])
def test_a_few_known_rows_of_a_small_log_are_noticed(n, n_known):
    for seed in range(10):
        log = continuous(n, seed)
        rows = np.random.default_rng(seed).choice(n, size=n_known, replace=False)
        found = overlap(Sketch.of(log), Sketch.of(log[rows]))
        assert found.is_counted_twice
        assert str(found) == f"all {n_known} are learnt already ({100 * n_known / n:.0f} % of all that is)"


@pytest.mark.parametrize("n_further", [1, 3, 10])
@pytest.mark.parametrize("n_kinds", [5, 50, 1000])
def test_a_few_rows_that_repeat_by_nature_are_rarely_taken_for_known_ones(n_kinds, n_further):
    rng = np.random.default_rng(n_kinds)
    n_wrong = 0
    for _ in range(200):
        n = int(10 ** rng.uniform(1, 3))
        n_wrong += is_twice(of_kinds(rng.integers(n_kinds, size=n)), of_kinds(rng.integers(n_kinds, size=n_further)))
    assert n_wrong <= 2


@pytest.mark.parametrize("n, n_batch", [(14, 4), (1000, 2), (20_000, 3), (20_000, 5000)])
def test_a_batch_is_noticed_however_much_was_learnt_before_and_after(n, n_batch):
    log, batch, later = continuous(n, 0), continuous(n_batch, 1), continuous(7, 2)
    learnt = more(more(more(Sketch(), log), batch), later)
    found = overlap(learnt, Sketch.of(batch[::-1]))
    assert found.is_counted_twice
    assert str(found).startswith(f"all {n_batch:,} are learnt already (")
    assert not overlap(learnt, Sketch.of(continuous(n_batch, 3))).is_counted_twice
    other = more(more(Sketch(), continuous(300, 4)), batch)
    assert overlap(learnt, other).is_counted_twice
    assert overlap(other, learnt).is_counted_twice


def test_a_batch_of_a_few_rows_that_repeat_by_nature_may_come_again():
    learnt = more(more(Sketch(), chain(1000, 0)), chain(2, 1))
    assert not overlap(learnt, Sketch.of(chain(2, 1))).is_counted_twice
    learnt = more(learnt, chain(60, 1))
    assert overlap(learnt, Sketch.of(chain(60, 1))).is_counted_twice


def test_a_row_that_is_half_of_a_large_log_may_come_again_as_a_batch_of_its_own():
    common = of_kinds([-1] * 6000 + list(range(6000)))
    for kind in (-1, -2, -3):
        log = common.replaced(states=np.where(common.states == -1, kind, common.states))
        batch = log[:1]
        assert not overlap(more(more(Sketch(), log), batch), Sketch.of(batch)).is_counted_twice


@pytest.mark.parametrize("n_patients, n_visits, n_stages", [(1000, 1, 4), (200, 5, 4), (60, 3, 2), (3000, 2, 12)])
@pytest.mark.parametrize("is_fixed", [False, True])
def test_two_hospitals_that_number_their_patients_alike_share_no_data(n_patients, n_visits, n_stages, is_fixed):
    for seed in range(20):
        here = hospital(n_patients, n_visits, seed, n_stages=n_stages, is_fixed=is_fixed)
        there = hospital(n_patients, n_visits, 100 + seed, n_stages=n_stages, is_fixed=is_fixed)
        assert not is_twice(here, there)


def test_their_rows_do_coincide_so_that_without_this_they_would_be_refused():
    here, there = hospital(1000, 1, 1), hospital(1000, 1, 2)
    common = Counter(rows_of(here)) & Counter(rows_of(there))
    found = overlap(Sketch.of(here), Sketch.of(there))
    assert found.n_again == common.total() > 10
    assert by_the_book(rows_of(here), rows_of(there))
    assert not found.is_counted_twice


def rows_of(log):
    fields = (log.states[:, 0], log.actions, log.rewards, log.next_states[:, 0], log.terminals, log.episodes)
    return list(zip(*(field.tolist() for field in fields)))


@pytest.mark.parametrize("n_patients, n_visits", [(1000, 1), (200, 5), (3000, 2)])
def test_patients_that_are_in_both_hospitals_are_noticed(n_patients, n_visits):
    here, there = hospital(n_patients, n_visits, 1), hospital(n_patients, n_visits, 2)
    for share in (0.25, 0.5, 1.0):
        shared = np.random.default_rng(0).random(n_patients) < share
        rows = np.repeat(shared, n_visits)
        assert is_twice(here, join([here[rows], there[~rows]]) if share < 1 else here[::-1])
        assert is_twice(here, here[rows])


def test_rows_that_are_unique_without_identifiers_are_noticed_with_them():
    log = continuous(500, 0, episodes=np.repeat(np.arange(50), 10))
    other = continuous(500, 1, episodes=np.repeat(np.arange(50), 10))
    assert not is_twice(log, other)
    assert is_twice(log, join([log[:50], other[50:]]))
    assert is_twice(log, log[40:44])


def test_one_patient_that_is_a_batch_in_both_hospitals_is_no_evidence():
    learnt = more(more(Sketch(), hospital(1000, 1, 0)), hospital(1, 1, 1))
    assert not overlap(learnt, Sketch.of(hospital(1, 1, 1))).is_counted_twice
