"""Pages can be read in any window: their lines are short."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *ROOT.glob("docs/**/*.md")]
LONGEST = 120  # characters


def long_lines(page):
    """Return the numbers and lengths of the lines that are too long."""
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
    return {number: len(line) for number, line in lines if len(line) > LONGEST}


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_a_page_is_longer_than_120_characters(page):
    assert long_lines(page) == {}


def test_a_longer_line_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a" * 120 + "\n" + "²" * 121 + "\n", encoding="utf-8")
    assert long_lines(page) == {2: 121}
