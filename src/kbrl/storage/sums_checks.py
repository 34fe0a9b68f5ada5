"""Whether the sums in a model file make sense: kernel values, nearest samples, or lines.

Called by `model_checks`, which has looked at names, types and shapes before.  A fault raises a ValueError that names
the field.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from kbrl.arrays import Array, Booleans
from kbrl.checks import LARGEST_COORDINATE
from kbrl.lines.moments import packed_size
from kbrl.storage.sealed_file import require

# Rounding that is allowed in sums: where nearly all data were taken away again (forget), it is as large as this.
_ROUNDING = 1e-6


def check_statistics(arrays: dict[str, Array], n_samples: int) -> Booleans:
    """Check the sums or the neighbours, and return the pairs that they have data on, (n_actions, n_reps)."""
    if "neighbors.distances" in arrays:
        distances = arrays["neighbors.distances"]
        in_order = (distances[:, :, 1:] >= distances[:, :, :-1]).all() and (distances >= 0).all()
        require(in_order, "neighbors.distances must rise and not be below 0")
        require(np.isfinite(distances).sum(axis=2).max() <= n_samples, "there are more neighbors than transitions")
        multiplicities = arrays["neighbors.multiplicities"]
        require(((multiplicities > 0) == np.isfinite(distances)).all(), "multiplicities and distances disagree")
        return np.isfinite(distances[:, :, 0])
    weight, nearest = arrays["weight"], arrays["nearest"]
    require((weight >= 0).all() and (nearest >= 0).all(), "weight and nearest must not be below 0")
    require(((weight > 0) == np.isfinite(nearest)).all(), "weight and nearest speak of different pairs")
    require((arrays["reward_sum"][weight == 0] == 0).all(), "reward_sum speaks of pairs without weight")
    for name in ("noise", "reward_noise"):
        require((arrays.get(name, weight) >= 0).all(), f"{name} must not be below 0")
    for name in ("squared_weight", "reward_squares"):
        squared = arrays.get(name, weight)
        require((squared >= 0).all() and (squared[weight == 0] == 0).all(), f"{name} speaks of pairs without weight")
    entries, row_sums = _transition_sums(arrays)
    require(not entries.size or entries.min() >= 0, "transition_sum must not be below 0")
    require((row_sums <= weight * (1 + _ROUNDING)).all(), "transition_sum holds probabilities that exceed 1")
    return weight > 0


def _transition_sums(arrays: dict[str, Array]) -> tuple[Array, Array]:
    """Return the entries of the sums of transitions and the sum of each row, (n_actions, n_reps)."""
    if "transition_sum" in arrays:
        return arrays["transition_sum"], arrays["transition_sum"].sum(axis=2)
    data, columns, starts = (arrays[f"transition_sum.{name}"] for name in ("data", "columns", "row_starts"))
    n_reps = starts.shape[1] - 1
    lengths = np.diff(starts, axis=1)
    # Each length is at most len(data), so that their sum cannot overflow.
    bounded = (starts[:, 0] == 0).all() and (starts >= 0).all() and (starts <= len(data)).all() and (lengths >= 0).all()
    require(bounded and starts[:, -1].sum() == len(data) == len(columns), "transition_sum.row_starts are wrong")
    require(not len(columns) or (columns.min() >= 0 and columns.max() < n_reps), "transition_sum.columns are wrong")
    all_starts = np.concatenate([[0], np.cumsum(lengths.ravel())])
    rows = sparse.csr_array((data, columns, all_starts), (lengths.size, n_reps))
    return data, np.asarray(rows.sum(axis=1)).reshape(lengths.shape)


def check_lines(arrays: dict[str, Array], counts: list[int]) -> None:
    """Check the sums of order 1."""
    moves, outcomes, rewards = (arrays[f"lines.{name}"] for name in ("moves", "outcomes", "rewards"))
    cases, n_dims = outcomes[:, :, 0], arrays["lines.span"].shape[1]
    whole_numbers = (cases >= 0).all() and (cases == np.floor(cases)).all()
    require(whole_numbers and cases.sum(axis=1).tolist() == counts, "lines.outcomes are of another number of cases")
    require(((moves[:, :, 0] >= 0) & (moves[:, :, 0] <= cases)).all(), "lines.moves are of more cases than there are")
    is_timed = "lines.fades" in arrays
    for name, size in (("moves", 1 + 2 * n_dims + is_timed), ("outcomes", 3 + n_dims)):
        squares = arrays[f"lines.{name}"][:, :, [packed_size(k) + k for k in range(size)]]
        require((squares >= 0).all(), f"lines.{name} hold squares below 0")
    low, high = arrays["lines.span"]
    in_order = (low <= high) & (low >= -LARGEST_COORDINATE) & (high <= LARGEST_COORDINATE)
    require((in_order | ((low == np.inf) & (high == -np.inf))).all(), "lines.span must be ranges")
    known = cases > 0
    ordered = np.isfinite(rewards[known]).all() and (rewards[known][:, 0] <= rewards[known][:, 1]).all()
    require(ordered, "lines.rewards must be ranges")
    if is_timed:
        fades = arrays["lines.fades"][moves[:, :, 0] > 0]
        require(((fades >= 0) & (fades < 1)).all() and (fades[:, 0] <= fades[:, 1]).all(), "lines.fades must be ranges")
    if "circles.places" in arrays:
        places, shapes = arrays["circles.places"], arrays["circles.shapes"]
        require(((places >= 0) & (places < n_dims)).all(), "circles.places name variables that are not there")
        require((shapes[:, 2:] > 0).all(), "circles.shapes must have scales and radii above 0")
        scales = arrays["scale"][places]
        require((shapes[:, 2:4] == scales).all(), "circles.shapes have other scales than the variables")
        with np.errstate(over="ignore"):
            reach = np.abs(shapes[:, :2]) + shapes[:, 4:] / scales
        require((reach <= LARGEST_COORDINATE).all(), "circles.shapes are too large")
