"""Judging: a file of 10^6 rows, and the jackknife beside equations that are solved afresh.

The judgement runs in a process of its own (``python -m benchmarks.judging FOLDER``), for its peak memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import (
    Report,
    Row,
    Section,
    Tick,
    at_most,
    cpu_time,
    cpu_times,
    largest_difference,
    require_agreement,
    seconds,
    times,
)
from benchmarks.memory import ROOT, megabytes, peak_memory
from kbrl import KBSF, PolicyEvaluator, judge, load_model, open_log, save_model, split_episodes
from kbrl.logs.writing import write_log
from kbrl.tasks import PuddleWorld
from kbrl.trust.estimates import LADDER, Evidence, rungs
from tests.trust.finite_logs import without_block

MOST_SECONDS, MOST_BYTES, MOST_OF_JACKKNIFE = 10.0, 500e6, 0.5
LEARN = 20_000  # rows
_AGREEMENT = 0.05  # of a standard error: corrections stop when they have settled


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield the table of the jackknife, and that of a whole judgement."""
    yield _of_jackknife(20_000 if quick else 100_000, tick)
    n = 30_000 if quick else 10**6
    tick(f"judging {n:,} rows")
    yield _of_judgement(n)


SECTION = Section("judging", run)


def _task(n: int) -> tuple[Any, Any]:
    """Return a policy, and a log of about n rows that it has not learnt from."""
    log = PuddleWorld(noise=True).collect(n + LEARN, random_state=0, max_steps=60)
    learn, rest = split_episodes(log, LEARN / len(log))
    return KBSF(100, sample_width=0.3, rep_width=0.3, random_state=0).fit(learn).model_, rest


def _of_jackknife(n: int, tick: Tick) -> Report:
    policy, log = _task(n)
    evaluator = PolicyEvaluator(policy).fit(log)
    found: dict[str, list[np.ndarray]] = {}

    def evidence() -> Evidence:
        assert evaluator.sums is not None
        return Evidence(evaluator.sums, evaluator.discount, features=evaluator.checked_frame().features)

    def corrected() -> None:
        found["kbrl"] = [rung.left_out for rung in rungs(evidence())]

    def afresh() -> None:
        blocks = range(evaluator.n_blocks)
        found["afresh"] = [np.array([without_block(evidence(), b).at(rung) for b in blocks]) for rung, _ in LADDER]

    cpu = cpu_times({"kbrl": corrected, "afresh": afresh}, rounds=3, tick=tick)
    spread = float(np.std(found["afresh"][-1]))
    require_agreement("solving afresh", largest_difference(found["kbrl"], found["afresh"]), _AGREEMENT * spread)
    goal = at_most(cpu["kbrl"], MOST_OF_JACKKNIFE, f"at most {MOST_OF_JACKKNIFE} s")
    rows = [Row("kbrl: corrections of one solution", seconds(cpu["kbrl"]), times(1.0), goal)]
    rows.append(
        Row("the equations without each block, afresh", seconds(cpu["afresh"]), times(cpu["afresh"] / cpu["kbrl"]))
    )
    notes = [
        f"{evaluator.n_blocks} blocks, {evaluator.checked_frame().features.n_reps} features, 4 actions, 2 lambdas."
    ]
    return Report("The jackknife of a judgement", rows, notes)


def _of_judgement(n: int) -> Report:
    policy, log = _task(n)
    with tempfile.TemporaryDirectory() as folder:
        save_model(policy, Path(folder) / "model.kbrl")
        write_log(log, Path(folder) / "log.parquet")
        command = [sys.executable, "-m", "benchmarks.judging", folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    cpu, peak = found["cpu"], found["peak"]
    rows = [Row("judge", seconds(cpu), times(1.0), at_most(cpu, MOST_SECONDS, f"at most {MOST_SECONDS:g} s"))]
    rows.append(Row("its sums alone: two passes over the file", seconds(found["sums"]), times(found["sums"] / cpu)))
    goal = at_most(peak, MOST_BYTES, f"below {megabytes(MOST_BYTES)}")
    rows.append(Row("judge, peak memory of the process", megabytes(peak), "", goal))
    notes = ["Puddle world with noise, a model of order 0, a Parquet file."]
    return Report(f"{len(log):,} rows judged on one core", rows, notes)


def _main(folder: str) -> None:
    policy, log = load_model(Path(folder) / "model.kbrl"), open_log(Path(folder) / "log.parquet")
    judge(policy, next(iter(log.chunks())))  # compiles
    cpu, peak = cpu_time(lambda: judge(policy, log)), peak_memory()
    sums = cpu_time(lambda: PolicyEvaluator(policy).fit(log))
    print(json.dumps({"cpu": cpu, "sums": sums, "peak": peak}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
