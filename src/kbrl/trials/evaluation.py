"""What a policy achieved, and how certain a mean over runs is.

The paper reports mean returns from fixed test states, averaged over runs, with 99 % confidence intervals
(sections 4.3 and 5.2).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_floats, check_finite
from kbrl.data.transitions import Transitions


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """One episode from each start state."""

    returns: Floats  # (n_states,): discounted sums of rewards
    lengths: Integers  # (n_states,): numbers of decisions
    terminated: Booleans  # (n_states,): the episode really ended; False where it was cut by the time limit
    log: Transitions | None = None  # the trajectories, where they were recorded; row i of the states is episode i

    @property
    def mean(self) -> float:
        """The mean return over the start states."""
        return float(self.returns.mean())

    def __repr__(self) -> str:
        return (
            f"Evaluation({len(self.returns)} episodes, mean return {self.mean:.4g}, mean length "
            f"{self.lengths.mean():.1f}, {int(self.terminated.sum())} terminated)"
        )


def confidence_interval(values: Any, level: float = 0.99) -> tuple[float, float]:
    """Return the mean of independent values, (n_runs,), and the half width of its interval by Student's t.

    One value says nothing about the spread: its half width is infinite.

    >>> from kbrl.trials import confidence_interval
    >>> mean, half_width = confidence_interval([1.0, 2.0, 3.0], level=0.95)  # half width 4.303 * 1 / sqrt(3)
    >>> round(mean, 3), round(half_width, 3)
    (2.0, 2.484)
    """
    array = np.atleast_1d(as_floats(values, "values"))
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"values must be one number per run, at least one, but their shape is {array.shape}.")
    check_finite(array, "values")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, but it is {level!r}. Try 0.99 or 0.95.")
    if len(array) == 1:
        return float(array[0]), float("inf")
    quantile = stdtrit(len(array) - 1, (1 + level) / 2)
    return float(array.mean()), float(quantile * array.std(ddof=1) / np.sqrt(len(array)))
