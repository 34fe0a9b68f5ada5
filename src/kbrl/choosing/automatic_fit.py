"""A model from a log that is read twice and never held: once to look through it, once to learn.

The look gives the scale of all states and a sample of all rows.  From these come the representative states and what is
not given: their number and the widths.  None of it depends on how the log is cut into files or on the order of its
rows.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from kbrl.arrays import Array, Integers
from kbrl.checks import KbrlWarning, one_of, positive
from kbrl.choosing.candidates import n_reps_for_lines
from kbrl.choosing.hyperparameters import (
    COPIES,
    MEGABYTES,
    WIDTHS,
    Each,
    NumberOfReps,
    Sizes,
    Widths,
    choose_n_reps,
    choose_widths,
    measure,
)
from kbrl.choosing.rehearsal import (
    LEAST_ROWS,
    MOST_DIMS,
    REPS_OF_LINES,
    Choice,
    EpisodeSample,
    can_rehearse,
    choose_by_rehearsal,
    without_weight,
)
from kbrl.choosing.window_choice import n_reps_for_windows
from kbrl.data.names import Source
from kbrl.data.survey import SAMPLE_ROWS, Survey, survey
from kbrl.data.transitions import Transitions, as_log
from kbrl.files import unseen
from kbrl.learners.kbsf import KBSF
from kbrl.learners.learner import say_if_rare
from kbrl.lines.moments import packed_size
from kbrl.logs.log import CHUNK_ROWS, Log
from kbrl.model.model import Model, first_model
from kbrl.notebooks import Phase
from kbrl.settings import FEW_CASES, Settings, checked

CHOSEN = ("n_reps", *WIDTHS, "order", "reps", "scaling")
# An iterable that can be read many times, such as a list of chunks.
Rereadable = Log | Transitions | Iterable[Transitions]
_ROWS_PER_REP = 10  # in the sample, at least
_FEW_ROWS = 16384
_LEARNING_SHARE = 0.8  # of the time left; the widths are chosen in the rest


@dataclass(frozen=True, eq=False)
class Automatic:
    """What was learnt, and how its settings were chosen; None for those that were not."""

    learnt: Model
    survey: Survey
    n_episodes: int  # 0 where the log does not tell them apart, or a cluster reads it
    n_reps: NumberOfReps | None
    widths: Widths | None
    choice: Choice | None  # of the order and the plans, by rehearsal
    seconds: dict[str, float]  # of each part of the work

    @cached_property
    def model(self) -> KBSF:
        """A learner that has learnt the model."""
        return KBSF.with_model(self.learnt)


class FittableLog(Protocol):
    """A log that can be surveyed and learnt from, here or on other machines."""

    @property
    def n_rows(self) -> int:
        """The number of rows."""

    def looked_through(self, sample_rows: int, *, step: Callable[[int], None]) -> tuple[Survey, int]:
        """Return a survey and the number of episodes, 0 if they are not counted; ``step`` is the progress callback."""

    def episode_sample(self) -> EpisodeSample | None:
        """Return some whole episodes, to rehearse with; asked for after the log was looked through."""

    def learn(self, settings: Settings, *, survey: Survey, step: Callable[[int], None]) -> Model:
        """Return the model of all rows."""

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """Do what ``map`` does, on the machines that do the work."""


@dataclass(frozen=True, eq=False)
class _LocalLog:
    """A log that this process reads, in chunks of a given size, any number of times."""

    log: Log | Transitions
    chunk_rows: int
    sample: EpisodeSample | None  # to rehearse with; None where there are too few rows

    @property
    def n_rows(self) -> int:
        return _n_rows(self.log)

    def __iter__(self) -> Iterator[Transitions]:
        return self.log.chunks(self.chunk_rows)

    def looked_through(self, sample_rows: int, *, step: Callable[[int], None]) -> tuple[Survey, int]:
        counter = _EpisodeCounter()
        chunks = counter.counted(self)
        chunks = chunks if self.sample is None else self.sample.kept(chunks)
        return survey(_told(chunks, step), sample_rows=sample_rows), counter.n_episodes

    def episode_sample(self) -> EpisodeSample | None:
        return self.sample

    def learn(self, settings: Settings, *, survey: Survey, step: Callable[[int], None]) -> Model:
        return learnt(settings, self, survey=survey, step=step)

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        return map(function, items)


def _n_rows(log: Log | Transitions | FittableLog) -> int:
    return len(log) if isinstance(log, Transitions) else log.n_rows


def fit_automatically(
    learner: Settings,
    log: Log | Transitions | FittableLog,
    *,
    choose: Collection[str] = CHOSEN,
    criterion: str = "error",
    megabytes: float | None = None,
    seconds: float | None = None,
    chunk_rows: int | None = None,
    phase: Phase | None = None,
) -> Automatic:
    """Choose settings from the data, fit a model, and return it and how it was chosen; `kbrl.fit` returns the model.

    learner: a KBSF, which stays as it is, or its settings.
    log: Transitions, an opened log (`open_log`), or one on a Dask cluster.
    choose: which of n_reps, sample_width, rep_width, order, reps and scaling to choose; the others stay those of the
        learner.  To choose the scaling is to leave variables that do not matter out of distances
        (`kbrl.choosing.relevance`); a scaling that is None or an array stays.
        The order, and the plans of order 1, are chosen by rehearsal (`kbrl.choosing.rehearsal`): not with a
        limit in seconds, the criterion "bellman", or settings that only order 0 has.
    criterion: what the widths are chosen by, as in `kbrl.choosing.hyperparameters.choose_widths`.
    megabytes, seconds: limits, of memory and of the time for all of the work, to the number of representative states.
    chunk_rows: the number of rows that are read at a time.
    phase: phase(name, n_rows) returns a progress callback, which takes the number of rows done.

    If the learner has no ``min_cases``, it is set to 5: an action that was taken fewer times is not recommended.  A log
    in which no action was taken that often is refused.

    >>> from kbrl import KBSF, fit_automatically, open_log
    >>> from kbrl.logs.writing import write_log
    >>> from kbrl.tasks import PuddleWorld
    >>> write_log(PuddleWorld().collect(300, random_state=0), "log.csv")
    >>> found = fit_automatically(KBSF(n_reps=20, random_state=0), open_log("log.csv"), choose=["sample_width"])
    >>> found.model.n_samples_, found.model.sample_width == found.widths.sample_width, found.n_reps is None
    (300, True, True)
    """
    for name in choose:
        one_of(name, CHOSEN, "choose")
    clock, phase, n_rows = _Clock(seconds), phase or unseen, _n_rows(log)
    settings = checked(learner, min_cases=FEW_CASES)  # what is left out is in the result
    chunks = chunk_rows or _rows_at_a_time(settings)
    source: FittableLog
    if isinstance(log, (Log, Transitions)):
        source = _LocalLog(log, chunks, EpisodeSample(n_rows) if n_rows >= LEAST_ROWS else None)
    else:
        source = log
    step = phase("looking through the log", n_rows)
    seen, n_episodes = source.looked_through(sample_rows_for(settings), step=step)
    clock.lap("looking through the log")
    _refuse_luck(seen.action_labels, seen.counts, settings.min_cases or 1)
    choice = None
    if criterion == "error" and seconds is None and n_rows >= LEAST_ROWS:
        choice = _rehearsed(settings, source, seen.n_dims, choose, phase)
    if choice is not None:
        settings = replace(settings, **choice.chosen.settings)
    if choice is not None and choice.ignored:
        settings = replace(settings, scaling=without_weight(seen.scale(settings.scaling), choice.ignored))
    if settings.order == 1 and "reps" in choose:
        settings = replace(settings, reps=REPS_OF_LINES)
    number = None
    if "n_reps" in choose and isinstance(settings.reps, str) and settings.reps != "cover":
        number = _number(settings, seen, clock, megabytes)
        settings = replace(settings, n_reps=number.n_reps)
    widths = _widths(settings, seen, choose, criterion, phase, source.each)
    if widths is not None:
        widen = choice.chosen.widen if choice else 1.0
        settings = replace(settings, sample_width=widen * widths.sample_width, rep_width=widen * widths.rep_width)
    clock.lap("choosing")
    model = source.learn(settings, survey=seen, step=phase("learning", seen.n_rows))
    clock.lap("learning")
    if choice is not None:
        model = replace(model, flags=choice.flags)
    if not model.often_taken.all():
        say_if_rare(model.action_labels, model.sums.counts, model.min_cases)
    return Automatic(model, seen, n_episodes, number, widths, choice, clock.laps)


def _rehearsed(
    settings: Settings, source: FittableLog, n_dims: int, choose: Collection[str], phase: Phase
) -> Choice | None:
    """Return the order, plans and scaling that rehearse best; None where that cannot be tried."""
    if not can_rehearse(settings, choose) or n_dims > MOST_DIMS:
        return None
    phase("rehearsing", 0)
    sample = source.episode_sample()
    if sample is None or sample.log is None:
        return None
    lines = KBSF(**vars(replace(settings, reps=REPS_OF_LINES)))
    may_ignore = "scaling" in choose and isinstance(settings.scaling, str)
    return choose_by_rehearsal(sample.log, lines, has_episodes=sample.has_episodes, may_ignore=may_ignore)


class RareActionsError(ValueError):
    """No action was taken often enough."""


def _refuse_luck(labels: Array, counts: Integers, min_cases: int) -> None:
    """Refuse a log in which no action was taken often: the luckiest row would be the advice for all."""
    if counts.max() < min_cases:
        shown = ", ".join(str(label) for label in labels[:3].tolist()) + (", ..." if len(labels) > 3 else "")
        times = "once" if counts.max() == 1 else f"{counts.max()} times"
        raise RareActionsError(
            f"In {counts.sum()} transitions with {len(labels)} possible actions ({shown}), no action was taken more "
            f"than {times}, and at least one must be taken {min_cases} times (min_cases). Put amounts such as doses "
            f"into a few classes, each with a label; or let luck decide: min_cases=1."
        )


def learn_more(
    model: Model, log: Log, *, n_jobs: int | None = None, chunk_rows: int | None = None, phase: Phase | None = None
) -> Model:
    """Return a solved model that has also learnt this log; whether it was learnt before is not checked."""
    chunks = log.chunks(chunk_rows or _rows_at_a_time(model.settings))
    step = (phase or unseen)("learning", log.n_rows)
    result = model.extend(_told(chunks, step), n_jobs=n_jobs, is_batch=True)
    result.solve()
    return result


def _rows_at_a_time(settings: Settings) -> int:
    """Return the rows of a chunk: dense sums need no large chunks; neighbours are searched again in each chunk."""
    return _FEW_ROWS if settings.sample_neighbors is None else CHUNK_ROWS


def _number(settings: Settings, seen: Survey, clock: _Clock, megabytes: float | None) -> NumberOfReps:
    if settings.order == 1:
        return _no_more_than_there_are(_number_for_lines(seen, megabytes, settings.plan.window), seen)
    neighbors = (settings.sample_neighbors, settings.rep_neighbors)
    sizes = Sizes(seen.n_rows, seen.n_dims, len(seen.action_labels), *neighbors)
    if clock.limit is None:
        return _no_more_than_there_are(choose_n_reps(sizes, megabytes=megabytes), seen)
    rates = measure(settings, seen.sample, row_seconds=clock.passed / seen.n_rows)
    left = _LEARNING_SHARE * (clock.limit - clock.passed)
    number = _no_more_than_there_are(choose_n_reps(sizes, megabytes=megabytes, seconds=left, rates=rates), seen)
    _say_if_too_little(clock, rates.seconds(seen.n_rows, number.n_reps))
    return number


def _number_for_lines(seen: Survey, megabytes: float | None, window: int | None) -> NumberOfReps:
    """Return the number of representative states of order 1, within memory."""
    wanted = n_reps_for_lines(seen.n_rows) if window is None else n_reps_for_windows(seen.n_rows, window)
    limit = MEGABYTES if megabytes is None else positive(megabytes, "megabytes")
    numbers = len(seen.action_labels) * (packed_size(1 + 2 * seen.n_dims) + packed_size(3 + seen.n_dims))
    most = max(1, int(limit / (8e-6 * COPIES * numbers)))
    if wanted <= most:
        rows = "15 rows" if window is None else f"{15 * np.sqrt(window):.0f} rows"
        return NumberOfReps(wanted, f"one per {rows}, at least 50 and at most 2,000")
    return NumberOfReps(most, f"more would need over {limit:g} MB of memory")


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
    settings: Settings, seen: Survey, choose: Collection[str], criterion: str, phase: Phase, each: Each
) -> Widths | None:
    keep = [name for name in WIDTHS if name not in choose]
    if len(keep) == len(WIDTHS) or settings.order == 1:
        return None
    phase("choosing the widths", 0)
    scaled = replace(settings, scaling=seen.scale(settings.scaling))
    return choose_widths(seen.sample, scaled, criterion=criterion, keep=keep, each=each)


_logger = logging.getLogger(__name__)


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
        _logger.info("%s took %.3g s", name, self.laps[name])


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


def fit_log(
    learner: KBSF,
    log: Rereadable,
    *,
    survey: Survey | None = None,
    step: Callable[[int], Any] | None = None,
) -> KBSF:
    """Fit a learner to a log that is read twice, chunk by chunk, and return the learner.

    log: an opened log (`open_log`), Transitions, or a list of Transitions.  The model does not depend on how it is
        cut into chunks.
    survey: one that was made before, of the same log; then the log is read only once.
    step: called after each chunk with its number of rows.

    >>> from kbrl import KBSF, fit_log
    >>> from kbrl.tasks import PuddleWorld
    >>> log = PuddleWorld().collect(300, random_state=0)
    >>> whole = fit_log(KBSF(n_reps=10, random_state=0), log)
    >>> parts = fit_log(KBSF(n_reps=10, random_state=0), [log[:100], log[100:]])
    >>> parts.n_samples_, bool((whole.reps_ == parts.reps_).all())
    (300, True)
    """
    model = learnt(checked(learner, min_cases=FEW_CASES), log, survey=survey, step=step)
    learner.model_ = model
    say_if_rare(model.action_labels, model.sums.counts, learner.min_cases)
    return learner


def learnt(
    settings: Settings,
    log: Rereadable,
    *,
    survey: Survey | None = None,
    step: Callable[[int], Any] | None = None,
) -> Model:
    """Return the solved model of a log that is read twice; arguments as for `fit_log`."""
    survey = survey_for(settings, log) if survey is None else survey
    chunks = _told(chunks_of(log), step)
    model = model_from(settings, survey).extend(chunks, n_jobs=settings.n_jobs, is_batch=True)
    if settings.plan.window is None:  # else windows are counted, of which there are fewer
        check_n_rows(model.n_samples, survey)
    if not settings.growth.is_wanted:
        model = replace(model, sizes=model.sizes[-1:])  # the curve m(n) has one point, however the log was cut
    model.solve()
    return model


def _told(chunks: Iterable[Transitions], step: Callable[[int], Any] | None) -> Iterator[Transitions]:
    for chunk in chunks:
        yield chunk
        if step is not None:
            step(len(chunk))


def survey_for(settings: Settings, log: Rereadable) -> Survey:
    """Look through a log, with a sample that is large enough for the representative states."""
    return survey(chunks_of(log), sample_rows=sample_rows_for(settings))


def sample_rows_for(settings: Settings) -> int:
    """Return how many rows are sampled to choose the representative states from."""
    return max(SAMPLE_ROWS, _ROWS_PER_REP * int(settings.n_reps))


def model_from(settings: Settings, survey: Survey) -> Model:
    """Return a model without data whose scale, actions and representative states come from a survey."""
    return first_model(settings, survey.sample, survey.moments)


def chunks_of(log: Rereadable) -> Iterator[Transitions]:
    """Return the chunks of a log from its start; what can be read only once is refused."""
    if isinstance(log, (Log, Transitions)):
        return log.chunks(CHUNK_ROWS)
    if not isinstance(log, Iterable) or isinstance(log, Iterator):
        raise TypeError(
            f"A log is read twice here, so it must be an opened log or a list of Transitions, but it is "
            f"{type(log).__name__}. Use open_log(path), or fit(chunks), which chooses by the first chunk alone."
        )
    return _in_one_order(log)


def _in_one_order(chunks: Iterable[Any]) -> Iterator[Transitions]:
    """Yield chunks with the state variables in the order of the first one, by their names."""
    source: Source | None = None
    for chunk in map(as_log, chunks):
        source = chunk.source if source is None else source
        yield chunk.in_order_of(source)


def check_n_rows(n_rows: int, survey: Survey) -> None:
    """Refuse a model of other rows than those of the survey."""
    if n_rows != survey.n_rows:
        raise ValueError(
            f"The log had {survey.n_rows} transitions when it was looked through, but {n_rows} when it was learnt "
            f"from. Do not change it in between, and give the survey of the same log."
        )
