"""Sketches of what was learnt: the same for any split and order, and judged by sets of whole rows."""

import struct
from collections import Counter
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import Transitions, join, load_log
from kbrl.data import sketch as module
from kbrl.data.overlap import is_same_by_no_chance, overlap
from kbrl.data.sketch import LARGEST_HASH, LISTED, Sketch, transition_hashes

MASK = 2**64 - 1


def scrambled(key):
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & MASK
    return key ^ (key >> 31)


def hash_of_word(word):
    key = 0xCBF29CE484222325
    for letter in word:
        key = ((key ^ ord(letter)) * 0x100000001B3) & MASK
    return scrambled(key)


def hash_of_row(state, label, reward, next_state, ends, episode=None):
    """The hash as docs/model_file.md describes it, in plain Python."""
    key = 0x9E3779B97F4A7C15
    for number in (*state, reward, *next_state, float(ends)):
        key = scrambled(key ^ struct.unpack("<Q", struct.pack("<d", number + 0.0))[0])
    key = scrambled(key ^ hash_of_word(label))
    return key if episode is None else scrambled(key ^ hash_of_word(episode))


def continuous(n, seed, **fields):
    rng = np.random.default_rng(seed)
    numbers = (rng.random((n, 2)), rng.integers(3, size=n), rng.random(n), rng.random((n, 2)))
    return Transitions(*numbers, action_labels=[0, 1, 2], **fields)


def of_kinds(kinds):
    """Return a log of discrete rows: those of one kind are the same."""
    kinds = np.asarray(kinds, dtype=np.float64)
    return Transitions(kinds[:, None], np.zeros(len(kinds), dtype=int), kinds, kinds[:, None], action_labels=[0, 1])


def chain(n, seed):
    """Return a walk on five states, of which the last one pays; nothing tells episodes apart."""
    rng = np.random.default_rng(seed)
    moves, slips = rng.integers(2, size=n), rng.random(n) < 0.2
    states = [2]
    for move, slip in zip(moves, slips):
        states.append(min(4, max(0, states[-1] + (1 if (move == 1) != slip else -1))))
    rows = np.array(states, dtype=np.float64)[:, None]
    return Transitions(rows[:-1], moves, (rows[1:, 0] == 4).astype(float), rows[1:], action_labels=[0, 1])


def bits(sketch):
    return (sketch.n_rows, sketch.total, sketch.hashes.tolist(), sketch.counts.tolist(), sketch.largest)


def added(parts):
    total = Sketch()
    for part in parts:
        total = total + Sketch.of(part, largest=total.largest)
    return total


def test_the_hash_of_a_row_is_the_one_that_the_format_describes():
    log = Transitions(
        [[1.5, -0.0], [2.0, 3.0]], ["low", "ä"], [0.25, -1.0], [[0.0, 1e300], [5.0, 6.0]], [False, True], [7, 8]
    )  # fmt: skip
    rows = [((1.5, 0.0), "low", 0.25, (0.0, 1e300), False, "7"), ((2.0, 3.0), "ä", -1.0, (5.0, 6.0), True, "8")]
    assert transition_hashes(log).tolist() == [hash_of_row(*row) for row in rows]
    without = log.replaced(episodes=None)
    assert transition_hashes(without).tolist() == [hash_of_row(*row[:-1]) for row in rows]


@pytest.mark.parametrize("ids", [np.array([7, 8]), np.array([7.0, 8.0]), ["7", "8"], np.array([7, 8], dtype=object)])
def test_numbers_and_their_digits_are_the_same_label(ids):
    rows = ([[1.0], [2.0]], [0, 1], [0.0, 1.0], [[2.0], [3.0]])
    same = Transitions(*rows, episodes=[7, 8])
    assert transition_hashes(Transitions(*rows, episodes=ids)).tolist() == transition_hashes(same).tolist()
    assert transition_hashes(Transitions(*rows)).tolist() != transition_hashes(same).tolist()


def test_the_hash_is_of_labels_and_not_of_their_order():
    log = Transitions([[1.0], [2.0]], ["a", "b"], [0.0, 1.0], [[2.0], [3.0]])
    assert transition_hashes(log).tolist() == transition_hashes(log.with_actions(np.array(["b", "c", "a"]))).tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=150), st.randoms(use_true_random=False), st.integers(1, 20))
def test_any_split_and_order_gives_the_same_sketch_and_the_smallest_hashes_with_their_counts(kinds, random, listed):
    with patch.object(module, "LISTED", listed):
        log = of_kinds(kinds)
        whole, counted = Sketch.of(log), Counter(transition_hashes(log).tolist())
        smallest = sorted(counted)[:listed]
        largest = LARGEST_HASH if len(counted) <= listed else smallest[-1]
        total = sum(h * n for h, n in counted.items()) % 2**64
        assert bits(whole) == (len(kinds), total, smallest, [counted[h] for h in smallest], largest)
        order = list(range(len(kinds)))
        random.shuffle(order)
        cuts = sorted({0, len(order), *(random.randint(0, len(order)) for _ in range(4))})
        parts = [log[np.array(order[a:b])] for a, b in pairwise(cuts)]
        assert bits(added(parts)) == bits(whole)
        sketches = [Sketch.of(part) for part in reversed(parts)]
        assert bits(sum(sketches[1:], sketches[0])) == bits(whole)


def test_taking_rows_away_leaves_the_sketch_of_the_others_and_its_threshold():
    log = continuous(3000, 0)
    whole, rest = Sketch.of(log), Sketch.of(log[1000:])
    left = whole - Sketch.of(log[:1000])
    assert (left.n_rows, left.total, left.largest) == (rest.n_rows, rest.total, whole.largest)
    assert left.hashes.tolist() == [h for h in sorted(transition_hashes(log[1000:]).tolist()) if h <= whole.largest]
    assert len(left.hashes) < LISTED
    again = left + Sketch.of(log[:1000])
    assert bits(again) == bits(whole)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_rows_never_learnt_are_counted_as_multisets_count_them(learnt, others):
    missing = sum((Counter(others) - Counter(learnt)).values())
    assert (Sketch.of(of_kinds(learnt)).never_learnt(Sketch.of(of_kinds(others))) > 0) == (missing > 0)


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
    assert is_same_by_no_chance(Sketch.of(log), Sketch.of(again))


@pytest.mark.parametrize("kinds", [[1], [1, 1, 1, 1], [1, 2], [1, 2, 1, 2, 1, 2]])
def test_a_few_rows_that_are_all_there_is_may_well_come_again(kinds):
    assert not is_same_by_no_chance(Sketch.of(of_kinds(kinds)), Sketch.of(of_kinds(kinds)))


def test_episodes_that_were_numbered_on_reading_are_no_identifiers(tmp_path):
    rows = "x,y,action,reward,terminated\n" + "".join(f"{k},{k},{k % 2},1,{k % 3 == 2}\n" for k in range(12))
    (tmp_path / "a.csv").write_text(rows)
    (tmp_path / "b.csv").write_text("".join(line + "\n" for line in [rows.split("\n")[0], *rows.split("\n")[7:-1]]))
    whole, half = (load_log(tmp_path / f"{name}.csv", columns={"state": ["x", "y"]}) for name in "ab")
    assert set(transition_hashes(half).tolist()) < set(transition_hashes(whole).tolist())
