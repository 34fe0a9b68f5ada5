"""Which arrays a model file must hold, and their shapes: what docs/model_file.md lists, as code."""

from __future__ import annotations

from typing import Any

from kbrl.arrays import Array
from kbrl.lines.moments import packed_size

Shapes = dict[str, tuple[str, tuple[int | None, ...]]]


def shapes_of(facts: dict[str, Any], arrays: dict[str, Array]) -> Shapes:
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
    shapes |= _of_sums(facts["basis"], arrays, n_actions, n_reps, n_dims)
    return shapes | (_of_samples(arrays, n_dims) if "samples.states" in arrays else {})


def _of_sums(basis: dict[str, Any], arrays: dict[str, Array], n_actions: int, n_reps: int, n_dims: int) -> Shapes:
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


def _of_samples(arrays: dict[str, Array], n_dims: int) -> Shapes:
    n = len(arrays["samples.states"])
    shapes: Shapes = {"samples.states": ("f", (n, n_dims)), "samples.next_states": ("f", (n, n_dims))}
    shapes |= {"samples.action_indices": ("i", (n,)), "samples.rewards": ("f", (n,)), "samples.terminals": ("b", (n,))}
    return shapes | ({"samples.durations": ("f", (n,))} if "time_discount" in arrays else {})


def _n_places(arrays: dict[str, Array], n_neighbors: int) -> int:
    """Return how many neighbours there is room for: as many as are asked for, or more where some tie."""
    distances = arrays.get("neighbors.distances")
    return max(n_neighbors, distances.shape[2] if distances is not None and distances.ndim == 3 else 0)
