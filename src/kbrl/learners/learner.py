"""What all learners share: scikit-learn's habits, and how they answer.

Parameters are stored untouched at construction and checked by ``fit``; what was learnt ends in an underscore.
A learner answers through its Q function: ``q_values``, ``predict`` and ``act``.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from kbrl.arrays import Array, Floats, Integers
from kbrl.checks import KbrlWarning, NotFittedError
from kbrl.data.names import UNNAMED, Source, answered, state_rows
from kbrl.data.scaling import Coordinates
from kbrl.mdp.dynamic_programming import best_actions
from kbrl.model.q_functions import GreedyPolicy
from kbrl.settings import FEW_CASES

L = TypeVar("L", bound="Learner")


class Learner:
    """A learner: ``get_params``, ``set_params``, and answers from what ``fit`` has learnt.

    States are arrays, (n_states, n_dims), with the variables in the order of the data; or frames, whose columns are
    found by the names of the data.
    """

    action_labels_: Array  # (n_actions,), in the order of the columns of q_values
    coordinates_: Coordinates  # the centre and the scale of each state variable
    source_: Source = UNNAMED  # the names of the state variables, if the data had any

    @classmethod
    def parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters with which the learner was made.

        deep: also those of parameters that have some themselves, such as growth__distance.
        """
        params = {name: getattr(self, name) for name in self.parameter_names()}
        nested = [(name, value) for name, value in params.items() if deep and _has_params(value)]
        return params | {f"{name}__{key}": inner for name, value in nested for key, inner in value.get_params().items()}

    def set_params(self: L, **params: Any) -> L:
        """Change parameters, or what is in them, as in growth__distance=0.3; they take effect at the next ``fit``."""
        unknown = sorted({name.partition("__")[0] for name in params} - set(self.parameter_names()))
        if unknown:
            raise ValueError(f"{type(self).__name__} has no parameter {self._unknown(unknown, params)}")
        for name in sorted(params, key=lambda name: "__" in name):  # whole parameters first
            outer, is_inner, inner = name.partition("__")
            value = _with_inner(getattr(self, outer), name, inner, params[name]) if is_inner else params[name]
            setattr(self, outer, value)
        return self

    @classmethod
    def _unknown(cls, names: list[str], params: dict[str, Any]) -> str:
        """Return the unknown parameters, and those that exist."""
        return f"{', '.join(names)}; it has {', '.join(cls.parameter_names())}."

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [f"{k}={v!r}" for k, v in self.get_params(deep=False).items() if not _same(v, defaults[k].default)]
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def n_features_in_(self) -> int:
        """The number of state variables of the data."""
        self._check_fitted()
        return self.coordinates_.n_dims

    @property
    def scale_(self) -> Floats:
        """What each state variable is divided by, (n_dims,)."""
        self._check_fitted()
        return self.coordinates_.scale

    @property
    def feature_names_in_(self) -> Array:
        """The names of the columns of the state, as in scikit-learn; an AttributeError if the data had none."""
        if self.source_.recipe is not None:
            return np.array(self.source_.recipe.names, dtype=object)
        if self.source_.state_names is None:
            raise AttributeError(f"This {type(self).__name__} has no names of state variables: its data had none.")
        return np.array(self.source_.state_names, dtype=object)

    @property
    def chooses_by(self) -> str:
        """The name of the method whose best column ``predict`` chooses: "q_values", unless a learner says otherwise."""
        return "q_values"

    def q_values(self, states: Any) -> Floats:
        """Return the value of each action in each state, (n_states, n_dims) to (n_states, n_actions).

        An action that was never tried has the value -inf.
        """
        return self._q_function()(self._scaled(states))

    def values(self, states: Any) -> Floats:
        """Return the value of each state, (n_states,): that of its best action."""
        return self.q_values(states).max(axis=1)

    def predict(self, states: Any) -> Any:
        """Return the label of the best action for each state, (n_states,).

        For a frame of pandas or polars, a series with the frame's index; a row without a state has the answer None.
        """
        return answered(states, self.source_, self._best)

    def _best(self, states: Any) -> Array:
        q = self.q_values(states)  # first: it says so if nothing has been learnt
        return self.action_labels_[best_actions(q, where_none=None)]

    def act(self, state: Any) -> Any:
        """Return the label of the best action for one state, (n_dims,)."""
        return self.policy().act(state)

    def policy(self) -> GreedyPolicy:
        """Return the current greedy policy, which later learning does not change."""
        return GreedyPolicy(self._q_function(), self.coordinates_, self.action_labels_, self.source_)

    def _q_function(self) -> Callable[[Floats], Floats]:
        raise NotFittedError(f"{type(self).__name__} does not say how it values actions.")

    def _check_fitted(self) -> None:
        if not hasattr(self, "coordinates_"):
            name = type(self).__name__
            raise NotFittedError(f"This {name} has not learnt anything yet. Call fit with transitions first.")

    def _scaled(self, states: Any) -> Floats:
        self._check_fitted()
        return self.coordinates_.of(state_rows(states, self.source_, self.coordinates_.n_dims))


def clone(learner: L) -> L:
    """Return a learner with the same parameters that has learnt nothing.

    >>> from kbrl import KBSF, clone
    >>> clone(KBSF(n_reps=20, discount=0.9))
    KBSF(n_reps=20, discount=0.9)
    """
    if isinstance(learner, type) or not hasattr(learner, "get_params"):
        raise TypeError(f"clone needs a learner with get_params, such as KBSF(), but it got {learner!r}.")
    return type(learner)(**learner.get_params(deep=False))


_is_said_elsewhere: ContextVar[bool] = ContextVar("is_said_elsewhere", default=False)


@contextmanager
def said_elsewhere() -> Iterator[None]:
    """Suppress the learners' warnings about rare actions: the caller warns once for all of them."""
    token = _is_said_elsewhere.set(True)
    try:
        yield
    finally:
        _is_said_elsewhere.reset(token)


def say_if_rare(labels: Array, counts: Integers, min_cases: int | None = None) -> None:
    """Warn of actions that are left out though nobody asked for it, or where that leaves nothing to decide."""
    if _is_said_elsewhere.get():
        return
    taken = dict(zip(labels.tolist(), counts.tolist()))
    message = _left(taken, min_cases or FEW_CASES)
    if min_cases is None and max(taken.values()) >= FEW_CASES:  # else all are kept
        message = f"{_rare(taken)} {message}".strip()
    if message:
        warnings.warn(message, KbrlWarning, stacklevel=3)


def _rare(taken: dict[Any, int]) -> str:
    n_rows, rare = sum(taken.values()), [label for label, n in taken.items() if 0 < n < FEW_CASES]
    if not rare:
        return ""
    shown = ", ".join(f"{label!r} ({taken[label]})" for label in rare[:5])
    more = f" and {len(rare) - 5} more" if len(rare) > 5 else ""
    return (
        f"Of {n_rows} transitions, {len(rare)} of {len(taken)} actions have fewer than {FEW_CASES} cases, and may look "
        f"good by luck: {shown}{more}. They are left out, without a value; min_cases=1 keeps them, "
        f"min_cases={FEW_CASES} leaves them out without this warning."
    )


def _left(taken: dict[Any, int], min_cases: int) -> str:
    often = [label for label, n in taken.items() if n >= min_cases]
    n_rare = sum(0 < n < min_cases for n in taken.values())
    if not often:
        return (
            f"No action was taken min_cases={min_cases} times, so all {len(taken)} are kept; the most frequent was "
            f"taken {max(taken.values())} times. Put similar actions into a few classes; min_cases=1 keeps all without "
            f"this warning."
        )
    if len(often) > 1 or not n_rare:
        return ""
    others = "the other one was" if n_rare == 1 else f"the {n_rare} others were"
    return (
        f"Nothing is left to decide: the advice is {often[0]!r} in every state, as {others} taken fewer than "
        f"{min_cases} times. Put similar actions into a few classes, or learn from more data; min_cases=1 keeps all."
    )


def _has_params(value: Any) -> bool:
    return hasattr(value, "get_params") and not isinstance(value, type)


def _with_inner(outer: Any, name: str, inner: str, value: Any) -> Any:
    """Return a parameter in which one of its own has changed: the same object, or a new one if it is a record."""
    if isinstance(outer, dict):
        return outer | {inner: value}
    if not _has_params(outer):
        raise ValueError(f"{name} cannot be set: {name.partition('__')[0]} is {outer!r}, which has no parameters.")
    return outer.set_params(**{inner: value})


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and np.array_equal(value, default))
