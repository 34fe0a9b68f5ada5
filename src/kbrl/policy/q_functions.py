"""The value of any state and action, from what was learnt at finitely many states.

Two functions, both the paper's.  With the samples at hand: Q(s, a) = sum_i kappa_a(s, s_i) [r_i + discount V(s'_i)].
Without them: Q(s, a) = sum_i kappa-bar(s, rep i) Q-bar(rep i, a).  Where an action is not available, Q is -inf.
Paper: equations (kbrl_q), (kbsf_q) and (ikbsf_q).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.model.kernels import Kernel, KernelAt, blocks

# Entries of a block of weights; bounds the memory of a question about many states.
_BLOCK_ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class RepQ:
    """Q from the representative states: a weighted mean of what is known at them."""

    weights: KernelAt
    rep_q: Floats  # (n_reps, n_actions), -inf where unavailable

    def __call__(self, states: Floats) -> Floats:
        """Return Q, (n_states, n_actions), of scaled states."""
        known = np.isfinite(self.rep_q)
        q = np.where(known, self.rep_q, 0.0)
        if known.all():
            return _in_blocks(lambda rows: self.weights.weights(states[rows]) @ q, len(states), len(q))
        return _in_blocks(lambda rows: self._where_known(states[rows], q, known), len(states), len(q))

    def _where_known(self, states: Floats, q: Floats, known: Booleans) -> Floats:
        """Share the weight of representative states that know nothing of an action among those that do."""
        weights = self.weights.weights(states)
        mass = weights @ known.astype(np.float64)
        total = weights @ q
        return np.divide(total, mass, out=np.full_like(total, -np.inf), where=mass > 0)


@dataclass(frozen=True, eq=False)
class SampleQ:
    """Q from the samples: for each action the kernel at its states, and what each of its transitions is worth."""

    samples: list[KernelAt | None]  # one an action; None where it was never tried
    worths: list[Floats]  # r_i + discount V(s'_i)

    @classmethod
    def of(cls, kernel: Kernel, states: Floats, worths: Floats, by_action: list[Integers]) -> SampleQ:
        """Part scaled sample states and their worths by action."""
        at = [kernel.at(states[rows]) if len(rows) else None for rows in by_action]
        return cls(at, [worths[rows] for rows in by_action])

    def __call__(self, states: Floats) -> Floats:
        """Return Q, (n_states, n_actions), of scaled states."""
        q = np.full((len(states), len(self.samples)), -np.inf)
        for action, (samples, worths) in enumerate(zip(self.samples, self.worths)):
            if samples is not None:
                for rows in _blocks(len(states), len(worths)):
                    q[rows, action] = samples.weights(states[rows]) @ worths
        return q


def _in_blocks(compute: Callable[[slice], Floats], n_rows: int, n_columns: int) -> Floats:
    return np.concatenate([compute(rows) for rows in _blocks(n_rows, n_columns)])


def _blocks(n_rows: int, n_columns: int) -> list[slice]:
    return blocks(n_rows, max(1, _BLOCK_ENTRIES // n_columns))
