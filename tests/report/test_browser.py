"""The report in a browser: no error, nothing fetched, all pictures drawn, no sideways scrolling, the right numbers.

The page is framed at the widths of a phone and of a desk.  A script in the copy under test looks at it from inside and
tells the outer page, whose text the browser prints.
"""

import html
import json
import re
import shutil
import subprocess

import pytest

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
}, "*"));
</script>"""
OUTER = """<!DOCTYPE html><title>frames</title><script>
addEventListener("message", event => {
  const line = document.createElement("pre");
  line.textContent = JSON.stringify(event.data);
  document.body.append(line);
});
</script><body>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(NAMES)} is installed")


def look(page, folder):
    """Open a page at several widths; return what was seen at each, and what the browser's console said."""
    inside = folder / "inside.html"
    allowed = page.replace("default-src ", "script-src &#x27;unsafe-inline&#x27;; default-src ", 1)
    inside.write_text(allowed.replace("<title>", PROBE + "<title>", 1), encoding="utf-8")
    frame = '<iframe src="inside.html" style="width: {}px; height: 800px; border: 0"></iframe>'
    frames = "".join(map(frame.format, WIDTHS))
    outside = folder / "outside.html"
    outside.write_text(OUTER + frames, encoding="utf-8")
    command = [BROWSER, *OPTIONS.split(), f"--user-data-dir={folder / 'profile'}", "--window-size=1400,900"]
    done = subprocess.run([*command, "--dump-dom", outside.as_uri()], capture_output=True, text=True, timeout=120)
    seen = [json.loads(html.unescape(text)) for text in re.findall(r"<pre>(.*?)</pre>", done.stdout, flags=re.DOTALL)]
    return sorted(seen, key=lambda one: one["width"]), re.findall(r"CONSOLE.*", done.stderr)


@pytest.fixture(scope="module")
def looked(ward, tmp_path_factory):
    seen, console = look(ward.text, tmp_path_factory.mktemp("browser"))
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
