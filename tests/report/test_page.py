"""The page is whole, safe and can be read by anybody: nothing from elsewhere, names for pictures, enough contrast."""

import base64
import doctest
import hashlib
import itertools
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import kbrl.report
from kbrl import KBSF, Transitions, Variant, load_model
from kbrl.report import drawing, render, words, write_report
from samples import random_log

VOID = {"img", "meta", "input"}
STYLE, SCRIPT_OF_OURS = (
    files("kbrl.report").joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "page.js")
)


class Tree(HTMLParser):
    """The elements of a page: (tag, attributes, text) in order; every element must be closed where it should be."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), ""])
        assert len(attrs) == len(dict(attrs))
        if tag not in VOID:
            self._open.append(self.elements[-1])

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag

    def handle_data(self, data):
        for element in self._open:
            element[2] += data

    def all(self, *tags):
        return [element for element in self.elements if element[0] in tags]


def on_one_line(text):
    """Return a text as a browser shows it: any white space is one space."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def tree(ward):
    return Tree(ward.text)


def test_the_page_is_one_document_in_english_with_a_title(ward, tree):
    assert ward.text.startswith("<!DOCTYPE html>\n<html lang=")
    assert tree.elements[0][1] == {"lang": "en"}
    assert tree.all("title")[0][2] == "What was learnt from ward.csv"
    assert len(tree.all("h1")) == len(tree.all("main")) == 1
    assert len(ward.text) < 2_000_000


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_run_but_our_own_script(tree):
    assert not tree.all("link", "iframe", "object", "embed", "base")
    data, script = tree.all("script")
    assert data[1] == {"type": "application/json", "id": "look-up-data"}
    assert (script[1], script[2]) == ({}, SCRIPT_OF_OURS)
    for word in ("fetch", "XMLHttpRequest", "WebSocket", "import(", "eval", "innerHTML", "Function(", "http"):
        assert word not in SCRIPT_OF_OURS
    for _, attributes, _ in tree.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "srcset", "style"):
            assert attributes.get(name, "#").startswith(("#", "data:image/svg+xml;base64,"))
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    policy = next(a["content"] for _, a, _ in tree.all("meta") if "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(SCRIPT_OF_OURS.encode()).digest()).decode()
    rest = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert policy == f"{rest}; script-src 'sha256-{digest}'"


def test_pictures_are_sound_and_refer_to_nothing_outside(tree):
    pictures = [attributes["src"].partition(",")[2] for _, attributes, _ in tree.all("img")]
    assert len(pictures) == 10  # actions, distances, support, three maps of two, representative states
    for picture in pictures:
        drawn = ElementTree.fromstring(base64.b64decode(picture))
        for part in drawn.iter():
            for name, value in part.attrib.items():
                assert not name.endswith("href") or value.startswith(("#", "data:image/png;base64,"))
            assert not part.tag.endswith("}script")


def test_names_from_the_data_are_text(ward, tree):
    assert ward.text.count("<script") == 2  # the data of the look-up, and our own
    assert "</script>document" not in ward.text
    assert "onerror=alert(1)>" not in ward.text.replace("&gt;", "")
    assert any("<script>document.title" in text for _, _, text in tree.all("th"))
    assert any(text == "<img src=x onerror=alert(1)>" for _, _, text in tree.all("th"))


def test_headings_are_in_order_and_links_lead_to_sections(tree):
    levels = [int(tag[1]) for tag, _, _ in tree.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes, _ in tree.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [attributes["href"][1:] for _, attributes, _ in tree.all("a")]
    skip, *links = targets
    assert links == [attributes["id"] for _, attributes, _ in tree.all("section")]  # each section has its link
    assert skip == links[0]


def test_every_picture_says_what_it_shows(tree):
    alts = [attributes["alt"] for _, attributes, _ in tree.all("img")]
    assert all(len(alt) > 40 for alt in alts)
    assert len(set(alts)) == len(alts)
    assert len(tree.all("figcaption")) == len(alts)
    assert any("wait 4" in alt and "recommended" in alt for alt in alts)


def test_every_table_has_a_caption_scopes_and_a_container_to_scroll_in(ward, tree):
    tables = re.findall(r"<table.*?</table>", ward.text, flags=re.DOTALL)
    assert len(tables) == len(tree.all("caption")) > 8
    for text in tables:
        head, body = text.split("</thead>")
        assert "<caption>" in head
        if text.startswith('<table id="look-up-'):  # filled by the script
            assert "<tbody></tbody>" in body
            continue
        n_columns = head.count('<th scope="col"')
        rows = re.findall(r"<tr>.*?</tr>", body, flags=re.DOTALL)
        assert all(row.startswith('<tr><th scope="row">') for row in rows)
        assert all(row.count("<td") + 1 == n_columns for row in rows)
    regions = [a for _, a, _ in tree.all("div") if a.get("class") == "scroll"]
    assert len(regions) == len(tables)
    assert all(a["tabindex"] == "0" and a["role"] == "region" and a["aria-label"] for a in regions)


def luminance(colour):
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_the_guidelines():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the textbook's example of just too little


def test_all_text_has_a_contrast_of_four_and_a_half():
    named = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", STYLE))
    texts = set(re.findall(r"[;{ ]color: var\(--([\w-]+)\)", STYLE))
    assert {"ink", "quiet", "accent", "caution", "paper"} == texts
    assert contrast(named["paper"], named["accent"]) >= 4.5  # on a button
    assert contrast(named["caution"], named["paper"]) >= 4.5
    for text in texts - {"caution", "paper"}:
        for ground in ("paper", "tint", "line"):  # line: the shadow at the edge of a table
            assert contrast(named[text], named[ground]) >= 4.5
    assert contrast(named["caution"], named["caution-tint"]) >= 4.5
    assert not re.findall(r"(?:color|background): #", STYLE)  # colours have names, so none is forgotten here


def test_pictures_have_contrast_too():
    for text in (drawing.INK, drawing.QUIET):
        assert contrast(text, "#ffffff") >= 4.5
    for colour in (drawing.ACCENT, drawing.PALE, *drawing.LINE_COLOURS):
        assert contrast(colour, "#ffffff") >= 3
    for colour in (*drawing.COLOURS, drawing.OTHERS):  # markers lie on them
        assert contrast(drawing.INK, colour) >= 4.5
    assert len(drawing.COLOURS) == len(set(drawing.COLOURS)) == len(set(drawing.MARKERS))


def test_every_setting_is_listed_and_explained(ward):
    settings = {setting.name: setting for setting in ward.facts.model.settings}
    names = {name.replace("__", ".") for name in KBSF().get_params()} - {"growth", "variant", "solver", "plan"}
    assert set(settings) == names
    assert [name for name in settings if not settings[name].is_default] == [
        "n_reps",
        "sample_width",
        "rep_width",
        "random_state",
    ]
    for name, setting in settings.items():
        assert len(setting.meaning) > 15
        assert f'<th scope="row">{name}</th><td>{setting.value}</td>' in ward.text


def test_the_same_facts_make_the_same_page(ward):
    assert render(ward.facts) == ward.text


@pytest.mark.parametrize(
    ("log", "options"),
    [
        (random_log(1, n_dims=2, n_actions=1), {}),
        (random_log(200, n_dims=1, n_actions=9), {}),
        (random_log(200, n_dims=2, n_actions=2), {"sample_width": 1e-8, "rep_width": 1e-8}),
        (random_log(150, n_dims=9, n_actions=50), {"sample_neighbors": 3, "rep_neighbors": 2, "min_cases": 1}),
        (random_log(200, n_dims=2, scale=1e100, levels=2), {"variant": Variant(aggregation="hard")}),
    ],
    ids=["one row", "one variable", "tiny widths", "many actions and variables", "huge numbers"],
)
def test_odd_logs_get_a_sound_page(log, options, tmp_path):
    model = KBSF(min(15, len(log)) if len(np.unique(log.next_states, axis=0)) > 15 else 1, random_state=0, **options)
    write_report(model.fit(log), log, tmp_path / "report.html")
    tree = Tree((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert len(tree.all("section")) == len(tree.all("a")) - 1 == 13
    shown = [text for _, attributes, text in tree.all("section") if attributes["id"] != "settings"]  # norm may be inf
    assert not re.findall(r"\bnan\b|\binf\b", " ".join(shown))


def test_on_fourteen_rows_the_page_says_that_all_advice_has_little_support(tmp_path):
    log = random_log(14, n_actions=3, seed=1)
    model = KBSF(8, sample_width=0.5, rep_width=0.1, min_cases=1, random_state=0).fit(log)
    facts = write_report(model, log, tmp_path / "small.html")
    text = on_one_line((tmp_path / "small.html").read_text(encoding="utf-8"))
    assert "of the advice has little support (fewer than 5 cases)</dt><dd>100 %</dd>" in text
    assert "fewer than 5 logged cases of it around that state. This applies to 100 % of the recommendations" in text
    assert f"{facts.n_better_weak} rows in which the recommended action has little support" in text
    assert "Rows with the largest advantage" not in text
    assert "No other action has enough support anywhere to say what it is worth" in text
    assert "kernel mass" not in text.lower()


def test_what_is_at_stake_says_how_many_rows_are_left_out_for_want_of_support(ward, tree):
    assert "Rows with the largest advantage" in ward.text
    left = f"Left out: {ward.facts.n_better_weak} rows in which the recommended action has little support, fewer than 5"
    assert any(on_one_line(text).startswith(left) for _, _, text in tree.all("p"))


def test_a_model_that_did_not_count_its_cases_gets_a_page_that_says_so(tmp_path):
    model = load_model(Path(__file__).parent.parent / "format_1" / "sums.kbrl")
    states = np.random.default_rng(0).random((30, model.coordinates.n_dims))
    log = Transitions(states, model.predict(states), np.arange(30.0), states, action_labels=model.action_labels)
    write_report(model, log, tmp_path / "old.html")
    text = on_one_line((tmp_path / "old.html").read_text(encoding="utf-8"))
    assert "of the advice has little support (fewer than 5 cases)</dt><dd>not known</dd>" in text
    assert "For this model that is not known: its file does not say how many cases there were." in text
    assert "Support is not known" in text


@pytest.mark.parametrize("module", [kbrl.report, words], ids=lambda module: module.__name__)
def test_the_examples_in_docstrings_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = doctest.testmod(module)
    assert done.attempted > 0
    assert done.failed == 0
