"""Logs of a small finite MDP, whose values are known exactly, simulated many at once."""

from dataclasses import dataclass, replace

import numpy as np

from kbrl import Transitions

_PER_BLOCK = {"weight": 1, "reward": 1, "square": 1, "next_now": 0, "start_now": 0, "next_policy": 1}
_PER_BLOCK |= {"start_policy": 1, "n_episodes": 0, "returns": 0, "squared_returns": 0, "cut": 0, "n_rows": 0}


def without_block(evidence, block):
    """Return the evidence of all episodes but those of one block: the slow way to leave it out."""
    sums = replace(evidence.sums, **{name: getattr(evidence.sums, name).copy() for name in _PER_BLOCK})
    for name, axis in _PER_BLOCK.items():
        np.moveaxis(getattr(sums, name), axis, 0)[block] = 0.0
    return replace(evidence, sums=sums)


@dataclass(frozen=True)
class Finite:
    """An MDP with numbered states on a line, and a practice: the probability of each action in each state."""

    probabilities: np.ndarray  # (A, S, S); rows sum to one minus the probability of the end
    rewards: np.ndarray  # (A, S)
    start: np.ndarray  # (S,)
    practice: np.ndarray  # (S, A)
    discount: float

    def value(self, policy):
        """Return the exact value of a policy, (S, A) probabilities, from the start."""
        n_states = len(self.start)
        moves = np.einsum("sa,ast->st", policy, self.probabilities)
        paid = np.einsum("sa,as->s", policy, self.rewards)
        return float(self.start @ np.linalg.solve(np.eye(n_states) - self.discount * moves, paid))

    def logs(self, n_logs, n_episodes, rng, *, limit=400):
        """Yield logs of so many episodes under practice; all are simulated side by side."""
        n = n_logs * n_episodes
        states, names = rng.choice(len(self.start), size=n, p=self.start), np.arange(n)
        parts = []
        for step in range(limit):
            actions = _draw(self.practice[states], rng)
            chances = self.probabilities[actions, states]
            following = _draw(np.column_stack([chances, 1 - chances.sum(axis=1)]), rng)
            ends = following == len(self.start)
            rewards = self.rewards[actions, states] + rng.normal(size=len(states))
            parts.append((names, np.full(len(names), step), states, actions, rewards, following, ends))
            states, names = following[~ends], names[~ends]
            if not len(names):
                break
        columns = [np.concatenate(column) for column in zip(*parts)]
        order = np.lexsort([columns[1], columns[0]])
        names, _, states, actions, rewards, following, ends = (column[order] for column in columns)
        following = np.where(ends, states, following)
        for log in range(n_logs):
            rows = names // n_episodes == log
            yield Transitions(
                states[rows, None].astype(float),
                actions[rows],
                rewards[rows],
                following[rows, None].astype(float),
                ends[rows],
                names[rows] + 10_000_019 * (1 + log),  # so that each log has other blocks
                action_labels=np.arange(len(self.probabilities)),
            )


def _draw(chances, rng):
    return (rng.random((len(chances), 1)) > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)


def random_world(seed, n_states=5, n_actions=2, discount=0.9):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(n_states, 0.7), size=(n_actions, n_states)) * rng.uniform(
        0.75, 0.95, (n_actions, n_states, 1)
    )
    rewards = rng.normal(size=(n_actions, n_states))
    practice = rng.dirichlet(np.full(n_actions, 3.0), size=n_states)
    return Finite(probabilities, rewards, rng.dirichlet(np.full(n_states, 3.0)), practice, discount)
