"""From the columns of a table to state variables and back, and rules for allowed actions, one row at a time.

Part of an exported policy, so in plain Python.  `kbrl.data.recipe` and `kbrl.data.expressions` do the same for whole
columns; the tests hold the two against each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

LARGEST = 1e100  # a number in a table, or a scaled state variable
BLANKS = {"", "na", "n/a", "#n/a", "<na>", "nan", "null"}
TRUE = {"true", "t", "yes", "y", "1", "ja", "j", "wahr", "oui", "vrai", "si", "sí", "verdadero", "sim", "sì", "vero"}
FALSE = {"false", "f", "no", "n", "0", "nein", "falsch", "non", "faux", "falso", "não", "nao", "nee"}


class UnanswerableError(ValueError):
    """A state that has no answer; the text says why."""


def number_in(cell: Any, name: str) -> float:
    """Return the number in a cell."""
    try:
        number = float({"true": 1, "false": 0}.get(cell.strip().lower(), cell) if isinstance(cell, str) else cell)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= LARGEST:
        raise UnanswerableError(f"{name} must be a number of at most {LARGEST:g} in size, but it is {cell!r}")
    return number


def encoded(column: Mapping[str, Any], cell: Any) -> list[float]:
    """Return the state variables of one cell."""
    name, kind = column["name"], column["kind"]
    if kind == "vector":
        if not isinstance(cell, (list, tuple)) or len(cell) != column["width"]:
            raise UnanswerableError(f"{name} must be a list of {column['width']} numbers, but it is {cell!r}")
        if any(_is_marked(value, column["na"]) for value in cell):
            raise UnanswerableError(column["why_missing"])
        return [number_in(value, name) for value in cell]
    if isinstance(cell, (list, tuple, dict)):
        raise UnanswerableError(f"{name} must be one value, but it is {cell!r}")
    is_missing = _is_missing(cell) or _is_marked(cell, column["na"])
    if is_missing and column["fill"] is None:
        raise UnanswerableError(column["why_missing"])
    value = float(column["fill"]) if is_missing else _READERS[kind](column, cell)
    if kind == "category":
        return [float(value == place) for place in range(column["width"])]
    main = [value]
    if kind == "angle":
        turn = 2 * math.pi * (value % column["period"]) / column["period"]
        main = [math.sin(turn), math.cos(turn)]
    return [*main, float(is_missing)] if column["has_indicator"] else main


def _is_missing(cell: Any) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and cell.strip().lower() in BLANKS)


def _is_marked(cell: Any, marks: Sequence[str]) -> bool:
    """Return whether a cell holds what stands for a missing value in the tables of the model, such as - or 999."""
    if not marks:
        return False
    number = _as_number(cell)
    return str(cell).strip() in marks or (number is not None and number in map(_as_number, marks))


def _as_number(cell: Any) -> float | None:
    try:
        return None if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def _level(cell: Any) -> str:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and abs(cell) < math.inf and cell == int(cell):
        return str(int(cell))
    text = str(cell).strip()
    return text.lower() if text in ("True", "False", "TRUE", "FALSE") else text


def _read_category(column: Mapping[str, Any], cell: Any) -> float:
    """Return the place of a level; that of all others, or none, if it is not known."""
    levels, level = column["levels"], _level(cell)
    return float(levels.index(level)) if level in levels else float(len(levels)) if column["has_other"] else -1.0


def _read_ordinal(column: Mapping[str, Any], cell: Any) -> float:
    levels = column["levels"]
    if _level(cell) not in levels:
        raise UnanswerableError(f"{column['name']} must be one of {', '.join(levels)}, but it is {cell!r}")
    return float(levels.index(_level(cell)))


def _read_boolean(column: Mapping[str, Any], cell: Any) -> float:
    text = _level(cell).lower()
    if text not in TRUE | FALSE:
        raise UnanswerableError(f"{column['name']} must be true or false, but it is {cell!r}")
    return float(text in TRUE)


def _read_elapsed(column: Mapping[str, Any], cell: Any) -> float:
    """Return the time since the episode began: none, as a row that stands alone begins its episode."""
    name = column["name"]
    if isinstance(cell, (str, bool)):
        try:
            datetime.fromisoformat(str(cell).strip().replace("Z", "+00:00"))
        except ValueError:
            raise UnanswerableError(f"{name} must be a time, but it is {cell!r}") from None
    elif not isinstance(cell, date):
        number_in(cell, name)
    return 0.0


KINDS = ("number", "category", "ordinal", "boolean", "elapsed", "vector", "angle")  # of columns
_READERS: dict[str, Callable[[Mapping[str, Any], Any], float]] = {
    "number": lambda column, cell: number_in(cell, column["name"]),
    "angle": lambda column, cell: number_in(cell, column["name"]),
    "category": _read_category,
    "ordinal": _read_ordinal,
    "boolean": _read_boolean,
    "elapsed": _read_elapsed,
}


def decoded(column: Mapping[str, Any], values: list[float]) -> Any:
    """Return the cell behind state variables; None where it was missing."""
    if column["kind"] == "vector":
        return values
    if column["kind"] == "category":
        place = max(range(len(values)), key=values.__getitem__)
        return column["shown"][place] if values[place] > 0 else "(other)"
    if column["has_indicator"] and values[-1] > 0.5:
        return None
    main = values[0]
    if column["kind"] == "angle":
        angle = math.atan2(values[0], values[1]) * column["period"] / (2 * math.pi)
        main = column["lowest"] + (angle - column["lowest"]) % column["period"]
    number = float(f"{main:.12g}")
    if column["kind"] == "ordinal":
        return column["levels"][min(max(round(number), 0), len(column["levels"]) - 1)]
    return number


# An expression is a tree: {"value": 5}, {"column": "map"}, or {"call": "<", "operands": [...]}.


def holds(node: Mapping[str, Any], cells: Mapping[str, Any]) -> bool:
    """Return whether a rule holds for the cells of one row."""
    return bool(_value(node, cells) == 1)


def _value(node: Mapping[str, Any], cells: Mapping[str, Any]) -> Any:
    """Return the value of an expression: a number, a text, true or false; NaN where it is missing."""
    if "value" in node:
        return node["value"]
    if "column" in node:
        cell = cells[node["column"]]
        return math.nan if cell is None else cell
    operands = [_value(operand, cells) for operand in node["operands"]]
    return _OPERATIONS[node["call"]](*operands)


def _differ(one: Any, other: Any) -> bool:
    return bool(one == one and other == other and one != other)


def _extreme(choose: Callable[[Any], float], values: tuple[float, ...]) -> float:
    return math.nan if any(value != value for value in values) else choose(values)


def _truth(value: Any) -> float:
    """Return 1 or 0; NaN where it is missing."""
    return math.nan if value != value else float(value == 1)


def _ratio(one: float, other: float) -> float:
    if other != 0:
        return one / other
    return math.nan if one == 0 or one != one else math.copysign(math.inf, one) * math.copysign(1.0, other)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "==": lambda one, other: one == other,
    "!=": _differ,
    "in": lambda one, *others: any(one == other for other in others),
    "is_missing": lambda one: one != one,
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": _ratio,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
    "and": lambda one, other: 0.0 if 0.0 in (_truth(one), _truth(other)) else _truth(one) * _truth(other),
    "or": lambda one, other: 1.0 if 1.0 in (_truth(one), _truth(other)) else _truth(one) + _truth(other),
    "not": lambda one: 1.0 - _truth(one),
    "negative": lambda one: -one,
    "abs": abs,
    "min": lambda *each: _extreme(min, each),
    "max": lambda *each: _extreme(max, each),
    "where": lambda holds, yes, no: holds if holds != holds else yes if holds == 1 else no,
}
