"""Fit KBSF, or a committee of them, to a log in many parts on a Dask cluster.

Three passes over the parts, where the workers are: a light look at the actions, a survey (scale and sample), and the
statistics.  Surveys and statistics add up, so what travels is the size of a model, not of the data.  The
representative states are chosen, and the model is solved, where the caller is.  Paper: section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import chain
from operator import add
from os import PathLike
from typing import Any

from kbrl.arrays import Array
from kbrl.choosing.automatic_fit import check_n_rows, model_from, sample_rows_for
from kbrl.choosing.rehearsal import EpisodeSample
from kbrl.data.episodes import EpisodePart
from kbrl.data.sketch import Sketch
from kbrl.data.survey import LARGEST_HASH, Survey, hash_limit, survey
from kbrl.learners.kbsf import KBSF
from kbrl.learners.learner import say_if_rare
from kbrl.logs.columns import Columns, resolve
from kbrl.logs.log import Mapped
from kbrl.logs.rows import label_array
from kbrl.model.model import Model
from kbrl.on_dask.clients import find_client
from kbrl.on_dask.log_parts import (
    Facts,
    Part,
    agree,
    agreed_recipe,
    cut,
    find_columns,
    light_columns,
    look_at,
    numbered,
    numberings_in,
    parts_of,
    values_in,
)
from kbrl.on_dask.parallel_work import RETRIES, OnCluster, Step, map_on
from kbrl.settings import FEW_CASES, Settings, checked
from kbrl.tables.faults import LogError
from kbrl.tables.text_files import Dialect, dialect_in


@dataclass(frozen=True, eq=False)
class ClusterLog:
    """A log whose parts the workers of a cluster read, looked through once."""

    work: OnCluster
    facts: Facts

    @property
    def action_labels(self) -> Array:
        """The labels of all actions, in the order that one process would give them."""
        return self.facts.action_labels

    @property
    def columns(self) -> Columns | None:
        """Which column is what; None where the parts are Transitions."""
        return None if self.facts.scan is None else self.facts.scan.columns

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.facts.n_rows

    def with_actions(self, actions: Sequence[Any]) -> ClusterLog:
        """Return the log with these possible actions, which must include all those taken."""
        column = "action" if self.columns is None else self.columns.action
        labels = label_array(self.action_labels.tolist(), actions, column)
        return replace(self, facts=replace(self.facts, action_labels=labels))

    def only(self, part: EpisodePart) -> ClusterLog:
        """Return the log of these episodes alone."""
        return replace(self.with_episodes, facts=replace(self.facts, part=part))

    @cached_property
    def with_episodes(self) -> ClusterLog:
        """The log with episodes told apart: those without identifiers are numbered over all parts, by one more pass."""
        if not self.facts.numbers_episodes:
            return self
        parts = numbered(self.work.parts, self.work.each(numberings_in, self.facts))
        return replace(self, work=replace(self.work, parts=parts))

    def episode_sample(self) -> EpisodeSample:
        """Return some whole episodes, to rehearse with: the same as one process would take.

        None where the log does not tell episodes apart: blocks of rows depend on how it is cut into parts.
        """
        if self.columns is not None and self.columns.episode is None:
            return EpisodeSample(0)
        samples = self.work.each(_sampled, self.facts)
        if not any(each.has_episodes for each in samples):
            return EpisodeSample(0)
        return reduce(add, samples)

    def looked_through(self, sample_rows: int, *, step: Step) -> tuple[Survey, int]:
        """Return the survey; episodes are not counted."""
        return self.survey(sample_rows, step=step), 0

    def learn(self, settings: Settings, *, survey: Survey, step: Step) -> Model:
        """Return the model of all rows, learnt on the workers."""
        learner = KBSF(**vars(settings))
        fit_all_on_dask([learner], self, survey=survey, step=step)
        return learner.model_

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Do what ``map`` does, on the same workers."""
        return map_on(self.work.client, function, items, retries=self.work.retries)

    def survey(self, sample_rows: int, *, step: Step | None = None) -> Survey:
        """Look through all parts for the scale and a sample; ``step`` is called with the numbers of rows done."""
        limit = hash_limit(self.n_rows, sample_rows)
        found = self._survey(sample_rows, limit, step)
        return self._survey(sample_rows, LARGEST_HASH, None) if found.is_short else found  # many rows are the same

    def _survey(self, sample_rows: int, largest_hash: int, step: Step | None) -> Survey:
        found = self.work.sums(_survey, add, [(self.facts, sample_rows, largest_hash)], step)[0]
        if found is None:
            raise LogError("no_transitions", f"None of the {self.n_rows} rows has a next state or ends an episode.")
        return found

    def models(self, empty: Sequence[Model], *, step: Step | None = None) -> list[Model]:
        """Return the models of all parts, for models without data whose representative states are chosen."""
        totals = self.work.sums(_learn, _added, [(self.facts, each) for each in empty], step)
        return [
            replace(
                total,
                basis=each.basis,
                sums=total.sums.on(each.basis),
                sketch=None if total.sketch is None else total.sketch.with_batch_since(Sketch()),
            )
            for total, each in zip(totals, empty)
        ]


def open_on_dask(
    sources: Any,
    *,
    client: Any = None,
    columns: Mapped = None,
    actions: Sequence[Any] | None = None,
    retries: int = RETRIES,
) -> ClusterLog:
    """Open a log on a cluster: paths that its workers can read, or a Dask collection of frames or of Transitions.

    ``columns`` and ``actions`` are as in `read_log`; ``retries`` is how often Dask repeats a failed task.
    """
    client = find_client(client)
    parts, held = _parts(sources, dialect_in(columns))
    if not parts:
        raise LogError("empty_log", "The log has no parts.")
    everything = OnCluster(client, parts, held, [0] * len(parts), retries)
    is_frame = hasattr(type(sources), "columns")
    if is_frame:
        found: Columns | None = resolve([str(name) for name in sources.columns], columns)
    else:
        found = OnCluster(client, parts[:1], held[:1], [0], retries).each(find_columns, columns)[0]
    recipe = None if found is None else agreed_recipe(everything.each(values_in, found), found, len(parts))
    light = held
    if is_frame and found is not None and recipe is None and set(light_columns(found)) <= set(sources.columns):
        light = list(sources[light_columns(found)].to_delayed())  # only what a look needs is read
        light = light if len(light) == len(parts) else held  # Dask may read several files at once
    looks = OnCluster(client, parts, light, [0] * len(parts), retries).each(look_at, found, len(parts), recipe)
    facts = agree(looks, [part.name for part in parts], actions, recipe)
    held = [promise for promise, look in zip(held, looks) if look.n_rows]
    pieces, sizes = cut(parts, looks)
    held = held if any(promise is not None for promise in held) else [None] * len(pieces)
    return ClusterLog(OnCluster(client, pieces, held, sizes, retries), facts)


def fit_on_dask(
    learner: Any,
    log: Any,
    *,
    client: Any = None,
    columns: Mapped = None,
    survey: Survey | None = None,
    step: Step | None = None,
) -> Any:
    """Fit a KBSF or a Committee to a log on a Dask cluster, and return it; needs the extra ``dask``.

    log: paths that the workers can read, a Dask collection of frames or of Transitions, or a log opened by
        ``open_on_dask``.
    client: a ``distributed.Client``; None: the current one.
    columns: which column is what, as in `read_log`.
    survey: one that was made before, of the same log.
    step: called with the numbers of rows learnt.

    The model is that of one process: bit for bit with ``sample_neighbors``, within 1e-12 without.

    >>> from distributed import Client  # doctest: +SKIP
    >>> model = fit_on_dask(KBSF(n_reps=100), ["log1.csv", "log2.csv"], client=Client())  # doctest: +SKIP
    """
    if not isinstance(log, ClusterLog):
        log = open_on_dask(log, client=client, columns=columns)
    if isinstance(learner, KBSF):
        fit_all_on_dask([learner], log, survey=survey, step=step)
        return learner
    members = learner.new_members()
    fit_all_on_dask(members, log, survey=survey, step=step)
    learner.set_members(members)
    return learner


def fit_all_on_dask(
    learners: Sequence[KBSF], log: ClusterLog, *, survey: Survey | None = None, step: Step | None = None
) -> None:
    """Fit several learners side by side to the same log: the members of a committee, or one for each width to try."""
    settings = [_checked(learner) for learner in learners]
    if survey is None:
        survey = log.survey(max(map(sample_rows_for, settings)))
    empty = [model_from(each, survey) for each in settings]
    models = log.models(empty, step=step)
    for model in models:
        if model.settings.plan.window is None:  # else windows are counted, of which there are fewer
            check_n_rows(model.n_samples, survey)
        model.solve()
    for learner, model in zip(learners, models):
        learner.model_ = model
    say_if_rare(models[0].action_labels, models[0].sums.counts, learners[0].min_cases)  # once: they share the log


def _parts(sources: Any, dialect: Dialect) -> tuple[list[Part], list[Any]]:
    """Return the parts of a log, and the Dask promise of each part that is not a file."""
    if isinstance(sources, (str, PathLike)):
        sources = [sources]
    if hasattr(type(sources), "to_delayed"):  # asked of the type: a promise says yes to any attribute
        promised = list(sources.to_delayed())
    else:
        promised = [sources] if hasattr(sources, "__dask_graph__") else sources
    if not isinstance(promised, (list, tuple)):
        raise TypeError(f"On a cluster a log must be paths or a Dask collection, but it is {type(sources).__name__}.")
    if all(isinstance(item, (str, PathLike)) for item in promised):
        parts = parts_of(promised, dialect)
        return parts, [None] * len(parts)
    if not all(hasattr(item, "__dask_graph__") for item in promised):
        kinds = sorted({type(item).__name__ for item in promised})
        raise TypeError(f"On a cluster a log must be all paths or all promises of Dask, but it has {', '.join(kinds)}.")
    return [Part(f"partition {number}", dialect=dialect) for number in range(len(promised))], list(promised)


def _checked(learner: Any) -> Settings:
    """Return the settings of a learner; refuse what does not add up."""
    if not isinstance(learner, KBSF):
        raise TypeError(
            f"Only the statistics of KBSF add up over a cluster, but the learner is {type(learner).__name__}."
        )
    settings = checked(learner, min_cases=FEW_CASES)
    if settings.growth.is_wanted:
        raise ValueError(
            "A model that grows learns one chunk after the other, so its parts do not add up. Fit it in one process, "
            "or with growth=Growth()."
        )
    if settings.variant.q_function == "samples":
        raise ValueError("q_function='samples' keeps all transitions, which would travel here. Use q_function='reps'.")
    if settings.variant.neighborhoods == "per_chunk" and settings.sample_neighbors is not None:
        raise ValueError("neighborhoods='per_chunk' depends on the chunks, which differ here. Use 'exact'.")
    return settings


def _sampled(opened: Any, facts: Facts) -> EpisodeSample:
    sample = EpisodeSample(facts.n_rows)
    for _ in sample.kept(facts.chunks(opened)):
        pass
    return sample


def _survey(opened: Any, facts: Facts, sample_rows: int, largest_hash: int) -> Survey | None:
    chunks = facts.chunks(opened)
    first = next(chunks, None)
    if first is None:
        return None
    return survey(chain([first], chunks), sample_rows=sample_rows, largest_hash=largest_hash)


def _learn(opened: Any, facts: Facts, empty: Model) -> Model:
    """Return the model of one part."""
    model = empty.extend(facts.chunks(opened))
    return replace(model, sizes=model.sizes[-1:])


def _added(one: Model, other: Model) -> Model:
    other.sums.basis = one.sums.basis  # the same: all come from one model of no data
    return one + other
