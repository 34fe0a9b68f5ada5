"""Whether two sets of rows have more rows in common than chance explains, judged by their sketches.

Rows of discrete states repeat by nature; that is not evidence.  The answer to two questions must be yes, both about
the rows whose hashes are so small that both sketches list them:

1. Are fewer rows new than there should be?  The chance that a further row of the same source is new is estimated by
   Good and Turing, the share of the rows that occur once, less 4.75 of its standard errors (Esty 1983).  At that
   chance, so few new rows would be seen once in a million times (binomial).
2. Are more of the repeated rows in both than there should be?  A row that occurs t times in two independent sets, of
   which one has a share q of all rows, is in both with the chance 1 - q^t - (1 - q)^t; where rows come in clusters,
   less often.  So many would be seen once in a thousand times (Chernoff).  This spares logs with clusters of rare rows.

Two sets with the same number of rows and the same sum of hashes are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, xlogy

from kbrl.arrays import Booleans
from kbrl.data.sketch import Counts, Sketch

_MILLIONTH, _ITS_NORMAL_QUANTILE = 1e-6, 4.75
_THOUSANDTH = 1e-3


@dataclass(frozen=True)
class Overlap:
    """What two sketches have in common: shares of the rows of each, estimated from those that both list."""

    share_of_learnt: float  # of the rows learnt before, those that the further ones have, too
    share_of_further: float  # of the further rows, those that were learnt before
    n_learnt: int  # rows
    n_further: int
    is_same: bool  # the same rows, all of them
    is_counted_twice: bool  # more than chance accounts for

    @property
    def n_again(self) -> int:
        """About how many of the further rows were learnt before, estimated from the smaller set."""
        if self.n_learnt < self.n_further:
            return round(self.share_of_learnt * self.n_learnt)
        return round(self.share_of_further * self.n_further)

    def __str__(self) -> str:
        if self.is_same:
            return f"all {self.n_further:,} are learnt already, and nothing else is"
        counted = f"about {self.n_again:,} of the {self.n_further:,} are learnt already"
        return f"{counted} ({100 * self.share_of_learnt:.0f} % of all that is)"


def overlap(learnt: Sketch, further: Sketch) -> Overlap:
    """Return what the rows learnt before and further rows have in common."""
    limit = min(learnt.largest, further.largest)
    a, b = learnt.up_to(limit), further.up_to(limit)
    hashes = np.union1d(a.hashes, b.hashes)
    mine, theirs = a.counts_of(hashes), b.counts_of(hashes)
    n_common = int(np.minimum(mine, theirs).sum())
    is_same = learnt.n_rows == further.n_rows > 0 and learnt.total == further.total
    few_new = min(_chance_of_so_few_new(mine, theirs), _chance_of_so_few_new(theirs, mine)) < _MILLIONTH
    share = learnt.n_rows / max(1, learnt.n_rows + further.n_rows)
    is_twice = few_new and _chance_of_so_many_in_both(mine, theirs, share) < _THOUSANDTH
    return Overlap(
        share_of_learnt=n_common / max(1, int(mine.sum())),
        share_of_further=n_common / max(1, int(theirs.sum())),
        n_learnt=learnt.n_rows,
        n_further=further.n_rows,
        is_same=is_same,
        is_counted_twice=is_same or bool(is_twice),
    )


def is_same_by_no_chance(learnt: Sketch, further: Sketch) -> bool:
    """Return whether further rows are exactly those learnt before, and more alike than chance explains.

    By chance, rows like those learnt would all be known ones (Good and Turing) in these very numbers (multinomial).
    """
    if learnt.n_rows != further.n_rows or learnt.total != further.total or not learnt.n_rows:
        return False
    counts, n = learnt.counts, learnt.n_rows
    if int(counts.sum()) < n:
        return True  # so many different rows
    seen = 1.0 - float((counts == 1).sum()) / (n + 1)
    log_numbers = _log_factorial(np.array([n])) - _log_factorial(counts) + float(xlogy(counts, counts / n).sum())
    return bool(n * np.log(seen) + log_numbers < np.log(_MILLIONTH))


def _chance_of_so_few_new(before: Counts, rows: Counts) -> float:
    """Return a bound on how often so few of the further rows would be new."""
    n = int(before.sum())
    if n == 0:
        return 1.0
    once, twice = int((before == 1).sum()), int((before == 2).sum())
    is_new = once / (n + 1)
    error = np.sqrt((is_new * (1.0 - is_new) + 2.0 * twice / n) / n)
    lowest = max(0.0, is_new - _ITS_NORMAL_QUANTILE * error)
    return float(bdtr(int(rows[before == 0].sum()), int(rows.sum()), lowest))


def _chance_of_so_many_in_both(mine: Counts, theirs: Counts, share: float) -> float:
    """Return a bound on how often so many of the rows that occur more than once would be in both sets (Chernoff)."""
    times = mine + theirs
    repeated: Booleans = times > 1
    n_both = int((np.minimum(mine, theirs)[repeated] > 0).sum())
    chance = 1.0 - share ** times[repeated] - (1.0 - share) ** times[repeated]
    slopes = np.linspace(0.0, 20.0, 201)
    log_bounds = np.log1p(chance[:, None] * np.expm1(slopes)).sum(axis=0) - slopes * n_both
    return float(np.exp(log_bounds.min()))


def _log_factorial(numbers: Counts) -> float:
    from scipy.special import gammaln

    return float(gammaln(numbers + 1.0).sum())
