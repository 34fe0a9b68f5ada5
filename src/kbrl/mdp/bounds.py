"""How far the reduced MDP's solution can be from the original's: every bound of the paper.

A bound that exceeds the trivial one says nothing, and many do: the terms grow with 1 / (1 - discount)^2.  So each
``Bound`` also holds the trivial bound, and is ``vacuous`` where it is not below it.

Where episodes end, the end is one more absorbing state with value 0, which D maps to its own absorbing representative.
It adds one column to the transition errors and a 0 to the rewards; no other term changes.  Paper: propositions 1 and 5,
lemmas 3 and 4 (section 3 and appendix A); those of KBSF are in `model.kbsf_bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import null_space
from scipy.optimize import linprog

from kbrl.arrays import Array, Floats
from kbrl.checks import as_floats, in_unit_interval, whole
from kbrl.mdp.factorization import check_factors, check_rep_rewards, check_stochastic, per_action, reduce_mdp
from kbrl.mdp.finite_mdp import FiniteMDP

LEAK = 1e-12  # a row of probabilities whose sum is this close to one sums to one


@dataclass(frozen=True, repr=False)
class Bound:
    """A bound on the largest error, the trivial bound, and the terms that the bound is made of.

    ``value`` is the paper's bound.  ``tighter`` has the same terms, joined row by row and with the constants that the
    proofs allow; it never exceeds ``value``.  ``trivial`` holds for any two value functions of rewards in this range.
    """

    value: float
    tighter: float
    trivial: float
    q_error: float  # what the bound says of action values: see the function that made it
    reward_error: float  # max over a of |r^a - D r-bar^a|
    transition_error: float  # max over a of |P^a - D K^a|: largest row sum, at most 2
    stochasticity: float  # sigma(D)
    reward_range: float  # R-bar_dif
    of: str = ""  # the answers that are bounded, and where

    @property
    def vacuous(self) -> bool:
        """Whether the bound says no more than the trivial one."""
        return self.value >= self.trivial

    def __repr__(self) -> str:
        verdict = "vacuous" if self.vacuous else "informative"
        rest = ", ".join(f"{term.name} {getattr(self, term.name):.4g}" for term in fields(self)[3:-1])
        of = f" of {self.of}" if self.of else ""
        return f"Bound({self.value:.4g}{of}; {verdict}: trivial {self.trivial:.4g}, tighter {self.tighter:.4g}; {rest})"

    def times(self, factor: float, of: str) -> Bound:
        """Return the bound of something whose error is at most ``factor`` times as large."""
        return replace(
            self, value=factor * self.value, tighter=factor * self.tighter, trivial=factor * self.trivial, of=of
        )


def bound_factorization(mdp: FiniteMDP, to_reps: Any, to_states: Any, rep_rewards: Any) -> Bound:
    """Bound |v* - max D Q-bar*| in every state, for factors D, K^a, r-bar^a of an MDP: proposition 1's xi_v.

    ``q_error`` is discount * value, for |Q* - (r + discount P v)| with these v, as in proposition 2.  An action that no
    state offers is left out; a state that offers none is an end.  Rows of K^a may sum to less than one if episodes end.
    """
    ends = _ends(mdp)
    to_reps, to_states = check_factors(to_reps, to_states, ends=ends)
    rep_rewards = check_rep_rewards(rep_rewards, to_states)
    if len(to_states) != mdp.n_actions or to_reps.shape[0] != mdp.n_states:
        raise ValueError(
            f"The factors are for {len(to_states)} actions and {to_reps.shape[0]} states, but the MDP has "
            f"{mdp.n_actions} and {mdp.n_states}."
        )
    used, going = (np.asarray(mdp.available.any(axis=axis)) for axis in (1, 0))
    if not (used.any() and mdp.available[np.ix_(used, going)].all()):
        raise ValueError(
            "The bound needs the same actions in all states, but some states lack some of them, or all lack all. "
            "Give the missing actions transitions and rewards."
        )
    actions = np.flatnonzero(used)
    rewards = np.where(going, mdp.rewards, 0.0)[actions]
    probabilities = per_action(mdp)
    differences = [probabilities[a] * going[:, None] - to_reps @ to_states[a] for a in actions]
    transition_errors = np.stack([row_norms(difference) for difference in differences])
    reward_errors = np.abs(rewards - (to_reps @ rep_rewards[actions].T).T)
    terms = Terms(reward_errors, transition_errors, stochasticity(to_reps), rewards, rep_rewards[actions], ends)
    return combine(terms, mdp.discount, extra=0.0 if ends else _leak_error(differences, mdp))


def bound_factorization_by_iterates(mdp: FiniteMDP, to_reps: Any, to_states: Any, rep_rewards: Any) -> float:
    """Bound the same as `bound_factorization` by (sing_tighter) in place of (sing): never above its ``value``.

    The paper says that it cannot be computed.  The supremum over all t-step action values can, up to a bounded
    tail: see `soft_homomorphism_error`.
    """
    bound, discount = bound_factorization(mdp, to_reps, to_states, rep_rewards), mdp.discount
    reduced = reduce_mdp(to_reps, to_states, None, discount, rep_rewards=rep_rewards, ends=_ends(mdp))
    whitt = bound.reward_error + discount / 2 * bound.reward_range / (1 - discount) * bound.transition_error
    return whitt / (1 - discount) + soft_homomorphism_error(to_reps, reduced)


def soft_homomorphism_error(to_reps: Any, reduced: FiniteMDP, *, max_iterations: int = 10_000) -> float:
    """Return the right-hand side of (sing_tighter): how far D Q-bar can be from the values of (D K^a, D r-bar^a).

    sup over i and t of (1 - max_j d_ij) delta_i^(t), over 1 - discount; delta_i^(t) is the range of the optimal t-step
    action values at the representative states that D gives weight in row i.  Once the changes v^(t) - v^(t-1) are all
    between lo and hi, no later range exceeds this one by more than (hi - lo) discount / (1 - discount): the iterates
    stop where that is nothing, and it is added.
    """
    to_reps, discount = check_stochastic(to_reps, "to_reps (D)"), reduced.discount
    offered, ends = reduced.available.T, _ends(reduced)
    doubts, ahead = 1.0 - _largest_entries(to_reps), discount / (1 - discount)
    spread = _range(reduced.rewards[reduced.available], ends=ends) / (1 - discount)  # what no range exceeds
    values, ranges = np.zeros(reduced.n_states), np.zeros(len(doubts))
    for _ in range(whole(max_iterations, "max_iterations")):
        q = (reduced.rewards + discount * (reduced.stacked @ values).reshape(reduced.rewards.shape)).T
        best, worst = np.where(offered, q, -np.inf).max(axis=1), np.where(offered, q, np.inf).min(axis=1)
        present = _largest_where(to_reps, best) + _largest_where(to_reps, -worst)
        ranges = np.maximum(ranges, present)
        best = np.where(offered.any(axis=1), best, 0.0)
        tail = ahead * _range(best - values, ends=ends)
        values = best
        if tail <= 1e-12 * spread:
            break
    return _largest(doubts * np.minimum(np.maximum(ranges, present + tail), spread)) / (1 - discount)


def bound_mdps(first: FiniteMDP, second: FiniteMDP) -> Bound:
    """Bound |Q* - Q~*| in every state and action, for two MDPs with the same states and actions: lemma 3.

    ``value`` and ``q_error`` are the lemma's bound with the smaller of the two ranges of rewards (either will do);
    the lemma's factor (2 - discount) is not needed, nor is it in ``tighter``: |Q - Q~| <= |r - r~| + discount
    |(P - P~) v| + discount |v - v~|, and |v - v~| is at most the largest |Q - Q~|.
    """
    if first.rewards.shape != second.rewards.shape or (first.available != second.available).any():
        raise ValueError(
            f"The two MDPs must have the same states, and the same actions in each of them, but they are {first!r} "
            f"and {second!r}."
        )
    if first.discount != second.discount:
        raise ValueError(f"The two MDPs must have the same discount, but it is {first.discount} and {second.discount}.")
    offered, discount = first.available, first.discount
    difference = first.stacked - second.stacked
    transition_errors = np.where(offered, row_norms(difference).reshape(offered.shape), 0.0)
    own, other = first.rewards[offered], second.rewards[offered]
    reward_errors = np.zeros(offered.shape)
    reward_errors[offered] = np.abs(own - other)
    ends = _ends(first) or _ends(second)
    if _range(own, ends=ends) < _range(other, ends=ends):
        own, other = other, own
    terms = Terms(reward_errors, transition_errors, 0.0, own, other, ends)
    return combine(terms, discount, of_q=True, extra=0.0 if ends else _leak_error([difference], first, second))


def bound_any_norm(
    optimal_values: Any, fixed_point: Any, inner_values: Any, discount: float, *, order: float = np.inf
) -> float:
    """Return xi'_v = (2 g |v* - u| + g (1 + g) |v* - v^|) / (1 - g), g the discount: lemma 4 and proposition 5.

    For exact factorizations P^a = E L^a, r^a = E r''^a: ``optimal_values`` are v*, ``fixed_point`` is any u = E u
    (see ``closest_fixed_point``), ``inner_values`` v^ are optimal for (L^a, r''^a).  It bounds |v* - max D Q-bar*|
    in the max norm.  The paper claims it for any norm, but its proof needs Bellman operators that contract and an E
    that does not expand, which in the norms of ``order`` 1 and 2 they need not.  There it is not a bound: 20 states
    that all lead to one misjudged state have 20 errors where v* - u has one (worked out in the tests: |error|_1 is 5
    times and |error|_2 1.1 times this value).
    """
    discount = in_unit_interval(discount, "discount")
    v, u, inner = (as_floats(x, "values") for x in (optimal_values, fixed_point, inner_values))
    to_fixed, to_inner = (float(np.linalg.norm(v - x, order)) for x in (u, inner))
    return (2 * discount * to_fixed + discount * (1 + discount) * to_inner) / (1 - discount)


def closest_fixed_point(averager: Any, values: Any, *, order: float = np.inf) -> Floats:
    """Return the u = E u nearest to the values in the max norm or, with ``order=2``, the Euclidean norm.

    ``averager`` is E, (n_states, n_states); for an averager with D and picked states, E[:, rep_indices] = D and all
    other columns are 0.  The u are combinations of eigenvectors of eigenvalue 1, one for each recurrent class of E.
    """
    if order not in (2, np.inf):
        raise ValueError(f"order must be 2 or infinity, but it is {order!r}.")
    square = check_stochastic(averager, "averager (E)")
    square = square.toarray() if sparse.issparse(square) else square
    values = as_floats(values, "values")
    basis = null_space(square - np.eye(len(square)))
    if order == 2:
        return basis @ (basis.T @ values)
    sides = np.block([[basis, -np.ones((len(values), 1))], [-basis, -np.ones((len(values), 1))]])
    costs = np.append(np.zeros(basis.shape[1]), 1.0)  # minimise t, with |values - basis x| <= t everywhere
    found = linprog(costs, A_ub=sides, b_ub=np.concatenate([values, -values]), bounds=(None, None))
    return basis @ found.x[:-1]


def stochasticity(to_reps: Any) -> float:
    """Return sigma(D), the largest 1 - max_j d_ij: 0 if every state belongs to a single representative state."""
    return max(0.0, 1.0 - float(np.min(_largest_entries(to_reps))))


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of all the bounds."""

    reward_errors: Floats  # |r^a_i - (D r-bar^a)_i|, (n_actions, n_states)
    transition_errors: Floats  # sum_j |P^a_ij - (D K^a)_ij|, (n_actions, n_states)
    stochasticity: float
    rewards: Array  # of the original MDP
    rep_rewards: Array  # of the reduced one
    ends: bool


def combine(terms: Terms, discount: float, *, of_q: bool = False, extra: float = 0.0) -> Bound:
    """Put the terms together: proposition 1 (of values), or lemma 3 and proposition 4 (of action values)."""
    horizon, factor = 1 / (1 - discount), discount / 2 * (2 - discount if of_q else 1)
    spread = _range(terms.rep_rewards, ends=terms.ends)
    reward_error, transition_error = _largest(terms.reward_errors), _largest(terms.transition_errors)
    value = horizon * reward_error + spread * horizon**2 * (factor * transition_error + terms.stochasticity) + extra
    # |T v - T' v| row by row; and |v - D v-bar| costs one step, so that sigma(D) carries the discount, too.
    joined = _largest(terms.reward_errors + discount / 2 * spread * horizon * terms.transition_errors)
    tighter = horizon * joined + spread * horizon**2 * discount * terms.stochasticity + extra
    hull = np.concatenate([np.ravel(terms.rewards), np.ravel(terms.rep_rewards)])
    trivial = _range(hull, ends=terms.ends) * horizon + extra
    q_error = value if of_q else discount * value
    return Bound(value, tighter, trivial, q_error, reward_error, transition_error, terms.stochasticity, spread)


def _largest_entries(to_reps: Any) -> Floats:
    """Return the largest entry of each row."""
    largest = to_reps.max(axis=1)
    return np.asarray(largest.toarray() if sparse.issparse(largest) else largest).ravel()


def _largest_where(to_reps: Any, values: Floats) -> Floats:
    """Return the largest value at the representative states that each row gives weight, (n_states,)."""
    if sparse.issparse(to_reps):
        return np.maximum.reduceat(np.where(to_reps.data > 0, values[to_reps.indices], -np.inf), to_reps.indptr[:-1])
    return np.where(to_reps > 0, values, -np.inf).max(axis=1)


def _ends(mdp: FiniteMDP) -> bool:
    """Whether an episode can end: with a step, or by reaching a state that offers no action."""
    return bool(mdp.end_probabilities.max() > LEAK or not mdp.available.any(axis=0).all())


def _leak_error(differences: list[Any], *mdps: FiniteMDP) -> float:
    """Return what rows that are taken to sum to one, but lack a little, can change in any value."""
    leak = max(float(np.abs(np.asarray(difference.sum(axis=1))).max()) for difference in differences)
    largest = max(float(np.abs(mdp.rewards[mdp.available]).max()) for mdp in mdps)
    horizon = 1 / (1 - mdps[0].discount)
    return mdps[0].discount * leak * largest * horizon**2


def row_norms(difference: Any) -> Floats:
    """Return the rows' sums of absolute entries, with the end's column: what the two rows lack to sum to one."""
    absolute = np.asarray(abs(difference).sum(axis=1)).ravel()
    return absolute + np.abs(np.asarray(difference.sum(axis=1)).ravel())


def _range(rewards: Array, *, ends: bool) -> float:
    return float(np.ptp(np.append(rewards, 0.0) if ends else rewards))


def _largest(errors: Floats) -> float:
    return float(errors.max(initial=0.0))
