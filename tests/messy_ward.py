"""A ward whose truth is known: a small simulator, its log as a clean table, and the same log as people have it.

The state is how ill a patient is (sofa), the blood pressure (map), the unit and the severity class.  A high dose helps
in the unit "icu" while the pressure is low, and harms elsewhere; a low dose helps a little; nothing lets the patient
drift.  A patient goes home when sofa falls below 2 and dies above 18.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas

from kbrl import KBSF
from kbrl.checks import KbrlWarning

DRUGS = ("none", "low", "high")
UNITS = ("icu", "ward", "day clinic")
CLASSES = ("mild", "medium", "severe")
STATE = ["sofa", "map", "unit", "severity", "ventilated"]
LONGEST = 12


class Ward:
    """Patients, all treated at once."""

    def __init__(self, n_patients: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.sofa = self.rng.uniform(4.0, 14.0, n_patients)
        self.map = self.rng.normal(70.0, 12.0, n_patients)
        self.unit = self.rng.choice(len(UNITS), n_patients, p=(0.5, 0.4, 0.1))
        self.ventilated = self.rng.random(n_patients) < 0.4

    def states(self) -> pandas.DataFrame:
        """Return the states as a clean table."""
        severity = np.digitize(self.sofa, [7.0, 11.0])
        columns = [
            np.round(self.sofa, 2),
            np.round(self.map, 1),
            np.array(UNITS)[self.unit],
            np.array(CLASSES)[severity],
        ]
        return pandas.DataFrame(dict(zip(STATE, [*columns, np.where(self.ventilated, "yes", "no")])))

    def step(self, doses: np.ndarray) -> None:
        """Let a day pass after these doses: 0, 1 or 2."""
        helped = (self.unit == 0) & (self.map < 70.0)
        effect = np.where(doses == 2, np.where(helped, -2.5, 1.5), np.where(doses == 1, -0.8, 0.3))
        self.sofa = self.sofa + effect + self.rng.normal(0.0, 0.3, len(self.sofa))
        self.map = 70.0 + 0.8 * (self.map - 70.0) + self.rng.normal(0.0, 6.0, len(self.map))


def clean_log(n_patients: int, seed: int = 0) -> pandas.DataFrame:
    """Return the log of random treatment, one row per day, sorted, without a hole."""
    ward, days = Ward(n_patients, seed), []
    present = np.ones(n_patients, dtype=bool)
    for day in range(LONGEST):
        frame = ward.states()
        doses = ward.rng.integers(0, 3, n_patients)
        ward.step(doses)
        died, home = ward.sofa > 18.0, ward.sofa < 2.0
        outcome = np.where(died, "died", np.where(home, "home", ""))
        frame = frame.assign(
            patient=np.arange(n_patients),
            day=day,
            drug=np.array(DRUGS)[doses],
            risk=np.round(ward.sofa, 2),
            outcome=outcome,
        )
        days.append(frame[present])
        present &= ~died & ~home
    return pandas.concat(days).sort_values(["patient", "day"], kind="stable").reset_index(drop=True)


def with_holes(frame: pandas.DataFrame, share: float = 0.15, seed: int = 1) -> pandas.DataFrame:
    """Return the log with missing cells in all columns of the state but the first."""
    rng, frame = np.random.default_rng(seed), frame.copy()
    for name in STATE[1:]:
        frame.loc[rng.random(len(frame)) < share, name] = np.nan
    return frame


def score(predict, n_patients: int = 600, seed: int = 9, discount: float = 1.0) -> float:
    """Return the mean return of a policy, a function of a frame of states: -0.1 per day and point, 20 at home."""
    ward, total = Ward(n_patients, seed), np.zeros(n_patients)
    present = np.ones(n_patients, dtype=bool)
    for day in range(LONGEST):
        labels = np.asarray(predict(ward.states()))
        ward.step(np.array([DRUGS.index(label) for label in labels]))
        died, home = ward.sofa > 18.0, ward.sofa < 2.0
        total += discount**day * np.where(present, -0.1 * ward.sofa + 20.0 * home - 20.0 * died, 0.0)
        present &= ~died & ~home
    return float(total.mean())


COLUMNS = {
    "state": STATE,
    "action": "drug",
    "reward": "-0.1 * risk + 20 * (outcome == 'home') - 20 * (outcome == 'died')",
    "terminated": "outcome in ('died', 'home')",
    "episode": "patient",
    "step": "day",
    "ordinal": {"severity": list(CLASSES)},
}


def fitted(rows, **columns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        learner = KBSF(n_reps=120, sample_width=0.3, rep_width=0.3, discount=0.95, random_state=0)
        return learner.fit(rows, columns=COLUMNS | columns)
