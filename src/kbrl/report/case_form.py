"""The form of the look-up: one field per column of the table, and the state variables that each stands for.

A number is typed, a level is chosen from a list.  The page needs no recipe: each choice, and an empty field where a
value may be missing, carries the state variables that `StateColumn.expanded` makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kbrl.data.recipe import Recipe
from kbrl.data.state_column import MISSING, OTHER, StateColumn


@dataclass(frozen=True)
class Choice:
    """A level that can be chosen, and its state variables, as in "0 1 0"."""

    name: str
    values: str
    is_chosen: bool


@dataclass(frozen=True)
class Field:
    """A field of the form: a list of choices, or a number."""

    name: str
    title: str  # with its unit
    start: str = ""  # the number to start with
    choices: tuple[Choice, ...] = ()
    missing: str = ""  # the state variables of a missing value; empty: it must not be missing
    after: str = ""  # those that follow a number that is not missing
    period: float | None = None  # of an angle, whose sine and cosine are the variables


def form_fields(
    recipe: Recipe | None, names: Sequence[str], medians: Sequence[float], units: Mapping[str, str]
) -> list[Field]:
    """Return the fields for states with these variables, which start at their medians, (n_dims,).

    >>> recipe = Recipe((StateColumn("age"), StateColumn("sex", "category", ("F", "M"))))
    >>> age, sex = form_fields(recipe, recipe.variables, [61.0, 1.0, 0.0], {"age": "years"})
    >>> age.title, age.start, [(choice.name, choice.values, choice.is_chosen) for choice in sex.choices]
    ('age (years)', '61', [('F', '1 0', True), ('M', '0 1', False)])
    """
    if recipe is None:
        return [_plain(name, median, units) for name, median in zip(names, medians)]
    found: list[Field] = []
    for column, places in recipe.slices():
        middle = np.asarray(medians[places], dtype=np.float64)
        if column.kind in ("category", "ordinal", "boolean"):
            found.append(_choice(column, middle, units))
        elif column.kind in ("vector", "elapsed"):
            found += [_plain(name, median, units) for name, median in zip(column.variables, middle)]
        else:
            found.append(_number(column, middle, units))
    return found


def _plain(name: str, median: float, units: Mapping[str, str]) -> Field:
    return Field(name, _title(name, units), f"{median:.6g}")


def _title(name: str, units: Mapping[str, str]) -> str:
    return f"{name} ({units[name]})" if name in units else name


def _number(column: StateColumn, middle: np.ndarray, units: Mapping[str, str]) -> Field:
    start = np.asarray(column.cells(middle[None]), dtype=np.float64)[0]
    return Field(
        column.name,
        _title(column.name, units),
        "" if np.isnan(start) else f"{start:.6g}",
        missing=_variables(column, np.nan),
        after="0" if column.has_indicator else "",
        period=column.period if column.kind == "angle" else None,
    )


def _choice(column: StateColumn, middle: np.ndarray, units: Mapping[str, str]) -> Field:
    levels = ("no", "yes") if column.kind == "boolean" else column.levels
    named = {name: _variables(column, float(place)) for place, name in enumerate(levels)}
    if column.has_other:
        named[OTHER] = _variables(column, float(len(levels)))
    gone = _variables(column, np.nan)
    if gone and (column.has_indicator or column.missing == "level"):
        named[MISSING] = gone
    start = int(middle[: len(named)].argmax()) if column.kind == "category" else int(np.rint(middle[0]))
    choices = (Choice(name, values, place == start) for place, (name, values) in enumerate(named.items()))
    return Field(column.name, _title(column.name, units), choices=tuple(choices))


def _variables(column: StateColumn, value: float) -> str:
    """Return the state variables of a value, or of a missing one; nothing if no rule says what they are."""
    found = column.expanded(np.array([value]))[0]
    return "" if np.isnan(found).any() else " ".join(f"{each:.6g}" for each in found)
