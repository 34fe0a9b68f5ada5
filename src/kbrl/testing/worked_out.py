"""Checks of what a learner has learnt by ``fit``: problems whose values are worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.data.transitions import Transitions
from kbrl.testing.lessons import DISCOUNT, discount_of, is_worth, with_params


def a_final_reward_counts_once_and_is_discounted_on_the_way(learner: Any) -> None:
    """Away, one may stay or go home; at home, going pays 1 and ends: worth 1 at home, the discount away."""
    away, home = [0.0, 0.0], [1000.0, 1000.0]
    states, next_states = [away] * 600 + [home] * 10, [away] * 300 + [home] * 310
    rewards, ends = [0.0] * 600 + [1.0] * 10, [False] * 600 + [True] * 10
    log = Transitions(states, ["stay"] * 300 + ["go"] * 310, rewards, next_states, ends, action_labels=["go", "stay"])
    absorb = {"terminals": "absorb", "variant__terminals": "absorb"}
    fitted = with_params(learner, discount=DISCOUNT, random_state=0, **absorb).fit(log)
    discount = discount_of(fitted)
    q = fitted.q_values([home, away])
    is_worth("going at home", q[0, 0], 1.0)
    is_worth("going from away", q[1, 0], discount)
    is_worth("staying away", q[1, 1], discount**2)
    assert fitted.predict([away])[0] == "go", "away, it stays"


def a_reward_for_ever_is_worth_its_discounted_sum(learner: Any) -> None:
    """One state, one action, a reward of 1 at every step: 1 / (1 - discount); a time limit does not end the episode."""
    log = Transitions(np.zeros((50, 2)), ["work"] * 50, np.ones(50), np.zeros((50, 2)), [False] * 50)
    fitted = with_params(learner, discount=DISCOUNT, random_state=0).fit(log)
    is_worth("it", fitted.q_values([[0.0, 0.0]])[0, 0], 1.0 / (1.0 - discount_of(fitted)))
