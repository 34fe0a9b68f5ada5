"""A log as a ward might write it, with names that try to break out of a page, and the report on it."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest

from kbrl import KBSF, load_log, save_model
from kbrl.insight.coverage import coverage
from kbrl.report import write_report

SCRIPT = "<script>document.title = 'broken out'</script>"
ACTIONS = ["wait", SCRIPT, 'give "A" & B', "$x_1$ 薬"]
STATE = ["age", "<img src=x onerror=alert(1)>", "platelets"]
COLUMNS = {"state": STATE, "action": "what was done", "reward": "r", "episode": "patient", "step": "hour"}


def write_ward(path, n_patients=60, seed=0):
    """Write a CSV without next states: the last row of a patient has none, and is no transition unless it is an end."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(n_patients):
        age, score, platelets = rng.normal(60, 15), rng.normal(), rng.normal(2e5, 5e4)
        n_hours = int(rng.integers(3, 12))
        for hour in range(n_hours):
            action = int(rng.choice(4, p=[0.5, 0.3, 0.15, 0.05]))
            ends = hour == n_hours - 1 and patient % 3 == 0
            row = [f"p{patient}", hour, age, score, platelets, ACTIONS[action], score + 0.1 * rng.normal(), int(ends)]
            rows.append(row)
            score += rng.normal(0.2 * (action == 1) - 0.1, 0.3)
            platelets += rng.normal(0, 5e3)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "hour", *STATE, "what was done", "r", "terminated"])
        writer.writerows(rows)
    return rows


@pytest.fixture(scope="session")
def ward(tmp_path_factory):
    """A model of the ward's log, in a file, and the report on it."""
    folder = tmp_path_factory.mktemp("ward")
    log, model, page = folder / "ward.csv", folder / "ward.kbrl", folder / "ward.html"
    rows = write_ward(log)
    learner = KBSF(20, sample_width=0.4, rep_width=0.3, random_state=0).fit(load_log(log, columns=COLUMNS))
    save_model(learner, model, columns=COLUMNS)
    facts = write_report(model, log, page, with_cases=True)
    text = page.read_text(encoding="utf-8")
    return SimpleNamespace(folder=folder, log=log, model=model, page=page, rows=rows, facts=facts, text=text)


@pytest.fixture(scope="session")
def private(ward):
    """The report as it is by default: without rows of the log."""
    page = ward.folder / "private.html"
    facts = write_report(ward.model, ward.log, page)
    return SimpleNamespace(page=page, facts=facts, text=page.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def recomputed(ward):
    """The table of actions by other means: csv, numpy, and Q(s, a) as the paper writes it."""
    model, kept = ward.facts.inputs.model, []
    for place, row in enumerate(ward.rows):
        is_last = place + 1 == len(ward.rows) or ward.rows[place + 1][0] != row[0]
        if not is_last or row[-1]:
            kept.append(row)
    states = np.array([row[2:5] for row in kept], dtype=float) / model.coordinates.scale
    reps = model.reps / model.coordinates.scale
    distances = np.sqrt(((states[:, None] - reps[None]) ** 2).sum(axis=2))
    weights = np.exp(-(distances - distances.min(axis=1, keepdims=True)) / 0.3)
    q = weights @ model.solution.q / weights.sum(axis=1, keepdims=True)
    labels = model.action_labels.tolist()
    logged = np.array([labels.index(row[5]) for row in kept])
    rewards = np.array([row[6] for row in kept])
    best, chosen = q.argmax(axis=1), q[np.arange(len(q)), logged]
    table = []
    for action, label in enumerate(labels):
        rows = logged == action
        table.append(
            {
                "label": label,
                "logged": int(rows.sum()),
                "recommended": int((best == action).sum()),
                "agreed": int((rows & (best == action)).sum()),
                "reward": rewards[rows].mean(),
                "value": chosen[rows].mean(),
                "advantage": (q.max(axis=1) - chosen)[rows].mean(),
            }
        )
    cases = np.zeros(model.solution.q.shape)  # logged states nearest to each representative state, by action
    np.add.at(cases, (distances.argmin(axis=1), logged), 1)
    support = coverage(model, states * model.coordinates.scale).support[
        np.arange(len(q)), best
    ]  # judged in tests/insight
    return SimpleNamespace(
        table=table, kept=kept, q=q, logged=logged, best=best, advantages=q.max(axis=1) - chosen, states=states,
        cases=cases, support=support,
    )  # fmt: skip
