"""Write the small valid files that mutations start from: python -m fuzz.seeds. They are kept in fuzz/corpus."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import h5py
import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as parquet

from kbrl import KBSF, Plan, PolicyEvaluator, Transitions, fit_log, open_log, save_model, save_sums
from kbrl.logs.writing import as_columns, write_log

CORPUS = Path(__file__).parent / "corpus"
FORMS = {
    "sums": {},
    "neighbors": {"sample_neighbors": 3},
    "samples": {"variant": {"q_function": "samples"}},
    "lines": {"order": 1, "plan": Plan(decisions=2, hold=1)},
}
EXPRESSIONS = """-0.1 * sofa + 5 * (outcome == 'home')
where(is_missing(sofa), 0, sofa / 2) >= 1.5e1 and not died
min(sofa, 3, `a b`) - max(abs(sofa), -2) * (outcome in ('home', "ward"))
outcome not in ('x') or (sofa < 3 and (sofa > 1 or died))
"""


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
    rows = [dict(zip(columns, (value.item() for value in row))) for row in zip(*columns.values())]
    _write_tables(folder, rows)
    with h5py.File(folder / "flat.h5", "w") as file:
        for name, values in columns.items():
            file[name] = values.astype("S") if values.dtype.kind == "U" else values
    with h5py.File(folder / "minari.hdf5", "w") as file:
        for number in range(2):
            episode, rows = file.create_group(f"episode_{number}"), slice(6 * number, 6 * number + 6)
            episode["observations"] = np.concatenate([log.states[rows], log.next_states[rows][-1:]])
            episode["actions"], episode["rewards"] = log.action_indices[rows], log.rewards[rows]
            episode["terminations"] = log.terminals[rows]
    _write_other_libraries(folder, log)
    _write_models(folder, log, columns)
    (folder / "expressions.txt").write_text(EXPRESSIONS)


def _write_tables(folder: Path, rows: list[dict[str, Any]]) -> None:
    lines = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    (folder / "log.jsonl").write_bytes(lines)
    with pa.output_stream(str(folder / "packed.jsonl.zst"), compression="zstd") as file:
        file.write(lines)
    (folder / "packed.csv.gz").write_bytes(gzip.compress((folder / "log.csv").read_bytes(), mtime=0))
    book = openpyxl.Workbook()
    for row in [list(rows[0]), *(list(row.values()) for row in rows)]:
        book.active.append(row)
    book.save(folder / "log.xlsx")
    for name, connect in (("log.sqlite", sqlite3.connect), ("log.duckdb", _connect_to_duckdb)):
        (folder / name).unlink(missing_ok=True)
        connection: Any = connect(str(folder / name))
        listed = ", ".join(f"{column} {'text' if column == 'action' else 'double'}" for column in rows[0])
        connection.execute(f"create table log ({listed})")
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"insert into log values ({marks})", [list(row.values()) for row in rows])
        connection.commit()
        connection.close()


def _connect_to_duckdb(path: str) -> Any:
    """Open a file that all versions can read; newer ones write what the oldest that we allow cannot."""
    return duckdb.connect(path, config={"storage_compatibility_version": "v1.0.0"})


def _write_other_libraries(folder: Path, log: Transitions) -> None:
    """Write a file of d3rlpy and a replay buffer of Stable-Baselines3."""
    with h5py.File(folder / "d3rlpy.h5", "w") as file:
        file["columns"], file["version"], file["num_episodes"] = ["observations", "actions"], "2.1", 4
        for number in range(4):
            rows = slice(6 * number, 6 * number + 6)
            file[f"observations_{number}"], file[f"actions_{number}"] = log.states[rows], log.action_indices[rows, None]
            file[f"rewards_{number}"], file[f"terminated_{number}"] = log.rewards[rows, None], True
    ends, actions = log.terminals[:, None].astype(np.float32), log.action_indices[:, None, None]
    buffer = {"observations": log.states[:, None], "next_observations": log.next_states[:, None], "dones": ends,
              "actions": actions, "rewards": log.rewards[:, None], "timeouts": 0 * ends}  # fmt: skip
    np.savez(folder / "replay.npz", **buffer)


def _write_models(folder: Path, log: Transitions, columns: dict[str, Any]) -> None:
    """Write a model of each form, one with a recipe, and the sums of a judgement."""
    for name, settings in FORMS.items():
        save_model(KBSF(n_reps=4, random_state=0, min_cases=1, **settings).fit(log), folder / f"{name}.kbrl")
    mixed = columns | {"observation_y": np.where(log.states[:, 1] < 0.5, "low", "high")}
    mixed = {name: column for name, column in mixed.items() if not name.startswith("next_")}
    learner = KBSF(n_reps=4, random_state=0, min_cases=1)
    save_model(fit_log(learner, open_log(mixed)), folder / "recipe.kbrl")
    evaluator = PolicyEvaluator(lambda states: ["go"] * len(states), discount=0.9, n_reps=3, n_blocks=2)
    save_sums(evaluator.fit(log), folder / "north.sums")


if __name__ == "__main__":
    write_corpus()
