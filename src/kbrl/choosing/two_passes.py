"""KBSF from a log that is read twice and never held: once to look through it, once to learn.

The look gives the scale of all states and a sample of all rows, of which the representative states are chosen.  So the
model does not depend on how the log is cut into files and chunks, nor on the order of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kbrl.data.state_names import Source
from kbrl.data.survey import SAMPLE_ROWS, Survey, survey
from kbrl.data.transitions import Transitions, as_log
from kbrl.learners.kbsf import KBSF
from kbrl.learners.learner import say_if_rare
from kbrl.logs.log import CHUNK_ROWS, Log
from kbrl.model.check_settings import growth_distance
from kbrl.model.first_model import first_model
from kbrl.model.model import Model
from kbrl.settings import Settings
from kbrl.threads import number_of_jobs

# An iterable that can be read many times, such as a list of chunks.
Rereadable = Log | Transitions | Iterable[Transitions]
_ROWS_PER_REP = 10  # in the sample, at least


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
    settings = learner.checked_settings()
    survey = survey_for(settings, log) if survey is None else survey
    chunks = _told(chunks_of(log), step)
    empty = model_from(settings, survey)
    model = empty.extend(chunks, n_jobs=number_of_jobs(settings.n_jobs)).with_batch_since(empty)
    check_n_rows(model.n_samples, survey)
    if growth_distance(settings) is None:
        # The curve m(n) has one point, however the log was cut.
        model = model.with_sums(model.sums, model.sketch, samples=model.samples)
    model.solve()
    learner.model_ = model
    say_if_rare(model.action_labels, model.sums.counts, settings.min_cases)
    return learner


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
