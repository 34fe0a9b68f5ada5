"""The rivals: what their fast forms gain over the plain ones, and KBSF beside them on the same transitions.

Fitted Q with kept cuts against new trees at every iteration; LSPI against loops over the transitions, as the algorithm
is printed (Lagoudakis and Parr 2003, figure 5) and with its block structure; all learners on the puddle world.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.measure import (
    Report,
    Row,
    Section,
    Tick,
    Work,
    at_least,
    cpu_times,
    largest_difference,
    require_agreement,
    seconds,
    times,
)
from kbrl import KBSF, Transitions
from kbrl.learners.fitted_q import FittedQ
from kbrl.learners.lspi import LSPI
from kbrl.tasks import PuddleWorld


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield the tables of fitted Q, of LSPI and of all learners."""
    task = PuddleWorld()
    log = task.collect(400 if quick else 8_000, random_state=0)
    FittedQ(3, n_trees=2, freeze_after=2, n_jobs=1).fit(log[:100])  # compiles what is not compiled yet
    LSPI(10, n_jobs=1).fit(log[:100])
    KBSF(10, n_jobs=1).fit(log[:100])
    yield _fitted_q(log, quick, tick)
    yield _lspi(log, quick, tick)
    yield _all(task, log, quick, tick)


SECTION = Section("rivals", run)


def _fitted_q(log: Transitions, quick: bool, tick: Tick) -> Report:
    n_iterations = 20 if quick else 50
    settings: dict[str, Any] = {"n_trees": 5 if quick else 30, "random_state": 0, "n_jobs": 1}
    kept, anew = "kbrl: FittedQ, cuts kept after 10", "kbrl: FittedQ, new trees at every iteration"
    learners = {
        kept: FittedQ(n_iterations, freeze_after=10, **settings),
        anew: FittedQ(n_iterations, freeze_after=None, **settings),
    }
    measured = cpu_times({name: _fit(learner, log) for name, learner in learners.items()}, rounds=2, tick=tick)
    ratio = measured[anew] / measured[kept]
    rows = [
        Row(kept, seconds(measured[kept]), times(1.0)),
        Row(anew, seconds(measured[anew]), times(ratio), at_least(ratio, 3.0, "at least 3 x")),
    ]
    title = f"Fitted Q: {n_iterations} iterations, {settings['n_trees']} trees an action, {len(log):,} transitions"
    return Report(title, rows, ["Kept cuts can save at most the factor 5: the first 10 of 50 iterations grow trees."])


def _lspi(log: Transitions, quick: bool, tick: Tick) -> Report:
    m, n_iterations = (20, 1) if quick else (100, 3)
    ours = LSPI(m, width=0.02, ridge=0.1, random_state=0, max_iterations=n_iterations, n_jobs=1).fit(log)
    printed, blocked, name = "one transition at a time, as printed", "one at a time, in blocks", "kbrl: LSPI"
    loops = {printed: lambda: _slow_lspi(log, ours, False), blocked: lambda: _slow_lspi(log, ours, True)}
    for contender, work in loops.items():
        tick(f"{contender}: is it the same?")
        require_agreement(contender, largest_difference([ours.weights_], [work()]), 1e-6)
    work = {name: _fit(LSPI(**ours.get_params(deep=False) | {"reps": ours.reps_}), log), **loops}
    measured = cpu_times(work, rounds=1 if quick else 2, tick=tick)
    rows = [Row(name, seconds(measured[name]), times(1.0))]
    for contender, goal in ((printed, 20.0), (blocked, None)):
        ratio = measured[contender] / measured[name]
        hope = None if goal is None else at_least(ratio, goal, f"at least {goal:.0f} x")
        rows.append(Row(contender, seconds(measured[contender]), times(ratio), hope))
    title = (
        f"LSPI: {n_iterations} iterations, {m} features an action, {log.n_actions} actions, {len(log):,} transitions"
    )
    return Report(title, rows, ["All reach the same weights; none chooses representative states within the time."])


def _slow_lspi(log: Transitions, model: LSPI, in_blocks: bool) -> Any:
    """Return LSPI's weights by a loop over transitions in Python, with NumPy for the features of each."""
    reps, scale, width, n_actions = model.reps_ / model.scale_, model.scale_, float(model.width), log.n_actions
    m = len(reps)

    def features(state: Any) -> Any:
        z = np.sqrt(((state / scale - reps) ** 2).sum(axis=1)) / width
        values = np.exp(z.min() - z)
        return values / values.sum()

    weights = None
    for _ in range(model.n_iterations_ + 1):
        matrix, rhs = model.ridge * np.eye(n_actions * m), np.zeros(n_actions * m)
        rows = zip(log.states, log.action_indices, log.rewards, log.next_states, log.terminals)
        for state, action, reward, next_state, end in rows:
            here, there, best = features(state), None, None
            if weights is not None and not end:
                there = features(next_state)
                best = int(np.argmax(weights @ there))
            own = slice(action * m, (action + 1) * m)
            rhs[own] += reward * here
            if in_blocks:
                matrix[own, own] += np.outer(here, here)
                if there is not None and best is not None:
                    matrix[own, best * m : (best + 1) * m] -= model.discount * np.outer(here, there)
            else:
                phi, after = np.zeros(n_actions * m), np.zeros(n_actions * m)
                phi[own] = here
                if there is not None and best is not None:
                    after[best * m : (best + 1) * m] = there
                matrix += np.outer(phi, phi - model.discount * after)
        weights = np.linalg.solve(matrix, rhs).reshape(n_actions, m)
    return np.asarray(weights).T


def _all(task: PuddleWorld, log: Transitions, quick: bool, tick: Tick) -> Report:
    m, n_trees = (20, 5) if quick else (200, 30)
    learners = {
        f"kbrl: KBSF, m = {m}": KBSF(m, discount=task.discount, random_state=0, n_jobs=1),
        f"kbrl: LSPI, m = {m}": LSPI(m, width=0.01, discount=task.discount, random_state=0, n_jobs=1),
        f"kbrl: FittedQ, {n_trees} trees": FittedQ(n_trees=n_trees, discount=task.discount, random_state=0, n_jobs=1),
    }
    measured = cpu_times({name: _fit(learner, log) for name, learner in learners.items()}, rounds=2, tick=tick)
    first = next(iter(measured.values()))
    rows, returns = [], []
    for name, learner in learners.items():
        tick(f"{name}: how good is the policy?")
        rows.append(Row(name, seconds(measured[name]), times(measured[name] / first)))
        score = np.mean([task.evaluate(learner.predict, random_state=seed).mean for seed in range(3)])
        returns.append(f"{type(learner).__name__} {score:.2f}")
    note = f"Mean return from the paper's test states: {', '.join(returns)}."
    return Report(f"KBSF and its rivals on the puddle world: fit on {len(log):,} transitions", rows, [note])


def _fit(learner: Any, log: Transitions) -> Work:
    return lambda: learner.fit(log)
