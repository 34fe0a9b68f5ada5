"""How the paper collects data of HIV patients: in rounds, each treated by what the rounds before have taught.

Paper: section 4.3.3.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from kbrl.arrays import Floats
from kbrl.checks import as_generator, in_unit_interval, whole
from kbrl.data.transitions import Transitions, join
from kbrl.tasks.task import Task
from kbrl.trials.policies import EpsilonGreedy, Policy


class Learner(Protocol):
    """What the protocol needs of a learner."""

    def fit(self, log: Transitions) -> Any:
        """Learn from transitions, forgetting what was learnt before."""

    def predict(self, states: Floats) -> Any:
        """Return the best action for each state."""


def protocol(
    task: Task,
    learner: Learner,
    *,
    n_rounds: int = 10,
    n_patients: int = 30,
    epsilon: float = 0.15,
    random_state: Any = None,
) -> Transitions:
    """Collect and learn in rounds as in the paper, and return all transitions; the learner has learnt from them.

    In the first round the patients are treated at random, in the others epsilon-greedily on what was learnt from
    all rounds before.  Each round treats as many patients as given, for ``task.max_steps`` decisions.
    """
    n = whole(n_patients, "n_patients") * task.max_steps
    in_unit_interval(epsilon, "epsilon", closed=True)
    rng = as_generator(random_state)
    policy: Policy | None = None
    logs: list[Transitions] = []
    for _ in range(whole(n_rounds, "n_rounds")):
        logs.append(task.collect(n, policy, rng))
        learner.fit(_in_sequence(logs))
        policy = EpsilonGreedy(learner.predict, epsilon, range(len(task.actions)), rng)
    return _in_sequence(logs)


def _in_sequence(logs: list[Transitions]) -> Transitions:
    """Join logs, and number their episodes on from one to the next."""
    whole_log = join(logs)
    starts = np.concatenate([np.diff(log.episodes, prepend=-1) != 0 for log in logs if log.episodes is not None])
    fields = (whole_log.states, whole_log.action_indices, whole_log.rewards, whole_log.next_states)
    return Transitions.trusted(*fields, whole_log.terminals, np.cumsum(starts) - 1, whole_log.action_labels)
