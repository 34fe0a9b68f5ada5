"""Which arrays a model file must hold, and their shapes: what docs/model_file.md lists, as code."""

from __future__ import annotations

from typing import Any

from kbrl.arrays import Array
from kbrl.lines.moments import packed_size


def shapes_of(facts: dict[str, Any], arrays: dict[str, Array]) -> dict[str, tuple[str, tuple[int | None, ...]]]:
    """Return the kind and the shape of each required array; None is any length."""
    n_dims, n_reps, n_actions = len(arrays["scale"]), len(arrays["reps"]), len(facts["counts"])
    basis, pairs = facts["basis"], (n_actions, n_reps)
    shapes: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "centre": ("f", (n_dims,)),
        "scale": ("f", (n_dims,)), "reps": ("f", (n_reps, n_dims)), "growth": ("i", (None, 2)),
        "values": ("f", (n_reps,)), "q": ("f", (n_reps, n_actions)), "policy": ("i", (n_reps,)),
    }  # fmt: skip
    if "time_discount" in arrays:  # of steps with durations
        shapes["time_discount"] = ("f", (1,))
    if basis["rep_width"] is None:
        shapes["rep_widths"] = ("f", (n_reps,))
    if "circles.places" in arrays:
        n_circles = len(arrays["circles.places"])
        shapes |= {"circles.places": ("i", (n_circles, 2)), "circles.shapes": ("f", (n_circles, 5))}
    if basis["order"] == 1:
        shapes |= {"q": ("f", (n_reps, None)), "lines.span": ("f", (2, n_dims)), "lines.rewards": ("f", (*pairs, 2))}
        is_timed = "time_discount" in arrays
        shapes["lines.moves"] = ("f", (*pairs, packed_size(1 + 2 * n_dims + is_timed)))
        shapes |= {"lines.fades": ("f", (*pairs, 2))} if is_timed else {}
        shapes["lines.outcomes"] = ("f", (*pairs, packed_size(3 + n_dims)))
    elif basis["sample_neighbors"] is not None and basis["neighborhoods"] == "exact":
        kept = (*pairs, _n_places(arrays, basis["sample_neighbors"]))
        shapes |= {"neighbors.distances": ("f", kept), "neighbors.rewards": ("f", kept)}
        lost = "f" if "time_discount" in arrays else "b"
        shapes |= {"neighbors.next_states": ("f", (*kept, n_dims)), "neighbors.terminals": (lost, kept)}
        shapes["neighbors.multiplicities"] = ("f", kept)
    else:
        shapes |= dict.fromkeys(("nearest", "weight", "reward_sum"), ("f", pairs))
        optional = ("noise", "reward_noise", "squared_weight", "reward_squares")
        shapes |= {name: ("f", pairs) for name in optional if name in arrays}
        if basis["sample_neighbors"] is not None and (basis["hard"] or basis["rep_neighbors"] is not None):
            shapes |= {"transition_sum.data": ("f", (None,)), "transition_sum.columns": ("i", (None,))}
            shapes["transition_sum.row_starts"] = ("i", (n_actions, n_reps + 1))
        else:
            shapes["transition_sum"] = ("f", (*pairs, n_reps))
    if facts["sketch"] is not None:
        shapes |= {f"sketch.{name}": ("i", (None,)) for name in ("hashes", "counts", "contents", "episodes")}
    if "resamples" in arrays:
        shapes["resamples"] = ("f", (None, n_reps, n_actions + ("deferral" in facts)))
    if "samples.states" in arrays:
        n = len(arrays["samples.states"])
        shapes |= {"samples.states": ("f", (n, n_dims)), "samples.next_states": ("f", (n, n_dims))}
        shapes |= {"samples.action_indices": ("i", (n,)), "samples.rewards": ("f", (n,))}
        shapes["samples.terminals"] = ("b", (n,))
        if "time_discount" in arrays:
            shapes["samples.durations"] = ("f", (n,))
    return shapes


def _n_places(arrays: dict[str, Array], n_neighbors: int) -> int:
    """Return how many neighbours there is room for: as many as are asked for, or more where some tie."""
    distances = arrays.get("neighbors.distances")
    return max(n_neighbors, distances.shape[2] if distances is not None and distances.ndim == 3 else 0)
