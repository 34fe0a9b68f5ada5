"""A Markov decision process with finitely many states and actions.

Dense and sparse transition probabilities share all code: seen with the actions stacked, they are one
two-dimensional matrix, (n_actions * n_states, n_states), which multiplies a vector of values.

A row may sum to less than one: what is missing is the probability that the episode ends there.
Paper: section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import as_floats, check_finite, in_unit_interval, refuse_rows

# How far a row of probabilities may sum beyond one, or an entry be below zero, by rounding.
ROUNDING = 1e-9
_LEAST_DISCOUNT = 1e-100  # dividing by less would overflow


@dataclass(frozen=True, init=False, eq=False, repr=False)
class FiniteMDP:
    """A finite MDP: transition probabilities, expected rewards and the discount.

    probabilities: (n_actions, n_states, n_states), entry [a, i, j] for going from state i to state j by action a; or
        a sparse matrix with the actions stacked, (n_actions * n_states, n_states).  A row may sum to less than 1:
        the rest is the probability that the episode ends.
    rewards: the expected reward of each action in each state, (n_actions, n_states).
    discount: the value of a reward one step later, in [0, 1).
    available: whether each action can be taken in each state, (n_actions, n_states); None: everywhere.

    Two states, one action: the first leads to the second, which stays and pays 1 per step.

    >>> from kbrl import FiniteMDP
    >>> FiniteMDP(probabilities=[[[0.0, 1.0], [0.0, 1.0]]], rewards=[[0.0, 1.0]], discount=0.5)
    FiniteMDP(2 states, 1 actions, discount 0.5, dense)
    """

    stacked: Any  # (n_actions * n_states, n_states): a NumPy array or a CSR array
    rewards: Floats  # (n_actions, n_states)
    discount: float
    available: Booleans  # (n_actions, n_states)
    n_actions: int  # available or not
    n_states: int

    def __init__(self, probabilities: Any, rewards: Any, discount: float, available: Any = None) -> None:
        rewards = as_floats(rewards, "rewards").copy()
        if rewards.ndim != 2 or rewards.size == 0:
            raise ValueError(f"rewards must have the shape (n_actions, n_states), but it is {rewards.shape}.")
        stacked = _stack(probabilities, rewards.shape)
        available = np.ones(rewards.shape, dtype=bool) if available is None else np.array(available, dtype=bool)
        if available.shape != rewards.shape:
            raise ValueError(f"available must have the rewards' shape {rewards.shape}, but it is {available.shape}.")
        _check_probabilities(stacked)
        if not np.isfinite(rewards[available]).all():
            raise ValueError("rewards must be finite wherever an action is available, but some are not.")
        self._set(stacked, rewards, in_unit_interval(discount, "discount"), available)

    def _set(self, stacked: Any, rewards: Floats, discount: float, available: Booleans) -> None:
        object.__setattr__(self, "stacked", stacked)
        object.__setattr__(self, "rewards", rewards)
        object.__setattr__(self, "discount", discount)
        object.__setattr__(self, "available", available)
        object.__setattr__(self, "n_actions", rewards.shape[0])
        object.__setattr__(self, "n_states", rewards.shape[1])

    @classmethod
    def trusted(cls, stacked: Any, rewards: Floats, discount: float, available: Booleans) -> FiniteMDP:
        """Wrap arrays that are known to be good, without a check."""
        self = cls.__new__(cls)
        self._set(stacked, rewards, discount, available)
        return self

    @classmethod
    def discounted(cls, stacked: Any, rewards: Floats, discount: float, available: Booleans) -> FiniteMDP:
        """Wrap rows that hold the discount already, because each transition has its own, without a check.

        The largest row sum becomes the discount, and all rows are divided by it.  So they sum to at most one, and
        solvers and their proofs hold as they are.  ``discount`` stands in where nothing follows anything.
        """
        sums = np.asarray(stacked.sum(axis=1)).ravel()
        largest = float(sums.max(initial=0.0))
        common = largest if largest > _LEAST_DISCOUNT else discount
        return cls.trusted(stacked if common == 0 else stacked / common, rewards, common, available)

    @property
    def probabilities(self) -> Any:
        """(n_actions, n_states, n_states) if dense; stacked CSR, (n_actions * n_states, n_states), if sparse."""
        if sparse.issparse(self.stacked):
            return self.stacked
        return self.stacked.reshape(self.n_actions, self.n_states, self.n_states)

    @property
    def end_probabilities(self) -> Floats:
        """The probability that the episode ends with this step, (n_actions, n_states)."""
        kept = np.asarray(self.stacked.sum(axis=1)).reshape(self.rewards.shape)
        return np.where(self.available, np.clip(1.0 - kept, 0.0, 1.0), 0.0)

    def __repr__(self) -> str:
        form = "sparse" if sparse.issparse(self.stacked) else "dense"
        return f"FiniteMDP({self.n_states} states, {self.n_actions} actions, discount {self.discount:g}, {form})"


def _stack(probabilities: Any, shape: tuple[int, int]) -> Any:
    n_actions, n_states = shape
    if sparse.issparse(probabilities):
        stacked = sparse.csr_array(probabilities, dtype=np.float64, copy=True)
    else:
        dense = as_floats(probabilities, "probabilities")
        if dense.shape != (n_actions, n_states, n_states):
            raise ValueError(
                f"probabilities must have the shape (n_actions, n_states, n_states) = "
                f"{(n_actions, n_states, n_states)} to go with the rewards, but it is {dense.shape}."
            )
        own = dense.copy() if dense is probabilities else dense  # later changes of the user's array do not reach it
        stacked = np.ascontiguousarray(own).reshape(n_actions * n_states, n_states)
    if stacked.shape != (n_actions * n_states, n_states):
        raise ValueError(
            f"Sparse probabilities must have the shape (n_actions * n_states, n_states) = "
            f"{(n_actions * n_states, n_states)} to go with the rewards, but it is {stacked.shape}."
        )
    return stacked


def _check_probabilities(stacked: Any) -> None:
    entries = stacked.data if sparse.issparse(stacked) else stacked
    if not np.isfinite(entries).all() or (entries.size and entries.min() < -ROUNDING):
        raise ValueError("probabilities must be finite and not below 0, but some are not.")
    sums = np.asarray(stacked.sum(axis=1)).ravel()
    if sums.max() > 1 + ROUNDING:
        row, largest = int(np.argmax(sums)), float(sums.max())
        raise ValueError(f"Each row of probabilities must sum to at most 1, but row {row} sums to {largest!r}.")


def checked_values(mdp: FiniteMDP, values: Any) -> Floats:
    """Return one finite value per state, (n_states,), or refuse them."""
    array = as_floats(values, "values")
    _check_shape(array, mdp, "values")
    check_finite(array, "values")
    return array


def checked_policy(mdp: FiniteMDP, policy: Any) -> Integers:
    """Return the index of an available action per state, (n_states,), or -1 for none; or refuse them."""
    array = np.asarray(policy)
    if array.dtype.kind not in "iu":
        raise TypeError(f"policy must be whole numbers, but its type is {array.dtype}. Pass indices of actions.")
    _check_shape(array, mdp, "policy")
    known = (array >= 0) & (array < mdp.n_actions)
    bad = (array != -1) & ~(known & mdp.available[np.where(known, array, 0), np.arange(mdp.n_states)])
    if bad.any():
        rule = f"be indices of available actions, from 0 to {mdp.n_actions - 1}, or -1 for none"
        refuse_rows(bad, array, "policy", rule, "mdp.available says which action can be taken where.")
    return array.astype(np.intp)


def _check_shape(array: Array, mdp: FiniteMDP, name: str) -> None:
    if array.shape != (mdp.n_states,):
        raise ValueError(f"{name} must have the shape (n_states,) = ({mdp.n_states},), but it is {array.shape}.")
