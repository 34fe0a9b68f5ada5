"""The small logs that the checks teach a learner, made afresh each time, so that no check affects another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats
from kbrl.data.transitions import Transitions
from kbrl.learners.learner import clone

DISCOUNT = 0.5  # for problems worked out by hand
BLUR = 0.1  # by how much smoothing and regularisation may move their values
LABELS = np.arange(3)


def is_online(learner: Any) -> bool:
    """Return whether a learner learns only while acting, without ``fit``."""
    return not hasattr(learner, "fit") and hasattr(learner, "act") and hasattr(learner, "observe")


def taught(learner: Any, log: Transitions, **params: Any) -> Any:
    """Return a copy that has learnt from a log; it has these parameters, as far as the learner knows them."""
    if is_online(learner):
        params["actions"] = log.action_labels
    return teach(with_params(learner, **params), log)


def teach(learner: Any, log: Transitions) -> Any:
    """Teach a learner a log, by ``fit`` or row by row, and return it."""
    if not is_online(learner):
        return learner.fit(log)
    columns = (log.states, log.actions.tolist(), log.rewards.tolist(), log.next_states, log.terminals.tolist())
    for row in zip(*columns):
        learner.observe(*row)
    return learner


def with_params(learner: Any, **params: Any) -> Any:
    """Return a copy with these parameters, as far as the learner, or a learner among its parameters, has them."""
    known = learner.get_params(deep=False)
    inner = {name: with_params(value, **params) for name, value in known.items() if _is_learner(value)}
    own = learner.get_params()  # with those of groups of settings
    return clone(learner).set_params(**inner | {name: value for name, value in params.items() if name in own})


def discount_of(learner: Any) -> float:
    """Return the discount of a learner, or of a learner among its parameters."""
    known = learner.get_params(deep=False)
    inner = [discount_of(value) for value in known.values() if _is_learner(value)]
    return float(known.get("discount", inner[0] if inner else DISCOUNT))


def _is_learner(value: Any) -> bool:
    return hasattr(value, "get_params") and hasattr(value, "q_values")


def some_states() -> Floats:
    """Return twelve states in the unit square."""
    return np.random.default_rng(7).random((12, 2))


def some_log(*, seed: int = 0, n_actions: int = 3, labels: Array = LABELS) -> Transitions:
    """Return forty random transitions in the unit square; every action is tried, some episodes end."""
    rng = np.random.default_rng(seed)
    n = 40
    return Transitions(
        rng.random((n, 2)),
        labels[np.arange(n) % n_actions],
        rng.random(n),
        rng.random((n, 2)),
        np.arange(n) % 10 == 9,
        action_labels=labels[:n_actions],
    )


def same(ours: Floats, theirs: Floats) -> None:
    """Demand the same values to the last bit."""
    assert np.array_equal(ours, theirs), f"values differ by up to {np.abs(ours - theirs).max():.1e}"


def is_worth(what: str, value: float, expected: float) -> None:
    """Demand a value worked out by hand; ``BLUR`` is the relative error allowed."""
    close = abs(value - expected) <= BLUR * expected
    assert close, f"{what} should be worth {expected:.3g}, but it is {value:.3g}"


def refuses(call: Callable[[], Any], what: str) -> None:
    """Demand a ValueError or a TypeError."""
    error = error_of(call)
    assert error is not None, f"it accepted {what}"
    assert isinstance(error, (ValueError, TypeError)), f"{what} raised {type(error).__name__}: {error}"


def error_of(call: Callable[[], Any]) -> Exception | None:
    """Return the error that a call raises, if any."""
    try:
        call()
    except Exception as error:
        return error
    return None
