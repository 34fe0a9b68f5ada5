"""Check the built site: each page has a title of its own, and nothing is asked of another host.

python docs/scripts/check_site.py build/site
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# What a browser fetches by itself; links that a reader may follow are not among them.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(https?:)?//|<link\b[^>]*\bhref=[\"']?(https?:)?//"
)
_CSS = re.compile(r"(?:@import\s+|url\()[\"']?(?:https?:)?//")
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)


def faults(site: Path) -> list[str]:
    """Return what is wrong with the pages and styles of a site."""
    found, titles = [], {}
    for page in sorted(site.rglob("*.html")):
        text, name = page.read_text("utf-8"), str(page.relative_to(site))
        title = _TITLE.search(text)
        if not title or not title[1].strip():
            found.append(f"{name} has no title")
        elif title[1] in titles and name != "404.html" and titles[title[1]] != "404.html":
            found.append(f"{name} has the title of {titles[title[1]]}: {title[1]}")
        else:
            titles[title[1]] = name
        if "<h1" not in text and name != "404.html":
            found.append(f"{name} has no heading")
        found += [f"{name} fetches {text[m.start() : m.end() + 60]!r}" for m in _FETCHED.finditer(text)]
    for style in sorted(site.rglob("*.css")):
        text = style.read_text("utf-8")
        found += [f"{style.name} fetches {text[m.start() : m.end() + 60]!r}" for m in _CSS.finditer(text)]
    return found


def main() -> None:
    """Print the faults of a site, and fail if there are any."""
    site = Path(sys.argv[1])
    found = faults(site)
    n_pages = len(list(site.rglob("*.html")))
    print(f"{n_pages} pages, {len(found)} faults", *found, sep="\n")
    sys.exit(1 if found or not n_pages else 0)


if __name__ == "__main__":
    main()
