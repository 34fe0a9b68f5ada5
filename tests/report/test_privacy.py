"""By default the page holds no row of the log, and it says what page and model hold."""

import csv
import json
import re

import numpy as np
import pytest

from kbrl import KBSF, Variant, coverage, load_log
from kbrl.report import write_report
from kbrl.report.lookup import MOST_LETTERS, look_up, what_it_keeps
from samples import random_log
from tests.report.conftest import COLUMNS


def plain(page):
    """The page without its pictures and scripts."""
    return re.sub(r"data:image/svg[^\"]*|<script.*?</script>", "", page, flags=re.DOTALL)


def rows_found(page, rows):
    """Rows of the log of which identifier, or age and score together, are in one row of a table of the page."""
    lines = re.findall(r"<tr>.*?</tr>", plain(page), flags=re.DOTALL)
    shown = [set(re.findall(r"value=\"([^\"]*)\"|>(p\d+)<", line)) for line in lines]
    words = [{word for pair in found for word in pair} for found in shown]
    return [row for row in rows if any(row[0] in found or {row[2], row[3]} <= found for found in words)]


def test_no_row_of_the_log_is_in_the_page_unless_asked_for(private, ward):
    with open(ward.log, encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    assert rows_found(private.text, rows) == []
    assert len(rows_found(ward.text, rows)) >= 3  # so that the search is one that finds rows


def test_rows_are_shown_only_if_asked_for(private, ward):
    assert private.facts.examples == ()
    assert "look-up-cases" not in private.text.replace('getElementById("look-up', "")[: private.text.index("<script")]
    assert '"logged"' not in private.text[: private.text.index("use strict")]
    assert ward.facts.examples
    assert '<table id="look-up-cases">' in ward.text
    assert "This page shows no row of the log" in private.text
    assert "This page shows rows of the log" in ward.text


def test_the_page_counts_representative_states_that_stand_for_few_rows(tmp_path):
    log = random_log(60, n_dims=2, n_actions=2, seed=1)
    model = KBSF(20, random_state=0).fit(log).model_
    write_report(model, log, tmp_path / "page.html")
    counts = np.bincount(coverage(model, log.states).nearest, minlength=20)
    n_small = int((counts < 5).sum())
    text = " ".join((tmp_path / "page.html").read_text(encoding="utf-8").split())
    assert f"{n_small} of 20 stand for fewer than 5 rows" in text


@pytest.mark.parametrize(
    "options, kept",
    [
        ({}, []),
        ({"reps": "random"}, ["logged states"]),
        ({"sample_neighbors": 5}, ["next states and rewards"]),
        ({"variant": Variant(q_function="samples")}, ["all transitions"]),
    ],
)
def test_what_a_model_keeps_of_the_log_is_said(ward, tmp_path, options, kept):
    log = load_log(ward.log, columns=COLUMNS)
    model = KBSF(**{"n_reps": 15, "random_state": 0} | options).fit(log).model_
    found = what_it_keeps(model)
    assert [word for word in kept if any(word in text for text in found)] == kept
    assert bool(found) == bool(kept)
    if "sample_neighbors" in options:
        return
    write_report(model, log, tmp_path / "page.html")
    text = " ".join((tmp_path / "page.html").read_text(encoding="utf-8").split())
    assert ("The model's file holds parts of the log" in text) == bool(kept)
    assert ("This page cannot look up cases" in text) == bool(kept)


def test_the_data_of_the_look_up_hold_no_outcome_and_cannot_leave_their_element():
    log = random_log(200, n_dims=2, n_actions=2)
    model = KBSF(10, random_state=0).fit(log).model_
    found = look_up(model, ["</script><b>", "y"], ["<i>", "b"], None)
    assert "<" not in found.data
    assert ">" not in found.data
    facts = json.loads(found.data)
    assert facts["names"] == ["</script><b>", "y"]
    assert "logged" not in facts
    assert not set(facts) & {"rewards", "episodes", "actions", "states"}


def test_a_model_that_is_too_large_for_a_small_page_has_no_look_up():
    log = random_log(3000, n_dims=8, n_actions=4)
    big = KBSF(2500, sample_width=1.0, reps=np.random.default_rng(0).random((2500, 8))).fit(log).model_
    small = look_up(KBSF(20, random_state=0).fit(log).model_, list("abcdefgh"), list("abcd"), None)
    assert len(small.data) <= MOST_LETTERS
    assert "need more room" in look_up(big, list("abcdefgh"), list("abcd"), None).reason


def test_without_its_pictures_the_page_is_below_200_kb(private, ward):
    for page in (private.text, ward.text):
        assert len(re.sub(r"data:image/svg[^\"]*", "", page).encode()) < 200_000
