"""Which columns tell that an episode ended: flags, and values that occur only on the last rows of episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.arrays import Booleans
from kbrl.data.column_names import ALIASES, has_word
from kbrl.logs.columns import LAST_ROW
from kbrl.proposing.column_profiles import (
    FEW,
    SOME,
    Profile,
    changes_within,
    closing_levels,
    is_closing,
    is_only_on,
    last_rows,
)
from kbrl.proposing.free_columns import FreeColumns
from kbrl.proposing.proposal import as_column, as_word


class EndFinder:
    """Proposes where episodes end or are cut."""

    def __init__(self, columns: FreeColumns) -> None:
        self._columns, self._proposal = columns, columns.proposal
        self._doubt = columns.proposal.doubts.append
        n_rows = max(map(len, columns.profiles), default=0)
        self._ended: Booleans = np.zeros(n_rows, dtype=bool)  # by the columns that were found so far

    def find(self, given: dict[str, Any], episode: Profile | None) -> None:
        """Propose the ends; ``given`` are the roles that are stated, ``episode`` tells which rows belong together."""
        done = next((p for p in self._columns.free.values() if p.name.lower() in ALIASES["done"]), None)
        for role in ("terminated", "truncated"):
            known = self._columns.known(role)
            if known is not None and role not in given:
                self._end_at(self._columns.take(known.name, role, "its name says so"))
            elif role not in given and not (role == "terminated" and done is not None):
                self._flags(role, episode)
        if done is not None:
            self._columns.set_aside(done.name, "done", "its name says so")
        if episode is None or len(episode) < 2 or "terminated" in given:
            return
        is_last = last_rows(episode)
        if done is None and "terminated" not in self._proposal.stated:
            self._ends_by_level(is_last)
        self._further_ends(is_last, may_add=done is None)
        if done is None and "terminated" not in self._proposal.stated:
            self._fates(episode)

    def _end_at(self, flags: Profile) -> None:
        """Note where a flag says that episodes end or are cut."""
        self._ended = self._ended | (flags.numbers == 1) if len(flags) else self._ended

    def _further_ends(self, is_last: Booleans, *, may_add: bool) -> None:
        """Add the other flags that are true only on last rows to the ends; where they add none, leave them out."""
        for profile in [p for p in self._columns.free.values() if p.kind == "boolean" and is_closing(p, is_last)]:
            is_result = has_word(profile.name, "reward") and self._ended.any()
            if may_add and not is_result and ((profile.numbers == 1) & ~self._ended).any():
                self._doubt(f"whether {profile.name!r} says that an episode ended")
                self._columns.set_aside(profile.name, "terminated", "it is true only on the last rows of episodes")
                self._proposal.also_ends(profile.name, "true only on the last rows of episodes")
                self._end_at(profile)
            elif not any(has_word(profile.name, role) for role in ("reward", "success", "minimize", "harm")):
                self._columns.leave(
                    profile.name, "it is true only where episodes end: a result is not part of the state"
                )

    def _fates(self, episode: Profile) -> None:
        """Propose that last rows are ends, if a flag tells on all rows of an episode how it ended."""
        named = [*self._columns.named("terminated", "boolean"), *self._columns.named("harm", "boolean")]
        told = next((p for p in named if p.n_distinct == 2 and changes_within(p, episode) == 0), None)
        if told is not None:
            why = f"{told.name} tells on all rows of an episode how it ended, so its last row is the end"
            self._proposal.state("terminated", LAST_ROW, why)
            self._columns.set_aside(told.name, "terminated", why)
            self._doubt(f"whether every episode in the table is complete, as {told.name!r} suggests")

    def _flags(self, role: str, episode: Profile | None) -> None:
        """Give a role to the flag that is named so; to several of them if each is true on last rows only."""
        named = self._columns.named(role, "boolean")
        is_last = None if episode is None or len(episode) < 2 else last_rows(episode)
        named = [p for p in named if episode is None or changes_within(p, episode) > 0 or p.n_distinct < 2]
        if not named:
            return
        closing = [p for p in named if is_last is not None and is_last[:-1][p.numbers[:-1] == 1].all()]
        if len(closing) < 2:
            self._end_at(self._columns.take((closing or named)[0].name, role, "its name, and it is true or false"))
            return
        rule = " or ".join(as_column(profile.name) for profile in closing)
        for profile in closing:
            self._end_at(profile)
            self._columns.set_aside(profile.name, role, "its name, and it is true only on the last rows of episodes")
        self._proposal.state(role, rule, "their names, and they are true only on the last rows of episodes")

    def _ends_by_level(self, is_last: Booleans) -> None:
        named = [p for p in self._columns.named("terminated", "text", "number") if p.kind == "text" or p.is_coded]
        names = [profile.name for profile in self._columns.profiles]
        after = min(
            (names.index(p.name) for p in self._columns.named("action")), default=len(names)
        )  # results stand there
        others = [p for p in self._columns.free.values() if p.kind == "text" and not has_word(p.name, "action")]
        others = [p for p in others if is_only_on(p, is_last) or names.index(p.name) > after]
        for profile in [*named, *(p for p in others if p not in named)]:
            levels = closing_levels(profile, is_last, least=2 if profile in named else SOME)
            if levels and profile.n_distinct <= FEW:
                listed = ", ".join(as_word(level) if profile.kind == "text" else level for level in levels)
                why = f"{profile.name} has these values only on the last rows of episodes"
                column = as_column(profile.name)
                rule = f"{column} == {listed}" if len(levels) == 1 else f"{column} in ({listed})"
                self._proposal.state("terminated", rule, why)
                self._columns.set_aside(profile.name, "terminated", why)
                self._ended = self._ended | np.array([*(t in levels for t in profile.texts), False])[profile.codes]
                self._doubt(f"whether all of {listed} in {profile.name!r} are real ends")
                return
