"""The solvers of finite MDPs, each stated once: its name, and how it evaluates a policy between two improvements.

All share one loop, its stopping rule and its proof of the error: `kbrl.mdp.dynamic_programming.solve`.  A solver is
called with the improved values, the policy that attains them and a bound on their error; it returns the values to
continue from.  This module imports nothing heavy, because `kbrl.settings` takes the names from here.

Puterman 1994, chapter 6.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from sys import float_info
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbrl.arrays import Floats, Integers

ROUNDS, SWEEPS = 3, 10  # of partial evaluation: 30 sweeps, with an extrapolation after every ten
PATIENCE = 100  # improvements without progress after which extrapolation is suspended


class Operators(Protocol):
    """What a solver may use of the MDP to be solved."""

    @property
    def discount(self) -> float:
        """The value of a reward of 1 one step later."""

    @property
    def goal(self) -> float:
        """The largest error of the values that is good enough."""

    def exact_values(self, policy: Integers) -> Floats:
        """Return the value of a policy in each state, by one linear system."""

    def sweeper(self, policy: Integers) -> Callable[[Floats], Floats]:
        """Return the function v -> r + discount * P v with the rows P of a policy."""

    def error(self, change: Floats) -> float:
        """Return the largest error that values can have if a sweep changes them by this."""

    def common(self, change: Floats) -> float:
        """Return what the changes of all states have in common."""


Evaluate = Callable[["Floats", "Integers", float], "Floats"]


class ValueIteration:
    """Improve again at once, without evaluating the policy."""

    def __init__(self, mdp: Operators) -> None:
        pass

    def __call__(self, improved: Floats, policy: Integers, error: float) -> Floats:
        """Return the improved values."""
        return improved


class PolicyIteration:
    """Solve for the policy's value.

    In exact arithmetic every new policy is better.  With rounding, equally good policies could alternate for ever.  A
    policy is accepted only if it raises the sum of the values, so none is accepted twice.
    """

    def __init__(self, mdp: Operators) -> None:
        self._mdp, self._largest_sum = mdp, -inf

    def __call__(self, improved: Floats, policy: Integers, error: float) -> Floats:
        """Return the value of the policy."""
        values = self._mdp.exact_values(policy)
        if values.sum() <= self._largest_sum:
            return improved
        self._largest_sum = float(values.sum())
        return values


class ModifiedPolicyIteration:
    """Some sweeps v <- r + discount * P v with the rows P of the policy.

    After a few sweeps, what is left to do is nearly a multiple of the last change, so we extrapolate (a rank-one
    correction, Bertsekas 1995).  Sweeps alone converge from any start (Puterman 1994, section 6.5).  Extrapolation is
    suspended while the bound on the error does not fall, so the whole method converges, too.
    """

    def __init__(self, mdp: Operators) -> None:
        self._mdp = mdp
        self._least_error, self._stale = inf, 0

    def __call__(self, improved: Floats, policy: Integers, error: float) -> Floats:
        """Return the values after some sweeps."""
        self._stale += 1
        if error < 0.9 * self._least_error:
            self._least_error, self._stale = error, 0
        enough = min(0.5 * self._mdp.goal, 0.125 * error)
        sweep, values = self._mdp.sweeper(policy), improved
        for _ in range(ROUNDS):
            before = after = 0.0 * values
            for _ in range(SWEEPS):
                swept = sweep(values)
                before, after, values = after, swept - values, swept
                if self._mdp.error(after) <= enough:
                    return values
            if self._stale < PATIENCE:
                further = self._extrapolate(values, before, after)
                swept = sweep(further)
                if self._mdp.error(swept - further) < self._mdp.error(after):  # else it went too far
                    values = swept
        return values

    def _extrapolate(self, values: Floats, before: Floats, after: Floats) -> Floats:
        """Continue along the last change as far as makes the next one smallest, in least squares."""
        before = before - self._mdp.common(before)
        after = after - self._mdp.common(after)
        size = float(abs(before).max()) or 1.0  # keeps the squares of huge and tiny rewards in range
        gap = (before - after) / size
        furthest = self._mdp.discount / (1.0 - self._mdp.discount)
        step = float(after / size @ gap) / max(float(gap @ gap), float_info.epsilon**2)
        return values + min(max(step, 0.0), furthest) * after


SOLVERS: dict[str, Callable[[Operators], Evaluate]] = {
    "modified policy iteration": ModifiedPolicyIteration,
    "value iteration": ValueIteration,
    "policy iteration": PolicyIteration,
}
