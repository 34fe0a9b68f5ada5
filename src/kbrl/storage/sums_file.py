"""The sums behind a judgement as a file, so that sites can add up sums instead of rows.

The file is safetensors under a seal, as a model file is; nothing in it is ever run.  It holds sums per block of
episodes, the representative states that they refer to, and what the policy decides there; no row of the log.
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from kbrl import __version__
from kbrl.arrays import Array
from kbrl.data.names import Source
from kbrl.data.scaling import Coordinates
from kbrl.files import written_beside
from kbrl.storage.sealed_file import Contents, check_labels, labels_as_facts, read_sealed, refuse, write_sealed
from kbrl.trust.block_sums import BlockSums
from kbrl.trust.evaluator import Frame, PolicyEvaluator
from kbrl.trust.features import Features

FORMAT, VERSION = "kbrl sums", 3
_LARGEST = 1e100  # its square can still be added up
_NONE = {"smallest_returns": np.inf, "largest_returns": -np.inf}  # where there are fewer than five
_SIGNED = ("reward", "returns", "smallest_reward", "largest_reward", "residuals", *_NONE)


def save_sums(evaluator: PolicyEvaluator, path: str | os.PathLike[str]) -> None:
    """Write the sums of an evaluator to a file.

    >>> from kbrl import PolicyEvaluator, load_sums, save_sums
    >>> from kbrl.tasks import PuddleWorld
    >>> log = PuddleWorld().collect(3000, random_state=0)
    >>> save_sums(PolicyEvaluator(lambda states: [0] * len(states), discount=0.99).fit(log), "north.sums")
    >>> load_sums("north.sums").n_episodes == len(set(log.episodes.tolist()))
    True
    """
    frame, sums = evaluator.finish().checked_frame(), evaluator.sums
    if sums is None or evaluator.decisions is None:
        raise ValueError("There are no sums to save yet. Call fit with a log first.")
    facts = {
        "library_version": __version__,
        "action_labels": labels_as_facts(frame.action_labels),
        "names": frame.source.to_facts(),
        "policies": list(frame.names),
        "discount": frame.discount,
        "n_blocks": frame.n_blocks,
        "width": frame.features.width,
        "is_exact": frame.features.is_exact,
    }
    arrays: dict[str, Array] = {f"sums.{field.name}": getattr(sums, field.name) for field in fields(sums)}
    units = frame.features.coordinates
    arrays |= {"reps": frame.features.reps, "centre": units.centre, "scale": units.scale}
    arrays["decisions"] = evaluator.decisions
    with written_beside(path) as beside, open(beside, "wb") as file:
        write_sealed(file, FORMAT, VERSION, facts, arrays)


def load_sums(path: str | os.PathLike[str]) -> PolicyEvaluator:
    """Return an evaluator with the sums of a file; it knows no policy, so it can be added up but not fitted.

    >>> from kbrl import PolicyEvaluator, load_sums, save_sums
    >>> from kbrl.tasks import PuddleWorld
    >>> log = PuddleWorld().collect(3000, random_state=0)
    >>> found = PolicyEvaluator(lambda states: [0] * len(states), discount=0.99).fit(log)
    >>> save_sums(found, "north.sums")
    >>> bool((load_sums("north.sums").sums.next_policy == found.sums.next_policy).all())
    True
    """
    contents = read_sealed(path, FORMAT, VERSION)
    try:
        return _evaluator(contents)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        refuse(path, f"it is sealed but holds no valid sums: {error}", "Make it again with kbrl judge --sums.")


def is_sums_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file starts as a file of sums does; a pipe, which might never answer, is not opened."""
    if not Path(path).is_file():
        return False
    try:
        with open(path, "rb") as file:
            return f'"format":"{FORMAT}"'.encode() in file.read(512)
    except OSError:
        return False


def _evaluator(contents: Contents) -> PolicyEvaluator:
    facts, arrays, _ = contents
    names, labels = facts["names"], facts["action_labels"]
    check_labels(labels)
    _check_frame(facts, arrays)
    units = Coordinates(arrays["centre"], arrays["scale"])
    features = Features(arrays["reps"], units, float(facts["width"]), bool(facts["is_exact"]))
    source = Source(None if names["state"] is None else tuple(names["state"]), tuple(names["others"]))
    action_labels = np.array(labels["values"], dtype=labels["dtype"])
    policies = dict.fromkeys(facts["policies"])
    evaluator = PolicyEvaluator(policies, discount=float(facts["discount"]), n_blocks=facts["n_blocks"])
    evaluator.frame = Frame(
        features, action_labels, evaluator.discount, evaluator.n_blocks, tuple(facts["policies"]), source
    )
    sums = {field.name: np.array(arrays[f"sums.{field.name}"]) for field in fields(BlockSums)}
    _check(sums, (evaluator.n_blocks, len(action_labels), features.n_reps, len(policies)))
    evaluator.sums, evaluator.decisions = BlockSums(**sums), arrays["decisions"]
    return evaluator


def _check_frame(facts: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Refuse what the sums cannot refer to."""
    n_reps, n_dims = arrays["reps"].shape
    names, n_actions = facts["names"], len(facts["action_labels"]["values"])
    shapes = {"reps": (n_reps, n_dims), "centre": (n_dims,), "scale": (n_dims,)}
    shapes["decisions"] = (len(facts["policies"]), n_reps, n_actions)
    for name, shape in shapes.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite numbers of the shape {shape}, but they are not")
    chances = arrays["decisions"]
    totals = chances.sum(axis=2)  # 0 where the policy defers
    if chances.min() < 0 or not (np.isclose(totals, 1.0, atol=1e-6) | (totals == 0)).all():
        raise ValueError("decisions must be probabilities that sum to one")
    if arrays["scale"].min() <= 0 or not isinstance(facts["width"], float) or facts["width"] <= 0:
        raise ValueError("scale and width must be above 0")
    lists = (facts["policies"], names["others"], names["state"] or [])
    if not all(isinstance(each, list) and all(isinstance(text, str) for text in each) for each in lists):
        raise ValueError("policies and names must be lists of texts")
    if len(set(facts["policies"])) < len(facts["policies"]) or (names["state"] and len(names["state"]) != n_dims):
        raise ValueError("policies must differ, and each state variable must have a name")


def _check(sums: dict[str, Array], shape: tuple[int, int, int, int]) -> None:
    """Refuse sums of other shapes, and numbers that cannot be sums."""
    shapes = BlockSums.shapes(*shape)
    for name, array in sums.items():
        if array.shape != shapes[name] or array.dtype != np.float64:
            raise ValueError(f"{name} must have the shape {shapes[name]}, but it has {array.shape}")
        largest = _LARGEST**2 if name == "lasting" else _LARGEST  # that has squares of squares
        if not ((np.abs(array) <= largest) | (array == _NONE.get(name, np.nan))).all():
            raise ValueError(f"{name} holds numbers that are not finite, or above {largest:g}")
        if name not in _SIGNED and array.size and array.min() < 0:
            raise ValueError(f"{name} must not be below 0")
    for name in ("n_episodes", "n_rows"):
        if (sums[name] != np.rint(sums[name])).any():
            raise ValueError(f"{name} must be whole numbers")
    if sums["n_episodes"].sum() < 1:
        raise ValueError("there must be an episode")
    weight = sums["weight"].sum(axis=0).reshape(shape[0], -1)
    for name in ("next_now", "next_policy"):
        if (sums[name].sum(axis=-1) > weight * (1 + 1e-6) + 1e-9).any():
            raise ValueError(f"{name} must not be above weight: each row has one next state")
