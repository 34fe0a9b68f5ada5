"""Learn for a long time while all goes wrong: python -m fuzz.soak --seconds 3600.

Two threads ask all the time, each round is saved, some saves meet a full disk, and now and then a worker is killed in
the middle of its work.  At the end the model must have the bits of a quiet run, and memory must be flat: the line
through its second half, by least squares, must rise by less than a twentieth of the median.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil

from kbrl import KBSF, Transitions, fit_on_dask, join, load_model, save_model
from kbrl.choosing.automatic_fit import fit_log
from kbrl.model.model import Model
from kbrl.on_dask.clients import local_cluster

N_ROWS, N_DIMS, KEPT = 2000, 3, 50  # rows of a round, state variables, and rounds after which a new model starts
STATES = np.random.default_rng(7).random((64, N_DIMS))
MOST_RISE = 0.05  # of the median of memory, over the second half of the time
N_PARTS = 8
DASK_EVERY = 120.0  # seconds


def learner() -> KBSF:
    """Return a learner whose model does not depend on how its data are cut."""
    return KBSF(n_reps=60, sample_neighbors=5, rep_neighbors=4, rep_width=0.3, sample_width=0.3, random_state=0)


def chunk(number: int) -> Transitions:
    """Return the rows of a round, the same whenever they are asked for."""
    rng = np.random.default_rng(number)
    states = rng.random((N_ROWS, N_DIMS))
    following = np.clip(states + rng.normal(scale=0.1, size=states.shape), 0, 1)
    return Transitions(states, rng.integers(4, size=N_ROWS), states.sum(axis=1), following, action_labels=range(4))


class Askers:
    """Threads that ask a learner without a break; ``errors`` are what went wrong."""

    def __init__(self, model: KBSF) -> None:
        self.model, self.n_answers, self.errors = model, 0, list[Exception]()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(2)]

    def _ask(self) -> None:
        while not self._is_over.is_set():
            try:
                answers = self.model.q_values(STATES)
                assert np.isfinite(answers).all()
                self.n_answers += 1
            except Exception as error:
                self.errors.append(error)
                return

    def __enter__(self) -> Askers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def save_on_a_full_disk(model: KBSF, path: Path) -> None:
    """Save where no file may have more than 4 kB, and see that the file before is whole."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    n_before = load_model(path).n_samples
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        save_model(model, path)
        raise AssertionError("a full disk went unnoticed")
    except OSError:
        pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert load_model(path).n_samples == n_before


def fit_while_a_worker_dies(n_parts: int) -> KBSF:
    """Fit on two workers, one of which is killed."""
    from dask import delayed

    with local_cluster(2) as client:
        victim = next(iter(client.run(os.getpid).values()))
        killer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
        killer.start()
        fitted = fit_on_dask(learner(), [delayed(chunk)(number) for number in range(n_parts)], client=client)
        killer.join()
    return fitted


def fit_without_workers(n_parts: int) -> KBSF:
    """Fit to the same rows in this process."""
    return fit_log(learner(), join([chunk(number) for number in range(n_parts)]))


def is_same(one: Model, other: Model) -> bool:
    """Return whether two models have the same bits, and answers within the tolerance of the solver.

    A model that was asked in between starts its next solution elsewhere, and ends elsewhere within the tolerance.
    """
    held = ("distances", "rewards", "next_states", "terminals", "multiplicities")
    same_bits = all(getattr(one.sums, name).tobytes() == getattr(other.sums, name).tobytes() for name in held)
    return same_bits and bool(np.allclose(one.q_values(STATES), other.q_values(STATES), rtol=1e-6, atol=1e-6))


def own_memory() -> int:
    """Return the bytes of this process, without files such as libraries, which the system drops when it likes."""
    found = psutil.Process().memory_info()
    return int(found.rss - found.shared)


def rise(memory: Sequence[float]) -> float:
    """Return by which share of their median the second half of some numbers rises, by least squares.

    >>> round(rise([5.0] * 50 + [100.0] * 50), 6), round(rise([0.0] * 100 + list(range(95, 106))), 2)
    (0.0, 0.18)
    """
    half = np.asarray(memory[len(memory) // 2 :], dtype=float)
    slope = np.polyfit(np.arange(len(half)), half, 1)[0] if len(half) > 1 else 0.0
    return float(slope * (len(half) - 1) / np.median(half))


def soak(seconds: float, folder: Path) -> Counter[str]:
    """Run for so many seconds, and return how often each thing was done."""
    done, start, memory = Counter[str](), time.monotonic(), list[float]()
    next_dask, path = start, folder / "model.kbrl"
    while time.monotonic() - start < seconds:
        if time.monotonic() >= next_dask:
            assert is_same(fit_while_a_worker_dies(N_PARTS).model_, fit_without_workers(N_PARTS).model_)
            done["workers killed"] += 1
            next_dask = time.monotonic() + DASK_EVERY
        first = done["rounds"]
        model = learner().partial_fit(chunk(first))
        with Askers(model) as askers:
            for number in range(first + 1, first + KEPT):
                model.partial_fit(chunk(number))
                save_model(model, path)
                done["saves"] += 1
                if number % 10 == 0:
                    save_on_a_full_disk(model, path)
                    done["full disks"] += 1
                memory.append(own_memory())
        assert not askers.errors, askers.errors[0]
        done["rounds"] += KEPT
        done["rows"] += KEPT * N_ROWS
        done["answers"] += askers.n_answers * len(STATES)
        quiet = learner().partial_fit(chunk(first))
        for number in range(first + 1, first + KEPT):
            quiet.partial_fit(chunk(number))
        assert is_same(quiet.model_, model.model_), "the answers are not those of a quiet run"
        assert is_same(load_model(path), quiet.model_)
        done["quiet runs with the same bits"] += 1
    tenths = [np.median(part) / 1e6 for part in np.array_split(memory, 10) if len(part)]
    print(f"MB of memory, by tenths of the time: {', '.join(f'{size:.0f}' for size in tenths)}")
    share = rise(memory)
    print(f"Memory rose by {100 * share:.1f} % in the second half.")
    assert share < MOST_RISE, f"memory is not flat: it rose by {100 * share:.1f} % in the second half"
    done["MB of memory early"], done["MB of memory late"] = int(tenths[0]), int(tenths[-1])
    return done


def main() -> int:
    """Run, and print what was done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, count in soak(given.seconds, Path(folder)).items():
            print(f"{name:32} {count:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
