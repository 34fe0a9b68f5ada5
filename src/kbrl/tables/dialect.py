"""How a source is written where its bytes do not tell: encoding, decimal comma, sheet, query.

Nothing is guessed when a log is read.  ``kbrl init`` looks at a file and proposes what to state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

SPACES = " \u00a0\u202f"  # all of which separate thousands
_SEPARATORS = (",", ".", " ", "'", "_")
_WORDS = {"tab": "\t", "space": " "}  # for what is hard to write on a command line


@dataclass(frozen=True)
class Dialect:
    """How a source is written; None where nothing is stated.

    >>> Dialect(decimal=",", thousands=".").plain("-1.234,5")
    '-1234.5'
    """

    encoding: str | None = None  # of a text file; without it UTF-8, or what the first bytes of the file say
    delimiter: str | None = None  # of a CSV file; without it the most frequent of , ; and tab in the header
    decimal: str | None = None  # "," in 3,5
    thousands: str | None = None  # "." in 1.234,5
    sheet: str | None = None  # of an Excel file
    query: str | None = None  # for a database: one that selects the rows
    split: str | None = None  # columns of lists, as in "action,observation", of which each entry becomes a column

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f"{field.name} must be a text, but it is {value!r}.")
        if self.encoding is not None:
            _check_encoding(self.encoding)
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in "\"'\r\n"):
            raise ValueError(f"delimiter must be one character, such as ; or |, but it is {self.delimiter!r}.")
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be . or , but it is {self.decimal!r}.")
        if self.thousands is not None and (self.thousands not in _SEPARATORS or self.thousands == self.point):
            raise ValueError(
                f"thousands must be one of {' '.join(map(repr, _SEPARATORS))}, and not the decimal sign, "
                f"{self.point!r}, but it is {self.thousands!r}."
            )

    @property
    def lists(self) -> list[str]:
        """The columns to split."""
        return [] if self.split is None else [name.strip() for name in self.split.split(",")]

    @property
    def point(self) -> str:
        """The decimal sign."""
        return self.decimal or "."

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written as Python writes them."""
        return self.point == "." and self.thousands is None

    @property
    def separators(self) -> str:
        """A regular expression for what separates thousands; empty if nothing does."""
        return "" if self.thousands is None else f"[{SPACES if self.thousands == ' ' else re.escape(self.thousands)}]"

    @property
    def number(self) -> str:
        """A regular expression for a number, which RE2 and Python read alike."""
        groups = rf"[0-9]{{1,3}}(?:{self.separators}[0-9]{{3}})+|" if self.thousands else ""
        whole, rest = rf"(?:{groups}[0-9]+)", rf"(?:{re.escape(self.point)}[0-9]*)?"
        return rf"^\s*[+-]?(?:{whole}{rest}|{re.escape(self.point)}[0-9]+)(?:[eE][+-]?[0-9]+)?\s*$"

    def plain(self, text: str) -> str:
        """Return a number as Python writes it; any other text as it is.  A number of another dialect is no number."""
        if self.is_plain:
            return text
        if re.match(self.number, text, re.ASCII) is None:
            return f"{text} (the decimal sign is stated as {self.point})" if _is_number(text) else text
        bare = re.sub(self.separators, "", text) if self.thousands else text
        return bare.replace(self.point, ".")

    def to_dict(self) -> dict[str, str]:
        """Return what is stated."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}


STATED = tuple(field.name for field in fields(Dialect))
PLAIN = Dialect()


def dialect_in(columns: Any) -> Dialect:
    """Return the dialect that is stated beside the columns, in a mapping or a record of them."""
    columns = columns if isinstance(columns, Mapping) or columns is None else vars(columns)
    stated = {name: columns[name] for name in STATED if columns and columns.get(name) is not None}
    if isinstance(stated.get("split"), (list, tuple)):
        stated["split"] = ",".join(map(str, stated["split"]))
    for name in ("delimiter", "thousands"):
        if stated.get(name) in _WORDS:
            stated[name] = _WORDS[stated[name]]
    return Dialect(**stated)


COMMA = "If , is the decimal sign, state it: --decimal , in Python columns={'decimal': ','}."
_WITH_COMMA = re.compile(r"\s*'?[+-]?(?:[0-9]+|[0-9]{1,3}(?:[. \u00a0\u202f'][0-9]{3})+),[0-9]+'?\s*", re.ASCII)


def has_comma(text: str) -> bool:
    """Return whether a text, in quotes or not, looks like a number with a decimal comma.

    >>> has_comma("1.234,5"), has_comma("1,234.5"), has_comma("a,b")
    (True, False, False)
    """
    return _WITH_COMMA.fullmatch(text) is not None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return any(letter.isdigit() for letter in text)


def _check_encoding(name: str) -> None:
    try:
        "a".encode(name)
    except (LookupError, ValueError):
        raise ValueError(
            f"encoding must be one that Python knows, such as latin-1 or utf-16, but it is {name!r}."
        ) from None
