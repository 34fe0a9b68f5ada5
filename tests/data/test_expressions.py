"""Expressions give what plain Python gives, row by row, and what cannot be read is refused with the reason."""

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbrl.data.expressions import Coded, ExpressionError, parse

NAN = float("nan")
ROWS = [
    {"sofa": 2.0, "map": 60.0, "outcome": "home", "flag": 1.0, "odd name": 3.0},
    {"sofa": 10.0, "map": 70.0, "outcome": "died", "flag": 0.0, "odd name": -1.0},
    {"sofa": NAN, "map": 65.0, "outcome": None, "flag": NAN, "odd name": 0.0},
]


def cells(rows=ROWS):
    texts = sorted({row["outcome"] for row in rows if row["outcome"] is not None})
    codes = np.array([-1 if row["outcome"] is None else texts.index(row["outcome"]) for row in rows])
    numbers = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "outcome"}
    return numbers | {"outcome": Coded(codes, tuple(texts))}


WORKED_OUT = {
    "-0.1 * sofa + 5 * (outcome == 'home')": [4.8, -1.0, NAN],
    "2 - 3 - 4": [-5, -5, -5],
    "2 - 3 * 4 / 6": [0, 0, 0],
    "-sofa * 2": [-4, -20, NAN],
    "-(sofa - 1)": [-1, -9, NAN],
    "abs(`odd name`)": [3, 1, 0],
    "min(sofa, 5, map / 10)": [2, 5, NAN],
    "max(sofa, 5)": [5, 10, NAN],
    "where(is_missing(sofa), 0, sofa)": [2, 10, 0],
    "outcome in ('died', 'home')": [1, 1, 0],
    "outcome not in ('died')": [1, 0, 1],
    "outcome != 'home'": [0, 1, 0],
    "is_missing(outcome)": [0, 0, 1],
    "not sofa < 5": [0, 1, 1],
    "map < 65 or sofa > 5 and map > 100": [1, 0, 0],
    "(map < 65 or sofa > 5) and map > 100": [0, 0, 0],
    "map >= 60 and map <= 65": [1, 0, 1],
    "flag and map < 65": [1, 0, 0],
    "flag == true": [1, 0, 0],
    "1e2 + .5": [100.5, 100.5, 100.5],
    "sofa == 10": [0, 1, 0],
    "map in (60, 65)": [1, 0, 1],
}


@pytest.mark.parametrize("text", WORKED_OUT)
def test_an_expression_has_the_value_worked_out_by_hand(text):
    np.testing.assert_array_equal(parse(text).numbers(cells()), WORKED_OUT[text])


OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
LEAVES = {"sofa": lambda row: row["sofa"], "`odd name`": lambda row: row["odd name"], "0.5": lambda row: 0.5}


def joined(left, sign, right):
    return f"({left[0]} {sign} {right[0]})", lambda row: OPERATORS[sign](left[1](row), right[1](row))


def trees(depth):
    """Texts of expressions, each with a function of a row that says what it is worth."""
    leaves = st.sampled_from(list(LEAVES.items()))
    if depth == 0:
        return leaves
    minus = st.builds(lambda leaf: (f"-{leaf[0]}", lambda row: -leaf[1](row)), leaves)
    return leaves | minus | st.builds(joined, trees(depth - 1), st.sampled_from("+-*"), trees(depth - 1))


@given(trees(3))
def test_arithmetic_is_that_of_plain_functions(tree):
    text, twin = tree
    np.testing.assert_allclose(parse(text).numbers(cells(ROWS[:2])), [twin(row) for row in ROWS[:2]])


REFUSED = {
    "outcome = 'home'": "character 9 should start an operator or the end, but it starts '='. Instead of '=' write '=='",
    "sofa <": "character 7 should start a number, a text in quotes, a column or '(', but it starts 'the end'",
    "(sofa": "character 6 should start ')'",
    "sofa 3": "character 6 should start an operator or the end, but it starts '3'",
    "60 < map < 65": "write two comparisons joined by 'and', not one chain",
    "outcome + 1": "'+' needs a number, but the column 'outcome' is a text there",
    "outcome == 'home' and outcome > 3": "'>' needs a number, but the column 'outcome' is a text there",
    "sofa > 'x'": "'>' needs a number, but an operand is a text there",
    "sofa and outcome == 'x' & 3": "Instead of '&' write 'and'",
    "1 and 2": "'and' needs a truth, but an operand is a number there",
    "'home": "opens a quotation that nothing closes",
    "sofa ? 2": "character 6, '?', is not part of the language",
    "__import__('os')": "there is no function '__import__'. There are abs, min, max, where, is_missing",
    "abs(1, 2)": "abs takes 1 operands, but it has 2",
    "sofa in 3": "should start '('",
    "is_missing(1)": "is_missing takes the name of a column",
    "": "An expression must be a text such as",
    "1" + "+1" * 1000: "at most 2000 characters, but one has 2001",
    "1" + "+1" * 999: "may join 200 operands in a row",
    "(" * 5 + "1" + ("+1" * 190 + ")") * 5: "may join 200 operands in a row, also across parentheses",
    "(" * 60 + "1" + ")" * 60: "nested 50 deep",
    "not " * 60 + "flag": "nested 50 deep",
}
TEXTS = {"outcome + 1": "outcome == 'home' or outcome + 1 > 0"}  # what tells that it is a text


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_read_is_refused_with_the_place_and_the_rule(text):
    with pytest.raises(ExpressionError) as caught:
        parse(TEXTS.get(text, text))
    assert REFUSED[text] in str(caught.value)


def test_the_largest_expressions_that_can_be_read_can_also_be_computed():
    sums = "a" + "+a" * 199
    assert parse(sums).numbers({"a": np.ones(3)}).tolist() == [200.0] * 3
    deep = "(" * 45 + "a" + "+1)" * 45
    assert parse(deep).numbers({"a": np.zeros(2)}).tolist() == [45.0, 45.0]


def test_a_text_where_a_truth_is_wanted_is_refused():
    with pytest.raises(ExpressionError, match=r"'sofa \+ 1' must be a truth, but it is a number"):
        parse("sofa + 1", "truth")


def test_the_columns_and_their_types_are_known_before_any_row_is_read():
    assert parse("where(died, -1, 0) + (unit == 'icu') * `a b`").columns == {
        "died": "truth",
        "unit": "text",
        "a b": "number",
    }
