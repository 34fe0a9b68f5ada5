"""KBSF against KBRL on the same transitions of the puddle world, from data to policy.

The paper counts operations: KBSF(8000, 100) needs about 99.58 % fewer than KBRL(8000) (section 4.3).
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.measure import Report, Row, Section, Tick, cpu_times, seconds, times
from kbrl import KBRL, KBSF
from kbrl.tasks import PuddleWorld


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield the table of both learners."""
    n, m = (400, 20) if quick else (8_000, 100)
    task = PuddleWorld()
    log = task.collect(n, random_state=0)
    small, large = f"KBSF({n}, {m})", f"KBRL({n})"
    learners = {
        small: KBSF(m, sample_width=0.1, rep_width=0.1, discount=task.discount, random_state=0, n_jobs=1),
        large: KBRL(sample_width=0.1, discount=task.discount),
    }
    learners[small].fit(log[:200])  # compiles what is not compiled yet
    measured = cpu_times({name: _fit(learner, log) for name, learner in learners.items()}, rounds=2, tick=tick)
    returns = {}
    for name, learner in learners.items():
        tick(f"{name}: how good is the policy?")
        returns[name] = float(task.evaluate(learner.predict, random_state=1).returns.mean())
    ratio = measured[large] / measured[small]
    rows = [
        Row(small, seconds(measured[small]), times(1.0)),
        Row(large, seconds(measured[large]), times(ratio)),
    ]
    notes = [
        f"KBSF takes {100 * (1 - 1 / ratio):.2f} % less time; the paper counts 99.58 % fewer operations.",
        f"Mean return from the paper's test states: KBSF {returns[small]:.2f}, KBRL {returns[large]:.2f}.",
    ]
    yield Report(f"KBSF and KBRL on the puddle world: fit on {n:,} transitions", rows, notes, compared="ratio to KBSF")


SECTION = Section("learners", run)


def _fit(learner: KBSF | KBRL, log):
    return lambda: learner.fit(log)
