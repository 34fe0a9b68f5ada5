"""The inner loops of the kernels, compiled.

Distances are counted in widths (z); a kernel value is always taken relative to a reference,
exp(log phi(z) - log phi(z_ref)), so that no width underflows.  `kbrl.model.kernels` has the same in NumPy, and
the tests hold the two against each other.

``kind`` is a tuple of which only the length counts: the profile's place in `kbrl.profiles`.  The length of a tuple
belongs to its type, so each profile gets its own code.  The number of state variables does not: code for each number,
with the sum over them unrolled, is up to a fifth faster, but takes seconds to compile.  Distances here are Euclidean.

fastmath=True would let the compiler undo the rounding trick of the exponential, so only a subset is allowed, and
the exponential has less of it; numba's inline="always" would forget the difference.
"""

from math import sqrt
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numba.extending import overload

from kbrl import profiles
from kbrl.arrays import Floats, Integers
from kbrl.mdp.dynamic_programming import TIE
from kbrl.numba_cache import inner, njit
from kbrl.profiles import PROFILES

FAST = {"reassoc", "contract", "arcp", "nsz", "afn", "nnan"}
LANES = 16  # a minimum is kept in this many lanes: the compiler does not vectorise a single running minimum
CLOSE = 1e-12  # squared distances with a smaller relative difference may be equal but for rounding
FARTHEST = 1e150  # in widths; its square is still finite


Kind = tuple[int, ...]

_SMALLEST = -707.0  # exp of anything smaller would be denormal, and slow: it is taken for zero
_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_ROUNDER = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest whole number in the lowest bits


_NAMES = list(PROFILES)
_FINGERPRINT = f"{crc32(Path(profiles.__file__).read_bytes()):08x}"


def kind_of(profile: str) -> Kind:
    """Return the kind for which a loop is to be compiled."""
    return (0,) * _NAMES.index(profile)


def _kernel_loop(function: Any, **options: Any) -> Any:
    """Compile a loop over kernel values.

    numba names its file on disk after the function and does not notice changes in other files, so the name
    says from which profiles the code is made.
    """
    function.__qualname__ = f"{function.__name__}_{_FINGERPRINT}"
    return njit(cache=True, nogil=True, **options)(function)


def _fast_kernel_loop(function: Any) -> Any:
    return _kernel_loop(function, fastmath=FAST)


@inner(cache=False, fastmath={"contract"})
def exp_of_nonpositive(x: float) -> float:
    """exp(x) for x <= 0 to one unit in the last place, and 0 below exp(-707)."""
    is_zero = x < _SMALLEST
    x = max(x, _SMALLEST)
    rounded = x * _LOG2_E + _ROUNDER
    whole = rounded - _ROUNDER
    r = (x - whole * _LN2_HIGH) - whole * _LN2_LOW
    # Chebyshev interpolation of exp on [-ln 2 / 2, ln 2 / 2]; relative error 1.7e-17.
    p = 2.5110049204818658e-08
    p = p * r + 2.763265472252779e-07
    p = p * r + 2.755724088722987e-06
    p = p * r + 2.4801485441561313e-05
    p = p * r + 0.00019841269890076403
    p = p * r + 0.0013888888952352863
    p = p * r + 0.008333333333319589
    p = p * r + 0.04166666666648795
    p = p * r + 0.1666666666666668
    p = p * r + 0.5000000000000019
    p = p * r + 1.0
    p = p * r + 1.0
    bits = np.float64(p).view(np.int64) + (np.float64(rounded).view(np.int64) << 52)
    return 0.0 if is_zero else np.int64(bits).view(np.float64)


def _log_ratio(z: float, z_ref: float, kind: Kind) -> float:
    """log phi(z) - log phi(z_ref) of the profile of a kind."""
    return PROFILES[_NAMES[len(kind)]](z, z_ref)


@overload(_log_ratio)
def _log_ratio_of_kind(z: Any, z_ref: Any, kind: Any) -> Any:
    """Choose the profile while a loop is compiled: numba passes the types of the arguments."""
    profile = njit()(PROFILES[_NAMES[len(kind)]])

    def chosen(z: Any, z_ref: Any, kind: Any) -> Any:
        return profile(z, z_ref)

    return chosen


@_kernel_loop
def fill_log_ratios(z: Floats, z_ref: Floats, out: Floats, kind: Kind) -> None:
    """out[i] = log phi(z[i]) - log phi(z_ref[i])."""
    for i in range(len(out)):
        out[i] = _log_ratio(z[i], z_ref[i], kind)


@inner(cache=False, fastmath=FAST)
def _relative(z: float, z_ref: float, kind: Kind) -> float:
    """phi(z) / phi(z_ref) for z >= z_ref; where phi(z_ref) is 0, only what is as near as z_ref counts."""
    return exp_of_nonpositive(_log_ratio(z, z_ref, kind))


@inner(cache=False, fastmath=FAST)
def _fill_distances(state: Any, points: Any, inverse_widths: Any, z: Any) -> None:
    """z[i] = distance of the state to point i in widths; four variables at a time, for fewer passes over z."""
    last = 4 * ((len(state) - 1) // 4)  # the first variable of the last one to four
    z[:] = 0.0
    for k in range(0, last, 4):
        a, b, c, d = state[k], state[k + 1], state[k + 2], state[k + 3]
        at_a, at_b, at_c, at_d = points[k], points[k + 1], points[k + 2], points[k + 3]
        for i in range(len(z)):
            z[i] += (a - at_a[i]) ** 2 + (b - at_b[i]) ** 2 + (c - at_c[i]) ** 2 + (d - at_d[i]) ** 2
    a, at_a = state[last], points[last]
    if len(state) - last == 1:
        for i in range(len(z)):
            total = z[i] + (a - at_a[i]) ** 2
            z[i] = min(sqrt(total) * inverse_widths[i], FARTHEST)
        return
    b, at_b = state[last + 1], points[last + 1]
    if len(state) - last == 2:
        for i in range(len(z)):
            total = z[i] + (a - at_a[i]) ** 2 + (b - at_b[i]) ** 2
            z[i] = min(sqrt(total) * inverse_widths[i], FARTHEST)
        return
    c, at_c = state[last + 2], points[last + 2]
    if len(state) - last == 3:
        for i in range(len(z)):
            total = z[i] + (a - at_a[i]) ** 2 + (b - at_b[i]) ** 2 + (c - at_c[i]) ** 2
            z[i] = min(sqrt(total) * inverse_widths[i], FARTHEST)
        return
    d, at_d = state[last + 3], points[last + 3]
    for i in range(len(z)):
        total = z[i] + (a - at_a[i]) ** 2 + (b - at_b[i]) ** 2 + (c - at_c[i]) ** 2 + (d - at_d[i]) ** 2
        z[i] = min(sqrt(total) * inverse_widths[i], FARTHEST)


@inner(cache=False, fastmath=FAST)
def _smallest(z: Any, lanes: Any) -> float:
    n_blocks = len(z) // LANES
    for lane in range(LANES):
        lanes[lane] = np.inf
    for block in range(n_blocks):
        for lane in range(LANES):
            lanes[lane] = min(lanes[lane], z[block * LANES + lane])
    least = np.inf
    for lane in range(LANES):
        least = min(least, lanes[lane])
    for i in range(n_blocks * LANES, len(z)):
        least = min(least, z[i])
    return least


@_fast_kernel_loop
def normalize_rows(states: Floats, points: Floats, inverse_widths: Floats, out: Floats, kind: Kind) -> None:
    """out[t, i] = kernel(state t, point i) / its sum over points; points are (n_dims, n_points)."""
    lanes = np.empty(LANES)
    for t in range(len(states)):
        row = out[t]
        _fill_distances(states[t], points, inverse_widths, row)
        nearest = _smallest(row, lanes)
        total = 0.0
        for i in range(len(row)):
            value = _relative(row[i], nearest, kind)
            row[i] = value
            total += value
        share = 1.0 / total
        for i in range(len(row)):
            row[i] *= share


@njit(cache=True, nogil=True, fastmath=FAST)
def scaled_distances(states: Floats, points: Floats, inverse_widths: Floats, out: Floats, nearest: Floats) -> None:
    """out[t, i] = distance of state t to point i in widths; nearest[i] falls to the column's minimum."""
    for t in range(len(states)):
        row = out[t]
        _fill_distances(states[t], points, inverse_widths, row)
        for i in range(len(row)):
            nearest[i] = min(nearest[i], row[i])


@_fast_kernel_loop
def sample_values(
    z: Floats, nearest: Floats, rewards: Floats, weight: Floats, squared: Floats, reward_sum: Floats, kind: Kind
) -> None:
    """Turn distances into kernel values relative to the nearest, in place, and add to the three sums."""
    for t in range(len(z)):
        row = z[t]
        reward = rewards[t]
        for i in range(len(row)):
            value = _relative(row[i], nearest[i], kind)
            row[i] = value
            weight[i] += value
            squared[i] += value * value
            reward_sum[i] += reward * value


@njit(cache=True, nogil=True)
def first_best(values: Floats) -> int:
    """Return the first of the largest values, as `dynamic_programming.best_actions` does: rounding does not decide."""
    top, size = -np.inf, 0.0
    for value in values:
        top = max(top, value)
        if value > -np.inf:
            size = max(size, abs(value))
    for a in range(len(values)):
        if values[a] >= top - TIE * size:
            return a
    return 0


@_fast_kernel_loop
def decide(state: Floats, points: Floats, inverse_widths: Floats, rep_q: Floats, kind: Kind) -> int:
    """Return the greedy action of one state; rep_q is finite, (n_actions, n_reps)."""
    lanes, z = np.empty(LANES), np.empty(points.shape[1])  # of its own: threads may ask at the same time
    _fill_distances(state, points, inverse_widths, z)
    nearest = _smallest(z, lanes)
    for i in range(len(z)):
        z[i] = _relative(z[i], nearest, kind)
    values = np.empty(len(rep_q))  # times the sum of z, which does not change which one is the best
    for a in range(len(rep_q)):
        value = 0.0
        for i in range(len(z)):
            value += z[i] * rep_q[a, i]
        values[a] = value
    return first_best(values)


@njit(cache=True, nogil=True)
def _keep_smallest(values: Floats, smallest: Floats, places: Integers) -> None:
    """Fill ``smallest`` with as many of the smallest values, in order, and their places; of equals the first counts."""
    smallest[:] = np.inf
    last = len(smallest) - 1
    for i in range(len(values)):
        if values[i] < smallest[last]:
            rank = last
            while rank > 0 and smallest[rank - 1] > values[i]:
                smallest[rank], places[rank] = smallest[rank - 1], places[rank - 1]
                rank -= 1
            smallest[rank], places[rank] = values[i], i


@njit(cache=True, nogil=True)
def smallest_of_rows(values: Floats, smallest: Floats, places: Integers) -> None:
    """Fill ``smallest`` and ``places``, (n, k), with the k smallest values of each row and their columns."""
    for t in range(len(values)):
        _keep_smallest(values[t], smallest[t], places[t])


@njit(cache=True, nogil=True)
def _squares(state: Floats, points: Floats) -> Floats:
    """Return the squared distances to the points, the same bits wherever they are computed: no fast arithmetic."""
    squares = np.zeros(points.shape[1])
    for k in range(points.shape[0]):
        for i in range(len(squares)):
            squares[i] += (state[k] - points[k, i]) ** 2
    return squares


@njit(cache=True, nogil=True)
def _in_widths(state: Floats, points: Floats, inverse_widths: Floats) -> Floats:
    return np.minimum(np.sqrt(_squares(state, points)) * inverse_widths, FARTHEST)


@njit(cache=True, nogil=True)
def nearest_in_widths(states: Floats, points: Floats, inverse_widths: Floats, z: Floats, places: Integers) -> None:
    """Fill z and places, (n_states, k): the points with the largest kernel values, if each has its own width.

    No profile rises, so these are the points that are the fewest of their own widths away.
    """
    for t in range(len(states)):
        _keep_smallest(_in_widths(states[t], points, inverse_widths), z[t], places[t])


@_kernel_loop
def decide_in_widths(
    state: Floats, points: Floats, n_neighbors: int, inverse_widths: Floats, rep_q: Floats, kind: Kind
) -> int:
    """Return the greedy action by the points with the largest kernel values, as `nearest_in_widths` finds them."""
    z, places = np.empty(n_neighbors), np.zeros(n_neighbors, dtype=np.intp)
    _keep_smallest(_in_widths(state, points, inverse_widths), z, places)
    return _decide_by(z, places, rep_q, kind)


@_kernel_loop
def decide_nearest(
    state: Floats, points: Floats, n_neighbors: int, inverse_widths: Floats, rep_q: Floats, kind: Kind
) -> int:
    """Return the greedy action by the nearest points, or -1 where rounding would decide which they are."""
    nearest, places = np.empty(n_neighbors + 1), np.zeros(n_neighbors + 1, dtype=np.intp)
    _keep_smallest(_squares(state, points), nearest, places)
    if nearest[-1] <= nearest[-2] * (1 + CLOSE):
        return -1
    return decide_near(np.sqrt(nearest[:-1]), places[:-1], inverse_widths, rep_q, kind)


@_kernel_loop
def decide_near(distances: Floats, places: Integers, inverse_widths: Floats, rep_q: Floats, kind: Kind) -> int:
    """Return the greedy action by some points at these distances."""
    return _decide_by(np.minimum(distances * inverse_widths[places], FARTHEST), places, rep_q, kind)


@_kernel_loop
def _decide_by(z: Floats, places: Integers, rep_q: Floats, kind: Kind) -> int:
    """Return the greedy action from the distances in widths; rep_q, (n_reps, n_actions), is -inf where unknown.

    The weight of points that know nothing of an action is shared among those that do.
    """
    nearest = z.min()
    total, mass = np.zeros(rep_q.shape[1]), np.zeros(rep_q.shape[1])
    for k in range(len(z)):
        weight = _relative(z[k], nearest, kind)
        for a in range(len(total)):
            value = rep_q[places[k], a]
            if value > -np.inf:
                total[a] += weight * value
                mass[a] += weight
    for a in range(len(total)):
        total[a] = total[a] / mass[a] if mass[a] > 0 else -np.inf
    return first_best(total)
