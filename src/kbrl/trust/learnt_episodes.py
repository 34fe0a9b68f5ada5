"""Refuse to judge a model on episodes that it has learnt from: there it looks better than it is.

A model's sketch lists the smallest hashes of the identifiers of its episodes, up to 256.  Of the episodes of a log,
those with such small hashes are looked up.  So a share of learnt episodes in the log is found unless it is tiny: two in
a hundred are missed once in a hundred times where the log is as large as what was learnt.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from kbrl.checks import KbrlWarning
from kbrl.data.episodes import episode_hashes
from kbrl.data.overlap import overlap
from kbrl.data.sketch import LISTED_EPISODES, Hashes, Sketch
from kbrl.model.model import models_of
from kbrl.trust.evaluator import chunks_of

_WAY_OUT = (
    "Judge on other episodes: split_episodes before fitting, or kbrl fit --hold-out. If these are other episodes with "
    "the same identifiers, rename them, or allow it: allow_learnt=True, --allow-learnt."
)


class LearntError(ValueError):
    """A log holds episodes that the policy has learnt from."""


def refuse_learnt(policy: Any, log: Any) -> None:
    """Refuse a log if a model, or a member of a committee, has learnt episodes of it, as far as its sketch shows."""
    sketches = [model.sketch for model in models_of(policy)]
    if None in sketches:
        warnings.warn(
            "The model comes from a file of format 1, which does not say what was learnt from. If it learnt from "
            "episodes of this log, its value is too high. To be sure, fit it again.",
            KbrlWarning,
            stacklevel=3,
        )
    for sketch in sketches:
        if sketch is not None and len(sketch.episodes):
            _refuse_episodes(sketch, log)
        elif sketch is not None and sketch.n_rows:
            _refuse_rows(sketch, log)


def _refuse_episodes(sketch: Sketch, log: Any) -> None:
    hashes: Hashes = np.unique(np.concatenate([np.unique(episode_hashes(chunk)) for chunk in chunks_of(log)]))
    is_listed = np.isin(hashes, sketch.episodes, kind="sort")
    if not is_listed.any():
        return
    if len(sketch.episodes) < LISTED_EPISODES:
        said = f"{int(is_listed.sum())} of the {len(hashes)} episodes were learnt from"
    else:
        n_looked_up = int((hashes <= sketch.episodes[-1]).sum())
        share = float(is_listed.sum()) / n_looked_up
        said = f"about {round(share * len(hashes))} of the {len(hashes)} episodes were learnt from"
    raise LearntError(f"A policy must be judged on episodes that it did not learn from, but {said}. {_WAY_OUT}")


def _refuse_rows(sketch: Sketch, log: Any) -> None:
    """Where episodes have no identifiers, rows are compared."""
    parts = [Sketch.of(chunk) for chunk in chunks_of(log)]
    found = overlap(sketch, sum(parts[1:], parts[0]))
    if found.is_counted_twice:
        raise LearntError(f"A policy must be judged on rows that it did not learn from, but {found}. {_WAY_OUT}")
