"""The value function of a finite MDP by dynamic programming.

Three operators come first: look one step ahead, choose the best action, evaluate a policy.  All solvers are one loop
made of them; `kbrl.mdp.solvers` says how far each evaluates the chosen policy between two improvements.

The error is proved at the end, with all rounding.  If |T v - v| <= e everywhere, no value of v is off by more than
e / (1 - discount * s), with s the largest row sum of |P|.  A plain backup knows T v - v only to some n rounding errors
of v, which may be more than e itself.  So the rounding error of every product and sum is carried along, which gives
about twice the digits, and the rest is bounded: Dekker 1971; Ogita, Rump and Oishi 2005 (their Dot2).

Paper: section 2.1, T = Gamma Delta.  Puterman 1994, chapter 6; the stopping rule is his proposition 6.6.5.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

from kbrl.arrays import Floats, Integers
from kbrl.checks import one_of, positive, whole
from kbrl.mdp.finite_mdp import FiniteMDP, checked_policy, checked_values
from kbrl.mdp.solvers import SOLVERS, Evaluate
from kbrl.numba_cache import inner, njit
from kbrl.threads import one_blas_thread

EPSILON = float(np.finfo(np.float64).eps)
LARGEST = float(np.finfo(np.float64).max)
TIE = 1e-12  # values that differ by less, relative to the largest in size of a state, are equal but for rounding
_HOLD = 8 * EPSILON  # a policy is kept unless another action gains more than this, relative to the largest value
FLOOR = 64 * EPSILON  # changes up to this, relative to the largest value, may be rounding alone
STUCK = 10  # improvements without progress after which such changes are taken for rounding
OF_LARGEST = 0.01  # an error of more than this fraction of the largest value is never good enough
FEW_STATES = 500  # whose linear systems one thread solves
_SPLIT = 2.0**27 + 1
_UNDERFLOW = 2.0**-1068  # more than a product below the range of numbers can be off by


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of `solve`: optimal values, action values and policy, with a proof of how exact they are.

    ``values`` are the largest ``q`` of each state, and ``policy`` attains them but for rounding: see `best_actions`.
    ``residual`` is max |T values - values|, with T the Bellman operator: it proves that no value is off by more than
    residual / (1 - discount), whatever ``converged`` says.  The proof includes all rounding, and rows that sum to
    slightly more than one: see ``proved_residual``.

    >>> from kbrl import FiniteMDP, solve
    >>> solution = solve(FiniteMDP([[[1.0]]], [[1.0]], discount=0.5))  # one state that pays 1 per step
    >>> solution.values.round(6).tolist(), solution.q.shape, solution.policy.tolist()
    ([2.0], (1, 1), [0])
    >>> solution.converged, solution.residual < 1e-8
    (True, True)
    """

    values: Floats  # (n_states,); 0 where no action is available
    q: Floats  # (n_states, n_actions); -inf where an action is not available
    policy: Integers  # (n_states,), indices of actions; -1 where none is available
    iterations: int  # improvements of the policy
    residual: float
    converged: bool  # the residual proves that the values are within the tolerance


def backup(mdp: FiniteMDP, values: Floats) -> Floats:
    """Look one step ahead: q[i, a] = r[a, i] + discount * P[a, i] . values, or -inf (the paper's operator Delta)."""
    return _backup(mdp, checked_values(mdp, values))


def _backup(mdp: FiniteMDP, values: Floats) -> Floats:
    ahead = (mdp.stacked @ values).reshape(mdp.rewards.shape)
    return np.where(mdp.available, mdp.rewards + mdp.discount * ahead, -np.inf).T


def best_actions(q: Floats, *, where_none: int | None = 0) -> Integers:
    """Return the place of the best action of each row, (n_states,): the first of those that are equal but for rounding.

    The one rule for all answers: rounding depends on how many states are asked about at once, and must not decide.  The
    largest value of the row in size says what is rounding; where values of both signs nearly cancel, it is more.
    ``where_none`` stands for the best action of a row that is -inf everywhere; None: refuse such rows.
    """
    is_known = np.isfinite(q)
    size = np.abs(q, where=is_known, out=np.zeros(q.shape)).max(axis=1, keepdims=True)
    best = np.asarray((q >= q.max(axis=1, keepdims=True) - TIE * size).argmax(axis=1))
    if where_none == 0 or (has_some := is_known.any(axis=1)).all():  # 0 is what the first of equals is
        return best
    if where_none is None:
        raise ValueError(
            "In some of the states no action can be recommended: none is allowed there, or all data were forgotten. "
            "Widen the rules for allowed actions, or fit again."
        )
    return np.where(has_some, best, where_none)


def greedy(q: Floats, current: Integers | None = None) -> Integers:
    """Choose the best action of each row of ``q``, (n_states, n_actions): the largest, -1 where all are -inf.

    For solvers, which must not take rounding for progress: an action of the ``current`` policy is kept unless another
    one gains more than rounding can explain.  Answers are `best_actions`.
    """
    best, states = q.argmax(axis=1), np.arange(len(q))
    top = q[states, best]
    possible = np.isfinite(top)
    if current is not None:
        slack = _HOLD * np.abs(top[possible]).max(initial=0.0)
        held = np.where(current >= 0, q[states, current], -np.inf)
        best = np.where(held >= top - slack, current, best)
    return np.where(possible, best, -1)


def evaluate_policy(mdp: FiniteMDP, policy: Integers) -> Floats:
    """Return the exact value of a policy in each state, (n_states,), by one linear system.

    ``policy`` holds an action's index for each state, or -1 to stop there, which is worth 0.  A sparse MDP is
    factorised sparsely; where its states are richly connected, the factors may need far more memory than the MDP.
    """
    return _policy_values(mdp, checked_policy(_as_mdp(mdp), policy))


def _policy_values(mdp: FiniteMDP, policy: Integers) -> Floats:
    rows, rewards = _rows(mdp, policy)
    ahead = _discounted_rows(mdp, rows)
    if sparse.issparse(ahead):
        return np.atleast_1d(spsolve((sparse.eye_array(mdp.n_states) - ahead).tocsc(), rewards))
    system = np.negative(ahead, out=ahead)  # in place, for large MDPs
    system.flat[:: mdp.n_states + 1] += 1.0
    return np.linalg.solve(system, rewards)


def solve(
    mdp: FiniteMDP,
    method: str = "auto",
    *,
    values: Floats | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 10_000,
) -> Solution:
    """Return the optimal values, (n_states,), action values, (n_states, n_actions), and policy of an MDP.

    method: "value iteration", "modified policy iteration", "policy iteration" or "auto": policy iteration for a dense
        MDP with few states, else modified policy iteration.
    values: where to start, (n_states,); None: 0.
    tolerance: the largest error of a value, as a fraction of max |r| / (1 - discount), which no value exceeds.
        Multiplying all rewards therefore changes nothing.  An error may also not exceed 1 % of the largest value found,
        or the tolerance itself if that is more.
    max_iterations: the largest number of improvements of the policy.

    If the tolerance is not reached, ``converged`` is False and ``residual`` says how far off the values can be.  This
    happens after ``max_iterations``, or sooner if rounding puts the tolerance out of reach: expect that for a
    tolerance below about 1e-15 / (1 - discount), and for any tolerance if the discount is above about 1 - 1e-13.

    Two states, one action: the first leads to the second, which stays and pays 1 per step, 1 / (1 - 0.5) = 2 in all.

    >>> from kbrl import FiniteMDP, solve
    >>> mdp = FiniteMDP([[[0.0, 1.0], [0.0, 1.0]]], [[0.0, 1.0]], discount=0.5)
    >>> solve(mdp).values.round(6).tolist()
    [1.0, 2.0]
    """
    _as_mdp(mdp)
    one_of(method, ("auto", *SOLVERS), "method")
    tolerance = positive(tolerance, "tolerance")
    max_iterations = whole(max_iterations, "max_iterations")
    scale = _largest_value(mdp)
    start = np.zeros(mdp.n_states) if values is None else checked_values(mdp, values)
    start = np.clip(start, -scale, scale)  # which brings it closer: no value is beyond the scale
    yardstick = _yardstick(mdp, tolerance)
    method = method_for(mdp) if method == "auto" else method
    # Threads gain nothing on small systems, and on a busy machine they wait for each other (20 times slower, measured).
    with one_blas_thread() if mdp.n_states <= FEW_STATES else nullcontext():
        return _iterate(mdp, start, method, yardstick, max_iterations)


def method_for(mdp: FiniteMDP) -> str:
    """Return the method that "auto" stands for: a small linear system costs less than looking through many actions."""
    few_states = mdp.n_states <= (500 if mdp.n_actions >= 32 else 300) and not sparse.issparse(mdp.stacked)  # measured
    return "policy iteration" if few_states else "modified policy iteration"


def sweep(mdp: FiniteMDP, values: Floats, times: int, *, tolerance: float = 1e-8) -> Solution:
    """Apply the Bellman operator T a fixed number of times to the values, and stop there.

    From zero, this gives the optimal ``times``-step values.  ``converged`` is True only where the residual proves that
    the values are within the tolerance, as in `solve`.  Paper: section 2.1, v(t) = T v(t - 1), and the end of 5.1.
    """
    times, tolerance = whole(times, "times"), positive(tolerance, "tolerance")
    values = checked_values(_as_mdp(mdp), values)
    for _ in range(times - 1):
        before, values = values, _best(_backup(mdp, values))
        if np.array_equal(values, before):
            break  # nor would any other one change them
    return _finished(mdp, values, times, _yardstick(mdp, tolerance))


@dataclass(frozen=True)
class _Yardstick:
    """How far values can be from a fixed point, judged by what one more application of its operator changes.

    With lo <= T v - v <= hi and row sums s of P, T T v - T v is between discount * s * lo and discount * s * hi, each
    for the worst s.  Adding y to all states lowers that by (1 - discount * s) y.  We add the y that leaves the smallest
    change to be feared.  With s = 1 it is the middle of the bounds of MacQueen 1966 (Puterman 1994, prop. 6.6.5); where
    an episode can end, s = 0 and y is next to nothing; rows that lack a little lie in between.
    """

    discount: float
    least_sum: float  # of a row of probabilities
    largest_sum: float
    goal: float  # the error that is good enough
    of_largest: float  # nor may it be more than this fraction of the largest value
    rounding: float  # of the largest reward: where all values are 0, an error of this size is good enough

    def good_enough(self, values: Floats) -> float:
        """Return the error that is good enough, given the values.

        Near a discount of 1 the goal, a fraction of max |r| / (1 - discount), can exceed every value there is.
        """
        largest = float(np.abs(values).max(initial=0.0))
        return min(self.goal, max(self.of_largest * largest, self.rounding))

    @property
    def left(self) -> float:
        """1 - discount, less where rows sum to more than one; errors are changes over this."""
        return max(1.0 - self.discount * max(self.largest_sum, 1.0), EPSILON)

    def offset(self, change: Floats) -> float:
        """Return what is added to T v, in all states alike."""
        return self._settled(change)[0]

    def error(self, change: Floats) -> float:
        """Return the largest error that T v + offset can have, but for rounding."""
        return self._settled(change)[1] / self.left

    def common(self, change: Floats) -> float:
        """Return what all changes have in common and keep, unless rows lack more than the discount takes."""
        is_kept = 1.0 - self.discount * self.least_sum <= 2.0 * self.left
        return 0.5 * float(change.min() + change.max()) if is_kept else 0.0

    def _settled(self, change: Floats) -> tuple[float, float]:
        """Return the offset, and the largest change that can come after it."""
        lo, hi = float(change.min()), float(change.max())
        least, largest = self.discount * self.least_sum, self.discount * self.largest_sum
        lo, hi = lo * (largest if lo < 0 else least), hi * (largest if hi > 0 else least)
        offset = (lo + hi) / max(2.0 - least - largest, EPSILON)
        return offset, hi - offset * (1.0 - (largest if offset > 0 else least))


def _yardstick(mdp: FiniteMDP, tolerance: float) -> _Yardstick:
    sums = row_sums(mdp)[mdp.available]
    ends = not mdp.available.any(axis=0).all()  # the value of a state without actions never changes
    scale = _largest_value(mdp)
    goals = tolerance * scale, max(tolerance, OF_LARGEST), FLOOR * scale * (1.0 - mdp.discount)
    return _Yardstick(mdp.discount, 0.0 if ends else sums.min(), sums.max(initial=0.0), *goals)


def _iterate(mdp: FiniteMDP, values: Floats, method: str, yardstick: _Yardstick, most: int) -> Solution:
    """Improve the policy, evaluate it, and again, until the values are proved to be good enough or nothing helps."""
    policy, aim = None, yardstick.goal
    evaluate: Evaluate | None = None  # made when it is needed: values to start from may be good enough
    least_error, stale = np.inf, 0
    for iteration in range(1, most + 1):
        q = _backup(mdp, values)
        policy = greedy(q, policy)
        improved = _best(q)
        change = improved - values
        error = yardstick.error(change)
        least_error, stale = (error, 0) if error < 0.9 * least_error else (least_error, stale + 1)
        is_rounding = error * yardstick.left <= FLOOR * np.abs(improved).max()
        is_last = iteration == most or (is_rounding and stale >= STUCK)
        improved += yardstick.offset(change)
        if error <= aim or is_last:
            solution = _finished(mdp, improved, iteration, yardstick)
            if solution.converged or is_last:
                return solution
            aim = 0.25 * error  # rounding took too much of it
        evaluate = evaluate or SOLVERS[method](_Operators(mdp, yardstick))
        values = evaluate(improved, policy, error)
    raise AssertionError("the last iteration returns")


def _finished(mdp: FiniteMDP, values: Floats, iteration: int, yardstick: _Yardstick) -> Solution:
    """Back up once more, so that values, q and policy belong together, and prove how good they are."""
    q = np.ascontiguousarray(_backup(mdp, values))
    values = _best(q)
    residual = proved_residual(mdp, values, _backup(mdp, values), yardstick.largest_sum)
    is_good = residual / (1.0 - mdp.discount) <= yardstick.good_enough(values)
    return Solution(values, q, best_actions(q, where_none=-1), iteration, residual, is_good)


def _best(q: Floats) -> Floats:
    """Return the largest of each row (the paper's operator Gamma), 0 where no action is available."""
    top = q.max(axis=1)
    return np.where(np.isfinite(top), top, 0.0)


class _Operators:
    """What a solver may use of an MDP."""

    def __init__(self, mdp: FiniteMDP, yardstick: _Yardstick) -> None:
        self._mdp = mdp
        self.discount, self.goal = mdp.discount, yardstick.goal
        self.error, self.common = yardstick.error, yardstick.common

    def exact_values(self, policy: Integers) -> Floats:
        """Return the value of a policy in each state, by one linear system."""
        return _policy_values(self._mdp, policy)

    def sweeper(self, policy: Integers) -> Callable[[Floats], Floats]:
        """Return the function v -> r + discount * P v of a policy."""
        rows, rewards = _rows(self._mdp, policy)
        # Copying short sparse rows pays: they are read 30 times. Copying long dense rows only costs memory (measured).
        if sparse.issparse(self._mdp.stacked):
            ahead = _discounted_rows(self._mdp, rows)
            return lambda values: rewards + ahead @ values
        return lambda values: rewards + self._mdp.discount * _rows_times(self._mdp.stacked, rows, values)


def _rows(mdp: FiniteMDP, policy: Integers) -> tuple[Integers, Floats]:
    """Return the policy's rows of the stacked probabilities, -1 for none, and its rewards."""
    states = np.arange(mdp.n_states)
    rows = np.where(policy >= 0, policy * mdp.n_states + states, -1)
    return rows, np.where(policy >= 0, mdp.rewards[policy, states], 0.0)


def _discounted_rows(mdp: FiniteMDP, rows: Integers) -> Any:
    """Return a copy of discount * P for the chosen rows P, (n_states, n_states), zero where the row is -1."""
    weight = np.where(rows >= 0, mdp.discount, 0.0)
    chosen = mdp.stacked[np.maximum(rows, 0)]
    if sparse.issparse(chosen):
        return sparse.diags_array(weight) @ chosen
    return np.multiply(chosen, weight[:, None], out=chosen)


# Sums may be reordered, which vectorises them.
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz", "afn", "nnan"})
def _rows_times(matrix: Any, rows: Any, values: Any) -> Any:
    out = np.zeros_like(values)
    for i, row in enumerate(rows):
        if row >= 0:
            for j in range(len(values)):
                out[i] += matrix[row, j] * values[j]
    return out


def _largest_value(mdp: FiniteMDP) -> float:
    """Return max |r| / (1 - discount), which no value exceeds, or refuse rewards whose sums overflow."""
    largest = float(np.abs(mdp.rewards[mdp.available]).max(initial=0.0))
    if largest > 1e300 * (1.0 - mdp.discount) ** 2:
        where = f"the largest is {largest!r} and the discount {mdp.discount!r}"
        raise ValueError(f"rewards must have finite discounted sums, but {where}. Divide all rewards by a constant.")
    return largest / (1.0 - mdp.discount)


def _as_mdp(mdp: Any) -> FiniteMDP:
    if not isinstance(mdp, FiniteMDP):
        raise TypeError(f"Planning needs a FiniteMDP, such as model.mdp_ of a fitted KBSF, but it got {mdp!r}.")
    return mdp


def row_sums(mdp: FiniteMDP) -> Floats:
    """Return the sums of |P| over next states, (n_actions, n_states), off by at most n_states rounding errors."""
    return _row_sums(*_entries(mdp)).reshape(mdp.rewards.shape)


def proved_residual(mdp: FiniteMDP, values: Floats, q: Floats, largest_sum: float) -> float:
    """Return e such that no value is off by more than e / (1 - discount).

    It is max |T values - values| with all rounding, enlarged where rows sum to more than one; the largest number where
    nothing can be proved.  ``q`` is the backup of the values as computed, ``largest_sum`` that of ``row_sums``.
    """
    rewards, reach = mdp.rewards, np.abs(values).max()
    size = np.abs(rewards[mdp.available]).max(initial=0.0) + mdp.discount * largest_sum * reach
    slack = (mdp.n_states + 4) * EPSILON * size  # of a plain backup, twice over
    near = np.isfinite(q) & (q >= q.max(axis=1, keepdims=True) - 2.0 * slack)  # one of these is the best
    states, actions = np.nonzero(near)
    rows, tiny = actions * mdp.n_states + states, _UNDERFLOW * float(reach > 0)
    changes, errors = _changes(*_entries(mdp), rows, values, rewards[actions, states], states, mdp.discount, tiny)
    best = np.full(q.shape, -np.inf)
    best[states, actions] = changes
    change = np.abs(best.max(axis=1)[near.any(axis=1)]).max(initial=0.0) + errors.max(initial=0.0)
    excess = max(0.0, largest_sum * (1.0 + (mdp.n_states + 2) * EPSILON) - 1.0)
    left = (1.0 - mdp.discount) - mdp.discount * excess  # of 1 - discount * s
    return float(change * ((1.0 - mdp.discount) / left) * (1.0 + 8.0 * EPSILON)) if left > 0 else LARGEST


def _entries(mdp: FiniteMDP) -> tuple[Any, Any, Any]:
    """Return probabilities row by row, their columns (none: each row has all) and where each row starts."""
    if sparse.issparse(mdp.stacked):
        return mdp.stacked.data, mdp.stacked.indices, mdp.stacked.indptr.astype(np.int64)
    n_rows, n_columns = mdp.stacked.shape
    starts = np.arange(n_rows + 1, dtype=np.int64) * n_columns
    return np.ascontiguousarray(mdp.stacked).reshape(-1), np.empty(0, dtype=np.int32), starts


# Sums may be reordered, which vectorises them.
@njit(cache=True, nogil=True, fastmath={"reassoc"})
def _row_sums(entries: Any, columns: Any, starts: Any) -> Any:
    sums = np.zeros(len(starts) - 1)
    for row in range(len(sums)):
        total = 0.0
        for entry in entries[starts[row] : starts[row + 1]]:
            total += abs(entry)
        sums[row] = total
    return sums


# None of those below may be compiled with fastmath: rounding errors would be simplified away.
@inner()
def _two_sum(a: Any, b: Any) -> Any:
    """Return a + b rounded, and its rounding error, exactly."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@inner()
def _two_product(a: Any, b: Any) -> Any:
    """Return a * b rounded, and its rounding error, exactly unless it underflows."""
    product = a * b
    far_a, far_b = _SPLIT * a, _SPLIT * b
    high_a, high_b = far_a - (far_a - a), far_b - (far_b - b)
    low_a, low_b = a - high_a, b - high_b
    return product, low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)


@njit(cache=True, nogil=True)
def _changes(
    entries: Any, columns: Any, starts: Any, rows: Any, values: Any, rewards: Any, states: Any, discount: Any, tiny: Any
) -> Any:
    """Return r + discount P v - v of some rows, and how far each of these may be off."""
    changes, errors = np.empty(len(rows)), np.empty(len(rows))
    for i, row in enumerate(rows):
        own, own_columns = entries[starts[row] : starts[row + 1]], columns[starts[row] : starts[row + 1]]
        total = rest = size = 0.0
        for k in range(len(own)):
            product, lost = _two_product(own[k], values[own_columns[k] if len(columns) else k])
            total, lost_too = _two_sum(total, product)
            rest += lost + lost_too
            size += abs(product)
        high, low = _two_sum(total, rest)
        ahead, ahead_lost = _two_product(discount, high)
        gap, gap_lost = _two_sum(rewards[i], -values[states[i]])
        change, change_lost = _two_sum(gap, ahead)
        changes[i] = change + ((gap_lost + change_lost) + (ahead_lost + discount * low))
        small = abs(gap_lost) + abs(change_lost) + abs(ahead_lost) + abs(discount * low)
        rounding = EPSILON * (abs(changes[i]) + 2.0 * small)
        n = len(own)
        errors[i] = rounding + discount * (((n + 2) * EPSILON) ** 2 * size + (n + 1) * tiny)
    return changes, errors
