"""Upgrade the contents of older model files to the current format; facts that they lack are "not known".

Format 1 has no names but those of its columns, and no settings of the fit beside the current ones.  It does not say
whether representative states were added or dropped, and it has no sketch of what was learnt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kbrl.arrays import Array
from kbrl.data.names import Source
from kbrl.settings import about_settings
from kbrl.storage.sealed_file import Contents

# The settings of format 1; later ones have their defaults, which are what version 0.1.0 did.
_SETTINGS_OF_1 = (
    "n_reps", "reps", "sample_width", "rep_width", "sample_neighbors", "rep_neighbors", "discount", "scaling",
    "random_state", "profile", "cover_distance", "grow_distance", "grow_below", "max_reps", "terminals", "aggregation",
    "neighborhoods", "q_function", "solver", "tolerance", "n_jobs",
)  # fmt: skip
# What has come to the basis and to planning since, as version 0.1.0 did it.
_BASIS_SINCE = {"norm": 2.0}
_PLANNING_SINCE = {"sweeps": None, "min_cases": 1}


def upgraded(contents: Contents) -> Contents:
    """Return contents in the current format, upgraded if they have an older one."""
    facts, arrays, version = contents
    if isinstance(facts.get("history"), dict):  # files from before the first release lack it
        facts["history"].setdefault("held_out", None)
        facts["history"].setdefault("flags", [])
    if not isinstance(facts.get("settings"), dict):
        return contents
    if version != 1:
        return Contents(facts | _without_lines(facts), arrays, version)
    defaults = {name: each.default for name, each in about_settings().items() if name not in _SETTINGS_OF_1}
    new = {
        "names": Source.of_roles(facts.get("columns"), len(arrays.get("scale", ()))).to_facts(),
        "settings": defaults | facts["settings"],
        "fit_settings": {},
        "basis": _BASIS_SINCE | {"order": 0} | _as_dict(facts.get("basis")),
        "planning": _PLANNING_SINCE | _as_dict(facts.get("planning")),
        "history": {"has_changed": _has_changed(arrays), "held_out": None, "flags": []},
        "sketch": None,
    }
    centre = np.zeros(np.shape(arrays.get("scale", ()))[:1])
    return Contents(facts | new, {"centre": centre} | arrays, version)


def _without_lines(facts: dict[str, Any]) -> dict[str, Any]:
    """Return what the first files of format 2 lack: they know nothing of order 1."""
    if "order" in facts["settings"]:
        return {"settings": {"plan_window": None} | facts["settings"]}  # which came later
    names = ("order", *(name for name, each in about_settings().items() if each.group == "plan"))
    settings = {name: about_settings()[name].default for name in names} | facts["settings"]
    return {"settings": settings, "basis": {"order": 0} | _as_dict(facts.get("basis"))}


def _as_dict(facts: Any) -> dict[str, Any]:
    return facts if isinstance(facts, dict) else {}


def _has_changed(arrays: Mapping[str, Array]) -> bool | None:
    """Return True if the curve m(n) shows a change, else None: it does not show models that were added."""
    growth = arrays.get("growth")
    shows_it = growth is not None and growth.ndim == 2 and growth.size and len(np.unique(growth[:, -1])) > 1
    return True if shows_it else None
