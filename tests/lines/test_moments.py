"""The sums of order 1: products around representative states, against loops, splits and shifts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbrl.data.scaling import Coordinates
from kbrl.lines.moments import LineSums, shifted, unpacked
from kbrl.model.kernels import Basis, Kernel
from samples import logs, random_log


def basis_of(log, n_reps=4, seed=0):
    rng = np.random.default_rng(seed)
    reps = log.states[:1] + rng.normal(size=(n_reps, log.n_dims))
    return Basis(reps, Coordinates.plain(log.n_dims), Kernel(), Kernel(), log.n_actions)


def sums_of(log, basis=None):
    return LineSums(basis or basis_of(log)).accumulate(log)


def assert_same(one, other, rtol=1e-12):
    scale = max(1.0, np.abs(one.moves).max(), np.abs(one.outcomes).max())
    for name in ("moves", "outcomes"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol, atol=rtol * scale)
    for name in ("counts", "rewards", "span"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_sums_are_those_of_a_loop_over_rows():
    log = random_log(60, n_dims=3, seed=1)
    basis = basis_of(log)
    sums = sums_of(log, basis)
    d = log.n_dims
    moves, outcomes = unpacked(sums.moves), unpacked(sums.outcomes)
    expected_moves, expected_outcomes = np.zeros_like(moves), np.zeros_like(outcomes)
    for s, a, r, t, end in zip(log.states, log.action_indices, log.rewards, log.next_states, log.terminals):
        cell = int(np.argmin(((basis.reps - s) ** 2).sum(axis=1)))
        x = s - basis.reps[cell]
        outcome = np.concatenate([[1.0], x, [r, float(end)]])
        expected_outcomes[a, cell] += np.outer(outcome, outcome)
        if not end:
            move = np.concatenate([[1.0], x, t - s])
            expected_moves[a, cell] += np.outer(move, move)
    assert moves.shape[-1] == 1 + 2 * d
    np.testing.assert_allclose(moves, expected_moves, atol=1e-12)
    np.testing.assert_allclose(outcomes, expected_outcomes, atol=1e-12)


@given(logs(max_rows=25), st.integers(0, 25))
def test_sums_of_the_parts_add_up_to_those_of_the_whole(log, cut):
    basis = basis_of(log)
    whole = sums_of(log, basis)
    parts = [rows for rows in np.split(np.arange(len(log)), [cut]) if len(rows)]
    total = LineSums(basis)
    for rows in parts:
        total = total + sums_of(log[rows], basis)
    assert_same(total, whole)


def test_the_order_of_the_rows_and_the_number_of_threads_do_not_matter():
    log = random_log(3000, seed=2)
    basis = basis_of(log)
    whole = sums_of(log, basis)
    shuffled = log[np.random.default_rng(0).permutation(len(log))]
    assert_same(sums_of(shuffled, basis), whole)
    twice = LineSums(basis).accumulate(log, n_jobs=2)
    np.testing.assert_array_equal(twice.moves, whole.moves)


@pytest.mark.parametrize("cuts", [[1], [500, 501, 502], [1300, 2999], [17, 2**14, 2**14 + 3]])
def test_sums_are_the_same_bits_however_the_rows_are_cut_as_long_as_their_order_is_kept(cuts):
    log = random_log(20_000, n_dims=3, seed=9, ending=0.1)
    basis = basis_of(log, n_reps=30)
    whole, parts = sums_of(log, basis), LineSums(basis)
    for rows in np.split(np.arange(len(log)), cuts):
        parts.accumulate(log[rows])
    for name in ("moves", "outcomes", "counts", "rewards", "span"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_transitions_that_are_taken_away_leave_the_sums_of_the_others():
    log = random_log(200, seed=3)
    basis = basis_of(log)
    left = sums_of(log, basis) - sums_of(log[:120], basis)
    expected = sums_of(log[120:], basis)
    np.testing.assert_allclose(left.moves, expected.moves, atol=1e-11)
    np.testing.assert_allclose(left.outcomes, expected.outcomes, atol=1e-11)
    assert (left.rewards[..., 0] <= expected.rewards[..., 0]).all()  # only bounds are left


def test_transitions_that_were_never_added_cannot_be_taken_away():
    log = random_log(50, seed=4)
    basis = basis_of(log)
    once, twice = sums_of(log[:1], basis), sums_of(log[:1], basis) + sums_of(log[:1], basis)
    with pytest.raises(ValueError, match="some of these were not: in 1 cells more would be taken away"):
        once - twice


def test_moments_move_exactly_from_one_centre_to_another():
    log = random_log(80, n_dims=2, seed=5)
    here, there = basis_of(log, n_reps=1, seed=0), basis_of(log, n_reps=1, seed=1)
    moved = shifted(sums_of(log, here).moves[:, 0], here.reps[0] - there.reps[0])
    np.testing.assert_allclose(moved, sums_of(log, there).moves[:, 0], atol=1e-10)


def test_without_a_representative_state_the_nearest_of_the_others_takes_over():
    log = random_log(80, seed=6)
    basis = basis_of(log, n_reps=5)
    kept = np.array([True, False, True, True, False])
    small = Basis(basis.reps[kept], basis.coordinates, Kernel(), Kernel(), log.n_actions)
    sums = sums_of(log, basis).without(small, kept)
    assert sums.cases.sum() == len(log)
    one = Basis(basis.reps[:1], basis.coordinates, Kernel(), Kernel(), log.n_actions)
    of_one = sums_of(log, basis).without(one, np.array([True, False, False, False, False]))
    assert_same(of_one, sums_of(log, one), rtol=1e-10)


def test_further_representative_states_begin_without_data():
    log = random_log(40, seed=7)
    basis = basis_of(log, n_reps=3)
    more = Basis(np.vstack([basis.reps, [[9.0, 9.0]]]), basis.coordinates, Kernel(), Kernel(), log.n_actions)
    sums = sums_of(log, basis)
    grown = sums.on(more)
    assert (grown.cases[:, 3] == 0).all()
    np.testing.assert_array_equal(grown.moves[:, :3], sums.moves)
    grown.accumulate(log)
    assert sums.cases.sum() == len(log)  # nothing is shared
