"""`judge`: is a policy better than what was done, by how much, and how sure is that?

The log must hold episodes that the policy did not learn from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from kbrl.checks import in_unit_interval
from kbrl.choosing.rehearsal import EpisodeSample
from kbrl.data.episodes import EpisodePart
from kbrl.data.transitions import Transitions
from kbrl.learners.matching_log import opened
from kbrl.logs.log import Mapped
from kbrl.model.model import Model, models_of
from kbrl.threads import one_blas_thread
from kbrl.trust.estimates import VALUE, Evidence, Rung, rungs
from kbrl.trust.evaluator import N_BLOCKS, PolicyEvaluator, chunks_of
from kbrl.trust.importance import importance_estimate
from kbrl.trust.influence import episode_terms
from kbrl.trust.judgement import BETTER, CANNOT_TELL, WORSE, Interval, Judgement
from kbrl.trust.learnt_episodes import refuse_learnt
from kbrl.trust.rehearsed import ROWS, Rehearsed, looks_ahead, rehearse, runs_for
from kbrl.trust.verdict import Limits, excess_of_self_check, judged, quantile, sums_count, unseen_ends

MOST_ROWS_AHEAD = 100_000
NOT_ASKED = "it was not asked for"
_AFFORDABLE_SEED = 104  # of a split of episodes that has nothing to do with others


def judge(
    policy: Any,
    log: Any,
    level: float = 0.95,
    *,
    discount: float | None = None,
    n_reps: int | None = None,
    n_blocks: int = N_BLOCKS,
    propensities: Any = None,
    rehearsed: bool = True,
    allow_learnt: bool = False,
    columns: Mapped = None,
) -> Judgement:
    """Judge a policy against what was done in a log: value of now, value of the policy, gain, and a verdict.

    policy: a Model, a learner, a committee, or a function from states, (n, n_dims), to labels, (n,), or to
        probabilities, (n, n_actions).  Where it answers "as now", the logged action counts.
    log: Transitions with episodes, an opened log (`open_log`), a frame or the path of a file, of episodes that the
        policy did not learn from.  Of a large one, a policy that looks ahead (order 1) is judged by about 100,000 rows.
    level: of the intervals.
    discount, n_reps, n_blocks: as for `PolicyEvaluator`.
    propensities: the logged probabilities of the logged actions, (n,), if the log itself has none; with them,
        importance weights are shown, too.
    rehearsed: also let the policy rehearse in lines of a sample of the episodes, as a second estimate.
    allow_learnt: judge on episodes that the model has learnt from, all the same; its value is too high then.
    columns: which column of a frame or a file is what.  A model reads it as its own log, by its recipe, so that only
        columns with other names need to be named; for a function they are as for `open_log`.

    >>> from kbrl import KBSF, judge, split_episodes
    >>> from kbrl.tasks import PuddleWorld
    >>> learn, rest = split_episodes(PuddleWorld().collect(30000, random_state=0), 0.5)
    >>> model = KBSF(100, sample_width=0.3, rep_width=0.3, random_state=0).fit(learn).model_
    >>> found = judge(model, rest)
    >>> found.verdict, found.gain.low > 0, found.now.low < found.observed < found.now.high
    ('better', True, True)
    """
    in_unit_interval(level, "level")
    log = opened(log, columns, policy=policy)
    if not allow_learnt:
        refuse_learnt(policy, log)
    some = affordable(policy, log, _n_rows(log))
    evaluator = PolicyEvaluator(policy, discount=discount, n_reps=n_reps, n_blocks=n_blocks).fit(some)
    found = with_share(judge_evaluated(evaluator, some, level, rehearsed=rehearsed), some is not log)
    if propensities is None:
        return found
    return replace(found, importance=importance_estimate(policy, log, propensities, discount=evaluator.discount))


def affordable(policy: Any, log: Any, n_rows: int) -> Any:
    """Return the log, or about 100,000 rows of whole episodes if the policy looks ahead: a millisecond per row.

    A hash of the episode decides which.
    """
    if not looks_ahead(policy) or n_rows <= MOST_ROWS_AHEAD:
        return log
    part = EpisodePart(MOST_ROWS_AHEAD / n_rows, _AFFORDABLE_SEED)
    kept = (chunk[part.rows(chunk)] for chunk in chunks_of(log))
    return [chunk for chunk in kept if len(chunk)] or log


def with_share(judgement: Judgement, is_part: bool) -> Judgement:
    """Return a judgement that says whether it is by a part of the log only."""
    if not is_part:
        return judgement
    said = (
        f"a policy that looks ahead takes about a millisecond per decision. So {judgement.n_episodes:,} of the "
        f"episodes were judged, chosen by a hash, with {judgement.n_rows:,} rows. All intervals are those of so many "
        f"episodes; the others would make them shorter."
    )
    return replace(judgement, warnings=(*judgement.warnings, said))


def _n_rows(log: Any) -> int:
    if isinstance(log, Sequence):  # chunks
        return sum(map(len, log))
    return len(log) if isinstance(log, Transitions) else int(getattr(log, "n_rows", 0))


def judge_evaluated(evaluator: PolicyEvaluator, log: Any, level: float = 0.95, *, rehearsed: bool = True) -> Judgement:
    """Judge by an evaluator that was fitted to a log, which is read again to rehearse and to name episodes."""
    evidence = _evidence(evaluator)
    second = _rehearsed(evaluator, log)[0] if rehearsed else NOT_ASKED
    judgement, rung = judged(evidence, rungs(evidence), level, second=second)
    importance = None
    if _has_propensities(log):
        importance = importance_estimate(_first(evaluator), log, discount=evaluator.discount)
    warnings = (*judgement.warnings, *_flags(evaluator))
    judgement = replace(judgement, warnings=warnings, importance=importance)
    if rung is None:
        return judgement
    with one_blas_thread():
        terms = episode_terms(evaluator, log, rung.smoothing)
    n_copies = 0 if evaluator.checked_frame().features.is_exact else terms.n_copies
    if n_copies:
        said = f"{n_copies} of the episodes seem to be copies of others. Copies make the intervals too short."
        warnings = (*warnings, said)
    return replace(judgement, warnings=warnings, influences=terms.influences)


def _flags(evaluator: PolicyEvaluator) -> list[str]:
    """Return what spoke against trusting the policy when it was fitted, if it is a model that says so."""
    policy = _first(evaluator)
    model = getattr(policy, "model_", policy)
    return [f"warning from the fit: {flag}." for flag in model.flags] if isinstance(model, Model) else []


def _first(evaluator: PolicyEvaluator) -> Any:
    return next(iter(evaluator.policies.values()))


def _has_propensities(log: Any) -> bool:
    chunk = next(iter(chunks_of(log)), None)
    return chunk is not None and chunk.propensities is not None


def judge_all(evaluator: PolicyEvaluator, log: Any, level: float) -> list[Judgement]:
    """Judge every policy of an evaluator that was fitted to a log, each at this level; no episode is named."""
    return [found.judgement for found in _all_judged(evaluator, log, level)]


@dataclass(frozen=True)
class _Judged:
    """A judgement and the estimates behind it."""

    judgement: Judgement
    methods: tuple[Rung | None, Rung | None]  # by sums and by rehearsal; None: it has no say
    unseen: float  # what ends that the log hardly shows may cost


def _all_judged(evaluator: PolicyEvaluator, log: Any, level: float, *, rehearsed: bool = True) -> list[_Judged]:
    evidence = [_evidence(evaluator).of(place) for place in range(len(evaluator.policies))]
    seconds = _rehearsed(evaluator, log) if rehearsed else [NOT_ASKED] * len(evidence)
    found = []
    for each, second in zip(evidence, seconds):
        judgement, rung = judged(each, rungs(each), level, second=second)
        by_sums = rung if sums_count(each, second) else None
        methods = by_sums, None if isinstance(second, str) else second.rung
        found.append(_Judged(judgement, methods, unseen_ends(each, Limits.of(each), level)))
    return found


def _rehearsed(evaluator: PolicyEvaluator, log: Any) -> Sequence[Rehearsed | str]:
    """Return what the rehearsal of each policy found, or why there is none."""
    n_rows = int(_evidence(evaluator).sums.n_rows.sum())
    sample = EpisodeSample(n_rows, ROWS)
    for _ in sample.kept(chunks_of(log)):
        pass
    n_runs = min(runs_for(policy, n_rows) for policy in evaluator.policies.values())
    with one_blas_thread():  # threads gain nothing on so few states at a time
        found = rehearse(evaluator.answers(), sample, evaluator.checked_frame(), n_runs)
    return [found] * len(evaluator.policies) if isinstance(found, str) else found


def judge_sums(evaluator: PolicyEvaluator, level: float = 0.95) -> Judgement:
    """Judge by sums alone, as of several sites; no episode is named then.

    >>> from kbrl import PolicyEvaluator, judge_sums
    >>> from kbrl.tasks import PuddleWorld
    >>> log = PuddleWorld().collect(5000, random_state=0, max_steps=50)
    >>> north, south = log[log.episodes % 2 == 0], log[log.episodes % 2 == 1]
    >>> first = PolicyEvaluator(lambda states: [2] * len(states), discount=0.95).fit(north)
    >>> second = PolicyEvaluator(lambda states: [2] * len(states), like=first).fit(south)
    >>> judge_sums(first + second).n_rows
    5000
    """
    evidence = _evidence(evaluator.finish())
    reason = "sums hold no rows to rehearse with"
    return judged(evidence, rungs(evidence), in_unit_interval(level, "level"), second=reason)[0]


@dataclass(frozen=True)
class Comparison:
    """Several policies, each against what was done, and each against each, at one joint level."""

    judgements: dict[str, Judgement]  # by name
    differences: dict[tuple[str, str], Interval]  # value of the first minus that of the second
    level: float  # joint: that all intervals hold
    n_statements: int  # among which the level is shared (Bonferroni)

    def verdict(self, one: str, other: str) -> str:
        """Return whether one policy is better or worse than another, or cannot be told from it."""
        refused = any(self.judgements[name].refusals for name in (one, other))
        pair, sign = ((one, other), 1) if (one, other) in self.differences else ((other, one), -1)
        found = self.differences[pair]
        if refused or found.low <= 0 <= found.high:
            return CANNOT_TELL
        return BETTER if sign * found.estimate > 0 else WORSE

    def __str__(self) -> str:
        lines = [f"{name}: {found.sentence}" for name, found in self.judgements.items()]
        lines += [f"{a} minus {b}: {d}; {self.verdict(a, b)}" for (a, b), d in self.differences.items()]
        shared = f"All {self.n_statements} intervals hold together with {100 * self.level:g} % (Bonferroni)."
        return "\n".join([*lines, shared])


def compare(
    policies: Mapping[str, Any],
    log: Any,
    level: float = 0.95,
    *,
    discount: float | None = None,
    n_reps: int | None = None,
    n_blocks: int = N_BLOCKS,
    propensities: Any = None,
    rehearsed: bool = True,
    allow_learnt: bool = False,
    columns: Mapped = None,
) -> Comparison:
    """Judge several policies by name on one log, against what was done and against each other.

    The level holds for all intervals together: each of k has the level 1 - (1 - level) / k (Bonferroni).  The other
    arguments are those of `judge`.  No episode is named.

    >>> import numpy as np
    >>> from kbrl import compare
    >>> from kbrl.tasks import PuddleWorld
    >>> log = PuddleWorld().collect(20000, random_state=0, max_steps=100)
    >>> down, corner = lambda states: [1] * len(states), lambda states: np.where(states[:, 0] < states[:, 1], 2, 0)
    >>> found = compare({"down": down, "corner": corner}, log, discount=0.95)
    >>> found.n_statements, found.verdict("corner", "down")
    (3, 'better')
    """
    if not isinstance(policies, Mapping):
        raise TypeError(f"compare takes a dict of policies by name, as in {{'a': a, 'b': b}}, but it got {policies!r}.")
    in_unit_interval(level, "level")
    log = opened(log, columns, policy=next((each for each in policies.values() if models_of(each)), None))
    for policy in policies.values() if not allow_learnt else ():
        refuse_learnt(policy, log)
    ahead = next((policy for policy in policies.values() if looks_ahead(policy)), None)
    some = log if ahead is None else affordable(ahead, log, _n_rows(log))
    evaluator = PolicyEvaluator(policies, discount=discount, n_reps=n_reps, n_blocks=n_blocks).fit(some)
    names = list(policies)
    n_statements = len(names) * (len(names) + 1) // 2
    each = 1.0 - (1.0 - level) / n_statements
    found = dict(zip(names, _all_judged(evaluator, some, each, rehearsed=rehearsed)))
    differences = {(a, b): _difference(found[a], found[b], each) for a, b in combinations(names, 2)}
    judgements = {name: with_share(one.judgement, some is not log) for name, one in found.items()}
    if propensities is not None or _has_propensities(log):
        weighed = {
            name: importance_estimate(policy, log, propensities, discount=evaluator.discount)
            for name, policy in policies.items()
        }
        judgements = {name: replace(one, importance=weighed[name]) for name, one in judgements.items()}
    return Comparison(judgements, differences, level, n_statements)


def _evidence(evaluator: PolicyEvaluator) -> Evidence:
    if evaluator.sums is None:
        raise ValueError("There is nothing to judge by: the evaluator has seen no rows.")
    return Evidence(evaluator.sums, evaluator.discount, features=evaluator.checked_frame().features)


def _difference(one: _Judged, other: _Judged, level: float) -> Interval:
    """Return the difference of two values with its interval, by the methods that have a say about both.

    Where an end of the interval of a value is not known, the one of the difference is not known either.
    """
    methods = [_paired(a, b, level) for a, b in zip(one.methods, other.methods) if a is not None and b is not None]
    if not methods:
        return Interval(float("nan"), -np.inf, np.inf)
    found = methods[0] if len(methods) == 1 else methods[0].mixed(methods[1])
    found = found.widened(max(one.unseen, other.unseen))
    a, b = one.judgement.value, other.judgement.value
    if a.is_open_above or b.is_open_below:
        found = replace(found, high=max(found.high, a.high - b.low))
    if a.is_open_below or b.is_open_above:
        found = replace(found, low=min(found.low, a.low - b.high))
    return found


def _paired(one: Rung, other: Rung, level: float) -> Interval:
    """Return the difference by one method; blocks, starts and luck are the same, so its error is paired."""
    t = quantile(level, one)
    both = replace(
        one,
        estimates=one.estimates - other.estimates,
        smoother=one.smoother - other.smoother,
        coarse=one.coarse - other.coarse,
        left_out=one.left_out - other.left_out,
    )
    bias = max(one.bias(VALUE), other.bias(VALUE), both.bias(VALUE))
    check = max(excess_of_self_check(one, t), excess_of_self_check(other, t))
    parts = (t * both.error(VALUE), bias, check)
    estimate = both.of(VALUE)
    return Interval(estimate, estimate - sum(parts), estimate + sum(parts), *parts)
