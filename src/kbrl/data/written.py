"""How people write numbers and dates in cells: with decimal commas, thousands, units, the day first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

SPACES = " \u00a0\u202f"  # any of them may separate thousands
DATE_ORDERS = ("day first", "month first")
_DATE = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4}|\d{2})(?:[ T,]+(\d{1,2}:\d{2}(?::\d{2})?(?: ?[AaPp][Mm])?))?")
_CLOCKS = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p", "%I:%M:%S%p")


@dataclass(frozen=True)
class Written:
    """How the cells of a column are written; a text is empty where nothing is stated.

    >>> Written(decimal=",", thousands=".", suffix="mg").bare("-1.234,5 mg")
    '-1234.5'
    >>> Written(suffix="$").bare("$ 12.50")
    '12.50'
    """

    decimal: str = "."
    thousands: str = ""
    suffix: str = ""  # the unit after a number, or before it
    dates: str = ""  # the order of day and month: see DATE_ORDERS

    @property
    def separators(self) -> str:
        """A regular expression for what separates thousands; empty if nothing does."""
        return f"[{SPACES if self.thousands == ' ' else re.escape(self.thousands)}]" if self.thousands else ""

    @property
    def number(self) -> str:
        """A regular expression for a number, which RE2 and Python read alike."""
        groups = rf"[0-9]{{1,3}}(?:{self.separators}[0-9]{{3}})+|" if self.thousands else ""
        whole, rest = rf"(?:{groups}[0-9]+)", rf"(?:{re.escape(self.decimal)}[0-9]*)?"
        return rf"^\s*[+-]?(?:{whole}{rest}|{re.escape(self.decimal)}[0-9]+)(?:[eE][+-]?[0-9]+)?\s*$"

    def plain(self, text: str) -> str:
        """Return a number as Python writes it, any other text as it is; a number of another dialect is not a number."""
        if self.decimal == "." and not self.thousands:
            return text
        if re.match(self.number, text, re.ASCII) is None:
            return f"{text} (the decimal sign is stated as {self.decimal})" if is_number(text) else text
        bare = re.sub(self.separators, "", text) if self.thousands else text
        return bare.replace(self.decimal, ".")

    def bare(self, text: str) -> str:
        """Return a number with its unit as Python writes it without, and a date as an ISO date; others as they are."""
        stripped = text.strip()
        if self.suffix and self.suffix in (stripped[-len(self.suffix) :], stripped[: len(self.suffix)]):
            rest = stripped.removesuffix(self.suffix)
            bare = self.plain((stripped.removeprefix(self.suffix) if rest == stripped else rest).strip())
            return bare if is_number(bare) else text  # 5 mg has no unit g
        return iso_date(text, self.dates) if self.dates else text


def is_number(text: str) -> bool:
    """Return whether a text is a number as Python writes it."""
    try:
        float(text)
    except ValueError:
        return False
    return any(letter.isdigit() for letter in text)


def iso_date(text: str, order: str) -> str:
    """Return a date such as 27.02.2024 9:30 as an ISO date, by the order of day and month; others as they are.

    >>> iso_date("27.02.2024 9:30", "day first"), iso_date("2/27/24", "month first")
    ('2024-02-27T09:30:00', '2024-02-27T00:00:00')
    """
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return text
    first, second, year, clock = found.groups()
    day, month = (first, second) if order == DATE_ORDERS[0] else (second, first)
    try:
        moment = datetime.strptime(f"{day}.{month}.{year}", "%d.%m.%Y" if len(year) == 4 else "%d.%m.%y")
    except ValueError:
        return text
    if clock is None:
        return moment.isoformat()
    for pattern in _CLOCKS:
        try:
            return datetime.combine(moment.date(), datetime.strptime(clock.upper(), pattern).time()).isoformat()
        except ValueError:
            continue
    return text
