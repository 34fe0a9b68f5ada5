"""The form of the look-up: fields stand for the state variables that the recipe makes of cells."""

import numpy as np
import pytest

from kbrl import KBSF, open_log
from kbrl.data.recipe import Recipe
from kbrl.data.state_column import StateColumn
from kbrl.report.case_form import form_fields
from kbrl.report.facts import condition_text
from kbrl.report.inputs import open_inputs
from kbrl.report.rules import Condition
from messy_ward import COLUMNS, clean_log, with_holes

RECIPE = Recipe(
    (
        StateColumn("age"),
        StateColumn("lactate", missing="median", fill=2.5, has_indicator=True),
        StateColumn("unit", "category", ("icu", "ward"), has_other=True, missing="level"),
        StateColumn("severity", "ordinal", ("mild", "medium", "severe")),
        StateColumn("ventilated", "boolean"),
        StateColumn("hour", "angle", period=24.0),
    )
)


def values(field, text):
    """Return what page.js makes of a field: a choice, a number or nothing."""
    if field.choices:
        (found,) = [choice.values for choice in field.choices if choice.name == text]
        return [float(each) for each in found.split()]
    if text == "":
        return [float(each) for each in field.missing.split()]
    turn = None if field.period is None else 2 * np.pi * float(text) / field.period
    main = [float(text)] if turn is None else [np.sin(turn), np.cos(turn)]
    return main + [float(each) for each in field.after.split()]


@pytest.mark.parametrize(
    ("typed", "cells"),
    [
        (["61", "3.5", "icu", "mild", "no", "6"], [61.0, 3.5, "icu", "mild", False, 6.0]),
        (["40", "", "(missing)", "severe", "yes", "23.5"], [40.0, np.nan, None, "severe", True, 23.5]),
        (["40", "1", "(other)", "medium", "yes", "0"], [40.0, 1.0, "theatre", "medium", True, 0.0]),
    ],
)
def test_fields_make_the_state_variables_of_the_recipe(typed, cells):
    fields = form_fields(RECIPE, RECIPE.variables, [0.0] * len(RECIPE.variables), {})
    found = [each for field, text in zip(fields, typed) for each in values(field, text)]
    table = {name: np.array([cell], dtype=object) for name, cell in zip(RECIPE.names, cells)}
    table |= {name: np.array([cells[place]], dtype=float) for place, name in ((0, "age"), (1, "lactate"), (5, "hour"))}
    np.testing.assert_allclose(found, RECIPE.encode(table).rows[0], atol=1e-12)


def test_a_value_that_must_not_be_missing_has_no_rule_for_an_empty_field():
    age, lactate, *_ = form_fields(RECIPE, RECIPE.variables, [0.0] * len(RECIPE.variables), {"age": "years"})
    assert (age.title, age.missing, lactate.missing) == ("age (years)", "", "2.5 1")


@pytest.mark.filterwarnings("ignore::kbrl.checks.KbrlWarning")
def test_conditions_name_the_levels_of_an_ordinal_column():
    opened = open_log(with_holes(clean_log(40)), columns=COLUMNS)
    model = KBSF(10, discount=0.9, random_state=0).fit(opened.chunks()).model_
    inputs = open_inputs(model, opened, None)
    place = inputs.variables.index("severity")
    said = {
        (0.5, None): "severity is medium or higher",
        (None, 0.5): "severity is mild",
        (None, 1.5): "severity is medium or lower",
        (0.5, 1.5): "severity is medium",
        (1.0, None): "severity is medium or higher",
    }
    for (low, high), expected in said.items():
        assert condition_text(inputs, Condition(place, low, high)) == expected
