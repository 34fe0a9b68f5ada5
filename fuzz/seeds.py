"""Write the small valid files that mutations start from: python -m fuzz.seeds. They are kept in fuzz/corpus."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from kbrl import KBSF, Transitions, save_model
from kbrl.logs.writing import as_columns, write_log

CORPUS = Path(__file__).parent / "corpus"
FORMS = {
    "sums": {},
    "neighbors": {"sample_neighbors": 3},
    "samples": {"variant": {"q_function": "samples"}},
}


def small_log(n: int = 24) -> Transitions:
    """Return a log of a few episodes with two state variables and two actions."""
    rng = np.random.default_rng(0)
    states = rng.random((n + 1, 2)).round(3)
    actions, ends = np.where(rng.random(n) < 0.5, "go", "wait"), np.arange(n) % 6 == 5
    episodes = np.arange(n) // 6
    return Transitions(states[:-1], actions, rng.random(n).round(2), states[1:], terminals=ends, episodes=episodes)


def write_corpus(folder: Path = CORPUS) -> None:
    """Write one file for each reader, and models of each form."""
    log = small_log()
    for ending in ("csv", "parquet", "arrow", "npz"):
        write_log(log, folder / f"log.{ending}", names=["x", "y"])
    columns = as_columns(log, ["x", "y"])
    parquet.write_table(pa.table(columns), folder / "packed.parquet", compression="zstd", use_dictionary=True)
    with h5py.File(folder / "flat.h5", "w") as file:
        for name, values in columns.items():
            file[name] = values.astype("S") if values.dtype.kind == "U" else values
    with h5py.File(folder / "minari.hdf5", "w") as file:
        for number in range(2):
            episode, rows = file.create_group(f"episode_{number}"), slice(6 * number, 6 * number + 6)
            episode["observations"] = np.concatenate([log.states[rows], log.next_states[rows][-1:]])
            episode["actions"], episode["rewards"] = log.action_indices[rows], log.rewards[rows]
            episode["terminations"] = log.terminals[rows]
    for name, settings in FORMS.items():
        save_model(KBSF(n_reps=4, random_state=0, min_cases=1, **settings).fit(log), folder / f"{name}.kbrl")


if __name__ == "__main__":
    write_corpus()
