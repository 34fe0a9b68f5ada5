"""Whether the contents of a model file make a valid model: each part by itself, and the parts against each other.

The seal shows that a file is as it was written; this shows that what was written makes sense, whoever wrote it.
Every fault raises a ValueError that names the field.  docs/model_file.md lists the fields and the shapes of arrays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from itertools import pairwise
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans
from kbrl.checks import LARGEST_COORDINATE, in_unit_interval, one_of, positive, whole
from kbrl.data.recipe import Recipe
from kbrl.data.sketch import LARGEST_HASH, LISTED, LISTED_BATCHES, LISTED_EPISODES
from kbrl.lines.moments import packed_size
from kbrl.lines.plans import plan_length
from kbrl.mdp.deferral import Deferral
from kbrl.mdp.dynamic_programming import TIE
from kbrl.mdp.solvers import SOLVERS
from kbrl.model.q_functions import allowed_pairs
from kbrl.model.reduced_model import often_taken
from kbrl.settings import NEIGHBORHOODS, about_settings
from kbrl.storage.sealed_file import Contents, check_labels, require
from kbrl.storage.sums_checks import check_lines, check_statistics

Shapes = dict[str, tuple[str, tuple[int | None, ...]]]
_NUMBER = (int, float)
_COUNT = (int, type(None))
# The facts, and the types of their fields.
_FACTS: dict[str, Any] = {
    "library_version": (str,),
    "learner": (str,),
    "columns": (list, dict, type(None)),
    "action_labels": {"dtype": (str,), "values": (list,)},
    "names": {"state": (list, type(None)), "others": (list,)},
    "settings": (dict,),
    "fit_settings": (dict,),
    "history": {"has_changed": (bool, type(None)), "held_out": (float, type(None)), "flags": (list,)},
    "sketch": (dict, type(None)),
    "basis": {
        "sample_width": _NUMBER,
        "rep_width": (*_NUMBER, type(None)),
        "sample_neighbors": _COUNT,
        "rep_neighbors": _COUNT,
        "profile": (str,),
        "norm": (*_NUMBER, str),
        "hard": (bool,),
        "order": (int,),
        "neighborhoods": (str,),
    },
    "planning": {
        "discount": _NUMBER,
        "solver": (str,),
        "tolerance": _NUMBER,
        "sweeps": _COUNT,
        "min_cases": (int,),
    },
    "counts": (list,),
    "solution": {"iterations": (int,), "residual": _NUMBER, "converged": (bool,)},
}
_DEFERRAL = {"cases": _NUMBER, "caution": _NUMBER, "label": (str,)}
_SKETCH = {"n_rows": (int,), "total": (str,), "largest": (str,), "batches": (list,)}
_SIXTEEN_DIGITS = re.compile("[0-9a-f]{16}")
_LARGEST_REWARD = 1e300  # more have no finite sums
_MAY_BE_ARRAYS = {"reps", "rep_width", "scaling"}  # settings
_MAY_BE_EITHER = ("lines.rewards", "lines.fades", "lines.span")  # infinite with either sign, where there are no data
_MAY_BE_INFINITE = {"q": -np.inf, "resamples": -np.inf, "nearest": np.inf, "neighbors.distances": np.inf}


def check_contents(contents: Contents) -> None:
    """Refuse contents that do not make a valid model."""
    facts, arrays, _ = contents
    _check_fields({k: fact for k, fact in facts.items() if k not in ("deferral", "recipe")}, _FACTS, "facts")
    _check_text(facts)
    if "deferral" in facts:
        _check_deferral(facts["deferral"], facts["action_labels"]["values"])
    _check_labels(facts["action_labels"], facts["counts"])
    _check_settings(facts["settings"], arrays, "settings", are_all=True)
    _check_settings(facts["fit_settings"], arrays, "fit_settings", are_all=False)  # only those changed after the fit
    in_unit_interval(facts["planning"]["discount"], "discount")
    positive(facts["planning"]["tolerance"], "tolerance")
    one_of(facts["planning"]["solver"], ("auto", *SOLVERS), "solver")
    if facts["planning"]["sweeps"] is not None:
        whole(facts["planning"]["sweeps"], "sweeps")
    _check_arrays(facts, arrays)
    _check_columns(facts["columns"], len(arrays["scale"]))
    _check_state_names(facts["names"], len(arrays["scale"]))
    if "recipe" in facts:  # only of logs whose columns are not all plain numbers
        recipe, others = Recipe.from_dict(facts["recipe"]), "the recipe makes other state variables than the names say"
        require(sum(column.width for column in recipe.columns) <= len(arrays["scale"]), others)  # before they are named
        require(list(recipe.variables) == facts["names"]["state"], others)
    has_windows = _of_the_fit(facts).get("plan_window") is not None
    _check_sketch(facts["sketch"], arrays, sum(facts["counts"]), has_windows)
    whole(facts["planning"]["min_cases"], "min_cases")
    held_out = facts["history"]["held_out"]
    require(held_out is None or 0 < held_out < 1, f"history: held_out must be a share, but it is {held_out!r}")
    flags = facts["history"]["flags"]
    require(all(isinstance(flag, str) for flag in flags), f"history: flags must be texts, but they are {flags!r}")
    often = often_taken(facts["counts"], facts["planning"]["min_cases"])
    if facts["basis"]["order"] == 1:
        check_lines(arrays, facts["counts"])
        _check_plan_solution(facts, arrays, int((often & (np.array(facts["counts"]) > 0)).sum()))
    else:
        spoken_of = check_statistics(arrays, sum(facts["counts"]))
        _check_solution(facts["solution"], arrays, _available(facts, arrays, spoken_of & often[:, None]).T)
    _check_samples(arrays, len(facts["counts"]), sum(facts["counts"]))
    answers_from = _of_the_fit(facts).get("q_function")
    keeps = answers_from != "samples" or "samples.states" in arrays or not sum(facts["counts"])
    require(keeps, "q_function is 'samples', but the samples are missing")
    _check_time(arrays, facts["planning"]["discount"])


def _of_the_fit(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the plain settings of the fit; older files also hold those that the next fit would have had."""
    found: dict[str, Any] = facts["settings"] | facts["fit_settings"]
    return found


def _available(facts: dict[str, Any], arrays: dict[str, Array], available: Booleans) -> Booleans:
    """Return which actions are available at which representative states, also by the rules of the recipe."""
    if "recipe" not in facts:
        return available
    labels, reps = facts["action_labels"], arrays["reps"] * arrays["scale"] + arrays["centre"]
    recipe = Recipe.from_dict(facts["recipe"])
    return allowed_pairs(available, recipe, reps, np.array(labels["values"], dtype=labels["dtype"]))


def _check_names(found: Collection[str], wanted: Collection[str], what: str) -> None:
    missing, unknown = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    require(not missing, f"{what} lack {', '.join(missing)}")
    require(not unknown, f"{what} have unknown fields: {', '.join(unknown)}")


def _check_fields(found: Any, wanted: dict[str, Any], what: str) -> None:
    require(isinstance(found, dict), f"{what} must be a JSON object")
    _check_names(found, wanted, what)
    for name, types in wanted.items():
        if isinstance(types, dict):
            _check_fields(found[name], types, name)
        else:
            require(type(found[name]) in types, f"{what}: {name} is of the wrong kind, {type(found[name]).__name__}")


def _check_text(facts: dict[str, Any]) -> None:
    """Refuse text that UTF-8 cannot hold."""
    try:
        json.dumps(facts, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        message = f"labels and names must be text, but one holds half of a character, {half!r}. Rename it"
        raise ValueError(message) from None


def _check_labels(labels: dict[str, Any], counts: list[Any]) -> None:
    check_labels(labels)
    n_labels = len(labels["values"])
    require(len(counts) == n_labels, f"there are {n_labels} action_labels but counts of {len(counts)} actions")
    require(all(type(n) is int and 0 <= n < 2**62 for n in counts), "counts must be whole numbers not below 0")
    require(sum(counts) < 2**62, "counts are too large")


def _check_deferral(facts: Any, labels: list[Any]) -> None:
    """Check what only the file of a model that defers has."""
    _check_fields(facts, _DEFERRAL, "deferral")
    Deferral(**facts)
    require(facts["label"] not in map(str, labels), "deferral: its label is that of an action")


def _check_settings(settings: dict[str, Any], arrays: dict[str, Array], what: str, *, are_all: bool) -> None:
    in_arrays = [name.removeprefix(f"{what}.") for name in arrays if name.startswith(f"{what}.")]
    require(not set(in_arrays) & set(settings), f"{what} are given twice")
    odd = sorted(set(in_arrays) - _MAY_BE_ARRAYS)
    require(not odd, f"{what} are arrays, but should be plain values: {', '.join(odd)}")
    found = [*settings, *in_arrays]
    _check_names(found, about_settings() if are_all else set(about_settings()) & set(found), what)
    plain = (bool, int, float, str, type(None))
    wrong = [name for name, value in settings.items() if type(value) not in plain]
    require(not wrong, f"{what} are not plain values: {', '.join(wrong)}")


def _check_state_names(names: dict[str, Any], n_dims: int) -> None:
    state = names["state"]
    listed = [*(state or ()), *names["others"]]
    require(all(isinstance(name, str) for name in listed), "names must be strings")
    require(len(set(listed)) == len(listed), "names must differ from each other")
    require(state is None or len(state) == n_dims, f"names must be those of {n_dims} state variables")


def _check_sketch(facts: Any, arrays: dict[str, Array], n_cases: int, has_windows: bool) -> None:
    if facts is None:
        return
    _check_fields(facts, _SKETCH, "sketch")
    for name in ("total", "largest"):
        require(_SIXTEEN_DIGITS.fullmatch(facts[name]), f"sketch: {name} must be 16 hexadecimal digits")
    n_rows = facts["n_rows"]
    is_possible = n_rows >= n_cases if has_windows else n_rows == n_cases
    require(is_possible, "sketch: it is of another number of transitions")
    hashes, counts = arrays["sketch.hashes"].view(np.uint64), arrays["sketch.counts"]
    largest, total = int(facts["largest"], 16), int(facts["total"], 16)
    in_order = len(hashes) <= LISTED and (hashes[1:] > hashes[:-1]).all() and (hashes <= np.uint64(largest)).all()
    require(in_order, "sketch.hashes must rise up to the largest, and be no more than 1024")
    n_listed = sum(counts.tolist())
    require((counts > 0).all() and n_listed <= n_rows, "sketch.counts do not fit the number of transitions")
    if largest == LARGEST_HASH:  # all rows are listed
        is_sum = sum(h * n for h, n in zip(hashes.tolist(), counts.tolist())) % 2**64 == total
        require(n_listed == n_rows and is_sum, "sketch: the list and the total disagree")
    episodes = arrays["sketch.episodes"].view(np.uint64)
    in_order = len(episodes) <= LISTED_EPISODES and (episodes[1:] > episodes[:-1]).all()
    require(in_order, f"sketch.episodes must rise, and be no more than {LISTED_EPISODES}")
    _check_batches(facts["batches"], n_rows)


def _check_batches(batches: list[Any], n_rows: int) -> None:
    for batch in batches:
        is_pair = type(batch) is list and [type(part) for part in batch] == [int, str]
        known = is_pair and 0 < batch[0] <= n_rows and _SIXTEEN_DIGITS.fullmatch(batch[1])
        require(known, "sketch: batches must be pairs of a number of transitions and 16 hexadecimal digits")
    falling = all(tuple(one) > tuple(next_) for one, next_ in pairwise(batches)) and len(batches) <= LISTED_BATCHES
    require(falling, f"sketch: batches must fall, and be no more than {LISTED_BATCHES}")


def _check_columns(columns: Any, n_dims: int) -> None:
    if columns is None:
        return
    parts = [columns] if isinstance(columns, list) else [list(columns), *columns.values()]
    names = [name for part in parts for name in (part if isinstance(part, list) else [part] if part else [])]
    plain = all(isinstance(name, str) for name in names)
    require(plain, f"columns must be strings, or a dict of strings and lists of them, but they are {columns!r}")
    if isinstance(columns, list):
        require(len(columns) == n_dims, f"columns name {len(columns)} state variables, but there are {n_dims}")


def _check_arrays(facts: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Names, types, shapes and finite numbers."""
    for name, n_axes in (("scale", 1), ("reps", 2), ("samples.states", 2)):
        if name in arrays:
            require(arrays[name].ndim == n_axes and arrays[name].size, f"{name} has the shape {arrays[name].shape}")
    require("scale" in arrays and "reps" in arrays, "scale or reps are missing")
    basis = facts["basis"]
    require(basis["order"] in (0, 1), "order must be 0 or 1")
    require(basis["order"] == _of_the_fit(facts).get("order"), "order differs from that of the settings")
    require(basis["neighborhoods"] in NEIGHBORHOODS, f"neighborhoods must be one of {NEIGHBORHOODS}")
    require(basis["sample_neighbors"] is None or basis["sample_neighbors"] > 0, "sample_neighbors must be above 0")
    shapes = _shapes_of(facts, arrays)
    given = [name for name in arrays if name.startswith(("settings.", "fit_settings."))]
    _check_names(arrays, [*shapes, *given], "arrays")
    for name, array in arrays.items():
        kind, shape = shapes.get(name, ("f", (None,) * array.ndim))
        require(array.dtype.kind == kind, f"{name} has the wrong type, {array.dtype}")
        fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape))
        require(fits, f"{name} must have the shape {shape}, but it has {array.shape}")
        if kind == "f":
            finite = np.isfinite(array) | (array == _MAY_BE_INFINITE.get(name, 0.0))
            finite |= (name in _MAY_BE_EITHER) & ~np.isnan(array)
            require(finite.all(), f"{name} holds numbers that are not finite")
    require((arrays["scale"] > 0).all(), "scale must be above 0")
    _check_sizes(arrays, facts["planning"]["discount"])
    if facts["sketch"] is not None:
        lengths = {arrays[f"sketch.{name}"].shape for name in ("hashes", "counts", "contents")}
        require(len(lengths) == 1, "sketch.hashes, sketch.counts and sketch.contents differ in length")
    require((arrays["growth"] >= 0).all(), "growth must not be below 0")


def _shapes_of(facts: dict[str, Any], arrays: dict[str, Array]) -> Shapes:
    """Return the kind and the shape of each required array; None is any length."""
    n_dims, n_reps, n_actions = len(arrays["scale"]), len(arrays["reps"]), len(facts["counts"])
    shapes: Shapes = {
        "centre": ("f", (n_dims,)),
        "scale": ("f", (n_dims,)), "reps": ("f", (n_reps, n_dims)), "growth": ("i", (None, 2)),
        "values": ("f", (n_reps,)), "q": ("f", (n_reps, n_actions)), "policy": ("i", (n_reps,)),
    }  # fmt: skip
    if "time_discount" in arrays:  # of steps with durations
        shapes["time_discount"] = ("f", (1,))
    if facts["basis"]["rep_width"] is None:
        shapes["rep_widths"] = ("f", (n_reps,))
    if "circles.places" in arrays:
        n_circles = len(arrays["circles.places"])
        shapes |= {"circles.places": ("i", (n_circles, 2)), "circles.shapes": ("f", (n_circles, 5))}
    if facts["sketch"] is not None:
        shapes |= {f"sketch.{name}": ("i", (None,)) for name in ("hashes", "counts", "contents", "episodes")}
    if "resamples" in arrays:
        shapes["resamples"] = ("f", (None, n_reps, n_actions + ("deferral" in facts)))
    shapes |= _shapes_of_sums(facts["basis"], arrays, n_actions, n_reps, n_dims)
    return shapes | (_shapes_of_samples(arrays, n_dims) if "samples.states" in arrays else {})


def _shapes_of_sums(
    basis: dict[str, Any], arrays: dict[str, Array], n_actions: int, n_reps: int, n_dims: int
) -> Shapes:
    """Return the shapes of the sums: of lines, of the nearest samples, or of kernel values."""
    pairs, is_timed = (n_actions, n_reps), "time_discount" in arrays
    if basis["order"] == 1:
        shapes: Shapes = {"q": ("f", (n_reps, None)), "lines.span": ("f", (2, n_dims))}
        shapes |= {"lines.rewards": ("f", (*pairs, 2))} | ({"lines.fades": ("f", (*pairs, 2))} if is_timed else {})
        shapes["lines.moves"] = ("f", (*pairs, packed_size(1 + 2 * n_dims + is_timed)))
        return shapes | {"lines.outcomes": ("f", (*pairs, packed_size(3 + n_dims)))}
    if basis["sample_neighbors"] is not None and basis["neighborhoods"] == "exact":
        kept = (*pairs, _n_places(arrays, basis["sample_neighbors"]))
        shapes = {f"neighbors.{name}": ("f", kept) for name in ("distances", "rewards", "multiplicities")}
        return shapes | {
            "neighbors.next_states": ("f", (*kept, n_dims)),
            "neighbors.terminals": ("f" if is_timed else "b", kept),
        }
    shapes = dict.fromkeys(("nearest", "weight", "reward_sum"), ("f", pairs))
    optional = ("noise", "reward_noise", "squared_weight", "reward_squares")
    shapes |= {name: ("f", pairs) for name in optional if name in arrays}
    if basis["sample_neighbors"] is not None and (basis["hard"] or basis["rep_neighbors"] is not None):
        shapes |= {"transition_sum.data": ("f", (None,)), "transition_sum.columns": ("i", (None,))}
        return shapes | {"transition_sum.row_starts": ("i", (n_actions, n_reps + 1))}
    return shapes | {"transition_sum": ("f", (*pairs, n_reps))}


def _shapes_of_samples(arrays: dict[str, Array], n_dims: int) -> Shapes:
    n = len(arrays["samples.states"])
    shapes: Shapes = {"samples.states": ("f", (n, n_dims)), "samples.next_states": ("f", (n, n_dims))}
    shapes |= {"samples.action_indices": ("i", (n,)), "samples.rewards": ("f", (n,)), "samples.terminals": ("b", (n,))}
    return shapes | ({"samples.durations": ("f", (n,))} if "time_discount" in arrays else {})


def _n_places(arrays: dict[str, Array], n_neighbors: int) -> int:
    """Return how many neighbours there is room for: as many as are asked for, or more where some tie."""
    distances = arrays.get("neighbors.distances")
    return max(n_neighbors, distances.shape[2] if distances is not None and distances.ndim == 3 else 0)


def _check_sizes(arrays: dict[str, Array], discount: float) -> None:
    """Refuse states whose distances would overflow, and rewards whose discounted sums would."""
    largest_reward = _LARGEST_REWARD * (1.0 - discount) ** 2  # as the solver has it
    centre, scale = arrays["centre"], arrays["scale"]
    with np.errstate(over="ignore"):
        require(np.abs(centre / scale).max() <= LARGEST_COORDINATE, "centre is too large for the scale")
        in_units = np.abs(arrays["reps"]).max(axis=0) * scale + np.abs(centre)
        require((in_units < np.inf).all(), "reps are too large for the scale")
        for name in ("reps", "neighbors.next_states", "samples.states", "samples.next_states"):
            states = arrays.get(name, np.empty(0))
            if states.size and name.startswith("samples."):  # the others are scaled
                states = (states - centre) / scale
            require(np.abs(states).max(initial=0.0) <= LARGEST_COORDINATE, f"{name} are too large")
    for name in ("neighbors.rewards", "samples.rewards"):
        size = np.abs(arrays.get(name, np.empty(0))).max(initial=0.0)
        require(size <= largest_reward, f"{name} are too large")
    if "reward_sum" in arrays and arrays["reward_sum"].shape == arrays["weight"].shape:
        size = np.abs(arrays["reward_sum"]) / largest_reward
        require((size <= np.abs(arrays["weight"])).all(), "reward_sum is too large")


def _check_plan_solution(facts: dict[str, Any], arrays: dict[str, Array], n_taken: int) -> None:
    """Check the solution of order 1: its actions are plans."""
    settings = _of_the_fit(facts)
    n_decisions, _ = plan_length(n_taken, settings["plan_decisions"], settings["plan_hold"])
    n_decisions = n_decisions if settings["plan_window"] is None else 1
    n_plans = max(1, n_taken**n_decisions)
    require(arrays["q"].shape[1] == n_plans, f"q must have {n_plans} columns, one per plan")
    _check_solution(facts["solution"], arrays, np.isfinite(arrays["q"]))


def _check_solution(facts: dict[str, Any], arrays: dict[str, Array], available: Booleans) -> None:
    require(facts["iterations"] >= 0 and 0 <= facts["residual"] < np.inf, "solution: it has no valid residual")
    q, policy = arrays["q"], arrays["policy"]
    require((np.isfinite(q) == available).all(), "q and the statistics differ in what is available")
    top = q.max(axis=1)
    possible = np.isfinite(top)
    require((arrays["values"] == np.where(possible, top, 0.0)).all(), "values are not the largest q")
    in_range = (policy >= -1) & (policy < q.shape[1]) & ((policy >= 0) == possible)
    require(in_range.all(), "policy names actions that are not there")
    chosen = q[np.arange(len(q)), policy][possible]
    slack = 2 * TIE * np.abs(q[available]).max(initial=0.0)  # of equals, any may be chosen
    require((chosen >= top[possible] - slack).all(), "policy names actions that are not the best")


def _check_time(arrays: dict[str, Array], discount: float) -> None:
    """Check what steps with durations add to a file."""
    if "time_discount" not in arrays:
        return
    require(arrays["time_discount"][0] == discount, "time_discount is not the discount")
    lost = arrays.get("neighbors.terminals", np.zeros(0))
    require(((lost >= 0) & (lost <= 1)).all(), "neighbors.terminals must be from 0 to 1")
    kept = 1.0 - lost[arrays["neighbors.multiplicities"] > 0] if lost.size else lost
    require((kept < 1).all(), "neighbors.terminals must be above 0 where the discount is by time")
    require((arrays.get("samples.durations", np.ones(1)) > 0).all(), "samples.durations must be above 0")


def _check_samples(arrays: dict[str, Array], n_actions: int, n_samples: int) -> None:
    if "samples.states" in arrays:
        indices = arrays["samples.action_indices"]
        require(((indices >= 0) & (indices < n_actions)).all(), "samples.action_indices name actions not there")
        require(len(indices) <= n_samples, "there are more samples than transitions")
