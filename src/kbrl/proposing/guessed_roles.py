"""Which role each column of a table probably has, with reasons and doubts.

Names count first: those of other libraries, then words such as patient or dose.  If several fit, the
values decide.  A person reads the result before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kbrl.data.column_names import families, has_word, words_of
from kbrl.proposing.column_profiles import (
    Profile,
    changes_within,
    few_that_change,
    filled_down,
    finest_episodes,
    is_chance,
    is_on_first_rows,
    is_unique_within,
    last_rows,
    ordering_step,
    profiles_of,
    returns,
    rises_within,
    runs_of,
    tells_apart,
    without_repeats,
)
from kbrl.proposing.free_columns import FreeColumns
from kbrl.proposing.guessed_ends import EndFinder
from kbrl.proposing.proposal import (
    Proposal,
    amounts_together,
    as_key,
    as_number,
    ask_of_cheap_ends,
    ask_of_later,
    ask_of_long_tables,
    guess_cells,
    propose_classes,
    propose_combination,
    propose_for_cells,
    propose_harm,
    propose_late_reward,
    propose_order,
    reward_of_ends,
)
from kbrl.tables.formats import open_table
from kbrl.tables.sniffing import guess_dialect
from kbrl.tables.text_files import PLAIN, Dialect, dialect_in

_MOST_LEVELS = 50  # of a text in the state
ROLES = ("episode", "step", "terminated", "truncated", "action", "reward")


def propose(source: Any, given: dict[str, Any] | None = None, options: Sequence[str] = ()) -> Proposal:
    """Look at a source and propose what its columns are.

    ``given`` are columns and a dialect that the user states; ``options`` are the names of options that may be proposed
    beside the roles.

    >>> table = {"patient": sorted([*range(18)] * 2), "day": [0, 1] * 18, "sofa": [3.5, 2.5, 4.5, 1.5] * 9,
    ...          "dose": ["low", "high", "low", "low"] * 9, "score": [0.0, 1.0, 0.5, 1.0] * 9}
    >>> found = propose(table)
    >>> found.stated["state"], found.stated["action"], found.stated["reward"], found.stated["episode"]
    (['sofa'], 'dose', 'score', 'patient')
    """
    proposal = Proposal()
    guess = guess_dialect(source)
    for option, value in guess.dialect.to_dict().items():
        proposal.state(option, value, guess.reasons[option])
    is_stated = any(name in (given or {}) for name in ("sheet", "query"))
    proposal.doubts += () if is_stated else guess.doubts
    dialect = Dialect(**guess.dialect.to_dict() | {k: v for k, v in (given or {}).items() if k in vars(Dialect())})
    table = open_table(source, dialect)
    profiles = profiles_of(table, dialect if table.is_text else PLAIN)
    cells = dialect_in({k: v for k, v in guess_cells(profiles, proposal).items() if k not in dialect.to_dict()})
    if not cells.is_clean:  # look again, at the cells as they are meant
        dialect = replace(dialect, **cells.to_dict())
        table = open_table(source, dialect)
        profiles = profiles_of(table, dialect if table.is_text else cells)
    _Roles(profiles, proposal, set(options)).assign(given or {})
    return proposal


class _Roles:
    """Gives each column a role, one role after the other."""

    def __init__(self, profiles: list[Profile], proposal: Proposal, options: set[str]) -> None:
        self._columns, self._proposal, self._options = FreeColumns(profiles, proposal), proposal, options
        self._doubt = proposal.doubts.append

    def assign(self, given: dict[str, Any]) -> None:
        for role in (*ROLES, "next_state", "state"):
            for name in _listed(given.get(role)):
                self._columns.free.pop(name, None)
        self._drop_constants()
        by_prefix = families(list(self._columns.free))
        self._fill_down(given)
        episode = self._episode(given)
        step = self._step(given, episode)
        if episode is not None and step is not None:
            episode, step = self._drop_repeats(episode, step)
            episode, step = self._sort(episode, step)
        runs = runs_of(step) if episode is None and step is not None else episode
        EndFinder(self._columns).find(given, runs)
        self._action(given, runs)
        self._reward(given, runs)
        if episode is not None and len(episode) > 1:
            propose_late_reward(
                self._columns.profiles, last_rows(episode), self._proposal, has_ends="terminated" in given
            )
        self._next_states(by_prefix)
        self._state(given, by_prefix)
        propose_order(episode, step, self._options, self._proposal)
        ask_of_long_tables(self._columns.profiles, episode, self._proposal)

    def _drop_repeats(self, episode: Profile, step: Profile) -> tuple[Profile, Profile]:
        """Propose to drop repeated rows, and look at the others from here on."""
        kept = without_repeats(self._columns.profiles)
        n_repeats = len(episode) - len(kept)
        if not n_repeats or "drop-repeats" not in self._options:
            return episode, step
        why = f"{n_repeats} of the first {len(episode)} rows repeat another row in every column"
        self._proposal.state("drop-repeats", True, why)
        self._columns.reorder(kept)
        return episode.ordered(kept), step.ordered(kept)

    def _sort(self, episode: Profile, step: Profile) -> tuple[Profile, Profile]:
        """Propose to sort rows that are not in order, and look at them in order from here on."""
        if not returns(episode) and not (rises_within(step, episode) < 0).any():
            return episode, step
        if "sort" in self._options:
            self._proposal.state("sort", True, "the rows of an episode are not in the order of time")
        else:
            self._doubt("the order of the rows: sort them by episode and step first")
        order = np.lexsort([step.numbers, episode.codes])
        self._columns.reorder(order)
        return episode.ordered(order), step.ordered(order)

    def _drop_constants(self) -> None:
        for profile in list(self._columns.free.values()):
            if profile.kind == "nothing":
                self._columns.leave(profile.name, "it has no value in the first rows")
            elif profile.is_constant and not self._is_flag(profile):
                self._columns.leave(profile.name, f"it is always {profile.filled[0]}")

    def _is_flag(self, profile: Profile) -> bool:
        """Whether a column that never changes is a flag of ends, which may come later."""
        return profile.kind == "boolean" and any(has_word(profile.name, role) for role in ("terminated", "truncated"))

    def _episode(self, given: dict[str, Any]) -> Profile | None:
        if "episode" in given:
            return next((p for p in self._columns.profiles if p.name == given["episode"]), None)
        known = self._columns.known("episode")
        if known is not None:
            return self._columns.take(known.name, "episode", "its name says so")
        ordered = self._ordered_episodes(given)
        if ordered is not None:
            episode, step = ordered
            is_named = has_word(episode.name, "episode")
            ordering = f"{step.name} rises while this stays the same, and falls when it changes"
            return self._columns.take(episode.name, "episode", _comes(episode) if is_named else ordering)
        for profile in self._columns.named("episode", "number", "text"):
            if tells_apart(profile, self._columns.named("step", "number", "date")):
                return self._columns.take(profile.name, "episode", _comes(profile))
        kept = without_repeats(self._columns.profiles)
        steps = [p.ordered(kept) for p in self._columns.named("step", "number", "date")]
        ids = [
            p for p in self._columns.free.values() if "id" in words_of(p.name) and tells_apart(p.ordered(kept), steps)
        ]
        if ids:
            self._doubt(f"whether {ids[0].name!r} tells episodes apart: its name only says that it is an identifier")
            return self._columns.take(
                ids[0].name, "episode", "its name says that it is an identifier, and its values repeat"
            )
        return None

    def _ordered_episodes(self, given: dict[str, Any]) -> tuple[Profile, Profile] | None:
        """Return the episodes and the step that order the rows, whatever they are called; named episodes count more."""
        steps = self._possible_steps(given)
        for candidates in ([p] for p in self._columns.named("episode", "number", "text")):
            if (found := finest_episodes(candidates, steps)) is not None:
                return found
        return finest_episodes([p for p in self._columns.free.values() if p.kind in ("number", "text")], steps)

    def _possible_steps(self, given: dict[str, Any]) -> list[Profile]:
        if "step" in given:
            return [profile for profile in self._columns.profiles if profile.name == given["step"]]
        dated = [p for p in self._columns.free.values() if p.kind == "date"]
        counting = [p for p in self._columns.free.values() if p.kind == "number" and p.is_counter]
        named = self._columns.named("step", "number")
        return [*dated, *named, *(p for p in counting if p not in named)]

    def _fill_down(self, given: dict[str, Any]) -> None:
        """Propose that an empty cell means the one above it, where identifiers stand on the first row of a block."""
        if "fill-down" not in self._options or "episode" in given:
            return
        for profile in self._columns.named("episode", "number", "text"):
            if is_on_first_rows(profile):
                self._proposal.state("fill-down", [profile.name], "an identifier stands on the first row of its block")
                self._columns.free[profile.name] = filled_down(profile)
                return

    def _step(self, given: dict[str, Any], episode: Profile | None) -> Profile | None:
        if "step" in given:
            return next((p for p in self._columns.profiles if p.name == given["step"]), None)
        if any(name.lower().startswith(("next_", "new_obs")) for name in self._columns.free):
            return None  # rows have next states of their own
        if episode is None and self._stands_alone():
            return None
        known = self._columns.known("step")
        if known is not None:
            return self._columns.take(known.name, "step", "its name says so")
        ordering = None if episode is None else ordering_step(self._possible_steps(given), episode)
        if ordering is not None:
            why = "it holds dates" if ordering.kind == "date" else "it rises within episodes, and falls between them"
            return self._columns.take(ordering.name, "step", why)
        dated = [p for p in self._columns.free.values() if p.kind == "date"]
        for profile in [*dated, *self._columns.named("step", "number", "date")]:
            rises = rises_within(profile, episode)
            once = without_repeats(self._columns.profiles)
            in_any_order = (
                episode is not None
                and returns(episode) > 0
                and is_unique_within(profile.ordered(once), episode.ordered(once))
            )
            restarts = episode is None and profile.kind == "number" and runs_of(profile) is not None
            if profile.kind == "date" or in_any_order or restarts or (len(rises) and (rises > 0).mean() > 0.9):
                why = "it holds dates" if profile.kind == "date" else "its name, and it rises from row to row"
                return self._columns.take(profile.name, "step", why)
        return None

    def _stands_alone(self) -> bool:
        """Whether each row is about somebody else, so that nothing follows it; propose that."""
        alone = next((p for p in self._columns.named("episode", "number", "text") if p.is_unique), None)
        if alone is not None and "one-step" in self._options:
            self._proposal.state("one-step", True, f"{alone.name} is different in every row: nothing follows a row")
        return alone is not None and "one-step" in self._options

    def _action(self, given: dict[str, Any], episode: Profile | None) -> None:
        if "action" in given:
            return
        known = self._columns.known("action")
        named = [known] if known is not None else self._columns.named("action", "text", "number", "boolean", "list")
        if known is None and not named:
            named = few_that_change(list(self._columns.free.values()), episode)
            for profile in named[:1]:
                self._doubt(f"whether {profile.name!r} is the action: only its few different values suggest it")
        if not named:
            self._doubt("which column is the action: none has a name or values that suggest it")
            return
        named = sorted(named, key=lambda p: (_is_of_result(p), p.kind != "list" and changes_within(p, episode) == 0))
        together = amounts_together(named)
        if known is None and len(together) > 1:
            for profile in together:
                self._columns.set_aside(profile.name, "action", "its name, and it is an amount")
            propose_combination(together, self._proposal)
            return
        if len(named) > 1:
            others = ", ".join(repr(p.name) for p in named[1:])
            self._doubt(f"whether {named[0].name!r} is the action; {others} could be, too")
        why = "its name says so" if known is not None else "its name and values"
        propose_classes(self._columns.take(named[0].name, "action", why), self._proposal)

    def _reward(self, given: dict[str, Any], episode: Profile | None) -> None:
        if "reward" in given or "minimize" in given:
            return
        known = self._columns.known("reward")
        if known is not None:
            self._take_reward(known, "reward", "its name says so")
            return
        named = self._after_the_action("reward", episode)
        if named:
            self._doubt(f"whether {named[0].name!r} is the reward, and whether more of it is better")
            self._take_reward(named[0], "reward", "its name, and it is a number")
            return
        costs = self._after_the_action("minimize", episode)
        if costs and "minimize" in self._options:
            self._take_reward(costs[0], "minimize", "its name says that less of it is better")
            self._doubt(f"whether {costs[0].name!r} is what should be kept low")
            ask_of_cheap_ends(self._proposal)
            return
        if "minimize" in self._options and self._reward_by_ends(given):
            return
        numbers = [p for p in self._columns.free.values() if p.kind in ("number", "boolean") and p.n_distinct != 1]
        numbers = [p for p in numbers if not has_word(p.name, "earlier")] or numbers
        if numbers:
            self._doubt(
                f"what the reward is: no name says so, so {numbers[-1].name!r}, the last column of numbers, was taken"
            )
            self._take_reward(numbers[-1], "reward", "the last column of numbers: correct this")

    def _take_reward(self, profile: Profile, role: str, why: str) -> None:
        self._columns.take(profile.name, role, why)
        self._proposal.state(role, as_number(profile), why)

    def _after_the_action(self, role: str, episode: Profile | None) -> list[Profile]:
        """Return the columns that are named as the result of an action; those that stand after it come first.

        A name such as "last score" says that the value was known before, and a flag that is the same on all rows of an
        episode tells how it ended.
        """
        named = [p for p in self._columns.named(role, "number", "boolean") if not has_word(p.name, "earlier")]
        named = [p for p in named if p.kind == "number" or episode is None or changes_within(p, episode) > 0]
        names = [profile.name for profile in self._columns.profiles]
        actions = [names.index(name) for name, (own, _) in self._proposal.roles.items() if own == "action"]
        return sorted(named, key=lambda profile: names.index(profile.name) < max(actions, default=0))

    def _reward_by_ends(self, given: dict[str, Any]) -> bool:
        """Propose a reward by the ends, where words tell good ones from bad ones; return whether they do."""
        ended = next((name for name, (role, _) in self._proposal.roles.items() if role == "terminated"), None)
        if ended is None or "terminated" in given:
            return False
        profile = next(p for p in self._columns.profiles if p.name == ended)
        found = reward_of_ends(profile, str(self._proposal.stated["terminated"]))
        if found is not None:
            self._proposal.state(*found, "no column has the name of a reward, and words tell good ends from bad ones")
            self._doubt(f"what the reward is: the ends in {ended!r} were taken")
        return found is not None

    def _next_states(self, families: dict[str, list[str]]) -> None:
        own = [name for name in families["next_state"] if name in self._columns.free]
        for name in own:
            self._columns.set_aside(name, "next_state", "its name says so")
        if own:
            self._proposal.state("next_state", own, "their names say so")

    def _state(self, given: dict[str, Any], families: dict[str, list[str]]) -> None:
        own = [name for name in families["state"] if name in self._columns.free]
        after = self._proposal.stated.get("next_state", [])
        if after and not own:
            own = [name[5:] for name in after if name[5:] in self._columns.free]
        for profile in [] if "state" in given else list(self._columns.free.values()):
            if own and profile.name not in own:
                self._columns.leave(profile.name, "other columns have the names of a state")
            else:
                self._judge(profile)
        if "state" not in given:
            chosen = list(self._columns.free)
            why = "all other columns that change" if not own else "their names say so"
            if chosen:
                self._proposal.state("state", chosen, why)
            else:
                self._doubt("what the state is: no column is left for it")
            propose_for_cells([self._columns.free[name] for name in chosen], self._options, self._proposal)
            ask_of_later([profile.name for profile in self._columns.profiles], chosen, self._proposal)

    def _judge(self, profile: Profile) -> None:
        """Leave a column out that cannot be a state variable."""
        words = words_of(profile.name)
        if profile.kind == "text" and (profile.is_unique or profile.n_distinct > _MOST_LEVELS):
            self._columns.leave(
                profile.name, f"it has {profile.n_distinct} different texts, as identifiers and notes do"
            )
        elif profile.kind == "date":
            self._columns.leave(profile.name, "it holds dates")
            self._proposal.hints.append(f'# elapsed = {{ {as_key(profile.name)} = "1 day" }}  # if it is in the state')
        elif profile.numbers_rows:
            self._columns.leave(profile.name, "it numbers the rows of the table")
        elif profile.kind == "boolean" and has_word(profile.name, "harm"):
            self._columns.leave(
                profile.name, "its name is that of a harm: a result of the action is not part of the state"
            )
            propose_harm(profile, self._proposal)
        elif profile.is_unique and "id" in words:
            self._columns.leave(profile.name, "it is an identifier: every value is different")
        elif is_chance(profile):
            if "action-prob" in self._options:
                self._columns.take(
                    profile.name, "action_prob", "its name: the probability of the action that was taken"
                )
            else:
                self._columns.leave(profile.name, "it looks like the probability of the action that was taken")
        else:
            self._proposal.roles[profile.name] = ("state", profile.described)


def _comes(profile: Profile) -> str:
    return f"its name, and each value occurs {profile.n_filled / profile.n_distinct:.3g} times on average"


def _is_of_result(profile: Profile) -> bool:
    return has_word(profile.name, "reward") or has_word(profile.name, "minimize")


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
