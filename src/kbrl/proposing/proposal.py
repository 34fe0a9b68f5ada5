"""What ``kbrl init`` proposes, as a record and as a TOML file in which every line has its reason.

Here, too, is what the cells of a table seem to mean beside plain numbers, words and ISO dates: marks for missing
values, units after numbers, and the order of day and month.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kbrl.arrays import Booleans, Floats
from kbrl.data.column_names import ROLE_WORDS, has_word, words_of
from kbrl.data.written import DATE_ORDERS, iso_date
from kbrl.logs.columns import LAST_ROW
from kbrl.proposing.column_profiles import FEW, Profile, is_only_on, rises_within
from kbrl.tables.cell_values import BOOLEANS, FLAGS
from kbrl.tables.databases import quoted

_MOST_MARKS, _LONGEST_MARK = 4, 20  # different texts beside numbers, and their characters
_SENTINELS = frozenset({-1.0, -8.0, -9.0, *(sign * float("9" * n) for n in range(2, 7) for sign in (1, -1))})
_MOST_TOGETHER = 3  # columns of amounts whose combinations are proposed as actions
_KEYS = ("variable", "parameter", "measure", "measurement", "item", "itemid", "test", "key", "attribute", "concept")
_VALUES = ("value", "valuenum", "wert", "valeur", "valor", "valore")
_UNITS = ((86400, " days"), (3600, " hours"), (60, " minutes"))  # of seconds
_PRICE = re.compile(r"([€$£¥]|EUR|USD|CHF|GBP)\s*[+-]?[0-9][0-9.,']*")
_AMOUNT = re.compile(r"([+-]?[0-9][0-9.,']*)\s*([^\d\s.,;=][^\d;=]{0,11})")
_DATE = re.compile(r"(\d{1,2})([./-])(\d{1,2})[./-](?:\d{4}|\d{2})(?:[ T,].*)?")
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass
class Proposal:
    """What ``kbrl init`` proposes: values of options, with a reason for each, and what is uncertain."""

    stated: dict[str, Any] = field(default_factory=dict)  # option: value
    reasons: dict[str, str] = field(default_factory=dict)  # option: why
    roles: dict[str, tuple[str, str]] = field(default_factory=dict)  # column: (role, why)
    doubts: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)  # lines of the file that are commented out

    def state(self, option: str, value: Any, why: str) -> None:
        """Propose the value of an option."""
        self.stated[option], self.reasons[option] = value, why

    def give(self, column: str, role: str, why: str) -> None:
        """Propose the role of one column."""
        self.roles[column] = (role, why)
        self.state(role, column, why)

    def also_ends(self, column: str, why: str) -> None:
        """Propose that a flag marks ends, beside those that are proposed already."""
        rule, reason = self.stated.get("terminated"), self.reasons.get("terminated", "")
        own = f"{column}: {why}"
        if rule is None:
            self.state("terminated", column, own)
        else:
            before = as_column(rule) if rule in self.roles else rule
            self.state("terminated", f"{before} or {as_column(column)}", f"{reason}; {own}")

    def to_toml(self, sources: Sequence[str], target: str) -> str:
        """Return the text of the file ``target``: each option with its reason, and what is uncertain."""
        named = shlex.join([*sources, "--config", target])
        lines = [_comment(f"Proposed by kbrl init from {', '.join(sources)}. Read it, correct it, then:"), "#"]
        lines += [_comment(f"  kbrl check {named}"), _comment(f"  kbrl fit {named} -o model.kbrl"), ""]
        for option, value in self.stated.items():
            lines.append(_comment(self.reasons[option]))
            lines.append(f"{option} = {as_toml(value)}")
        left = [_comment(f"  {column}: {why}") for column, (role, why) in self.roles.items() if role == "left out"]
        lines += ["", "# Left out of the state:", *left] if left else []
        lines += ["", "# Unsure:", *(_comment(f"  {doubt}") for doubt in self.doubts)] if self.doubts else []
        lines += ["", *(_comment(hint.removeprefix("# ")) for hint in self.hints)] if self.hints else []
        return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    """Return one line that is a comment, whatever names of columns are quoted in it."""
    return f"# {_UNSEEN.sub(lambda found: found[0].encode('unicode_escape').decode('ascii'), text)}"


def as_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def as_column(name: str) -> str:
    """Return the name of a column as an expression has it."""
    return name if name.isidentifier() and name.isascii() else f"`{name}`"


def as_word(level: str) -> str:
    """Return a text as an expression has it, whose texts have no escapes; one with both quotation marks has none."""
    mark = '"' if "'" in level else "'"
    return f"{mark}{level}{mark}"


def as_number(profile: Profile) -> str:
    """Return a column as a reward: yes and no become 1 and 0."""
    is_worded = profile.kind == "boolean" and any(
        text.lower() in FLAGS and text.lower() not in BOOLEANS for text in profile.filled
    )
    return f"where({as_column(profile.name)}, 1, 0)" if is_worded else profile.name


def reward_of_ends(ended: Profile, rule: str) -> tuple[str, str] | None:
    """Return a reward of 1 for a good end and -1 for a harm, with its option; None where words do not tell them apart.

    Where a word says which ends are good, others that are no harm count 0.

    ``rule`` is the expression that was proposed for the ends.
    """
    if rule == LAST_ROW:
        told = "-1, 1" if has_word(ended.name, "harm") else "1, -1"
        return "reward", f"where({LAST_ROW}, where({as_column(ended.name)}, {told}), 0)"
    if ended.kind == "boolean":
        if has_word(ended.name, "harm"):
            return "minimize", as_number(ended)
        return ("reward", f"where({as_column(ended.name)}, 1, 0)") if has_word(ended.name, "success") else None
    levels = sorted(level for level in set(ended.filled) if as_word(level) in rule)
    harms = [level for level in levels if has_word(level, "harm")]
    good = [level for level in levels if has_word(level, "success") and level not in harms]
    good = good or [level for level in levels if level not in harms]  # without a word for it, what is no harm
    if not good or len(good) == len(levels):
        return None
    signs = {level: "-" if level in harms else "+" for level in levels if level in harms or level in good}
    parts = [f"{sign} ({as_column(ended.name)} == {as_word(level)})" for level, sign in signs.items()]
    return "reward", " ".join(parts).removeprefix("+ ")


def propose_late_reward(profiles: Sequence[Profile], is_last: Booleans, proposal: Proposal, *, has_ends: bool) -> None:
    """Propose that a reward is 0 where it is missing, if it stands on last rows only; those are ends then."""
    name = next((name for name, (role, _) in proposal.roles.items() if role == "reward"), None)
    profile = next((profile for profile in profiles if profile.name == name), None)
    if profile is None or not is_only_on(profile, is_last):
        return
    column, why = as_column(profile.name), f"{profile.name} has values only on the last rows of episodes"
    proposal.state("reward", f"where(is_missing({column}), 0, {column})", why)
    if not has_ends and not {"terminated", "truncated"} & set(proposal.stated):
        proposal.state("terminated", f"not is_missing({column})", why)
        proposal.doubts.append(f"whether episodes end where {profile.name!r} has a value")


def as_toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{as_key(k)} = {as_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return _text(value)


def _text(value: Any) -> str:
    """Return a text, a number or a truth as TOML, whose rules for texts are those of JSON but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def guess_cells(profiles: Sequence[Profile], proposal: Proposal) -> dict[str, str]:
    """Propose how cells are read; return what is to be stated, as texts of a dialect."""
    marks = {p.name: found for p in profiles if (found := _marks(p, proposal))}
    units = {p.name: unit for p in profiles if (unit := _unit(p))}
    orders = {p.name: order for p in profiles if (order := _date_order(p, proposal))}
    if marks:
        why = "; ".join(f"{', '.join(found)} stands for a missing value in {name}" for name, found in marks.items())
        proposal.state("na", marks, why)
    if units:
        said = (f"the numbers of {name} have the unit {unit} in their cells" for name, unit in units.items())
        proposal.state("suffix", units, "; ".join(said))
    if orders:
        name, order = next(iter(orders.items()))
        proposal.state("dates", order, f"{name} has dates such as {_first_date(profiles, name)}")
    return {name: proposal.stated[name] for name in ("na", "suffix", "dates") if name in proposal.stated}


def _marks(profile: Profile, proposal: Proposal) -> list[str]:
    """Return the texts beside numbers, or the numbers far from all others, that seem to mean a missing value."""
    if profile.kind == "number":
        return _sentinel(profile, proposal)
    if profile.kind != "text":
        return []
    texts = [text for text in profile.filled if not profile.is_amount(text)]
    n_texts = sum(profile.counts[text] for text in texts)
    for limit in (text for text in texts if text[:1] in "<>≤≥"):
        proposal.doubts.append(f"whether {limit!r} in {profile.name!r} should be missing: it is a limit")
    few = 0 < len(texts) <= _MOST_MARKS and all(len(text) <= _LONGEST_MARK and ";" not in text for text in texts)
    return sorted(texts) if few and n_texts < 0.7 * profile.n_filled and profile.n_distinct > len(texts) + 2 else []


def _sentinel(profile: Profile, proposal: Proposal) -> list[str]:
    values = np.unique(profile.numbers[~np.isnan(profile.numbers)])
    if len(values) < 5:
        return []
    found = []
    for place, rest in ((-1, values[:-1]), (0, values[1:])):
        gap = abs(values[place] - rest[place])
        if values[place] in _SENTINELS and gap > np.ptp(rest):
            proposal.doubts.append(f"whether {values[place]:g} in {profile.name!r} means that a value is missing")
            found.append(f"{values[place]:g}")
    return found


def _unit(profile: Profile) -> str:
    """Return the unit that all cells have after their numbers; empty if there is none, or if they are few names.

    A currency may stand before them.
    """
    if profile.kind != "text" or profile.n_distinct <= 5:
        return ""
    prices = [_PRICE.fullmatch(text) for text in profile.filled]
    currencies = {match[1] for match in prices if match is not None}
    if all(prices) and len(currencies) == 1:
        return currencies.pop()
    found = [_AMOUNT.fullmatch(text) for text in profile.filled]
    units = {match[2].strip() for match in found if match is not None}
    return units.pop() if all(found) and len(units) == 1 else ""


def _date_order(profile: Profile, proposal: Proposal) -> str:
    """Return the order of day and month of dates that are not ISO dates; empty for other columns."""
    if profile.kind != "text":
        return ""
    found = [_DATE.fullmatch(text) for text in profile.filled]
    if not all(found) or len(found) < 2:
        return ""
    pairs = [(int(match[1]), int(match[3])) for match in found if match is not None]
    is_day_first, is_month_first = (any(pair[k] > 12 for pair in pairs) for k in (0, 1))
    is_american = any(text[-1] in "mM" for text in profile.filled)  # 9:30 AM
    order = DATE_ORDERS[not is_day_first and (is_month_first or is_american)]
    if any(iso_date(text, order) == text for text in profile.filled):
        return ""
    if is_day_first == is_month_first and "." not in {match[2] for match in found if match is not None}:
        proposal.doubts.append(f"whether dates in {profile.name!r} have the day or the month first: no day is above 12")
    return order


def _first_date(profiles: Sequence[Profile], name: str) -> str:
    return next(profile.filled[0] for profile in profiles if profile.name == name)


def propose_classes(profile: Profile, proposal: Proposal) -> None:
    """Propose classes for an action of many numbers."""
    if profile.kind == "list":
        entries = [f"{profile.name}_{k}" for k in range(profile.width)]
        proposal.state("split", [profile.name], f"each cell holds {profile.width} numbers")
        proposal.state("action", entries, "the entries of the vector; their combinations are the actions")
        proposal.state("bins", dict.fromkeys(entries, 3), "amounts are put into classes by quantiles")
    elif profile.kind == "number" and profile.n_distinct > FEW:
        zeros = float(np.mean(profile.numbers[~np.isnan(profile.numbers)] == 0))
        classes: Any = "0+3" if zeros > 0.1 else 4
        why = f"{profile.n_distinct} different numbers are amounts; they are put into classes"
        proposal.state("bins", {profile.name: classes}, why)
        proposal.doubts.append(f"how many classes the amounts of {profile.name!r} should have")


def amounts_together(named: Sequence[Profile]) -> list[Profile]:
    """Return the columns that are amounts of the same thing, by a word that the best of them and others share."""
    amounts = [p for p in named if p.kind == "number" and p.n_distinct > FEW]
    if not amounts or amounts[0] is not named[0]:
        return []
    shared = set(words_of(named[0].name)) & set(ROLE_WORDS["action"].split("|"))
    found = [p for p in amounts if shared & set(words_of(p.name))]
    return found if len(found) <= _MOST_TOGETHER else []


def propose_combination(profiles: Sequence[Profile], proposal: Proposal) -> None:
    """Propose the combinations of a few amounts as the actions, each in few classes."""
    names = [profile.name for profile in profiles]
    proposal.state(
        "action", names, "amounts that are given together; the combinations of their classes are the actions"
    )
    rare = {p.name: float(np.mean(p.numbers == 0)) > 0.1 for p in profiles}
    classes = {name: "0+2" if has_zeros else 3 for name, has_zeros in rare.items()}
    proposal.state("bins", classes, "amounts are put into classes by quantiles, 0 apart where it is frequent")
    listed = " and ".join(map(repr, names))
    proposal.doubts.append(f"whether {listed} are the action together, and how many classes each should have")


def propose_order(episode: Profile | None, step: Profile | None, options: Collection[str], proposal: Proposal) -> None:
    """Propose what follows from the columns that tell episodes apart and order rows, or from their absence."""
    stated, roles = proposal.stated, {role for role, _ in proposal.roles.values()}
    if "next_state" in stated:
        return
    is_open = {"terminated", "truncated", "done", "one-step"}.isdisjoint({*stated, *roles})
    if episode is None and step is None and is_open:
        if "one-step" in options:
            proposal.state("one-step", True, "no column tells which row follows which: each stands alone")
        proposal.doubts.append("which rows belong together: no column tells episodes apart or orders rows")
    if step is not None:
        propose_intervals(rises_within(step, episode), step, proposal)
    query = stated.get("query")
    if query and episode is not None and step is not None and "sort" not in stated:
        ordered = f"{query} order by {quoted(episode.name)}, {quoted(step.name)}"
        proposal.state("query", ordered, f"{proposal.reasons['query']}, in the order of the rows")


def propose_intervals(rises: Floats, step: Profile, proposal: Proposal) -> None:
    """Propose what to do about unequal rises of the step, (n,)."""
    rises = rises[rises > 0]
    if not len(rises) or rises.min() == rises.max():
        return
    low, high = np.quantile(rises, [0.05, 0.95])
    size, unit = next((each for each in _UNITS if each[0] <= low), (1, " seconds")) if step.kind == "date" else (1, "")
    proposal.state("stride", "any", f"rows are {low / size:.3g} to {high / size:.3g}{unit} apart")
    period = '"1 day"' if step.kind == "date" else f"{float(np.median(rises)):g}"
    proposal.hints.append(f"# discount_per = {period}  # to discount by the time between rows")


def propose_harm(profile: Profile, proposal: Proposal) -> None:
    """Ask what a flag that names a harm should count for."""
    proposal.doubts.append(f"whether {profile.name!r} should be an end, or count in the reward")
    stated = proposal.stated
    reward = str(stated.get("reward", "0"))
    reward = as_column(reward) if reward in proposal.roles else reward
    reward = f"-{as_column(stated['minimize'])}" if "minimize" in stated else reward
    rule = as_toml(f"{reward} - where({as_column(profile.name)}, 10, 0)")
    proposal.hints.append(f"# reward = {rule}  # instead of the reward above; set the weight, here 10")


def ask_of_later(names: Sequence[str], chosen: Sequence[str], proposal: Proposal) -> None:
    """Ask about columns of the state that stand after the action in a table: they may be results of it."""
    places = [names.index(name) for name, (role, _) in proposal.roles.items() if role == "action"]
    after = names[max(places) + 1 :] if places else []
    later = [name for name in chosen if name in after]
    if later and len(later) < len(chosen):
        listed, stand = ", ".join(map(repr, later)), "it stands" if len(later) == 1 else "they stand"
        proposal.doubts.append(
            f"whether {listed} can be known before the action: {stand} after it, and results are not part of the state"
        )


def ask_of_cheap_ends(proposal: Proposal) -> None:
    """Ask whether a bad end costs enough, if less cost is better: an end also ends all later costs."""
    bad = [name for name, (role, _) in proposal.roles.items() if role == "terminated" and has_word(name, "harm")]
    if bad:
        cost = proposal.stated["minimize"]
        proposal.doubts.append(
            f"whether {cost!r} of a row with {bad[0]!r} is large enough: after an end there are no further costs, so "
            f"too cheap an end would be sought"
        )


def ask_of_long_tables(profiles: Sequence[Profile], episode: Profile | None, proposal: Proposal) -> None:
    """Ask about a table with one row per measurement: names in one column, values in another."""
    named = {word: p.name for p in profiles for word in words_of(p.name)}
    keys = [named[word] for word in _KEYS if word in named]
    values = [named[word] for word in _VALUES if word in named]
    if episode is not None and keys and values and keys[0] != values[0]:
        proposal.doubts.insert(
            0,
            f"whether this table has one row per measurement ({keys[0]!r} and {values[0]!r}): kbrl needs one row per "
            f"decision, with a column for each measurement; a pivot table of a spreadsheet or a database makes it",
        )


def propose_for_cells(profiles: Sequence[Profile], options: Collection[str], proposal: Proposal) -> None:
    """Hint at rules for missing values and for numbers that may be names of levels."""
    lacking = {p.name: "median" for p in profiles if p.is_missing.any()}
    if lacking and "missing" in options:
        proposal.hints.append(
            f"# missing = {as_toml(lacking)}  # or forward, drop, a constant; kbrl check says what happens without it"
        )
    coded = [p.name for p in profiles if p.kind == "number" and p.is_coded]
    if coded and "category" in options:
        proposal.hints.append(f"# category = {as_toml(coded)}  # if the numbers are only names of levels")
