"""How many representative states: as many as make the model no larger than its data, within memory and time.

Without a limit in seconds the number follows from the sizes alone, so that the same data give the same model anywhere.
With one, it follows from a brief measurement on the machine at hand.
Paper: section 4.2, the time n m^2 and the memory m^2 of each action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from kbrl.checks import positive, whole
from kbrl.data.transitions import Transitions
from kbrl.learners.kbsf import KBSF
from kbrl.model.first_model import first_model
from kbrl.settings import Growth
from kbrl.threads import number_of_jobs

MEGABYTES = 256.0  # for the sums and their copies
_LEAST, _MOST = 50, 10_000  # unless there are fewer transitions; more than that only if they are asked for
_WORK = 2e12  # n m^2: about a minute
_COPIES = 4  # of the sums, while the MDP is made of them and saved
_TRIED, _ROWS = (96, 384), (4096, 65536)  # representative states and transitions (dense, truncated) of a measurement


@dataclass(frozen=True)
class Sizes:
    """The sizes that decide the number of representative states."""

    n_rows: int
    n_dims: int
    n_actions: int
    sample_neighbors: int | None = None
    rep_neighbors: int | None = None

    def numbers(self, n_reps: int) -> float:
        """Return how many numbers a model with that many representative states holds."""
        if self.sample_neighbors is None:
            return float(self.n_actions) * n_reps**2
        kept = self.n_actions * n_reps * min(self.sample_neighbors, self.n_rows)
        led_to = n_reps if self.rep_neighbors is None else min(n_reps, self.sample_neighbors * self.rep_neighbors)
        return float(kept) * (self.n_dims + 4) + float(self.n_actions) * n_reps * led_to


@dataclass(frozen=True)
class Rates:
    """What learning costs on this machine, in seconds: n (row + rep m + rep_squared m^2) + solving m^2."""

    row: float
    rep: float
    rep_squared: float
    solving: float

    def seconds(self, n_rows: int, n_reps: int) -> float:
        """The time in seconds for these numbers of transitions and representative states."""
        each = self.row + self.rep * n_reps + self.rep_squared * n_reps**2
        return n_rows * each + self.solving * n_reps**2


@dataclass(frozen=True)
class NumberOfReps:
    """A number of representative states, and why it is not larger."""

    n_reps: int
    reason: str


def choose_n_reps(
    sizes: Sizes, *, megabytes: float | None = None, seconds: float | None = None, rates: Rates | None = None
) -> NumberOfReps:
    """Choose the number of representative states; ``seconds`` is what is left to learn in, at ``rates``."""
    whole(sizes.n_rows, "n_rows")
    limit = MEGABYTES if megabytes is None else positive(megabytes, "megabytes")
    in_data = sizes.n_rows * (2 * sizes.n_dims + 3)
    found = {
        "the model is then about as large as its data": _largest(lambda m: sizes.numbers(m) <= in_data),
        f"more would need over {limit:g} MB of memory": _largest(
            lambda m: 8e-6 * _COPIES * sizes.numbers(m) <= limit, least=1
        ),
    }
    if rates is not None and seconds is not None:
        reason = "more would take longer than asked for, by a measurement on this machine; on others it may differ"
        found[reason] = _largest(lambda m: rates.seconds(sizes.n_rows, m) <= seconds, least=1)
    elif sizes.sample_neighbors is None:
        reason = "more would take much longer than a minute"
        found[reason] = _largest(lambda m: float(sizes.n_rows) * m**2 <= _WORK)
    found["there are no more transitions"] = sizes.n_rows
    reason = min(found, key=lambda why: found[why])
    return NumberOfReps(found[reason], reason)


def measure(learner: KBSF, sample: Transitions, *, row_seconds: float) -> Rates:
    """Measure what a learner costs on this machine; ``row_seconds`` is the time to read a row."""
    n_rows = _ROWS[learner.settings().sample_neighbors is not None]
    part = sample[:n_rows]
    tried = [min(m, len(part)) for m in _TRIED]
    _time(learner, part[:64], tried[0])  # compiles
    small, large = (_time(learner, part, m) for m in tried)
    per_row = np.array([small[0], large[0]]) / len(part)
    # t = rep m + rep_squared m^2 through both times; neither below 0
    squared = max(0.0, float(per_row[1] / tried[1] - per_row[0] / tried[0]) / max(1, tried[1] - tried[0]))
    rep = max(0.0, float(per_row[1]) / tried[1] - squared * tried[1])
    return Rates(row_seconds, rep, squared, large[1] / tried[1] ** 2)


def _time(learner: KBSF, log: Transitions, n_reps: int) -> tuple[float, float]:
    """Return the seconds to add the transitions and to solve the model, with that many random representative states."""
    width = float(np.mean(learner.settings().rep_width))
    changed: dict[str, Any] = {"n_reps": min(n_reps, len(log)), "reps": "random", "random_state": 0, "rep_width": width}
    settings = replace(learner.settings(), **changed, growth=Growth())
    empty = first_model(settings, log)
    start = perf_counter()
    model = empty.extend(log, n_jobs=number_of_jobs(settings.n_jobs))
    added = perf_counter()
    model.solve()
    return added - start, perf_counter() - added


def _largest(fits: Callable[[int], bool], *, least: int = _LEAST) -> int:
    """Return the largest number up to _MOST that fits, where all smaller ones do; at least ``least``."""
    low, high = least, _MOST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
