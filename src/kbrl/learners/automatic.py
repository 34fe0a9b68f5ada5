"""A model from a log alone: what is not given is chosen from the data, then KBSF learns in one pass.

The log is looked through once; from that come the number of representative states (`budget`), the widths (`tuning`)
and the scale.  None of it depends on how the log is cut into files or on the order of its rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from kbrl.checks import KbrlWarning, one_of, positive
from kbrl.data.episodes import CHUNK_ROWS, Log
from kbrl.data.survey import Survey, survey
from kbrl.data.transitions import Transitions
from kbrl.learners.budget import NumberOfReps, Sizes, choose_n_reps, measure
from kbrl.learners.distributed import ClusterLog, fit_on_dask
from kbrl.learners.estimator import clone
from kbrl.learners.kbsf import KBSF, MANY_ROWS
from kbrl.learners.streamed import fit_log, sample_rows_for
from kbrl.learners.tuning import WIDTHS, Each, Widths, choose_widths
from kbrl.model.cells import FEW_CASES

CHOSEN = ("n_reps", *WIDTHS)
# Told the name of a part of the work and how many rows it has to do; returns what is told how many were done.
Phase = Callable[[str, int], Callable[[int], None]]
_FEW_ROWS = 16384
_LEARNING_SHARE = 0.8  # of the time left; the widths are chosen in the rest


@dataclass(frozen=True, eq=False)
class Automatic:
    """A fitted model, and how what was not given was chosen; None where nothing was to be chosen."""

    model: KBSF
    survey: Survey
    n_episodes: int  # 0 where the log does not tell them apart, or a cluster reads it
    n_reps: NumberOfReps | None
    widths: Widths | None
    seconds: dict[str, float]  # of each part of the work


@dataclass(frozen=True, eq=False)
class _Chunks:
    """The transitions of a log in chunks of a size, from the start whenever asked for."""

    log: Log
    chunk_rows: int

    def __iter__(self) -> Iterator[Transitions]:
        return self.log.chunks(self.chunk_rows)


def fit_automatically(
    learner: KBSF,
    log: Log | ClusterLog,
    *,
    choose: Collection[str] = CHOSEN,
    criterion: str = "error",
    megabytes: float | None = None,
    seconds: float | None = None,
    chunk_rows: int | None = None,
    phase: Phase | None = None,
) -> Automatic:
    """Choose those of n_reps, sample_width and rep_width that are in ``choose``, and fit a copy of the learner.

    ``megabytes`` and ``seconds`` (for all of the work) limit the number of representative states.  Where the learner
    has no ``min_cases``, it is 5: an action that was taken fewer times is not recommended.
    """
    for name in choose:
        one_of(name, CHOSEN, "choose")
    clock, phase = _Clock(seconds), phase or _silent
    learner = clone(learner)
    if learner.min_cases is None:
        learner.set_params(min_cases=FEW_CASES)
    learner._check_parameters()
    chunks = chunk_rows or _rows_at_a_time(learner)
    source: ClusterLog | _Chunks = log if isinstance(log, ClusterLog) else _Chunks(log, chunks)
    seen, n_episodes = _looked(source, sample_rows_for(learner), phase("looking through the log", log.n_rows))
    clock.lap("looking through the log")
    number = None
    if "n_reps" in choose and isinstance(learner.reps, str) and learner.reps != "cover":
        number = _number(learner, seen, clock, megabytes)
        learner.set_params(n_reps=number.n_reps)
    each = log.each if isinstance(log, ClusterLog) else map
    widths = _widths(learner, seen, choose, criterion, phase, each)
    if widths is not None:
        learner.set_params(sample_width=widths.sample_width, rep_width=widths.rep_width)
    clock.lap("choosing")
    step = phase("learning", seen.n_rows)
    if isinstance(source, ClusterLog):
        fit_on_dask(learner, source, survey=seen, step=step)
    else:
        fit_log(learner, source, survey=seen, step=step)
    clock.lap("learning")
    _refuse_luck(learner)
    return Automatic(learner, seen, n_episodes, number, widths, clock.laps)


def _refuse_luck(model: KBSF) -> None:
    """Refuse a model of many rows in which no action was taken often: the luckiest row would be the advice for all."""
    counts, least = model.statistics_.counts, model._fitted.min_cases
    if counts.max() < least and model.n_samples_ >= MANY_ROWS:
        shown = ", ".join(str(label) for label in model.action_labels_[:3].tolist())
        raise ValueError(
            f"Of {model.n_samples_} transitions with {len(counts)} different actions ({shown}, ...), no action was "
            f"taken more than {counts.max()} times, and at least one must be taken {least} times (min_cases). Put "
            f"amounts such as doses into a few classes, each with a label."
        )


def unlearnt(model: KBSF) -> KBSF:
    """Return a model of no data with the same representative states, scale and settings: the two can be merged."""
    return model._with(model._fitted.unlearnt(), [])


def learn_more(model: KBSF, log: Log, *, chunk_rows: int | None = None, phase: Phase | None = None) -> KBSF:
    """Go on learning from a log, chunk by chunk, and solve the model; whether it was learnt before, nobody asks."""
    chunks = log.chunks(chunk_rows or _rows_at_a_time(model))
    for chunk in _told(chunks, (phase or _silent)("learning", log.n_rows)):
        model._learn_more(chunk)
    model.solution_  # noqa: B018
    return model


def _rows_at_a_time(learner: KBSF) -> int:
    """Return the rows of a chunk: dense sums take few as fast as many; neighbours are searched anew in each chunk."""
    return _FEW_ROWS if learner.sample_neighbors is None else CHUNK_ROWS


def _looked(source: _Chunks | ClusterLog, sample_rows: int, step: Callable[[int], None]) -> tuple[Survey, int]:
    """Look through a log; return the survey and the number of episodes, 0 where they are not counted."""
    if isinstance(source, ClusterLog):
        return source.survey(sample_rows, step=step), 0
    counter = _EpisodeCounter()
    return survey(_told(counter.counted(source), step), sample_rows=sample_rows), counter.n_episodes


def _number(learner: KBSF, seen: Survey, clock: _Clock, megabytes: float | None) -> NumberOfReps:
    neighbors = (learner.sample_neighbors, learner.rep_neighbors)
    sizes = Sizes(seen.n_rows, seen.n_dims, len(seen.action_labels), *neighbors)
    if clock.limit is None:
        return _no_more_than_there_are(choose_n_reps(sizes, megabytes=megabytes), seen)
    rates = measure(learner, seen.sample, row_seconds=clock.passed / seen.n_rows)
    left = _LEARNING_SHARE * (clock.limit - clock.passed)
    number = _no_more_than_there_are(choose_n_reps(sizes, megabytes=megabytes, seconds=left, rates=rates), seen)
    _say_if_too_little(clock, rates.seconds(seen.n_rows, number.n_reps))
    return number


def _no_more_than_there_are(number: NumberOfReps, seen: Survey) -> NumberOfReps:
    """Representative states are chosen among the next states of the sample, which may be few."""
    n_different = len(np.unique(seen.sample.next_states, axis=0))
    return number if number.n_reps <= n_different else NumberOfReps(n_different, "there are no more next states")


def _say_if_too_little(clock: _Clock, needed: float) -> None:
    total = clock.passed + needed / _LEARNING_SHARE
    if clock.limit is not None and total > 1.05 * clock.limit:
        warnings.warn(
            f"seconds={clock.limit:g} are too few: with the fewest representative states this will take about "
            f"{total:.2g} seconds, most of them to read the log.",
            KbrlWarning,
            stacklevel=4,
        )


def _widths(
    learner: KBSF, seen: Survey, choose: Collection[str], criterion: str, phase: Phase, each: Each
) -> Widths | None:
    keep = [name for name in WIDTHS if name not in choose]
    if len(keep) == len(WIDTHS):
        return None
    phase("choosing the widths", 0)
    scaled = clone(learner).set_params(scaling=seen.scale(learner.scaling))
    return choose_widths(seen.sample, scaled, criterion=criterion, keep=keep, each=each)


class _Clock:
    """The seconds that passed since the start, part by part, and the limit to all of them."""

    def __init__(self, limit: float | None) -> None:
        self.limit = None if limit is None else positive(limit, "seconds")
        self.laps: dict[str, float] = {}
        self._start = self._last = perf_counter()

    @property
    def passed(self) -> float:
        return perf_counter() - self._start

    def lap(self, name: str) -> None:
        now = perf_counter()
        self.laps[name], self._last = now - self._last, now


class _EpisodeCounter:
    """Counts episodes as chunks come by: rows of one follow each other."""

    def __init__(self) -> None:
        self.n_episodes = 0
        self._last: object = None

    def counted(self, chunks: Iterable[Transitions]) -> Iterator[Transitions]:
        for chunk in chunks:
            episodes = chunk.episodes
            if episodes is not None:
                is_new = self.n_episodes == 0 or episodes[0] != self._last
                self.n_episodes += int(is_new) + int((episodes[1:] != episodes[:-1]).sum())
                self._last = episodes[-1]
            yield chunk


def _told(chunks: Iterable[Transitions], step: Callable[[int], None]) -> Iterator[Transitions]:
    for chunk in chunks:
        yield chunk
        step(len(chunk))


def _silent(name: str, n_rows: int) -> Callable[[int], None]:
    return lambda n_done: None
