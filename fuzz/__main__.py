"""Attack every reader and the model loader for some time: python -m fuzz --seconds 60 --seed 0.

Each attack runs in a process of its own, so that a crash of a library is seen as one, with a limit on its memory and
its time.  What breaks is kept in fuzz/corpus/found, and the tests read it from then on.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz.attacks import FOUND, attacks, run

MEMORY = 8 * 10**9  # bytes of address space
SECONDS = 300  # of processor time for one run of an attack, and twenty times that on the clock of a busy machine


def main() -> int:
    """Run attacks one after the other until the time is over; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--examples", type=int, default=150)
    parser.add_argument("--only", help="the name of one attack, which is run in this process")
    given = parser.parse_args()
    if given.only:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        for outcome, count in run(given.only, given.examples, given.seed).items():
            print(outcome, count)
        return 0
    end, totals, n_failed, number = time.monotonic() + given.seconds, dict[str, Counter[str]](), 0, given.seed
    while time.monotonic() < end:
        for name in attacks():
            if time.monotonic() >= end:
                break
            outcomes = _run_apart(name, given.examples, number)
            n_failed += "FAILED" in outcomes
            totals[name] = totals.get(name, Counter()) + outcomes
        number += 1
    for name, outcomes in totals.items():
        print(f"{name:24} {', '.join(f'{outcome} {count:,}' for outcome, count in sorted(outcomes.items()))}")
    print(f"{sum(sum(outcomes.values()) for outcomes in totals.values()):,} files, {n_failed} failures")
    return min(n_failed, 1)


def _run_apart(name: str, n_examples: int, number: int) -> Counter[str]:
    command = [sys.executable, "-m", "fuzz", "--only", name, "--examples", str(n_examples), "--seed", str(number)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            environment = os.environ | {"TMPDIR": folder}
            done = subprocess.run(command, capture_output=True, text=True, timeout=20 * SECONDS, env=environment)
        except subprocess.TimeoutExpired:
            _keep(Path(folder), number)
            print(f"{name}, seed {number}: no answer within {20 * SECONDS} s", file=sys.stderr)
            return Counter({"FAILED": 1})
        if done.returncode:
            _keep(Path(folder), number)
    if done.returncode:
        print(f"{name}, seed {number}: status {done.returncode}\n{done.stderr[-3000:]}", file=sys.stderr)
        return Counter({"FAILED": 1})
    return Counter({outcome: int(count) for outcome, count in (line.split() for line in done.stdout.splitlines())})


def _keep(folder: Path, number: int) -> None:
    """Keep the file at which a process died."""
    FOUND.mkdir(exist_ok=True)
    for path in folder.glob("*/*"):
        if path.is_file():
            shutil.copyfile(path, FOUND / f"{number}-{path.name}")


if __name__ == "__main__":
    sys.exit(main())
