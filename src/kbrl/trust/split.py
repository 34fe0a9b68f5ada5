"""Parts of a log made of whole episodes: some to learn from, the others to judge by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kbrl.checks import whole
from kbrl.data.episodes import EpisodePart, episode_hashes
from kbrl.data.transitions import as_log
from kbrl.learners.matching_log import loaded
from kbrl.logs.log import Mapped


def split_episodes(log: Any, share: float = 0.5, random_state: int = 0, *, columns: Mapped = None) -> tuple[Any, Any]:
    """Return two logs: about this share of the episodes to learn from, and the others to judge by.

    A hash of the identifier decides, so an episode is in the same part whatever the order of the rows and the files;
    another ``random_state`` splits in another way.  The log is Transitions, or an opened log (`open_log`), also one
    that a cluster reads: the parts are of the same kind.  A frame or the path of a file is loaded (`load_log`), with
    ``columns`` as there, and the parts are Transitions.

    >>> from kbrl import split_episodes
    >>> from kbrl.tasks import PuddleWorld
    >>> log = PuddleWorld().collect(5000, random_state=0)
    >>> learn, rest = split_episodes(log, 0.5)
    >>> len(learn) + len(rest), set(learn.episodes.tolist()) & set(rest.episodes.tolist())
    (5000, set())
    """
    part = EpisodePart(check_share(share), whole(random_state, "random_state", at_least=0))
    log = loaded(log, columns)
    if hasattr(log, "only"):
        parts = log.only(part), log.only(replace(part, is_rest=True))
        if hasattr(log, "chunks") and any(next(iter(each.chunks()), None) is None for each in parts):
            raise _one_part(share, "all its episodes")
        return parts
    learns = part.rows(as_log(log))
    if learns.all() or not learns.any():
        raise _one_part(share, f"all {len(np.unique(episode_hashes(log)))} episodes")
    return log[learns], log[~learns]


def _one_part(share: float, episodes: str) -> ValueError:
    return ValueError(
        f"Both parts of a split must have an episode, but share={share:g} to learn from puts {episodes} into one. Use "
        f"another share or random_state, or more episodes. If the log is one long run, a column such as the day or the "
        f"week can tell episodes apart: --episode NAME, in Python columns={{'episode': NAME}}."
    )


def check_share(share: Any) -> float:
    """Return a share strictly between 0 and 1."""
    if isinstance(share, bool) or not isinstance(share, (int, float, np.number)) or not 0 < share < 1:
        raise ValueError(f"share must be a number above 0 and below 1, but it is {share!r}.")
    return float(share)
