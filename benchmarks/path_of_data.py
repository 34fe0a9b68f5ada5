"""Through which files the data go: how many there are, and how often a reader returns to one seen before.

Functions of kbrl are listed in the order of their first calls; several in a row in one file are one visit.  A visit to
a file that was visited before is a return.  Warm runs come first, so that imports and compilation are not counted.

    python -m benchmarks.path_of_data [--list]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import kbrl
from kbrl import KBSF, Transitions
from kbrl.cli import main

PACKAGE = Path(kbrl.__file__).parent


def first_calls(work: Callable[[], Any]) -> list[tuple[str, str]]:
    """Return the file and the name of each function of kbrl that is called, in the order of the first calls."""
    seen: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            seen.setdefault(frame.f_code)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return [(str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname) for code in seen]


def example_log(n_rows: int = 400) -> Transitions:
    """Return random transitions of two state variables and two actions, in episodes of ten."""
    rng = np.random.default_rng(0)
    states, next_states = rng.random((n_rows, 2)), rng.random((n_rows, 2))
    terminals = np.arange(n_rows) % 10 == 9
    return Transitions(states, rng.integers(0, 2, n_rows), rng.random(n_rows), next_states, terminals)


def write_csv(path: Path, n_rows: int = 400) -> None:
    """Write a log such as a ward has: one row per patient and day."""
    rng = np.random.default_rng(0)
    lines = ["patient,day,age,sofa,dose,reward"]
    for row in range(n_rows):
        age, sofa = rng.random(2)
        lines.append(f"{row // 10},{row % 10},{age:.3f},{sofa:.3f},{['none', 'low', 'high'][row % 3]},{age:.2f}")
    path.write_text("\n".join(lines) + "\n")


def report(title: str, work: Callable[[], Any], *, is_listed: bool) -> None:
    """Print how many files, functions, visits and returns a piece of work has."""
    work()
    calls = first_calls(work)
    visits = [(file, [name for _, name in group]) for file, group in groupby(calls, key=lambda call: call[0])]
    n_files = len({file for file, _ in visits})
    print(f"{title}: {n_files} files, {len(calls)} functions, {len(visits)} visits, {len(visits) - n_files} returns")
    if is_listed:
        known: set[str] = set()
        for file, names in visits:
            print(f"  {'<' if file in known else ' '} {file}: {', '.join(names)}")
            known.add(file)


def run(is_listed: bool) -> None:
    """Measure a fit with predictions from arrays, and the command fit from a CSV file."""
    log = example_log()
    learner = KBSF(n_reps=20, random_state=0)
    report("KBSF().fit(log), predict", lambda: learner.fit(log).predict(log.states[:5]), is_listed=is_listed)
    with tempfile.TemporaryDirectory() as folder:
        csv, model = Path(folder, "ward.csv"), Path(folder, "model.kbrl")
        write_csv(csv)
        words = ["fit", str(csv), "--state", "age,sofa", "--action", "dose", "--episode", "patient", "--step", "day"]
        report("kbrl fit ward.csv", lambda: main([*words, "-o", str(model), "--quiet"]), is_listed=is_listed)


if __name__ == "__main__":
    run("--list" in sys.argv)
