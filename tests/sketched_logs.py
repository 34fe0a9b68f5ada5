"""Logs whose rows repeat by nature or not, and what is learnt of them."""

import numpy as np

from kbrl import Transitions
from kbrl.data.sketch import Sketch


def continuous(n, seed, **fields):
    rng = np.random.default_rng(seed)
    numbers = (rng.random((n, 2)), rng.integers(3, size=n), rng.random(n), rng.random((n, 2)))
    return Transitions(*numbers, action_labels=[0, 1, 2], **fields)


def of_kinds(kinds):
    """Return a log of discrete rows: those of one kind are the same."""
    kinds = np.asarray(kinds, dtype=np.float64)
    return Transitions(kinds[:, None], np.zeros(len(kinds), dtype=int), kinds, kinds[:, None], action_labels=[0, 1])


def chain(n, seed):
    """Return a walk on five states, of which the last one pays; nothing tells episodes apart."""
    rng = np.random.default_rng(seed)
    moves, slips = rng.integers(2, size=n), rng.random(n) < 0.2
    states = [2]
    for move, slip in zip(moves, slips):
        states.append(min(4, max(0, states[-1] + (1 if (move == 1) != slip else -1))))
    rows = np.array(states, dtype=np.float64)[:, None]
    return Transitions(rows[:-1], moves, (rows[1:, 0] == 4).astype(float), rows[1:], action_labels=[0, 1])


def hospital(n_patients, n_visits, seed, *, n_stages=4, is_fixed=False):
    """Return a walk on a few stages per patient, numbered from 1; a fixed one depends on nothing but its start."""
    rng = np.random.default_rng(seed)
    shape = (n_patients, n_visits)
    stages = np.zeros((n_patients, n_visits + 1))
    stages[:, 0] = rng.integers(n_stages, size=n_patients)
    for visit in range(n_visits):
        step = 1 if is_fixed else rng.integers(-1, 2, size=n_patients)
        stages[:, visit + 1] = (stages[:, visit] + step) % n_stages
    drugs, scores = rng.integers(2, size=shape), rng.integers(2, size=shape).astype(float)
    if is_fixed:
        drugs, scores = np.zeros(shape, dtype=int), stages[:, :-1]
    ends = np.tile(np.arange(n_visits) == n_visits - 1, n_patients)
    before, after = (part.reshape(-1, 1) for part in (stages[:, :-1], stages[:, 1:]))
    ids = np.repeat(np.arange(1, 1 + n_patients), n_visits)
    return Transitions(before, drugs.ravel(), scores.ravel(), after, ends, ids, action_labels=[0, 1])


def more(sketch, log):
    """Return the sketch after one update, which is a batch."""
    return (sketch + Sketch.of(log, largest=sketch.largest)).with_batch_since(sketch)


def added(parts):
    total = Sketch()
    for part in parts:
        total = total + Sketch.of(part, largest=total.largest)
    return total
