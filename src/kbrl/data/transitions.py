"""The record of what was observed: rows of state, action, reward, next state, and whether the episode ended.

These are the paper's sample transitions, S^a for every action a at once.  They are checked when they are made and
cannot be changed afterwards, so all other code may trust them.

Actions may carry any labels.  Inside, they are indices into ``action_labels``; answers give the labels back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from operator import add
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats, Integers
from kbrl.checks import (
    as_floats,
    as_rows,
    check_finite,
    check_lengths,
    one_entry_per_row,
    refuse_masked,
    refuse_rows,
    whole,
)
from kbrl.data.names import (
    UNNAMED,
    Source,
    as_labels,
    find_label,
    frame_names,
    index_labels,
    next_rows_by_name,
    positions,
    rows_by_name,
    unite_labels,
)
from kbrl.notebooks import MOST_LABELS, counted, html_table

_PER_ROW = ("states", "action_indices", "rewards", "next_states", "terminals", "episodes", "durations", "propensities")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Transitions:
    """Sample transitions, one array per field.

    ``states`` and ``next_states`` are (n, n_dims) arrays or frames; ``actions``, ``rewards``, ``terminals`` and
    ``episodes`` have one entry per row.  ``action_labels`` lists the possible actions if not all of them occur in the
    data, or if their order matters; by default it is the sorted labels that occur.  ``state_names`` names the state
    variables; a frame of states has names of its own.  ``propensities`` says how likely each action was when it was
    taken; no learner uses it, but an evaluation may.  ``durations`` says how long each step took, if steps differ, in
    periods of the discount: after a duration of 2, a reward counts discount squared.

    >>> log = Transitions(states=[[0.0], [0.5]], actions=["go", "wait"], rewards=[0, 1], next_states=[[0.5], [1.0]],
    ...                   terminals=[False, True])
    >>> log
    Transitions(2 rows, 1 state variable, 2 actions: go, wait; 1 terminal)
    >>> log[1:].actions.tolist(), (log + log).rewards.tolist()
    (['wait'], [0.0, 1.0, 0.0, 1.0])
    """

    states: Floats  # (n, n_dims)
    action_indices: Integers  # (n,) into action_labels
    rewards: Floats  # (n,)
    next_states: Floats  # (n, n_dims)
    terminals: Booleans  # (n,): the episode really ended here; a time limit is not an end
    episodes: Array | None  # (n,) identifiers, or None
    action_labels: Array  # (n_actions,)
    source: Source  # the names of the variables, and what else is known of the log
    n_dims: int  # state variables
    n_actions: int  # possible ones, tried or not
    durations: Floats | None  # (n,), in periods of the discount; None: every step takes one
    propensities: Floats | None  # (n,), how likely the action was when it was taken, for evaluation; None: not known

    def __init__(
        self,
        states: Any,
        actions: Any,
        rewards: Any,
        next_states: Any,
        terminals: Any = None,
        episodes: Any = None,
        *,
        action_labels: Sequence[Any] | Array | None = None,
        state_names: Sequence[str] | None = None,
        durations: Any = None,
        propensities: Any = None,
    ) -> None:
        source = _source(state_names, states, (actions, rewards, terminals, episodes), next_states)
        states = as_rows(states if frame_names(states) is None else rows_by_name(states, source), "states")
        next_states = as_rows(next_rows_by_name(next_states, source), "next_states", n_dims=states.shape[1])
        _check_state_names(source, states.shape[1])
        actions = as_labels(actions, "actions")
        rewards = one_entry_per_row(as_floats(rewards, "rewards"), "rewards")
        terminals = np.zeros(len(states), dtype=bool) if terminals is None else as_flags(terminals, "terminals")
        lengths = {"states": len(states), "actions": len(actions), "rewards": len(rewards)}
        lengths |= {"next_states": len(next_states), "terminals": len(terminals)}
        if episodes is not None:
            episodes = as_labels(episodes, "episodes")
            lengths["episodes"] = len(episodes)
        if durations is not None:
            durations = one_entry_per_row(as_floats(durations, "durations"), "durations")
            lengths["durations"] = len(durations)
        if propensities is not None:
            propensities = one_entry_per_row(as_floats(propensities, "propensities"), "propensities").copy()
            lengths["propensities"] = len(propensities)
        check_lengths(lengths)
        check_finite(rewards, "rewards")
        _check_durations(durations)
        _check_propensities(propensities)
        labels, indices = index_labels(actions, action_labels)
        fields = (states.copy(), indices, rewards.copy(), next_states.copy(), terminals.copy(), episodes, labels)
        self._set(*fields, source, None if durations is None else durations.copy(), propensities)

    def _set(
        self,
        states: Floats,
        action_indices: Integers,
        rewards: Floats,
        next_states: Floats,
        terminals: Booleans,
        episodes: Array | None,
        action_labels: Array,
        source: Source = UNNAMED,
        durations: Floats | None = None,
        propensities: Floats | None = None,
    ) -> None:
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "n_dims", states.shape[1])
        object.__setattr__(self, "n_actions", len(action_labels))
        fields: dict[str, Array | None] = {
            "states": states,
            "action_indices": action_indices,
            "rewards": rewards,
            "next_states": next_states,
        }
        fields |= {"terminals": terminals, "episodes": episodes, "action_labels": action_labels}
        fields |= {"durations": durations, "propensities": propensities}
        for name, value in fields.items():
            if value is not None:
                value = value.view()
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    @classmethod
    def trusted(cls, *fields: Any) -> Transitions:
        """Return transitions made of arrays in the order of the fields, without a check or a copy."""
        self = cls.__new__(cls)
        self._set(*fields)
        return self

    @property
    def actions(self) -> Array:
        """The labels of the actions taken, (n,)."""
        return self.action_labels[self.action_indices]

    @property
    def state_names(self) -> tuple[str, ...] | None:
        """The names of the state variables, if they have any."""
        return self.source.state_names

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        labels = ", ".join(map(str, self.action_labels[:6])) + (", ..." if self.n_actions > 6 else "")
        variables = f"{self.n_dims} state variable{'' if self.n_dims == 1 else 's'}"
        return (
            f"Transitions({len(self)} rows, {variables}, {self.n_actions} actions: {labels}; "
            f"{int(self.terminals.sum())} terminal{'' if self.durations is None else ', with durations'})"
        )

    def _repr_html_(self) -> str:
        """Return a summary, as a notebook shows it."""
        names = self.state_names or [f"variable {place}" for place in range(self.n_dims)]
        spans = zip(names, self.states.min(axis=0), np.median(self.states, axis=0), self.states.max(axis=0))
        rows = [(name, *(f"{x:.4g}" for x in found)) for name, *found in spans][:MOST_LABELS]
        total = (self.rewards.min(), np.median(self.rewards), self.rewards.max())
        rows += [("reward", *(f"{x:.4g}" for x in total))]
        rows += [("actions", counted(self.action_labels, np.bincount(self.action_indices, minlength=self.n_actions)))]
        if self.episodes is not None:
            rows += [("episodes", f"{len(np.unique(self.episodes)):,}; {int(self.terminals.sum()):,} of them end")]
        more = f", the first {MOST_LABELS} shown" if self.n_dims > MOST_LABELS else ""
        title = f"{len(self):,} transitions, {self.n_dims} state variables{more}"
        return html_table(title, rows, head=("", "smallest", "median", "largest"))

    def __getitem__(self, rows: slice | Integers | Booleans | list[int] | list[bool]) -> Transitions:
        """Return some of the rows, at least one; the set of possible actions stays the same."""
        if not isinstance(rows, slice) and np.ndim(rows) != 1:
            raise TypeError(
                f"Transitions are sliced by a range or an array of rows, not by {rows!r}; use log[i:i + 1]."
            )
        fields = {name: field[rows] for name in _PER_ROW if (field := getattr(self, name)) is not None}
        if len(fields["states"]) == 0:
            raise ValueError(f"Transitions must have at least one row, but {rows!r} selects none of {len(self)}.")
        return self.replaced(**fields)

    def __add__(self, other: Transitions) -> Transitions:
        return join([self, other])

    def by_action(self) -> list[Integers]:
        """Return, for each action, the rows in which it was taken, in their order."""
        order = stable_order(self.action_indices, self.n_actions)
        counts = np.bincount(self.action_indices, minlength=self.n_actions)
        return np.split(order, np.cumsum(counts)[:-1])

    def chunks(self, n_rows: int) -> Iterator[Transitions]:
        """Yield the rows in their order, at most ``n_rows`` at a time."""
        whole(n_rows, "n_rows")
        for start in range(0, len(self), n_rows):
            yield self[start : start + n_rows]

    def with_actions(self, labels: Array) -> Transitions:
        """Return the same transitions with other action labels, which must include all actions taken."""
        if self.action_labels.tolist() == labels.tolist():
            return self
        places = {label: place for place, label in enumerate(labels.tolist())}
        taken = self.action_labels[np.unique(self.action_indices)].tolist()
        unknown = [label for label in taken if find_label(label, places) < 0]
        if unknown:
            raise ValueError(
                f"Transitions must use the actions known from the first data, {labels.tolist()}, but they also have "
                f"{unknown}. Name all actions in the first log: Transitions(..., action_labels=[...])."
            )
        numbers = np.array([find_label(label, places) for label in self.action_labels.tolist()], dtype=np.intp)
        return self.replaced(action_indices=numbers[self.action_indices], action_labels=labels)

    def replaced(self, **fields: Any) -> Transitions:
        """Return the same transitions with other arrays for some of the fields; they are not checked."""
        names = (*_PER_ROW[:6], "action_labels", "source", *_PER_ROW[6:])
        return self.trusted(*(fields.get(name, getattr(self, name)) for name in names))

    def in_order_of(self, source: Source) -> Transitions:
        """Return the same transitions with the state variables in the order of ``source``; refuse other variables."""
        places = source.places_in(self.source)
        if places is None:
            return self
        states, next_states = (np.ascontiguousarray(rows[:, places]) for rows in (self.states, self.next_states))
        named = replace(self.source, state_names=source.state_names)
        return self.replaced(states=states, next_states=next_states, source=named)


def stable_order(places: Integers, n_places: int) -> Integers:
    """Return the rows in the order of their places, (n,), from 0 to n_places - 1; equal ones stay in their order.

    NumPy sorts numbers of 16 bits or less without comparing them, which takes a tenth of the time.
    """
    return np.argsort(places.astype(np.min_scalar_type(n_places)), kind="stable")


def join(logs: Iterable[Transitions]) -> Transitions:
    """Return logs one after the other; their sets of actions are united in order of appearance.

    >>> from kbrl import Transitions, join
    >>> first = Transitions(states=[[0.0]], actions=["go"], rewards=[0.0], next_states=[[0.5]])
    >>> second = Transitions(states=[[0.5]], actions=["wait"], rewards=[1.0], next_states=[[0.5]])
    >>> both = join([first, second])
    >>> both.rewards.tolist(), both.action_labels.tolist()
    ([0.0, 1.0], ['go', 'wait'])
    """
    logs = _as_logs(logs)
    if not logs:
        raise ValueError("join needs at least one log, but it got none.")
    if len({log.n_dims for log in logs}) > 1:
        raise ValueError(f"Logs to join must have the same state variables, but they have {[g.n_dims for g in logs]}.")
    source = reduce(add, [log.source for log in logs])
    logs = [log.in_order_of(source) for log in logs]
    labels = unite_labels([log.action_labels for log in logs])
    indices = [positions(labels, log.action_labels)[log.action_indices] for log in logs]
    has_episodes = all(log.episodes is not None for log in logs)
    has_durations = [log.durations is not None for log in logs]
    propensities = [log.propensities for log in logs if log.propensities is not None]
    if len(set(has_durations)) > 1:
        raise ValueError("Logs to join must all have durations or none of them, but some have them.")
    return Transitions.trusted(
        np.concatenate([log.states for log in logs]),
        np.concatenate(indices),
        np.concatenate([log.rewards for log in logs]),
        np.concatenate([log.next_states for log in logs]),
        np.concatenate([log.terminals for log in logs]),
        np.concatenate([log.episodes for log in logs]) if has_episodes else None,
        labels,
        source,
        np.concatenate([log.durations for log in logs]) if all(has_durations) else None,
        np.concatenate(propensities) if len(propensities) == len(logs) else None,  # lost where one log has none
    )


def _check_durations(durations: Floats | None) -> None:
    if durations is not None:
        check_finite(durations, "durations")
        if (durations <= 0).any():
            refuse_rows(durations <= 0, durations, "durations", "be above 0", "Leave such steps out, or join them.")


def _check_propensities(propensities: Floats | None) -> None:
    if propensities is not None:
        bad = ~((propensities > 0) & (propensities <= 1))
        if bad.any():
            refuse_rows(bad, propensities, "propensities", "lie above 0 and up to 1", "An action taken was possible.")


_BY_TIME = "Learn by KBSF or KBRL, which discount by time, or leave the durations out."


def refuse_durations(log: Transitions, who: str, way_out: str = _BY_TIME) -> None:
    """Refuse a log with durations where all steps are taken as equally long."""
    if log.durations is not None:
        raise ValueError(f"{who} takes every step as equally long, but this log has durations. {way_out}")


def refuse_allowed(log: Transitions, who: str) -> None:
    """Refuse a log with rules for allowed actions, for a learner that cannot follow them."""
    if log.source.recipe is not None and log.source.recipe.allowed:
        raise ValueError(
            f"{who} takes the maximum over all actions, but this log says where actions are allowed. Learn by KBSF, "
            f"which honours it, or leave 'allowed' out."
        )


def without_ends(log: Transitions) -> Transitions:
    """Return a log in which no episode ends, for terminals='continue'; refuse ends of steps with durations."""
    if log.durations is not None and log.terminals.any():
        raise ValueError(
            "terminals='continue' needs steps of one length: the duration of a last step is not known. Leave out "
            "the durations, or use terminals='absorb'."
        )
    return log.replaced(terminals=np.zeros(len(log), dtype=bool))


def _source(state_names: Any, states: Any, columns: Iterable[Any], next_states: Any) -> Source:
    """Return the names that were given, or those of the frame of states, and those of other columns."""
    given = frame_names(states) if state_names is None else tuple(state_names)
    others = [column.name for column in columns if isinstance(getattr(column, "name", None), str)]
    rest = [name for name in (*others, *(frame_names(next_states) or ())) if name not in (given or ())]
    return Source(given, tuple(dict.fromkeys(rest)))


def _check_state_names(source: Source, n_dims: int) -> None:
    names = source.state_names
    if names is None:
        return
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError(f"state_names must be different words, but they are {list(names)!r}.")
    if len(names) != n_dims:
        raise ValueError(f"state_names must name {n_dims} state variables, but they are {list(names)!r}.")


def _as_logs(logs: Any) -> list[Transitions]:
    if isinstance(logs, Transitions) or not isinstance(logs, Iterable):
        raise TypeError(f"join needs a list of Transitions, as in join([log, other]), but it got {logs!r}.")
    logs = list(logs)
    for place, log in enumerate(logs):
        if not isinstance(log, Transitions):
            raise TypeError(f"Only Transitions can be joined, but number {place} is {log!r}.")
    return logs


def as_flags(values: Any, name: str) -> Booleans:
    """Return truth values, (n,), given as such or as 0 and 1; refuse anything else, such as the word "False"."""
    refuse_masked(values, name)
    array = one_entry_per_row(np.asarray(values), name)
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be true or false, but their type is {array.dtype}. Pass booleans, or 0 and 1.")
    bad = (array != 0) & (array != 1)
    if bad.any():
        refuse_rows(bad, array, name, "be true or false", "Pass booleans, or 0 and 1.")
    return array.astype(bool)


def as_chunks(log: Any) -> Iterator[Transitions]:
    """Return the chunks of a log: one if it is Transitions, else those that it yields, at least one."""
    if isinstance(log, Transitions) or not isinstance(log, Iterable):
        return iter([as_log(log)])
    chunks = map(as_log, log)
    first = next(chunks, None)
    if first is None:
        raise ValueError("fit needs at least one chunk of transitions, but the iterable is empty.")
    return chain([first], chunks)


def as_log(log: Any) -> Transitions:
    """Refuse anything but Transitions."""
    if hasattr(log, "__dask_graph__"):
        raise TypeError("A Dask collection is learnt from by kbrl.fit_on_dask(learner, log, client=client).")
    if hasattr(log, "chunks") and not isinstance(log, Transitions):
        raise TypeError("An opened log is learnt from by kbrl.fit_log(learner, log), which reads it twice.")
    if not isinstance(log, Transitions):
        raise TypeError(
            f"A learner learns from Transitions, but it got {type(log).__name__}. "
            f"Make them by Transitions(states, actions, rewards, next_states, terminals), or read a frame or a file by "
            f"load_log(frame, columns={{...}})."
        )
    return log
