"""Deferring: what does leaving decisions to people cost and save, and how often is a changed decision right?

Logs of 10 and of 100 episodes of six kinds of people.  For each log: a model with chosen settings, as `kbrl fit` makes
it, and the same one deferring; their true values in the simulator.  Then single decisions: is a change by itself a gain
over current practice, by the support that the model has for it?  No claims of the paper are judged here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.behaviour_logs import PEOPLE, People, gains_of_a_change
from experiments.drawing import new_figure
from experiments.study import Job, Row, Settings, Verdict, select
from kbrl import KBSF, Transitions, coverage, fit_automatically, open_log
from kbrl.logs.writing import write_log

AVERAGES = ("n_reps", "sample_width", "rep_width")  # what is chosen of a model of order 0: only these can defer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Deferring to current practice: true values, and how often a changed decision is right"
POLICIES = {
    "plain": None,
    "caution only": {"cases": 1e-9, "caution": 1.0},
    "cases only": {"cases": 3, "caution": 0.0},
    "deferring": {"cases": 3, "caution": 1.0},
}
EPISODES = (10, 100)
SUPPORTS = (0.0, 1.0, 3.0, 10.0, 30.0, np.inf)
N_TRUTH, N_JUDGED = 4000, 500  # episodes behind the value of current practice, and of a policy
N_DECISIONS, N_ROLLOUTS = 40, 200  # per log, and per action in each
BLOCKS = {"smoke": (1, 1), "laptop": (4, 10), "paper": (10, 10)}  # jobs per kind of people, and logs per job


def jobs(scale: str) -> list[Job]:
    """One job has some logs of one kind of people."""
    n_jobs, n_logs = BLOCKS[scale]
    return [Job({"people": name, "n_logs": n_logs}, seed) for name in PEOPLE for seed in range(n_jobs)]


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Judge the policies of each log by the simulator, and single decisions of one log."""
    people = PEOPLE[settings["people"]]
    now = people.value(None, N_TRUTH, [0])
    for log_number in range(settings["n_logs"]):
        for n_episodes in EPISODES:
            model = fitted(people.log(n_episodes, [1, seed, log_number, n_episodes]), people)
            found: Row = {"people": settings["people"], "episodes": n_episodes, "log": log_number, "now": now}
            same = [2, seed, log_number]  # starts and chances for all policies, current practice included
            luck = people.value(None, N_JUDGED, same) - now
            for name, rule in POLICIES.items():
                policy = model.predict if rule is None else model.deferring(**rule).predict
                found[name] = people.value(policy, N_JUDGED, same) - luck
            yield found | {"part": "values"}
            if log_number == 0:
                yield from decisions(model, people, found, seed)


def fitted(log: Transitions, people: People) -> KBSF:
    """Return a model with chosen settings, as ``kbrl fit`` makes it."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows without a next state
        path = Path(folder) / "log.parquet"
        write_log(log, path)
        learner = KBSF(discount=people.task.discount, random_state=0, n_jobs=1)
        return fit_automatically(learner, open_log(path), choose=AVERAGES).model


def decisions(model: KBSF, people: People, found: Row, seed: int) -> Iterator[Row]:
    """Count right and wrong changes, by support: of the plain model, and of the deferring one."""
    rng = np.random.default_rng([3, seed])
    states = people.log(max(10, N_DECISIONS), [4, seed]).states
    states = states[rng.choice(len(states), min(N_DECISIONS, len(states)), replace=False)]
    gains, errors = gains_of_a_change(people, states, N_ROLLOUTS, [5, seed])
    own = [people.task.actions.index(label) for label in model.action_labels_.tolist()]  # a file has another order
    gains, errors = gains[:, own], errors[:, own]
    support, rows = coverage(model, states).support, np.arange(len(states))
    safe = model.deferring()
    answered = {"plain": np.ones(len(states), dtype=bool), "deferring": ~safe.deferred(states)}
    last = gains.shape[1] - 1
    chosen = {name: found.q_values(states).argmax(axis=1) for name, found in (("plain", model), ("deferring", safe))}
    chosen["deferring"] = np.minimum(chosen["deferring"], last)  # "as now" is not answered
    for name, actions in chosen.items():
        gain, error = gains[rows, actions], errors[rows, actions]
        for low, high in pairwise(SUPPORTS):
            part = answered[name] & (support[rows, actions] >= low) & (support[rows, actions] < high)
            counts = {"right": gain > 2 * error, "wrong": gain < -2 * error, "all": np.ones(len(rows), dtype=bool)}
            numbers = {key: int((part & value).sum()) for key, value in counts.items()}
            about = {"people": found["people"], "episodes": found["episodes"], "policy": name, "support": low}
            yield about | numbers | {"part": "decisions"}


def table_of_values(rows: list[Row]) -> list[str]:
    """Return the lines of a table: mean and 10th percentile of the true value over the logs."""
    lines = ["| log | episodes | logs | now | " + " | ".join(POLICIES) + " |", "|--|--|--|--|" + "--|" * len(POLICIES)]
    for name in PEOPLE:
        for n_episodes in EPISODES:
            found = select(rows, part="values", people=name, episodes=n_episodes)
            if found:
                cells = [_cell([row[policy] for row in found]) for policy in POLICIES]
                lines.append(f"| {name} | {n_episodes} | {len(found)} | {found[0]['now']:.2f} | {' | '.join(cells)} |")
    return lines


def table_of_decisions(rows: list[Row]) -> list[str]:
    """Return the lines of a table: how many of the answers with this much support are right and wrong."""
    lines = ["| support | " + " | ".join(f"{name}: answers, right, wrong" for name in ("plain", "deferring")) + " |"]
    lines.append("|--|--|--|")
    for low, high in pairwise(SUPPORTS):
        cells = []
        for name in ("plain", "deferring"):
            found = select(rows, part="decisions", policy=name, support=low)
            n_right, n_wrong, n = (sum(row[key] for row in found) for key in ("right", "wrong", "all"))
            cells.append(f"{n}, {100 * n_right / n:.0f} %, {100 * n_wrong / n:.0f} %" if n else "none")
        lines.append(f"| {low:g} to {high:g} | {' | '.join(cells)} |".replace(" to inf", " and more"))
    return lines


def _cell(values: list[float]) -> str:
    return f"{np.mean(values):.2f} ({np.quantile(values, 0.1):.2f})"


def draw(rows: list[Row]) -> Figure:
    """Draw the true value of each policy on each log, less that of current practice, in units of its size."""
    figure, axes = new_figure(1, len(EPISODES), width=5.4, height=4.2)
    for axis, n_episodes in zip(axes[0], EPISODES):
        for place, name in enumerate(PEOPLE):
            found = select(rows, part="values", people=name, episodes=n_episodes)
            for shift, (policy, colour) in enumerate((("plain", "#D55E00"), ("deferring", "#0072B2"))):
                gains: Any = [(row[policy] - row["now"]) / abs(row["now"]) for row in found]
                heights = np.full(len(gains), place + 0.3 * shift - 0.15)
                label = policy if place == 0 else None
                axis.plot(gains, heights, "o", color=colour, markersize=4, alpha=0.4, markeredgewidth=0, label=label)
        axis.axvline(0.0, color="black", linewidth=0.8)
        axis.set_xscale("symlog", linthresh=0.1)
        axis.set_yticks(range(len(PEOPLE)), list(PEOPLE))
        axis.set(title=f"logs of {n_episodes} episodes", xlabel="true gain over current practice, relative to it")
        axis.legend(loc="lower right")
    return figure


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge none of the paper's claims; the tables are in docs/deferral.md."""
    return []


if __name__ == "__main__":
    from experiments.store import Store

    kept = Store(Path("results"), "deferral", "laptop").rows
    print("\n".join([*table_of_values(kept), "", *table_of_decisions(kept)]))
