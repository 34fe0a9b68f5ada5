"""Rows in files, appended as soon as a job is done, so that an interrupted study continues where it stopped.

One file per figure and scale, one JSON object per line, compressed: the same rows give the same bytes in whatever order
their jobs were done.  Rows of jobs done since it was last packed are in a file beside it, which is not compressed.  A
job's rows are written at once; a line that a crash or a full disk cut short is dropped when the file is next opened,
with the other rows of its job.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

from experiments.study import Job, Row
from kbrl.files import written_beside


def job_key(job: Job) -> str:
    """Return what tells a job apart from others of its figure."""
    return json.dumps([job.settings, job.seed], sort_keys=True)


class Store:
    """The rows of one figure at one scale."""

    def __init__(self, folder: Path, figure: str, scale: str) -> None:
        self.path = folder / "rows" / f"{figure}.{scale}.jsonl.gz"
        self.journal = self.path.with_suffix("")  # what was added since the last packing
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._by_job: dict[str, list[Row]] = {}
        if self.path.exists():
            self._by_job = _whole_jobs(gzip.decompress(self.path.read_bytes()))
        if self.journal.exists():
            self._by_job = self._read_journal() | self._by_job

    @property
    def rows(self) -> list[Row]:
        """The rows of all jobs, in an order that does not depend on that of the jobs."""
        return [row for key in sorted(self._by_job) for row in self._by_job[key]]

    def has(self, job: Job) -> bool:
        """Whether all rows of a job are there."""
        return job_key(job) in self._by_job

    def of(self, job: Job) -> list[Row]:
        """Return the rows of a job, or none."""
        return self._by_job.get(job_key(job), [])

    def add(self, job: Job, rows: list[Row]) -> None:
        """Append the rows of a job; the last says that the job is complete."""
        key = job_key(job)
        marked = [row | {"job": key, "last": number == len(rows) - 1} for number, row in enumerate(rows)]
        with open(self.journal, "ab") as file:
            file.write(_lines(marked))
            file.flush()
            os.fsync(file.fileno())
        self._by_job[key] = marked

    def pack(self) -> None:
        """Compress all rows into one file."""
        if not self.journal.exists():
            return
        with written_beside(self.path) as beside:
            Path(beside).write_bytes(gzip.compress(_lines(self.rows), 9, mtime=0))
        self.journal.unlink()

    def _read_journal(self) -> dict[str, list[Row]]:
        """Return its complete jobs, and drop the others from the file: their rows will come again."""
        text = self.journal.read_bytes()
        found = _whole_jobs(text)
        whole = _lines([row for rows in found.values() for row in rows])
        if whole != text:
            with written_beside(self.journal) as beside:
                Path(beside).write_bytes(whole)
        return found


def _whole_jobs(text: bytes) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for line in text.decode("utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            found.setdefault(row["job"], []).append(row)
        except (ValueError, KeyError, TypeError):
            continue  # cut short
    return {key: rows for key, rows in found.items() if rows[-1]["last"]}


def _lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows).encode()
