"""How stable an answer is: whether other episodes of the same kind would have led to the same one.

The episodes are put into blocks by a hash of their identifiers, and the sums are kept per block.  Drawing as many
blocks at random, with replacement, and adding them up gives the sums of a resampled log: no transition is read again.
Each is solved; the share of the solutions that give the same answer in a state is the agreement.
Models of order 1 look ahead from the state itself.  Their values change by what a resampled log changes at the nearest
representative state, where looking ahead gives what the solution gives.
docs/decisions/17-agreement.md says why the block sums are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
from scipy import sparse

from kbrl.arrays import Floats
from kbrl.checks import as_generator, positive, whole
from kbrl.data.episodes import block_of, episode_hashes
from kbrl.data.sketch import Hashes, row_hashes
from kbrl.data.transitions import Transitions
from kbrl.lines.moments import LineSums
from kbrl.mdp.dynamic_programming import best_actions
from kbrl.model.kernels import blocks as row_blocks
from kbrl.model.model import Model, as_model
from kbrl.model.nearest_samples import Neighborhoods
from kbrl.model.q_functions import MAJORITY
from kbrl.model.sums import KernelSums, new_statistics

N_BLOCKS, N_RESAMPLES = 20, 20
MEGABYTES = 256.0  # for the sums of all blocks
LEAST_BLOCKS = 5  # fewer say nothing about chance
_BLOCK_ENTRIES = 2**21


class BlockSums:
    """Sums per block of episodes, chunk by chunk, on the basis of a model."""

    def __init__(self, model: Model, *, n_blocks: int = N_BLOCKS, megabytes: float = MEGABYTES) -> None:
        self.model = model
        self.n_blocks = min(whole(n_blocks, "n_blocks", at_least=LEAST_BLOCKS), blocks_within(model, megabytes))
        self.blocks = [
            new_statistics(model.basis, model.settings.variant.neighborhoods, model.settings.order)
            for _ in range(self.n_blocks)
        ]

    def add(self, chunk: Transitions) -> None:
        """Add transitions to the sums of their blocks."""
        log = self.model.cases(self.model.prepared(chunk))
        if log is None:  # no window is complete
            return
        places = block_of(_hashes(log), self.n_blocks)
        for block in np.unique(places):
            self.blocks[block].accumulate(log[places == block])

    @property
    def used(self) -> list[Any]:
        """The sums of the blocks that have a row."""
        return [block for block in self.blocks if block.counts.sum()]

    def resampled(self, *, n_resamples: int = N_RESAMPLES, random_state: Any = 0) -> Floats:
        """Return the action values of resampled logs at the representative states, (n_resamples, n_reps, n_answers)."""
        rng, used = as_generator(random_state), self.used
        if len(used) < LEAST_BLOCKS:  # those of one would all be the same, and agree
            raise ValueError(
                f"Agreement needs episodes in at least {LEAST_BLOCKS} blocks to resample, but those of this log are in "
                f"{len(used)}. Use a log with more episodes, or leave the agreement out (--agreement)."
            )
        draws = rng.integers(len(used), size=(whole(n_resamples, "n_resamples"), len(used)))
        return np.stack([_solved(self.model, reduce(add, [used[place] for place in draw])) for draw in draws])


def with_agreement(
    model: Any,
    log: Transitions | Iterable[Transitions],
    *,
    n_blocks: int = N_BLOCKS,
    n_resamples: int = N_RESAMPLES,
    random_state: Any = 0,
    megabytes: float = MEGABYTES,
    step: Callable[[int], None] | None = None,
) -> Model:
    """Return the same model, knowing how stable its answers are.

    log: the transitions that the model was fitted to, or chunks of them; with episodes, which are resampled whole.
        Where it does not tell episodes apart, rows are resampled, and agreement is overstated if they depend on each
        other.
    n_blocks: the number of blocks of episodes; fewer if their sums would need more memory than allowed.
    n_resamples: the number of resampled logs that are solved.

    "b" is better by far in state 0; in state 1 all is chance.

    >>> import numpy as np
    >>> from kbrl import KBSF, Transitions, agreement, with_agreement
    >>> rng = np.random.default_rng(0)
    >>> states, is_b = rng.integers(2, size=(400, 1)), rng.random(400) < 0.5
    >>> rewards = rng.normal(size=400) + 3.0 * (is_b & (states[:, 0] == 0))
    >>> log = Transitions(states, np.where(is_b, "b", "a"), rewards, states, episodes=np.arange(400) // 4)
    >>> model = KBSF(reps=[[0.0], [1.0]], discount=0.5, scaling=None).fit(log).model_
    >>> sure, chance = agreement(with_agreement(model, log), [[0.0], [1.0]])
    >>> float(sure), bool(chance < 1.0)
    (1.0, True)
    """
    sums = BlockSums(check_resamples(as_model(model)), n_blocks=n_blocks, megabytes=megabytes)
    for chunk in [log] if isinstance(log, Transitions) else log:
        sums.add(chunk)
        if step is not None:
            step(len(chunk))
    return replace(sums.model, resamples=sums.resampled(n_resamples=n_resamples, random_state=random_state))


def agreement(model: Any, states: Any) -> Floats:
    """Return the share of resampled logs that lead to the model's own answer in each state, (n,); NaN: not known.

    `with_agreement` and ``kbrl fit --agreement`` return models that know it.

    >>> from kbrl import KBSF, Transitions, agreement, with_agreement
    >>> states, actions = [[0.0]] * 40, ["a", "b"] * 20
    >>> log = Transitions(states, actions, [0.0, 1.0] * 20, states, episodes=[k // 4 for k in range(40)])
    >>> model = KBSF(reps=[[0.0]], scaling=None).fit(log)
    >>> agreement(model, [[0.0]]).tolist(), agreement(with_agreement(model, log), [[0.0]]).tolist()
    ([nan], [1.0])
    """
    model = as_model(model)
    rows = model.scaled(states)
    if model.resamples is None:
        return np.full(len(rows), np.nan)
    q = model.q_function(rows)
    shares = []
    for part in row_blocks(len(rows), max(1, _BLOCK_ENTRIES // model.basis.n_reps)):
        shares.append(_share(model, rows[part], q[part]))
    return np.concatenate(shares)


def check_resamples(model: Model) -> Model:
    """Refuse a model whose answers do not come from sums."""
    if model.settings.variant.q_function == "samples":
        raise ValueError(
            "Resampling episodes needs a model whose answers come from sums. Fit with Variant(q_function='reps') to "
            "know how stable its answers are."
        )
    blocks_within(model, MEGABYTES)
    return model


def blocks_within(model: Model, megabytes: float) -> int:
    """Return how many blocks of sums fit into memory; refuse a model if too few do."""
    each = sum(block.nbytes if hasattr(block, "nbytes") else block.data.nbytes for block in _arrays(model)) / 1e6
    n_blocks = int(positive(megabytes, "megabytes") / max(each, 1e-9))
    if n_blocks < LEAST_BLOCKS:
        raise ValueError(
            f"Resampling needs the sums of at least {LEAST_BLOCKS} blocks of episodes, {LEAST_BLOCKS * each:.0f} MB, "
            f"and may use {megabytes:g} MB. Fit with fewer representative states, or allow more memory (megabytes)."
        )
    return n_blocks


def _arrays(model: Model) -> list[Any]:
    """Return the arrays that take nearly all the memory of sums."""
    sums = model.sums
    if isinstance(sums, Neighborhoods):
        return [sums.next_states, sums.distances]
    if isinstance(sums, LineSums):
        return [sums.moves, sums.outcomes]
    return sums.transition_sum if isinstance(sums, KernelSums) else []


def _hashes(log: Transitions) -> Hashes:
    """Return what puts rows into blocks: their episodes, or themselves where episodes are not known."""
    if log.episodes is not None:
        return episode_hashes(log)
    return row_hashes([*log.states.T, log.rewards, *log.next_states.T])


def _solved(model: Model, sums: Any) -> Floats:
    return replace(model, sums=sums, start=model.solution.values, solved=None, resamples=None).answer_q


def _share(model: Model, rows: Floats, q: Floats) -> Floats:
    """Return the share of the resamples with the same best answer, (n,), among the answers that the model offers."""
    best, offered, resamples = best_actions(q), np.isfinite(q), model.resamples
    assert resamples is not None
    same, by_reps = np.zeros(len(best)), model.look_ahead is None
    weights: Any = model.basis.rep_weights.weights(rows) if by_reps else None
    mixes = partial(_mixed, weights) if by_reps else _Changed(model, rows, q)
    for rep_q in resamples:
        filled = _filled(model, rep_q)
        drawn = mixes(filled)
        drawn[~offered] = -np.inf
        if model.deferral is not None and by_reps:
            votes = weights @ (filled[:, :-1] > filled[:, -1:]).astype(np.float64)
            drawn[:, :-1][~(votes > MAJORITY)] = -np.inf
        same += best_actions(drawn) == best
    return same / len(resamples)


def _filled(model: Model, rep_q: Floats) -> Floats:
    """Return values at the representative states; answers that a deferring model does not offer count as "as now"."""
    return rep_q if model.deferral is None else np.where(np.isfinite(rep_q), rep_q, rep_q[:, -1:])


class _Changed:
    """Q of a model that looks ahead, changed by as much as at the nearest representative state."""

    def __init__(self, model: Model, rows: Floats, q: Floats) -> None:
        self._q, self._nearest = q, model.basis.rep_weights.nearest(rows)
        self._own = _filled(model, model.answer_q)[self._nearest]

    def __call__(self, rep_q: Floats) -> Floats:
        """Return Q, (n, n_answers); an answer that is new or gone there has the value that it has there."""
        drawn = rep_q[self._nearest]
        is_change = np.isfinite(self._own) & np.isfinite(drawn)
        change = np.subtract(drawn, self._own, where=is_change, out=np.zeros_like(drawn))
        return np.where(is_change, self._q + change, drawn)


def _mixed(weights: Any, filled: Floats) -> Floats:
    """Return Q of states from that of representative states, as the model's own answers do."""
    known = np.isfinite(filled)
    mass, total = weights @ known.astype(np.float64), weights @ np.where(known, filled, 0.0)
    mixed = np.divide(total, mass, out=np.full_like(total, -np.inf), where=mass > 0)
    return mixed.toarray() if sparse.issparse(mixed) else mixed
