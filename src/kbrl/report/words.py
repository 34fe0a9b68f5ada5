"""Numbers and labels as text for people; page.html.jinja has these functions as filters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

MISSING = "–"
LONGEST_LABEL = 22  # in a picture


def number(value: float | None) -> str:
    """Return four significant digits; a dash if the number is not known.

    >>> number(12345.6), number(0.0123456), number(1.23456e-7)
    ('12,346', '0.01235', '1.235e-07')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0 or (value == int(value) and abs(value) < 1e6):
        return f"{int(value):,}"
    if not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3e}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def brief(value: float) -> str:
    """Return three significant digits for a sentence, as in 12,300 or 0.15."""
    text = number(float(f"{value:.3g}"))
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def count(value: int) -> str:
    """Return a whole number in groups of three digits."""
    return f"{value:,}"


def cases(value: float) -> str:
    """Return a number of cases, which need not be whole, as in 12 or 0.4, never 0 if it is more than 0."""
    if not math.isfinite(value):
        return "not known"
    if 0 < value < 0.05:
        return "< 0.1"
    return f"{value:,.0f}" if value >= 9.95 or value == 0 else f"{value:.1f}"


def percent(part: float, whole: float = 1.0) -> str:
    """Return a share with one decimal, never 0 or 100 unless it is exactly that.

    >>> percent(1, 3), percent(1, 10_000)
    ('33.3 %', '< 0.1 %')
    """
    if not whole:
        return MISSING
    share = 100 * part / whole
    if share in (0, 100):
        return f"{share:.0f} %"
    if 0 < share < 0.05:
        return "< 0.1 %"
    if 99.95 <= share < 100:
        return "> 99.9 %"
    return f"{share:.1f} %"


def plural(n: int, thing: str) -> str:
    """Return a number of things, as in 1 row or 2 rows."""
    return f"{count(n)} {thing}{'' if n == 1 else 's'}"


def listing(words: Sequence[str], most: int = 8) -> str:
    """Return words as in a sentence; many of them are cut.

    >>> listing(["a", "b", "c"]), listing(["a", "b", "c", "d"], 3)
    ('a, b and c', 'a, b and 2 more')
    """
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def counted(counts: Mapping[str, int], most: int = 8) -> str:
    """Return labels with numbers of rows, as in "a (1 row) and b (20 rows)"; many of them are cut."""
    return listing([f"{label} ({plural(n, 'row')})" for label, n in counts.items()], most)


def short(label: str, longest: int = LONGEST_LABEL) -> str:
    """Return a label that fits into a picture, without letters that cannot be printed."""
    clean = "".join(letter if letter.isprintable() else "�" for letter in label) or "(empty)"
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"
