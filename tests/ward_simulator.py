"""A small ward to learn from: a simulator, the clean table it gives, and the same table as people keep it.

The more ill a patient is, the more he needs; too little makes him worse, and too much costs as much.  Who gets well
goes home, who gets too ill dies; after 12 visits nobody looks any more.
"""

import gzip

import numpy as np
import pandas

DOSES = ("keine", "niedrig", "hoch")
NEEDS = (1.7, 3.0)  # the severities from which one dose, and from which two doses are right
STATE = ["Schwere", "Laktat", "Geschlecht"]
ROLES = {"state": STATE, "action": "Dosis", "reward": "Score", "episode": "Patient", "step": "Tag"}
ROLES |= {"terminated": "outcome in ('died', 'home')"}
MOST_VISITS = 12
FIT = ["--reps", "40", "--sample-width", "0.2", "--rep-width", "0.2", "-q"]  # quickly


def after(severity, dose, noise):
    """Return what a visit leads to: the severity at the next one, the score, and who went home or died."""
    excess = dose - np.digitize(severity, NEEDS)  # doses too many, or too few
    following = np.clip(severity - 0.2 - 0.4 * np.minimum(excess, 0) + 0.5 * noise, 0.0, 6.0)
    home, died = following < 0.4, following > 4.8
    return following, -1.0 * np.abs(excess) + 1.0 * home - 3.0 * died, home, died


def clean_table(n_patients=160, seed=0):
    """Return the log of a ward that gives doses at random, one row per visit."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(n_patients):
        severity, sex, day = rng.uniform(1.0, 4.5), ("männlich", "weiblich")[patient % 2], 0
        for _ in range(MOST_VISITS):
            dose, lactate = rng.integers(3), 0.5 * severity + rng.gamma(2.0, 0.4)
            following, score, home, died = after(severity, dose, rng.normal())
            outcome = "home" if home else "died" if died else "ongoing"
            row = {"Patient": f"P{patient:04d}", "Tag": day, "Schwere": round(severity, 4), "Laktat": round(lactate, 3)}
            rows.append(row | {"Geschlecht": sex, "Dosis": DOSES[dose], "Score": round(score, 4), "outcome": outcome})
            if home or died:
                break
            severity, day = following, day + int(rng.integers(1, 4))
    return pandas.DataFrame(rows)


def as_people_keep_it(frame, path, *, encoding="utf-8-sig", holes=0.15, shuffled=False):
    """Write the table with holes, dates, a decimal comma, semicolons, a constant and a note; return the path."""
    rng = np.random.default_rng(1)
    messy = frame.assign(
        Tag=[f"{d.date()}" for d in pandas.Timestamp("2024-01-01") + pandas.to_timedelta(frame.Tag, "D")]
    )
    messy["Laktat"] = messy["Laktat"].mask(rng.random(len(frame)) < holes)
    messy.insert(0, "Klinik", "Süd")
    messy["Notiz"] = [f"Visite {number}" for number in range(len(frame))]
    messy = messy.sample(frac=1.0, random_state=2) if shuffled else messy
    text = messy.to_csv(index=False, sep=";", decimal=",").encode(encoding)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def mean_return(predict, n_patients=400, seed=5):
    """Return the mean sum of scores of patients who are treated as ``predict`` says, given a frame of states."""
    rng = np.random.default_rng(seed)
    severity, total, here = rng.uniform(1.0, 4.5, n_patients), np.zeros(n_patients), np.ones(n_patients, dtype=bool)
    sex = np.where(np.arange(n_patients) % 2, "weiblich", "männlich")
    for _ in range(MOST_VISITS):
        lactate = 0.5 * severity + rng.gamma(2.0, 0.4, n_patients)
        told = predict(pandas.DataFrame({"Schwere": severity, "Laktat": lactate, "Geschlecht": sex}))
        dose = np.array([DOSES.index(label) for label in told])
        severity, score, home, died = after(severity, dose, rng.normal(size=n_patients))
        total += np.where(here, score, 0.0)
        here &= ~(home | died)
    return float(total.mean())
