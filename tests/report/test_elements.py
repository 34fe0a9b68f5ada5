"""Elements of the page are escaped, and numbers and labels are written as people read them."""

import math
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from kbrl.report import environment
from kbrl.report.words import brief, cases, counted, listing, number, percent, plural, short


class Reader(HTMLParser):
    """Collects tags, texts and attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.attributes = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))

    def handle_data(self, data):
        self.texts.append(data)


def rendered(source, **values):
    """Render a piece of a template as the page does."""
    names = "section, table, words, numbers, cell, number, count, cases, share, figures"
    return environment().from_string(f'{{% from "elements.html.jinja" import {names} %}}{source}').render(**values)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
@settings(max_examples=100, deadline=None)
def test_any_text_comes_back_as_the_same_text_and_nothing_else(text):
    source = "{% call table('id', text) %}<thead><tr>{{ words(text) }}</tr></thead>{% endcall %}"
    read = Reader(rendered(source, text=text))
    assert read.tags == ["div", "table", "caption", "thead", "tr", "th"]
    assert "".join(read.texts).replace("\n", "") == text + text
    assert read.attributes[0]["aria-label"] == text


def test_a_name_that_a_template_does_not_know_is_an_error():
    with pytest.raises(UndefinedError, match="'n_row' is undefined"):
        rendered("{{ n_row }}")


def test_a_table_has_a_caption_scopes_and_exact_numbers():
    source = """{% call table("sizes", "What") %}
<thead><tr>{{ words("Name") }}{{ numbers("Size") }}</tr></thead>
<tbody><tr><th scope="row">{{ "<a>" }}</th>{{ number(1.23456) }}</tr></tbody>
<tfoot><tr><th scope="row">All</th>{{ number(none) }}</tr></tfoot>
{% endcall %}"""
    text = rendered(source)
    read = Reader(text)
    assert '<table id="sizes"><caption>What</caption>' in text
    assert [a.get("scope") for t, a in zip(read.tags, read.attributes) if t == "th"] == ["col", "col", "row", "row"]
    assert '<td class="number"><data value="1.23456">1.235</data></td>' in text
    assert '<td class="number">–</td>' in text
    assert "&lt;a&gt;" in text
    assert '<th scope="col" class="number">Size</th>' in text


def test_cells_show_rounded_numbers_and_hold_exact_ones():
    assert rendered("{{ share(1, 3) }}") == f'<td class="number"><data value="{1 / 3}">33.3 %</data></td>'
    assert rendered("{{ share(0, 0) }}") == '<td class="number">–</td>'
    assert rendered("{{ count(1200) }}") == '<td class="number"><data value="1200">1,200</data></td>'
    assert rendered("{{ cases(0.01) }}") == '<td class="number"><data value="0.01">&lt; 0.1</data></td>'
    assert rendered("{{ cell('not known') }}") == '<td class="number">not known</td>'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1, "1"), (-12, "-12"), (1234567, "1,234,567"), (0.5, "0.5000"), (1234.56, "1,235"), (1.0, "1"),
        (0.00001234, "1.234e-05"), (2e12, "2.000e+12"), (math.nan, "–"), (None, "–"), (-0.012345, "-0.01235"),
    ],
)  # fmt: skip
def test_numbers_have_four_digits(value, text):
    assert number(value) == text


def test_shares_are_never_rounded_to_none_or_all():
    assert [percent(x) for x in (0, 1e-9, 0.1234, 0.99999, 1)] == ["0 %", "< 0.1 %", "12.3 %", "> 99.9 %", "100 %"]
    assert percent(1, 0) == "–"


def test_numbers_of_cases_are_never_rounded_to_none():
    shown = [cases(x) for x in (0.0, 1e-9, 0.04, 0.25, 4.96, 9.97, 1234.4, math.nan)]
    assert shown == ["0", "< 0.1", "< 0.1", "0.2", "5.0", "10", "1,234", "not known"]


def test_words_are_those_of_a_sentence():
    assert plural(1, "row") == "1 row"
    assert plural(1200, "row") == "1,200 rows"
    assert listing(["a"]) == "a"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert listing(list("abcdef"), 4) == "a, b, c and 3 more"
    assert counted({"a": 1, "b": 2000}) == "a (1 row) and b (2,000 rows)"
    assert brief(0.1500) == "0.15"
    assert brief(1234.5) == "1,230"
    assert brief(-120) == "-120"
    assert short("a\x00b") == "a�b"
    assert short("x" * 40) == "x" * 21 + "…"
    assert short("") == "(empty)"
