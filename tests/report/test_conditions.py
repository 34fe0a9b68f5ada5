"""Conditions of rules, in words."""

from types import SimpleNamespace

import pytest

from kbrl.data.recipe import Recipe
from kbrl.data.state_column import StateColumn
from kbrl.report.facts import condition_text
from kbrl.report.rules import Condition

RECIPE = Recipe((StateColumn("age"), StateColumn("sex", "category", ("F", "M"), missing="level")))


@pytest.mark.parametrize(
    ("variable", "low", "high", "text"),
    [
        (0, None, 65.0, "age is below 65 years"),
        (0, 65.0, None, "age is 65 years or more"),
        (1, None, 0.5, "sex is not F"),
        (2, 0.5, None, "sex is M"),
        (3, 0.5, None, "sex is (missing)"),
    ],
)
def test_a_condition_on_a_category_names_its_level(variable, low, high, text):
    inputs = SimpleNamespace(variables=RECIPE.variables, units={"age": "years"}, model=SimpleNamespace(recipe=RECIPE))
    assert condition_text(inputs, Condition(variable, low, high)) == text
