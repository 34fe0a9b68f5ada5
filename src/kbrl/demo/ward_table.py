"""A simulated ward: its log as people keep tables, and what a policy would really earn there.

The more ill a patient is (the score sofa), the more of the drug is needed.  Too little lets the patient get worse, and
too much does harm.  The doctors of this ward wait too long before they raise the dose, and often vary it.  Patients go
home or die; after twenty visits nobody looks any more.  None of it is medicine: the truth is known, so that a judgement
can be compared with it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from kbrl.arrays import Array, Floats, Integers
from kbrl.files import written_beside

DRUGS = ("none", "low dose", "high dose")
STATE = ("sofa", "lactate", "ventilated")
NEEDS = (6.0, 11.0)  # the sofa from which a low dose, and from which a high dose is right
DOCTORS_NEED = (8.0, 13.0)  # what the doctors think
CARELESS = 0.4  # the share of decisions that doctors take at random
MOST_VISITS = 20
N_PATIENTS = 1500
_HEADER = ("clinic", "patient", "visited", *STATE, "drug", "score", "outcome", "note")
_NO_LACTATE = 0.12  # the share of visits without a laboratory value
_TRIAL = 0.001  # the share of visits with a drug that hardly anybody got


@dataclass(frozen=True)
class _Patients:
    """Patients who are in the ward at the same time, (n,) each."""

    age: Integers
    ventilated: Array
    sofa: Floats


def _admitted(n: int, rng: np.random.Generator) -> _Patients:
    return _Patients(rng.integers(28, 90, n), rng.random(n) < 0.3, np.round(rng.uniform(4.0, 16.0, n), 1))


def _lactate(sofa: Floats, rng: np.random.Generator) -> Floats:
    """Return what the laboratory measures: more where patients are more ill, with much noise."""
    return np.round(0.8 + 0.15 * sofa + rng.gamma(2.0, 0.3, len(sofa)), 2)


def _after(sofa: Floats, doses: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Array]:
    """Return the sofa at the next visit, the score of this one, and the outcome: home, died or nothing yet."""
    excess = doses - np.digitize(sofa, NEEDS)  # doses too many, or too few
    drift = -2.2 + 2.0 * np.maximum(-excess, 0) + 1.2 * rng.normal(size=len(sofa))
    following = np.clip(np.round(sofa + drift, 1), 0.0, 24.0)
    outcome = np.where(following < 2.0, "home", np.where(following > 19.0, "died", ""))
    score = -0.1 * following - 1.0 * np.abs(excess) + 5.0 * (outcome == "home") - 10.0 * (outcome == "died")
    return following, np.round(score, 2), outcome


def write_ward(path: Path, n_patients: int = N_PATIENTS, seed: int = 0) -> int:
    """Write the log of the ward as a CSV file with semicolons, decimal commas, holes and notes; return its rows.

    >>> write_ward(Path("ward.csv"), n_patients=2)
    15
    >>> print(Path("ward.csv").read_text().splitlines()[0])
    clinic;patient;visited;sofa;lactate;ventilated;drug;score;outcome;note
    """
    rng = np.random.default_rng(seed)
    with written_beside(path) as beside, open(beside, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=";", lineterminator="\n")
        writer.writerow(_HEADER)
        n_rows = 0
        for number in range(n_patients):
            for row in _stay(number, rng):
                writer.writerow([_cell(value) for value in row])
                n_rows += 1
    return n_rows


def is_ward(path: Path) -> bool:
    """Return whether a file has the header of a ward that this module wrote."""
    header = ";".join(_HEADER)
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.readline(len(header) + 2).rstrip("\n") == header


def _stay(number: int, rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    """Yield one row per visit of a patient."""
    patient, day = _admitted(1, rng), date(2025, 1, 1) + timedelta(days=int(rng.integers(300)))
    sofa = patient.sofa
    for visit in range(MOST_VISITS):
        dose = np.digitize(sofa, DOCTORS_NEED) if rng.random() > CARELESS else rng.integers(3, size=1)
        drug = "trial drug" if rng.random() < _TRIAL else DRUGS[int(dose[0])]
        seen = (sofa[0], _lactate(sofa, rng)[0], "yes" if patient.ventilated[0] else "no")
        if rng.random() < _NO_LACTATE:
            seen = (seen[0], None, seen[2])
        following, score, outcome = _after(sofa, np.zeros(1, dtype=int) if drug == "trial drug" else dose, rng)
        note = f"{number}/{visit + 1}" if rng.random() < 0.8 else f"{number}/{visit + 1}; see chart"
        yield ("South", f"P{number:04d}", day, *seen, drug, score[0], outcome[0] or "in the ward", note)
        if outcome[0]:
            return
        sofa, day = following, day + timedelta(days=int(rng.integers(1, 4)))


def _cell(value: Any) -> str:
    """Return a value as this ward writes it: decimal commas, and nothing where nothing was measured."""
    if value is None:
        return ""
    return str(value).replace(".", ",") if isinstance(value, float) else str(value)


def true_return(
    policy: Callable[[dict[str, Array]], Any] | None, n_patients: int = 2000, discount: float = 0.99, seed: int = 1
) -> float:
    """Return the mean discounted sum of scores of patients who are treated as a policy says; None: as doctors do.

    policy: gets the columns of the state, (n_patients,) each, and returns a drug for each patient; any answer that is
    not a drug, such as "as now", leaves the decision to the doctors.

    >>> round(true_return(lambda seen: ["high dose"] * len(seen["sofa"]), n_patients=500), 1)
    -2.8
    """
    rng = np.random.default_rng(seed)
    patients = _admitted(n_patients, rng)
    sofa, total, here = patients.sofa, np.zeros(n_patients), np.ones(n_patients, dtype=bool)
    ventilated = np.where(patients.ventilated, "yes", "no")
    for visit in range(MOST_VISITS):
        seen = dict(zip(STATE, (sofa, _lactate(sofa, rng), ventilated)))
        doses = np.where(
            rng.random(n_patients) > CARELESS, np.digitize(sofa, DOCTORS_NEED), rng.integers(3, size=n_patients)
        )
        if policy is not None:
            told = [str(drug) for drug in policy(seen)]
            doses = np.array([DRUGS.index(drug) if drug in DRUGS else own for drug, own in zip(told, doses)])
        sofa, score, outcome = _after(sofa, doses, rng)
        total += discount**visit * np.where(here, score, 0.0)
        here &= outcome == ""
    return float(total.mean())


def judged_and_true(model: Path) -> tuple[float, float]:
    """Return what patients score on average if treated by the doctors, and if treated by a saved model."""
    import pyarrow

    from kbrl.storage.model_file import load_model

    known = load_model(model)

    def policy(seen: dict[str, Array]) -> Any:
        return known.predict(pyarrow.table(seen))

    return true_return(None, discount=known.discount), true_return(policy, discount=known.discount)
