"""Peak memory of the dense build, which must not depend on the number of transitions.

Each size runs in a process of its own (``python -m benchmarks.memory N M D``), after the compiled loops are loaded and
the data are in place.  On Linux, the peak is VmHWM, set back before the build; elsewhere it is the process's peak
since its start, so that the growth may be understated.  Growth includes what the allocator keeps of freed blocks.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from benchmarks.measure import Report, Row, Section, Tick, at_most

ROOT = Path(__file__).parents[1]
N_ACTIONS = 4
FIGURES = {
    "process": "whole process less the data",
    "growth": "growth during the build",
    "arrays": "arrays alive at once in the build",  # what the library asks for, whatever the allocator makes of it
}


def run(quick: bool, tick: Tick) -> Iterator[Report]:
    """Yield the table of the peaks."""
    m, d = (50, 3) if quick else (200, 6)
    sizes = (5_000, 20_000) if quick else (100_000, 1_000_000)
    measured = []
    for n in sizes:
        tick(f"the build of {n:,} transitions")
        measured.append(_in_a_process_of_its_own(n, m, d))
    rows = [row for figure in FIGURES for row in _rows(figure, sizes, [each[figure] for each in measured])]
    notes = [f"The data take {' and '.join(megabytes(each['data']) for each in measured)}."]
    title = f"Peak memory of the dense build: m = {m}, d = {d}, {N_ACTIONS} actions"
    yield Report(title, rows, notes, measured="memory", compared="ratio")


SECTION = Section("memory", run)


def _rows(figure: str, sizes: tuple[int, ...], found: list[float]) -> list[Row]:
    """Return a figure at both sizes; of the peak, the second should be the first within 5 %, in either direction.

    The growth during the build is smaller by an order of magnitude, and what the allocator keeps for later shows in it.
    """
    small, large = found
    change = large / small - 1
    is_goal = figure == "process"
    goal = at_most(abs(change), 0.05, f"the same within 5 %: {100 * change:+.1f} %") if is_goal else None
    return [
        Row(f"kbrl, {FIGURES[figure]}, n = {n:,}", megabytes(value), f"{value / small:.3f} x", goal_of)
        for n, value, goal_of in zip(sizes, found, (None, goal))
    ]


def megabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:.1f} MB"


def _in_a_process_of_its_own(n: int, m: int, d: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.memory", str(n), str(m), str(d)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def _measure(n: int, m: int, d: int) -> dict[str, float]:
    from kbrl import Kernel
    from kbrl.data.scaling import Coordinates
    from kbrl.model.kernels import Basis
    from kbrl.model.sums import KernelSums

    log = _log(n, d)
    basis = Basis(log.next_states[:m].copy(), Coordinates.plain(d), Kernel(0.3), Kernel(0.3), N_ACTIONS)
    KernelSums(basis).accumulate(log[:N_ACTIONS], n_jobs=1).to_mdp(0.99)  # loads the compiled loops
    fields = (log.states, log.next_states, log.rewards, log.action_indices, log.terminals)
    reset_peak_memory()
    before = psutil.Process().memory_info().rss
    statistics = KernelSums(basis).accumulate(log, n_jobs=1)
    peak = peak_memory()
    assert int(statistics.counts.sum()) == n
    data = float(sum(field.nbytes for field in fields))
    tracemalloc.start()
    KernelSums(basis).accumulate(log, n_jobs=1)
    arrays = tracemalloc.get_traced_memory()[1]
    return {"data": data, "process": peak - data, "growth": peak - before, "arrays": float(arrays)}


def _log(n: int, d: int):
    """Draw transitions into arrays made beforehand, a few at a time, so that drawing them leaves no peak behind."""
    from kbrl import Transitions

    rng = np.random.default_rng(0)
    states, next_states, rewards = np.empty((n, d)), np.empty((n, d)), np.empty(n)
    for start in range(0, n, 4096):
        rows = slice(start, start + 4096)
        rng.random(out=states[rows])
        rng.random(out=next_states[rows])
        rng.random(out=rewards[rows])
    actions, terminals = np.resize(np.arange(N_ACTIONS, dtype=np.intp), n), np.full(n, False)
    return Transitions.trusted(states, actions, rewards, next_states, terminals, None, np.arange(N_ACTIONS))


def reset_peak_memory() -> None:
    """Give back what is free, and set the peak back to what the process holds now, where the system can."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only in the GNU C library
        if trim is not None:
            trim(0)
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> float:
    """Return the process's peak of resident memory, in bytes.

    On Linux, ru_maxrss would do harm: it starts with what the parent process held when it started this one.
    """
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        return 1024.0 * float(status.split("VmHWM:")[1].split()[0])
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) if sys.platform == "darwin" else 1024.0 * peak


if __name__ == "__main__":
    print(json.dumps(_measure(*map(int, sys.argv[1:]))))
