"""The columns that have no role yet, with the ways to give them one."""

from __future__ import annotations

from kbrl.arrays import Integers
from kbrl.data.column_names import ALIASES, ROLE_WORDS, words_of
from kbrl.proposing.column_profiles import Profile
from kbrl.proposing.proposal import Proposal


class FreeColumns:
    """All columns of a table, and which of them are free."""

    def __init__(self, profiles: list[Profile], proposal: Proposal) -> None:
        self.profiles, self.proposal = profiles, proposal
        self.free = {profile.name: profile for profile in profiles}

    def reorder(self, rows: Integers) -> None:
        """Look at these rows from here on, in this order."""
        self.profiles = [profile.ordered(rows) for profile in self.profiles]
        self.free = {name: profile.ordered(rows) for name, profile in self.free.items()}

    def take(self, name: str, role: str, why: str) -> Profile:
        """Propose the role of a column, and return it."""
        self.proposal.give(name, role, why)
        return self.free.pop(name)

    def set_aside(self, name: str, role: str, why: str) -> None:
        """Note the role of a column that is not an option by itself."""
        self.proposal.roles[name] = (role, why)
        self.free.pop(name)

    def leave(self, name: str, why: str) -> None:
        """Leave a column out."""
        self.set_aside(name, "left out", why)

    def known(self, role: str) -> Profile | None:
        """Return the column that has a usual name of a role."""
        return next((p for p in self.free.values() if p.name.lower() in ALIASES[role]), None)

    def named(self, role: str, *kinds: str) -> list[Profile]:
        """Return the columns whose name has a word of a role, best first: the earlier the word, the better."""
        words = ROLE_WORDS[role].split("|")
        found = []
        for place, profile in enumerate(self.free.values()):
            ranks = [words.index(word) for word in words_of(profile.name) if word in words]
            if ranks and (not kinds or profile.kind in kinds):
                found.append((min(ranks), place, profile))
        return [profile for _, _, profile in sorted(found, key=lambda item: item[:2])]
