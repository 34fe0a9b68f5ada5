"""Try an installed kbrl without extras, in an empty folder: the main job works, and what needs an extra says so."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

PYTHON = [sys.executable, "-I"]  # without PYTHONPATH, which could lead to another kbrl
HEADER = "episode_id,observation_x,action,reward,terminated\n"
ROWS = [f"{t // 5},{t * 7 % 11},{'ab'[t * t % 3 % 2]},{t % 3},{int(t % 5 == 4)}\n" for t in range(400)]
WORKS = {
    "check log.csv": "400 rows",
    "fit log.csv -o m.kbrl --reps 5 --sample-width 1 --rep-width 1 --hold-out 0.3": "m.kbrl",
    "predict m.kbrl log.csv -o answers.csv": "answers.csv",
    "judge m.kbrl log.csv": "policy",
    "export m.kbrl -o policy.py": "policy.py",
}
NEEDS = {"report m.kbrl log.csv -o r.html": "plot", "check log.xlsx": "excel", "check log.h5": "minari",
         "check log.duckdb": "duckdb", "fit log.csv -o n.kbrl --workers 2": "dask"}  # fmt: skip


def run(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of kbrl."""
    return subprocess.run([*PYTHON, "-m", "kbrl", *command.split()], capture_output=True, text=True)


def main() -> None:
    """Run all commands, and stop at the first that does not do what it should."""
    Path("log.csv").write_text(HEADER + "".join(ROWS))
    Path("log.xlsx").write_bytes(b"PK")
    Path("log.h5").write_bytes(b"\x89HDF")
    Path("log.duckdb").write_bytes(bytes(8) + b"DUCK" + bytes(100))
    found = subprocess.run([*PYTHON, "-c", "import kbrl; print(kbrl.__version__, kbrl.__file__)"],
                           capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    assert found[0] == version("kbrl"), found
    assert "site-packages" in found[1], found
    for command, words in WORKS.items():
        done = run(command)
        assert done.returncode == 0, f"kbrl {command}\n{done.stdout}{done.stderr}"
        assert words in done.stdout + done.stderr, f"kbrl {command}\n{done.stdout}{done.stderr}"
        print(f"works: kbrl {command}")
    for command, extra in NEEDS.items():
        done = run(command)
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode != 0, f"kbrl {command}"
        assert f"pip install 'kbrl[{extra}]'" in said, f"kbrl {command}\n{said}"
        print(f"says how to install {extra}: kbrl {command}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
