"""Pages are whole: links lead somewhere, each page has a title and a place, outputs are those of running them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "docs" / "scripts"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("results/*.md")])
sys.path.insert(0, str(SCRIPTS))

from fill_outputs import PAGES as FILLED  # noqa: E402
from fill_outputs import differences, filled  # noqa: E402


def name_of(page):
    return str(page.relative_to(ROOT))


def prose(page):
    """Return the text of a page without blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page):
    """Return the addresses of the headings of a page, as browsers have them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).lower() for heading in headings]
    return {re.sub(r"[\s]+", "-", heading.strip()) for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page):
    for address, anchor in re.findall(r"\]\(([^)\s#]*)#?([^)\s]*)\)", prose(page)):
        if "://" in address or address.startswith("mailto:"):
            continue
        if "reference/" in address:
            continue  # made when the site is built, which checks it
        target = (page.parent / address).resolve() if address else page
        assert target.exists(), address
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{address}#{anchor}"


@pytest.mark.parametrize("page", [page for page in PAGES if "docs" in page.parts], ids=name_of)
def test_every_page_begins_with_its_title(page):
    text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert re.match(r"\s*# \S", text)


def test_every_page_has_a_place_in_the_site():
    places = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").glob("**/*.md")]
    assert [page for page in pages if page not in places and not page.startswith("decisions/")] == []


@pytest.mark.parametrize("name", FILLED)
def test_the_outputs_of_a_page_are_those_of_running_it(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert differences(text, filled(text)) == [], "run: make pages"


def test_an_output_that_is_no_longer_true_is_noticed():
    page = "# Page\n\n```python\nprint('3.14 rows')\n```\n\n```text\n{}\n```\n"
    assert differences(page.format("3.14 rows"), filled(page.format("3.14 rows"))) == []
    assert differences(page.format("3.15 rows"), filled(page.format("3.15 rows"))) == []  # another machine
    assert differences(page.format("3.5 rows"), filled(page.format("3.5 rows"))) != []
    assert differences(page.format("3.14 lines"), filled(page.format("3.14 lines"))) != []


def test_the_headline_results_are_those_of_the_runs():
    done = subprocess.run([sys.executable, SCRIPTS / "headline.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"run: make pages\n{done.stdout}{done.stderr}"


def test_nothing_on_a_page_is_fetched_from_another_host():
    for page in PAGES:
        assert not re.search(r"!\[[^\]]*\]\(https?:", prose(page)), page


@pytest.mark.parametrize("name", ["ward", "gymnasium", "puddle_world"])
def test_an_example_runs_as_a_notebook_and_prints_what_its_page_says(name):
    pytest.importorskip("nbclient")
    from notebooks import stale

    assert stale(name) == [], "run: make pages"
