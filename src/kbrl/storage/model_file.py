"""A `Model` as a file, and back: the same answers, and the same learning from there on, bit for bit.

The file is safetensors under a SHA-256 over everything in it; nothing in it is ever run.  It is written beside the
old one and renamed.  What is read is checked part against part before a model is made of it.
The format, field by field, is described in docs/model_file.md.
"""

from __future__ import annotations

import errno
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from kbrl import __version__
from kbrl.arrays import Array, Floats
from kbrl.checks import KbrlWarning, as_floats
from kbrl.data.names import Source, rows_by_name
from kbrl.data.recipe import Recipe
from kbrl.data.scaling import Coordinates
from kbrl.data.sketch import Sketch
from kbrl.data.transitions import Transitions, join
from kbrl.files import NotSyncedError, written_beside
from kbrl.learners.kbsf import KBSF
from kbrl.lines.circles import NO_CIRCLES, Circles
from kbrl.lines.moments import LineSums
from kbrl.mdp.deferral import Deferral
from kbrl.mdp.dynamic_programming import Solution
from kbrl.model.kernels import Basis, Kernel
from kbrl.model.model import Model, as_model
from kbrl.model.nearest_samples import Neighborhoods
from kbrl.model.sums import KernelSums, Statistics, new_statistics
from kbrl.profiles import PROFILES
from kbrl.settings import Settings, check_settings, flattened, grouped
from kbrl.storage.model_checks import check_contents
from kbrl.storage.older_formats import upgraded
from kbrl.storage.sealed_file import Contents, labels_as_facts, read_sealed, refuse, write_sealed

FORMAT, VERSION, OLDEST = "kbrl model", 2, 1
Columns = Sequence[str] | Mapping[str, Any]

_SUMS = ("nearest", "weight", "reward_sum")
_LATER_SUMS = ("squared_weight", "reward_squares")  # that older files lack
_NEIGHBORS = ("distances", "rewards", "next_states", "terminals", "multiplicities")
_LINES = ("moves", "outcomes", "rewards", "span")
_SAMPLES = ("states", "action_indices", "rewards", "next_states", "terminals")


class SavedModel(NamedTuple):
    """What a model file holds: the model, the names of the columns of its data, and who wrote it."""

    model: Model
    columns: Any  # a list, a dict or None, as given to save_model
    library_version: str


_logger = logging.getLogger(__name__)


def save_model(model: KBSF | Model, path: str | os.PathLike[str], *, columns: Columns | None = None) -> None:
    """Write a Model, or that of a KBSF, to a file.

    An existing file is replaced as a whole; if writing fails, it stays as it was.
    columns: the names of the state variables, or a dict of names (of strings, or lists of them), to keep in the file;
        by default those of the log that the model was fitted to, by role, if it was read from a table.
    A ``random_state`` is stored only if it is a seed.  A model whose ``profile`` is a function cannot be stored.

    >>> from kbrl import KBSF, Transitions, load_model, save_model
    >>> log = Transitions([[0.0], [1.0]], ["up", "down"], [0.0, 1.0], [[1.0], [0.0]])
    >>> save_model(KBSF(n_reps=2, min_cases=1, random_state=0).fit(log), "small.kbrl")
    >>> load_model("small.kbrl").n_samples
    2
    """
    if not isinstance(model, (KBSF, Model)):
        raise TypeError(f"save_model saves a Model or a KBSF, but it got {type(model).__name__}.")
    model = as_model(model)
    contents = _contents(model, columns)
    check_settings(model.settings)
    check_contents(contents)  # so that what was saved can be loaded
    try:
        with written_beside(path) as beside, open(beside, "wb") as file:
            write_sealed(file, FORMAT, VERSION, contents.facts, contents.arrays)
        _logger.info("saved %s", path)
    except NotSyncedError:
        raise
    except OSError as error:
        is_full = error.errno == errno.ENOSPC
        advice = "Free some space" if is_full else "Name a file in a folder that exists and can be written to"
        message = f"The model was not saved: {error.strerror or error}. What was there before is unchanged. {advice}"
        raise OSError(error.errno or 0, message, os.fspath(path)) from error


def load_model(path: str | os.PathLike[str]) -> Model:
    """Return the `Model` that `save_model` wrote to a file: same answers, same further learning, bit for bit.

    It learns more by ``extend(log)``.  For a learner around it: ``KBSF.with_model(model)``.
    A file that is damaged, has an unknown version or is not a model raises a ValueError.

    >>> from kbrl import KBSF, Transitions, load_model, save_model
    >>> log = Transitions([[0.0], [1.0]], ["up", "down"], [0.0, 1.0], [[1.0], [0.0]])
    >>> model = KBSF(n_reps=2, min_cases=1, random_state=0).fit(log).model_
    >>> save_model(model, "small.kbrl")
    >>> bool((load_model("small.kbrl").q_values([[0.5]]) == model.q_values([[0.5]])).all())
    True
    """
    return read_model(path).model


def read_model(path: str | os.PathLike[str]) -> SavedModel:
    """Return the model of a file and what else the file says."""
    contents = read_sealed(path, FORMAT, VERSION, oldest=OLDEST)
    try:
        contents = upgraded(contents)
        _with_infinity(contents.facts)
        check_contents(contents)
        model = _model(contents)
    except (ValueError, TypeError, OverflowError) as error:
        refuse(path, f"it is sealed but not a valid model: {str(error).rstrip('.')}", "Fit and save it again.")
    _logger.info("loaded %s: %d transitions, %d representative states", path, model.n_samples, model.basis.n_reps)
    return SavedModel(model, contents.facts["columns"], contents.facts["library_version"])


def _contents(model: Model, columns: Columns | None) -> Contents:
    settings, given_arrays = _parted(_with_ordered_reps(flattened(model.settings), model.source))
    columns = _columns_as_facts(model.source.roles if columns is None else columns)
    solution = model.solution
    facts = {
        "library_version": __version__,
        "learner": "KBSF",
        "columns": columns,
        "names": _named(model, columns).to_facts(),
        "action_labels": labels_as_facts(model.action_labels),
        "settings": settings,
        "fit_settings": {},
        "basis": _basis_facts(model),
        "planning": _planning_facts(model),
        "counts": model.sums.counts.tolist(),
        "history": {"has_changed": model.has_changed, "held_out": model.held_out, "flags": list(model.flags)},
        "sketch": _sketch_facts(model.sketch),
        "solution": {
            "iterations": int(solution.iterations),
            "residual": float(solution.residual),
            "converged": bool(solution.converged),
        },
    }
    if model.deferral is not None:
        facts["deferral"] = asdict(model.deferral)
    if model.source.recipe is not None:
        facts["recipe"] = model.source.recipe.to_dict()
    arrays = _arrays(model) | given_arrays
    integers = {name: array.astype(np.int64) for name, array in arrays.items() if array.dtype == np.intp}
    return Contents(facts, arrays | integers, VERSION)


def _arrays(model: Model) -> dict[str, Array]:
    basis, solution = model.basis, model.solution
    arrays: dict[str, Array] = {"scale": model.coordinates.scale, "centre": model.coordinates.centre}
    arrays |= {"reps": basis.reps, "growth": model.growth}
    arrays |= {"values": solution.values, "q": solution.q, "policy": solution.policy}
    if len(basis.circles.places):
        arrays |= {"circles.places": basis.circles.places, "circles.shapes": basis.circles.shapes}
    if np.ndim(basis.rep_kernel.width):
        arrays["rep_widths"] = np.asarray(basis.rep_kernel.width)
    if basis.discount is not None:
        arrays["time_discount"] = np.array([basis.discount])
    arrays |= _statistics_arrays(model.sums) | _samples_arrays(model.samples) | _sketch_arrays(model.sketch)
    if model.resamples is not None:
        arrays["resamples"] = model.resamples
    return arrays


def _columns_as_facts(columns: Columns | None) -> Any:
    if columns is None or isinstance(columns, str):
        return columns
    if isinstance(columns, Mapping):
        return {name: list(value) if isinstance(value, tuple) else value for name, value in columns.items()}
    return list(columns)


def _named(model: Model, columns: Any) -> Source:
    """Return the names that a model has, or else those of the columns, which must not contradict them."""
    given = Source.of_roles(columns, model.coordinates.n_dims)
    if columns is not None and model.source.recipe is None:
        given.places_in(model.source)  # refuses other variables
    return model.source if model.source.state_names else given


def _with_ordered_reps(params: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Return parameters where a frame of representative states has become an array, in the order of the model."""
    reps = params["reps"]
    return dict(params) | ({} if isinstance(reps, str) else {"reps": rows_by_name(reps, source, "reps")})


def _parted(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Split parameters into plain values and arrays; refuse what cannot be stored."""
    plain: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for name, value in params.items():
        value = value.item() if isinstance(value, np.generic) else value
        if name == "random_state" and isinstance(value, np.random.Generator):
            plain[name] = None
            message = "A random generator is not stored in a model file; the loaded model has random_state=None."
            warnings.warn(message, KbrlWarning, stacklevel=4)
        elif callable(value):
            raise ValueError(
                f"A model file holds no functions, but {name} is {value!r}. Use one of the named profiles "
                f"({', '.join(map(repr, PROFILES))}), or keep the data and fit again."
            )
        elif value is None or isinstance(value, (bool, int, float, str)):
            plain[name] = _finite_fact(value)
        else:
            arrays[f"settings.{name}"] = as_floats(value, name)
    return plain, arrays


def _sketch_facts(sketch: Sketch | None) -> dict[str, Any] | None:
    """Return the facts with numbers beyond 2^53 as digits: not all readers of JSON keep them exactly."""
    if sketch is None:
        return None
    batches = [[n_rows, f"{total:016x}"] for n_rows, total in sketch.batches]
    numbers = {"total": f"{sketch.total:016x}", "largest": f"{sketch.largest:016x}"}
    return {"n_rows": sketch.n_rows, **numbers, "batches": batches}


def _sketch_arrays(sketch: Sketch | None) -> dict[str, Array]:
    if sketch is None:
        return {}
    hashes = {f"sketch.{name}": getattr(sketch, name).view(np.int64) for name in ("hashes", "contents", "episodes")}
    return hashes | {"sketch.counts": sketch.counts}


def _basis_facts(model: Model) -> dict[str, Any]:
    """What the sums refer to."""
    samples, reps = model.basis.sample_kernel, model.basis.rep_kernel
    return {
        "sample_width": float(samples.width),
        "rep_width": None if np.ndim(reps.width) else float(reps.width),
        "sample_neighbors": samples.neighbors,
        "rep_neighbors": reps.neighbors,
        "profile": samples.profile,
        "norm": _finite_fact(samples.norm),
        "hard": model.basis.hard,
        "order": model.settings.order,
        "neighborhoods": model.settings.variant.neighborhoods,
    }


def _finite_fact(value: Any) -> Any:
    """JSON has no infinity: it is stored as a word."""
    return "inf" if isinstance(value, float) and value == np.inf else value


def _with_infinity(facts: dict[str, Any]) -> None:
    """Read the word for infinity back: only a norm can be infinite."""
    for part in ("settings", "fit_settings", "basis"):
        if isinstance(facts.get(part), dict) and facts[part].get("norm") == "inf":
            facts[part]["norm"] = np.inf


def _planning_facts(model: Model) -> dict[str, Any]:
    names = ("discount", "solver", "tolerance", "sweeps")
    settings = flattened(model.settings)
    values = {name: settings[name] for name in names} | {"min_cases": model.min_cases}
    return {name: v.item() if isinstance(v, np.generic) else v for name, v in values.items()}


def _statistics_arrays(statistics: Statistics) -> dict[str, Array]:
    if isinstance(statistics, LineSums):
        names = _LINES if statistics.basis.discount is None else (*_LINES, "fades")
        return {f"lines.{name}": getattr(statistics, name) for name in names}
    if isinstance(statistics, Neighborhoods):
        return {f"neighbors.{name}": getattr(statistics, name) for name in _NEIGHBORS}
    arrays: dict[str, Array] = {name: getattr(statistics, name) for name in _SUMS}
    for name in ("noise", "reward_noise"):
        if getattr(statistics, name).any():  # only of a model that has forgotten
            arrays[name] = getattr(statistics, name)
    for name in _LATER_SUMS:
        if np.isfinite(getattr(statistics, name)).all():  # otherwise it is not known, as in an older file
            arrays[name] = getattr(statistics, name)
    blocks = statistics.transition_sum
    if not sparse.issparse(blocks[0]):
        return arrays | {"transition_sum": np.stack(blocks)}
    return arrays | {
        "transition_sum.data": np.concatenate([block.data for block in blocks]),
        "transition_sum.columns": np.concatenate([block.indices for block in blocks]).astype(np.int64),
        "transition_sum.row_starts": np.stack([block.indptr for block in blocks]).astype(np.int64),
    }


def _samples_arrays(kept: Sequence[Transitions]) -> dict[str, Array]:
    """The transitions of a model that answers from its samples; their episodes are not needed."""
    if not kept:
        return {}
    log = join(kept)
    arrays = {f"samples.{name}": getattr(log, name) for name in _SAMPLES}
    return arrays if log.durations is None else arrays | {"samples.durations": log.durations}


def _model(contents: Contents) -> Model:
    """Make the model of contents that have been checked."""
    facts, arrays, _ = contents
    labels, names = facts["action_labels"], facts["names"]
    action_labels = np.array(labels["values"], dtype=labels["dtype"])
    action_labels.flags.writeable = False
    return Model(
        basis=(basis := _basis(facts, arrays)),
        sums=_sums(basis, facts, arrays),
        settings=_settings_of_the_fit(contents),
        action_labels=action_labels,
        source=_source(names, facts.get("recipe"), facts["columns"]),
        sketch=_sketch(facts["sketch"], arrays),
        has_changed=facts["history"]["has_changed"],
        held_out=facts["history"]["held_out"],
        flags=tuple(facts["history"]["flags"]),
        sizes=tuple((n_samples, n_reps) for n_samples, n_reps in arrays["growth"].tolist()),
        samples=_samples(arrays, action_labels),
        solved=Solution(arrays["values"], arrays["q"], arrays["policy"].astype(np.intp), **facts["solution"]),
        deferral=Deferral(**facts["deferral"]) if "deferral" in facts else None,
        resamples=arrays.get("resamples"),
    )


def _source(names: dict[str, Any], recipe: Any, columns: Any) -> Source:
    state = None if names["state"] is None else tuple(names["state"])
    known = None if recipe is None else Recipe.from_dict(recipe)
    return Source(state, tuple(names["others"]), recipe=known, roles=columns if isinstance(columns, dict) else None)


def _samples(arrays: dict[str, Array], action_labels: Array) -> tuple[Transitions, ...]:
    if "samples.states" not in arrays:
        return ()
    fields = {name: arrays[f"samples.{name}"] for name in _SAMPLES}
    fields["action_indices"] = fields["action_indices"].astype(np.intp)
    log = Transitions.trusted(*fields.values(), None, action_labels)
    return (log.replaced(durations=arrays.get("samples.durations")),)


def _settings_of_the_fit(contents: Contents) -> Settings:
    """Return the settings of the fit; older files also have those that the next fit would have had."""
    flat = _whole_settings(contents, "settings") | _whole_settings(contents, "fit_settings")
    check_settings(Settings(**grouped(flat)))
    used = flat | contents.facts["planning"] | {"neighborhoods": contents.facts["basis"]["neighborhoods"]}
    return Settings(**grouped(used))


def _whole_settings(contents: Contents, prefix: str) -> dict[str, Any]:
    start = f"{prefix}."
    given = {k.removeprefix(start): array for k, array in contents.arrays.items() if k.startswith(start)}
    settings: dict[str, Any] = contents.facts[prefix] | given
    return settings


def _basis(facts: dict[str, Any], arrays: dict[str, Array]) -> Basis:
    given = facts["basis"]
    rep_width = arrays["rep_widths"] if given["rep_width"] is None else given["rep_width"]
    return Basis(
        reps=arrays["reps"],
        coordinates=Coordinates(arrays["centre"], arrays["scale"]),
        sample_kernel=Kernel(given["sample_width"], given["profile"], given["sample_neighbors"], given["norm"]),
        rep_kernel=Kernel(rep_width, given["profile"], given["rep_neighbors"], given["norm"]),
        n_actions=len(facts["counts"]),
        hard=given["hard"],
        discount=float(arrays["time_discount"][0]) if "time_discount" in arrays else None,
        circles=Circles(arrays["circles.places"].astype(np.intp), arrays["circles.shapes"])
        if "circles.places" in arrays
        else NO_CIRCLES,
    )


def _sums(basis: Basis, facts: dict[str, Any], arrays: dict[str, Array]) -> Statistics:
    sums = new_statistics(basis, facts["basis"]["neighborhoods"], facts["basis"]["order"])
    sums.counts = np.array(facts["counts"], dtype=np.intp)
    _fill(sums, arrays)
    return sums


def _sketch(facts: dict[str, Any] | None, arrays: dict[str, Array]) -> Sketch | None:
    if facts is None:
        return None
    return Sketch(
        n_rows=facts["n_rows"],
        total=int(facts["total"], 16),
        hashes=arrays["sketch.hashes"].view(np.uint64),
        counts=arrays["sketch.counts"],
        largest=int(facts["largest"], 16),
        contents=arrays["sketch.contents"].view(np.uint64),
        episodes=arrays["sketch.episodes"].view(np.uint64),
        batches=tuple((n_rows, int(total, 16)) for n_rows, total in facts["batches"]),
    )


def _fill(statistics: Statistics, arrays: dict[str, Array]) -> None:
    if isinstance(statistics, LineSums):
        for name in _LINES:
            setattr(statistics, name, arrays[f"lines.{name}"])
        statistics.fades = arrays.get("lines.fades", statistics.fades)
        return
    if isinstance(statistics, Neighborhoods):
        for name in _NEIGHBORS:
            setattr(statistics, name, arrays[f"neighbors.{name}"])
        return
    for name in _SUMS:
        setattr(statistics, name, arrays[name])
    for name in ("noise", "reward_noise"):
        setattr(statistics, name, arrays.get(name, getattr(statistics, name)))
    not_known = np.full_like(statistics.weight, np.nan)
    for name in _LATER_SUMS:
        setattr(statistics, name, arrays.get(name, not_known.copy()))
    dense = arrays.get("transition_sum")
    statistics.transition_sum = (
        _sparse_blocks(statistics, arrays) if dense is None else [block.copy() for block in dense]
    )


def _sparse_blocks(statistics: KernelSums, arrays: dict[str, Array]) -> list[sparse.csr_array]:
    row_starts: Floats = arrays["transition_sum.row_starts"]
    ends = np.cumsum(row_starts[:, -1])[:-1]
    data, columns = (np.split(arrays[f"transition_sum.{name}"], ends) for name in ("data", "columns"))
    shape = (statistics.basis.n_reps, statistics.basis.n_reps)
    blocks = [sparse.csr_array((d, c, starts), shape) for d, c, starts in zip(data, columns, row_starts)]
    return [block.copy() for block in blocks]
