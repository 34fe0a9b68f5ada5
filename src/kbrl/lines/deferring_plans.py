"""Plans that may leave decisions to people: "as now" is one more decision, the last.

Its lines are those of all logged transitions, whatever the action: where current practice leads.  The other decisions
lose their doubt at each step, and are offered only where enough cases support them.  The plan that does as now
throughout is always offered, so its value is that of current practice, and values are those of the mixed policy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kbrl.arrays import Floats
from kbrl.lines.local_lines import LocalLines
from kbrl.lines.plans import Plans
from kbrl.mdp.deferral import Deferral, doubts_about
from kbrl.mdp.dynamic_programming import evaluate_policy


def plans_with_now(plans: Plans, lines: LocalLines, now: LocalLines, rule: Deferral, support: Floats) -> Plans:
    """Return plans that have "as now" as one more decision.

    lines: those of the actions; now: those of all transitions together, as of one action.
    support: of each action at the representative states, (n_actions, n_reps).
    """
    names = ("lines", "limits", "known", "noise")
    lines_, limits, known, noise = (_joined(getattr(lines, name), getattr(now, name)) for name in names)
    always = np.ones((1, len(lines.reps)), dtype=bool)
    world = plans.world._replace(lines=lines_, limits=limits, known=known)
    world = world._replace(noise=noise if plans.is_spread else world.noise)
    if len(world.behaviour):
        world = world._replace(behaviour=_joined(world.behaviour, _always_usual(world.behaviour)))
    free = replace(plans, world=world, n_actions=plans.n_actions + 1, allowed=None)
    values = _values_of_now(free)
    doubts = np.zeros((plans.n_actions + 1, len(lines.reps)))
    if rule.caution:
        steps = replace(free, world=world._replace(noise=noise), n_decisions=1, n_held=1, is_spread=True).mdp()
        spreads, cases = lines.reward_spread[plans.actions], lines.cases[plans.actions]
        doubts[plans.actions] = doubts_about(steps, values, spreads, cases, rule.caution)
    offered = _joined((support >= rule.cases) & np.isfinite(doubts[:-1]), always)
    world = world._replace(offered=offered, doubts=np.where(np.isfinite(doubts), doubts, 0.0))
    return replace(free, world=world, actions=np.append(plans.actions, plans.n_actions), allowed=plans.allowed)


def _values_of_now(plans: Plans) -> Floats:
    """Return the value of current practice at the representative states, (n_reps,)."""
    mdp = replace(plans, actions=np.array([plans.n_actions - 1], dtype=np.intp), n_decisions=1, n_held=plans.n_steps)
    return evaluate_policy(mdp.mdp(), np.zeros(len(plans.world.reps), dtype=np.intp))


def _always_usual(behaviour: Floats) -> Floats:
    """Return the lines of a share of 1, (1, n_reps, 1 + n_dims): doing as now is usual."""
    result = np.zeros((1, *behaviour.shape[1:]))
    result[:, :, 0] = 1.0
    return result


def _joined(one: Any, other: Any) -> Any:
    return np.ascontiguousarray(np.concatenate([one, other]))
