"""The HIV drug schedule: which drugs a patient takes for the next five days.

Six ordinary differential equations for cells, virus and immune response (Adams et al. 2004), integrated by Euler's
method in steps of 0.001 day, 5000 per decision; the reward weighs immune response against virus and drugs (Ernst et
al. 2006).  Two drugs, taken or not: an inhibitor of reverse transcriptase (RTI) and one of protease (PI).

Paper: section 4.3.3 and appendix B.1.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_floats, as_rows, one_of, refuse_rows
from kbrl.numba_cache import njit
from kbrl.tasks.task import Task

EULER_STEP = 0.001  # days
EULER_STEPS = 5000  # per decision
DAYS = EULER_STEP * EULER_STEPS
RTI = np.array([0.0, 0.7, 0.0, 0.7])  # efficacy e1 under each action
PI = np.array([0.0, 0.0, 0.3, 0.3])  # e2

# Constants of the model, an E at the end of a name for the immune effectors.  Their letters are those of Adams et al.
LAMBDA1, D1, K1 = 1e4, 0.01, 8e-7  # CD4 cells: production, death, infection
LAMBDA2, D2, K2, F = 31.98, 0.01, 1e-4, 0.34  # macrophages; RTI works on them with efficacy F e1
DELTA, M1, M2 = 0.7, 1e-5, 1e-5  # infected cells: death, and killing by effectors
NT, C, RHO1, RHO2 = 100.0, 13.0, 1.0, 1.0  # virus: made by a dying cell, cleared, spent on an infection
LAMBDA_E, B_E, K_B, D_E, K_D, DELTA_E = 1.0, 0.3, 100.0, 0.25, 500.0, 0.1  # effectors

VIRUS_COST, RTI_COST, PI_COST, EFFECTOR_GAIN = 0.1, 20000.0, 2000.0, 1000.0  # Q, R1, R2, S
LEAST, MOST = 1e-12, 1e8  # counts outside are shown to learners as these; no patient of the paper's is near them

STARTS = {  # steady without drugs; the first is the customary rounding of (163572.75, 4.995, 11944.94, 45.6, ...)
    "unhealthy": (163573.0, 5.0, 11945.0, 46.0, 63919.0, 24.0),
    "healthy": (
        967838.6707390662,
        620.5182584083026,
        76.01209760367362,
        6.091781596587739,
        415.3756487686955,
        353108.0351001835,
    ),
    "uninfected": (1e6, 3198.0, 0.0, 0.0, 0.0, 10.0),
}
_LANES = 16  # patients side by side: two vector registers of eight, so that one's latency hides behind the other's
_CURVES = {  # how a picture shows the six counts: line and colour
    "CD4 cells": "-tab:blue",
    "macrophages": "-tab:cyan",
    "infected CD4": ":tab:blue",
    "infected macroph.": ":tab:cyan",
    "virus": "-tab:red",
    "effectors": "-tab:green",
}


class HIV(Task):
    """The HIV drug schedule.

    States are counts per ml: healthy CD4 cells T1 and macrophages T2, infected ones T1* and T2*, free virus V,
    immune effectors E.  Learners see their log10.  Nothing is random and no state is an end.

    second_cost: weight R2 of the second drug, PI, in the reward; 2000 in most public code, 20000 in some.
    reward_from: V and E of the reward are those of the "successor", or of the "current" state before the decision.
    start: where patients start: "unhealthy", "healthy", "uninfected" (an unstable steady state) or six counts.
    """

    name = "HIV"
    source = "Adams et al. 2004, Ernst et al. 2006"
    actions = ("none", "RTI", "PI", "both")
    discount = 0.98
    max_steps = 200  # 1000 days of treatment
    state_names = ("T1", "T2", "T1*", "T2*", "V", "E")
    low = np.full(6, np.log10(LEAST))
    high = np.full(6, np.log10(MOST))
    test_sets = ("unhealthy",)

    def __init__(
        self,
        *,
        second_cost: float = PI_COST,
        reward_from: Literal["successor", "current"] = "successor",
        start: Any = "unhealthy",
    ) -> None:
        self.second_cost = _as_cost(second_cost)
        self.reward_from = one_of(reward_from, ("successor", "current"), "reward_from")
        self.start = start
        self._start = _as_counts([_named_start(start)], "start")[0]

    @property
    def observation_names(self) -> tuple[str, ...]:
        """The names of the observed variables."""
        return tuple(f"log10 {name}" for name in self.state_names)

    @property
    def test_steps(self) -> int:
        """A policy is judged over 5000 days."""
        return 1000

    def observe(self, states: Floats) -> Floats:
        """Return the log10 of the counts, (n, 6)."""
        return np.asarray(np.log10(np.clip(states, LEAST, MOST)))

    def draw(self, axes: Any, states: Floats, actions: Integers | None = None) -> None:
        """Draw the six counts over time, and below them when each drug was taken."""
        days = np.arange(len(states), dtype=np.float64) * DAYS
        seen = np.clip(states, LEAST, MOST)
        for (label, style), counts in zip(_CURVES.items(), seen.T):
            axes.plot(days, counts, color=style[1:], linestyle=style[0], linewidth=1.8, label=label)
            axes.plot(days[-1], counts[-1], "o", color=style[1:], markersize=5, clip_on=False)
        least, most = seen.min(), seen.max()
        headroom = 10 * (most / least) ** 0.25  # for the legend
        axes.set(yscale="log", ylim=(least / 3, headroom * most), ylabel="count per ml")
        axes.legend(ncols=3, loc="upper center", frameon=False, fontsize="small", handlelength=1.4)
        axes.tick_params(labelbottom=False)
        _draw_drugs(axes, days, np.empty(0, dtype=np.intp) if actions is None else actions)

    def _reset(self, n: int, rng: np.random.Generator) -> Floats:
        return np.tile(self._start, (n, 1))

    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        _as_counts(states, "states of HIV")
        next_states = _treat(states, RTI[actions], PI[actions])
        diverged = ~np.isfinite(next_states)
        if diverged.any():
            refuse_rows(diverged, states, "states of HIV", "be counts that Euler's steps can follow", "Lower them.")
        judged = next_states if self.reward_from == "successor" else states
        drugs = RTI_COST * RTI[actions] ** 2 + self.second_cost * PI[actions] ** 2
        rewards = EFFECTOR_GAIN * judged[:, 5] - VIRUS_COST * judged[:, 4] - drugs
        return next_states, rewards, np.zeros(len(states), dtype=bool)

    def _test_states(self, name: str) -> Floats:
        return np.array([STARTS[name]])


def _named_start(start: Any) -> Any:
    return STARTS[one_of(start, STARTS, "start")] if isinstance(start, str) else start


def _as_counts(states: Any, name: str) -> Floats:
    counts = as_rows(states, name, n_dims=6)
    if (counts < 0).any():
        refuse_rows(counts < 0, counts, name, "be counts, not below 0", "Pass counts per ml, not their logarithms.")
    return counts


def _as_cost(value: Any) -> float:
    cost = as_floats(value, "second_cost")
    if cost.ndim != 0 or not (np.isfinite(cost) and cost >= 0):
        raise ValueError(f"second_cost must be a finite number not below 0, but it is {value!r}. Try 2000 or 20000.")
    return float(cost)


def _draw_drugs(axes: Any, days: Floats, actions: Integers) -> None:
    strip = axes.inset_axes([0.0, -0.24, 1.0, 0.16], sharex=axes)
    for row, efficacy, color in ((1, RTI, "tab:purple"), (0, PI, "tab:brown")):
        spans = [(day, DAYS) for day, action in zip(days, actions) if efficacy[action] > 0]
        strip.broken_barh(spans, (row - 0.4, 0.8), facecolor=color)
    strip.set(yticks=[0, 1], yticklabels=["PI", "RTI"], ylim=(-0.6, 1.6), xlabel="day, and the drugs taken")
    strip.set_xlim(0.0, max(DAYS, days[-1]))


@njit(cache=True, nogil=True)
def _treat(states: Floats, rti: Floats, pi: Floats) -> Floats:
    """Return the states (n, 6) after one decision.

    Patients advance in blocks of lanes; the last block is filled up with its last patient.  No operation mixes lanes
    and none is reordered, so a patient's future is the same bit for bit, whoever is in the other lanes.
    """
    n = len(states)
    next_states = np.empty((n, 6))
    block = np.empty(9 * _LANES)  # six counts, then three coefficients, of each patient
    for first in range(0, n, _LANES):
        for lane in range(_LANES):
            i = min(first + lane, n - 1)
            for k in range(6):
                block[k * _LANES + lane] = states[i, k]
            block[6 * _LANES + lane] = (1.0 - rti[i]) * K1
            block[7 * _LANES + lane] = (1.0 - F * rti[i]) * K2
            block[8 * _LANES + lane] = (1.0 - pi[i]) * NT * DELTA
        _integrate(block)
        for lane in range(min(_LANES, n - first)):
            for k in range(6):
                next_states[first + lane, k] = block[k * _LANES + lane]
    return next_states


# With Python's error model every division is a possible exception, which keeps the loop out of vector instructions.
@njit(cache=True, nogil=True, error_model="numpy")
def _integrate(block: Floats) -> None:
    for _ in range(EULER_STEPS):
        for i in range(_LANES):
            t1, t2 = block[i], block[_LANES + i]
            sick1, sick2 = block[2 * _LANES + i], block[3 * _LANES + i]
            v, e = block[4 * _LANES + i], block[5 * _LANES + i]
            caught1, caught2 = block[6 * _LANES + i] * t1, block[7 * _LANES + i] * t2  # infections per virus and day
            sick = sick1 + sick2
            growth = B_E * sick / (sick + K_B) - D_E * sick / (sick + K_D) - DELTA_E
            block[i] = t1 + EULER_STEP * (LAMBDA1 - D1 * t1 - caught1 * v)
            block[_LANES + i] = t2 + EULER_STEP * (LAMBDA2 - D2 * t2 - caught2 * v)
            block[2 * _LANES + i] = sick1 + EULER_STEP * (caught1 * v - DELTA * sick1 - M1 * e * sick1)
            block[3 * _LANES + i] = sick2 + EULER_STEP * (caught2 * v - DELTA * sick2 - M2 * e * sick2)
            spent = (RHO1 * caught1 + RHO2 * caught2) * v
            block[4 * _LANES + i] = v + EULER_STEP * (block[8 * _LANES + i] * sick - C * v - spent)
            block[5 * _LANES + i] = e + EULER_STEP * (LAMBDA_E + growth * e)
