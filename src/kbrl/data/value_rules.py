"""What the user says about the values of a table: missing ones, categories, classes of actions, allowed actions.

Each rule is written in three ways: as a dict in Python, as a table in TOML, and as ``name=value; name=value`` on the
command line.  What is not said is decided by the data, and a warning says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbrl.data.column_names import listing
from kbrl.data.expressions import ExpressionError, parse

WORDS = ("median", "forward", "drop", "level")  # rules for missing values; anything else is a constant
NAMES = ("missing", "category", "ordinal", "elapsed", "bins", "allowed")  # of rules, as users write them


@dataclass(frozen=True)
class Rules:
    """The rules that were stated."""

    missing: dict[str, str | float] = field(default_factory=dict)  # by column: one of WORDS, or a constant
    missing_elsewhere: str | float | None = None  # for all other columns of the state
    category: tuple[str, ...] = ()  # columns whose numbers are names of levels
    ordinal: dict[str, tuple[str, ...]] = field(default_factory=dict)  # levels from low to high, by column
    elapsed: dict[str, str] = field(default_factory=dict)  # the unit of the time since an episode began, by column
    bins: dict[str, Bins] = field(default_factory=dict)  # by action column
    allowed: dict[str, str] = field(default_factory=dict)  # an expression, by label of the action

    def missing_in(self, column: str) -> str | float | None:
        """Return the rule for missing values of a column; None if none was stated."""
        return self.missing.get(column, self.missing_elsewhere)

    def named(self) -> dict[str, list[str]]:
        """Return the columns of the state that rules name, by rule."""
        return {
            "missing": list(self.missing),
            "category": list(self.category),
            "ordinal": list(self.ordinal),
            "elapsed": list(self.elapsed),
        }


@dataclass(frozen=True)
class Bins:
    """How the numbers of an action become classes: by quantiles, or between edges of the user's."""

    n_quantiles: int = 0
    edges: tuple[float, ...] = ()
    zero_apart: bool = False  # 0, nothing given, is a class of its own


def rules_of(given: Mapping[str, Any]) -> Rules:
    """Return the rules in a mapping of names to what users write; other names are not looked at."""
    said = {name: given[name] for name in NAMES if given.get(name) is not None}
    missing = said.get("missing", {})
    single = not isinstance(missing, Mapping) and not (isinstance(missing, str) and "=" in missing)
    return Rules(
        missing={} if single else {k: _missing(v) for k, v in _pairs(missing, "missing").items()},
        missing_elsewhere=_missing(missing) if single and missing != {} else None,
        category=tuple(_names(said.get("category", ()))),
        ordinal={k: _levels(k, v) for k, v in _pairs(said.get("ordinal", {}), "ordinal").items()},
        elapsed={k: str(v) for k, v in _pairs(said.get("elapsed", {}), "elapsed").items()},
        bins={k: _bins(k, v) for k, v in _pairs(said.get("bins", {}), "bins").items()},
        allowed={str(k): _allowed(k, v) for k, v in _pairs(said.get("allowed", {}), "allowed").items()},
    )


def _pairs(given: Any, rule: str) -> dict[str, Any]:
    """Return what is said by column: a mapping, or a text such as map=forward; lactate=0."""
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    if not isinstance(given, str):
        raise TypeError(f"{rule} must map names to rules, but it is {given!r}.")
    found: dict[str, str] = {}
    for part in given.split(";"):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value or name in found:
            raise ValueError(f"{rule} must be written as name=value; name=value, each name once, but it is {given!r}.")
        found[name] = value
    return found


def _names(given: Any) -> list[str]:
    names = given.split(",") if isinstance(given, str) else list(given)
    return [str(name).strip() for name in names]


def _missing(given: Any) -> str | float:
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise TypeError(f"A rule for missing values must be {listing(WORDS)} or a constant, but it is {given!r}.")
    if isinstance(given, str) and given.strip() not in WORDS:
        try:
            return float(given)
        except ValueError:
            return given.strip()  # a level
    return given.strip() if isinstance(given, str) else float(given)


def _levels(column: str, given: Any) -> tuple[str, ...]:
    levels = tuple(_names(given.replace("<", ",") if isinstance(given, str) else given))
    if len(levels) < 2 or len(set(levels)) < len(levels) or "" in levels:
        raise ValueError(f"ordinal[{column!r}] must list different levels from low to high, but it is {given!r}.")
    return levels


def _bins(column: str, given: Any) -> Bins:
    """Read 4 (quantiles), '0+4' (and zero apart), or the edges between classes: '10,50' or [10, 50]."""
    rule = f"bins[{column!r}] must be a number of classes such as 4, '0+4' to set 0 apart, or edges such as [10, 50]"
    zero = isinstance(given, str) and given.replace(" ", "").startswith("0+")
    bare = given.replace(" ", "")[2:] if zero else given
    if isinstance(bare, str):
        bare = bare.split(",") if "," in bare else bare
    try:
        if isinstance(bare, (list, tuple)):
            edges = tuple(float(edge) for edge in bare)
            if not edges or list(edges) != sorted(set(edges)) or not all(abs(edge) < 1e100 for edge in edges):
                raise ValueError
            return Bins(edges=edges, zero_apart=zero)
        if isinstance(bare, bool) or int(bare) != float(bare) or not 1 + (not zero) <= int(bare) <= 100:
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"{rule}, but it is {given!r}.") from None
    return Bins(n_quantiles=int(bare), zero_apart=zero)


def _allowed(label: Any, given: Any) -> str:
    text = str(given).lower() if isinstance(given, bool) else given
    try:
        return parse(text, "truth").text
    except ExpressionError as error:
        raise ValueError(f"allowed[{str(label)!r}]: {error}") from None
