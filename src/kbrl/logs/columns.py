"""After a table is opened: which of its columns is the state, the action, the reward.

The user names them, or they have canonical names or those of another library.  Canonical: episode_id, step,
observation_* (or one column of lists), action, reward, next_observation_*, terminated, truncated.  Recognised as well:
Gymnasium, Minari, D4RL, d3rlpy, RLlib and LeRobot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kbrl.checks import flag
from kbrl.data.column_names import ALIASES, PREFIXES, listing, without_prefix
from kbrl.data.expressions import ExpressionError, Name, filled_in, parse
from kbrl.data.names import with_one_affix
from kbrl.data.recipe import JOINED
from kbrl.data.values import RULES, Rules, rules_of
from kbrl.logs.sequence import period_text, stride_text
from kbrl.tables.faults import LogError
from kbrl.tables.text_files import STATED, dialect_in

ROLES = tuple(ALIASES)
REQUIRED = ("state", "action", "reward")
# About rows and cells; the others name columns.
SETTINGS = ("stride", "allow_gaps", "discount_per", "one_step", "sort", "drop_repeats", *STATED)
SWITCHES = ("one_step", "sort", "drop_repeats")  # settings that are true or false
SEVERAL = ("state", "next_state", "action")  # roles that several columns may have together
BY_EXPRESSION = {"reward": "number", "terminated": "truth", "truncated": "truth"}  # roles, and their types
LAST_ROW = "last_row"  # in an expression: true in the last row of each episode


@dataclass(frozen=True)
class Columns:
    """The name of the column in each role; None, or an empty tuple, if the log has none."""

    state: tuple[str, ...]
    action: str
    reward: str
    next_state: tuple[str, ...] = ()
    terminated: str | None = None
    truncated: str | None = None
    done: str | None = None
    episode: str | None = None
    step: str | None = None
    duration: str | None = None  # how much time passes until the next state
    action_prob: str | None = None  # how likely the action was, for evaluation
    stride: str | None = None  # of the step: a number, a number with a unit of time, or any
    allow_gaps: bool = False  # many rows may be left out: see sequence.LeftOut
    sort: bool = False  # the rows are to be sorted by episode and step
    drop_repeats: bool = False  # also drop rows that repeat another one of the same episode and step
    one_step: bool = False  # each row is an episode of one step: nothing follows it
    discount_per: str | None = None  # a number of steps, or a time: discount by the time that passes
    encoding: str | None = None  # this and the others below: see tables.text_files.Dialect
    delimiter: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    sheet: str | None = None
    query: str | None = None
    split: str | None = None
    skip: str | None = None
    na: str | None = None
    suffix: str | None = None
    fill_down: str | None = None
    dates: str | None = None
    action_parts: tuple[str, ...] = ()  # the columns whose combinations are the actions, if there are several
    rules: Rules = field(default_factory=Rules)  # for the values of the columns

    @property
    def rows_follow(self) -> bool:
        """Whether each row of an episode follows the one above it, so that a value may be carried forward."""
        return self.episode is not None and not self.next_state and not self.one_step

    def used(self) -> tuple[str, ...]:
        """Return the names of all columns that are read."""
        rest = [name for name in (self.duration, self.action_prob) if name is not None]
        return (*self.state, *self.next_state, self.action, self.reward, *self.ordering(), *rest)

    def read_from(self, names: Sequence[str]) -> list[str]:
        """Return which of a table's columns are read, also those that expressions and combined actions are made of."""
        by_role = {role: getattr(self, role) for role in BY_EXPRESSION if getattr(self, role) is not None}
        behind = [name for role, text in by_role.items() for name in columns_read(role, [text], names)]
        known = {*self.used(), *self.action_parts, *behind}
        return [name for name in names if name in known]

    def reads_last_row(self, names: Sequence[str]) -> bool:
        """Return whether an expression reads ``last_row``, which is not among these names of a table's columns."""
        return _reads_last_row(vars(self), names)

    def ordering(self) -> tuple[str, ...]:
        """Return the names of the columns that tell which row follows which."""
        single = (self.terminated, self.truncated, self.done, self.episode, self.step)
        return tuple(name for name in single if name is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return the mapping as a dict for JSON, which can be given as ``columns`` again.

        ``allow_gaps`` is left out: it was stated for one log, not for later ones.  The rules are left
        out, too: the model keeps the recipe that was learnt by them.
        """
        left_out = ("allow_gaps", "action_parts", "rules")
        listed = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items() if k not in left_out}
        listed["action"] = list(self.action_parts) or self.action
        listed |= {name: "true" if listed[name] else None for name in SWITCHES}
        return {role: names for role, names in listed.items() if names}


def resolve(
    names: Sequence[str], given: Mapping[str, Any] | Columns | None = None, *, is_first: bool = True
) -> Columns:
    """Return the column of each role: as the user says, or else recognised by its name.

    ``is_first`` is False for a later log of a model: it may lack columns that settings name.
    >>> resolve(["obs_x", "obs_y", "dose", "reward"], {"action": "dose"}).state
    ('obs_x', 'obs_y')
    """
    named = vars(given) if isinstance(given, Columns) else dict(given or {})
    rules = given.rules if isinstance(given, Columns) else rules_of(named)
    settings = _checked_settings({name: named[name] for name in SETTINGS if name in named})
    roles = given.to_dict() if isinstance(given, Columns) else named
    roles = {role: value for role, value in roles.items() if role not in (*SETTINGS, *RULES)}
    found, parts = _columns_of_roles(names, _to_be_lowered(roles, names))
    _check_rules(rules, found["state"], parts or (found["action"],), columns_read("reward", [found["reward"]], names))
    if not isinstance(given, Columns):
        found["reward"] = _with_missing_rewards(found["reward"], found["state"], rules, names)
    if found["step"] is None and settings.get("stride") is not None:
        raise LogError(
            "missing_column",
            f"A stride of {settings['stride']} was stated, but no column of {listing(names)} is the step.",
            advice=_say_which("step"),
        )
    columns = Columns(**found, **settings, action_parts=parts, rules=rules)
    if columns.one_step:
        _check_one_step(found)
    _check_timing(columns, names)
    if is_first:
        _check_cells(columns, names)
    return columns


def _columns_of_roles(names: Sequence[str], given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the column of each role, and the columns whose combinations are the actions, if there are several."""
    _check_given(given)
    _check_distinct(names)
    known = (*names, LAST_ROW) if _reads_last_row(given, names) else names
    named_by_user = {role: _chosen(role, value, known) for role, value in given.items()}
    found: dict[str, Any] = {}
    for role in ROLES:
        chosen = named_by_user[role] if role in given else _recognised(role, names, named_by_user)
        found[role] = chosen if role in SEVERAL else next(iter(chosen), None)
    parts, found["action"] = found["action"], JOINED.join(found["action"])
    for role in REQUIRED:
        if not found[role]:
            message = f"A log must have a column for the {role}, but {_why_not(role, names, found)}."
            raise LogError("missing_column", message, advice=_say_which(role))
    found["next_state"] = _in_order_of(found["state"], found["next_state"], "next_state" in given)
    _check_last_row(found, names)
    _check_one_role(found | {"action": parts})
    return found, parts if len(parts) > 1 else ()


def _check_cells(columns: Columns, names: Sequence[str]) -> None:
    """Refuse statements about the cells of columns that do not exist."""
    missing = [name for name in dialect_in(columns).named if name not in names]
    if missing:
        raise LogError(
            "missing_column",
            f"na, suffix or fill_down name {listing(missing)}, but the columns are {listing(names)}.",
            columns=missing,
            advice="Name columns of the table: --na 'NAME=999', --suffix 'NAME=mg', --fill-down NAME.",
        )


def _check_timing(columns: Columns, names: Sequence[str]) -> None:
    """Refuse a discount over time where no column tells how much time passed."""
    if columns.discount_per is None or columns.duration is not None:
        return
    if columns.next_state:
        why = "rows have next states of their own, and no column of {} is named as the time until the next state"
    elif columns.step is None:
        why = "no column of {} is the step"
    else:
        return
    message = f"The discount is per {columns.discount_per}, but {why.format(listing(names))}."
    raise LogError("missing_column", message, advice=_say_which("duration" if columns.next_state else "step"))


def _check_one_step(found: Mapping[str, Any]) -> None:
    """With one_step, refuse columns that say what follows a row."""
    for role in ("next_state", "terminated", "truncated", "done", "step"):
        name = found[role][0] if role == "next_state" and found[role] else found[role]
        if name:
            raise LogError(
                "ambiguous_column",
                f"With one_step, every row ends its episode, but {name!r} has the role {role!r}.",
                columns=[name],
                advice="Leave out --one-step; or rename the column, which is recognised by its name.",
            )


def _to_be_lowered(given: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the columns with the reward that ``minimize`` means: less of a column, or of an expression, is better."""
    if "minimize" not in given:
        return given
    if "reward" in given:
        raise ValueError("columns must have 'reward' or 'minimize', but it has both: minimize = X is reward = -X.")
    text = given["minimize"]
    column = f"`{text}`" if text in names else f"({text})"
    return {role: value for role, value in given.items() if role != "minimize"} | {"reward": f"-{column}"}


def _say_which(role: str, request: str = "Say which column it is") -> str:
    """Return the advice to name the column of a role."""
    option = "" if role == "done" else f"--{role.replace('_', '-')} NAME, "  # done is recognised only by its name
    return f"{request}: {option}in Python columns={{{role!r}: NAME}}."


def _checked_settings(settings: dict[str, Any]) -> dict[str, Any]:
    for name, as_text in (("stride", stride_text), ("discount_per", period_text)):
        if settings.get(name) is not None:
            settings[name] = as_text(settings[name])
    for name in SWITCHES:
        if name in settings:
            settings[name] = flag(settings[name] == "true" or settings[name], name)
    if "allow_gaps" in settings:
        settings["allow_gaps"] = flag(settings["allow_gaps"], "allow_gaps")
    return settings | dialect_in(settings).to_dict()


def _with_missing_rewards(reward: str, state: Sequence[str], rules: Rules, names: Sequence[str]) -> str:
    """Return the reward in which missing values count what the rules say; a column becomes an expression then."""
    stated = {name: rules.missing[name] for name in columns_read("reward", [reward], names) if name in rules.missing}
    for name, rule in stated.items():
        if not isinstance(rule, float) and name not in state:
            raise ValueError(f"missing[{name!r}] must be a number, because it is about the reward, but it is {rule!r}.")
    constants = {name: rule for name, rule in stated.items() if isinstance(rule, float)}
    return filled_in(f"`{reward}`" if reward in names else reward, constants) if constants else reward


def _check_rules(rules: Rules, state: Sequence[str], actions: Sequence[str], rewarding: Sequence[str]) -> None:
    """Refuse rules for columns that they cannot be about."""
    for rule, names in rules.named().items():
        known = [*state, *rewarding] if rule == "missing" else list(state)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise LogError(
                "missing_column",
                f"The rule {rule!r} must name columns of the state, {listing(list(state))}, but it names "
                f"{listing(unknown)}.",
                columns=unknown,
                advice=f"Name a column of the state, as in --{rule} {state[0]}=..., or add it to --state.",
            )
    unknown = [name for name in rules.bins if name not in actions]
    if unknown:
        raise LogError(
            "missing_column",
            f"The rule 'bins' must name the column of the action, {listing(list(actions))}, but it names "
            f"{listing(unknown)}.",
            columns=unknown,
            advice=f"Name it: --bins {actions[0]}=4.",
        )
    for label, text in rules.allowed.items():
        other = [name for name in parse(text, "truth").columns if name not in state]
        if other:
            raise LogError(
                "bad_expression",
                f"Where {label!r} is allowed, {text!r}, must depend on the state alone, {listing(list(state))}, but it "
                f"reads {listing(other)}.",
                columns=other,
                advice="Add these columns to the state: nothing else is known when an answer is asked for.",
            )


def _why_not(role: str, names: Sequence[str], found: Mapping[str, Any]) -> str:
    """Return why no column has a required role: no name fits, or the user gave the column another role."""
    for other, chosen in found.items():
        for name in [chosen] if isinstance(chosen, str) else chosen or ():
            if name.lower() in ALIASES[role] or name.lower().startswith(PREFIXES.get(role, ())):
                return f"{name!r} is already the {other}, and no other column fits"
    return f"it has {listing(names)}"


def _check_one_role(found: Mapping[str, Any]) -> None:
    """Refuse a column with two roles."""
    roles: dict[str, list[str]] = {}
    for role, chosen in found.items():
        for name in [chosen] if isinstance(chosen, str) else chosen or ():
            roles.setdefault(name, []).append(role)
    for name, its_roles in roles.items():
        if len(its_roles) > 1 and its_roles != ["terminated", "done"]:
            raise LogError(
                "ambiguous_column",
                f"A column must have one role, but {name!r} is named as {' and as '.join(its_roles)}. Name another "
                f"column, or copy it under another name.",
                columns=[name],
            )


def resolve_state(names: Sequence[str], given: str | Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the columns of the state, for a table that needs no others."""
    mapped: dict[str, Any] = {} if given is None else {"state": given}
    _check_given(mapped)
    _check_distinct(names)
    found = _recognised("state", names, {}) if given is None else _chosen("state", given, names)
    if not found:
        raise LogError(
            "missing_column",
            f"A table of states must have columns for the state, but has {listing(names)}.",
            advice=_say_which("state"),
        )
    return found


def columns_read(role: str, listed: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """Return the columns behind a role: those named, or those that its expression reads."""
    if role not in BY_EXPRESSION or set(listed) <= set(names):
        return listed
    return [name for name in _names_in(listed[0]) if name != LAST_ROW or name in names]


def _names_in(text: str) -> list[str]:
    """Return the columns that an expression reads; a text that is no expression names a column."""
    try:
        return list(parse(text).columns)
    except ExpressionError:
        return [text]


def _reads_last_row(chosen: Mapping[str, Any], names: Sequence[str]) -> bool:
    texts = [text for role in BY_EXPRESSION if isinstance(text := chosen.get(role), str) and LAST_ROW in text]
    return LAST_ROW not in names and any(LAST_ROW in _names_in(text) for text in texts)


def _check_last_row(found: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse ``last_row`` where nothing tells which row is the last of its episode."""
    if _reads_last_row(found, names) and (found["episode"] is None or found["next_state"]):
        why = "rows have next states of their own" if found["next_state"] else "no column is named as the episode"
        raise LogError(
            "missing_column",
            f"last_row is the last row of an episode whose rows follow each other, but {why}.",
            columns=[LAST_ROW],
            advice="Name the column of the episode: --episode NAME; or use a column that marks the ends.",
        )


def _check_given(given: Mapping[str, Any]) -> None:
    unknown = [role for role in given if role not in ROLES]
    if unknown:
        raise ValueError(
            f"columns must map some of {', '.join(ROLES)} to names, or set {', '.join(SETTINGS)}, minimize, "
            f"{', '.join(RULES)}, but it also has {listing(unknown)}."
        )
    for role, value in given.items():
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
            raise TypeError(f"columns[{role!r}] must be the name of a column or several, but it is {value!r}.")
        if len(names) > 1 and role not in SEVERAL:
            raise ValueError(f"columns[{role!r}] must be one column, but it is {value!r}.")


def _check_distinct(names: Sequence[str]) -> None:
    # Several columns without a name are what separators at the ends of lines make; nothing can be said of them.
    repeated = sorted(name for name, count in Counter(names).items() if count > 1 and name)
    if repeated:
        raise LogError(
            "repeated_column",
            f"Columns must have different names, but {listing(repeated)} occur more than once.",
            columns=repeated,
        )


def _chosen(role: str, value: str | Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that the user named; 'age,sofa' means two columns unless one has that name."""
    if isinstance(value, str):
        several = role in SEVERAL and value not in names
        value = [part.strip() for part in value.split(",")] if several else [value]
    there = set(names)
    missing = [name for name in value if name not in there]
    if missing and role in BY_EXPRESSION and _is_expression(value[0], role, names):
        return tuple(value)
    if missing:
        raise LogError(
            "missing_column",
            f"The {role} should be in {listing(missing)}, but the columns are {listing(names)}.",
            columns=missing,
            advice=_say_which(role),
        )
    return tuple(value)


def _is_expression(text: str, role: str, names: Sequence[str]) -> bool:
    """Return whether a text that names no column is an expression; refuse one that cannot be read or evaluated."""
    try:
        expression = parse(text, BY_EXPRESSION[role])  # type: ignore[arg-type]
    except ExpressionError as error:
        raise LogError(
            "bad_expression", f"The {role} must be a column or an expression. {error} The columns are {listing(names)}."
        ) from None
    if isinstance(expression.tree, Name):
        return False
    unknown = [name for name in expression.columns if name not in names]
    if unknown:
        raise LogError(
            "bad_expression",
            f"The {role}, {text!r}, reads {listing(unknown)}, but the columns are {listing(names)}.",
            columns=unknown,
        )
    return True


def _recognised(role: str, names: Sequence[str], chosen: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the columns of a role by their usual names; those that the user chose for any role are taken."""
    taken = {name for own in chosen.values() for name in own}
    if role == "next_state" and "state" in chosen:  # the user's own names: age -> next_age
        own = tuple(f"next_{name}" for name in chosen["state"])
        if set(names).issuperset(own):
            return own
    free = [name for name in names if name not in taken]
    families: list[tuple[str, ...]] = [(name,) for name in free if name.lower() in ALIASES[role]]
    for prefix in PREFIXES.get(role, ()):
        family = tuple(name for name in free if name.lower().startswith(prefix))
        families += [family] if family else []
    if len(families) > 1:
        rivals = [name for family in families for name in family]
        raise LogError(
            "ambiguous_column",
            f"Only one column or family of columns can be the {role}, but {listing(rivals)} all fit.",
            columns=rivals,
            advice=_say_which(role, "Name the one to use"),
        )
    return families[0] if families else ()


def _in_order_of(state: tuple[str, ...], next_state: tuple[str, ...], given: bool) -> tuple[str, ...]:
    """Return the columns of the next state in the order of those of the state, by the names after the prefix."""
    if given:  # they may have any names, and are in this order then
        return tuple(with_one_affix(next_state, state) or next_state)
    if len(next_state) <= 1:
        return next_state
    variables = without_prefix(state)
    prefixes = (*PREFIXES["next_state"], "next_")
    places = {next((name[len(p) :] for p in prefixes if name.lower().startswith(p)), name): name for name in next_state}
    if sorted(places) != sorted(variables):
        raise LogError(
            "wrong_width",
            f"Next states must have the variables of the states, {listing(variables)}, but theirs are "
            f"{listing(sorted(places))}.",
            columns=next_state,
        )
    return tuple(places[variable] for variable in variables)
