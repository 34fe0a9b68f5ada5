"""A small language over the columns of a table: ``-0.1 * sofa + 5 * (outcome == 'discharged')``.

Rewards, ends of episodes and allowed actions are written in it.  A text is parsed into a tree of frozen records, the
types are checked before any row is read, and the tree is evaluated on whole columns.  Nothing is run as Python.
A comparison with a missing value is false, also ``!=``; a sum or product with one is missing.  So is ``and``, ``or`` or
``not`` of a flag that is missing, unless the other operand decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers

Type = Literal["number", "text", "truth"]
LONGEST, DEEPEST = 2000, 50  # the longest expression, in characters, and the deepest nesting of parentheses
MOST_JOINED = 200  # operands of which each needs the result before it, as in a + b + c
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|`(?P<quoted>[^`]+)`|(?P<name>[^\W\d][\w.]*)|(?P<sign><=|>=|==|!=|<>|[-+*/<>(),=&|^%!]))"
)
_INSTEAD = {"=": "==", "&": "and", "|": "or", "!": "not", "<>": "!=", "^": "x * x", "%": "no sign for it"}
_LEVELS = {"or": 1, "and": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "in": 4, "not in": 4,
           "+": 5, "-": 5, "*": 6, "/": 6}  # fmt: skip
_NOT, _MINUS = 3, 7  # levels of what stands before one operand


class ExpressionError(ValueError):
    """A text that is not an expression, or whose types do not fit."""


@dataclass(frozen=True, eq=False)
class Coded:
    """The texts of a column: for each row the place of its text, -1 if it is missing."""

    codes: Integers  # (n,)
    values: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def where(self, holds: Callable[[Any], bool]) -> Booleans:
        """Return the rows whose text has a property, (n,); a missing one has none."""
        return np.array([*map(holds, self.values), False], dtype=bool)[self.codes]


Cells = Floats | Coded  # a column: numbers with NaN where one is missing, or texts


@dataclass(frozen=True)
class Constant:
    """A number, a text, true or false."""

    value: float | str | bool


@dataclass(frozen=True)
class Name:
    """A column."""

    name: str


@dataclass(frozen=True)
class Call:
    """An operator or a function of some operands."""

    function: str
    operands: tuple[Node, ...]


Node = Constant | Name | Call


@dataclass(frozen=True)
class Expression:
    """An expression that was parsed and whose types fit.

    >>> reward = parse("-0.1 * sofa + 5 * (outcome == 'home')")
    >>> reward.columns, reward.type
    ({'outcome': 'text', 'sofa': 'number'}, 'number')
    >>> outcome = Coded(np.array([0, 1]), ("home", "died"))
    >>> reward.numbers({"sofa": np.array([2.0, 10.0]), "outcome": outcome}).tolist()
    [4.8, -1.0]
    """

    text: str
    tree: Node
    columns: dict[str, Type]  # the columns that it reads, and what their cells must be
    type: Type

    def numbers(self, columns: Mapping[str, Cells]) -> Floats:
        """Return the value in each row, (n,); true is 1, false is 0."""
        return np.array(self._evaluated(columns), dtype=np.float64) + 0.0  # no -0, which people would see

    def truths(self, columns: Mapping[str, Cells]) -> Booleans:
        """Return the rows in which it holds, (n,)."""
        return np.asarray(self._evaluated(columns)) == 1

    def gaps(self, columns: Mapping[str, Cells]) -> dict[str, Booleans]:
        """Return the columns whose missing values leave it without a value, with the rows, (n,), where they do.

        >>> risk = parse("where(is_missing(bonus), 0, bonus) - risk")
        >>> found = risk.gaps({"bonus": np.array([np.nan, 1.0]), "risk": np.array([2.0, np.nan])})
        >>> {name: rows.tolist() for name, rows in found.items()}
        {'risk': [False, True]}
        """
        without: Booleans = np.isnan(self.numbers(columns))
        found: dict[str, Any] = {}
        for name, rows in _gaps(self.tree, columns):
            found[name] = found.get(name, False) | (np.broadcast_to(rows, without.shape) & without)
        return {name: rows for name, rows in found.items() if rows.any()}

    def _evaluated(self, columns: Mapping[str, Cells]) -> Array:
        n_rows = len(next(iter(columns.values())))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.broadcast_to(np.asarray(_value(self.tree, columns)), (n_rows,))


def parse(text: str, wanted: Type | None = None) -> Expression:
    """Parse an expression; ``wanted`` is the type that it must have."""
    if not isinstance(text, str) or not text.strip():
        raise ExpressionError(f"An expression must be a text such as 'map < 65', but it is {text!r}.")
    if len(text) > LONGEST:
        raise ExpressionError(f"An expression may have at most {LONGEST} characters, but one has {len(text)}.")
    tree = _Parser(text).tree()
    _check_depth(tree)
    types: dict[str, Type] = {}
    _collect(tree, types)
    found = _type_of(tree, types, text, wanted)
    for name in _names(tree):  # columns that are only tested for missing values
        types.setdefault(name, "text")
    if wanted is not None and found != wanted and not (wanted == "number" and found == "truth"):
        raise ExpressionError(f"{text!r} must be a {wanted}, but it is a {found}.")
    return Expression(text, tree, types, found)


def _check_depth(tree: Node) -> None:
    """Refuse a tree that is too deep to be followed by recursion; chains within chains add up."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MOST_JOINED:
            raise ExpressionError(
                f"An expression may join {MOST_JOINED} operands in a row, also across parentheses, but one joins more."
            )
        waiting += [(operand, depth + 1) for operand in node.operands] if isinstance(node, Call) else []


class _Token(NamedTuple):
    kind: str
    text: str
    place: int  # of its first character, from 1


class _Parser:
    """Recursive descent with levels of precedence."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [*_tokens(text), _Token("end", "the end", len(text) + 1)]
        self._next, self._depth = 0, 0

    def tree(self) -> Node:
        node = self._expression(0)
        if self._token.kind != "end":
            self._refuse("an operator or the end")
        return node

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *texts: str) -> str | None:
        """Return the sign or word, if it is the next one, and move past it."""
        token = self._token
        if token.kind in ("sign", "name") and token.text in texts:
            self._next += 1
            return token.text
        return None

    def _expect(self, text: str) -> None:
        if self._take(text) is None:
            self._refuse(f"{text!r}")

    def _refuse(self, wanted: str) -> NoReturn:
        token = self._token
        instead = _INSTEAD.get(token.text) if token.kind == "sign" else None
        hint = f" Instead of {token.text!r} write {instead!r}." if instead else ""
        raise ExpressionError(
            f"{self._text!r} cannot be read: character {token.place} should start {wanted}, but it starts "
            f"{token.text!r}.{hint}"
        )

    def _expression(self, level: int) -> Node:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ExpressionError(f"An expression may be nested {DEEPEST} deep, but one is nested deeper.")
        left = self._operand()
        while (operator := self._operator(level)) is not None:
            left = self._joined(left, operator)
        self._depth -= 1
        return left

    def _operator(self, level: int) -> str | None:
        """Return the next operator, if it binds more strongly than ``level``, and move past it."""
        token = self._token
        following = self._tokens[min(self._next + 1, len(self._tokens) - 1)].text
        text = "not in" if token.text == "not" and following == "in" else token.text
        if token.kind not in ("sign", "name") or _LEVELS.get(text, 0) <= level:
            return None
        self._next += 2 if text == "not in" else 1
        return text

    def _joined(self, left: Node, operator: str) -> Node:
        if operator in ("in", "not in"):
            self._expect("(")
            among = Call("in", (left, *self._listed()))
            return among if operator == "in" else Call("not", (among,))
        right = self._expression(_LEVELS[operator])
        if _LEVELS[operator] == 4 and _LEVELS.get(self._token.text) == 4 and self._token.kind != "text":
            raise ExpressionError(f"{self._text!r}: write two comparisons joined by 'and', not one chain.")
        return Call(operator, (left, right))

    def _listed(self) -> Iterator[Node]:
        """Yield expressions with commas between them, up to the parenthesis that closes."""
        yield self._expression(0)
        while self._take(","):
            yield self._expression(0)
        self._expect(")")

    def _operand(self) -> Node:
        token = self._token
        if self._take("not"):
            return Call("not", (self._expression(_NOT),))
        if self._take("-"):
            return Call("negative", (self._expression(_MINUS),))
        if self._take("("):
            inner = self._expression(0)
            self._expect(")")
            return inner
        if token.kind == "sign" or token.kind == "end" or (token.kind == "name" and token.text in ("and", "or", "in")):
            self._refuse("a number, a text in quotes, a column or '('")
        self._next += 1
        if token.kind == "number":
            return Constant(float(token.text))
        if token.kind == "text":
            return Constant(token.text[1:-1])
        if token.kind == "name" and token.text.lower() in ("true", "false"):
            return Constant(token.text.lower() == "true")
        if token.kind == "name" and self._token.text == "(" and self._token.kind == "sign":
            return self._call(token)
        return Name(token.text)

    def _call(self, token: _Token) -> Node:
        if token.text not in _FUNCTIONS:
            known = ", ".join(_FUNCTIONS)
            raise ExpressionError(f"{self._text!r}: there is no function {token.text!r}. There are {known}.")
        self._expect("(")
        operands, (least, most) = tuple(self._listed()), _FUNCTIONS[token.text]
        if not least <= len(operands) <= most:
            wanted = f"{least}" if least == most else f"at least {least}"
            raise ExpressionError(f"{self._text!r}: {token.text} takes {wanted} operands, but it has {len(operands)}.")
        return Call(token.text, operands)


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None:
            start = place + len(text[place:]) - len(text[place:].lstrip())
            quote = text[start] in "'\"`"
            why = "opens a quotation that nothing closes" if quote else "is not part of the language"
            raise ExpressionError(f"{text!r} cannot be read: character {start + 1}, {text[start]!r}, {why}.")
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind], found.start(kind) + 1)
        place = found.end()


_NEVER_MISSING = ("==", "!=", "in", "<", "<=", ">", ">=", "is_missing")
_FUNCTIONS = {"abs": (1, 1), "min": (2, 99), "max": (2, 99), "where": (3, 3), "is_missing": (1, 1)}


def _collect(node: Node, types: dict[str, Type]) -> None:
    """Note the columns whose type another operand tells: that of a comparison with a constant."""
    if not isinstance(node, Call):
        return
    for operand in node.operands:
        _collect(operand, types)
    if node.function in ("==", "!=", "in"):
        constants = [operand.value for operand in node.operands if isinstance(operand, Constant)]
        for operand in node.operands:
            if isinstance(operand, Name) and constants:
                types.setdefault(operand.name, _constant_type(constants[0]))


def _names(node: Node) -> Iterator[str]:
    if isinstance(node, Name):
        yield node.name
    for operand in node.operands if isinstance(node, Call) else ():
        yield from _names(operand)


def _constant_type(value: float | str | bool) -> Type:
    return "truth" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _type_of(node: Node, types: dict[str, Type], text: str, wanted: Type | None) -> Type:
    """Return the type of a node, which should be ``wanted``; the type of a column is that of its first use."""
    if isinstance(node, Constant):
        return _constant_type(node.value)
    if isinstance(node, Name):
        return types.setdefault(node.name, wanted or "number")
    if node.function == "is_missing":
        if not isinstance(node.operands[0], Name):
            raise ExpressionError(f"{text!r}: is_missing takes the name of a column.")
        return "truth"
    if node.function in ("and", "or", "not"):
        _require(node.operands, "truth", node.function, types, text)
        return "truth"
    if node.function == "where":
        _require(node.operands[:1], "truth", "where", types, text)
        _require(node.operands[1:], "number", "where", types, text)
        return "number"
    if node.function in ("==", "!=", "in"):
        first = _type_of(node.operands[0], types, text, None)
        _require(node.operands[1:], first, node.function, types, text)
        return "truth"
    _require(node.operands, "number", node.function, types, text)
    return "truth" if node.function in ("<", "<=", ">", ">=") else "number"


def _require(operands: tuple[Node, ...], wanted: Type, function: str, types: dict[str, Type], text: str) -> None:
    for operand in operands:
        found = _type_of(operand, types, text, wanted)
        is_flag = (wanted, found) == ("truth", "number") and isinstance(operand, Name)
        if found == wanted or is_flag or (wanted, found) == ("number", "truth"):
            continue
        what = f"the column {operand.name!r}" if isinstance(operand, Name) else "an operand"
        shown = {"negative": "-"}.get(function, function)
        raise ExpressionError(f"{text!r}: {shown!r} needs a {wanted}, but {what} is a {found} there.")


def _value(node: Node, columns: Mapping[str, Cells]) -> Any:
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Name):
        return columns[node.name]
    if node.function == "is_missing":
        cells = _value(node.operands[0], columns)
        return cells.codes < 0 if isinstance(cells, Coded) else np.isnan(cells)
    if node.function in ("==", "!=", "in"):
        first, *rest = (_value(operand, columns) for operand in node.operands)
        equal = reduce(np.logical_or, [_equal(first, other) for other in rest])
        return equal if node.function != "!=" else ~equal & ~_missing(first) & ~_missing(rest[0])
    operands = [_value(operand, columns) for operand in node.operands]
    if node.function in ("and", "or", "not"):
        operands = [_truth(operand) for operand in operands]
    return _OPERATIONS[node.function](*[np.asarray(o, float) if np.asarray(o).dtype == bool else o for o in operands])


def _equal(one: Any, other: Any) -> Any:
    if isinstance(other, Coded) and not isinstance(one, Coded):
        one, other = other, one
    if not isinstance(one, Coded):
        return np.asarray(one) == np.asarray(other)
    if not isinstance(other, Coded):
        return one.where(lambda value: value == other)
    places = {value: place for place, value in enumerate(one.values)}
    same = np.array([places.get(value, -2) for value in other.values] + [-2])[other.codes]
    return one.codes == same


def _truth(value: Any) -> Floats:
    """Return 1 or 0, and NaN where a flag is missing."""
    numbers = np.asarray(value, dtype=np.float64)
    return np.where(np.isnan(numbers), np.nan, numbers == 1)


def _gaps(node: Node, columns: Mapping[str, Cells]) -> Iterator[tuple[str, Any]]:
    """Yield the columns whose missing values make this node missing, and in which rows they may."""
    if isinstance(node, Name):
        yield node.name, _missing(columns[node.name])
    if not isinstance(node, Call) or node.function in _NEVER_MISSING:
        return
    for place, operand in enumerate(node.operands):
        asked = True
        if node.function == "where" and place:
            asked = _value(node.operands[0], columns) == (place == 1)
        for name, rows in _gaps(operand, columns):
            yield name, rows & asked


def _missing(cells: Any) -> Any:
    if isinstance(cells, Coded):
        return cells.codes < 0
    return np.isnan(cells) if isinstance(cells, (float, np.ndarray)) else np.False_


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "and": lambda one, other: np.where((one == 0) | (other == 0), 0.0, one * other),
    "or": lambda one, other: np.where((one == 1) | (other == 1), 1.0, one + other),
    "not": lambda one: 1.0 - one,
    "negative": np.negative,
    "abs": np.abs,
    "min": lambda *each: reduce(np.minimum, each),
    "max": lambda *each: reduce(np.maximum, each),
    "where": lambda holds, yes, no: np.where(np.isnan(holds), np.nan, np.where(np.equal(holds, 1), yes, no)),
}


def filled_in(text: str, constants: Mapping[str, float]) -> str:
    """Return an expression in which a constant stands for the missing values of some columns.

    >>> filled_in("bonus - 2 * risk", {"bonus": 0})
    'where(is_missing(`bonus`), 0, `bonus`) - 2 * risk'
    """
    parts, end, tokens = [], 0, list(_tokens(text))
    for token, before in zip(tokens, [None, None, *tokens]):
        is_asked = before is not None and before.text == "is_missing"  # it, a parenthesis, the column
        if token.kind in ("name", "quoted") and token.text in constants and not is_asked:
            start = token.place - 1 - (token.kind == "quoted")
            column = f"`{token.text}`"
            parts += [text[end:start], f"where(is_missing({column}), {constants[token.text]:.17g}, {column})"]
            end = start + len(token.text) + 2 * (token.kind == "quoted")
    return "".join([*parts, text[end:]])
