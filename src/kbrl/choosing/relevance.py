"""Which state variables matter: those that are tied to rewards, ends or actions, directly or through other variables.

A variable is tied to what it helps to predict and to what helps to predict it: the reward, the end, the displacement of
another variable, the action.  Helping means a smaller error on episodes that were held out, by more than chance.
A variable that neither drives anything that matters nor is driven by it is noise for all decisions, however well it
predicts itself, and distances are better measured without it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import stdtrit

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.data.scaling import Coordinates
from kbrl.data.transitions import Transitions
from kbrl.lines.circles import find_circles
from kbrl.threads import one_blas_thread

IGNORED = 1e9  # times its scale: a variable that is left out counts for nothing in distances, nor has it a slope
_FALSE_TIES = 0.05  # expected by chance, in all that are looked for
_DOUBT = 0.025  # chance of an effect of all that is left out: if it is less likely, nothing is left out
_BLOCKS = 32  # of rows in each half, for the standard error: rows of an episode are alike
_RIDGE = 1e-3  # of standardised features
_MOST_FEATURES = 600
_MOST_WORK = 1e9  # rows times the square of the number of features: about a second
_STEPS = (0.25, 0.5, 0.75)  # quantiles at which a variable may have a step
_EDGES = (0.1, 0.25, 0.5, 0.75, 0.9)  # quantiles beyond which one action may have an effect that it has nowhere else
_FREQUENT = 8  # actions that have slopes of their own
_CONSTANT = 1e-9
PASTS = (12, 48)  # steps that are looked back
_LEAST_TOLD = 0.01  # of what is unexplained: less may be curves that the features do not have
_LEAST_GOING = 50  # transitions of each half that do not end an episode


def variables_that_matter(log: Transitions, in_first: Booleans) -> Booleans:
    """Return which state variables matter, (n_dims,); all of them where the log does not tell.

    log: whole episodes in a random order, as an `EpisodeSample` gives them; of a large one only the start is used.
    in_first: the half of each row, (n,); each half is predicted from the other, so no episode must be in both.
    """
    with one_blas_thread():  # the same result whatever the number of threads
        return _matters(log, in_first)


def _matters(log: Transitions, in_first: Booleans) -> Booleans:
    everything = np.ones(log.n_dims, dtype=bool)
    kinds = _kinds(log.n_dims, min(log.n_actions, _FREQUENT))
    if kinds is None:
        return everything
    n_rows = int(_MOST_WORK / kinds.n_features**2)
    log, in_first = log[:n_rows], in_first[:n_rows]
    design = _design(log, kinds)
    outcomes = _Problem(design, np.column_stack([log.rewards, log.terminals]), in_first)
    going = ~log.terminals
    if min((in_first & going).sum(), (~in_first & going).sum()) < _LEAST_GOING:  # decisions of one step have no moves
        return everything
    moves = (log.next_states - log.states)[going]
    displacements = _Problem(design.rows(going), moves, in_first[going])
    if not (outcomes.is_solvable and displacements.is_solvable):
        return everything
    matters = _tied_to_decisions(log, outcomes, displacements)
    kept, left_out = np.append(matters, False), np.append(~matters, False)
    is_seen = outcomes.lessens(kept, _DOUBT).any()
    is_missed = outcomes.suffers(left_out).any() or displacements.suffers(left_out)[matters].any()
    return matters if is_seen and not is_missed else everything


def told_by_the_past(log: Transitions, unexplained: Floats, in_first: Booleans) -> Booleans:
    """Return which parts of what a model leaves unexplained, (n, n_targets), depend on earlier actions, (n_targets,).

    If the state held all that matters, what was done before could not help.  It must explain at least a hundredth of
    the rest in held-out episodes, beyond what curves in the state and the present action explain, and by more than
    chance.  Rows of an episode follow each other; rows with NaN, and those without a past, do not count.
    """
    nothing = np.zeros(unexplained.shape[1], dtype=bool)
    past, has_past = _shares_before(log)
    rows = np.flatnonzero(has_past & np.isfinite(unexplained).all(axis=1))
    if len(rows) == 0:
        return nothing
    z = _standardised(log.states[rows])
    present = log.action_indices[rows, None] == np.arange(log.n_actions)[None, : _FREQUENT - 1]
    parts = [z, z**2, present * 1.0, past[rows]]
    owners = np.repeat(np.eye(2, dtype=bool)[[0, 0, 0, 1]], [part.shape[1] for part in parts], axis=0)
    with one_blas_thread():
        design = _Design(_standardised(np.concatenate(parts, axis=1)), owners)
        problem = _Problem(design, unexplained[rows], in_first[rows])
        if not problem.is_solvable:
            return nothing
        only_past = np.array([False, True])
        is_large = problem.losses(only_past).mean(axis=0) > _LEAST_TOLD
        return problem.lessens(only_past, _FALSE_TIES / unexplained.shape[1]) & is_large


def _shares_before(log: Transitions) -> tuple[Floats, Booleans]:
    """Return how often each action was taken in the last steps, for short and long pasts, and which rows have one."""
    taken = (log.action_indices[:, None] == np.arange(log.n_actions)[None, : _FREQUENT - 1]).astype(np.float64)
    total = np.concatenate([np.zeros((1, taken.shape[1])), np.cumsum(taken, axis=0)])
    row = np.arange(len(log))
    is_start = np.append(True, log.episodes[1:] != log.episodes[:-1])  # type: ignore[index]
    first = np.maximum.accumulate(np.where(is_start, row, 0))
    pasts = []
    for length in PASTS:
        begin = np.maximum(first, row - length)
        pasts.append((total[row] - total[begin]) / np.maximum(row - begin, 1)[:, None])
    return np.concatenate(pasts, axis=1), row - first >= PASTS[0]


def _tied_to_decisions(log: Transitions, outcomes: _Problem, displacements: _Problem) -> Booleans:
    """Return which variables are tied to reward, end or action, directly or through others, (n_dims,)."""
    n_dims, states = log.n_dims, log.states
    each = np.eye(n_dims + 1, dtype=bool)  # the last is the action
    if log.source.recipe is not None:
        for _, place in log.source.recipe.slices():  # the levels of a category tell the same together
            each[place, place] = True
    chance = _FALSE_TIES / (2 * n_dims + (n_dims + 1) * n_dims)
    drives = np.array([outcomes.helps(one, chance).any() for one in each[:-1]])
    ties = np.zeros((n_dims + 1, n_dims + 1), dtype=bool)
    ties[:, :-1] = [displacements.helps(one, chance) for one in each]
    ties[:-1, -1] = drives
    for one, other in find_circles(states, Coordinates.plain(n_dims)).places:  # the two are one variable
        ties[one, other] = True
    _, component = connected_components(csr_array(ties), directed=False)
    is_still = np.ptp(states, axis=0) == 0  # and cannot matter, nor harm
    return (component[:-1] == component[-1]) | is_still


class _Design(NamedTuple):
    """Features of states and actions, standardised, and who is behind each of them."""

    features: Floats  # (n, n_features)
    owners: Booleans  # (n_features, n_dims + 1): the last is the action
    bins: Integers | None = None  # (n, n_dims): between which edges a variable is, and the action; None: not looked at

    def rows(self, kept: Booleans) -> _Design:
        """Return the design of some rows."""
        return self._replace(features=self.features[kept], bins=None if self.bins is None else self.bins[kept])


class _Kinds(NamedTuple):
    """Which features there are beside lines for each action."""

    has_steps: bool  # squares, and steps at quantiles
    has_pairs: bool  # products of two variables
    n_features: int


def _kinds(n_dims: int, n_actions: int) -> _Kinds | None:
    """Return the richest features that are not too many; None if even lines are."""
    lines = n_dims + (1 + n_dims) * n_actions
    steps, pairs = (1 + len(_STEPS)) * n_dims, n_dims * (n_dims - 1) // 2
    for has_steps, has_pairs in ((True, True), (True, False), (False, False)):
        n_features = lines + has_steps * steps + has_pairs * pairs
        if n_features <= _MOST_FEATURES:
            return _Kinds(has_steps, has_pairs, n_features)
    return None


def _design(log: Transitions, kinds: _Kinds) -> _Design:
    """Return features of each variable, of an action and a variable, and of pairs of variables."""
    frequent = np.argsort(-np.bincount(log.action_indices, minlength=log.n_actions), kind="stable")[:_FREQUENT]
    z = _standardised(log.states)
    one = np.eye(log.n_dims + 1, dtype=bool)
    columns, owners = [z], [one[:-1]]
    for action in frequent:
        taken = (log.action_indices == action)[:, None]
        columns += [taken * 1.0, taken * z]
        owners += [one[-1:], one[:-1] | one[-1]]
    if kinds.has_steps:
        columns += [z**2, *(z > quantile for quantile in np.quantile(z, _STEPS, axis=0))]
        owners += [one[:-1]] * (1 + len(_STEPS))
    if kinds.has_pairs:
        above, below = np.triu_indices(log.n_dims, 1)
        columns.append(z[:, above] * z[:, below])
        owners.append(one[above] | one[below])
    bins = np.column_stack([np.searchsorted(np.quantile(x, _EDGES), x) for x in z.T])
    order = np.argsort(np.append(frequent, np.setdiff1d(np.arange(log.n_actions), frequent)))
    among = np.minimum(order[log.action_indices], _FREQUENT)  # rare actions count as one
    bins += (len(_EDGES) + 1) * among[:, None]
    return _Design(_standardised(np.concatenate(columns, axis=1)), np.concatenate(owners), bins)


def _standardised(columns: Floats) -> Floats:
    """Return columns with mean 0 and variance 1; those that do not vary become 0."""
    largest = np.abs(columns).max(axis=0)
    shares = columns / np.where(largest > 0, largest, 1.0)  # squares of large numbers would overflow
    centred = shares - shares.mean(axis=0)
    spread = centred.std(axis=0)
    result: Floats = np.where(spread > _CONSTANT, centred / np.where(spread > _CONSTANT, spread, 1.0), 0.0)
    return result


class _Problem:
    """Targets to be predicted from features, each half of the rows from the other."""

    def __init__(self, design: _Design, targets: Floats, in_first: Booleans) -> None:
        self._owners = design.owners
        scaled = _standardised(targets)
        self.is_solvable = min(in_first.sum(), (~in_first).sum()) >= 2 * _BLOCKS
        self._folds = [_Fold(design, scaled, learnt) for learnt in (in_first, ~in_first)] if self.is_solvable else []

    def losses(self, owners: Booleans) -> Floats:
        """Return how much the squared errors grow without what these own, (n_blocks, n_targets), in variances."""
        return self._losses(self._shifts(owners))

    def lessens(self, owners: Booleans, chance: float) -> Booleans:
        """Return which targets have smaller errors with these variables, by more than chance."""
        return _is_above_chance(self.losses(owners), chance)

    def helps(self, owners: Booleans, chance: float) -> Booleans:
        """Return which targets these variables help to predict, more than chance does with this probability."""
        shifts = self._shifts(owners)
        return _is_above_chance(self._losses(shifts), chance) | self._jumps(np.flatnonzero(owners[:-1]), shifts, chance)

    def suffers(self, owners: Booleans) -> Booleans:
        """Return which targets are missing something without all these variables at once.

        Regions are asked with the same doubt for all targets together: by chance they are off as often as they may.
        Errors on all rows rarely are, because features that do not help make them larger.
        """
        return self.lessens(owners, _DOUBT) | self.helps(owners, _DOUBT / (2 + len(owners)))

    def _shifts(self, owners: Booleans) -> list[Floats]:
        dropped: Booleans = np.any(self._owners[:, owners], axis=1)
        return [fold.shift_without(dropped) for fold in self._folds]

    def _losses(self, shifts: list[Floats]) -> Floats:
        return np.concatenate([fold.losses(shift) for fold, shift in zip(self._folds, shifts)])

    def _jumps(self, variables: Integers, shifts: list[Floats], chance: float) -> Booleans:
        """Return which targets, predicted without these variables, are off where one of them is large or small.

        Regions are the upper or lower part of a variable, under one action: rare failures of only one action are hardly
        seen by a regression on all rows.
        """
        if len(variables) == 0:
            return np.zeros(len(self._folds[0].variance), dtype=bool)
        found = [fold.off_by_region(shift, variables) for fold, shift in zip(self._folds, shifts)]
        sums = np.concatenate(found)  # (n_blocks, n_regions, n_targets + 1): the last are numbers of rows
        usual = np.sqrt(np.mean([fold.variance for fold in self._folds], axis=0))
        least = usual * np.sqrt(sums[:, :, -1:].sum(axis=0)) / len(sums)  # no event in a region is no certainty
        limit = stdtrit(len(sums) - 1, 1 - chance / (2 * sums.shape[1]))
        result: Booleans = (np.abs(_t_values(sums[:, :, :-1], least)) > limit).any(axis=0)
        return result


def _is_above_chance(losses: Floats, chance: float) -> Booleans:
    """Return where the mean over blocks, (n_blocks, n_targets), is above 0 by more than chance."""
    result: Booleans = _t_values(losses) > stdtrit(len(losses) - 1, 1 - chance)
    return result & (losses.mean(axis=0) > _CONSTANT)


def _t_values(blocks: Floats, least: Floats | float = 0.0) -> Floats:
    """Return the means of blocks, (n_blocks, ...), over their standard errors, or over the least; 0: nothing varies."""
    error = np.maximum(blocks.std(axis=0, ddof=1) / np.sqrt(len(blocks)), least)
    result: Floats = np.divide(blocks.mean(axis=0), error, out=np.zeros_like(error), where=error > _CONSTANT)
    return result


class _Fold:
    """A ridge regression on one half of the rows, judged on the other."""

    def __init__(self, design: _Design, targets: Floats, learnt: Booleans) -> None:
        features = design.features
        known, wanted = features[learnt], targets[learnt]
        judged = features[~learnt] - known.mean(axis=0)
        known, middle = known - known.mean(axis=0), wanted.mean(axis=0)
        gram = known.T @ known
        gram[np.diag_indices_from(gram)] += _RIDGE * len(known)
        self._inverse = np.linalg.inv(gram)
        self._slopes = self._inverse @ (known.T @ (wanted - middle))
        self._effects = judged @ self._inverse
        self._rest = targets[~learnt] - middle - judged @ self._slopes
        self.variance = np.square(self._rest).mean(axis=0)
        self._edges = np.linspace(0, len(self._rest), _BLOCKS + 1).astype(np.intp)[:-1]
        if design.bins is not None:
            n_bins = int(design.bins.max()) // (len(_EDGES) + 1) * (len(_EDGES) + 1) + len(_EDGES) + 1
            block = np.searchsorted(self._edges, np.arange(len(self._rest)), side="right") - 1
            self._size = _BLOCKS * n_bins
            self._places = np.ascontiguousarray((block[:, None] * n_bins + design.bins[~learnt]).T)  # (n_dims, n)

    def shift_without(self, dropped: Booleans) -> Floats:
        """Return how much the errors grow without some features, (n, n_targets).

        Dropping features changes the slopes by -A[:, S] A[S, S]^-1 b[S], where A is the inverse and b are the slopes.
        """
        own = self._inverse[np.ix_(dropped, dropped)]
        shift: Floats = self._effects[:, dropped] @ np.linalg.solve(own, self._slopes[dropped])
        return shift

    def losses(self, shift: Floats) -> Floats:
        """Return how much the squared errors grow by a shift of the errors, (n_blocks, n_targets)."""
        growth = np.add.reduceat(shift * (2 * self._rest + shift), self._edges, axis=0)
        result: Floats = growth / np.diff(np.append(self._edges, len(shift)))[:, None]
        return result

    def off_by_region(self, shift: Floats, variables: Integers) -> Floats:
        """Return the sums of shifted errors in regions of variables, (n_blocks, n_regions, n_targets).

        A region is what lies above or below a quantile, under one action.  Errors are those beyond the mean error of
        the action: a ridge shrinks the effect of an action a little everywhere.  One more column has numbers of rows.
        """
        errors = np.append((self._rest + shift).T, np.ones((1, len(shift))), axis=0)  # rows are faster to sum
        middle = _EDGES.index(0.5)
        found = []
        for variable in variables:
            sums = np.stack([np.bincount(self._places[variable], error, self._size) for error in errors], axis=-1)
            sums = sums.reshape(_BLOCKS, -1, len(_EDGES) + 1, len(errors))
            under = sums.sum(axis=(0, 2), keepdims=True)  # one action: how far all its rows are off says nothing here
            sums[..., :-1] -= sums[..., -1:] * (under[..., :-1] / np.maximum(under[..., -1:], 1.0))
            below = np.cumsum(sums, axis=2)
            above = below[:, :, -1:] - below
            regions = np.concatenate([below[:, :, :middle], above[:, :, middle:-1]], axis=2)
            found.append(regions.reshape(_BLOCKS, -1, len(errors)))
        return np.concatenate(found, axis=1)
