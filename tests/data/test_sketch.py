"""Sketches of what was learnt: the same for any split and order, and judged by sets of whole rows."""

import struct
from collections import Counter
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import Transitions, load_log
from kbrl.data import sketch as module
from kbrl.data.sketch import LARGEST_HASH, LISTED, LISTED_BATCHES, LISTED_EPISODES, Sketch, transition_hashes
from sketched_logs import added, continuous, hospital, more, of_kinds

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


def bits(sketch):
    lists = [sketch.hashes.tolist(), sketch.counts.tolist(), sketch.contents.tolist(), sketch.episodes.tolist()]
    return (sketch.n_rows, sketch.total, sketch.largest, *lists)


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
        assert bits(whole) == (len(kinds), total, largest, smallest, [counted[h] for h in smallest], smallest, [])
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


def test_episodes_that_were_numbered_on_reading_are_no_identifiers(tmp_path):
    rows = "x,y,action,reward,terminated\n" + "".join(f"{k},{k},{k % 2},1,{k % 3 == 2}\n" for k in range(12))
    (tmp_path / "a.csv").write_text(rows)
    (tmp_path / "b.csv").write_text("".join(line + "\n" for line in [rows.split("\n")[0], *rows.split("\n")[7:-1]]))
    whole, half = (load_log(tmp_path / f"{name}.csv", columns={"state": ["x", "y"]}) for name in "ab")
    assert set(transition_hashes(half).tolist()) < set(transition_hashes(whole).tolist())


@pytest.mark.parametrize("n_patients, n_visits", [(40, 3), (700, 2)])
def test_contents_are_the_rows_without_identifiers_and_episodes_the_smallest_identifiers(n_patients, n_visits):
    log = hospital(n_patients, n_visits, 0)
    whole, without = Sketch.of(log), log.replaced(episodes=None)
    contents = dict(zip(transition_hashes(log).tolist(), transition_hashes(without).tolist()))
    assert whole.contents.tolist() == [contents[h] for h in whole.hashes.tolist()]
    ids = sorted(hash_of_word(str(number)) for number in range(1, n_patients + 1))
    assert whole.episodes.tolist() == ids[:LISTED_EPISODES]
    assert abs(whole.n_episodes - n_patients) <= (0 if n_patients < LISTED_EPISODES else 0.2 * n_patients)
    order = np.random.default_rng(0).permutation(len(log))
    assert bits(added([log[part] for part in np.array_split(order, 9)])) == bits(whole)
    assert bits(Sketch.of(without))[-1] == []


def test_batches_are_known_by_number_and_sum_the_largest_of_them_and_not_their_parts():
    logs = [continuous(n, n) for n in range(1, LISTED_BATCHES + 10)]
    sums = [(len(log), int(transition_hashes(log).sum(dtype=np.uint64))) for log in logs]
    total = Sketch()
    for log in logs:
        total = more(total, log)
    assert list(total.batches) == sums[::-1][:LISTED_BATCHES]
    assert added(logs).batches == ()
    half = more(more(Sketch(), logs[0]), logs[1])
    other = more(Sketch(), logs[2])
    assert (half + other).batches == (other + half).batches == tuple(sums[:3][::-1])
    assert (half - Sketch.of(logs[0])).batches == ()


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_the_canonical_order_is_that_of_all_keys_one_by_one(n):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        states = rng.choice([-1.0, -0.0, 0.0, 2.5], size=(n, 1 + seed % 3))
        outcome = [*rng.integers(0, 2, size=(2, n)).astype(np.float64), rng.random(n) < 0.5]
        expected = np.lexsort([*outcome, module.row_hashes(outcome), *states.T])
        np.testing.assert_array_equal(module.canonical_order(states, outcome), expected)
