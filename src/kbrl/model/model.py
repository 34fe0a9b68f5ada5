"""`Model`: what KBSF has learnt, as one record that never changes.

It holds the representative states and kernels, the sums over all transitions, the settings of the fit, the names of
state variables and the labels of actions.  Operations return a new one.  `first_model` makes one without data.
Paper: Algorithms 1 and 2; section 4 for S-bar and the kernels, 5 for growth, 6.2 for choices and rescaling.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import NotFittedError, as_generator, as_rows, check_norm
from kbrl.data.names import Source, rows_by_name
from kbrl.data.scaling import Coordinates, Moments, around_centre, scale_of, state_scale
from kbrl.data.sketch import Sketch
from kbrl.data.transitions import Transitions, as_log, without_ends
from kbrl.lines.circles import find_circles
from kbrl.lines.local_lines import LocalLines
from kbrl.lines.moments import check_sizes
from kbrl.lines.plans import NEAR
from kbrl.lines.windows import Windows
from kbrl.mdp.deferral import AS_NOW, Deferral
from kbrl.model.kernels import Basis, Kernel, refuse_mixed_durations
from kbrl.model.reduced_model import ReducedModel
from kbrl.model.representatives import choose, cover, distinct_rows, growth_distance
from kbrl.model.sums import Statistics, new_statistics
from kbrl.model.support import check_can_defer
from kbrl.notebooks import MOST_LABELS, counted, html_table
from kbrl.settings import Settings, check_settings, flattened, with_groups

_LATER = ("discount", "sample_neighbors", "min_cases", "plan", "solver", "n_jobs")  # settings that sums need not hold


@dataclass(frozen=True, eq=False)
class Model(ReducedModel):
    """What KBSF has learnt, as a record that never changes.

    Get one by ``KBSF(...).fit(log).model_`` or ``load_model(path)``.  ``q_values(states)`` and
    ``predict(states)`` answer for states, (n_states, n_dims), in the units of the data.  ``extend(log)`` adds
    transitions, ``model - log`` takes them away, and ``model + other`` joins models of different data that have the
    same representative states.  Each returns a new model.

    In state 0, "left" pays 1 and stays there; in state 1, "right" does.  The discount is 0.9, so paying for ever is
    worth 1 / (1 - 0.9) = 10, and the other action is worth 0.9 * 10 = 9.

    >>> from kbrl import KBSF, Model, Transitions
    >>> log = Transitions(
    ...     states=[[0.0], [0.0], [1.0], [1.0]],
    ...     actions=["left", "right", "left", "right"],
    ...     rewards=[1.0, 0.0, 0.0, 1.0],
    ...     next_states=[[0.0], [1.0], [0.0], [1.0]],
    ... )
    >>> model = KBSF(n_reps=2, min_cases=1, discount=0.9, random_state=0).fit(log).model_
    >>> isinstance(model, Model)
    True
    >>> model.predict([[0.0], [1.0]]).tolist()
    ['left', 'right']
    >>> model.q_values([[0.0]]).round(2).tolist()  # one row per state, one column per action
    [[10.0, 9.0]]
    >>> more = model.extend(Transitions([[0.5]], ["left"], [0.5], [[0.0]]))
    >>> more.n_samples, (more - log).n_samples, (more + model).n_samples
    (5, 1, 9)
    """

    sketch: Sketch | None = field(default_factory=Sketch)  # of what was learnt; None: not known
    has_changed: bool | None = False  # representative states came or went after data had come; None: not known
    held_out: float | None = None  # the share of the episodes of its log that were kept for judging it
    flags: tuple[str, ...] = ()  # what spoke against trusting it when it was fitted, in words
    sizes: tuple[tuple[int, int], ...] = ()  # (number of transitions, of representative states) after each chunk
    resamples: Floats | None = None  # (n_resamples, n_reps, n_answers): Q of resampled logs, see insight.agreement

    def __repr__(self) -> str:
        """Return what the model is, in a few lines; its arrays are not shown."""
        return "\n".join(f"{name + ':':24}{text}" for name, text in self._about())

    def _repr_html_(self) -> str:
        """Return the same as a notebook shows it."""
        return html_table("A model", self._about())

    def _about(self) -> list[tuple[str, str]]:
        recipe, plain = self.recipe, self.source.state_names or ()
        names = list(plain) if recipe is None else [column.name for column in recipe.columns]
        shown = ", ".join(names[:MOST_LABELS]) + (", ..." if len(names) > MOST_LABELS else "")
        kinds = ("averages", "lines and plans")
        facts = [
            ("learnt from", f"{self.n_samples:,} transitions"),
            ("state", shown or f"{self.coordinates.n_dims} variables without names"),
            ("actions", counted(self.action_labels, self.sums.counts)),
            ("order", f"{self.settings.order}: {kinds[self.settings.order]}"),
            ("representative states", f"{self.basis.n_reps:,}"),
            ("discount", f"{self.discount:g}"),
        ]
        facts += [("left out", counted(self.left_out, self.left_out.values()))] if self.left_out else []
        facts += [("held out", f"{100 * self.held_out:g} % of the episodes")] if self.held_out else []
        facts += [("note", flag) for flag in self.flags]
        return facts + ([("defers", f"answers {self.deferral.label!r} at times")] if self.deferral else [])

    @property
    def n_samples(self) -> int:
        """The number of transitions behind the model."""
        return int(self.sums.counts.sum())

    def latest_values(self) -> Floats | None:
        """Return the values of this model if it was solved, else those that solving would start from."""
        solution = self.__dict__.get("solution") or self.solved
        return self.start if solution is None else solution.values

    @property
    def growth(self) -> Integers:
        """The curve m(n): (number of transitions, number of representative states) after each chunk, (k, 2)."""
        return np.array(self.sizes, dtype=np.intp).reshape(-1, 2)

    def prepared(self, log: Transitions) -> Transitions:
        """Check and number further transitions as the first ones were, and ignore ends if the settings say so."""
        log, n_dims = as_log(log), self.basis.reps.shape[1]
        if log.n_dims != n_dims:
            raise ValueError(f"Transitions must have {n_dims} state variables, but they have {log.n_dims}.")
        if log.source is not self.source:
            log = log.in_order_of(self.source)
        if log.action_labels is not self.action_labels:
            log = log.with_actions(self.action_labels)
        if (log.durations is None) != (self.basis.discount is None):
            refuse_mixed_durations(log)
        if self.window is not None and log.durations is not None:
            raise ValueError(
                "plan.window counts steps, which must be of one length, but this log has durations. Leave out the "
                "durations, or plan.window (--plan-window)."
            )
        return log if self.settings.variant.terminals == "absorb" else without_ends(log)

    def cases(self, log: Transitions) -> Transitions | None:
        """Return what is learnt of prepared transitions: themselves, or windows that begin with them; None: nothing."""
        return log if self.window is None else Windows(self.window, self.discount).of(log)

    def extend(
        self, log: Transitions | Iterable[Transitions], *, n_jobs: int | None = 1, is_batch: bool = False
    ) -> Model:
        """Return a model that has also learnt these transitions, or chunks of them, one at a time in memory.

        If the settings let the model grow, next states far from all representative states become representative
        states before each chunk is learnt.  A batch is remembered as such, so that it is noticed if it comes again.
        """
        model, is_own = self, False  # whether the sums are ours to change
        windows = None if self.window is None else Windows(self.window, self.discount)
        for chunk in [log] if isinstance(log, Transitions) else log:
            if model.n_samples == 0 and model.source.state_names is None:  # the sample it started from had no names
                model = replace(model, source=as_log(chunk).source)
            chunk = model.prepared(chunk)
            before, start = model, model.latest_values()
            if model.settings.growth.is_wanted:
                model = model.grow(chunk.next_states)
                start = model.start if model is not before else start
            is_own = is_own or model is not before
            sums = model.sums if is_own else model.sums.on(model.basis)
            cases = chunk if windows is None else windows.of(chunk)
            if cases is not None:
                sums.accumulate(cases, n_jobs=n_jobs)
            known, keeps = model.sketch, model.settings.variant.q_function == "samples"
            sketch = None if known is None else known + Sketch.of(chunk, largest=known.largest)
            samples = (*model.samples, chunk) if keeps else ()
            sizes, is_own = (*model.sizes, (int(sums.counts.sum()), len(model.basis.reps))), True
            model = replace(
                model, sums=sums, sketch=sketch, samples=samples, sizes=sizes, start=start, solved=None, resamples=None
            )
        if self.window is not None and model.n_samples == self.n_samples:
            _refuse_short_episodes(self.window)
        if is_batch and model.sketch is not None and self.sketch is not None:
            return replace(model, sketch=model.sketch.with_batch_since(self.sketch))
        return model

    def grow(self, states: Floats) -> Model:
        """Return the model with further representative states: those of these, (n, n_dims), far from all others.

        The settings say how far, and how many at most.  The new ones have no data yet.
        """
        distance = growth_distance(self.settings)
        if distance is None:
            return self
        points, norm = self.coordinates.of(states), self.basis.rep_kernel.norm
        reps = cover(points, distance, start=self.basis.reps, max_reps=self.settings.growth.max_reps, norm=norm)
        if len(reps) == self.basis.n_reps:
            return self
        basis, start = replace(self.basis, reps=reps), self.latest_values()
        if start is not None:
            start = np.concatenate([start, start[self.basis.rep_weights.nearest(reps[self.basis.n_reps :])]])
        has_changed = True if self.n_samples else self.has_changed
        sums = self.sums.on(basis)
        return replace(self, basis=basis, sums=sums, start=start, has_changed=has_changed, solved=None, resamples=None)

    def shrink(self, dropped: Booleans) -> Model:
        """Return the model without those of ``dropped``, (n_reps,); what led to them is shared by similar ones."""
        kept, kernel = ~dropped, self.basis.rep_kernel
        if np.ndim(kernel.width):
            kernel = replace(kernel, width=np.asarray(kernel.width)[kept])
        basis = replace(self.basis, reps=self.basis.reps[kept], rep_kernel=kernel)
        sums, start = self.sums.without(basis, kept), self.solution.values[kept]
        sizes = (*self.sizes, (self.n_samples, basis.n_reps))
        return replace(
            self, basis=basis, sums=sums, start=start, sizes=sizes, has_changed=True, solved=None, resamples=None
        )

    def with_sums(self, sums: Statistics, sketch: Sketch | None, *, samples: tuple[Transitions, ...] = ()) -> Model:
        """Return the same model for other data, given by their sums."""
        sizes, start = ((int(sums.counts.sum()), self.basis.n_reps),), self.latest_values()
        return replace(
            self, sums=sums, sketch=sketch, samples=samples, sizes=sizes, start=start, solved=None, resamples=None
        )

    def without_data(self) -> Model:
        """Return a model without data, with the same basis and settings: the two can be added."""
        sums = new_statistics(self.basis, self.settings.variant.neighborhoods, self.settings.order)
        return Model(self.basis, sums, self.settings, self.action_labels, self.source, deferral=self.deferral)

    def with_settings(self, **changes: Any) -> Model:
        """Return the model of the same sums with other settings for solving and answering; refuse others."""
        settings = replace(self.settings, **with_groups(changes))
        check_settings(settings)
        self._refuse_new_fit(settings, changes)
        fitted = None if "sample_neighbors" in changes else self._fitted()
        return replace(self, settings=settings, solved=None, start=None, fitted=fitted, resamples=None)

    def _refuse_new_fit(self, settings: Settings, changes: Iterable[str]) -> None:
        """Refuse settings that the sums of this model hold already."""
        fixed = [name for name in changes if name not in _LATER]
        if "sample_neighbors" in changes and self.settings.order == 0:
            fixed.append("sample_neighbors")
        if "discount" in changes and (self.basis.discount is not None or self.window is not None):
            fixed.append("discount")
        if settings.plan.window != self.settings.plan.window:
            fixed.append("plan.window")
        if fixed:
            raise ValueError(
                f"Only settings for solving and answering can be changed without the data, {', '.join(_LATER)}, but "
                f"the sums of this model depend on {', '.join(fixed)}. Fit again."
            )

    def _fitted(self) -> tuple[Statistics, LocalLines] | None:
        """Return the sums and their lines, if these were fitted: a model that only decides otherwise shares them."""
        lines = self.__dict__.get("lines")
        return self.fitted if lines is None else (self.sums, lines)

    def deferring(self, cases: float = 3, caution: float = 1.0, *, label: str = AS_NOW) -> Model:
        """Return a model that answers "as now" where the data do not support a change of current practice.

        cases: an action is offered only where at least this many logged cases support it (`kbrl.coverage`).
        caution: how many standard errors it must be better than current practice.
        label: the answer that leaves the decision to people; no action may have this label.

        "As now" is learnt as an action of its own, whose value is that of the logged mixture of actions: so the values
        are those of following the answers, and of current practice where they say so.

        "Treat" was tried once in state 0, and went well.  Once is too little to recommend it.

        >>> from kbrl import KBSF, Transitions
        >>> states = [[0.0], [0.0], [0.0], [0.0], [1.0]]
        >>> log = Transitions(states, ["wait", "wait", "wait", "treat", "wait"], [0.0, 0.0, 0.0, 1.0, 0.0], states)
        >>> model = KBSF(reps=[[0.0], [1.0]], discount=0.5, min_cases=1, random_state=0).fit(log).model_
        >>> model.predict([[0.0]]).tolist(), model.deferring(cases=3).predict([[0.0]]).tolist()
        (['treat'], ['as now'])
        """
        deferral = Deferral(cases, caution, label)
        if label in map(str, self.action_labels.tolist()):
            raise ValueError(f"An action is also called {label!r}. Choose another label for deferring to people.")
        check_can_defer(self.sums, self.settings, caution)
        return replace(self, deferral=deferral, resamples=None, fitted=self._fitted())

    def __add__(self, other: Model) -> Model:
        """Return the model of the data of both, which must have the same representative states, scaling and kernels."""
        if not isinstance(other, Model):
            return NotImplemented
        self._check_addable(other)
        is_known = self.sketch is not None and other.sketch is not None
        sketch = self.sketch + other.sketch if is_known else None  # type: ignore[operator]
        sums = self.sums + other.sums  # type: ignore[operator]
        result = self.with_sums(sums, sketch, samples=(*self.samples, *other.samples))
        has_changed = _either(self.has_changed, other.has_changed)
        held_out = self.held_out if self.held_out == other.held_out else None
        flags = tuple(dict.fromkeys((*self.flags, *other.flags)))
        return replace(
            result, source=self.source + other.source, has_changed=has_changed, held_out=held_out, flags=flags
        )

    def _check_addable(self, other: Model) -> None:
        names = ("order", "discount", "terminals", "neighborhoods", "q_function", "plan_window")
        mine, others = flattened(self.settings), flattened(other.settings)
        different = [name for name in names if mine[name] != others[name]]
        different += ["min_cases"] if self.min_cases != other.min_cases else []
        different += ["deferral"] if self.deferral != other.deferral else []
        if different:
            listing = ", ".join(different)
            raise ValueError(f"Models add up only if they were fitted alike, but these differ in: {listing}.")
        if self.action_labels.tolist() != other.action_labels.tolist():
            raise ValueError(
                f"Models add up only if they know the same actions in the same order, but these know "
                f"{self.action_labels.tolist()} and {other.action_labels.tolist()}."
            )
        self.source.check_same_order(other.source)

    def __sub__(self, log: Transitions) -> Model:
        """Return the model without these transitions, which it must have learnt before."""
        self._check_can_forget()
        log = self.prepared(log)
        sketch = None if self.sketch is None else self.sketch.without(log)
        statistics = new_statistics(self.basis, self.settings.variant.neighborhoods, self.settings.order)
        cases = self.cases(log)
        if cases is None:
            _refuse_short_episodes(int(self.window or 0))
        taken = statistics.accumulate(cases)
        return self.with_sums(self.sums - taken, sketch)  # type: ignore[operator]

    def _check_can_forget(self) -> None:
        if self.samples:
            raise ValueError("A model that keeps its samples (q_function='samples') cannot forget some of them.")
        if self.has_changed is None:
            raise ValueError(
                "This model comes from a file of format 1, which does not say whether representative states came or "
                "went while it learnt; if so, it cannot forget. Fit it again with this version, without these rows."
            )
        if self.has_changed:
            raise ValueError(
                "A model whose representative states came or went while it learnt cannot forget: what a transition "
                "added depends on the states there were at the time. Fit again without it."
            )


def _refuse_short_episodes(window: int) -> NoReturn:
    raise ValueError(
        f"plan.window={window} needs episodes that have so many steps in a row, or that end, and these transitions "
        f"have none: a row follows another if it is of the same episode and starts where the other ended. Pass whole "
        f"episodes at a time, in their order, or use a smaller plan.window (--plan-window)."
    )


def as_model(source: Any) -> Model:
    """Return a model, or that of a learner that has learnt one."""
    model = source if isinstance(source, Model) else getattr(source, "model_", None)
    if not isinstance(model, Model):
        raise NotFittedError(
            f"This {type(source).__name__} has not learnt anything yet, or does not learn a model. Call fit with "
            f"transitions first: KBSF(...).fit(log)."
        )
    return model


def models_of(policy: Any) -> list[Model]:
    """Return the models behind a policy: itself, that of a learner, those of a committee; none of a function."""
    sources = [policy, *getattr(policy, "members_", ()), getattr(policy, "model", None)]
    models = [each if isinstance(each, Model) else getattr(each, "model_", None) for each in sources]
    return [model for model in models if isinstance(model, Model)]


def _either(one: bool | None, other: bool | None) -> bool | None:
    """Return whether either of two is true; None if that is not known."""
    if one or other:
        return True
    return None if one is None or other is None else False


def first_model(settings: Settings, log: Transitions, moments: Moments | None = None) -> Model:
    """Return a model of no data whose scaling, actions and representative states are fixed by these transitions.

    The moments of all states are given where these are only a sample.
    """
    basis = basis_for(settings, log, moments)
    sums = new_statistics(basis, settings.variant.neighborhoods, settings.order)
    return Model(basis, sums, settings, log.action_labels, log.source)


def basis_for(settings: Settings, log: Transitions, moments: Moments | None = None) -> Basis:
    """Return the basis whose coordinates and representative states come from these transitions.

    Representative states are given by the user, or chosen among the next states.  Where they are given, the centre is
    theirs: so models with the same ones and the same scale add up, whatever their data.
    """
    source = log.source
    given = None if isinstance(settings.reps, str) else given_reps(settings.reps, source, log.n_dims)
    scale = state_scale(log.states, settings.scaling) if moments is None else scale_of(moments, settings.scaling)
    if source.recipe is not None:
        scale = source.recipe.with_fixed_scales(scale, settings.scaling)
    if moments is None or given is not None:
        moments = Moments(log.n_dims).widen(log.states if given is None else given)
    units = around_centre(scale, moments)
    if given is None:
        growth, is_cover = settings.growth, settings.reps == "cover"
        reps = choose(
            units.of(log.next_states),
            settings.reps,
            growth.max_reps if is_cover else settings.n_reps,  # a cover is as large as it has to be
            as_generator(settings.random_state),
            cover_distance=growth.cover_distance,
            norm=check_norm(settings.variant.norm),
        )
    else:
        reps = units.of(distinct_rows(given, "reps"))
    if settings.order == 1:
        return _basis_of_lines(settings, log, units, reps)
    variant = settings.variant
    return Basis(
        reps=reps,
        coordinates=units,
        sample_kernel=Kernel(settings.sample_width, variant.profile, settings.sample_neighbors, variant.norm),
        rep_kernel=Kernel(settings.rep_width, variant.profile, settings.rep_neighbors, variant.norm),
        n_actions=log.n_actions,
        hard=variant.aggregation == "hard",
        discount=None if log.durations is None else float(settings.discount),
    )


def _basis_of_lines(settings: Settings, log: Transitions, units: Coordinates, reps: Floats) -> Basis:
    """Return the basis of order 1, where widths follow the spacing of the representative states."""
    check_sizes(log.n_dims, len(reps), log.n_actions)
    recipe = log.source.recipe
    gap = float(np.median(cKDTree(reps).query(reps, k=[2])[0])) if len(reps) > 1 else 1.0
    return Basis(
        reps=reps,
        coordinates=units,
        sample_kernel=Kernel(gap),
        rep_kernel=Kernel(gap, neighbors=settings.rep_neighbors or NEAR),
        n_actions=log.n_actions,
        discount=None if log.durations is None else float(settings.discount),
        circles=find_circles(log.states, units, () if recipe is None else recipe.circle_places()),
    )


def given_reps(reps: Any, source: Source, n_dims: int | None = None) -> Floats:
    """Return representative states that the user has given, (n_reps, n_dims): a frame is read by name."""
    return as_rows(rows_by_name(reps, source, "reps"), "reps", n_dims=n_dims)
