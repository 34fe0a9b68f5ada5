"""Ways to choose the representative states from the states that were reached.

The error bound of proposition 3 shrinks with the largest distance from a next state to its nearest representative
state.  k-means, the paper's choice, keeps the mean squared distance small; farthest points and covers keep the largest
one small, and so, nearly, do means spread over the farthest points; the means of a mixture of Gaussians follow the
density.  Points are in scaled coordinates; no result has a row twice.  Distances are Euclidean, except where a cover is
given another norm.

Paper: sections 4.3 and 6.2 ("KBSF's configuration"); the on-line growth rule is in section 5.
"""

import warnings

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Floats, Integers
from kbrl.checks import KbrlWarning, one_of, positive, whole
from kbrl.model.kernels import Kernel, blocks, distances_between, nearest_points
from kbrl.numba_cache import inner, njit
from kbrl.settings import WAYS, Settings
from kbrl.threads import one_blas_thread

# k-means: points for each centre in the sample (fewer beyond the limit), Lloyd steps, the relative gain that each must
# bring, passes to find a start (4 to 7 are usual).  Measured: with all points the mean squared distance is 1 to 3 %
# smaller, with two more steps at most 1 %.
_SAMPLE_PER_REP, _LEAST_SAMPLE_PER_REP, _SAMPLE_LIMIT = 50, 10, 500_000
_STEPS, _LEAST_GAIN, _PASSES = 8, 0.005, 20
# Mixtures: the most steps, the gain in log-likelihood per point that each must bring, and what keeps a component from
# shrinking to a point, in relation to the sample's variance; both as in scikit-learn, which this replaces.
_EM_STEPS, _LEAST_LIKELIHOOD_GAIN, _LEAST_VARIANCE, _EM_ENTRIES = 100, 1e-3, 1e-6, 2**21
# Spread means: points whose mean stands for a farthest point.
_AROUND = 3
# Farthest points: neighbouring points that are looked at, or passed over, together.
_BLOCK = 64


def choose(
    points: Floats,
    how: str,
    n_reps: int | None,
    rng: np.random.Generator,
    *,
    cover_distance: float | None = None,
    norm: float = 2.0,
) -> Floats:
    """Choose representative states, (m, n_dims), and warn if there are fewer than asked for.

    ``how`` is one of `WAYS`.  "cover" takes as many as ``cover_distance`` needs, unless ``n_reps`` limits them.
    """
    one_of(how, WAYS, "reps")
    if how == "cover":
        reps, remark = _choose_cover(points, cover_distance, n_reps, norm)
    elif how == "grid":
        reps, remark = _choose_grid(points, whole(n_reps, "n_reps"))
    else:
        reps, remark = _choose_number(points, how, whole(n_reps, "n_reps"), rng)
    if remark:
        # shown at the line that called the caller: the user's call of fit
        warnings.warn(remark, KbrlWarning, stacklevel=3)
    return reps


def _choose_cover(points: Floats, distance: float | None, n_reps: int | None, norm: float) -> tuple[Floats, str]:
    if distance is None:
        raise ValueError("reps='cover' needs cover_distance, but it is None. Pass a distance in scaled units, say 0.5.")
    distance = positive(distance, "cover_distance")
    if n_reps is None:
        return cover(points, distance, norm=norm), ""
    n_reps = whole(n_reps, "n_reps")
    reps = cover(points, distance, max_reps=n_reps + 1, norm=norm)
    remark = (
        f"cover_distance={distance:g} needs more than n_reps={n_reps} representative states: "
        f"using {n_reps}, and some next states are farther than that from all of them."
    )
    return reps[:n_reps], remark if len(reps) > n_reps else ""


def _choose_grid(points: Floats, n_reps: int) -> tuple[Floats, str]:
    reps = grid(points, n_reps)
    remark = (
        f"n_reps={n_reps}, but the largest regular grid within it is smaller: using {len(reps)} representative states."
    )
    return reps, remark if len(reps) < n_reps else ""


def _choose_number(points: Floats, how: str, n_reps: int, rng: np.random.Generator) -> tuple[Floats, str]:
    distinct = _first_distinct(points, n_reps + 1)
    if len(distinct) > n_reps:
        ways = {"k-means": k_means, "random": random_points, "farthest": farthest_points, "mixture": mixture_means}
        ways["spread"] = spread_means
        return ways[how](points, n_reps, rng), ""
    m = len(distinct)
    remark = f"n_reps={n_reps}, but the next states have only {m} distinct values: using {m} representative states."
    return _rows(points)[distinct], remark if m < n_reps else ""


def growth_distance(settings: Settings) -> float | None:
    """Return how far a state must be from all representative states to become one, in scaled units; None: never."""
    growth = settings.growth
    if growth.below is None:
        return growth.distance
    return Kernel(settings.rep_width, settings.variant.profile).reach(growth.below)


def distinct_rows(reps: Floats, name: str) -> Floats:
    """Drop the rows that equal an earlier one, and say how many."""
    reps = _rows(reps)
    kept = _first_distinct(reps, len(reps))
    if len(kept) < len(reps):
        dropped = f"{name} has {len(reps)} rows, but {len(reps) - len(kept)} of them equal an earlier one"
        warnings.warn(f"{dropped}: using {len(kept)} representative states.", KbrlWarning, stacklevel=3)
    return reps[kept]


def nearest_distances(points: Floats, reps: Floats) -> Floats:
    """Return each point's distance to its nearest representative state, (n,); d(s, 1) in the paper."""
    return np.asarray(cKDTree(reps).query(points)[0])


def random_points(points: Floats, n_reps: int, rng: np.random.Generator) -> Floats:
    """Draw points uniformly without replacement, passing over values drawn before."""
    shuffled = _rows(points)[rng.permutation(len(points))]
    return shuffled[_first_distinct(shuffled, n_reps)]


def grid(points: Floats, n_reps: int) -> Floats:
    """Lay a regular grid over the points' bounding box, with as many levels in each variable as n_reps allows.

    A variable that never changes has one level; so do all if n_reps is below 2**n_dims: then the grid is the centre of
    the box.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    n_levels = _whole_root(n_reps, max(1, int((low < high).sum())))
    levels = [_levels(a, b, n_levels) for a, b in zip(low, high)]
    return np.ascontiguousarray(np.stack(np.meshgrid(*levels, indexing="ij"), axis=-1).reshape(-1, len(levels)))


def _whole_root(number: int, degree: int) -> int:
    """Return the largest k with k**degree <= number."""
    k = round(number ** (1 / degree))
    return k if k**degree <= number else k - 1


def _levels(low: float, high: float, n_levels: int) -> Floats:
    if n_levels == 1 or low == high:
        return np.array([low + (high - low) / 2])
    # levels come out equal where the limits are too close for n_levels different numbers
    return np.unique(np.clip(np.linspace(low, high, n_levels), low, high))


def farthest_points(points: Floats, n_reps: int, rng: np.random.Generator) -> Floats:
    """Start at a random point and add the point farthest from those present, again and again.

    The largest distance to a representative state is at most twice the smallest that n_reps points can
    have (Gonzalez 1985, "Clustering to minimize the maximum intercluster distance").
    """
    # neighbours in a tree are neighbours in its order
    points = _rows(points)[cKDTree(points, _BLOCK, balanced_tree=False, compact_nodes=False).indices]
    starts = np.arange(0, len(points), _BLOCK)
    lows, highs = np.minimum.reduceat(points, starts), np.maximum.reduceat(points, starts)
    chosen = _farthest(points, lows, highs, int(rng.integers(len(points))), min(n_reps, len(points)))
    return _filled(points[chosen], points, n_reps)


def spread_means(points: Floats, n_reps: int, rng: np.random.Generator) -> Floats:
    """Return the means of the three points around each of the farthest points: they reach as far as the data do.

    Unlike the farthest points themselves, none is a row of the data, unless that row comes three times.
    """
    points = _rows(points)
    sample = _sample(points, n_reps, rng)
    centres = farthest_points(sample, n_reps, rng)
    nearest = cKDTree(sample).query(centres, k=[*range(1, min(_AROUND, len(sample)) + 1)])[1]
    shifts = (sample[nearest] - centres[:, None]).mean(axis=1)  # exact where all are equal
    return _within(centres + shifts, sample, points, n_reps)


def cover(
    points: Floats,
    distance: float,
    *,
    start: Floats | None = None,
    max_reps: int | None = None,
    norm: float = 2.0,
) -> Floats:
    """Go through the points in order and add each that is farther than ``distance`` from all present ones.

    ``start`` are those present before, and the first rows of the result.  The paper grows its model like this.
    Distances are by the Minkowski norm of order ``norm``.
    """
    points = _rows(points)
    reps = np.empty((0, points.shape[1])) if start is None else _rows(start)
    limit = len(reps) + len(points) if max_reps is None else max_reps
    if norm == 2:
        farthest = float(distance) * float(distance)  # infinite where ** would raise an error
        return _grow(points, np.full(len(points), farthest), reps, limit)
    return _cover_by_norm(points, float(distance), reps, limit, norm)


def _cover_by_norm(points: Floats, distance: float, reps: Floats, limit: int, norm: float) -> Floats:
    """The same as `_grow`, a point at a time: few become representative states, so only these cost a pass."""
    near = np.zeros(len(points), dtype=bool)
    if len(reps):
        near = nearest_points(cKDTree(reps), points, [1], norm)[0][:, 0] <= distance
    added: list[Floats] = []
    while not near.all() and len(reps) + len(added) < limit:
        first = int(np.argmin(near))
        added.append(points[first])
        near[: first + 1] = True
        near[first:] |= distances_between(points[first:], points[first : first + 1], norm)[:, 0] <= distance
    return np.concatenate([reps, *(row[None] for row in added)])


def k_means(points: Floats, n_reps: int, rng: np.random.Generator) -> Floats:
    """Return the centres of clusters with a small mean squared distance, by Lloyd steps on a random sample."""
    points = _rows(points)
    sample = _sample(points, n_reps, rng)
    return _within(_lloyd(sample, _k_means_start(sample, n_reps, rng)), sample, points, n_reps)


def mixture_means(points: Floats, n_reps: int, rng: np.random.Generator) -> Floats:
    """Return the means of a mixture of Gaussians fitted to a random sample: EM, starting from k-means.

    Each component has its own variance in each variable (a diagonal covariance).
    """
    points = _rows(points)
    sample = _sample(points, n_reps, rng)
    centre, spread = sample.mean(axis=0), sample.std(axis=0)
    spread[spread == 0] = 1.0
    start = _lloyd(sample, _k_means_start(sample, n_reps, rng))
    with one_blas_thread():  # the same means whatever the number of threads
        means = _expectation_maximization((sample - centre) / spread, (start - centre) / spread)
    return _within(centre + means * spread, sample, points, n_reps)


def _sample(points: Floats, n_reps: int, rng: np.random.Generator) -> Floats:
    """Draw as many points as clusters of this number need, in random order."""
    size = max(_LEAST_SAMPLE_PER_REP * n_reps, min(_SAMPLE_PER_REP * n_reps, _SAMPLE_LIMIT))
    return points[rng.permutation(len(points))[:size]]


def _within(centres: Floats, sample: Floats, points: Floats, n_reps: int) -> Floats:
    """Return different centres, each within the range of its points despite rounding."""
    return _filled(np.clip(centres, sample.min(axis=0), sample.max(axis=0)), points, n_reps)


def _expectation_maximization(sample: Floats, means: Floats) -> Floats:
    """Return the means of a mixture that starts as the points nearest to each of the means."""
    nearest = cKDTree(means).query(sample)[1]
    counts: Floats = np.bincount(nearest, minlength=len(means)).astype(np.float64)
    first, second = np.zeros_like(means), np.zeros_like(means)
    np.add.at(first, nearest, sample)
    np.add.at(second, nearest, sample**2)
    before = -np.inf
    for _ in range(_EM_STEPS):
        shares = counts + 10 * np.finfo(np.float64).eps  # a component may have lost all its points
        means = first / shares[:, None]
        variances = np.maximum(second / shares[:, None] - means**2, 0.0) + _LEAST_VARIANCE
        counts, first, second, likelihood = _expected_sums(sample, means, variances, np.log(shares / shares.sum()))
        if likelihood - before < _LEAST_LIKELIHOOD_GAIN:
            break
        before = likelihood
    return means


def _expected_sums(
    sample: Floats, means: Floats, variances: Floats, log_shares: Floats
) -> tuple[Floats, Floats, Floats, float]:
    """Return the sums of 1, x and x^2 that belong to each component, and the mean log-likelihood."""
    counts, first, second, total = np.zeros(len(means)), np.zeros_like(means), np.zeros_like(means), 0.0
    constant = log_shares - 0.5 * (np.log(2 * np.pi * variances) + means**2 / variances).sum(axis=1)
    for rows in blocks(len(sample), max(1, _EM_ENTRIES // len(means))):
        x = sample[rows]
        logs = constant + x @ (means / variances).T - 0.5 * x**2 @ (1 / variances).T
        largest = logs.max(axis=1, keepdims=True)
        belongs = np.exp(logs - largest)
        sums = belongs.sum(axis=1, keepdims=True)
        belongs /= sums
        counts += belongs.sum(axis=0)
        first += belongs.T @ x
        second += belongs.T @ x**2
        total += float((largest + np.log(sums)).sum())
    return counts, first, second, total / len(sample)


def _k_means_start(sample: Floats, n_reps: int, rng: np.random.Generator) -> Floats:
    """Draw each centre with probability proportional to the squared distance from those before it.

    This is k-means++ (Arthur and Vassilvitskii 2007) without its n_reps passes over the sample: half of the centres
    at a time are proposed by the distances of the last pass, and accepted by the ratio of the present distance.
    """
    batch = -(-n_reps // 2)
    centres = new = sample[:1]  # the sample is in random order
    squares = np.full(len(sample), np.inf)
    for _ in range(_PASSES):
        squares = np.minimum(squares, nearest_distances(sample, new) ** 2)
        sums = np.cumsum(squares / len(sample))
        if len(centres) == n_reps or sums[-1] == 0:
            break
        drawn = np.searchsorted(sums, rng.random(batch) * sums[-1], side="right").clip(max=len(sample) - 1)
        new = _grow(sample[drawn], squares[drawn] * rng.random(batch), sample[:0], n_reps - len(centres))
        centres = np.concatenate([centres, new])
    return _filled(centres, sample, n_reps)


def _lloyd(sample: Floats, centres: Floats) -> Floats:
    """Move each centre to the mean of the points nearest to it until that gains little."""
    before = np.inf
    for _ in range(_STEPS):
        distances, nearest = cKDTree(centres).query(sample)
        mean_square = np.dot(distances / len(sample), distances)
        if mean_square >= (1 - _LEAST_GAIN) * before:
            break
        before = mean_square
        centres = _means(sample, centres, distances, nearest)
    return centres


def _means(sample: Floats, centres: Floats, distances: Floats, nearest: Integers) -> Floats:
    """Return the clusters' means; a centre without points goes to one of the points farthest from theirs."""
    counts = np.bincount(nearest, minlength=len(centres))
    # relative to the old centre: exact where all points of a cluster are equal
    shifts = [np.bincount(nearest, column, len(centres)) for column in (sample - centres[nearest]).T]
    means = centres + np.stack(shifts, axis=1) / np.maximum(counts, 1)[:, None]
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        means[empty] = sample[np.argpartition(distances, -len(empty))[-len(empty) :]]
    return means


def _rows(points: Floats) -> Floats:
    return np.ascontiguousarray(points, dtype=np.float64)


def _first_distinct(points: Floats, limit: int) -> Integers:
    """Find the first rows, at most this many, that equal none before them."""
    size = 2 * limit
    while True:  # few rows are enough, unless many are equal
        order = np.lexsort(points[:size].T)  # stable: of equal rows the first stays first
        ordered = points[order]
        is_new = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))
        found = np.sort(order[is_new])
        if len(found) >= limit or size >= len(points):
            return found[:limit]
        size *= 8


def _filled(reps: Floats, points: Floats, n_reps: int) -> Floats:
    """Drop equal rows, and put other points in their place as long as there are any."""
    kept = reps[_first_distinct(reps, n_reps)]
    if len(kept) == n_reps:
        return kept
    pool = np.concatenate([kept, points])
    return pool[_first_distinct(pool, n_reps)]


@inner()
def _square(a: Floats, i: int, b: Floats, j: int) -> float:
    """Return the squared distance of two rows."""
    total = 0.0
    for k in range(a.shape[1]):
        total += (a[i, k] - b[j, k]) ** 2
    return total


@njit(cache=True, nogil=True)
def _grow(points: Floats, squares: Floats, start: Floats, limit: int) -> Floats:
    """Add to the start each point whose squared distance to all present ones is above its own of ``squares``."""
    n_reps = len(start)
    reps = np.concatenate((start, np.empty((n_reps + 16, points.shape[1]))))
    last = 0
    for i in range(len(points)):
        if n_reps >= limit:
            break
        # the one that was near the point before is tried first: trajectories move slowly
        near = n_reps > 0 and _square(points, i, reps, last) <= squares[i]
        for j in range(n_reps):
            if near:
                break
            near = _square(points, i, reps, j) <= squares[i]
            last = j
        if not near:
            if n_reps == len(reps):
                reps = np.concatenate((reps, np.empty_like(reps)))
            for k in range(points.shape[1]):
                reps[n_reps, k] = points[i, k]
            last = n_reps
            n_reps += 1
    return reps[:n_reps]


@njit(cache=True, nogil=True)
def _farthest(points: Floats, lows: Floats, highs: Floats, first: int, n_reps: int) -> Integers:
    """Find farthest points one after another; fewer if all others are at distance zero.

    A block of points is passed over if the new one is too far from its bounding box, (lows, highs), to matter.
    """
    tops, tops_at = np.full(len(lows), np.inf), np.zeros(len(lows), np.intp)
    squares = np.full(len(points), np.inf)
    chosen = np.empty(n_reps, np.intp)
    farthest = first
    for n_chosen in range(n_reps):
        new = chosen[n_chosen] = farthest
        largest = 0.0
        for b in range(len(lows)):
            if _square_to_box(points, new, lows, highs, b) < tops[b]:
                tops[b] = 0.0
                for i in range(b * _BLOCK, min((b + 1) * _BLOCK, len(points))):
                    squares[i] = min(squares[i], _square(points, i, points, new))
                    if squares[i] > tops[b]:
                        tops[b], tops_at[b] = squares[i], i
            if tops[b] > largest:
                largest, farthest = tops[b], tops_at[b]
        if largest == 0.0:
            return chosen[: n_chosen + 1]
    return chosen


@inner()
def _square_to_box(points: Floats, i: int, lows: Floats, highs: Floats, b: int) -> float:
    total = 0.0
    for k in range(points.shape[1]):
        total += max(lows[b, k] - points[i, k], points[i, k] - highs[b, k], 0.0) ** 2
    return total
