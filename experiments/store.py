"""Rows in files, appended as soon as a job is done, so that an interrupted study goes on where it stopped.

One file a figure and scale, one JSON object a line.  A job's rows are written at once, in one go; a line that a
crash or a full disk cut short is dropped when the file is next opened, with the other rows of its job.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from experiments.study import Job, Row


def job_key(job: Job) -> str:
    """Return what tells a job apart from others of its figure."""
    return json.dumps([job.settings, job.seed], sort_keys=True)


class Store:
    """The rows of one figure at one scale."""

    def __init__(self, folder: Path, figure: str, scale: str) -> None:
        self.path = folder / "rows" / f"{figure}.{scale}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: list[Row] = []
        self._done: set[str] = set()
        if self.path.exists():
            self._read()

    def has(self, job: Job) -> bool:
        """Whether all rows of a job are there."""
        return job_key(job) in self._done

    def add(self, job: Job, rows: list[Row]) -> None:
        """Append the rows of a job; the last says that the job is complete."""
        key = job_key(job)
        marked = [row | {"job": key, "last": number == len(rows) - 1} for number, row in enumerate(rows)]
        text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in marked)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self.rows += marked
        self._done.add(key)

    def _read(self) -> None:
        by_job: dict[str, list[Row]] = {}
        text = self.path.read_text(encoding="utf-8")
        for line in text.splitlines():
            try:
                row = json.loads(line)
                by_job.setdefault(row["job"], []).append(row)
            except (ValueError, KeyError, TypeError):
                continue  # cut short
        for key, rows in by_job.items():
            if rows[-1]["last"]:
                self.rows += rows
                self._done.add(key)
        whole = "".join(json.dumps(row, sort_keys=True) + "\n" for row in self.rows)
        if whole != text:
            beside = self.path.with_suffix(".part")
            beside.write_text(whole, encoding="utf-8")
            beside.replace(self.path)
