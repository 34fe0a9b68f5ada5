"""Whether two sets of rows have more rows in common than chance explains, judged by their sketches.

Two sets certainly overlap if they are the same, or have a batch (the rows of one fit or update) in common, unless so
few rows may well recur.  Otherwise the rows with hashes so small that both sketches list them are compared.  Rows of
discrete states repeat naturally, which is not evidence.  One of two rules must apply:

*Some rows are known.*  The answer to both questions must be yes:
1. Are fewer rows new than there should be?  The chance that a further row from the same source is new is estimated by
   Good and Turing, the share of the rows that occur once, less 4.75 of its standard errors (Esty 1983).  At that
   chance, so few new rows would be seen once in a million times (binomial).
2. Are more of the repeated rows in both than there should be?  A row that occurs t times in two independent sets, of
   which one has a share q of all rows, is in both with the chance 1 - q^t - (1 - q)^t; where rows come in clusters,
   less often.  So many would be seen once in a thousand times (Chernoff).  This spares logs with clusters of rare rows.

*All rows are known*, and so many of them had occurred just once that this would be seen once in a thousand times
(binomial).  The chance of such a row is by Good and Turing twice the share of rows that occur twice.

Either way, identifiers of episodes make rows unique, but two places may give the same ones.  If all identifiers clash,
a further row is known by chance as often as rows of different episodes have the same contents, for each row that its
episode has.  So many known rows would be seen once in a million times (Chernoff), rows of an episode counting as one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, bdtrc, gammaln, rel_entr, xlogy

from kbrl.arrays import Booleans
from kbrl.data.sketch import LARGEST_HASH, Counts, Hashes, Sketch

_MILLIONTH, _ITS_NORMAL_QUANTILE = 1e-6, 4.75
_THOUSANDTH = 1e-3


@dataclass(frozen=True)
class Overlap:
    """What two sketches have in common: shares of the rows of each, estimated from those that both list."""

    share_of_learnt: float  # the share of the rows learnt before that are also among the further ones
    share_of_further: float  # of the further rows, those that were learnt before
    n_learnt: int  # rows
    n_further: int
    is_same: bool  # the same rows, all of them
    is_counted_twice: bool  # more than chance explains
    is_certain: bool = False  # the numbers are counted, not estimated
    has_identifiers: bool = False  # of episodes

    @property
    def n_again(self) -> int:
        """About how many of the further rows were learnt before, estimated from the smaller set."""
        if self.n_learnt < self.n_further:
            return round(self.share_of_learnt * self.n_learnt)
        return round(self.share_of_further * self.n_further)

    def __str__(self) -> str:
        if self.is_same:
            return f"all {self.n_further:,} are learnt already, and nothing else is"
        of_all = f"({100 * self.share_of_learnt:.0f} % of all that is)"
        if self.is_certain and self.n_again == self.n_further:
            return f"all {self.n_further:,} are learnt already {of_all}"
        about = "" if self.is_certain else "about "
        return f"{about}{self.n_again:,} of the {self.n_further:,} are learnt already {of_all}"


@dataclass(frozen=True, eq=False)
class _Common:
    """The rows that both sketches would list, with their counts in each."""

    mine: Counts  # (k,): of the rows learnt before
    theirs: Counts  # (k,): of the further rows
    contents: Hashes  # (k,): without identifiers

    @classmethod
    def of(cls, learnt: Sketch, further: Sketch) -> _Common:
        limit = min(learnt.largest, further.largest)
        a, b = learnt.up_to(limit), further.up_to(limit)
        hashes, first = np.unique(np.concatenate([a.hashes, b.hashes]), return_index=True)
        return cls(a.counts_of(hashes), b.counts_of(hashes), np.concatenate([a.contents, b.contents])[first])

    @property
    def n_in_both(self) -> int:
        return int(np.minimum(self.mine, self.theirs).sum())


def overlap(learnt: Sketch, further: Sketch) -> Overlap:
    """Compare the rows learnt before with further ones."""
    is_same = learnt.n_rows == further.n_rows > 0 and learnt.total == further.total
    n_shared = _n_in_shared_batches(learnt, further)
    common = _Common.of(learnt, further)
    is_some = _are_some_known(common, learnt.n_rows / max(1, learnt.n_rows + further.n_rows))
    is_known = (is_some or _are_all_known(common)) and _chance_of_clashes(common, learnt, further) < _MILLIONTH
    share_of_learnt = common.n_in_both / max(1, int(common.mine.sum()))
    share_of_further = common.n_in_both / max(1, int(common.theirs.sum()))
    lists_all = learnt.lists_all and further.lists_all
    if n_shared and not lists_all:  # these are certain; the list may have missed them
        share_of_learnt = max(share_of_learnt, n_shared / learnt.n_rows)
        share_of_further = max(share_of_further, n_shared / further.n_rows)
    return Overlap(
        share_of_learnt=share_of_learnt,
        share_of_further=share_of_further,
        n_learnt=learnt.n_rows,
        n_further=further.n_rows,
        is_same=is_same,
        is_counted_twice=is_same or n_shared > 0 or is_known,
        is_certain=is_same or lists_all or n_shared == further.n_rows,
        has_identifiers=bool(len(learnt.episodes)),
    )


def is_learnt_batch(learnt: Sketch, further: Sketch) -> bool:
    """Return whether further rows are exactly those learnt before, or a batch of them, and not by chance."""
    batch = (further.n_rows, further.total)
    return batch in _batches(learnt) and _chance_of_batch(learnt, further) < _THOUSANDTH


def _batches(sketch: Sketch) -> set[tuple[int, int]]:
    """Return what came at once, as far as it is known, and all of it."""
    return {*sketch.batches, (sketch.n_rows, sketch.total)} if sketch.n_rows else set()


def _n_in_shared_batches(learnt: Sketch, further: Sketch) -> int:
    """Return the number of rows in batches that both have, and that would not come twice by chance."""
    if is_learnt_batch(learnt, further):
        return further.n_rows
    shared = _batches(learnt) & set(further.batches)
    return min(sum(n for n, _ in shared if _chance_of_rows(learnt, n, None) < _THOUSANDTH), further.n_rows)


def _chance_of_batch(learnt: Sketch, batch: Sketch) -> float:
    """Return about how often a batch like it would have these very rows, with its identifiers and without."""
    if not batch.lists_all:
        return 0.0  # too many different rows to come twice by chance
    pairs = [(learnt, batch), (_without_identifiers(learnt), _without_identifiers(batch))]
    return max(_chance_of_rows(known, batch.n_rows, rows.counts) for known, rows in pairs)


def _chance_of_rows(learnt: Sketch, n_rows: int, counts: Counts | None) -> float:
    """Return about how often so many rows would all be known ones (Good and Turing) in these numbers (multinomial).

    Numbers that are not known are the most frequent ones, where all rows that are not listed are the same.
    """
    is_new = float((learnt.counts == 1).sum()) * (LARGEST_HASH / learnt.largest) / (learnt.n_rows + 1)
    if counts is None:
        rest = learnt.n_rows - int(learnt.counts.sum())
        numbers = np.append(learnt.counts, rest) * (n_rows / learnt.n_rows)
    else:
        numbers = counts.astype(np.float64)
    log_numbers = gammaln(n_rows + 1.0) - gammaln(numbers + 1.0).sum() + xlogy(numbers, numbers / n_rows).sum()
    return float(np.exp(xlogy(n_rows, max(0.0, 1.0 - is_new)) + log_numbers))


def _without_identifiers(sketch: Sketch) -> Sketch:
    """Return the listed rows as if they had no identifiers."""
    contents, places = np.unique(sketch.contents, return_inverse=True)
    counts = np.bincount(places, sketch.counts, minlength=len(contents)).astype(np.int64)
    return Sketch(sketch.n_rows, 0, contents, counts, sketch.largest, contents)


def _are_some_known(common: _Common, share: float) -> bool:
    """Return whether there are too few new rows, and too many of the repeated ones are in both."""
    mine, theirs = common.mine, common.theirs
    few_new = min(_chance_of_so_few_new(mine, theirs), _chance_of_so_few_new(theirs, mine)) < _MILLIONTH
    return few_new and _chance_of_so_many_in_both(mine, theirs, share) < _THOUSANDTH


def _are_all_known(common: _Common) -> bool:
    """Return whether all further rows are known, and more than by chance are among those that had occurred once."""
    mine, theirs = common.mine, common.theirs
    n, n_further = int(mine.sum()), int(theirs.sum())
    if n_further == 0 or (theirs > mine).any():
        return False
    n_of_once = int(theirs[mine == 1].sum())
    of_once = min(1.0, 2.0 * (int((mine == 2).sum()) + 1) / n)  # and one more, as a rate of 0 is not known
    return n_of_once > 0 and float(bdtrc(n_of_once - 1, n_further, of_once)) < _THOUSANDTH


def _chance_of_clashes(common: _Common, learnt: Sketch, further: Sketch) -> float:
    """Return a bound on how often so many rows would be known if all identifiers clashed (Chernoff)."""
    n_further = int(common.theirs.sum())
    if not len(learnt.episodes) or not n_further:
        return 0.0
    _, kinds = np.unique(common.contents, return_inverse=True)
    same_row = float(common.mine @ common.theirs)
    same_contents = float(np.bincount(kinds, common.mine) @ np.bincount(kinds, common.theirs)) - same_row
    n_pairs = float(common.mine.sum()) * n_further - same_row
    rows_per_episode = learnt.n_rows / learnt.n_episodes
    by_chance = min(1.0, rows_per_episode * same_contents / max(1.0, n_pairs))
    found = common.n_in_both / n_further
    if found <= by_chance:
        return 1.0
    rows_as_one = max(1.0, rows_per_episode * n_further / further.n_rows)  # of an episode, those that are listed
    entropy = float(rel_entr(found, by_chance) + rel_entr(1.0 - found, 1.0 - by_chance))
    return float(np.exp(-n_further * entropy / rows_as_one))


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
