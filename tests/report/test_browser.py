"""The report in a browser: no error, nothing fetched, all pictures drawn, no sideways scrolling, the right numbers.

The page is framed at the widths of a phone and of a desk.  A script in the copy under test looks at it from inside and
tells the outer page, whose text the browser prints.
"""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from kbrl import KBSF, Plan, Variant, agreement, coverage, load_log, with_agreement
from kbrl.report import write_report
from tests.report.conftest import COLUMNS

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --enable-logging=stderr --virtual-time-budget=20000"
)
WIDTHS = (360, 1200)
PROBE = """<script>
const errors = [];
addEventListener("error", event => errors.push(event.message || "not loaded: " + event.target.tagName), true);
function colours(image) {  // of a picture that lies inside the page; others cannot be looked into
  if (!image.naturalWidth || !image.src.startsWith("data:")) return 0;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  return new Set(new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size;
}
addEventListener("load", () => parent.postMessage({
  errors,
  title: document.title,
  width: innerWidth,
  scrolls: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  fetched: performance.getEntriesByType("resource").map(entry => entry.name),
  pictures: [...document.images].map(image => ({
    natural: image.naturalWidth, shown: image.getBoundingClientRect().width, right: image.getBoundingClientRect().right,
    colours: colours(image),
  })),
  actions: [...document.querySelectorAll("#actions-table tbody tr, #actions-table tfoot tr")].map(row => [
    row.cells[0].textContent, ...[...row.cells].slice(1).map(cell => [cell.textContent, cell.firstChild.value]),
  ]),
  answers: typeof lookUp === "undefined" || !lookUp ? [] : STATES.map(state => {
    const found = answer(lookUp, state);
    return { ...found, q: found.q.map(String) };
  }),
  used: used(),
}, "*"));
function used() {  // as a person would: fill in the form, sort a table, filter another
  const form = document.getElementById("look-up-form");
  if (!form) return null;
  const told = () => document.getElementById("advice").textContent;
  const [first] = form.querySelectorAll("input"), before = first.value;
  first.value = "many";
  form.requestSubmit();
  const refused = document.getElementById("look-up-error").textContent, silent = told();
  first.value = before;
  form.requestSubmit();
  const rows = () => [...document.querySelectorAll("#settings-table tbody tr")];
  const column = () => rows().map(row => row.cells[0].textContent);
  const original = column();
  const [head] = document.querySelectorAll("#settings-table thead th button");
  head.click();
  const down = column();
  head.click();
  const up = column(), box = document.querySelector("#settings-table").parentElement
    .previousElementSibling.querySelector("input");
  box.value = "WIDTH";
  box.dispatchEvent(new Event("input"));
  const left = rows().filter(row => !row.hidden).length;
  return { refused, silent, told: told(), note: document.getElementById("advice-note").textContent, original, down, up,
    left, sort: head.parentElement.getAttribute("aria-sort") };
}
</script>"""
OUTER = """<!DOCTYPE html><title>frames</title><script>
addEventListener("message", event => {
  const line = document.createElement("pre");
  line.textContent = JSON.stringify(event.data);
  document.body.append(line);
});
</script><body>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(NAMES)} is installed")


def look(page, folder, states=()):
    """Open a page at several widths; return what was seen at each, and what the browser's console said."""
    inside = folder / "inside.html"
    allowed = re.sub(r"script-src 'sha256-[^']*'", "script-src 'unsafe-inline'", page, count=1)
    probe = PROBE.replace("STATES", json.dumps(states))
    inside.write_text(allowed.replace("<title>", probe + "<title>", 1), encoding="utf-8")
    frame = '<iframe src="inside.html" style="width: {}px; height: 800px; border: 0"></iframe>'
    frames = "".join(map(frame.format, WIDTHS))
    outside = folder / "outside.html"
    outside.write_text(OUTER + frames, encoding="utf-8")
    command = [BROWSER, *OPTIONS.split(), f"--user-data-dir={folder / 'profile'}", "--window-size=1400,900"]
    done = subprocess.run([*command, "--dump-dom", outside.as_uri()], capture_output=True, text=True, timeout=120)
    seen = [json.loads(html.unescape(text)) for text in re.findall(r"<pre>(.*?)</pre>", done.stdout, flags=re.DOTALL)]
    return sorted(seen, key=lambda one: one["width"]), re.findall(r"CONSOLE.*", done.stderr)


def some_states(model, n=25):
    """Logged-looking states, and some outside of the data."""
    rng = np.random.default_rng(0)
    return (model.reps.mean(axis=0) + rng.normal(size=(n, 3)) * model.coordinates.scale * [1, 1, 2]).tolist()


@pytest.fixture(scope="module")
def looked(ward, tmp_path_factory):
    states = some_states(ward.facts.inputs.model)
    seen, console = look(ward.text, tmp_path_factory.mktemp("browser"), states)
    assert [one["width"] for one in seen] == list(WIDTHS)
    return seen, console


def test_there_is_no_error_and_nothing_is_fetched(looked):
    seen, console = looked
    assert console == []
    for one in seen:
        assert one["errors"] == []
        assert one["fetched"] == []
        assert one["title"] == "What was learnt from ward.csv"  # no name of the data was run


def test_all_pictures_are_drawn_and_fit_the_screen(looked):
    for one in looked[0]:
        assert len(one["pictures"]) == 10
        for picture in one["pictures"]:
            assert picture["natural"] > 300
            assert picture["shown"] > 300
            assert picture["right"] <= one["width"]
            assert picture["colours"] > 10


def test_the_page_does_not_scroll_sideways(looked):
    assert [one["scrolls"] for one in looked[0]] == [0, 0]


def test_the_table_of_actions_on_the_screen_is_that_of_a_recomputation(looked, recomputed):
    for one in looked[0]:
        *rows, total = one["actions"]
        assert [row[0] for row in rows] == [expected["label"] for expected in recomputed.table]
        n_rows = len(recomputed.kept)
        for (_, *cells), expected in zip(rows, recomputed.table):
            texts, values = zip(*cells)
            assert texts[0] == f"{expected['logged']:,}"
            assert texts[2] == f"{expected['recommended']:,}"
            assert texts[1] == f"{100 * expected['logged'] / n_rows:.1f} %"
            exact = [float(value) for value in (*values[:5], *values[6:])]
            counts = (expected["logged"], expected["recommended"], expected["agreed"])
            shares = (counts[0], counts[0] / n_rows, counts[1], counts[1] / n_rows, counts[2] / counts[0])
            assert exact == pytest.approx([*shares, expected["reward"], expected["value"], expected["advantage"]])
        assert total[1][0] == total[3][0] == f"{n_rows:,}"


def test_the_look_would_have_seen_errors_requests_and_overflow(tmp_path):
    page = (
        "<!DOCTYPE html><html><head><title>bad</title></head><body><img src='http://127.0.0.1:9/missing.png'>"
        "<div style='width: 3000px'>wide</div><script>console.error('said'); undefinedName()</script></body></html>"
    )
    (narrow, _), console = look(page, tmp_path)
    assert sorted(text.split()[0] for text in narrow["errors"]) == ["Uncaught", "not"]
    assert any("said" in line for line in console)
    assert narrow["fetched"] == ["http://127.0.0.1:9/missing.png"]
    assert narrow["pictures"][0]["natural"] == 0
    assert narrow["scrolls"] > 2000


def check_answers(model, states, answers):
    """The page answers as the model does, but for the rounding of 32-bit numbers: of those that are mixed.

    A mixture of large values may be near zero, so its error is measured by them, not by itself.
    """
    rounding = np.abs(model.answer_q[np.isfinite(model.answer_q)]).max() * np.finfo(np.float32).eps
    found, expected = [[float(v) for v in one["q"]] for one in answers], model.q_values(states)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=rounding)
    labels = model.answer_labels[[one["best"] for one in answers]]
    assert labels.tolist() == model.predict(states).tolist()
    covered = coverage(model, states)
    np.testing.assert_allclose([one["support"] for one in answers], covered.support, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose([one["near"][0]["distance"] for one in answers], covered.distances, rtol=1e-4)
    assert [one["near"][0]["place"] for one in answers] == covered.nearest.tolist()
    if model.resamples is not None:
        np.testing.assert_allclose([one["agreement"] for one in answers], agreement(model, states), atol=1e-9)


def test_the_look_up_answers_as_the_model_does(looked, ward):
    model = with_agreement(ward.facts.inputs.model, load_log(ward.log, columns=COLUMNS))
    states = some_states(model)
    for one in looked[0]:
        check_answers(model, states, one["answers"])
    assert len({one["best"] for one in looked[0][0]["answers"]}) > 1


@pytest.mark.parametrize(
    "options",
    [
        {"variant": Variant(profile="gaussian"), "rep_neighbors": 4},
        {"variant": Variant(norm=1.0, profile="uniform"), "rep_width": 1.0},
        {"variant": Variant(aggregation="hard", norm=np.inf)},
        {"defers": True},
        {"order": 1, "plan": Plan(decisions=2, hold=2, acting="reps")},
        {"order": 1, "plan": Plan(decisions=2, hold=2, acting="reps"), "defers": True},
    ],
    ids=[
        "gaussian with neighbours",
        "uniform by sums of differences",
        "hard, largest difference",
        "deferring",
        "plans",
        "plans that defer",
    ],
)
def test_the_look_up_answers_as_any_model_does(ward, tmp_path, options):
    options = dict(options)
    log, defers = load_log(ward.log, columns=COLUMNS), options.pop("defers", False)
    learner = KBSF(**{"n_reps": 20, "sample_width": 0.4, "rep_width": 0.3, "random_state": 0} | options).fit(log)
    rule = {"cases": 2, "caution": 0.1} if learner.order == 0 else {"cases": 6, "caution": 0.5}
    model = learner.model_.deferring(**rule) if defers else learner.model_
    model, states = with_agreement(model, log), some_states(learner.model_)
    write_report(model, log, tmp_path / "page.html")
    (one, _), console = look((tmp_path / "page.html").read_text(encoding="utf-8"), tmp_path, states)
    assert console == []
    check_answers(model, states, one["answers"])
    if defers:
        assert 0 < model.deferred(states).sum() < len(states)


def test_where_it_is_not_too_close_the_look_up_answers_as_a_model_that_looks_ahead(ward, tmp_path):
    log = load_log(ward.log, columns=COLUMNS)
    model = KBSF(20, order=1, plan=Plan(decisions=2, hold=2), random_state=0).fit(log).model_
    facts = write_report(model, log, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    (one, _), console = look(text, tmp_path, log.states[:200].tolist())
    assert console == []
    labels, own = model.answer_labels.tolist(), model.predict(log.states[:200]).tolist()
    same = [labels[each["best"]] == label for each, label in zip(one["answers"], own)]
    close = [each["close"] for each in one["answers"]]
    assert all(is_same for is_same, is_close in zip(same, close) if not is_close)
    assert not all(close)
    assert facts.lookup.mixing.share == pytest.approx(np.mean(model.predict(log.states) == _mixed_answers(model, log)))
    assert "This page mixes what it found at its representative states" in text


def _mixed_answers(model, log):
    return model.with_settings(plan=model.settings.plan.set_params(acting="reps")).predict(log.states)


def test_a_person_can_look_up_sort_and_filter(looked, ward):
    model = ward.facts.inputs.model
    median = [float(text) for text in ward.facts.medians]
    for one in looked[0]:
        used = one["used"]
        assert used["refused"] == "age must be a number."
        assert used["silent"] == ""
        assert used["told"] == model.predict([median])[0]
        assert "of resampled logs give the same answer" in used["note"]
        assert used["up"] == sorted(used["original"])
        assert used["down"] == used["up"][::-1]
        assert used["sort"] == "ascending"
        assert 2 <= used["left"] < len(used["original"])


def test_the_browser_runs_our_script_under_the_rules_of_the_page_itself(private, tmp_path):
    command = [BROWSER, *OPTIONS.split(), f"--user-data-dir={tmp_path}", "--dump-dom", private.page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert re.findall(r"CONSOLE.*", done.stderr) == []
    assert '<th scope="col"><button type="button">' in done.stdout  # made by the script
    assert '<form id="look-up-form">' in done.stdout  # no longer hidden


def test_the_page_prints_on_paper(private, tmp_path):
    paper = tmp_path / "page.pdf"
    options = [option for option in OPTIONS.split() if "virtual-time" not in option]  # with which printing never ends
    command = [BROWSER, *options, f"--user-data-dir={tmp_path / 'profile'}", f"--print-to-pdf={paper}"]
    subprocess.run([*command, private.page.as_uri()], capture_output=True, timeout=120)
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert 3 < len(re.findall(rb"/Type\s*/Page\b", content)) < 40
