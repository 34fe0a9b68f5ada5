"""The sums behind a judgement from a log in many parts, on a Dask cluster.

Two passes over the parts, where the workers are: a survey, from which the representative states are chosen, and the
sums.  An episode must lie within one part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.data.episodes import episode_hashes
from kbrl.data.sketch import Hashes
from kbrl.data.survey import SAMPLE_ROWS
from kbrl.logs.log import Mapped
from kbrl.on_dask.fitting_on_dask import ClusterLog, open_on_dask
from kbrl.on_dask.log_parts import Facts
from kbrl.on_dask.parallel_work import Step
from kbrl.trust.evaluator import PolicyEvaluator

_Part = tuple[PolicyEvaluator, Hashes]  # with the episodes that it has seen


def evaluate_on_dask(
    evaluator: PolicyEvaluator, log: Any, *, client: Any = None, columns: Mapped = None, step: Step | None = None
) -> PolicyEvaluator:
    """Return an evaluator with the sums of a log on a Dask cluster; needs the extra ``dask``.

    ``log``, ``client`` and ``columns`` are as for `fit_on_dask`.  The policies travel to the workers, so they must be
    models, or functions that can be pickled.

    >>> from distributed import Client  # doctest: +SKIP
    >>> from kbrl import PolicyEvaluator, judge_sums  # doctest: +SKIP
    >>> total = evaluate_on_dask(PolicyEvaluator(model), ["a.parquet", "b.parquet"], client=Client())  # doctest: +SKIP
    >>> print(judge_sums(total))  # doctest: +SKIP
    """
    if not isinstance(log, ClusterLog):
        log = open_on_dask(log, client=client, columns=columns)
    log = log.with_episodes
    if evaluator.frame is None:
        evaluator.set_frame(log.survey(SAMPLE_ROWS))
    found: _Part | None = log.work.sums(_evaluate, _added, [(log.facts, evaluator)], step)[0]
    if found is None:
        raise ValueError("The log has no transitions to judge by.")
    return found[0]


def _evaluate(opened: Any, facts: Facts, evaluator: PolicyEvaluator) -> _Part | None:
    own = PolicyEvaluator(evaluator.policies, like=evaluator)
    episodes = [np.empty(0, dtype=np.uint64)]
    for chunk in facts.chunks(opened):
        own.partial_fit(chunk)
        episodes.append(np.unique(episode_hashes(chunk)))
    return None if own.finish().sums is None else (own, np.unique(np.concatenate(episodes)))


def _added(one: _Part, other: _Part) -> _Part:
    shared = np.intersect1d(one[1], other[1])
    if len(shared):
        raise ValueError(
            f"Every episode must lie within one part of the log, but {len(shared)} are in two. Put each episode into "
            f"one file, or judge in one process."
        )
    return one[0] + other[0], np.union1d(one[1], other[1])
