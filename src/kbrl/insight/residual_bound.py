"""How far the values that a model promises can be from what its policy earns, by its residuals on held-out transitions.

Let v be any function of states, pi a policy, P its transitions in the true MDP, and g(s) = E[r + discount v(s') - v(s)]
the Bellman residual where pi acts.  Then V^pi - v = (I - discount P)^-1 g, so the error at s is at most the sum of |g|
over where pi goes from s.  This holds for any values, so for models of both orders; it does not say how much better
another policy could be.  docs/theory.md derives it and says how tight it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.special import stdtrit

from kbrl.arrays import Floats, Integers
from kbrl.checks import in_unit_interval
from kbrl.data.episodes import block_of, episode_hashes
from kbrl.data.transitions import Transitions
from kbrl.model.model import Model, as_model
from kbrl.trust.learnt_episodes import refuse_learnt

N_BLOCKS = 20  # of episodes, for the standard error
_SWEEPS = 5000  # each gives a valid bound; at a discount of 0.99 they end much earlier
_SMALL = 1e-9  # relative change at which they end


@dataclass(frozen=True)
class ResidualBound:
    """A bound on the distance between the promised value and the policy's return, on average over the start states.

    ``bound`` takes the mean residual of each cell, ``coarse`` the mean of the residuals' sizes, which also counts noise
    and differences within a cell.  ``upper`` is the end of a one-sided interval of ``bound``.
    """

    promised: float  # the mean of the model's values at the start states
    bound: float
    upper: float
    coarse: float
    trivial: float  # what holds for any values: from the largest and the smallest reward
    correction: float  # the sum of the residuals with their signs; promised + correction estimates the return
    uncovered: float  # the share of the policy's discounted time in cells without a held-out case of its action
    n_used: int  # held-out transitions in which the policy would have acted as the log did

    @property
    def is_vacuous(self) -> bool:
        """Whether the bound says no more than the trivial one."""
        return not self.upper < self.trivial


def residual_bound(model: Any, held_out: Transitions, starts: Any = None, *, level: float = 0.99) -> ResidualBound:
    """Bound the error of the values that a model promises, by transitions that it has not learnt from.

    States are told apart by their nearest representative state (their cell).  In a finite MDP whose states are the
    representative states, the bound is that of the theorem, up to chance, which ``upper`` covers.  Elsewhere it assumes
    that within a cell the policy meets states as the log does.  For a cell without a case of the policy's action, the
    error is the largest possible.  ``starts``: states, (n_starts, n_dims); by default the first state of each held-out
    episode.

    In state 0 "stay" pays 1; the model has learnt this exactly, so its promise of 1 / (1 - 0.9) = 10 needs no margin.

    >>> from kbrl import KBSF, Transitions
    >>> from kbrl.insight.residual_bound import residual_bound
    >>> states, actions = [[0.0], [0.0], [1.0], [1.0]] * 10, ["stay", "go"] * 20
    >>> rewards, ends = [1.0, 0.0, 0.0, 0.0] * 10, [[0.0], [1.0], [1.0], [0.0]] * 10
    >>> def part(first):
    ...     return Transitions(states, actions, rewards, ends, episodes=first + np.arange(40))
    >>> model = KBSF(reps=[[0.0], [1.0]], sample_width=1e-3, rep_width=1e-3, discount=0.9).fit(part(0)).model_
    >>> found = residual_bound(model, part(40), [[0.0]])
    >>> round(found.promised, 3), abs(round(found.bound, 3)), round(found.trivial, 3)
    (10.0, 0.0, 10.0)
    """
    known, log = _checked(as_model(model), held_out), held_out
    in_unit_interval(level, "level")
    log = known.prepared(log)
    cells = _Cells(known)
    used = np.asarray(known.predict(log.states) == log.action_labels[log.action_indices])
    values, next_values = known.values(log.states), np.where(log.terminals, 0.0, known.values(log.next_states))
    residuals = log.rewards + known.discount * next_values - values
    starts = _first_states(log) if starts is None else starts
    chain = _Chain(
        n_cells=len(known.basis.reps),
        start=np.bincount(cells(starts), minlength=len(known.basis.reps)) / len(cells(starts)),
        worst=_worst(known, log.rewards),
        discount=known.discount,
    )
    rows = _Rows(cells(log.states)[used], cells(log.next_states)[used], log.terminals[used], residuals[used])
    bound, coarse, correction, uncovered = chain.bounds(rows)
    blocks = _blocks(log)[used]
    without = [chain.bounds(rows.where(blocks != block))[0] for block in range(N_BLOCKS)]
    error = float(np.sqrt((N_BLOCKS - 1) * np.var(without)))  # of the jackknife
    return ResidualBound(
        promised=float(known.values(starts).mean()),
        bound=bound,
        upper=bound + float(stdtrit(N_BLOCKS - 1, level)) * error,
        coarse=coarse,
        trivial=float(chain.start @ chain.worst),
        correction=correction,
        uncovered=uncovered,
        n_used=int(used.sum()),
    )


def error_bound(probabilities: Any, residuals: Floats, discount: float, worst: Floats | float = np.inf) -> Floats:
    """Bound |V^pi - v| at every state of a finite MDP, (n_states,), by the residuals of v where pi acts, (n_states,).

    ``probabilities``: of pi's next states, (n_states, n_states); rows sum to at most one.  ``worst``: what the error is
    known not to exceed.  The bound is the largest w <= worst with w <= |residuals| + discount probabilities w: a sweep
    that starts from a valid bound returns a valid bound.

    The policy stays in a state whose value is wrong by 0.1 each step: by 0.1 / (1 - 0.9) in all.

    >>> import numpy as np
    >>> from kbrl.insight.residual_bound import error_bound
    >>> error_bound(np.eye(1), np.array([-0.1]), 0.9).round(6).tolist()
    [1.0]
    """
    sizes = np.abs(residuals)
    cap = np.minimum(worst, sizes.max(initial=0.0) / (1.0 - discount))
    found = np.broadcast_to(cap, sizes.shape).astype(np.float64)
    for _ in range(_SWEEPS):
        tighter = np.minimum(cap, sizes + discount * (probabilities @ found))
        change = float(np.abs(found - tighter).max(initial=0.0))
        found = tighter
        if change <= _SMALL * float(found.max(initial=0.0)):
            break
    return found


@dataclass(frozen=True)
class _Rows:
    """Held-out transitions in which the policy would have acted as the log did."""

    cells: Integers
    next_cells: Integers
    terminals: Any
    residuals: Floats

    def where(self, chosen: Any) -> _Rows:
        return _Rows(self.cells[chosen], self.next_cells[chosen], self.terminals[chosen], self.residuals[chosen])


@dataclass(frozen=True)
class _Chain:
    """The policy's way through the cells: where it starts, and how wrong a value can be there at all."""

    n_cells: int
    start: Floats
    worst: Floats
    discount: float

    def bounds(self, rows: _Rows) -> tuple[float, float, float, float]:
        """Return the bound, the coarse bound, the signed correction and the uncovered share of the time."""
        n, counts = self.n_cells, np.bincount(rows.cells, minlength=self.n_cells)
        known, weights = counts > 0, 1.0 / np.maximum(counts, 1)
        goes = ~rows.terminals
        shape, at = (n, n), (rows.cells[goes], rows.next_cells[goes])
        steps = sparse.csr_array((weights[at[0]], at), shape=shape)
        mean, size = (
            np.bincount(rows.cells, values * weights[rows.cells], minlength=n)
            for values in (rows.residuals, np.abs(rows.residuals))
        )
        # A cell without a case ends the walk with the largest possible error.
        residuals, sizes = (np.where(known, found, self.worst) for found in (mean, size))
        fine, coarse = (error_bound(steps, found, self.discount, self.worst) for found in (residuals, sizes))
        solved = sparse.linalg.splu(sparse.csc_matrix(sparse.eye(n) - self.discount * steps))
        correction = float(self.start @ solved.solve(np.where(known, mean, 0.0)))
        time = solved.solve(self.start, trans="T")
        uncovered = float((time * ~known).sum() / time.sum())
        return float(self.start @ fine), float(self.start @ coarse), correction, uncovered


class _Cells:
    """The representative state nearest to a state."""

    def __init__(self, model: Model) -> None:
        self._model, self._tree = model, cKDTree(model.basis.reps)

    def __call__(self, states: Any) -> Integers:
        return np.asarray(self._tree.query(self._model.scaled(states))[1], dtype=np.intp)


def _checked(model: Model, log: Transitions) -> Model:
    if model.deferral is not None:
        raise ValueError("A bound by residuals needs a model that decides, but this one defers. Bound the one before.")
    if log.durations is not None:
        raise ValueError("A bound by residuals needs steps of one length, but this log has durations.")
    if model.window is not None:
        raise ValueError(
            f"A bound by residuals needs a model of steps, but this one has learnt windows of {model.window} steps. "
            f"Fit without plan.window (--plan-window)."
        )
    refuse_learnt(model, log)
    return model


def _worst(model: Model, rewards: Floats) -> Floats:
    """Return the largest possible error of the model's value at each representative state, by the rewards seen."""
    values = model.values(model.reps)
    low, high = (extreme / (1.0 - model.discount) for extreme in (min(0.0, rewards.min()), max(0.0, rewards.max())))
    return np.maximum(np.abs(values - low), np.abs(high - values))


def _first_states(log: Transitions) -> Floats:
    hashes = episode_hashes(log)
    return log.states[np.sort(np.unique(hashes, return_index=True)[1])]


def _blocks(log: Transitions) -> Integers:
    if log.episodes is None:  # in their order
        return np.arange(len(log)) * N_BLOCKS // max(1, len(log))
    return block_of(episode_hashes(log), N_BLOCKS)
