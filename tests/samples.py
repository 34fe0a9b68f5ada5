"""Random problems for tests: logs of transitions, and hypothesis strategies for them."""

import numpy as np
from hypothesis import strategies as st

from kbrl import Transitions

WIDTHS = st.sampled_from([1e-8, 1e-4, 0.01, 0.1, 1.0, 10.0, 1e4, 1e8])
ORDINARY = st.just(1.0)
LEVELS = st.sampled_from([None, 1, 2, 5])  # None: no ties
SCALES = st.sampled_from([1e-100, 1e-6, 1.0, 1e6, 1e100])


def random_log(n=40, n_dims=2, n_actions=2, seed=0, *, ending=0.1, scale=1.0, levels=None, every_action=True):
    """Return random transitions; with ``levels``, states and rewards take few values, so that there are ties."""
    rng = np.random.default_rng(seed)
    draw = (
        (lambda shape: rng.random(shape)) if levels is None else (lambda shape: rng.integers(levels, size=shape) / 1.0)
    )
    actions = rng.integers(n_actions, size=n)
    if every_action:
        actions[: min(n, n_actions)] = np.arange(n_actions)[:n]
    return Transitions(
        draw((n, n_dims)) * scale,
        actions,
        draw(n) - 0.5,
        draw((n, n_dims)) * scale,
        rng.random(n) < ending,
        action_labels=np.arange(n_actions),
    )


def as_lists(log):
    """Return a log as tests/naive.py wants it: one list of (state, reward, next state, is terminal) an action."""
    rows = zip(log.states.tolist(), log.rewards.tolist(), log.next_states.tolist(), log.terminals.tolist())
    rows = list(rows)
    return [[rows[i] for i in indices] for indices in log.by_action()]


@st.composite
def logs(draw, *, max_rows=30, scales=ORDINARY, levels=LEVELS):
    """Draw a log: from one row, one variable and one action upwards, with and without ties, ends and scales."""
    return random_log(
        n=draw(st.integers(1, max_rows)),
        n_dims=draw(st.sampled_from([1, 2, 3])),
        n_actions=draw(st.sampled_from([1, 2, 3])),
        seed=draw(st.integers(0, 2**32 - 1)),
        ending=draw(st.sampled_from([0.0, 0.2, 1.0])),
        scale=draw(scales),
        levels=draw(levels),
        every_action=draw(st.booleans()),
    )
