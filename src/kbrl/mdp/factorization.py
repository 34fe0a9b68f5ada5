"""The stochastic-factorization trick for any finite MDP.

If P^a = D K^a with stochastic D (to the representative states) and K^a (back to the states), then swapping the
factors, P-bar^a = K^a D, gives an MDP with as many states as D has columns.  Solve that one, then ``lift`` its
solution: v = max over actions of D Q-bar.  Hard aggregation and Gordon's averagers are special cases.  There may be
one D^a per action ("the most general scenario" of section 3.2): P-bar^a = K^a D^a, v = max over a of D^a q-bar^a.

Paper: section 3; section 7 and appendix A.3 for the special cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_floats, check_finite, in_unit_interval
from kbrl.mdp.finite_mdp import ROUNDING, FiniteMDP

ONE_PER_ACTION = "to_states must hold one matrix per action, for example [K] if there is only one action."


@dataclass(frozen=True, eq=False)
class Factors:
    """An MDP's factors and the reduced MDP that they make."""

    to_reps: Any  # D, (n_states, n_reps), dense or CSR
    to_states: list[Any]  # K^a, one (n_reps, n_states) per action, dense or CSR
    rep_rewards: Floats  # r-bar, (n_actions, n_reps)
    reduced: FiniteMDP


def reduce_mdp(
    to_reps: Any, to_states: Any, rewards: Any, discount: float, *, rep_rewards: Any = None, ends: bool = False
) -> FiniteMDP:
    """Swap the factors: return the MDP of the representative states, with P-bar^a = K^a D.

    ``to_reps`` is D, (n_states, n_reps), or holds one D^a per action.  ``to_states`` holds K^a, (n_actions, n_reps,
    n_states).  Any of them may be CSR (K and D^a then as a list).  The rewards are those of entering a state,
    (n_states,) or (n_actions, n_states), and give r-bar^a = K^a r; or pass None for them and r-bar itself as
    ``rep_rewards``, (n_actions, n_reps).
    With ``ends``, rows of K may sum to less than one: the rest is the probability of ending, with reward 0 in K^a r.

    One D^a per action is exact for a single action, and where all D^a are one and deterministic.  Else, with exact
    factors P^a = D^a K^a and r^a = D^a r-bar^a, no lifted value is off by more than discount / (1 - discount)^2 times
    the range of r-bar times (largest sigma(D^a) + largest |D^a - D^b| / 2): actions that disagree on where a state
    belongs cost as much as states that belong to several.
    """
    discount = in_unit_interval(discount, "discount")
    to_reps, to_states = _check_one_each(to_reps, to_states, ends=ends)
    if (rewards is None) == (rep_rewards is None):
        raise ValueError("Pass either rewards (of the states) or rep_rewards (r-bar): exactly one of them.")
    if rep_rewards is None:
        rep_rewards = _enter(to_states, rewards)
    return _swap(to_reps, to_states, check_rep_rewards(rep_rewards, to_states), discount)


def lift(to_reps: Any, rep_q: Any) -> Floats:
    """Return the values of the states, max over actions of D Q-bar, (n_states,), from Q-bar, (n_reps, n_actions).

    ``to_reps`` is D or holds one D^a per action, as for `reduce_mdp`.
    -inf marks an action that a representative state does not offer: it is then not offered either by the states
    that put weight there.  A representative state without any action is an end, worth 0.
    """
    rep_q = _as_matrix(rep_q, "rep_q")
    per_action_reps = [_as_matrix(d, "to_reps") for d in _one_each(to_reps, rep_q.shape[1])]
    shape = per_action_reps[0].shape
    if any(d.shape != shape for d in per_action_reps) or shape[1] != rep_q.shape[0]:
        raise ValueError(
            f"rep_q must have one row per representative state, {shape[1]}, but its shape is {rep_q.shape}."
        )
    missing = np.isneginf(rep_q)
    missing[missing.all(axis=1)] = False
    filled = np.where(np.isneginf(rep_q), 0.0, rep_q)  # 0 * -inf would be NaN
    q = np.column_stack([d @ column for d, column in zip(per_action_reps, filled.T)])
    lost = np.column_stack([d @ column for d, column in zip(per_action_reps, missing.T.astype(np.float64))])
    q = np.where(lost > 0, -np.inf, q)
    best = q.max(axis=1)
    return np.where(np.isneginf(best), 0.0, best)


def averager(mdp: FiniteMDP, to_reps: Any, rep_indices: Any) -> Factors:
    """Reduce the MDP to some of its states (Gordon 1995): K^a and r-bar^a are P^a's and r^a's rows at these states."""
    to_reps = _check_to_reps(check_stochastic(to_reps, "to_reps"), mdp)
    indices: Integers = np.asarray(rep_indices)
    if indices.shape != (to_reps.shape[1],) or indices.dtype.kind not in "iu":
        raise ValueError(
            f"rep_indices must be {to_reps.shape[1]} states, one per column of to_reps, but they are {rep_indices!r}."
        )
    if indices.min() < 0 or indices.max() >= mdp.n_states:
        raise ValueError(f"rep_indices must lie between 0 and {mdp.n_states - 1}, but they are {rep_indices!r}.")
    to_states = [rows[indices] for rows in per_action(mdp)]
    offered = mdp.available[:, indices]
    rep_rewards = np.where(offered, mdp.rewards[:, indices], 0.0)
    return Factors(to_reps, to_states, rep_rewards, _swap(to_reps, to_states, rep_rewards, mdp.discount, offered))


def check_stochastic(matrix: Any, name: str, *, ends: bool = False) -> Any:
    """Return the matrix as an array or CSR array of doubles if it is stochastic; otherwise say which row is not."""
    matrix = _as_matrix(matrix, name)
    fault = _fault(matrix, ends)
    if fault is not None:
        rule = "sum to at most 1" if ends else "sum to 1"
        raise ValueError(
            f"The rows of {name} must {rule}, with no entry below 0, but {fault}. Divide each row by its sum."
        )
    return matrix


def check_factors(to_reps: Any, to_states: Any, *, ends: bool = False) -> tuple[Any, list[Any]]:
    """Return D and the list of K^a if they are stochastic and fit each other."""
    to_reps = check_stochastic(to_reps, "to_reps (D)")
    if sparse.issparse(to_states) or len(to_states) == 0:
        raise ValueError(ONE_PER_ACTION)
    checked = [check_stochastic(k, f"to_states (K) of action {a}", ends=ends) for a, k in enumerate(to_states)]
    for action, matrix in enumerate(checked):
        if matrix.shape != to_reps.shape[::-1]:
            raise ValueError(
                f"to_states of action {action} must have the shape (n_reps, n_states) = {to_reps.shape[::-1]} to go "
                f"with to_reps, but it is {matrix.shape}."
            )
    return to_reps, checked


def _one_each(to_reps: Any, n_actions: int) -> list[Any]:
    """Return D^a for each action: one matrix stands for all, or there is one per action."""
    several = isinstance(to_reps, (list, tuple)) or (isinstance(to_reps, np.ndarray) and to_reps.ndim == 3)
    if not (several and len(to_reps) and (sparse.issparse(to_reps[0]) or np.ndim(to_reps[0]) == 2)):
        return [to_reps] * n_actions
    if len(to_reps) != n_actions:
        raise ValueError(f"to_reps must be one matrix or one per action, {n_actions}, but there are {len(to_reps)}.")
    return list(to_reps)


def _check_one_each(to_reps: Any, to_states: Any, *, ends: bool) -> tuple[list[Any], list[Any]]:
    """Return the lists of D^a and of K^a if they are stochastic and fit each other."""
    if sparse.issparse(to_states) or len(to_states) == 0:
        raise ValueError(ONE_PER_ACTION)
    given = _one_each(to_reps, len(to_states))
    if given[0] is to_reps:
        checked, to_states = check_factors(to_reps, to_states, ends=ends)
        return [checked] * len(to_states), to_states
    first = _as_matrix(given[0], "to_reps (D) of action 0")
    for action, matrix in enumerate(given):
        given[action] = check_stochastic(matrix, f"to_reps (D) of action {action}")
        if given[action].shape != first.shape:
            raise ValueError(
                f"to_reps must have one shape for all actions, but it is {first.shape} for action 0 and "
                f"{given[action].shape} for action {action}."
            )
    return given, check_factors(first, to_states, ends=ends)[1]


def check_rep_rewards(rep_rewards: Any, to_states: Sequence[Any]) -> Floats:
    """Return r-bar if it has the shape (n_actions, n_reps)."""
    array, shape = as_floats(rep_rewards, "rep_rewards"), (len(to_states), to_states[0].shape[0])
    if array.shape != shape:
        raise ValueError(f"rep_rewards must have the shape (n_actions, n_reps) = {shape}, but it is {array.shape}.")
    check_finite(array, "rep_rewards")
    return array


def per_action(mdp: FiniteMDP) -> list[Any]:
    """Return P^a, (n_states, n_states), for each action."""
    n = mdp.n_states
    return [mdp.stacked[a * n : (a + 1) * n] for a in range(mdp.n_actions)]


def _swap(
    to_reps: Any, to_states: Sequence[Any], rep_rewards: Floats, discount: float, available: Booleans | None = None
) -> FiniteMDP:
    products = [k @ d for k, d in zip(to_states, _one_each(to_reps, len(to_states)))]
    if all(sparse.issparse(p) for p in products):
        stacked = sparse.csr_array(sparse.vstack(products))
    else:
        stacked = np.concatenate([p.toarray() if sparse.issparse(p) else p for p in products])
    available = np.ones(rep_rewards.shape, dtype=bool) if available is None else available
    return FiniteMDP.trusted(stacked, rep_rewards, discount, available)


def _enter(to_states: Sequence[Any], rewards: Any) -> Floats:
    """Return r-bar^a = K^a r^a from the rewards of entering the states."""
    rewards, shape = as_floats(rewards, "rewards"), (len(to_states), to_states[0].shape[1])
    if rewards.shape not in (shape, shape[1:]):
        raise ValueError(f"rewards must have the shape {shape[1:]} or {shape}, but it is {rewards.shape}.")
    check_finite(rewards, "rewards")
    return np.stack([k @ r for k, r in zip(to_states, np.broadcast_to(rewards, shape))])


def _check_to_reps(to_reps: Any, mdp: FiniteMDP) -> Any:
    if to_reps.shape[0] != mdp.n_states:
        raise ValueError(f"The MDP has {mdp.n_states} states, but {to_reps.shape[0]} are mapped to representatives.")
    return to_reps


def _as_matrix(values: Any, name: str) -> Any:
    matrix = sparse.csr_array(values, dtype=np.float64) if sparse.issparse(values) else as_floats(values, name)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} must be a matrix with rows and columns, but its shape is {matrix.shape}.")
    return matrix


def _fault(matrix: Any, ends: bool) -> str | None:
    """Return which row is not a distribution, in words; None if all are."""
    lowest = matrix.min(axis=1)
    lowest = lowest.toarray().ravel() if sparse.issparse(lowest) else lowest
    with np.errstate(invalid="ignore"):  # infinities of both signs
        sums = np.asarray(matrix.sum(axis=1)).ravel()
    excess = sums - 1 if ends else np.abs(sums - 1)
    bad = ~((lowest >= -ROUNDING) & (excess <= ROUNDING))  # in this form NaN is bad, too
    if not bad.any():
        return None
    row = int(np.argmax(bad))
    detail = f" and has the entry {lowest[row]:.10g}" if lowest[row] < -ROUNDING else ""
    return f"row {row} sums to {sums[row]:.10g}{detail} ({int(bad.sum())} of {len(bad)} rows are wrong)"
